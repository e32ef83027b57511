//! The pages of one segment: a memfd of the node's own, and the node's mapping of it.
//!
//! Pages are written by write(2). It takes about 80 us for 1 MiB into pages that are there; into new ones 160 us, and as
//! much again to free them. Writing new pages through a mapping costs twice that, for each page faults. Pages that are
//! there and entered in the mapping would take 50 us, but entering them takes 110 us.
//! Where the kernel is set to it, it gives folios of 64 KiB to a mapping that asks for them (`folios`): then bytes are
//! received straight into the mapping.
//!
//! Until the file has `SEALS` nobody but the node has it, so the node may change its length and write to it. After that
//! no writing call and no new mapping can, and this module does not: who writes has the pages alone (`&mut self`).

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileExt;
use std::ptr::{self, NonNull};
use std::slice;

use rustix::fs::{FallocateFlags, SealFlags};
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, mmap_anonymous, munmap};

use crate::ObjectError;
use crate::folios::FOLIO_BYTES;
use crate::free_pages::class_of;
use crate::memfd::{failed, memfd};

/// Bytes that are asked of the kernel at a time: few enough that those that the kernel has cleared are still in the
/// processor's cache when the object's bytes come.
const STEP_BYTES: usize = 256 << 10;
/// What the node's files get before another process has them. `F_SEAL_WRITE` bars no more of others than
/// `F_SEAL_FUTURE_WRITE` (Linux 5.1), but is refused while the node maps the file for writing, and waits for pages that
/// another processor has not listed yet.
pub(crate) const SEALS: SealFlags =
    SealFlags::SEAL.union(SealFlags::SHRINK).union(SealFlags::GROW).union(SealFlags::FUTURE_WRITE);

/// Nothing, to clear with.
static ZEROS: [u8; 64 << 10] = [0; 64 << 10];

/// A mapping of a file: for reading, or in large folios for writing too.
#[derive(Debug)]
struct Mapping {
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: the mapping belongs to this value alone, and memory may be used by any thread.
unsafe impl Send for Mapping {}
// SAFETY: a shared reference only reads.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps `bytes` of `file`, where the kernel likes or so that it gets large folios.
    fn new(file: &File, bytes: usize, in_folios: bool) -> io::Result<Self> {
        if in_folios {
            return Self::aligned(file, bytes);
        }
        // SAFETY: a new mapping, where nothing else is.
        let start = unsafe { mmap(ptr::null_mut(), bytes, ProtFlags::READ, MapFlags::SHARED, file, 0) }?;
        Ok(Self { start: NonNull::new(start.cast()).ok_or(io::ErrorKind::OutOfMemory)?, bytes })
    }

    /// Maps it for writing at a multiple of a folio's size: in a reservation that is longer by a folio, whose rest is
    /// given back.
    fn aligned(file: &File, bytes: usize) -> io::Result<Self> {
        let bytes = bytes.next_multiple_of(rustix::param::page_size());
        let reserved_bytes = bytes.checked_add(FOLIO_BYTES).ok_or(io::ErrorKind::OutOfMemory)?;
        let nowhere = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: a new mapping, where nothing else is, that nobody may touch.
        let reserved = unsafe { mmap_anonymous(ptr::null_mut(), reserved_bytes, ProtFlags::empty(), nowhere) }?;
        let reserved = NonNull::new(reserved.cast::<u8>()).ok_or(io::ErrorKind::OutOfMemory)?;
        let before = reserved.align_offset(FOLIO_BYTES);
        // SAFETY: less than a folio from the start of the reservation.
        let start = unsafe { reserved.add(before) };
        let (access, fixed) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED | MapFlags::FIXED);
        // SAFETY: it takes the place of a part of the reservation, which nothing else uses.
        let mapped = unsafe { mmap(start.as_ptr().cast(), bytes, access, fixed, file, 0) };
        if let Err(error) = mapped {
            // SAFETY: nobody uses the reservation.
            let _unmapped = unsafe { munmap(reserved.as_ptr().cast(), reserved_bytes) };
            return Err(error.into());
        }
        let mapping = Self { start, bytes };
        // What cannot be unmapped harms nobody.
        if before > 0 {
            // SAFETY: the part of the reservation before the mapping.
            let _unmapped = unsafe { munmap(reserved.as_ptr().cast(), before) };
        }
        // SAFETY: the reservation is longer than what comes before its end.
        let behind = unsafe { start.add(bytes) };
        // SAFETY: the part of the reservation behind the mapping, which is not empty: `before` is less than a folio.
        let _unmapped = unsafe { munmap(behind.as_ptr().cast(), FOLIO_BYTES - before) };
        // SAFETY: the whole mapping. A kernel that has no large folios refuses, and gives pages.
        let _asked = unsafe { madvise(start.as_ptr().cast(), bytes, Advice::LinuxHugepage) };
        Ok(mapping)
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: made by `new`; no reference into it outlives `self`. What fails leaves it mapped, and harms nobody.
        let _unmapped = unsafe { munmap(self.start.as_ptr().cast(), self.bytes) };
    }
}

/// The pages of one segment.
#[derive(Debug)]
pub(crate) struct Pages {
    file: File,
    mapping: Mapping,
    /// Of the file.
    length: usize,
    /// So many bytes from the start on have memory in which a former object's bytes may be.
    present: usize,
    /// In large folios, for so many bytes from the start on the mapping has their memory.
    entered: usize,
    /// No object was in them yet, and all of them is zero.
    is_clean: bool,
    in_folios: bool,
}

impl Pages {
    /// New pages for `length` bytes, which is not 0; in large folios or not.
    pub(crate) fn new(length: u64, in_folios: bool) -> Result<Self, ObjectError> {
        let file = memfd()?;
        file.set_len(length).map_err(failed("size a segment"))?;
        let mapping =
            Mapping::new(&file, mapped_bytes(length, in_folios), in_folios).map_err(failed("map a segment"))?;
        Ok(Self { file, mapping, length: length as usize, present: 0, entered: 0, is_clean: false, in_folios })
    }

    /// Spare pages for `length` bytes, whose memory is there: an object comes later, by `reuse`.
    pub(crate) fn spare(length: u64, in_folios: bool) -> Result<Self, ObjectError> {
        let mut pages = Self::new(length, in_folios)?;
        if in_folios {
            pages.enter(pages.length).map_err(failed("allocate a segment"))?;
        }
        pages.allocate()?;
        pages.is_clean = true;
        Ok(pages)
    }

    /// Gives the file its memory.
    fn allocate(&self) -> Result<(), ObjectError> {
        rustix::fs::fallocate(&self.file, FallocateFlags::empty(), 0, self.length as u64)
            .map_err(|error| failed("allocate a segment")(error.into()))
    }

    /// The pages of an object that is gone, of which they were full, or spare ones, for an object of `length` bytes.
    /// Pages beyond are freed.
    ///
    /// # Errors
    /// The system's; the pages are freed then.
    pub(crate) fn reuse(mut self, length: u64) -> io::Result<Self> {
        // Beyond the shorter length the kernel clears what it does not free.
        self.file.set_len(length)?;
        let is_other = mapped_bytes(length, self.in_folios) != self.mapping.bytes;
        if is_other && (self.in_folios || length as usize > self.mapping.bytes) {
            self.mapping = Mapping::new(&self.file, mapped_bytes(length, self.in_folios), self.in_folios)?;
            self.entered = 0;
        }
        let kept = self.length.min(length as usize);
        self.present = if std::mem::take(&mut self.is_clean) { 0 } else { kept };
        self.length = length as usize;
        // A multiple of any page's size.
        self.entered = self.entered.min(kept) / STEP_BYTES * STEP_BYTES;
        Ok(self)
    }

    /// The file alone, whose memory is all there and all zero, for another process to fill.
    ///
    /// # Errors
    /// The system's; the pages are freed then.
    pub(crate) fn into_cleared(mut self) -> Result<File, ObjectError> {
        for at in (0..self.present).step_by(ZEROS.len()) {
            let bytes = ZEROS.len().min(self.present - at);
            self.write(at, &ZEROS[..bytes])?;
        }
        self.allocate()?;
        Ok(self.file)
    }

    /// How many bytes they are for.
    pub(crate) const fn length(&self) -> u64 {
        self.length as u64
    }

    /// The file.
    pub(crate) fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// Copies `bytes` to `at`.
    ///
    /// # Errors
    /// The kernel's, if it has no memory; or if they do not fit.
    pub(crate) fn write(&mut self, at: usize, bytes: &[u8]) -> Result<(), ObjectError> {
        let end = at.saturating_add(bytes.len());
        if end > self.length {
            return Err(ObjectError::IncompleteBody { expected: self.length as u64, received: end as u64 });
        }
        if !self.in_folios {
            return self.file.write_all_at(bytes, at as u64).map_err(failed("write a segment"));
        }
        let mut at = at;
        for piece in bytes.chunks(STEP_BYTES) {
            let end = at + piece.len();
            self.enter(end).map_err(failed("allocate a segment"))?;
            self.entered_mut(at..end).copy_from_slice(piece);
            at = end;
        }
        Ok(())
    }

    /// Memory for some of the `most` bytes from `at` on, without a former object's bytes; none if they are to be
    /// written by `write`. Whoever writes to it meets no want of memory.
    ///
    /// # Errors
    /// The kernel's, if it has no memory.
    pub(crate) fn room(&mut self, at: usize, most: usize) -> Result<Option<&mut [u8]>, ObjectError> {
        let end = self.length.min(at.saturating_add(most.min(STEP_BYTES)));
        if !self.in_folios || at >= end {
            return Ok(None);
        }
        self.enter(end).map_err(failed("allocate a segment"))?;
        let former = self.present.clamp(at, end) - at;
        let room = self.entered_mut(at..end);
        // So few that they are in the processor's cache when the new bytes come.
        room[..former].fill(0);
        Ok(Some(room))
    }

    /// Gives the mapping, which is in large folios, its memory up to `end`, which is within the file.
    fn enter(&mut self, end: usize) -> io::Result<()> {
        let end = end.min(self.length);
        while self.entered < end {
            let next = self.length.min(self.entered + STEP_BYTES);
            // SAFETY: `entered` is within the file, and the mapping is not shorter.
            let from = unsafe { self.mapping.start.add(self.entered) };
            // SAFETY: from there to `next` is within both; what is in it stays.
            unsafe { madvise(from.as_ptr().cast(), next - self.entered, Advice::LinuxPopulateWrite) }?;
            self.entered = next;
        }
        Ok(())
    }

    /// Bytes that `enter` has given.
    fn entered_mut(&mut self, range: Range<usize>) -> &mut [u8] {
        let end = range.end.min(self.entered);
        let start = range.start.min(end);
        // SAFETY: `entered` is within the file and the mapping, which is for writing as only such a one is entered:
        // this is memory that is zero or was written. `self` is borrowed alone for as long: nobody reads the pages,
        // changes the file's length or writes to it.
        unsafe { slice::from_raw_parts_mut(self.mapping.start.add(start).as_ptr(), end - start) }
    }

    /// All bytes.
    pub(crate) const fn as_slice(&self) -> &[u8] {
        // SAFETY: the file has `length` bytes and the mapping is not shorter. While `self` is borrowed the node does
        // not write; others cannot, and cannot shorten the file: they have no file, or one with `SEALS`.
        unsafe { slice::from_raw_parts(self.mapping.start.as_ptr().cast_const(), self.length) }
    }
}

/// The bytes to map for a file of `length` bytes: its class. Large folios are not mapped beyond the file's end, where
/// the kernel would give memory that nobody counts.
fn mapped_bytes(length: u64, in_folios: bool) -> usize {
    if in_folios {
        length.next_multiple_of(rustix::param::page_size() as u64) as usize
    } else {
        class_of(length) as usize
    }
}

#[cfg(test)]
mod tests;
