//! Executions for people: lists, descriptions, histories.

use async_recursion::async_recursion as boxed;
use nigh_engine::HistoryId;
use nigh_terms::{Namespace, Timestamp};
use serde_json::Value;
use tokio::sync::oneshot;

use super::index::Entry;
use super::leading::Message;
use super::{ExecutionError, Executions, ExecutionsState, row};
use crate::arn::{WorkflowName, execution_arn, machine_arn};
use crate::event::Outcome;
use crate::history::HistoryEvent;

/// An execution in a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExecutionSummary {
    /// The execution's ARN.
    pub arn: String,
    /// The ARN of the execution's state machine.
    pub machine_arn: String,
    /// The execution's name.
    pub name: WorkflowName,
    /// `RUNNING`, `SUCCEEDED`, `FAILED`, `TIMED_OUT` or `ABORTED`.
    pub status: String,
    /// When it began.
    pub started: Timestamp,
    /// When it ended; none while it runs.
    pub stopped: Option<Timestamp>,
    /// The error's name; none if it has none.
    pub error: Option<String>,
    /// The error's description; none if it has none.
    pub cause: Option<String>,
}

/// The description of an execution.
#[derive(Clone, Debug, PartialEq)]
pub struct ExecutionDescription {
    /// The execution's entry in a list.
    pub listed: ExecutionSummary,
    /// The execution's input.
    pub input: Value,
    /// The execution's output. None if it has not succeeded.
    pub output: Option<Value>,
    /// The definition that it runs.
    pub definition: String,
    /// The execution's role; Nigh only returns it.
    pub role: String,
}

impl Executions {
    /// Describes an execution.
    ///
    /// # Errors
    /// If there is none, or it cannot be read.
    #[boxed]
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
        let beginning = row::decode(id, &beginning)?.beginning;
        let output = match &entry.head.end {
            None => None,
            Some(_) => row::decode_outcome(id, histories.event(id, u64::MAX).await?)?,
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

    /// At most `limit` executions of a machine that are older than `before`, newest first; and where the next page
    /// begins.
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

    /// The history of an execution.
    ///
    /// # Errors
    /// If there is none, or it cannot be read.
    #[boxed]
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
        // The execution has ended meanwhile.
        let (run, _) = self.0.replay(id, &entry.head).await?;
        Ok(run.shown().to_vec())
    }
}

impl ExecutionsState {
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
}
