//! The driver task of one execution: it takes events, stores them, and carries out the commands that follow.

mod handing_over;

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use nigh_engine::{HistoryChange, HistoryId, PendingCommit};
use nigh_schedule::activation::idempotence;
use nigh_terms::{InvocationId, Namespace, Timestamp, Token};
use nigh_trace::Span;
use tokio::sync::{mpsc, oneshot, watch};

use super::execution_trace::ExecutionTrace;
use super::row::{self, End, Head};
use super::tasks::TaskResult;
use super::{ExecutionsState, SyncExecutionResult};
use crate::arn::WorkflowName;
use crate::event::{Command, Event, ExecutionEvent, Outcome, TaskEnd, TaskId, TaskRun};
use crate::history::HistoryEvent;
use crate::language::error_names;
use crate::run::Run;
use crate::scratch::ScratchFolder;

/// The most messages that wait for a driver.
pub(super) const INBOX: usize = 1024;
/// The most events that are stored together.
const TOGETHER_MAX: usize = 256;
/// The most bytes of one execution's events; beyond it the execution fails.
const KEPT_BYTES_MAX: u64 = 256 << 20;
/// The wait after the disk has refused a write: at first, and at most.
const WRITE_AGAIN: Duration = Duration::from_millis(200);
const WRITE_AGAIN_MAX: Duration = Duration::from_secs(30);
/// The most writes whose outcome is still awaited.
const UNSETTLED_MAX: usize = 64;

/// A message to a driver.
#[derive(Debug)]
pub(crate) enum Message {
    /// A task has ended.
    Ended { task: TaskId, end: TaskEnd, token: Token },
    /// A task has not begun, because this process leaves.
    Unbegun(TaskId),
    /// Stop the execution.
    Stop { error: Option<String>, cause: Option<String>, done: oneshot::Sender<()> },
    /// Answer once the first event is stored.
    Begun(oneshot::Sender<()>),
    /// Answer with the history so far.
    History(oneshot::Sender<Vec<HistoryEvent>>),
}

/// The stored part of an execution.
pub(super) struct StoredExecution {
    pub(super) id: HistoryId,
    pub(super) head: Head,
    /// Number of stored events.
    pub(super) events: u64,
    pub(super) bytes: u64,
    pub(super) scratch: Vec<ScratchFolder>,
    pub(super) trace: Option<ExecutionTrace>,
}

/// Drives an execution.
pub(super) struct ExecutionDriver {
    inner: Arc<ExecutionsState>,
    namespace: Namespace,
    run: Run,
    /// The stored part; none if the execution is in memory only.
    kept: Option<StoredExecution>,
    pub(super) scratch: Vec<ScratchFolder>,
    pub(super) trace: Option<ExecutionTrace>,
    own: mpsc::Sender<Message>,
    inbox: mpsc::Receiver<Message>,
    /// Changes that are being stored.
    unsettled: VecDeque<(PendingCommit, Vec<HistoryChange>)>,
    /// True once it has seen that this process leaves.
    knows_it_leaves: bool,
    /// Tasks that this process leaves to the next one.
    unbegun: BTreeSet<TaskId>,
    /// The callers to tell when it has stopped.
    stopping: Vec<oneshot::Sender<()>>,
    ended: watch::Sender<Option<SyncExecutionResult>>,
}

impl ExecutionDriver {
    pub(super) fn new(
        inner: Arc<ExecutionsState>,
        namespace: Namespace,
        run: Run,
        mut kept: Option<StoredExecution>,
        own: mpsc::Sender<Message>,
        inbox: mpsc::Receiver<Message>,
    ) -> Self {
        let scratch = kept.as_mut().map(|kept| std::mem::take(&mut kept.scratch)).unwrap_or_default();
        let trace = kept.as_ref().and_then(|kept| kept.trace);
        let (unsettled, unbegun, stopping) = (VecDeque::new(), BTreeSet::new(), Vec::new());
        let (knows_it_leaves, ended) = (false, watch::Sender::new(None));
        Self {
            inner,
            namespace,
            run,
            kept,
            scratch,
            trace,
            own,
            inbox,
            unsettled,
            knows_it_leaves,
            unbegun,
            stopping,
            ended,
        }
    }

    /// Receives the execution's result when it has ended.
    pub(super) fn ended(&self) -> watch::Receiver<Option<SyncExecutionResult>> {
        self.ended.subscribe()
    }

    /// Drives it to its end, or until another process drives it. `resumed`: it began before this process.
    pub(super) async fn lead(mut self, first: Vec<Command>, resumed: bool) {
        let is_kept = self.kept.is_some();
        let done = if resumed { self.resume().await } else { self.perform(first).await };
        if done.is_some() {
            while self.run.outcome().is_none() {
                if self.is_at_rest() {
                    self.leave().await;
                    break;
                }
                if self.step().await.is_none() {
                    break;
                }
            }
        }
        if self.run.outcome().is_some() {
            self.conclude().await;
        }
        if !is_kept {
            self.inner.index.lock().end_unkept(&self.namespace);
        }
    }

    /// Waits for events and carries out what follows. None if this process no longer drives it.
    async fn step(&mut self) -> Option<()> {
        let now = self.inner.now();
        let wake = self.run.wake_at().map(|at| Duration::from_millis(at.0.saturating_sub(now.0)));
        let time = async {
            match wake {
                Some(wake) => tokio::time::sleep(wake).await,
                None => std::future::pending().await,
            }
        };
        let mut events = Vec::new();
        tokio::select! {
            () = self.inner.parts.over.cancelled(), if self.kept.is_some() => return None,
            // The caller looks whether it is at rest; if not, tasks still end.
            () = self.inner.leaving.cancelled(), if self.kept.is_some() && !self.knows_it_leaves => {
                self.knows_it_leaves = true;
                return Some(());
            }
            message = self.inbox.recv() => self.take(message?, &mut events),
            () = time => events.push(ExecutionEvent::Time),
        }
        while events.len() < TOGETHER_MAX
            && let Ok(message) = self.inbox.try_recv()
        {
            self.take(message, &mut events);
        }
        if events.is_empty() {
            return Some(());
        }
        self.happen(events).await
    }

    fn take(&mut self, message: Message, events: &mut Vec<ExecutionEvent>) {
        match message {
            Message::Unbegun(task) => drop(self.unbegun.insert(task)),
            Message::Ended { task, end, token } => events.push(ExecutionEvent::Ended { task, end, token }),
            Message::Stop { error, cause, done } => {
                self.stopping.push(done);
                events.push(ExecutionEvent::Stopped { error, cause });
            }
            // The caller may have gone.
            Message::Begun(begun) => drop(begun.send(())),
            Message::History(shown) => drop(shown.send(self.run.shown().to_vec())),
        }
    }

    /// Applies these events, stores them, and carries out what follows.
    async fn happen(&mut self, events: Vec<ExecutionEvent>) -> Option<()> {
        let at = self.inner.now();
        let (mut commands, mut changes) = (Vec::new(), Vec::new());
        for what in events {
            if self.run.outcome().is_some() {
                break;
            }
            let mut event = Event { at, what };
            if let Some(kept) = &mut self.kept {
                if kept.bytes > KEPT_BYTES_MAX {
                    // This event is small, and it is the last.
                    let cause = format!("its history has more than {KEPT_BYTES_MAX} bytes");
                    event.what =
                        ExecutionEvent::Stopped { error: Some(error_names::DATA_LIMIT.to_owned()), cause: Some(cause) };
                }
                kept.events += 1;
                match row::add(kept.id, kept.events, &event) {
                    Ok(change) => {
                        kept.bytes += row::bytes_of(&change);
                        changes.push(change);
                    }
                    Err(error) => tracing::error!(%error, "an event of an execution cannot be encoded"),
                }
            }
            commands.extend(self.run.apply(&event));
        }
        self.write(changes).await?;
        self.perform(commands).await
    }

    /// Carries out commands.
    async fn perform(&mut self, commands: Vec<Command>) -> Option<()> {
        let mut waits = Vec::new();
        let mut begins = false;
        for command in commands {
            match command {
                Command::Invoke(task) if self.kept.is_some() && self.inner.leaving.is_cancelled() => {
                    self.unbegun.insert(task.task);
                }
                Command::Invoke(task) => {
                    begins = true;
                    if self.kept.is_none() || self.may_run_again(&task) {
                        self.begin(task, false);
                    } else {
                        waits.push(task);
                    }
                }
                // The task continues to its end, and its result is ignored.
                Command::Forget(_) | Command::Finish(_) => {}
            }
        }
        if !waits.is_empty() {
            self.settle(0).await?;
            for task in waits {
                self.begin(task, false);
            }
        }
        if begins {
            self.prepare();
        }
        Some(())
    }

    /// Makes sandboxes for the next functions ready.
    fn prepare(&self) {
        for next in self.run.ahead() {
            self.inner.parts.invoke.prepare(&self.namespace, next);
        }
    }

    fn may_run_again(&self, task: &TaskRun) -> bool {
        let deployed = self.inner.parts.functions.get(&self.namespace, &task.function);
        // A function that does not exist cannot run.
        !task.later
            && deployed.is_none_or(|deployed| idempotence::says(&deployed.function.environment) == Ok(Some(true)))
    }

    /// Runs a task to its end. `before`: it began before this process.
    fn begin(&self, task: TaskRun, before: bool) {
        let (inner, namespace, own) = (Arc::clone(&self.inner), self.namespace.clone(), self.own.clone());
        let (is_kept, again) = (self.kept.is_some(), self.may_run_again(&task));
        let mut span = self.trace.map_or_else(Span::none, |trace| trace.task(&task));
        self.inner.tracker.spawn(async move {
            let number = task.task;
            let ended = span.scope(async {
                if before {
                    inner.take_up(&namespace, task, again).await
                } else {
                    inner.invoke_task(&namespace, task, 1, is_kept, again).await
                }
            });
            let message = match ended.await {
                TaskResult::Ended(end, token) => {
                    if let TaskEnd::Failed { error, cause } = &end {
                        span.record(|span| span.fail(error.as_str(), cause));
                    }
                    Message::Ended { task: number, end, token }
                }
                TaskResult::Unbegun => Message::Unbegun(number),
                TaskResult::Elsewhere => return,
            };
            drop(span);
            // The execution may have ended meanwhile.
            let _ = own.send(message).await;
        });
    }

    /// Queues `changes` for the history, behind all earlier ones. Waits if too many are not on the disk yet. None if
    /// this process no longer drives the execution.
    async fn write(&mut self, changes: Vec<HistoryChange>) -> Option<()> {
        if changes.is_empty() {
            return Some(());
        }
        let written = self.inner.parts.histories.queue(changes.clone()).await.ok()?;
        self.unsettled.push_back((written, changes));
        self.settle(UNSETTLED_MAX).await
    }

    /// Returns when all but `left` writes are on the disk. None if this process no longer drives the execution.
    async fn settle(&mut self, left: usize) -> Option<()> {
        while self.unsettled.len() > left
            && let Some((mut written, changes)) = self.unsettled.pop_front()
        {
            let mut wait = WRITE_AGAIN;
            while let Err(error) = written.wait().await {
                tracing::error!(%error, "an execution cannot be written; it is tried again");
                tokio::select! {
                    () = self.inner.parts.over.cancelled() => return None,
                    () = tokio::time::sleep(wait) => wait = (wait * 2).min(WRITE_AGAIN_MAX),
                }
                written = self.inner.parts.histories.queue(changes.clone()).await.ok()?;
            }
        }
        Some(())
    }

    /// Stores the end, and then tells the waiting callers.
    async fn conclude(&mut self) {
        let Some(outcome) = self.run.outcome().cloned() else { return };
        let stopped = self.inner.now();
        if self.kept.is_some() && self.write_end(&outcome, stopped).await.is_none() {
            // The next driver computes the same end from the events.
            return;
        }
        metrics::counter!("nigh_executions_ended_total", "status" => outcome.status()).increment(1);
        if let Some(trace) = self.trace {
            trace.ended(&self.run, &outcome, stopped);
        }
        let facts = self.run.facts();
        if let Ok(name) = WorkflowName::new(&facts.name) {
            // A given name may be used again as soon as its caller is told of the end, so its scratch objects are
            // dropped first. An id is never used again.
            let is_id = facts.name == InvocationId::of_bytes(facts.id).to_string();
            let (arn, started, token) = (facts.arn.clone(), facts.started, self.run.seen().clone());
            let end = SyncExecutionResult { arn, name: name.clone(), started, stopped, outcome, token };
            if is_id {
                self.ended.send_replace(Some(end));
                self.drop_scratch(&name).await;
            } else {
                self.drop_scratch(&name).await;
                self.ended.send_replace(Some(end));
            }
        }
        for stopping in self.stopping.drain(..) {
            let _ = stopping.send(());
        }
    }

    async fn write_end(&mut self, outcome: &Outcome, stopped: Timestamp) -> Option<()> {
        let StoredExecution { id, head, bytes, .. } = self.kept.as_mut()?;
        let (id, end) = (*id, End::of(outcome, stopped));
        let result = row::end(id, outcome).and_then(|result| {
            head.bytes = *bytes + row::bytes_of(&result);
            head.end = Some(end.clone());
            Ok(vec![result, head.change(id)?])
        });
        let (changes, bytes) = match result {
            Ok(changes) => (changes, head.bytes),
            Err(error) => {
                tracing::error!(%error, "the end of an execution cannot be encoded");
                return None;
            }
        };
        self.write(changes).await?;
        self.settle(0).await?;
        self.inner.index.lock().end(id, end, bytes);
        if let Err(error) = self.inner.forget_oldest().await {
            tracing::warn!(%error, "old executions cannot be removed; they stay until the next start");
        }
        Some(())
    }

    async fn drop_scratch(&self, name: &WorkflowName) {
        for folder in &self.scratch {
            let own = folder.of_run(name.as_str());
            match self.inner.parts.scratch.drop_all(&self.namespace, &own).await {
                Ok(objects) => tracing::debug!(objects, execution = %name, "scratch objects are dropped"),
                Err(error) => tracing::warn!(%error, execution = %name, "scratch objects are left behind"),
            }
        }
    }
}
