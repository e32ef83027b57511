//! Runs executions: the shell around `run`, which decides. Here are the tasks, the clock and the disk.
//!
//! Each execution has a driver task (`leading`): it takes events, stores them, and carries out the commands that
//! follow. A function that is not idempotent is invoked only when all events before it are on the disk: after a crash
//! it is known that it may have run, and its task fails with `Nigh.OutcomeUnknown` instead of running again. An
//! idempotent function is invoked at once, while the events are being stored. The end of an execution is on the disk
//! before anybody is told. Executions of express machines are in memory only. In a cluster the dispatch owner of a
//! namespace runs its executions (`owned`), and their histories are on the cluster's servers instead of a disk.

mod describing;
mod execution_trace;
mod index;
mod leading;
mod row;
mod starting;
mod tasks;

use std::sync::Arc;
use std::time::Duration;

use async_recursion::async_recursion as boxed;
use nigh_engine::{Histories, HistoryChange, HistoryId, RegistryError};
use nigh_functions::function_store::FunctionStore;
use nigh_invoke::event_invoker::EventInvoker;
use nigh_invoke::invocation::Invoke;
use nigh_terms::{Clock, InvocationId, Monotonic, Namespace, Timestamp, Token};
use parking_lot::Mutex;
use serde_json::Value;
use thiserror::Error;
use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

pub use self::describing::{ExecutionDescription, ExecutionSummary};
use self::execution_trace::ExecutionTrace;
use self::index::{Entry, Index};
use self::leading::{ExecutionDriver, Message, StoredExecution};
use self::row::{Beginning, ExecutionRowError, Head};
pub use self::starting::{StartedExecution, SyncExecutionResult};
use crate::arn::{WorkflowName, execution_arn, machine_arn};
use crate::event::Facts;
use crate::run::{DATA_BYTES_MAX, Run};
use crate::scratch::{ScratchFolder, ScratchObjects};
use crate::{Problem, read};

/// How long a process that leaves waits until the tasks of its executions have ended. Tasks that take longer end later at their
/// nodes, which the next process asks.
const REST_WITHIN: Duration = Duration::from_secs(10);
/// How long the node waits at its end until the ends of executions are stored.
const CLOSE_WAIT: Duration = Duration::from_secs(10);
/// How long a synchronous execution may take (Step Functions quotas, express).
const SYNC_MAX: Duration = Duration::from_secs(300);

/// The limits of executions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExecutionLimits {
    /// Executions of a namespace that run at a time.
    pub running_max: usize,
    /// Ended executions that are kept; beyond that, the oldest of the namespace with the most are removed.
    pub kept_max: usize,
    /// The most bytes of all stored histories.
    pub kept_bytes: u64,
}

/// What executions need.
#[derive(Clone)]
pub struct ExecutionParts {
    /// The functions.
    pub functions: FunctionStore,
    /// Invokes functions.
    pub invoke: Arc<dyn Invoke>,
    /// Invokes functions asynchronously.
    pub events: EventInvoker,
    /// Stores the histories.
    pub histories: Arc<dyn Histories>,
    /// The objects of scratch folders.
    pub scratch: Arc<dyn ScratchObjects>,
    /// The clock.
    pub clock: Arc<dyn Clock>,
    /// The region in ARNs.
    pub region: String,
    /// Permits for tasks; their number limits the tasks that run at a time.
    pub turns: Arc<Semaphore>,
    /// Cancelled when these executions continue in another process or after a restart: this process does nothing more for them.
    pub over: CancellationToken,
}

/// A new execution.
#[derive(Clone, Debug)]
pub struct NewExecution {
    /// The execution's id: a second start with the same id is the same execution.
    pub id: InvocationId,
    /// The execution's name. None if its id is the name.
    pub name: Option<WorkflowName>,
    /// The execution's input.
    pub input: Value,
    /// The token of what its caller has seen.
    pub seen: Token,
}

/// Why a request about an execution fails.
#[derive(Debug, Error)]
#[expect(missing_docs, reason = "each message says what the fields hold")]
pub enum ExecutionError {
    #[error("Execution Does Not Exist: '{0}'")]
    NotFound(String),
    #[error("Execution Already Exists: '{0}'")]
    Exists(String),
    #[error(
        "{0} executions of the namespace are running, which is the limit (workflows.running_max); start it again later"
    )]
    TooMany(usize),
    #[error("Invalid State Machine Execution Input: '{0}'")]
    Input(String),
    #[error("the execution took longer than {} s", SYNC_MAX.as_secs())]
    TooLong,
    #[error("Nigh is shutting down")]
    ShuttingDown,
    #[error(
        "the start of the execution cannot be written, so it is unknown whether it begins; start it again by its name"
    )]
    Undecided,
    #[error(transparent)]
    Registry(#[from] RegistryError),
    #[error(transparent)]
    Row(#[from] ExecutionRowError),
    #[error("execution {0}: its definition cannot be read any more: {1:?}")]
    Definition(InvocationId, Vec<Problem>),
}

pub(super) struct ExecutionsState {
    parts: ExecutionParts,
    limits: ExecutionLimits,
    index: Mutex<Index>,
    tracker: TaskTracker,
    /// Cancelled when this process leaves: it begins no more tasks of stored executions.
    leaving: CancellationToken,
    /// The date and the monotonic clock at the start: the base of a date that never jumps.
    origin: (Timestamp, Monotonic),
}

/// The executions of this process. A clone is another handle to them.
#[derive(Clone)]
pub struct Executions(Arc<ExecutionsState>);

impl Executions {
    /// Restores the executions in the histories, and continues them. Needs a tokio runtime.
    ///
    /// # Errors
    /// If the histories cannot be read, or have a format that this build does not know.
    #[boxed]
    pub async fn open(parts: ExecutionParts, limits: ExecutionLimits) -> Result<Self, ExecutionError> {
        let origin = (parts.clock.wall(), parts.clock.monotonic());
        let heads = parts.histories.heads().await?;
        let (index, tracker, leaving) = (Mutex::default(), TaskTracker::new(), CancellationToken::new());
        let inner = Arc::new(ExecutionsState { parts, limits, index, tracker, leaving, origin });
        let mut running = 0;
        for (id, head) in heads {
            let head = Head::decode(id, &head)?;
            if head.end.is_some() {
                inner.index.lock().insert(id, Entry::of_ended(head));
            } else {
                running += 1;
                inner.resume(id, head).await?;
            }
        }
        inner.forget_oldest().await?;
        if running > 0 {
            tracing::info!(executions = running, "resuming executions that began before the start");
        }
        Ok(Self(inner))
    }

    /// Declares a scratch folder, whose objects are in memory only.
    ///
    /// # Errors
    /// Why the bucket refuses that.
    #[boxed]
    pub async fn declare_scratch(&self, namespace: &Namespace, folder: &ScratchFolder) -> Result<(), String> {
        self.0.parts.scratch.declare(namespace, folder).await
    }

    /// Stops an execution; its running tasks continue to their end, and their results are ignored. Returns when it
    /// ended.
    ///
    /// # Errors
    /// If there is no such execution.
    #[boxed]
    pub async fn stop(
        &self,
        namespace: &Namespace,
        machine: &WorkflowName,
        name: &WorkflowName,
        error: Option<String>,
        cause: Option<String>,
    ) -> Result<Timestamp, ExecutionError> {
        let (_, entry) = self.0.found(namespace, machine, name)?;
        if let Some(end) = &entry.head.end {
            return Ok(end.stopped);
        }
        if let Some(inbox) = &entry.inbox {
            let (done, stopped) = oneshot::channel();
            if inbox.send(Message::Stop { error, cause, done }).await.is_ok() {
                // The channel closes if the execution has just ended by itself.
                let _ = stopped.await;
            }
        }
        let (_, entry) = self.0.found(namespace, machine, name)?;
        entry.head.end.map(|end| end.stopped).ok_or(ExecutionError::ShuttingDown)
    }

    /// Begins no more tasks, and waits until those that run have ended and everything is stored. Running executions continue
    /// in the next process, which begins what this one has not. Call it before the invoker drains, and await it afterwards.
    pub fn close(&self) -> impl Future<Output = ()> + use<> {
        self.0.leaving.cancel();
        self.0.tracker.close();
        let inner = Arc::clone(&self.0);
        async move {
            let at_rest = tokio::time::timeout(REST_WITHIN, inner.tracker.wait()).await.is_ok();
            inner.parts.over.cancel();
            if !at_rest && tokio::time::timeout(CLOSE_WAIT, inner.tracker.wait()).await.is_err() {
                tracing::warn!(
                    "executions could not be written; after the next start they continue from their last written event"
                );
            }
        }
    }
}

impl ExecutionsState {
    /// The date, which never jumps.
    fn now(&self) -> Timestamp {
        let (wall, monotonic) = self.origin;
        Timestamp(wall.0 + self.parts.clock.monotonic().since(monotonic).as_millis() as u64)
    }

    fn check(&self, input: &Value) -> Result<(), ExecutionError> {
        if self.parts.over.is_cancelled() {
            return Err(ExecutionError::ShuttingDown);
        }
        let bytes = input.to_string().len();
        if bytes > DATA_BYTES_MAX {
            return Err(ExecutionError::Input(format!("it has {bytes} bytes, {DATA_BYTES_MAX} are allowed")));
        }
        Ok(())
    }

    fn facts(
        &self,
        id: HistoryId,
        machine: &WorkflowName,
        name: &WorkflowName,
        role: &str,
        started: Timestamp,
    ) -> Facts {
        let region = &self.parts.region;
        Facts {
            id,
            arn: execution_arn(region, machine, name),
            name: name.to_string(),
            machine_arn: machine_arn(region, machine),
            machine: machine.to_string(),
            role: role.to_owned(),
            started,
        }
    }

    fn found(
        &self,
        namespace: &Namespace,
        machine: &WorkflowName,
        name: &WorkflowName,
    ) -> Result<(HistoryId, Entry), ExecutionError> {
        let index = self.index.lock();
        let found = index.find(namespace, machine, name).map(|(id, entry)| (id, entry.clone()));
        found.ok_or_else(|| ExecutionError::NotFound(execution_arn(&self.parts.region, machine, name)))
    }

    /// Replays the events of an execution.
    async fn replay(&self, id: HistoryId, head: &Head) -> Result<(Run, StoredExecution), ExecutionError> {
        let kept = row::decode(id, &self.parts.histories.events(id).await?)?;
        let Beginning { definition, input, token, scratch, trace } = kept.beginning;
        let definition =
            read(&definition).map_err(|problems| ExecutionError::Definition(InvocationId::of_bytes(id), problems))?;
        let facts = self.facts(id, &head.machine, &head.name, &head.role, head.started);
        let (mut run, _) = Run::start(Arc::new(definition), facts, input, token, true);
        for event in &kept.events {
            run.apply(event);
        }
        let events = kept.events.len() as u64;
        let trace = trace.as_deref().and_then(ExecutionTrace::decode);
        Ok((run, StoredExecution { id, head: head.clone(), events, bytes: kept.bytes, scratch, trace }))
    }

    /// Continues an execution that began before the start.
    async fn resume(self: &Arc<Self>, id: HistoryId, head: Head) -> Result<(), ExecutionError> {
        let (run, kept) = self.replay(id, &head).await?;
        let (sender, inbox) = mpsc::channel(leading::INBOX);
        let namespace = head.namespace.clone();
        self.index.lock().insert(id, Entry::of_running(head, sender.clone()));
        let leading = ExecutionDriver::new(Arc::clone(self), namespace, run, Some(kept), sender, inbox);
        self.tracker.spawn(leading.lead(Vec::new(), true));
        Ok(())
    }

    /// Removes the ended executions beyond the limits.
    async fn forget_oldest(&self) -> Result<(), RegistryError> {
        let gone = self.index.lock().take_surplus(self.limits.kept_max, self.limits.kept_bytes);
        if !gone.is_empty() {
            // If a crash loses the removal, the next start removes them again.
            drop(self.parts.histories.queue(gone.into_iter().map(|id| HistoryChange::Remove { id }).collect()).await?);
        }
        Ok(())
    }
}
