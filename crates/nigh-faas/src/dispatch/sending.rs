//! An invocation on its way: from its owner to a node, and from any process to its owner.
//!
//! A call that breaks says nothing of what became of it. The node is asked again, in the same life, until it answers or is
//! no member any more; only then is the invocation lost.

use std::time::Duration;

use bytes::Bytes;
use nigh_engine::PresentMember;
use nigh_objects::protocol::{GateRefusal, Member};
use nigh_rpc::{Answer, CallError, Fate, Method};
use nigh_terms::{NodeId, Token};
use tokio::time::Instant;

use super::dispatcher::{Inner, Task};
use super::owners::{PAUSE, address};
use super::wire::{
    ASK, AskHead, BODY_MAX, INVOKE, InvokeAnswer, InvokeHead, NotRun, RUN, RunAnswer, RunHead, decode, encode,
};
use crate::invocation::{InvokeError, Invoked};
use crate::scheduler::lost_invocation::LossError;

/// How long a call may take beyond the function's own time: a sandbox is made, and the fate of writes waited for. It is asked
/// again after that.
const BEYOND: Duration = Duration::from_secs(60);
/// How long an invocation that is handed on may take in all, as far as one call goes.
const HANDED_ON: Duration = Duration::from_secs(900);

/// What became of a sending.
pub(super) enum Sent {
    Ended {
        invoked: Invoked,
        /// There was no other owner yet.
        settled: bool,
    },
    /// The node does not run it now; another may. No byte of it has run.
    NotHere(InvokeError),
    /// Nobody runs it.
    NotRun(InvokeError),
    /// Another owner dispatches the namespace.
    TermOver,
    /// It may have run. With a token its node still lives and has it no longer, without its node is gone and to be fenced.
    Lost(Option<Token>),
}

/// What a node was heard to say; nothing if it is unknown what became of the call.
enum Heard {
    Said(Box<RunAnswer>, Bytes),
    NotSent(CallError),
    Unknown,
    Gone,
}

impl Inner {
    /// Sends an invocation to the node and the life that `head` names, and waits for its end.
    pub(super) async fn send(&self, node: &NodeId, head: &RunHead, payload: &Bytes, timeout: Duration) -> Sent {
        let (to, run) = (head.to, head.run);
        let by = Instant::now() + timeout + BEYOND;
        let mut heard = self.hear(node, to, &RUN, &encode(head), payload.clone(), by).await;
        let mut was_sent = false;
        loop {
            match heard {
                Heard::Said(answer, body) => return sent(*answer, body),
                Heard::NotSent(error) if !was_sent => {
                    return Sent::NotHere(InvokeError::TooManyRequests(format!("the node does not answer: {error}")));
                }
                Heard::Gone => return Sent::Lost(None),
                Heard::NotSent(_) | Heard::Unknown => {}
            }
            was_sent = true;
            tokio::time::sleep(PAUSE).await;
            let ask = encode(&AskHead { run, to });
            heard = self.hear(node, to, &ASK, &ask, Bytes::new(), Instant::now() + timeout + BEYOND).await;
        }
    }

    /// Calls a node until it answers, the call fails, or the node's life as a member is over.
    async fn hear(
        &self,
        node: &NodeId,
        to: Member,
        method: &'static Method,
        head: &[u8],
        body: Bytes,
        by: Instant,
    ) -> Heard {
        let is_it = |member: &PresentMember| (&member.node, member.incarnation) == (node, to.incarnation);
        let mut present = self.parts.present.clone();
        let Some(member) = present.borrow().iter().find(|member| is_it(member)).cloned() else { return Heard::Gone };
        let peer = address(&member);
        let called = async {
            match self.parts.peers.call(&peer, method, head, body, by).await {
                Ok(answer) => said(answer).await,
                Err(error) if error.fate() == Fate::NotSent => Heard::NotSent(error),
                Err(error) => {
                    tracing::debug!(%node, %error, "it is not known what became of an invocation");
                    Heard::Unknown
                }
            }
        };
        tokio::select! {
            biased;
            heard = called => heard,
            _ = present.wait_for(|members| !members.iter().any(is_it)) => Heard::Gone,
        }
    }

    /// Hands a task to `owner`; nothing if that is not the owner, and nothing was done.
    pub(super) async fn hand_on(&self, owner: &PresentMember, task: &Task) -> Result<Option<Invoked>, InvokeError> {
        let Task { namespace, request, id, attempt, .. } = task;
        let head = InvokeHead {
            namespace: namespace.clone(),
            function: request.function.clone(),
            id: *id,
            attempt: request.event.is_some().then_some(*attempt),
            client_context: request.client_context.clone(),
            token: request.token.clone(),
        };
        metrics::counter!("nigh_dispatch_handed_on_total").increment(1);
        let by = Instant::now() + HANDED_ON;
        let called = self.parts.peers.call(&address(owner), &INVOKE, &encode(&head), request.payload.clone(), by).await;
        let answer = match called {
            Ok(answer) => answer,
            Err(error) if error.fate() == Fate::NotSent => {
                tracing::debug!(invocation = %id, %error, "the owner of a namespace does not answer");
                self.not_owner(namespace);
                tokio::time::sleep(PAUSE).await;
                return Ok(None);
            }
            Err(error) => {
                tracing::warn!(invocation = %id, %error, "the owner of a namespace was lost with an invocation");
                self.not_owner(namespace);
                return Err(LossError::MayHaveRun.into());
            }
        };
        let said = decode::<InvokeAnswer>(&answer.head);
        let body = answer.body.collect(BODY_MAX).await;
        match (said, body) {
            (Ok(InvokeAnswer::Ended(ended)), Ok(payload)) => Ok(Some(ended.with(payload))),
            (Ok(InvokeAnswer::NotRun(not_run)), _) => Err(not_run.into()),
            (Ok(InvokeAnswer::NotOwner), _) => {
                self.not_owner(namespace);
                tokio::time::sleep(PAUSE).await;
                Ok(None)
            }
            (Ok(InvokeAnswer::Ended(_)), Err(error)) => {
                tracing::warn!(invocation = %id, %error, "an answer broke off");
                Err(LossError::MayHaveRun.into())
            }
            (Err(why), _) => Err(InvokeError::Internal(format!("the owner of the namespace answers: {why}"))),
        }
    }
}

async fn said(answer: Answer) -> Heard {
    let read = decode::<RunAnswer>(&answer.head);
    match (read, answer.body.collect(BODY_MAX).await) {
        (Ok(answer), Ok(body)) => Heard::Said(Box::new(answer), body),
        (Err(why), _) => {
            tracing::warn!(why, "a node answers something else");
            Heard::Unknown
        }
        (_, Err(_)) => Heard::Unknown,
    }
}

fn sent(answer: RunAnswer, body: Bytes) -> Sent {
    match answer {
        RunAnswer::Ended { ended, settled } => Sent::Ended { invoked: ended.with(body), settled },
        RunAnswer::TermOver => Sent::TermOver,
        RunAnswer::NeverHeard => {
            Sent::NotHere(InvokeError::TooManyRequests("the node has not heard of the invocation".to_owned()))
        }
        RunAnswer::Forgotten { token } => Sent::Lost(Some(token)),
        RunAnswer::NotRun(not_run) => match not_run {
            // Another node may have what this one lacks.
            NotRun::Gate(
                GateRefusal::NotCovered | GateRefusal::Crowded | GateRefusal::OtherIncarnation,
            )
            | NotRun::TooManyRequests(_)
            | NotRun::ReservedConcurrency { .. }
            | NotRun::NotFound(_)
            | NotRun::ShuttingDown => Sent::NotHere(not_run.into()),
            NotRun::InvalidRequest(_)
            | NotRun::PayloadTooLarge { .. }
            | NotRun::Network(_)
            | NotRun::Lost(_)
            | NotRun::Internal(_) => Sent::NotRun(not_run.into()),
        },
    }
}
