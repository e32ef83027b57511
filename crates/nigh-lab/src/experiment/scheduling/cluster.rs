//! A cluster whose invocations are placed by the scheduler itself, event by event.
//!
//! A node has processors that its runs share, memory for sandboxes, and a cache under the node's own eviction code. A
//! new sandbox costs processor time. An input is there, or comes from a node that has it, or from the store. The
//! scheduler is told what it would be told: the node's books at once, copies by its index of hints.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::time::Duration;

use nigh_objects::eviction::{DEFAULT_DOUBTFUL, Order, Origin, S3Fifo};
use nigh_schedule::scheduler::dispatch_queue::{DispatchLimits, DispatchQueue, NewEntry, Place, Turn};
use nigh_schedule::scheduler::locality_hints::LocalityHints;
use nigh_schedule::scheduler::{
    Choice, Fingerprint, Inputs, NodeIndex, NodeRole, NodeView, Offer, PerNode, Placement, WarmSandboxes, Weights,
    schedule,
};
use nigh_terms::{ByteSize, FunctionName, Incarnation, Monotonic, Namespace};

use super::outcome::Outcome;
use super::processors::Processors;
use super::workload::{Arrival, SimulatedFunction, Workload};
use crate::LabError;
use crate::instrument::made_up::name;
use crate::instrument::simulated_copies::SimulatedCopies;

pub(super) const PROCESSORS: u16 = 8;
const MEMORY: ByteSize = ByteSize::gib(8);
const RUNNING_MAX: u32 = 32;
const SANDBOXES_MAX: u32 = 128;
const CACHE: ByteSize = ByteSize::gib(1);
/// A new sandbox's work, where its interpreter waits with its imports done (`nigh bench coldstart`: 4 to 13 ms).
const COLD_US: u64 = 20_000;
/// An object here; from another node; from the store: first byte, and nanoseconds a byte.
const HERE_US: u64 = 30;
const NODE: (u64, u64) = (300, 1);
const STORE: (u64, u64) = (12_000, 12);
/// An output is a node's last word: it is written to its own cache.
const OUTPUT_MIN: u64 = 320;
/// After so long nobody waits any more.
const DEADLINE: Duration = Duration::from_secs(30);

pub(super) fn about() -> String {
    format!(
        "nodes of {PROCESSORS} processors, {MEMORY} for sandboxes, {CACHE} of cache, {RUNNING_MAX} invocations; a new \
         sandbox {} ms of work; an object from another node {} us and {} ns a byte, from the store {} ms and {} ns a byte",
        COLD_US / 1000,
        NODE.0,
        NODE.1,
        STORE.0 / 1000,
        STORE.1
    )
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// The next of the workload comes.
    Arrives(usize),
    /// A job has its inputs.
    Fetched(usize),
    /// A node looks whether a run has ended, unless it has looked since.
    Ends(u16, u32),
}

struct Node {
    processors: Processors,
    cache: SimulatedCopies<S3Fifo>,
    /// Idle sandboxes, the one idle longest first: function, since when.
    idle: VecDeque<(usize, u64)>,
    /// The number of its last look.
    look: u32,
}

#[derive(Clone, Debug)]
struct Job {
    function: usize,
    arrived_us: u64,
    run_us: u64,
    inputs: Vec<u64>,
    node: u16,
    work_us: u64,
}

struct Names {
    fingerprint: Fingerprint,
    tenant: Namespace,
    function: FunctionName,
}

pub(super) struct Cluster<'a> {
    workload: &'a Workload,
    weights: Weights,
    names: Vec<Names>,
    nodes: Vec<Node>,
    /// What the scheduler sees of each node.
    views: Vec<NodeView>,
    /// Idle sandboxes of each function.
    warm: Vec<PerNode<WarmSandboxes>>,
    hints: LocalityHints,
    sizes: Vec<u64>,
    jobs: Vec<Job>,
    queue: DispatchQueue<usize>,
    events: BinaryHeap<Reverse<(u64, u64, Event)>>,
    sequence: u64,
    inputs: Inputs,
    outcome: Outcome,
}

const fn object(number: u64) -> Fingerprint {
    // Objects have numbers here, not names; a multiplication spreads them.
    Fingerprint(number.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15))
}

fn at(us: u64) -> Monotonic {
    Monotonic(us * 1000)
}

impl<'a> Cluster<'a> {
    pub(super) fn new(workload: &'a Workload, nodes: u16, weights: Weights) -> Result<Self, LabError> {
        let names = |(number, function): (usize, &SimulatedFunction)| -> Result<Names, LabError> {
            let tenant: Namespace = name(&format!("tenant-{}", function.tenant))?;
            let function: FunctionName = name(&format!("function-{number}"))?;
            let fingerprint = Fingerprint::of(&[tenant.as_str(), function.as_str()]);
            Ok(Names { fingerprint, tenant, function })
        };
        let view = |number: u16| NodeView {
            incarnation: Incarnation(1),
            name: Fingerprint::of(&[&format!("node-{number}")]),
            role: NodeRole::Worker,
            shards_behind: 0,
            idle: 0,
            memory: MEMORY,
            memory_free: MEMORY,
            memory_idle: ByteSize::ZERO,
            sandboxes_free: SANDBOXES_MAX,
            running: 0,
            invocations_free: RUNNING_MAX,
            processors: PROCESSORS,
            ways_free: 0,
            evict_us: 0,
            start_us: 0,
        };
        let node = |_| Node {
            processors: Processors::new(PROCESSORS),
            cache: SimulatedCopies::new(Order::new(S3Fifo::default(), DEFAULT_DOUBTFUL), CACHE.bytes()),
            idle: VecDeque::new(),
            look: 0,
        };
        let limits =
            DispatchLimits { entries_max: 1_000_000, tenant_entries_max: 1_000_000, ..DispatchLimits::default() };
        Ok(Self {
            workload,
            weights,
            names: workload.functions.iter().enumerate().map(names).collect::<Result<_, _>>()?,
            views: (0..nodes).map(view).collect(),
            outcome: Outcome::default(),
            nodes: (0..nodes).map(node).collect(),
            warm: vec![PerNode::default(); workload.functions.len()],
            hints: LocalityHints::new(1 << 20),
            sizes: workload.sizes.clone(),
            jobs: Vec::new(),
            queue: DispatchQueue::new(limits),
            events: BinaryHeap::new(),
            sequence: 0,
            inputs: Inputs::default(),
        })
    }

    pub(super) fn play(mut self) -> Outcome {
        if let Some(first) = self.workload.arrivals.first() {
            self.at(first.at_us, Event::Arrives(0));
        }
        while let Some(Reverse((now, _, event))) = self.events.pop() {
            match event {
                Event::Arrives(number) => {
                    if let Some(next) = self.workload.arrivals.get(number + 1) {
                        self.at(next.at_us, Event::Arrives(number + 1));
                    }
                    let Arrival { function, run_us, inputs, .. } = self.workload.arrivals[number].clone();
                    self.arrive(now, function, run_us, inputs);
                }
                Event::Fetched(job) => {
                    let Job { node, work_us, .. } = self.jobs[job];
                    self.nodes[usize::from(node)].processors.begin(now, job, work_us);
                    self.look(node);
                }
                Event::Ends(node, look) => {
                    if self.nodes[usize::from(node)].look == look {
                        while let Some(job) = self.nodes[usize::from(node)].processors.take_ended(now) {
                            self.end(now, job);
                        }
                        self.look(node);
                        self.serve(now);
                    }
                }
            }
        }
        self.outcome.busy_us = self.nodes.iter().map(|node| node.processors.busy_us).collect();
        self.outcome
    }

    fn at(&mut self, us: u64, event: Event) {
        self.sequence += 1;
        self.events.push(Reverse((us, self.sequence, event)));
    }

    fn look(&mut self, node: u16) {
        let of = &mut self.nodes[usize::from(node)];
        of.look += 1;
        let look = of.look;
        if let Some(end) = of.processors.next_end() {
            self.at(end, Event::Ends(node, look));
        }
    }

    fn arrive(&mut self, now: u64, function: usize, run_us: u64, inputs: Vec<u64>) {
        let job = self.jobs.len();
        self.jobs.push(Job { function, arrived_us: now, run_us, inputs, node: 0, work_us: 0 });
        // Who comes does not pass those who wait.
        if self.queue.is_empty()
            && let Some(choice) = self.choose(now, job)
        {
            self.dispatch(now, job, choice);
            return;
        }
        let Names { tenant, function: name, .. } = &self.names[function];
        let entry = NewEntry {
            namespace: tenant.clone(),
            function: name.clone(),
            run: Duration::from_micros(self.workload.functions[function].run_us),
            deadline: at(now).after(DEADLINE),
            item: job,
        };
        self.outcome.counts.queued += 1;
        if self.queue.push(entry, at(now)).is_err() {
            self.outcome.counts.failed += 1;
        }
    }

    /// Lets those run who wait, as far as there is room.
    fn serve(&mut self, now: u64) {
        // What a function without idle sandboxes was refused, none that books as much need ask for.
        loop {
            if self.queue.is_empty() {
                return;
            }
            let mut refused = ByteSize(u64::MAX);
            let mut queue = std::mem::replace(&mut self.queue, DispatchQueue::new(DispatchLimits::default()));
            let turn = queue.next(at(now), |job| {
                let function = self.jobs[*job].function;
                let booked = self.workload.functions[function].booked;
                let has_warm = self.warm[function].iter().any(|(_, warm)| warm.sandboxes > 0);
                if !has_warm && booked >= refused {
                    return Place::Nowhere;
                }
                let choice = self.choose(now, *job);
                if choice.is_none() && !has_warm {
                    refused = booked;
                }
                choice.map_or(Place::Nowhere, Place::Here)
            });
            self.queue = queue;
            match turn {
                Some(Turn::Placed(_, job, choice)) => self.dispatch(now, job, choice),
                Some(Turn::Expired(..)) => self.outcome.counts.failed += 1,
                None => return,
            }
        }
    }

    fn choose(&mut self, now: u64, job: usize) -> Option<Choice> {
        let Job { function, ref inputs, .. } = self.jobs[job];
        let known = &self.workload.functions[function];
        self.inputs.clear();
        for input in inputs {
            self.inputs.add(self.sizes[*input as usize], self.hints.holders(object(*input)).map(|(node, _)| node));
        }
        let warm = &mut self.warm[function];
        let nodes: Vec<NodeIndex> = warm.iter().map(|(node, _)| node).collect();
        for node in nodes {
            let last = self.nodes[usize::from(node.0)].idle.iter().rev().find(|(of, _)| *of == function);
            warm.entry(node).idle_for = Duration::from_micros(last.map_or(0, |(_, since)| now - since));
        }
        let placement = Placement {
            function: self.names[function].fingerprint,
            booked: known.booked,
            expected: known.booked,
            run: Duration::from_micros(known.run_us),
            cold_start: Duration::from_micros(COLD_US),
            ways: 0,
            warm,
            inputs: &self.inputs,
        };
        schedule(&self.weights, &placement, &self.views).choice
    }

    fn dispatch(&mut self, now: u64, job: usize, choice: Choice) {
        let node = choice.node.0;
        let function = self.jobs[job].function;
        let booked = self.workload.functions[function].booked;
        let cold = choice.offer != Offer::Warm;
        match choice.offer {
            Offer::Warm => {
                let idle = &mut self.nodes[usize::from(node)].idle;
                if let Some(place) = idle.iter().rposition(|(of, _)| *of == function) {
                    idle.remove(place);
                }
                self.one_idle_less(node, function);
            }
            Offer::Cold | Offer::Evict => {
                self.outcome.counts.cold_starts += 1;
                while self.view(node).memory_free < booked || self.view(node).sandboxes_free == 0 {
                    let Some((victim, _)) = self.nodes[usize::from(node)].idle.pop_front() else { break };
                    self.outcome.counts.evicted += 1;
                    self.one_idle_less(node, victim);
                    let size = self.workload.functions[victim].booked;
                    let view = self.view(node);
                    view.memory_free += size;
                    view.sandboxes_free += 1;
                }
                let view = self.view(node);
                view.memory_free = view.memory_free.saturating_sub(booked);
                view.sandboxes_free = view.sandboxes_free.saturating_sub(1);
            }
        }
        let view = self.view(node);
        view.running += 1;
        view.invocations_free -= 1;
        let inputs = std::mem::take(&mut self.jobs[job].inputs);
        let fetch_us: u64 = inputs.iter().map(|input| self.read(node, *input)).sum();
        let one = &mut self.jobs[job];
        one.node = node;
        one.work_us = one.run_us + if cold { COLD_US } else { 0 };
        self.at(now + fetch_us, Event::Fetched(job));
    }

    fn view(&mut self, node: u16) -> &mut NodeView {
        &mut self.views[usize::from(node)]
    }

    fn one_idle_less(&mut self, node: u16, function: usize) {
        let booked = self.workload.functions[function].booked;
        let view = self.view(node);
        view.idle -= 1;
        view.memory_idle = view.memory_idle.saturating_sub(booked);
        let warm = self.warm[function].entry(NodeIndex(node));
        warm.sandboxes -= 1;
        if warm.sandboxes == 0 {
            self.warm[function].remove(NodeIndex(node));
        }
    }

    /// Reads an object at a node; what it takes.
    fn read(&mut self, node: u16, input: u64) -> u64 {
        let bytes = self.sizes[input as usize];
        self.outcome.read_bytes += bytes;
        if self.nodes[usize::from(node)].cache.touch(input) {
            self.outcome.local_bytes += bytes;
            return HERE_US;
        }
        let (first, a_byte) = if self.hints.holders(object(input)).next().is_some() { NODE } else { STORE };
        self.outcome.counts.store_reads += u64::from((first, a_byte) == STORE);
        self.keep(node, input, Origin::Read);
        first + bytes * a_byte / 1000
    }

    fn keep(&mut self, node: u16, input: u64, origin: Origin) {
        let (hints, bytes, index) = (&mut self.hints, self.sizes[input as usize].max(OUTPUT_MIN), NodeIndex(node));
        let gone = |victim: u64| hints.dropped(object(victim), index);
        if self.nodes[usize::from(node)].cache.insert(input, bytes, origin, gone) {
            self.hints.installed(object(input), index, bytes);
        }
    }

    fn end(&mut self, now: u64, job: usize) {
        let Job { function, arrived_us, run_us, node, .. } = self.jobs[job];
        self.outcome.ended(now - arrived_us, run_us);
        let known = self.workload.functions[function];
        let booked = known.booked;
        self.nodes[usize::from(node)].idle.push_back((function, now));
        let view = self.view(node);
        view.running -= 1;
        view.invocations_free += 1;
        view.idle += 1;
        view.memory_idle += booked;
        let warm = self.warm[function].entry(NodeIndex(node));
        warm.sandboxes += 1;
        warm.granted = booked;
        if let Some(next) = known.next {
            // As much comes out as was read: a stage between others.
            let output = self.sizes.len() as u64;
            self.sizes.push(self.workload.sizes[job % self.workload.sizes.len()]);
            self.keep(node, output, Origin::Written);
            let run_us = self.workload.functions[next].run_us;
            self.arrive(now, next, run_us, vec![output]);
        }
    }
}
