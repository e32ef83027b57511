//! Inspects a journal that no process has open, and changes nothing.

use std::io;
use std::path::Path;

use nigh_terms::Epoch;

use super::JournalError;
use super::disk::{DiskFolder, Folder};
use super::format::SegmentHeader;
use super::found::{file_name, read};
use super::recovery::{KeptCommit, SegmentFound, recover};
use super::report::{Damage, RecoveredRecord, TornTail};
use super::scan::scan;

/// A record of a journal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InspectedRecord {
    /// The record, as recovery would return it.
    pub record: RecoveredRecord,
    /// True if the store is known to have it.
    pub stored: bool,
}

/// The content of a journal.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JournalInspection {
    /// The highest epoch in it.
    pub epoch: Epoch,
    /// The journal's undamaged records, in the order of versions.
    pub records: Vec<InspectedRecord>,
    /// What is damaged.
    pub damage: Vec<Damage>,
    /// The place where a crash cut off a write.
    pub torn: Option<TornTail>,
    /// Number of segments read.
    pub segments: usize,
    /// Number of bytes read.
    pub bytes: u64,
}

/// Inspects the journal in `folder`; a missing journal is empty.
///
/// # Errors
/// If a process has the journal open, its format is newer, or it cannot be read.
pub fn inspect(folder: &Path) -> Result<JournalInspection, JournalError> {
    let held = match DiskFolder::hold(folder, false) {
        Ok(held) => held.ok_or_else(|| JournalError::Held(folder.to_owned()))?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(JournalInspection::default()),
        Err(source) => {
            return Err(JournalError::Io { what: "opening", file: folder.display().to_string(), source });
        }
    };
    inspect_in(&held)
}

/// Inspects the journal in any kind of folder.
pub(super) fn inspect_in(folder: &dyn Folder) -> Result<JournalInspection, JournalError> {
    let mut found = read(folder, false)?;
    let mut inspected = weigh(&mut found.segments, found.newest.generation);
    inspected.damage.splice(0..0, found.damage);
    inspected.segments = found.segments.len();
    inspected.bytes = found.bytes;
    Ok(inspected)
}

fn weigh(segments: &mut [SegmentFound], newest: u64) -> JournalInspection {
    let outcome = recover(segments, newest);
    let records = outcome.commits.into_values().map(|KeptCommit { commit, stored, body_bytes, .. }| {
        let record =
            RecoveredRecord { shard: commit.shard, version: commit.version, record: commit.record, body_bytes };
        InspectedRecord { record, stored }
    });
    let (epoch, damage, torn) = (outcome.epoch, outcome.damage, outcome.torn);
    JournalInspection { epoch, records: records.collect(), damage, torn, ..JournalInspection::default() }
}

/// The result of recovery for segment files with these bytes; for the fuzz target. Files without a header, and all but
/// one of a generation, are left out, as in `found`. None if nothing is left.
#[doc(hidden)]
#[must_use]
pub fn fuzz(files: &[&[u8]]) -> Option<JournalInspection> {
    let with_header = |(number, bytes): (usize, &&[u8])| {
        let header = SegmentHeader::decode(bytes).ok()?;
        Some(SegmentFound { file: file_name(number as u32), header, scan: scan(bytes, &header) })
    };
    let mut segments: Vec<SegmentFound> = files.iter().enumerate().filter_map(with_header).collect();
    segments.sort_by_key(|segment| segment.header.generation);
    segments.dedup_by_key(|segment| segment.header.generation);
    (!segments.is_empty()).then(|| weigh(&mut segments, 0))
}
