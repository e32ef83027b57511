//! What living segments take, as the kernel counts it.
//!
//! It counts; what may stay is decided in `cache`. A segment of its own takes its pages; small objects share the pages
//! of slabs, and a page counts from its first object until its last is gone. What Nigh knows of a small object
//! outweighs the object's bytes, so it counts too. Pages that wait for another object (`segment_pool`) are told apart.

use std::os::unix::fs::MetadataExt;
use std::sync::Arc;

use nigh_terms::Monotonic;

use crate::ObjectError;
use crate::folios;
use crate::memfd::{failed, memfd};
pub use crate::memory_counters::OVERHEAD;
use crate::memory_counters::{Entry, MemoryCounters};
use crate::pages::Pages;
use crate::segment_cost::Cost;
use crate::segment_pool::SegmentPool;
pub use crate::segment_pool::{ClosedPool, FreedPages, PoolCounts};
use crate::slab::{Slabs, cell_bytes};

/// The share of the process's file descriptors, and of its mappings, that segments may take: one in so many.
const SHARE: u64 = 2;
/// Where there are few file descriptors, segments may take one in so many, and the rest is for sandboxes and
/// connections.
const SHARE_OF_FEW: u64 = 4;
/// Segments take more than `SHARE_OF_FEW` only of what is beyond so many file descriptors for others.
const LEFT_TO_OTHERS: u64 = 11_264;
/// Linux's default for `vm.max_map_count`.
const MAPPINGS_DEFAULT: u64 = 65_530;
/// Objects from here on have a segment of their own, and can be handed out.
pub(crate) const OWN_MIN: u64 = 64 * 1024;

/// What living segments take.
#[derive(Debug)]
pub struct Account {
    counters: Arc<MemoryCounters>,
    pub(crate) slabs: Arc<Slabs>,
    pub(crate) pool: Arc<SegmentPool>,
}

impl Account {
    /// An account of nothing.
    ///
    /// # Errors
    /// If the kernel makes no memfd.
    pub fn open() -> Result<Arc<Self>, ObjectError> {
        Self::open_with(folios::are_offered())
    }

    /// The same, of segments in large folios or not.
    pub(crate) fn open_with(large_folios: bool) -> Result<Arc<Self>, ObjectError> {
        // The block size of the file system behind memfds is the page size.
        let page = memfd()?.metadata().map_err(failed("stat"))?.blksize();
        let counters = Arc::new(MemoryCounters::new(page));
        let slabs = Arc::new(Slabs::new(Arc::clone(&counters)));
        let pool = Arc::new(SegmentPool::new(Arc::clone(&counters), large_folios));
        Ok(Arc::new(Self { counters, slabs, pool }))
    }

    /// What an object of `length` bytes takes that the node itself brings into memory.
    pub fn cost(&self, length: u64) -> Cost {
        if length >= OWN_MIN {
            return self.cost_of_own(length);
        }
        Cost { bytes: cell_bytes(length) + OVERHEAD, segments: 0 }
    }

    /// What a segment of its own of `length` bytes takes; an empty one a page, for its inode.
    pub fn cost_of_own(&self, length: u64) -> Cost {
        self.counters.cost_of_own(length)
    }

    /// What all living segments take; free pages are not in it.
    pub fn living(&self) -> Cost {
        self.counters.living()
    }

    /// The part of `living` that is freed when the objects beside it are: room in pages in use, and slabs.
    pub fn slack(&self) -> Cost {
        self.counters.slack()
    }

    /// What pages take that wait for another object.
    pub fn pooled(&self) -> Cost {
        self.pool.cost()
    }

    /// Where segments of their own got their pages.
    pub fn pool_counts(&self) -> PoolCounts {
        self.pool.counts()
    }

    /// Sets what living segments and free pages may take together. Until then there are no free pages. Returns those
    /// beyond the limit.
    pub fn set_pool_limit(&self, limit: Cost) -> FreedPages {
        self.pool.set_limit(limit)
    }

    /// Frees `bytes` of the free pages, or all. Until the result is dropped, what is let go is freed too.
    #[must_use]
    pub fn give_pool_back(&self, bytes: u64) -> ClosedPool {
        self.pool.give_back(bytes)
    }

    /// True if spare pages are to be made, because the last free ones of a size were taken.
    pub fn wants_spares(&self) -> bool {
        self.pool.wants_spares()
    }

    /// Makes spare pages for the next objects, within what free pages may take. It blocks for as long as new pages take.
    pub fn make_spares(&self) {
        self.pool.make_spares();
    }

    /// Frees pages that no object has needed for a while. Call it every second or so.
    pub fn look_at_pool(&self, now: Monotonic) {
        self.pool.look(now);
    }

    /// Enters a segment of its own.
    pub(crate) fn enter(&self, length: u64) -> Entry {
        self.counters.enter(self.cost_of_own(length))
    }

    /// Enters a segment of its own that the node fills, with its pages.
    pub(crate) fn enter_pages(&self, length: u64) -> Result<(Pages, Entry), ObjectError> {
        let entry = self.enter(length);
        Ok((self.pool.pages(length)?, entry))
    }
}

/// How many of a process's file descriptors segments may take.
#[must_use]
pub fn segments_of_files(files: u64) -> u64 {
    (files / SHARE).min((files / SHARE_OF_FEW).max(files.saturating_sub(LEFT_TO_OTHERS)))
}

/// How many segments this process may have.
pub fn segments_max() -> u64 {
    let files = rustix::process::getrlimit(rustix::process::Resource::Nofile).current.unwrap_or(u64::MAX);
    let mappings = std::fs::read_to_string("/proc/sys/vm/max_map_count")
        .ok()
        .and_then(|text| text.trim().parse().ok())
        .unwrap_or(MAPPINGS_DEFAULT);
    segments_of_files(files).min(mappings / SHARE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_files_are_few_segments_leave_most_of_them_to_others() {
        assert_eq!(segments_of_files(1024), 256);
        assert_eq!(segments_of_files(4096), 1024);
        assert_eq!(segments_of_files(65_536), 32_768);
        let all: Vec<u64> = (0..100_000).step_by(512).map(segments_of_files).collect();
        assert!(all.is_sorted(), "more files never mean fewer segments");
    }
}
