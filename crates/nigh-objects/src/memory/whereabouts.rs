//! Where the bytes of an object are, as this process knows: its own cached copy, and what the home knows if it is here.
//! For people: nothing here is a read, changes what is cached, or waits.

use nigh_data::ObjectId;
use nigh_terms::{Namespace, NodeNumber, ShardId, Version};

use super::{HOLDINGS_AT_ONCE, ObjectMemory};
use crate::LargeCopy;
use crate::cache::LargestCopies;

/// What this process knows of the copies of one object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Whereabouts {
    /// The object's shard.
    pub shard: ShardId,
    /// The copy that is cached here; none if there is none.
    pub cached: Option<CachedVersion>,
    /// What the object's home knows; none if the home is in another process.
    pub home: Option<KnownCopies>,
}

/// A cached copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CachedVersion {
    /// The version of the copy.
    pub version: Version,
    /// The bytes that it takes in memory; zero if only its metadata is cached.
    pub bytes: u64,
}

/// What a home knows of the copies of one object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KnownCopies {
    /// The newest version; none if the home has no entry, because no other node shares the object and the store has it.
    pub version: Option<Version>,
    /// The nodes that may have the newest version, without the home's own.
    pub sharers: Vec<NodeNumber>,
    /// The nodes that have not acknowledged yet that older copies are invalid.
    pub pending: Vec<NodeNumber>,
}

impl ObjectMemory {
    /// Where the bytes of `object` are.
    #[must_use]
    pub fn whereabouts(&self, object: &ObjectId) -> Whereabouts {
        let cached = {
            let shelf = self.0.shelf();
            shelf.peek(object).map(|kept| CachedVersion {
                version: kept.meta.version(),
                bytes: kept.segment.as_ref().map_or(0, |segment| segment.as_slice().len() as u64),
            })
        };
        let shard = self.0.coherence.shards.of(object);
        Whereabouts { shard, cached, home: self.0.coherence.copies_known(object) }
    }

    /// The cached copies of `namespace` that take most memory: `count` at most, the largest first. Looks at all copies, a part
    /// at a time, so that readers do not wait long for the cache.
    #[must_use]
    pub fn largest_copies(&self, namespace: &Namespace, count: usize) -> Vec<LargeCopy> {
        let mut largest = LargestCopies::new(namespace, count);
        let mut next = Some(0);
        while let Some(from) = next {
            next = self.0.shelf().offer_to(&mut largest, from, HOLDINGS_AT_ONCE);
        }
        largest.found()
    }

    /// The number of invalidations that the homes in this process have sent and nobody has acknowledged yet.
    #[must_use]
    pub fn invalidations_under_way(&self) -> usize {
        self.0.coherence.owed()
    }
}
