//! The cache's memory, as the budget resizes it.

use nigh_objects::ObjectMemory;
use nigh_schedule::memory::value::CacheDemand;
use nigh_terms::ByteSize;

/// A cache that grows and shrinks.
pub trait CacheMemory: Send + Sync {
    /// What the cache takes now. Costs next to nothing.
    fn takes(&self) -> ByteSize;
    /// What has been asked of the cache since the start.
    fn demand(&self) -> CacheDemand;
    /// The cache may take more from now on.
    fn may_take(&self, budget: ByteSize);
    /// Shrinks the cache to `budget`: what it can free at once is free when this returns. Blocks for milliseconds.
    fn give_way(&self, budget: ByteSize);
}

impl CacheMemory for ObjectMemory {
    fn takes(&self) -> ByteSize {
        self.living()
    }

    fn demand(&self) -> CacheDemand {
        let usage = self.usage();
        CacheDemand { misses: usage.misses, miss_bytes: usage.miss_bytes, evictions: usage.evictions }
    }

    fn may_take(&self, budget: ByteSize) {
        self.set_cache_budget(budget);
    }

    fn give_way(&self, budget: ByteSize) {
        let _what_it_did = Self::give_way(self, budget);
    }
}
