//! Segments: an object's bytes in memory, sealed once written, shared by every reader.
//!
//! A segment is one memfd, grown, shrunk and written by nobody after `seal` (memfd_create(2), F_SEAL_*).
//! Its bytes are mapped read-only; a slice of them is handed out without a copy and keeps it alive.

use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use bytes::Bytes;
use memmap2::Mmap;

/// A sealed object.
#[derive(Clone, Debug)]
pub struct Segment(Arc<Sealed>);

#[derive(Debug)]
struct Sealed {
    memfd: OwnedFd,
    /// Absent for an empty object, which cannot be mapped.
    map: Option<Mmap>,
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
}

impl Segment {
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
}
