//! Counters of the memory of living segments: of slabs, and of segments other than slabs.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::segment_cost::Cost;

/// What Nigh knows of a small object, at most, beside its key and what its writer says of it.
pub const OVERHEAD: u64 = 256;

/// The memory of living segments.
#[derive(Debug)]
pub(crate) struct MemoryCounters {
    page: u64,
    /// Bytes of segments other than slabs, and of what Nigh knows of small objects.
    own: AtomicU64,
    /// Bytes of the pages of slabs that are in use.
    pages: AtomicU64,
    /// Bytes of the cells in those pages that are in use.
    cells: AtomicU64,
    /// The number of segments other than slabs, and of slabs.
    segments: AtomicU64,
    slabs: AtomicU64,
}

impl MemoryCounters {
    /// Counters of nothing, for memory in pages of this size.
    pub(crate) const fn new(page: u64) -> Self {
        Self {
            page,
            own: AtomicU64::new(0),
            pages: AtomicU64::new(0),
            cells: AtomicU64::new(0),
            segments: AtomicU64::new(0),
            slabs: AtomicU64::new(0),
        }
    }

    /// The size of a page.
    pub(crate) const fn page(&self) -> u64 {
        self.page
    }

    /// What a segment of its own of `length` bytes takes; an empty one a page, for its inode.
    pub(crate) fn cost_of_own(&self, length: u64) -> Cost {
        Cost { bytes: length.max(1).next_multiple_of(self.page), segments: 1 }
    }

    /// The memory of all living segments.
    pub(crate) fn living(&self) -> Cost {
        let (own, pages) = (self.own.load(Ordering::Relaxed), self.pages.load(Ordering::Relaxed));
        Cost { bytes: own + pages, segments: self.segments.load(Ordering::Relaxed) }
    }

    /// The part of `living` that is freed when the objects beside it are: room in pages in use, and slabs.
    pub(crate) fn slack(&self) -> Cost {
        let (pages, cells) = (self.pages.load(Ordering::Relaxed), self.cells.load(Ordering::Relaxed));
        Cost { bytes: pages.saturating_sub(cells), segments: self.slabs.load(Ordering::Relaxed) }
    }

    /// Counts a segment that is not a slab.
    pub(crate) fn enter(self: &Arc<Self>, cost: Cost) -> Entry {
        self.own.fetch_add(cost.bytes, Ordering::Relaxed);
        self.segments.fetch_add(cost.segments, Ordering::Relaxed);
        Entry { counters: Arc::clone(self), cost }
    }

    /// Counts a cell of `bytes` bytes that is used now, and the `pages` of its pages that no other cell uses yet.
    pub(crate) fn cell_taken(&self, bytes: u64, pages: u64) {
        self.own.fetch_add(OVERHEAD, Ordering::Relaxed);
        self.cells.fetch_add(bytes, Ordering::Relaxed);
        self.pages.fetch_add(pages * self.page, Ordering::Relaxed);
    }

    /// Takes `cell_taken` back.
    pub(crate) fn cell_freed(&self, bytes: u64, pages: u64) {
        self.own.fetch_sub(OVERHEAD, Ordering::Relaxed);
        self.cells.fetch_sub(bytes, Ordering::Relaxed);
        self.pages.fetch_sub(pages * self.page, Ordering::Relaxed);
    }

    /// Counts a new slab, which takes a descriptor and a mapping.
    pub(crate) fn slab_made(&self) {
        self.segments.fetch_add(1, Ordering::Relaxed);
        self.slabs.fetch_add(1, Ordering::Relaxed);
    }

    /// Takes `slab_made` back.
    pub(crate) fn slab_gone(&self) {
        self.segments.fetch_sub(1, Ordering::Relaxed);
        self.slabs.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Counts a segment that is not a slab, until this is dropped.
#[derive(Debug)]
pub(crate) struct Entry {
    counters: Arc<MemoryCounters>,
    pub(crate) cost: Cost,
}

impl Entry {
    /// Counts the segment no more, and says what it took.
    pub(crate) fn leave(&mut self) -> Cost {
        let cost = std::mem::take(&mut self.cost);
        self.counters.own.fetch_sub(cost.bytes, Ordering::Relaxed);
        self.counters.segments.fetch_sub(cost.segments, Ordering::Relaxed);
        cost
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        self.leave();
    }
}
