//! The report of opening or inspecting a journal.

use std::fmt;

use nigh_terms::{Epoch, ShardId, Version};

use crate::ledger::Record;

/// An unpushed record. Its body stays in the journal, where [`read`](crate::Ledger::read) finds it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecoveredRecord {
    /// The record's shard.
    pub shard: ShardId,
    /// The record's version.
    pub version: Version,
    /// The write.
    pub record: Record,
    /// The length of the record's body, in bytes.
    pub body_bytes: u64,
}

/// Damage of something that was durable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DamageKind {
    /// A write with a damaged body or piece. An older record of the same object is not the newest write.
    Record {
        /// The write.
        record: Box<RecoveredRecord>,
        /// True if the store is known to have the write, so that nothing is lost.
        stored: bool,
    },
    /// Unknown records with damaged heads. They may be writes of any object, or notices of stored writes.
    Unknown,
    /// A piece that no write names.
    Piece,
    /// One of the two copies of a segment's header is damaged; the other is used.
    HeaderCopy,
    /// Both copies of a segment's header are damaged: all of its records are unknown.
    Header,
    /// The file is shorter than it was.
    Truncated,
    /// Segments are missing.
    Missing,
    /// A second file of the same generation, or a file moved aside: it was not read.
    Stray,
}

impl DamageKind {
    /// True if writes may be lost of which nobody knows the objects: any object may have lost one, and unpushed writes may
    /// be older than what the store has.
    #[must_use]
    pub const fn hides_writes(&self) -> bool {
        match self {
            Self::Unknown | Self::Header | Self::Truncated | Self::Missing => true,
            Self::Record { .. } | Self::Piece | Self::HeaderCopy | Self::Stray => false,
        }
    }
}

/// Damage and its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// The segment file.
    pub file: String,
    /// The offset of the damage in the file.
    pub offset: u64,
    /// What is damaged.
    pub kind: DamageKind,
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at {}: ", self.file, self.offset)?;
        match &self.kind {
            DamageKind::Record { record, stored } => {
                let Record { namespace, bucket, key, .. } = &record.record;
                write!(f, "version {} of {namespace}/{bucket}/{key} is damaged", record.version)?;
                f.write_str(if *stored { "; the store has it" } else { "" })
            }
            DamageKind::Unknown => f.write_str("records are damaged beyond recognition"),
            DamageKind::Piece => f.write_str("a piece of no known write is damaged"),
            DamageKind::HeaderCopy => f.write_str("one of two copies of the header is damaged"),
            DamageKind::Header => f.write_str("both copies of the header are damaged"),
            DamageKind::Truncated => f.write_str("the file ends here"),
            DamageKind::Missing => f.write_str("missing"),
            DamageKind::Stray => f.write_str("the file does not belong here"),
        }
    }
}

/// A write that a crash cut off before it was acknowledged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TornTail {
    /// The segment file.
    pub file: String,
    /// The offset of the cut-off part.
    pub offset: u64,
}

/// The report of opening a journal.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JournalRecovery {
    /// The new epoch, under which versions are assigned now.
    pub epoch: Epoch,
    /// Every undamaged unpushed record, in the order of versions.
    pub records: Vec<RecoveredRecord>,
    /// The damage. Objects named here have lost a write; if some damage [hides writes](DamageKind::hides_writes), any object
    /// may have lost one.
    pub damage: Vec<Damage>,
    /// Damage found now, or by an earlier start, hides writes: any object may have lost some. A journal of files keeps a
    /// note of it, the file [`UNNAMED_DAMAGE`](super::UNNAMED_DAMAGE), until an operator removes that.
    pub may_lack_writes: bool,
    /// The place where an unacknowledged write was cut off.
    pub torn: Option<TornTail>,
    /// Number of segments read.
    pub segments: usize,
    /// Number of bytes read.
    pub bytes: u64,
}
