//! Takes and releases shards.
//!
//! To take a shard: the claim (compare-and-set in the map), the epoch (in the journal), the epoch written to the map,
//! the summary; then the host serves. To release it: the host ends its appends, the ledger drops the shard, the map
//! says that it is free. So a planned move fails no write, and no write gets a version under an epoch that the map does
//! not show.

use std::sync::Arc;

use nigh_engine::nats::{Claimant, ClusterError, HomeEntry, NatsHomes, NatsLedger, ShardHome};
use nigh_engine::{RegistryError, Revision};
use nigh_terms::ShardId;
use tokio::sync::{Semaphore, watch};

use super::home_host::HomeHost;
use super::newest::{Asker, OwnEpochs};
use super::seen_map::SeenMap;
use super::summary::summary;

/// Why a shard was not taken.
pub(super) enum TakeError {
    /// Another node took it first.
    Beaten,
    /// The keeper tries again soon.
    Failed(String),
    /// An operator must help.
    Damaged(String),
}

impl From<RegistryError> for TakeError {
    fn from(error: RegistryError) -> Self {
        match error {
            RegistryError::Conflict { .. } => Self::Beaten,
            other => Self::Failed(other.to_string()),
        }
    }
}

impl From<ClusterError> for TakeError {
    fn from(error: ClusterError) -> Self {
        match error {
            ClusterError::Superseded { .. } => Self::Beaten,
            ClusterError::Damaged { .. }
            | ClusterError::Gone { .. }
            | ClusterError::WentBack { .. }
            | ClusterError::Newer { .. }
            | ClusterError::Settings { .. } => Self::Damaged(error.to_string()),
            other => Self::Failed(other.to_string()),
        }
    }
}

/// The parts that both steps need.
pub(super) struct HomeSteps {
    pub(super) claimant: Claimant,
    pub(super) homes: NatsHomes,
    pub(super) ledger: NatsLedger,
    pub(super) host: Arc<dyn HomeHost>,
    pub(super) epochs: OwnEpochs,
    pub(super) asker: Asker,
    pub(super) shards: u16,
    pub(super) seen: watch::Sender<Arc<SeenMap>>,
    pub(super) turns: Semaphore,
}

impl HomeSteps {
    fn learn(&self, shard: ShardId, home: ShardHome, revision: Revision) {
        self.seen.send_if_modified(|map| Arc::make_mut(map).learn(HomeEntry { shard, home, revision }));
    }

    fn entry(&self, shard: ShardId) -> Option<(ShardHome, Revision)> {
        self.seen.borrow().entries.get(&shard).cloned()
    }

    pub(super) async fn take(&self, shard: ShardId) -> Result<(), TakeError> {
        let turn = self.turns.acquire().await.map_err(|closed| TakeError::Failed(closed.to_string()))?;
        let found = self.entry(shard);
        let before = found.as_ref().and_then(|(home, _)| home.highest());
        let found = found.as_ref().map(|(home, revision)| (home, *revision));
        let step = |step: &str| tracing::debug!(target: "failover", step, %shard);
        step("begun");
        let claim = self.homes.claim(shard, &self.claimant, found).await?;
        step("claimed");
        let claimed = ShardHome::claimed(&self.claimant, before);
        self.learn(shard, claimed, Revision(claim.claim));
        let recovered = self.ledger.take(&claim).await?;
        let epoch = recovered.epoch;
        if before.is_some_and(|before| epoch <= before) {
            self.ledger.let_go(shard);
            return Err(TakeError::Damaged(format!(
                "its journal starts over with epoch {epoch}, but epoch {} has given out versions: restore the journal",
                before.unwrap_or_default()
            )));
        }
        self.epochs.begin(shard, epoch);
        // Before others hear of it: what they send then waits here until the home has begun.
        self.host.home_is(shard, self.claimant.number, epoch);
        let told = self.homes.took(&claim, self.claimant.number, epoch).await?;
        self.learn(shard, ShardHome::of(&self.claimant, Some(epoch)), told);
        step("took");
        // Another shard may need this permit to answer the request for its newest version.
        drop(turn);
        let mut seen = self.seen.subscribe();
        let replaced = seen.wait_for(|map| map.entries.get(&shard).is_some_and(|(_, newest)| *newest > told));
        let summary = tokio::select! {
            summary = summary(shard, self.shards, told, self.seen.subscribe(), &self.asker) => summary,
            _ = replaced => return Err(TakeError::Beaten),
        };
        step("summary");
        self.host.take_home(shard, recovered, summary).await.map_err(TakeError::Failed)?;
        step("served");
        Ok(())
    }

    pub(super) async fn let_go(&self, shard: ShardId) -> Result<(), RegistryError> {
        let _turn = self.turns.acquire().await.map_err(|closed| RegistryError::Storage(closed.to_string()))?;
        self.epochs.end(shard);
        self.host.let_go(shard).await;
        self.ledger.let_go(shard);
        let Some((mut home, revision)) = self.entry(shard) else { return Ok(()) };
        if !home.is_of(&self.claimant.node, self.claimant.incarnation) {
            return Ok(());
        }
        let freed = self.homes.free(shard, (&home, revision)).await?;
        home.free = true;
        self.learn(shard, home, freed);
        Ok(())
    }
}
