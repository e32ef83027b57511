//! The bytes of an object.

use std::ops::Deref;
use std::os::fd::OwnedFd;
use std::sync::mpsc::Sender;

use memmap2::{Mmap, MmapOptions};

use crate::{ClientError, Headers};

/// Releases a segment: the client's next request reports its handle.
pub(crate) struct Release {
    pub(crate) handle: u64,
    pub(crate) tell: Sender<u64>,
}

impl Drop for Release {
    fn drop(&mut self) {
        // The client may have been dropped: then the node notices the release by itself.
        let _gone = self.tell.send(self.handle);
    }
}

enum Bytes {
    Copied(Vec<u8>),
    // Dropped in this order: the mapping ends before the release is reported.
    Mapped { map: Mmap, _release: Release },
}

/// An object's bytes. Dropping it releases the node's memory.
pub struct View {
    bytes: Bytes,
    headers: Headers,
}

impl View {
    pub(crate) const fn copied(bytes: Vec<u8>, headers: Headers) -> Self {
        Self { bytes: Bytes::Copied(bytes), headers }
    }

    /// Maps `length` bytes from `offset` of a sealed segment.
    pub(crate) fn mapped(
        descriptor: &OwnedFd,
        offset: u64,
        length: usize,
        release: Release,
        headers: Headers,
    ) -> Result<Self, ClientError> {
        let size = rustix::fs::fstat(descriptor).map_err(ClientError::io("look at a segment"))?.st_size as u64;
        if offset.checked_add(length as u64).is_none_or(|end| end > size) {
            return Err(ClientError::Protocol(format!("{length} bytes from {offset} of a segment of {size}")));
        }
        // SAFETY: the node has sealed the file: nobody can change or shorten it, and it is as long as what is mapped.
        let map = unsafe { MmapOptions::new().offset(offset).len(length).map(descriptor) };
        let map = map.map_err(|reason| ClientError::Io { what: "map a segment", reason })?;
        Ok(Self { bytes: Bytes::Mapped { map, _release: release }, headers })
    }

    /// True if the bytes are the node's own, without a copy.
    #[must_use]
    pub const fn is_mapped(&self) -> bool {
        matches!(self.bytes, Bytes::Mapped { .. })
    }

    /// A header of the answer, by its name in lower case.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(String::as_str)
    }

    /// All headers of the answer.
    #[must_use]
    pub const fn headers(&self) -> &Headers {
        &self.headers
    }
}

impl Deref for View {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.bytes {
            Bytes::Copied(bytes) => bytes,
            Bytes::Mapped { map, .. } => map,
        }
    }
}

impl std::fmt::Debug for View {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("View")
            .field("length", &self.len())
            .field("is_mapped", &self.is_mapped())
            .finish_non_exhaustive()
    }
}
