//! What the writer thread and those who ask share, and the limits that both keep.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use nigh_terms::{Epoch, Sequence, Version};

use super::format::{FIRST_RECORD, HEAD_MAX_BYTES, SECTOR};
use super::live::LiveIndex;
use super::queue::Queue;
use crate::ledger::{LedgerError, PIECE_MAX_BYTES, PieceId, StagedRoom};
use crate::sync::Mutex;

/// The most records that are live at a time, whatever their size.
const RECORDS_MAX: usize = 500_000;
/// The bytes of a segment for each record that may be live: notices of all of them fit in an eighth of one.
const BYTES_A_RECORD: u32 = 128;

/// Limits of a journal, in figures of its segments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Limits {
    pub(super) segment_bytes: u32,
    pub(super) files_max: u32,
    pub(super) records_max: usize,
    /// The longest record, head and body.
    pub(super) record_max_bytes: u32,
}

impl Limits {
    /// The limits of a journal with so many segments of so many bytes.
    pub(super) fn new(segment_bytes: u32, files_max: u32) -> Self {
        Self {
            segment_bytes,
            files_max,
            records_max: RECORDS_MAX.min((segment_bytes / BYTES_A_RECORD) as usize),
            // A record must find its place beside the reserve of the smallest segment.
            record_max_bytes: (segment_bytes / 8).min(HEAD_MAX_BYTES + PIECE_MAX_BYTES as u32),
        }
    }

    /// True if a journal of these limits can work at all.
    pub(super) const fn are_possible(&self) -> bool {
        self.files_max >= 3 && self.segment_bytes >= 4 * FIRST_RECORD && self.segment_bytes.is_multiple_of(SECTOR)
    }
}

/// What is counted since the journal was opened.
#[derive(Debug, Default)]
pub(super) struct Counters {
    pub(super) commits: AtomicU64,
    pub(super) syncs: AtomicU64,
    pub(super) files: AtomicU64,
    /// What was written, heads included, copies and notices too.
    pub(super) bytes: AtomicU64,
    /// Segments of which nobody needed anything, so that they were used again.
    pub(super) trims: AtomicU64,
}

pub(super) struct JournalState {
    pub(super) queue: Queue,
    pub(super) live: Mutex<LiveIndex>,
    pub(super) life: Epoch,
    pub(super) limits: Limits,
    pub(super) counters: Counters,
    sequence: AtomicU64,
    failed: OnceLock<String>,
}

impl JournalState {
    pub(super) fn new(live: LiveIndex, life: Epoch, limits: Limits) -> Self {
        Self {
            queue: Queue::new(),
            live: Mutex::new(live),
            life,
            limits,
            counters: Counters::default(),
            sequence: AtomicU64::new(0),
            failed: OnceLock::new(),
        }
    }

    /// The next place in the order. One counter for all shards: a version need only be total and increasing in each.
    pub(super) fn next_version(&self) -> Version {
        let sequence = Sequence(self.sequence.fetch_add(1, Ordering::Relaxed) + 1);
        Version { epoch: self.life, sequence }
    }

    /// The journal takes nothing from now on.
    pub(super) fn fail(&self, reason: String) {
        // The first reason is the one that counts.
        let _ = self.failed.set(reason);
    }

    /// Why the journal takes nothing, if so.
    pub(super) fn check(&self) -> Result<(), LedgerError> {
        self.failed.get().map_or(Ok(()), |reason| Err(LedgerError::Failed(reason.clone())))
    }

    /// Why an answer never came.
    pub(super) fn failure(&self) -> LedgerError {
        self.check().err().unwrap_or_else(|| LedgerError::Failed("the journal was closed".to_owned()))
    }
}

impl StagedRoom for JournalState {
    fn release(&self, piece: PieceId) {
        self.live.lock().release(piece);
    }
}
