//! One transaction over several shards, in every order of events: homes that crash and begin again with what their ledgers
//! have, messages that are lost and doubled, a coordinator that is lost, and others who write as soon as they may.
//!
//! The machines are those of `nigh_protocol::transaction`. A question that is answered, as calls are, is asked once;
//! what a home says of its own accord may be doubled. Carrying a write out is not taken to be the same the second time:
//! one that comes after somebody else's is a lost update, though a ledger would know it by its name.

use std::collections::BTreeSet;

use nigh_protocol::{
    Coordinator, CoordinatorInput, CoordinatorOutput, Outcome, Ticket, TransactionHome, TransactionId,
    TransactionInput, TransactionOutput, TransactionRecord, TransactionRule,
};
use nigh_terms::ShardId;

use crate::explore::{ExplorationResult, explore_space};
use crate::ghost::Promise;
use crate::search::{Limits, Space};

const ID: TransactionId = TransactionId(1);

/// The bounds of a world.
#[derive(Clone, Copy, Debug)]
pub struct TransactionWorldConfig {
    /// What it is called.
    pub name: &'static str,
    /// What is special in it.
    pub about: &'static str,
    shards: u16,
    crashes: u8,
    lost: u8,
    doubled: u8,
    without: Option<TransactionRule>,
}

/// The worlds in which no promise is broken.
#[must_use]
pub fn transaction_configurations() -> Vec<TransactionWorldConfig> {
    let bounds = |name, about, shards, crashes, lost, doubled| TransactionWorldConfig {
        name,
        about,
        shards,
        crashes,
        lost,
        doubled,
        without: None,
    };
    vec![
        bounds("transaction-one-shard", "one shard; it crashes twice", 1, 2, 1, 1),
        bounds("transaction-crashes", "two shards, which crash twice", 2, 2, 0, 0),
        bounds("transaction-messages", "two shards; one crashes, messages are lost and doubled", 2, 1, 1, 1),
        bounds("transaction-three-shards", "three shards; coordinator, ledgers and others strike", 3, 0, 0, 0),
    ]
}

/// A rule, and the world that misses it.
#[derive(Clone, Copy, Debug)]
pub struct WeakenedTransaction {
    /// The rule that is left out.
    pub rule: TransactionRule,
    /// What goes wrong.
    pub about: &'static str,
    /// In which world.
    pub configuration: TransactionWorldConfig,
}

/// Each rule left out.
#[must_use]
pub fn weakened_transactions() -> Vec<WeakenedTransaction> {
    let weakened = |rule| {
        let about = match rule {
            TransactionRule::RecordBeforePrepared => {
                "a home that crashes has forgotten what it said it was prepared for"
            }
            TransactionRule::AskedForgets => "one shard was told that it is aborted, and then it is decided",
            TransactionRule::DecisionNamesItsHolding => "a decision is taken for turns that were let go in between",
            TransactionRule::AllApplyBeforeAnswer => "it is acknowledged, and a reader sees what was before",
            TransactionRule::DecisionOutlivesParticipants => {
                "a shard that did not hear of the decision is told of none"
            }
            TransactionRule::PreparedWaits => "a prepared shard gives up what is decided",
            TransactionRule::TurnsOutlastTheRecord => "a home that crashes carries it out over what was written since",
        };
        let configuration = TransactionWorldConfig {
            name: "transaction-weakened",
            about,
            shards: 2,
            crashes: 1,
            lost: 1,
            doubled: 1,
            without: Some(rule),
        };
        WeakenedTransaction { rule, about, configuration }
    };
    TransactionRule::ALL.into_iter().map(weakened).collect()
}

/// Explores a world until all of it is seen, a promise is broken, or one of `limits` is met.
#[must_use]
pub fn explore_transactions(config: &TransactionWorldConfig, limits: &Limits) -> ExplorationResult {
    explore_space::<World>(config, limits)
}

/// What is on its way.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Packet {
    Prepare(ShardId),
    Decide(ShardId, Ticket, BTreeSet<ShardId>),
    /// To the coordinator, of the call that this shard got: to decide, or to prepare.
    Answer(ShardId, bool, CoordinatorInput),
    /// To a home: how it has ended, by whom it is to be answered if it is the deciding one.
    Ended(ShardId, Outcome),
    Ask {
        from: ShardId,
        to: ShardId,
    },
    Done {
        from: ShardId,
    },
}

impl Packet {
    /// Calls are made once; what is said of its own accord is said again.
    const fn may_be_doubled(&self) -> bool {
        matches!(self, Self::Prepare(_) | Self::Ended(..) | Self::Ask { .. } | Self::Done { .. })
    }
}

/// A shard: what is durable of it, and what is under way.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Shard {
    home: TransactionHome,
    record: Option<TransactionRecord>,
    appending: Option<TransactionRecord>,
    applying: bool,
    trimming: bool,
    held: bool,
    /// The transaction's writes stand in the ledger.
    applied: bool,
    /// Somebody has written since it was held.
    overwritten: bool,
}

/// A state.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct World {
    coordinator: Option<Coordinator>,
    /// The call that it waits for, as of an answer.
    waits: Option<(ShardId, bool)>,
    /// What its client was told.
    told: Option<Outcome>,
    shards: Vec<Shard>,
    /// In order, each once.
    packets: BTreeSet<Packet>,
    tickets: u64,
    /// A decision has come to stand in a ledger.
    decided: bool,
    crashes: u8,
    lost: u8,
    doubled: u8,
    broken: Option<Promise>,
}

/// What happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// The packet of this place arrives.
    Deliver(u8),
    /// It arrives, and again later.
    Double(u8),
    /// It is lost.
    Lose(u8),
    /// The coordinator waits no longer.
    GiveUp,
    /// The coordinator is gone.
    Vanish,
    /// The ledger has a home's record.
    Append(u8),
    /// The ledger refuses it.
    Refuse(u8),
    /// The writes stand.
    Apply(u8),
    /// That the record is needed no more is durable.
    Trim(u8),
    /// Nothing was heard for long.
    Overdue(u8),
    /// A home crashes and begins again; what it was appending came to stand, or did not.
    Crash(u8, bool),
    /// Somebody else writes what the transaction has seen.
    Overwrite(u8),
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
                // Who holds the turns already keeps the second waiting; who has seen what is no more is refused.
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
