//! The task that leads one execution: what happened goes in, is written down, and what follows is done.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use nigh_engine::{HistoryChange, HistoryId, PendingCommit};
use nigh_schedule::idempotence;
use nigh_terms::{InvocationId, Namespace, Timestamp, Token};
use tokio::sync::{mpsc, oneshot, watch};

use super::{ExecutionsState, SyncExecutionResult};
use crate::arn::WorkflowName;
use crate::error_names;
use crate::event::{Command, Event, ExecutionEvent, Outcome, TaskEnd, TaskId, TaskRun};
use crate::execution_row::{self, End, Head};
use crate::history::HistoryEvent;
use crate::run::Run;
use crate::scratch::ScratchFolder;

/// What may wait for the leader of one execution.
pub(super) const INBOX: usize = 1024;
/// Events that are taken at once, and written together.
const TOGETHER_MAX: usize = 256;
/// Bytes of one execution's events; it fails when it comes there.
const KEPT_BYTES_MAX: u64 = 256 << 20;
/// How long to wait when the disk refuses, at first and at most.
const WRITE_AGAIN: Duration = Duration::from_millis(200);
const WRITE_AGAIN_MAX: Duration = Duration::from_secs(30);
/// Writes on their way whose end was not looked at yet.
const UNSETTLED_MAX: usize = 64;

/// What a leader is told.
#[derive(Debug)]
pub(crate) enum Message {
    /// A task has ended.
    Ended { task: TaskId, end: TaskEnd, token: Token },
    /// Somebody stops the execution.
    Stop { error: Option<String>, cause: Option<String>, done: oneshot::Sender<()> },
    /// Somebody asks whether its beginning is written.
    Begun(oneshot::Sender<()>),
    /// Somebody asks what happened so far.
    History(oneshot::Sender<Vec<HistoryEvent>>),
}

/// What is kept of an execution.
pub(super) struct StoredExecution {
    pub(super) id: HistoryId,
    pub(super) head: Head,
    /// Events so far.
    pub(super) events: u64,
    pub(super) bytes: u64,
    pub(super) scratch: Vec<ScratchFolder>,
}

/// See the module.
pub(super) struct ExecutionDriver {
    inner: Arc<ExecutionsState>,
    namespace: Namespace,
    run: Run,
    /// None: it is in memory alone.
    kept: Option<StoredExecution>,
    pub(super) scratch: Vec<ScratchFolder>,
    own: mpsc::Sender<Message>,
    inbox: mpsc::Receiver<Message>,
    /// Changes on their way to the disk.
    unsettled: VecDeque<(PendingCommit, Vec<HistoryChange>)>,
    /// Those who stopped it.
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
        let (unsettled, stopping, ended) = (VecDeque::new(), Vec::new(), watch::Sender::new(None));
        Self { inner, namespace, run, kept, scratch, own, inbox, unsettled, stopping, ended }
    }

    /// Where its end comes.
    pub(super) fn ended(&self) -> watch::Receiver<Option<SyncExecutionResult>> {
        self.ended.subscribe()
    }

    /// Leads it to its end, or as long as it is led here. `resumed`: it was begun before.
    pub(super) async fn lead(mut self, first: Vec<Command>, resumed: bool) {
        let is_kept = self.kept.is_some();
        let done = if resumed { self.resume().await } else { self.perform(first).await };
        if done.is_some() {
            while self.run.outcome().is_none() {
                if self.step().await.is_none() {
                    break;
                }
            }
        }
        if self.run.outcome().is_some() {
            self.conclude().await;
        }
        if !is_kept {
            self.inner.index.lock().end_unkept();
        }
    }

    /// Waits for something to happen, and does what follows. Nothing, when it is led here no more.
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
            Message::Ended { task, end, token } => events.push(ExecutionEvent::Ended { task, end, token }),
            Message::Stop { error, cause, done } => {
                self.stopping.push(done);
                events.push(ExecutionEvent::Stopped { error, cause });
            }
            // Who asked may have gone.
            Message::Begun(begun) => drop(begun.send(())),
            Message::History(shown) => drop(shown.send(self.run.shown().to_vec())),
        }
    }

    /// Goes on with these events: they are written down, and what follows is done.
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
                    // Nothing larger comes after it.
                    let cause = format!("its history has more than {KEPT_BYTES_MAX} bytes");
                    event.what =
                        ExecutionEvent::Stopped { error: Some(error_names::DATA_LIMIT.to_owned()), cause: Some(cause) };
                }
                kept.events += 1;
                match execution_row::add(kept.id, kept.events, &event) {
                    Ok(change) => {
                        kept.bytes += execution_row::bytes_of(&change);
                        changes.push(change);
                    }
                    Err(error) => tracing::error!(%error, "an event of an execution is not kept"),
                }
            }
            commands.extend(self.run.apply(&event));
        }
        self.write(changes).await?;
        self.perform(commands).await
    }

    /// Does what is to be done.
    async fn perform(&mut self, commands: Vec<Command>) -> Option<()> {
        let mut waits = Vec::new();
        let mut begins = false;
        for command in commands {
            match command {
                Command::Invoke(task) => {
                    begins = true;
                    if self.kept.is_none() || self.may_run_again(&task) {
                        self.begin(task, false);
                    } else {
                        waits.push(task);
                    }
                }
                // It goes on to its end, and nobody listens.
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

    /// Has made ready what comes next.
    fn prepare(&self) {
        for next in self.run.ahead() {
            self.inner.parts.invoke.prepare(&self.namespace, next);
        }
    }

    /// What was begun before: each task ends as it did where it ran, if that is known.
    async fn resume(&mut self) -> Option<()> {
        let begun: Vec<TaskRun> = self.run.outstanding().cloned().collect();
        // What is due comes first.
        self.happen(vec![ExecutionEvent::Time]).await?;
        let outstanding: BTreeSet<TaskId> = self.run.outstanding().map(|task| task.task).collect();
        for task in begun.into_iter().filter(|task| outstanding.contains(&task.task)) {
            self.begin(task, true);
        }
        Some(())
    }

    fn may_run_again(&self, task: &TaskRun) -> bool {
        let deployed = self.inner.parts.functions.get(&self.namespace, &task.function);
        // One that is not there does not run.
        !task.later
            && deployed.is_none_or(|deployed| idempotence::says(&deployed.function.environment) == Ok(Some(true)))
    }

    /// Has a task run to its end. `before`: it was begun before.
    fn begin(&self, task: TaskRun, before: bool) {
        let (inner, namespace, own) = (Arc::clone(&self.inner), self.namespace.clone(), self.own.clone());
        let (is_kept, again) = (self.kept.is_some(), self.may_run_again(&task));
        self.inner.tracker.spawn(async move {
            let number = task.task;
            let ended = if before {
                inner.take_up(&namespace, task, again).await
            } else {
                inner.invoke_task(&namespace, task, 1, is_kept, again).await
            };
            let Some((end, token)) = ended else { return };
            // The execution may have ended meanwhile.
            let _ = own.send(Message::Ended { task: number, end, token }).await;
        });
    }

    /// Has `changes` written, behind all before.
    async fn write(&mut self, changes: Vec<HistoryChange>) -> Option<()> {
        if changes.is_empty() {
            return Some(());
        }
        let written = self.inner.parts.histories.queue(changes.clone()).await.ok()?;
        self.unsettled.push_back((written, changes));
        self.settle(UNSETTLED_MAX).await
    }

    /// Returns when all but `left` of the writes are on the disk. Nothing, when it is led here no more.
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

    /// It is over: that is written, and then told.
    async fn conclude(&mut self) {
        let Some(outcome) = self.run.outcome().cloned() else { return };
        let stopped = self.inner.now();
        if self.kept.is_some() && self.write_end(&outcome, stopped).await.is_none() {
            // Who leads it next comes to the same end by the events.
            return;
        }
        metrics::counter!("nigh_executions_ended_total", "status" => outcome.status()).increment(1);
        let facts = self.run.facts();
        if let Ok(name) = WorkflowName::new(&facts.name) {
            // A name that somebody gave may be used again as soon as they hear of the end; that of an id is not.
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
        let result = execution_row::end(id, outcome).and_then(|result| {
            head.bytes = *bytes + execution_row::bytes_of(&result);
            head.end = Some(end.clone());
            Ok(vec![result, head.change(id)?])
        });
        let (changes, bytes) = match result {
            Ok(changes) => (changes, head.bytes),
            Err(error) => {
                tracing::error!(%error, "the end of an execution is not kept");
                return None;
            }
        };
        self.write(changes).await?;
        self.settle(0).await?;
        self.inner.index.lock().end(id, end, bytes);
        if let Err(error) = self.inner.forget_oldest().await {
            tracing::warn!(%error, "executions that ended long ago are kept until the next start");
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
