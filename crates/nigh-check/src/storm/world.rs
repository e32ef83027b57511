//! One storm: the cluster, its time, and its events one by one.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, VecDeque};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use nigh_data::ObjectId;
use nigh_protocol::{Member, NodeNumber, Rule, Rules as _};
use nigh_terms::{BucketName, Incarnation, Monotonic, Namespace, ObjectKey, ShardId};

use super::clock::{HostClock, MS};
use super::dice::Dice;
use super::fault::{FaultKind, Strikes};
use super::ledger::VirtualLedger;
use super::node::Node;
use super::observer::{Breach, Observer, Violation};
use super::packet::{Event, HOSTS, HomeProcess, Host, LEDGERS, Packet, SCHEDULERS, Ticket};
use super::plan::Plan;
use super::scheduler::Scheduler;
use super::seat::Seat;
use super::store::VirtualStore;
use super::work::{Actor, Work};
use super::{LeftOut, StormEnd};
use crate::configuration::MutatedRules;
use crate::ghost::Object;

/// How often a machine checks its time-outs.
const TICK: u64 = 100 * MS;
/// How long after the last fault all started work must be finished, in nanoseconds: the sum of all waits, the watch of
/// unanswered pushes and the clocks' lag, with room to spare.
const HEALING: u64 = 240_000 * MS;
/// The most events of a storm: some twenty times the usual number. With more, it will never end.
const STEPS_MAX: u64 = 200_000;
/// How often the end of all work is checked.
const LOOK: u64 = 500 * MS;

struct ScheduledEvent(u64, u64, Event);

impl PartialEq for ScheduledEvent {
    fn eq(&self, other: &Self) -> bool {
        (self.0, self.1) == (other.0, other.1)
    }
}

impl Eq for ScheduledEvent {}

impl PartialOrd for ScheduledEvent {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for ScheduledEvent {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.0, self.1).cmp(&(other.0, other.1))
    }
}

/// The cluster in its storm.
pub(super) struct Storm {
    pub(super) plan: Plan,
    pub(super) left_out: LeftOut,
    /// Nanoseconds since the beginning.
    pub(super) now: u64,
    queue: BinaryHeap<Reverse<ScheduledEvent>>,
    queued: u64,
    /// Messages within one process.
    within: VecDeque<(Host, Packet)>,
    pub(super) net: Dice,
    pub(super) chance: Dice,
    pub(super) clocks: [HostClock; HOSTS],
    pub(super) paused: [u64; HOSTS],
    /// The present faults, by their indexes in the plan.
    pub(super) active: Vec<usize>,
    pub(super) nodes: Vec<Node>,
    pub(super) seats: Vec<Seat>,
    /// The home of each shard, as the engine knows it.
    pub(super) map: Vec<(HomeProcess, Host)>,
    pub(super) homes_begun: u64,
    pub(super) ledgers: Vec<VirtualLedger>,
    pub(super) store: VirtualStore,
    pub(super) names: Vec<ObjectId>,
    pub(super) schedulers: Vec<Scheduler>,
    /// The incarnations that the engine reports as lost.
    pub(super) lost: BTreeSet<Member>,
    pub(super) work: Work,
    pub(super) tickets: u64,
    pub(super) observer: Observer,
    pub(super) strikes: Strikes,
    pub(super) operations: u64,
    events: u64,
    hasher: DefaultHasher,
    trace: Option<Vec<String>>,
    verifying: bool,
    pub(super) over: bool,
}

impl Storm {
    pub(super) fn new(plan: Plan, left_out: LeftOut, traced: bool) -> Self {
        let seed = plan.seed;
        let mut storm = Self {
            left_out,
            now: 0,
            queue: BinaryHeap::new(),
            queued: 0,
            within: VecDeque::new(),
            net: Dice::new(seed, 2),
            chance: Dice::new(seed, 3),
            clocks: [HostClock::TRUE; HOSTS],
            paused: [0; HOSTS],
            active: Vec::new(),
            nodes: Vec::new(),
            seats: Vec::new(),
            map: Vec::new(),
            homes_begun: 0,
            ledgers: (0..plan.shards).map(|_| VirtualLedger::default()).collect(),
            store: VirtualStore::default(),
            names: (0..plan.objects).filter_map(|object| name_of(&plan, object)).collect(),
            schedulers: Vec::new(),
            lost: BTreeSet::new(),
            work: Work::new(&plan),
            tickets: 0,
            observer: Observer::new(usize::from(plan.namespaces)),
            strikes: Strikes::default(),
            operations: 0,
            events: 0,
            hasher: DefaultHasher::new(),
            trace: traced.then(Vec::new),
            verifying: false,
            over: false,
            plan,
        };
        storm.begin();
        storm
    }

    fn begin(&mut self) {
        for object in self.plan.theirs() {
            self.outsider_writes(object);
        }
        for number in 0..self.plan.nodes {
            let me = Member { node: NodeNumber(u32::from(number)), incarnation: Incarnation(1) };
            self.nodes.push(Node::begin(&self.plan, self.without(), me));
            self.at(self.now + TICK, Event::TickNode(me));
        }
        for shard in (0..self.plan.shards).map(ShardId) {
            let epoch = self.ledgers[usize::from(shard.0)].take();
            let host = self.home_host(shard);
            self.map.push((HomeProcess { shard, epoch }, host));
        }
        for (seated, host) in self.map.clone() {
            self.seat(seated, host);
        }
        for node in 0..self.plan.nodes {
            for shard in (0..self.plan.shards).map(ShardId) {
                self.hear_map(node, shard);
            }
        }
        for namespace in 0..self.plan.namespaces {
            self.schedulers.push(Scheduler::begin(0, SCHEDULERS + 2 * namespace, [], self.without()));
            self.at(TICK, Event::TickScheduler(namespace, 0));
        }
        for actor in 0..self.plan.actors {
            let at = self.chance.between(0, 50) * MS;
            self.work.actors.push(Actor::new(actor % self.plan.namespaces, actor % 3 == 2));
            self.at(at, Event::Act(actor));
        }
        for (index, fault) in self.plan.faults.clone().iter().enumerate() {
            self.at(fault.at_ms * MS, Event::Strike(index));
        }
    }

    pub(super) const fn without(&self) -> MutatedRules {
        match self.left_out {
            LeftOut::Rule(rule) => MutatedRules(Some(rule)),
            LeftOut::Nothing | LeftOut::Duty(_) => MutatedRules(None),
        }
    }

    pub(super) fn holds(&self, rule: Rule) -> bool {
        self.without().hold(rule)
    }

    /// The clock of a machine.
    pub(super) fn clock(&self, host: Host) -> Monotonic {
        self.clocks[usize::from(host)].read(self.now)
    }

    pub(super) fn at(&mut self, when: u64, event: Event) {
        self.queued += 1;
        self.queue.push(Reverse(ScheduledEvent(when.max(self.now), self.queued, event)));
    }

    pub(super) fn after(&mut self, wait: u64, event: Event) {
        self.at(self.now + wait, event);
    }

    /// Sends a message within one process: immediate, in order, never lost.
    pub(super) fn say_within(&mut self, host: Host, packet: Packet) {
        self.within.push_back((host, packet));
    }

    pub(super) fn note(&mut self, line: impl FnOnce() -> String) {
        let now = self.now;
        if let Some(trace) = &mut self.trace {
            trace.push(format!("{:>10.3} {}", now as f64 / MS as f64, line()));
        }
    }

    pub(super) fn breaks(&mut self, breach: Breach, what: String) {
        self.observer.breaks(breach, || what);
    }

    /// The first present fault of this kind.
    pub(super) fn lasting(&self, kind: FaultKind) -> Option<u64> {
        let of_kind = self.active.iter().map(|index| self.plan.faults[*index]).find(|fault| fault.kind == kind);
        of_kind.map(|fault| fault.pick)
    }

    pub(super) const fn ledger_host(shard: ShardId) -> Host {
        LEDGERS + shard.0 as Host
    }

    pub(super) fn next_ticket(&mut self) -> Ticket {
        self.tickets += 1;
        Ticket(self.tickets)
    }

    /// Runs the storm to its end, or to the first broken promise.
    pub(super) fn play(mut self) -> StormEnd {
        let storm_end = self.plan.storm_ms * MS;
        let mut look_at = storm_end;
        let mut steps = 0;
        while self.observer.broken.is_none() {
            steps += 1;
            if steps > STEPS_MAX {
                self.breaks(Breach::Stuck, format!("{STEPS_MAX} events, and no end"));
                break;
            }
            if let Some((host, packet)) = self.within.pop_front() {
                self.arrive(host, packet);
                continue;
            }
            let Some(Reverse(ScheduledEvent(when, _, event))) = self.queue.pop() else { break };
            self.now = when;
            if self.now >= look_at {
                look_at = self.now + LOOK;
                self.over = true;
                if self.is_finished() {
                    if self.verifying {
                        self.check_what_is_left();
                        break;
                    }
                    self.verifying = true;
                    self.at(self.now, Event::Verify);
                }
                if self.now > storm_end + HEALING {
                    let what = self.unfinished();
                    self.breaks(Breach::Stuck, what);
                    break;
                }
            }
            let host = self.host_of(&event);
            if let Some(host) = host
                && self.paused[usize::from(host)] > self.now
            {
                let until = self.paused[usize::from(host)];
                self.at(until, event);
                continue;
            }
            self.events += 1;
            (when, &event).hash(&mut self.hasher);
            if self.trace.is_some()
                && !matches!(event, Event::TickNode(_) | Event::TickSeat(_) | Event::TickScheduler(..))
            {
                self.note(|| format!("{event:?}"));
            }
            self.happen(event);
        }
        self.end()
    }

    fn end(self) -> StormEnd {
        StormEnd {
            violation: self
                .observer
                .broken
                .as_ref()
                .map(|Violation { breach, what }| Violation { breach: *breach, what: what.clone() }),
            strikes: self.strikes,
            operations: self.operations,
            events: self.events,
            virtual_seconds: self.now as f64 / (1000 * MS) as f64,
            trace_hash: self.hasher.finish(),
            trace: self.trace.unwrap_or_default(),
        }
    }

    /// The machine whose process handles the event; none if the storm itself does.
    fn host_of(&self, event: &Event) -> Option<Host> {
        match event {
            Event::Arrive(host, _) => Some(*host),
            Event::TickNode(member) | Event::Step(_, member) => Some(member.node.0 as Host),
            Event::TickSeat(at) => self.seat_of(*at).map(|seat| seat.host),
            Event::TickScheduler(namespace, _) => self.schedulers.get(usize::from(*namespace)).map(|one| one.host),
            Event::Notice(node, ..) => Some(*node),
            _ => None,
        }
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Arrive(host, packet) => self.arrive(host, packet),
            Event::TickNode(me) => {
                if self.life(me).is_some() {
                    self.tick_node(me);
                    self.after(TICK, Event::TickNode(me));
                }
            }
            Event::TickSeat(at) => {
                if self.seat_of(at).is_some() {
                    self.tick_seat(at);
                    self.after(TICK, Event::TickSeat(at));
                }
            }
            Event::TickScheduler(namespace, term) => {
                if self.schedulers[usize::from(namespace)].term == term {
                    self.tick_scheduler(namespace);
                    self.after(TICK, Event::TickScheduler(namespace, term));
                }
            }
            Event::Act(actor) => self.act(actor),
            Event::Step(attempt, me) => self.step(attempt, me),
            Event::Strike(index) => self.strike(index),
            Event::Relieve(index) => self.relieve(index),
            Event::Join(node) => self.join(node),
            Event::FailOver(shard) => self.fail_over(shard),
            Event::Seat(at, host) => self.seat(at, host),
            Event::MapNews(node, shard) => self.hear_map(node, shard),
            Event::Lost(member) => self.lose(member),
            Event::Sync(shard) => self.sync(shard, usize::MAX, true),
            Event::Append(at, place, asked) => self.ledger_append(at, place, asked),
            Event::Answer(at, answer) => self.answer_seat(Self::ledger_host(at.shard), at, answer),
            Event::Land(call) => self.land(&call),
            Event::Notice(node, object, op) => self.notice(node, object, op),
            Event::Verify => self.verify(),
        }
    }

    /// A packet arrives at a machine. A process that has ended ignores it.
    fn arrive(&mut self, host: Host, packet: Packet) {
        if self.has_moved(host, &packet) {
            return;
        }
        match packet {
            Packet::ToHome { at, request, op } => self.home_request(at, request, op),
            Packet::ToNode { reply, value } => self.node_receives(reply, value),
            Packet::AskList { at, from, list, namespace } => self.home_lists(at, from, list, namespace),
            Packet::Listed { at, to, list, part } => self.listed(at, to, list, part),
            Packet::Dispatch { attempt, dispatch } => self.dispatched(host, attempt, dispatch),
            Packet::Returned { attempt } => self.returned(attempt),
            Packet::Ended { attempt, token } => self.end_told(attempt, &token),
            Packet::EndHeard { attempt, to } => self.end_heard(attempt, to),
            Packet::Call { parent, from, place, token } => self.called(parent, from, place, &token),
            Packet::Answer { parent, to, place, callee, token } => self.answered(parent, to, place, callee, token),
            Packet::HandOver { put, from, namespace, token } => self.hand_over(host, put, from, namespace, &token),
            Packet::HandedOver { put, to } => self.handed_over(put, to),
            Packet::ReadHome { at, namespace, term } => self.read_home(at, namespace, term),
            Packet::HomeRead { namespace, term, shard, newest } => self.home_read(namespace, term, shard, newest),
            Packet::Fence { at, member } => self.home_fences(at, member),
            Packet::Fenced { namespace, shard, member, through } => self.fenced(namespace, shard, member, through),
            Packet::Append { at, place, asked } => self.append_arrives(at, place, asked),
            Packet::Appended { at, append, version } => self.appended(at, append, version),
            Packet::Trim { at, stored, settled } => self.ledger_trim(at, stored, settled),
            Packet::Trimmed { at, stored, settled } => self.trimmed(at, &stored, &settled),
            Packet::Stand { at, ticket } => self.ledger_stand(at, ticket),
            Packet::Stands { at, ticket } => self.stands(at, ticket),
            Packet::Deposed { at } => self.deposed(at),
            Packet::AskStore { at, ticket, call } => self.store_asked(at, ticket, &call),
            Packet::StoreSays { at, ticket, answer } => self.store_says(at, ticket, answer),
        }
    }
}

fn name_of(plan: &Plan, object: Object) -> Option<ObjectId> {
    let bucket = format!("bucket-{}-{}", plan.namespace_of(object), plan.shard_of(object));
    Some(ObjectId {
        namespace: Namespace::new(&format!("tenant-{}", plan.namespace_of(object))).ok()?,
        bucket: BucketName::new(&bucket).ok()?,
        key: ObjectKey::new(&format!("key-{object:03}")).ok()?,
    })
}

/// The routes of a node: the home of each shard, as the node knows it.
pub(super) type Routes = BTreeMap<ShardId, (HomeProcess, Host)>;
