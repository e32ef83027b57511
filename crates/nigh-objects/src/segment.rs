//! Segments: an object's bytes in memory, sealed once written, shared by every reader.
//!
//! A segment is one memfd, grown, shrunk and written by nobody after `seal` (memfd_create(2), F_SEAL_*).
//! Its bytes are mapped read-only; a slice of them is handed out without a copy and keeps it alive.
//! What all living segments take, those that readers hold beyond the cache included, is in their `Account`.

use std::fs::File;
use std::io::Write;
use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use memmap2::{Mmap, MmapOptions};
use rustix::fs::{MemfdFlags, SealFlags};

use crate::ObjectError;
use crate::cache::Cost;

/// The share of the process's file descriptors, and of its mappings, that segments may take: one in so many.
const SHARE: u64 = 2;
/// Linux's default for `vm.max_map_count`.
const MAPPINGS_DEFAULT: u64 = 65_530;

/// What living segments take.
#[derive(Debug)]
pub(crate) struct Account {
    page: u64,
    bytes: AtomicU64,
    segments: AtomicU64,
}

impl Account {
    /// An account of nothing.
    ///
    /// # Errors
    /// If the kernel makes no memfd.
    pub(crate) fn open() -> Result<Arc<Self>, ObjectError> {
        // The block size of the file system behind memfds is the page size.
        let page = memfd()?.metadata().map_err(failed("stat"))?.blksize();
        Ok(Arc::new(Self { page, bytes: AtomicU64::new(0), segments: AtomicU64::new(0) }))
    }

    /// What a segment of `length` bytes takes; an empty one a page, for its inode.
    pub(crate) fn cost(&self, length: u64) -> Cost {
        Cost { bytes: length.max(1).next_multiple_of(self.page), segments: 1 }
    }

    /// What all living segments take.
    pub(crate) fn living(&self) -> Cost {
        Cost { bytes: self.bytes.load(Ordering::Relaxed), segments: self.segments.load(Ordering::Relaxed) }
    }
}

/// How many segments this process may have.
pub(crate) fn segments_max() -> u64 {
    let files = rustix::process::getrlimit(rustix::process::Resource::Nofile).current.unwrap_or(u64::MAX);
    let mappings = std::fs::read_to_string("/proc/sys/vm/max_map_count")
        .ok()
        .and_then(|text| text.trim().parse().ok())
        .unwrap_or(MAPPINGS_DEFAULT);
    files.min(mappings) / SHARE
}

/// A segment's entry in the account, until it is freed.
#[derive(Debug)]
struct Entry {
    account: Arc<Account>,
    cost: Cost,
}

impl Entry {
    fn new(account: &Arc<Account>, length: u64) -> Self {
        let cost = account.cost(length);
        account.bytes.fetch_add(cost.bytes, Ordering::Relaxed);
        account.segments.fetch_add(cost.segments, Ordering::Relaxed);
        Self { account: Arc::clone(account), cost }
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        self.account.bytes.fetch_sub(self.cost.bytes, Ordering::Relaxed);
        self.account.segments.fetch_sub(self.cost.segments, Ordering::Relaxed);
    }
}

/// A sealed object.
#[derive(Clone, Debug)]
pub struct Segment(Arc<Sealed>);

#[derive(Debug)]
struct Sealed {
    // Fields are dropped in this order: the entry goes when the memory has.
    /// Absent for an empty object, which cannot be mapped.
    map: Option<Mmap>,
    memfd: OwnedFd,
    _entry: Entry,
}

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
        let mut filling = Filling::new(&Account::open()?, bytes.len() as u64)?;
        filling.append(bytes)?;
        filling.seal()
    }

    /// All bytes.
    #[must_use]
    pub fn as_slice(&self) -> &[u8] {
        self.0.map.as_deref().unwrap_or_default()
    }

    /// The sealed file, to be mapped elsewhere.
    #[must_use]
    pub fn memfd(&self) -> &OwnedFd {
        &self.0.memfd
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

/// A segment being written.
#[derive(Debug)]
pub(crate) struct Filling {
    file: File,
    length: u64,
    filled: u64,
    entry: Entry,
}

fn failed(operation: &'static str) -> impl Fn(std::io::Error) -> ObjectError {
    move |error| ObjectError::Memory { operation, reason: error.to_string() }
}

fn memfd() -> Result<File, ObjectError> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let memfd =
        rustix::fs::memfd_create("nigh-segment", flags).map_err(|error| failed("memfd_create")(error.into()))?;
    Ok(File::from(memfd))
}

impl Filling {
    /// A segment that will hold `length` bytes.
    pub(crate) fn new(account: &Arc<Account>, length: u64) -> Result<Self, ObjectError> {
        Ok(Self { file: memfd()?, length, filled: 0, entry: Entry::new(account, length) })
    }

    /// How many bytes it holds so far.
    pub(crate) const fn filled(&self) -> u64 {
        self.filled
    }

    /// Adds `bytes`; more than were announced are refused.
    pub(crate) fn append(&mut self, bytes: &[u8]) -> Result<(), ObjectError> {
        self.filled += bytes.len() as u64;
        if self.filled > self.length {
            return Err(ObjectError::IncompleteBody { expected: self.length, received: self.filled });
        }
        self.file.write_all(bytes).map_err(failed("write a segment"))
    }

    /// Closes it for every writer, and maps it.
    pub(crate) fn seal(self) -> Result<Segment, ObjectError> {
        if self.filled != self.length {
            return Err(ObjectError::IncompleteBody { expected: self.length, received: self.filled });
        }
        let seals = SealFlags::SEAL | SealFlags::SHRINK | SealFlags::GROW | SealFlags::WRITE;
        rustix::fs::fcntl_add_seals(self.file.as_fd(), seals)
            .map_err(|error| failed("seal a segment")(error.into()))?;
        let map = if self.length == 0 {
            None
        } else {
            // SAFETY: the mapping is private to readers, and no one can change or shorten a file with these seals.
            Some(unsafe { MmapOptions::new().populate().map(&self.file) }.map_err(failed("map a segment"))?)
        };
        Ok(Segment(Arc::new(Sealed { map, memfd: self.file.into(), _entry: self.entry })))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sealed_segment_cannot_be_changed_by_who_holds_its_file() {
        let segment = Segment::copy_of(b"bytes").unwrap();
        let mut file = File::from(segment.memfd().try_clone().unwrap());
        assert!(file.write_all(b"other").is_err());
        assert!(file.set_len(0).is_err() && file.set_len(100).is_err());
        // SAFETY: never reached with a mapping: the seal refuses it.
        assert!(unsafe { memmap2::MmapMut::map_mut(&file) }.is_err());
        assert_eq!(segment.as_slice(), b"bytes");
    }

    #[test]
    fn a_slice_shares_the_bytes_and_keeps_them_alive() {
        let account = Account::open().unwrap();
        let mut filling = Filling::new(&account, 10).unwrap();
        filling.append(b"01234").unwrap();
        filling.append(b"56789").unwrap();
        let segment = filling.seal().unwrap();
        let slice = segment.slice(3..6);
        let address = slice.as_ref().as_ptr();
        let bytes = slice.into_bytes();
        assert_eq!((&bytes[..], bytes.as_ptr()), (&b"345"[..], address));
        assert_eq!(segment.slice(8..99).as_ref(), b"89");
        assert_eq!(segment.slice(20..99).as_ref(), b"");
        drop(segment);
        assert_eq!(account.living(), account.cost(10));
        assert_eq!(&bytes[..], b"345");
        drop(bytes);
        assert_eq!(account.living(), Cost::default());
    }

    #[test]
    fn a_segment_takes_exactly_the_bytes_announced() {
        let account = Account::open().unwrap();
        let mut filling = Filling::new(&account, 3).unwrap();
        filling.append(b"ab").unwrap();
        assert!(matches!(filling.seal(), Err(ObjectError::IncompleteBody { expected: 3, received: 2 })));
        let mut filling = Filling::new(&account, 3).unwrap();
        assert!(filling.append(b"abcd").is_err());
        drop(filling);
        assert_eq!(account.living(), Cost::default());
        assert_eq!(Segment::copy_of(b"").unwrap().as_slice(), b"");
    }

    #[test]
    fn a_cost_is_what_the_kernel_takes() {
        let account = Account::open().unwrap();
        for length in [1, 4095, 4096, 4097, 1 << 20] {
            let segment = Segment::copy_of(&vec![1; length]).unwrap();
            let blocks = File::from(segment.memfd().try_clone().unwrap()).metadata().unwrap().blocks();
            assert_eq!(account.cost(length as u64).bytes, blocks * 512, "{length}");
        }
    }
}
