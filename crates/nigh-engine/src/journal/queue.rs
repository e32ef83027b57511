//! The queue of the writer thread, limited by jobs and by bytes. Callers wait asynchronously while it is full.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use bytes::Bytes;
use nigh_terms::ShardId;
use tokio::sync::{Semaphore, oneshot};

use crate::ledger::{AppendResult, LedgerError, Record, StagedPiece};
use crate::sync::{Condvar, Mutex};

/// Slots of the queue: a job takes one, and another for each `SLOT_BYTES` of its body.
const SLOTS: usize = 4096;
const SLOT_BYTES: usize = 16 << 10;
/// How long a notice of a stored write waits to be written with a commit.
const NOTICE_DELAY: Duration = Duration::from_millis(250);

pub(super) type Reply<T> = oneshot::Sender<Result<T, LedgerError>>;

/// A job of the writer.
pub(super) enum Job {
    Stage {
        piece: Bytes,
        crc: u32,
        reply: Reply<StagedPiece>,
    },
    Append {
        shard: ShardId,
        record: Record,
        inline: Bytes,
        crc: u32,
        pieces: Vec<StagedPiece>,
        reply: Reply<AppendResult>,
    },
    Settle {
        reply: Reply<()>,
    },
}

impl Job {
    /// The bytes of the job's body.
    pub(super) fn bytes(&self) -> usize {
        match self {
            Self::Stage { piece, .. } => piece.len(),
            Self::Append { inline, .. } => inline.len(),
            Self::Settle { .. } => 0,
        }
    }
}

/// Why the writer wakes.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum WakeReason {
    Jobs,
    /// The notices have waited long enough.
    Notices,
    /// No job has come until the end mark was due.
    EndMark,
    Closed,
}

#[derive(Default)]
struct State {
    jobs: VecDeque<Job>,
    notices_since: Option<Instant>,
    closed: bool,
}

pub(super) struct Queue {
    state: Mutex<State>,
    wake: Condvar,
    slots: Semaphore,
}

/// The slots of a job with a body of this length.
pub(super) fn slots(bytes: usize) -> usize {
    (1 + bytes / SLOT_BYTES).min(SLOTS)
}

impl Queue {
    pub(super) fn new() -> Self {
        Self { state: Mutex::default(), wake: Condvar::new(), slots: Semaphore::new(SLOTS) }
    }

    /// Waits for room and adds a job. If the queue is closed the job is dropped, which its caller notices.
    pub(super) async fn push(&self, job: Job) {
        let Ok(permit) = self.slots.acquire_many(slots(job.bytes()) as u32).await else { return };
        permit.forget();
        let mut state = self.state.lock();
        if !state.closed {
            state.jobs.push_back(job);
            self.wake.notify_one();
        }
    }

    /// Tells that notices wait to be written.
    pub(super) fn notice(&self) {
        let mut state = self.state.lock();
        if state.notices_since.is_none() {
            state.notices_since = Some(Instant::now());
            self.wake.notify_one();
        }
    }

    /// Waits for jobs, unless `backlog` has some, and moves all jobs to `backlog`. If none comes, an end mark is due at
    /// `end_mark`.
    pub(super) fn take(&self, backlog: &mut VecDeque<Job>, end_mark: Option<Instant>) -> WakeReason {
        let mut state = self.state.lock();
        loop {
            backlog.append(&mut state.jobs);
            if !backlog.is_empty() {
                return WakeReason::Jobs;
            }
            if state.closed {
                return WakeReason::Closed;
            }
            let notices = state.notices_since.map(|since| since + NOTICE_DELAY);
            match notices.into_iter().chain(end_mark).min() {
                None => self.wake.wait(&mut state),
                Some(due) => {
                    if self.wake.wait_until(&mut state, due).timed_out() {
                        if notices != Some(due) {
                            return WakeReason::EndMark;
                        }
                        state.notices_since = None;
                        return WakeReason::Notices;
                    }
                }
            }
        }
    }

    /// Frees the slots of finished jobs.
    pub(super) fn free(&self, slots: usize) {
        self.slots.add_permits(slots);
    }

    /// Rejects new jobs; the queued ones are still done.
    pub(super) fn close(&self) {
        self.state.lock().closed = true;
        self.slots.close();
        self.wake.notify_all();
    }
}
