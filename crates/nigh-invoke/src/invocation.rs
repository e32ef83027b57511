//! An invocation as the doors ask for it, and what they get.

use async_trait::async_trait;
use bytes::Bytes;
use nigh_functions::function_network::NetworkRefusal;
use nigh_protocol::GateRefusal;
use nigh_sandbox::log_capture::TAIL_BYTES;
use nigh_schedule::scheduler::lost_invocation::LossError;
use nigh_schedule::touched::TouchedObject;
use nigh_terms::{FunctionName, InvocationId, Namespace, NodeNumber, Principal, Token};
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// What a client asks.
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
    /// Set if it is an attempt to run an event, which has its id already.
    pub event: Option<EventAttempt>,
}

/// An object that was written, of which an event tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TriggerObject {
    /// The node at which.
    pub node: NodeNumber,
    /// Its bytes.
    pub bytes: u64,
}

/// One of the attempts to run an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EventAttempt {
    /// The event: the request id of all its attempts.
    pub id: InvocationId,
    /// Which attempt it is, from 1.
    pub attempt: u32,
    /// The object that it tells of was written so: it is there, whoever else has heard of it.
    pub wrote: Option<TriggerObject>,
}

impl EventAttempt {
    /// The first of what tells of no object.
    #[must_use]
    pub const fn first(id: InvocationId) -> Self {
        Self { id, attempt: 1, wrote: None }
    }
}

/// How it ended, for the caller.
#[derive(Clone, Debug)]
pub struct InvocationResult {
    /// Lambda's request id.
    pub id: InvocationId,
    /// The handler's answer, or Lambda's error object.
    pub payload: Bytes,
    /// `Unhandled` if the function failed: the value of `X-Amz-Function-Error`.
    pub function_error: Option<&'static str>,
    /// The end of its log, as far as it is kept.
    pub log: Vec<u8>,
    /// How long it took.
    pub run: RunTimes,
    /// What it had seen at its end.
    pub token: Token,
    /// What it read and wrote, as far as it is told of.
    pub touched: Vec<TouchedObject>,
}

/// How long a run took, in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunTimes {
    /// Until a sandbox had it.
    pub wait_us: u64,
    /// The making of the sandbox, of a cold start.
    pub init_us: Option<u64>,
    /// From the handler's start to its answer; zero if it did not come to its start.
    pub duration_us: u64,
    /// Bytes printed that are not in the log any more.
    pub log_omitted: u64,
}

impl InvocationResult {
    /// The last 4 KiB of its log.
    #[must_use]
    pub fn log_tail(&self) -> &[u8] {
        &self.log[self.log.len().saturating_sub(TAIL_BYTES)..]
    }
}

/// Why an invocation did not run. Nothing of it was executed, but of one that was lost.
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

/// An invocation that may come soon, as far as it is known.
#[derive(Clone, Debug)]
pub struct UpcomingInvocation {
    /// The function.
    pub function: FunctionName,
    /// Its input, if that can be told; else the last one that the function had stands for it.
    pub input: Option<Bytes>,
    /// The invocation at whose end it comes.
    pub after: Option<InvocationId>,
}

/// Runs invocations: what the doors stand on.
#[async_trait]
pub trait Invoke: Send + Sync {
    /// Runs `request` to its end.
    async fn invoke(&self, who: &Principal, request: InvokeRequest) -> Result<InvocationResult, InvokeError>;
    /// What the caller of an invocation has seen, by which that is to begin: nothing, but for one that itself runs in an
    /// invocation.
    fn seen(&self, who: &Principal) -> Token;
    /// `next` may come soon: if its function has no idle sandbox, and there is free room, one may be made, and what it will
    /// need may be made ready.
    fn prepare(&self, _namespace: &Namespace, _next: UpcomingInvocation) {}
    /// How the invocation `id` ended that was made before, by whomever, once it has; nothing if no node knows of it.
    async fn find(&self, _namespace: &Namespace, _id: InvocationId) -> Option<InvocationResult> {
        None
    }
    /// From now on `concurrency` of the invocations that may run at once are this function's, neither more nor less;
    /// with none it shares what no function has reserved.
    fn set_reserved(&self, namespace: &Namespace, function: &FunctionName, concurrency: Option<usize>);
}
