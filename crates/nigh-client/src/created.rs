//! Memory of the node that becomes an object.

use std::ops::{Deref, DerefMut};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use memmap2::{MmapMut, MmapOptions};

use crate::{Answered, Client, ClientError, Headers};

/// Memory of the node, mapped for writing. Without `commit` it is released when the client ends, or by `abandon`.
#[derive(Debug)]
pub struct Created {
    handle: u64,
    bucket: String,
    key: String,
    descriptor: OwnedFd,
    /// The mapping; none for an empty object.
    map: Option<MmapMut>,
}

impl Created {
    pub(crate) fn new(
        handle: u64,
        (bucket, key): (&str, &str),
        descriptor: OwnedFd,
        length: usize,
    ) -> Result<Self, ClientError> {
        let size = rustix::fs::fstat(&descriptor).map_err(ClientError::io("look at a segment"))?.st_size as u64;
        if size != length as u64 {
            return Err(ClientError::Protocol(format!("a segment of {size} bytes where {length} were asked for")));
        }
        let map = match length {
            0 => None,
            // SAFETY: the node has sealed the file's length, and it is what is mapped; who else may write to it was
            // given the descriptor by this process.
            length => Some(unsafe { MmapOptions::new().len(length).map_mut(&descriptor) }),
        };
        let map = map.transpose().map_err(|reason| ClientError::Io { what: "map a segment", reason })?;
        Ok(Self { handle, bucket: bucket.to_owned(), key: key.to_owned(), descriptor, map })
    }

    /// The node's number of it.
    #[must_use]
    pub const fn handle(&self) -> u64 {
        self.handle
    }

    /// Publishes the bytes as the object, which is stored when this returns.
    ///
    /// # Errors
    /// As of a put.
    pub fn commit(self, client: &mut Client, headers: &Headers) -> Result<Answered, ClientError> {
        let Self { handle, bucket, key, descriptor, map } = self;
        // The node cannot seal memory that is mapped for writing.
        drop(map);
        let committed = client.commit(handle, &bucket, &key, headers);
        drop(descriptor);
        client.release(handle)?;
        committed
    }

    /// Releases the memory.
    ///
    /// # Errors
    /// If the connection is broken.
    pub fn abandon(self, client: &mut Client) -> Result<(), ClientError> {
        let Self { handle, descriptor, map, .. } = self;
        drop((map, descriptor));
        client.abandon(handle)
    }
}

impl Deref for Created {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.map.as_deref().unwrap_or_default()
    }
}

impl DerefMut for Created {
    fn deref_mut(&mut self) -> &mut [u8] {
        self.map.as_deref_mut().unwrap_or_default()
    }
}

impl AsFd for Created {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}
