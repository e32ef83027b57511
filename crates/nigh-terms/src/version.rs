//! Versions and tokens: the scalars of the consistency contract (SEMANTICS.md).

use std::collections::BTreeMap;
use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Epoch, Sequence, ShardId};

/// The place of a write in its shard's order, which is total and never restarts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
pub struct Version {
    /// The home's epoch.
    pub epoch: Epoch,
    /// The position in the ledger under that epoch.
    pub sequence: Sequence,
}

impl Version {
    /// The version of an object that an outsider wrote: older than every version of Nigh's.
    pub const OUTSIDE: Self = Self { epoch: Epoch(0), sequence: Sequence(0) };
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.epoch, self.sequence)
    }
}

/// The newest version of each shard that an invocation has seen. Tokens join by maximum.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct Token(BTreeMap<ShardId, Version>);

impl Token {
    /// The token of an invocation that has seen no version.
    #[must_use]
    pub const fn empty() -> Self {
        Self(BTreeMap::new())
    }

    /// True if it names no version.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The newest version seen of `shard`.
    #[must_use]
    pub fn get(&self, shard: ShardId) -> Option<Version> {
        self.0.get(&shard).copied()
    }

    /// Adds a seen version.
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

    /// The version of each shard, in the order of shards.
    pub fn iter(&self) -> impl Iterator<Item = (ShardId, Version)> + '_ {
        self.0.iter().map(|(&shard, &version)| (shard, version))
    }

    /// What it says beyond `version` of `shard`.
    #[must_use]
    pub fn beyond(&self, shard: ShardId, version: Version) -> Self {
        Self(self.iter().filter(|&(seen, newest)| seen != shard || newest > version).collect())
    }

    /// True if `self` covers every version of `other`.
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
