//! Runs invocations on this node: admits them, finds or makes their sandboxes, keeps these warm, ends them.
//!
//! Decisions are pure and lie elsewhere: in nigh-schedule, nigh-sandbox's `runtime_protocol`, and `verdict`. Here are the tasks around them. An invocation runs in a task of its own: it goes on to its end
//! and its record when its caller hangs up, as on Lambda.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures::future::join_all;
use http::HeaderValue;
use nigh_engine::AccessKeys;
use nigh_functions::function::{Function, FunctionSource};
use nigh_protocol::{Dispatch, Member};
use nigh_sandbox::data_door::DataDoor;
use nigh_sandbox::sandbox::{SandboxEnd, SandboxEngine};
use nigh_schedule::latest_inputs::LatestInputs;
use nigh_schedule::prewarm::PrewarmSettings;
use nigh_schedule::sandbox_pool::{PoolUse, SandboxPool, WaitsFor};
use nigh_schedule::vacancy::Vacancy;
use nigh_terms::{Clock, FunctionName, Incarnation, InvocationId, Namespace, NodeId, Principal, Token};
use parking_lot::Mutex;
use tokio_util::task::TaskTracker;

use crate::activation_log::ActivationLog;
use crate::admission::{AdmittedRun, Lease, Sandboxes};
use crate::cold_start::Init;
use crate::execution::{Attempt, Call, Executor};
use crate::gate::{Entrance, InvocationGate};
use crate::hooks::InvocationHook;
use crate::invocation::{InvocationResult, Invoke, InvokeError, InvokeRequest, UpcomingInvocation};
pub use crate::invoker_settings::InvokerSettings;
use crate::making::FailedStart;
use crate::node_memory::NodeMemory;
use crate::phase_accountant::PhaseAccountant;
pub use crate::prewarmer::RuntimeStems;
use crate::prewarmer::{Prewarmer, PrewarmerParts};
use crate::run_dispatched::RunDispatched;

/// The largest input (Lambda quotas: 6 MB).
pub const REQUEST_BYTES_MAX: usize = 6 * 1024 * 1024;
/// The largest `ClientContext`, as a header of an input; callers may send 3,583 bytes of base64, which escapes widen.
const CLIENT_CONTEXT_BYTES_MAX: usize = 16 * 1024;
/// How long what was made ready for an invocation that may come waits for it.
const PREPARED_FOR: Duration = Duration::from_secs(10);
/// How often idle sandboxes are looked at.
const REAP_EVERY: Duration = Duration::from_secs(1);
/// Sandboxes that may end under one invocation before they took its input.
const ATTEMPTS_MAX: u32 = 4;
/// How long ended invocations may take to be concluded at the end of a drain.
const CONCLUDE_WAIT: Duration = Duration::from_secs(10);
/// How often that is looked at.
const CONCLUDE_POLL: Duration = Duration::from_millis(5);

/// What an invoker stands on.
pub struct InvokerParts {
    /// Where functions are found.
    pub functions: Arc<dyn FunctionSource>,
    /// Makes sandboxes.
    pub engine: Arc<dyn SandboxEngine>,
    /// Serves data inside them.
    pub data_door: Arc<dyn DataDoor>,
    /// Their keys.
    pub keys: AccessKeys,
    /// Lets invocations begin and tells what they have seen; the object memory behind `data_door`.
    pub gate: Arc<dyn InvocationGate>,
    /// Observes the data calls; it must be an observer of the object memory behind `data_door`.
    pub accountant: Arc<PhaseAccountant>,
    /// Takes the records.
    pub activations: ActivationLog,
    /// Stand before and after each run, in this order and in reverse.
    pub hooks: Vec<Arc<dyn InvocationHook>>,
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// What sandboxes are granted.
    pub memory: NodeMemory,
    /// This node.
    pub node: NodeId,
    /// Its life.
    pub incarnation: Incarnation,
}

struct InvokerState {
    executor: Executor,
    tasks: TaskTracker,
    prewarmer: Option<Arc<Prewarmer>>,
    latest: Mutex<LatestInputs>,
}

/// Runs invocations. When it is dropped its idle sandboxes are ended; `drain` ends all and waits for it.
pub struct Invoker {
    inner: Arc<InvokerState>,
}

impl Invoker {
    /// An invoker that is ready. Needs a tokio runtime, in which it looks after its idle sandboxes.
    #[must_use]
    pub fn new(parts: InvokerParts, settings: InvokerSettings) -> Self {
        let pool = SandboxPool::new(settings.limits, settings.keep_alive);
        let clock = Arc::clone(&parts.clock);
        let prewarm = settings.prewarm.clone().filter(|_| parts.engine.makes_stems().is_ok());
        let stems_max = prewarm.as_ref().map_or(0, PrewarmSettings::most);
        let memory = parts.memory.clone();
        let sandboxes = Sandboxes::new(pool, clock, settings.freeze_grace, stems_max, memory);
        let sandboxes = Arc::new(sandboxes);
        let prewarmer = prewarm.map(|prewarm| {
            Prewarmer::new(PrewarmerParts {
                settings: prewarm,
                runtime: settings.runtime.clone(),
                pids_max: settings.pids_max,
                engine: Arc::clone(&parts.engine),
                functions: Arc::clone(&parts.functions),
                sandboxes: Arc::clone(&sandboxes),
                clock: Arc::clone(&parts.clock),
            })
        });
        let executor = Executor {
            settings,
            functions: parts.functions,
            engine: parts.engine,
            data_door: parts.data_door,
            keys: parts.keys,
            gate: parts.gate,
            accountant: parts.accountant,
            activations: parts.activations,
            hooks: parts.hooks,
            clock: parts.clock,
            sandboxes,
            memory: parts.memory,
        };
        let inner = Arc::new(InvokerState { executor, tasks: TaskTracker::new(), prewarmer, latest: Mutex::default() });
        reap(&inner);
        end_for_growth(&inner);
        make_ordered(&inner);
        look_while_somebody_waits(&inner);
        if let Some(prewarmer) = &inner.prewarmer {
            prewarmer.keep_going(&inner.tasks);
        }
        Self { inner }
    }

    /// `namespace` has so many shares of the node while others wait too; one, if nothing is said.
    pub fn set_share(&self, namespace: &Namespace, share: u32) {
        self.inner.executor.sandboxes.set_share(namespace, share);
    }

    /// What the sandboxes take now.
    #[must_use]
    pub fn in_use(&self) -> PoolUse {
        self.inner.executor.sandboxes.in_use()
    }

    /// The stems by runtime; nothing where sandboxes are not prewarmed.
    #[must_use]
    pub fn stems(&self) -> Vec<RuntimeStems> {
        self.inner.prewarmer.as_ref().map(|prewarmer| prewarmer.stems()).unwrap_or_default()
    }

    /// Refuses new invocations, lets those that run go on for `patience`, ends what then still runs, and returns when
    /// no sandbox is left.
    pub async fn drain(&self, patience: Duration) {
        let inner = &self.inner;
        inner.executor.sandboxes.close().end().await;
        inner.tasks.close();
        if tokio::time::timeout(patience, inner.tasks.wait()).await.is_err() {
            let running = inner.executor.sandboxes.in_use().running;
            tracing::warn!(running, "invocations still run after the time to drain; they are ended");
        }
        let end_all = async {
            loop {
                // Again and again: one that was being made when the others were ended has come since.
                let alive = inner.executor.sandboxes.alive();
                if alive.is_empty() && inner.tasks.is_empty() {
                    return;
                }
                for live in alive {
                    live.runtime.end(SandboxEnd::Destroyed);
                }
                tokio::time::sleep(CONCLUDE_POLL).await;
            }
        };
        if tokio::time::timeout(CONCLUDE_WAIT, end_all).await.is_err() {
            tracing::error!("invocations could not be ended; their sandboxes end with this process");
        }
    }
}

impl Drop for Invoker {
    fn drop(&mut self) {
        drop(self.inner.executor.sandboxes.close());
    }
}

/// Ends idle sandboxes whose time has come or whose function has changed, until the invoker is gone.
fn reap(inner: &Arc<InvokerState>) {
    let inner = Arc::downgrade(inner);
    tokio::spawn(async move {
        let mut tick = tokio::time::interval(REAP_EVERY);
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tick.tick().await;
            let Some(inner) = inner.upgrade() else { return };
            inner.reap().await;
        }
    });
}

/// Ends the idle sandboxes whose memory others need, until the invoker or the node's memory is gone.
fn end_for_growth(inner: &Arc<InvokerState>) {
    let Some(mut to_end) = inner.executor.memory.take_ends() else { return };
    let inner = Arc::downgrade(inner);
    tokio::spawn(async move {
        while let Some(id) = to_end.recv().await {
            let Some(inner) = inner.upgrade() else { return };
            // One that has an invocation by now is not idle any more.
            if let Some(idle) = inner.executor.sandboxes.take_idle_named(id) {
                idle.end().await;
            }
        }
    });
}

/// Makes the sandboxes that are ordered, until the invoker is gone.
fn make_ordered(inner: &Arc<InvokerState>) {
    let Some(mut orders) = inner.executor.sandboxes.take_orders() else { return };
    let inner = Arc::downgrade(inner);
    tokio::spawn(async move {
        while let Some(order) = orders.recv().await {
            let Some(inner) = inner.upgrade() else { return };
            let makes = Arc::clone(&inner);
            inner.tasks.spawn(async move { makes.executor.make(order).await });
        }
    });
}

/// Has the sandboxes looked at while somebody waits, until the invoker is gone.
fn look_while_somebody_waits(inner: &Arc<InvokerState>) {
    let (weak, sandboxes) = (Arc::downgrade(inner), Arc::clone(&inner.executor.sandboxes));
    tokio::spawn(async move {
        while weak.strong_count() > 0 {
            sandboxes.look_later(REAP_EVERY).await;
        }
    });
}

impl InvokerState {
    async fn reap(&self) {
        let mut stale: Vec<Arc<Function>> = Vec::new();
        for idle in self.executor.sandboxes.idle_functions() {
            let current = self.executor.functions.find(&idle.namespace, &idle.name).await;
            stale.extend(current.is_none_or(|current| !current.same_version(&idle)).then_some(idle));
        }
        // Of one that has become idle since, nothing is known.
        let is_stale = |idle: &Function| stale.iter().any(|stale| stale.same_version(idle));
        join_all(self.executor.sandboxes.take_expired(is_stale).into_iter().map(Lease::end)).await;
        self.executor.sandboxes.alive().iter().for_each(|live| live.forget_prepared(PREPARED_FOR));
        let in_use = self.executor.sandboxes.in_use();
        metrics::gauge!("nigh_sandboxes", "state" => "idle").set(in_use.idle as f64);
        metrics::gauge!("nigh_sandboxes", "state" => "busy").set(in_use.sandboxes.saturating_sub(in_use.idle) as f64);
        metrics::gauge!("nigh_sandboxes", "state" => "prewarmed").set(in_use.stems as f64);
        metrics::gauge!("nigh_sandboxes_booked_bytes").set(in_use.booked.bytes() as f64);
        metrics::gauge!("nigh_invocations_waiting").set(in_use.waiting as f64);
    }

    /// Makes ready what can be of an invocation that may come.
    async fn prepare(&self, namespace: &Namespace, next: UpcomingInvocation) {
        let Some(function) = self.executor.functions.find(namespace, &next.function).await else { return };
        self.make_ahead(&function).await;
        let Some(live) = self.executor.sandboxes.warmest(&function) else { return };
        let input = next.input.or_else(|| self.latest.lock().of(&function));
        self.executor.prepare(&live, &input.unwrap_or_default(), next.after).await;
    }

    /// Makes an idle sandbox of a function that is expected to be invoked and has none, if there is free room. Who is invoked
    /// meanwhile waits for it.
    async fn make_ahead(&self, function: &Arc<Function>) {
        if let Some(order) = self.executor.sandboxes.start_ahead(function) {
            self.executor.make(order).await;
        }
    }

    async fn run(
        self: Arc<Self>,
        function: Arc<Function>,
        request: CheckedRequest,
        entrance: Entrance,
        chosen: Option<String>,
    ) -> Result<InvocationResult, InvokeError> {
        let asked = self.executor.clock.monotonic();
        self.latest.lock().had(&function, &request.request.payload);
        let mut call = Call {
            id: request.request.event.map_or_else(InvocationId::now, |event| event.id),
            attempt: request.request.event.map_or(1, |event| event.attempt),
            function,
            payload: request.request.payload,
            client_context: request.client_context,
            entrance,
            start: self.executor.clock.wall(),
            wait: Duration::ZERO,
            placement: String::new(),
            earlier: Vec::new(),
        };
        for _ in 0..ATTEMPTS_MAX {
            let admitted = match self.executor.sandboxes.admit(&call.function, &call.entrance).await? {
                Ok(admitted) => admitted,
                Err(failed) => match *failed {
                    FailedStart::Refused(error) => return Err(error),
                    FailedStart::Init(failed) => return Ok(self.executor.conclude_failed(&call, *failed)),
                },
            };
            let AdmittedRun { lease, in_the_way, run: _run, waited_for } = admitted;
            let init = lease.live().and_then(|live| live.made.lock().take());
            let here = placement(init.as_ref(), in_the_way.sandboxes.len(), waited_for);
            call.placement = match &chosen {
                Some(chosen) => format!("{chosen}; there {here}"),
                None => here,
            };
            in_the_way.end().await;
            // What its sandbox took to be made is told apart.
            let until = init.as_ref().map_or_else(|| self.executor.clock.monotonic(), |init| init.began);
            call.wait = until.since(asked);
            match self.executor.execute(&call, lease, init.as_ref()).await? {
                Attempt::Done(invoked) => return Ok(*invoked),
                Attempt::NotTaken => {}
                Attempt::Again(why) => call.earlier.push(why),
            }
        }
        Err(InvokeError::Internal(format!("{ATTEMPTS_MAX} sandboxes ended before they took the input")))
    }
}

/// How an invocation came to its sandbox, in words.
fn placement(init: Option<&Init>, ended: usize, waited_for: Option<WaitsFor>) -> String {
    let mut text = match init {
        None => "an idle sandbox of the function".to_owned(),
        Some(init) => format!("a new sandbox: {}", init.reason),
    };
    if ended > 0 {
        text.push_str(&format!("; {ended} idle sandboxes of other functions ended for its memory"));
    }
    // That it was being made is said already.
    if let Some(waits_for) = waited_for.filter(|waits_for| init.is_none() || *waits_for != WaitsFor::Making) {
        text.push_str(&format!("; it waited because the node {}", waits_for.words()));
    }
    text
}

/// A request that may run.
struct CheckedRequest {
    request: InvokeRequest,
    client_context: Option<HeaderValue>,
}

/// Refuses what is no JSON.
pub(crate) fn check_payload(payload: &[u8]) -> Result<(), InvokeError> {
    let invalid = |why: String| InvokeError::InvalidRequest(format!("Could not parse request body into json: {why}"));
    let text = std::str::from_utf8(payload).map_err(|error| invalid(error.to_string()))?;
    serde_json::from_str::<serde::de::IgnoredAny>(text).map_err(|error| invalid(error.to_string()))?;
    Ok(())
}

fn check(mut request: InvokeRequest) -> Result<CheckedRequest, InvokeError> {
    let size = request.payload.len();
    if size > REQUEST_BYTES_MAX {
        return Err(InvokeError::PayloadTooLarge { size, limit: REQUEST_BYTES_MAX });
    }
    if request.payload.is_empty() {
        // As Lambda does.
        request.payload = bytes::Bytes::from_static(b"{}");
    }
    check_payload(&request.payload)?;
    let client_context = match request.client_context.take() {
        None => None,
        Some(context) if context.len() > CLIENT_CONTEXT_BYTES_MAX => {
            return Err(InvokeError::InvalidRequest(format!(
                "Client context must be at most {CLIENT_CONTEXT_BYTES_MAX} bytes"
            )));
        }
        Some(context) => Some(
            HeaderValue::from_str(&context)
                .map_err(|_| InvokeError::InvalidRequest("Client context must be one line of text".to_owned()))?,
        ),
    };
    Ok(CheckedRequest { request, client_context })
}

impl Invoker {
    async fn run_to_end(
        &self,
        namespace: &Namespace,
        request: InvokeRequest,
        entrance: Entrance,
        chosen: Option<String>,
    ) -> Result<InvocationResult, InvokeError> {
        let request = check(request)?;
        let name = &request.request.function;
        let found = self.inner.executor.functions.find(namespace, name).await;
        let function = found.ok_or_else(|| InvokeError::NotFound(name.clone()))?;
        let run = self.inner.tasks.spawn(Arc::clone(&self.inner).run(function, request, entrance, chosen));
        run.await.unwrap_or_else(|lost| {
            tracing::error!(error = %lost, "an invocation was lost");
            Err(InvokeError::Internal("the invocation was lost; Nigh's log says why".to_owned()))
        })
    }
}

#[async_trait]
impl RunDispatched for Invoker {
    async fn run(
        &self,
        namespace: &Namespace,
        request: InvokeRequest,
        to: Member,
        why: &str,
    ) -> Result<InvocationResult, InvokeError> {
        let dispatch = Dispatch { to, token: request.token.clone() };
        self.run_to_end(namespace, request, Entrance::Dispatched(dispatch), Some(why.to_owned())).await
    }

    fn vacancy(&self) -> Vacancy {
        let processors = std::thread::available_parallelism().map_or(1, |count| count.get().min(usize::from(u16::MAX)));
        let executor = &self.inner.executor;
        let mut vacancy = Vacancy { processors: processors as u16, ..executor.sandboxes.vacancy() };
        executor.hooks.iter().for_each(|hook| hook.room(&mut vacancy));
        vacancy
    }

    fn prepare(&self, namespace: &Namespace, next: UpcomingInvocation) {
        Invoke::prepare(self, namespace, next);
    }
}

#[async_trait]
impl Invoke for Invoker {
    async fn invoke(&self, who: &Principal, request: InvokeRequest) -> Result<InvocationResult, InvokeError> {
        let entrance = Entrance::Called(request.token.clone());
        let result = self.run_to_end(&who.namespace, request, entrance, None).await;
        match (&result, who.invocation) {
            (Ok(invoked), Some(caller)) => self.inner.executor.gate.told_of(caller, &invoked.token),
            (Ok(_), None) => {}
            (Err(_), _) => metrics::counter!("nigh_invocations_refused_total").increment(1),
        }
        result
    }

    fn seen(&self, who: &Principal) -> Token {
        who.invocation.map_or_else(Token::empty, |caller| self.inner.executor.gate.seen(caller))
    }

    fn prepare(&self, namespace: &Namespace, next: UpcomingInvocation) {
        // At once: what begins from now on is what is expected.
        let Some(expected) = self.inner.executor.sandboxes.expect(namespace, &next.function) else { return };
        let (inner, namespace) = (Arc::clone(&self.inner), namespace.clone());
        self.inner.tasks.spawn(async move {
            Box::pin(inner.prepare(&namespace, next)).await;
            drop(expected);
        });
    }

    fn set_reserved(&self, namespace: &Namespace, function: &FunctionName, concurrency: Option<usize>) {
        self.inner.executor.sandboxes.set_reserved(namespace, function, concurrency);
    }
}
