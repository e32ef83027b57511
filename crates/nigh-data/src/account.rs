//! What living segments take, as the kernel counts it.
//!
//! It counts; what may stay is decided in `cache`. A segment of its own takes its pages; small objects share the pages
//! of slabs, and those pages count when the first object of theirs is there and until the last has gone. What is known
//! of a small object outweighs its bytes, so that it counts too.

use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Once};

use rustix::fs::MemfdFlags;

use crate::ObjectError;
use crate::folios;
use crate::segment_cost::Cost;
use crate::slab::{Slabs, cell_bytes};

/// The share of the process's file descriptors, and of its mappings, that segments may take: one in so many.
const SHARE: u64 = 2;
/// Linux's default for `vm.max_map_count`.
const MAPPINGS_DEFAULT: u64 = 65_530;
/// Objects from here on have a segment of their own, and can be handed out.
pub(crate) const OWN_MIN: u64 = 64 * 1024;
/// What is known of a small object, at most, beside its key and what its writer says of it.
pub const OVERHEAD: u64 = 256;

/// That this kernel cannot bar execution is said once.
static SAID: Once = Once::new();

/// What living segments take.
#[derive(Debug)]
pub struct Account {
    page: u64,
    /// The kernel gives large folios.
    large_folios: bool,
    /// Of segments of their own, and of what is known of small objects.
    own: AtomicU64,
    /// Of slabs' pages in use.
    pages: AtomicU64,
    /// Of the cells in those pages that are in use.
    cells: AtomicU64,
    segments: AtomicU64,
    pub(crate) slabs: Slabs,
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
        Ok(Arc::new(Self {
            page,
            large_folios,
            own: AtomicU64::new(0),
            pages: AtomicU64::new(0),
            cells: AtomicU64::new(0),
            segments: AtomicU64::new(0),
            slabs: Slabs::default(),
        }))
    }

    /// The size of a page.
    pub(crate) const fn page(&self) -> u64 {
        self.page
    }

    /// Whether segments of their own are to be in large folios.
    pub(crate) const fn large_folios(&self) -> bool {
        self.large_folios
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
        Cost { bytes: length.max(1).next_multiple_of(self.page), segments: 1 }
    }

    /// What all living segments take.
    pub fn living(&self) -> Cost {
        let (own, pages) = (self.own.load(Ordering::Relaxed), self.pages.load(Ordering::Relaxed));
        Cost { bytes: own + pages, segments: self.segments.load(Ordering::Relaxed) }
    }

    /// The part of `living` that goes by itself when the objects beside it do: room in pages in use, and slabs.
    pub fn slack(&self) -> Cost {
        let (pages, cells) = (self.pages.load(Ordering::Relaxed), self.cells.load(Ordering::Relaxed));
        Cost { bytes: pages.saturating_sub(cells), segments: self.slabs.count() }
    }

    /// Enters a segment of its own.
    pub(crate) fn enter(self: &Arc<Self>, length: u64) -> Entry {
        let cost = self.cost_of_own(length);
        self.own.fetch_add(cost.bytes, Ordering::Relaxed);
        self.segments.fetch_add(cost.segments, Ordering::Relaxed);
        Entry { account: Arc::clone(self), cost }
    }

    /// A cell of so many bytes is used, and the first on so many of its pages.
    pub(crate) fn cell_taken(&self, bytes: u64, pages: u64) {
        self.own.fetch_add(OVERHEAD, Ordering::Relaxed);
        self.cells.fetch_add(bytes, Ordering::Relaxed);
        self.pages.fetch_add(pages * self.page, Ordering::Relaxed);
    }

    /// The opposite.
    pub(crate) fn cell_freed(&self, bytes: u64, pages: u64) {
        self.own.fetch_sub(OVERHEAD, Ordering::Relaxed);
        self.cells.fetch_sub(bytes, Ordering::Relaxed);
        self.pages.fetch_sub(pages * self.page, Ordering::Relaxed);
    }

    /// A slab is there, which takes a descriptor and a mapping.
    pub(crate) fn slab_made(&self) {
        self.segments.fetch_add(1, Ordering::Relaxed);
        self.slabs.counted(1);
    }

    /// The opposite.
    pub(crate) fn slab_gone(&self) {
        self.segments.fetch_sub(1, Ordering::Relaxed);
        self.slabs.counted(-1);
    }
}

/// How many segments this process may have.
pub fn segments_max() -> u64 {
    let files = rustix::process::getrlimit(rustix::process::Resource::Nofile).current.unwrap_or(u64::MAX);
    let mappings = std::fs::read_to_string("/proc/sys/vm/max_map_count")
        .ok()
        .and_then(|text| text.trim().parse().ok())
        .unwrap_or(MAPPINGS_DEFAULT);
    files.min(mappings) / SHARE
}

/// A segment's entry in the account, until it is freed.
#[derive(Debug)]
pub(crate) struct Entry {
    account: Arc<Account>,
    pub(crate) cost: Cost,
}

impl Drop for Entry {
    fn drop(&mut self) {
        self.account.own.fetch_sub(self.cost.bytes, Ordering::Relaxed);
        self.account.segments.fetch_sub(self.cost.segments, Ordering::Relaxed);
    }
}

/// What the system says of an operation on memory.
pub(crate) fn failed(operation: &'static str) -> impl Fn(std::io::Error) -> ObjectError {
    move |error| ObjectError::Memory { operation, reason: error.to_string() }
}

/// A file in memory that can be sealed, and not be executed where the kernel can bar it (since Linux 6.3).
pub(crate) fn memfd() -> Result<File, ObjectError> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let barred = rustix::fs::memfd_create("nigh-segment", flags | MemfdFlags::NOEXEC_SEAL);
    let memfd = match barred {
        Err(rustix::io::Errno::INVAL) => {
            SAID.call_once(|| tracing::info!("objects in memory could be executed: that is barred since Linux 6.3"));
            rustix::fs::memfd_create("nigh-segment", flags)
        }
        made => made,
    };
    Ok(File::from(memfd.map_err(|error| failed("memfd_create")(error.into()))?))
}
