//! The records of transactions in the ledger: no object's writes, and kept until all of the transaction's writes have
//! their own records.

use bytes::Bytes;
use nigh_data::{ObjectError, ObjectId, Tags};
use nigh_engine::{Body, INLINE_MAX_BYTES, LedgerError, PIECE_MAX_BYTES};
use nigh_protocol::TransactionRecord;
use nigh_terms::{Epoch, ShardId, Version};

use super::WriteBack;
use super::policy::WriteMode;
use crate::transaction_part::{Part, encode};

impl WriteBack {
    /// Refuses objects for which a transaction cannot be all or nothing: ephemeral ones, and those that are written
    /// from outside.
    pub(crate) fn check_in_transaction(&self, object: &ObjectId, tags: &Tags) -> Result<(), ObjectError> {
        let why = if self.is_shared(object) {
            "of a bucket that others write at the store"
        } else if self.mode(object, tags) == WriteMode::Ephemeral {
            "that is ephemeral"
        } else {
            return Ok(());
        };
        Err(ObjectError::InvalidRequest(format!("an object {why} cannot be in a transaction: {}", object.key)))
    }

    /// Appends the record of a transaction at a shard. It is durable when this returns.
    pub(crate) async fn append_transaction(
        &self,
        (shard, epoch): (ShardId, Epoch),
        record: &TransactionRecord,
        part: &Part,
        bytes: &[Bytes],
    ) -> Result<Version, ObjectError> {
        let unkept = |reason| ObjectError::Memory { operation: "keep a transaction in the journal", reason };
        let (record, body) = encode(record, part, bytes).map_err(unkept)?;
        let mut body = Bytes::from(body);
        let body = if body.len() <= INLINE_MAX_BYTES {
            Body::Inline(body)
        } else {
            let mut staged = Vec::new();
            while !body.is_empty() {
                let piece = body.split_to(body.len().min(PIECE_MAX_BYTES));
                staged.push(self.ledger.stage(shard, piece).await?);
            }
            Body::Staged(staged)
        };
        let appended = self.ledger.append_under(shard, epoch, record, body).await;
        if matches!(appended, Err(LedgerError::Full)) {
            self.dirty.lock().want_all(self.clock.monotonic());
            self.work.notify_one();
        }
        Ok(appended?.version)
    }

    /// The body of a transaction's record.
    pub(crate) async fn transaction_body(&self, shard: ShardId, version: Version) -> Result<Bytes, ObjectError> {
        let mut body = Vec::new();
        loop {
            let piece = self.ledger.read(shard, version, body.len() as u64).await?;
            if piece.is_empty() {
                return Ok(body.into());
            }
            body.extend_from_slice(&piece);
        }
    }

    /// Trims a transaction's record, which is no longer needed. That is durable when this returns.
    pub(crate) async fn trim_transaction(&self, shard: ShardId, version: Version) -> Result<(), LedgerError> {
        self.ledger.stored(shard, version).await?;
        self.ledger.settle(shard).await
    }
}
