//! Reads an archive in one pass and gives its content to a sink. Only `Ok` at the end means that the archive is
//! complete and undamaged: a sink must not let anything take effect before that.
//!
//! Every entry must have a known name, a permitted place and length, and match its checksum; the last entry must count the
//! entries. So the reader notices a copy that was cut off or changed anywhere.

use std::io::{self, Read};

use nigh_engine::{StoredDocument, StoredHistory, StoredPromise};
use nigh_terms::{BucketName, FunctionName, Namespace, hex};
use serde::de::DeserializeOwned;
use sha2::{Digest, Sha256};

use super::archive::{
    AnyHeader, ArchiveError, BUCKET_MAX, CODE_MAX, CodeTree, DocumentText, END_MAX, EVENTS_MAX, EXECUTIONS_MAX, End,
    EntryName, EventText, ExecutionText, FILE_MAX, FORMAT, HEADER_MAX, Header, REGISTRY_MAX, SUMS_EVERY, SUMS_MAX,
    StateFile,
};
use super::writer::DigestingReader;

/// Receives the content of an archive, in order. `E` is the sink's error.
pub trait Sink<E> {
    /// The header; first.
    fn header(&mut self, _: &Header) -> Result<(), E> {
        Ok(())
    }
    /// A piece of the registry's documents.
    fn documents(&mut self, _: Vec<StoredDocument>) -> Result<(), E> {
        Ok(())
    }
    /// A piece of the events that are not done.
    fn events(&mut self, _: Vec<StoredPromise>) -> Result<(), E> {
        Ok(())
    }
    /// A piece of the heads and events of executions.
    fn executions(&mut self, _: Vec<StoredHistory>) -> Result<(), E> {
        Ok(())
    }
    /// A file of the state folder.
    fn file(&mut self, _: StateFile, _: &[u8]) -> Result<(), E> {
        Ok(())
    }
    /// The archive of one version of some code.
    fn code(&mut self, _: CodeTree, _: &Namespace, _: &FunctionName, _version: &str, _: &[u8]) -> Result<(), E> {
        Ok(())
    }
    /// A bucket.
    fn bucket(&mut self, _: &Namespace, _: &BucketName, _description: &[u8]) -> Result<(), E> {
        Ok(())
    }
    /// An object's file. The reader skips bytes that the sink does not read.
    fn object(&mut self, _: &Namespace, _: &BucketName, _: &mut dyn Read) -> Result<(), E> {
        Ok(())
    }
    /// The reader has read `bytes` bytes.
    fn progress(&mut self, _bytes: u64) {}
}

/// Ignores the content: the archive is only verified.
#[derive(Debug)]
pub struct Verify;

impl Sink<ArchiveError> for Verify {}

/// What the reader has seen of an archive.
#[derive(Default)]
struct ArchiveProgress {
    end: End,
    /// The sums that the next entry of sums must have.
    sums: String,
    sums_pending: usize,
    sums_read: u32,
    all_sums: Sha256,
    pieces: u32,
    event_pieces: u32,
    execution_pieces: u32,
    bucket: Option<(Namespace, BucketName)>,
}

fn corrupt(name: impl ToString, reason: impl ToString) -> ArchiveError {
    ArchiveError::Corrupt { name: name.to_string(), reason: reason.to_string() }
}

/// Reads all of `input`.
///
/// # Errors
/// What is wrong with the archive, or the sink's error.
pub fn read<E: From<ArchiveError>>(input: impl Read, sink: &mut dyn Sink<E>) -> Result<(Header, End), E> {
    let mut archive = tar::Archive::new(input);
    let (mut seen, mut header) = (ArchiveProgress::default(), None::<Header>);
    // Raw, because tar's extensions have unlimited lengths; they are rejected as unknown entries.
    let entries = archive.entries().map_err(ArchiveError::Read)?.raw(true);
    for entry in entries {
        let mut entry = entry.map_err(|error| broken(error, &seen, header.is_some()))?;
        let name = match name_of(&entry) {
            Ok(name) => name,
            Err(_) if header.is_none() => return Err(ArchiveError::Foreign("its first entry is not a backup's").into()),
            Err(words) => return Err(corrupt(words, "no backup has such an entry").into()),
        };
        let Some(known) = &header else {
            if name != EntryName::Header {
                return Err(ArchiveError::Foreign("its first entry is not a backup's").into());
            }
            let read = read_header(&mut entry, &mut seen)?;
            sink.header(&read)?;
            header = Some(read);
            continue;
        };
        match name {
            EntryName::Header => return Err(corrupt(name, "it is there twice").into()),
            EntryName::Sums(number) => seen.check_sums(number, &mut entry)?,
            EntryName::End => {
                let told: End = json(&name, &small(&name, &mut entry, END_MAX, &seen)?.0)?;
                seen.check_end(&told)?;
                return Ok((known.clone(), told));
            }
            other => {
                let header = known.clone();
                seen.entry(&other, &header, &mut entry, sink)?;
                sink.progress(seen.end.bytes);
            }
        }
    }
    if header.is_none() { Err(ArchiveError::Foreign("it is empty").into()) } else { Err(seen.truncated().into()) }
}

/// The error for a failure to find the next entry.
fn broken(error: io::Error, seen: &ArchiveProgress, begun: bool) -> ArchiveError {
    match error.kind() {
        io::ErrorKind::UnexpectedEof if begun => seen.truncated(),
        // The message of the tar crate for an invalid header.
        io::ErrorKind::Other | io::ErrorKind::InvalidData | io::ErrorKind::InvalidInput if begun => {
            let words = error.to_string();
            if words.contains("unexpected EOF") || words.contains("failed to read entire block") {
                return seen.truncated();
            }
            corrupt(format_args!("what stands behind entry {}", seen.end.entries), words)
        }
        io::ErrorKind::UnexpectedEof | io::ErrorKind::Other | io::ErrorKind::InvalidData => {
            ArchiveError::Foreign("it is no tar archive")
        }
        _ => ArchiveError::Read(error),
    }
}

fn name_of<R: Read>(entry: &tar::Entry<'_, R>) -> Result<EntryName, String> {
    let bytes = entry.path_bytes();
    let text = String::from_utf8_lossy(&bytes).chars().take(256).collect::<String>();
    if entry.header().entry_type() != tar::EntryType::Regular {
        return Err(text);
    }
    text.parse().map_err(|()| text)
}

fn json<T: DeserializeOwned>(name: &EntryName, bytes: &[u8]) -> Result<T, ArchiveError> {
    serde_json::from_slice(bytes).map_err(|error| corrupt(name, error))
}

/// The rows of the piece `number`, which must follow the piece `last`.
fn next_rows<T: DeserializeOwned, R>(
    name: &EntryName,
    number: u32,
    last: &mut u32,
    bytes: &[u8],
    decode: impl Fn(T) -> Result<R, String>,
) -> Result<Vec<R>, ArchiveError> {
    if number != *last + 1 {
        return Err(corrupt(name, "it is out of order"));
    }
    *last = number;
    let texts: Vec<T> = json(name, bytes)?;
    let rows: Result<Vec<R>, String> = texts.into_iter().map(decode).collect();
    rows.map_err(|reason| corrupt(name, reason))
}

/// The content of an entry of at most `limit` bytes, and its digest.
fn small<R: Read>(
    name: &EntryName,
    entry: &mut tar::Entry<'_, R>,
    limit: u64,
    seen: &ArchiveProgress,
) -> Result<(Vec<u8>, String), ArchiveError> {
    let length = entry.size();
    if length > limit {
        return Err(corrupt(name, format_args!("it has {length} bytes, {limit} are permitted")));
    }
    let mut bytes = Vec::new();
    entry.read_to_end(&mut bytes).map_err(ArchiveError::Read)?;
    if bytes.len() as u64 != length {
        return Err(seen.truncated());
    }
    let digest = hex(&Sha256::digest(&bytes));
    Ok((bytes, digest))
}

fn read_header<R: Read>(entry: &mut tar::Entry<'_, R>, seen: &mut ArchiveProgress) -> Result<Header, ArchiveError> {
    let name = EntryName::Header;
    let (bytes, digest) = small(&name, entry, HEADER_MAX, seen)?;
    let AnyHeader { format, nigh } = json(&name, &bytes)?;
    if format > FORMAT {
        let nigh = nigh.chars().filter(|letter| !letter.is_control()).take(64).collect();
        return Err(ArchiveError::Newer { found: format, nigh });
    }
    let header = json(&name, &bytes)?;
    seen.add(&name, bytes.len() as u64, &digest);
    Ok(header)
}

impl ArchiveProgress {
    fn truncated(&self) -> ArchiveError {
        ArchiveError::Truncated { entries: self.end.entries }
    }

    fn add(&mut self, name: &EntryName, bytes: u64, digest: &str) {
        self.end.entries += 1;
        self.end.bytes += bytes;
        self.sums += &format!("{digest}  {name}\n");
        self.sums_pending += 1;
    }

    fn entry<R: Read, E: From<ArchiveError>>(
        &mut self,
        name: &EntryName,
        header: &Header,
        entry: &mut tar::Entry<'_, R>,
        sink: &mut dyn Sink<E>,
    ) -> Result<(), E> {
        if self.sums_pending >= SUMS_EVERY {
            return Err(corrupt(name, "the checksums of the entries before it are missing").into());
        }
        let length = entry.size();
        let digest = match name {
            EntryName::Object { namespace, bucket, number } => {
                if self.bucket.as_ref().is_none_or(|(of, name)| of != namespace || name != bucket) {
                    return Err(corrupt(name, "it does not follow its bucket").into());
                }
                if *number != self.end.objects + 1 {
                    return Err(corrupt(name, "it is out of order").into());
                }
                self.end.objects += 1;
                let mut body = DigestingReader::new(entry);
                let told = sink.object(namespace, bucket, &mut body);
                io::copy(&mut body, &mut io::sink()).map_err(ArchiveError::Read)?;
                let (digest, read) = body.finish();
                // The sink may have stopped because the object was cut off.
                if read != length {
                    return Err(self.truncated().into());
                }
                told?;
                digest
            }
            other => {
                let limit = match other {
                    EntryName::Registry(_) => REGISTRY_MAX,
                    EntryName::Events(_) => EVENTS_MAX,
                    EntryName::Executions(_) => EXECUTIONS_MAX,
                    EntryName::Code { .. } => CODE_MAX,
                    EntryName::Bucket { .. } => BUCKET_MAX,
                    _ => FILE_MAX,
                };
                let (bytes, digest) = small(other, entry, limit, self)?;
                self.small_entry(other, header, &bytes, sink)?;
                digest
            }
        };
        self.add(name, length, &digest);
        Ok(())
    }

    fn small_entry<E: From<ArchiveError>>(
        &mut self,
        name: &EntryName,
        header: &Header,
        bytes: &[u8],
        sink: &mut dyn Sink<E>,
    ) -> Result<(), E> {
        match name {
            EntryName::Registry(number) => {
                let documents = next_rows(name, *number, &mut self.pieces, bytes, DocumentText::decode)?;
                self.end.documents += documents.len() as u64;
                sink.documents(documents)
            }
            EntryName::Events(number) => {
                let events = next_rows(name, *number, &mut self.event_pieces, bytes, EventText::decode)?;
                self.end.events += events.len() as u64;
                sink.events(events)
            }
            EntryName::Executions(number) => {
                let rows = next_rows(name, *number, &mut self.execution_pieces, bytes, ExecutionText::decode)?;
                self.end.executions += rows.len() as u64;
                sink.executions(rows)
            }
            EntryName::File(StateFile::Credentials) if !header.keys => {
                Err(corrupt(name, "the header says that the backup has no keys").into())
            }
            EntryName::File(file) => sink.file(*file, bytes),
            EntryName::Code { tree, namespace, name, version } => {
                self.end.code += 1;
                sink.code(*tree, namespace, name, version, bytes)
            }
            EntryName::Bucket { namespace, bucket } if header.objects => {
                self.end.buckets += 1;
                self.bucket = Some((namespace.clone(), bucket.clone()));
                sink.bucket(namespace, bucket, bytes)
            }
            other => Err(corrupt(other, "it is not permitted here").into()),
        }
    }

    fn check_sums<R: Read>(&mut self, number: u32, entry: &mut tar::Entry<'_, R>) -> Result<(), ArchiveError> {
        let name = EntryName::Sums(number);
        let (told, _) = small(&name, entry, SUMS_MAX, self)?;
        let sums = std::mem::take(&mut self.sums);
        self.sums_pending = 0;
        self.sums_read += 1;
        self.all_sums.update(&sums);
        if told == sums.as_bytes() && number == self.sums_read {
            return Ok(());
        }
        let told = String::from_utf8_lossy(&told);
        let differs = sums.lines().zip(told.lines()).find(|(own, told)| own != told);
        let what =
            differs.and_then(|(own, _)| own.split_once("  ")).map_or(name.to_string(), |(_, name)| name.to_owned());
        Err(corrupt(what, "it does not match its checksum"))
    }

    fn check_end(&self, told: &End) -> Result<(), ArchiveError> {
        if self.sums_pending > 0 {
            return Err(corrupt(EntryName::End, "the checksums of the entries before it are missing"));
        }
        let sums = hex(&self.all_sums.clone().finalize());
        let seen = End { sums, damaged: told.damaged.clone(), damaged_total: told.damaged_total, ..self.end.clone() };
        if seen == *told { Ok(()) } else { Err(corrupt(EntryName::End, "its counts do not match the entries")) }
    }
}
