//! The incarnation that the holder of a state folder had last in its cluster.
//!
//! A node that was killed starts again before its membership has expired. By this record it knows that the incarnation with
//! its name was its own and has ended; it need not wait for the end of the lease, as for that of a stranger.

use std::sync::Arc;

use nigh_engine::{Registry, RegistryError};
use nigh_terms::{Clock, Incarnation};
use serde::{Deserialize, Serialize};

use super::{ClusterEngine, ClusterStartError};
use crate::config::{ClusterSettings, Settings};

/// The table of the node's own registry, with one key a cluster.
pub(crate) const FORMER_INCARNATIONS_TABLE: &str = "cluster-incarnation";
/// The format version that this build writes.
const FORMAT: u32 = 1;

#[derive(Debug, Serialize, Deserialize)]
struct FormerIncarnation {
    format: u32,
    incarnation: u64,
}

impl ClusterEngine {
    /// Joins as the node whose state folder has the registry `local`: the incarnation that it had last in the cluster has
    /// ended, because one process at a time holds the folder.
    ///
    /// # Errors
    /// See `join`; or `local` cannot be read or written.
    pub(crate) async fn join_again(
        settings: &Settings,
        cluster: &ClusterSettings,
        local: &dyn Registry,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, ClusterStartError> {
        let former = read(local, &cluster.name).await?;
        let engine = Self::join(settings, cluster, former, clock).await?;
        write(local, &cluster.name, engine.claimant.incarnation).await?;
        Ok(engine)
    }
}

/// The incarnation that was written last; none if there is none.
async fn read(local: &dyn Registry, cluster: &str) -> Result<Option<Incarnation>, RegistryError> {
    let Some(found) = local.get(FORMER_INCARNATIONS_TABLE, cluster).await? else { return Ok(None) };
    match serde_json::from_slice::<FormerIncarnation>(&found.value) {
        Ok(former) if former.format <= FORMAT => Ok(Some(Incarnation(former.incarnation))),
        // What is not known is waited for.
        Ok(_) | Err(_) => {
            tracing::warn!(cluster, "the record of this node's last incarnation cannot be read; it is written anew");
            Ok(None)
        }
    }
}

/// Writes the present incarnation.
async fn write(local: &dyn Registry, cluster: &str, now: Incarnation) -> Result<(), RegistryError> {
    let before = local.get(FORMER_INCARNATIONS_TABLE, cluster).await?.map(|found| found.revision);
    let value = serde_json::to_vec(&FormerIncarnation { format: FORMAT, incarnation: now.0 });
    let value =
        value.map_err(|error| RegistryError::Storage(format!("{FORMER_INCARNATIONS_TABLE}/{cluster}: {error}")))?;
    local.put(FORMER_INCARNATIONS_TABLE, cluster, value, before).await.map(drop)
}

#[cfg(test)]
mod tests {
    use nigh_engine::{LocalRegistry, StateFile};

    use super::*;

    #[tokio::test]
    async fn the_last_incarnation_is_known_by_cluster_after_a_restart() {
        let folder = tempfile::tempdir().unwrap();
        let registry = LocalRegistry::new(StateFile::open(&folder.path().join("state.redb")).unwrap());
        assert_eq!(read(&registry, "one").await.unwrap(), None);
        for incarnation in [Incarnation(7), Incarnation(9)] {
            write(&registry, "one", incarnation).await.unwrap();
            assert_eq!(read(&registry, "one").await.unwrap(), Some(incarnation));
        }
        assert_eq!(read(&registry, "other").await.unwrap(), None);
        for (cluster, value) in [("broken", "x"), ("newer", r#"{"format":2,"incarnation":7}"#)] {
            registry.put(FORMER_INCARNATIONS_TABLE, cluster, value.as_bytes().to_vec(), None).await.unwrap();
            assert_eq!(read(&registry, cluster).await.unwrap(), None);
        }
    }
}
