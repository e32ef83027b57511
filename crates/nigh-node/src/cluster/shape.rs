//! What all nodes of a cluster must agree on, kept in its registry by the first of them.

use nigh_engine::{Registry, RegistryError};
use serde::{Deserialize, Serialize};

use super::ClusterStartError;
use crate::config::ClusterSettings;

/// The table, and its one key.
const TABLE: &str = "cluster";
const KEY: &str = "shape";
/// The format that this build writes.
const FORMAT: u32 = 1;

#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Shape {
    format: u32,
    /// Into so many parts the key space is cut.
    shards: u16,
}

/// Compares the settings with what the cluster's first node had; this node is the first if nothing is there.
pub(super) async fn agree(registry: &dyn Registry, settings: &ClusterSettings) -> Result<(), ClusterStartError> {
    let own = Shape { format: FORMAT, shards: settings.shards };
    let storage = |error: serde_json::Error| RegistryError::Storage(format!("{TABLE}/{KEY}: {error}"));
    loop {
        if let Some(found) = registry.get(TABLE, KEY).await? {
            let Shape { format, shards } = serde_json::from_slice(&found.value).map_err(storage)?;
            if format > FORMAT {
                let why = format!("{TABLE}/{KEY}: format {format}, this build reads {FORMAT}: start the newer Nigh");
                return Err(RegistryError::Storage(why).into());
            }
            let same = shards == own.shards;
            let other = ClusterStartError::OtherShards { name: settings.name.clone(), own: own.shards, theirs: shards };
            return if same { Ok(()) } else { Err(other) };
        }
        match registry.put(TABLE, KEY, serde_json::to_vec(&own).map_err(storage)?, None).await {
            Ok(_) => return Ok(()),
            // Another node was the first.
            Err(RegistryError::Conflict { .. }) => {}
            Err(other) => return Err(other.into()),
        }
    }
}
