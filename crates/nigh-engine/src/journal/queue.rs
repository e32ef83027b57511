//! What waits for the writer thread. Bounded by jobs and by bytes: who finds it full waits, without a thread.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use bytes::Bytes;
use nigh_terms::ShardId;
use tokio::sync::{Semaphore, oneshot};

use crate::ledger::{AppendResult, LedgerError, Record, StagedPiece};
use crate::sync::{Condvar, Mutex};

/// Slots of the queue; a job takes one, and one more for each `SLOT_BYTES` of its body.
const SLOTS: usize = 4096;
const SLOT_BYTES: usize = 16 << 10;
/// How long a notice of something stored waits for a commit to go with.
const NOTICE_DELAY: Duration = Duration::from_millis(250);

pub(super) type Reply<T> = oneshot::Sender<Result<T, LedgerError>>;

/// What is asked of the writer.
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
    /// The bytes of its body.
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
    /// Notices have waited long enough.
    Notices,
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

/// The slots that a job with a body of so many bytes takes.
pub(super) fn slots(bytes: usize) -> usize {
    (1 + bytes / SLOT_BYTES).min(SLOTS)
}

impl Queue {
    pub(super) fn new() -> Self {
        Self { state: Mutex::default(), wake: Condvar::new(), slots: Semaphore::new(SLOTS) }
    }

    /// Waits for room, and puts a job there. The job is gone if the queue is closed, and its caller hears of it.
    pub(super) async fn push(&self, job: Job) {
        let Ok(permit) = self.slots.acquire_many(slots(job.bytes()) as u32).await else { return };
        permit.forget();
        let mut state = self.state.lock();
        if !state.closed {
            state.jobs.push_back(job);
            self.wake.notify_one();
        }
    }

    /// There are notices to be written some time.
    pub(super) fn notice(&self) {
        let mut state = self.state.lock();
        if state.notices_since.is_none() {
            state.notices_since = Some(Instant::now());
            self.wake.notify_one();
        }
    }

    /// Waits until there is something to do, unless `backlog` has it, and moves all jobs there.
    pub(super) fn take(&self, backlog: &mut VecDeque<Job>) -> WakeReason {
        let mut state = self.state.lock();
        loop {
            backlog.append(&mut state.jobs);
            if !backlog.is_empty() {
                return WakeReason::Jobs;
            }
            if state.closed {
                return WakeReason::Closed;
            }
            match state.notices_since {
                None => self.wake.wait(&mut state),
                Some(since) => {
                    if self.wake.wait_until(&mut state, since + NOTICE_DELAY).timed_out() {
                        state.notices_since = None;
                        return WakeReason::Notices;
                    }
                }
            }
        }
    }

    /// Jobs are done: their slots are free.
    pub(super) fn free(&self, slots: usize) {
        self.slots.add_permits(slots);
    }

    /// Lets nothing more in; what is there is still done.
    pub(super) fn close(&self) {
        self.state.lock().closed = true;
        self.slots.close();
        self.wake.notify_all();
    }
}
