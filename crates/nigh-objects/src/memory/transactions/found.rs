//! Transactions that a home finds in its ledger when it begins: it holds their write locks before any write asks for
//! one.

use std::collections::BTreeMap;
use std::sync::Arc;

use nigh_data::ObjectError;
use nigh_engine::Change;
use nigh_engine::journal::RecoveredRecord;
use nigh_protocol::{TransactionHome, TransactionId, TransactionOutput, TransactionRecord};
use nigh_terms::{Epoch, ShardId, Version};

use super::home::{Home, OpenTransaction, TURNS_WITHIN};
use crate::memory::ObjectMemoryState;
use crate::sync::{spawn, timeout};
use crate::transaction_part::{decode_about, decode_body};

/// A transaction that a home has found in its ledger.
pub(in crate::memory) struct FoundTransaction {
    id: TransactionId,
    record: TransactionRecord,
    version: Version,
}

/// Takes the records of transactions out of a ledger's records.
pub(in crate::memory) fn found_in(records: &mut Vec<RecoveredRecord>) -> Result<Vec<FoundTransaction>, ObjectError> {
    let is_one = |record: &mut RecoveredRecord| matches!(record.record.change, Change::Transaction { .. });
    let found = records.extract_if(.., is_one).map(|RecoveredRecord { version, record, .. }| {
        let (id, record) = decode_about(record.change.about()).map_err(|reason| unreadable(version, &reason))?;
        Ok(FoundTransaction { id, record, version })
    });
    found.collect()
}

/// Warns of damaged records, which nobody can carry out; writes that such a transaction had appended stay.
pub(in crate::memory) fn warn_of_lost(lost: &mut Vec<RecoveredRecord>) {
    let is_one = |record: &mut RecoveredRecord| matches!(record.record.change, Change::Transaction { .. });
    for RecoveredRecord { version, .. } in lost.extract_if(.., is_one) {
        tracing::error!(%version, "a transaction that was not over is damaged in the journal: it may be carried out in part");
    }
}

fn unreadable(version: Version, reason: &str) -> ObjectError {
    let reason = format!("the transaction {version}: {reason}");
    ObjectError::Memory { operation: "read the journal", reason }
}

impl ObjectMemoryState {
    /// A home begins here: it takes the write locks of the transactions that it has found before any write asks for
    /// one.
    pub(in crate::memory) async fn find_transactions(
        self: &Arc<Self>,
        (shard, epoch): (ShardId, Epoch),
        found: Vec<FoundTransaction>,
    ) -> Result<(), ObjectError> {
        let mut open = BTreeMap::new();
        let mut records = Vec::new();
        for FoundTransaction { id, record, version } in found {
            let body = self.back.transaction_body(shard, version).await?;
            let (part, bytes) = decode_body(body).map_err(|reason| unreadable(version, &reason))?;
            // Nobody writes yet, so a taken lock means that another transaction in the ledger has not ended.
            let taken = |_| unreadable(version, "its objects are another's that is not over");
            let turns = timeout(TURNS_WITHIN, self.turns_of(&part)).await.map_err(taken)??;
            let found = OpenTransaction::new(part, bytes, turns);
            *found.record.lock() = Some(version);
            open.insert(id, Arc::new(found));
            records.push((id, record));
        }
        if !open.is_empty() {
            tracing::info!(%shard, transactions = open.len(), "transactions are found that are not over");
        }
        let machine = TransactionHome::begin(shard, records, None);
        self.transactions.homes.0.lock().insert(shard, Home { epoch, machine, open });
        Ok(())
    }

    /// Resumes the transactions that `find_transactions` has found; the home is here now.
    pub(in crate::memory) fn resume_transactions(self: &Arc<Self>, shard: ShardId) {
        let found: Vec<(TransactionId, Vec<TransactionOutput>)> = {
            let homes = self.transactions.homes.0.lock();
            let Some(home) = homes.get(&shard) else { return };
            home.open.keys().map(|id| (*id, home.machine.resume(*id))).collect()
        };
        for (id, outputs) in found {
            let inner = Arc::clone(self);
            spawn(async move {
                inner.carry_out(shard, id, outputs).await;
                inner.watch_over(shard, id).await;
            });
        }
    }
}
