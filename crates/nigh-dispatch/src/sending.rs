//! An invocation on its way: from its owner to a node, and from any process to its owner.
//!
//! When a call breaks, its outcome is unknown. The same incarnation of the node is asked again until it answers or is no member
//! any more; only then is the invocation lost.

use std::time::Duration;

use bytes::Bytes;
use futures::future::join_all;
use nigh_engine::{NodeRole, PresentMember};
use nigh_invoke::invocation::{InvocationResult, InvokeError};
use nigh_protocol::{GateRefusal, Member};
use nigh_rpc::{CallAnswer, CallError, Fate, Method};
use nigh_schedule::scheduler::lost_invocation::LossError;
use nigh_terms::{InvocationId, NodeId, Token};
use tokio::time::Instant;

use crate::dispatcher_state::{DispatcherState, Task};
use crate::owners::{PAUSE, address};
use crate::wire::{
    ASK, AskHead, AskedStates, BODY_MAX, FIND, FindHead, INVOKE, InvokeHead, NotRun, RUN, RunAnswer, RunHead, STATES,
    StatesAnswer, decode, encode,
};

/// How long a call may take beyond the function's timeout: a sandbox may be made, and the outcome of writes awaited. After that
/// the node is asked again.
const BEYOND: Duration = Duration::from_secs(60);
/// How long one call may take that hands an invocation on.
const HANDED_ON: Duration = Duration::from_secs(900);
/// How long a request of the Step Functions API may take at the owner.
const STATES_WITHIN: Duration = Duration::from_secs(30);

/// What came of a sending.
pub(super) enum SendOutcome {
    Ended {
        invoked: InvocationResult,
        /// When the run ended there was no later owner.
        settled: bool,
    },
    /// The node does not run it; another may. No byte of it has run.
    NotHere(InvokeError),
    /// No node may run it.
    NotRun(InvokeError),
    /// Another owner dispatches the namespace.
    TermOver,
    /// It may have run. With a token: its node is a member and has forgotten it. Without: its node has expired and must be fenced.
    Lost(Option<Token>),
}

/// What came of a call to a node.
enum NodeAnswer {
    Said(Box<RunAnswer>, Bytes),
    NotSent(CallError),
    Unknown,
    /// The node was no member: nothing was sent.
    Absent,
    /// The node is no member any more; the outcome of the call is unknown.
    Gone,
}

impl DispatcherState {
    /// Sends an invocation to the node and the incarnation that `head` names, and waits for its end.
    pub(super) async fn send(&self, node: &NodeId, head: &RunHead, payload: &Bytes, timeout: Duration) -> SendOutcome {
        let (to, run) = (head.to, head.run);
        let by = Instant::now() + timeout + BEYOND;
        let mut heard = self.hear(node, to, &RUN, &encode(head), payload.clone(), by).await;
        let mut was_sent = false;
        loop {
            match heard {
                NodeAnswer::Said(answer, body) => return sent(*answer, body),
                NodeAnswer::NotSent(error) if !was_sent => {
                    return SendOutcome::NotHere(InvokeError::TooManyRequests(format!(
                        "the node does not answer: {error}"
                    )));
                }
                NodeAnswer::Absent if !was_sent => {
                    return SendOutcome::NotHere(InvokeError::TooManyRequests(
                        "the node is no member any more".to_owned(),
                    ));
                }
                NodeAnswer::Gone | NodeAnswer::Absent => return SendOutcome::Lost(None),
                NodeAnswer::NotSent(_) | NodeAnswer::Unknown => {}
            }
            was_sent = true;
            tokio::time::sleep(PAUSE).await;
            let ask = encode(&AskHead { run, to });
            heard = self.hear(node, to, &ASK, &ask, Bytes::new(), Instant::now() + timeout + BEYOND).await;
        }
    }

    /// Calls a node. Returns when it answers, the call fails, or this incarnation is no member any more.
    async fn hear(
        &self,
        node: &NodeId,
        to: Member,
        method: &'static Method,
        head: &[u8],
        body: Bytes,
        by: Instant,
    ) -> NodeAnswer {
        let is_it = |member: &PresentMember| (&member.node, member.incarnation) == (node, to.incarnation);
        let mut present = self.parts.present.clone();
        let Some(member) = present.borrow().iter().find(|member| is_it(member)).cloned() else {
            return NodeAnswer::Absent;
        };
        let peer = address(&member);
        let called = async {
            match self.parts.peers.call(&peer, method, head, body, by).await {
                Ok(answer) => said(answer).await,
                Err(error) if error.fate() == Fate::NotSent => NodeAnswer::NotSent(error),
                Err(error) => {
                    tracing::debug!(%node, %error, "the outcome of a call is unknown");
                    NodeAnswer::Unknown
                }
            }
        };
        tokio::select! {
            biased;
            heard = called => heard,
            _ = present.wait_for(|members| !members.iter().any(is_it)) => NodeAnswer::Gone,
        }
    }

    /// Hands a task to `owner`. None if `owner` does not own the namespace: then nothing was done.
    pub(super) async fn hand_on(
        &self,
        owner: &PresentMember,
        task: &Task,
        sends: &mut u32,
    ) -> Result<Option<InvocationResult>, InvokeError> {
        let Task { namespace, request, id, attempt, .. } = task;
        let mut head = InvokeHead {
            namespace: namespace.clone(),
            function: request.function.clone(),
            id: *id,
            attempt: request.event.is_some().then_some(*attempt),
            wrote: request.event.and_then(|event| event.wrote),
            send: *sends,
            again: false,
            client_context: request.client_context.clone(),
            token: request.token.clone(),
        };
        *sends += 1;
        metrics::counter!("nigh_dispatch_handed_on_total").increment(1);
        let to = Member { node: owner.presence.number, incarnation: owner.incarnation };
        loop {
            let payload = if head.again { Bytes::new() } else { request.payload.clone() };
            let heard = self.hear(&owner.node, to, &INVOKE, &encode(&head), payload, Instant::now() + HANDED_ON).await;
            let (answer, body) = match heard {
                NodeAnswer::Said(answer, body) => (*answer, body),
                NodeAnswer::NotSent(_) | NodeAnswer::Absent if !head.again => (RunAnswer::TermOver, Bytes::new()),
                NodeAnswer::NotSent(_) | NodeAnswer::Unknown => {
                    head.again = true;
                    tokio::time::sleep(PAUSE).await;
                    continue;
                }
                NodeAnswer::Absent | NodeAnswer::Gone => {
                    self.not_owner(namespace);
                    return self.find(task).await.map(Some);
                }
            };
            return match sent(answer, body) {
                SendOutcome::Ended { invoked, .. } => Ok(Some(invoked)),
                SendOutcome::NotRun(error) => Err(error),
                // The owner has tried the other nodes.
                SendOutcome::NotHere(error) if !head.again => Err(error),
                SendOutcome::NotHere(_) | SendOutcome::TermOver => {
                    self.not_owner(namespace);
                    tokio::time::sleep(PAUSE).await;
                    Ok(None)
                }
                SendOutcome::Lost(_) => Err(LossError::MayHaveRun.into()),
            };
        }
    }

    /// The owner of a task has expired. Looks for the run at the nodes once the next owner has announced its term: from then on
    /// nobody else sends it. If no node has it, it may have run at a node that has expired too.
    async fn find(&self, task: &Task) -> Result<InvocationResult, InvokeError> {
        let Task { namespace, id, attempt, .. } = task;
        tracing::warn!(invocation = %id, "the owner of a namespace was lost with an invocation; the nodes are asked for it");
        self.until_handed_over(namespace, &Token::empty()).await;
        let found = self.find_run(*id, Some(*attempt)).await.ok_or(LossError::MayHaveRun)?;
        self.until_handed_over(namespace, &found.token).await;
        Ok(found)
    }

    /// The result of an invocation that a node runs or has run, once it has ended. None if no node knows it.
    pub(super) async fn find_run(&self, invocation: InvocationId, attempt: Option<u32>) -> Option<InvocationResult> {
        let nodes: Vec<PresentMember> =
            self.parts.present.borrow().iter().filter(|one| one.has(NodeRole::Run)).cloned().collect();
        let asked = nodes.iter().map(|node| async move {
            let to = Member { node: node.presence.number, incarnation: node.incarnation };
            let head = encode(&FindHead { invocation, attempt, to });
            loop {
                let by = Instant::now() + HANDED_ON;
                match self.hear(&node.node, to, &FIND, &head, Bytes::new(), by).await {
                    NodeAnswer::Said(answer, body) => return Some((*answer, body)),
                    NodeAnswer::Absent | NodeAnswer::Gone => return None,
                    NodeAnswer::NotSent(_) | NodeAnswer::Unknown => tokio::time::sleep(PAUSE).await,
                }
            }
        });
        let ended = |(answer, body)| match answer {
            RunAnswer::Ended { ended, .. } => Some(ended.with(body)),
            _ => None,
        };
        join_all(asked).await.into_iter().flatten().find_map(ended)
    }

    /// Hands a request of the Step Functions API to `owner`: the status and the body of its answer.
    pub(super) async fn ask_states(
        &self,
        owner: &PresentMember,
        asked: &AskedStates,
        body: Bytes,
    ) -> Result<Option<(u16, Bytes)>, String> {
        let by = Instant::now() + STATES_WITHIN;
        let answer = self.parts.peers.call(&address(owner), &STATES, &encode(asked), body, by).await;
        let answer = answer.map_err(|error| error.to_string())?;
        let said: StatesAnswer = decode(&answer.head)?;
        let body = answer.body.collect(BODY_MAX).await.map_err(|error| error.to_string())?;
        Ok(match said {
            StatesAnswer::Answered(status) => Some((status, body)),
            StatesAnswer::NotOwner => None,
        })
    }
}

async fn said(answer: CallAnswer) -> NodeAnswer {
    let read = decode::<RunAnswer>(&answer.head);
    match (read, answer.body.collect(BODY_MAX).await) {
        (Ok(answer), Ok(body)) => NodeAnswer::Said(Box::new(answer), body),
        (Err(why), _) => {
            tracing::warn!(why, "an answer of a node cannot be read");
            NodeAnswer::Unknown
        }
        (_, Err(_)) => NodeAnswer::Unknown,
    }
}

fn sent(answer: RunAnswer, body: Bytes) -> SendOutcome {
    match answer {
        RunAnswer::Ended { ended, settled } => SendOutcome::Ended { invoked: ended.with(body), settled },
        RunAnswer::TermOver => SendOutcome::TermOver,
        RunAnswer::NeverHeard => {
            SendOutcome::NotHere(InvokeError::TooManyRequests("the node has not heard of the invocation".to_owned()))
        }
        RunAnswer::Forgotten { token } => SendOutcome::Lost(Some(token)),
        RunAnswer::NotRun(not_run) => match not_run {
            // Another node may be able to run it.
            NotRun::Gate(GateRefusal::NotCovered | GateRefusal::Crowded | GateRefusal::OtherIncarnation)
            | NotRun::TooManyRequests(_)
            | NotRun::ReservedConcurrency { .. }
            | NotRun::NotFound(_)
            | NotRun::ShuttingDown => SendOutcome::NotHere(not_run.into()),
            NotRun::InvalidRequest(_)
            | NotRun::PayloadTooLarge { .. }
            | NotRun::Network(_)
            | NotRun::Lost(_)
            | NotRun::Internal(_) => SendOutcome::NotRun(not_run.into()),
        },
    }
}
