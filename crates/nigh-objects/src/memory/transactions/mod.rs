//! Transactions over several objects: all of their writes take place, or none.
//!
//! Optimistic: a transaction is kept in the memory of the node that gave it its name, with what it has been shown
//! (`open`); its commit asks the homes of its shards to hold the objects' turns and to compare (`commit`, `home`), by
//! the machines of `nigh_protocol`. What it is at a shard, and how a ledger keeps that, is `transaction_part`.
//! docs/design/transactions.md.

mod carrying_out;
mod commit;
mod found;
mod home;
mod open;

use std::collections::{HashMap, VecDeque};

use nigh_data::ObjectId;
use nigh_protocol::{Stamp, Ticket, TransactionId};
use nigh_terms::ShardId;
use serde::{Deserialize, Serialize};

pub use self::commit::{CommittedTransaction, WrittenObject};
pub(super) use self::found::{found_in, warn_of_lost};
use self::home::TransactionHomes;
use self::open::OpenTransactions;
pub use self::open::{NewTransaction, TransactionName};
use crate::sync::Mutex;

/// The bytes that a transaction may write, of all its objects together.
pub(in crate::memory) const TRANSACTION_BYTES_MAX: u64 = 16 << 20;
/// Ended transactions whose writes a home remembers, for a coordinator that missed the answer.
const FINISHED_MAX: usize = 4096;

/// What a home says when it is to prepare a transaction.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum PrepareOutcome {
    /// It is.
    Ready(Ticket),
    /// These objects have changed since the transaction was shown them.
    Changed(Vec<ObjectId>),
}

/// What a transaction has written, with the versions.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct WrittenVersions(pub(crate) Vec<(ObjectId, Stamp)>);

/// What transactions have written at the homes here.
#[derive(Debug, Default)]
struct FinishedTransactions {
    written: HashMap<(ShardId, TransactionId), WrittenVersions>,
    order: VecDeque<(ShardId, TransactionId)>,
}

impl FinishedTransactions {
    fn note(&mut self, shard: ShardId, id: TransactionId, written: WrittenVersions) {
        if self.written.insert((shard, id), written).is_none() {
            self.order.push_back((shard, id));
        }
        if self.order.len() > FINISHED_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.written.remove(&oldest);
        }
    }

    fn get(&self, shard: ShardId, id: TransactionId) -> Option<WrittenVersions> {
        self.written.get(&(shard, id)).cloned()
    }
}

/// The transactions of this process: open ones of its clients, and those at its homes.
#[derive(Default)]
pub(in crate::memory) struct Transactions {
    open: Mutex<OpenTransactions>,
    homes: TransactionHomes,
    finished: Mutex<FinishedTransactions>,
}
