//! The queue for people: list, show, retry and drop events.

use async_recursion::async_recursion as boxed;
use bytes::Bytes;
use nigh_engine::OutboxChange;
use nigh_schedule::event_queue::{DeadLetter, QueueFull, RemainingWork};
use nigh_terms::{FunctionName, InvocationId, Namespace};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::row::{Head, Stage, place};
use super::{EventError, EventInvoker, EventInvokerState};

/// An event, as it is listed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ListedEvent {
    /// The event.
    pub id: InvocationId,
    /// Its function.
    pub function: FunctionName,
    /// `waiting`, `running`, `delivering` or `dead`.
    pub state: String,
    /// How often it was tried.
    pub attempts: u32,
    /// Its payload's size in bytes.
    pub bytes: u64,
    /// When it was accepted, RFC 3339.
    pub accepted: String,
    /// Seconds until the next attempt, if it waits.
    pub due_in_s: Option<f64>,
    /// Why it is dead, if it is.
    pub reason: Option<String>,
    /// When it died, if it is dead, RFC 3339.
    pub died: Option<String>,
    /// What went wrong in its last attempt, if it waits for another; not known of attempts before the node's start.
    #[serde(default)]
    pub last_error: Option<String>,
}

/// The events of a namespace.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct EventListing {
    /// How many are not done.
    pub pending: usize,
    /// How many are dead letters.
    pub dead: usize,
    /// The events that are not done, oldest first, if asked for; then dead letters, newest first.
    pub events: Vec<ListedEvent>,
}

/// An event with its payload.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ShownEvent {
    /// The event.
    #[serde(flatten)]
    pub event: ListedEvent,
    /// Its payload; if its record could not be delivered, the record.
    pub payload: serde_json::Value,
}

/// Why an event is not retried.
#[derive(Debug, Error)]
#[expect(missing_docs, reason = "each source says what happened")]
pub enum RetryError {
    #[error(transparent)]
    Full(#[from] QueueFull),
    #[error(transparent)]
    Event(#[from] EventError),
}

fn listed(letter: &DeadLetter) -> ListedEvent {
    ListedEvent {
        id: letter.id,
        function: letter.facts.function.clone(),
        state: "dead".to_owned(),
        attempts: letter.attempts,
        bytes: letter.facts.bytes.bytes(),
        accepted: letter.facts.accepted.rfc3339(),
        due_in_s: None,
        reason: Some(letter.reason.clone()),
        died: Some(letter.died.rfc3339()),
        last_error: None,
    }
}

impl EventInvoker {
    /// At most `limit` events of `namespace`: its dead letters; with `all` also those that are not done.
    #[must_use]
    pub fn list(&self, namespace: &Namespace, all: bool, limit: usize) -> EventListing {
        let queue = self.0.queue.lock();
        let last_errors = self.0.last_errors.lock();
        let pending = queue.pending(namespace, self.0.now());
        let dead = queue.dead_letters(namespace);
        let counts = (pending.len(), dead.len());
        let pending = pending.into_iter().filter(|_| all).map(|one| ListedEvent {
            id: one.id,
            function: one.facts.function,
            state: one.state.to_owned(),
            attempts: one.attempts,
            bytes: one.facts.bytes.bytes(),
            accepted: one.facts.accepted.rfc3339(),
            due_in_s: (one.state == "waiting").then_some(one.due_in.as_secs_f64()),
            reason: None,
            died: None,
            last_error: last_errors.get(&one.id).cloned(),
        });
        let events = pending.chain(dead.into_iter().map(listed)).take(limit).collect();
        EventListing { pending: counts.0, dead: counts.1, events }
    }

    /// An event of `namespace` with its payload.
    ///
    /// # Errors
    /// If the outbox cannot be read.
    #[boxed]
    pub async fn show(&self, namespace: &Namespace, id: InvocationId) -> Result<Option<ShownEvent>, EventError> {
        let found = self.list(namespace, true, usize::MAX).events.into_iter().find(|event| event.id == id);
        let Some(event) = found else { return Ok(None) };
        let payload: Bytes = self.0.body(id).await?.payload;
        let payload = serde_json::from_slice(&payload)
            .unwrap_or_else(|_| serde_json::Value::String(String::from_utf8_lossy(&payload).into_owned()));
        Ok(Some(ShownEvent { event, payload }))
    }

    /// Tries a dead letter again from the beginning. False if there is none.
    ///
    /// # Errors
    /// If the queue is full or the outbox cannot be written: then it stays a dead letter.
    #[boxed]
    pub async fn retry(&self, namespace: &Namespace, id: InvocationId) -> Result<bool, RetryError> {
        let inner = &self.0;
        let revived = inner.queue.lock().revive(namespace, id, inner.now())?;
        let Some(letter) = revived else { return Ok(false) };
        let stage = match &letter.remains {
            RemainingWork::Event => Stage::ToRun,
            RemainingWork::Record(to) => Stage::ToDeliver { to: to.clone() },
        };
        let written = match Head::new(&letter.facts, 0, stage).change(id) {
            Ok(change) => inner.parts.outbox.apply(vec![change]).await.map_err(EventError::from),
            Err(error) => Err(error.into()),
        };
        let mut queue = inner.queue.lock();
        if let Err(error) = written {
            queue.not_stored(id);
            // There is room: it has just been taken out.
            queue.restore_dead(letter);
            return Err(error.into());
        }
        match letter.remains {
            RemainingWork::Event => queue.stored(id, inner.now()),
            RemainingWork::Record(to) => queue.to_deliver(id, to, inner.now()),
        }
        drop(queue);
        inner.changed.notify_one();
        Ok(true)
    }

    /// Drops a dead letter, or an event that waits. False if there is none, or it runs.
    ///
    /// # Errors
    /// If the outbox cannot be written: then the event is back after the next start.
    #[boxed]
    pub async fn drop_event(&self, namespace: &Namespace, id: InvocationId) -> Result<bool, EventError> {
        let dropped = self.0.queue.lock().drop_event(namespace, id);
        if dropped {
            self.0.last_errors.lock().remove(&id);
            self.0.parts.outbox.apply(vec![OutboxChange::Remove { id: place(id) }]).await?;
            self.0.changed.notify_one();
        }
        Ok(dropped)
    }
}

impl EventInvokerState {
    /// Makes a done event a dead letter.
    pub(super) async fn bury(&self, letter: DeadLetter) -> Result<(), EventError> {
        if !self.write(vec![Head::of_letter(&letter).change(letter.id)?]).await {
            return Ok(());
        }
        let gone = self.queue.lock().buried(letter);
        if !gone.is_empty() {
            tracing::warn!(dropped = gone.len(), "there are too many dead letters; the oldest are dropped");
            self.write(gone.into_iter().map(|id| OutboxChange::Remove { id: place(id) }).collect()).await;
        }
        Ok(())
    }
}
