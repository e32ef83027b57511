//! Which sandbox an invocation gets, and when one is made or ended: pure (`docs/design/scheduling.md`, "One node").
//!
//! Every invocation waits in the queue of its function until the pool gives it a sandbox, perhaps at once. Namespaces and
//! their functions have turns (`dispatch_queue`). A sandbox whose invocation has ended goes to who waits for one of its
//! function; a further one is made where waiting costs more (`start_rule`), no more at once than there are processors, and
//! in memory that is free, the cache lends, or idle sandboxes have that are worth least for each MiB. A busy sandbox takes
//! what it books, one that stands still what it uses (`room`). Sandboxes that are needed again are ended within a budget
//! of processor time (`restart_budget`), so that a node which is asked for more than it can do slows down and never
//! thrashes. Nobody waits for longer than `wait_max`.

mod books;
mod command;
mod concurrency;
mod demand;
#[cfg(test)]
mod random_run;
mod reports;
mod restart_budget;
mod room;
mod run_rule;
mod start_rule;
#[cfg(test)]
mod tests;
mod turns;

use std::hash::Hash;
use std::sync::Arc;
use std::time::Duration;

use nigh_functions::function::Function;
use nigh_terms::{ByteSize, FunctionName, Monotonic, Namespace};

use self::books::{Books, PendingStart, Record, State};
pub use self::command::{
    ColdReason, Command, PoolAnswer, PoolLimits, PoolUse, SandboxEndReason, Start, StartId, Ticket, WaitsFor,
};
use self::concurrency::{FunctionKey, which};
use self::room::RoomShortage;
use self::run_rule::RUN_UNKNOWN;
use self::turns::{begin_start, cold_reason, gathered, processors_taken, run_in, started_for, waits_for};
use crate::keep_alive::{IdleSince, KeepAlive};
use crate::scheduler::dispatch_queue::{DispatchLimits, DispatchQueue, NewEntry, Turn};

pub use self::restart_budget::{BUSY_SHARE, IDLE_SHARE, SAVED_MAX_S};

/// A function without sandboxes that has waited for so long may end those that others wait for, within the budget.
const STARVES_AFTER: Duration = Duration::from_secs(1);
/// For who does not fit beside busy ones and has waited for so long, memory gathers: others do not take it.
const GATHERS_AFTER: Duration = Duration::from_secs(1);
/// It gathers for so long; then the others have as long to themselves, and it gathers for another first.
const GATHERS_FOR: Duration = Duration::from_secs(2);
/// The pool has limits of its own. Nobody is held up for an invocation that fits nowhere, but by what gathers for it.
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

/// The sandboxes of a node and who waits for them; `S` is a handle of one.
pub struct SandboxPool<S> {
    books: Books<S>,
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
            books: Books::new(limits),
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
        &self.books.limits
    }

    /// `namespace` has so many shares of the node while others wait too; one, if nothing was said.
    pub fn set_share(&mut self, namespace: Namespace, share: u32) {
        self.queue.set_weight(namespace, share);
    }

    /// So many processors have nothing to do now, as was measured.
    pub fn set_idle_processors(&mut self, idle: f64, now: Monotonic) {
        let at_work = self.books.running.all() + self.books.starts.len();
        self.books.idle_processors = Some((idle, at_work, now));
    }

    /// `concurrency` invocations are this function's from now on, or as many as others leave it.
    pub fn set_reserved(&mut self, namespace: &Namespace, function: &FunctionName, concurrency: Option<usize>) {
        self.books.running.set_reserved(namespace, function, concurrency);
    }

    /// An invocation of `function` comes. `serve` says when it has a sandbox, perhaps at once.
    pub fn ask(&mut self, function: &Arc<Function>, now: Monotonic) -> PoolAnswer {
        if self.closed {
            return PoolAnswer::Closed;
        }
        let limits = self.books.limits;
        if function.memory > limits.memory_max {
            let why = format!(
                "has {} of memory for sandboxes, and the function books {}",
                limits.memory_max, function.memory
            );
            return PoolAnswer::Refused(why);
        }
        let known = self.books.of(function);
        let waiting = known.waiting;
        if let Some(limit) = self.books.running.reserve_in_use(function, waiting) {
            return PoolAnswer::OverReserved(limit);
        }
        let is_next = waiting == 0 && self.books.warmest(function).is_some();
        // Those that may run wait, too, until their sandboxes are made.
        let here = self.queue.len() + self.books.running.all();
        let most = limits.invocations_max.saturating_add(limits.waiting_max);
        // A namespace that has filled the places keeps no other out.
        let own = self.queue.waiting_of(&function.namespace);
        let is_full = here >= most && (own >= most / 2 || here >= most.saturating_mul(2));
        if is_full && !is_next {
            return PoolAnswer::Refused(format!("has {} invocations waiting, as many as may", self.queue.len()));
        }
        let known = self.books.of(function);
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
                self.books.of(function).waits(now);
                PoolAnswer::Waiting(ticket)
            }
            Err(refusal) => PoolAnswer::Refused(refusal.to_string()),
        }
    }

    /// What is to be done now. To be asked after every change, and now and then while somebody waits.
    pub fn serve(&mut self, now: Monotonic) -> Vec<Command<S>> {
        let mut commands = Vec::new();
        if self.queue.is_empty() {
            self.books.gathers = None;
            return commands;
        }
        let idle = self.books.processors(now).idle;
        self.books.budget.pass(idle, now);
        self.gather(now, &mut commands);
        self.start_for_those(true, now, &mut commands);
        self.run_those_that_wait(now, &mut commands);
        self.start_for_those(false, now, &mut commands);
        commands
    }

    /// Gives idle sandboxes to those who wait for one of their function, in turn.
    fn run_those_that_wait(&mut self, now: Monotonic, commands: &mut Vec<Command<S>>) {
        let Self { books, queue, .. } = self;
        while let Some(turn) = queue.next(now, |waiter| run_in(books, waiter, now)) {
            match turn {
                Turn::Placed(ticket, waiter, (sandbox, victims, lack)) => {
                    let function = &waiter.function;
                    books.of(function).waits_no_more(waiter.since, now);
                    books.budget.pay(victims.loss_s);
                    books.end(&victims.sandboxes, lack, &SandboxEndReason::To(function.name.clone()));
                    books.begin_run(&sandbox, now);
                    books.running.began(function);
                    gathered(books, function);
                    commands.push(Command::Run { ticket, sandbox, after: victims.sandboxes });
                }
                Turn::Expired(ticket, waiter) => {
                    let waits_for = waits_for(books, &waiter.function, now);
                    books.of(&waiter.function).waits_no_more(waiter.since, now);
                    commands.push(Command::Refuse { ticket, waits_for });
                }
            }
        }
    }

    /// Has sandboxes made for those who wait and want one; `starving`: only for those who have none and have waited long,
    /// at the cost of others who wait, too.
    fn start_for_those(&mut self, starving: bool, now: Monotonic, commands: &mut Vec<Command<S>>) {
        let Self { books, queue, .. } = self;
        if self.closed {
            return;
        }
        let mut wanted = Vec::new();
        for head in queue.heads(now) {
            let Waiter { function, since } = head.item;
            let starves = now.since(*since) >= STARVES_AFTER && books.sandboxes_of(function, now) == 0;
            if !starving || starves {
                wanted.push((head.ticket, Arc::clone(function)));
            }
        }
        if starving {
            // Who has waited longest: they have no sandbox by which their turns could be told.
            wanted.sort_unstable_by_key(|(ticket, _)| *ticket);
        }
        for (ticket, function) in wanted {
            // One function may want several.
            while let Some((victims, lack)) = started_for(books, &function, starving, now) {
                let reason = cold_reason(books, &function, now);
                books.end(&victims.sandboxes, lack, &SandboxEndReason::To(function.name.clone()));
                self.starts += 1;
                let id = StartId(self.starts);
                begin_start(books, id, PendingStart { function: Arc::clone(&function), since: now, is_ahead: false });
                books.of(&function).demand.start_begins(now);
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

    /// Sees who does not fit beside busy ones: those that are idle are frozen at once, and for the first in turn that has
    /// waited for long memory gathers.
    fn gather(&mut self, now: Monotonic, commands: &mut Vec<Command<S>>) {
        let Self { books, queue, .. } = self;
        let is_over = |(who, _, until): &(FunctionKey, ByteSize, Monotonic)| {
            now >= *until || books.functions.get(who).is_none_or(|known| known.waiting == 0)
        };
        if books.gathers.as_ref().is_some_and(is_over) {
            books.gathered_last = books.gathers.take().map(|(who, ..)| who);
            books.gathers_again = now.after(GATHERS_FOR);
        }
        let mut lacks = false;
        for head in queue.heads(now) {
            let Waiter { function, since } = head.item;
            let held =
                books.warmest(function).and_then(|one| books.records.get(one)).map(|record| match record.state {
                    State::Idle(_) => record.function.memory,
                    State::Busy | State::Resting(_) | State::Ending => record.takes,
                });
            if held.is_none() && (books.sandboxes_of(function, now) > 0 || !books.may_start(&function.namespace, now)) {
                continue;
            }
            let is_idle_unfrozen = held == Some(function.memory);
            let lack = books.lack(function, held).filter(|lack| lack.is_none());
            if lack.is_some() || is_idle_unfrozen {
                continue;
            }
            lacks = true;
            let fits = books.room.busy + function.memory <= books.limits.memory();
            let waits_long = now.since(*since) >= GATHERS_AFTER && now >= books.gathers_again;
            if books.gathers.is_none() && !fits && waits_long && books.gathered_last.as_ref() != Some(&which(function))
            {
                books.gathers = Some((which(function), function.memory, now.after(GATHERS_FOR)));
            }
        }
        if lacks {
            commands.extend(books.hurry().into_iter().map(Command::Freeze));
        }
    }

    /// For what an invocation of `function` waits, or would.
    #[must_use]
    pub fn waits_for(&self, function: &Function, now: Monotonic) -> WaitsFor {
        waits_for(&self.books, function, now)
    }

    /// `ticket` waits no longer; for what, if it did.
    pub fn leave(&mut self, ticket: Ticket, now: Monotonic) -> Option<WaitsFor> {
        let waiter = self.queue.leave(ticket)?;
        let waits_for = waits_for(&self.books, &waiter.function, now);
        self.books.of(&waiter.function).waits_no_more(waiter.since, now);
        Some(waits_for)
    }

    /// The sandbox of this start is made, and idle. It comes back if the pool does not keep it: then it is to be ended.
    #[must_use]
    pub fn started(&mut self, start: StartId, sandbox: S, took: Duration, now: Monotonic) -> Option<S> {
        let Some(PendingStart { function, .. }) = self.books.starts.remove(&start) else { return Some(sandbox) };
        let books = &mut self.books;
        books.start_took(&function, took);
        let known = books.of(&function);
        known.making = known.making.saturating_sub(1);
        known.members.push(sandbox.clone());
        let takes = function.memory;
        books.records.insert(
            sandbox.clone(),
            Record { function, state: State::Idle(now), takes, made: now, began: now, is_hurried: false },
        );
        self.closed.then_some(sandbox)
    }

    /// The sandbox of this start will never be.
    pub fn start_failed(&mut self, start: StartId) {
        let Some(PendingStart { function, .. }) = self.books.starts.remove(&start) else { return };
        let books = &mut self.books;
        let known = books.of(&function);
        known.making = known.making.saturating_sub(1);
        books.room.sandboxes = books.room.sandboxes.saturating_sub(1);
        books.room.busy = books.room.busy.saturating_sub(function.memory);
    }

    /// An invocation of `function` has ended. Its sandbox is given back or ended beside this.
    pub fn finished(&mut self, function: &Function) {
        self.books.running.ended(function);
    }

    /// `sandbox` is idle from `now` on, after it was had for `took`. It comes back if the pool does not keep it: then it is
    /// to be ended.
    #[must_use]
    pub fn give_back(&mut self, sandbox: S, took: Option<Duration>, now: Monotonic) -> Option<S> {
        let Some(record) = self.books.records.get_mut(&sandbox).filter(|_| !self.closed) else { return Some(sandbox) };
        record.state = State::Idle(now);
        let function = Arc::clone(&record.function);
        if let Some(took) = took {
            self.books.of(&function).demand.ran(took);
        }
        None
    }

    /// `sandbox`, which is idle, stands still and takes `held` of memory.
    pub fn rests(&mut self, sandbox: &S, held: ByteSize) {
        self.books.rest(sandbox, held);
    }

    /// Takes an idle sandbox out, to be ended. False if it is not idle.
    pub fn take(&mut self, sandbox: &S, why: &SandboxEndReason) -> bool {
        let is_idle = self.books.records.get(sandbox).is_some_and(|record| record.idle_since().is_some());
        if is_idle {
            self.books.begin_end(sandbox, why);
        }
        is_idle
    }

    /// Nothing is left of `sandbox`.
    pub fn gone(&mut self, sandbox: &S) {
        self.books.gone(sandbox);
    }

    /// The idle sandbox that the next invocation of `function` would get.
    #[must_use]
    pub fn warmest(&self, function: &Function) -> Option<&S> {
        self.books.warmest(function)
    }

    /// An invocation of `function` may come. False if that is known.
    pub fn expect(&mut self, namespace: &Namespace, function: &FunctionName) -> bool {
        let known = self.books.functions.entry((namespace.clone(), function.clone())).or_default();
        !std::mem::replace(&mut known.is_expected, true)
    }

    /// Nothing is made for it any more.
    pub fn expect_no_more(&mut self, namespace: &Namespace, function: &FunctionName) {
        if let Some(known) = self.books.functions.get_mut(&(namespace.clone(), function.clone())) {
            known.is_expected = false;
        }
    }

    /// Has a sandbox of `function` made for an invocation that is expected and has not come, if none is idle or being made,
    /// nobody waits, and there is free room.
    pub fn start_ahead(&mut self, function: &Arc<Function>, now: Monotonic) -> Option<Start<S>> {
        let books = &mut self.books;
        let is_free = books.lack(function, None).is_some_and(RoomShortage::is_none);
        let wants =
            books.of(function).is_expected && books.warmest(function).is_none() && books.making_of(function, now) == 0;
        let may = !self.closed && self.queue.is_empty() && books.may_start(&function.namespace, now);
        if !(is_free && wants && may) {
            return None;
        }
        self.starts += 1;
        let id = StartId(self.starts);
        begin_start(books, id, PendingStart { function: Arc::clone(function), since: now, is_ahead: true });
        let (function, after) = (Arc::clone(function), Vec::new());
        Some(Start { id, function, ticket: None, after, reason: ColdReason::Ahead })
    }

    /// Books a stem of `memory`, if there is free room, which nobody waits for.
    pub fn book_stem(&mut self, memory: ByteSize) -> bool {
        let room = &self.books.room;
        let fits = !self.closed
            && self.queue.is_empty()
            && room.sandboxes + self.stems < self.books.limits.sandboxes_max
            && room.free(&self.books.limits) >= self.prewarmed + memory;
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
        let (room, limits) = (&self.books.room, &self.books.limits);
        let beyond = (room.taken() + self.prewarmed).saturating_sub(limits.memory());
        let for_memory = beyond.bytes().div_ceil(memory.bytes().max(1));
        let for_number = (room.sandboxes + self.stems).saturating_sub(limits.sandboxes_max);
        usize::try_from(for_memory).unwrap_or(usize::MAX).max(for_number).min(self.stems)
    }

    /// The idle ones, the one idle longest first.
    fn idle(&self) -> Vec<(Monotonic, &S)> {
        let idle = self.books.records.iter().filter_map(|(one, record)| Some((record.idle_since()?, one)));
        let mut idle: Vec<(Monotonic, &S)> = idle.collect();
        idle.sort_unstable_by_key(|(since, _)| *since);
        idle
    }

    /// Takes out those that have been idle for long enough, or of whose function `is_stale` says that it has changed, with
    /// which it was.
    #[must_use]
    pub fn take_expired(&mut self, now: Monotonic, is_stale: impl Fn(&Function) -> bool) -> Vec<(S, SandboxEndReason)> {
        let idle = self.idle();
        let views: Vec<IdleSince> = idle.iter().map(|(since, _)| IdleSince { since: *since }).collect();
        let expired = self.keep_alive.expired(&views, now);
        let mut taken: Vec<(S, SandboxEndReason)> = Vec::new();
        for (at, (_, one)) in idle.into_iter().enumerate() {
            let is_stale = self.books.records.get(one).is_some_and(|record| is_stale(&record.function));
            if at < expired || is_stale {
                taken.push((
                    one.clone(),
                    if is_stale { SandboxEndReason::Changed } else { SandboxEndReason::KeepAlive },
                ));
            }
        }
        taken.iter().for_each(|(one, why)| self.books.begin_end(one, why));
        taken
    }

    /// From here on nothing is admitted or kept. Those who wait are forgotten, the idle come out to be ended.
    #[must_use]
    pub fn close(&mut self) -> Vec<S> {
        self.closed = true;
        self.queue = DispatchQueue::new(QUEUE);
        self.books.functions.values_mut().for_each(|known| known.waiting = 0);
        let idle: Vec<S> = self.idle().into_iter().map(|(_, one)| one.clone()).collect();
        idle.iter().for_each(|one| self.books.begin_end(one, &SandboxEndReason::Died));
        idle
    }
}
