//! The way of one invocation: to its owner, or, at its owner, to nodes until one has run it.

use std::sync::Arc;
use std::time::Duration;

use nigh_data::NamePrint;
use nigh_functions::function::Function;
use nigh_invoke::applications::KnownInput;
use nigh_invoke::invocation::{InvocationResult, InvokeError, InvokeRequest, REQUEST_BYTES_MAX, TriggerObject};
use nigh_protocol::{Dispatch, Member};
use nigh_schedule::activation::idempotence;
use nigh_schedule::inputs::payload_walk::PayloadWalk;
use nigh_schedule::scheduler::lost_invocation::{AfterLoss, Caller, LossError, LostInvocation, Progress, after_loss};
use nigh_terms::{InvocationId, Monotonic, Namespace, Token};
use tokio::sync::oneshot;

use crate::controller::{DispatchPlacement, WaitingInvocation};
use crate::dispatcher_state::{DispatchAuthority, DispatchResult, DispatcherState, Outcome, Task};
use crate::owners::Owner;
use crate::sending::SendOutcome;
use crate::wire::{RunHead, RunId};

/// How long a node that refused an invocation is not asked for it again.
const NOT_AGAIN_FOR: Duration = Duration::from_millis(200);
/// How long to wait before homes that did not fence a member are asked again.
const FENCE_AGAIN: Duration = Duration::from_millis(50);

/// How often an invocation was sent, and how often it was run again after a loss, under whichever owner.
#[derive(Default)]
pub(super) struct Tries {
    pub(super) sends: u32,
    reruns: u32,
}

impl DispatcherState {
    /// Dispatches an invocation in a task of its own.
    pub(super) async fn spawned(
        self: &Arc<Self>,
        namespace: Namespace,
        request: InvokeRequest,
        id: InvocationId,
        by: DispatchAuthority,
    ) -> DispatchResult {
        let size = request.payload.len();
        if size > REQUEST_BYTES_MAX {
            return Err(InvokeError::PayloadTooLarge { size, limit: REQUEST_BYTES_MAX });
        }
        let attempt = request.event.map_or(1, |event| event.attempt);
        let deadline = self.now().after(self.settings.wait);
        let task = Task { namespace, request, id, attempt, deadline, by };
        let inner = Arc::clone(self);
        let run = tokio::spawn(async move { Box::pin(inner.whole(task)).await });
        run.await.unwrap_or_else(|lost| {
            tracing::error!(error = %lost, "the dispatch of an invocation was lost");
            Err(InvokeError::Lost(LossError::MayHaveRun))
        })
    }

    /// Runs a task here, or at its owner.
    async fn whole(self: Arc<Self>, task: Task) -> DispatchResult {
        let mut tries = Tries::default();
        loop {
            match self.owner(&task.namespace, task.deadline).await? {
                Owner::Me(term) if !task.by.allows(term) => return Ok(Outcome::NotOwner),
                Owner::Me(_) => {
                    if let Some(invoked) = self.here(&task, &mut tries).await? {
                        return Ok(Outcome::Ended(invoked));
                    }
                }
                Owner::Other(_) if task.by != DispatchAuthority::Anybody => return Ok(Outcome::NotOwner),
                Owner::Other(owner) => {
                    if let Some(invoked) = self.hand_on(&owner, &task, &mut tries.sends).await? {
                        return Ok(Outcome::Ended(invoked));
                    }
                }
            }
            if self.now() >= task.deadline {
                let why = "the dispatch of the namespace moves from one controller to another; invoke again later";
                return Err(InvokeError::TooManyRequests(why.to_owned()));
            }
        }
    }

    /// Runs a task whose namespace this process owns. None if it owns the namespace no longer.
    async fn here(self: &Arc<Self>, task: &Task, tries: &mut Tries) -> Result<Option<InvocationResult>, InvokeError> {
        let name = &task.request.function;
        let found = self.parts.functions.find(&task.namespace, name).await;
        let function = found.ok_or_else(|| InvokeError::NotFound(name.clone()))?;
        let booked = self.quotas.get().map(|quotas| quotas.book(&task.namespace, function.memory)).transpose();
        let _until_the_end = booked.map_err(|over| InvokeError::TooManyRequests(over.to_string()))?;
        self.controller.lock().begins(&function)?;
        let ended = self.dispatched(task, &function, tries).await;
        self.controller.lock().ends(&function);
        self.room.notify_one();
        ended
    }

    /// Sends a task to nodes until one has run it, or nobody may run it. None if this process owns the namespace no longer.
    async fn dispatched(
        self: &Arc<Self>,
        task: &Task,
        function: &Arc<Function>,
        tries: &mut Tries,
    ) -> Result<Option<InvocationResult>, InvokeError> {
        let Task { namespace, request, id, .. } = task;
        let input = self.parts.applications.input(namespace, &function.name, &PayloadWalk::of(&request.payload));
        self.note_trigger(task, &input);
        let mut deadline = task.deadline;
        let mut refused: Vec<(Member, Monotonic)> = Vec::new();
        loop {
            let now = self.now();
            refused.retain(|(_, until)| *until > now);
            let not_to = refused.iter().map(|(member, _)| *member).collect();
            if !self.controller.lock().see(namespace, None, &request.token) {
                return Ok(None);
            }
            let DispatchPlacement::At { node, dispatch, term, why } =
                self.placed(function, not_to, input.reads(), deadline).await?
            else {
                return Ok(None);
            };
            let to = dispatch.to;
            if !task.by.allows(term) {
                self.controller.lock().placing.view.over(to, function, false);
                return Ok(None);
            }
            let head = run_head(task, function, dispatch, term, why, tries.sends);
            tracing::debug!(invocation = %id, %node, why = head.why, "an invocation is dispatched");
            if tries.sends == 0 {
                self.prefetch(&input, to).await;
            }
            tries.sends += 1;
            metrics::counter!("nigh_dispatches_total").increment(1);
            let sent = self.send(&node, &head, &request.payload, function.timeout).await;
            self.controller.lock().placing.view.over(to, function, matches!(sent, SendOutcome::Ended { .. }));
            self.room.notify_one();
            match sent {
                SendOutcome::Ended { invoked, settled } => {
                    self.ran(function, to, &input, &invoked);
                    self.joined(namespace, term, &invoked.token, settled).await;
                    return Ok(Some(invoked));
                }
                SendOutcome::NotHere(why) => {
                    tracing::debug!(invocation = %id, %node, %why, "a node does not run an invocation; another is looked for");
                    metrics::counter!("nigh_dispatches_refused_total").increment(1);
                    refused.push((to, self.now().after(NOT_AGAIN_FOR)));
                    if self.now() >= deadline {
                        return Err(why);
                    }
                }
                SendOutcome::NotRun(why) => return Err(why),
                SendOutcome::TermOver => {
                    self.forget(namespace, term);
                    return Ok(None);
                }
                SendOutcome::Lost(token) => {
                    let token = match token {
                        Some(token) => token,
                        None => self.fence(to).await,
                    };
                    self.joined(namespace, term, &token, false).await;
                    // However long the lost run took, the invocation may wait for a node again.
                    deadline = self.now().after(self.settings.wait);
                    self.lost(request, function, deadline, tries)?;
                }
            }
        }
    }

    /// The first attempt of an event about a new object: its writer may still run, and the writer's node has not reported yet.
    fn note_trigger(&self, task: &Task, input: &KnownInput) {
        if let (Some(TriggerObject { node, bytes }), 1) =
            (task.request.event.and_then(|event| event.wrote), task.attempt)
        {
            let written = input.named().iter().map(|print| (*print, bytes));
            self.controller.lock().placing.view.wrote(node, written);
        }
    }

    /// Learns from a run at `node`.
    fn ran(&self, function: &Function, node: Member, input: &KnownInput, invoked: &InvocationResult) {
        let wrote = invoked.touched.iter().filter(|one| one.wrote);
        let left = wrote.map(|one| (NamePrint::of(&one.object(&function.namespace)), one.bytes));
        // The time that it waited there is no part of its run.
        let took = Duration::from_micros(invoked.run.duration_us);
        self.controller.lock().placing.ran(function, node, took, left);
        self.parts.applications.ended(input, &invoked.touched, self.now());
    }

    /// A run was lost and its node is fenced.
    ///
    /// # Errors
    /// If the invocation must not run again.
    fn lost(
        &self,
        request: &InvokeRequest,
        function: &Function,
        deadline: Monotonic,
        tries: &mut Tries,
    ) -> Result<(), LossError> {
        let lost = LostInvocation {
            progress: Progress::Sent,
            fenced: true,
            idempotent: idempotence::says(&function.environment) == Ok(Some(true)),
            caller: if request.event.is_some() { Caller::EventQueue } else { Caller::Waits(deadline) },
            reruns: tries.reruns,
        };
        metrics::counter!("nigh_invocations_lost_total").increment(1);
        match after_loss(&lost, self.now()) {
            AfterLoss::RunAgain | AfterLoss::Wait => tries.reruns += 1,
            AfterLoss::Fail(loss) => return Err(loss),
            AfterLoss::Tell(_) | AfterLoss::Nothing => return Err(LossError::MayHaveRun),
        }
        Ok(())
    }

    /// Waits in the queue until a node is chosen.
    async fn placed(
        &self,
        function: &Arc<Function>,
        not_to: Vec<Member>,
        reads: Vec<NamePrint>,
        deadline: Monotonic,
    ) -> Result<DispatchPlacement, InvokeError> {
        let (turn, placed) = oneshot::channel();
        {
            let (mut controller, now) = (self.controller.lock(), self.now());
            controller.waits(
                WaitingInvocation { function: Arc::clone(function), since: now, not_to, reads, turn },
                deadline,
                now,
            )?;
            controller.pump(now);
        }
        placed.await.unwrap_or(Err(InvokeError::ShuttingDown))
    }

    /// Returns when all homes have fenced `member`, however long that takes: then its invocations have ended.
    async fn fence(&self, member: Member) -> Token {
        let cell = Arc::clone(self.fences.lock().entry(member).or_default());
        loop {
            match cell.get_or_try_init(|| self.parts.homes.fence(member)).await {
                Ok(token) => return token.clone(),
                Err(error) => {
                    tracing::warn!(?member, %error, "a lost node is not fenced yet; its invocations wait");
                    tokio::time::sleep(FENCE_AGAIN).await;
                }
            }
        }
    }
}

/// The head of the call by which `function`'s invocation is sent to a node.
fn run_head(task: &Task, function: &Function, dispatch: Dispatch, term: u64, why: String, send: u32) -> RunHead {
    RunHead {
        run: RunId { invocation: task.id, attempt: task.attempt, term, send },
        to: dispatch.to,
        namespace: task.namespace.clone(),
        function: function.name.clone(),
        revision: function.revision_id.clone(),
        client_context: task.request.client_context.clone(),
        token: dispatch.token,
        why,
    }
}
