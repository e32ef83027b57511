//! What controllers and nodes say to each other: the heads of their calls and answers. Pure.
//!
//! MessagePack with names, as the heads of objects' calls; inputs and answers of functions are bodies beside them.

use nigh_functions::function_network::NetworkRefusal;
use nigh_invoke::invocation::{InvocationResult, InvokeError, RunTimes, TriggerObject};
use nigh_objects::HoldingsPage;
use nigh_protocol::{GateRefusal, Member};
use nigh_rpc::Method;
use nigh_schedule::scheduler::lost_invocation::LossError;
use nigh_schedule::touched::TouchedObject;
use nigh_schedule::vacancy::Vacancy;
use nigh_terms::{FunctionName, InvocationId, Namespace, NodeId, Token};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// The numbers of methods from here on are those of dispatch.
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
/// An owner asks what became of one that it has sent; answered at its end.
pub(super) static ASK: Method = method(1, "ask", 0);
/// A node tells a controller of its room and its copies; answered by whether it was heard.
pub(super) static REPORT: Method = method(2, "report", 0);
/// A process hands an invocation to its owner.
pub(super) static INVOKE: Method = method(3, "invoke", BODY_MAX);
/// A process tells an owner what a writer outside has written.
pub(super) static HAND_OVER: Method = method(4, "hand_over", 0);
/// A new owner tells a node its term.
pub(super) static ANNOUNCE: Method = method(5, "announce", 0);

/// Whoever handed an invocation to an owner that is gone asks a node whether it has it; answered at its end.
pub(super) static FIND: Method = method(6, "find", 0);

/// A process hands a request of the Step Functions API to who owns the namespace; the request's body goes with it.
pub(super) static STATES: Method = method(7, "states", BODY_MAX);
/// An owner has a node make ready what the next invocation of a function needs.
pub(super) static PREPARE: Method = method(8, "prepare", 0);

/// Those that nodes which run functions answer.
pub(super) static OF_NODES: [&Method; 5] = [&RUN, &ASK, &ANNOUNCE, &FIND, &PREPARE];
/// Those that controllers answer.
pub(super) static OF_CONTROLLERS: [&Method; 4] = [&REPORT, &INVOKE, &HAND_OVER, &STATES];

/// Names one sending of an invocation to a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub(super) struct RunId {
    pub(super) invocation: InvocationId,
    /// Of an event; 1 for others.
    pub(super) attempt: u32,
    /// The owner's.
    pub(super) term: u64,
    /// How often the owner has sent it before.
    pub(super) send: u32,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct RunHead {
    pub(super) run: RunId,
    /// For exactly this life of the node.
    pub(super) to: Member,
    pub(super) namespace: Namespace,
    pub(super) function: FunctionName,
    /// The version as the owner knows it.
    pub(super) revision: String,
    pub(super) client_context: Option<String>,
    pub(super) token: Token,
    /// How the node was chosen, for explanations.
    pub(super) why: String,
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct AskHead {
    pub(super) run: RunId,
    pub(super) to: Member,
}

/// An invocation whose owner is gone.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct FindHead {
    pub(super) invocation: InvocationId,
    /// None: the last one that the node knows.
    pub(super) attempt: Option<u32>,
    pub(super) to: Member,
}

/// How an invocation ended; its answer is the body.
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
    /// It has ended. Without `settled` there may be another owner by now, who is to hear of its token first.
    Ended { ended: EndedHead, settled: bool },
    /// It does not run here, and no byte of it has run.
    NotRun(NotRun),
    /// The term of who sent it is over, or who was asked does not own the namespace; no byte of it has run.
    TermOver,
    /// It was never heard of, and will not be taken if it still comes.
    NeverHeard,
    /// It may have run; its answer is not kept any more. It does not run now, and all such had seen this.
    Forgotten { token: Token },
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct ReportHead {
    pub(super) node: NodeId,
    pub(super) from: Member,
    /// Grows with each.
    pub(super) serial: u64,
    pub(super) vacancy: Vacancy,
    /// How far the node's memory has come.
    pub(super) covered: Token,
    /// What has changed of its copies.
    #[serde(default)]
    pub(super) holdings: HoldingsNews,
}

/// Copies that came to a node and went, since it told last.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct HoldingsNews {
    /// What was told before counts no more.
    pub(super) anew: bool,
    /// The print of the object's name, and what its copy takes; nothing if there is none any more.
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
    /// The object that the event tells of.
    #[serde(default)]
    pub(super) wrote: Option<TriggerObject>,
    /// How often it was handed on before.
    pub(super) send: u32,
    /// It is only asked what became of it.
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
    /// The next dispatch, by whomever, knows of it.
    Taken,
    NotOwner,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct AnnounceHead {
    pub(super) namespace: Namespace,
    pub(super) term: u64,
    /// For this life of the node.
    pub(super) to: Member,
}

/// A request of the Step Functions API, for who owns its namespace; its body goes beside it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct AskedStates {
    /// On whose behalf.
    pub namespace: Namespace,
    /// The operation's name.
    pub operation: String,
    /// The id of the execution that it starts, if it starts one.
    pub id: InvocationId,
    /// What its caller has seen.
    pub seen: Token,
    /// The state machine that it names, and the revision in which it is known where it came from.
    pub machine: Option<(String, u64)>,
}

/// What a controller answers to `states`; the answer itself is the body.
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
    /// For this life of the node.
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
    /// What of it is log.
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
    // What is written has no form of its own that could fail, and a vector takes all.
    if let Err(error) = rmp_serde::encode::write_named(&mut bytes, head) {
        tracing::error!(%error, "the head of a call cannot be written");
    }
    bytes
}

/// Reads a head.
///
/// # Errors
/// Why it is none.
pub(super) fn decode<T: DeserializeOwned>(head: &[u8]) -> Result<T, String> {
    match head.split_first() {
        Some((&FORMAT, rest)) => rmp_serde::from_slice(rest).map_err(|error| error.to_string()),
        Some((other, _)) => Err(format!("a head of form {other}, where {FORMAT} is known: both need the same Nigh")),
        None => Err("an empty head".to_owned()),
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
        assert!(decode::<AnnounceHead>(&bytes).unwrap_err().contains("same Nigh"));
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
