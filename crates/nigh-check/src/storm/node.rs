//! The shell of a node: carries out the outputs of its cache and gate, and repeats unanswered requests.

use std::collections::BTreeMap;

use nigh_protocol::{
    CacheOutput, Dispatch, FromHome, Gate, GateOutput, Member, NodeCache, PutFailure, Reply, RequestId, Rule, Stamp,
    ToHome,
};
use nigh_terms::{ShardId, Token, Version};

use super::clock::MS;
use super::observer::{Author, Op};
use super::packet::{Event, HomeProcess, Host, ListId, Packet, Reader, Requester, Writer};
use super::plan::Plan;
use super::world::{Routes, Storm};
use crate::configuration::MutatedRules;
use crate::ghost::Object;

pub(super) type Cache = NodeCache<Object, Op, MutatedRules>;
pub(super) type CacheOutputs = Vec<CacheOutput<Object, Op>>;

/// The ticks between two repeats of a message.
const TELL_EVERY: u64 = 4;

/// The state of an attempt at its node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum AttemptState {
    /// The attempt waits at the gate, or runs.
    Here,
    Refused,
    /// The attempt has ended; the scheduler may not know.
    Ended(Token),
    /// The scheduler knows that the attempt has ended.
    Told,
}

/// A running attempt.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Run {
    /// The index of the step that is next, or that waits.
    pub(super) at: usize,
    pub(super) waits: bool,
}

/// A listing under way.
#[derive(Clone, Debug)]
pub(super) struct Listing {
    pub(super) who: Requester,
    pub(super) namespace: u8,
    /// The homes' reports, until the node covers them.
    pub(super) parts: BTreeMap<ShardId, super::packet::ListPart>,
}

/// A put from outside that waits until the scheduler has its token.
#[derive(Clone, Debug)]
pub(super) struct HandingOver {
    pub(super) client: Option<u8>,
    pub(super) author: Author,
    pub(super) object: Object,
    pub(super) version: Version,
    pub(super) token: Token,
}

/// The answer of a child, until the node covers what the child had seen.
#[derive(Clone, Debug)]
pub(super) struct ChildAnswer {
    pub(super) parent: Author,
    pub(super) place: usize,
    pub(super) callee: Option<Author>,
    pub(super) token: Token,
}

/// The state of a node's process.
pub(super) struct Life {
    pub(super) me: Member,
    pub(super) cache: Cache,
    pub(super) gate: Gate<Author, MutatedRules>,
    pub(super) readers: Vec<Reader>,
    pub(super) writers: BTreeMap<RequestId, Writer>,
    pub(super) standing: BTreeMap<Author, AttemptState>,
    pub(super) runs: BTreeMap<Author, Run>,
    pub(super) listings: BTreeMap<ListId, Listing>,
    pub(super) handing: BTreeMap<Op, HandingOver>,
    pub(super) answers: Vec<ChildAnswer>,
    ticks: u64,
    /// True if it was declared dead and will start again.
    pub(super) leaving: bool,
}

/// A node: its latest incarnation, and its process while it lives.
pub(super) struct Node {
    pub(super) me: Member,
    pub(super) life: Option<Life>,
    pub(super) routes: Routes,
}

impl Node {
    pub(super) fn begin(plan: &Plan, rules: MutatedRules, me: Member) -> Self {
        let life = Life {
            me,
            cache: NodeCache::new(me, plan.cache, rules),
            gate: Gate::new(plan.gate, rules),
            readers: Vec::new(),
            writers: BTreeMap::new(),
            standing: BTreeMap::new(),
            runs: BTreeMap::new(),
            listings: BTreeMap::new(),
            handing: BTreeMap::new(),
            answers: Vec::new(),
            ticks: 0,
            leaving: false,
        };
        Self { me, life: Some(life), routes: Routes::new() }
    }
}

pub(super) const fn host(me: Member) -> Host {
    me.node.0 as Host
}

impl Storm {
    pub(super) fn life(&self, me: Member) -> Option<&Life> {
        self.nodes.get(me.node.0 as usize)?.life.as_ref().filter(|life| life.me == me)
    }

    pub(super) fn life_mut(&mut self, me: Member) -> Option<&mut Life> {
        self.nodes.get_mut(me.node.0 as usize)?.life.as_mut().filter(|life| life.me == me)
    }

    pub(super) fn node_receives(&mut self, reply: Reply<Object>, value: Option<Op>) {
        let (me, now) = (reply.to, self.clock(host(reply.to)));
        let Some(life) = self.life_mut(me) else { return };
        let value = match &reply.body {
            // The node has what it wrote.
            FromHome::Written { request, .. } => life
                .writers
                .get(request)
                .filter(|writer| !writer.delete && writer.who != Requester::Notice)
                .map(|one| one.op),
            _ => value,
        };
        let mut out = CacheOutputs::new();
        life.cache.receive(now, reply, value, &mut out);
        self.carry_out(me, out);
    }

    /// Carries out a cache's outputs.
    pub(super) fn carry_out(&mut self, me: Member, outputs: CacheOutputs) {
        for output in outputs {
            match output {
                CacheOutput::Send(shard, request) => {
                    let Some(life) = self.life(me) else { return };
                    let op = match &request.body {
                        ToHome::Put { request, .. } => life.writers.get(request).map(|writer| writer.op),
                        _ => None,
                    };
                    let Some(&(at, to)) = self.nodes[me.node.0 as usize].routes.get(&shard) else { continue };
                    self.say_to_home(me, at, to, Packet::ToHome { at, request, op });
                }
                CacheOutput::Landed { request, object, stamp, value, .. } => {
                    let Some(life) = self.life_mut(me) else { return };
                    let (served, waiting) =
                        std::mem::take(&mut life.readers).into_iter().partition(|reader| reader.request == request);
                    life.readers = waiting;
                    let served: Vec<Reader> = served;
                    for reader in served {
                        self.shown(me, reader.who, object, &stamp, value);
                    }
                }
                CacheOutput::Wrote { request, outcome, .. } => self.wrote(me, request, outcome),
                CacheOutput::Grown => {
                    self.look(me);
                    self.look_at_what_waits(me);
                }
                CacheOutput::Dropped(_) => {}
                CacheOutput::Rejoin => self.leaves(me),
            }
        }
    }

    /// Sends a packet to a home. No message between a node and a home in the same process is lost.
    fn say_to_home(&mut self, me: Member, at: HomeProcess, to: Host, packet: Packet) {
        if self.seat_of(at).is_some_and(|seat| seat.resident == Some(me)) {
            self.say_within(to, packet);
        } else {
            self.send(host(me), to, packet);
        }
    }

    /// The node learns that it was declared dead, and starts again soon.
    pub(super) fn leaves(&mut self, me: Member) {
        let wait = self.chance.between(1, 50) * MS;
        let Some(life) = self.life_mut(me) else { return };
        if !std::mem::replace(&mut life.leaving, true) {
            self.after(wait, Event::Join(host(me)));
        }
    }

    fn wrote(&mut self, me: Member, request: RequestId, outcome: Result<Stamp, PutFailure>) {
        let hands_over = self.holds(Rule::HandOver);
        let Some(life) = self.life_mut(me) else { return };
        let Some(Writer { who, object, op, .. }) = life.writers.remove(&request) else { return };
        let shard = ShardId(self.plan.shard_of(object));
        self.operations += 1;
        match who {
            Requester::Attempt(attempt) => {
                let mut told = Vec::new();
                let Some(life) = self.life_mut(me) else { return };
                life.gate.has_put(attempt, shard, outcome.as_ref().map_err(|failure| *failure), &mut told);
                if let Ok(stamp) = &outcome {
                    self.observer.acknowledged(attempt, op, stamp.version);
                }
                self.goes_on(me, attempt);
                self.tell(me, told);
            }
            Requester::Client(client, author) => match outcome {
                Err(_) => self.client_done(client),
                Ok(stamp) => {
                    self.observer.acknowledged(author, op, stamp.version);
                    let mut token = Token::empty();
                    stamp.join_into(shard, &mut token);
                    let handing = HandingOver { client: Some(client), author, object, version: stamp.version, token };
                    if hands_over { self.hands_over(me, op, handing) } else { self.handed(&handing) }
                }
            },
            Requester::Notice => {
                let namespace = self.plan.namespace_of(object);
                if let Ok(stamp) = outcome {
                    let author = self.observer.author(namespace, true);
                    let mut token = Token::empty();
                    stamp.join_into(shard, &mut token);
                    let handing = HandingOver { client: None, author, object, version: stamp.version, token };
                    self.hands_over(me, op, handing);
                }
            }
        }
    }

    fn hands_over(&mut self, me: Member, op: Op, handing: HandingOver) {
        let namespace = self.plan.namespace_of(handing.object);
        let packet = Packet::HandOver { put: op, from: me, namespace, token: handing.token.clone() };
        if let Some(life) = self.life_mut(me) {
            life.handing.insert(op, handing);
        }
        self.tell_scheduler(me, namespace, packet);
    }

    /// The scheduler has the token of a put from outside, so the put is acknowledged.
    pub(super) fn handed_over(&mut self, put: Op, to: Member) {
        let handing = self.life_mut(to).and_then(|life| life.handing.remove(&put));
        if let Some(handing) = handing {
            self.handed(&handing);
        }
    }

    fn handed(&mut self, handing: &HandingOver) {
        self.observer.acknowledged_outside(handing.author, handing.object, handing.version);
        if let Some(client) = handing.client {
            self.client_done(client);
        }
    }

    pub(super) fn tell_scheduler(&mut self, me: Member, namespace: u8, packet: Packet) {
        let to = self.schedulers[usize::from(namespace)].host;
        self.send(host(me), to, packet);
    }

    /// The gate checks which dispatches may start.
    pub(super) fn look(&mut self, me: Member) {
        let now = self.clock(host(me));
        let (mut out, mut told) = (CacheOutputs::new(), Vec::new());
        let Some(life) = self.life_mut(me) else { return };
        life.gate.look(now, &mut life.cache, &mut out, &mut told);
        self.tell(me, told);
        self.carry_out(me, out);
    }

    /// A dispatch arrives.
    pub(super) fn dispatched(&mut self, at: Host, attempt: Author, dispatch: Dispatch) {
        let Some(me) = self.nodes.get(usize::from(at)).and_then(|node| node.life.as_ref()).map(|life| life.me) else {
            return;
        };
        let now = self.clock(at);
        let (mut out, mut told) = (CacheOutputs::new(), Vec::new());
        let Some(life) = self.life_mut(me) else { return };
        match life.standing.get(&attempt).cloned() {
            Some(AttemptState::Here | AttemptState::Told) => return,
            Some(AttemptState::Refused) => return self.tell_of(me, attempt, Packet::Returned { attempt }),
            Some(AttemptState::Ended(token)) => return self.tell_of(me, attempt, Packet::Ended { attempt, token }),
            None => {}
        }
        life.standing.insert(attempt, AttemptState::Here);
        life.gate.dispatch(now, attempt, dispatch, &mut life.cache, &mut out, &mut told);
        self.tell(me, told);
        self.carry_out(me, out);
    }

    fn tell_of(&mut self, me: Member, attempt: Author, packet: Packet) {
        let namespace = self.work.namespace_of(attempt);
        self.tell_scheduler(me, namespace, packet);
    }

    /// Carries out a gate's outputs.
    pub(super) fn tell(&mut self, me: Member, outputs: Vec<GateOutput<Author>>) {
        for output in outputs {
            let Some(life) = self.life_mut(me) else { return };
            match output {
                GateOutput::Admitted(attempt) => {
                    life.runs.insert(attempt, Run::default());
                    self.after(MS / 5, Event::Step(attempt, me));
                }
                GateOutput::Refused(attempt, _) => {
                    life.standing.insert(attempt, AttemptState::Refused);
                    self.tell_of(me, attempt, Packet::Returned { attempt });
                }
                GateOutput::Ended(attempt, token) => {
                    life.runs.remove(&attempt);
                    life.standing.insert(attempt, AttemptState::Ended(token.clone()));
                    self.tell_of(me, attempt, Packet::Ended { attempt, token });
                }
            }
        }
    }

    pub(super) fn end_heard(&mut self, attempt: Author, to: Member) {
        if let Some(life) = self.life_mut(to) {
            life.standing.insert(attempt, AttemptState::Told);
        }
    }

    pub(super) fn tick_node(&mut self, me: Member) {
        let now = self.clock(host(me));
        let mut out = CacheOutputs::new();
        let Some(life) = self.life_mut(me) else { return };
        life.cache.tick(now, &mut out);
        life.ticks += 1;
        let tells = life.ticks.is_multiple_of(TELL_EVERY);
        self.carry_out(me, out);
        self.look(me);
        self.look_at_what_waits(me);
        if self.over {
            for shard in (0..self.plan.shards).map(ShardId) {
                self.hear_map(host(me), shard);
            }
        }
        if tells {
            self.tell_again(me);
        }
    }

    /// Repeats unanswered messages.
    fn tell_again(&mut self, me: Member) {
        let Some(life) = self.life(me) else { return };
        let ended = life.standing.iter().filter_map(|(attempt, standing)| match standing {
            AttemptState::Ended(token) => Some((*attempt, token.clone())),
            _ => None,
        });
        let ended: Vec<(Author, Token)> = ended.collect();
        let handing: Vec<(Op, u8, Token)> =
            life.handing.iter().map(|(op, one)| (*op, self.plan.namespace_of(one.object), one.token.clone())).collect();
        let waiting: Vec<(Author, usize)> =
            life.runs.iter().filter(|(_, run)| run.waits).map(|(attempt, run)| (*attempt, run.at)).collect();
        for (attempt, token) in ended {
            self.tell_of(me, attempt, Packet::Ended { attempt, token });
        }
        for (put, namespace, token) in handing {
            self.tell_scheduler(me, namespace, Packet::HandOver { put, from: me, namespace, token });
        }
        for (attempt, at) in waiting {
            self.call_again(me, attempt, at);
        }
        self.list_again(me);
    }

    /// A node learns the home of a shard.
    pub(super) fn hear_map(&mut self, node: u8, shard: ShardId) {
        let (at, to) = self.map[usize::from(shard.0)];
        let now = self.clock(node);
        let known = &mut self.nodes[usize::from(node)];
        if known.routes.get(&shard).is_some_and(|(known, _)| known.epoch >= at.epoch) {
            return;
        }
        known.routes.insert(shard, (at, to));
        let me = known.me;
        let mut out = CacheOutputs::new();
        if let Some(life) = self.life_mut(me) {
            life.cache.meet(now, shard, at.epoch, &mut out);
        }
        self.carry_out(me, out);
    }
}
