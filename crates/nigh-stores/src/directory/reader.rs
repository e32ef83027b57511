//! Reads an object's file. An open file is one version, even if another file gets its name meanwhile.
//!
//! A small file is read by one call: payload, metadata and footer together. A larger file is streamed in pieces. If the
//! checksum of a whole payload is known and does not match, the read fails before its last byte.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use crc_fast::{CrcAlgorithm, Digest};
use nigh_data::{ByteStream, ObjectError, ObjectMeta};
use nigh_terms::ObjectKey;
use rustix::buffer::spare_capacity;

use super::object_file::{FOOTER, Footer, FormatError, crc64, parse_footer};
use super::store_error;

/// The longest file that is read with one call, in bytes.
const WHOLE_MAX: u64 = 256 * 1024;
/// The length of one piece of a stream, in bytes.
const CHUNK: u64 = 1024 * 1024;
/// The length of the file's end that is read first, in bytes. Nearly all metadata fits.
const TAIL_GUESS: u64 = 2048;

/// How much of the payload to read along with the metadata.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Want {
    /// Only the metadata.
    Metadata,
    /// The metadata and, if the file is small, the whole payload.
    Payload,
}

/// An object's file, opened, its metadata verified.
pub(super) struct OpenObject {
    pub(super) meta: ObjectMeta,
    path: PathBuf,
    file: Arc<File>,
    footer: Footer,
    /// The verified payload. None if it was not wanted or if the file is not small.
    payload: Option<Bytes>,
}

fn unreadable(path: &Path) -> impl Fn(io::Error) -> ObjectError {
    move |reason| store_error("read", path, &reason)
}

fn damaged(path: &Path, reason: &FormatError) -> ObjectError {
    store_error("read", path, &format_args!("{reason}; restore it from a copy, or delete the object"))
}

/// Reads exactly `range`, without zeroing the buffer first.
fn read_range(file: &File, range: Range<u64>) -> io::Result<Vec<u8>> {
    let wanted = usize::try_from(range.end - range.start).map_err(io::Error::other)?;
    if wanted == 0 {
        return Ok(Vec::new());
    }
    let mut bytes = Vec::with_capacity(wanted);
    while bytes.len() < wanted {
        let at = range.start + bytes.len() as u64;
        match rustix::io::pread(file, spare_capacity(&mut bytes), at) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(other) => return Err(other.into()),
        }
    }
    // The buffer may be larger than the wanted length, and a longer file may have filled it.
    bytes.truncate(wanted);
    Ok(bytes)
}

impl OpenObject {
    /// Opens the file at `path` that holds `key`. None if there is no such file. Blocks.
    pub(super) fn open(path: PathBuf, key: &ObjectKey, want: Want) -> Result<Option<Self>, ObjectError> {
        let file = match File::open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(unreadable(&path)(error)),
        };
        let length = file.metadata().map_err(unreadable(&path))?.len();
        let whole = want == Want::Payload && length <= WHOLE_MAX;
        let start = if whole { 0 } else { length.saturating_sub(TAIL_GUESS) };
        let mut end = read_range(&file, start..length).map_err(unreadable(&path))?;
        let footer = match end.last_chunk::<FOOTER>() {
            Some(footer) => parse_footer(footer, length),
            None => Err(FormatError::Short { length }),
        }
        .map_err(|e| damaged(&path, &e))?;
        if end.len() < footer.tail() {
            end = read_range(&file, footer.payload..length).map_err(unreadable(&path))?;
        }
        let metadata = end.len() - footer.tail()..end.len() - FOOTER;
        let meta = footer.parse_metadata(&end[metadata], key).map_err(|e| damaged(&path, &e))?;
        let payload = if whole {
            end.truncate(end.len() - footer.tail());
            if footer.payload_crc.is_some_and(|crc| crc != crc64(&end)) {
                return Err(damaged(&path, &FormatError::Checksum { part: "the payload" }));
            }
            Some(Bytes::from(end))
        } else {
            None
        };
        Ok(Some(Self { meta, path, file: Arc::new(file), footer, payload }))
    }

    /// The file itself, for a copy of its payload.
    pub(super) fn file(&self) -> &File {
        &self.file
    }

    /// The file's length: payload, metadata and footer.
    pub(super) const fn length(&self) -> u64 {
        self.footer.payload + self.footer.tail() as u64
    }

    /// The payload's CRC-64/NVME. None if the writer did not see the bytes.
    pub(super) const fn payload_crc(&self) -> Option<u64> {
        self.footer.payload_crc
    }

    /// Streams the bytes of `range`, or the whole payload if `range` is None.
    pub(super) fn into_stream(self, range: Option<Range<u64>>) -> Result<(ObjectMeta, ByteStream), ObjectError> {
        let size = self.footer.payload;
        let range = range.unwrap_or(0..size);
        if range.start > range.end || range.end > size {
            return Err(ObjectError::InvalidRange { size });
        }
        if let Some(payload) = self.payload {
            let part = payload.slice(range.start as usize..range.end as usize);
            let pieces = (!part.is_empty()).then_some(Ok(part));
            return Ok((self.meta, Box::pin(futures::stream::iter(pieces))));
        }
        let wanted_crc = self.footer.payload_crc.filter(|_| range == (0..size));
        let state = FileStream {
            path: self.path,
            file: self.file,
            rest: range,
            check: wanted_crc.map(|crc| (Digest::new(CrcAlgorithm::Crc64Nvme), crc)),
        };
        let stream = futures::stream::try_unfold(state, |state| async move {
            if state.rest.is_empty() {
                return Ok(None);
            }
            tokio::task::spawn_blocking(move || state.next_chunk())
                .await
                .map_err(|join| ObjectError::Body(join.to_string()))?
                .map(Some)
        });
        Ok((self.meta, Box::pin(stream)))
    }
}

struct FileStream {
    path: PathBuf,
    file: Arc<File>,
    rest: Range<u64>,
    check: Option<(Digest, u64)>,
}

impl FileStream {
    fn next_chunk(mut self) -> Result<(Bytes, Self), ObjectError> {
        let chunk = self.rest.start..self.rest.end.min(self.rest.start + CHUNK);
        self.rest.start = chunk.end;
        let bytes = read_range(&self.file, chunk).map_err(unreadable(&self.path))?;
        if let Some((digest, wanted)) = &mut self.check {
            digest.update(&bytes);
            if self.rest.is_empty() && digest.finalize() != *wanted {
                return Err(damaged(&self.path, &FormatError::Checksum { part: "the payload" }));
            }
        }
        Ok((Bytes::from(bytes), self))
    }
}
