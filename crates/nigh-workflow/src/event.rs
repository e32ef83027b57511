//! Events of an execution, and the commands that follow from them: pure. Events are stored, commands are not.

use std::sync::Arc;

use nigh_terms::{FunctionName, InvocationId, Timestamp, Token};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The facts of an execution, which never change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facts {
    /// The execution's id: sixteen bytes that sort by time.
    pub id: [u8; 16],
    /// The execution's ARN.
    pub arn: String,
    /// The execution's name.
    pub name: String,
    /// The state machine's ARN.
    pub machine_arn: String,
    /// The state machine's name.
    pub machine: String,
    /// The role that its owner gave; Nigh only returns it.
    pub role: String,
    /// When it began.
    pub started: Timestamp,
}

/// The number of a task: dense, from 1, in the order in which tasks begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct TaskId(pub u64);

/// The outcome of a task.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TaskEnd {
    /// The task's function answered.
    Answered(Value),
    /// The task failed, or could not be run.
    Failed {
        /// The error's name.
        error: String,
        /// The error's description.
        cause: String,
    },
}

/// The kind of an event, with its data.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ExecutionEvent {
    /// A task has ended.
    Ended {
        /// The id of the task.
        task: TaskId,
        /// The task's outcome.
        end: TaskEnd,
        /// The token of what it had seen.
        token: Token,
    },
    /// A timer is due.
    Time,
    /// Somebody stopped the execution.
    Stopped {
        /// The given error name; none if none was given.
        error: Option<String>,
        /// The given cause; none if none was given.
        cause: Option<String>,
    },
}

/// An event with its time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Event {
    /// When it happened; never earlier than the previous event.
    pub at: Timestamp,
    /// What happened. Neither flattened nor internally tagged: serde cannot read tokens back that way.
    pub what: ExecutionEvent,
}

/// An invocation to make.
#[derive(Clone, Debug, PartialEq)]
pub struct TaskRun {
    /// The id of the task.
    pub task: TaskId,
    /// The name of its state.
    pub state: Arc<str>,
    /// The invocation's request id: a replay gives the same.
    pub invocation: InvocationId,
    /// The name of the function.
    pub function: FunctionName,
    /// The function's input.
    pub payload: Value,
    /// Lambda's `ClientContext`, as JSON; none if the task sets none.
    pub client_context: Option<String>,
    /// True if it is queued as an event, so that its end is not awaited.
    pub later: bool,
    /// The token of what the tasks before it had seen.
    pub token: Token,
}

/// What the shell must do for an execution.
#[derive(Clone, Debug, PartialEq)]
pub enum Command {
    /// Invoke a function.
    Invoke(TaskRun),
    /// Ignore the end of this task.
    Forget(TaskId),
    /// The execution is over.
    Finish(Outcome),
}

/// The outcome of an execution.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "status", rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Outcome {
    /// The execution reached its end.
    Succeeded {
        /// The output.
        output: Value,
    },
    /// The execution failed with an error that nothing caught.
    Failed {
        /// The error's name.
        error: Option<String>,
        /// The error's description.
        cause: Option<String>,
    },
    /// The execution ran longer than its machine allows.
    TimedOut,
    /// A client stopped the execution.
    Aborted {
        /// The given error name; none if none was given.
        error: Option<String>,
        /// The given cause; none if none was given.
        cause: Option<String>,
    },
}

impl Outcome {
    /// The status in the API.
    #[must_use]
    pub const fn status(&self) -> &'static str {
        match self {
            Self::Succeeded { .. } => "SUCCEEDED",
            Self::Failed { .. } => "FAILED",
            Self::TimedOut => "TIMED_OUT",
            Self::Aborted { .. } => "ABORTED",
        }
    }
}
