//! Where a node takes the runs that controllers send to it.
//!
//! A run is taken for exactly this incarnation of the node, and from no owner whose epoch (`term`) is over. It goes on to its
//! end when the connection breaks. Its answer is given when the outcome of each of its writes is known, and kept for owners
//! that ask again.

mod terms;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use nigh_engine::{PresentMember, Registry};
use nigh_functions::function::{Function, FunctionSource};
use nigh_invoke::invocation::run_dispatched::RunDispatched;
use nigh_invoke::invocation::{EventAttempt, InvokeRequest, UpcomingInvocation};
use nigh_protocol::{GateRefusal, Member};
use nigh_rpc::{Body, Call, Refusal, RefusalKind, Reply};
use nigh_schedule::scheduler::vacancy::Vacancy;
use nigh_terms::{Clock, FunctionName, Namespace, NodeId};
use parking_lot::Mutex;
use tokio::sync::{Notify, watch};

use self::terms::{TermJudgement, Terms};
use crate::kept_runs::{Arrival, KeptRuns, until_answered};
use crate::owners::ownership::{OWNERS_TABLE, Ownership};
use crate::wire::{
    ANNOUNCE, ASK, AnnounceHead, AskHead, BODY_MAX, EndedHead, FIND, FindHead, NotRun, PREPARE, PrepareHead, RUN,
    RunAnswer, RunHead, decode, encode,
};

/// How long a node waits for its copy of the registry to have the version of a function that a dispatch names.
const FUNCTION_WITHIN: Duration = Duration::from_secs(2);
const FUNCTION_POLL: Duration = Duration::from_millis(20);

/// What a door needs.
pub struct RunDoorParts {
    /// This node.
    pub node: NodeId,
    /// This incarnation of it.
    pub me: Member,
    /// Runs what the door takes.
    pub runner: Arc<dyn RunDispatched>,
    /// The functions as this node knows them.
    pub functions: Arc<dyn FunctionSource>,
    /// Where the owners of namespaces are registered.
    pub registry: Arc<dyn Registry>,
    /// The present members.
    pub present: watch::Receiver<Vec<PresentMember>>,
    /// Time.
    pub clock: Arc<dyn Clock>,
}

/// Takes runs.
pub struct RunDoor {
    parts: RunDoorParts,
    terms: Mutex<Terms>,
    runs: Mutex<KeptRuns>,
    /// Notified when a run has begun or ended.
    changed: Notify,
}

pub(super) fn head_of<T: serde::de::DeserializeOwned>(call: &Call<'_>) -> Result<T, Refusal> {
    let read = decode(&call.head);
    read.map_err(|why| Refusal::new(RefusalKind::Forbidden, format!("{}: {why}", call.method.name)))
}

pub(super) fn reply(head: &impl serde::Serialize, body: Bytes) -> Reply {
    Reply { head: encode(head).into(), body: Body::from(body) }
}

impl RunDoor {
    /// A door that takes runs.
    #[must_use]
    pub fn new(parts: RunDoorParts) -> Arc<Self> {
        let (terms, runs, changed) = (Mutex::default(), Mutex::default(), Notify::new());
        Arc::new(Self { parts, terms, runs, changed })
    }

    pub(super) fn me(&self) -> (&NodeId, Member) {
        (&self.parts.node, self.parts.me)
    }

    pub(super) fn vacancy(&self) -> Vacancy {
        let vacancy = self.parts.runner.vacancy();
        // Controllers of older programs know nothing of a cordon.
        if self.takes_runs() { vacancy } else { Vacancy { invocations_free: 0, ..vacancy } }
    }

    /// Returns when a run has begun or ended since the last time.
    pub(super) async fn changed(&self) {
        self.changed.notified().await;
    }

    /// Answers a controller.
    pub(super) async fn answer(self: &Arc<Self>, call: Call<'_>) -> Result<Reply, Refusal> {
        match call.method.number {
            number if number == RUN.number => {
                let head: RunHead = head_of(&call)?;
                let body = call.body.collect(BODY_MAX).await;
                let payload = body.map_err(|error| Refusal::new(RefusalKind::Busy, error.to_string()))?;
                let (answer, body) = self.run(head, payload).await;
                Ok(reply(&answer, body))
            }
            number if number == ASK.number => {
                let (answer, body) = self.ask(head_of(&call)?).await;
                Ok(reply(&answer, body))
            }
            number if number == FIND.number => {
                let FindHead { invocation, attempt, to } = head_of(&call)?;
                let found = self.runs.lock().find(invocation, attempt).filter(|_| to == self.parts.me);
                let (answer, body) = match found {
                    Some(awaited) => until_answered(awaited).await,
                    None => (RunAnswer::NeverHeard, Bytes::new()),
                };
                Ok(reply(&answer, body))
            }
            number if number == ANNOUNCE.number => {
                let AnnounceHead { namespace, term, to } = head_of(&call)?;
                if to != self.parts.me {
                    return Err(Refusal::new(
                        RefusalKind::Forbidden,
                        "the call is for another incarnation of this node",
                    ));
                }
                self.terms.lock().learn(&namespace, term);
                Ok(reply(&(), Bytes::new()))
            }
            number if number == PREPARE.number => {
                let PrepareHead { namespace, function, after, to } = head_of(&call)?;
                if to == self.parts.me {
                    self.parts.runner.prepare(&namespace, UpcomingInvocation { function, input: None, after });
                }
                Ok(reply(&(), Bytes::new()))
            }
            _ => Err(Refusal::new(RefusalKind::UnknownMethod, "a node that runs functions has no such method")),
        }
    }

    /// True if `is_it` says so of this incarnation's entry among the members, as far as is known here.
    fn is_present(&self, is_it: impl Fn(&PresentMember, &[PresentMember]) -> bool) -> bool {
        let RunDoorParts { node, me, present, .. } = &self.parts;
        let present = present.borrow();
        let own = present.iter().find(|member| (&member.node, member.incarnation) == (node, me.incarnation));
        own.is_some_and(|own| is_it(own, &present[..]))
    }

    /// True if this incarnation is a member.
    fn is_member(&self) -> bool {
        self.is_present(|_, _| true)
    }

    /// True if it is a member and takes new runs.
    fn takes_runs(&self) -> bool {
        self.is_present(PresentMember::takes_runs)
    }

    async fn ask(&self, AskHead { run, to }: AskHead) -> (RunAnswer, Bytes) {
        if to != self.parts.me {
            return (RunAnswer::NotRun(NotRun::Gate(GateRefusal::OtherIncarnation)), Bytes::new());
        }
        let found = self.runs.lock().asked(self.parts.clock.monotonic(), run);
        found.answer().await
    }

    async fn run(self: &Arc<Self>, head: RunHead, payload: Bytes) -> (RunAnswer, Bytes) {
        let other_life = RunAnswer::NotRun(NotRun::Gate(GateRefusal::OtherIncarnation));
        if head.to != self.parts.me || !self.is_member() {
            return (other_life, Bytes::new());
        }
        match self.takes(&head.namespace, head.run.term).await {
            Ok(true) => {}
            Ok(false) => return (RunAnswer::TermOver, Bytes::new()),
            Err(why) => return (RunAnswer::NotRun(NotRun::TooManyRequests(why)), Bytes::new()),
        }
        if !self.takes_runs() && !self.runs.lock().knows(head.run) {
            let why = "the node is cordoned and takes no new invocations".to_owned();
            return (RunAnswer::NotRun(NotRun::TooManyRequests(why)), Bytes::new());
        }
        let arrival = self.runs.lock().arrives(head.run);
        let answer = match arrival {
            Arrival::New(answer) => answer,
            Arrival::Known(found) => return found.answer().await,
        };
        let (door, awaited) = (Arc::clone(self), answer.subscribe());
        tokio::spawn(nigh_trace::follow(async move {
            let run = head.run;
            let said = door.run_to_end(head, payload).await;
            door.runs.lock().over(door.parts.clock.monotonic(), run, &answer, said);
            door.changed.notify_one();
        }));
        self.changed.notify_one();
        until_answered(awaited).await
    }

    async fn run_to_end(&self, head: RunHead, payload: Bytes) -> (RunAnswer, Bytes) {
        let RunHead { run, to, namespace, function, revision, client_context, token, why } = head;
        let parts = &self.parts;
        let known = match self.until_known(&namespace, &function, &revision).await {
            Ok(known) => known,
            Err(not_run) => return (RunAnswer::NotRun(not_run), Bytes::new()),
        };
        let event = Some(EventAttempt { id: run.invocation, attempt: run.attempt, wrote: None });
        let request = InvokeRequest { function, payload, client_context, token, event };
        match parts.runner.run(known, request, to, &why).await {
            Ok(invoked) => {
                // In this order: an owner that begins after this reads from the homes what this run has written.
                let settled = self.is_member() && !self.terms.lock().is_over(&namespace, run.term);
                metrics::counter!("nigh_dispatched_runs_total", "end" => "ended").increment(1);
                (RunAnswer::Ended { ended: EndedHead::of(&invoked), settled }, invoked.payload)
            }
            Err(error) => {
                metrics::counter!("nigh_dispatched_runs_total", "end" => "refused").increment(1);
                (RunAnswer::NotRun(error.into()), Bytes::new())
            }
        }
    }

    /// Whether a dispatch of `term` is taken. Asks the registry if the newest term is not known here.
    async fn takes(&self, namespace: &Namespace, term: u64) -> Result<bool, String> {
        let judged = self.terms.lock().judge(namespace, term);
        match judged {
            TermJudgement::Takes => return Ok(true),
            TermJudgement::Over(highest) => {
                tracing::debug!(%namespace, term, highest, "a dispatch of a former owner");
                return Ok(false);
            }
            TermJudgement::Ask => {}
        }
        let found = self.parts.registry.get(OWNERS_TABLE, namespace.as_str()).await;
        let found = found.map_err(|error| format!("the node cannot ask who owns the namespace: {error}"))?;
        let known = found.map(|found| Ownership::decode(&found.value)).transpose()?;
        let Some(known) = known else { return Ok(false) };
        let mut terms = self.terms.lock();
        terms.learn(namespace, known.term);
        Ok(terms.judge(namespace, term) == TermJudgement::Takes)
    }

    /// The function in the version that its dispatch names, once this node knows that version; the wait is bounded.
    async fn until_known(
        &self,
        namespace: &Namespace,
        name: &FunctionName,
        revision: &str,
    ) -> Result<Arc<Function>, NotRun> {
        let begun = self.parts.clock.monotonic();
        loop {
            let what = match self.parts.functions.find(namespace, name).await {
                Some(found) if found.revision_id == revision => return Ok(found),
                Some(_) => "another version of the function",
                None => "no such function",
            };
            if self.parts.clock.monotonic().since(begun) >= FUNCTION_WITHIN {
                return Err(NotRun::TooManyRequests(format!(
                    "the node knows {what}: its copy of the registry is behind"
                )));
            }
            tokio::time::sleep(FUNCTION_POLL).await;
        }
    }
}
