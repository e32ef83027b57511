//! One node, event by event: processors that starts and runs share evenly, memory for sandboxes, and a policy that
//! decides. Deterministic; in microseconds.
//!
//! The sandboxes never take more than the node's memory, and no more is ever promised: both are asserted at every event.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use nigh_terms::{ByteSize, Monotonic};

use super::outcome::Outcome;
use super::policy::{Action, NodeState, Policy, SandboxNo};
use super::workload::NodeWorkload;
use crate::experiment::scheduling::processors::Processors;

/// How long a sandbox takes to end; its memory is taken until then.
pub(super) const END_US: u64 = 10_000;
/// Who has waited so long for its run to begin is refused.
pub(super) const WAIT_MAX_US: u64 = 10_000_000;
/// A policy is asked so often while an invocation waits.
const ASKED_EVERY_US: u64 = 20_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Arrives(usize),
    /// An invocation has waited as long as it may.
    Overdue(usize),
    /// A start or run ends, unless the processors have been shared anew since.
    WorkEnds(u32),
    Gone(SandboxNo),
    /// The policy is asked, if this is still the next time to.
    Asked,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Invocation {
    Waits,
    /// It has its sandbox, and runs when that has its memory.
    Runs,
    Over,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Its memory is promised, not there; nothing is taken if it is new, what an idle one takes if it is to run.
    Promised,
    Starts,
    Idle,
    Runs(usize),
    Ends,
}

#[derive(Clone, Copy, Debug)]
struct Sandbox {
    function: usize,
    state: State,
    takes: ByteSize,
}

/// A sandbox that waits for its memory.
#[derive(Debug)]
struct PendingSandbox {
    sandbox: SandboxNo,
    /// What it runs then; it starts if nothing.
    invocation: Option<usize>,
    after: Vec<SandboxNo>,
}

pub(super) struct Node<'a> {
    workload: &'a NodeWorkload,
    policy: Box<dyn Policy + 'a>,
    processors: Processors,
    work_number: u32,
    sandboxes: BTreeMap<SandboxNo, Sandbox>,
    pending: Vec<PendingSandbox>,
    /// What all sandboxes take, and what they will take when all that is promised is there and all that ends is gone.
    taken: ByteSize,
    promised: ByteSize,
    /// Of those that have come.
    invocations: Vec<Invocation>,
    waiting: usize,
    open: usize,
    events: BinaryHeap<Reverse<(u64, u64, Event)>>,
    sequence: u64,
    asked_at_us: Option<u64>,
    outcome: Outcome,
}

const fn at(us: u64) -> Monotonic {
    Monotonic(us * 1000)
}

impl<'a> Node<'a> {
    pub(super) fn new(workload: &'a NodeWorkload, policy: Box<dyn Policy + 'a>) -> Self {
        Self {
            workload,
            policy,
            processors: Processors::new(workload.processors),
            work_number: 0,
            sandboxes: BTreeMap::new(),
            pending: Vec::new(),
            taken: ByteSize::ZERO,
            promised: ByteSize::ZERO,
            invocations: Vec::new(),
            waiting: 0,
            open: 0,
            events: BinaryHeap::new(),
            sequence: 0,
            asked_at_us: None,
            outcome: Outcome::default(),
        }
    }

    pub(super) fn play(mut self) -> Outcome {
        if let Some(first) = self.workload.arrivals.first() {
            self.at(first.at_us, Event::Arrives(0));
        }
        while let Some(Reverse((now, _, event))) = self.events.pop() {
            if self.happens(now, event) {
                self.decide(now);
            }
            self.check();
            if self.open == 0 && self.invocations.len() == self.workload.arrivals.len() {
                break;
            }
        }
        assert_eq!(self.open, 0, "an invocation neither ended nor was refused");
        self.outcome
    }

    fn at(&mut self, us: u64, event: Event) {
        self.sequence += 1;
        self.events.push(Reverse((us, self.sequence, event)));
    }

    /// False if the event is of no account any more.
    fn happens(&mut self, now: u64, event: Event) -> bool {
        match event {
            Event::Arrives(number) => {
                if let Some(next) = self.workload.arrivals.get(number + 1) {
                    self.at(next.at_us, Event::Arrives(number + 1));
                }
                self.invocations.push(Invocation::Waits);
                (self.waiting, self.open) = (self.waiting + 1, self.open + 1);
                self.at(now + WAIT_MAX_US, Event::Overdue(number));
                self.policy.arrived(at(now), number, self.workload.arrivals[number].function);
            }
            Event::Overdue(number) => {
                if self.invocations[number] != Invocation::Waits {
                    return false;
                }
                self.refuse(number);
                self.policy.overdue(at(now), number);
            }
            Event::WorkEnds(number) => {
                if number != self.work_number {
                    return false;
                }
                while let Some(job) = self.processors.take_ended(now) {
                    self.work_ended(now, SandboxNo(job as u32));
                }
                self.share_anew();
            }
            Event::Gone(sandbox) => {
                let gone = self.sandboxes.remove(&sandbox);
                assert!(gone.is_some_and(|one| one.state == State::Ends), "a sandbox was gone that had not ended");
                self.taken = self.taken.saturating_sub(gone.map_or(ByteSize::ZERO, |one| one.takes));
                self.policy.gone(at(now), sandbox);
                self.begin_pending(now);
            }
            Event::Asked => {
                if self.asked_at_us != Some(now) {
                    return false;
                }
                self.asked_at_us = None;
            }
        }
        true
    }

    fn refuse(&mut self, invocation: usize) {
        assert_eq!(self.invocations[invocation], Invocation::Waits, "one was refused that did not wait");
        self.invocations[invocation] = Invocation::Over;
        (self.waiting, self.open) = (self.waiting - 1, self.open - 1);
        let arrival = &self.workload.arrivals[invocation];
        self.outcome.refused(self.workload.functions[arrival.function].tenant, arrival.run_us);
    }

    fn share_anew(&mut self) {
        self.work_number += 1;
        if let Some(end) = self.processors.next_end() {
            self.at(end, Event::WorkEnds(self.work_number));
        }
    }

    fn work_ended(&mut self, now: u64, number: SandboxNo) {
        let Some(&Sandbox { function, state, takes }) = self.sandboxes.get(&number) else { return };
        let idle = self.workload.functions[function].idle_takes(self.policy.idle_takes());
        let less = takes.saturating_sub(idle);
        self.taken = self.taken.saturating_sub(less);
        self.promised = self.promised.saturating_sub(less);
        self.sandboxes.insert(number, Sandbox { function, state: State::Idle, takes: idle });
        match state {
            State::Starts => self.policy.started(at(now), number),
            State::Runs(invocation) => {
                self.invocations[invocation] = Invocation::Over;
                self.open -= 1;
                let arrival = &self.workload.arrivals[invocation];
                let tenant = self.workload.functions[function].tenant;
                self.outcome.ended(tenant, now - arrival.at_us, arrival.run_us);
                self.policy.ended(at(now), number);
            }
            State::Promised | State::Idle | State::Ends => panic!("the work of a sandbox ended that had none"),
        }
        // What it gave back may be what another waits for.
        self.begin_pending(now);
    }

    fn decide(&mut self, now: u64) {
        let NodeWorkload { memory, processors, .. } = *self.workload;
        let memory_free = memory.saturating_sub(self.promised);
        let node = NodeState { memory, memory_free, processors, now_us: now, work: &self.processors };
        for action in self.policy.decide(at(now), &node) {
            match action {
                Action::Run { invocation, sandbox, after } => self.run(now, invocation, sandbox, after),
                Action::Start { function, sandbox, after } => {
                    let new = Sandbox { function, state: State::Promised, takes: ByteSize::ZERO };
                    assert!(self.sandboxes.insert(sandbox, new).is_none(), "a sandbox's number was used twice");
                    self.promise(now, sandbox, None, after);
                }
                Action::End(sandbox) => self.end(now, sandbox),
                Action::Refuse(invocation) => self.refuse(invocation),
            }
        }
        self.begin_pending(now);
        let every = (self.waiting > 0).then_some(now + ASKED_EVERY_US);
        let wakes = self.policy.wakes_at().map(|at| (at.0 / 1000).max(now + 1));
        let next = every.into_iter().chain(wakes).min();
        if let Some(next) = next.filter(|next| self.asked_at_us.is_none_or(|at| *next < at)) {
            self.asked_at_us = Some(next);
            self.at(next, Event::Asked);
        }
    }

    fn run(&mut self, now: u64, invocation: usize, sandbox: SandboxNo, after: Vec<SandboxNo>) {
        assert_eq!(self.invocations[invocation], Invocation::Waits, "one was to run that did not wait");
        self.invocations[invocation] = Invocation::Runs;
        self.waiting -= 1;
        let function = self.workload.arrivals[invocation].function;
        let idle = self.sandboxes.get_mut(&sandbox).filter(|one| one.state == State::Idle && one.function == function);
        let idle = idle.map(|one| one.state = State::Promised);
        assert!(idle.is_some(), "one was to run in a sandbox that is not idle or of another function");
        self.promise(now, sandbox, Some(invocation), after);
    }

    fn promise(&mut self, now: u64, sandbox: SandboxNo, invocation: Option<usize>, after: Vec<SandboxNo>) {
        for victim in &after {
            self.end(now, *victim);
        }
        self.promised += self.missing(sandbox);
        assert!(self.promised <= self.workload.memory, "more memory was promised than there is");
        self.pending.push(PendingSandbox { sandbox, invocation, after });
    }

    /// What a sandbox has yet to get until it has what its function books.
    fn missing(&self, sandbox: SandboxNo) -> ByteSize {
        let one = &self.sandboxes[&sandbox];
        self.workload.functions[one.function].booked.saturating_sub(one.takes)
    }

    fn end(&mut self, now: u64, sandbox: SandboxNo) {
        let takes = self.sandboxes.get_mut(&sandbox).filter(|one| one.state == State::Idle).map(|one| {
            one.state = State::Ends;
            one.takes
        });
        assert!(takes.is_some(), "a sandbox was to end that is not idle");
        self.promised = self.promised.saturating_sub(takes.unwrap_or_default());
        self.at(now + END_US, Event::Gone(sandbox));
    }

    /// Gives those their memory for whom it is there, in the order in which it was promised.
    fn begin_pending(&mut self, now: u64) {
        let mut begun = false;
        for one in std::mem::take(&mut self.pending) {
            let missing = self.missing(one.sandbox);
            let is_there = self.taken + missing <= self.workload.memory;
            if !is_there || one.after.iter().any(|victim| self.sandboxes.contains_key(victim)) {
                self.pending.push(one);
                continue;
            }
            begun = true;
            self.taken += missing;
            let function = self.sandboxes[&one.sandbox].function;
            let (state, work_us) = match one.invocation {
                Some(invocation) => (State::Runs(invocation), self.workload.arrivals[invocation].run_us),
                None => (State::Starts, self.workload.functions[function].start_us),
            };
            self.outcome.works(work_us, state == State::Starts);
            let takes = self.workload.functions[function].booked;
            self.sandboxes.insert(one.sandbox, Sandbox { function, state, takes });
            self.processors.begin(now, one.sandbox.0 as usize, work_us);
        }
        if begun {
            self.share_anew();
        }
    }

    fn check(&self) {
        assert!(self.taken <= self.workload.memory, "sandboxes take more memory than there is");
        debug_assert_eq!(self.taken, self.sandboxes.values().map(|one| one.takes).sum::<ByteSize>());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::scheduling::pressure::on_demand::at_once;
    use crate::experiment::scheduling::pressure::policy::IdleTakes;
    use crate::experiment::scheduling::pressure::workload::{NodeArrival, NodeFunction};

    /// The mean slowdown and the starts of invocations at these milliseconds of two functions that book 100 MiB, start in
    /// 200 ms and run for 100 ms.
    fn played(memory_mib: u64, idle_takes: IdleTakes, arrivals: &[(u64, usize)]) -> (f64, f64) {
        let (booked, held) = (ByteSize::mib(100), ByteSize::mib(30));
        let function = NodeFunction { tenant: 0, booked, held, start_us: 200_000 };
        let arrival = |&(at_ms, function)| NodeArrival { at_us: at_ms * 1000, function, run_us: 100_000 };
        let workload = NodeWorkload {
            functions: vec![function; 2],
            arrivals: arrivals.iter().map(arrival).collect(),
            memory: ByteSize::mib(memory_mib),
            processors: 1,
        };
        let figures = Node::new(&workload, at_once(&workload.functions, idle_takes)).play().figures();
        (figures.slowdown_mean, figures.cold_starts * arrivals.len() as f64)
    }

    #[test]
    fn an_invocation_takes_a_start_an_end_before_that_or_its_run_alone() {
        let is = |(slowdown, starts): (f64, f64), wanted: f64, wanted_starts: f64| {
            assert!((slowdown - wanted).abs() < 0.001 && starts == wanted_starts, "{slowdown} {starts}");
        };
        is(played(150, IdleTakes::Booked, &[(0, 0)]), 3.0, 1.0);
        is(played(150, IdleTakes::Booked, &[(0, 0), (1000, 0)]), 2.0, 1.0);
        // The first sandbox ends for the second one, and the second for the first one's successor.
        let turns = [(0, 0), (1000, 1), (2000, 0)];
        is(played(150, IdleTakes::Booked, &turns), (3.0 + 3.1 + 3.1) / 3.0, 3.0);
        is(played(150, IdleTakes::Held, &turns), (3.0 + 3.0 + 1.0) / 3.0, 2.0);
        // Two start at once and share the processor; with memory for one the other waits for its end.
        is(played(200, IdleTakes::Booked, &[(0, 0), (0, 1)]), 6.0, 2.0);
        is(played(150, IdleTakes::Booked, &[(0, 0), (0, 1)]), (3.0 + 6.1) / 2.0, 2.0);
    }
}
