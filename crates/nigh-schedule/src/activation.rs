//! The record of one invocation: what happened, when, and where its time went.

pub mod cost;
pub mod idempotence;
pub mod phases;
pub mod touched;

use std::time::Duration;

use nigh_terms::{ByteSize, FunctionName, InvocationId, Namespace, SandboxId, Timestamp, Token};
use serde::{Deserialize, Serialize};

/// What an invocation's sandbox was made from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
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

/// How a sandbox was made, and how long each step took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Steps {
    /// What it was made from; never `Warm`.
    pub start: SandboxStart,
    /// How long its isolation took; zero for a blank or pre-warmed sandbox.
    pub walls: Duration,
    /// How long mounting the code took; zero if it was part of the root.
    pub mount: Duration,
    /// From then until its command ran.
    pub launch: Duration,
}

/// How an invocation ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Outcome {
    /// The handler answered.
    Answered,
    /// The handler raised; Lambda's `Unhandled`.
    HandlerError {
        /// The error's type.
        error_type: String,
        /// Its message.
        message: String,
    },
    /// The code could not be loaded, or the process ended before its first request.
    InitError {
        /// The error's type.
        error_type: String,
        /// Its message.
        message: String,
    },
    /// It ran longer than its function may.
    TimedOut,
    /// The sandbox needed more memory than it may have.
    OutOfMemory,
    /// The sandbox's process ended before it answered.
    Crashed {
        /// How, as a sentence without its subject: `exited with status 3`.
        reason: String,
    },
    /// The node ended it: it was stopping, and the time to drain was over.
    Stopped,
}

/// One S3 call of an invocation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DataCallRecord {
    /// How it was served: `hit`, `miss`, `past`, `metadata`, `write`, `delete`, `failed`.
    pub served: String,
    /// The bucket.
    pub bucket: String,
    /// The key, if it has one.
    pub key: Option<String>,
    /// Bytes read or written.
    pub bytes: u64,
    /// Microseconds from the handler's start to the call's.
    pub began_us: u64,
    /// Its length in microseconds.
    pub took_us: u64,
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
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Phases {
    /// Reading inputs.
    pub extract_us: u64,
    /// Neither reading nor writing.
    pub transform_us: u64,
    /// Writing outputs.
    pub load_us: u64,
}

/// Where the time of a cold start went, in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MakingTimes {
    /// Isolation; zero for a blank or pre-warmed sandbox.
    pub walls_us: u64,
    /// Mounting the code.
    pub mount_us: u64,
    /// From then until its process ran.
    pub launch_us: u64,
}

impl From<Steps> for MakingTimes {
    fn from(steps: Steps) -> Self {
        let [walls_us, mount_us, launch_us] =
            [steps.walls, steps.mount, steps.launch].map(|took| took.as_micros() as u64);
        Self { walls_us, mount_us, launch_us }
    }
}

/// How the memory of an invocation behaved, beside its peak.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemoryUse {
    /// The page cache at the end, which the kernel reclaims when memory is short: it is no need.
    pub page_cache: Option<ByteSize>,
    /// How often the grant was raised while it ran.
    pub grown: u32,
    /// It reached what was booked: it needs at least its peak.
    pub reached_booked: bool,
    /// It reached a limit below what was booked.
    #[serde(default)]
    pub came_short: bool,
    /// Microseconds that setting its limit took before it ran.
    #[serde(default)]
    pub step_us: u64,
    /// Microseconds that it waited after that for the cache to shrink.
    #[serde(default)]
    pub waited_us: u64,
}

/// One invocation's record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Activation {
    /// The invocation.
    pub id: InvocationId,
    /// The number of the attempt to run an event, from 1; all attempts have the event's id.
    #[serde(default = "first")]
    pub attempt: u32,
    /// The namespace.
    pub namespace: Namespace,
    /// The function.
    pub function: FunctionName,
    /// The version of its code.
    pub code_sha256: String,
    /// The sandbox that it ran in, if it had one.
    pub sandbox: Option<SandboxId>,
    /// True if the sandbox was made for it.
    pub cold: bool,
    /// What the sandbox was made from: memory peaks differ by that. None in records of earlier versions.
    #[serde(default)]
    pub sandbox_start: Option<SandboxStart>,
    /// When the caller asked for it.
    pub start: Timestamp,
    /// Microseconds until it had a sandbox.
    pub wait_us: u64,
    /// Microseconds of making and initialising the sandbox, zero if warm.
    pub init_us: u64,
    /// The parts of `init_us` before the handler's module was loaded, zero if warm.
    #[serde(default)]
    pub making: MakingTimes,
    /// The data calls of the sandbox's initialisation, up to a limit; `began_us` counts from its start.
    #[serde(default)]
    pub init_data_calls: Vec<DataCallRecord>,
    /// Microseconds from the handler's start to its answer.
    pub duration_us: u64,
    /// Where the duration went.
    pub phases: Phases,
    /// Each data call, up to a limit; `data_calls_omitted` counts the others.
    pub data_calls: Vec<DataCallRecord>,
    /// Data calls that are counted in `phases` but not listed.
    pub data_calls_omitted: u64,
    /// Data calls served from memory.
    pub hits: u64,
    /// Data calls served by the store.
    pub misses: u64,
    /// The memory booked.
    pub booked: ByteSize,
    /// The memory granted for this run.
    pub granted: ByteSize,
    /// The most memory used, where it can be measured.
    pub peak_memory: Option<ByteSize>,
    /// What else is known of its memory.
    #[serde(default)]
    pub memory: MemoryUse,
    /// How it ended.
    pub outcome: Outcome,
    /// What the hooks said.
    pub notes: Vec<String>,
    /// Why this sandbox: the scheduler's decision.
    pub placement: String,
    /// What it had seen at its end.
    pub token: Token,
    /// The end of what it printed.
    pub log: String,
    /// Bytes it printed beyond the limit.
    pub log_omitted: u64,
}

/// For records written before there were events.
const fn first() -> u32 {
    1
}
