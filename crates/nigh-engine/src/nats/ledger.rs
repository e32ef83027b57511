//! The ledger of a cluster: a stream a shard, of the shards that this home has taken.

use std::collections::HashMap;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use nigh_terms::{Epoch, ShardId, Version};
use parking_lot::RwLock;

use super::recovery::Outcome;
use super::settings::LedgerSettings;
use super::shard::Shard;
use super::taking::{Claim, ShardTakeover, take};
use super::{Cluster, ClusterError};
use crate::journal::JournalRecovery;
use crate::ledger::{
    ABOUT_MAX_BYTES, AppendResult, Body, INLINE_MAX_BYTES, Ledger, LedgerError, PIECE_MAX_BYTES, PIECES_MAX, Record,
    StagedPiece, at_most,
};

/// The journals of the shards whose home this is.
#[derive(Clone)]
pub struct NatsLedger {
    cluster: Cluster,
    settings: LedgerSettings,
    shards: Arc<RwLock<HashMap<ShardId, Arc<Shard>>>>,
}

impl std::fmt::Debug for NatsLedger {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NatsLedger").field("settings", &self.settings).finish_non_exhaustive()
    }
}

impl NatsLedger {
    /// A ledger that has no shard yet.
    #[must_use]
    pub fn new(cluster: Cluster, settings: LedgerSettings) -> Self {
        Self { cluster, settings, shards: Arc::default() }
    }

    /// Takes a shard, and gives what its earlier homes have acknowledged and not said to be stored. From then on no earlier
    /// home appends to it. Taken again it begins anew, as after a failure.
    ///
    /// # Errors
    /// If a home with a better claim has it, its stream is gone, goes back or is damaged, or the servers do not answer. The
    /// earlier homes may be fenced then already.
    pub async fn take(&self, claim: &Claim) -> Result<JournalRecovery, ClusterError> {
        self.let_go(claim.shard);
        let ShardTakeover { epoch, outcome, witness, messages, bytes } =
            take(&self.cluster, &self.settings, claim).await?;
        let Outcome { index, records, answered, damage } = outcome;
        let shard =
            Shard::new(self.cluster.clone(), self.settings.clone(), claim.shard, epoch, witness, index, &answered);
        self.shards.write().insert(claim.shard, shard);
        Ok(JournalRecovery { epoch, records, damage, torn: None, segments: messages, bytes })
    }

    /// Has the shard no longer; what is under way goes on.
    pub fn let_go(&self, shard: ShardId) {
        self.shards.write().remove(&shard);
    }

    /// Of a shard: the records that the store is not known to hold, and the bytes of its messages.
    #[must_use]
    pub fn usage(&self, shard: ShardId) -> Option<(u64, u64)> {
        self.shards.read().get(&shard).map(|shard| shard.usage())
    }

    /// Whether it takes records of that shard, as far as is known.
    ///
    /// # Errors
    /// Why not; [`LedgerError::Failed`] ends when the shard is taken again.
    pub fn check_shard(&self, shard: ShardId) -> Result<(), LedgerError> {
        self.shard(shard)?.check()
    }

    fn shard(&self, shard: ShardId) -> Result<Arc<Shard>, LedgerError> {
        let found = self.shards.read().get(&shard).cloned();
        found.ok_or(LedgerError::Fenced { shard, held: Epoch(0) })
    }
}

#[async_trait]
impl Ledger for NatsLedger {
    /// 0 for a shard that this home does not have.
    fn epoch(&self, shard: ShardId) -> Epoch {
        self.shards.read().get(&shard).map_or(Epoch(0), |shard| shard.epoch())
    }

    fn check(&self, shard: ShardId) -> Result<(), LedgerError> {
        self.shard(shard)?.check()
    }

    /// `Version::OUTSIDE` for a shard that this home does not have.
    fn place(&self, shard: ShardId) -> Version {
        self.shards.read().get(&shard).map_or(Version::OUTSIDE, |shard| shard.place())
    }

    async fn stage(&self, shard: ShardId, piece: Bytes) -> Result<StagedPiece, LedgerError> {
        at_most("a piece", piece.len(), PIECE_MAX_BYTES)?;
        self.shard(shard)?.stage(piece).await
    }

    async fn append(&self, shard: ShardId, record: Record, body: Body) -> Result<AppendResult, LedgerError> {
        match &body {
            Body::Inline(inline) => at_most("an inline body", inline.len(), INLINE_MAX_BYTES)?,
            Body::Staged(pieces) => at_most("a list of pieces", 16 * pieces.len(), 16 * PIECES_MAX)?,
        }
        at_most("what is told about an object", record.change.about().len(), ABOUT_MAX_BYTES)?;
        self.shard(shard)?.append(record, body).await
    }

    async fn stored(&self, shard: ShardId, version: Version) -> Result<(), LedgerError> {
        self.shard(shard)?.stored(version)
    }

    async fn settle(&self, shard: ShardId) -> Result<(), LedgerError> {
        self.shard(shard)?.settle().await
    }

    /// A message of the home's own says it, together with what waits to be committed.
    async fn confirm(&self, shard: ShardId) -> Result<(), LedgerError> {
        self.settle(shard).await
    }

    async fn read(&self, shard: ShardId, version: Version, offset: u64) -> Result<Bytes, LedgerError> {
        self.shard(shard)?.read(version, offset).await
    }
}
