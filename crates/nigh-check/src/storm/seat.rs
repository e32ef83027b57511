//! The shell of a home: its ledger, the order in which the home is told of its writes, and its outputs.

use std::collections::{BTreeMap, BTreeSet};

use nigh_data::{Attributes, ETag, ObjectMeta};
use nigh_objects::WriteMode;
use nigh_objects::behind::{AppendNumber, AppendOrder, ObjectState, PossibleBases, WriteBackQueue};
use nigh_protocol::{
    AppendId, Attempt, FromHome, Home, HomeInput, HomeOutput, LedgerRecord, Member, Reply, Request, Takeover, ToHome,
    Write,
};
use nigh_terms::{Monotonic, ShardId, Timestamp, Token, Version};

use super::clock::MS;
use super::ledger::Turn;
use super::node::host;
use super::observer::Op;
use super::packet::{Event, HOMES, HOMES_MAX, HomeProcess, Host, Packet, Ticket};
use super::seat_tickets::PendingQuestion;
use super::world::Storm;
use crate::configuration::MutatedRules;
use crate::ghost::Object;

/// The bytes of each object.
pub(super) const SIZE: u64 = 100;
/// How long a home waits for the ledger's answer before it asks again.
const ASK_AGAIN: std::time::Duration = std::time::Duration::from_millis(200);

/// A record on its way to the ledger.
#[derive(Clone)]
struct PendingRecord {
    /// The record's index among this home's requests.
    place: usize,
    turn: Turn,
    asked: AppendNumber,
    since: Monotonic,
}

/// The process of a home.
pub(super) struct Seat {
    pub(super) at: HomeProcess,
    pub(super) host: Host,
    pub(super) resident: Option<Member>,
    pub(super) home: Home<Object, MutatedRules>,
    pub(super) dirty: WriteBackQueue,
    order: AppendOrder<Turn>,
    asking: BTreeMap<AppendId, PendingRecord>,
    /// The number of requested records.
    places: usize,
    /// What the writers of all listed writes had seen.
    pub(super) seen: Token,
    /// Fetches of readers that ask the home even if they have a copy.
    pub(super) checked: BTreeSet<(Member, Attempt)>,
    pub(super) tickets: BTreeMap<Ticket, (Monotonic, PendingQuestion)>,
    pub(super) pushing: usize,
    /// Versions that the store has and whose trim the ledger has not confirmed.
    pub(super) stored: BTreeSet<Version>,
    settled: BTreeSet<Version>,
    pub(super) heard: Monotonic,
}

impl Seat {
    /// True if nothing is under way.
    pub(super) fn is_idle(&self) -> bool {
        self.asking.is_empty()
            && self.tickets.values().all(|(_, ask)| matches!(ask, PendingQuestion::Heartbeat))
            && self.stored.is_empty()
            && self.settled.is_empty()
    }
}

/// The effect of a write on its object, as write-back sees it. The entity tag identifies the bytes of a put.
fn becomes(write: Write, op: Option<Op>, version: Version) -> ObjectState {
    match (write, op) {
        (Write::Put, Some(op)) => ObjectState::Put(std::sync::Arc::new(ObjectMeta {
            size: SIZE,
            etag: ETag(op.0.to_string()),
            modified: Timestamp(0),
            attributes: Attributes::default(),
            tags: BTreeMap::new(),
            checksums: Vec::new(),
            parts: Vec::new(),
            version,
            token: Token::empty(),
        })),
        _ => ObjectState::Gone,
    }
}

impl Storm {
    pub(super) fn seat_of(&self, at: HomeProcess) -> Option<&Seat> {
        self.seats.iter().find(|seat| seat.at == at)
    }

    pub(super) fn seat_mut(&mut self, at: HomeProcess) -> Option<&mut Seat> {
        self.seats.iter_mut().find(|seat| seat.at == at)
    }

    /// A machine for a new home of `shard`.
    pub(super) fn home_host(&mut self, _shard: ShardId) -> Host {
        let living: Vec<Host> = self
            .nodes
            .iter()
            .filter(|node| node.life.as_ref().is_some_and(|life| !life.leaving))
            .map(|node| host(node.me))
            .collect();
        self.homes_begun += 1;
        let apart = HOMES + (self.homes_begun % u64::from(HOMES_MAX)) as Host;
        if self.plan.residents { self.chance.pick(&living).unwrap_or(apart) } else { apart }
    }

    /// Another home takes the shard. It fences the former home, and starts when it has read all that it needs.
    pub(super) fn take_over(&mut self, shard: ShardId) {
        let ledger = &self.ledgers[usize::from(shard.0)];
        if ledger.down_until > self.now {
            let until = ledger.down_until;
            return self.at(until, Event::FailOver(shard));
        }
        let most = self.chance.below(ledger.unsynced() as u32 + 1) as usize;
        self.sync(shard, most, false);
        let epoch = self.ledgers[usize::from(shard.0)].take();
        let host = self.home_host(shard);
        let wait = self.chance.between(1, 30) * MS;
        self.after(wait, Event::Seat(HomeProcess { shard, epoch }, host));
    }

    /// The engine finds a shard without a home.
    pub(super) fn fail_over(&mut self, shard: ShardId) {
        let (at, _) = self.map[usize::from(shard.0)];
        if self.seat_of(at).is_none() {
            self.take_over(shard);
        }
    }

    /// Starts a home that has taken its epoch.
    pub(super) fn seat(&mut self, at: HomeProcess, on: Host) {
        let HomeProcess { shard, epoch } = at;
        let ledger = &self.ledgers[usize::from(shard.0)];
        if ledger.epoch != epoch {
            return;
        }
        let in_node = usize::from(on) < self.nodes.len();
        let life = self.nodes.get(usize::from(on)).and_then(|node| node.life.as_ref());
        if in_node && life.is_none() {
            return self.after(300 * MS, Event::FailOver(shard));
        }
        let resident = life.map(|life| life.me);
        let mut summary = Token::empty();
        for other in (0..self.plan.shards).map(ShardId).filter(|other| *other != shard) {
            summary.see(other, self.ledgers[usize::from(other.0)].end());
        }
        let now = self.clock(on);
        let mut dirty = WriteBackQueue::new(self.plan.dirty);
        let (mut seen, mut stored) = (summary.clone(), BTreeSet::new());
        for item in ledger.records() {
            let LedgerRecord::Write { object, write, token, .. } = &item.replayed.record else { continue };
            let version = item.replayed.version;
            seen.join(token);
            if *write == Write::Outside {
                stored.insert(version);
                continue;
            }
            let name = &self.names[usize::from(*object)];
            dirty.recover(
                name,
                version,
                WriteMode::Lazy,
                becomes(*write, item.op, version),
                PossibleBases::default(),
                now,
            );
            dirty.doubt(name, now);
        }
        let records = ledger.records().iter().map(|item| item.replayed.clone()).collect();
        let takeover = Takeover { shard, epoch, records, summary, resident };
        let home = Home::begin(takeover, self.plan.home, self.without());
        self.seats.push(Seat {
            at,
            host: on,
            resident,
            order: AppendOrder::after(home.newest()),
            home,
            dirty,
            asking: BTreeMap::new(),
            places: 0,
            seen,
            checked: BTreeSet::new(),
            tickets: BTreeMap::new(),
            pushing: 0,
            stored,
            settled: BTreeSet::new(),
            heard: now,
        });
        self.map[usize::from(shard.0)] = (at, on);
        if resident.is_some() {
            self.hear_map(on, shard);
        }
        for node in 0..self.nodes.len() as u8 {
            let wait = self.chance.between(1, self.plan.news_ms) * MS;
            self.after(wait, Event::MapNews(node, shard));
        }
        self.after(MS, Event::TickSeat(at));
    }

    /// Ends the process of a home.
    pub(super) fn unseat(&mut self, at: HomeProcess) {
        self.seats.retain(|seat| seat.at != at);
        if self.map[usize::from(at.shard.0)].0 == at {
            let wait = self.chance.between(200, 1_500) * MS;
            self.after(wait, Event::FailOver(at.shard));
        }
    }

    /// A node's request arrives. If its home has ended, it goes to the one that has the shard now.
    pub(super) fn home_request(&mut self, at: HomeProcess, request: Request<Object>, op: Option<Op>) {
        let at = if self.seat_of(at).is_some() { at } else { self.map[usize::from(at.shard.0)].0 };
        let Some(seat) = self.seat_mut(at) else { return };
        if let ToHome::Fetch { attempt, shared: false, .. } = &request.body {
            seat.checked.insert((request.from, *attempt));
        }
        self.run_home(at, HomeInput::Request(request), op);
    }

    pub(super) fn home_fences(&mut self, at: HomeProcess, member: Member) {
        self.run_home(at, HomeInput::Fence(member), None);
    }

    pub(super) fn deposed(&mut self, at: HomeProcess) {
        self.run_home(at, HomeInput::Deposed, None);
    }

    /// Gives a home an input, and carries out its outputs.
    pub(super) fn run_home(&mut self, at: HomeProcess, input: HomeInput<Object>, op: Option<Op>) {
        let Some(now) = self.seat_of(at).map(|seat| self.clock(seat.host)) else { return };
        let mut out = Vec::new();
        if let Some(seat) = self.seat_mut(at) {
            seat.home.step(now, input, &mut out);
        }
        for output in out {
            match output {
                HomeOutput::Send(reply) => self.home_says(at, reply),
                HomeOutput::Append { append, record } => self.ask_ledger(at, append, record, op),
                HomeOutput::Load(object) => self.look_up(at, object),
                HomeOutput::Fenced { member, through } => {
                    let Some(from) = self.seat_of(at).map(|seat| seat.host) else { continue };
                    for namespace in 0..self.plan.namespaces {
                        let to = self.schedulers[usize::from(namespace)].host;
                        self.send(from, to, Packet::Fenced { namespace, shard: at.shard, member, through });
                    }
                }
                HomeOutput::GaveUp(member) => {
                    let wait = self.chance.between(100, 2_000) * MS;
                    self.after(wait, Event::Lost(member));
                }
                HomeOutput::Settled(version) => {
                    if let Some(seat) = self.seat_mut(at) {
                        seat.settled.insert(version);
                    }
                }
                HomeOutput::Crowded => self.forget_some(at, 4),
                HomeOutput::Retired => self.unseat(at),
                HomeOutput::NotFenced(_) => {}
            }
        }
    }

    pub(super) fn forget_some(&mut self, at: HomeProcess, most: usize) {
        let objects = self.seat_of(at).map(|seat| seat.home.forgettable(most)).unwrap_or_default();
        for object in objects {
            self.run_home(at, HomeInput::Forget(object), None);
        }
    }

    fn ask_ledger(&mut self, at: HomeProcess, append: AppendId, record: LedgerRecord<Object>, op: Option<Op>) {
        let now = self.seat_of(at).map(|seat| self.clock(seat.host)).unwrap_or_default();
        let name = written(&record).map(|object| self.names[usize::from(object)].clone());
        let Some(seat) = self.seat_mut(at) else { return };
        if let Some(name) = name
            && !seat.dirty.promise(&name, SIZE)
        {
            return self.run_home(at, HomeInput::NotAppended { append }, None);
        }
        let asked = seat.order.begins();
        let from = seat.host;
        let (place, turn) = (seat.places, Turn { append, record, op });
        seat.places += 1;
        seat.asking.insert(append, PendingRecord { place, turn: turn.clone(), asked, since: now });
        self.send(from, Self::ledger_host(at.shard), Packet::Append { at, place, asked: turn });
    }

    /// The ledger has answered a home.
    pub(super) fn appended(&mut self, at: HomeProcess, append: AppendId, version: Option<Version>) {
        let Some(now) = self.seat_of(at).map(|seat| self.clock(seat.host)) else { return };
        let Some(seat) = self.seats.iter_mut().find(|seat| seat.at == at) else { return };
        let Some(PendingRecord { asked, turn, .. }) = seat.asking.remove(&append) else { return };
        let Some(version) = version else {
            if written(&turn.record).is_some() {
                seat.dirty.release(SIZE);
            }
            seat.order.refused(asked);
            self.run_home(at, HomeInput::NotAppended { append }, None);
            return self.hear_in_order(at, now);
        };
        seat.order.appended(asked, version, turn);
        self.hear_in_order(at, now);
    }

    /// Reports writes to the home in their order. A later read sees a write before the report.
    fn hear_in_order(&mut self, at: HomeProcess, now: Monotonic) {
        while let Some(seat) = self.seats.iter_mut().find(|seat| seat.at == at)
            && let Some((version, Turn { append, record, op })) = seat.order.next_to_tell()
        {
            if let LedgerRecord::Write { object, write, token, .. } = &record {
                seat.seen.join(token);
                if *write == Write::Outside {
                    seat.stored.insert(version);
                } else {
                    let name = &self.names[usize::from(*object)];
                    seat.dirty.release(SIZE);
                    let becomes = becomes(*write, op, version);
                    seat.stored.extend(seat.dirty.write(
                        name,
                        version,
                        WriteMode::Lazy,
                        becomes,
                        PossibleBases::default(),
                        now,
                    ));
                }
            }
            self.run_home(at, HomeInput::Appended { append, version }, None);
        }
        self.push_what_is_due(at);
    }

    pub(super) fn trimmed(&mut self, at: HomeProcess, stored: &[Version], settled: &[Version]) {
        if let Some(seat) = self.seat_mut(at) {
            seat.stored.retain(|version| !stored.contains(version));
            seat.settled.retain(|version| !settled.contains(version));
        }
    }

    pub(super) fn tick_seat(&mut self, at: HomeProcess) {
        self.run_home(at, HomeInput::Tick, None);
        let Some(now) = self.seat_of(at).map(|seat| self.clock(seat.host)) else { return };
        let Some(seat) = self.seat_mut(at) else { return };
        let from = seat.host;
        let mut again = Vec::new();
        for asking in seat.asking.values_mut() {
            if now.since(asking.since) >= ASK_AGAIN {
                asking.since = now;
                again.push((asking.place, asking.turn.clone()));
            }
        }
        let (stored, settled): (Vec<_>, Vec<_>) =
            (seat.stored.iter().copied().collect(), seat.settled.iter().copied().collect());
        for (place, asked) in again {
            self.send(from, Self::ledger_host(at.shard), Packet::Append { at, place, asked });
        }
        if !stored.is_empty() || !settled.is_empty() {
            self.send(from, Self::ledger_host(at.shard), Packet::Trim { at, stored, settled });
        }
        self.give_up_tickets(at, now);
        self.beat(at, now);
        self.push_what_is_due(at);
    }

    /// Sends a home's message when the bytes that belong to it are available.
    pub(super) fn deliver(&mut self, at: HomeProcess, reply: Reply<Object>, value: Option<Op>) {
        let Some(seat) = self.seat_of(at) else { return };
        let (from, to) = (seat.host, host(reply.to));
        if seat.resident == Some(reply.to) {
            self.say_within(to, Packet::ToNode { reply, value });
        } else {
            self.send(from, to, Packet::ToNode { reply, value });
        }
    }

    fn home_says(&mut self, at: HomeProcess, reply: Reply<Object>) {
        if matches!(reply.body, FromHome::Found { .. }) {
            self.bring(at, reply);
        } else {
            self.deliver(at, reply, None);
        }
    }
}

/// The object that must be pushed after this record; none if none must.
fn written(record: &LedgerRecord<Object>) -> Option<Object> {
    match record {
        LedgerRecord::Write { object, write: Write::Put | Write::Delete, .. } => Some(*object),
        LedgerRecord::Write { .. } | LedgerRecord::Fence { .. } => None,
    }
}
