//! The way into a sandbox: the pool behind a lock, the commands that the pool gives, and guards that tell the pool of an end.
//!
//! An admitted invocation holds two guards, for its run and for its sandbox. A guard that is dropped gives back what it stands
//! for, so that no path, not even a panic, leaves the pool wrong. A sandbox is made by a task of its own, for the queue of
//! its function: if an invocation stops waiting, the sandbox serves the next one.

mod commands;
mod leases;
mod stems;

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use nigh_functions::function::{Function, Runtime};
use nigh_schedule::sandbox_pool::{ColdReason, PoolAnswer, PoolUse, SandboxEndReason, SandboxPool, Ticket, WaitsFor};
use nigh_schedule::scheduler::vacancy::Vacancy;
use nigh_terms::{ByteSize, Clock, FunctionName, Monotonic, Namespace, SandboxId};
use parking_lot::Mutex;
use tokio::sync::{Notify, mpsc, oneshot};

pub(crate) use self::leases::{Lease, RunGuard, StartGuard};
pub(crate) use self::stems::{HeldPrewarmed, PrewarmedRoom, SparePrewarmed};
use super::failed_start::FailedStart;
use super::idle_processors::IdleProcessors;
use super::live_sandbox::LiveSandbox;
use super::stem_stock::PrewarmedStock;
use crate::invocation::InvokeError;
use crate::invocation::gate::Entrance;
use crate::node_memory::NodeMemory;

/// How often the pool is asked while an invocation waits: time alone may change what is to be done.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// The pool and those who wait for it.
pub(crate) struct Sandboxes {
    state: Mutex<PoolState>,
    clock: Arc<dyn Clock>,
    freeze_grace: Duration,
    /// Notified at each cold start, and when a pre-warmed sandbox is ready.
    stems_changed: Arc<Notify>,
    /// Notified when an invocation begins to wait.
    waits: Notify,
    memory: NodeMemory,
    /// Sandboxes that are to be made: at most as many as there are processors.
    cold_starts: mpsc::UnboundedSender<ColdStart>,
    /// Until the task that makes sandboxes takes it.
    to_make: Mutex<Option<mpsc::UnboundedReceiver<ColdStart>>>,
}

struct PoolState {
    pool: SandboxPool<Arc<LiveSandbox>>,
    stems: PrewarmedStock<HeldPrewarmed>,
    waiting: HashMap<Ticket, Waiter>,
    alive: HashMap<SandboxId, Arc<LiveSandbox>>,
    idle_processors: IdleProcessors,
}

/// An invocation that waits.
struct Waiter {
    turn: oneshot::Sender<Turn>,
    function: Arc<Function>,
    entrance: Entrance,
}

/// How the wait ends.
enum Turn {
    Admitted(AdmittedRun),
    /// The sandbox that it waited for could not be made.
    Failed(Box<FailedStart>),
    TooLate(WaitsFor),
}

/// What an admitted invocation holds.
pub(crate) struct AdmittedRun {
    pub(crate) lease: Lease,
    /// Sandboxes that end before it runs.
    pub(crate) in_the_way: InTheWay,
    pub(crate) run: RunGuard,
    /// What it waited for, if it did.
    pub(crate) waited_for: Option<WaitsFor>,
}

/// Sandboxes, pre-warmed ones too, that end before a run or a cold start takes their room.
#[derive(Default)]
pub(crate) struct InTheWay {
    pub(crate) sandboxes: Vec<Lease>,
    stems: Vec<SparePrewarmed>,
}

impl InTheWay {
    /// Ends the sandboxes; when this returns, their room is free.
    pub(crate) async fn end(self) {
        let sandboxes = futures::future::join_all(self.sandboxes.into_iter().map(Lease::end));
        futures::future::join(sandboxes, futures::future::join_all(self.stems.into_iter().map(SparePrewarmed::end)))
            .await;
    }
}

/// A sandbox that is to be made.
pub(crate) struct ColdStart {
    pub(crate) guard: StartGuard,
    pub(crate) function: Arc<Function>,
    /// What the sandbox's initialisation passes the gate with: the entrance of the invocation that it is made for.
    pub(crate) entrance: Entrance,
    /// The invocation that is told if the sandbox cannot be made.
    pub(crate) ticket: Option<Ticket>,
    pub(crate) stem: Option<HeldPrewarmed>,
    pub(crate) in_the_way: InTheWay,
    pub(crate) reason: ColdReason,
}

/// An expected invocation, until this is dropped.
pub(crate) struct ExpectationGuard {
    sandboxes: Arc<Sandboxes>,
    namespace: Namespace,
    function: FunctionName,
}

impl Drop for ExpectationGuard {
    fn drop(&mut self) {
        self.sandboxes.state.lock().pool.expect_no_more(&self.namespace, &self.function);
    }
}

impl Sandboxes {
    pub(crate) fn new(
        pool: SandboxPool<Arc<LiveSandbox>>,
        clock: Arc<dyn Clock>,
        freeze_grace: Duration,
        stems_max: usize,
        memory: NodeMemory,
    ) -> Self {
        let processors = pool.limits().processors;
        let state = Mutex::new(PoolState {
            pool,
            stems: PrewarmedStock::new(stems_max),
            waiting: HashMap::new(),
            alive: HashMap::new(),
            idle_processors: IdleProcessors::new(processors),
        });
        let (cold_starts, to_make) = mpsc::unbounded_channel();
        let to_make = Mutex::new(Some(to_make));
        Self {
            state,
            clock,
            freeze_grace,
            stems_changed: Arc::default(),
            waits: Notify::new(),
            memory,
            cold_starts,
            to_make,
        }
    }

    /// The sandboxes that are to be made, for the first caller.
    pub(crate) fn take_cold_starts(&self) -> Option<mpsc::UnboundedReceiver<ColdStart>> {
        self.to_make.lock().take()
    }

    fn now(&self) -> Monotonic {
        self.clock.monotonic()
    }

    /// See `Invoker::set_share`.
    pub(crate) fn set_share(&self, namespace: &Namespace, share: u32) {
        self.state.lock().pool.set_share(namespace.clone(), share);
    }

    /// See `Invoke::set_reserved`.
    pub(crate) fn set_reserved(self: &Arc<Self>, namespace: &Namespace, function: &FunctionName, n: Option<usize>) {
        self.state.lock().pool.set_reserved(namespace, function, n);
        self.serve();
    }

    /// What of the node is free, as it reports to controllers.
    pub(crate) fn vacancy(&self) -> Vacancy {
        let now = self.now();
        self.state.lock().pool.vacancy(now)
    }

    pub(crate) fn in_use(&self) -> PoolUse {
        self.state.lock().pool.in_use()
    }

    /// An invocation of `function` may come. None if that is known already.
    pub(crate) fn expect(self: &Arc<Self>, namespace: &Namespace, function: &FunctionName) -> Option<ExpectationGuard> {
        let is_new = self.state.lock().pool.expect(namespace, function);
        let (namespace, function) = (namespace.clone(), function.clone());
        is_new.then(|| ExpectationGuard { sandboxes: Arc::clone(self), namespace, function })
    }

    /// A sandbox of `function` to be made for an invocation that is expected, if there is free room for one.
    pub(crate) fn start_ahead(self: &Arc<Self>, function: &Arc<Function>) -> Option<ColdStart> {
        let (start, surplus) = {
            let mut state = self.state.lock();
            let start = state.pool.start_ahead(function, self.now())?;
            let mut stems = self.surplus_stems(&mut state);
            (self.cold_start(&mut state, start, &mut stems), stems)
        };
        self.stems_changed.notify_one();
        self.end_apart(surplus);
        Some(start)
    }

    /// The idle sandbox that the next invocation of `function` would get. It stays idle.
    pub(crate) fn warmest(&self, function: &Function) -> Option<Arc<LiveSandbox>> {
        self.state.lock().pool.warmest(function).cloned()
    }

    /// Admits an invocation of `function`, after a bounded wait if need be; or tells why the sandbox made for it failed.
    ///
    /// # Errors
    /// Why it does not run: it waited too long, or may not wait.
    pub(crate) async fn admit(
        self: &Arc<Self>,
        function: &Arc<Function>,
        entrance: &Entrance,
    ) -> Result<Result<AdmittedRun, Box<FailedStart>>, InvokeError> {
        let asked = self.now();
        let (mut turn, done, waits_for) = {
            let mut state = self.state.lock();
            let ticket = match state.pool.ask(function, asked) {
                PoolAnswer::Waiting(ticket) => ticket,
                PoolAnswer::Refused(why) => return Err(InvokeError::TooManyRequests(format!("the node {why}"))),
                PoolAnswer::OverReserved(limit) => {
                    return Err(InvokeError::ReservedConcurrency { function: function.name.clone(), limit });
                }
                PoolAnswer::Closed => return Err(InvokeError::ShuttingDown),
            };
            let (sender, turn) = oneshot::channel();
            let waiter = Waiter { turn: sender, function: Arc::clone(function), entrance: entrance.clone() };
            state.waiting.insert(ticket, waiter);
            let done = self.commands(&mut state, asked);
            let waits_for = state.waiting.contains_key(&ticket).then(|| state.pool.waits_for(function, asked));
            (turn, done, waits_for)
        };
        self.carry_out(done);
        if let Some(waits_for) = waits_for {
            metrics::counter!("nigh_invocation_waits_total", "reason" => waits_for.label()).increment(1);
            self.waits.notify_one();
        }
        let turn = (&mut turn).await.map_err(|_| InvokeError::ShuttingDown)?;
        let waited = self.now().since(asked);
        if let Some(waits_for) = waits_for {
            metrics::histogram!("nigh_invocation_wait_duration_seconds", "reason" => waits_for.label())
                .record(waited.as_secs_f64());
        }
        match turn {
            Turn::Admitted(admitted) => Ok(Ok(AdmittedRun { waited_for: waits_for, ..admitted })),
            Turn::Failed(failed) => Ok(Err(failed)),
            Turn::TooLate(waits_for) => {
                let (waited, words) = (waited.as_secs_f64(), waits_for.words());
                Err(InvokeError::TooManyRequests(format!("for {waited:.1} s the node {words}; invoke again later")))
            }
        }
    }

    /// Tells the invocation of this ticket that its sandbox could not be made. False if it waits no longer.
    pub(crate) fn start_failed(self: &Arc<Self>, ticket: Option<Ticket>, failed: FailedStart) -> bool {
        let now = self.now();
        let waiter = {
            let mut state = self.state.lock();
            let Some(ticket) = ticket else { return false };
            let waiter = state.waiting.remove(&ticket);
            if waiter.is_some() {
                state.pool.leave(ticket, now);
            }
            waiter
        };
        waiter.is_some_and(|waiter| waiter.turn.send(Turn::Failed(Box::new(failed))).is_ok())
    }

    /// Asks the pool what is to be done now, and does it. Called after every change, and now and then while one waits.
    fn serve(self: &Arc<Self>) {
        let now = self.now();
        let done = self.commands(&mut self.state.lock(), now);
        self.carry_out(done);
    }

    /// If an invocation waits, asks the pool a moment later. Else returns when one begins to wait, or after `quiet`.
    pub(crate) async fn look_later(self: &Arc<Self>, quiet: Duration) {
        if self.state.lock().waiting.is_empty() {
            let _nobody_came = tokio::time::timeout(quiet, self.waits.notified()).await;
            return;
        }
        tokio::time::sleep(LOOK_EVERY).await;
        let now = self.now();
        let done = {
            let mut state = self.state.lock();
            if let Some(idle) = state.idle_processors.measure(now) {
                state.pool.set_idle_processors(idle, now);
            }
            self.commands(&mut state, now)
        };
        self.carry_out(done);
    }

    fn lease(self: &Arc<Self>, live: Arc<LiveSandbox>) -> Lease {
        Lease::new(self, live)
    }

    /// Takes `live` out of the idle sandboxes, to be ended for this reason. None if it is not idle.
    pub(crate) fn take_idle(self: &Arc<Self>, live: &Arc<LiveSandbox>, why: &SandboxEndReason) -> Option<Lease> {
        let taken = self.state.lock().pool.take(live, why);
        taken.then(|| {
            metrics::counter!("nigh_sandboxes_ended_total", "reason" => why.label()).increment(1);
            self.lease(Arc::clone(live))
        })
    }

    /// Takes the sandbox `id` out of the idle ones, to be ended for its memory. None if it is not idle.
    pub(crate) fn take_idle_named(self: &Arc<Self>, id: SandboxId) -> Option<Lease> {
        let live = self.state.lock().alive.get(&id).cloned()?;
        self.take_idle(&live, &SandboxEndReason::Memory)
    }

    /// `live`, which is idle, is frozen and uses `held`.
    fn rests(self: &Arc<Self>, live: &Arc<LiveSandbox>, held: ByteSize) {
        self.state.lock().pool.rests(live, held);
        self.serve();
    }

    /// Takes out the idle sandboxes that have lived long enough, or whose function has changed (`is_stale`).
    pub(crate) fn take_expired(self: &Arc<Self>, is_stale: impl Fn(&Function) -> bool) -> Vec<Lease> {
        let now = self.now();
        let expired = self.state.lock().pool.take_expired(now, is_stale);
        let ended = |(live, why): (Arc<LiveSandbox>, SandboxEndReason)| {
            metrics::counter!("nigh_sandboxes_ended_total", "reason" => why.label()).increment(1);
            self.lease(live)
        };
        expired.into_iter().map(ended).collect()
    }

    pub(crate) fn idle_functions(&self) -> Vec<Arc<Function>> {
        self.state.lock().pool.idle_functions()
    }

    /// Admits nothing more. Returns the idle sandboxes and the pre-warmed ones, to be ended.
    pub(crate) fn close(self: &Arc<Self>) -> InTheWay {
        let (idle, waiting, stems) = {
            let mut state = self.state.lock();
            state.stems.cancel();
            (state.pool.close(), std::mem::take(&mut state.waiting), state.stems.take_those(|_| true))
        };
        drop(waiting);
        let sandboxes = idle.into_iter().map(|live| self.lease(live)).collect();
        InTheWay { sandboxes, stems: self.spare(stems) }
    }

    /// All sandboxes that have not ended.
    pub(crate) fn alive(&self) -> Vec<Arc<LiveSandbox>> {
        self.state.lock().alive.values().cloned().collect()
    }

    /// The runtimes in `usable` that lack pre-warmed sandboxes, once for each that is missing; and those that are to end.
    pub(crate) fn plan_prewarmed(self: &Arc<Self>, usable: &BTreeSet<Runtime>) -> (Vec<Runtime>, Vec<SparePrewarmed>) {
        let now = self.now();
        let (missing, surplus) = {
            let mut state = self.state.lock();
            let mut ended = state.stems.take_those(HeldPrewarmed::has_ended);
            let (missing, surplus) = state.stems.plan(usable, now);
            ended.extend(surplus);
            (missing, ended)
        };
        (missing, self.spare(surplus))
    }
}
