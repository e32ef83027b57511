//! The messages and events of a world of transactions.

use std::collections::BTreeSet;

use nigh_protocol::{CoordinatorInput, Outcome, Ticket};
use nigh_terms::ShardId;

/// A message on its way.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Packet {
    Prepare(ShardId),
    Decide(ShardId, Ticket, BTreeSet<ShardId>),
    /// To the coordinator: a shard's answer to the call to decide (true) or to prepare (false).
    Answer(ShardId, bool, CoordinatorInput),
    /// To a home: the outcome of the transaction.
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
    /// Calls are made once; a home's own messages may be doubled.
    pub(super) const fn may_be_doubled(&self) -> bool {
        matches!(self, Self::Prepare(_) | Self::Ended(..) | Self::Ask { .. } | Self::Done { .. })
    }
}

/// An event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// The packet with this index arrives.
    Deliver(u8),
    /// The packet with this index arrives now and again later.
    Double(u8),
    /// The packet with this index is lost.
    Lose(u8),
    /// The coordinator stops waiting.
    GiveUp,
    /// The coordinator is lost.
    Vanish,
    /// The ledger appends a home's record.
    Append(u8),
    /// The ledger rejects a home's record.
    Refuse(u8),
    /// A home applies the writes.
    Apply(u8),
    /// The ledger durably says that a home's record is no longer needed.
    Trim(u8),
    /// A timeout at a home.
    Overdue(u8),
    /// A home crashes and starts again; its unfinished append succeeded (true) or not.
    Crash(u8, bool),
    /// Another client writes what the transaction has read.
    Overwrite(u8),
}
