//! One state of a bounded world, and the shell that runs the machines in it.
//!
//! The machines are the production types. This shell carries out their outputs as a node's shell does: it sends
//! messages, appends to the ledger, reads and writes the store, and returns reads and ends to the programs. `events`
//! lists what can happen next.

use std::time::Duration;

use nigh_protocol::{
    CacheOutput, FromHome, Frontier, Gate, GateOutput, Home, HomeInput, HomeLimits, Member, NodeNumber, Reply,
    Takeover, ToHome,
};
use nigh_terms::{Incarnation, Monotonic, Sequence, ShardId, Token, Version};

use crate::configuration::{Configuration, FIRST_EPOCH, Faults, MutatedRules, Origin};
use crate::fingerprint::Part;
use crate::ghost::{Ghost, OBJECTS_MAX, Object, Op, Promise, SeenMarks};
use crate::network::{Network, Packet};
use crate::world_parts::{Cache, Invocation, LATER, Ledger, Life, Node, Phase, Seat, StoredState};

/// The first content of every object.
pub(crate) const FIRST: Op = Op::MAX;
/// The most operations of one program. A write is named by its program and its index there.
pub(crate) const STEPS_MAX: u8 = 8;
/// Time does not pass: events of the model end all waits.
pub(crate) const NOW: Monotonic = Monotonic(0);
pub(crate) const HOME_LIMITS: HomeLimits = HomeLimits {
    resend: Duration::ZERO,
    give_up: Duration::MAX,
    owed_max: 8,
    puts_max: 8,
    loads_max: 8,
    directory_max: 8,
};
/// A state of a bounded world.
#[derive(Clone, Debug, Hash)]
pub struct World {
    pub(crate) nodes: Vec<Node>,
    pub(crate) seats: Vec<Seat>,
    pub(crate) ledgers: Part<Vec<Ledger>>,
    pub(crate) store: [StoredState; OBJECTS_MAX],
    pub(crate) frontier: Option<Part<Frontier<MutatedRules>>>,
    /// The scheduler before, until the present one has announced itself to every node.
    pub(crate) former: Option<Part<Frontier<MutatedRules>>>,
    pub(crate) network: Network,
    pub(crate) invocations: Vec<Invocation>,
    /// Incarnations that a home has declared dead and that may be alive.
    pub(crate) suspected: Vec<Member>,
    pub(crate) left: Faults,
    /// True if something was lost, so that unanswered requests may be repeated.
    pub(crate) disturbed: bool,
    pub(crate) ghost: Part<Ghost>,
    /// The first promise that was broken on the path to this state; none if none was.
    pub broken: Option<Promise>,
}

pub(crate) fn shard_of(config: &Configuration, object: Object) -> ShardId {
    ShardId(u16::from(object % config.homes))
}

impl World {
    /// The first state: every object is in the store, and the copies that `config` names are at their nodes.
    pub(crate) fn begin(config: &Configuration) -> Self {
        let homes = 0..u16::from(config.homes);
        let first = FIRST_EPOCH;
        let seats = homes.clone().map(|shard| {
            let node = NodeNumber(u32::from(shard));
            let resident = config.residents.then_some(Member { node, incarnation: Incarnation(1) });
            let (records, summary) = (Vec::new(), Token::empty());
            let takeover = Takeover { shard: ShardId(shard), epoch: first, records, summary, resident };
            Seat { home: Part::new(Home::begin(takeover, HOME_LIMITS, config.without)), zombies: Vec::new() }
        });
        let ledger = Ledger { epoch: first, next: Sequence(0), items: Vec::new() };
        let members =
            (0..u32::from(config.nodes)).map(|node| Member { node: NodeNumber(node), incarnation: Incarnation(1) });
        let mut world = Self {
            nodes: members.map(|me| Node { me, life: Some(Life::begin(config, me)) }).collect(),
            seats: seats.collect(),
            ledgers: Part::new(vec![ledger; usize::from(config.homes)]),
            store: [StoredState { version: Version::OUTSIDE, op: FIRST, absent: false }; OBJECTS_MAX],
            frontier: Some(Part::new(Frontier::begin(std::iter::empty(), config.without))),
            former: None,
            network: Network::default(),
            invocations: config
                .programs
                .iter()
                .map(|program| Invocation {
                    phase: if program.origin == Origin::Called { Phase::Unborn } else { Phase::Idle },
                    ended: false,
                    at: 0,
                    waits: None,
                    seen: SeenMarks::default(),
                    token: Token::empty(),
                })
                .collect(),
            suspected: Vec::new(),
            left: config.faults,
            disturbed: false,
            ghost: Part::new(Ghost::default()),
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
            self.deliver(config, 0, None);
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
        self.nodes[usize::from(node)].life.as_deref_mut()
    }

    /// Calls a node's cache and carries out its outputs.
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

    /// Calls a node's gate and carries out its outputs.
    pub(crate) fn with_gate(
        &mut self,
        config: &Configuration,
        node: u8,
        act: impl FnOnce(
            &mut Gate<u8, MutatedRules>,
            &mut Cache,
            &mut Vec<CacheOutput<Object, Op>>,
            &mut Vec<GateOutput<u8>>,
        ),
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

    /// A timeout at a node: outstanding requests are repeated unless they are on their way.
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

    /// All dispatches that wait at a node time out.
    pub(crate) fn time_out(&mut self, config: &Configuration, node: u8) {
        self.with_gate(config, node, |gate, cache, sent, told| gate.look(LATER, cache, sent, told));
    }

    pub(crate) fn carry_out(
        &mut self,
        config: &Configuration,
        node: u8,
        outputs: Vec<CacheOutput<Object, Op>>,
        again: bool,
    ) {
        for output in outputs {
            match output {
                CacheOutput::Send(shard, request) => {
                    if !config.repeats() && matches!(request.body, ToHome::Applied { .. }) {
                        // Without resends nothing depends on the message, so it counts as lost.
                        continue;
                    }
                    let bytes = match request.body {
                        ToHome::Put { request, .. } => self.life(self.nodes[usize::from(node)].me).and_then(|life| {
                            life.writers.iter().find(|(put, ..)| *put == request).map(|(_, _, op)| *op)
                        }),
                        ToHome::Fetch { .. } | ToHome::Ask { .. } | ToHome::Applied { .. } => None,
                    };
                    let packet = Packet::ToHome(shard, request, bytes);
                    let epoch = self.seats[usize::from(shard.0)].home.epoch();
                    if config.is_resident(NodeNumber(u32::from(node)), shard, epoch) {
                        self.arrive(config, packet, None);
                    } else if again {
                        self.network.send_again(packet)
                    } else {
                        self.network.send(packet)
                    }
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

    pub(crate) fn tell(&mut self, config: &Configuration, node: u8, output: GateOutput<u8>) {
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

    /// Sends a packet between the scheduler and a node.
    pub(crate) fn send_far(&mut self, config: &Configuration, packet: Packet) {
        if config.scheduler_is_far() {
            self.network.send(packet);
        } else {
            self.arrive(config, packet, None);
        }
    }

    /// Delivers the packet at `at`; with `zombie`, to that former home.
    pub(crate) fn deliver(&mut self, config: &Configuration, at: usize, zombie: Option<u8>) {
        let packet = self.network.take(at);
        self.arrive(config, packet, zombie);
    }

    pub(crate) fn arrive(&mut self, config: &Configuration, packet: Packet, zombie: Option<u8>) {
        match packet {
            Packet::ToHome(shard, request, bytes) => {
                let seat = &self.seats[usize::from(shard.0)];
                let home = zombie.map_or(&seat.home, |at| &seat.zombies[usize::from(at)]);
                let epoch = home.epoch();
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
                // Until it knows of another, a node tells the scheduler before.
                if let Some(frontier) = self.former.as_mut().or(self.frontier.as_mut()) {
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
                let absent = self.store[usize::from(object)].absent;
                self.network.send(Packet::Loaded(shard, epoch, object, absent));
            }
            Packet::Loaded(shard, epoch, object, absent) => {
                let input = HomeInput::Loaded { object, absent };
                self.run_home(config, shard, epoch, input, None);
            }
        }
    }

    fn receive(&mut self, config: &Configuration, reply: Reply<Object>, bytes: Option<Op>) {
        let node = reply.to.node.0 as u8;
        let value = match &reply.body {
            // The node has the bytes that it wrote.
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
}
