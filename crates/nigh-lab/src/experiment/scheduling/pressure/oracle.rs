//! A policy that knows what will be invoked, when, and how long each run takes: how well a node could be served.
//!
//! The optimum is not known (it is at least as hard as caching objects of different sizes and costs), so this is a
//! heuristic. It can be played, so the optimum is no worse: who takes twice the oracle's slowdown takes at least twice the
//! optimum's. No slowdown is below 1. What it does, all with the aim of the least mean slowdown:
//!
//! - Short runs first: those who wait are looked at in the order of what they would lose by waiting for what they take.
//! - A run begins while a processor is idle, and else if it gains twice as much so, over waiting until one is, as it takes
//!   from those that run (`load`). Twice, because those who come will slow these down too; between once and ten times as
//!   much the mean slowdown differs by some percent.
//! - A sandbox starts only if the invocation begins earlier that way than by waiting for one that is there, if that is worth
//!   what it takes from others, and while fewer start than there are processors.
//! - To make room, the idle sandbox ends that does least harm: what a start would add to the slowdown of its next use, over
//!   its memory and the time until then (Belady's rule with costs and sizes).
//! - While a processor is idle, sandboxes start ahead of invocations that would find none, so that they are there when these
//!   come, if there is room or sandboxes that are needed later. `Oracle::on_demand` does not do this.

use std::collections::BTreeMap;

use nigh_terms::{ByteSize, Monotonic};

use super::foresight::{Foresight, NextUse};
use super::load::Load;
use super::node::END_US;
use super::policy::{Action, IdleTakes, NodeState, Policy, SandboxNo};
use super::sandboxes::Sandboxes;
use super::workload::{NodeFunction, NodeWorkload, START_MS};

/// A sandbox that starts ahead is begun so long before it has to be, in microseconds: time for another to end.
const AHEAD_EARLIER_US: f64 = END_US as f64 + 5_000.0;
/// None starts ahead for who would wait for another no longer than this, in microseconds.
const SHORT_WAIT_US: f64 = 5_000.0;

/// How many times what a run takes from others it has to gain, to begin while no processor is idle.
const GAIN_MIN: f64 = 2.0;
/// So many invocations that are to come are looked at for starts ahead.
const LOOKED_AHEAD_MAX: usize = 256;

/// What a sandbox does that is not idle.
#[derive(Clone, Copy, Debug)]
struct Work {
    function: usize,
    work_us: f64,
    weight: f64,
    is_start: bool,
}

pub(super) struct Oracle<'a> {
    functions: &'a [NodeFunction],
    foresight: Foresight<'a>,
    starts_ahead: bool,
    sandboxes: Sandboxes,
    work: BTreeMap<SandboxNo, Work>,
    waiting: Vec<usize>,
    wakes_at: Option<Monotonic>,
}

/// What has been decided so far at one moment.
struct Plan {
    now_us: u64,
    free: ByteSize,
    load: Load,
    starting: usize,
    processors: usize,
    /// Of each function: microseconds until each of its sandboxes that are not idle is free.
    busy_us: BTreeMap<usize, Vec<f64>>,
    actions: Vec<Action>,
}

/// An idle sandbox, and what its end would do.
#[derive(Clone, Copy, Debug)]
struct Candidate {
    sandbox: SandboxNo,
    takes: ByteSize,
    next: NextUse,
}

impl Candidate {
    /// Harm a mebibyte and microsecond.
    fn worth(&self) -> f64 {
        self.next.harm / (self.takes.bytes().max(1) as f64 * self.next.in_us.max(1.0))
    }
}

/// Those that are ended for one that needs their room.
struct Room {
    victims: Vec<SandboxNo>,
    freed: ByteSize,
    harm: f64,
}

impl<'a> Oracle<'a> {
    pub(super) fn new(workload: &'a NodeWorkload) -> Self {
        Self {
            functions: &workload.functions,
            foresight: Foresight::new(workload),
            starts_ahead: true,
            sandboxes: Sandboxes::default(),
            work: BTreeMap::new(),
            waiting: Vec::new(),
            wakes_at: None,
        }
    }

    /// The same, but that no sandbox starts before an invocation waits for one.
    pub(super) fn on_demand(workload: &'a NodeWorkload) -> Self {
        Self { starts_ahead: false, ..Self::new(workload) }
    }

    fn plan(&self, now: Monotonic, node: &NodeState<'_>) -> Plan {
        let mut load = Load::new(node.processors);
        let left: BTreeMap<SandboxNo, f64> = node.work_left().collect();
        // Who waits for its memory has all of its work before it.
        let left_of = |sandbox: &SandboxNo, work: &Work| left.get(sandbox).copied().unwrap_or(work.work_us);
        for (sandbox, work) in &self.work {
            load.add(left_of(sandbox, work), work.weight);
        }
        let mut busy_us: BTreeMap<usize, Vec<f64>> = BTreeMap::new();
        for (sandbox, work) in &self.work {
            busy_us.entry(work.function).or_default().push(load.end_of(left_of(sandbox, work)));
        }
        busy_us.values_mut().for_each(|ends| ends.sort_by(f64::total_cmp));
        Plan {
            now_us: now.0 / 1000,
            free: node.memory_free,
            load,
            starting: self.work.values().filter(|work| work.is_start).count(),
            processors: usize::from(node.processors),
            busy_us,
            actions: Vec::new(),
        }
    }

    /// The idle sandboxes, the one first whose end does least harm.
    fn candidates(&self, plan: &Plan) -> Vec<Candidate> {
        let mut idle: BTreeMap<usize, Vec<SandboxNo>> = BTreeMap::new();
        for one in self.sandboxes.idle().rev() {
            idle.entry(one.function).or_default().push(one.sandbox);
        }
        let mut candidates = Vec::new();
        for (function, sandboxes) in idle {
            let busy = plan.busy_us.get(&function).map_or(&[][..], Vec::as_slice);
            let waits = |number: &&usize| self.foresight.invocation(**number).function == function;
            let waiting: Vec<usize> = self.waiting.iter().filter(waits).copied().collect();
            let uses = self.foresight.next_uses(plan.now_us, function, sandboxes.len(), busy, &waiting);
            let takes = self.functions[function].held;
            candidates.extend(sandboxes.into_iter().zip(uses).map(|(sandbox, next)| Candidate {
                sandbox,
                takes,
                next,
            }));
        }
        candidates.sort_by(|one, other| one.worth().total_cmp(&other.worth()));
        candidates
    }

    /// What has to end for `needed` to be free. Only those end that are needed later than in `later_us`.
    fn room(&self, plan: &Plan, needed: ByteSize, spared: Option<SandboxNo>, later_us: f64) -> Option<Room> {
        let missing = needed.saturating_sub(plan.free);
        let (mut freed, mut chosen) = (ByteSize::ZERO, Vec::new());
        if missing > ByteSize::ZERO {
            for one in self.candidates(plan) {
                if freed >= missing {
                    break;
                }
                if Some(one.sandbox) != spared && one.next.in_us > later_us {
                    freed += one.takes;
                    chosen.push(one);
                }
            }
            if freed < missing {
                return None;
            }
            // The last ones may have made the first ones needless.
            for place in (0..chosen.len()).rev() {
                if freed.saturating_sub(chosen[place].takes) >= missing {
                    freed = freed.saturating_sub(chosen.remove(place).takes);
                }
            }
        }
        let harm = chosen.iter().map(|one| one.next.harm).sum();
        Some(Room { victims: chosen.into_iter().map(|one| one.sandbox).collect(), freed, harm })
    }

    fn take_room(&mut self, plan: &mut Plan, needed: ByteSize, room: &Room) {
        plan.free = (plan.free + room.freed).saturating_sub(needed);
        for victim in &room.victims {
            self.sandboxes.end(*victim);
        }
    }

    /// Lets one run in an idle sandbox, if now is better than later.
    fn run(&mut self, plan: &mut Plan, invocation: usize, sandbox: SandboxNo) -> bool {
        let arrival = self.foresight.invocation(invocation);
        let (work_us, weight) = (arrival.run_us as f64, self.foresight.weight(invocation));
        let later_us = plan.load.idle_processor_in() + work_us;
        if (later_us - plan.load.end_of_new(work_us)) * weight < GAIN_MIN * plan.load.loss_by_new(work_us) {
            return false;
        }
        let growth = self.functions[arrival.function].growth(IdleTakes::Held);
        let Some(room) = self.room(plan, growth, Some(sandbox), 0.0) else { return false };
        self.take_room(plan, growth, &room);
        self.sandboxes.take(sandbox);
        self.work.insert(sandbox, Work { function: arrival.function, work_us, weight, is_start: false });
        plan.load.add(work_us, weight);
        plan.actions.push(Action::Run { invocation, sandbox, after: room.victims });
        true
    }

    /// Starts a sandbox for one that waits, if that is better than to wait for one that is free in `free_us`.
    fn start_for(&mut self, plan: &mut Plan, invocation: usize, free_us: Option<f64>) {
        let function = self.foresight.invocation(invocation).function;
        let weight = self.foresight.weight(invocation);
        let work_us = self.functions[function].start_us as f64;
        if plan.starting >= plan.processors {
            return;
        }
        let Some(room) = self.room(plan, self.functions[function].booked, None, 0.0) else { return };
        let started_us = plan.load.end_of_new(work_us) + if room.victims.is_empty() { 0.0 } else { END_US as f64 };
        let later_us = free_us.unwrap_or_else(|| plan.load.idle_processor_in() + work_us);
        // Where there is none, another has to go in any case.
        let harm = if free_us.is_some() { room.harm } else { 0.0 };
        if (later_us - started_us) * weight > plan.load.loss_by_new(work_us) + harm
            || free_us.is_none() && plan.load.has_idle_processor()
        {
            self.start(plan, function, weight, room);
        }
    }

    fn start(&mut self, plan: &mut Plan, function: usize, weight: f64, room: Room) {
        let work_us = self.functions[function].start_us as f64;
        self.take_room(plan, self.functions[function].booked, &room);
        let sandbox = self.sandboxes.make(function);
        self.work.insert(sandbox, Work { function, work_us, weight, is_start: true });
        plan.load.add(work_us, weight);
        plan.starting += 1;
        plan.busy_us.entry(function).or_default().push(plan.load.end_of(work_us));
        plan.actions.push(Action::Start { function, sandbox, after: room.victims });
    }

    fn serve(&mut self, plan: &mut Plan) {
        let cost = |number: &usize| {
            let arrival = self.foresight.invocation(*number);
            let has_none = self.sandboxes.warmest(arrival.function).is_none();
            let start_us = if has_none { self.functions[arrival.function].start_us } else { 0 };
            (arrival.run_us + start_us) as f64 / self.foresight.weight(*number)
        };
        let mut order: Vec<(f64, usize)> = self.waiting.iter().map(|number| (cost(number), *number)).collect();
        order.sort_by(|one, other| one.0.total_cmp(&other.0).then(one.1.cmp(&other.1)));
        // How many sandboxes of a function that are not idle are spoken for by those before.
        let mut spoken_for: BTreeMap<usize, usize> = BTreeMap::new();
        for (_, invocation) in order {
            let function = self.foresight.invocation(invocation).function;
            if let Some(sandbox) = self.sandboxes.warmest(function) {
                if self.run(plan, invocation, sandbox) {
                    self.waiting.retain(|waits| *waits != invocation);
                }
                continue;
            }
            let spoken_for = spoken_for.entry(function).or_default();
            let free_us = plan.busy_us.get(&function).and_then(|ends| ends.get(*spoken_for)).copied();
            self.start_for(plan, invocation, free_us);
            *spoken_for += 1;
        }
    }

    /// Starts sandboxes that invocations to come would not find, and settles when to look again.
    fn start_ahead(&mut self, plan: &mut Plan) {
        let now_us = plan.now_us;
        let horizon_us = START_MS.1 * 1000.0 + AHEAD_EARLIER_US;
        let mut wakes_us = f64::INFINITY;
        // When the sandboxes are free that are there, by function.
        let mut free_at: BTreeMap<usize, Vec<f64>> = plan.busy_us.clone();
        for one in self.sandboxes.idle() {
            free_at.entry(one.function).or_default().push(0.0);
        }
        for &waits in &self.waiting {
            let arrival = self.foresight.invocation(waits);
            if let Some(first) = free_at.get_mut(&arrival.function).and_then(|all| earliest(all)) {
                *first += arrival.run_us as f64;
            }
        }
        let upcoming: Vec<_> = self.foresight.upcoming().take(LOOKED_AHEAD_MAX).collect();
        for (number, arrival) in upcoming {
            let in_us = arrival.at_us.saturating_sub(now_us) as f64;
            if in_us > horizon_us {
                wakes_us = wakes_us.min(in_us - horizon_us);
                break;
            }
            let function = arrival.function;
            if let Some(first) = free_at.get_mut(&function).and_then(|all| earliest(all))
                && *first <= in_us + SHORT_WAIT_US
            {
                *first = first.max(in_us) + arrival.run_us as f64;
                continue;
            }
            let begins_us = in_us - self.functions[function].start_us as f64 - AHEAD_EARLIER_US;
            if begins_us > 0.0 {
                wakes_us = wakes_us.min(begins_us);
            } else if plan.load.has_idle_processor()
                && let Some(room) = self.room(plan, self.functions[function].booked, None, in_us)
            {
                self.start(plan, function, self.foresight.weight(number), room);
                free_at.entry(function).or_default().push(in_us + arrival.run_us as f64);
            }
        }
        self.wakes_at = wakes_us.is_finite().then(|| Monotonic((now_us + wakes_us.ceil() as u64) * 1000));
    }
}

fn earliest(all: &mut [f64]) -> Option<&mut f64> {
    all.iter_mut().min_by(|one, other| one.total_cmp(other))
}

impl Policy for Oracle<'_> {
    fn idle_takes(&self) -> IdleTakes {
        IdleTakes::Held
    }

    fn arrived(&mut self, _now: Monotonic, invocation: usize, function: usize) {
        self.foresight.arrived(invocation, function);
        self.waiting.push(invocation);
    }

    fn overdue(&mut self, _now: Monotonic, invocation: usize) {
        self.waiting.retain(|waits| *waits != invocation);
    }

    fn started(&mut self, now: Monotonic, sandbox: SandboxNo) {
        self.ended(now, sandbox);
    }

    fn ended(&mut self, now: Monotonic, sandbox: SandboxNo) {
        self.work.remove(&sandbox);
        self.sandboxes.keep(sandbox, now);
    }

    fn decide(&mut self, now: Monotonic, node: &NodeState<'_>) -> Vec<Action> {
        let mut plan = self.plan(now, node);
        self.serve(&mut plan);
        if self.starts_ahead {
            self.start_ahead(&mut plan);
        }
        plan.actions
    }

    fn wakes_at(&self) -> Option<Monotonic> {
        self.wakes_at
    }
}
