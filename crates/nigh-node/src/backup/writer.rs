//! Writes an archive, entry by entry, to any stream.
//!
//! The checksum of an entry is in a later entry, so a stream needs no seeking. An unfinished archive has no `end.json`,
//! and readers reject it.

use std::io::{self, Read, Write};

use nigh_engine::{StoredDocument, StoredHistory, StoredPromise};
use nigh_terms::{Timestamp, hex};
use serde::Serialize;
use sha2::{Digest, Sha256};

use super::archive::{
    ArchiveError, DAMAGED_MAX, DamagedFile, DocumentText, End, EntryName, EventText, ExecutionText, Header, PIECE,
    SUMS_EVERY,
};

/// An archive being written.
pub(super) struct ArchiveWriter<W: Write> {
    tar: tar::Builder<W>,
    created: Timestamp,
    end: End,
    sums: String,
    sums_pending: usize,
    sums_written: u32,
    all_sums: Sha256,
    documents: Pieces<DocumentText>,
    events: Pieces<EventText>,
    executions: Pieces<ExecutionText>,
}

/// Collects rows into entries of about `PIECE` bytes.
struct Pieces<T> {
    number: u32,
    piece: Vec<T>,
    bytes: usize,
}

impl<T> Pieces<T> {
    const fn new() -> Self {
        Self { number: 0, piece: Vec::new(), bytes: 0 }
    }

    /// Adds `one`, which has `bytes` bytes. If `one` does not fit into the present piece, `one` begins the next piece,
    /// and the full piece is returned with its number.
    fn add(&mut self, one: T, bytes: usize) -> Option<(u32, Vec<T>)> {
        let full = if self.bytes + bytes > PIECE { self.end() } else { None };
        self.piece.push(one);
        self.bytes += bytes;
        full
    }

    /// Returns the last piece, if there is one.
    fn end(&mut self) -> Option<(u32, Vec<T>)> {
        if self.piece.is_empty() {
            return None;
        }
        self.bytes = 0;
        self.number += 1;
        Some((self.number, std::mem::take(&mut self.piece)))
    }
}

/// A reader that counts and digests the bytes.
pub(super) struct DigestingReader<R> {
    inner: R,
    digest: Sha256,
    bytes: u64,
}

impl<R: Read> DigestingReader<R> {
    pub(super) fn new(inner: R) -> Self {
        Self { inner, digest: Sha256::new(), bytes: 0 }
    }

    /// The digest in hexadecimal digits, and the number of bytes.
    pub(super) fn finish(self) -> (String, u64) {
        (hex(&self.digest.finalize()), self.bytes)
    }
}

impl<R: Read> Read for DigestingReader<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(buffer)?;
        self.digest.update(&buffer[..read]);
        self.bytes += read as u64;
        Ok(read)
    }
}

impl<W: Write> ArchiveWriter<W> {
    /// Starts an archive.
    pub(super) fn begin(to: W, header: &Header, created: Timestamp) -> Result<Self, ArchiveError> {
        let mut writer = Self {
            tar: tar::Builder::new(to),
            created,
            end: End::default(),
            sums: String::new(),
            sums_pending: 0,
            sums_written: 0,
            all_sums: Sha256::new(),
            documents: Pieces::new(),
            events: Pieces::new(),
            executions: Pieces::new(),
        };
        writer.add_json(&EntryName::Header, header)?;
        Ok(writer)
    }

    /// Adds an entry of exactly `length` bytes.
    pub(super) fn add(&mut self, name: &EntryName, length: u64, body: impl Read) -> Result<(), ArchiveError> {
        let (sum, written) = self.append(name, length, body)?;
        if written != length {
            let reason = format!("{name} became shorter while it was read ({written} of {length} bytes)");
            return Err(ArchiveError::Write(io::Error::new(io::ErrorKind::UnexpectedEof, reason)));
        }
        self.end.entries += 1;
        self.end.bytes += length;
        match name {
            EntryName::Code { .. } => self.end.code += 1,
            EntryName::Bucket { .. } => self.end.buckets += 1,
            EntryName::Object { .. } => self.end.objects += 1,
            _ => {}
        }
        self.sums += &format!("{sum}  {name}\n");
        self.sums_pending += 1;
        if self.sums_pending >= SUMS_EVERY { self.add_sums() } else { Ok(()) }
    }

    fn append(&mut self, name: &EntryName, length: u64, body: impl Read) -> Result<(String, u64), ArchiveError> {
        let mut header = tar::Header::new_ustar();
        header.set_path(name.to_string()).map_err(ArchiveError::Write)?;
        header.set_size(length);
        header.set_mode(0o600);
        header.set_mtime(self.created.millis() / 1000);
        header.set_cksum();
        let mut body = DigestingReader::new(body.take(length));
        self.tar.append(&header, &mut body).map_err(ArchiveError::Write)?;
        Ok(body.finish())
    }

    fn add_json<T: Serialize + ?Sized>(&mut self, name: &EntryName, value: &T) -> Result<(), ArchiveError> {
        let text = serde_json::to_vec(value).map_err(|error| ArchiveError::Write(error.into()))?;
        self.add(name, text.len() as u64, text.as_slice())
    }

    /// Adds a document of the registry.
    pub(super) fn add_document(&mut self, document: &StoredDocument) -> Result<(), ArchiveError> {
        let bytes = document.revised.value.len() + document.table.len() + document.key.len();
        self.end.documents += 1;
        match self.documents.add(DocumentText::from(document), bytes) {
            Some((number, piece)) => self.add_json(&EntryName::Registry(number), &piece),
            None => Ok(()),
        }
    }

    /// Adds an event.
    pub(super) fn add_event(&mut self, event: &StoredPromise) -> Result<(), ArchiveError> {
        self.end.events += 1;
        match self.events.add(EventText::from(event), event.head.len() + event.body.len()) {
            Some((number, piece)) => self.add_json(&EntryName::Events(number), &piece),
            None => Ok(()),
        }
    }

    /// Adds a head or an event of an execution.
    pub(super) fn add_execution(&mut self, row: &StoredHistory) -> Result<(), ArchiveError> {
        self.end.executions += 1;
        match self.executions.add(ExecutionText::from(row), row.value.len()) {
            Some((number, piece)) => self.add_json(&EntryName::Executions(number), &piece),
            None => Ok(()),
        }
    }

    /// Writes the last pieces of documents, events and executions.
    pub(super) fn end_pieces(&mut self) -> Result<(), ArchiveError> {
        if let Some((number, piece)) = self.documents.end() {
            self.add_json(&EntryName::Registry(number), &piece)?;
        }
        if let Some((number, piece)) = self.events.end() {
            self.add_json(&EntryName::Events(number), &piece)?;
        }
        match self.executions.end() {
            Some((number, piece)) => self.add_json(&EntryName::Executions(number), &piece),
            None => Ok(()),
        }
    }

    /// Records a file that is left out.
    pub(super) fn damaged(&mut self, path: String, reason: String) {
        self.end.damaged_total += 1;
        if self.end.damaged.len() < DAMAGED_MAX {
            self.end.damaged.push(DamagedFile { path, reason });
        }
    }

    fn add_sums(&mut self) -> Result<(), ArchiveError> {
        let sums = std::mem::take(&mut self.sums);
        self.sums_pending = 0;
        self.sums_written += 1;
        self.all_sums.update(&sums);
        self.append(&EntryName::Sums(self.sums_written), sums.len() as u64, sums.as_bytes()).map(drop)
    }

    /// Ends the archive and flushes the stream.
    pub(super) fn finish(mut self) -> Result<W, ArchiveError> {
        if self.sums_pending > 0 {
            self.add_sums()?;
        }
        self.end.sums = hex(&self.all_sums.clone().finalize());
        let end = serde_json::to_vec(&self.end).map_err(|error| ArchiveError::Write(error.into()))?;
        self.append(&EntryName::End, end.len() as u64, end.as_slice())?;
        let mut to = self.tar.into_inner().map_err(ArchiveError::Write)?;
        to.flush().map_err(ArchiveError::Write)?;
        Ok(to)
    }
}
