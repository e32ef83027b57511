//! A transaction over several objects: what its coordinator and the homes of its shards decide.
//!
//! Two-phase commit with presumed abort. The first of the transaction's shards decides. Its home holds the write locks
//! of its objects in memory until the coordinator reports that all other homes are prepared; its record of that is the
//! commit point. Every other home appends a record when it is prepared, and holds its write locks until it knows the
//! outcome. A home that recovers such a record asks the deciding home. If the deciding home has no decision, it answers
//! "aborted" and forgets what it held, so that the answer stays true. No commit is acknowledged before every shard has
//! applied its writes. This module only decides: the shell holds the locks, appends the records and sends the messages.
//! See docs/design/transactions.md.

mod coordinator;

use std::collections::{BTreeMap, BTreeSet};

use nigh_terms::{ShardId, invariant};
use serde::{Deserialize, Serialize};

pub use self::coordinator::{Coordinator, CoordinatorInput, CoordinatorOutput};

/// Names one transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct TransactionId(pub u128);

/// Names one period in which the deciding home holds the write locks. A decision with another ticket is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Ticket(pub u64);

/// How a transaction ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Outcome {
    /// All of its writes take place.
    Committed,
    /// None of its writes takes place.
    Aborted,
}

/// What a shard's ledger records of a transaction.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TransactionRecord {
    /// This shard is prepared; `decider` decides.
    Prepared {
        /// The deciding shard.
        decider: ShardId,
    },
    /// The transaction is committed.
    Decided {
        /// The prepared shards.
        participants: BTreeSet<ShardId>,
    },
}

/// Rules that a test can leave out, to prove that they are needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub enum TransactionRule {
    /// A home reports that it is prepared only when its record is durable.
    RecordBeforePrepared,
    /// A deciding home that is asked about an undecided transaction forgets it: it has answered "aborted".
    AskedForgets,
    /// A decision counts only with the ticket that the deciding home gave out.
    DecisionNamesItsHolding,
    /// No commit is acknowledged before all shards have applied their writes.
    AllApplyBeforeAnswer,
    /// A decision is kept until every participant has applied it.
    DecisionOutlivesParticipants,
    /// A prepared home waits for the decision and never decides itself.
    PreparedWaits,
    /// Write locks are held until the ledger durably says that the record is no longer needed.
    TurnsOutlastTheRecord,
}

impl TransactionRule {
    /// Every rule.
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

/// The state of a transaction at a home.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Phase {
    /// The deciding home holds the write locks, in memory only.
    Held(Ticket),
    /// The record that this home is prepared is being appended.
    Preparing { decider: ShardId },
    /// The record is durable; the deciding home knows the outcome.
    Prepared { decider: ShardId },
    /// The record of the decision is being appended.
    Deciding { participants: BTreeSet<ShardId> },
    /// The transaction is committed and its writes take place here. At the deciding home, `open` are the participants
    /// that have not applied theirs.
    Applying { open: BTreeSet<ShardId>, decides: bool, applied: bool },
    /// The record is no longer needed, and that is being made durable.
    Ending { decides: bool },
}

impl Phase {
    /// How near its end a transaction is. A transaction never moves to a lower rank.
    const fn rank(&self) -> u8 {
        match self {
            Self::Held(_) | Self::Preparing { .. } => 0,
            Self::Prepared { .. } | Self::Deciding { .. } => 1,
            Self::Applying { .. } => 2,
            Self::Ending { .. } => 3,
        }
    }

    /// True if the transaction is committed and its home may not forget it yet.
    const fn is_applying(&self) -> bool {
        matches!(self, Self::Applying { .. })
    }
}

/// What a home's transaction machine takes in.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TransactionInput {
    /// The write locks of the transaction's objects here are held, and their preconditions hold.
    Prepare {
        /// The deciding shard.
        decider: ShardId,
        /// A new random ticket.
        ticket: Ticket,
    },
    /// The ledger has the transaction's record.
    Appended,
    /// The ledger does not have the record, and never will.
    NotAppended,
    /// The coordinator reports that all of `participants` are prepared.
    Decide {
        /// The ticket that the deciding home answered with.
        ticket: Ticket,
        /// All shards but the deciding one.
        participants: BTreeSet<ShardId>,
    },
    /// A participant asks for the outcome.
    Ask,
    /// The outcome.
    Ended(Outcome),
    /// The ledger has the transaction's writes.
    Applied,
    /// The ledger durably says that the record is no longer needed.
    Trimmed,
    /// This participant has applied its writes for good.
    Done(ShardId),
    /// Nothing was heard of the transaction for a long time.
    Overdue,
}

/// What the shell must do for a transaction at a home.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TransactionOutput {
    /// Append this record, with the transaction's writes here.
    Append(TransactionRecord),
    /// Tell the coordinator that this home is prepared, with the ticket.
    Prepared(Ticket),
    /// Tell the coordinator that this home is not prepared, or has not decided: none of the writes takes place.
    Refused,
    /// Tell the coordinator that the transaction is committed and visible to every later read.
    Committed,
    /// Carry out the transaction's writes, under their locks.
    Apply,
    /// Tell a participant the outcome.
    Tell(ShardId, Outcome),
    /// Ask the deciding shard for the outcome.
    Ask(ShardId),
    /// Answer the participant that asked; with none it must ask again.
    Answer(Option<Outcome>),
    /// Tell the deciding shard that the writes are applied for good.
    Done,
    /// Record durably in the ledger that the record is no longer needed.
    Trim,
    /// Release the transaction's write locks.
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
    /// The transactions of a new home of `shard`, with the records that the ledger has. `resume` says what to do for
    /// each.
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

    /// What a new home does for a recovered transaction. The write locks of its objects are held.
    #[must_use]
    pub fn resume(&self, id: TransactionId) -> Vec<TransactionOutput> {
        match self.open.get(&id) {
            Some(Phase::Prepared { decider }) => vec![TransactionOutput::Ask(*decider)],
            Some(Phase::Applying { open, .. }) => {
                let tell = open.iter().map(|shard| TransactionOutput::Tell(*shard, Outcome::Committed));
                // The participants apply their writes at the same time.
                tell.chain([TransactionOutput::Apply]).collect()
            }
            _ => Vec::new(),
        }
    }

    /// The transactions that have not ended.
    pub fn open(&self) -> impl Iterator<Item = TransactionId> + '_ {
        self.open.keys().copied()
    }

    fn holds(&self, rule: TransactionRule) -> bool {
        self.without != Some(rule)
    }

    /// Takes one input for `id`.
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
            // The decision is for other locks, or for none: its coordinator has an answer already, or never gets one.
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
            // The coordinator aborts before it has asked for a decision.
            (Some(Phase::Held(_)), TransactionInput::Ended(Outcome::Aborted)) => (None, vec![Out::Release]),
            // This participant has applied the outcome for good: it forgets an unapplied transaction only when it is
            // told the outcome.
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
            // The locks are released, so a decision with this ticket will be refused.
            (Some(Phase::Held(_)), TransactionInput::Overdue) => (None, vec![Out::Release]),
            (Some(Phase::Applying { open, decides, applied }), TransactionInput::Overdue) => {
                let tell = open.iter().map(|shard| Out::Tell(*shard, Outcome::Committed)).collect();
                (Some(Phase::Applying { open, decides, applied }), tell)
            }
            // A doubled or late message.
            (phase, _) => (phase, Vec::new()),
        };
        // A promise to the deciding shard, or a decision, is never taken back.
        let goes_back = next.as_ref().is_some_and(|next| next.rank() < rank);
        invariant!(!goes_back, "{id:?} goes back to {next:?} at {:?}", self.shard);
        // A participant that asks about an unknown transaction gets the answer "aborted".
        invariant!(!is_applying || next.is_some(), "{id:?} is committed and is forgotten at {:?}", self.shard);
        if let Some(phase) = next {
            self.open.insert(id, phase);
        }
        out
    }

    /// Ends a committed transaction when all shards have applied it.
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
    /// The ticket of a home that does not decide.
    fn default() -> Self {
        Self(0)
    }
}

#[cfg(test)]
mod tests;
