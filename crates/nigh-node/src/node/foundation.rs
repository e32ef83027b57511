//! The parts that each later step of the start needs: settings, state file, registry, membership and keys.

use std::sync::Arc;

use nigh_engine::{AccessKeys, LocalMembership, LocalRegistry, Membership, Registry, StateFile};
use nigh_http::farewell::Farewell;
use nigh_terms::{Clock, Epoch, NodeId, SystemClock};

use super::NodeError;
use super::open_files::FileShares;
use crate::cluster::ClusterEngine;
use crate::config::Settings;
use crate::state_folder::StatePaths;

pub(super) struct Foundation {
    pub(super) settings: Settings,
    /// The connections for which the open files suffice.
    pub(super) files: FileShares,
    pub(super) paths: StatePaths,
    pub(super) clock: Arc<SystemClock>,
    pub(super) database: StateFile,
    /// This node's own registry, in which it stores what it learns, in a cluster too.
    pub(super) local: LocalRegistry,
    /// None if the node is alone.
    pub(super) cluster: Option<ClusterEngine>,
    /// The cluster's registry; `local` if the node is alone.
    pub(super) registry: Arc<dyn Registry>,
    pub(super) membership: Arc<dyn Membership>,
    /// Higher than in any earlier incarnation of this node.
    pub(super) epoch: Epoch,
    pub(super) keys: AccessKeys,
    /// Asks the clients of all doors to leave before the doors close.
    pub(super) farewell: Farewell,
}

impl Foundation {
    /// Opens the state file, takes a new incarnation, and joins the cluster if the settings name one.
    pub(super) async fn open(
        settings: Settings,
        files: FileShares,
        paths: StatePaths,
        clock: Arc<SystemClock>,
    ) -> Result<Self, NodeError> {
        let database = StateFile::open(&paths.database())?;
        let local = LocalRegistry::new(database.clone());
        let alone = LocalMembership::join(NodeId(settings.node.clone()), &local).await?;
        // The incarnation grows at every start, as a new home's epoch must.
        let epoch = Epoch(alone.incarnation().0);
        let cluster = match &settings.cluster {
            Some(cluster) => {
                let clock = Arc::clone(&clock) as Arc<dyn Clock>;
                let joining = Box::pin(ClusterEngine::join_again(&settings, cluster, &local, clock));
                Some(joining.await.map_err(Box::new)?)
            }
            None => None,
        };
        let (registry, membership): (Arc<dyn Registry>, Arc<dyn Membership>) = match &cluster {
            Some(cluster) => (cluster.registry(), Arc::clone(cluster.membership()) as Arc<dyn Membership>),
            None => (Arc::new(local.clone()), Arc::new(alone)),
        };
        let keys = AccessKeys::load_at(&*registry, Arc::clone(&clock) as Arc<dyn Clock>).await?;
        if cluster.is_some() {
            keys.follow(&*registry).await?;
        }
        let farewell = Farewell::default();
        Ok(Self {
            settings,
            files,
            paths,
            clock,
            database,
            local,
            cluster,
            registry,
            membership,
            epoch,
            keys,
            farewell,
        })
    }

    pub(super) fn clock(&self) -> Arc<dyn Clock> {
        Arc::clone(&self.clock) as Arc<dyn Clock>
    }

    pub(super) fn registry(&self) -> Arc<dyn Registry> {
        Arc::clone(&self.registry)
    }

    pub(super) fn own_registry(&self) -> Arc<dyn Registry> {
        Arc::new(self.local.clone())
    }
}
