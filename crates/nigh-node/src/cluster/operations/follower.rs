//! Follows what operators decide about this node and its cluster, and announces it.

use std::sync::Arc;
use std::time::Duration;

use nigh_engine::{Availability, FormatRange, Registry, RegistryChange, RegistryError};
use nigh_terms::NodeId;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::announcer::Announcer;
use super::availability::{self, StoredAvailability};
use crate::cluster::{ClusterEngine, shape};

/// The pause before the registry is followed again after a failure.
const AGAIN_AFTER: Duration = Duration::from_secs(1);

/// Follows the registry.
pub(crate) struct OperationsFollower {
    registry: Arc<dyn Registry>,
    announcer: Arc<Announcer>,
    node: NodeId,
    formats: FormatRange,
}

impl ClusterEngine {
    /// What follows the operators' decisions, once it runs.
    pub(crate) fn operations_follower(&self) -> OperationsFollower {
        OperationsFollower {
            registry: self.registry(),
            announcer: Arc::clone(&self.announcer),
            node: self.claimant.node.clone(),
            formats: self.formats(),
        }
    }
}

impl OperationsFollower {
    /// Follows until `stop`. Cancels `over` when the cluster has a format that this program cannot use.
    pub(crate) async fn run(self, over: CancellationToken, stop: CancellationToken) {
        loop {
            match stop.run_until_cancelled(self.follow(&over)).await {
                None => return,
                Some(Err(error)) => {
                    tracing::warn!(%error, "the operators' decisions about this node are not known; it asks again");
                }
                Some(Ok(())) => {}
            }
            if stop.run_until_cancelled(tokio::time::sleep(AGAIN_AFTER)).await.is_none() {
                return;
            }
        }
    }

    async fn follow(&self, over: &CancellationToken) -> Result<(), RegistryError> {
        let mut set: mpsc::Receiver<RegistryChange> = self.registry.watch(availability::TABLE).await?;
        let mut shapes = self.registry.watch(shape::TABLE).await?;
        // A document that was removed before the watch began is no change.
        self.announcer.set_availability(availability::of(&*self.registry, &self.node).await?);
        loop {
            tokio::select! {
                change = set.recv() => match change {
                    Some(change) => self.availability_is(change)?,
                    None => return Ok(()),
                },
                change = shapes.recv() => match change {
                    Some(change) => self.shape_is(change, over)?,
                    None => return Ok(()),
                },
            }
        }
    }

    fn availability_is(&self, change: RegistryChange) -> Result<(), RegistryError> {
        if change.key != self.node.0 {
            return Ok(());
        }
        let stored = change.now.map(|now| StoredAvailability::decode(&change.key, &now.value)).transpose()?;
        let availability = stored.map_or(Availability::Available, |stored| stored.availability);
        if availability != self.announcer.availability() {
            tracing::info!(%availability, "an operator has set whether this node takes work");
        }
        self.announcer.set_availability(availability);
        Ok(())
    }

    fn shape_is(&self, change: RegistryChange, over: &CancellationToken) -> Result<(), RegistryError> {
        let (shape::KEY, Some(now)) = (change.key.as_str(), change.now) else { return Ok(()) };
        let format = shape::format_of(&now.value)?;
        if self.formats.has(format) {
            self.announcer.set_format(format);
        } else {
            let own = self.formats;
            tracing::error!(format, %own, "the cluster has a format that this program cannot use: it drains and ends; start a newer Nigh");
            over.cancel();
        }
        Ok(())
    }
}
