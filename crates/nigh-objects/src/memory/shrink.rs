//! Giving memory back at once, for a sandbox that grows.
//!
//! Copies of what stands behind go first: a write that waits for the store is read from the journal when it is its turn, so
//! that nothing has to be pushed before. Ephemeral ones go last. The decision takes victims out of the cache under its
//! lock; their memory is freed after it.

use std::time::Duration;

use nigh_terms::ByteSize;

use super::ObjectMemory;

/// How often copies are taken out anew because the first did not free enough: small objects share pages, which go with
/// the last of them.
const ROUNDS_MAX: usize = 8;

/// What a shrink has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Shrunk {
    /// What all segments take less than before, as the kernel counts it.
    pub freed: ByteSize,
    /// What was passed over as its memory would stay: readers or sandboxes hold it. It counts as used.
    pub held: ByteSize,
    /// Copies dropped.
    pub copies: u64,
    /// How long the cache was locked to choose them and take them out.
    pub decided_in: Duration,
}

impl ObjectMemory {
    /// Frees `bytes` of what segments take, or as much of it as nobody holds, before this returns. The budget stays: to
    /// keep the memory from being taken again, lower it first (`set_cache_budget`).
    pub fn shrink(&self, bytes: ByteSize) -> Shrunk {
        let inner = &self.0;
        let before = inner.account.living().bytes;
        let mut shrunk = Shrunk::default();
        for _ in 0..ROUNDS_MAX {
            let wanted = bytes.bytes().saturating_sub(shrunk.freed.bytes());
            let begun = inner.clock.monotonic();
            let given =
                inner.shelf().give_back(wanted, |kept| kept.segment.as_ref().is_some_and(super::Segment::is_in_use));
            shrunk.decided_in += inner.clock.monotonic().since(begun);
            // The same copies are passed over each time.
            shrunk.held = shrunk.held.max(ByteSize(given.held));
            if given.dropped.is_empty() {
                break;
            }
            shrunk.copies += given.dropped.len() as u64;
            inner.evict(given.dropped);
            shrunk.freed = ByteSize(before.saturating_sub(inner.account.living().bytes));
        }
        shrunk
    }
}
