//! The only writer thread: takes all waiting jobs, writes and syncs them once, and answers them. While one group waits for
//! the disk the next one gathers.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use bytes::Bytes;
use nigh_terms::{Epoch, Sequence, ShardId, Version};

use super::format::{ContentRef, head_bytes};
use super::live::Place;
use super::queue::{Job, Reply, WakeReason, slots};
use super::room::{NoRoom, Room};
use super::shared::JournalState;
use super::tail::Fault;
use crate::commit_format::{Commit, PieceRef};
use crate::ledger::{AppendResult, LedgerError, PieceId, Record, StagedPiece};
use crate::requests::Requests;

/// The bytes of one batch; the job that exceeds them is the last of the batch.
const BATCH_MAX_BYTES: usize = 4 << 20;
/// The quiet after the last write before an end mark follows it.
pub(super) const END_MARK_DELAY: Duration = Duration::from_millis(250);

/// Why a job fails.
enum JobRefusal {
    Because(LedgerError),
    Fault(Fault),
}

impl From<NoRoom> for JobRefusal {
    fn from(reason: NoRoom) -> Self {
        match reason {
            NoRoom::Full => Self::Because(LedgerError::Full),
            NoRoom::Fault(fault) => Self::Fault(fault),
        }
    }
}

/// A commit that is written but not synced.
struct UnsyncedCommit {
    reply: Reply<AppendResult>,
    appended: AppendResult,
    /// The new commit; none if the request was carried out before.
    added: Option<(Commit, Place)>,
}

/// The jobs that wait for the end of a batch.
#[derive(Default)]
struct Batch {
    commits: Vec<UnsyncedCommit>,
    settles: Vec<Reply<()>>,
    /// True if these jobs are answered by a sync that includes all notices taken before them.
    settled: bool,
}

/// Answers a caller. If the caller has gone, nobody needs the answer, and a piece is dropped.
fn answer<T>(reply: Reply<T>, with: Result<T, LedgerError>) {
    drop(reply.send(with));
}

pub(super) struct Writer {
    shared: Arc<JournalState>,
    room: Room,
    requests: Requests,
    /// The number of records that this batch may add to the needed ones.
    free_records: usize,
    end_mark_delay: Duration,
}

impl Writer {
    pub(super) fn new(room: Room, requests: Requests, end_mark_delay: Duration) -> Self {
        Self { shared: Arc::clone(&room.shared), room, requests, free_records: 0, end_mark_delay }
    }

    /// Serves the queue until it is closed.
    pub(super) fn run(mut self) {
        let mut backlog = VecDeque::new();
        let mut end_mark = None;
        loop {
            let woken = self.shared.queue.take(&mut backlog, end_mark);
            let done = match woken {
                WakeReason::Jobs => self.batch(&mut backlog),
                WakeReason::Notices => {
                    // The store has taken something: the next write finds out whether that is enough.
                    self.has_room(true);
                    self.tidy()
                }
                WakeReason::EndMark => self.tidy().and_then(|()| self.end()),
                WakeReason::Closed => {
                    if let Err(Fault(reason)) = self.tidy().and_then(|()| self.end()) {
                        tracing::warn!(reason, "stored writes may be pushed again at the next start");
                    }
                    return;
                }
            };
            end_mark = match woken {
                _ if self.room.tail.is_covered() => None,
                // The next write covers this one; only if none comes soon an end mark does.
                WakeReason::Jobs => Some(Instant::now() + self.end_mark_delay),
                WakeReason::Notices => end_mark.or_else(|| Some(Instant::now() + self.end_mark_delay)),
                // It found no room: the next write is to come first.
                WakeReason::EndMark | WakeReason::Closed => None,
            };
            if let Err(Fault(reason)) = done {
                tracing::error!(reason, "the journal accepts no more writes");
                self.shared.fail(reason);
                return self.refuse_all(backlog);
            }
        }
    }

    fn refuse_all(self, mut backlog: VecDeque<Job>) {
        loop {
            for job in backlog.drain(..) {
                let error = self.shared.failure();
                match job {
                    Job::Stage { reply, .. } => answer(reply, Err(error)),
                    Job::Append { reply, .. } => answer(reply, Err(error)),
                    Job::Settle { reply } => answer(reply, Err(error)),
                }
            }
            if self.shared.queue.take(&mut backlog, None) == WakeReason::Closed {
                return;
            }
        }
    }

    /// Writes notices of the stored writes, if there is room beside the reserve.
    fn tidy(&mut self) -> Result<(), Fault> {
        match self.room.notices(false) {
            Err(NoRoom::Fault(fault)) => return Err(fault),
            Err(NoRoom::Full) | Ok(()) => {}
        }
        self.room.sync()?;
        self.room.prepare_ahead()
    }

    /// Writes an end mark, unless a record follows the last write already.
    fn end(&mut self) -> Result<(), Fault> {
        if self.room.tail.is_covered() { Ok(()) } else { self.room.end_mark() }
    }

    /// Writes and answers the first jobs of `backlog`.
    fn batch(&mut self, backlog: &mut VecDeque<Job>) -> Result<(), Fault> {
        let mut batch = Batch::default();
        let live = self.shared.live.lock().records();
        self.free_records = self.shared.limits.records_max.saturating_sub(live);
        let outcome = self.gather(backlog, &mut batch).and_then(|()| self.finish(&mut batch));
        let failed = outcome.as_ref().err().map(|Fault(reason)| LedgerError::Failed(reason.clone()));
        for UnsyncedCommit { reply, appended, .. } in batch.commits {
            answer(reply, failed.clone().map_or(Ok(appended), Err));
        }
        for reply in batch.settles {
            let unsettled = (!batch.settled).then_some(LedgerError::Full);
            answer(reply, failed.clone().or(unsettled).map_or(Ok(()), Err));
        }
        outcome?;
        self.room.prepare_ahead()
    }

    fn gather(&mut self, backlog: &mut VecDeque<Job>, batch: &mut Batch) -> Result<(), Fault> {
        let (mut taken, mut freed) = (0, 0);
        let mut outcome = Ok(());
        while outcome.is_ok()
            && taken < BATCH_MAX_BYTES
            && let Some(job) = backlog.pop_front()
        {
            let bytes = job.bytes();
            taken += bytes;
            freed += slots(bytes);
            outcome = self.take(job, batch);
        }
        self.shared.queue.free(freed);
        outcome
    }

    fn take(&mut self, job: Job, batch: &mut Batch) -> Result<(), Fault> {
        match job {
            Job::Stage { piece, crc, reply } => match self.stage(piece, crc) {
                // The piece has its place. The sync of its commit makes sure that it is written, so the caller can
                // bring the next piece, or the commit, at once.
                Ok(staged) => {
                    self.has_room(true);
                    answer(reply, Ok(staged));
                }
                Err(NoRoom::Full) => {
                    self.has_room(false);
                    answer(reply, Err(LedgerError::Full));
                }
                Err(NoRoom::Fault(fault)) => {
                    answer(reply, Err(LedgerError::Failed(fault.0.clone())));
                    return Err(fault);
                }
            },
            Job::Append { shard, record, inline, crc, pieces, reply } => {
                match self.append(shard, record, &inline, crc, pieces, batch.commits.len()) {
                    Ok((appended, added)) => {
                        self.has_room(true);
                        batch.commits.push(UnsyncedCommit { reply, appended, added });
                    }
                    Err(JobRefusal::Because(error)) => {
                        if matches!(error, LedgerError::Full) {
                            self.has_room(false);
                        }
                        answer(reply, Err(error));
                    }
                    Err(JobRefusal::Fault(fault)) => {
                        answer(reply, Err(LedgerError::Failed(fault.0.clone())));
                        return Err(fault);
                    }
                }
            }
            Job::Settle { reply } => batch.settles.push(reply),
        }
        Ok(())
    }

    /// Records whether the last write found room.
    fn has_room(&self, has_room: bool) {
        self.shared.counters.full.store(!has_room, Ordering::Relaxed);
    }

    /// Writes the gathered records; syncs and indexes them if a job waits for the disk.
    fn finish(&mut self, batch: &mut Batch) -> Result<(), Fault> {
        if batch.commits.is_empty() && batch.settles.is_empty() {
            return self.room.tail.write_out();
        }
        // Notices that find no room now are written later.
        match self.room.notices(false) {
            Err(NoRoom::Fault(fault)) => return Err(fault),
            Err(NoRoom::Full) => {}
            Ok(()) => batch.settled = true,
        }
        self.room.tail.write_out()?;
        self.room.sync()?;
        let mut live = self.shared.live.lock();
        for (commit, place) in batch.commits.iter_mut().filter_map(|written| written.added.take()) {
            let Commit { shard, version, record, pieces } = commit;
            live.add_record(version, (shard, record.namespace, record.bucket, record.key), place, pieces);
            self.shared.counters.commits.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }

    fn stage(&mut self, piece: Bytes, crc: u32) -> Result<StagedPiece, NoRoom> {
        let bytes = piece.len() as u32;
        self.room.make(head_bytes(ContentRef::Piece(PieceId(0))) + bytes, false)?;
        // The first place of a piece is its id: no other piece is ever there.
        let id = PieceId(self.room.tail.next().0);
        let place = self.room.tail.append(ContentRef::Piece(id), &piece, crc);
        self.shared.live.lock().add_piece(id, place);
        Ok(StagedPiece::new(id, bytes, crc, Arc::clone(&self.shared) as _))
    }

    fn append(
        &mut self,
        shard: ShardId,
        record: Record,
        inline: &Bytes,
        crc: u32,
        staged: Vec<StagedPiece>,
        waiting: usize,
    ) -> Result<(AppendResult, Option<(Commit, Place)>), JobRefusal> {
        let key = self.requests.key(shard, &record);
        if let Some(version) = self.requests.get(&key) {
            return Ok((AppendResult { version, repeated: true }, None));
        }
        let as_ref = |piece: &StagedPiece| PieceRef { id: piece.piece(), bytes: piece.bytes(), crc: piece.crc() };
        let pieces: Vec<PieceRef> = staged.iter().map(as_ref).collect();
        if waiting >= self.free_records {
            return Err(JobRefusal::Because(LedgerError::Full));
        }
        if !pieces.is_empty() {
            let live = self.shared.live.lock();
            if let Some(unknown) = pieces.iter().find(|piece| !live.is_unnamed(piece)) {
                return Err(JobRefusal::Because(LedgerError::UnknownPiece(unknown.id.0)));
            }
        }
        let no_version = Version { epoch: Epoch(0), sequence: Sequence(0) };
        let mut commit = Commit { shard, version: no_version, record, pieces };
        self.room.make(head_bytes(ContentRef::Commit(&commit)) + inline.len() as u32, false)?;
        // Assigned only now, so that versions have the order of the records.
        let version = self.shared.next_version();
        commit.version = version;
        let place = self.room.tail.append(ContentRef::Commit(&commit), inline, crc);
        if !commit.pieces.is_empty() {
            self.shared.live.lock().name_pieces(&commit.pieces);
        }
        staged.into_iter().for_each(StagedPiece::named);
        self.requests.insert(key, version);
        Ok((AppendResult { version, repeated: false }, Some((commit, place))))
    }
}
