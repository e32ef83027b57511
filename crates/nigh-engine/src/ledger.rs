//! The ledger: the order of writes to a shard, and where an acknowledged write is durable first.
//!
//! A put appends before it is applied. What `Appended` says of durability decides who may acknowledge:
//! a durable record stands for the write; one that is not leaves the write to the store behind.

use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use nigh_terms::{BucketName, Epoch, Namespace, ObjectKey, Sequence, ShardId, Version};
use thiserror::Error;

/// What a write does to an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// It has new bytes, so many.
    Put {
        /// The length of the new bytes.
        bytes: u64,
    },
    /// It is gone.
    Delete,
}

/// One write, as the ledger orders it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LedgerEntry {
    /// The tenant.
    pub namespace: Namespace,
    /// The bucket.
    pub bucket: BucketName,
    /// The key.
    pub key: ObjectKey,
    /// What happens to it.
    pub change: Change,
}

/// Where an entry came to stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Appended {
    /// The entry's place in the order.
    pub version: Version,
    /// True if the record alone survives a crash. If not, the store must hold the write before it is acknowledged.
    pub durable: bool,
}

/// Why an entry was not taken.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum LedgerError {
    /// Another home has taken the shard.
    #[error("shard {shard} is fenced: epoch {held} was replaced; the request must go to the new home")]
    Fenced {
        /// The shard.
        shard: ShardId,
        /// The epoch this home held.
        held: Epoch,
    },
    /// The ledger is at its size limit.
    #[error("the ledger is full; write again later")]
    Full,
    /// The medium's own reason.
    #[error("ledger: {0}")]
    Storage(String),
}

/// The order of writes.
#[async_trait]
pub trait Ledger: Send + Sync {
    /// The epoch under which this home appends to `shard`.
    fn epoch(&self, shard: ShardId) -> Epoch;
    /// Gives `entry` the next version of `shard`.
    async fn append(&self, shard: ShardId, entry: LedgerEntry) -> Result<Appended, LedgerError>;
    /// The store behind holds `version` durably: its record may go.
    async fn stored(&self, shard: ShardId, version: Version) -> Result<(), LedgerError>;
}

/// Orders writes and keeps none: each is in the store before it is acknowledged.
///
/// The epoch must be higher than in any earlier life; the node's incarnation is.
#[derive(Debug)]
pub struct WriteThrough {
    epoch: Epoch,
    last: AtomicU64,
}

impl WriteThrough {
    /// A ledger under `epoch`.
    #[must_use]
    pub const fn new(epoch: Epoch) -> Self {
        Self { epoch, last: AtomicU64::new(0) }
    }
}

#[async_trait]
impl Ledger for WriteThrough {
    fn epoch(&self, _shard: ShardId) -> Epoch {
        self.epoch
    }

    async fn append(&self, _shard: ShardId, _entry: LedgerEntry) -> Result<Appended, LedgerError> {
        // One counter for all shards: a version need only be total and increasing within each.
        let sequence = Sequence(self.last.fetch_add(1, Ordering::Relaxed) + 1);
        Ok(Appended { version: Version { epoch: self.epoch, sequence }, durable: false })
    }

    async fn stored(&self, _shard: ShardId, _version: Version) -> Result<(), LedgerError> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn versions_grow_within_an_epoch_and_over_epochs() {
        let entry = LedgerEntry {
            namespace: Namespace::new("n").unwrap(),
            bucket: BucketName::new("bucket").unwrap(),
            key: ObjectKey::new("k").unwrap(),
            change: Change::Delete,
        };
        let mut last = Version::OUTSIDE;
        for epoch in 1..3 {
            let ledger = WriteThrough::new(Epoch(epoch));
            for _ in 0..3 {
                let appended = ledger.append(ShardId(0), entry.clone()).await.unwrap();
                assert!(appended.version > last && !appended.durable);
                last = appended.version;
            }
        }
    }
}
