//! The coordinator of a transaction: which home it asks next.

use std::collections::BTreeSet;

use nigh_terms::{ShardId, invariant};

use super::{Outcome, Ticket};

/// What a coordinator takes in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CoordinatorInput {
    /// The home that was asked is prepared.
    Prepared(Ticket),
    /// The home that was asked refuses: nothing takes place there.
    Refused,
    /// The deciding home reports that all shards have applied the transaction.
    Committed,
    /// No answer arrived.
    Lost,
}

/// What a coordinator does next.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CoordinatorOutput {
    /// Ask a home to prepare.
    Prepare(ShardId),
    /// Tell the deciding home that all others are prepared.
    Decide {
        /// The deciding shard.
        shard: ShardId,
        /// The ticket that it answered with.
        ticket: Ticket,
        /// All other shards.
        participants: BTreeSet<ShardId>,
    },
    /// Tell a home that the transaction is aborted. Nobody waits for an answer.
    Abort(ShardId),
    /// The transaction is over for the coordinator. None if it does not know the outcome.
    Over(Option<Outcome>),
}

/// Asks the homes of a transaction one after the other, in the order of their numbers, so that two transactions never
/// wait for each other.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Coordinator {
    /// In order; the first shard decides.
    shards: Vec<ShardId>,
    prepared: usize,
    ticket: Ticket,
    over: bool,
}

impl Coordinator {
    /// Begins a transaction over `shards`.
    #[must_use]
    pub fn begin(shards: &BTreeSet<ShardId>) -> (Self, Vec<CoordinatorOutput>) {
        let shards: Vec<ShardId> = shards.iter().copied().collect();
        let first = shards.first().copied();
        let out = first.map_or(CoordinatorOutput::Over(Some(Outcome::Committed)), CoordinatorOutput::Prepare);
        (Self { over: shards.is_empty(), shards, prepared: 0, ticket: Ticket::default() }, vec![out])
    }

    /// True if it has nothing more to do.
    #[must_use]
    pub const fn is_over(&self) -> bool {
        self.over
    }

    /// Takes in the answer to the last question, or its absence.
    #[must_use]
    pub fn step(&mut self, input: CoordinatorInput) -> Vec<CoordinatorOutput> {
        let (prepared, shards) = (self.prepared, self.shards.len());
        // Each home answers once, in the order of the shards: a decision names those that are prepared.
        invariant!(prepared <= shards, "{prepared} homes of {shards} are prepared for a transaction");
        let decides = prepared == shards;
        let Some(&first) = self.shards.first().filter(|_| !self.over) else { return Vec::new() };
        match input {
            CoordinatorInput::Prepared(ticket) if !decides => {
                if self.prepared == 0 {
                    self.ticket = ticket;
                }
                self.prepared += 1;
                vec![match self.shards.get(self.prepared) {
                    Some(next) => CoordinatorOutput::Prepare(*next),
                    None => CoordinatorOutput::Decide {
                        shard: first,
                        ticket: self.ticket,
                        participants: self.shards[1..].iter().copied().collect(),
                    },
                }]
            }
            CoordinatorInput::Committed if decides => {
                self.over = true;
                vec![CoordinatorOutput::Over(Some(Outcome::Committed))]
            }
            // The transaction may be decided; the deciding home tells the others.
            CoordinatorInput::Lost if decides => {
                self.over = true;
                vec![CoordinatorOutput::Over(None)]
            }
            CoordinatorInput::Refused | CoordinatorInput::Lost => {
                self.over = true;
                // The home that was asked last and did not answer may be prepared.
                let asked = if decides { 1..self.shards.len() } else { 0..self.prepared + 1 };
                let abort = self.shards[asked].iter().map(|shard| CoordinatorOutput::Abort(*shard));
                abort.chain([CoordinatorOutput::Over(Some(Outcome::Aborted))]).collect()
            }
            CoordinatorInput::Prepared(_) | CoordinatorInput::Committed => Vec::new(),
        }
    }
}
