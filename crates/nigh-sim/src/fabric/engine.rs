//! The simulation: events in their order, and functions through their steps. What an event means to a protocol is in
//! `protocol`, what it moves in `transfer`.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::home::{Cover, Home, Node};
use super::jitter::Latencies;
use super::outcome::{BlockedFunction, FunctionTimes, Outcome, Traffic};
use super::picos::Picos;
use super::system::{Coherence, Transport};
use super::workflow::{ObjectId, Run, Server, Step};

/// What happens; a number is a function's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Event {
    /// The home has a request for a cover.
    AskAtHome(usize),
    /// The node has the cover.
    Asked(usize, Cover),
    /// A step has ended.
    StepEnds(usize),
    /// The home has a request for a version.
    VersionAtHome(usize),
    /// The node has the version.
    VersionTold(usize, u64),
    /// The home has a request for an object.
    GetAtHome(usize),
    /// The next piece of a stream is read.
    GetPiece(usize),
    /// A server asks for as many lines as may be outstanding.
    GetLines(usize),
    /// The home has that request: when it was made, and how many bytes it is.
    LinesAtHome(usize, Picos, u64),
    /// The last byte is here.
    Got(usize),
    /// The next piece is sent.
    PutPiece(usize),
    /// A piece begins to arrive: when it ends to, and its bytes.
    PieceAtHome(usize, Picos, u64),
    /// All pieces are written.
    PassEnds(usize),
    /// The writer knows that the log is written.
    Logged(usize),
    /// The writer knows that its put took place.
    PutAcknowledged(usize),
    /// A sharer has applied an invalidation.
    Invalidated(Server, ObjectId, u64),
    /// The home knows.
    Applied(Server, ObjectId),
}

/// A function's state.
#[derive(Debug, Default)]
pub(super) struct Task {
    pub(super) times: FunctionTimes,
    /// Which step is under way.
    step: usize,
    pub(super) dispatched: bool,
    ended: bool,
    /// Since when.
    pub(super) since: Picos,
    /// Bytes still to be sent.
    pub(super) left: u64,
    /// Bytes still to arrive.
    pub(super) arriving: u64,
    /// Times that the put's bytes are still to be sent.
    pub(super) passes: u8,
    /// The latency that this operation's stream has.
    pub(super) latency: Picos,
    /// Of what is read or was written.
    pub(super) version: u64,
    /// What came with it.
    pub(super) cover: Cover,
    pub(super) hit_bytes: u64,
    pub(super) missed_bytes: u64,
    puts: bool,
    pub(super) invalidates: bool,
}

/// Goes on when its node has applied so many invalidations.
#[derive(Debug, Clone, Copy)]
pub(super) enum ResumePoint {
    Begin,
    EndStep,
}

pub(super) struct Engine<'a> {
    pub(super) run: Run<'a>,
    pub(super) transport: Transport,
    pub(super) coherence: Coherence,
    pub(super) latencies: Latencies,
    events: BinaryHeap<Reverse<(Picos, u64, Event)>>,
    scheduled: u64,
    pub(super) now: Picos,
    pub(super) tasks: Vec<Task>,
    pub(super) nodes: Vec<Node>,
    pub(super) home: Home,
    /// When the memory server's channel is free.
    pub(super) memory_free: Picos,
    pub(super) traffic: Traffic,
    stage: u8,
    /// When the last function ended; invalidations may still be on their way then.
    finished: Picos,
    /// What the scheduler has seen when the stage began.
    pub(super) frontier: u64,
    /// Functions that wait until nothing is pending at their server.
    pub(super) barred: Vec<usize>,
    /// Puts that wait until nothing of their object is pending.
    pub(super) stalled: Vec<usize>,
    /// Puts that took place and wait for every sharer.
    pub(super) unanswered: Vec<usize>,
    /// Functions that wait for invalidations at their node.
    pub(super) uncovered: Vec<(usize, Cover, ResumePoint)>,
}

/// Runs a workflow. The same run gives the same outcome.
pub fn simulate(run: &Run<'_>) -> Outcome {
    let mut engine = Engine::new(*run);
    engine.begin_stage();
    while let Some(Reverse((at, _, event))) = engine.events.pop() {
        engine.now = at;
        engine.happen(event);
    }
    engine.outcome()
}

impl<'a> Engine<'a> {
    fn new(run: Run<'a>) -> Self {
        let servers = run.workflow.servers();
        let mut nodes: Vec<Node> = (0..servers).map(|_| Node::default()).collect();
        for (id, object) in (0..).map(ObjectId).zip(&run.workflow.objects) {
            for server in &object.cached_at {
                nodes[usize::from(server.0)].install(id, 0);
            }
        }
        let first = run.workflow.functions.iter().map(|function| function.stage).min();
        Self {
            transport: run.system.transport(run.hardware),
            coherence: run.system.coherence(),
            latencies: Latencies::new(run.jitter, run.seed),
            events: BinaryHeap::new(),
            scheduled: 0,
            now: Picos::ZERO,
            tasks: run.workflow.functions.iter().map(|_| Task::default()).collect(),
            nodes,
            home: Home::new(run.workflow, servers),
            memory_free: Picos::ZERO,
            traffic: Traffic::default(),
            stage: first.unwrap_or(0),
            finished: Picos::ZERO,
            frontier: 0,
            barred: Vec::new(),
            stalled: Vec::new(),
            unanswered: Vec::new(),
            uncovered: Vec::new(),
            run,
        }
    }

    pub(super) fn at(&mut self, time: Picos, event: Event) {
        self.scheduled += 1;
        self.events.push(Reverse((time, self.scheduled, event)));
    }

    /// How long a message without an object takes.
    pub(super) fn message(&mut self) -> Picos {
        self.latencies.message(self.transport.one_way()) + self.transport.on_link(self.transport.header_bytes)
    }

    /// The home's look-ups for an operation: who has copies, and where the object lies.
    pub(super) fn look_ups(&self) -> Picos {
        self.run.hardware.controller + self.run.hardware.controller
    }

    pub(super) fn server(&self, function: usize) -> Server {
        self.run.workflow.functions[function].server
    }

    pub(super) fn node(&mut self, function: usize) -> &mut Node {
        let server = self.server(function);
        &mut self.nodes[usize::from(server.0)]
    }

    /// The object of the step under way; none while it computes.
    pub(super) fn object(&self, function: usize) -> Option<ObjectId> {
        match self.run.workflow.functions[function].steps.get(self.tasks[function].step) {
            Some(Step::Get(object) | Step::Put(object)) => Some(*object),
            _ => None,
        }
    }

    pub(super) fn keeps_copies(&self) -> bool {
        self.coherence != Coherence::Uncached
    }

    pub(super) fn is_lost(&self, server: Server) -> bool {
        self.run.failures.iter().any(|failure| failure.server == server && failure.stage <= self.stage)
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::AskAtHome(function) => {
                let cover = self.home.cover(self.server(function));
                let back = self.message();
                self.at(self.now + self.run.hardware.controller + back, Event::Asked(function, cover));
            }
            Event::Asked(function, cover) => self.when_covered(function, cover, ResumePoint::Begin),
            Event::StepEnds(function) => self.end_step(function),
            Event::VersionAtHome(function) => self.version_at_home(function),
            Event::VersionTold(function, version) => self.version_told(function, version),
            Event::GetAtHome(function) => self.get_at_home(function),
            Event::GetPiece(function) => self.get_piece(function),
            Event::GetLines(function) => self.get_lines(function),
            Event::LinesAtHome(function, since, bytes) => self.lines_at_home(function, since, bytes),
            Event::Got(function) => self.got(function),
            Event::PutPiece(function) => self.put_piece(function),
            Event::PieceAtHome(function, ends, bytes) => self.piece_at_home(function, ends, bytes),
            Event::PassEnds(function) => self.pass_ends(function),
            Event::Logged(function) => self.begin_pass(function),
            Event::PutAcknowledged(function) => self.put_acknowledged(function),
            Event::Invalidated(server, object, version) => self.invalidated(server, object, version),
            Event::Applied(server, object) => self.applied(server, object),
        }
    }

    fn begin_stage(&mut self) {
        self.frontier = self.home.sequence();
        let of_stage = |one: &usize| self.run.workflow.functions[*one].stage == self.stage;
        for function in (0..self.tasks.len()).filter(of_stage).collect::<Vec<_>>() {
            self.tasks[function].since = self.now;
            self.dispatch(function);
        }
    }

    pub(super) fn begin(&mut self, function: usize) {
        let task = &mut self.tasks[function];
        task.dispatched = true;
        task.times.dispatch = self.now - task.since;
        self.begin_step(function);
    }

    fn begin_step(&mut self, function: usize) {
        self.tasks[function].since = self.now;
        match self.run.workflow.functions[function].steps.get(self.tasks[function].step).copied() {
            Some(Step::Get(object)) => self.begin_get(function, object),
            Some(Step::Compute(micros)) => {
                let time = Picos::from_micros(micros * self.run.compute_scale);
                self.at(self.now + time, Event::StepEnds(function));
            }
            Some(Step::Put(object)) => {
                self.tasks[function].puts = true;
                self.begin_put(function, object);
            }
            None => self.end(function),
        }
    }

    pub(super) fn end_step(&mut self, function: usize) {
        let task = &mut self.tasks[function];
        let time = self.now - task.since;
        match self.run.workflow.functions[function].steps[task.step] {
            Step::Get(_) => task.times.get += time,
            Step::Compute(_) => task.times.compute += time,
            Step::Put(_) => task.times.put += time,
        }
        task.step += 1;
        self.begin_step(function);
    }

    fn end(&mut self, function: usize) {
        let task = &mut self.tasks[function];
        task.ended = true;
        self.finished = self.now;
        if task.hit_bytes + task.missed_bytes > 0 {
            let counted =
                if task.hit_bytes > task.missed_bytes { &mut self.traffic.hits } else { &mut self.traffic.misses };
            *counted += 1;
        }
        if task.puts {
            let counted =
                if task.invalidates { &mut self.traffic.puts_invalidating } else { &mut self.traffic.puts_alone };
            *counted += 1;
        }
        let functions = &self.run.workflow.functions;
        let open = functions.iter().zip(&self.tasks).filter(|(_, task)| !task.ended).map(|(one, _)| one.stage).min();
        if let Some(stage) = open.filter(|stage| *stage > self.stage) {
            self.stage = stage;
            self.begin_stage();
        }
    }

    fn outcome(self) -> Outcome {
        let blocked = |(function, task): (usize, &Task)| BlockedFunction {
            function,
            server: self.server(function),
            putting: self.object(function).filter(|_| {
                let step = self.run.workflow.functions[function].steps.get(task.step);
                task.dispatched && matches!(step, Some(Step::Put(_)))
            }),
        };
        let open = self.tasks.iter().enumerate().filter(|(_, task)| !task.ended);
        let blocked: Vec<BlockedFunction> = open.map(blocked).collect();
        Outcome {
            time: blocked.is_empty().then_some(self.finished),
            functions: self.tasks.iter().map(|task| task.times).collect(),
            blocked,
            traffic: self.traffic,
        }
    }
}
