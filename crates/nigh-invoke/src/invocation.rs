//! An invocation as the doors request it, and its result.

pub(crate) mod broken_program;
pub(crate) mod code_look;
pub mod gate;
pub mod phase_accountant;
pub(crate) mod request;
pub mod run_dispatched;
pub(crate) mod verdict;

use async_trait::async_trait;
use bytes::Bytes;
use nigh_functions::function_network::NetworkRefusal;
use nigh_protocol::GateRefusal;
use nigh_sandbox::log_capture::TAIL_BYTES;
use nigh_schedule::activation::touched::TouchedObject;
use nigh_schedule::scheduler::lost_invocation::LossError;
use nigh_terms::{FunctionName, InvocationId, Namespace, NodeNumber, Principal, Token};
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// The largest input of a synchronous invocation (Lambda quotas: 6 MB).
pub const REQUEST_BYTES_MAX: usize = 6 * 1024 * 1024;

/// The request of a client.
#[derive(Clone, Debug)]
pub struct InvokeRequest {
    /// The function.
    pub function: FunctionName,
    /// The handler's input: JSON.
    pub payload: Bytes,
    /// Lambda's `ClientContext`, passed through.
    pub client_context: Option<String>,
    /// What the caller had seen.
    pub token: Token,
    /// Set for an event, which has its id already.
    pub event: Option<EventAttempt>,
}

/// The written object that triggered an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TriggerObject {
    /// The node that wrote it.
    pub node: NodeNumber,
    /// Its bytes.
    pub bytes: u64,
}

/// An attempt to run an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EventAttempt {
    /// The event: the request id of all its attempts.
    pub id: InvocationId,
    /// The number of the attempt, from 1.
    pub attempt: u32,
    /// The object that triggered the event.
    pub wrote: Option<TriggerObject>,
}

impl EventAttempt {
    /// The first attempt of an event that no object triggered.
    #[must_use]
    pub const fn first(id: InvocationId) -> Self {
        Self { id, attempt: 1, wrote: None }
    }
}

/// The result of an invocation, for its caller.
#[derive(Clone, Debug)]
pub struct InvocationResult {
    /// Lambda's request id.
    pub id: InvocationId,
    /// The handler's answer, or Lambda's error object.
    pub payload: Bytes,
    /// `Unhandled` if the function failed: the value of `X-Amz-Function-Error`.
    pub function_error: Option<&'static str>,
    /// The end of its log.
    pub log: Vec<u8>,
    /// How long it took.
    pub run: RunTimes,
    /// What it had seen at its end.
    pub token: Token,
    /// Objects that it read and wrote; not all, if they are many.
    pub touched: Vec<TouchedObject>,
}

/// How long a run took, in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunTimes {
    /// Until it had a sandbox.
    pub wait_us: u64,
    /// How long the cold start took, if there was one.
    pub init_us: Option<u64>,
    /// From the handler's start to its answer; zero if the handler did not start.
    pub duration_us: u64,
    /// Printed bytes that the log does not have any more.
    pub log_omitted: u64,
}

impl InvocationResult {
    /// The last 4 KiB of its log.
    #[must_use]
    pub fn log_tail(&self) -> &[u8] {
        &self.log[self.log.len().saturating_sub(TAIL_BYTES)..]
    }
}

/// Why an invocation did not run. No byte of it has run, unless it is `Lost`.
#[derive(Debug, Error)]
#[expect(missing_docs, reason = "each message says what the fields hold")]
pub enum InvokeError {
    #[error("function not found: {0}")]
    NotFound(FunctionName),
    #[error("rate exceeded: {0}")]
    TooManyRequests(String),
    #[error("rate exceeded: {function} runs {limit} invocations, which is its reserved concurrency")]
    ReservedConcurrency { function: FunctionName, limit: usize },
    #[error("{0}")]
    InvalidRequest(String),
    #[error("the payload has {size} bytes, {limit} are allowed")]
    PayloadTooLarge { size: usize, limit: usize },
    #[error("{0}")]
    Network(#[from] NetworkRefusal),
    #[error("rate exceeded: {0}")]
    Gate(#[from] GateRefusal),
    #[error("{0}")]
    Lost(#[from] LossError),
    #[error("Nigh is shutting down")]
    ShuttingDown,
    #[error("{0}")]
    Internal(String),
}

/// An invocation that may come soon.
#[derive(Clone, Debug)]
pub struct UpcomingInvocation {
    /// The function.
    pub function: FunctionName,
    /// Its input, if it is known; else the last input of the function stands for it.
    pub input: Option<Bytes>,
    /// The invocation after which it comes.
    pub after: Option<InvocationId>,
}

/// Runs invocations for the doors.
#[async_trait]
pub trait Invoke: Send + Sync {
    /// Runs `request` to its end.
    async fn invoke(&self, who: &Principal, request: InvokeRequest) -> Result<InvocationResult, InvokeError>;
    /// What the caller of an invocation has seen: nothing, unless the caller runs in an invocation itself.
    fn seen(&self, who: &Principal) -> Token;
    /// `next` may come soon: a sandbox may be made for it, if there is free room, and prepared.
    fn prepare(&self, _namespace: &Namespace, _next: UpcomingInvocation) {}
    /// The result of an earlier invocation, by whichever caller, once it has ended. None if no node knows it.
    async fn find(&self, _namespace: &Namespace, _id: InvocationId) -> Option<InvocationResult> {
        None
    }
    /// Reserves `concurrency` of the invocations that may run at once for this function, which then has neither more nor less.
    /// None: the function shares what no function has reserved.
    fn set_reserved(&self, namespace: &Namespace, function: &FunctionName, concurrency: Option<usize>);
}
