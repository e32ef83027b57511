//! What opening or inspecting a journal finds, in words that outlive the files.

use std::fmt;

use nigh_terms::{Epoch, ShardId, Version};

use crate::ledger::Record;

/// A record that the store is not known to hold. Its body stays in the journal: [`read`](crate::Ledger::read) gives it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecoveredRecord {
    /// Its shard.
    pub shard: ShardId,
    /// Its place in the order.
    pub version: Version,
    /// The write.
    pub record: Record,
    /// The length of its body, bytes.
    pub body_bytes: u64,
}

/// What is not as it was written, although it was durable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DamageKind {
    /// A write whose head is whole and whose body, or a piece of it, is not. What an older record says of the same
    /// object is not the newest.
    Record {
        /// The write.
        record: Box<RecoveredRecord>,
        /// True if the store is known to hold it: nothing is lost.
        stored: bool,
    },
    /// Records whose heads are not whole: which ones is not known. They may have been writes of any object, or have
    /// said that others are stored.
    Unknown,
    /// A piece that no write names.
    Piece,
    /// One of the two copies of a segment's header; the other serves.
    HeaderCopy,
    /// Both copies: all records of the segment are unknown.
    Header,
    /// The file is shorter than it was.
    Truncated,
    /// Segments are not there.
    Missing,
    /// A second file of the same generation, or one that had been given up: not looked into.
    Stray,
}

/// Damage, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// The segment file.
    pub file: String,
    /// Where in it the damage begins.
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
    /// Where what is cut off begins.
    pub offset: u64,
}

/// What opening finds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JournalRecovery {
    /// The epoch taken; versions given out now are of it.
    pub epoch: Epoch,
    /// Every whole record not known to be stored, in the order of versions.
    pub records: Vec<RecoveredRecord>,
    /// What is damaged. Objects named here have lost a write; with [`DamageKind::Unknown`], [`DamageKind::Header`],
    /// [`DamageKind::Missing`] and [`DamageKind::Truncated`] any object may have, and records given as not stored may
    /// be older than what the store has.
    pub damage: Vec<Damage>,
    /// Where the journal was cut off, if a write was under way; it had not been acknowledged.
    pub torn: Option<TornTail>,
    /// Segments read.
    pub segments: usize,
    /// Bytes read.
    pub bytes: u64,
}
