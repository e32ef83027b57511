//! A transaction over several objects: what its coordinator and the homes of its shards decide.
//!
//! Two-phase commit with presumed abort. The first of a transaction's shards decides: its home holds the objects' turns
//! in memory until it is told that all others are prepared; its record of that is the commit point. Every other home
//! keeps a record when it is prepared, and holds the turns until it knows how it ended. Who recovers such a record asks
//! the deciding shard, which answers that it was aborted if it knows nothing of it, and forgets what it held when it is
//! asked: what it has told can never become untrue. Nothing is acknowledged before every shard has applied its writes.
//! It holds no turns, writes no records and sends nothing: the shell does. docs/design/transactions.md.

mod coordinator;

use std::collections::{BTreeMap, BTreeSet};

use nigh_terms::{ShardId, invariant};
use serde::{Deserialize, Serialize};

pub use self::coordinator::{Coordinator, CoordinatorInput, CoordinatorOutput};

/// Names one transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct TransactionId(pub u128);

/// Drawn for one holding of turns at the deciding shard: a decision is of that holding, or of none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Ticket(pub u64);

/// How a transaction ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Outcome {
    /// All of its writes take place.
    Committed,
    /// None does.
    Aborted,
}

/// What a shard's ledger says of a transaction.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TransactionRecord {
    /// It is prepared here; that shard decides.
    Prepared {
        /// Which.
        decider: ShardId,
    },
    /// It is committed; these shards are prepared.
    Decided {
        /// Which.
        participants: BTreeSet<ShardId>,
    },
}

/// Rules that a test can leave out, to see that they are missed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub enum TransactionRule {
    /// Who is prepared says so when its record is durable.
    RecordBeforePrepared,
    /// A deciding home that is asked about what it only holds forgets it: it has answered that it was aborted.
    AskedForgets,
    /// A decision is taken for the holding that it names only.
    DecisionNamesItsHolding,
    /// Nothing is acknowledged before all have applied their writes.
    AllApplyBeforeAnswer,
    /// A decision is kept until every participant has applied it.
    DecisionOutlivesParticipants,
    /// Who is prepared does nothing of its own accord.
    PreparedWaits,
    /// Turns are held until it is durable that the record is needed no more.
    TurnsOutlastTheRecord,
}

impl TransactionRule {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::RecordBeforePrepared,
        Self::AskedForgets,
        Self::DecisionNamesItsHolding,
        Self::AllApplyBeforeAnswer,
        Self::DecisionOutlivesParticipants,
        Self::PreparedWaits,
        Self::TurnsOutlastTheRecord,
    ];
}

/// How far a transaction is at a home.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Phase {
    /// Of the deciding shard: in memory only.
    Held(Ticket),
    /// The record that it is prepared is on its way.
    Preparing { decider: ShardId },
    /// The record stands; the deciding shard knows how it ends.
    Prepared { decider: ShardId },
    /// The record of the decision is on its way.
    Deciding { participants: BTreeSet<ShardId> },
    /// It is committed: its writes take place here, and those that the deciding shard has `open` are told.
    Applying { open: BTreeSet<ShardId>, decides: bool, applied: bool },
    /// The record is needed no more, and that is being made durable.
    Ending { decides: bool },
}

impl Phase {
    /// How near its end a transaction is. It comes nearer, or is over.
    const fn rank(&self) -> u8 {
        match self {
            Self::Held(_) | Self::Preparing { .. } => 0,
            Self::Prepared { .. } | Self::Deciding { .. } => 1,
            Self::Applying { .. } => 2,
            Self::Ending { .. } => 3,
        }
    }

    /// Whether its outcome is known to be that it is committed, and others have yet to hear so.
    const fn is_applying(&self) -> bool {
        matches!(self, Self::Applying { .. })
    }
}

/// What a home of transactions hears.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TransactionInput {
    /// The turns of its objects here are held, and what it has seen of them is so.
    Prepare {
        /// The shard that decides.
        decider: ShardId,
        /// Drawn for this.
        ticket: Ticket,
    },
    /// The ledger has its record.
    Appended,
    /// The ledger does not have its record, and never will.
    NotAppended,
    /// Its coordinator says that all of `participants` are prepared.
    Decide {
        /// What the deciding home answered when it was prepared.
        ticket: Ticket,
        /// All shards but this one.
        participants: BTreeSet<ShardId>,
    },
    /// A participant asks how it ended.
    Ask,
    /// It ended so.
    Ended(Outcome),
    /// Its writes stand in the ledger.
    Applied,
    /// That its record is needed no more is durable.
    Trimmed,
    /// A participant has applied its writes for good.
    Done(ShardId),
    /// Nothing was heard of it for long.
    Overdue,
}

/// What is to be done for a transaction at a home.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TransactionOutput {
    /// Keep this in the ledger, with its writes here.
    Append(TransactionRecord),
    /// Tell the coordinator that it is prepared, and with which ticket.
    Prepared(Ticket),
    /// Tell the coordinator that it is not prepared, or not decided: nothing of it takes place.
    Refused,
    /// Tell the coordinator that it is committed, and seen by whoever reads from now on.
    Committed,
    /// Carry its writes out, in their turns.
    Apply,
    /// Tell a participant.
    Tell(ShardId, Outcome),
    /// Ask the deciding shard.
    Ask(ShardId),
    /// Answer who asked; with nothing if it is to ask again.
    Answer(Option<Outcome>),
    /// Answer the deciding shard that the writes are applied for good.
    Done,
    /// Its record is needed no more: say so in the ledger, durably.
    Trim,
    /// Let its turns go.
    Release,
}

/// The transactions at a home of one shard.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TransactionHome {
    shard: ShardId,
    without: Option<TransactionRule>,
    open: BTreeMap<TransactionId, Phase>,
}

impl TransactionHome {
    /// The home of `shard` begins, with the records that the ledger has: what is to be done for each is what `resume`
    /// says.
    #[must_use]
    pub fn begin(
        shard: ShardId,
        records: impl IntoIterator<Item = (TransactionId, TransactionRecord)>,
        without: Option<TransactionRule>,
    ) -> Self {
        let phase = |record| match record {
            TransactionRecord::Prepared { decider } => Phase::Prepared { decider },
            TransactionRecord::Decided { participants } => {
                Phase::Applying { open: participants, decides: true, applied: false }
            }
        };
        let open = records.into_iter().map(|(id, record)| (id, phase(record))).collect();
        Self { shard, without, open }
    }

    /// What a home that begins does for what it has found; the turns of its objects are held.
    #[must_use]
    pub fn resume(&self, id: TransactionId) -> Vec<TransactionOutput> {
        match self.open.get(&id) {
            Some(Phase::Prepared { decider }) => vec![TransactionOutput::Ask(*decider)],
            Some(Phase::Applying { open, .. }) => {
                let tell = open.iter().map(|shard| TransactionOutput::Tell(*shard, Outcome::Committed));
                // Who is told does its part meanwhile.
                tell.chain([TransactionOutput::Apply]).collect()
            }
            _ => Vec::new(),
        }
    }

    /// Which are not over.
    pub fn open(&self) -> impl Iterator<Item = TransactionId> + '_ {
        self.open.keys().copied()
    }

    fn holds(&self, rule: TransactionRule) -> bool {
        self.without != Some(rule)
    }

    /// Takes in what is heard of `id`.
    #[must_use]
    pub fn step(&mut self, id: TransactionId, input: TransactionInput) -> Vec<TransactionOutput> {
        use TransactionOutput as Out;
        let phase = self.open.remove(&id);
        let (rank, is_applying) = phase.as_ref().map_or((0, false), |phase| (phase.rank(), phase.is_applying()));
        let (next, out) = match (phase, input) {
            (None, TransactionInput::Prepare { decider, ticket }) if decider == self.shard => {
                (Some(Phase::Held(ticket)), vec![Out::Prepared(ticket)])
            }
            (None, TransactionInput::Prepare { decider, ticket }) => {
                let mut out = vec![Out::Append(TransactionRecord::Prepared { decider })];
                if !self.holds(TransactionRule::RecordBeforePrepared) {
                    out.push(Out::Prepared(ticket));
                }
                (Some(Phase::Preparing { decider }), out)
            }
            (Some(Phase::Preparing { decider }), TransactionInput::Appended) => {
                let out = if self.holds(TransactionRule::RecordBeforePrepared) {
                    vec![Out::Prepared(Ticket::default())]
                } else {
                    Vec::new()
                };
                (Some(Phase::Prepared { decider }), out)
            }
            (Some(Phase::Preparing { .. } | Phase::Deciding { .. }), TransactionInput::NotAppended) => {
                (None, vec![Out::Release, Out::Refused])
            }
            (Some(Phase::Held(held)), TransactionInput::Decide { ticket, participants })
                if held == ticket || !self.holds(TransactionRule::DecisionNamesItsHolding) =>
            {
                let record = TransactionRecord::Decided { participants: participants.clone() };
                (Some(Phase::Deciding { participants }), vec![Out::Append(record)])
            }
            // Of another holding, or none: whoever says so has been answered, or never will be.
            (phase @ (None | Some(Phase::Held(_))), TransactionInput::Decide { .. }) => (phase, vec![Out::Refused]),
            (Some(Phase::Deciding { participants }), TransactionInput::Appended) => {
                let tell = participants.iter().map(|shard| Out::Tell(*shard, Outcome::Committed));
                let mut out: Vec<Out> = tell.chain([Out::Apply]).collect();
                if !self.holds(TransactionRule::AllApplyBeforeAnswer) {
                    out.push(Out::Committed);
                }
                (Some(Phase::Applying { open: participants, decides: true, applied: false }), out)
            }
            (None, TransactionInput::Ask) => (None, vec![Out::Answer(Some(Outcome::Aborted))]),
            (Some(held @ Phase::Held(_)), TransactionInput::Ask) => {
                let next = (!self.holds(TransactionRule::AskedForgets)).then_some(held);
                (next, vec![Out::Release, Out::Answer(Some(Outcome::Aborted))])
            }
            (Some(phase @ (Phase::Applying { .. } | Phase::Ending { .. })), TransactionInput::Ask) => {
                (Some(phase), vec![Out::Answer(Some(Outcome::Committed))])
            }
            (phase @ Some(_), TransactionInput::Ask) => (phase, vec![Out::Answer(None)]),
            (Some(Phase::Prepared { .. }), TransactionInput::Ended(Outcome::Committed)) => {
                (Some(Phase::Applying { open: BTreeSet::new(), decides: false, applied: false }), vec![Out::Apply])
            }
            (Some(Phase::Prepared { .. }), TransactionInput::Ended(Outcome::Aborted)) => {
                (None, vec![Out::Trim, Out::Release])
            }
            // Its coordinator gives up what it has only asked to be held.
            (Some(Phase::Held(_)), TransactionInput::Ended(Outcome::Aborted)) => (None, vec![Out::Release]),
            // It was applied for good: only such a one is forgotten before it is told.
            (None, TransactionInput::Ended(_)) => (None, vec![Out::Done]),
            (Some(Phase::Applying { open, decides, .. }), TransactionInput::Applied) => {
                self.look(Phase::Applying { open, decides, applied: true })
            }
            (Some(Phase::Applying { mut open, decides, applied }), TransactionInput::Done(shard)) => {
                open.remove(&shard);
                self.look(Phase::Applying { open, decides, applied })
            }
            (Some(Phase::Ending { decides }), TransactionInput::Trimmed) => {
                let done = (!decides).then_some(Out::Done);
                (None, std::iter::once(Out::Release).chain(done).collect())
            }
            (Some(Phase::Prepared { decider }), TransactionInput::Overdue) => {
                if self.holds(TransactionRule::PreparedWaits) {
                    (Some(Phase::Prepared { decider }), vec![Out::Ask(decider)])
                } else {
                    (None, vec![Out::Trim, Out::Release])
                }
            }
            // Whoever holds the ticket finds nothing any more.
            (Some(Phase::Held(_)), TransactionInput::Overdue) => (None, vec![Out::Release]),
            (Some(Phase::Applying { open, decides, applied }), TransactionInput::Overdue) => {
                let tell = open.iter().map(|shard| Out::Tell(*shard, Outcome::Committed)).collect();
                (Some(Phase::Applying { open, decides, applied }), tell)
            }
            // Doubled, or late.
            (phase, _) => (phase, Vec::new()),
        };
        // What was promised to the deciding shard, or decided, is not taken back.
        let goes_back = next.as_ref().is_some_and(|next| next.rank() < rank);
        invariant!(!goes_back, "{id:?} goes back to {next:?} at {:?}", self.shard);
        // A participant that asks about what is unknown is told that it was aborted.
        invariant!(!is_applying || next.is_some(), "{id:?} is committed and is forgotten at {:?}", self.shard);
        if let Some(phase) = next {
            self.open.insert(id, phase);
        }
        out
    }

    /// What is committed ends when all have applied it.
    fn look(&self, phase: Phase) -> (Option<Phase>, Vec<TransactionOutput>) {
        let Phase::Applying { open, decides, applied } = phase else { return (Some(phase), Vec::new()) };
        let waits = !open.is_empty() && self.holds(TransactionRule::DecisionOutlivesParticipants);
        if !applied || waits {
            return (Some(Phase::Applying { open, decides, applied }), Vec::new());
        }
        let tell =
            (decides && self.holds(TransactionRule::AllApplyBeforeAnswer)).then_some(TransactionOutput::Committed);
        let early = (!self.holds(TransactionRule::TurnsOutlastTheRecord)).then_some(TransactionOutput::Release);
        let out = tell.into_iter().chain(early).chain([TransactionOutput::Trim]);
        (Some(Phase::Ending { decides }), out.collect())
    }
}

impl Default for Ticket {
    /// That of a home that does not decide.
    fn default() -> Self {
        Self(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: TransactionId = TransactionId(1);
    const FIRST: ShardId = ShardId(0);
    const OTHER: ShardId = ShardId(1);

    fn home(shard: ShardId) -> TransactionHome {
        TransactionHome::begin(shard, [], None)
    }

    #[test]
    fn a_transaction_of_one_shard_has_one_record_and_ends_when_it_is_trimmed() {
        use TransactionInput as In;
        use TransactionOutput as Out;
        let mut home = home(FIRST);
        let ticket = Ticket(7);
        assert_eq!(home.step(ID, In::Prepare { decider: FIRST, ticket }), [Out::Prepared(ticket)]);
        let none = BTreeSet::new();
        let record = TransactionRecord::Decided { participants: none.clone() };
        assert_eq!(home.step(ID, In::Decide { ticket, participants: none }), [Out::Append(record)]);
        assert_eq!(home.step(ID, In::Appended), [Out::Apply]);
        assert_eq!(home.step(ID, In::Applied), [Out::Committed, Out::Trim]);
        assert_eq!(home.step(ID, In::Trimmed), [Out::Release]);
        assert_eq!(home.open().count(), 0);
    }

    #[test]
    fn who_is_asked_about_what_it_only_holds_never_commits_it() {
        use TransactionInput as In;
        use TransactionOutput as Out;
        let mut home = home(FIRST);
        let ticket = Ticket(7);
        assert_eq!(home.step(ID, In::Prepare { decider: FIRST, ticket }), [Out::Prepared(ticket)]);
        assert_eq!(home.step(ID, In::Ask), [Out::Release, Out::Answer(Some(Outcome::Aborted))]);
        let decide = In::Decide { ticket, participants: [OTHER].into() };
        assert_eq!(home.step(ID, decide), [Out::Refused]);
        assert_eq!(home.step(ID, In::Ask), [Out::Answer(Some(Outcome::Aborted))]);
    }

    #[test]
    fn a_home_that_begins_carries_on_what_its_ledger_has() {
        use TransactionOutput as Out;
        let decided = TransactionRecord::Decided { participants: [OTHER].into() };
        let first = TransactionHome::begin(FIRST, [(ID, decided)], None);
        assert_eq!(first.resume(ID), [Out::Tell(OTHER, Outcome::Committed), Out::Apply]);
        let prepared = TransactionRecord::Prepared { decider: FIRST };
        let other = TransactionHome::begin(OTHER, [(ID, prepared)], None);
        assert_eq!(other.resume(ID), [Out::Ask(FIRST)]);
    }

    #[test]
    fn a_coordinator_aborts_what_one_refuses_and_knows_not_what_came_of_a_decision_without_an_answer() {
        use CoordinatorInput as In;
        use CoordinatorOutput as Out;
        let shards = [FIRST, OTHER].into();
        let (mut coordinator, asked) = Coordinator::begin(&shards);
        assert_eq!(asked, [Out::Prepare(FIRST)]);
        assert_eq!(coordinator.step(In::Prepared(Ticket(7))), [Out::Prepare(OTHER)]);
        let mut lost = coordinator.clone();
        let aborted = [Out::Abort(FIRST), Out::Abort(OTHER), Out::Over(Some(Outcome::Aborted))];
        assert_eq!(coordinator.step(In::Refused), aborted);
        let decide = Out::Decide { shard: FIRST, ticket: Ticket(7), participants: [OTHER].into() };
        assert_eq!(lost.step(In::Prepared(Ticket::default())), [decide]);
        assert_eq!(lost.step(In::Lost), [Out::Over(None)]);
        assert!(lost.is_over() && lost.step(In::Committed).is_empty());
    }
}
