//! Reads a ledger's records for a new home.

use std::sync::Arc;

use crate::write_back::{WriteOrigin, fenced, token_in, written_by};
use nigh_data::ObjectId;
use nigh_engine::Change;
use nigh_engine::journal::RecoveredRecord;
use nigh_protocol::{LedgerRecord, Member, ReplayedRecord, RequestId, Write};

/// The acknowledged writes for the home. A record without a writer counts as written by `before`, which sends no write
/// again.
pub(super) fn replayed(records: Vec<RecoveredRecord>, before: Member) -> Vec<ReplayedRecord<ObjectId>> {
    let mut records = records;
    records.sort_by_key(|record| record.version);
    let replay = |(number, RecoveredRecord { version, record, .. }): (u64, RecoveredRecord)| {
        let about = record.change.about();
        let write = match &record.change {
            Change::Put { .. } | Change::Amend { .. } => Write::Put,
            Change::Delete { .. } => Write::Delete,
            // The writes of a transaction get records of their own.
            Change::Transaction { .. } => return None,
            Change::Fence { .. } => {
                return fenced(about).map(|member| ReplayedRecord { version, record: LedgerRecord::Fence { member } });
            }
        };
        let (writer, request, token) = match written_by(about) {
            Some(WriteOrigin { member, request, token }) => (member, request, token),
            None => (before, RequestId(number), token_in(about)),
        };
        let object = ObjectId { namespace: record.namespace, bucket: record.bucket, key: record.key };
        let record = LedgerRecord::Write { object, write, token: Arc::new(token), writer, request };
        Some(ReplayedRecord { version, record })
    };
    (0..).zip(records).filter_map(replay).collect()
}
