//! Transactions over several objects: all of their writes take place, or none.
//!
//! Optimistic: the node that named a transaction keeps it in memory, with what it has been shown (`open`, `requests`).
//! The commit asks the homes of its shards to lock the objects and to compare (`commit`, `home`), by the machines of
//! `nigh_protocol`. `transaction_part` is a transaction's part at a shard, and its form in the ledger.
//! docs/design/transactions.md.

mod carrying_out;
mod commit;
mod found;
mod home;
mod open;
mod requests;

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

/// The most bytes that a transaction may write, over all its objects.
pub(in crate::memory) const TRANSACTION_BYTES_MAX: u64 = 16 << 20;
/// The most ended transactions whose writes a home remembers, for a coordinator that missed the answer.
const FINISHED_MAX: usize = 4096;

/// A home's answer to a request to prepare a transaction.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum PrepareOutcome {
    /// The home is prepared.
    Ready(Ticket),
    /// These objects have changed since the transaction saw them.
    Changed(Vec<ObjectId>),
}

/// The objects that a transaction has written, with their versions.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct WrittenVersions(pub(crate) Vec<(ObjectId, Stamp)>);

/// The writes of ended transactions at the homes here.
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
