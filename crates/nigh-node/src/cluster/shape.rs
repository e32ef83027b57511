//! Settings that all nodes of a cluster must share; the first node writes them to the registry.

use nigh_engine::{Registry, RegistryError};
use nigh_objects::cluster::CoherenceProtocol;
use serde::{Deserialize, Serialize};

use super::ClusterStartError;
use crate::config::ClusterSettings;

/// The table, which has one key.
const TABLE: &str = "cluster";
const KEY: &str = "shape";
/// The newest format version, which names the protocol. A document without it, which older builds read, means Nigh's
/// own protocol.
const FORMAT: u32 = 2;
const FORMAT_WITHOUT_PROTOCOL: u32 = 1;

#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Shape {
    format: u32,
    /// The number of shards of the key space.
    shards: u16,
    /// The coherence protocol.
    #[serde(default, skip_serializing_if = "is_usual")]
    coherence: CoherenceProtocol,
}

fn is_usual(coherence: &CoherenceProtocol) -> bool {
    *coherence == CoherenceProtocol::default()
}

/// Compares the settings with those of the cluster's first node. If there are none, this node is the first, and writes
/// its own.
pub(super) async fn agree(registry: &dyn Registry, settings: &ClusterSettings) -> Result<(), ClusterStartError> {
    let ClusterSettings { name, shards, coherence, .. } = settings;
    let format = if is_usual(coherence) { FORMAT_WITHOUT_PROTOCOL } else { FORMAT };
    let own = Shape { format, shards: *shards, coherence: *coherence };
    let storage = |error: serde_json::Error| RegistryError::Storage(format!("{TABLE}/{KEY}: {error}"));
    loop {
        if let Some(found) = registry.get(TABLE, KEY).await? {
            let Shape { format, shards, coherence } = serde_json::from_slice(&found.value).map_err(storage)?;
            if format > FORMAT {
                let why = format!("{TABLE}/{KEY}: format {format}, this build reads {FORMAT}: start the newer Nigh");
                return Err(RegistryError::Storage(why).into());
            }
            let name = name.clone();
            if shards != own.shards {
                return Err(ClusterStartError::OtherShards { name, own: own.shards, theirs: shards });
            }
            if coherence != own.coherence {
                return Err(ClusterStartError::OtherCoherence { name, own: own.coherence, theirs: coherence });
            }
            return Ok(());
        }
        match registry.put(TABLE, KEY, serde_json::to_vec(&own).map_err(storage)?, None).await {
            Ok(_) => return Ok(()),
            // Another node was the first.
            Err(RegistryError::Conflict { .. }) => {}
            Err(other) => return Err(other.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use nigh_engine::{LocalRegistry, StateFile};

    use super::*;

    fn settings(shards: u16, coherence: CoherenceProtocol) -> ClusterSettings {
        ClusterSettings { shards, coherence, ..ClusterSettings::default() }
    }

    #[tokio::test]
    async fn who_joins_must_have_the_shards_and_the_protocol_of_the_first() {
        let folder = tempfile::tempdir().unwrap();
        let registry = LocalRegistry::new(StateFile::open(&folder.path().join("state.redb")).unwrap());
        let checked = CoherenceProtocol::VersionCheck;
        agree(&registry, &settings(8, checked)).await.unwrap();
        agree(&registry, &settings(8, checked)).await.unwrap();
        let other = agree(&registry, &settings(8, CoherenceProtocol::Nigh)).await.unwrap_err().to_string();
        assert!(other.contains("cluster.coherence is nigh") && other.contains("version-check"), "{other}");
        let other = agree(&registry, &settings(9, checked)).await.unwrap_err();
        assert!(matches!(other, ClusterStartError::OtherShards { own: 9, theirs: 8, .. }), "{other}");
    }

    #[tokio::test]
    async fn a_shape_that_an_older_build_wrote_is_of_nigh_s_own_protocol() {
        let folder = tempfile::tempdir().unwrap();
        let registry = LocalRegistry::new(StateFile::open(&folder.path().join("state.redb")).unwrap());
        registry.put(TABLE, KEY, br#"{"format":1,"shards":32}"#.to_vec(), None).await.unwrap();
        agree(&registry, &settings(32, CoherenceProtocol::Nigh)).await.unwrap();
        assert!(agree(&registry, &settings(32, CoherenceProtocol::None)).await.is_err());
        // And an older build can read what this one writes for Nigh's protocol.
        let own = Shape { format: FORMAT_WITHOUT_PROTOCOL, shards: 32, coherence: CoherenceProtocol::Nigh };
        assert_eq!(serde_json::to_string(&own).unwrap(), r#"{"format":1,"shards":32}"#);
    }
}
