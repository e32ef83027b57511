//! The ledger of a cluster: a stream for each shard that this home has taken.

use std::collections::HashMap;
use std::sync::Arc;

use async_recursion::async_recursion as boxed;
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

/// The journals of the shards whose homes are here.
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

    /// Takes a shard, and returns the acknowledged writes of former homes that the store may lack. From then on no former
    /// home can append. Taking a shard again restarts it, as after a failure.
    ///
    /// # Errors
    /// If a home with a higher claim has the shard, its stream is lost, is shorter than before or is damaged, or the servers
    /// do not answer. Former homes may be fenced already.
    #[boxed]
    pub async fn take(&self, claim: &Claim) -> Result<JournalRecovery, ClusterError> {
        self.let_go(claim.shard);
        let ShardTakeover { epoch, outcome, witness, messages, bytes } =
            take(&self.cluster, &self.settings, claim).await?;
        let Outcome { index, records, answered, damage } = outcome;
        let shard =
            Shard::new(self.cluster.clone(), self.settings.clone(), claim.shard, epoch, witness, index, &answered);
        self.shards.write().insert(claim.shard, shard);
        let may_lack_writes = damage.iter().any(|damage| damage.kind.hides_writes());
        Ok(JournalRecovery { epoch, records, damage, may_lack_writes, torn: None, segments: messages, bytes })
    }

    /// Releases the shard; writes under way continue.
    pub fn let_go(&self, shard: ShardId) {
        self.shards.write().remove(&shard);
    }

    /// The number of a shard's unpushed records, and the bytes of its messages.
    #[must_use]
    pub fn usage(&self, shard: ShardId) -> Option<(u64, u64)> {
        self.shards.read().get(&shard).map(|shard| shard.usage())
    }

    /// Checks that the ledger accepts records of the shard, as far as is known.
    ///
    /// # Errors
    /// If it does not; [`LedgerError::Failed`] ends when the shard is taken again.
    pub fn check_shard(&self, shard: ShardId) -> Result<(), LedgerError> {
        self.shard(shard)?.check()
    }

    fn shard(&self, shard: ShardId) -> Result<Arc<Shard>, LedgerError> {
        let found = self.shards.read().get(&shard).cloned();
        found.ok_or(LedgerError::Fenced { shard, held: Epoch(0) })
    }
}

fn check_lengths(record: &Record, body: &Body) -> Result<(), LedgerError> {
    match body {
        Body::Inline(inline) => at_most("an inline body", inline.len(), INLINE_MAX_BYTES)?,
        Body::Staged(pieces) => at_most("a list of pieces", 16 * pieces.len(), 16 * PIECES_MAX)?,
    }
    at_most("what is told about an object", record.change.about().len(), ABOUT_MAX_BYTES)
}

#[async_trait]
impl Ledger for NatsLedger {
    /// Epoch 0 for a shard that this home does not have.
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
        check_lengths(&record, &body)?;
        self.shard(shard)?.append(record, body).await
    }

    async fn append_under(
        &self,
        shard: ShardId,
        epoch: Epoch,
        record: Record,
        body: Body,
    ) -> Result<AppendResult, LedgerError> {
        check_lengths(&record, &body)?;
        let found = self.shard(shard)?;
        if found.epoch() != epoch {
            return Err(LedgerError::Fenced { shard, held: epoch });
        }
        found.append(record, body).await
    }

    async fn stored(&self, shard: ShardId, version: Version) -> Result<(), LedgerError> {
        self.shard(shard)?.stored(version)
    }

    async fn settle(&self, shard: ShardId) -> Result<(), LedgerError> {
        self.shard(shard)?.settle().await
    }

    /// Appends a message of the home's own, together with the waiting writes.
    async fn confirm(&self, shard: ShardId) -> Result<(), LedgerError> {
        self.settle(shard).await
    }

    async fn read(&self, shard: ShardId, version: Version, offset: u64) -> Result<Bytes, LedgerError> {
        self.shard(shard)?.read(version, offset).await
    }
}
