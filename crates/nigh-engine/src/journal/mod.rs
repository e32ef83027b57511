//! The journal: the ledger of one machine. It has preallocated segment files and one writer thread, which makes all waiting
//! writes durable by one `fdatasync` before it acknowledges them.
//!
//! docs/design/journal.md has the format, the commit and the proof of recovery. `format`, `scan`, `recovery`, `live` and
//! `requests` are pure; only `disk` touches files.

mod disk;
mod format;
mod found;
mod inspect;
mod live;
mod newest;
mod open;
mod prepare;
mod queue;
mod reading;
mod recovery;
mod report;
mod room;
mod scan;
mod shared;
mod tail;
#[cfg(test)]
mod tests;
mod writer;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use async_trait::async_trait;
use bytes::Bytes;
use metrics::{Histogram, histogram};
use nigh_terms::{ByteSize, Epoch, ShardId, Version};
use thiserror::Error;
use tokio::sync::oneshot;

use self::disk::{DiskFolder, Folder};
use self::format::{HEAD_BYTES, commit_bytes};
use self::live::Place;
use self::open::JournalOpenOptions;
use self::queue::Job;
use self::shared::{JournalState, Limits, WriterGuard};
use crate::commit_format::crc32c;
use crate::ledger::{
    ABOUT_MAX_BYTES, AppendResult, Body, INLINE_MAX_BYTES, Ledger, LedgerError, PIECE_MAX_BYTES, PIECES_MAX, Record,
    StagedPiece, at_most,
};
use crate::sync::{JoinHandle, spawn_thread};

pub use self::inspect::{InspectedRecord, JournalInspection, fuzz, inspect};
pub use self::open::UNNAMED_DAMAGE;
pub use self::report::{Damage, DamageKind, JournalRecovery, RecoveredRecord, TornTail};

/// The least bytes of a segment: the longest record, its copies and its notices fit in it.
pub const SEGMENT_MIN: ByteSize = ByteSize::mib(16);
/// The most bytes of a segment.
pub const SEGMENT_MAX: ByteSize = ByteSize::gib(1);

/// What to do if acknowledged bytes are damaged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnDamage {
    /// Do not open the journal; change nothing.
    Refuse,
    /// Keep copies of the damaged files, and open with the undamaged records.
    KeepAside,
}

/// The settings of a journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JournalSettings {
    /// The most bytes of all segment files, in whole segments; at least three.
    pub limit: ByteSize,
    /// The bytes of a segment file.
    pub segment: ByteSize,
    /// The least epoch to take: higher than any under which versions were assigned elsewhere.
    pub epoch_min: Epoch,
    /// What to do if acknowledged bytes are damaged.
    pub on_damage: OnDamage,
}

impl Default for JournalSettings {
    fn default() -> Self {
        Self { limit: ByteSize::gib(1), segment: ByteSize::mib(64), epoch_min: Epoch(1), on_damage: OnDamage::Refuse }
    }
}

/// Why a journal does not open.
#[derive(Debug, Error)]
pub enum JournalError {
    /// Another process has the journal open.
    #[error("the journal {0} is in use by another process; stop that node first")]
    Held(PathBuf),
    /// Written by a newer Nigh.
    #[error(
        "the journal's {file} has format {found}, this build reads up to {known}: start the Nigh that wrote it, or a newer one"
    )]
    Newer {
        /// The name of the file.
        file: String,
        /// The file's format version.
        found: u32,
        /// The newest format version that this build knows.
        known: u32,
    },
    /// Acknowledged bytes are damaged.
    #[error("the journal is damaged: {}; `nigh journal verify` lists all", first_of(.0))]
    Damaged(Vec<Damage>),
    /// There are too many damaged files already.
    #[error("{kept} damaged files of the journal are kept aside already; move those named damaged-* to another place")]
    TooMuchDamage {
        /// The number of damaged files that are kept.
        kept: usize,
    },
    /// The settings cannot work.
    #[error(
        "a journal of {limit} in segments of {segment} is not possible: a segment has {SEGMENT_MIN} to {SEGMENT_MAX}, in whole sectors, and a journal three of them at least"
    )]
    Settings {
        /// The bytes of all files.
        limit: ByteSize,
        /// The bytes of one file.
        segment: ByteSize,
    },
    /// A system call failed.
    #[error("journal: {what} {file}: {source}")]
    Io {
        /// What was tried.
        what: &'static str,
        /// The name of the file.
        file: String,
        /// The system's reason.
        #[source]
        source: io::Error,
    },
}

fn first_of(damage: &[Damage]) -> String {
    let more = damage.len().saturating_sub(1);
    let first = damage.first().map(ToString::to_string).unwrap_or_default();
    if more == 0 { first } else { format!("{first}, and {more} more") }
}

/// The content of a journal, and counts since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct JournalUsage {
    /// Number of records that the store is not known to have.
    pub records: u64,
    /// The bytes of their bodies.
    pub body_bytes: u64,
    /// Number of segment files.
    pub files: u64,
    /// The most segment files.
    pub files_max: u64,
    /// The bytes of a new segment file.
    pub segment_bytes: u64,
    /// Number of commits since it was opened.
    pub commits: u64,
    /// Number of disk syncs for these commits.
    pub syncs: u64,
    /// Bytes written since it was opened, heads included.
    pub written_bytes: u64,
    /// Number of segments with records that the store is not known to have.
    pub segments: u64,
    /// Number of segments reused since it was opened, because the store had all of their records.
    pub trims: u64,
    /// True if the last record found no room, and the store has taken none since.
    pub full: bool,
}

/// An open journal. Dropping it writes the waiting jobs and releases its folder.
pub struct Journal {
    shared: Arc<JournalState>,
    /// The time from the request for a commit to its answer.
    commit_seconds: Histogram,
    writer: Option<JoinHandle<()>>,
}

impl std::fmt::Debug for Journal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Journal").field("epoch", &self.shared.life).finish_non_exhaustive()
    }
}

impl Journal {
    /// Opens the journal in `folder`, and creates it if there is none. Blocks: it reads all records.
    ///
    /// # Errors
    /// If another process has it open, its format is newer, the settings are impossible, acknowledged bytes are damaged
    /// and `OnDamage::Refuse` is set, or the system refuses. Nothing is changed then, except that damaged files may
    /// have been moved aside.
    pub fn open(folder: &Path, settings: &JournalSettings) -> Result<(Self, JournalRecovery), JournalError> {
        let JournalSettings { limit, segment, epoch_min, on_damage } = *settings;
        let files_max = u32::try_from(limit.bytes() / segment.bytes().max(1)).unwrap_or(u32::MAX);
        let bytes = u32::try_from(segment.bytes()).unwrap_or(0);
        let limits = Limits::new(bytes, files_max);
        if !(SEGMENT_MIN..=SEGMENT_MAX).contains(&segment) || !limits.are_possible() {
            return Err(JournalError::Settings { limit, segment });
        }
        let held = DiskFolder::hold(folder, true).map_err(|source| JournalError::Io {
            what: "opening",
            file: folder.display().to_string(),
            source,
        })?;
        let held = held.ok_or_else(|| JournalError::Held(folder.to_owned()))?;
        let end_mark_delay = writer::END_MARK_DELAY;
        let opening = JournalOpenOptions { limits, epoch_min, on_damage, salt: rand::random, end_mark_delay };
        Self::open_in(Arc::new(held), &opening)
    }

    fn open_in(folder: Arc<dyn Folder>, opening: &JournalOpenOptions) -> Result<(Self, JournalRecovery), JournalError> {
        let (writer, shared, recovered) = open::open(folder, opening)?;
        let guard = WriterGuard(Arc::clone(&shared));
        let thread = spawn_thread("journal", move || {
            let _guard = guard;
            writer.run();
        });
        let thread =
            thread.map_err(|source| JournalError::Io { what: "starting", file: "a thread".to_owned(), source })?;
        let commit_seconds = histogram!("nigh_journal_commit_seconds");
        Ok((Self { shared, commit_seconds, writer: Some(thread) }, recovered))
    }

    /// The epoch of the versions that it assigns.
    #[must_use]
    pub fn life(&self) -> Epoch {
        self.shared.life
    }

    /// The content of the journal, and its counts.
    #[must_use]
    pub fn usage(&self) -> JournalUsage {
        let JournalState { live, limits, counters, .. } = &*self.shared;
        let (records, body_bytes, segments) = {
            let live = live.lock();
            (live.records() as u64, live.body_bytes(), live.segments.len() as u64)
        };
        JournalUsage {
            records,
            body_bytes,
            files: counters.files.load(Ordering::Relaxed),
            files_max: u64::from(limits.files_max),
            segment_bytes: u64::from(limits.segment_bytes),
            commits: counters.commits.load(Ordering::Relaxed),
            syncs: counters.syncs.load(Ordering::Relaxed),
            written_bytes: counters.bytes.load(Ordering::Relaxed),
            segments,
            trims: counters.trims.load(Ordering::Relaxed),
            full: counters.full.load(Ordering::Relaxed),
        }
    }

    /// True while the writer's thread works. One that has ended answers no write, and only a restart mends that.
    #[must_use]
    pub fn is_alive(&self) -> bool {
        !self.shared.writer_ended.load(Ordering::Acquire)
    }

    async fn ask<T>(&self, job: impl FnOnce(queue::Reply<T>) -> Job) -> Result<T, LedgerError> {
        self.shared.check()?;
        let (reply, answer) = oneshot::channel();
        self.shared.queue.push(job(reply)).await;
        answer.await.unwrap_or_else(|_| Err(self.shared.failure()))
    }

    /// Refuses a record of `bytes` bytes if it does not fit a segment.
    fn check_length(&self, what: &'static str, bytes: u64) -> Result<(), LedgerError> {
        let limit = u64::from(self.shared.limits.record_max_bytes);
        if bytes > limit { Err(LedgerError::TooLarge { what, bytes, limit }) } else { Ok(()) }
    }
}

#[async_trait]
impl Ledger for Journal {
    fn epoch(&self, _shard: ShardId) -> Epoch {
        self.shared.life
    }

    fn check(&self, _shard: ShardId) -> Result<(), LedgerError> {
        self.shared.check()
    }

    fn place(&self, _shard: ShardId) -> Version {
        self.shared.next_version()
    }

    async fn stage(&self, _shard: ShardId, piece: Bytes) -> Result<StagedPiece, LedgerError> {
        at_most("a piece", piece.len(), PIECE_MAX_BYTES)?;
        self.check_length("a piece", u64::from(HEAD_BYTES) + 8 + piece.len() as u64)?;
        let crc = crc32c(&piece);
        self.ask(|reply| Job::Stage { piece, crc, reply }).await
    }

    async fn append(&self, shard: ShardId, record: Record, body: Body) -> Result<AppendResult, LedgerError> {
        let (inline, pieces) = match body {
            Body::Inline(inline) => (inline, Vec::new()),
            Body::Staged(pieces) => (Bytes::new(), pieces),
        };
        at_most("an inline body", inline.len(), INLINE_MAX_BYTES)?;
        at_most("a list of pieces", 16 * pieces.len(), 16 * PIECES_MAX)?;
        at_most("what is told about an object", record.change.about().len(), ABOUT_MAX_BYTES)?;
        self.check_length("a record", u64::from(commit_bytes(&record, pieces.len())) + inline.len() as u64)?;
        let crc = crc32c(&inline);
        let began = Instant::now();
        let appended = self.ask(|reply| Job::Append { shard, record, inline, crc, pieces, reply }).await?;
        self.commit_seconds.record(began.elapsed().as_secs_f64());
        Ok(appended)
    }

    async fn stored(&self, _shard: ShardId, version: Version) -> Result<(), LedgerError> {
        self.shared.check()?;
        let noticed = {
            let mut live = self.shared.live.lock();
            let done = live.stored(version);
            live.notices.extend(&done);
            !done.is_empty()
        };
        if noticed {
            self.shared.queue.notice();
        }
        Ok(())
    }

    async fn settle(&self, _shard: ShardId) -> Result<(), LedgerError> {
        self.ask(|reply| Job::Settle { reply }).await
    }

    async fn read(&self, _shard: ShardId, version: Version, offset: u64) -> Result<Bytes, LedgerError> {
        let mut tried = None;
        loop {
            let Some((place, skip, name, file)) = self.locate(version, offset)? else { return Ok(Bytes::new()) };
            if tried == Some(place) {
                // The record is still there, and still damaged.
                let offset = u64::from(place.position.offset());
                return Err(LedgerError::Damaged { version, file: name, offset });
            }
            tried = Some(place);
            let read = tokio::task::spawn_blocking(move || reading::body(&*file, &place)).await;
            match read {
                Ok(Ok(body)) => return Ok(body.slice(skip.min(body.len())..)),
                Ok(Err(error)) => tracing::warn!(%version, %error, name, "a record of the journal cannot be read"),
                Err(join) => return Err(LedgerError::Failed(join.to_string())),
            }
        }
    }
}

/// A record's place, how much of its body is skipped, and its file.
type RecordLocation = (Place, usize, String, Arc<dyn disk::SegmentFile>);

impl Journal {
    /// The record and file at `offset` of a body; none at the body's end.
    fn locate(&self, version: Version, offset: u64) -> Result<Option<RecordLocation>, LedgerError> {
        let live = self.shared.live.lock();
        let record = live.record(version).ok_or(LedgerError::Unknown(version))?;
        let mut start = 0;
        let mut found = None;
        if record.pieces.is_empty() && offset < u64::from(record.place.body.bytes) {
            found = Some((record.place, offset));
        }
        for piece in &record.pieces {
            let end = start + u64::from(piece.bytes);
            if (start..end).contains(&offset) {
                found = live.piece(piece.id).map(|place| (place, offset - start));
            }
            start = end;
        }
        let Some((place, skip)) = found else { return Ok(None) };
        let segment = live.segment(place.position.generation()).ok_or(LedgerError::Unknown(version))?;
        Ok(Some((place, skip as usize, segment.name.clone(), Arc::clone(&segment.file))))
    }
}

impl Drop for Journal {
    fn drop(&mut self) {
        self.shared.queue.close();
        if let Some(writer) = self.writer.take()
            && writer.join().is_err()
        {
            tracing::error!("the thread that writes the journal has panicked");
        }
    }
}
