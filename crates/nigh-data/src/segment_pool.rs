//! The pool: pages of objects that are gone, for objects that come.
//!
//! New pages of a memfd, and freeing them, cost the kernel several times what copying bytes into old ones does. A
//! segment's pages (`pages`: a memfd and the node's mapping of it) are in one of these states:
//! - *filling*: a `SegmentWriter` has them alone and writes;
//! - *in use*: sealed by type (`Segment` only reads), shared by the cache and readers of this process;
//! - *handed out*: other processes have or had the file, which has `pages::SEALS` since before they got it;
//! - *free*: in the pool, by class (`free_pages`).
//!
//! Pages become free when the last reader in this process lets them go and no other process ever had the file: then no
//! reader is left anywhere, and none can come. Pages that were handed out are freed instead. A write lease would show
//! that nobody has the file open or mapped, but not that nobody has its pages: a reader may have spliced them into a
//! pipe or be sending them, and would see the next object's bytes in them, whosever that is (`handed_out`).
//!
//! No byte of a former object is read again. A segment is sealed only when all its bytes were written; memory into
//! which bytes are received is cleared before (`Pages::room`); and the file ends where the object does: pages beyond
//! are given back to the kernel, which clears the rest of the last one. So a mapping of the whole file shows nothing
//! else, its size is the object's, and it does not matter whose the former object was. Pages that a client is to fill
//! are cleared whole.
//!
//! Pages that were handed out, or that a client fills, do not come back. When the last free pages of a class are taken,
//! spare ones are made beside the work (`make_spares`), so that the next object of the class does not wait for them.
//!
//! Free pages are the node's own memory and count against the cache's budget after everything else: they take what
//! objects leave of it, an eighth of it at most, in bytes and in segments. They go before any cached copy does, when
//! the budget shrinks, an object needs memory that no free pages have, or a sandbox grows; and when nobody has needed
//! them for `LOOK_AGAIN` to twice as long. A pool is told its budget (`set_limit`); without one it keeps nothing.

use std::fs::File;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use nigh_terms::Monotonic;
use parking_lot::Mutex;

use crate::ObjectError;
use crate::free_pages::{CLASS_MIN, FreePages, allowed};
use crate::memory_counters::{Entry, MemoryCounters};
use crate::pages::Pages;
use crate::segment_cost::Cost;

/// How often pages are looked for that nobody has needed.
const LOOK_AGAIN: Duration = Duration::from_secs(10);

/// Where segments get their pages, since the pool was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PoolCounts {
    /// Segments in pages of the pool.
    pub pooled: u64,
    /// Segments in new pages.
    pub made: u64,
}

/// Free pages, of one account.
#[derive(Debug)]
pub(crate) struct SegmentPool {
    counters: Arc<MemoryCounters>,
    large_folios: bool,
    state: Mutex<PoolState>,
    /// What `state` takes, to be read without the lock.
    bytes: AtomicU64,
    segments: AtomicU64,
    /// Spare pages are wanted, as `state` says.
    wants: AtomicBool,
    /// A thread makes spare pages.
    is_making: AtomicBool,
    pooled: AtomicU64,
    made: AtomicU64,
}

#[derive(Debug, Default)]
struct PoolState {
    free: FreePages<Pages>,
    /// What all segments, with and without an object, may take together.
    limit: Cost,
    /// So many `ClosedPool`s there are.
    closed: u32,
    looked: Monotonic,
}

impl PoolState {
    fn allowed(&self, counters: &MemoryCounters) -> Cost {
        if self.closed > 0 { Cost::default() } else { allowed(self.limit, counters.living()) }
    }
}

/// Pages that have left the pool. Dropping them gives them to the kernel, which takes a while: hold no lock.
#[derive(Debug)]
#[must_use]
pub struct FreedPages {
    _pages: Vec<Pages>,
}

/// While it lives, the pool takes no pages: what is let go is freed.
#[derive(Debug)]
pub struct ClosedPool(Arc<SegmentPool>);

impl Drop for ClosedPool {
    fn drop(&mut self) {
        self.0.state.lock().closed -= 1;
    }
}

impl SegmentPool {
    /// An empty pool beside the segments that `counters` counts, in large folios or not.
    pub(crate) fn new(counters: Arc<MemoryCounters>, large_folios: bool) -> Self {
        Self {
            counters,
            large_folios,
            state: Mutex::default(),
            bytes: AtomicU64::new(0),
            segments: AtomicU64::new(0),
            wants: AtomicBool::new(false),
            is_making: AtomicBool::new(false),
            pooled: AtomicU64::new(0),
            made: AtomicU64::new(0),
        }
    }

    /// Pages for an object of `length` bytes, which is counted already: free ones of its class, or new ones.
    pub(crate) fn pages(&self, length: u64) -> Result<Pages, ObjectError> {
        match self.take(length, Ok) {
            Some(pages) => Ok(pages),
            None => Pages::new(length, self.large_folios),
        }
    }

    /// The file of free pages for a client to fill, of `length` bytes, which are counted already; none if there are none
    /// of the class, or for fewer bytes than a class has. It is all zero and has no seals.
    pub(crate) fn cleared(&self, length: u64) -> Option<File> {
        if length < CLASS_MIN {
            self.fit();
            return None;
        }
        self.take(length, Pages::into_cleared)
    }

    /// Takes free pages for `length` bytes, if there are any. Pages that cannot be used again are freed.
    fn take<T>(&self, length: u64, then: impl FnOnce(Pages) -> Result<T, ObjectError>) -> Option<T> {
        let mut taken = None;
        self.change(|state| {
            taken = state.free.take(length);
            Vec::new()
        });
        let reused = taken.and_then(|pages| then(pages.reuse(length).ok()?).ok());
        self.fit();
        let count = if reused.is_some() { &self.pooled } else { &self.made };
        count.fetch_add(1, Ordering::Relaxed);
        reused
    }

    /// Takes the pages of a segment that is gone, or frees them. Nobody else has them, or can get them.
    pub(crate) fn put(&self, pages: Pages, entry: &mut Entry) {
        self.change(|state| {
            let (length, cost) = (pages.length(), entry.leave());
            // Without what they took for the object.
            let allowed = state.allowed(&self.counters);
            state.free.put(pages, length, cost, allowed)
        });
    }

    /// Whether spare pages are to be made.
    pub(crate) fn wants_spares(&self) -> bool {
        self.wants.load(Ordering::Relaxed)
    }

    /// Makes the spare pages that are wanted and allowed, unless another thread does. If the kernel has no memory for
    /// them, it makes none: whoever needs pages hears of that.
    pub(crate) fn make_spares(&self) {
        if self.is_making.swap(true, Ordering::Acquire) {
            return;
        }
        while let Some(length) = self.next_spare()
            && let Ok(pages) = Pages::spare(length, self.large_folios)
        {
            self.change(|state| {
                let allowed = state.allowed(&self.counters);
                state.free.put(pages, length, self.counters.cost_of_own(length), allowed)
            });
        }
        self.is_making.store(false, Ordering::Release);
    }

    fn next_spare(&self) -> Option<u64> {
        let mut next = None;
        self.change(|state| {
            let allowed = state.allowed(&self.counters);
            next = state.free.next_spare(allowed, |length| self.counters.cost_of_own(length));
            Vec::new()
        });
        next
    }

    /// Frees what the segments of objects leave no room for.
    pub(crate) fn fit(&self) {
        if self.bytes.load(Ordering::Relaxed) > 0 {
            self.change(|state| {
                let allowed = state.allowed(&self.counters);
                state.free.fit(allowed)
            });
        }
    }

    /// Sets what all segments, with and without an object, may take together. Returns the pages beyond.
    pub(crate) fn set_limit(&self, limit: Cost) -> FreedPages {
        self.take_out(|state| {
            state.limit = limit;
            let allowed = state.allowed(&self.counters);
            state.free.fit(allowed)
        })
    }

    /// Frees `bytes` of the free pages, or all, and takes none until the result is dropped.
    pub(crate) fn give_back(self: &Arc<Self>, bytes: u64) -> ClosedPool {
        self.change(|state| {
            state.closed += 1;
            let stays = state.free.cost().minus(Cost { bytes, segments: 0 });
            state.free.fit(stays)
        });
        ClosedPool(Arc::clone(self))
    }

    /// Frees pages that nobody has needed for a while. It is called now and then.
    pub(crate) fn look(&self, now: Monotonic) {
        self.change(|state| {
            if now.since(state.looked) < LOOK_AGAIN {
                return Vec::new();
            }
            state.looked = now;
            state.free.unused()
        });
    }

    /// What the free pages take.
    pub(crate) fn cost(&self) -> Cost {
        let [bytes, segments] = [&self.bytes, &self.segments].map(|count| count.load(Ordering::Relaxed));
        Cost { bytes, segments }
    }

    /// Where segments got their pages.
    pub(crate) fn counts(&self) -> PoolCounts {
        let [pooled, made] = [&self.pooled, &self.made].map(|count| count.load(Ordering::Relaxed));
        PoolCounts { pooled, made }
    }

    /// Makes a change, and frees the pages that it returns without the lock.
    fn change(&self, change: impl FnOnce(&mut PoolState) -> Vec<Pages>) {
        drop(self.take_out(change));
    }

    /// Makes a change, and returns the pages that it returns.
    fn take_out(&self, change: impl FnOnce(&mut PoolState) -> Vec<Pages>) -> FreedPages {
        let mut state = self.state.lock();
        let gone = change(&mut state);
        let Cost { bytes, segments } = state.free.cost();
        self.bytes.store(bytes, Ordering::Relaxed);
        self.segments.store(segments, Ordering::Relaxed);
        self.wants.store(state.free.wants_spares(), Ordering::Relaxed);
        FreedPages { _pages: gone }
    }
}

#[cfg(test)]
mod tests;
