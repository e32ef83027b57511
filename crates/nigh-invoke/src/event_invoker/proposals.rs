//! Scheduled runs in the queue: each is on the disk before the registry says which node has it, and runs only where the
//! registry says so.
//!
//! A run is proposed (on the disk, waiting), and then confirmed or withdrawn. After a crash in between, it is in the list of
//! proposals of the next start. The schedule runner decides; this module keeps.

use async_recursion::async_recursion as boxed;
use bytes::Bytes;
use nigh_engine::OutboxChange;
use nigh_functions::schedule::ScheduleName;
use nigh_functions::schedule_store::ScheduleKey;
use nigh_schedule::event_queue::{EventFacts, QueueFull};
use nigh_terms::{ByteSize, FunctionName, InvocationId, Namespace, Timestamp};
use nigh_trace::{Span, SpanContext, SpanKind, Trigger};
use serde::{Deserialize, Serialize};

use super::row::{Body, Head, Stage, place};
use super::{EVENT_BYTES_MAX, EventError, EventInvoker};
use crate::invocation::InvokeError;
use crate::invocation::request::check_payload;

/// Which run of which schedule an event is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScheduledRun {
    /// The schedule's name; its namespace is the event's.
    pub schedule: ScheduleName,
    /// The date at which the run is due.
    pub due: Timestamp,
}

/// A scheduled run as an event.
#[derive(Clone, Debug)]
pub struct ProposedEvent {
    /// Its id, which follows from the run.
    pub id: InvocationId,
    /// The tenant.
    pub namespace: Namespace,
    /// The function.
    pub function: FunctionName,
    /// Its input: JSON.
    pub payload: Bytes,
    /// The run.
    pub run: ScheduledRun,
}

impl EventInvoker {
    /// The runs of which it is not decided whether they run.
    #[must_use]
    pub fn proposed(&self) -> Vec<(InvocationId, ScheduleKey, Timestamp)> {
        let proposed = self.0.proposed.lock();
        let key = |facts: &EventFacts, run: &ScheduledRun| ScheduleKey {
            namespace: facts.namespace.clone(),
            name: run.schedule.clone(),
        };
        proposed.iter().map(|(id, (facts, run))| (*id, key(facts, run), run.due)).collect()
    }

    /// Writes a run to the disk, which waits there until it is confirmed or withdrawn. A run that the queue has already
    /// is the same run. A function that does not exist is no error: if the run is confirmed, it becomes a dead letter.
    ///
    /// # Errors
    /// If its input is no JSON, the queue is full, or the outbox cannot be written.
    #[boxed]
    pub async fn propose(&self, event: ProposedEvent) -> Result<(), InvokeError> {
        let ProposedEvent { id, namespace, function, payload, run } = event;
        if payload.len() > EVENT_BYTES_MAX {
            return Err(InvokeError::PayloadTooLarge { size: payload.len(), limit: EVENT_BYTES_MAX });
        }
        check_payload(&payload)?;
        if self.0.closed.is_cancelled() {
            return Err(InvokeError::ShuttingDown);
        }
        let now = self.0.now();
        let facts = EventFacts { namespace, function, bytes: ByteSize(payload.len() as u64), accepted: now.wall };
        {
            let mut queue = self.0.queue.lock();
            if queue.has(&facts.namespace, id) {
                return Ok(());
            }
            queue.admit(id, facts.clone(), now).map_err(|full: QueueFull| {
                metrics::counter!("nigh_events_refused_total").increment(1);
                InvokeError::TooManyRequests(full.to_string())
            })?;
        }
        let (this, trace) = (self.clone(), begin_trace(&run));
        // A task of its own: if the caller goes away, what is on the disk is still known.
        let written = tokio::spawn(async move {
            let head = Head::new(&facts, 0, Stage::Proposed(run.clone()));
            let written = match head.put(id, &Body { trace, ..Body::of(payload) }) {
                Ok(change) => this.0.parts.outbox.apply(vec![change]).await.map_err(EventError::from),
                Err(error) => Err(error.into()),
            };
            match &written {
                Ok(()) => drop(this.0.proposed.lock().insert(id, (facts, run))),
                Err(_) => this.0.queue.lock().not_stored(id),
            }
            written
        });
        match written.await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => Err(InvokeError::Internal(format!("the run could not be kept: {error}"))),
            Err(join) => Err(InvokeError::Internal(join.to_string())),
        }
    }

    /// A proposed run is this node's: it runs. False if the node stops before that is on the disk.
    #[boxed]
    pub async fn confirm(&self, id: InvocationId) -> bool {
        let found = self.0.proposed.lock().get(&id).map(|(facts, _)| facts.clone());
        let Some(facts) = found else { return true };
        let change = match Head::new(&facts, 0, Stage::ToRun).change(id) {
            Ok(change) => change,
            Err(error) => {
                tracing::error!(%error, "a scheduled run cannot be encoded; the next start tries again");
                return false;
            }
        };
        if !self.0.write(vec![change]).await {
            return false;
        }
        if self.0.proposed.lock().remove(&id).is_some() {
            self.0.queue.lock().stored(id, self.0.now());
            metrics::counter!("nigh_events_accepted_total").increment(1);
            self.0.changed.notify_one();
        }
        true
    }

    /// A proposed run is not this node's: it is forgotten. False if the node stops before that is on the disk.
    #[boxed]
    pub async fn withdraw(&self, id: InvocationId) -> bool {
        if !self.0.proposed.lock().contains_key(&id) {
            return true;
        }
        if !self.0.write(vec![OutboxChange::Remove { id: place(id) }]).await {
            return false;
        }
        if self.0.proposed.lock().remove(&id).is_some() {
            self.0.queue.lock().not_stored(id);
        }
        true
    }
}

/// The trace of a scheduled run begins with the run's place in the queue.
fn begin_trace(run: &ScheduledRun) -> Option<SpanContext> {
    let mut span = Span::root("schedule", SpanKind::Producer).triggered(Trigger::Timer);
    span.record(|span| {
        span.set("nigh.schedule", run.schedule.as_str());
        span.set("nigh.schedule.due", run.due.rfc3339());
    });
    span.context()
}
