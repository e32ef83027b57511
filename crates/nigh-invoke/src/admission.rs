//! The way into a sandbox: the pool's books behind a lock, what they command, and guards that settle them.
//!
//! Whoever is admitted holds guards: one for the run, one for the sandbox. Dropping them gives back what they stand for, so
//! that no path, not even a panic, leaves the books wrong. A sandbox is made by a task of its own, for the queue of its
//! function: an invocation that stops waiting takes nothing with it.

mod commands;
mod leases;
mod stems;

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use nigh_functions::function::{Function, Runtime};
use nigh_schedule::sandbox_pool::{ColdReason, PoolAnswer, PoolUse, SandboxEndReason, SandboxPool, Ticket, WaitsFor};
use nigh_schedule::vacancy::Vacancy;
use nigh_terms::{ByteSize, Clock, FunctionName, Monotonic, Namespace, SandboxId};
use parking_lot::Mutex;
use tokio::sync::{Notify, mpsc, oneshot};

pub(crate) use self::leases::{Lease, RunGuard, StartGuard};
pub(crate) use self::stems::{HeldStem, SpareStem, StemRoom};
use crate::gate::Entrance;
use crate::idle_processors::IdleProcessors;
use crate::invocation::InvokeError;
use crate::live_sandbox::LiveSandbox;
use crate::making::FailedStart;
use crate::node_memory::NodeMemory;
use crate::stem_stock::StemStock;

/// While somebody waits it is looked so often whether time alone has changed what is to be done.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// The pool and those who wait for it.
pub(crate) struct Sandboxes {
    books: Mutex<Books>,
    clock: Arc<dyn Clock>,
    freeze_grace: Duration,
    /// Told at each cold start, and when one has come.
    stems_changed: Arc<Notify>,
    /// Told when somebody begins to wait.
    waits: Notify,
    memory: NodeMemory,
    /// Sandboxes that are to be made: as many as there are processors, at most.
    orders: mpsc::UnboundedSender<Order>,
    /// Until somebody takes it who makes them.
    to_make: Mutex<Option<mpsc::UnboundedReceiver<Order>>>,
}

struct Books {
    pool: SandboxPool<Arc<LiveSandbox>>,
    stems: StemStock<HeldStem>,
    waiting: HashMap<Ticket, Waiter>,
    alive: HashMap<SandboxId, Arc<LiveSandbox>>,
    idle_processors: IdleProcessors,
}

/// One who waits.
struct Waiter {
    turn: oneshot::Sender<Turn>,
    function: Arc<Function>,
    entrance: Entrance,
}

/// What comes of waiting.
enum Turn {
    Admitted(AdmittedRun),
    /// The sandbox that was made for it could not be.
    Failed(Box<FailedStart>),
    TooLate(WaitsFor),
}

/// What an invocation is admitted with.
pub(crate) struct AdmittedRun {
    pub(crate) lease: Lease,
    /// To be ended before it runs.
    pub(crate) in_the_way: InTheWay,
    pub(crate) run: RunGuard,
    /// What it waited for, if it did.
    pub(crate) waited_for: Option<WaitsFor>,
}

/// Sandboxes, prewarmed ones too, that are to be ended before what needs their room begins.
#[derive(Default)]
pub(crate) struct InTheWay {
    pub(crate) sandboxes: Vec<Lease>,
    stems: Vec<SpareStem>,
}

impl InTheWay {
    /// Ends them; when this returns their room is free.
    pub(crate) async fn end(self) {
        let sandboxes = futures::future::join_all(self.sandboxes.into_iter().map(Lease::end));
        futures::future::join(sandboxes, futures::future::join_all(self.stems.into_iter().map(SpareStem::end))).await;
    }
}

/// A sandbox that is to be made.
pub(crate) struct Order {
    pub(crate) making: StartGuard,
    pub(crate) function: Arc<Function>,
    /// What it is made for: with that begins what it does before its first invocation.
    pub(crate) entrance: Entrance,
    /// The invocation that hears of it if it cannot be made.
    pub(crate) ticket: Option<Ticket>,
    pub(crate) stem: Option<HeldStem>,
    pub(crate) in_the_way: InTheWay,
    pub(crate) reason: ColdReason,
}

/// Stands for an invocation that is expected, until this is dropped.
pub(crate) struct ExpectationGuard {
    sandboxes: Arc<Sandboxes>,
    namespace: Namespace,
    function: FunctionName,
}

impl Drop for ExpectationGuard {
    fn drop(&mut self) {
        self.sandboxes.books.lock().pool.expect_no_more(&self.namespace, &self.function);
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
        let books = Mutex::new(Books {
            pool,
            stems: StemStock::new(stems_max),
            waiting: HashMap::new(),
            alive: HashMap::new(),
            idle_processors: IdleProcessors::new(processors),
        });
        let (orders, to_make) = mpsc::unbounded_channel();
        let to_make = Mutex::new(Some(to_make));
        Self {
            books,
            clock,
            freeze_grace,
            stems_changed: Arc::default(),
            waits: Notify::new(),
            memory,
            orders,
            to_make,
        }
    }

    /// The sandboxes that are to be made, for who asks first.
    pub(crate) fn take_orders(&self) -> Option<mpsc::UnboundedReceiver<Order>> {
        self.to_make.lock().take()
    }

    fn now(&self) -> Monotonic {
        self.clock.monotonic()
    }

    /// See `Invoker::set_share`.
    pub(crate) fn set_share(&self, namespace: &Namespace, share: u32) {
        self.books.lock().pool.set_share(namespace.clone(), share);
    }

    /// See `Invoke::set_reserved`.
    pub(crate) fn set_reserved(self: &Arc<Self>, namespace: &Namespace, function: &FunctionName, n: Option<usize>) {
        self.books.lock().pool.set_reserved(namespace, function, n);
        self.serve();
    }

    /// What of the node is free, as those hear who dispatch to it.
    pub(crate) fn vacancy(&self) -> Vacancy {
        let now = self.now();
        self.books.lock().pool.vacancy(now)
    }

    pub(crate) fn in_use(&self) -> PoolUse {
        self.books.lock().pool.in_use()
    }

    /// An invocation of `function` may come; nothing if that is known.
    pub(crate) fn expect(self: &Arc<Self>, namespace: &Namespace, function: &FunctionName) -> Option<ExpectationGuard> {
        let is_new = self.books.lock().pool.expect(namespace, function);
        let (namespace, function) = (namespace.clone(), function.clone());
        is_new.then(|| ExpectationGuard { sandboxes: Arc::clone(self), namespace, function })
    }

    /// A sandbox of `function` to be made for an invocation that is expected, if there is free room for one.
    pub(crate) fn start_ahead(self: &Arc<Self>, function: &Arc<Function>) -> Option<Order> {
        let (order, surplus) = {
            let mut books = self.books.lock();
            let start = books.pool.start_ahead(function, self.now())?;
            let mut stems = self.surplus_stems(&mut books);
            (self.order(&mut books, start, &mut stems), stems)
        };
        self.stems_changed.notify_one();
        self.end_apart(surplus);
        Some(order)
    }

    /// The idle sandbox that the next invocation of `function` would get. It stays idle.
    pub(crate) fn warmest(&self, function: &Function) -> Option<Arc<LiveSandbox>> {
        self.books.lock().pool.warmest(function).cloned()
    }

    /// Admits an invocation of `function`, after a bounded wait if need be.
    ///
    /// # Errors
    /// Why it does not run: it waited too long, or may not wait, or the sandbox made for it came to nothing.
    pub(crate) async fn admit(
        self: &Arc<Self>,
        function: &Arc<Function>,
        entrance: &Entrance,
    ) -> Result<Result<AdmittedRun, Box<FailedStart>>, InvokeError> {
        let asked = self.now();
        let (mut turn, done, waits_for) = {
            let mut books = self.books.lock();
            let ticket = match books.pool.ask(function, asked) {
                PoolAnswer::Waiting(ticket) => ticket,
                PoolAnswer::Refused(why) => return Err(InvokeError::TooManyRequests(format!("the node {why}"))),
                PoolAnswer::OverReserved(limit) => {
                    return Err(InvokeError::ReservedConcurrency { function: function.name.clone(), limit });
                }
                PoolAnswer::Closed => return Err(InvokeError::ShuttingDown),
            };
            let (sender, turn) = oneshot::channel();
            let waiter = Waiter { turn: sender, function: Arc::clone(function), entrance: entrance.clone() };
            books.waiting.insert(ticket, waiter);
            let done = self.commands(&mut books, asked);
            let waits_for = books.waiting.contains_key(&ticket).then(|| books.pool.waits_for(function, asked));
            (turn, done, waits_for)
        };
        self.carry_out(done);
        if let Some(waits_for) = waits_for {
            metrics::counter!("nigh_invocation_waits_total", "for" => waits_for.label()).increment(1);
            self.waits.notify_one();
        }
        let come = (&mut turn).await.map_err(|_| InvokeError::ShuttingDown)?;
        let waited = self.now().since(asked);
        if let Some(waits_for) = waits_for {
            metrics::histogram!("nigh_invocation_wait_seconds", "for" => waits_for.label())
                .record(waited.as_secs_f64());
        }
        match come {
            Turn::Admitted(admitted) => Ok(Ok(AdmittedRun { waited_for: waits_for, ..admitted })),
            Turn::Failed(failed) => Ok(Err(failed)),
            Turn::TooLate(waits_for) => {
                let (waited, words) = (waited.as_secs_f64(), waits_for.words());
                Err(InvokeError::TooManyRequests(format!("for {waited:.1} s the node {words}; invoke again later")))
            }
        }
    }

    /// Tells the invocation that a sandbox was made for that it could not be. False if that waits no longer.
    pub(crate) fn start_failed(self: &Arc<Self>, ticket: Option<Ticket>, failed: FailedStart) -> bool {
        let now = self.now();
        let waiter = {
            let mut books = self.books.lock();
            let Some(ticket) = ticket else { return false };
            let waiter = books.waiting.remove(&ticket);
            if waiter.is_some() {
                books.pool.leave(ticket, now);
            }
            waiter
        };
        waiter.is_some_and(|waiter| waiter.turn.send(Turn::Failed(Box::new(failed))).is_ok())
    }

    /// Looks what is to be done now. To be called after every change, and now and then while somebody waits.
    fn serve(self: &Arc<Self>) {
        let now = self.now();
        let done = self.commands(&mut self.books.lock(), now);
        self.carry_out(done);
    }

    /// Looks a moment later what is to be done, if somebody waits; else as soon as somebody does, or after `quiet`.
    pub(crate) async fn look_later(self: &Arc<Self>, quiet: Duration) {
        if self.books.lock().waiting.is_empty() {
            let _nobody = tokio::time::timeout(quiet, self.waits.notified()).await;
            return;
        }
        tokio::time::sleep(LOOK_EVERY).await;
        let now = self.now();
        let done = {
            let mut books = self.books.lock();
            if let Some(idle) = books.idle_processors.measure(now) {
                books.pool.set_idle_processors(idle, now);
            }
            self.commands(&mut books, now)
        };
        self.carry_out(done);
    }

    fn lease(self: &Arc<Self>, live: Arc<LiveSandbox>) -> Lease {
        Lease::new(self, live)
    }

    /// Takes `live` out of the idle ones, to be ended, for this reason. Nothing if it is not idle.
    pub(crate) fn take_idle(self: &Arc<Self>, live: &Arc<LiveSandbox>, why: &SandboxEndReason) -> Option<Lease> {
        let taken = self.books.lock().pool.take(live, why);
        taken.then(|| {
            metrics::counter!("nigh_sandboxes_ended_total", "for" => why.label()).increment(1);
            self.lease(Arc::clone(live))
        })
    }

    /// The same, by its name, for its memory.
    pub(crate) fn take_idle_named(self: &Arc<Self>, id: SandboxId) -> Option<Lease> {
        let live = self.books.lock().alive.get(&id).cloned()?;
        self.take_idle(&live, &SandboxEndReason::Memory)
    }

    /// `live`, which is idle, stands still and takes `held`.
    fn rests(self: &Arc<Self>, live: &Arc<LiveSandbox>, held: ByteSize) {
        self.books.lock().pool.rests(live, held);
        self.serve();
    }

    /// Takes out the idle ones that have lived long enough, or of whose function `is_stale` says that it has changed.
    pub(crate) fn take_expired(self: &Arc<Self>, is_stale: impl Fn(&Function) -> bool) -> Vec<Lease> {
        let now = self.now();
        let expired = self.books.lock().pool.take_expired(now, is_stale);
        let ended = |(live, why): (Arc<LiveSandbox>, SandboxEndReason)| {
            metrics::counter!("nigh_sandboxes_ended_total", "for" => why.label()).increment(1);
            self.lease(live)
        };
        expired.into_iter().map(ended).collect()
    }

    pub(crate) fn idle_functions(&self) -> Vec<Arc<Function>> {
        self.books.lock().pool.idle_functions()
    }

    /// From here on nobody is admitted. The idle ones come out, to be ended, and the stems.
    pub(crate) fn close(self: &Arc<Self>) -> InTheWay {
        let (idle, waiting, stems) = {
            let mut books = self.books.lock();
            books.stems.cancel();
            (books.pool.close(), std::mem::take(&mut books.waiting), books.stems.take_those(|_| true))
        };
        drop(waiting);
        let sandboxes = idle.into_iter().map(|live| self.lease(live)).collect();
        InTheWay { sandboxes, stems: self.spare(stems) }
    }

    /// All that have not ended.
    pub(crate) fn alive(&self) -> Vec<Arc<LiveSandbox>> {
        self.books.lock().alive.values().cloned().collect()
    }

    /// The runtimes in `usable` that want one more stem, once for each; and stems that are to be ended.
    pub(crate) fn plan_stems(self: &Arc<Self>, usable: &BTreeSet<Runtime>) -> (Vec<Runtime>, Vec<SpareStem>) {
        let now = self.now();
        let (missing, surplus) = {
            let mut books = self.books.lock();
            let mut ended = books.stems.take_those(HeldStem::has_ended);
            let (missing, surplus) = books.stems.plan(usable, now);
            ended.extend(surplus);
            (missing, ended)
        };
        (missing, self.spare(surplus))
    }
}
