//! The way into a sandbox: the pool's books behind a lock, and guards that settle them whatever happens.
//!
//! Who is admitted holds guards: one for the run, one for the sandbox or for the room of one. Dropping them gives back
//! what they stand for, so that no path, not even a panic, leaves the books wrong.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use nigh_terms::{ByteSize, Clock, FunctionName, Namespace, SandboxId};
use parking_lot::Mutex;
use tokio::sync::{Notify, oneshot};

use crate::dispatch::Vacancy;
use crate::function::{Function, Runtime};
use crate::function_network::FunctionNetwork;
use crate::invocation::InvokeError;
use crate::live_sandbox::LiveSandbox;
use crate::node_memory::{NodeMemory, StemShare};
use crate::prewarm::STEM_MEMORY;
use crate::sandbox::Stem;
use crate::sandbox_pool::{Admission, Answer, PoolUse, SandboxPool, Ticket};
use crate::stem_stock::{Coming, Count, StemStock};

/// The pool and those who wait for it.
pub(crate) struct Sandboxes {
    books: Mutex<Books>,
    clock: Arc<dyn Clock>,
    freeze_grace: std::time::Duration,
    queue_wait: std::time::Duration,
    /// Told at each cold start, and when one has come.
    stems_changed: Arc<Notify>,
    memory: NodeMemory,
}

/// A stem with its share of the node's memory.
pub(crate) struct HeldStem {
    pub(crate) stem: Stem,
    pub(crate) memory: StemShare,
}

impl HeldStem {
    fn has_ended(&self) -> bool {
        self.stem.has_ended()
    }
}

struct Books {
    pool: SandboxPool<Arc<LiveSandbox>>,
    stems: StemStock<HeldStem>,
    waiting: HashMap<Ticket, Waiter>,
    alive: HashMap<SandboxId, Arc<LiveSandbox>>,
}

type Waiter = (oneshot::Sender<Admitted>, Arc<Function>);
type Served = Vec<(Waiter, Admission<Arc<LiveSandbox>>)>;

impl Books {
    /// Those who wait and are let in now.
    fn serve_waiting(&mut self) -> Served {
        if self.waiting.is_empty() {
            return Vec::new();
        }
        let served = self.pool.serve_waiting();
        served.into_iter().filter_map(|(ticket, what)| Some((self.waiting.remove(&ticket)?, what))).collect()
    }
}

/// What an invocation is admitted with.
pub(crate) struct Admitted {
    pub(crate) place: Place,
    /// To be ended before a sandbox is made.
    pub(crate) evicted: Vec<Lease>,
    /// Stems that are in its way: to be ended as well.
    pub(crate) in_the_way: Vec<SpareStem>,
    pub(crate) run: RunGuard,
    /// What it waited for, if it did.
    pub(crate) waited_for: Option<&'static str>,
}

/// Where it runs.
pub(crate) enum Place {
    Warm(Lease),
    Cold(Room),
}

/// Counts as a running invocation.
pub(crate) struct RunGuard {
    sandboxes: Arc<Sandboxes>,
    function: Arc<Function>,
}

impl Drop for RunGuard {
    fn drop(&mut self) {
        self.sandboxes.books.lock().pool.finished(&self.function);
        self.sandboxes.serve_waiting();
    }
}

/// Room that a new sandbox may take.
pub(crate) struct Room {
    sandboxes: Arc<Sandboxes>,
    booked: Option<ByteSize>,
    stem: Option<HeldStem>,
}

impl Room {
    /// The stem that can become the new sandbox, if there was one.
    pub(crate) const fn take_stem(&mut self) -> Option<HeldStem> {
        self.stem.take()
    }

    /// The sandbox that takes it.
    pub(crate) fn taken_by(mut self, live: Arc<LiveSandbox>) -> Lease {
        self.booked = None;
        self.sandboxes.books.lock().alive.insert(live.id, Arc::clone(&live));
        Lease { sandboxes: Arc::clone(&self.sandboxes), live: Some(live) }
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        if let Some(booked) = self.booked {
            self.sandboxes.books.lock().pool.release(booked);
            self.sandboxes.serve_waiting();
        }
    }
}

/// Stands for an invocation that is expected, until this is dropped.
pub(crate) struct Expected {
    sandboxes: Arc<Sandboxes>,
    namespace: Namespace,
    function: FunctionName,
}

impl Drop for Expected {
    fn drop(&mut self) {
        self.sandboxes.books.lock().pool.expect_no_more(&self.namespace, &self.function);
    }
}

/// Stands for a sandbox that is being made ahead. When this is dropped those who wait for it wait no longer.
pub(crate) struct Ahead {
    sandboxes: Arc<Sandboxes>,
    function: Arc<Function>,
}

impl Drop for Ahead {
    fn drop(&mut self) {
        self.sandboxes.books.lock().pool.ahead_over(&self.function);
        self.sandboxes.serve_waiting();
    }
}

/// Room that a stem may take, or takes.
pub(crate) struct StemRoom {
    sandboxes: Arc<Sandboxes>,
    is_booked: bool,
    /// Of the node's memory, until there is a stem that has it.
    memory: Option<StemShare>,
}

impl StemRoom {
    /// The stem that it was for, if it could be made. It comes back if it is not wanted any more.
    pub(crate) fn filled(mut self, coming: &Coming, stem: Option<Stem>) -> Option<SpareStem> {
        let stem = stem.and_then(|stem| Some(HeldStem { stem, memory: self.memory.take()? }));
        let has_come = stem.is_some();
        let unwanted = self.sandboxes.books.lock().stems.came(coming, stem);
        // One that waits keeps the room until it is taken.
        self.is_booked = unwanted.is_some() || !has_come;
        unwanted.map(|stem| SpareStem { stem, _room: self })
    }
}

impl Drop for StemRoom {
    fn drop(&mut self) {
        if self.is_booked {
            self.sandboxes.books.lock().pool.release_stem(STEM_MEMORY);
            self.sandboxes.serve_waiting();
        }
    }
}

/// A stem that is to be ended.
pub(crate) struct SpareStem {
    stem: HeldStem,
    _room: StemRoom,
}

impl SpareStem {
    /// Ends it; when this returns nothing is left of it and its room is free.
    pub(crate) async fn end(self) {
        let HeldStem { stem, memory: _held } = self.stem;
        stem.end().await;
    }
}

/// A sandbox that its holder has alone. If it is neither given back nor ended it is ended when dropped.
pub(crate) struct Lease {
    sandboxes: Arc<Sandboxes>,
    live: Option<Arc<LiveSandbox>>,
}

impl Lease {
    /// The sandbox, while the lease is held.
    pub(crate) const fn live(&self) -> Option<&Arc<LiveSandbox>> {
        self.live.as_ref()
    }

    /// Its sandbox may have the next invocation, unless it has ended or everything is to end.
    pub(crate) async fn give_back(mut self) {
        let Some(live) = self.live.take() else { return };
        live.rest(self.sandboxes.freeze_grace);
        let now = self.sandboxes.clock.monotonic();
        let function = Arc::clone(&live.function);
        let (refused, served) = {
            let mut books = self.sandboxes.books.lock();
            // One that ended in this moment was not idle when that was noticed.
            let refused = if live.runtime.has_ended() { Some(live) } else { books.pool.give_back(live, function, now) };
            // At once: who comes in this moment is behind those who wait for it.
            (refused, books.serve_waiting())
        };
        self.sandboxes.let_in(served);
        if let Some(live) = refused {
            end(&self.sandboxes, live).await;
        }
    }

    /// Ends its sandbox; when this returns nothing is left of it.
    pub(crate) async fn end(mut self) {
        if let Some(live) = self.live.take() {
            end(&self.sandboxes, live).await;
        }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        // Without a runtime everything ends: the engine's sandboxes die with this process.
        if let (Some(live), Ok(runtime)) = (self.live.take(), tokio::runtime::Handle::try_current()) {
            let sandboxes = Arc::clone(&self.sandboxes);
            runtime.spawn(async move { end(&sandboxes, live).await });
        }
    }
}

async fn end(sandboxes: &Arc<Sandboxes>, live: Arc<LiveSandbox>) {
    live.end().await;
    {
        let mut books = sandboxes.books.lock();
        books.alive.remove(&live.id);
        books.pool.release(live.function.memory);
    }
    sandboxes.serve_waiting();
}

impl Sandboxes {
    pub(crate) fn new(
        pool: SandboxPool<Arc<LiveSandbox>>,
        clock: Arc<dyn Clock>,
        freeze_grace: std::time::Duration,
        queue_wait: std::time::Duration,
        stems_max: usize,
        memory: NodeMemory,
    ) -> Self {
        let stems = StemStock::new(stems_max);
        let books = Mutex::new(Books { pool, stems, waiting: HashMap::new(), alive: HashMap::new() });
        Self { books, clock, freeze_grace, queue_wait, stems_changed: Arc::default(), memory }
    }

    /// See `Invoke::set_reserved`.
    pub(crate) fn set_reserved(self: &Arc<Self>, namespace: &Namespace, function: &FunctionName, n: Option<usize>) {
        self.books.lock().pool.set_reserved(namespace, function, n);
        self.serve_waiting();
    }

    /// What of the node is free, as those hear who dispatch to it.
    pub(crate) fn vacancy(&self) -> Vacancy {
        let now = self.clock.monotonic();
        self.books.lock().pool.vacancy(now)
    }

    pub(crate) fn in_use(&self) -> PoolUse {
        self.books.lock().pool.in_use()
    }

    /// An invocation of `function` may come; nothing if that is known.
    pub(crate) fn expect(self: &Arc<Self>, namespace: &Namespace, function: &FunctionName) -> Option<Expected> {
        let is_new = self.books.lock().pool.expect(namespace, function);
        let (namespace, function) = (namespace.clone(), function.clone());
        is_new.then(|| Expected { sandboxes: Arc::clone(self), namespace, function })
    }

    /// Free room for a sandbox of `function` that is expected to be invoked, with the stems that are in its way. Invocations may wait
    /// for it as long as what stands for it is kept.
    pub(crate) fn room_ahead(self: &Arc<Self>, function: &Arc<Function>) -> Option<(Ahead, Room, Vec<SpareStem>)> {
        // A statement of its own: `room` opens the books again.
        let is_booked = self.books.lock().pool.book_ahead(function);
        is_booked.then(|| {
            let ahead = Ahead { sandboxes: Arc::clone(self), function: Arc::clone(function) };
            let (room, in_the_way) = self.room(function);
            (ahead, room, in_the_way)
        })
    }

    /// The idle sandbox that the next invocation of `function` would get. It stays idle.
    pub(crate) fn warmest(&self, function: &Function) -> Option<Arc<LiveSandbox>> {
        self.books.lock().pool.warmest(function).cloned()
    }

    /// Admits an invocation of `function`, after a bounded wait if need be: for a sandbox that is being made ahead, and, if
    /// that does not come in time, for a place.
    pub(crate) async fn admit(self: &Arc<Self>, function: &Arc<Function>) -> Result<Admitted, InvokeError> {
        let (ticket, mut served, why) = {
            let mut books = self.books.lock();
            match books.pool.ask(function) {
                Answer::Admitted(admission) => {
                    drop(books);
                    return Ok(self.admitted(admission, function));
                }
                Answer::Waiting(ticket, why) => {
                    let (sender, served) = oneshot::channel();
                    books.waiting.insert(ticket, (sender, Arc::clone(function)));
                    (ticket, served, why)
                }
                Answer::Refused(why) => return Err(InvokeError::TooManyRequests(format!("the node {why}"))),
                Answer::OverReserved(limit) => {
                    return Err(InvokeError::ReservedConcurrency { function: function.name.clone(), limit });
                }
                Answer::Closed => return Err(InvokeError::ShuttingDown),
            }
        };
        let asked = self.clock.monotonic();
        let admitted = loop {
            if let Ok(admitted) = tokio::time::timeout(self.queue_wait, &mut served).await {
                break admitted;
            }
            let left = {
                let mut books = self.books.lock();
                if books.pool.insist(ticket) {
                    None
                } else {
                    books.waiting.remove(&ticket);
                    Some(books.pool.leave(ticket))
                }
            };
            // It may have stood before others that there is room for, or have room itself.
            self.serve_waiting();
            match left {
                None => {}
                Some(Some(why)) => {
                    let waited = self.clock.monotonic().since(asked).as_secs_f64();
                    return Err(InvokeError::TooManyRequests(format!("for {waited:.1} s the node {why}")));
                }
                // It was served in this moment, or the pool was closed.
                Some(None) => break served.await,
            }
        };
        let mut admitted = admitted.map_err(|_| InvokeError::ShuttingDown)?;
        admitted.waited_for = Some(why);
        Ok(admitted)
    }

    /// Lets those in who wait, as far as there is room.
    fn serve_waiting(self: &Arc<Self>) {
        let served = self.books.lock().serve_waiting();
        self.let_in(served);
    }

    fn let_in(self: &Arc<Self>, served: Served) {
        for ((waiting, function), admission) in served {
            // If nobody waits any more the guards give everything back.
            drop(waiting.send(self.admitted(admission, &function)));
        }
    }

    fn admitted(self: &Arc<Self>, admission: Admission<Arc<LiveSandbox>>, function: &Arc<Function>) -> Admitted {
        let run = RunGuard { sandboxes: Arc::clone(self), function: Arc::clone(function) };
        let idle = match admission {
            Admission::Warm(live) => {
                let (evicted, in_the_way) = (Vec::new(), Vec::new());
                return Admitted { place: Place::Warm(self.lease(live)), evicted, in_the_way, run, waited_for: None };
            }
            Admission::Cold => Vec::new(),
            Admission::Evict(idle) => idle,
        };
        let (room, in_the_way) = self.room(function);
        let evicted = idle.into_iter().map(|live| self.lease(live)).collect();
        Admitted { place: Place::Cold(room), evicted, in_the_way, run, waited_for: None }
    }

    /// Room that is booked for a sandbox of `function`, with the stems that are in its way.
    fn room(self: &Arc<Self>, function: &Arc<Function>) -> (Room, Vec<SpareStem>) {
        // What a runtime has behind it when it becomes a function's, it did without a network.
        let asks_for_network = FunctionNetwork::asked(&function.environment) != Ok(FunctionNetwork::None);
        let (stem, in_the_way) = self.stem_for((!asks_for_network).then_some(&function.runtime));
        (Room { sandboxes: Arc::clone(self), booked: Some(function.memory), stem }, in_the_way)
    }

    /// A stem for a cold start that is booked, if it may have one, and those that are in its way.
    fn stem_for(self: &Arc<Self>, runtime: Option<&Runtime>) -> (Option<HeldStem>, Vec<SpareStem>) {
        let now = self.clock.monotonic();
        let (stem, in_the_way) = {
            let mut books = self.books.lock();
            let mut in_the_way = books.stems.take_those(HeldStem::has_ended);
            let stem = runtime.and_then(|runtime| books.stems.take(runtime, now));
            if stem.is_some() {
                books.pool.release_stem(STEM_MEMORY);
            }
            let count = books.pool.stems_in_the_way(STEM_MEMORY).saturating_sub(in_the_way.len());
            in_the_way.extend(books.stems.give_way(count));
            (stem, in_the_way)
        };
        self.stems_changed.notify_one();
        (stem, self.spare(in_the_way))
    }

    fn spare(self: &Arc<Self>, stems: Vec<HeldStem>) -> Vec<SpareStem> {
        stems.into_iter().map(|stem| SpareStem { stem, _room: self.stem_room() }).collect()
    }

    fn stem_room(self: &Arc<Self>) -> StemRoom {
        StemRoom { sandboxes: Arc::clone(self), is_booked: true, memory: None }
    }

    /// Notified when there may be one to make: a cold start, or one that has come and leaves its place among those made.
    pub(crate) fn stems_changed(&self) -> Arc<Notify> {
        Arc::clone(&self.stems_changed)
    }

    /// The runtimes in `usable` that want one more stem, once for each; and stems that are to be ended.
    pub(crate) fn plan_stems(self: &Arc<Self>, usable: &BTreeSet<Runtime>) -> (Vec<Runtime>, Vec<SpareStem>) {
        let now = self.clock.monotonic();
        let (missing, surplus) = {
            let mut books = self.books.lock();
            let mut ended = books.stems.take_those(HeldStem::has_ended);
            let (missing, surplus) = books.stems.plan(usable, now);
            ended.extend(surplus);
            (missing, ended)
        };
        (missing, self.spare(surplus))
    }

    /// Room for a stem of `runtime`, unless `at_once` are being made, or somebody waits for the room.
    pub(crate) fn room_for_stem(self: &Arc<Self>, runtime: &Runtime, at_once: usize) -> Option<(StemRoom, Coming)> {
        let mut books = self.books.lock();
        if books.stems.coming() >= at_once || !books.pool.book_stem(STEM_MEMORY) {
            return None;
        }
        let Some(memory) = self.memory.hold_stem() else {
            books.pool.release_stem(STEM_MEMORY);
            return None;
        };
        let room = StemRoom { sandboxes: Arc::clone(self), is_booked: true, memory: Some(memory) };
        Some((room, books.stems.comes(runtime.clone())))
    }

    /// The stems of the runtimes in `usable`.
    pub(crate) fn count_stems(&self, usable: &BTreeSet<Runtime>) -> BTreeMap<Runtime, Count> {
        self.books.lock().stems.counts(usable, self.clock.monotonic())
    }

    fn lease(self: &Arc<Self>, live: Arc<LiveSandbox>) -> Lease {
        Lease { sandboxes: Arc::clone(self), live: Some(live) }
    }

    /// Takes `live` out of the idle ones, to be ended. Nothing if it is not idle.
    pub(crate) fn take_idle(self: &Arc<Self>, live: &Arc<LiveSandbox>) -> Option<Lease> {
        let taken = self.books.lock().pool.take(live);
        taken.then(|| self.lease(Arc::clone(live)))
    }

    /// The same, by its name.
    pub(crate) fn take_idle_named(self: &Arc<Self>, id: SandboxId) -> Option<Lease> {
        let live = self.books.lock().alive.get(&id).cloned()?;
        self.take_idle(&live)
    }

    /// Takes out the idle ones that have lived long enough, or of whose function `is_stale` says that it has changed.
    pub(crate) fn take_expired(self: &Arc<Self>, is_stale: impl Fn(&Function) -> bool) -> Vec<Lease> {
        let now = self.clock.monotonic();
        let expired = self.books.lock().pool.take_expired(now, is_stale);
        expired.into_iter().map(|live| self.lease(live)).collect()
    }

    pub(crate) fn idle_functions(&self) -> Vec<Arc<Function>> {
        self.books.lock().pool.idle_functions()
    }

    /// From here on nobody is admitted. The idle ones come out, to be ended, and the stems.
    pub(crate) fn close(self: &Arc<Self>) -> (Vec<Lease>, Vec<SpareStem>) {
        let (idle, waiting, stems) = {
            let mut books = self.books.lock();
            books.stems.cancel();
            (books.pool.close(), std::mem::take(&mut books.waiting), books.stems.take_those(|_| true))
        };
        drop(waiting);
        (idle.into_iter().map(|live| self.lease(live)).collect(), self.spare(stems))
    }

    /// All that have not ended.
    pub(crate) fn alive(&self) -> Vec<Arc<LiveSandbox>> {
        self.books.lock().alive.values().cloned().collect()
    }
}
