//! Every sandbox of a node with its state and memory, and the use of each function: pure.
//!
//! The state answers which sandbox an invocation may have, what a further one would cost, and which idle ones would end
//! for it: those worth least for each MiB. The pool decides when to ask, and whose turn it is.

use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;
use std::sync::Arc;
use std::time::Duration;

use nigh_functions::function::Function;
use nigh_terms::{ByteSize, Monotonic, Namespace, invariant};

use super::command::{PoolLimits, SandboxEndReason, StartId};
use super::concurrency::{Concurrency, FunctionKey, which};
use super::demand::{Loss, START_UNKNOWN};
use super::function_use::FunctionUse;
use super::restart_budget::RestartBudget;
use super::room::{Room, RoomShortage};
use super::run_rule::{RUN_UNKNOWN, may_begin};
use super::start_rule::{Processors, Want};

/// A sandbox that has been idle for less is about to be frozen and will take less memory, so it is not ended before.
const FREEZES_WITHIN: Duration = Duration::from_millis(250);
/// A measurement of idle processors is valid this long.
const MEASURED_FOR: Duration = Duration::from_secs(1);
/// A start that takes longer than this, and than four usual ones, keeps no processor busy.
const STARTS_WITHIN: Duration = Duration::from_secs(3);
/// A sandbox that is made ahead counts as being made no longer than this.
const AHEAD_WITHIN: Duration = Duration::from_secs(2);
/// The most functions whose use is known; with one more, those without sandboxes and waiting invocations are forgotten.
const KNOWN_MAX: usize = 16_384;

/// The state of a sandbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// The sandbox runs an invocation.
    Busy,
    /// The sandbox has been idle since this time, and is not frozen.
    Idle(Monotonic),
    /// The sandbox has been idle since this time, and is frozen.
    Resting(Monotonic),
    /// The sandbox is being ended.
    Ending,
}

#[derive(Clone, Debug)]
pub(super) struct Record {
    pub(super) function: Arc<Function>,
    pub(super) state: State,
    pub(super) takes: ByteSize,
    pub(super) made: Monotonic,
    /// When its last run began.
    pub(super) began: Monotonic,
    /// True if it was told to freeze at once.
    pub(super) is_hurried: bool,
}

impl Record {
    pub(super) const fn idle_since(&self) -> Option<Monotonic> {
        match self.state {
            State::Idle(since) | State::Resting(since) => Some(since),
            State::Busy | State::Ending => None,
        }
    }
}

/// A sandbox that is being made.
#[derive(Clone, Debug)]
pub(super) struct PendingStart {
    pub(super) function: Arc<Function>,
    pub(super) since: Monotonic,
    /// True if no invocation waits for it: if it hangs, nobody notices.
    pub(super) is_ahead: bool,
}

/// The memory and places that these ending sandboxes free for one invocation, until they are gone.
#[derive(Clone, Debug)]
pub(super) struct Promise<S> {
    pub(super) victims: Vec<S>,
    pub(super) lack: RoomShortage,
}

/// An idle sandbox that may end for another.
struct Candidate<'a, S> {
    /// When it was made, if an invocation waits for it; else None.
    waited_for_since: Option<Monotonic>,
    loss: Loss,
    idle_since: Monotonic,
    sandbox: &'a S,
}

/// Sandboxes that end for another, and their restart cost in seconds.
pub(super) struct Victims<S> {
    pub(super) sandboxes: Vec<S>,
    pub(super) loss_s: f64,
}

/// What a pool knows of its node.
pub(super) struct PoolState<S> {
    pub(super) limits: PoolLimits,
    pub(super) room: Room,
    pub(super) records: HashMap<S, Record>,
    pub(super) functions: HashMap<FunctionKey, FunctionUse<S>>,
    pub(super) running: Concurrency,
    pub(super) starts: BTreeMap<StartId, PendingStart>,
    pub(super) promises: Vec<Promise<S>>,
    pub(super) budget: RestartBudget,
    /// The last measurement: idle processors, the number of invocations that ran or started then, and its time. None if
    /// nobody measures.
    pub(super) idle_processors: Option<(f64, usize, Monotonic)>,
    /// The function that memory gathers for, its booking, and the end of the gathering; None if it gathers for none.
    pub(super) gathers: Option<(FunctionKey, ByteSize, Monotonic)>,
    /// The function that memory gathered for last: the next gathering is for another one.
    pub(super) gathered_last: Option<FunctionKey>,
    /// Memory does not gather again before this time.
    pub(super) gathers_again: Monotonic,
    /// The usual duration of a start, over all functions.
    usual_start: Duration,
}

impl<S: Clone + Eq + Hash> PoolState<S> {
    pub(super) fn new(limits: PoolLimits) -> Self {
        Self {
            limits,
            room: Room::default(),
            records: HashMap::new(),
            functions: HashMap::new(),
            running: Concurrency::default(),
            starts: BTreeMap::new(),
            promises: Vec::new(),
            budget: RestartBudget::new(limits.processors),
            idle_processors: None,
            gathers: None,
            gathered_last: None,
            gathers_again: Monotonic::default(),
            usual_start: START_UNKNOWN,
        }
    }

    /// The usual duration of a start, over all functions.
    pub(super) const fn usual_start(&self) -> Duration {
        self.usual_start
    }

    pub(super) fn of(&mut self, function: &Function) -> &mut FunctionUse<S> {
        let key = which(function);
        if self.functions.len() >= KNOWN_MAX && !self.functions.contains_key(&key) {
            self.functions.retain(|_, one| !one.members.is_empty() || one.making + one.waiting > 0 || one.is_expected);
        }
        self.functions.entry(key).or_default()
    }

    /// The idle processors, as far as known: runs and starts since the measurement count as busy.
    pub(super) fn processors(&self, now: Monotonic) -> Processors {
        let at_work = self.running.all() + self.starts.len();
        let guessed = || self.limits.processors.saturating_sub(at_work) as f64;
        let measured = self.idle_processors.filter(|(.., when)| now.since(*when) <= MEASURED_FOR);
        let idle = measured.map_or_else(guessed, |(idle, then, _)| idle - at_work.saturating_sub(then) as f64);
        Processors { idle: idle.max(0.0) }
    }

    /// The idle sandbox that the next invocation of `function` gets: the one used last.
    pub(super) fn warmest(&self, function: &Function) -> Option<&S> {
        let members = &self.functions.get(&which(function))?.members;
        let idle = members.iter().filter_map(|one| {
            let record = self.records.get(one)?;
            Some((record.idle_since()?, one)).filter(|_| record.function.same_version(function))
        });
        idle.max_by_key(|(since, _)| *since).map(|(_, one)| one)
    }

    /// The number of sandboxes of this version, without ending ones, with those being made.
    pub(super) fn sandboxes_of(&self, function: &Function, now: Monotonic) -> usize {
        let Some(known) = self.functions.get(&which(function)) else { return 0 };
        let is_one = |record: &Record| record.state != State::Ending && record.function.same_version(function);
        known.members.iter().filter(|one| self.records.get(*one).is_some_and(is_one)).count()
            + self.making_of(function, now)
    }

    /// The number of sandboxes of this version that are being made. One made ahead that takes very long does not count.
    pub(super) fn making_of(&self, function: &Function, now: Monotonic) -> usize {
        let counts = |one: &&PendingStart| !one.is_ahead || now.since(one.since) < AHEAD_WITHIN;
        self.starts.values().filter(counts).filter(|one| one.function.same_version(function)).count()
    }

    /// True if one more sandbox of `namespace` may be made now. At most as many are made at a time as there are
    /// processors; a start that takes very long keeps no processor busy and does not count.
    pub(super) fn may_start(&self, namespace: &Namespace, now: Monotonic) -> bool {
        let long = (self.usual_start * 4).max(STARTS_WITHIN);
        let counted = || self.starts.values().filter(|one| now.since(one.since) < long);
        let own = self.starts.values().filter(|one| one.function.namespace == *namespace).count();
        // Long starts have a limit of their own, for each namespace.
        let processors = self.limits.processors.max(1);
        counted().count() < processors && own < 4 * processors
    }

    /// What `function` has and waits for.
    pub(super) fn want(&self, function: &Function, now: Monotonic) -> Want {
        let known = self.functions.get(&which(function));
        Want {
            waiting: known.map_or(0, |known| known.waiting),
            sandboxes: self.sandboxes_of(function, now),
            making: self.making_of(function, now),
            run: known.and_then(|known| known.demand.run()),
            start: known.map_or(self.usual_start, |known| known.demand.start(self.usual_start)),
            waited_s: known.map_or(0.0, |known| known.waited_s(now)),
        }
    }

    /// The room that is missing for `function` to run in a sandbox that takes `held` now, or in a new one. None if it
    /// does not fit beside the busy sandboxes and the memory that gathers for another function.
    pub(super) fn lack(&self, function: &Function, held: Option<ByteSize>) -> Option<RoomShortage> {
        self.fits(function, function.memory).then_some(())?;
        match held {
            Some(held) => self.room.for_run(function.memory, held, &self.limits),
            None => self.room.for_start(function.memory, &self.limits),
        }
    }

    /// True if `more` can be booked for `function` beside the busy sandboxes and the memory that gathers for another
    /// function.
    pub(super) fn fits(&self, function: &Function, more: ByteSize) -> bool {
        let gathered = match &self.gathers {
            Some((who, booked, _)) if *who != which(function) => *booked,
            _ => ByteSize::ZERO,
        };
        self.room.busy + more + gathered <= self.limits.memory()
    }

    /// True if one more run of `function` should begin now rather than wait for an idle processor.
    pub(super) fn may_begin(&self, function: &Function, waited: Duration, now: Monotonic) -> bool {
        let processors = self.limits.processors.max(1);
        if self.running.all() < processors || self.processors(now).has_idle() {
            return true;
        }
        let expected = |function: &Function| {
            let known = self.functions.get(&which(function)).and_then(|known| known.demand.run());
            known.unwrap_or(RUN_UNKNOWN).as_secs_f64()
        };
        let busy = self.records.values().filter(|record| record.state == State::Busy);
        let busy = busy.map(|record| (expected(&record.function), now.since(record.began).as_secs_f64()));
        may_begin(expected(function), waited.as_secs_f64(), busy, processors)
    }

    /// The idle sandboxes that must end to free what `lack` says: those worth least for each MiB, but neither `own` nor
    /// any that an invocation waits for. With `waited_for`, those too, after the others and the oldest first, so that
    /// each has its time. None if all together are not enough.
    pub(super) fn victims(
        &self,
        lack: RoomShortage,
        own: Option<&S>,
        waited_for: bool,
        now: Monotonic,
    ) -> Option<Victims<S>> {
        if lack.is_none() {
            return Some(Victims { sandboxes: Vec::new(), loss_s: 0.0 });
        }
        let mut all: Vec<Candidate<'_, S>> = Vec::new();
        let with_sandboxes = self.functions.values().filter(|known| !known.members.is_empty());
        for known in with_sandboxes.filter(|known| waited_for || known.waiting == 0) {
            let idle = known.members.iter().filter_map(|one| Some((one, self.records.get(one)?)));
            let mut idle: Vec<(Monotonic, &S, &Record)> =
                idle.filter_map(|(one, record)| Some((record.idle_since()?, one, record))).collect();
            idle.sort_unstable_by_key(|(since, ..)| std::cmp::Reverse(*since));
            let start_s = known.demand.start(self.usual_start).as_secs_f64();
            for (warmer, (since, one, record)) in idle.into_iter().enumerate() {
                // A sandbox that an invocation waits for has no time to freeze.
                let is_still = matches!(record.state, State::Resting(_)) || now.since(since) >= FREEZES_WITHIN;
                let is_still = is_still || known.waiting > 0;
                if own == Some(one) || !is_still {
                    continue;
                }
                let is_sure = known.is_expected || known.waiting > 0;
                let returns = if is_sure { 1.0 } else { known.demand.returns(warmer, since, now) };
                let waited_for_since = (known.waiting > 0).then_some(record.made);
                let loss = Loss { seconds: start_s * returns, frees: record.takes };
                all.push(Candidate { waited_for_since, loss, idle_since: since, sandbox: one });
            }
        }
        all.sort_by(|one, other| {
            let worth = one.loss.a_mib().total_cmp(&other.loss.a_mib());
            one.waited_for_since.cmp(&other.waited_for_since).then(worth).then(one.idle_since.cmp(&other.idle_since))
        });
        let (mut left, mut sandboxes, mut loss_s) = (lack, Vec::new(), 0.0);
        for Candidate { loss, sandbox: one, .. } in all {
            if left.is_none() {
                break;
            }
            left.made_up(loss.frees);
            loss_s += loss.seconds;
            sandboxes.push(one.clone());
        }
        left.is_none().then_some(Victims { sandboxes, loss_s })
    }

    /// Begins to end these sandboxes for this reason, to free what `lack` says.
    pub(super) fn end(&mut self, victims: &[S], lack: RoomShortage, why: &SandboxEndReason) {
        for one in victims {
            self.begin_end(one, why);
        }
        if !lack.is_none() {
            self.room.promised = self.room.promised.plus(lack);
            self.promises.push(Promise { victims: victims.to_vec(), lack });
        }
    }

    /// Begins to end `sandbox`.
    pub(super) fn begin_end(&mut self, sandbox: &S, why: &SandboxEndReason) {
        let Some(record) = self.records.get_mut(sandbox).filter(|record| record.state != State::Ending) else { return };
        let sum = match record.state {
            State::Resting(_) => &mut self.room.resting,
            State::Busy | State::Idle(_) | State::Ending => &mut self.room.busy,
        };
        Room::take_off(sum, record.takes);
        self.room.ending += record.takes;
        record.state = State::Ending;
        let function = Arc::clone(&record.function);
        let known = self.functions.get(&which(&function));
        let ends = |one: &S| self.records.get(one).is_none_or(|record| record.state == State::Ending);
        if known.is_none_or(|known| known.making == 0 && known.members.iter().all(ends)) {
            self.of(&function).lost = Some(why.clone());
        }
    }

    /// `sandbox` has ended and its room is free.
    pub(super) fn gone(&mut self, sandbox: &S) {
        self.begin_end(sandbox, &SandboxEndReason::Died);
        let Some(record) = self.records.remove(sandbox) else { return };
        Room::take_off(&mut self.room.ending, record.takes);
        self.room.leave();
        self.of(&record.function).members.retain(|one| one != sandbox);
        if let Some(at) = self.promises.iter().position(|promise| promise.victims.contains(sandbox)) {
            let promise = &mut self.promises[at];
            promise.victims.retain(|one| one != sandbox);
            let mut part = promise.lack.made_up(record.takes);
            if promise.victims.is_empty() {
                part = part.plus(promise.lack);
                self.promises.swap_remove(at);
            }
            self.room.promised = self.room.promised.less(part);
        }
        self.check_empty();
    }

    /// Checks that nothing is booked if there is no sandbox: the sums are sums over sandboxes.
    pub(super) fn check_empty(&self) {
        if self.records.is_empty() && self.starts.is_empty() {
            invariant!(self.room == Room::default(), "there is no sandbox, and yet {:?}", self.room);
        }
    }

    /// An invocation gets `sandbox`, which takes what its function books from now on.
    pub(super) fn begin_run(&mut self, sandbox: &S, now: Monotonic) {
        let Some(record) = self.records.get_mut(sandbox) else { return };
        record.began = now;
        if let State::Resting(_) = record.state {
            Room::take_off(&mut self.room.resting, record.takes);
            self.room.busy += record.function.memory;
            record.takes = record.function.memory;
        }
        (record.state, record.is_hurried) = (State::Busy, false);
        self.room.check(&self.limits);
    }

    /// `sandbox` is frozen and takes `held`.
    pub(super) fn rest(&mut self, sandbox: &S, held: ByteSize) {
        let Some(record) = self.records.get_mut(sandbox) else { return };
        let State::Idle(since) = record.state else { return };
        let held = held.min(record.function.memory);
        Room::take_off(&mut self.room.busy, record.takes);
        self.room.resting += held;
        (record.takes, record.state, record.is_hurried) = (held, State::Resting(since), false);
    }

    /// Records the duration of a start of `function`.
    pub(super) fn start_took(&mut self, function: &Function, took: Duration) {
        self.usual_start = (self.usual_start * 7 + took) / 8;
        self.of(function).demand.started(took);
    }

    /// Marks the idle sandboxes that must freeze at once, except those about to run. Returns the newly marked ones.
    pub(super) fn hurry(&mut self) -> Vec<S> {
        let mut hurried = Vec::new();
        for (one, record) in &mut self.records {
            let who = which(&record.function);
            let gathers_for_another = self.gathers.as_ref().is_some_and(|(for_whom, ..)| *for_whom != who);
            let is_wanted = self.functions.get(&who).is_some_and(|known| known.waiting > 0);
            let may_rest = gathers_for_another || !is_wanted;
            if matches!(record.state, State::Idle(_)) && !record.is_hurried && may_rest {
                record.is_hurried = true;
                hurried.push(one.clone());
            }
        }
        hurried
    }
}
