//! Runs executions: the shell around `run`. What is decided stands there; here are the tasks, the clock and the disk.
//!
//! Each execution has a task of its own, which leads it (`leading`): it takes what happened, writes it down, and does what
//! follows. A function that does not say that it may run twice is not invoked before all that led to it is on the disk:
//! after a crash it is known that it may have run, and it fails as `Nigh.OutcomeUnknown` instead of running again. One
//! that says so is invoked at once, while the disk is on its way. An end is on the disk before anybody hears of it.
//! Executions of express machines are in memory alone. In a cluster those of a namespace are its owner's (`owned`), and for
//! the disk stand the servers that keep their histories.

mod index;
mod leading;
mod tasks;

use std::sync::Arc;
use std::time::Duration;

use nigh_engine::{Histories, HistoryChange, HistoryId, RegistryError};
use nigh_functions::function_store::FunctionStore;
use nigh_invoke::event_invoker::EventInvoker;
use nigh_invoke::invocation::Invoke;
use nigh_terms::{Clock, InvocationId, Monotonic, Namespace, Timestamp, Token};
use parking_lot::Mutex;
use serde_json::Value;
use thiserror::Error;
use tokio::sync::{Semaphore, mpsc, oneshot, watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use self::index::{Entry, Index};
use self::leading::{ExecutionDriver, Message, StoredExecution};
use super::arn::{WorkflowName, execution_arn, express_arn, machine_arn};
use super::event::{Facts, Outcome};
use super::execution_row::{self, Beginning, ExecutionRowError, Head};
use super::history::HistoryEvent;
use super::machine_store::{Machine, MachineKind};
use super::run::{DATA_BYTES_MAX, Run};
use super::scratch::{ScratchFolder, ScratchObjects};
use super::{Problem, read};

/// How long ends may take to be written at the end of the node.
const CLOSE_WAIT: Duration = Duration::from_secs(10);
/// How long a beginning may take to be written before it is said that nobody knows.
const START_WITHIN: Duration = Duration::from_secs(20);
/// What a synchronous execution may take (Step Functions quotas, express).
const SYNC_MAX: Duration = Duration::from_secs(300);

/// How much there may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExecutionLimits {
    /// Executions that run at a time.
    pub running_max: usize,
    /// Ended ones that are kept; beyond, the oldest go.
    pub kept_max: usize,
    /// And the bytes of all that are kept.
    pub kept_bytes: u64,
}

/// What executions stand on.
#[derive(Clone)]
pub struct ExecutionParts {
    /// The functions.
    pub functions: FunctionStore,
    /// What runs them.
    pub invoke: Arc<dyn Invoke>,
    /// What runs them later.
    pub events: EventInvoker,
    /// Where executions are kept.
    pub histories: Arc<dyn Histories>,
    /// Their scratch folders.
    pub scratch: Arc<dyn ScratchObjects>,
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// The region in ARNs.
    pub region: String,
    /// The turns of tasks: as many run at a time as it has permits.
    pub turns: Arc<Semaphore>,
    /// Cancelled when these executions go on elsewhere, or in the node's next life: from then on nothing more is done for
    /// them here.
    pub over: CancellationToken,
}

/// An execution that is to begin.
#[derive(Clone, Debug)]
pub struct NewExecution {
    /// Names it for ever: started again with the same, it is the same one.
    pub id: InvocationId,
    /// Its name; else its id is.
    pub name: Option<WorkflowName>,
    /// What goes in.
    pub input: Value,
    /// What its caller has seen.
    pub seen: Token,
}

/// Why an execution is not as it was asked.
#[derive(Debug, Error)]
#[expect(missing_docs, reason = "each message says what the fields hold")]
pub enum ExecutionError {
    #[error("Execution Does Not Exist: '{0}'")]
    NotFound(String),
    #[error("Execution Already Exists: '{0}'")]
    Exists(String),
    #[error("{0} executions run, which is the most (workflows.running_max); start it again later")]
    TooMany(usize),
    #[error("Invalid State Machine Execution Input: '{0}'")]
    Input(String),
    #[error("the execution took longer than {} s", SYNC_MAX.as_secs())]
    TooLong,
    #[error("Nigh is shutting down")]
    ShuttingDown,
    #[error(
        "nobody knows yet whether the execution begins: its beginning cannot be written; start it again by its name"
    )]
    Undecided,
    #[error(transparent)]
    Registry(#[from] RegistryError),
    #[error(transparent)]
    Row(#[from] ExecutionRowError),
    #[error("execution {0}: its definition is none any more: {1:?}")]
    Definition(InvocationId, Vec<Problem>),
}

/// An execution as it is listed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExecutionSummary {
    /// Its ARN.
    pub arn: String,
    /// Its machine's ARN.
    pub machine_arn: String,
    /// Its name.
    pub name: WorkflowName,
    /// `RUNNING`, `SUCCEEDED`, `FAILED`, `TIMED_OUT` or `ABORTED`.
    pub status: String,
    /// When it began.
    pub started: Timestamp,
    /// When it ended.
    pub stopped: Option<Timestamp>,
    /// The error's name, if it failed.
    pub error: Option<String>,
    /// What is known of the error.
    pub cause: Option<String>,
}

/// An execution as it is described.
#[derive(Clone, Debug, PartialEq)]
pub struct ExecutionDescription {
    /// What is listed.
    pub listed: ExecutionSummary,
    /// What went in.
    pub input: Value,
    /// What came out, if it succeeded.
    pub output: Option<Value>,
    /// The definition that it runs.
    pub definition: String,
    /// Its role.
    pub role: String,
}

/// What was started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StartedExecution {
    /// Its ARN.
    pub arn: String,
    /// When.
    pub at: Timestamp,
}

/// A synchronous execution at its end.
#[derive(Clone, Debug, PartialEq)]
pub struct SyncExecutionResult {
    /// Its ARN.
    pub arn: String,
    /// Its name.
    pub name: WorkflowName,
    /// When it began.
    pub started: Timestamp,
    /// When it ended.
    pub stopped: Timestamp,
    /// How.
    pub outcome: Outcome,
    /// What its tasks had seen.
    pub token: Token,
}

/// An execution that is not kept.
struct ExpressExecution {
    started: StartedExecution,
    ended: watch::Receiver<Option<SyncExecutionResult>>,
    inbox: mpsc::Sender<Message>,
}

pub(super) struct ExecutionsState {
    parts: ExecutionParts,
    limits: ExecutionLimits,
    index: Mutex<Index>,
    tracker: TaskTracker,
    /// A date that never jumps: the one at the start, and the time since.
    origin: (Timestamp, Monotonic),
}

/// See the module. A clone is another handle to the same.
#[derive(Clone)]
pub struct Executions(Arc<ExecutionsState>);

impl Executions {
    /// Takes up what earlier lives of the node, or owners before it, left, and begins. Needs a tokio runtime.
    ///
    /// # Errors
    /// If the histories cannot be read, or hold what this build does not know.
    pub async fn open(parts: ExecutionParts, limits: ExecutionLimits) -> Result<Self, ExecutionError> {
        let origin = (parts.clock.wall(), parts.clock.monotonic());
        let heads = parts.histories.heads().await?;
        let inner =
            Arc::new(ExecutionsState { parts, limits, index: Mutex::default(), tracker: TaskTracker::new(), origin });
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
            tracing::info!(executions = running, "executions that were begun before go on here");
        }
        Ok(Self(inner))
    }

    /// Has objects of a scratch folder kept in memory alone.
    ///
    /// # Errors
    /// Why the bucket does not take that.
    pub async fn declare_scratch(&self, namespace: &Namespace, folder: &ScratchFolder) -> Result<(), String> {
        self.0.parts.scratch.declare(namespace, folder).await
    }

    /// Starts an execution of a standard machine. One that runs under the same name with the same input is that one.
    ///
    /// # Errors
    /// If there was another of its name, the input is too large, too many run, or it cannot be kept.
    pub async fn start(
        &self,
        namespace: &Namespace,
        machine: &Machine,
        new: NewExecution,
    ) -> Result<StartedExecution, ExecutionError> {
        let inner = &self.0;
        inner.check(&new.input)?;
        if machine.kind == MachineKind::Express {
            return self.start_unkept(namespace, machine, new).map(|unkept| unkept.started);
        }
        let NewExecution { id, name, input, seen: token } = new;
        let (id, name) = (*id.as_bytes(), given_name(name, id));
        let digest = execution_row::digest(&input);
        let (namespace, now) = (namespace.clone(), inner.now());
        let facts = inner.facts(machine, &name, id, now);
        let head = Head::new(namespace.clone(), machine.name.clone(), name, machine.role.clone(), now, digest.clone());
        let (sender, inbox) = mpsc::channel(leading::INBOX);
        let there = {
            let mut index = inner.index.lock();
            let there = index.find(&namespace, &head.machine, &head.name).map(|(known, there)| (known, there.clone()));
            if there.is_none() {
                if index.running() >= inner.limits.running_max {
                    return Err(ExecutionError::TooMany(inner.limits.running_max));
                }
                index.insert(id, Entry::of_running(head.clone(), sender.clone()));
            }
            there
        };
        if let Some((known, Entry { head: there, inbox })) = there {
            let same = known == id || (there.end.is_none() && there.input_sha256 == digest);
            let started = StartedExecution { arn: facts.arn.clone(), at: there.started };
            return if same { stands(inbox, started).await } else { Err(ExecutionError::Exists(facts.arn)) };
        }
        let started = StartedExecution { arn: facts.arn.clone(), at: now };
        let beginning = Beginning {
            definition: machine.text.to_string(),
            input: input.clone(),
            token: token.clone(),
            scratch: machine.scratch.clone(),
        };
        let (this, definition) = (Arc::clone(inner), Arc::clone(&machine.definition));
        // To its end, also when the caller goes away: what is on the disk runs.
        let begun = inner.tracker.spawn(async move {
            let kept = async {
                let changes = vec![head.change(id)?, execution_row::begin(id, &beginning)?];
                let bytes = changes.iter().map(execution_row::bytes_of).sum();
                this.parts.histories.queue(changes).await?.wait().await?;
                Ok::<u64, ExecutionError>(bytes)
            };
            let bytes = match kept.await {
                Ok(bytes) => bytes,
                Err(error) => {
                    this.index.lock().remove(id);
                    return Err(error);
                }
            };
            let (run, commands) = Run::start(definition, facts, input, token, true);
            let kept = Some(StoredExecution { id, head, events: 0, bytes, scratch: beginning.scratch });
            let leading = ExecutionDriver::new(Arc::clone(&this), namespace, run, kept, sender, inbox);
            this.tracker.spawn(leading.lead(commands, false));
            Ok(())
        });
        match tokio::time::timeout(START_WITHIN, begun).await {
            Ok(begun) => begun.map_err(|_| ExecutionError::ShuttingDown)??,
            // It begins when it is written.
            Err(_) => return Err(ExecutionError::Undecided),
        }
        metrics::counter!("nigh_executions_started_total", "kind" => "standard").increment(1);
        Ok(started)
    }

    fn start_unkept(
        &self,
        namespace: &Namespace,
        machine: &Machine,
        new: NewExecution,
    ) -> Result<ExpressExecution, ExecutionError> {
        let inner = &self.0;
        if inner.parts.over.is_cancelled() {
            return Err(ExecutionError::ShuttingDown);
        }
        let NewExecution { id, name, input, seen: token } = new;
        let (id, name) = (*id.as_bytes(), given_name(name, id));
        let now = inner.now();
        let arn = express_arn(&inner.parts.region, &machine.name, &name, &InvocationId::of_bytes(id).to_string());
        let facts = Facts { arn: arn.clone(), ..inner.facts(machine, &name, id, now) };
        let place = inner.index.lock().begin_unkept(inner.limits.running_max);
        if !place {
            return Err(ExecutionError::TooMany(inner.limits.running_max));
        }
        let (run, commands) = Run::start(Arc::clone(&machine.definition), facts, input, token, false);
        let (sender, inbox) = mpsc::channel(leading::INBOX);
        let mut leading = ExecutionDriver::new(Arc::clone(inner), namespace.clone(), run, None, sender.clone(), inbox);
        leading.scratch = machine.scratch.clone();
        let ended = leading.ended();
        inner.tracker.spawn(leading.lead(commands, false));
        metrics::counter!("nigh_executions_started_total", "kind" => "express").increment(1);
        Ok(ExpressExecution { started: StartedExecution { arn, at: now }, ended, inbox: sender })
    }

    /// Runs an execution of an express machine to its end.
    ///
    /// # Errors
    /// If it cannot be started, or takes too long.
    pub async fn run(
        &self,
        namespace: &Namespace,
        machine: &Machine,
        new: NewExecution,
    ) -> Result<SyncExecutionResult, ExecutionError> {
        self.0.check(&new.input)?;
        let ExpressExecution { mut ended, inbox, .. } = self.start_unkept(namespace, machine, new)?;
        let waited = tokio::time::timeout(SYNC_MAX, ended.wait_for(Option::is_some)).await;
        let end = match waited {
            Ok(Ok(end)) => end.clone(),
            Ok(Err(_)) => None,
            Err(_) => {
                // Nobody waits for it any more.
                let (done, _) = oneshot::channel();
                let _ = inbox.try_send(Message::Stop { error: None, cause: None, done });
                return Err(ExecutionError::TooLong);
            }
        };
        end.ok_or(ExecutionError::ShuttingDown)
    }

    /// Stops an execution: what of it runs goes on to its end, and counts no more. Gives when it ended.
    ///
    /// # Errors
    /// If there is none.
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
                // It ended by itself in this moment, if nobody says.
                let _ = stopped.await;
            }
        }
        let (_, entry) = self.0.found(namespace, machine, name)?;
        entry.head.end.map(|end| end.stopped).ok_or(ExecutionError::ShuttingDown)
    }

    /// An execution with all that is known of it.
    ///
    /// # Errors
    /// If there is none, or it cannot be read.
    pub async fn describe(
        &self,
        namespace: &Namespace,
        machine: &WorkflowName,
        name: &WorkflowName,
    ) -> Result<ExecutionDescription, ExecutionError> {
        let (id, entry) = self.0.found(namespace, machine, name)?;
        let histories = &self.0.parts.histories;
        let gone = || ExecutionError::NotFound(name.to_string());
        let read = |event: Option<Vec<u8>>| event.map(|event| (0, event)).into_iter().collect::<Vec<_>>();
        let beginning = read(histories.event(id, 0).await?);
        if beginning.is_empty() {
            return Err(gone());
        }
        let beginning = execution_row::decode(id, &beginning)?.beginning;
        let output = match &entry.head.end {
            None => None,
            Some(_) => execution_row::decode_outcome(id, histories.event(id, u64::MAX).await?)?,
        };
        let output = match output {
            Some(Outcome::Succeeded { output }) => Some(output),
            _ => None,
        };
        Ok(ExecutionDescription {
            listed: self.0.listed(&entry),
            input: beginning.input,
            output,
            definition: beginning.definition,
            role: entry.head.role.clone(),
        })
    }

    /// At most `limit` executions of a machine, newest first, from those older than `before` on; and where to go on.
    #[must_use]
    pub fn list(
        &self,
        namespace: &Namespace,
        machine: &WorkflowName,
        status: Option<&str>,
        before: Option<HistoryId>,
        limit: usize,
    ) -> (Vec<ExecutionSummary>, Option<HistoryId>) {
        let (found, more) = self.0.index.lock().list(namespace, machine, status, before, limit);
        (found.iter().map(|entry| self.0.listed(entry)).collect(), more)
    }

    /// What happened to an execution, as it is shown.
    ///
    /// # Errors
    /// If there is none, or it cannot be read.
    pub async fn history(
        &self,
        namespace: &Namespace,
        machine: &WorkflowName,
        name: &WorkflowName,
    ) -> Result<Vec<HistoryEvent>, ExecutionError> {
        let (id, entry) = self.0.found(namespace, machine, name)?;
        if let Some(inbox) = &entry.inbox {
            let (shown, asked) = oneshot::channel();
            if inbox.send(Message::History(shown)).await.is_ok()
                && let Ok(shown) = asked.await
            {
                return Ok(shown);
            }
        }
        // It has ended, now if not before.
        let (run, _) = self.0.replay(id, &entry.head).await?;
        Ok(run.shown().to_vec())
    }

    /// Starts nothing more, and waits until what has ended is written. What runs goes on in the node's next life. To be
    /// called before the invoker drains, and awaited after it.
    pub fn close(&self) -> impl Future<Output = ()> + use<> {
        self.0.parts.over.cancel();
        self.0.tracker.close();
        let inner = Arc::clone(&self.0);
        async move {
            if tokio::time::timeout(CLOSE_WAIT, inner.tracker.wait()).await.is_err() {
                tracing::warn!("executions could not be written; they go on from before at the next start");
            }
        }
    }
}

/// An execution that somebody has started: its beginning is written when its leader answers.
async fn stands(
    inbox: Option<mpsc::Sender<Message>>,
    started: StartedExecution,
) -> Result<StartedExecution, ExecutionError> {
    let Some(inbox) = inbox else { return Ok(started) };
    let (begun, answer) = oneshot::channel();
    if inbox.send(Message::Begun(begun)).await.is_err() {
        return Ok(started);
    }
    match tokio::time::timeout(START_WITHIN, answer).await {
        Ok(Ok(())) => Ok(started),
        Ok(Err(_)) => Err(ExecutionError::ShuttingDown),
        Err(_) => Err(ExecutionError::Undecided),
    }
}

/// The name that was given, or the id.
fn given_name(name: Option<WorkflowName>, id: InvocationId) -> WorkflowName {
    // An id has the letters of a name.
    let own = || WorkflowName::new(&id.to_string());
    name.map_or_else(own, Ok).unwrap_or_else(|_| unreachable!("a UUID is a name"))
}

impl ExecutionsState {
    /// Now, by the date that never jumps.
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

    fn facts(&self, machine: &Machine, name: &WorkflowName, id: HistoryId, started: Timestamp) -> Facts {
        let region = &self.parts.region;
        Facts {
            id,
            arn: execution_arn(region, &machine.name, name),
            name: name.to_string(),
            machine_arn: machine_arn(region, &machine.name),
            machine: machine.name.to_string(),
            role: machine.role.clone(),
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

    fn listed(&self, Entry { head, .. }: &Entry) -> ExecutionSummary {
        ExecutionSummary {
            arn: execution_arn(&self.parts.region, &head.machine, &head.name),
            machine_arn: machine_arn(&self.parts.region, &head.machine),
            name: head.name.clone(),
            status: head.end.as_ref().map_or("RUNNING", |end| &end.status).to_owned(),
            started: head.started,
            stopped: head.end.as_ref().map(|end| end.stopped),
            error: head.end.as_ref().and_then(|end| end.error.clone()),
            cause: head.end.as_ref().and_then(|end| end.cause.clone()),
        }
    }

    /// An execution as its events make it.
    async fn replay(&self, id: HistoryId, head: &Head) -> Result<(Run, StoredExecution), ExecutionError> {
        let kept = execution_row::decode(id, &self.parts.histories.events(id).await?)?;
        let Beginning { definition, input, token, scratch } = kept.beginning;
        let definition =
            read(&definition).map_err(|problems| ExecutionError::Definition(InvocationId::of_bytes(id), problems))?;
        let facts = Facts {
            id,
            arn: execution_arn(&self.parts.region, &head.machine, &head.name),
            name: head.name.to_string(),
            machine_arn: machine_arn(&self.parts.region, &head.machine),
            machine: head.machine.to_string(),
            role: head.role.clone(),
            started: head.started,
        };
        let (mut run, _) = Run::start(Arc::new(definition), facts, input, token, true);
        for event in &kept.events {
            run.apply(event);
        }
        let events = kept.events.len() as u64;
        Ok((run, StoredExecution { id, head: head.clone(), events, bytes: kept.bytes, scratch }))
    }

    /// Goes on with an execution that was begun before.
    async fn resume(self: &Arc<Self>, id: HistoryId, head: Head) -> Result<(), ExecutionError> {
        let (run, kept) = self.replay(id, &head).await?;
        let (sender, inbox) = mpsc::channel(leading::INBOX);
        let namespace = head.namespace.clone();
        self.index.lock().insert(id, Entry::of_running(head, sender.clone()));
        let leading = ExecutionDriver::new(Arc::clone(self), namespace, run, Some(kept), sender, inbox);
        self.tracker.spawn(leading.lead(Vec::new(), true));
        Ok(())
    }

    /// Removes the oldest of those that ended, while there are more than are kept.
    async fn forget_oldest(&self) -> Result<(), RegistryError> {
        let gone = self.index.lock().take_surplus(self.limits.kept_max, self.limits.kept_bytes);
        if !gone.is_empty() {
            // They are found again at the next start, should they not be gone by then.
            drop(self.parts.histories.queue(gone.into_iter().map(|id| HistoryChange::Remove { id }).collect()).await?);
        }
        Ok(())
    }
}
