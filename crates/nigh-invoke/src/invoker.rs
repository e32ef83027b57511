//! Runs invocations on this node: finds their functions, admits them to sandboxes, and runs them to their end.
//!
//! Decisions are pure and lie elsewhere: in nigh-schedule, in nigh-sandbox's `runtime_protocol`, and in `verdict`. An
//! invocation runs in a task of its own: when its caller hangs up it goes on to its end and its record, as on Lambda.

mod background;

use std::sync::Arc;
use std::time::Duration;

use async_recursion::async_recursion as boxed;
use async_trait::async_trait;
use nigh_engine::{AccessKeys, MemoryBooking};
use nigh_functions::function::{Function, FunctionSource};
use nigh_protocol::{Dispatch, Member};
use nigh_sandbox::data_door::DataDoor;
use nigh_sandbox::sandbox::{SandboxEnd, SandboxEngine};
use nigh_schedule::inputs::latest_inputs::LatestInputs;
use nigh_schedule::prewarm::PrewarmSettings;
use nigh_schedule::sandbox_pool::{PoolUse, SandboxPool, WaitsFor};
use nigh_schedule::scheduler::vacancy::Vacancy;
use nigh_terms::{Clock, FunctionName, Incarnation, InvocationId, Namespace, NodeId, Principal, Token};
use parking_lot::Mutex;
use tokio_util::task::TaskTracker;

use crate::activation_log::ActivationLog;
use crate::execution::{Attempt, Call, Executor};
use crate::hooks::InvocationHook;
use crate::invocation::gate::{Entrance, InvocationGate};
use crate::invocation::phase_accountant::PhaseAccountant;
use crate::invocation::request::CheckedRequest;
use crate::invocation::run_dispatched::RunDispatched;
use crate::invocation::{InvocationResult, Invoke, InvokeError, InvokeRequest, UpcomingInvocation};
pub use crate::invoker_settings::InvokerSettings;
use crate::node_memory::NodeMemory;
use crate::sandboxes::admission::{AdmittedRun, Sandboxes};
use crate::sandboxes::cold_start::Init;
use crate::sandboxes::failed_start::FailedStart;
use crate::sandboxes::maker::SandboxMaker;
pub use crate::sandboxes::prewarmer::RuntimePrewarmed;
use crate::sandboxes::prewarmer::{Prewarmer, PrewarmerParts};

/// Sandboxes that may end under one invocation before they took its input.
const ATTEMPTS_MAX: u32 = 4;
/// How long ended invocations may take to be concluded at the end of a drain.
const CONCLUDE_WAIT: Duration = Duration::from_secs(10);
/// How often `drain` looks whether they are concluded.
const CONCLUDE_POLL: Duration = Duration::from_millis(5);

/// What an invoker needs.
pub struct InvokerParts {
    /// Where functions are found.
    pub functions: Arc<dyn FunctionSource>,
    /// Makes sandboxes.
    pub engine: Arc<dyn SandboxEngine>,
    /// Serves data inside the sandboxes.
    pub data_door: Arc<dyn DataDoor>,
    /// The keys of the sandboxes.
    pub keys: AccessKeys,
    /// The gate of invocations: the object memory behind `data_door`.
    pub gate: Arc<dyn InvocationGate>,
    /// Observes the data calls; it must be an observer of the object memory behind `data_door`.
    pub accountant: Arc<PhaseAccountant>,
    /// Keeps the records.
    pub activations: ActivationLog,
    /// Run before each run in this order, and after it in reverse.
    pub hooks: Vec<Arc<dyn InvocationHook>>,
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// Grants memory to sandboxes.
    pub memory: NodeMemory,
    /// This node.
    pub node: NodeId,
    /// Its incarnation.
    pub incarnation: Incarnation,
}

struct InvokerState {
    functions: Arc<dyn FunctionSource>,
    clock: Arc<dyn Clock>,
    sandboxes: Arc<Sandboxes>,
    maker: SandboxMaker,
    executor: Executor,
    tasks: TaskTracker,
    prewarmer: Option<Arc<Prewarmer>>,
    latest: Mutex<LatestInputs>,
}

/// Runs invocations. When it is dropped, its idle sandboxes are ended; `drain` ends all sandboxes and waits for that.
pub struct Invoker {
    inner: Arc<InvokerState>,
}

impl Invoker {
    /// An invoker that is ready. Needs a tokio runtime, in which it looks after its idle sandboxes.
    #[must_use]
    pub fn new(parts: InvokerParts, settings: InvokerSettings) -> Self {
        let InvokerParts { functions, engine, data_door, keys, gate, accountant, clock, memory, .. } = parts;
        let prewarm = settings.prewarm.clone().filter(|_| engine.makes_prewarmed().is_ok());
        let sandboxes = Arc::new(Sandboxes::new(
            SandboxPool::new(settings.limits, settings.keep_alive),
            Arc::clone(&clock),
            settings.freeze_grace,
            prewarm.as_ref().map_or(0, PrewarmSettings::most),
            memory.clone(),
        ));
        let prewarmer = prewarm.map(|prewarm| {
            Prewarmer::new(PrewarmerParts {
                settings: prewarm,
                runtime: settings.runtime.clone(),
                pids_max: settings.pids_max,
                engine: Arc::clone(&engine),
                functions: Arc::clone(&functions),
                sandboxes: Arc::clone(&sandboxes),
                clock: Arc::clone(&clock),
            })
        });
        let executor = Executor {
            keys: keys.clone(),
            functions: Arc::clone(&functions),
            gate: Arc::clone(&gate),
            accountant: Arc::clone(&accountant),
            activations: parts.activations,
            hooks: parts.hooks,
            clock: Arc::clone(&clock),
            memory: memory.clone(),
        };
        let maker = SandboxMaker {
            settings,
            functions: Arc::clone(&functions),
            engine,
            data_door,
            keys,
            gate,
            accountant,
            clock: Arc::clone(&clock),
            sandboxes: Arc::clone(&sandboxes),
            memory,
        };
        let (tasks, latest) = (TaskTracker::new(), Mutex::default());
        let inner = Arc::new(InvokerState { functions, clock, sandboxes, maker, executor, tasks, prewarmer, latest });
        background::start(&inner);
        Self { inner }
    }

    /// The weight of `namespace` when several namespaces wait for the node; 1 by default.
    pub fn set_share(&self, namespace: &Namespace, share: u32) {
        self.inner.sandboxes.set_share(namespace, share);
    }

    /// What the sandboxes take now.
    #[must_use]
    pub fn in_use(&self) -> PoolUse {
        self.inner.sandboxes.in_use()
    }

    /// The pre-warmed sandboxes by runtime; none where sandboxes are not pre-warmed.
    #[must_use]
    pub fn stems(&self) -> Vec<RuntimePrewarmed> {
        self.inner.prewarmer.as_ref().map(|prewarmer| prewarmer.stems()).unwrap_or_default()
    }

    /// Refuses new invocations, lets running ones go on for `patience`, ends what then still runs, and returns when no
    /// sandbox is left.
    #[boxed]
    pub async fn drain(&self, patience: Duration) {
        let InvokerState { sandboxes, tasks, .. } = &*self.inner;
        sandboxes.close().end().await;
        tasks.close();
        if tokio::time::timeout(patience, tasks.wait()).await.is_err() {
            let running = sandboxes.in_use().running;
            tracing::warn!(running, "invocations still run after the time to drain; they are ended");
        }
        let end_all = async {
            loop {
                // The loop repeats because a sandbox whose start was under way appears in `alive` only later.
                let alive = sandboxes.alive();
                if alive.is_empty() && tasks.is_empty() {
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

    /// Runs `request` in a task of its own, which holds `booking`. `why` says how a controller chose this node.
    async fn run_to_end(
        &self,
        function: Arc<Function>,
        request: CheckedRequest,
        entrance: Entrance,
        why: Option<String>,
        booking: Option<MemoryBooking>,
    ) -> Result<InvocationResult, InvokeError> {
        let run = self.inner.tasks.spawn(Arc::clone(&self.inner).run(function, request, entrance, why, booking));
        run.await.unwrap_or_else(|lost| {
            tracing::error!(error = %lost, "an invocation was lost");
            Err(InvokeError::Internal("the invocation was lost; Nigh's log says why".to_owned()))
        })
    }

    async fn run_called(&self, namespace: &Namespace, request: InvokeRequest) -> Result<InvocationResult, InvokeError> {
        let entrance = Entrance::Called(request.token.clone());
        let request = CheckedRequest::of(request)?;
        let name = &request.request.function;
        let found = self.inner.functions.find(namespace, name).await;
        let function = found.ok_or_else(|| InvokeError::NotFound(name.clone()))?;
        let quotas = self.inner.executor.keys.namespaces();
        let booking = quotas.book(namespace, function.memory);
        let booking = booking.map_err(|over| InvokeError::TooManyRequests(over.to_string()))?;
        self.run_to_end(function, request, entrance, None, booking).await
    }
}

impl Drop for Invoker {
    fn drop(&mut self) {
        drop(self.inner.sandboxes.close());
    }
}

impl InvokerState {
    /// Gives the invocation a sandbox and runs it there; again, if the sandbox ends before it took the input.
    async fn run(
        self: Arc<Self>,
        function: Arc<Function>,
        request: CheckedRequest,
        entrance: Entrance,
        why: Option<String>,
        booking: Option<MemoryBooking>,
    ) -> Result<InvocationResult, InvokeError> {
        let (asked, _until_the_end) = (self.clock.monotonic(), booking);
        let CheckedRequest { request, client_context } = request;
        self.latest.lock().had(&function, &request.payload);
        let mut call = Call {
            id: request.event.map_or_else(InvocationId::now, |event| event.id),
            attempt: request.event.map_or(1, |event| event.attempt),
            function,
            payload: request.payload,
            client_context,
            entrance,
            start: self.clock.wall(),
            wait: Duration::ZERO,
            placement: String::new(),
            earlier: Vec::new(),
        };
        for _ in 0..ATTEMPTS_MAX {
            let admitted = match self.sandboxes.admit(&call.function, &call.entrance).await? {
                Ok(admitted) => admitted,
                Err(failed) => match *failed {
                    FailedStart::Refused(error) => return Err(error),
                    FailedStart::Init(failed) => return Ok(self.executor.conclude_failed(&call, *failed).await),
                },
            };
            let AdmittedRun { lease, in_the_way, run: _run, waited_for } = admitted;
            let init = lease.live().and_then(|live| live.made.lock().take());
            let here = placement(init.as_ref(), in_the_way.sandboxes.len(), waited_for);
            call.placement = match &why {
                Some(why) => format!("{why}; there {here}"),
                None => here,
            };
            in_the_way.end().await;
            // The time in which the sandbox was made is recorded apart from the wait.
            let until = init.as_ref().map_or_else(|| self.clock.monotonic(), |init| init.began);
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

#[async_trait]
impl RunDispatched for Invoker {
    async fn run(
        &self,
        function: Arc<Function>,
        request: InvokeRequest,
        to: Member,
        why: &str,
    ) -> Result<InvocationResult, InvokeError> {
        let dispatch = Dispatch { to, token: request.token.clone() };
        let request = CheckedRequest::of(request)?;
        // The dispatch owner has booked its memory.
        self.run_to_end(function, request, Entrance::Dispatched(dispatch), Some(why.to_owned()), None).await
    }

    fn vacancy(&self) -> Vacancy {
        let processors = std::thread::available_parallelism().map_or(1, |count| count.get().min(usize::from(u16::MAX)));
        let mut vacancy = Vacancy { processors: processors as u16, ..self.inner.sandboxes.vacancy() };
        self.inner.executor.hooks.iter().for_each(|hook| hook.room(&mut vacancy));
        vacancy
    }

    fn prepare(&self, namespace: &Namespace, next: UpcomingInvocation) {
        Invoke::prepare(self, namespace, next);
    }
}

#[async_trait]
impl Invoke for Invoker {
    async fn invoke(&self, who: &Principal, request: InvokeRequest) -> Result<InvocationResult, InvokeError> {
        let result = self.run_called(&who.namespace, request).await;
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
        // Before the task starts: an invocation that comes from now on is the expected one.
        let Some(expected) = self.inner.sandboxes.expect(namespace, &next.function) else { return };
        let (inner, namespace) = (Arc::clone(&self.inner), namespace.clone());
        self.inner.tasks.spawn(async move {
            Box::pin(inner.prepare(&namespace, next)).await;
            drop(expected);
        });
    }

    fn set_reserved(&self, namespace: &Namespace, function: &FunctionName, concurrency: Option<usize>) {
        self.inner.sandboxes.set_reserved(namespace, function, concurrency);
    }
}
