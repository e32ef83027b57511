//! The sandboxes of a node: which are idle, what all of them book, who waits for one. Pure.
//!
//! Every question is put to the scheduler with this node's view; what it decides is booked here at once, so that two
//! askers cannot be promised the same room. The books hold every sandbox from its promise to its last trace being
//! gone, and never exceed the limits, except that a promise on the room of sandboxes which are being ended stands
//! beside them until they are gone. Stems are booked too, and yield: to who asks for room they are free room, and those
//! that stand in the way end first. Those who wait are served in order: for a warm sandbox anyone may go first, for
//! room nobody passes one who came before.

mod ahead;
mod concurrency;
mod idle;
#[cfg(test)]
mod random_run;
mod waiting;

use std::sync::Arc;
use std::time::Duration;

use nigh_terms::{ByteSize, FunctionName, Incarnation, Monotonic, Namespace, NodeId};

use self::ahead::MadeAhead;
use self::concurrency::Concurrency;
use self::idle::IdleSandboxes;
pub use self::waiting::Ticket;
use self::waiting::{Awaits, NotNow, Waiting, WaitingLine};
use crate::dispatch::Vacancy;
use crate::function::Function;
use crate::keep_alive::{KeepAlive, victims};
use crate::scheduler::{
    Fingerprint, Inputs, NodeIndex, NodeRole, NodeView, Offer, PerNode, Placement, Refusal, Warm, Weights, schedule,
};

/// What a node's sandboxes may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolLimits {
    /// Sandboxes, idle ones included.
    pub sandboxes_max: usize,
    /// What they may book together.
    pub memory_max: ByteSize,
    /// Invocations that run at once.
    pub invocations_max: usize,
    /// Invocations that may wait for a sandbox.
    pub waiting_max: usize,
}

/// What an asker gets: with each of them but `Wait` one more invocation counts as running.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Admission<S> {
    /// This sandbox, which is its alone now.
    Warm(S),
    /// Room for a new sandbox.
    Cold,
    /// Room for a new sandbox once these are ended, which is the asker's to do.
    Evict(Vec<S>),
}

/// What an asker hears.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer<S> {
    /// It may run.
    Admitted(Admission<S>),
    /// It is in the queue under this ticket; the reason is the scheduler's.
    Waiting(Ticket, &'static str),
    /// It cannot even wait, for this reason.
    Refused(&'static str),
    /// It cannot even wait: as many run as are reserved for its function.
    OverReserved(usize),
    /// Nobody is admitted any more.
    Closed,
}

/// The books of a node's sandboxes; `S` is a handle of one.
pub struct SandboxPool<S> {
    node: Fingerprint,
    incarnation: Incarnation,
    limits: PoolLimits,
    keep_alive: KeepAlive,
    idle: IdleSandboxes<S>,
    waiting: WaitingLine,
    ahead: MadeAhead,
    sandboxes: usize,
    booked: ByteSize,
    stems: usize,
    prewarmed: ByteSize,
    running: Concurrency,
    closed: bool,
}

/// What the pool holds now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PoolUse {
    /// Sandboxes, from their promise until they are gone.
    pub sandboxes: usize,
    /// Those of them that are idle.
    pub idle: usize,
    /// What all of them book.
    pub booked: ByteSize,
    /// What those book that are idle.
    pub idle_booked: ByteSize,
    /// Stems, from the promise of their room until they are gone or a function's.
    pub stems: usize,
    /// What these book beside the sandboxes.
    pub prewarmed: ByteSize,
    /// Invocations that run, or whose sandbox is being made.
    pub running: usize,
    /// Invocations that wait for their turn to run, or for room.
    pub waiting: usize,
}

impl<S: PartialEq> SandboxPool<S> {
    /// An empty pool of `node`.
    #[must_use]
    pub fn new(node: &NodeId, incarnation: Incarnation, limits: PoolLimits, keep_alive: KeepAlive) -> Self {
        Self {
            node: Fingerprint::of(&[&node.0]),
            incarnation,
            limits,
            keep_alive,
            idle: IdleSandboxes::new(),
            waiting: WaitingLine::new(),
            ahead: MadeAhead::default(),
            sandboxes: 0,
            booked: ByteSize::ZERO,
            stems: 0,
            prewarmed: ByteSize::ZERO,
            running: Concurrency::default(),
            closed: false,
        }
    }

    /// What the pool holds now.
    #[must_use]
    pub fn in_use(&self) -> PoolUse {
        PoolUse {
            sandboxes: self.sandboxes,
            idle: self.idle.len(),
            booked: self.booked,
            idle_booked: self.idle.booked(),
            stems: self.stems,
            prewarmed: self.prewarmed,
            running: self.running.all(),
            waiting: self.waiting.len(),
        }
    }

    /// What is free, and which functions have idle sandboxes, as those hear who dispatch to this node.
    #[must_use]
    pub fn vacancy(&self, now: Monotonic) -> Vacancy {
        let count = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
        let limits = &self.limits;
        Vacancy {
            idle: count(self.idle.len()),
            memory: limits.memory_max,
            memory_free: limits.memory_max.saturating_sub(self.booked),
            memory_idle: self.idle.booked(),
            sandboxes_free: count(limits.sandboxes_max.saturating_sub(self.sandboxes)),
            running: count(self.running.all()),
            invocations_free: if self.closed {
                0
            } else {
                count(limits.invocations_max.saturating_sub(self.running.all()))
            },
            processors: 1,
            ways_free: 0,
            warm: self.idle.warm(now),
        }
    }

    /// The limits.
    #[must_use]
    pub const fn limits(&self) -> &PoolLimits {
        &self.limits
    }

    /// Asks for a sandbox of `function`.
    pub fn ask(&mut self, function: &Arc<Function>) -> Answer<S> {
        if self.closed {
            return Answer::Closed;
        }
        if function.memory > self.limits.memory_max {
            return Answer::Refused("has less memory for all sandboxes than the function books");
        }
        if let Some(limit) = self.running.reserve_in_use(function) {
            return Answer::OverReserved(limit);
        }
        let room_is_free = !self.waiting.iter().any(|one| self.waits_for_room(one));
        let not_now = match self.admit(function, room_is_free, false) {
            Ok(admission) => return Answer::Admitted(admission),
            Err(not_now) => not_now,
        };
        match not_now.awaits {
            Awaits::Made => self.begin(function),
            Awaits::Place if self.waiting.len() >= self.limits.waiting_max => return Answer::Refused(not_now.why),
            Awaits::Place => {}
        }
        Answer::Waiting(self.waiting.join(Arc::clone(function), not_now), not_now.why)
    }

    /// Serves those who wait, as far as it goes. To be called after every change that may have made room.
    pub fn serve_waiting(&mut self) -> Vec<(Ticket, Admission<S>)> {
        let mut served = Vec::new();
        let mut room_is_taken = false;
        for one in self.waiting.take_all() {
            self.give_turn_back(&one);
            match self.admit(&one.function, !room_is_taken, one.insists) {
                Ok(admission) => served.push((one.ticket, admission)),
                Err(not_now) => {
                    let one = Waiting { not_now, ..one };
                    match not_now.awaits {
                        Awaits::Made => self.begin(&one.function),
                        Awaits::Place => room_is_taken |= self.waits_for_room(&one),
                    }
                    self.waiting.keep(one);
                }
            }
        }
        served
    }

    /// `ticket` has waited long enough for a sandbox that is being made: it is served as if there were none. False if that
    /// was not what it waited for.
    pub fn insist(&mut self, ticket: Ticket) -> bool {
        let found = self.waiting.find(ticket).filter(|one| !one.insists && one.not_now.awaits == Awaits::Made);
        found.map(|one| one.insists = true).is_some()
    }

    /// `ticket` waits no longer; what for, in words. Nothing if it was served already.
    pub fn leave(&mut self, ticket: Ticket) -> Option<&'static str> {
        let one = self.waiting.leave(ticket)?;
        self.give_turn_back(&one);
        Some(one.not_now.why)
    }

    fn begin(&mut self, function: &Function) {
        self.ahead.came(function);
        self.running.began(function);
    }

    fn give_turn_back(&mut self, one: &Waiting) {
        if one.not_now.awaits == Awaits::Made {
            self.running.ended(&one.function);
        }
    }

    /// An invocation of `function` has ended. Its sandbox is given back or released beside this.
    pub fn finished(&mut self, function: &Function) {
        self.running.ended(function);
    }

    /// `concurrency` invocations are this function's from now on, or as many as others leave it.
    pub fn set_reserved(&mut self, namespace: &Namespace, function: &FunctionName, concurrency: Option<usize>) {
        self.running.set_reserved(namespace, function, concurrency);
    }

    /// True if it is memory or a sandbox that `one` waits for, and not its turn to run, nor what is being made for it.
    fn waits_for_room(&self, one: &Waiting) -> bool {
        one.not_now.awaits == Awaits::Place && self.running.free(&one.function, self.limits.invocations_max) > 0
    }

    /// `sandbox` is idle from `now` on. It comes back if the pool does not keep it: then it is to be ended.
    #[must_use]
    pub fn give_back(&mut self, sandbox: S, function: Arc<Function>, now: Monotonic) -> Option<S> {
        if self.closed {
            return Some(sandbox);
        }
        self.idle.keep(sandbox, function, now);
        None
    }

    /// A sandbox that booked `booked` is gone, or will never be.
    pub fn release(&mut self, booked: ByteSize) {
        debug_assert!(self.sandboxes > 0 && self.booked >= booked, "more is released than was promised");
        self.sandboxes = self.sandboxes.saturating_sub(1);
        self.booked = self.booked.saturating_sub(booked);
    }

    /// An invocation of `function` may come. False if that is known.
    pub fn expect(&mut self, namespace: &Namespace, function: &FunctionName) -> bool {
        self.ahead.expect(&(namespace.clone(), function.clone()))
    }

    /// Nothing is made for it any more.
    pub fn expect_no_more(&mut self, namespace: &Namespace, function: &FunctionName) {
        self.ahead.expect_no_more(&(namespace.clone(), function.clone()));
    }

    /// Books a sandbox of `function` for an invocation that is expected and has not come, if none is idle or being made so
    /// and there is free room. Whoever is invoked from now on may wait for it, until `ahead_over`.
    pub fn book_ahead(&mut self, function: &Arc<Function>) -> bool {
        let fits = !self.closed
            && self.ahead.expects(function)
            && self.waiting.len() == 0
            && self.idle.of(function) == 0
            && self.ahead.of(function) == 0
            && self.sandboxes < self.limits.sandboxes_max
            && self.booked + function.memory <= self.limits.memory_max;
        if fits {
            self.sandboxes += 1;
            self.booked += function.memory;
            self.ahead.begins(function);
        }
        fits
    }

    /// The sandbox of `function` that was booked ahead has been given back, or is never made. It is released beside this.
    pub fn ahead_over(&mut self, function: &Function) {
        self.ahead.ends(function);
    }

    /// Books a stem of `memory`, if there is room that nobody waits for.
    pub fn book_stem(&mut self, memory: ByteSize) -> bool {
        let fits = !self.closed
            && self.waiting.len() == 0
            && self.sandboxes + self.stems < self.limits.sandboxes_max
            && self.booked + self.prewarmed + memory <= self.limits.memory_max;
        if fits {
            self.stems += 1;
            self.prewarmed += memory;
        }
        fits
    }

    /// A stem of `memory` is gone, or has become a sandbox, which is booked as such.
    pub fn release_stem(&mut self, memory: ByteSize) {
        debug_assert!(self.stems > 0 && self.prewarmed >= memory, "more stems are released than were booked");
        self.stems = self.stems.saturating_sub(1);
        self.prewarmed = self.prewarmed.saturating_sub(memory);
    }

    /// How many stems of `memory` each stand in the way of the sandboxes and are to be ended.
    #[must_use]
    pub fn stems_in_the_way(&self, memory: ByteSize) -> usize {
        let beyond = (self.booked + self.prewarmed).saturating_sub(self.limits.memory_max);
        let for_memory = beyond.bytes().div_ceil(memory.bytes().max(1));
        let for_number = (self.sandboxes + self.stems).saturating_sub(self.limits.sandboxes_max);
        usize::try_from(for_memory).unwrap_or(usize::MAX).max(for_number).min(self.stems)
    }

    /// The idle sandbox that the next invocation of `function` would get.
    #[must_use]
    pub fn warmest(&self, function: &Function) -> Option<&S> {
        self.idle.warmest(function)
    }

    /// Takes an idle sandbox out, to be ended. False if it is not idle.
    pub fn take(&mut self, sandbox: &S) -> bool {
        self.idle.take(sandbox)
    }

    /// Takes out those that are idle for too long or too many at `now`, and those of which `is_stale` says that their
    /// function has changed. They are to be ended.
    #[must_use]
    pub fn take_expired(&mut self, now: Monotonic, is_stale: impl Fn(&Function) -> bool) -> Vec<S> {
        let expired = self.keep_alive.expired(&self.idle.views(), now);
        let mut taken = self.idle.take_oldest(expired);
        taken.extend(self.idle.take_those(is_stale));
        taken
    }

    /// The functions that have idle sandboxes, each version once.
    #[must_use]
    pub fn idle_functions(&self) -> Vec<Arc<Function>> {
        self.idle.functions()
    }

    /// From here on nothing is admitted or kept. Those who wait are forgotten, the idle come out to be ended.
    #[must_use]
    pub fn close(&mut self) -> Vec<S> {
        self.closed = true;
        for one in self.waiting.take_all() {
            self.give_turn_back(&one);
        }
        self.idle.take_oldest(self.idle.len())
    }

    fn view(&self, function: &Function) -> NodeView {
        let count = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
        NodeView {
            incarnation: self.incarnation,
            name: self.node,
            role: NodeRole::Worker,
            // Its own gate asks of each invocation, when it begins.
            shards_behind: 0,
            idle: count(self.idle.len()),
            memory: self.limits.memory_max,
            memory_free: self.limits.memory_max.saturating_sub(self.booked),
            memory_idle: self.idle.booked(),
            sandboxes_free: count(self.limits.sandboxes_max.saturating_sub(self.sandboxes)),
            running: count(self.running.all()),
            invocations_free: count(self.running.free(function, self.limits.invocations_max)),
            // Terms of the cost, and there is no other node to compare with.
            processors: 1,
            ways_free: 0,
        }
    }

    /// Those in the line are before it.
    fn admit(&mut self, function: &Arc<Function>, room_is_free: bool, insists: bool) -> Result<Admission<S>, NotNow> {
        let no_place = |why| NotNow { awaits: Awaits::Place, why };
        let mut warm = PerNode::default();
        let sandboxes = u32::try_from(self.idle.of(function)).unwrap_or(u32::MAX);
        *warm.entry(NodeIndex(0)) = Warm { sandboxes, granted: function.memory, idle_for: Duration::ZERO };
        let placement = Placement {
            function: Fingerprint::of(&[function.namespace.as_str(), function.name.as_str()]),
            booked: function.memory,
            expected: function.memory,
            run: Duration::ZERO,
            cold_start: Duration::ZERO,
            ways: 0,
            warm: &warm,
            inputs: &Inputs::default(),
        };
        let decision = schedule(&Weights::SETTLED, &placement, &[self.view(function)]);
        let Some(choice) = decision.choice else {
            let why = decision.refusals.commonest().map_or("has no room", Refusal::reason);
            return Err(no_place(why));
        };
        let admission = match choice.offer {
            Offer::Warm => {
                let warmest = self.idle.take_warmest(function);
                Admission::Warm(warmest.ok_or_else(|| no_place("has no warm sandbox after all"))?)
            }
            Offer::Cold | Offer::Evict if !insists && self.ahead.of(function) > self.waiting.for_made(function) => {
                let why = "makes a sandbox of the function already";
                return Err(NotNow { awaits: Awaits::Made, why });
            }
            Offer::Cold | Offer::Evict if !room_is_free => {
                return Err(no_place("has others waiting for room before this one"));
            }
            Offer::Cold => Admission::Cold,
            Offer::Evict => {
                let free = self.limits.memory_max.saturating_sub(self.booked);
                let missing = usize::from(self.sandboxes >= self.limits.sandboxes_max);
                let count = victims(&self.idle.views(), missing, function.memory.saturating_sub(free))
                    .ok_or_else(|| no_place("has not enough idle sandboxes to make room"))?;
                Admission::Evict(self.idle.take_oldest(count))
            }
        };
        if !matches!(admission, Admission::Warm(_)) {
            self.sandboxes += 1;
            self.booked += function.memory;
        }
        self.begin(function);
        Ok(admission)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::function::tests::function;

    pub(super) const LIMITS: PoolLimits =
        PoolLimits { sandboxes_max: 4, memory_max: ByteSize::mib(512), invocations_max: 4, waiting_max: 2 };

    pub(super) fn pool(limits: PoolLimits) -> SandboxPool<u32> {
        SandboxPool::new(&NodeId("node".to_owned()), Incarnation(1), limits, KeepAlive::default())
    }

    pub(super) fn sized(name: &str, mib: u64) -> Arc<Function> {
        Arc::new(Function { memory: ByteSize::mib(mib), ..function(name) })
    }

    pub(super) fn ask(pool: &mut SandboxPool<u32>, function: &Arc<Function>) -> Answer<u32> {
        pool.ask(function)
    }

    pub(super) fn book_ahead(pool: &mut SandboxPool<u32>, function: &Arc<Function>) -> bool {
        let _known = pool.expect(&function.namespace, &function.name);
        pool.book_ahead(function)
    }

    /// Runs one invocation in a new sandbox that is idle afterwards, since `since_s`.
    fn warm_up(pool: &mut SandboxPool<u32>, function: &Arc<Function>, sandbox: u32, since_s: u64) {
        assert_eq!(ask(pool, function), Answer::Admitted(Admission::Cold));
        pool.finished(function);
        let since = Monotonic::default().after(Duration::from_secs(since_s));
        assert_eq!(pool.give_back(sandbox, Arc::clone(function), since), None);
    }

    #[test]
    fn the_sandbox_used_last_is_used_again_by_its_own_version_only() {
        let mut pool = pool(LIMITS);
        let f = sized("f", 128);
        warm_up(&mut pool, &f, 1, 0);
        assert_eq!(ask(&mut pool, &f), Answer::Admitted(Admission::Warm(1)));
        assert_eq!(ask(&mut pool, &f), Answer::Admitted(Admission::Cold));
        for sandbox in [1, 2] {
            pool.finished(&f);
            assert_eq!(pool.give_back(sandbox, Arc::clone(&f), Monotonic(0)), None);
        }
        let updated = Arc::new(Function { revision_id: "revision-2".to_owned(), ..(*f).clone() });
        assert_eq!(ask(&mut pool, &updated), Answer::Admitted(Admission::Cold));
        assert_eq!(ask(&mut pool, &sized("g", 128)), Answer::Admitted(Admission::Cold));
        assert_eq!(ask(&mut pool, &f), Answer::Admitted(Admission::Warm(2)));
        assert_eq!(pool.take_expired(Monotonic(0), |idle| idle.revision_id == "revision-1"), [1]);
    }

    #[test]
    fn the_books_never_exceed_the_limits_beyond_what_is_being_ended() {
        let mut pool = pool(LIMITS);
        warm_up(&mut pool, &sized("a", 256), 1, 0);
        warm_up(&mut pool, &sized("b", 128), 2, 1);
        // 128 MiB are free; 64 more are needed beside them: the one idle longest goes.
        let big = sized("big", 192);
        assert_eq!(ask(&mut pool, &big), Answer::Admitted(Admission::Evict(vec![1])));
        assert_eq!(pool.in_use().booked, ByteSize::mib(576));
        // What is free now was promised to the evictor: the next one has to end the other idle sandbox.
        assert_eq!(ask(&mut pool, &sized("c", 128)), Answer::Admitted(Admission::Evict(vec![2])));
        assert!(matches!(ask(&mut pool, &sized("d", 128)), Answer::Waiting(..)));
        pool.release(ByteSize::mib(256));
        pool.release(ByteSize::mib(128));
        assert_eq!(pool.in_use().booked, ByteSize::mib(320));
        assert_eq!(pool.serve_waiting().len(), 1);
        assert!(pool.in_use().booked <= LIMITS.memory_max);
    }

    #[test]
    fn sandboxes_and_invocations_have_their_own_limits() {
        let mut crowded = pool(PoolLimits { sandboxes_max: 1, ..LIMITS });
        warm_up(&mut crowded, &sized("a", 128), 1, 0);
        assert_eq!(ask(&mut crowded, &sized("b", 128)), Answer::Admitted(Admission::Evict(vec![1])));
        crowded.release(ByteSize::mib(128));
        assert!(matches!(ask(&mut crowded, &sized("c", 128)), Answer::Waiting(..)));

        let mut busy = pool(PoolLimits { invocations_max: 1, ..LIMITS });
        assert_eq!(ask(&mut busy, &sized("a", 128)), Answer::Admitted(Admission::Cold));
        assert!(matches!(ask(&mut busy, &sized("a", 128)), Answer::Waiting(_, why) if why.contains("invocations")));
        busy.finished(&sized("a", 128));
        assert_eq!(busy.serve_waiting().len(), 1);
    }

    #[test]
    fn who_waits_longer_gets_room_first_and_a_warm_sandbox_goes_to_whom_it_fits() {
        let mut pool = pool(LIMITS);
        let (f, big) = (sized("f", 256), sized("big", 512));
        assert_eq!(ask(&mut pool, &f), Answer::Admitted(Admission::Cold));
        let Answer::Waiting(first, _) = ask(&mut pool, &big) else { panic!("admitted") };
        // There is room for it, but not before the one who came first.
        let Answer::Waiting(second, _) = ask(&mut pool, &f) else { panic!("admitted") };
        assert!(matches!(ask(&mut pool, &f), Answer::Refused(_)));

        pool.finished(&f);
        assert_eq!(pool.give_back(1, Arc::clone(&f), Monotonic(0)), None);
        // The first may now end the idle one and have all the room.
        assert_eq!(pool.serve_waiting(), [(first, Admission::Evict(vec![1]))]);
        assert!(pool.leave(second).is_some() && pool.leave(second).is_none() && pool.leave(first).is_none());
    }

    #[test]
    fn a_warm_sandbox_passes_those_who_wait_for_room() {
        let mut pool = pool(PoolLimits { memory_max: ByteSize::mib(512), ..LIMITS });
        let (f, big) = (sized("f", 128), sized("big", 512));
        assert_eq!(ask(&mut pool, &f), Answer::Admitted(Admission::Cold));
        assert_eq!(ask(&mut pool, &f), Answer::Admitted(Admission::Cold));
        let Answer::Waiting(first, _) = ask(&mut pool, &big) else { panic!("admitted") };
        pool.finished(&f);
        assert_eq!(pool.give_back(1, Arc::clone(&f), Monotonic(0)), None);
        assert_eq!(pool.serve_waiting(), []);
        assert_eq!(ask(&mut pool, &f), Answer::Admitted(Admission::Warm(1)));
        assert!(pool.leave(first).is_some());
    }

    fn reserve(pool: &mut SandboxPool<u32>, function: &Function, concurrency: Option<usize>) {
        pool.set_reserved(&function.namespace, &function.name, concurrency);
    }

    #[test]
    fn what_is_reserved_is_one_functions_alone_and_all_that_it_has() {
        let mut pool = pool(LIMITS);
        let (own, other) = (sized("own", 64), sized("other", 64));
        reserve(&mut pool, &own, Some(1));
        for _ in 0..3 {
            assert_eq!(ask(&mut pool, &other), Answer::Admitted(Admission::Cold));
        }
        let Answer::Waiting(waits, why) = ask(&mut pool, &other) else { panic!("admitted") };
        assert!(why.contains("invocations"), "{why}");
        // Who waits for its turn to run does not stand before it.
        assert_eq!(ask(&mut pool, &own), Answer::Admitted(Admission::Cold));
        assert_eq!(ask(&mut pool, &own), Answer::OverReserved(1));
        pool.finished(&other);
        pool.release(ByteSize::mib(64));
        assert_eq!(pool.serve_waiting(), [(waits, Admission::Cold)]);
        pool.finished(&own);
        pool.release(ByteSize::mib(64));
        assert!(matches!(ask(&mut pool, &other), Answer::Waiting(..)), "another ran on the reserve");
        reserve(&mut pool, &own, Some(0));
        assert_eq!(ask(&mut pool, &own), Answer::OverReserved(0));
        assert_eq!(pool.serve_waiting().len(), 1);
        reserve(&mut pool, &own, None);
        assert!(matches!(ask(&mut pool, &own), Answer::Waiting(..)));
    }

    #[test]
    fn stems_take_free_room_only_and_give_it_back_first() {
        let mut pool = pool(LIMITS);
        let stem = ByteSize::mib(128);
        assert!((0..4).all(|_| pool.book_stem(stem)) && !pool.book_stem(stem));
        // 192 MiB of 512 for a sandbox: two stems must go, and no idle sandbox.
        assert_eq!(ask(&mut pool, &sized("f", 192)), Answer::Admitted(Admission::Cold));
        assert_eq!(pool.stems_in_the_way(stem), 2);
        (0..2).for_each(|_| pool.release_stem(stem));
        assert_eq!((pool.stems_in_the_way(stem), pool.in_use().prewarmed), (0, ByteSize::mib(256)));
        // One becomes a sandbox, which is booked by its function.
        assert_eq!(ask(&mut pool, &sized("g", 128)), Answer::Admitted(Admission::Cold));
        pool.release_stem(stem);
        assert_eq!(pool.stems_in_the_way(stem), 0);
        assert!(matches!(ask(&mut pool, &sized("huge", 512)), Answer::Waiting(..)));
        pool.release_stem(stem);
        assert!(!pool.book_stem(stem), "somebody waits for room");
    }

    #[test]
    fn stems_yield_to_the_number_of_sandboxes_too() {
        let mut pool = pool(PoolLimits { sandboxes_max: 2, ..LIMITS });
        assert!(pool.book_stem(ByteSize::mib(1)) && pool.book_stem(ByteSize::mib(1)));
        assert_eq!(ask(&mut pool, &sized("f", 128)), Answer::Admitted(Admission::Cold));
        assert_eq!(pool.stems_in_the_way(ByteSize::mib(1)), 1);
    }

    #[test]
    fn a_function_that_can_never_fit_is_refused_at_once() {
        assert!(matches!(ask(&mut pool(LIMITS), &sized("huge", 513)), Answer::Refused(why) if why.contains("memory")));
    }

    #[test]
    fn a_sandbox_is_made_ahead_in_free_room_only_and_not_beside_an_idle_one() {
        let limits = PoolLimits { sandboxes_max: 2, memory_max: ByteSize::mib(1024), ..LIMITS };
        let mut pool = pool(limits);
        let (one, other) = (sized("one", 128), sized("other", 128));
        assert!(book_ahead(&mut pool, &one));
        assert!(pool.give_back(7, Arc::clone(&one), Monotonic(0)).is_none());
        pool.ahead_over(&one);
        assert!(!book_ahead(&mut pool, &one), "one is idle");
        assert!(!book_ahead(&mut pool, &sized("large", 1024)), "there is no memory for it");
        assert!(book_ahead(&mut pool, &other));
        assert!(!book_ahead(&mut pool, &sized("third", 128)), "there is no place for it");
    }

    #[test]
    fn a_closed_pool_admits_and_keeps_nothing() {
        let mut pool = pool(LIMITS);
        let f = sized("f", 128);
        warm_up(&mut pool, &f, 1, 0);
        assert_eq!(ask(&mut pool, &sized("g", 128)), Answer::Admitted(Admission::Cold));
        assert_eq!(pool.close(), [1]);
        assert_eq!(ask(&mut pool, &f), Answer::Closed);
        pool.finished(&sized("g", 128));
        assert_eq!(pool.give_back(2, f, Monotonic(0)), Some(2));
        assert!(!pool.book_stem(ByteSize(1)));
    }

    #[test]
    fn an_idle_sandbox_ends_after_the_keep_alive_and_can_be_taken_by_name() {
        let mut pool = pool(LIMITS);
        let f = sized("f", 128);
        for (sandbox, since_s) in [(1, 0), (2, 500)] {
            let one = sized(&format!("f{sandbox}"), 128);
            assert_eq!(ask(&mut pool, &one), Answer::Admitted(Admission::Cold));
            pool.finished(&one);
            let since = Monotonic::default().after(Duration::from_secs(since_s));
            assert_eq!(pool.give_back(sandbox, Arc::clone(&f), since), None);
        }
        assert_eq!(pool.idle_functions().len(), 1);
        assert_eq!(pool.take_expired(Monotonic::default().after(Duration::from_secs(601)), |_| false), [1]);
        assert!(pool.take(&2) && !pool.take(&2));
        assert_eq!(pool.in_use().idle, 0);
    }
}
