//! Starts executions.

use std::sync::Arc;
use std::time::Duration;

use async_recursion::async_recursion as boxed;
use nigh_terms::{InvocationId, Namespace, Timestamp, Token};
use tokio::sync::{mpsc, oneshot, watch};

use super::execution_trace::ExecutionTrace;
use super::index::Entry;
use super::leading::{self, ExecutionDriver, Message, StoredExecution};
use super::row::{self, Beginning, Head};
use super::{ExecutionError, Executions, NewExecution, SYNC_MAX};
use crate::arn::{WorkflowName, express_arn};
use crate::event::{Facts, Outcome};
use crate::machine_store::{Machine, MachineKind};
use crate::run::Run;

/// How long the first write may take; after that the outcome of the start is unknown.
const START_WITHIN: Duration = Duration::from_secs(20);

/// A started execution.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StartedExecution {
    /// The execution's ARN.
    pub arn: String,
    /// When it started.
    pub at: Timestamp,
}

/// The result of a synchronous execution.
#[derive(Clone, Debug, PartialEq)]
pub struct SyncExecutionResult {
    /// The execution's ARN.
    pub arn: String,
    /// The execution's name.
    pub name: WorkflowName,
    /// When it began.
    pub started: Timestamp,
    /// When it ended.
    pub stopped: Timestamp,
    /// The execution's outcome.
    pub outcome: Outcome,
    /// The token of what its tasks had seen.
    pub token: Token,
}

/// An execution that is in memory only.
struct ExpressExecution {
    started: StartedExecution,
    ended: watch::Receiver<Option<SyncExecutionResult>>,
    inbox: mpsc::Sender<Message>,
}

impl Executions {
    /// Starts an execution. If one of the same name runs with the same input, returns that one.
    ///
    /// # Errors
    /// If another execution has used its name, the input is too large, too many run, or it cannot be stored.
    #[boxed]
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
        let digest = row::digest(&input);
        let (namespace, now) = (namespace.clone(), inner.now());
        let facts = inner.facts(id, &machine.name, &name, &machine.role, now);
        let head = Head::new(namespace.clone(), machine.name.clone(), name, machine.role.clone(), now, digest.clone());
        let (sender, inbox) = mpsc::channel(leading::INBOX);
        let there = {
            let mut index = inner.index.lock();
            let there = index.find(&namespace, &head.machine, &head.name).map(|(known, there)| (known, there.clone()));
            if there.is_none() {
                if index.running(&namespace) >= inner.limits.running_max {
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
        let trace = ExecutionTrace::begin();
        let beginning = Beginning {
            definition: machine.text.to_string(),
            input: input.clone(),
            token: token.clone(),
            scratch: machine.scratch.clone(),
            trace: trace.map(|trace| trace.to_string()),
        };
        let (this, definition) = (Arc::clone(inner), Arc::clone(&machine.definition));
        // A separate task: if the caller goes away, an execution that is on the disk still runs.
        let begun = inner.tracker.spawn(async move {
            let kept = async {
                let changes = vec![head.change(id)?, row::begin(id, &beginning)?];
                let bytes = changes.iter().map(row::bytes_of).sum();
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
            let kept = Some(StoredExecution { id, head, events: 0, bytes, scratch: beginning.scratch, trace });
            let leading = ExecutionDriver::new(Arc::clone(&this), namespace, run, kept, sender, inbox);
            this.tracker.spawn(leading.lead(commands, false));
            Ok(())
        });
        match tokio::time::timeout(START_WITHIN, begun).await {
            Ok(begun) => begun.map_err(|_| ExecutionError::ShuttingDown)??,
            // The execution starts once it is stored.
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
        let facts = Facts { arn: arn.clone(), ..inner.facts(id, &machine.name, &name, &machine.role, now) };
        let place = inner.index.lock().begin_unkept(namespace, inner.limits.running_max);
        if !place {
            return Err(ExecutionError::TooMany(inner.limits.running_max));
        }
        let (run, commands) = Run::start(Arc::clone(&machine.definition), facts, input, token, false);
        let (sender, inbox) = mpsc::channel(leading::INBOX);
        let mut leading = ExecutionDriver::new(Arc::clone(inner), namespace.clone(), run, None, sender.clone(), inbox);
        leading.scratch = machine.scratch.clone();
        leading.trace = ExecutionTrace::begin();
        let ended = leading.ended();
        inner.tracker.spawn(leading.lead(commands, false));
        metrics::counter!("nigh_executions_started_total", "kind" => "express").increment(1);
        Ok(ExpressExecution { started: StartedExecution { arn, at: now }, ended, inbox: sender })
    }

    /// Runs an execution of an express machine to its end.
    ///
    /// # Errors
    /// If it cannot be started, or takes too long.
    #[boxed]
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
                // The caller no longer waits.
                let (done, _) = oneshot::channel();
                let _ = inbox.try_send(Message::Stop { error: None, cause: None, done });
                return Err(ExecutionError::TooLong);
            }
        };
        end.ok_or(ExecutionError::ShuttingDown)
    }
}

/// Waits until another caller's execution is stored: then its driver answers.
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

/// The given name, or the id.
fn given_name(name: Option<WorkflowName>, id: InvocationId) -> WorkflowName {
    // The characters of a UUID are valid in names.
    let own = || WorkflowName::new(&id.to_string());
    name.map_or_else(own, Ok).unwrap_or_else(|_| unreachable!("a UUID is a name"))
}
