//! The record of one invocation: what happened, when, and where its time went.

pub mod cost;
pub mod idempotence;
pub mod phases;
pub mod stack_trace;
pub mod touched;

use std::time::Duration;

use nigh_data::DataOperation;
use nigh_terms::{ByteSize, FunctionName, InvocationId, Namespace, SandboxId, Timestamp, Token};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What an invocation's sandbox was made from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SandboxStart {
    /// Nothing, or a blank sandbox.
    #[default]
    Cold,
    /// A pre-warmed sandbox: its runtime had done its imports.
    Prewarmed,
    /// The function's own: an earlier invocation ran in it.
    Warm,
}

/// The steps of making a sandbox, with their durations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Steps {
    /// What the sandbox was made from; never `Warm`.
    pub start: SandboxStart,
    /// The time to set up the isolation; zero for a blank or pre-warmed sandbox.
    pub walls: Duration,
    /// The time to mount the code; zero if the code was part of the root.
    pub mount: Duration,
    /// The time from then until the command ran.
    pub launch: Duration,
}

/// How an invocation ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Outcome {
    /// The handler answered.
    Answered,
    /// The handler raised an error; Lambda's `Unhandled`.
    HandlerError {
        /// The error's type.
        error_type: String,
        /// The error's message.
        message: String,
    },
    /// The code could not be loaded, or the process ended before its first request.
    InitError {
        /// The error's type.
        error_type: String,
        /// The error's message.
        message: String,
    },
    /// The invocation ran longer than its function's timeout.
    TimedOut,
    /// The sandbox exceeded its booking.
    OutOfMemory,
    /// The sandbox's process ended before it responded.
    Crashed {
        /// How, as a sentence without its subject: `exited with status 3`.
        reason: String,
    },
    /// The node ended it: it was stopping, and the time to drain was over.
    Stopped,
}

/// One S3 call of an invocation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DataCallRecord {
    /// The outcome: `hit`, `miss`, `past`, `metadata`, `write`, `delete`, `failed`.
    pub served: String,
    /// The name of the bucket.
    pub bucket: String,
    /// The key; none for a call without one.
    pub key: Option<String>,
    /// Bytes read or written.
    pub bytes: u64,
    /// Microseconds from the handler's start to the call's begin.
    pub began_us: u64,
    /// The call's length in microseconds.
    pub took_us: u64,
    /// What the call was to do, if it was under way when the handler ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub under_way: Option<DataOperation>,
}

impl DataCallRecord {
    /// True if the call read an object.
    #[must_use]
    pub fn is_read(&self) -> bool {
        matches!(self.served.as_str(), "hit" | "miss" | "past")
    }
}

/// Where the handler's time went, in microseconds. Reads are extraction, writes are load, the rest is transformation;
/// calls that overlap count once (OFC section 2.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Phases {
    /// Time in which a read was under way.
    pub extract_us: u64,
    /// Time in which no call was under way.
    pub transform_us: u64,
    /// Time in which only writes were under way.
    pub load_us: u64,
}

/// Where the time of a cold start went, in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct MakingTimes {
    /// Isolation; zero for a blank or pre-warmed sandbox.
    pub walls_us: u64,
    /// Mounting the code.
    pub mount_us: u64,
    /// The time from then until its process ran.
    pub launch_us: u64,
}

impl From<Steps> for MakingTimes {
    fn from(steps: Steps) -> Self {
        let [walls_us, mount_us, launch_us] =
            [steps.walls, steps.mount, steps.launch].map(|took| took.as_micros() as u64);
        Self { walls_us, mount_us, launch_us }
    }
}

/// The memory of an invocation beside its peak.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct MemoryUse {
    /// The page cache at the end, which the kernel reclaims when memory is short, so it is not needed. None if not
    /// measured.
    pub page_cache: Option<ByteSize>,
    /// Number of times that the grant was raised during the run.
    pub grown: u32,
    /// True if the run reached the booking: it needs at least its peak.
    pub reached_booked: bool,
    /// True if the run reached a limit below the booking.
    #[serde(default)]
    pub came_short: bool,
    /// Microseconds to set the limit before the run.
    #[serde(default)]
    pub step_us: u64,
    /// Microseconds that the run then waited for the cache to shrink.
    #[serde(default)]
    pub waited_us: u64,
}

/// The setting of a function that an invocation came up against.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "setting", rename_all = "snake_case")]
pub enum ExceededLimit {
    /// The time-out of the handler.
    Timeout {
        /// The limit in microseconds.
        limit_us: u64,
    },
    /// The time-out of the initialisation: the function's time-out, but at least what the node gives every function.
    InitTimeout {
        /// The limit in microseconds.
        limit_us: u64,
    },
    /// The memory that it booked.
    Memory {
        /// The booking.
        booked: ByteSize,
    },
}

/// One invocation's record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Activation {
    /// The id of the invocation.
    pub id: InvocationId,
    /// The number of the attempt to run an event, from 1; all attempts have the event's id.
    #[serde(default = "first")]
    pub attempt: u32,
    /// The namespace.
    pub namespace: Namespace,
    /// The name of the function.
    pub function: FunctionName,
    /// The SHA-256 of its code.
    pub code_sha256: String,
    /// The sandbox that it ran in; none if it had none.
    pub sandbox: Option<SandboxId>,
    /// True if the sandbox was made for it.
    pub cold: bool,
    /// What the sandbox was made from: memory peaks depend on that. None in records of earlier versions.
    #[serde(default)]
    pub sandbox_start: Option<SandboxStart>,
    /// When the caller sent it.
    pub start: Timestamp,
    /// Microseconds until it had a sandbox.
    pub wait_us: u64,
    /// Microseconds to make and initialise the sandbox; zero if warm.
    pub init_us: u64,
    /// The parts of `init_us` before the handler's module was loaded; zero if warm.
    #[serde(default)]
    pub making: MakingTimes,
    /// The data calls of the sandbox's initialisation, up to a limit; `began_us` counts from its start.
    #[serde(default)]
    pub init_data_calls: Vec<DataCallRecord>,
    /// Microseconds from the handler's start to its answer.
    pub duration_us: u64,
    /// The parts of the duration.
    pub phases: Phases,
    /// Each data call, up to a limit; `data_calls_omitted` counts the others.
    pub data_calls: Vec<DataCallRecord>,
    /// Data calls that are counted in `phases` but not listed.
    pub data_calls_omitted: u64,
    /// Data calls served from memory.
    pub hits: u64,
    /// Data calls served by the store.
    pub misses: u64,
    /// The memory that the function booked.
    pub booked: ByteSize,
    /// The memory granted for this run.
    pub granted: ByteSize,
    /// The most memory used; none if not measured.
    pub peak_memory: Option<ByteSize>,
    /// The memory that a model predicted for it, whatever was granted; none without a prediction.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub predicted_memory: Option<ByteSize>,
    /// Further facts about its memory.
    #[serde(default)]
    pub memory: MemoryUse,
    /// How the invocation ended.
    pub outcome: Outcome,
    /// The limit that ended it; none if none did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exceeded: Option<ExceededLimit>,
    /// The frames of the error that its runtime reported, one a line, shortened (`stack_trace`).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stack_trace: Vec<String>,
    /// The handlers that the code has, if the one that is configured was not found: `main.handle`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub handlers: Vec<String>,
    /// The names at the top of the code that are installed packages, if `stack_trace` leads into folders.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub packages: Vec<String>,
    /// The notes of the hooks.
    pub notes: Vec<String>,
    /// Why it got this sandbox: the scheduler's decision.
    pub placement: String,
    /// The trace that it belongs to, in hexadecimal; none if it belongs to none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace_id: Option<String>,
    /// The token of what it had seen at its end.
    pub token: Token,
    /// The end of its output.
    pub log: String,
    /// Bytes of output before `log`, beyond the limit.
    pub log_omitted: u64,
}

impl Activation {
    /// When it ended.
    #[must_use]
    pub const fn ended(&self) -> Timestamp {
        Timestamp(self.start.millis() + (self.wait_us + self.init_us + self.duration_us) / 1000)
    }
}

/// The attempt in records written before there were events.
const fn first() -> u32 {
    1
}
