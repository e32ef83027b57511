//! The sandboxes of a node: which are idle, what all of them book, who waits for one. Pure.
//!
//! Every question is put to the scheduler with this node's view; what it decides is booked here at once, so that two
//! askers cannot be promised the same room. The books hold every sandbox from its promise to its last trace being
//! gone, and never exceed the limits, except that a promise on the room of sandboxes which are being ended stands
//! beside them until they are gone. Those who wait are served in order: for a warm sandbox anyone may go first, for
//! room nobody passes one who came before.

use std::collections::VecDeque;
use std::sync::Arc;

use nigh_terms::{ByteSize, Incarnation, Monotonic, NodeId, Token};

use crate::function::Function;
use crate::keep_alive::{Idle, KeepAlive, victims};
use crate::scheduler::{Decision, NodeView, Placement, schedule};

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

/// Names one who waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ticket(u64);

/// What an asker hears.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer<S> {
    /// It may run.
    Admitted(Admission<S>),
    /// It is in the queue under this ticket; the reason is the scheduler's.
    Waiting(Ticket, &'static str),
    /// It cannot even wait, for this reason.
    Refused(&'static str),
    /// Nobody is admitted any more.
    Closed,
}

struct IdleSandbox<S> {
    sandbox: S,
    function: Arc<Function>,
    since: Monotonic,
}

struct Waiting {
    ticket: Ticket,
    function: Arc<Function>,
    token: Token,
}

/// The books of a node's sandboxes; `S` is a handle of one.
pub struct SandboxPool<S> {
    node: NodeId,
    incarnation: Incarnation,
    limits: PoolLimits,
    keep_alive: KeepAlive,
    /// The one idle longest first.
    idle: VecDeque<IdleSandbox<S>>,
    waiting: VecDeque<Waiting>,
    tickets: u64,
    sandboxes: usize,
    booked: ByteSize,
    running: usize,
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
    /// Invocations that run.
    pub running: usize,
    /// Invocations that wait for a sandbox.
    pub waiting: usize,
}

impl<S: PartialEq> SandboxPool<S> {
    /// An empty pool of `node`.
    #[must_use]
    pub const fn new(node: NodeId, incarnation: Incarnation, limits: PoolLimits, keep_alive: KeepAlive) -> Self {
        Self {
            node,
            incarnation,
            limits,
            keep_alive,
            idle: VecDeque::new(),
            waiting: VecDeque::new(),
            tickets: 0,
            sandboxes: 0,
            booked: ByteSize::ZERO,
            running: 0,
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
            running: self.running,
            waiting: self.waiting.len(),
        }
    }

    /// The limits.
    #[must_use]
    pub const fn limits(&self) -> &PoolLimits {
        &self.limits
    }

    /// Asks for a sandbox of `function`, for an invocation that carries `token`.
    pub fn ask(&mut self, function: &Arc<Function>, token: &Token) -> Answer<S> {
        if self.closed {
            return Answer::Closed;
        }
        if function.memory > self.limits.memory_max {
            return Answer::Refused("has less memory for all sandboxes than the function books");
        }
        let why = match self.admit(function, token, self.waiting.is_empty()) {
            Ok(admission) => return Answer::Admitted(admission),
            Err(why) => why,
        };
        if self.waiting.len() >= self.limits.waiting_max {
            return Answer::Refused(why);
        }
        self.tickets += 1;
        let ticket = Ticket(self.tickets);
        self.waiting.push_back(Waiting { ticket, function: Arc::clone(function), token: token.clone() });
        Answer::Waiting(ticket, why)
    }

    /// Serves those who wait, as far as it goes. To be called after every change that may have made room.
    pub fn serve_waiting(&mut self) -> Vec<(Ticket, Admission<S>)> {
        let mut served = Vec::new();
        let mut room_is_taken = false;
        let mut rest = VecDeque::new();
        while let Some(one) = self.waiting.pop_front() {
            match self.admit(&one.function, &one.token, !room_is_taken) {
                Ok(admission) => served.push((one.ticket, admission)),
                Err(_) => {
                    room_is_taken = true;
                    rest.push_back(one);
                }
            }
        }
        self.waiting = rest;
        served
    }

    /// `ticket` waits no longer. False if it was served already.
    pub fn leave(&mut self, ticket: Ticket) -> bool {
        let before = self.waiting.len();
        self.waiting.retain(|one| one.ticket != ticket);
        self.waiting.len() < before
    }

    /// An invocation has ended. Its sandbox is given back or released beside this.
    pub fn finished(&mut self) {
        debug_assert!(self.running > 0, "an invocation ended that had not begun");
        self.running = self.running.saturating_sub(1);
    }

    /// `sandbox` is idle from `now` on. It comes back if the pool does not keep it: then it is to be ended.
    #[must_use]
    pub fn give_back(&mut self, sandbox: S, function: Arc<Function>, now: Monotonic) -> Option<S> {
        if self.closed {
            return Some(sandbox);
        }
        self.idle.push_back(IdleSandbox { sandbox, function, since: now });
        None
    }

    /// A sandbox that booked `booked` is gone, or will never be.
    pub fn release(&mut self, booked: ByteSize) {
        debug_assert!(self.sandboxes > 0 && self.booked >= booked, "more is released than was promised");
        self.sandboxes = self.sandboxes.saturating_sub(1);
        self.booked = self.booked.saturating_sub(booked);
    }

    /// Takes an idle sandbox out, to be ended. False if it is not idle.
    pub fn take(&mut self, sandbox: &S) -> bool {
        let before = self.idle.len();
        self.idle.retain(|one| one.sandbox != *sandbox);
        self.idle.len() < before
    }

    /// Takes out those that are idle for too long or too many at `now`, and those of which `is_stale` says that their
    /// function has changed. They are to be ended.
    #[must_use]
    pub fn take_expired(&mut self, now: Monotonic, is_stale: impl Fn(&Function) -> bool) -> Vec<S> {
        let expired = self.keep_alive.expired(&self.idle_views(), now);
        let mut taken: Vec<S> = self.idle.drain(..expired).map(|one| one.sandbox).collect();
        let (stale, kept) = std::mem::take(&mut self.idle).into_iter().partition(|one| is_stale(&one.function));
        self.idle = kept;
        taken.extend(VecDeque::into_iter(stale).map(|one| one.sandbox));
        taken
    }

    /// The functions that have idle sandboxes, each version once.
    #[must_use]
    pub fn idle_functions(&self) -> Vec<Arc<Function>> {
        let mut functions: Vec<Arc<Function>> = Vec::new();
        for one in &self.idle {
            if !functions.iter().any(|known| known.same_version(&one.function)) {
                functions.push(Arc::clone(&one.function));
            }
        }
        functions
    }

    /// From here on nothing is admitted or kept. Those who wait are forgotten, the idle come out to be ended.
    #[must_use]
    pub fn close(&mut self) -> Vec<S> {
        self.closed = true;
        self.waiting.clear();
        self.idle.drain(..).map(|one| one.sandbox).collect()
    }

    fn idle_views(&self) -> Vec<Idle> {
        self.idle.iter().map(|one| Idle { since: one.since, booked: one.function.memory }).collect()
    }

    fn view(&self, function: &Function, token: &Token) -> NodeView {
        let is_warm = |one: &&IdleSandbox<S>| one.function.same_version(function);
        NodeView {
            node: self.node.clone(),
            incarnation: self.incarnation,
            warm: self.idle.iter().filter(is_warm).count(),
            idle: self.idle.len(),
            memory_free: self.limits.memory_max.saturating_sub(self.booked),
            memory_idle: self.idle.iter().map(|one| one.function.memory).sum(),
            sandboxes_free: self.limits.sandboxes_max.saturating_sub(self.sandboxes),
            invocations_free: self.limits.invocations_max.saturating_sub(self.running),
            // The only node is every object's home: it has applied whatever anyone has seen.
            covered: token.clone(),
        }
    }

    fn admit(
        &mut self,
        function: &Arc<Function>,
        token: &Token,
        room_is_free: bool,
    ) -> Result<Admission<S>, &'static str> {
        let placement = Placement { booked: function.memory, token: token.clone() };
        let decision = schedule(&placement, &[self.view(function, token)]);
        let admission = match decision {
            Decision::Refused(why) => return Err(why.first().map_or("has no room", |(_, why)| *why)),
            Decision::Warm(..) => {
                let warmest = self.idle.iter().rposition(|one| one.function.same_version(function));
                let taken = warmest.and_then(|position| self.idle.remove(position));
                Admission::Warm(taken.ok_or("has no warm sandbox after all")?.sandbox)
            }
            Decision::Cold(..) | Decision::Evict(..) if !room_is_free => {
                return Err("has others waiting for room before this one");
            }
            Decision::Cold(..) => Admission::Cold,
            Decision::Evict(..) => {
                let free = self.limits.memory_max.saturating_sub(self.booked);
                let missing = usize::from(self.sandboxes >= self.limits.sandboxes_max);
                let count = victims(&self.idle_views(), missing, function.memory.saturating_sub(free))
                    .ok_or("has not enough idle sandboxes to make room")?;
                Admission::Evict(self.idle.drain(..count).map(|one| one.sandbox).collect())
            }
        };
        if !matches!(admission, Admission::Warm(_)) {
            self.sandboxes += 1;
            self.booked += function.memory;
        }
        self.running += 1;
        Ok(admission)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::function::tests::function;

    const LIMITS: PoolLimits =
        PoolLimits { sandboxes_max: 4, memory_max: ByteSize::mib(512), invocations_max: 4, waiting_max: 2 };

    fn pool(limits: PoolLimits) -> SandboxPool<u32> {
        SandboxPool::new(NodeId("node".to_owned()), Incarnation(1), limits, KeepAlive::default())
    }

    fn sized(name: &str, mib: u64) -> Arc<Function> {
        Arc::new(Function { memory: ByteSize::mib(mib), ..function(name) })
    }

    fn ask(pool: &mut SandboxPool<u32>, function: &Arc<Function>) -> Answer<u32> {
        pool.ask(function, &Token::empty())
    }

    /// Runs one invocation in a new sandbox that is idle afterwards, since `since_s`.
    fn warm_up(pool: &mut SandboxPool<u32>, function: &Arc<Function>, sandbox: u32, since_s: u64) {
        assert_eq!(ask(pool, function), Answer::Admitted(Admission::Cold));
        pool.finished();
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
            pool.finished();
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
        busy.finished();
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

        pool.finished();
        assert_eq!(pool.give_back(1, Arc::clone(&f), Monotonic(0)), None);
        // The first may now end the idle one and have all the room.
        assert_eq!(pool.serve_waiting(), [(first, Admission::Evict(vec![1]))]);
        assert!(pool.leave(second) && !pool.leave(second) && !pool.leave(first));
    }

    #[test]
    fn a_warm_sandbox_passes_those_who_wait_for_room() {
        let mut pool = pool(PoolLimits { memory_max: ByteSize::mib(512), ..LIMITS });
        let (f, big) = (sized("f", 128), sized("big", 512));
        assert_eq!(ask(&mut pool, &f), Answer::Admitted(Admission::Cold));
        assert_eq!(ask(&mut pool, &f), Answer::Admitted(Admission::Cold));
        let Answer::Waiting(first, _) = ask(&mut pool, &big) else { panic!("admitted") };
        pool.finished();
        assert_eq!(pool.give_back(1, Arc::clone(&f), Monotonic(0)), None);
        assert_eq!(pool.serve_waiting(), []);
        assert_eq!(ask(&mut pool, &f), Answer::Admitted(Admission::Warm(1)));
        assert!(pool.leave(first));
    }

    #[test]
    fn a_function_that_can_never_fit_is_refused_at_once() {
        assert!(matches!(ask(&mut pool(LIMITS), &sized("huge", 513)), Answer::Refused(why) if why.contains("memory")));
    }

    #[test]
    fn a_closed_pool_admits_and_keeps_nothing() {
        let mut pool = pool(LIMITS);
        let f = sized("f", 128);
        warm_up(&mut pool, &f, 1, 0);
        assert_eq!(ask(&mut pool, &sized("g", 128)), Answer::Admitted(Admission::Cold));
        assert_eq!(pool.close(), [1]);
        assert_eq!(ask(&mut pool, &f), Answer::Closed);
        pool.finished();
        assert_eq!(pool.give_back(2, f, Monotonic(0)), Some(2));
    }

    #[test]
    fn an_idle_sandbox_ends_after_the_keep_alive_and_can_be_taken_by_name() {
        let mut pool = pool(LIMITS);
        let f = sized("f", 128);
        for (sandbox, since_s) in [(1, 0), (2, 500)] {
            assert_eq!(
                pool.ask(&sized(&format!("f{sandbox}"), 128), &Token::empty()),
                Answer::Admitted(Admission::Cold)
            );
            pool.finished();
            let since = Monotonic::default().after(Duration::from_secs(since_s));
            assert_eq!(pool.give_back(sandbox, Arc::clone(&f), since), None);
        }
        assert_eq!(pool.idle_functions().len(), 1);
        assert_eq!(pool.take_expired(Monotonic::default().after(Duration::from_secs(601)), |_| false), [1]);
        assert!(pool.take(&2) && !pool.take(&2));
        assert_eq!(pool.in_use().idle, 0);
    }

    /// What a random run of a node does to the pool, and what is really there.
    #[derive(Default)]
    struct Machine {
        next: u32,
        running: Vec<(u32, Arc<Function>)>,
        /// Admitted to room that these still fill.
        evicting: Vec<(Vec<u32>, Arc<Function>)>,
        booked: std::collections::BTreeMap<u32, ByteSize>,
    }

    impl Machine {
        fn admitted(&mut self, admission: Admission<u32>, function: &Arc<Function>) {
            match admission {
                Admission::Warm(sandbox) => self.running.push((sandbox, Arc::clone(function))),
                Admission::Cold => self.made(function),
                Admission::Evict(victims) => self.evicting.push((victims, Arc::clone(function))),
            }
        }

        fn made(&mut self, function: &Arc<Function>) {
            self.next += 1;
            self.booked.insert(self.next, function.memory);
            self.running.push((self.next, Arc::clone(function)));
        }

        fn end(&mut self, pool: &mut SandboxPool<u32>, sandbox: u32) {
            pool.release(self.booked.remove(&sandbox).unwrap());
        }
    }

    #[test]
    fn whatever_happens_the_limits_hold_and_the_books_come_out_even() {
        use rand::{Rng, SeedableRng};
        for seed in 0..300 {
            let mut random = rand::rngs::StdRng::seed_from_u64(seed);
            let mut pool = pool(PoolLimits { waiting_max: 5, ..LIMITS });
            let mut machine = Machine::default();
            let mut waiting: Vec<(Ticket, Arc<Function>)> = Vec::new();
            let functions = [sized("a", 128), sized("b", 192), sized("c", 300), sized("d", 512)];
            for step in 0..400u64 {
                let now = Monotonic(step * 1_000_000_000);
                match random.random_range(0..10) {
                    0..4 => {
                        let function = &functions[random.random_range(0..functions.len())];
                        match ask(&mut pool, function) {
                            Answer::Admitted(admission) => machine.admitted(admission, function),
                            Answer::Waiting(ticket, _) => waiting.push((ticket, Arc::clone(function))),
                            Answer::Refused(_) | Answer::Closed => assert_eq!(waiting.len(), 5),
                        }
                    }
                    4..6 if !machine.running.is_empty() => {
                        let (sandbox, function) = machine.running.remove(0);
                        pool.finished();
                        assert_eq!(pool.give_back(sandbox, function, now), None);
                    }
                    6 if !machine.running.is_empty() => {
                        let (sandbox, _) = machine.running.pop().unwrap();
                        pool.finished();
                        machine.end(&mut pool, sandbox);
                    }
                    7..9 if !machine.evicting.is_empty() => {
                        let (victims, function) = machine.evicting.remove(0);
                        victims.into_iter().for_each(|victim| machine.end(&mut pool, victim));
                        machine.made(&function);
                    }
                    9 if !waiting.is_empty() => assert!(pool.leave(waiting.pop().unwrap().0)),
                    _ => {
                        for sandbox in pool.take_expired(now, |_| false) {
                            machine.end(&mut pool, sandbox);
                        }
                    }
                }
                for (ticket, admission) in pool.serve_waiting() {
                    let at = waiting.iter().position(|(one, _)| *one == ticket).unwrap();
                    let (_, function) = waiting.remove(at);
                    machine.admitted(admission, &function);
                }
                assert!(machine.booked.values().copied().sum::<ByteSize>() <= LIMITS.memory_max, "seed {seed}");
                assert!(machine.booked.len() <= LIMITS.sandboxes_max, "seed {seed}");
                assert!(pool.in_use().running <= LIMITS.invocations_max, "seed {seed}");
                // Nobody waits while there is nothing to wait for.
                let nothing_runs = machine.running.is_empty() && machine.evicting.is_empty();
                assert!(!nothing_runs || waiting.is_empty(), "seed {seed}");
            }
            for (victims, function) in std::mem::take(&mut machine.evicting) {
                victims.into_iter().for_each(|victim| machine.end(&mut pool, victim));
                machine.made(&function);
            }
            for (sandbox, _) in std::mem::take(&mut machine.running) {
                pool.finished();
                machine.end(&mut pool, sandbox);
            }
            for sandbox in pool.close() {
                machine.end(&mut pool, sandbox);
            }
            assert_eq!(pool.in_use(), PoolUse::default(), "seed {seed}");
        }
    }
}
