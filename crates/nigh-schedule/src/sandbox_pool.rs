//! Which sandbox an invocation gets, and when one is made or ended: pure (`docs/design/scheduling.md`, "One node").
//!
//! Every invocation waits in the queue of its function until the pool gives it a sandbox, perhaps at once. Namespaces
//! and their functions take turns (`dispatch_queue`). When an invocation ends, its sandbox goes to the next one of the
//! function. A further sandbox is made if waiting costs more (`start_rule`): at most as many at once as there are
//! processors, in memory that is free, that the cache lends, or that idle sandboxes have, those worth least for each
//! MiB. A busy sandbox takes its function's booking, a frozen one what it uses (`room`). Sandboxes that will be needed
//! again are ended only within a budget of processor time (`restart_budget`): an overloaded node slows down and never
//! thrashes. No invocation waits longer than `wait_max`.

mod command;
mod concurrency;
mod demand;
mod expecting;
mod function_use;
mod gathering;
mod pool_state;
mod reports;
mod restart_budget;
mod room;
mod run_rule;
mod start_rule;
mod stems;
#[cfg(test)]
mod tests;
mod turns;

use std::hash::Hash;
use std::sync::Arc;
use std::time::Duration;

use nigh_functions::function::Function;
use nigh_terms::{ByteSize, FunctionName, Monotonic, Namespace, invariant};

pub use self::command::{
    ColdReason, Command, PoolAnswer, PoolLimits, PoolUse, SandboxEndReason, Start, StartId, Ticket, WaitsFor,
};
use self::concurrency::which;
use self::gathering::gathered;
use self::pool_state::{PendingStart, PoolState, Record, State};
use self::room::Room;
use self::run_rule::RUN_UNKNOWN;
use self::turns::{begin_start, cold_reason, processors_taken, run_in, started_for, waits_for};
use crate::keep_alive::{IdleSince, KeepAlive};
use crate::scheduler::dispatch_queue::{DispatchLimits, DispatchQueue, NewEntry, Turn};

pub use self::restart_budget::{BUSY_SHARE, IDLE_SHARE, SAVED_MAX_S};

/// When a function without a sandbox has waited this long, sandboxes that others wait for may end for it, within the
/// budget.
const STARVES_AFTER: Duration = Duration::from_secs(1);
/// The pool has limits of its own, and gathers memory for an invocation that fits nowhere, so the queue makes nobody
/// wait for it.
const QUEUE: DispatchLimits = DispatchLimits {
    entries_max: usize::MAX,
    tenant_entries_max: usize::MAX,
    passes_max: u32::MAX,
    hold_max: Duration::ZERO,
};

/// An invocation that waits.
struct Waiter {
    function: Arc<Function>,
    since: Monotonic,
}

/// The sandboxes of a node and the invocations that wait for them; `S` is a handle to a sandbox.
pub struct SandboxPool<S> {
    state: PoolState<S>,
    queue: DispatchQueue<Waiter>,
    keep_alive: KeepAlive,
    stems: usize,
    prewarmed: ByteSize,
    starts: u64,
    closed: bool,
}

impl<S: Clone + Eq + Hash> SandboxPool<S> {
    /// An empty pool.
    #[must_use]
    pub fn new(limits: PoolLimits, keep_alive: KeepAlive) -> Self {
        Self {
            state: PoolState::new(limits),
            queue: DispatchQueue::new(QUEUE),
            keep_alive,
            stems: 0,
            prewarmed: ByteSize::ZERO,
            starts: 0,
            closed: false,
        }
    }

    /// The limits.
    #[must_use]
    pub const fn limits(&self) -> &PoolLimits {
        &self.state.limits
    }

    /// The weight of `namespace` when several namespaces wait; 1 by default.
    pub fn set_share(&mut self, namespace: Namespace, share: u32) {
        self.queue.set_weight(namespace, share);
    }

    /// Sets the number of processors that are idle now, as measured.
    pub fn set_idle_processors(&mut self, idle: f64, now: Monotonic) {
        let at_work = self.state.running.all() + self.state.starts.len();
        self.state.idle_processors = Some((idle, at_work, now));
    }

    /// Reserves `concurrency` invocations for this function; None: the function uses the part that no function has
    /// reserved.
    pub fn set_reserved(&mut self, namespace: &Namespace, function: &FunctionName, concurrency: Option<usize>) {
        self.state.running.set_reserved(namespace, function, concurrency);
    }

    /// An invocation of `function` arrives. `serve` commands when it runs, perhaps at once.
    pub fn ask(&mut self, function: &Arc<Function>, now: Monotonic) -> PoolAnswer {
        if self.closed {
            return PoolAnswer::Closed;
        }
        let limits = self.state.limits;
        if function.memory > limits.memory_max {
            let why = format!(
                "has {} of memory for sandboxes, and the function books {}",
                limits.memory_max, function.memory
            );
            return PoolAnswer::Refused(why);
        }
        let known = self.state.of(function);
        let waiting = known.waiting;
        if let Some(limit) = self.state.running.reserve_in_use(function, waiting) {
            return PoolAnswer::OverReserved(limit);
        }
        let is_next = waiting == 0 && self.state.warmest(function).is_some();
        // Invocations that may run wait too, until their sandboxes are made.
        let here = self.queue.len() + self.state.running.all();
        let most = limits.invocations_max.saturating_add(limits.waiting_max);
        // A namespace that fills the queue does not keep others out.
        let own = self.queue.waiting_of(&function.namespace);
        let is_full = here >= most && (own >= most / 2 || here >= most.saturating_mul(2));
        if is_full && !is_next {
            return PoolAnswer::Refused(format!("has {} invocations waiting, as many as may", self.queue.len()));
        }
        let known = self.state.of(function);
        known.demand.arrived(now);
        known.is_expected = false;
        let run = known.demand.run_mean().unwrap_or(RUN_UNKNOWN);
        let (namespace, name) = which(function);
        let entry = NewEntry {
            namespace,
            function: name,
            run: run.mul_f64(processors_taken(function.memory, &limits)),
            deadline: now.after(limits.wait_max.max(Duration::from_nanos(1))),
            item: Waiter { function: Arc::clone(function), since: now },
        };
        match self.queue.push(entry, now) {
            Ok(ticket) => {
                self.state.of(function).waits(now);
                PoolAnswer::Waiting(ticket)
            }
            Err(refusal) => PoolAnswer::Refused(refusal.to_string()),
        }
    }

    /// The commands for now. Ask after every change, and from time to time while an invocation waits.
    pub fn serve(&mut self, now: Monotonic) -> Vec<Command<S>> {
        let mut commands = Vec::new();
        if self.queue.is_empty() {
            self.state.gathers = None;
            return commands;
        }
        let idle = self.state.processors(now).idle;
        self.state.budget.pass(idle, now);
        self.gather(now, &mut commands);
        self.start_for_those(true, now, &mut commands);
        self.run_those_that_wait(now, &mut commands);
        self.start_for_those(false, now, &mut commands);
        commands
    }

    /// Gives idle sandboxes to the invocations that wait for one of their function, in turn.
    fn run_those_that_wait(&mut self, now: Monotonic, commands: &mut Vec<Command<S>>) {
        let Self { state, queue, .. } = self;
        while let Some(turn) = queue.next(now, |waiter| run_in(state, waiter, now)) {
            match turn {
                Turn::Placed(ticket, waiter, (sandbox, victims, lack)) => {
                    let function = &waiter.function;
                    state.of(function).waits_no_more(waiter.since, now);
                    state.budget.pay(victims.loss_s);
                    state.end(&victims.sandboxes, lack, &SandboxEndReason::To(function.name.clone()));
                    state.begin_run(&sandbox, now);
                    state.running.began(function, state.limits.invocations_max);
                    gathered(state, function);
                    commands.push(Command::Run { ticket, sandbox, after: victims.sandboxes });
                }
                Turn::Expired(ticket, waiter) => {
                    let waits_for = waits_for(state, &waiter.function, now);
                    state.of(&waiter.function).waits_no_more(waiter.since, now);
                    commands.push(Command::Refuse { ticket, waits_for });
                }
            }
        }
    }

    /// Starts sandboxes for waiting invocations. `starving`: only for functions that have none and have waited long;
    /// sandboxes that others wait for may end for these.
    fn start_for_those(&mut self, starving: bool, now: Monotonic, commands: &mut Vec<Command<S>>) {
        let Self { state, queue, .. } = self;
        if self.closed {
            return;
        }
        let mut wanted = Vec::new();
        for head in queue.heads(now) {
            let Waiter { function, since } = head.item;
            let starves = now.since(*since) >= STARVES_AFTER && state.sandboxes_of(function, now) == 0;
            if !starving || starves {
                wanted.push((head.ticket, Arc::clone(function)));
            }
        }
        if starving {
            // The longest wait first: without a sandbox a function has had no turns that could be compared.
            wanted.sort_unstable_by_key(|(ticket, _)| *ticket);
        }
        for (ticket, function) in wanted {
            // One function may need several.
            while let Some((victims, lack)) = started_for(state, &function, starving, now) {
                let reason = cold_reason(state, &function, now);
                state.end(&victims.sandboxes, lack, &SandboxEndReason::To(function.name.clone()));
                self.starts += 1;
                let id = StartId(self.starts);
                begin_start(state, id, PendingStart { function: Arc::clone(&function), since: now, is_ahead: false });
                state.of(&function).demand.start_begins(now);
                let after = victims.sandboxes;
                commands.push(Command::Start(Start {
                    id,
                    function: Arc::clone(&function),
                    ticket: Some(ticket),
                    after,
                    reason,
                }));
            }
        }
    }

    /// What an invocation of `function` waits for now, or would wait for.
    #[must_use]
    pub fn waits_for(&self, function: &Function, now: Monotonic) -> WaitsFor {
        waits_for(&self.state, function, now)
    }

    /// The invocation of `ticket` no longer waits. Returns what it waited for, if it did.
    pub fn leave(&mut self, ticket: Ticket, now: Monotonic) -> Option<WaitsFor> {
        let waiter = self.queue.leave(ticket)?;
        let waits_for = waits_for(&self.state, &waiter.function, now);
        self.state.of(&waiter.function).waits_no_more(waiter.since, now);
        Some(waits_for)
    }

    /// The sandbox of this start is made, and idle. If the pool does not keep it, it is returned, and the caller ends
    /// it.
    #[must_use]
    pub fn started(&mut self, start: StartId, sandbox: S, took: Duration, now: Monotonic) -> Option<S> {
        let Some(PendingStart { function, .. }) = self.state.starts.remove(&start) else { return Some(sandbox) };
        let state = &mut self.state;
        state.start_took(&function, took);
        let known = state.of(&function);
        known.making = known.making.saturating_sub(1);
        known.members.push(sandbox.clone());
        let takes = function.memory;
        let record = Record { function, state: State::Idle(now), takes, made: now, began: now, is_hurried: false };
        let before = state.records.insert(sandbox.clone(), record);
        // A start makes one sandbox, which has one record and so is in one state.
        invariant!(before.is_none(), "a sandbox of {before:?} was made twice");
        self.closed.then_some(sandbox)
    }

    /// The sandbox of this start could not be made.
    pub fn start_failed(&mut self, start: StartId) {
        let Some(PendingStart { function, .. }) = self.state.starts.remove(&start) else { return };
        let state = &mut self.state;
        let known = state.of(&function);
        known.making = known.making.saturating_sub(1);
        state.room.leave();
        Room::take_off(&mut state.room.busy, function.memory);
        state.check_empty();
    }

    /// An invocation of `function` has ended. Its sandbox is given back or ended by another call.
    pub fn finished(&mut self, function: &Function) {
        self.state.running.ended(function);
    }

    /// `sandbox` is idle from `now` on, after an invocation had it for `took`. If the pool does not keep it, it is
    /// returned, and the caller ends it.
    #[must_use]
    pub fn give_back(&mut self, sandbox: S, took: Option<Duration>, now: Monotonic) -> Option<S> {
        let Some(record) = self.state.records.get_mut(&sandbox).filter(|_| !self.closed) else { return Some(sandbox) };
        record.state = State::Idle(now);
        let function = Arc::clone(&record.function);
        if let Some(took) = took {
            self.state.of(&function).demand.ran(took);
        }
        None
    }

    /// `sandbox`, which is idle, is frozen and uses `held` of memory.
    pub fn rests(&mut self, sandbox: &S, held: ByteSize) {
        self.state.rest(sandbox, held);
    }

    /// Removes an idle sandbox, which the caller ends. False if it is not idle.
    pub fn take(&mut self, sandbox: &S, why: &SandboxEndReason) -> bool {
        let is_idle = self.state.records.get(sandbox).is_some_and(|record| record.idle_since().is_some());
        if is_idle {
            self.state.begin_end(sandbox, why);
        }
        is_idle
    }

    /// `sandbox` has ended.
    pub fn gone(&mut self, sandbox: &S) {
        self.state.gone(sandbox);
    }

    /// The idle sandbox that the next invocation of `function` would get.
    #[must_use]
    pub fn warmest(&self, function: &Function) -> Option<&S> {
        self.state.warmest(function)
    }

    /// The idle sandboxes, the longest idle first.
    fn idle(&self) -> Vec<(Monotonic, &S)> {
        let idle = self.state.records.iter().filter_map(|(one, record)| Some((record.idle_since()?, one)));
        let mut idle: Vec<(Monotonic, &S)> = idle.collect();
        idle.sort_unstable_by_key(|(since, _)| *since);
        idle
    }

    /// Removes the sandboxes that have been idle for too long or whose function has changed (`is_stale`), each with the
    /// reason.
    #[must_use]
    pub fn take_expired(&mut self, now: Monotonic, is_stale: impl Fn(&Function) -> bool) -> Vec<(S, SandboxEndReason)> {
        let idle = self.idle();
        let views: Vec<IdleSince> = idle.iter().map(|(since, _)| IdleSince { since: *since }).collect();
        let expired = self.keep_alive.expired(&views, now);
        let mut taken: Vec<(S, SandboxEndReason)> = Vec::new();
        for (at, (_, one)) in idle.into_iter().enumerate() {
            let is_stale = self.state.records.get(one).is_some_and(|record| is_stale(&record.function));
            if at < expired || is_stale {
                taken.push((
                    one.clone(),
                    if is_stale { SandboxEndReason::Changed } else { SandboxEndReason::KeepAlive },
                ));
            }
        }
        taken.iter().for_each(|(one, why)| self.state.begin_end(one, why));
        taken
    }

    /// Closes the pool: it admits nothing more, and drops the waiting invocations. Returns the idle sandboxes, which
    /// the caller ends.
    #[must_use]
    pub fn close(&mut self) -> Vec<S> {
        self.closed = true;
        self.queue = DispatchQueue::new(QUEUE);
        self.state.functions.values_mut().for_each(|known| known.waiting = 0);
        let idle: Vec<S> = self.idle().into_iter().map(|(_, one)| one.clone()).collect();
        idle.iter().for_each(|one| self.state.begin_end(one, &SandboxEndReason::Died));
        idle
    }
}
