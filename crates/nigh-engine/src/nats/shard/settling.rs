//! Records which writes the store has, and trims the stream: in the background, and when a caller asks.
//!
//! The stream is trimmed only at its front, after a message that says so is written: recovery treats any other hole as a
//! loss. A write that keeps many unneeded messages from being trimmed is copied to the end.

use std::sync::{Arc, Weak};
use std::time::Duration;

use nigh_terms::Version;
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::super::settings::MESSAGE_MAX_BYTES;
use super::super::stream_index::Part;
use super::super::taking::room_of;
use super::committing::{CopyJob, Job};
use super::{Shard, State};
use crate::commit_format::Commit;
use crate::ledger::LedgerError;

/// The most writes copied forward in one round.
const COPIES_MAX: usize = 64;

impl Shard {
    /// Trims the stream until all handles of the shard are dropped.
    pub(super) async fn tend(shard: Weak<Self>, every: Duration) {
        loop {
            let Some(held) = shard.upgrade() else { return };
            // With a delay, because stored writes come in groups; at once if there is no room.
            let _ = timeout(every, held.crowded.notified()).await;
            if held.check().is_err() {
                return;
            }
            if let Err(error) = held.tend_once().await {
                tracing::warn!(shard = %held.id, %error, "the stored writes could not be recorded; trying again");
            }
        }
    }

    async fn tend_once(self: &Arc<Self>) -> Result<(), LedgerError> {
        self.look_at_unknown().await?;
        self.copy_forward().await?;
        let is_idle = {
            let state = self.state.lock();
            state.index.notices.is_empty() && !self.is_worth_trimming(&state)
        };
        if !is_idle {
            self.settle().await?;
        }
        let reached = self.state.lock().index.last().unwrap_or(self.epoch.0);
        self.witness.tell(reached).await.map_err(|error| LedgerError::Unavailable(error.to_string()))
    }

    /// Notes that the store has `version`.
    pub(in super::super) fn stored(&self, version: Version) -> Result<(), LedgerError> {
        self.check()?;
        self.state.lock().index.stored(version);
        Ok(())
    }

    /// Returns when all stored writes are recorded under this home's epoch.
    pub(in super::super) async fn settle(&self) -> Result<(), LedgerError> {
        let (done, settled) = oneshot::channel();
        // The receiver exists as long as the shard.
        let _ = self.jobs.send(Job::Settle(done));
        let gone = |_| LedgerError::Failed("a task of the ledger has ended".to_owned());
        settled.await.map_err(gone)?.map_err(|error| match error {
            // A `Settle` takes no version.
            LedgerError::NotKept(reason) => LedgerError::Unavailable(reason),
            other => other,
        })
    }

    /// Removes trimmed messages from the servers, except this home's epoch record, which its appends name.
    pub(super) async fn purge(&self, place: u64) {
        for (subject, place) in [(&self.subject, place), (&self.epoch_subject, place.min(self.epoch.0))] {
            if let Err(error) = self.cluster.purge(&self.stream, subject, place).await {
                // The next trim removes what is left.
                tracing::warn!(stream = self.stream, %error, "the stream could not be trimmed");
            }
        }
    }

    /// True if the front of the stream is worth a message and a purge.
    pub(super) fn is_worth_trimming(&self, state: &State) -> bool {
        let (limit, used) = (self.settings.limit.bytes(), state.index.bytes());
        let (_, bytes) = state.index.trimmable();
        bytes > 0 && (bytes >= limit / 64 || 2 * used > limit)
    }

    /// Reads places of which no answer arrived: copies of repeated messages.
    async fn look_at_unknown(&self) -> Result<(), LedgerError> {
        let unknown = self.state.lock().index.unknown();
        for place in unknown {
            let found = self.found(place).await?;
            let mut state = self.state.lock();
            let frame = found.first().map(|found| found.frame);
            if frame.is_none() && !state.under_way.is_empty() {
                // Another server may still have it: only the one that answered lacks it.
                continue;
            }
            match frame {
                // The sender of the message will get an answer.
                Some(frame) if frame.epoch == self.epoch && state.under_way.contains_key(&frame.number) => continue,
                // A copy, or a chunk that an earlier home has sent.
                Some(frame) if frame.epoch <= self.epoch => {}
                _ => tracing::error!(stream = self.stream, place, "the stream has a message that no home has written"),
            }
            let bytes = found.iter().map(|found| found.body_bytes as usize).sum();
            state.index.add(place, room_of(&self.subject, bytes));
        }
        Ok(())
    }

    /// Copies the writes at the front to the end, if they keep many messages from being trimmed.
    async fn copy_forward(self: &Arc<Self>) -> Result<(), LedgerError> {
        let limit = self.settings.limit.bytes();
        for _ in 0..COPIES_MAX {
            let (version, place, chunks) = {
                let state = self.state.lock();
                if 2 * state.index.bytes() <= limit || state.index.idle_bytes() < limit / 4 {
                    return Ok(());
                }
                let Some(version) = state.index.oldest_needed() else { return Ok(()) };
                let Some(record) = state.index.record(version) else { return Ok(()) };
                let room = record.body_bytes() + 2 * MESSAGE_MAX_BYTES as u64;
                if !state.has_room(room, self.settings.stream_bytes()) {
                    return Ok(());
                }
                (version, record.place, record.chunks.to_vec())
            };
            let Some((commit, inline)) = self.commit_at(version, place).await? else { return Ok(()) };
            let mut bodies = Vec::with_capacity(chunks.len());
            for chunk in chunks {
                match self.part(version, chunk.id.0, Part::Chunk(chunk)).await? {
                    Some(body) => bodies.push(body),
                    // The copy is damaged. It stays where it is, and a reader gets the error.
                    None => return Ok(()),
                }
            }
            let numbered = self.number_chunks(&mut self.state.lock(), bodies);
            let pieces = self.deliver_chunks(numbered).await?;
            let (done, copied) = oneshot::channel();
            let _ = self.jobs.send(Job::Copy(CopyJob { commit: Commit { pieces, ..commit }, inline, done }));
            let gone = |_| LedgerError::Failed("a task of the ledger has ended".to_owned());
            copied.await.map_err(gone)??;
        }
        Ok(())
    }
}
