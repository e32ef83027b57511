//! Takes invocations at any process of a cluster, and dispatches those of the namespaces that it owns.
//!
//! Decisions are in `books`, `ownership` and `nigh_schedule::scheduler::lost_invocation`; here are the tasks around them.
//! An invocation is a task of its own: it goes on, and its end is recorded, when its caller hangs up.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use nigh_data::NamePrint;
use nigh_data::ObjectError;
use nigh_engine::{PresentMember, Registry};
use nigh_functions::function::{Function, FunctionSource};
use nigh_invoke::applications::{Applications, KnownInput, PrefetchPlan};
use nigh_invoke::gate::InvocationGate;
use nigh_invoke::invocation::{
    EventAttempt, InvocationResult, Invoke, InvokeError, InvokeRequest, TriggerObject, UpcomingInvocation,
};
use nigh_invoke::invoker::REQUEST_BYTES_MAX;
use nigh_objects::ObjectMemory;
use nigh_objects::cluster::Frontiers;
use nigh_protocol::Member;
use nigh_rpc::Peers;
use nigh_schedule::idempotence;
use nigh_schedule::payload_walk::PayloadWalk;
use nigh_schedule::scheduler::Weights;
use nigh_schedule::scheduler::dispatch_queue::DispatchLimits;
use nigh_schedule::scheduler::lost_invocation::{AfterLoss, Caller, LossError, LostInvocation, Progress, after_loss};
use nigh_terms::{Clock, FunctionName, InvocationId, Monotonic, Namespace, NodeId, Principal, Token};
use parking_lot::Mutex;
use tokio::sync::{Notify, OnceCell, oneshot, watch};

use super::books::{Books, DispatchPlacement, WaitingInvocation};
use super::cluster_view::FunctionKey;
use super::kept_runs::{Arrival, KeptRuns, RunLookup};
use super::owners::Owner;
use super::run_door::until_answered;
use super::sending::SendOutcome;
use super::states::AnswerStates;
use super::wire::{EndedHead, InvokeHead, PREPARE, PrepareHead, ReportHead, RunAnswer, RunHead, RunId, encode};

/// How long a node that refused an invocation is not asked for it again.
const NOT_AGAIN_FOR: Duration = Duration::from_millis(200);
/// How often it is looked whose time is over.
const LOOKED_EVERY: Duration = Duration::from_millis(50);

/// For one function a sandbox is made ahead so often at most, and for so many functions at a time.
const MADE_AHEAD_EVERY: Duration = Duration::from_millis(500);
const MADE_AHEAD_MAX: usize = 1024;

/// The homes of a cluster's shards, as a controller asks them.
#[async_trait]
pub trait DispatchHomes: Send + Sync {
    /// How far each home has come, under its present reign or a later one: what an owner must have read before its first
    /// dispatch.
    ///
    /// # Errors
    /// Which home does not answer.
    async fn newest_of_all(&self) -> Result<Token, ObjectError>;

    /// Has every home fence `member`; gives how far each had come.
    ///
    /// # Errors
    /// Which home does not answer; it is to be asked again.
    async fn fence(&self, member: Member) -> Result<Token, ObjectError>;
}

/// How a controller dispatches.
#[derive(Clone, Copy, Debug)]
pub struct DispatchSettings {
    /// What may wait for a node.
    pub queue: DispatchLimits,
    /// How long an invocation may wait for a node, an owner included.
    pub wait: Duration,
    /// How nodes are weighed.
    pub weights: Weights,
    /// How long a new sandbox takes until it runs, as is reckoned.
    pub cold_start: Duration,
}

impl Default for DispatchSettings {
    fn default() -> Self {
        Self {
            queue: DispatchLimits::default(),
            wait: Duration::from_secs(20),
            weights: Weights::default(),
            cold_start: Duration::from_millis(20),
        }
    }
}

/// What a dispatcher stands on.
pub struct DispatcherParts {
    /// This node.
    pub node: NodeId,
    /// This life of it.
    pub me: Member,
    /// It may own namespaces: it has the role `controller`.
    pub owns: bool,
    /// Where functions are found.
    pub functions: Arc<dyn FunctionSource>,
    /// What the invocations that run here have seen; none where none do.
    pub gate: Option<Arc<dyn InvocationGate>>,
    /// The homes of the cluster.
    pub homes: Arc<dyn DispatchHomes>,
    /// Where owners stand.
    pub registry: Arc<dyn Registry>,
    /// What invocations read, and those that follow.
    pub applications: Applications,
    /// By which objects are brought into nodes' memories before they are read; none where that is off.
    pub memory: Option<ObjectMemory>,
    /// Calls; with as many connections to a node as it may run invocations for this process.
    pub peers: Peers,
    /// Who lives.
    pub present: watch::Receiver<Vec<PresentMember>>,
    /// Time.
    pub clock: Arc<dyn Clock>,
}

type Fence = Arc<OnceCell<Token>>;

pub(super) struct DispatcherState {
    pub(super) parts: DispatcherParts,
    pub(super) settings: DispatchSettings,
    pub(super) books: Mutex<Books>,
    /// The owners elsewhere, as they were known last.
    pub(super) elsewhere: Mutex<HashMap<Namespace, PresentMember>>,
    /// Who finds out whose a namespace is.
    pub(super) asking: Mutex<HashMap<Namespace, Arc<tokio::sync::Mutex<()>>>>,
    pub(super) leaving: std::sync::atomic::AtomicBool,
    fences: Mutex<HashMap<Member, Fence>>,
    /// What other processes have handed on to this one.
    handed: Mutex<KeptRuns>,
    /// Who answers requests of the Step Functions API.
    pub(super) states: OnceLock<Weak<dyn AnswerStates>>,
    /// Of functions for which a sandbox was made ahead just now: when.
    made_ahead: Mutex<HashMap<FunctionKey, Monotonic>>,
    pub(super) room: Notify,
}

/// See the module.
#[derive(Clone)]
pub struct Dispatcher(pub(super) Arc<DispatcherState>);

/// What an invocation is from its way in to its end.
pub(super) struct Task {
    pub(super) namespace: Namespace,
    pub(super) request: InvokeRequest,
    pub(super) id: InvocationId,
    pub(super) attempt: u32,
    pub(super) deadline: Monotonic,
    pub(super) by: DispatchAuthority,
}

/// Who may run a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DispatchAuthority {
    /// Whoever owns its namespace.
    Anybody,
    /// This process: it was handed on once.
    ThisProcess,
    /// This process, in this term of it alone.
    Term(u64),
}

impl DispatchAuthority {
    fn allows(self, term: u64) -> bool {
        !matches!(self, Self::Term(only) if only != term)
    }
}

/// How a task ends.
pub(super) enum Outcome {
    Ended(InvocationResult),
    /// Another process owns the namespace; nothing was done.
    NotOwner,
}

impl Dispatcher {
    /// A dispatcher that takes invocations. To be made within a runtime.
    #[must_use]
    pub fn new(parts: DispatcherParts, settings: DispatchSettings) -> Self {
        let books = Mutex::new(Books::new(settings.weights, settings.cold_start, settings.queue));
        let inner = Arc::new(DispatcherState {
            parts,
            settings,
            books,
            elsewhere: Mutex::default(),
            asking: Mutex::default(),
            leaving: std::sync::atomic::AtomicBool::new(false),
            fences: Mutex::default(),
            handed: Mutex::default(),
            states: OnceLock::new(),
            made_ahead: Mutex::default(),
            room: Notify::new(),
        });
        keep_going(&inner);
        Self(inner)
    }

    /// The namespaces that it owns now.
    #[must_use]
    pub fn owned(&self) -> Vec<Namespace> {
        let mut owned: Vec<Namespace> = self.0.books.lock().placing.owned.keys().cloned().collect();
        owned.sort_unstable();
        owned
    }

    /// `namespace` has so many shares of the cluster while others wait too; one, if nothing is said.
    pub fn set_share(&self, namespace: &Namespace, share: u32) {
        self.0.books.lock().queue.set_weight(namespace.clone(), share);
    }

    /// Lets all namespaces go and takes none any more: others own them from now on.
    pub async fn leave(&self) {
        self.0.leaving.store(true, std::sync::atomic::Ordering::SeqCst);
        for namespace in self.owned() {
            if let Err(error) = self.0.let_go(&namespace).await {
                tracing::warn!(%namespace, %error, "the namespace's dispatch is taken over when this node is gone");
            }
        }
    }

    pub(super) fn owns(&self) -> bool {
        self.0.parts.owns
    }

    /// A node reports; false if it is not known yet, and has to say all again.
    pub(super) fn report(&self, report: ReportHead) -> bool {
        let mut books = self.0.books.lock();
        let heard = books.placing.view.report(report);
        if heard {
            books.pump(self.0.parts.clock.monotonic());
        }
        heard
    }

    /// Runs what another process has handed on, or says what became of it.
    pub(super) async fn handed(&self, head: InvokeHead, payload: Bytes) -> (RunAnswer, Bytes) {
        let InvokeHead { namespace, function, id, attempt, wrote, send, again, client_context, token } = head;
        let run = RunId { invocation: id, attempt: attempt.unwrap_or(1), term: 0, send };
        if again {
            let found = self.0.handed.lock().asked(self.0.now(), run);
            return match found {
                RunLookup::Known(awaited) => until_answered(awaited).await,
                RunLookup::Never => (RunAnswer::NeverHeard, Bytes::new()),
                RunLookup::Forgotten(token) => (RunAnswer::Forgotten { token }, Bytes::new()),
            };
        }
        let arrival = self.0.handed.lock().arrives(run);
        let answer = match arrival {
            Arrival::Known(awaited) => return until_answered(awaited).await,
            Arrival::Buried => return (RunAnswer::NeverHeard, Bytes::new()),
            Arrival::New(answer) => answer,
        };
        let (inner, awaited) = (Arc::clone(&self.0), answer.subscribe());
        let event = attempt.map(|attempt| EventAttempt { id, attempt, wrote });
        let request = InvokeRequest { function, payload, client_context, token, event };
        tokio::spawn(async move {
            let (said, body) = match inner.spawned(namespace, request, id, DispatchAuthority::ThisProcess).await {
                Ok(Outcome::Ended(invoked)) => {
                    (RunAnswer::Ended { ended: EndedHead::of(&invoked), settled: true }, invoked.payload)
                }
                Ok(Outcome::NotOwner) => (RunAnswer::TermOver, Bytes::new()),
                Err(error) => (RunAnswer::NotRun(error.into()), Bytes::new()),
            };
            let (is_ended, bytes) = (matches!(said, RunAnswer::Ended { .. }), said.log_bytes() + body.len());
            answer.send_replace(Some(Arc::new((said, body))));
            let mut handed = inner.handed.lock();
            if is_ended {
                handed.ended(inner.now(), run, bytes);
            } else {
                handed.not_run(run);
            }
        });
        until_answered(awaited).await
    }
}

/// How it went.
pub(super) type DispatchResult = Result<Outcome, InvokeError>;

/// Looks at who lives and at the time, until the dispatcher is gone.
fn keep_going(inner: &Arc<DispatcherState>) {
    let (weak, mut present) = (Arc::downgrade(inner), inner.parts.present.clone());
    tokio::spawn(async move {
        present.mark_changed();
        let mut is_watched = true;
        loop {
            let Some(inner) = weak.upgrade() else { return };
            let changed = tokio::select! {
                changed = present.changed(), if is_watched => Some(changed.is_ok()),
                () = inner.room.notified() => None,
                () = tokio::time::sleep(LOOKED_EVERY) => None,
            };
            let mut books = inner.books.lock();
            if let Some(goes_on) = changed {
                is_watched = goes_on;
                books.placing.view.members(&present.borrow_and_update());
            }
            books.pump(inner.parts.clock.monotonic());
            metrics::gauge!("nigh_dispatch_waiting").set(books.queue.len() as f64);
            metrics::gauge!("nigh_dispatch_namespaces_owned").set(books.placing.owned.len() as f64);
        }
    });
}

impl DispatcherState {
    pub(super) fn now(&self) -> Monotonic {
        self.parts.clock.monotonic()
    }

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
        let mut sends = 0;
        let mut reruns = 0;
        loop {
            match self.owner(&task.namespace, task.deadline).await? {
                Owner::Me(term) if !task.by.allows(term) => return Ok(Outcome::NotOwner),
                Owner::Me(_) => {
                    if let Some(outcome) = self.here(&task, &mut sends, &mut reruns).await? {
                        return Ok(Outcome::Ended(outcome));
                    }
                }
                Owner::Other(_) if task.by != DispatchAuthority::Anybody => return Ok(Outcome::NotOwner),
                Owner::Other(owner) => {
                    if let Some(invoked) = self.hand_on(&owner, &task, &mut sends).await? {
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

    /// Runs a task whose namespace is owned here; nothing if it is not any more.
    async fn here(
        self: &Arc<Self>,
        task: &Task,
        sends: &mut u32,
        reruns: &mut u32,
    ) -> Result<Option<InvocationResult>, InvokeError> {
        let Task { namespace, request, .. } = task;
        let not_found = || InvokeError::NotFound(request.function.clone());
        let function = self.parts.functions.find(namespace, &request.function).await.ok_or_else(not_found)?;
        self.books.lock().begins(&function)?;
        let ended = self.dispatched(task, &function, sends, reruns).await;
        self.books.lock().ends(&function);
        self.room.notify_one();
        ended
    }

    async fn dispatched(
        self: &Arc<Self>,
        task: &Task,
        function: &Arc<Function>,
        sends: &mut u32,
        reruns: &mut u32,
    ) -> Result<Option<InvocationResult>, InvokeError> {
        let Task { namespace, request, id, attempt, .. } = task;
        let mut deadline = task.deadline;
        let input = self.parts.applications.input(namespace, &function.name, &PayloadWalk::of(&request.payload));
        if let (Some(TriggerObject { node, bytes }), 1) = (request.event.and_then(|event| event.wrote), *attempt) {
            // Its writer may still run, and its node has not reported since.
            let written = input.named().iter().map(|print| (*print, bytes));
            self.books.lock().placing.view.wrote(node, written);
        }
        let mut refused: Vec<(Member, Monotonic)> = Vec::new();
        loop {
            let now = self.now();
            refused.retain(|(_, until)| *until > now);
            let not_to = refused.iter().map(|(member, _)| *member).collect();
            if !self.books.lock().see(namespace, None, &request.token) {
                return Ok(None);
            }
            let DispatchPlacement::At { node, dispatch, term, why } =
                self.placed(function, not_to, input.reads(), deadline).await?
            else {
                return Ok(None);
            };
            let to = dispatch.to;
            if !task.by.allows(term) {
                self.books.lock().placing.view.over(to, function, false);
                return Ok(None);
            }
            let run = RunId { invocation: *id, attempt: *attempt, term, send: *sends };
            *sends += 1;
            let head = RunHead {
                run,
                to,
                namespace: namespace.clone(),
                function: function.name.clone(),
                revision: function.revision_id.clone(),
                client_context: request.client_context.clone(),
                token: dispatch.token,
                why,
            };
            tracing::debug!(invocation = %id, %node, why = head.why, "an invocation is dispatched");
            if *sends == 1 {
                self.prefetch(&input, to).await;
            }
            metrics::counter!("nigh_dispatches_total").increment(1);
            let sent = self.send(&node, &head, &request.payload, function.timeout).await;
            let ran = matches!(sent, SendOutcome::Ended { .. });
            self.books.lock().placing.view.over(to, function, ran);
            self.room.notify_one();
            match sent {
                SendOutcome::Ended { invoked, settled } => {
                    let wrote = invoked.touched.iter().filter(|one| one.wrote);
                    let left = wrote.map(|one| (NamePrint::of(&one.object(namespace)), one.bytes));
                    // What it waited for before is no part of its run.
                    let took = Duration::from_micros(invoked.run.duration_us);
                    self.books.lock().ran(function, to, took, left);
                    self.parts.applications.ended(&input, &invoked.touched, self.now());
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
                    // However long the run took: now it may wait for a node again.
                    deadline = self.now().after(self.settings.wait);
                    let lost = LostInvocation {
                        progress: Progress::Sent,
                        fenced: true,
                        idempotent: idempotence::says(&function.environment) == Ok(Some(true)),
                        caller: if request.event.is_some() { Caller::EventQueue } else { Caller::Waits(deadline) },
                        reruns: *reruns,
                    };
                    metrics::counter!("nigh_invocations_lost_total").increment(1);
                    match after_loss(&lost, self.now()) {
                        AfterLoss::RunAgain | AfterLoss::Wait => *reruns += 1,
                        AfterLoss::Fail(loss) => return Err(loss.into()),
                        AfterLoss::Tell(_) | AfterLoss::Nothing => return Err(LossError::MayHaveRun.into()),
                    }
                }
            }
        }
    }

    /// An invocation is sent to `node`: what those will read that follow is brought where they will probably run, in the
    /// background.
    async fn prefetch(self: &Arc<Self>, input: &KnownInput, node: Member) {
        let Some(memory) = self.parts.memory.clone() else { return };
        let Some(PrefetchPlan { next, objects }) = self.parts.applications.starts(input, self.now()) else { return };
        let Some(next) = self.parts.functions.find(input.namespace(), &next).await else { return };
        let reads: Vec<NamePrint> = objects.iter().map(NamePrint::of).collect();
        let to = self.books.lock().placing.foresee(&next, &reads, node).unwrap_or(node);
        let (inner, input) = (Arc::clone(self), input.clone());
        tokio::spawn(async move {
            match memory.bring_at(to.node, &objects).await {
                Ok(brought) => {
                    let copies = reads.into_iter().zip(brought.iter().copied()).filter(|(_, bytes)| *bytes > 0);
                    inner.books.lock().placing.view.brought(to, copies);
                    inner.parts.applications.brought(&input, &objects, &brought, inner.now());
                }
                Err(why) => tracing::debug!(node = to.node.0, %why, "objects were not brought before they are read"),
            }
        });
    }

    /// Waits for a node.
    async fn placed(
        &self,
        function: &Arc<Function>,
        not_to: Vec<Member>,
        reads: Vec<NamePrint>,
        deadline: Monotonic,
    ) -> Result<DispatchPlacement, InvokeError> {
        let (turn, placed) = oneshot::channel();
        {
            let (mut books, now) = (self.books.lock(), self.now());
            books.waits(
                WaitingInvocation { function: Arc::clone(function), since: now, not_to, reads, turn },
                deadline,
                now,
            )?;
            books.pump(now);
        }
        placed.await.unwrap_or(Err(InvokeError::ShuttingDown))
    }

    /// Has what an invocation needs made ready where it would be placed now.
    fn prepare(self: &Arc<Self>, which: FunctionKey, after: Option<InvocationId>) {
        let now = self.now();
        {
            let mut made = self.made_ahead.lock();
            made.retain(|_, at| now.since(*at) < MADE_AHEAD_EVERY);
            if made.len() >= MADE_AHEAD_MAX || made.contains_key(&which) {
                return;
            }
            made.insert(which.clone(), now);
        }
        let inner = Arc::clone(self);
        tokio::spawn(async move {
            let (namespace, function) = which;
            let Some(found) = inner.parts.functions.find(&namespace, &function).await else { return };
            let Some(node) = inner.books.lock().placing.ahead(&found) else { return };
            let Some(node) = inner.living(|one| one.node == node) else { return };
            let to = Member { node: node.presence.number, incarnation: node.incarnation };
            let head = encode(&PrepareHead { namespace, function, after, to });
            if let Err(why) = inner.small::<()>(&node, &PREPARE, &head).await {
                tracing::debug!(node = %node.node, why, "nothing is made ready there");
            }
        });
    }

    /// All homes fence `member`: its invocations have ended then. However long that takes, nothing is said before.
    async fn fence(&self, member: Member) -> Token {
        let cell = Arc::clone(self.fences.lock().entry(member).or_default());
        loop {
            match cell.get_or_try_init(|| self.parts.homes.fence(member)).await {
                Ok(token) => return token.clone(),
                Err(error) => {
                    tracing::warn!(?member, %error, "a lost node is not fenced yet; its invocations wait");
                    tokio::time::sleep(LOOKED_EVERY).await;
                }
            }
        }
    }
}

#[async_trait]
impl Invoke for Dispatcher {
    async fn invoke(&self, who: &Principal, request: InvokeRequest) -> Result<InvocationResult, InvokeError> {
        let id = request.event.map_or_else(InvocationId::now, |event: EventAttempt| event.id);
        let result = match self.0.spawned(who.namespace.clone(), request, id, DispatchAuthority::Anybody).await {
            Ok(Outcome::Ended(invoked)) => Ok(invoked),
            Ok(Outcome::NotOwner) => Err(InvokeError::Internal("an invocation was handed on twice".to_owned())),
            Err(error) => Err(error),
        };
        match (&result, who.invocation, &self.0.parts.gate) {
            (Ok(invoked), Some(caller), Some(gate)) => gate.told_of(caller, &invoked.token),
            (Ok(_), ..) => {}
            (Err(_), ..) => metrics::counter!("nigh_invocations_refused_total").increment(1),
        }
        result
    }

    fn seen(&self, who: &Principal) -> Token {
        match (who.invocation, &self.0.parts.gate) {
            (Some(caller), Some(gate)) => gate.seen(caller),
            _ => Token::empty(),
        }
    }

    fn prepare(&self, namespace: &Namespace, next: UpcomingInvocation) {
        self.0.prepare((namespace.clone(), next.function), next.after);
    }

    fn set_reserved(&self, namespace: &Namespace, function: &FunctionName, concurrency: Option<usize>) {
        self.0.books.lock().set_reserved((namespace.clone(), function.clone()), concurrency);
    }
}

#[async_trait]
impl Frontiers for Dispatcher {
    async fn hand_over(&self, namespace: &Namespace, token: &Token) -> Result<(), ObjectError> {
        self.0.hand_over(namespace, token).await
    }
}
