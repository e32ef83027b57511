//! One transaction over several shards, in every order of events: homes crash and start again from their ledgers,
//! messages are lost and doubled, the coordinator is lost, and others write as soon as they may.
//!
//! The machines are those of `nigh_protocol::transaction`. A call gets an answer and is made once; a home's own
//! messages may be doubled. Applying a write a second time counts as a new write: after another client's write it is a
//! lost update, even though a ledger would recognise the write by its name.

mod events;
mod worlds;

use std::collections::BTreeSet;

use nigh_protocol::{
    Coordinator, CoordinatorInput, CoordinatorOutput, Outcome, Ticket, TransactionHome, TransactionId,
    TransactionInput, TransactionOutput, TransactionRecord,
};
use nigh_terms::ShardId;

pub use self::worlds::{
    TransactionWorldConfig, WeakenedTransaction, transaction_configurations, weakened_transactions,
};

use self::events::{Event, Packet};
use crate::explore::{ExplorationResult, explore_space};
use crate::ghost::Promise;
use crate::search::{Limits, Space};

const ID: TransactionId = TransactionId(1);

/// Explores a world until all states are seen, a promise is broken, or a limit is reached.
#[must_use]
pub fn explore_transactions(config: &TransactionWorldConfig, limits: &Limits) -> ExplorationResult {
    explore_space::<World>(config, limits)
}

/// A shard: its durable record and its unfinished steps.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Shard {
    home: TransactionHome,
    record: Option<TransactionRecord>,
    appending: Option<TransactionRecord>,
    applying: bool,
    trimming: bool,
    held: bool,
    /// True if the transaction's writes are in the ledger.
    applied: bool,
    /// True if another client has written since the shard was prepared.
    overwritten: bool,
}

/// A state of the world.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct World {
    coordinator: Option<Coordinator>,
    /// The call that the coordinator waits for: the shard, and true if it is the decision. None if it waits for none.
    waits: Option<(ShardId, bool)>,
    /// The outcome that the client was told; none if it was told none.
    told: Option<Outcome>,
    shards: Vec<Shard>,
    /// Ordered, without duplicates.
    packets: BTreeSet<Packet>,
    tickets: u64,
    /// True if a ledger has the decision.
    decided: bool,
    crashes: u8,
    lost: u8,
    doubled: u8,
    broken: Option<Promise>,
}

impl World {
    fn shard(&mut self, shard: ShardId) -> &mut Shard {
        &mut self.shards[usize::from(shard.0)]
    }

    fn breaks(&mut self, promise: Promise) {
        self.broken = self.broken.or(Some(promise));
    }

    fn coordinate(&mut self, outputs: Vec<CoordinatorOutput>) {
        if !outputs.is_empty() {
            self.waits = None;
        }
        for output in outputs {
            match output {
                CoordinatorOutput::Prepare(shard) => {
                    self.waits = Some((shard, false));
                    self.packets.insert(Packet::Prepare(shard));
                }
                CoordinatorOutput::Decide { shard, ticket, participants } => {
                    self.waits = Some((shard, true));
                    self.packets.insert(Packet::Decide(shard, ticket, participants));
                }
                CoordinatorOutput::Abort(shard) => {
                    self.packets.insert(Packet::Ended(shard, Outcome::Aborted));
                }
                CoordinatorOutput::Over(told) => self.told = told,
            }
        }
    }

    fn hear_coordinator(&mut self, input: CoordinatorInput) {
        if let Some(mut coordinator) = self.coordinator.take() {
            let outputs = coordinator.step(input);
            self.coordinator = Some(coordinator);
            self.coordinate(outputs);
        }
    }

    fn hear(&mut self, shard: ShardId, asker: Option<ShardId>, input: TransactionInput) {
        let one = self.shard(shard);
        let of_decision = matches!(input, TransactionInput::Decide { .. })
            || matches!(one.appending, Some(TransactionRecord::Decided { .. }));
        if matches!(input, TransactionInput::Appended | TransactionInput::NotAppended) {
            one.appending = None;
        }
        let outputs = one.home.step(ID, input);
        self.carry((shard, of_decision), asker, outputs);
    }

    fn carry(
        &mut self,
        (shard, of_decision): (ShardId, bool),
        asker: Option<ShardId>,
        outputs: Vec<TransactionOutput>,
    ) {
        for output in outputs {
            match output {
                TransactionOutput::Append(record) => self.shard(shard).appending = Some(record),
                TransactionOutput::Prepared(ticket) => {
                    self.packets.insert(Packet::Answer(shard, false, CoordinatorInput::Prepared(ticket)));
                }
                TransactionOutput::Refused => {
                    self.packets.insert(Packet::Answer(shard, of_decision, CoordinatorInput::Refused));
                }
                TransactionOutput::Committed => {
                    self.packets.insert(Packet::Answer(shard, true, CoordinatorInput::Committed));
                }
                TransactionOutput::Apply => self.shard(shard).applying = true,
                TransactionOutput::Tell(to, outcome) => {
                    self.packets.insert(Packet::Ended(to, outcome));
                }
                TransactionOutput::Ask(to) => {
                    self.packets.insert(Packet::Ask { from: shard, to });
                }
                TransactionOutput::Answer(outcome) => {
                    if let (Some(to), Some(outcome)) = (asker, outcome) {
                        self.packets.insert(Packet::Ended(to, outcome));
                    }
                }
                TransactionOutput::Done => {
                    self.packets.insert(Packet::Done { from: shard });
                }
                TransactionOutput::Trim => self.shard(shard).trimming = true,
                TransactionOutput::Release => self.shard(shard).held = false,
            }
        }
    }

    fn arrive(&mut self, packet: Packet) {
        match packet {
            Packet::Prepare(shard) => {
                // A second request waits for a taken write lock; an overwritten shard refuses.
                let one = self.shard(shard);
                if one.held {
                    return;
                }
                if one.overwritten || one.applied {
                    self.packets.insert(Packet::Answer(shard, false, CoordinatorInput::Refused));
                    return;
                }
                one.held = true;
                self.tickets += 1;
                let ticket = Ticket(self.tickets);
                self.hear(shard, None, TransactionInput::Prepare { decider: ShardId(0), ticket });
            }
            Packet::Decide(shard, ticket, participants) => {
                self.hear(shard, None, TransactionInput::Decide { ticket, participants });
            }
            Packet::Answer(shard, of_decision, input) => {
                if self.waits == Some((shard, of_decision)) {
                    self.hear_coordinator(input);
                }
            }
            Packet::Ended(shard, outcome) => self.hear(shard, None, TransactionInput::Ended(outcome)),
            Packet::Ask { from, to } => self.hear(to, Some(from), TransactionInput::Ask),
            Packet::Done { from } => self.hear(ShardId(0), None, TransactionInput::Done(from)),
        }
    }

    fn crash(&mut self, config: &TransactionWorldConfig, shard: ShardId, landed: bool) {
        let one = self.shard(shard);
        let appended = one.appending.take().filter(|_| landed);
        let is_decision = matches!(appended, Some(TransactionRecord::Decided { .. }));
        one.record = appended.or(one.record.take());
        let record = one.record.clone();
        one.home = TransactionHome::begin(shard, record.clone().map(|record| (ID, record)), config.without);
        (one.applying, one.trimming, one.held) = (false, false, record.is_some());
        let outputs = one.home.resume(ID);
        self.decided |= is_decision;
        self.carry((shard, false), None, outputs);
    }

    fn check(&mut self) {
        let lacks = |shard: &Shard| self.decided && !shard.applied && shard.record.is_none();
        let applies = |shard: &Shard| shard.applied && !self.decided;
        if self.shards.iter().any(|shard| lacks(shard) || applies(shard)) {
            self.breaks(Promise::T1);
        }
        let unseen = self.told == Some(Outcome::Committed) && !self.shards.iter().all(|shard| shard.applied);
        if unseen || (self.told == Some(Outcome::Aborted) && self.decided) {
            self.breaks(Promise::T2);
        }
    }
}

impl Space for World {
    type Config = TransactionWorldConfig;
    type Event = Event;

    fn begin(config: &TransactionWorldConfig) -> Self {
        let shard = |shard| Shard {
            home: TransactionHome::begin(ShardId(shard), [], config.without),
            record: None,
            appending: None,
            applying: false,
            trimming: false,
            held: false,
            applied: false,
            overwritten: false,
        };
        let (coordinator, outputs) = Coordinator::begin(&(0..config.shards).map(ShardId).collect());
        let mut world = Self {
            coordinator: Some(coordinator),
            waits: None,
            told: None,
            shards: (0..config.shards).map(shard).collect(),
            packets: BTreeSet::new(),
            tickets: 0,
            decided: false,
            crashes: 0,
            lost: 0,
            doubled: 0,
            broken: None,
        };
        world.coordinate(outputs);
        world
    }

    fn events(&self, config: &TransactionWorldConfig, events: &mut Vec<Event>) {
        for (at, packet) in (0u8..).zip(&self.packets) {
            events.push(Event::Deliver(at));
            if self.doubled < config.doubled && packet.may_be_doubled() {
                events.push(Event::Double(at));
            }
            if self.lost < config.lost {
                events.push(Event::Lose(at));
            }
        }
        if self.coordinator.as_ref().is_some_and(|coordinator| !coordinator.is_over()) {
            events.extend([Event::GiveUp, Event::Vanish]);
        }
        for (at, shard) in (0u8..).zip(&self.shards) {
            if shard.appending.is_some() {
                events.extend([Event::Append(at), Event::Refuse(at)]);
            }
            if shard.applying {
                events.push(Event::Apply(at));
            }
            if shard.trimming {
                events.push(Event::Trim(at));
            }
            if shard.home.open().next().is_some() {
                events.push(Event::Overdue(at));
            }
            if self.crashes < config.crashes {
                events.push(Event::Crash(at, false));
                if shard.appending.is_some() {
                    events.push(Event::Crash(at, true));
                }
            }
            if !shard.held && !shard.overwritten {
                events.push(Event::Overwrite(at));
            }
        }
    }

    fn happen(&mut self, config: &TransactionWorldConfig, event: Event) {
        let of = |at: u8| ShardId(u16::from(at));
        match event {
            Event::Deliver(at) | Event::Double(at) | Event::Lose(at) => {
                let Some(packet) = self.packets.iter().nth(usize::from(at)).cloned() else { return };
                if matches!(event, Event::Double(_)) {
                    self.doubled += 1;
                } else {
                    self.packets.remove(&packet);
                }
                if matches!(event, Event::Lose(_)) {
                    self.lost += 1;
                } else {
                    self.arrive(packet);
                }
            }
            Event::GiveUp => self.hear_coordinator(CoordinatorInput::Lost),
            Event::Vanish => self.coordinator = None,
            Event::Append(at) => {
                let one = self.shard(of(at));
                one.record = one.appending.clone();
                let is_decision = matches!(one.record, Some(TransactionRecord::Decided { .. }));
                self.decided |= is_decision;
                self.hear(of(at), None, TransactionInput::Appended);
            }
            Event::Refuse(at) => self.hear(of(at), None, TransactionInput::NotAppended),
            Event::Apply(at) => {
                let one = self.shard(of(at));
                (one.applying, one.applied) = (false, true);
                if one.overwritten {
                    self.breaks(Promise::T3);
                }
                self.hear(of(at), None, TransactionInput::Applied);
            }
            Event::Trim(at) => {
                let one = self.shard(of(at));
                (one.trimming, one.record) = (false, None);
                self.hear(of(at), None, TransactionInput::Trimmed);
            }
            Event::Overdue(at) => self.hear(of(at), None, TransactionInput::Overdue),
            Event::Crash(at, landed) => {
                self.crashes += 1;
                self.crash(config, of(at), landed);
            }
            Event::Overwrite(at) => self.shard(of(at)).overwritten = true,
        }
        self.check();
    }

    fn finishes(event: Event) -> bool {
        !matches!(
            event,
            Event::Double(_)
                | Event::Lose(_)
                | Event::Vanish
                | Event::Refuse(_)
                | Event::Crash(..)
                | Event::Overwrite(_)
        )
    }

    fn broken(&self) -> Option<Promise> {
        self.broken
    }

    fn is_written(&self) -> bool {
        self.coordinator.as_ref().is_none_or(Coordinator::is_over)
    }

    fn is_finished(&self) -> bool {
        self.is_written() && self.shards.iter().all(|shard| !shard.held && shard.record.is_none())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use nigh_terms::ByteSize;

    use super::*;

    const LIMITS: Limits = Limits { time: Duration::from_secs(120), memory: ByteSize::gib(4) };

    #[test]
    fn a_transaction_is_whole_in_every_order_of_events_and_ends() {
        let mut states = 0;
        for config in transaction_configurations() {
            let explored = explore_transactions(&config, &LIMITS);
            assert!(explored.violations.is_empty(), "{}: {:#?}", config.name, explored.violations);
            assert!(explored.complete && explored.states > 100, "{}: {explored:?}", config.name);
            let stuck = explored.stuck.map(|stuck| (stuck.writes, stuck.work));
            assert_eq!(stuck, Some((0, 0)), "{}", config.name);
            states += explored.states;
        }
        assert!(states < 260_000, "{states} states: these worlds are to stay small");
    }

    #[test]
    fn every_rule_of_transactions_is_missed() {
        for weakened in weakened_transactions() {
            let explored = explore_transactions(&weakened.configuration, &LIMITS);
            assert!(!explored.violations.is_empty(), "{:?} is not missed: {explored:?}", weakened.rule);
        }
    }
}
