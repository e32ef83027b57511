//! One state of a bounded world, and the shell that drives the machines in it.
//!
//! The machines are the production types. Here is what a node's shell does with their outputs: it puts messages
//! on their way, appends to the ledger, reads and writes the store, and hands reads and ends to the programs.
//! `events` says what can happen next.

use std::sync::Arc;
use std::time::Duration;

use nigh_objects::protocol::{
    CacheLimits, CacheOutput, FromHome, Frontier, Gate, GateLimits, GateOutput, Home, HomeInput, HomeLimits,
    HomeOutput, LedgerRecord, Member, NodeCache, NodeNumber, Replayed, Reply, RequestId, Stamp, Takeover, ToHome,
    Write,
};
use nigh_objects::protocol::{PutFailure, Rule, Rules as _};
use nigh_terms::{Epoch, Incarnation, Monotonic, Sequence, ShardId, Token, Version};

use crate::configuration::{Configuration, Faults, Origin, Step, Without};
use crate::ghost::{Ghost, Happened, Object, Op, Promise, Seen};
use crate::network::{Network, Packet};

/// The first content of every object.
pub(crate) const FIRST: Op = Op::MAX;
/// Operations of one program: a write is named by its program and its place there.
const STEPS_MAX: u8 = 8;
/// Time stands still: what waits is woken by events of the model.
pub(crate) const NOW: Monotonic = Monotonic(0);
/// When every wait at a gate is over.
const LATER: Monotonic = Monotonic(1);

const HOME_LIMITS: HomeLimits = HomeLimits {
    resend: Duration::ZERO,
    give_up: Duration::MAX,
    owed_max: 8,
    puts_max: 8,
    loads_max: 8,
    directory_max: 8,
};
const CACHE_LIMITS: CacheLimits = CacheLimits { resend: Duration::ZERO, requests_max: 8 };
const GATE_LIMITS: GateLimits = GateLimits { wait: Duration::from_nanos(LATER.0), waiting_max: 8 };

type Cache = NodeCache<Object, Op, Without>;

/// What a node's process holds.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Life {
    pub(crate) cache: Cache,
    pub(crate) gate: Gate<u8, Without>,
    /// Who waits for which fetch.
    pub(crate) readers: Vec<(RequestId, u8)>,
    /// Who waits for which put, and what it writes.
    pub(crate) writers: Vec<(RequestId, u8, Op)>,
}

/// A node: its latest incarnation, and its process while it lives.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Node {
    pub(crate) me: Member,
    pub(crate) life: Option<Arc<Life>>,
}

/// The home of a shard, and the one before that does not know yet.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Seat {
    pub(crate) home: Arc<Home<Object, Without>>,
    pub(crate) zombie: Option<Arc<Home<Object, Without>>>,
}

/// A record that the ledger keeps.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Item {
    pub(crate) replayed: Replayed<Object>,
    pub(crate) op: Op,
    pub(crate) pushed: bool,
    settled: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Ledger {
    pub(crate) epoch: Epoch,
    next: Sequence,
    pub(crate) items: Vec<Item>,
}

/// An object in the system of record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Stored {
    pub(crate) version: Version,
    pub(crate) op: Op,
    pub(crate) absent: bool,
}

/// Where a program is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Phase {
    /// Nobody has called it.
    Unborn,
    /// It may be dispatched.
    Idle,
    /// It is on its way to, or waits at, a node.
    Sent(Member),
    /// It runs.
    Running(Member),
    /// It is over at its node; its end waits for its puts, or is on its way.
    Leaving(Member),
    /// A put from outside has been written, and waits to be acknowledged.
    Unacknowledged,
    /// It is over.
    Over,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Invocation {
    pub(crate) phase: Phase,
    /// Its end was told, or declared.
    pub(crate) ended: bool,
    pub(crate) at: u8,
    pub(crate) waits: Option<RequestId>,
    pub(crate) seen: Seen,
    /// What a put from outside has to hand over.
    token: Token,
}

/// One state.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct World {
    pub(crate) nodes: Vec<Node>,
    pub(crate) seats: Vec<Seat>,
    pub(crate) ledgers: Vec<Ledger>,
    pub(crate) store: Vec<Stored>,
    pub(crate) frontier: Option<Frontier<Without>>,
    pub(crate) network: Network,
    pub(crate) invocations: Vec<Invocation>,
    /// Incarnations that a home has given up though they may live.
    pub(crate) suspected: Vec<Member>,
    pub(crate) left: Faults,
    /// Something was lost: what is outstanding may be asked for again.
    pub(crate) disturbed: bool,
    pub(crate) ghost: Ghost,
    /// The promise that was broken on the way here.
    pub broken: Option<Promise>,
}

fn shard_of(config: &Configuration, object: Object) -> ShardId {
    ShardId(u16::from(object % config.homes))
}

impl Life {
    pub(crate) fn begin(config: &Configuration, me: Member) -> Arc<Self> {
        Arc::new(Self {
            cache: NodeCache::new(me, CACHE_LIMITS, config.without),
            gate: Gate::new(GATE_LIMITS, config.without),
            readers: Vec::new(),
            writers: Vec::new(),
        })
    }
}

impl World {
    /// The beginning: every object in the store, the copies that `config` names at their nodes.
    pub(crate) fn begin(config: &Configuration) -> Self {
        let homes = 0..u16::from(config.homes);
        let first = Epoch(1);
        let seats = homes.clone().map(|shard| {
            let takeover =
                Takeover { shard: ShardId(shard), epoch: first, records: Vec::new(), summary: Token::empty() };
            Seat { home: Arc::new(Home::begin(takeover, HOME_LIMITS, config.without)), zombie: None }
        });
        let ledger = Ledger { epoch: first, next: Sequence(0), items: Vec::new() };
        let members =
            (0..u32::from(config.nodes)).map(|node| Member { node: NodeNumber(node), incarnation: Incarnation(1) });
        let mut world = Self {
            nodes: members.map(|me| Node { me, life: Some(Life::begin(config, me)) }).collect(),
            seats: seats.collect(),
            ledgers: vec![ledger; usize::from(config.homes)],
            store: vec![Stored { version: Version::OUTSIDE, op: FIRST, absent: false }; crate::ghost::OBJECTS_MAX],
            frontier: Some(Frontier::begin(std::iter::empty(), config.without)),
            network: Network::default(),
            invocations: config
                .programs
                .iter()
                .map(|program| Invocation {
                    phase: if program.origin == Origin::Called { Phase::Unborn } else { Phase::Idle },
                    ended: false,
                    at: 0,
                    waits: None,
                    seen: Seen::default(),
                    token: Token::empty(),
                })
                .collect(),
            suspected: Vec::new(),
            left: config.faults,
            disturbed: false,
            ghost: Ghost::default(),
            broken: None,
        };
        for shard in homes {
            for node in 0..config.nodes {
                world.with_cache(config, node, |cache, out| cache.meet(NOW, ShardId(shard), first, out));
            }
        }
        for &(node, object) in config.warm {
            let shard = shard_of(config, object);
            world.with_cache(config, node, |cache, out| drop(cache.read(NOW, shard, &object, false, out)));
            world.run_dry(config);
        }
        world
    }

    fn run_dry(&mut self, config: &Configuration) {
        while !self.network.packets().is_empty() {
            self.deliver(config, 0, false);
        }
    }

    pub(crate) fn breaks(&mut self, promise: Promise) {
        self.broken = self.broken.or(Some(promise));
    }

    pub(crate) fn life(&self, me: Member) -> Option<&Life> {
        let node = self.nodes.get(me.node.0 as usize)?;
        node.life.as_deref().filter(|_| node.me == me)
    }

    pub(crate) fn life_mut(&mut self, node: u8) -> Option<&mut Life> {
        self.nodes[usize::from(node)].life.as_mut().map(Arc::make_mut)
    }

    /// Lets a node's cache do something, and carries out what comes of it.
    pub(crate) fn with_cache(
        &mut self,
        config: &Configuration,
        node: u8,
        act: impl FnOnce(&mut Cache, &mut Vec<CacheOutput<Object, Op>>),
    ) {
        let mut out = Vec::new();
        if let Some(life) = self.life_mut(node) {
            act(&mut life.cache, &mut out);
        }
        self.carry_out(config, node, out, false);
    }

    /// Lets a node's gate do something, and carries out what comes of it.
    pub(crate) fn with_gate(
        &mut self,
        config: &Configuration,
        node: u8,
        act: impl FnOnce(&mut Gate<u8, Without>, &mut Cache, &mut Vec<CacheOutput<Object, Op>>, &mut Vec<GateOutput<u8>>),
    ) {
        let (mut sent, mut told) = (Vec::new(), Vec::new());
        if let Some(life) = self.life_mut(node) {
            act(&mut life.gate, &mut life.cache, &mut sent, &mut told);
        }
        for output in told {
            self.tell(config, node, output);
        }
        self.carry_out(config, node, sent, false);
    }

    /// Time has passed at a node: what is outstanding is asked for again, unless it is on its way.
    pub(crate) fn tick_node(&mut self, config: &Configuration, node: u8) {
        let (mut out, mut told) = (Vec::new(), Vec::new());
        if let Some(life) = self.life_mut(node) {
            life.cache.tick(NOW, &mut out);
            life.gate.look(NOW, &mut life.cache, &mut out, &mut told);
        }
        for output in told {
            self.tell(config, node, output);
        }
        self.carry_out(config, node, out, true);
    }

    /// Every dispatch that waits at a node has waited too long.
    pub(crate) fn time_out(&mut self, config: &Configuration, node: u8) {
        self.with_gate(config, node, |gate, cache, sent, told| gate.look(LATER, cache, sent, told));
    }

    fn carry_out(&mut self, config: &Configuration, node: u8, outputs: Vec<CacheOutput<Object, Op>>, again: bool) {
        for output in outputs {
            match output {
                CacheOutput::Send(shard, request) => {
                    if !config.repeats() && matches!(request.body, ToHome::Applied { .. }) {
                        // Nothing depends on it where nothing is sent again: as if it were lost.
                        continue;
                    }
                    let bytes = match request.body {
                        ToHome::Put { request, .. } => self.life(self.nodes[usize::from(node)].me).and_then(|life| {
                            life.writers.iter().find(|(put, ..)| *put == request).map(|(_, _, op)| *op)
                        }),
                        ToHome::Fetch { .. } | ToHome::Ask { .. } | ToHome::Applied { .. } => None,
                    };
                    let packet = Packet::ToHome(shard, request, bytes);
                    if again { self.network.send_again(packet) } else { self.network.send(packet) }
                }
                CacheOutput::Landed { request, object, stamp, value, .. } => {
                    self.landed(config, node, request, object, &stamp, value);
                }
                CacheOutput::Wrote { request, outcome, .. } => self.wrote(config, node, request, outcome),
                CacheOutput::Grown => {
                    self.with_gate(config, node, |gate, cache, sent, told| gate.look(NOW, cache, sent, told));
                }
                CacheOutput::Dropped(..) => {}
                CacheOutput::Rejoin => {
                    let me = self.nodes[usize::from(node)].me;
                    self.suspect(me);
                }
            }
        }
    }

    pub(crate) fn suspect(&mut self, member: Member) {
        if !self.suspected.contains(&member) {
            self.suspected.push(member);
            self.suspected.sort_unstable();
        }
    }

    fn tell(&mut self, config: &Configuration, node: u8, output: GateOutput<u8>) {
        let me = self.nodes[usize::from(node)].me;
        match output {
            GateOutput::Admitted(program) => self.invocations[usize::from(program)].phase = Phase::Running(me),
            GateOutput::Refused(program, _) => self.send_far(config, Packet::Returned(program)),
            GateOutput::Ended(program, token) => {
                self.invocations[usize::from(program)].phase = Phase::Leaving(me);
                self.send_far(config, Packet::Ended(program, token));
            }
        }
    }

    fn landed(
        &mut self,
        config: &Configuration,
        node: u8,
        request: RequestId,
        object: Object,
        stamp: &Stamp,
        value: Option<Op>,
    ) {
        let Some(life) = self.life_mut(node) else { return };
        let waiting: Vec<u8> =
            life.readers.iter().filter(|(fetch, _)| *fetch == request).map(|(_, who)| *who).collect();
        life.readers.retain(|(fetch, _)| *fetch != request);
        for program in waiting {
            if self.invocations[usize::from(program)].waits == Some(request) {
                self.has_read(config, node, program, object, stamp, value);
            }
        }
    }

    /// A program is shown a version: the observer compares.
    pub(crate) fn has_read(
        &mut self,
        config: &Configuration,
        node: u8,
        program: u8,
        object: Object,
        stamp: &Stamp,
        value: Option<Op>,
    ) {
        let shown = self.ghost.shown_by(object, stamp.version).copied();
        let expected = match shown {
            None => Some(FIRST),
            Some(Happened { delete, op, .. }) => (!delete).then_some(op),
        };
        if value != expected {
            self.breaks(Promise::P2);
        }
        let invocation = &mut self.invocations[usize::from(program)];
        let broken = invocation.seen.broken_by(object, stamp.version);
        invocation.seen.chain.see(object, stamp.version);
        if let Some(Happened { op, .. }) = shown {
            invocation.seen.causes.join(&self.ghost.knowledge(op));
        }
        invocation.waits = None;
        invocation.at += 1;
        if let Some(broken) = broken {
            self.breaks(broken);
        }
        let shard = shard_of(config, object);
        if let Some(life) = self.life_mut(node) {
            life.gate.has_read(program, shard, stamp);
        }
    }

    fn wrote(&mut self, config: &Configuration, node: u8, request: RequestId, outcome: Result<Stamp, PutFailure>) {
        let Some(life) = self.life_mut(node) else { return };
        let Some(at) = life.writers.iter().position(|(put, ..)| *put == request) else { return };
        let (_, program, op) = life.writers.remove(at);
        let Some(&(Step::Put(object) | Step::Delete(object))) =
            config.programs[usize::from(program)].steps.get(usize::from(op % STEPS_MAX))
        else {
            return;
        };
        let shard = shard_of(config, object);
        let mut told = Vec::new();
        life.gate.has_put(program, shard, outcome.as_ref().map_err(|failure| *failure), &mut told);
        let mut unordered = false;
        let outside = config.programs[usize::from(program)].origin == Origin::Outside;
        let invocation = &mut self.invocations[usize::from(program)];
        if let Ok(stamp) = &outcome {
            unordered = stamp.version <= invocation.seen.all().of(object);
            invocation.seen.chain.see(object, stamp.version);
            self.ghost.acknowledged.see(object, stamp.version);
            if outside {
                stamp.join_into(shard, &mut invocation.token);
            }
        }
        if invocation.waits == Some(request) {
            invocation.waits = None;
            invocation.at += 1;
        }
        if unordered {
            self.breaks(Promise::P3);
        }
        for output in told {
            self.tell(config, node, output);
        }
    }

    /// A program takes its next step at its node.
    pub(crate) fn step(&mut self, config: &Configuration, program: u8) {
        let Phase::Running(me) = self.invocations[usize::from(program)].phase else { return };
        let node = me.node.0 as u8;
        let outside = config.programs[usize::from(program)].origin == Origin::Outside;
        let at = self.invocations[usize::from(program)].at;
        match config.programs[usize::from(program)].steps.get(usize::from(at)) {
            Some(&Step::Get(object)) => self.get(config, node, program, object, outside),
            Some(&Step::Put(object)) => self.put(config, node, program, object, Write::Put),
            Some(&Step::Delete(object)) => self.put(config, node, program, object, Write::Delete),
            Some(&Step::Call(child)) => {
                let token = self.life(me).and_then(|life| life.gate.token(program)).cloned().unwrap_or_default();
                if let Some(frontier) = &mut self.frontier {
                    frontier.see(&token);
                }
                let caller = &mut self.invocations[usize::from(program)];
                caller.at += 1;
                let seen = caller.seen;
                self.ghost.ended.chain.join(&seen.chain);
                self.ghost.ended.causes.join(&seen.causes);
                self.invocations[usize::from(child)].phase = Phase::Idle;
            }
            None if outside => {
                let wrote =
                    config.programs[usize::from(program)].steps.iter().any(|step| !matches!(step, Step::Get(_)));
                let invocation = &mut self.invocations[usize::from(program)];
                invocation.phase = if wrote { Phase::Unacknowledged } else { Phase::Over };
                invocation.ended = !wrote;
            }
            None => {
                self.invocations[usize::from(program)].phase = Phase::Leaving(me);
                self.with_gate(config, node, |gate, _, _, told| gate.ends(program, told));
            }
        }
    }

    fn get(&mut self, config: &Configuration, node: u8, program: u8, object: Object, outside: bool) {
        let checked = outside && config.without.hold(Rule::OutsideAsksHome);
        let shard = shard_of(config, object);
        let mut read = None;
        self.with_cache(config, node, |cache, out| read = Some(cache.read(NOW, shard, &object, checked, out)));
        match read {
            Some(nigh_objects::protocol::Read::Hit(copy)) => {
                self.has_read(config, node, program, object, &copy.stamp, Some(copy.value));
            }
            Some(nigh_objects::protocol::Read::Shared(request) | nigh_objects::protocol::Read::Private(request)) => {
                self.invocations[usize::from(program)].waits = Some(request);
                if let Some(life) = self.life_mut(node) {
                    life.readers.push((request, program));
                }
            }
            None => {}
        }
    }

    fn put(&mut self, config: &Configuration, node: u8, program: u8, object: Object, write: Write) {
        let op = program * STEPS_MAX + self.invocations[usize::from(program)].at;
        self.ghost.begins(op, self.invocations[usize::from(program)].seen.all());
        let shard = shard_of(config, object);
        let mut out = Vec::new();
        let Some(life) = self.life_mut(node) else { return };
        let token = Arc::new(life.gate.token(program).cloned().unwrap_or_default());
        let request = life.cache.write(NOW, shard, &object, write, token, &mut out);
        life.gate.begins_put(program);
        life.writers.push((request, program, op));
        self.invocations[usize::from(program)].waits = Some(request);
        self.carry_out(config, node, out, false);
    }

    /// A put from outside is acknowledged.
    pub(crate) fn acknowledge(&mut self, config: &Configuration, program: u8) {
        let token = self.invocations[usize::from(program)].token.clone();
        if let Some(frontier) = &mut self.frontier
            && config.without.hold(Rule::HandOver)
        {
            frontier.see(&token);
        }
        self.invocations[usize::from(program)].phase = Phase::Over;
        self.end(program);
    }

    /// The observer notes an end.
    pub(crate) fn end(&mut self, program: u8) {
        let invocation = &mut self.invocations[usize::from(program)];
        if invocation.ended {
            return;
        }
        invocation.ended = true;
        for happened in self.ghost.log.iter().filter(|one| one.op / STEPS_MAX == program) {
            self.ghost.ended.ended.see(happened.object, happened.version);
        }
        // What a lost invocation has read nobody has heard of.
        if matches!(invocation.phase, Phase::Leaving(_)) {
            self.ghost.ended.chain.join(&invocation.seen.chain);
            self.ghost.ended.causes.join(&invocation.seen.causes);
        }
    }

    /// Sends what the scheduler and a node say to each other.
    pub(crate) fn send_far(&mut self, config: &Configuration, packet: Packet) {
        if config.scheduler_is_far() {
            self.network.send(packet);
        } else {
            self.arrive(config, packet, false);
        }
    }

    /// The packet at `at` arrives; at the deposed home, if `zombie`.
    pub(crate) fn deliver(&mut self, config: &Configuration, at: usize, zombie: bool) {
        let packet = self.network.take(at);
        self.arrive(config, packet, zombie);
    }

    fn arrive(&mut self, config: &Configuration, packet: Packet, zombie: bool) {
        match packet {
            Packet::ToHome(shard, request, bytes) => {
                let seat = &self.seats[usize::from(shard.0)];
                let epoch = seat.zombie.as_ref().filter(|_| zombie).unwrap_or(&seat.home).epoch();
                self.run_home(config, shard, epoch, HomeInput::Request(request), bytes);
            }
            Packet::ToNode(reply, bytes) => self.receive(config, reply, bytes),
            Packet::Dispatch(program, dispatch) => {
                let node = dispatch.to.node.0 as u8;
                if self.nodes[usize::from(node)].life.is_some() {
                    self.with_gate(config, node, |gate, cache, sent, told| {
                        gate.dispatch(NOW, program, dispatch, cache, sent, told);
                    });
                } else if self.nodes[usize::from(node)].me != dispatch.to {
                    self.send_far(config, Packet::Returned(program));
                }
            }
            Packet::Returned(program) => {
                let invocation = &mut self.invocations[usize::from(program)];
                if !invocation.ended {
                    invocation.phase = Phase::Idle;
                }
            }
            Packet::Ended(program, token) => {
                if let Some(frontier) = &mut self.frontier {
                    frontier.see(&token);
                }
                self.end(program);
                self.invocations[usize::from(program)].phase = Phase::Over;
            }
            Packet::Append(shard, epoch, append, record, op) => {
                let version = self.append(shard, epoch, record, op.unwrap_or(FIRST));
                self.network.send(Packet::Appended(shard, epoch, append, version));
            }
            Packet::Appended(shard, epoch, append, version) => {
                let input = version.map_or(HomeInput::Deposed, |version| HomeInput::Appended { append, version });
                self.run_home(config, shard, epoch, input, None);
            }
            Packet::Load(shard, epoch, object) => {
                let Stored { version, absent, .. } = self.store[usize::from(object)];
                self.network.send(Packet::Loaded(shard, epoch, object, version, absent));
            }
            Packet::Loaded(shard, epoch, object, version, absent) => {
                let input = HomeInput::Loaded { object, version: Some(version), absent };
                self.run_home(config, shard, epoch, input, None);
            }
        }
    }

    fn receive(&mut self, config: &Configuration, reply: Reply<Object>, bytes: Option<Op>) {
        let node = reply.to.node.0 as u8;
        let value = match &reply.body {
            // The node has what it wrote.
            FromHome::Written { request, .. } => self
                .life(reply.to)
                .and_then(|life| life.writers.iter().find(|(put, ..)| put == request).map(|(_, _, op)| *op)),
            FromHome::Found { .. }
            | FromHome::Covers { .. }
            | FromHome::Invalidate { .. }
            | FromHome::Refused { .. } => bytes,
        };
        self.with_cache(config, node, |cache, out| cache.receive(NOW, reply, value, out));
    }

    /// The ledger takes a record, if its home is not deposed.
    fn append(&mut self, shard: ShardId, epoch: Epoch, record: LedgerRecord<Object>, op: Op) -> Option<Version> {
        let ledger = &mut self.ledgers[usize::from(shard.0)];
        if ledger.epoch != epoch {
            return None;
        }
        ledger.next = ledger.next.next();
        let version = Version { epoch, sequence: ledger.next };
        if let LedgerRecord::Write { object, write, .. } = &record {
            let (object, delete) = (*object, *write == Write::Delete);
            if self.ghost.happens(Happened { object, version, op, delete }) {
                self.breaks(Promise::P3);
            }
            if self.invocations[usize::from(op / STEPS_MAX)].ended {
                self.breaks(Promise::P1);
            }
        }
        let item = Item { replayed: Replayed { version, record }, op, pushed: false, settled: false };
        self.ledgers[usize::from(shard.0)].items.push(item);
        Some(version)
    }

    /// Lets the home of `epoch` take an input in, and carries out what comes of it.
    pub(crate) fn run_home(
        &mut self,
        config: &Configuration,
        shard: ShardId,
        epoch: Epoch,
        input: HomeInput<Object>,
        bytes: Option<Op>,
    ) {
        let again = matches!(input, HomeInput::Tick);
        let seat = &mut self.seats[usize::from(shard.0)];
        let home = match &mut seat.zombie {
            Some(zombie) if zombie.epoch() == epoch => zombie,
            Some(_) | None if seat.home.epoch() == epoch => &mut seat.home,
            Some(_) | None => return,
        };
        let mut out = Vec::new();
        Arc::make_mut(home).step(NOW, input, &mut out);
        for output in out {
            match output {
                HomeOutput::Send(reply) => self.reply(reply, again),
                HomeOutput::Append { append, record } if config.slow_ledger => {
                    self.network.send(Packet::Append(shard, epoch, append, record, bytes));
                }
                HomeOutput::Append { append, record } => {
                    let version = self.append(shard, epoch, record, bytes.unwrap_or(FIRST));
                    let input = version.map_or(HomeInput::Deposed, |version| HomeInput::Appended { append, version });
                    self.run_home(config, shard, epoch, input, None);
                }
                HomeOutput::Load(object) if config.pushes => self.network.send(Packet::Load(shard, epoch, object)),
                HomeOutput::Load(object) => {
                    let Stored { version, absent, .. } = self.store[usize::from(object)];
                    let input = HomeInput::Loaded { object, version: Some(version), absent };
                    self.run_home(config, shard, epoch, input, None);
                }
                HomeOutput::Fenced { member, through } => self.fenced(member, shard, through),
                HomeOutput::GaveUp(member) => self.suspect(member),
                HomeOutput::Settled(version) => {
                    self.change_items(shard, |item| item.settled |= item.replayed.version == version);
                }
                HomeOutput::Retired => {
                    if epoch < self.ledgers[usize::from(shard.0)].epoch {
                        self.seats[usize::from(shard.0)].zombie = None;
                    }
                }
                HomeOutput::NotFenced(_) | HomeOutput::Crowded => {}
            }
        }
    }

    /// Changes records; those that nobody needs any more are trimmed.
    pub(crate) fn change_items(&mut self, shard: ShardId, change: impl FnMut(&mut Item)) {
        let items = &mut self.ledgers[usize::from(shard.0)].items;
        items.iter_mut().for_each(change);
        items.retain(|item| !(item.pushed && item.settled));
    }

    fn reply(&mut self, reply: Reply<Object>, again: bool) {
        let bytes = match &reply.body {
            FromHome::Found { object, stamp, absent: false, .. } => {
                let items = &self.ledgers[usize::from(reply.shard.0)].items;
                let written = items.iter().find(|item| item.replayed.version == stamp.version && item.op != FIRST);
                let stored = self.store[usize::from(*object)];
                match written {
                    Some(item) => Some(item.op),
                    None if stored.version <= stamp.version && !stored.absent => Some(stored.op),
                    // A home does not send what it does not have in this version.
                    None => return,
                }
            }
            _ => None,
        };
        let packet = Packet::ToNode(reply, bytes);
        if again { self.network.send_again(packet) } else { self.network.send(packet) }
    }

    /// A home has fenced a lost node; when each has, its invocations count as ended.
    pub(crate) fn fenced(&mut self, member: Member, shard: ShardId, through: Version) {
        if self.frontier.as_mut().is_some_and(|frontier| frontier.fenced(member, shard, through)) {
            for program in 0..self.invocations.len() as u8 {
                let phase = self.invocations[usize::from(program)].phase;
                if matches!(phase, Phase::Sent(at) | Phase::Running(at) | Phase::Leaving(at) if at == member) {
                    self.declare(program);
                }
            }
        }
    }

    /// An invocation of a lost node is declared ended; it may not know.
    fn declare(&mut self, program: u8) {
        let invocation = &mut self.invocations[usize::from(program)];
        let phase = invocation.phase;
        invocation.phase = Phase::Over;
        self.end(program);
        self.invocations[usize::from(program)].phase = phase;
    }

    /// A new home takes a shard.
    pub(crate) fn fail_over(&mut self, config: &Configuration, shard: ShardId) {
        let others = (0..u16::from(config.homes)).map(ShardId).filter(|other| *other != shard);
        let mut summary = Token::empty();
        for other in others {
            summary.see(other, self.seats[usize::from(other.0)].home.newest());
        }
        let ledger = &mut self.ledgers[usize::from(shard.0)];
        let deposed = ledger.epoch;
        ledger.epoch = ledger.epoch.next();
        ledger.next = Sequence(0);
        let (epoch, records) = (ledger.epoch, ledger.items.iter().map(|item| item.replayed.clone()).collect());
        let home = Home::begin(Takeover { shard, epoch, records, summary }, HOME_LIMITS, config.without);
        let seat = &mut self.seats[usize::from(shard.0)];
        let before = std::mem::replace(&mut seat.home, Arc::new(home));
        seat.zombie = config.zombies.then_some(before);
        if !config.zombies {
            self.network.lose(|packet| match packet {
                Packet::Append(of, at, ..)
                | Packet::Appended(of, at, ..)
                | Packet::Load(of, at, ..)
                | Packet::Loaded(of, at, ..) => *of == shard && *at == deposed,
                _ => false,
            });
        }
        self.disturbed = true;
        self.check_nothing_is_lost(config);
    }

    /// Every acknowledged write is known to its home, or in the store.
    fn check_nothing_is_lost(&mut self, config: &Configuration) {
        for object in 0..crate::ghost::OBJECTS_MAX as u8 {
            let home = &self.seats[usize::from(shard_of(config, object).0)].home;
            let known = home.version_of(&object).map_or(Version::OUTSIDE, |(version, _)| version);
            if known.max(self.store[usize::from(object)].version) < self.ghost.acknowledged.of(object) {
                self.breaks(Promise::P5);
            }
        }
    }

    /// The newest write of `object` that its home has applied goes to the store.
    pub(crate) fn push(&mut self, config: &Configuration, object: Object) {
        let shard = shard_of(config, object);
        let Some((version, absent)) = self.unpushed(config, object) else { return };
        let items = &self.ledgers[usize::from(shard.0)].items;
        let op = items.iter().find(|item| item.replayed.version == version).map_or(FIRST, |item| item.op);
        self.store[usize::from(object)] = Stored { version, op, absent };
        let epoch = self.seats[usize::from(shard.0)].home.epoch();
        self.run_home(config, shard, epoch, HomeInput::Pushed { object, version }, None);
        self.change_items(shard, |item| {
            let of_object =
                matches!(item.replayed.record, LedgerRecord::Write { object: written, .. } if written == object);
            item.pushed |= of_object && item.replayed.version <= version;
        });
    }

    /// The version of `object` that is to be pushed, and whether it is a tombstone.
    pub(crate) fn unpushed(&self, config: &Configuration, object: Object) -> Option<(Version, bool)> {
        let shard = shard_of(config, object);
        let known = self.seats[usize::from(shard.0)].home.version_of(&object)?;
        let items = &self.ledgers[usize::from(shard.0)].items;
        items.iter().any(|item| item.replayed.version == known.0 && !item.pushed).then_some(known)
    }
}
