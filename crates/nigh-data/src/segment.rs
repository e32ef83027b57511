//! Segments: an object's bytes in memory, sealed once written, shared by every reader.
//!
//! An object of 64 KiB and more is one memfd, written by nobody after `seal`. It can be handed to other processes,
//! which can neither grow, shrink nor write it (memfd_create(2), F_SEAL_*; `handed_out`); one that never was leaves its
//! pages to another object (`segment_pool`). A smaller one lives in a cell of a `slab`, which is never handed out. A
//! slice of the bytes is handed out without a copy and keeps them alive. What all living segments take, those that
//! readers hold beyond the cache included, is in their `Account`.

use std::fs::File;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Weak};

use bytes::Bytes;
use memmap2::{Mmap, MmapOptions};
use rustix::fs::{FallocateFlags, OFlags, SealFlags};

use crate::ObjectError;
use crate::account::{Account, OVERHEAD, OWN_MIN};
use crate::handed_out::HandedOut;
use crate::memfd::{failed, memfd};
use crate::memory_counters::Entry;
use crate::pages::{Pages, SEALS};
use crate::segment_cost::Cost;
use crate::segment_pool::SegmentPool;
use crate::slab::Cell;

/// What a file has that a client fills: nobody changes its length.
const SEALS_TO_FILL: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW);
/// And what it has when the client has filled it.
const SEALS_FILLED: SealFlags = SEALS_TO_FILL.union(SealFlags::WRITE);

/// A sealed object.
#[derive(Clone, Debug)]
pub struct Segment(Place);

#[derive(Clone, Debug)]
enum Place {
    /// Beside others.
    Shared(Cell),
    /// In a memfd of its own.
    Own(Arc<OwnSegment>),
}

#[derive(Debug)]
struct OwnSegment {
    // Fields are dropped in this order: the entry goes when the memory has.
    memory: OwnMemory,
    handed_out: HandedOut,
    entry: Entry,
}

#[derive(Debug)]
enum OwnMemory {
    /// Filled by the node; gone when they are in the pool.
    Node { pages: Option<Pages>, pool: Weak<SegmentPool> },
    /// Filled by a client. It is not mapped if it is empty.
    Client { map: Option<Mmap>, file: File },
}

impl OwnSegment {
    fn as_slice(&self) -> &[u8] {
        match &self.memory {
            OwnMemory::Node { pages, .. } => pages.as_ref().map(Pages::as_slice).unwrap_or_default(),
            OwnMemory::Client { map, .. } => map.as_deref().unwrap_or_default(),
        }
    }

    /// A descriptor for another process, for reading only.
    fn hand_out(&self) -> std::io::Result<OwnedFd> {
        let (file, seals): (BorrowedFd<'_>, _) = match &self.memory {
            OwnMemory::Node { pages: Some(pages), .. } => (pages.file(), SEALS),
            OwnMemory::Node { pages: None, .. } => return Err(std::io::ErrorKind::NotFound.into()),
            OwnMemory::Client { file, .. } => (file.as_fd(), SEALS_FILLED),
        };
        self.handed_out.open(file, seals, OFlags::RDONLY)
    }
}

impl Drop for OwnSegment {
    fn drop(&mut self) {
        // Another process may have the pages still, even if it has let the file go.
        if self.handed_out.was_ever() {
            return;
        }
        if let OwnMemory::Node { pages, pool } = &mut self.memory
            && let (Some(pages), Some(pool)) = (pages.take(), pool.upgrade())
        {
            pool.put(pages, &mut self.entry);
        }
    }
}

/// Names a segment of its own while it lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SegmentName(usize);

/// A view of a part of a segment.
#[derive(Clone, Debug)]
pub struct SegmentSlice {
    segment: Segment,
    range: Range<usize>,
}

impl AsRef<[u8]> for SegmentSlice {
    fn as_ref(&self) -> &[u8] {
        &self.segment.as_slice()[self.range.clone()]
    }
}

impl SegmentSlice {
    /// The view as `Bytes`, without a copy.
    #[must_use]
    pub fn into_bytes(self) -> Bytes {
        Bytes::from_owner(self)
    }

    /// The segment it is a part of.
    #[must_use]
    pub const fn segment(&self) -> &Segment {
        &self.segment
    }

    /// Which part it is.
    #[must_use]
    pub fn range(&self) -> Range<usize> {
        self.range.clone()
    }
}

impl Segment {
    /// A segment, outside any cache and its budget, that holds a copy of `bytes`.
    ///
    /// # Errors
    /// If the kernel gives no memory.
    pub fn copy_of(bytes: &[u8]) -> Result<Self, ObjectError> {
        let mut filling = SegmentWriter::new(&Account::open()?, bytes.len() as u64)?;
        filling.append(bytes)?;
        filling.seal()
    }

    /// All bytes.
    #[must_use]
    pub fn as_slice(&self) -> &[u8] {
        match &self.0 {
            Place::Shared(cell) => cell.as_slice(),
            Place::Own(own) => own.as_slice(),
        }
    }

    /// Its name, if it has a memfd of its own: only such a segment can be handed out.
    #[must_use]
    pub fn name(&self) -> Option<SegmentName> {
        match &self.0 {
            Place::Own(own) => Some(SegmentName(Arc::as_ptr(own) as usize)),
            Place::Shared(_) => None,
        }
    }

    /// A descriptor of its sealed file for another process, open for reading only and a file of its own, so that
    /// `is_held_elsewhere` sees it. None for an object that shares its memory with others.
    ///
    /// # Errors
    /// The system's: there is no descriptor left, or a process that has the file keeps it from being opened.
    pub fn hand_out(&self) -> std::io::Result<Option<OwnedFd>> {
        match &self.0 {
            Place::Own(own) => own.hand_out().map(Some),
            Place::Shared(_) => Ok(None),
        }
    }

    /// Whether a process has a file open or mapped that was handed out; true if the kernel cannot tell.
    #[must_use]
    pub fn is_held_elsewhere(&self) -> bool {
        match &self.0 {
            Place::Own(own) => own.handed_out.is_held(),
            Place::Shared(_) => false,
        }
    }

    /// Whether its memory would stay if the cache let it go: somebody reads it here, or has it elsewhere. An object
    /// that shares its memory with others does not tell.
    pub fn is_in_use(&self) -> bool {
        match &self.0 {
            Place::Own(own) => Arc::strong_count(own) > 1 || own.handed_out.is_held(),
            Place::Shared(_) => false,
        }
    }

    /// What it takes in memory, in bytes as the kernel counts them.
    #[must_use]
    pub fn resident_bytes(&self) -> u64 {
        self.cost().bytes
    }

    /// The memory and the descriptors that the segment takes.
    pub fn cost(&self) -> Cost {
        match &self.0 {
            Place::Shared(cell) => Cost { bytes: cell.bytes() + OVERHEAD, segments: 0 },
            Place::Own(own) => own.entry.cost,
        }
    }

    /// The bytes in `range`; those of it that there are.
    #[must_use]
    pub fn slice(&self, range: Range<u64>) -> SegmentSlice {
        let length = self.as_slice().len();
        let end = usize::try_from(range.end).map_or(length, |end| end.min(length));
        let start = usize::try_from(range.start).map_or(end, |start| start.min(end));
        SegmentSlice { segment: self.clone(), range: start..end }
    }
}

/// A segment being written by the node.
#[derive(Debug)]
pub struct SegmentWriter {
    place: SegmentBacking,
    length: u64,
    filled: u64,
}

#[derive(Debug)]
enum SegmentBacking {
    Shared(Cell),
    Own { pages: Pages, entry: Entry, pool: Weak<SegmentPool> },
}

impl SegmentWriter {
    /// A segment that will hold `length` bytes.
    pub fn new(account: &Arc<Account>, length: u64) -> Result<Self, ObjectError> {
        let place = if length < OWN_MIN {
            let cell = Cell::take(&account.slabs, length as u32)?;
            account.pool.fit();
            SegmentBacking::Shared(cell)
        } else {
            let (pages, entry) = account.enter_pages(length)?;
            SegmentBacking::Own { pages, entry, pool: Arc::downgrade(&account.pool) }
        };
        Ok(Self { place, length, filled: 0 })
    }

    /// Where some of the next `most` bytes are to be received, to be `received` then; none if they are to be appended.
    /// More than were announced are refused.
    pub fn room(&mut self, most: u64) -> Result<Option<&mut [u8]>, ObjectError> {
        let SegmentBacking::Own { pages, .. } = &mut self.place else { return Ok(None) };
        let (left, received) = (self.length - self.filled, self.filled.saturating_add(most));
        if most > left {
            return Err(ObjectError::IncompleteBody { expected: self.length, received });
        }
        pages.room(self.filled as usize, most as usize)
    }

    /// So many bytes are in the room that was given.
    pub fn received(&mut self, bytes: usize) {
        self.filled = self.length.min(self.filled + bytes as u64);
    }

    /// How many bytes it holds so far.
    pub const fn filled(&self) -> u64 {
        self.filled
    }

    /// Adds `bytes`; more than were announced are refused.
    pub fn append(&mut self, bytes: &[u8]) -> Result<(), ObjectError> {
        let at = self.filled;
        self.filled += bytes.len() as u64;
        if self.filled > self.length {
            return Err(ObjectError::IncompleteBody { expected: self.length, received: self.filled });
        }
        match &mut self.place {
            SegmentBacking::Shared(cell) => cell.write(at as u32, bytes),
            SegmentBacking::Own { pages, .. } => pages.write(at as usize, bytes),
        }
    }

    /// Closes it for every writer.
    pub fn seal(self) -> Result<Segment, ObjectError> {
        if self.filled != self.length {
            return Err(ObjectError::IncompleteBody { expected: self.length, received: self.filled });
        }
        Ok(Segment(match self.place {
            SegmentBacking::Shared(cell) => Place::Shared(cell),
            // Nobody but this node has the file. It gets its seals before anybody else does.
            SegmentBacking::Own { pages, entry, pool } => {
                let memory = OwnMemory::Node { pages: Some(pages), pool };
                Place::Own(Arc::new(OwnSegment { memory, handed_out: HandedOut::default(), entry }))
            }
        }))
    }
}

/// What became of sealing a segment that a client filled.
#[derive(Debug)]
pub enum SealResult {
    /// Nobody can change it any more.
    Sealed(Segment),
    /// Somebody has it mapped for writing still.
    Busy(ClientSegment),
    /// Its client has made sealing impossible.
    Refused(ClientSegment),
}

/// A segment that a client fills: made and allocated by the node, of a length that nobody can change.
#[derive(Debug)]
pub struct ClientSegment {
    file: File,
    handed_out: HandedOut,
    length: u64,
    entry: Entry,
}

impl ClientSegment {
    /// Makes one. It blocks: the pages are cleared, in the caller's time.
    pub fn new(account: &Arc<Account>, length: u64) -> Result<Self, ObjectError> {
        let entry = account.enter(length);
        let file = match account.pool.cleared(length) {
            Some(file) => file,
            None => Self::allocated(length)?,
        };
        rustix::fs::fcntl_add_seals(&file, SEALS_TO_FILL).map_err(|error| failed("seal a segment")(error.into()))?;
        Ok(Self { file, handed_out: HandedOut::default(), length, entry })
    }

    /// A new file whose memory is all there.
    fn allocated(length: u64) -> Result<File, ObjectError> {
        let file = memfd()?;
        if length > 0 {
            rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, length)
                .map_err(|error| failed("allocate a segment")(error.into()))?;
        }
        Ok(file)
    }

    /// Its length.
    pub const fn length(&self) -> u64 {
        self.length
    }

    /// A descriptor for the client that fills it: a file of its own, open for writing.
    pub fn hand_out(&self) -> std::io::Result<OwnedFd> {
        self.handed_out.open(self.file.as_fd(), SEALS_TO_FILL, OFlags::RDWR)
    }

    /// Whether a process has it open or mapped; true if the kernel cannot tell.
    pub fn is_held_elsewhere(&self) -> bool {
        self.handed_out.is_held()
    }

    /// The memory and the descriptors that the segment takes.
    pub const fn cost(&self) -> Cost {
        self.entry.cost
    }

    /// Adds the seal against writing, which holds for every descriptor there is.
    pub fn seal(self) -> Result<SealResult, ObjectError> {
        match rustix::fs::fcntl_add_seals(&self.file, SealFlags::WRITE | SealFlags::SEAL) {
            Ok(()) => {}
            Err(rustix::io::Errno::BUSY) => return Ok(SealResult::Busy(self)),
            // Its client has closed it for further seals.
            Err(rustix::io::Errno::PERM) => return Ok(SealResult::Refused(self)),
            Err(error) => return Err(failed("seal a segment")(error.into())),
        }
        let Self { file, handed_out, length, entry } = self;
        let map = if length == 0 {
            None
        } else {
            // Its pages are found when they are read: many are read by other processes only, and freeing what nobody
            // has looked at is cheaper. SAFETY: no one can write to a file with these seals, or shorten it.
            Some(unsafe { MmapOptions::new().map(&file) }.map_err(failed("map a segment"))?)
        };
        let memory = OwnMemory::Client { map, file };
        Ok(SealResult::Sealed(Segment(Place::Own(Arc::new(OwnSegment { memory, handed_out, entry })))))
    }
}

#[cfg(test)]
mod tests;
