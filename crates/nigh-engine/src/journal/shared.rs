//! The state that the writer thread and its callers share, and the limits that both keep.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use nigh_terms::{Epoch, Sequence, Version};

use super::format::{FIRST_RECORD, HEAD_MAX_BYTES, SECTOR};
use super::live::LiveIndex;
use super::queue::Queue;
use crate::ledger::{LedgerError, PIECE_MAX_BYTES, PieceId, StagedRoom};
use crate::sync::Mutex;

/// The most needed records at a time, whatever their size.
const RECORDS_MAX: usize = 500_000;
/// The bytes of a segment for each needed record: notices of all of them fit into an eighth of a segment.
const BYTES_A_RECORD: u32 = 128;

/// Limits of a journal, computed from its segments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Limits {
    pub(super) segment_bytes: u32,
    pub(super) files_max: u32,
    pub(super) records_max: usize,
    /// The bytes of the longest record, head and body.
    pub(super) record_max_bytes: u32,
}

impl Limits {
    /// The limits of a journal with this number and length of segments.
    pub(super) fn new(segment_bytes: u32, files_max: u32) -> Self {
        Self {
            segment_bytes,
            files_max,
            records_max: RECORDS_MAX.min((segment_bytes / BYTES_A_RECORD) as usize),
            // A record must fit beside the reserve of the smallest segment.
            record_max_bytes: (segment_bytes / 8).min(HEAD_MAX_BYTES + PIECE_MAX_BYTES as u32),
        }
    }

    /// True if a journal with these limits can work.
    pub(super) const fn are_possible(&self) -> bool {
        self.files_max >= 3 && self.segment_bytes >= 4 * FIRST_RECORD && self.segment_bytes.is_multiple_of(SECTOR)
    }
}

/// Counts since the journal was opened.
#[derive(Debug, Default)]
pub(super) struct Counters {
    pub(super) commits: AtomicU64,
    pub(super) syncs: AtomicU64,
    pub(super) files: AtomicU64,
    /// The written bytes, with heads, copies and notices.
    pub(super) bytes: AtomicU64,
    /// Number of reused segments.
    pub(super) trims: AtomicU64,
    /// True from the refusal of a record for want of room until one is taken, or the store has taken some.
    pub(super) full: AtomicBool,
}

/// Tells, when it is dropped, that the writer's thread has ended, also by a panic.
pub(super) struct WriterGuard(pub(super) Arc<JournalState>);

impl Drop for WriterGuard {
    fn drop(&mut self) {
        self.0.writer_ended.store(true, Ordering::Release);
    }
}

pub(super) struct JournalState {
    pub(super) queue: Queue,
    pub(super) live: Mutex<LiveIndex>,
    pub(super) life: Epoch,
    pub(super) limits: Limits,
    pub(super) counters: Counters,
    pub(super) writer_ended: AtomicBool,
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
            writer_ended: AtomicBool::new(false),
            sequence: AtomicU64::new(0),
            failed: OnceLock::new(),
        }
    }

    /// The next sequence. All shards share one counter: a version must only increase within each shard.
    pub(super) fn next_version(&self) -> Version {
        let sequence = Sequence(self.sequence.fetch_add(1, Ordering::Relaxed) + 1);
        Version { epoch: self.life, sequence }
    }

    /// Stops accepting writes.
    pub(super) fn fail(&self, reason: String) {
        // The first reason is the one that counts.
        let _ = self.failed.set(reason);
    }

    /// Fails with the reason why the journal accepts no writes, if there is one.
    pub(super) fn check(&self) -> Result<(), LedgerError> {
        self.failed.get().map_or(Ok(()), |reason| Err(LedgerError::Failed(reason.clone())))
    }

    /// The error of a job that got no answer.
    pub(super) fn failure(&self) -> LedgerError {
        self.check().err().unwrap_or_else(|| LedgerError::Failed("the journal was closed".to_owned()))
    }
}

impl StagedRoom for JournalState {
    fn release(&self, piece: PieceId) {
        self.live.lock().release(piece);
    }
}
