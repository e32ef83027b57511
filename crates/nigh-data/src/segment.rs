//! Segments: an object's bytes in memory, sealed once written, shared by every reader.
//!
//! An object of 64 KiB and more is one memfd, grown, shrunk and written by nobody after `seal` (memfd_create(2),
//! F_SEAL_*): it can be handed to other processes (`handed_out`). A smaller one lives in a cell of a `slab`, which is
//! never handed out. Bytes are mapped read-only; a slice of them is handed out without a copy and keeps them alive.
//! What all living segments take, those that readers hold beyond the cache included, is in their `Account`.

use std::fs::File;
use std::io::Write;
use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use bytes::Bytes;
use memmap2::{Mmap, MmapOptions};
use rustix::fs::{FallocateFlags, OFlags, SealFlags};

use crate::ObjectError;
use crate::account::{Account, OVERHEAD, OWN_MIN};
use crate::folios::Folios;
use crate::handed_out::HandedOut;
use crate::memfd::{failed, memfd};
use crate::memory_counters::Entry;
use crate::segment_cost::Cost;
use crate::slab::Cell;

/// A sealed object.
#[derive(Clone, Debug)]
pub struct Segment(Place);

#[derive(Clone, Debug)]
enum Place {
    /// Beside others.
    Shared(Cell),
    /// In a memfd of its own.
    Own(Arc<SealedMapping>),
}

#[derive(Debug)]
struct SealedMapping {
    // Fields are dropped in this order: the entry goes when the memory has.
    /// Absent for an empty one, which cannot be mapped.
    map: Option<Mmap>,
    handed_out: HandedOut,
    entry: Entry,
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
            Place::Own(sealed) => sealed.map.as_deref().unwrap_or_default(),
        }
    }

    /// Its name, if it has a memfd of its own: only such a segment can be handed out.
    #[must_use]
    pub fn name(&self) -> Option<SegmentName> {
        match &self.0 {
            Place::Own(sealed) => Some(SegmentName(Arc::as_ptr(sealed) as usize)),
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
            Place::Own(sealed) => sealed.handed_out.open(OFlags::RDONLY).map(Some),
            Place::Shared(_) => Ok(None),
        }
    }

    /// Whether a process has a file open or mapped that was handed out; true if the kernel cannot tell.
    #[must_use]
    pub fn is_held_elsewhere(&self) -> bool {
        match &self.0 {
            Place::Own(sealed) => sealed.handed_out.is_held(),
            Place::Shared(_) => false,
        }
    }

    /// Whether its memory would stay if the cache let it go: somebody reads it here, or has it elsewhere. An object
    /// that shares its memory with others does not tell.
    pub fn is_in_use(&self) -> bool {
        match &self.0 {
            Place::Own(sealed) => Arc::strong_count(sealed) > 1 || sealed.handed_out.is_held(),
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
            Place::Own(sealed) => sealed.entry.cost,
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
    Own(File, Entry),
    /// Its file mapped.
    Mapped(Folios, File, Entry),
}

impl SegmentWriter {
    /// A segment that will hold `length` bytes.
    pub fn new(account: &Arc<Account>, length: u64) -> Result<Self, ObjectError> {
        let place = match length {
            ..OWN_MIN => SegmentBacking::Shared(Cell::take(&account.slabs, length as u32)?),
            _ if account.large_folios() => {
                let file = memfd()?;
                let folios = file.set_len(length).and_then(|()| Folios::map(&file, length as usize));
                SegmentBacking::Mapped(folios.map_err(failed("map a segment"))?, file, account.enter(length))
            }
            _ => SegmentBacking::Own(memfd()?, account.enter(length)),
        };
        Ok(Self { place, length, filled: 0 })
    }

    /// Where some of the next `most` bytes are to be received, to be `received` then; none if they are to be appended.
    /// More than were announced are refused.
    pub fn room(&mut self, most: u64) -> Result<Option<&mut [u8]>, ObjectError> {
        let SegmentBacking::Mapped(folios, ..) = &mut self.place else { return Ok(None) };
        let (left, received) = (self.length - self.filled, self.filled.saturating_add(most));
        if most > left {
            return Err(ObjectError::IncompleteBody { expected: self.length, received });
        }
        folios.room(self.filled as usize, most as usize).map(Some).map_err(failed("allocate a segment"))
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
            SegmentBacking::Own(file, _) => file.write_all(bytes).map_err(failed("write a segment")),
            SegmentBacking::Mapped(folios, ..) => {
                folios.write(at as usize, bytes).map_err(failed("allocate a segment"))
            }
        }
    }

    /// Closes it for every writer, and maps it.
    pub fn seal(self) -> Result<Segment, ObjectError> {
        if self.filled != self.length {
            return Err(ObjectError::IncompleteBody { expected: self.length, received: self.filled });
        }
        Ok(Segment(match self.place {
            SegmentBacking::Shared(cell) => Place::Shared(cell),
            SegmentBacking::Own(file, entry) | SegmentBacking::Mapped(_, file, entry) => {
                // Nobody but this node has had the file, and its mapping ends here: no more than future writes are left
                // to bar. `F_SEAL_WRITE` bars the same, but first waits for pages that another processor has not listed
                // yet.
                let seals = SealFlags::SEAL | SealFlags::SHRINK | SealFlags::GROW | SealFlags::FUTURE_WRITE;
                rustix::fs::fcntl_add_seals(file.as_fd(), seals)
                    .map_err(|error| failed("seal a segment")(error.into()))?;
                Place::Own(Arc::new(SealedMapping::map(HandedOut::new(file.into()), self.length, entry)?))
            }
        }))
    }
}

impl SealedMapping {
    /// Maps a file that has the seals against writing, growing and shrinking.
    fn map(handed_out: HandedOut, length: u64, entry: Entry) -> Result<Self, ObjectError> {
        let map = if length == 0 {
            None
        } else {
            // Its pages are found when they are read: many are read by other processes only, and freeing what nobody
            // has looked at is cheaper. SAFETY: the mapping is private to readers, and no one can change or shorten a
            // file with these seals.
            Some(unsafe { MmapOptions::new().map(handed_out.file()) }.map_err(failed("map a segment"))?)
        };
        Ok(Self { map, handed_out, entry })
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
    handed_out: HandedOut,
    length: u64,
    entry: Entry,
}

impl ClientSegment {
    /// Makes one. It blocks: the kernel clears the pages, in the caller's time.
    pub fn new(account: &Arc<Account>, length: u64) -> Result<Self, ObjectError> {
        let (file, entry) = (memfd()?, account.enter(length));
        if length > 0 {
            rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, length)
                .map_err(|error| failed("allocate a segment")(error.into()))?;
        }
        rustix::fs::fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW)
            .map_err(|error| failed("seal a segment")(error.into()))?;
        Ok(Self { handed_out: HandedOut::new(file.into()), length, entry })
    }

    /// Its length.
    pub const fn length(&self) -> u64 {
        self.length
    }

    /// A descriptor for the client that fills it: a file of its own, open for writing.
    pub fn hand_out(&self) -> std::io::Result<OwnedFd> {
        self.handed_out.open(OFlags::RDWR)
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
        match rustix::fs::fcntl_add_seals(self.handed_out.file(), SealFlags::WRITE | SealFlags::SEAL) {
            Ok(()) => {}
            Err(rustix::io::Errno::BUSY) => return Ok(SealResult::Busy(self)),
            // Its client has closed it for further seals.
            Err(rustix::io::Errno::PERM) => return Ok(SealResult::Refused(self)),
            Err(error) => return Err(failed("seal a segment")(error.into())),
        }
        let Self { handed_out, length, entry } = self;
        Ok(SealResult::Sealed(Segment(Place::Own(Arc::new(SealedMapping::map(handed_out, length, entry)?)))))
    }
}

#[cfg(test)]
mod tests;
