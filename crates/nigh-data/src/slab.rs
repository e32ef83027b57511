//! Slabs: where objects live that are too small for a segment of their own.
//!
//! A slab is one memfd of the node's, cut into cells of one size; a cell holds one object and is written by nobody once
//! it is filled. No slab's descriptor is ever handed out: it would show its neighbours. Pages are taken when their
//! first cell is used and given back to the kernel when the last one is free, so that dropping objects frees memory at
//! once; cells that are free are used first.

use std::collections::BTreeMap;
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU32, Ordering, fence};
use std::sync::{Arc, Weak};

use memmap2::{MmapOptions, MmapRaw};
use parking_lot::Mutex;
use rustix::fs::FallocateFlags;

use crate::ObjectError;
use crate::memfd::{failed, memfd};
use crate::memory_counters::MemoryCounters;

/// Cells of one slab at most, and its bytes: what one slab costs in descriptors and tables is shared by so many.
const CELLS_MAX: u64 = 16_384;
const SLAB_BYTES_MAX: u64 = 16 << 20;
/// The smallest cell, and the step between small ones.
const STEP: u64 = 64;
/// From here on there are four sizes from one power of two to the next.
const EVEN_MAX: u64 = 256;

/// The cell that `length` bytes take; an empty object has one too.
pub(crate) const fn cell_bytes(length: u64) -> u64 {
    if length <= EVEN_MAX {
        return if length == 0 { STEP } else { length.next_multiple_of(STEP) };
    }
    length.next_multiple_of(length.next_power_of_two() / 8)
}

/// All slabs with room, by the size of their cells.
#[derive(Debug)]
pub(crate) struct Slabs {
    counters: Arc<MemoryCounters>,
    with_room: Mutex<BTreeMap<u64, Vec<Weak<Slab>>>>,
}

impl Slabs {
    /// No slabs; those to come are counted in `counters`.
    pub(crate) fn new(counters: Arc<MemoryCounters>) -> Self {
        Self { counters, with_room: Mutex::default() }
    }
}

#[derive(Debug)]
struct Slab {
    slabs: Arc<Slabs>,
    file: File,
    /// All of it, for reading.
    map: MmapRaw,
    cell: u64,
    /// How many handles each cell has.
    uses: Box<[AtomicU32]>,
    room: Mutex<Room>,
}

#[derive(Debug)]
struct Room {
    /// Cells that are free; those used last first, whose pages are there.
    free: Vec<u32>,
    /// Cells from here on were never used.
    fresh: u32,
    /// How many cells of each page are in use.
    pages: Box<[u16]>,
    /// It is among those with room.
    listed: bool,
}

/// One object's place in a slab. A clone is another handle to it; it is free when the last is dropped.
#[derive(Debug)]
pub(crate) struct Cell {
    slab: Arc<Slab>,
    index: u32,
    length: u32,
}

impl Cell {
    /// A place for `length` bytes.
    pub(crate) fn take(all: &Arc<Slabs>, length: u32) -> Result<Self, ObjectError> {
        let cell = cell_bytes(u64::from(length));
        let mut with_room = all.with_room.lock();
        let slabs = with_room.entry(cell).or_default();
        while let Some(last) = slabs.last() {
            let Some(slab) = last.upgrade() else {
                slabs.pop();
                continue;
            };
            if let Some(index) = slab.take() {
                return Ok(Self { slab, index, length });
            }
            slabs.pop();
        }
        let slab = Arc::new(Slab::open(all, cell)?);
        let index = slab.take().ok_or(ObjectError::Memory { operation: "use a slab", reason: "it is full".into() })?;
        slabs.push(Arc::downgrade(&slab));
        Ok(Self { slab, index, length })
    }

    /// Writes into the cell. Only the task that fills it may, before there is a second handle.
    pub(crate) fn write(&self, at: u32, bytes: &[u8]) -> Result<(), ObjectError> {
        let end = u64::from(at) + bytes.len() as u64;
        if end > u64::from(self.length) {
            return Err(ObjectError::IncompleteBody { expected: u64::from(self.length), received: end });
        }
        self.slab.file.write_all_at(bytes, self.slab.start(self.index) + u64::from(at)).map_err(failed("write a cell"))
    }

    /// Its bytes.
    pub(crate) fn as_slice(&self) -> &[u8] {
        let start = self.slab.start(self.index) as usize;
        // SAFETY: the cell lies within the mapping, which lives as long as the slab and so as this handle; nobody
        // writes to a cell that was filled while it has a handle, and pages of cells in use are never given back.
        unsafe { std::slice::from_raw_parts(self.slab.map.as_ptr().add(start), self.length as usize) }
    }

    /// The bytes of memory that are its own.
    pub(crate) fn bytes(&self) -> u64 {
        self.slab.cell
    }
}

impl Clone for Cell {
    fn clone(&self) -> Self {
        self.slab.uses[self.index as usize].fetch_add(1, Ordering::Relaxed);
        Self { slab: Arc::clone(&self.slab), index: self.index, length: self.length }
    }
}

impl Drop for Cell {
    fn drop(&mut self) {
        // As `Arc` does: all uses by other handles come before the cell is free.
        if self.slab.uses[self.index as usize].fetch_sub(1, Ordering::Release) == 1 {
            fence(Ordering::Acquire);
            Slab::give_back(&self.slab, self.index);
        }
    }
}

impl Slab {
    fn open(slabs: &Arc<Slabs>, cell: u64) -> Result<Self, ObjectError> {
        let cells = CELLS_MAX.min(SLAB_BYTES_MAX / cell);
        let length = (cells * cell).next_multiple_of(slabs.counters.page());
        let file = memfd()?;
        // Sparse: pages come with the cells.
        file.set_len(length).map_err(failed("size a slab"))?;
        let map = MmapOptions::new().map_raw_read_only(&file).map_err(failed("map a slab"))?;
        let pages = length / slabs.counters.page();
        slabs.counters.slab_made();
        Ok(Self {
            slabs: Arc::clone(slabs),
            file,
            map,
            cell,
            uses: (0..cells).map(|_| AtomicU32::new(0)).collect(),
            room: Mutex::new(Room {
                free: Vec::new(),
                fresh: 0,
                pages: vec![0; pages as usize].into_boxed_slice(),
                listed: true,
            }),
        })
    }

    fn start(&self, index: u32) -> u64 {
        u64::from(index) * self.cell
    }

    fn pages_of(&self, index: u32) -> Range<usize> {
        let (start, page) = (self.start(index), self.slabs.counters.page());
        (start / page) as usize..(start + self.cell).div_ceil(page) as usize
    }

    /// A cell for the caller alone, if there is one.
    fn take(&self) -> Option<u32> {
        let mut room = self.room.lock();
        let index = match room.free.pop() {
            Some(index) => index,
            None if (room.fresh as usize) < self.uses.len() => {
                room.fresh += 1;
                room.fresh - 1
            }
            None => {
                room.listed = false;
                return None;
            }
        };
        let mut new = 0;
        for cells in &mut room.pages[self.pages_of(index)] {
            new += u64::from(*cells == 0);
            *cells += 1;
        }
        self.slabs.counters.cell_taken(self.cell, new);
        self.uses[index as usize].store(1, Ordering::Relaxed);
        Some(index)
    }

    fn give_back(this: &Arc<Self>, index: u32) {
        let relist = {
            let mut room = this.room.lock();
            let pages = this.pages_of(index);
            let mut gone: Option<Range<usize>> = None;
            for page in pages {
                room.pages[page] -= 1;
                if room.pages[page] == 0 {
                    // The pages that are free now lie beside each other: only the outer ones are shared.
                    gone = Some(gone.map_or(page, |gone| gone.start)..page + 1);
                }
            }
            let freed = gone.map_or(0, |gone| this.punch(gone));
            this.slabs.counters.cell_freed(this.cell, freed);
            room.free.push(index);
            !std::mem::replace(&mut room.listed, true)
        };
        if relist {
            let mut with_room = this.slabs.with_room.lock();
            with_room.entry(this.cell).or_default().push(Arc::downgrade(this));
        }
    }

    /// Gives pages back to the kernel, and says how many. Under the lock: a cell on them may be taken next.
    fn punch(&self, pages: Range<usize>) -> u64 {
        let page = self.slabs.counters.page();
        let (offset, length) = (pages.start as u64 * page, pages.len() as u64 * page);
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        if let Err(error) = rustix::fs::fallocate(&self.file, flags, offset, length) {
            // The pages stay and are used again; their count is wrong until the slab is freed.
            tracing::warn!(%error, "pages of a slab cannot be given back");
        }
        pages.len() as u64
    }
}

impl Drop for Slab {
    fn drop(&mut self) {
        self.slabs.counters.slab_gone();
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use proptest::prelude::*;

    use super::*;
    use crate::account::{Account, OVERHEAD};
    use crate::segment_cost::Cost;

    fn filled(account: &Arc<Account>, bytes: &[u8]) -> Cell {
        let cell = Cell::take(&account.slabs, bytes.len() as u32).unwrap();
        cell.write(0, bytes).unwrap();
        cell
    }

    fn pages_of_kernel(cell: &Cell) -> u64 {
        cell.slab.file.metadata().unwrap().blocks() * 512
    }

    #[test]
    fn a_cell_wastes_a_fifth_at_most() {
        for length in 1..65_536 {
            let cell = cell_bytes(length);
            assert!(cell >= length && (cell - length < STEP || (cell - length) * 5 <= cell), "{length} in {cell}");
        }
        assert_eq!(cell_bytes(0), STEP);
    }

    #[test]
    fn small_objects_share_a_memfd_and_do_not_touch_each_other() {
        let account = Account::open().unwrap();
        let cells: Vec<_> = (0..1000u32).map(|n| filled(&account, &[n as u8; 100])).collect();
        for (n, cell) in cells.iter().enumerate() {
            assert_eq!(cell.as_slice(), [n as u8; 100]);
        }
        assert_eq!(account.slack().segments, 1);
        assert!(filled(&account, &[1; 100]).write(1, &[2; 100]).is_err(), "beyond its own bytes");
    }

    #[test]
    fn pages_go_back_to_the_kernel_with_their_last_object_and_the_slab_with_its_last() {
        let account = Account::open().unwrap();
        let mut cells: Vec<_> = (0..64).map(|_| filled(&account, &[7; 1024])).collect();
        assert_eq!(pages_of_kernel(&cells[0]), 64 * 1024);
        assert_eq!(account.living(), Cost { bytes: 64 * (1024 + OVERHEAD), segments: 1 });
        let kept = cells.split_off(60);
        let reader = cells[0].clone();
        drop(cells);
        assert_eq!(pages_of_kernel(&kept[0]), 8192, "the page of the four kept, and the reader's");
        assert_eq!(account.slack(), Cost { bytes: 3 * 1024, segments: 1 });
        assert_eq!(reader.as_slice(), [7; 1024]);
        drop(reader);
        assert_eq!(pages_of_kernel(&kept[0]), 4096);
        drop(kept);
        assert_eq!((account.living(), account.slack()), (Cost::default(), Cost::default()));
    }

    #[test]
    fn a_full_slab_is_used_again_when_a_cell_of_it_is_free() {
        let account = Account::open().unwrap();
        let mut cells: Vec<_> = (0..CELLS_MAX + 1).map(|_| Cell::take(&account.slabs, 64).unwrap()).collect();
        assert_eq!(account.slack().segments, 2);
        cells.truncate(CELLS_MAX as usize - 1);
        assert_eq!(account.slack().segments, 1);
        cells.push(Cell::take(&account.slabs, 64).unwrap());
        assert_eq!(account.slack().segments, 1);
    }

    proptest! {
        /// Whatever comes and goes, objects keep their bytes and the account is the kernel's.
        #[test]
        fn objects_keep_their_bytes_and_the_account_is_the_kernels(
            steps in prop::collection::vec((any::<bool>(), 1u32..65_536, any::<u8>()), 1..120)
        ) {
            let account = Account::open().unwrap();
            let mut living: Vec<(Cell, u8)> = Vec::new();
            for (comes, length, mark) in steps {
                if comes || living.is_empty() {
                    living.push((filled(&account, &vec![mark; length as usize]), mark));
                } else {
                    living.swap_remove(length as usize % living.len());
                }
            }
            let mut slabs: BTreeMap<u64, u64> = BTreeMap::new();
            for (cell, mark) in &living {
                prop_assert!(cell.as_slice().iter().all(|byte| byte == mark));
                slabs.insert(cell.bytes(), pages_of_kernel(cell));
            }
            let counted = account.living().bytes - OVERHEAD * living.len() as u64;
            // The tail of a cell may lie on a page that its object does not reach.
            let tails = 8192 * living.len() as u64;
            let kernel: u64 = slabs.values().sum();
            prop_assert!(kernel <= counted && counted <= kernel + tails, "{counted} counted, {kernel} there");
        }
    }
}
