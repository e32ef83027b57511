//! Events of an execution and the commands that follow from them: pure. Events are stored, commands are not.

use nigh_terms::{FunctionName, InvocationId, Timestamp, Token};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The facts of an execution, which never change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facts {
    /// Its id: sixteen bytes that sort by time.
    pub id: [u8; 16],
    /// Its ARN.
    pub arn: String,
    /// Its name.
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

/// How a task ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TaskEnd {
    /// Its function answered.
    Answered(Value),
    /// It failed, or could not be run.
    Failed {
        /// The error's name.
        error: String,
        /// What is known of it.
        cause: String,
    },
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ExecutionEvent {
    /// A task has ended.
    Ended {
        /// Which.
        task: TaskId,
        /// How.
        end: TaskEnd,
        /// What it had seen.
        token: Token,
    },
    /// A timer is due.
    Time,
    /// Somebody stopped the execution.
    Stopped {
        /// The given error name.
        error: Option<String>,
        /// The given cause.
        cause: Option<String>,
    },
}

/// Something that happened, and when.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Event {
    /// When; never earlier than the previous event.
    pub at: Timestamp,
    /// What happened. Neither flattened nor internally tagged: serde cannot read tokens back that way.
    pub what: ExecutionEvent,
}

/// An invocation to make.
#[derive(Clone, Debug, PartialEq)]
pub struct TaskRun {
    /// The task.
    pub task: TaskId,
    /// The invocation's request id: a replay gives the same.
    pub invocation: InvocationId,
    /// The function.
    pub function: FunctionName,
    /// Its input.
    pub payload: Value,
    /// Lambda's `ClientContext`: JSON.
    pub client_context: Option<String>,
    /// It is queued as an event, and its end is not awaited.
    pub later: bool,
    /// What the tasks before it had seen.
    pub token: Token,
}

/// What an execution has its shell do.
#[derive(Clone, Debug, PartialEq)]
pub enum Command {
    /// Invoke a function.
    Invoke(TaskRun),
    /// Ignore the end of this task.
    Forget(TaskId),
    /// The execution is over.
    Finish(Outcome),
}

/// How an execution ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "status", rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Outcome {
    /// To its end.
    Succeeded {
        /// What came out.
        output: Value,
    },
    /// By an error that nothing caught.
    Failed {
        /// The error's name.
        error: Option<String>,
        /// What is known of it.
        cause: Option<String>,
    },
    /// It ran longer than its machine lets it.
    TimedOut,
    /// Somebody stopped it.
    Aborted {
        /// The given error name.
        error: Option<String>,
        /// The given cause.
        cause: Option<String>,
    },
}

impl Outcome {
    /// As the API says it.
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
