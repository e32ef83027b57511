//! Versions and tokens: the scalars of the consistency contract (SEMANTICS.md).

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{Epoch, Sequence, ShardId};

/// The place of a write in its shard's order; total per shard, never reset.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Version {
    /// The home's reign.
    pub epoch: Epoch,
    /// The position in the ledger under that reign.
    pub sequence: Sequence,
}

impl Version {
    /// What an object has that Nigh did not write: older than every version of its own.
    pub const OUTSIDE: Self = Self { epoch: Epoch(0), sequence: Sequence(0) };
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.epoch, self.sequence)
    }
}

/// What an invocation has seen: the newest version of each shard. Joined by maximum.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Token(BTreeMap<ShardId, Version>);

impl Token {
    /// Has seen nothing.
    #[must_use]
    pub const fn empty() -> Self {
        Self(BTreeMap::new())
    }

    /// True if nothing has been seen.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The newest version seen of `shard`.
    #[must_use]
    pub fn get(&self, shard: ShardId) -> Option<Version> {
        self.0.get(&shard).copied()
    }

    /// Adds one sighting.
    pub fn see(&mut self, shard: ShardId, version: Version) {
        let seen = self.0.entry(shard).or_insert(version);
        *seen = (*seen).max(version);
    }

    /// Becomes the least token that covers both.
    pub fn join(&mut self, other: &Self) {
        for (&shard, &version) in &other.0 {
            self.see(shard, version);
        }
    }

    /// What it says of each shard, in the order of the shards.
    pub fn iter(&self) -> impl Iterator<Item = (ShardId, Version)> + '_ {
        self.0.iter().map(|(&shard, &version)| (shard, version))
    }

    /// What it says beyond `version` of `shard`.
    #[must_use]
    pub fn beyond(&self, shard: ShardId, version: Version) -> Self {
        Self(self.iter().filter(|&(seen, newest)| seen != shard || newest > version).collect())
    }

    /// True if whoever holds `self` has seen all that `other` has.
    #[must_use]
    pub fn covers(&self, other: &Self) -> bool {
        other.0.iter().all(|(&shard, &version)| self.get(shard) >= Some(version))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn version(epoch: u64, sequence: u64) -> Version {
        Version { epoch: Epoch(epoch), sequence: Sequence(sequence) }
    }

    #[test]
    fn a_higher_epoch_is_newer_whatever_the_sequence() {
        assert!(version(2, 1) > version(1, 900));
        assert!(Version::OUTSIDE < version(1, 1));
    }

    #[test]
    fn join_is_the_least_cover_of_both() {
        let (mut a, mut b) = (Token::empty(), Token::empty());
        a.see(ShardId(1), version(1, 5));
        a.see(ShardId(2), version(2, 1));
        b.see(ShardId(1), version(2, 1));
        let mut joined = a.clone();
        joined.join(&b);
        assert!(joined.covers(&a) && joined.covers(&b));
        assert!(!a.covers(&b) && !b.covers(&a));
        assert_eq!(joined.get(ShardId(1)), Some(version(2, 1)));
        assert_eq!(joined.get(ShardId(2)), Some(version(2, 1)));
        assert_eq!(joined.get(ShardId(3)), None);
        let beyond = joined.beyond(ShardId(1), version(2, 1));
        assert_eq!(beyond.iter().collect::<Vec<_>>(), [(ShardId(2), version(2, 1))]);
        assert_eq!(joined.beyond(ShardId(1), version(1, 9)), joined);
    }
}
