//! Shrink: the cache frees memory at once, for a sandbox that grows.
//!
//! Pages that wait for another object go first, then copies that the store has. An unpushed write may go too, because
//! its push reads it from the journal; nothing has to be pushed before. Ephemeral copies go last. The decision takes
//! victims out of the cache under its lock; their memory is freed after that.

use std::time::Duration;

use nigh_data::segment::Segment;
use nigh_terms::ByteSize;

use super::ObjectMemory;
use super::cluster::LeftCopy;
use crate::cache::EvictedCopy;
use crate::hand_over::GivenUp;
use crate::kept::CachedCopy;

/// The most copies that are looked at before readers may lock the cache.
const LOOKS_AT_ONCE: usize = 64;

/// The result of a shrink.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ShrinkResult {
    /// The memory that was freed, as the kernel counts it.
    pub freed: ByteSize,
    /// The memory of copies that were skipped because readers or sandboxes hold it. It counts as used.
    pub held: ByteSize,
    /// Number of copies that were dropped.
    pub copies: u64,
    /// How long it took to choose copies and drop them.
    pub decided_in: Duration,
    /// The longest time for which the cache was locked: no reader waited longer.
    pub locked_for: Duration,
}

impl ObjectMemory {
    /// The memory of all segments now, including those that only readers still hold and pages that wait for another
    /// object. Costs a few loads.
    #[must_use]
    pub fn living(&self) -> ByteSize {
        ByteSize(self.0.taken())
    }

    /// Lowers the budget to `budget` and frees what segments take beyond it, or as much of it as nobody holds, before
    /// this returns. Held memory is freed when it is released, and nothing takes its place.
    pub fn give_way(&self, budget: ByteSize) -> ShrinkResult {
        // In small steps, so that no reader waits long for the cache. The lower budget evicts what is cached meanwhile.
        let shrunk = self.shrink(self.living().saturating_sub(budget));
        self.set_cache_budget(budget);
        shrunk
    }

    /// Frees `bytes` of the memory of segments, or as much of it as nobody holds, before this returns. The budget
    /// stays: lower it first (`set_cache_budget`) to keep the memory from being used again.
    pub fn shrink(&self, bytes: ByteSize) -> ShrinkResult {
        let (shrunk, left) = self.shrink_naming(bytes);
        if let Some(handed_over) = self.0.left.as_ref().filter(|_| !left.is_empty()) {
            // If the queue is full the copies are not handed over; the store has the objects.
            let _dropped = handed_over.try_send(left);
        }
        shrunk
    }

    /// Shrinks the cache as `shrink` does. In a cluster, also returns the names of the dropped copies.
    pub(super) fn shrink_naming(&self, bytes: ByteSize) -> (ShrinkResult, Vec<LeftCopy>) {
        let inner = &self.0;
        let is_named = inner.left.is_some();
        let mut left_copies = Vec::new();
        let before = inner.taken();
        // The pages of the copies that go are not to wait for other objects.
        let _closed = inner.account.give_pool_back(bytes.bytes());
        let freed = || ByteSize(before.saturating_sub(inner.taken()));
        let mut shrunk = ShrinkResult { freed: freed(), ..ShrinkResult::default() };
        // Each copy is looked at once. Small objects share pages: the bytes that they free are known only after they
        // are dropped.
        let mut left = inner.shelf().copies();
        while shrunk.freed < bytes && left > 0 {
            let wanted = bytes.bytes() - shrunk.freed.bytes();
            let (given, took) = {
                let mut shelf = inner.shelf();
                let begun = inner.clock.monotonic();
                let is_held = |kept: &CachedCopy| kept.segment.as_ref().is_some_and(Segment::is_in_use);
                let given = shelf.give_back(wanted, LOOKS_AT_ONCE.min(left), is_named, is_held);
                (given, inner.clock.monotonic().since(begun))
            };
            shrunk.decided_in += took;
            shrunk.locked_for = shrunk.locked_for.max(took);
            shrunk.held = ByteSize(shrunk.held.bytes() + given.held);
            shrunk.copies += given.dropped.len() as u64;
            for EvictedCopy { at, name, bytes, is_hot } in given.gone {
                if let (Some(object), Some(kept)) = (name.object(), given.dropped.get(at)) {
                    let (version, what) = (kept.meta.version(), GivenUp { bytes, is_hot });
                    left_copies.push(LeftCopy { object, version, what });
                }
            }
            inner.evict(given.dropped);
            shrunk.freed = freed();
            left = if given.looked == 0 { 0 } else { left - given.looked };
        }
        (shrunk, left_copies)
    }
}
