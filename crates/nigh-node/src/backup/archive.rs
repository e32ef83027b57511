//! The format of a backup: a plain tar (POSIX ustar) of regular files; each name says what the file is.
//!
//! ```text
//! nigh-backup.json                         `Header`; first
//! registry/000001.json ...                 `[DocumentText]`: the registry's documents, in pieces
//! events/000001.json ...                   `[EventText]`: events that are not done, in pieces
//! executions/000001.json ...               `[ExecutionText]`: heads and events of executions, in pieces
//! files/credentials, files/nigh.toml       of the state folder
//! code/<tree>/<namespace>/<name>/<version>.zip   archives of functions and layers, as uploaded
//! buckets/<namespace>/<bucket>.json        a bucket's description
//! objects/<namespace>/<bucket>/<number>    an object's file (`object_file`), behind its bucket
//! sums/000001 ...                          SHA-256 of the entries since the last sums, as `sha256sum` writes it
//! end.json                                 `End`; last
//! ```
//!
//! No name is used as a path: each is parsed into its parts, and must be the only spelling of these parts.

use std::fmt;
use std::io;
use std::str::FromStr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use nigh_engine::{RegistryDocument, Revision, StoredDocument, StoredHistory, StoredPromise};
use nigh_terms::{BucketName, FunctionName, Namespace};
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// The format version that this build writes, and the newest that it reads. Version 1 had no events, version 2 no
/// executions.
pub const FORMAT: u32 = 3;
/// The most entries between two entries of sums.
pub(super) const SUMS_EVERY: usize = 1000;
/// The most bytes of each kind of entry that is read into memory.
pub(super) const HEADER_MAX: u64 = 64 << 10;
pub(super) const SUMS_MAX: u64 = 1 << 20;
pub(super) const END_MAX: u64 = 1 << 20;
pub(super) const FILE_MAX: u64 = 1 << 20;
pub(super) const BUCKET_MAX: u64 = 1 << 20;
/// The bytes of the largest model (8 MiB) or function document, in base64, with a margin.
pub(super) const REGISTRY_MAX: u64 = 32 << 20;
/// The bytes of an event or its record, some megabytes at most, in base64, with a margin.
pub(super) const EVENTS_MAX: u64 = 32 << 20;
/// The bytes of an event of an execution, some megabytes at most, in base64, with a margin.
pub(super) const EXECUTIONS_MAX: u64 = 32 << 20;
/// The bytes of the largest code archive (`ArchiveLimits::LAMBDA`).
pub(super) const CODE_MAX: u64 = 256 << 20;
/// The bytes of documents in one piece of the registry; a larger document is a piece of its own.
pub(super) const PIECE: usize = 2 << 20;
/// The most damaged files that are named; further ones are only counted.
pub(super) const DAMAGED_MAX: usize = 100;

/// Why an archive is rejected.
#[derive(Debug, Error)]
#[expect(missing_docs, reason = "each message says what the fields hold")]
pub enum ArchiveError {
    #[error("this is not a backup of nigh: {0}")]
    Foreign(&'static str),
    #[error(
        "the backup has format {found} and was written by nigh {nigh}; this build reads up to {FORMAT}: restore it \
         with that nigh or a newer one"
    )]
    Newer { found: u32, nigh: String },
    #[error("the backup was cut off: it ends after {entries} entries; take another copy of it")]
    Truncated { entries: u64 },
    #[error("{name} in the backup is damaged: {reason}; take another copy of it")]
    Corrupt { name: String, reason: String },
    #[error("reading the backup: {0}")]
    Read(io::Error),
    #[error("writing the backup: {0}")]
    Write(io::Error),
}

/// The first entry.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Header {
    /// The format version that the build wrote.
    pub format: u32,
    /// The version of Nigh that wrote it.
    pub nigh: String,
    /// When the backup began, RFC 3339.
    pub created: String,
    /// True if it has the clients' keys.
    pub keys: bool,
    /// True if it has the directory store's objects.
    pub objects: bool,
}

/// The fields that the header has in every format version.
#[derive(Deserialize)]
pub(super) struct AnyHeader {
    pub(super) format: u32,
    #[serde(default)]
    pub(super) nigh: String,
}

/// A file that could not be backed up.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DamagedFile {
    /// The file's path.
    pub path: String,
    /// Why it could not be backed up.
    pub reason: String,
}

/// The last entry, which counts the entries before it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct End {
    /// Number of entries, without those of sums.
    pub entries: u64,
    /// The bytes of these entries.
    pub bytes: u64,
    /// The SHA-256 of all sums, in hexadecimal digits.
    pub sums: String,
    /// Number of documents of the registry.
    pub documents: u64,
    /// Number of unfinished events and of dead letters.
    #[serde(default)]
    pub events: u64,
    /// Number of heads and events of executions.
    #[serde(default)]
    pub executions: u64,
    /// Number of code archives.
    pub code: u64,
    /// Number of buckets.
    pub buckets: u64,
    /// Number of objects.
    pub objects: u64,
    /// The files that were left out because they were damaged: the first hundred.
    pub damaged: Vec<DamagedFile>,
    /// Number of files that were left out.
    pub damaged_total: u64,
}

/// A document of the registry, as JSON.
#[derive(Serialize, Deserialize)]
pub(super) struct DocumentText {
    table: String,
    key: String,
    revision: u64,
    /// The document in base64.
    value: String,
}

impl From<&StoredDocument> for DocumentText {
    fn from(document: &StoredDocument) -> Self {
        Self {
            table: document.table.clone(),
            key: document.key.clone(),
            revision: document.revised.revision.0,
            value: BASE64.encode(&document.revised.value),
        }
    }
}

impl DocumentText {
    pub(super) fn decode(self) -> Result<StoredDocument, String> {
        if self.table.contains('\0') {
            return Err(format!("{:?} is not a name of a table", self.table));
        }
        let value = BASE64.decode(&self.value).map_err(|error| error.to_string())?;
        let revised = RegistryDocument { value, revision: Revision(self.revision) };
        Ok(StoredDocument { table: self.table, key: self.key, revised })
    }
}

/// A row of the outbox, as JSON.
#[derive(Serialize, Deserialize)]
pub(super) struct EventText {
    /// The row's id in base64.
    id: String,
    /// The head in base64.
    head: String,
    /// The body in base64.
    body: String,
}

impl From<&StoredPromise> for EventText {
    fn from(event: &StoredPromise) -> Self {
        let (head, body) = (BASE64.encode(&event.head), BASE64.encode(&event.body));
        Self { id: BASE64.encode(event.id), head, body }
    }
}

impl EventText {
    pub(super) fn decode(self) -> Result<StoredPromise, String> {
        let bytes = |text: &str| BASE64.decode(text).map_err(|error| error.to_string());
        let id = bytes(&self.id)?.try_into().map_err(|_| format!("{:?} is not 16 bytes long", self.id))?;
        Ok(StoredPromise { id, head: bytes(&self.head)?, body: bytes(&self.body)? })
    }
}

/// A row of the histories of executions, as JSON.
#[derive(Serialize, Deserialize)]
pub(super) struct ExecutionText {
    /// The execution's id in base64.
    id: String,
    /// The event's place; none for a head.
    place: Option<u64>,
    /// The head or the event in base64.
    value: String,
}

impl From<&StoredHistory> for ExecutionText {
    fn from(row: &StoredHistory) -> Self {
        Self { id: BASE64.encode(row.id), place: row.place, value: BASE64.encode(&row.value) }
    }
}

impl ExecutionText {
    pub(super) fn decode(self) -> Result<StoredHistory, String> {
        let bytes = |text: &str| BASE64.decode(text).map_err(|error| error.to_string());
        let id = bytes(&self.id)?.try_into().map_err(|_| format!("{:?} is not 16 bytes long", self.id))?;
        Ok(StoredHistory { id, place: self.place, value: bytes(&self.value)? })
    }
}

/// The files of the state folder that an archive can have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StateFile {
    /// The clients' keys.
    Credentials,
    /// The settings.
    Settings,
}

impl StateFile {
    /// The file's name in the state folder and in the archive.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Credentials => "credentials",
            Self::Settings => "nigh.toml",
        }
    }
}

/// The kind of code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CodeTree {
    /// The code of functions.
    Functions,
    /// The code of layers.
    Layers,
}

impl CodeTree {
    const fn name(self) -> &'static str {
        match self {
            Self::Functions => "functions",
            Self::Layers => "layers",
        }
    }
}

/// The name of an entry, parsed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum EntryName {
    Header,
    Registry(u32),
    Events(u32),
    Executions(u32),
    File(StateFile),
    Code { tree: CodeTree, namespace: Namespace, name: FunctionName, version: String },
    Bucket { namespace: Namespace, bucket: BucketName },
    Object { namespace: Namespace, bucket: BucketName, number: u64 },
    Sums(u32),
    End,
}

impl fmt::Display for EntryName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Header => f.write_str("nigh-backup.json"),
            Self::Registry(number) => write!(f, "registry/{number:06}.json"),
            Self::Events(number) => write!(f, "events/{number:06}.json"),
            Self::Executions(number) => write!(f, "executions/{number:06}.json"),
            Self::File(file) => write!(f, "files/{}", file.name()),
            Self::Code { tree, namespace, name, version } => {
                write!(f, "code/{}/{namespace}/{name}/{version}.zip", tree.name())
            }
            Self::Bucket { namespace, bucket } => write!(f, "buckets/{namespace}/{bucket}.json"),
            Self::Object { namespace, bucket, number } => write!(f, "objects/{namespace}/{bucket}/{number}"),
            Self::Sums(number) => write!(f, "sums/{number:06}"),
            Self::End => f.write_str("end.json"),
        }
    }
}

impl FromStr for EntryName {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let parts: Vec<&str> = text.split('/').collect();
        let json = |name: &str| name.strip_suffix(".json").map(str::to_owned).ok_or(());
        let namespace = |name: &str| Namespace::new(name).map_err(drop);
        let parsed = match parts[..] {
            ["nigh-backup.json"] => Self::Header,
            ["end.json"] => Self::End,
            ["registry", number] => Self::Registry(json(number)?.parse().map_err(drop)?),
            ["events", number] => Self::Events(json(number)?.parse().map_err(drop)?),
            ["executions", number] => Self::Executions(json(number)?.parse().map_err(drop)?),
            ["sums", number] => Self::Sums(number.parse().map_err(drop)?),
            ["files", "credentials"] => Self::File(StateFile::Credentials),
            ["files", "nigh.toml"] => Self::File(StateFile::Settings),
            ["code", tree, of, name, version] => Self::Code {
                tree: match tree {
                    "functions" => CodeTree::Functions,
                    "layers" => CodeTree::Layers,
                    _ => return Err(()),
                },
                namespace: namespace(of)?,
                name: FunctionName::new(name).map_err(drop)?,
                version: version.strip_suffix(".zip").map(str::to_owned).ok_or(())?,
            },
            ["buckets", of, bucket] => {
                Self::Bucket { namespace: namespace(of)?, bucket: BucketName::new(&json(bucket)?).map_err(drop)? }
            }
            ["objects", of, bucket, number] => Self::Object {
                namespace: namespace(of)?,
                bucket: BucketName::new(bucket).map_err(drop)?,
                number: number.parse().map_err(drop)?,
            },
            _ => return Err(()),
        };
        // Only one spelling is valid.
        if parsed.to_string() == text { Ok(parsed) } else { Err(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_read_as_it_is_written_and_every_other_is_refused() {
        let (namespace, bucket) = (Namespace::new("default").unwrap(), BucketName::new("data").unwrap());
        let version = "p0iVbp-KwHZ_".to_owned();
        let name = FunctionName::new("blur").unwrap();
        for entry in [
            EntryName::Header,
            EntryName::Registry(3),
            EntryName::Events(1),
            EntryName::Executions(7),
            EntryName::File(StateFile::Credentials),
            EntryName::File(StateFile::Settings),
            EntryName::Code { tree: CodeTree::Layers, namespace: namespace.clone(), name, version },
            EntryName::Bucket { namespace: namespace.clone(), bucket: bucket.clone() },
            EntryName::Object { namespace, bucket, number: 12 },
            EntryName::Sums(1_000_000),
            EntryName::End,
        ] {
            assert_eq!(entry.to_string().parse(), Ok(entry.clone()), "{entry}");
        }
        for other in [
            "",
            "/",
            "end.json/",
            "registry/1.json",
            "registry/-00001.json",
            "sums/+00001",
            "files/../state.redb",
            "files/instance",
            "/files/credentials",
            "objects/../data/1",
            "objects/default/data/01",
            "buckets/a/..json",
            "code/functions/default/../v.zip",
            "code/other/default/f/v.zip",
            "./end.json",
        ] {
            assert_eq!(other.parse::<EntryName>(), Err(()), "{other}");
        }
    }

    #[test]
    fn the_longest_name_fits_the_field_of_a_ustar_header() {
        let (long, bucket) = (Namespace::new(&"n".repeat(32)).unwrap(), BucketName::new(&"b".repeat(63)).unwrap());
        let code = EntryName::Code {
            tree: CodeTree::Functions,
            namespace: long.clone(),
            name: FunctionName::new(&"f".repeat(64)).unwrap(),
            version: "v".repeat(43),
        };
        for entry in [code, EntryName::Object { namespace: long, bucket, number: u64::MAX }] {
            tar::Header::new_ustar().set_path(entry.to_string()).unwrap();
        }
    }
}
