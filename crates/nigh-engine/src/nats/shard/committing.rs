//! Commits writes: all waiting ones in one message, and the next message when the outcome of that one is known.

use std::sync::{Arc, Weak};

use bytes::Bytes;
use nigh_terms::Version;
use tokio::sync::{OwnedSemaphorePermit, mpsc, oneshot, watch};

use super::super::envelope::{Content, HEAD_BYTES, Record, STORED_MAX};
use super::super::stream_index::object_of;
use super::{Shard, State};
use crate::commit_format::{Commit, content_bytes};
use crate::ledger::{self, AppendResult, LedgerError};
use crate::requests::RequestKey;

/// The most bytes of a message of several writes.
const GROUP_MAX_BYTES: usize = 512 << 10;

/// Something to commit.
pub(super) enum Job {
    Append(AppendJob),
    /// Copy a stored record to the end of the stream.
    Copy(CopyJob),
    /// Record which writes are stored.
    Settle(oneshot::Sender<Result<(), LedgerError>>),
}

/// A write with its version and its room.
pub(super) struct AppendJob {
    pub(super) commit: Commit,
    pub(super) inline: Bytes,
    pub(super) key: RequestKey,
    /// The room that is reserved for the write, in bytes.
    pub(super) room: u64,
    pub(super) done: watch::Sender<Option<Result<AppendResult, LedgerError>>>,
    pub(super) _turn: OwnedSemaphorePermit,
}

/// A copy of a write.
pub(super) struct CopyJob {
    pub(super) commit: Commit,
    pub(super) inline: Bytes,
    pub(super) done: oneshot::Sender<Result<(), LedgerError>>,
}

/// The jobs of one message.
#[derive(Default)]
struct Group {
    appends: Vec<AppendJob>,
    copies: Vec<CopyJob>,
    settles: Vec<oneshot::Sender<Result<(), LedgerError>>>,
    bytes: usize,
}

/// The stored writes that a message records.
struct Notices {
    /// Taken from the index's notices; returned if the message fails.
    named: Vec<Version>,
    /// True if some notices are left for the next message.
    left: bool,
    trims: Option<u64>,
}

impl Group {
    /// Adds a job; returns it if the message would be too long.
    fn take(&mut self, job: Job) -> Option<Job> {
        let bytes = match &job {
            Job::Append(AppendJob { commit, inline, .. }) | Job::Copy(CopyJob { commit, inline, .. }) => {
                commit_bytes(&commit.record, commit.pieces.len(), inline)
            }
            Job::Settle(_) => 0,
        };
        if self.bytes > 0 && self.bytes + bytes > GROUP_MAX_BYTES {
            return Some(job);
        }
        self.bytes += bytes;
        match job {
            Job::Append(append) => self.appends.push(append),
            Job::Copy(copy) => self.copies.push(copy),
            Job::Settle(done) => self.settles.push(done),
        }
        None
    }

    fn records(&self) -> Vec<Record> {
        let appends = self.appends.iter().map(|one| (&one.commit, &one.inline));
        let copies = self.copies.iter().map(|one| (&one.commit, &one.inline));
        appends.chain(copies).map(|(commit, inline)| record(commit, inline)).collect()
    }
}

fn record(commit: &Commit, inline: &Bytes) -> Record {
    Record { content: Content::Commit(Box::new(commit.clone())), body: inline.clone() }
}

/// The bytes of a write in its message.
pub(super) fn commit_bytes(record: &ledger::Record, chunks: usize, inline: &Bytes) -> usize {
    HEAD_BYTES + content_bytes(record, chunks) + inline.len()
}

impl Shard {
    /// Commits jobs until all handles of the shard are dropped.
    pub(super) async fn commit_all(shard: Weak<Self>, mut jobs: mpsc::UnboundedReceiver<Job>) {
        let (mut next, mut unsettled) = (None, Vec::new());
        loop {
            let mut group = Group { settles: std::mem::take(&mut unsettled), ..Group::default() };
            if next.is_none() && group.settles.is_empty() {
                next = jobs.recv().await;
                if next.is_none() {
                    return;
                }
            }
            while let Some(job) = next.take().or_else(|| jobs.try_recv().ok()) {
                next = group.take(job);
                if next.is_some() {
                    break;
                }
            }
            let Some(shard) = shard.upgrade() else { return };
            unsettled = shard.commit(group).await;
        }
    }

    /// Commits a group. Returns the callers whose stored writes are not all recorded yet.
    async fn commit(self: &Arc<Self>, group: Group) -> Vec<oneshot::Sender<Result<(), LedgerError>>> {
        let (numbered, notices) = {
            let mut state = self.state.lock();
            if let Some(failure) = state.failure.clone() {
                drop(state);
                self.refuse(group, &failure);
                return Vec::new();
            }
            let mut records = group.records();
            let notices = self.notices(&mut state, &mut records, !group.settles.is_empty());
            (self.number(&mut state, &records, notices.trims), notices)
        };
        let Notices { named, left, trims } = notices;
        let delivered = self
            .deliver(numbered, true, |state, published| {
                for AppendJob { commit, inline, key, room, .. } in &group.appends {
                    let Commit { version, record, pieces, .. } = commit;
                    let (object, bytes) = (object_of(record), inline.len() as u32);
                    state.index.add_record(*version, object, published.place, bytes, pieces.clone());
                    state.requests.insert(*key, *version);
                    state.begun.remove(key);
                    state.promised_bytes -= room;
                }
                for CopyJob { commit, .. } in &group.copies {
                    state.index.moved(commit.version, published.place, commit.pieces.clone());
                }
                if published.again {
                    let writes = group.appends.iter().map(|one| &one.commit);
                    let copies = group.copies.iter().map(|one| &one.commit);
                    writes.chain(copies).for_each(|commit| state.index.sent_again(commit.version));
                }
                if let Some(place) = trims {
                    state.index.trim(place);
                }
            })
            .await;
        if let Err(failure) = delivered {
            let mut state = self.state.lock();
            named.into_iter().rev().for_each(|version| state.index.notices.push_front(version));
            drop(state);
            self.refuse(group, &failure);
            return Vec::new();
        }
        // The caller may no longer wait.
        for AppendJob { commit, done, .. } in group.appends {
            let _ = done.send(Some(Ok(AppendResult { version: commit.version, repeated: false })));
        }
        for CopyJob { done, .. } in group.copies {
            let _ = done.send(Ok(()));
        }
        if let Some(place) = trims {
            self.purge(place).await;
        }
        if left {
            return group.settles;
        }
        for done in group.settles {
            let _ = done.send(Ok(()));
        }
        Vec::new()
    }

    /// Adds the stored writes to a message; they make a message of their own only if a caller waits for that.
    fn notices(&self, state: &mut State, records: &mut Vec<Record>, asked: bool) -> Notices {
        let count = state.index.notices.len().min(STORED_MAX);
        let named: Vec<Version> = state.index.notices.drain(..count).collect();
        let left = !state.index.notices.is_empty();
        let mut versions = named.clone();
        let mut trims = None;
        if asked && !left && self.is_worth_trimming(state) {
            let again: Vec<Version> = state.index.resent_and_stored().collect();
            if versions.len() + again.len() <= STORED_MAX {
                versions.extend(again);
                trims = Some(state.index.trimmable().0);
            }
        }
        if asked || !versions.is_empty() {
            records.push(Record { content: Content::Stored(versions), body: Bytes::new() });
        }
        Notices { named, left, trims }
    }

    /// Fails all jobs of the group.
    fn refuse(&self, group: Group, failure: &LedgerError) {
        let mut state = self.state.lock();
        for AppendJob { commit, key, room, .. } in &group.appends {
            state.begun.remove(key);
            state.promised_bytes -= room;
            state.index.release_chunks(&commit.pieces);
        }
        for CopyJob { commit, .. } in &group.copies {
            state.index.release_chunks(&commit.pieces);
        }
        drop(state);
        for AppendJob { done, .. } in group.appends {
            let _ = done.send(Some(Err(failure.clone())));
        }
        let others = group.copies.into_iter().map(|copy| copy.done).chain(group.settles);
        others.for_each(|done| drop(done.send(Err(failure.clone()))));
    }
}
