//! The heads of the calls and answers between processes. Pure.
//!
//! Heads are MessagePack with names, as those of objects' calls; inputs and answers of functions are the bodies.

use nigh_functions::function_network::NetworkRefusal;
use nigh_invoke::invocation::{InvocationResult, InvokeError, RunTimes, TriggerObject};
use nigh_objects::HoldingsPage;
use nigh_protocol::{GateRefusal, Member};
use nigh_rpc::Method;
use nigh_schedule::activation::touched::TouchedObject;
use nigh_schedule::scheduler::lost_invocation::LossError;
use nigh_schedule::scheduler::vacancy::Vacancy;
use nigh_terms::{FunctionName, InvocationId, Namespace, NodeId, Token};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// The first method number of dispatch.
pub const FIRST_DISPATCH_METHOD: u16 = 64;
/// The form of the heads.
const FORMAT: u8 = 1;
const HEAD_MAX: u32 = 1 << 20;
/// The longest input or answer.
pub(super) const BODY_MAX: u64 = 8 << 20;

const fn method(number: u16, name: &'static str, body_max: u64) -> Method {
    Method { number: FIRST_DISPATCH_METHOD + number, name, head_max: HEAD_MAX, body_max }
}

/// An owner has a node run an invocation; answered at its end.
pub(super) static RUN: Method = method(0, "run", BODY_MAX);
/// An owner asks for a run that it has sent; answered at its end.
pub(super) static ASK: Method = method(1, "ask", 0);
/// A node reports its free capacity and its copies to a controller; answered by whether the report was taken.
pub(super) static REPORT: Method = method(2, "report", 0);
/// A process hands an invocation to its owner.
pub(super) static INVOKE: Method = method(3, "invoke", BODY_MAX);
/// A process hands an owner the token of a writer outside.
pub(super) static HAND_OVER: Method = method(4, "hand_over", 0);
/// A new owner announces its term to a node.
pub(super) static ANNOUNCE: Method = method(5, "announce", 0);

/// A process whose owner has expired asks a node for an invocation; answered at its end.
pub(super) static FIND: Method = method(6, "find", 0);

/// A process hands a request of the Step Functions API to the owner of the namespace.
pub(super) static STATES: Method = method(7, "states", BODY_MAX);
/// An owner has a node prepare for the next invocation of a function.
pub(super) static PREPARE: Method = method(8, "prepare", 0);

/// The methods that nodes which run functions answer.
pub(super) static OF_NODES: [&Method; 5] = [&RUN, &ASK, &ANNOUNCE, &FIND, &PREPARE];
/// The methods that controllers answer.
pub(super) static OF_CONTROLLERS: [&Method; 4] = [&REPORT, &INVOKE, &HAND_OVER, &STATES];

/// Names one sending of an invocation to a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub(super) struct RunId {
    pub(super) invocation: InvocationId,
    /// Of an event; 1 for others.
    pub(super) attempt: u32,
    /// The term of the owner.
    pub(super) term: u64,
    /// How often the owner has sent the invocation before.
    pub(super) send: u32,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct RunHead {
    pub(super) run: RunId,
    /// The incarnation of the node.
    pub(super) to: Member,
    pub(super) namespace: Namespace,
    pub(super) function: FunctionName,
    /// The version of the function that the owner knows.
    pub(super) revision: String,
    pub(super) client_context: Option<String>,
    pub(super) token: Token,
    /// How the node was chosen, in words.
    pub(super) why: String,
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct AskHead {
    pub(super) run: RunId,
    pub(super) to: Member,
}

/// An invocation whose owner has expired.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct FindHead {
    pub(super) invocation: InvocationId,
    /// None: the last attempt that the node knows.
    pub(super) attempt: Option<u32>,
    pub(super) to: Member,
}

/// The result of an invocation; its answer is the body.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct EndedHead {
    pub(super) id: InvocationId,
    pub(super) failed: bool,
    /// The end of its log.
    pub(super) log_tail: Vec<u8>,
    pub(super) token: Token,
    #[serde(default)]
    pub(super) touched: Vec<TouchedObject>,
    #[serde(default)]
    pub(super) run: RunTimes,
}

/// What a node answers to `run`, `ask` and `find`, and a controller to `invoke`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) enum RunAnswer {
    /// It has ended. If it is not `settled`, there may be a later owner, who must hear of its token first.
    Ended { ended: EndedHead, settled: bool },
    /// It does not run here; no byte of it has run.
    NotRun(NotRun),
    /// The sender's term is over, or the receiver does not own the namespace; no byte of it has run.
    TermOver,
    /// It has never arrived, and will be refused if it arrives later.
    NeverHeard,
    /// It may have run and does not run now; its answer is forgotten. All forgotten runs had seen `token`.
    Forgotten { token: Token },
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct ReportHead {
    pub(super) node: NodeId,
    pub(super) from: Member,
    /// Grows with each report.
    pub(super) serial: u64,
    pub(super) vacancy: Vacancy,
    /// The versions that the node covers.
    pub(super) covered: Token,
    /// The changes of its copies.
    #[serde(default)]
    pub(super) holdings: HoldingsNews,
}

/// Copies that came to a node and went since its last report.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct HoldingsNews {
    /// Earlier reports count no more.
    pub(super) anew: bool,
    /// The fingerprint of the object's name, and the bytes of its copy; None if the copy is gone.
    pub(super) changes: Vec<(u64, Option<u64>)>,
}

impl HoldingsNews {
    pub(super) fn of(page: &HoldingsPage) -> Self {
        let changes = page.changes.iter().map(|change| (change.object.0, change.bytes)).collect();
        Self { anew: page.anew, changes }
    }
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct InvokeHead {
    pub(super) namespace: Namespace,
    pub(super) function: FunctionName,
    pub(super) id: InvocationId,
    /// Of an event; none for others.
    pub(super) attempt: Option<u32>,
    /// The written object that triggered the event.
    #[serde(default)]
    pub(super) wrote: Option<TriggerObject>,
    /// How often the invocation was handed on before.
    pub(super) send: u32,
    /// The caller only asks for an invocation that it has handed on before.
    pub(super) again: bool,
    pub(super) client_context: Option<String>,
    pub(super) token: Token,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct HandOverHead {
    pub(super) namespace: Namespace,
    pub(super) token: Token,
}

/// What a controller answers to `hand_over`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum HandOverAnswer {
    /// The next dispatch will carry the token.
    Taken,
    NotOwner,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct AnnounceHead {
    pub(super) namespace: Namespace,
    pub(super) term: u64,
    /// The incarnation of the node.
    pub(super) to: Member,
}

/// A request of the Step Functions API for the owner of its namespace; the request is the body.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct AskedStates {
    /// The namespace of the caller.
    pub namespace: Namespace,
    /// The operation's name.
    pub operation: String,
    /// The id of the execution that it starts, if it starts one.
    pub id: InvocationId,
    /// What the caller had seen.
    pub seen: Token,
    /// The state machine that it names, and the revision that the sender knows.
    pub machine: Option<(String, u64)>,
}

/// What a controller answers to `states`; the answer of the API is the body.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) enum StatesAnswer {
    /// With this HTTP status.
    Answered(u16),
    NotOwner,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct PrepareHead {
    pub(super) namespace: Namespace,
    pub(super) function: FunctionName,
    /// The invocation at whose end it comes.
    pub(super) after: Option<InvocationId>,
    /// The incarnation of the node.
    pub(super) to: Member,
}

/// `InvokeError` between processes.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) enum NotRun {
    NotFound(FunctionName),
    TooManyRequests(String),
    ReservedConcurrency { function: FunctionName, limit: usize },
    InvalidRequest(String),
    PayloadTooLarge { size: usize, limit: usize },
    Network(NetworkRefusal),
    Gate(GateRefusal),
    Lost(LossError),
    ShuttingDown,
    Internal(String),
}

impl From<InvokeError> for NotRun {
    fn from(error: InvokeError) -> Self {
        match error {
            InvokeError::NotFound(function) => Self::NotFound(function),
            InvokeError::TooManyRequests(why) => Self::TooManyRequests(why),
            InvokeError::ReservedConcurrency { function, limit } => Self::ReservedConcurrency { function, limit },
            InvokeError::InvalidRequest(why) => Self::InvalidRequest(why),
            InvokeError::PayloadTooLarge { size, limit } => Self::PayloadTooLarge { size, limit },
            InvokeError::Network(refusal) => Self::Network(refusal),
            InvokeError::Gate(refusal) => Self::Gate(refusal),
            InvokeError::Lost(loss) => Self::Lost(loss),
            InvokeError::ShuttingDown => Self::ShuttingDown,
            InvokeError::Internal(why) => Self::Internal(why),
        }
    }
}

impl From<NotRun> for InvokeError {
    fn from(not_run: NotRun) -> Self {
        match not_run {
            NotRun::NotFound(function) => Self::NotFound(function),
            NotRun::TooManyRequests(why) => Self::TooManyRequests(why),
            NotRun::ReservedConcurrency { function, limit } => Self::ReservedConcurrency { function, limit },
            NotRun::InvalidRequest(why) => Self::InvalidRequest(why),
            NotRun::PayloadTooLarge { size, limit } => Self::PayloadTooLarge { size, limit },
            NotRun::Network(refusal) => Self::Network(refusal),
            NotRun::Gate(refusal) => Self::Gate(refusal),
            NotRun::Lost(loss) => Self::Lost(loss),
            NotRun::ShuttingDown => Self::ShuttingDown,
            NotRun::Internal(why) => Self::Internal(why),
        }
    }
}

impl RunAnswer {
    /// The bytes of its log.
    pub(super) fn log_bytes(&self) -> usize {
        match self {
            Self::Ended { ended, .. } => ended.log_tail.len(),
            Self::NotRun(_) | Self::TermOver | Self::NeverHeard | Self::Forgotten { .. } => 0,
        }
    }
}

impl EndedHead {
    pub(super) fn of(invoked: &InvocationResult) -> Self {
        Self {
            id: invoked.id,
            failed: invoked.function_error.is_some(),
            log_tail: invoked.log.clone(),
            token: invoked.token.clone(),
            touched: invoked.touched.clone(),
            run: invoked.run,
        }
    }

    pub(super) fn with(self, payload: bytes::Bytes) -> InvocationResult {
        let Self { id, failed, log_tail, token, touched, run } = self;
        InvocationResult {
            id,
            payload,
            function_error: failed.then_some("Unhandled"),
            log: log_tail,
            run,
            token,
            touched,
        }
    }
}

/// Writes a head.
pub(super) fn encode(head: &impl Serialize) -> Vec<u8> {
    let mut bytes = vec![FORMAT];
    // Heads are plain data, and a vector takes all bytes.
    rmp_serde::encode::write_named(&mut bytes, head).unwrap_or_else(|error| unreachable!("a head: {error}"));
    bytes
}

/// Reads a head.
///
/// # Errors
/// Why it cannot be read.
pub(super) fn decode<T: DeserializeOwned>(head: &[u8]) -> Result<T, String> {
    match head.split_first() {
        Some((&FORMAT, rest)) => rmp_serde::from_slice(rest).map_err(|error| error.to_string()),
        Some((other, _)) => Err(format!(
            "the message head has format {other}, and this process reads {FORMAT}: run the same release of Nigh on both sides"
        )),
        None => Err("the message head is empty".to_owned()),
    }
}

/// Reads any head, for the fuzzer: none may panic.
#[doc(hidden)]
pub fn fuzz(head: &[u8]) {
    let _ = decode::<RunHead>(head);
    let _ = decode::<AskHead>(head);
    let _ = decode::<RunAnswer>(head);
    let _ = decode::<ReportHead>(head);
    let _ = decode::<InvokeHead>(head);
    let _ = decode::<FindHead>(head);
    let _ = decode::<HandOverHead>(head);
    let _ = decode::<HandOverAnswer>(head);
    let _ = decode::<AnnounceHead>(head);
    let _ = decode::<AskedStates>(head);
    let _ = decode::<StatesAnswer>(head);
    let _ = decode::<PrepareHead>(head);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_is_read_as_it_was_written_and_another_form_is_refused() {
        let head = AnnounceHead {
            namespace: Namespace::new("tenant").unwrap(),
            term: 4,
            to: Member { node: nigh_terms::NodeNumber(1), incarnation: nigh_terms::Incarnation(2) },
        };
        let mut bytes = encode(&head);
        let read: AnnounceHead = decode(&bytes).unwrap();
        assert_eq!((read.namespace, read.term, read.to), (head.namespace, head.term, head.to));
        bytes[0] = FORMAT + 1;
        assert!(decode::<AnnounceHead>(&bytes).unwrap_err().contains("same release of Nigh"));
        assert!(decode::<AnnounceHead>(&[]).is_err());
    }

    #[test]
    fn errors_come_out_as_they_went_in() {
        let errors = [
            InvokeError::Gate(GateRefusal::NotCovered),
            InvokeError::Lost(LossError::MayHaveRun),
            InvokeError::TooManyRequests("why".to_owned()),
            InvokeError::PayloadTooLarge { size: 2, limit: 1 },
        ];
        for error in errors {
            let text = error.to_string();
            let read: NotRun = decode(&encode(&NotRun::from(error))).unwrap();
            assert_eq!(InvokeError::from(read).to_string(), text);
        }
    }
}
