//! Runs events: the shell around `event_queue`. An accepted event is on the disk before the caller hears of it.
//!
//! One task asks the queue for commands and starts them. It sleeps until something has changed or the next event is due, and
//! never reads the disk. Each attempt is written before it begins, so that an attempt counts even if a crash interrupts it.
//! An end is on the disk before the queue forgets the event; if the disk refuses, it is written again and again. When the
//! node stops during an attempt, the row stays as it is, as after a crash.

mod attempts;
mod dead;
mod destinations;
mod proposals;
mod reason;
mod record;
mod row;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use async_recursion::async_recursion as boxed;
use bytes::Bytes;
use nigh_engine::{Outbox, OutboxChange, RegistryError};
use nigh_functions::event_config::EventPolicy;
use nigh_functions::function_store::FunctionStore;
use nigh_schedule::event_queue::{
    ClockReading, Command, DeadLetter, EventFacts, EventQueue, Fate, QueueFull, QueueLimits, RemainingWork,
};
use nigh_terms::{ByteSize, Clock, FunctionName, InvocationId, Namespace, Timestamp, Token};
use nigh_trace::Trigger;
use parking_lot::Mutex;
use thiserror::Error;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

pub use self::dead::{EventListing, ListedEvent, RetryError, ShownEvent};
pub use self::destinations::RecordBuckets;
pub use self::proposals::{ProposedEvent, ScheduledRun};
use self::reason::reason;
use self::record::Response;
use self::row::{Body, EventRowError, Head, Stage, place};
use crate::invocation::request::check_payload;
use crate::invocation::{Invoke, InvokeError, TriggerObject};

/// The largest payload of an event (Lambda quotas: 1 MB, asynchronous).
pub const EVENT_BYTES_MAX: usize = 1 << 20;
/// How long to wait after the disk has refused a write, at first and at most.
const WRITE_AGAIN: Duration = Duration::from_millis(200);
const WRITE_AGAIN_MAX: Duration = Duration::from_secs(30);
/// How long ended attempts may take to be written at the end.
const CLOSE_WAIT: Duration = Duration::from_secs(10);

/// Why events cannot be kept.
#[derive(Debug, Error)]
#[expect(missing_docs, reason = "each source says what happened")]
pub enum EventError {
    #[error(transparent)]
    Registry(#[from] RegistryError),
    #[error(transparent)]
    Row(#[from] EventRowError),
}

/// What an event invoker needs.
pub struct EventParts {
    /// The functions and their event settings.
    pub functions: FunctionStore,
    /// Runs them.
    pub invoke: Arc<dyn Invoke>,
    /// Where events are kept.
    pub outbox: Outbox,
    /// Writes records to buckets.
    pub records: Arc<dyn RecordBuckets>,
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// The region in records.
    pub region: String,
}

/// A new event.
#[derive(Clone, Debug)]
pub struct NewEvent {
    /// The tenant.
    pub namespace: Namespace,
    /// The function.
    pub function: FunctionName,
    /// Its input: JSON.
    pub payload: Bytes,
    /// Lambda's `ClientContext`.
    pub client_context: Option<String>,
    /// What its sender had seen.
    pub token: Token,
}

struct EventInvokerState {
    parts: EventParts,
    queue: Mutex<EventQueue>,
    /// Scheduled runs that are on the disk, and of which it is not decided whether they run.
    proposed: Mutex<HashMap<InvocationId, (EventFacts, ScheduledRun)>>,
    /// What went wrong in the last attempt of each event that waits for another, since the start; for people only.
    last_errors: Mutex<HashMap<InvocationId, String>>,
    /// Notified when something has changed and the queue must be asked.
    changed: Notify,
    closed: CancellationToken,
    tasks: TaskTracker,
}

/// Accepts and runs events. A clone is another handle to the same.
#[derive(Clone)]
pub struct EventInvoker(Arc<EventInvokerState>);

/// A reserved place in the queue. It is given back when this is dropped.
pub struct EventSlot {
    events: EventInvoker,
    id: Option<InvocationId>,
    facts: EventFacts,
}

impl Drop for EventSlot {
    fn drop(&mut self) {
        if let Some(id) = self.id.take() {
            self.events.0.queue.lock().not_stored(id);
        }
    }
}

impl EventInvoker {
    /// Restores the events in the outbox, and begins. Needs a tokio runtime.
    ///
    /// # Errors
    /// If the outbox cannot be read, or holds what this build does not know.
    #[boxed]
    pub async fn open(parts: EventParts, limits: QueueLimits) -> Result<Self, EventError> {
        let mut queue = EventQueue::new(limits);
        let now = ClockReading { monotonic: parts.clock.monotonic(), wall: parts.clock.wall() };
        let (mut beyond, mut proposed) = (Vec::new(), HashMap::new());
        for (id, head) in parts.outbox.heads().await? {
            let id = InvocationId::of_bytes(id);
            let head = Head::decode(id, &head)?;
            let (facts, attempts) = (head.facts(), head.attempts);
            match head.stage {
                Stage::ToRun => queue.restore(id, facts, attempts, now),
                Stage::Proposed(run) => {
                    queue.restore_proposed(id, facts.clone(), now);
                    proposed.insert(id, (facts, run));
                }
                Stage::ToDeliver { to } => queue.restore_delivery(id, facts, to, now),
                Stage::Dead { reason, died, undelivered } => {
                    let remains = undelivered.map_or(RemainingWork::Event, RemainingWork::Record);
                    beyond.extend(queue.restore_dead(DeadLetter { id, facts, attempts, reason, died, remains }));
                }
            }
        }
        // The limit of dead letters was lowered.
        let beyond: Vec<_> = beyond.into_iter().map(|id| OutboxChange::Remove { id: place(id) }).collect();
        if !beyond.is_empty() {
            parts.outbox.apply(beyond).await?;
        }
        let (left, dead) = queue.totals();
        if left > 0 {
            tracing::info!(events = left, dead, "resuming events that were queued before the start");
        }
        let inner = Arc::new(EventInvokerState {
            parts,
            queue: Mutex::new(queue),
            proposed: Mutex::new(proposed),
            last_errors: Mutex::default(),
            changed: Notify::new(),
            closed: CancellationToken::new(),
            tasks: TaskTracker::new(),
        });
        inner.tasks.spawn(Arc::clone(&inner).dispatch());
        Ok(Self(inner))
    }

    /// Accepts an event. When this returns, the event is durable: it will run at least once, or be reported as failed.
    ///
    /// # Errors
    /// If there is no such function, the payload is not JSON, or the queue is full.
    #[boxed]
    pub async fn accept(&self, event: NewEvent) -> Result<InvocationId, InvokeError> {
        if event.payload.len() > EVENT_BYTES_MAX {
            return Err(InvokeError::PayloadTooLarge { size: event.payload.len(), limit: EVENT_BYTES_MAX });
        }
        check_payload(&event.payload)?;
        self.take(event).await
    }

    async fn take(&self, event: NewEvent) -> Result<InvocationId, InvokeError> {
        if self.0.parts.functions.get(&event.namespace, &event.function).is_none() {
            return Err(InvokeError::NotFound(event.function));
        }
        let slot = self.reserve(&event.namespace, &event.function, event.payload.len())?;
        let NewEvent { client_context, token, payload, .. } = event;
        let trace = nigh_trace::current().map(|context| context.triggered(Trigger::PubSub));
        let body = Body { client_context, token, trace, payload, wrote: None };
        let ids = self.fill(vec![(slot, body)]).await?;
        ids.first().copied().ok_or_else(|| InvokeError::Internal("an event was not written".to_owned()))
    }

    /// Reserves a place in the queue for an event of at most `bytes`, so that `fill_with` cannot find the queue full. A
    /// function that was deleted gets a place too: its event becomes a dead letter, which can be retried when the function
    /// is deployed again.
    ///
    /// # Errors
    /// If the queue is full.
    pub fn reserve(
        &self,
        namespace: &Namespace,
        function: &FunctionName,
        bytes: usize,
    ) -> Result<EventSlot, InvokeError> {
        if self.0.closed.is_cancelled() {
            return Err(InvokeError::ShuttingDown);
        }
        let now = self.0.now();
        let facts = EventFacts {
            namespace: namespace.clone(),
            function: function.clone(),
            bytes: ByteSize(bytes as u64),
            accepted: now.wall,
        };
        let id = InvocationId::now();
        self.0.queue.lock().admit(id, facts.clone(), now).map_err(|full: QueueFull| {
            metrics::counter!("nigh_events_refused_total").increment(1);
            InvokeError::TooManyRequests(full.to_string())
        })?;
        Ok(EventSlot { events: self.clone(), id: Some(id), facts })
    }

    /// Fills reserved places, all or none, each with a payload, its sender's token, and the object that triggered it. When this
    /// returns, the events are durable.
    ///
    /// # Errors
    /// If the outbox cannot be written.
    #[boxed]
    pub async fn fill_with(
        &self,
        events: Vec<(EventSlot, Bytes, Token, Option<TriggerObject>)>,
    ) -> Result<(), InvokeError> {
        let trace = nigh_trace::current().map(|context| context.triggered(Trigger::Datasource));
        let body = |(slot, payload, token, wrote)| (slot, Body { token, wrote, trace, ..Body::of(payload) });
        let events = events.into_iter().map(body);
        self.fill(events.collect()).await.map(drop)
    }

    async fn fill(&self, events: Vec<(EventSlot, Body)>) -> Result<Vec<InvocationId>, InvokeError> {
        let inner = Arc::clone(&self.0);
        // A task of its own: if the caller goes away, what is on the disk still comes into the queue.
        let filled = tokio::spawn(async move {
            let mut changes = Vec::with_capacity(events.len());
            for (slot, body) in &events {
                if let Some(id) = slot.id {
                    changes.push(Head::new(&slot.facts, 0, Stage::ToRun).put(id, body)?);
                }
            }
            inner.parts.outbox.apply(changes).await?;
            let (now, mut ids) = (inner.now(), Vec::with_capacity(events.len()));
            for (mut slot, _) in events {
                if let Some(id) = slot.id.take() {
                    inner.queue.lock().stored(id, now);
                    ids.push(id);
                }
            }
            metrics::counter!("nigh_events_accepted_total").increment(ids.len() as u64);
            inner.changed.notify_one();
            Ok::<_, EventError>(ids)
        });
        match filled.await {
            Ok(Ok(ids)) => Ok(ids),
            Ok(Err(error)) => Err(InvokeError::Internal(format!("the event could not be kept: {error}"))),
            Err(join) => Err(InvokeError::Internal(join.to_string())),
        }
    }

    /// Accepts and starts nothing more, and waits until all ends are written. Call it before the invoker drains, and await it
    /// afterwards.
    pub fn close(&self) -> impl Future<Output = ()> + use<> {
        self.0.closed.cancel();
        self.0.tasks.close();
        let inner = Arc::clone(&self.0);
        async move {
            if tokio::time::timeout(CLOSE_WAIT, inner.tasks.wait()).await.is_err() {
                tracing::warn!("ends of events could not be written; they are run again at the next start");
            }
        }
    }
}

impl EventInvokerState {
    fn now(&self) -> ClockReading {
        ClockReading { monotonic: self.parts.clock.monotonic(), wall: self.parts.clock.wall() }
    }

    fn policy(&self, namespace: &Namespace, function: &FunctionName) -> Option<EventPolicy> {
        let deployed = self.parts.functions.get(namespace, function)?;
        Some(EventPolicy::of(deployed.attached.events.as_ref(), deployed.attached.reserved))
    }

    async fn dispatch(self: Arc<Self>) {
        loop {
            let (commands, wait, totals) = {
                let mut queue = self.queue.lock();
                let now = self.now();
                let commands = queue.next(now, |namespace, function| self.policy(namespace, function));
                let wait = queue.wake_at(now.monotonic).map(|at| at.since(now.monotonic));
                (commands, wait, queue.totals())
            };
            metrics::gauge!("nigh_events_pending").set(totals.0 as f64);
            metrics::gauge!("nigh_events_dead").set(totals.1 as f64);
            for command in commands {
                self.tasks.spawn(Arc::clone(&self).perform(command, None));
            }
            let next_turn = async {
                match wait {
                    Some(wait) => tokio::time::sleep(wait).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = self.closed.cancelled() => return,
                () = self.changed.notified() => {}
                () = next_turn => {}
            }
        }
    }

    /// Carries out a command; `response` is the answer of the attempt that has just ended, if one has.
    async fn perform(self: Arc<Self>, command: Command, response: Option<Response>) {
        let done = match command {
            Command::Run { id, facts, attempt } => Box::pin(Arc::clone(&self).run(id, &facts, attempt)).await,
            Command::Finish { .. } => self.finish(command, response.as_ref()).await,
            Command::Deliver { id, facts, to } => self.deliver(id, &facts, &to).await,
            Command::GiveUp { .. } => self.give_up(command).await,
        };
        if let Err(error) = done {
            tracing::error!(%error, "an event cannot be read; it stays in the outbox and is tried at the next start");
        }
        self.changed.notify_one();
    }

    async fn finish(&self, command: Command, response: Option<&Response>) -> Result<(), EventError> {
        let Command::Finish { id, facts, attempts, condition, fate } = command else { return Ok(()) };
        let last_error = self.last_errors.lock().remove(&id);
        metrics::counter!("nigh_events_done_total", "condition" => condition.name()).increment(1);
        match fate {
            Fate::Forget => {
                if self.write(vec![OutboxChange::Remove { id: place(id) }]).await {
                    self.queue.lock().forgotten(id);
                }
            }
            Fate::Deliver(to) => {
                let record = self.record(id, &facts, attempts, condition, response).await?;
                let head = Head::new(&facts, attempts, Stage::ToDeliver { to: to.clone() });
                if self.write(vec![head.put(id, &record)?]).await {
                    self.queue.lock().to_deliver(id, to, self.now());
                }
            }
            Fate::Bury => {
                let reason = reason(condition, &facts.function, response, last_error);
                tracing::warn!(%id, function = %facts.function, %reason, "an event failed for good: `nigh events` has it");
                self.bury(DeadLetter { id, facts, attempts, reason, died: self.wall(), remains: RemainingWork::Event })
                    .await?;
            }
        }
        Ok(())
    }

    fn wall(&self) -> Timestamp {
        self.parts.clock.wall()
    }

    async fn body(&self, id: InvocationId) -> Result<Body, EventError> {
        let stored = self.parts.outbox.body(place(id)).await?;
        let stored = stored.ok_or_else(|| RegistryError::Storage(format!("the outbox has no body of event {id}")))?;
        Ok(Body::decode(id, stored)?)
    }

    /// Repeats the write until it succeeds. False if the node stops before.
    async fn write(&self, changes: Vec<OutboxChange>) -> bool {
        let mut wait = WRITE_AGAIN;
        loop {
            match self.parts.outbox.apply(changes.clone()).await {
                Ok(()) => return true,
                Err(error) => tracing::error!(%error, "the end of an event cannot be written; it is tried again"),
            }
            tokio::select! {
                () = self.closed.cancelled() => return false,
                () = tokio::time::sleep(wait) => wait = (wait * 2).min(WRITE_AGAIN_MAX),
            }
        }
    }
}
