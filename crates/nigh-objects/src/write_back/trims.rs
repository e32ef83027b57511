//! Which records of the ledger may be trimmed if other nodes write through this home. Pure.
//!
//! A record stays until its writer has said that it never sends the write again, because the next home answers the
//! writer by the record. A record also stays until the older ones of its object are trimmed: a home that found an older
//! record alone would take it for the newest.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use nigh_data::ObjectId;
use nigh_terms::{ShardId, Version};

/// Records that cannot be trimmed yet.
#[derive(Debug, Default)]
pub(super) struct Trims {
    /// Writes that other nodes may send again.
    open: BTreeMap<(ShardId, Version), ObjectId>,
    of: HashMap<ObjectId, UntrimmedRecords>,
}

#[derive(Debug, Default)]
struct UntrimmedRecords {
    open: BTreeSet<Version>,
    /// Versions that the store has, after a write that may be sent again.
    stored: BTreeSet<Version>,
}

impl Trims {
    /// Another node's write has got `version`.
    pub(super) fn opened(&mut self, shard: ShardId, object: &ObjectId, version: Version) {
        self.open.insert((shard, version), object.clone());
        self.of.entry(object.clone()).or_default().open.insert(version);
    }

    /// The store has `versions` of `object`. Returns those whose records may be trimmed now.
    pub(super) fn stored(&mut self, object: &ObjectId, versions: Vec<Version>) -> Vec<Version> {
        let Some(waiting) = self.of.get_mut(object) else { return versions };
        waiting.stored.extend(versions);
        waiting.go()
    }

    /// The writer of `version` never sends its write again. Returns its object and the versions whose records may be
    /// trimmed now.
    pub(super) fn settled(&mut self, shard: ShardId, version: Version) -> Option<(ObjectId, Vec<Version>)> {
        let object = self.open.remove(&(shard, version))?;
        let waiting = self.of.get_mut(&object)?;
        waiting.open.remove(&version);
        let go = waiting.go();
        if waiting.open.is_empty() {
            self.of.remove(&object);
        }
        Some((object, go))
    }

    /// The home of `shard` is elsewhere now.
    pub(super) fn forget(&mut self, shard: ShardId) {
        let all: Vec<_> = self.open.range((shard, Version::OUTSIDE)..).map(|(key, _)| *key).collect();
        for (of, version) in all.into_iter().take_while(|(of, _)| *of == shard) {
            let _goes_with_the_shard = self.settled(of, version);
        }
    }
}

impl UntrimmedRecords {
    fn go(&mut self) -> Vec<Version> {
        let first = self.open.first().copied();
        let stays = first.map_or_else(BTreeSet::new, |first| self.stored.split_off(&first));
        std::mem::replace(&mut self.stored, stays).into_iter().collect()
    }
}

#[cfg(test)]
mod tests {
    use nigh_terms::{BucketName, Epoch, Namespace, ObjectKey, Sequence};

    use super::*;

    fn object(key: &str) -> ObjectId {
        ObjectId {
            namespace: Namespace::new("n").unwrap(),
            bucket: BucketName::new("bucket").unwrap(),
            key: ObjectKey::new(key).unwrap(),
        }
    }

    const fn version(sequence: u64) -> Version {
        Version { epoch: Epoch(1), sequence: Sequence(sequence) }
    }

    const SHARD: ShardId = ShardId(4);

    #[test]
    fn a_record_waits_for_its_writer_and_for_older_ones_of_its_object() {
        let mut trims = Trims::default();
        let (a, b) = (object("a"), object("b"));
        assert_eq!(trims.stored(&a, vec![version(1)]), [version(1)], "nobody asks for it");
        trims.opened(SHARD, &a, version(2));
        trims.opened(SHARD, &a, version(5));
        trims.opened(SHARD, &b, version(3));
        assert_eq!(trims.stored(&a, vec![version(2), version(4), version(5)]), []);
        assert_eq!(trims.settled(SHARD, version(5)), Some((a.clone(), vec![])), "the older one is open");
        assert_eq!(trims.settled(SHARD, version(2)), Some((a.clone(), vec![version(2), version(4), version(5)])));
        assert_eq!(trims.settled(SHARD, version(2)), None);
        assert_eq!(trims.settled(SHARD, version(3)), Some((b, vec![])), "the store does not have it");
        assert!(trims.open.is_empty() && trims.of.is_empty());
    }

    #[test]
    fn a_shard_that_goes_leaves_the_others() {
        let mut trims = Trims::default();
        let (a, b) = (object("a"), object("b"));
        trims.opened(SHARD, &a, version(2));
        trims.opened(ShardId(5), &b, version(2));
        trims.forget(SHARD);
        assert_eq!(trims.stored(&a, vec![version(2)]), [version(2)]);
        assert_eq!(trims.stored(&b, vec![version(2)]), []);
    }
}
