//! What happens to an execution, and what is to be done for it: pure. Events are kept; commands follow from them.

use nigh_terms::{FunctionName, InvocationId, Timestamp, Token};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// What of an execution never changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facts {
    /// Names it for ever: sixteen bytes that sort by time.
    pub id: [u8; 16],
    /// Its ARN.
    pub arn: String,
    /// Its name.
    pub name: String,
    /// The state machine's ARN.
    pub machine_arn: String,
    /// The state machine's name.
    pub machine: String,
    /// The role that its owner gave; kept and given back.
    pub role: String,
    /// When it began.
    pub started: Timestamp,
}

/// One task of an execution: an invocation. Dense, from 1, in the order in which they begin.
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
    /// The time of something has come.
    Time,
    /// Somebody stopped the execution.
    Stopped {
        /// The error's name that they gave.
        error: Option<String>,
        /// And the cause.
        cause: Option<String>,
    },
}

/// Something that happened, and when.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Event {
    /// When; never before the event before it.
    pub at: Timestamp,
    /// What. Neither flattened nor tagged within: tokens are not read back that way.
    pub what: ExecutionEvent,
}

/// An invocation that is to be made.
#[derive(Clone, Debug, PartialEq)]
pub struct TaskRun {
    /// The task.
    pub task: TaskId,
    /// The invocation's request id: the same whenever these events are gone through.
    pub invocation: InvocationId,
    /// The function.
    pub function: FunctionName,
    /// Its input.
    pub payload: Value,
    /// Lambda's `ClientContext`: JSON.
    pub client_context: Option<String>,
    /// It is to be left in the queue of events, and its end not waited for.
    pub later: bool,
    /// What those before it had seen.
    pub token: Token,
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq)]
pub enum Command {
    /// A function is to be invoked.
    Invoke(TaskRun),
    /// Nobody waits for this task's end any more.
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
        /// The error's name that they gave.
        error: Option<String>,
        /// And the cause.
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
