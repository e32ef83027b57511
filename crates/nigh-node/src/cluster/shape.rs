//! Settings that all nodes of a cluster must share, which the first node writes to the registry, and the cluster's format,
//! which an operator raises.

use nigh_engine::{FormatRange, Registry, RegistryError};
use nigh_objects::cluster::CoherenceProtocol;
use serde::{Deserialize, Serialize};

use super::ClusterStartError;
use crate::config::ClusterSettings;

/// The table, which has one key.
pub(super) const TABLE: &str = "cluster";
pub(super) const KEY: &str = "shape";
/// The newest format version of the document, which names the cluster's format: programs that know of no such format
/// refuse the document, and so do not join a cluster whose format was raised.
const FORMAT: u32 = 3;
/// The format version that names the protocol.
const FORMAT_WITH_PROTOCOL: u32 = 2;
/// A document without the protocol, which older builds read, means Nigh's own.
const FORMAT_WITHOUT_PROTOCOL: u32 = 1;
/// The format of a cluster that no operator has raised.
const FIRST_CLUSTER_FORMAT: u32 = 1;

#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Shape {
    format: u32,
    /// The number of shards of the key space.
    shards: u16,
    /// The coherence protocol.
    #[serde(default, skip_serializing_if = "is_usual")]
    coherence: CoherenceProtocol,
    /// The cluster's format; none until an operator raises it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    cluster_format: Option<u32>,
    /// The version of the Nigh that raised it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    raised_by: Option<String>,
}

impl Shape {
    fn decode(value: &[u8]) -> Result<Self, RegistryError> {
        let told = |why: String| RegistryError::Storage(format!("{TABLE}/{KEY}: {why}"));
        let shape: Self = serde_json::from_slice(value).map_err(|error| told(error.to_string()))?;
        if shape.format > FORMAT {
            return Err(told(format!("format {}, this build reads {FORMAT}: start the newer Nigh", shape.format)));
        }
        Ok(shape)
    }

    fn encode(&self) -> Result<Vec<u8>, RegistryError> {
        serde_json::to_vec(self).map_err(|error| RegistryError::Storage(format!("{TABLE}/{KEY}: {error}")))
    }

    fn cluster_format(&self) -> u32 {
        self.cluster_format.unwrap_or(FIRST_CLUSTER_FORMAT)
    }
}

fn is_usual(coherence: &CoherenceProtocol) -> bool {
    *coherence == CoherenceProtocol::default()
}

/// Compares the settings with those of the cluster's first node. If there are none, this node is the first, and writes
/// its own. Returns the cluster's format, which a program of the range `own` can use.
pub(super) async fn agree(
    registry: &dyn Registry,
    settings: &ClusterSettings,
    own: FormatRange,
) -> Result<u32, ClusterStartError> {
    let ClusterSettings { name, shards, coherence, .. } = settings;
    let format = if is_usual(coherence) { FORMAT_WITHOUT_PROTOCOL } else { FORMAT_WITH_PROTOCOL };
    let first = Shape { format, shards: *shards, coherence: *coherence, cluster_format: None, raised_by: None };
    loop {
        if let Some(found) = registry.get(TABLE, KEY).await? {
            let found = Shape::decode(&found.value)?;
            let (name, cluster) = (name.clone(), found.cluster_format());
            if found.shards != first.shards {
                return Err(ClusterStartError::OtherShards { name, own: first.shards, theirs: found.shards });
            }
            if found.coherence != first.coherence {
                return Err(ClusterStartError::OtherCoherence { name, own: first.coherence, theirs: found.coherence });
            }
            if cluster > own.newest {
                let by = found.raised_by.unwrap_or_else(|| "of the other nodes' version".to_owned());
                return Err(ClusterStartError::NewerFormat { name, own, cluster, by });
            }
            if cluster < own.oldest {
                return Err(ClusterStartError::OlderFormat { name, own, cluster });
            }
            return Ok(cluster);
        }
        match registry.put(TABLE, KEY, first.encode()?, None).await {
            Ok(_) => return Ok(FIRST_CLUSTER_FORMAT),
            // Another node was the first.
            Err(RegistryError::Conflict { .. }) => {}
            Err(other) => return Err(other.into()),
        }
    }
}

/// The cluster's format in the document `value`.
pub(super) fn format_of(value: &[u8]) -> Result<u32, RegistryError> {
    Shape::decode(value).map(|shape| shape.cluster_format())
}

/// Raises the cluster's format to `format`, if it is below. Returns the one before. `by` is the version of this Nigh.
pub(super) async fn raise(registry: &dyn Registry, format: u32, by: &str) -> Result<u32, RegistryError> {
    loop {
        let found = registry.get(TABLE, KEY).await?;
        let missing = || RegistryError::Storage(format!("{TABLE}/{KEY} is gone: a member must start first"));
        let found = found.ok_or_else(missing)?;
        let shape = Shape::decode(&found.value)?;
        let before = shape.cluster_format();
        if before >= format {
            return Ok(before);
        }
        let raised = Shape { format: FORMAT, cluster_format: Some(format), raised_by: Some(by.to_owned()), ..shape };
        match registry.put(TABLE, KEY, raised.encode()?, Some(found.revision)).await {
            Ok(_) => return Ok(before),
            // Another operator was faster.
            Err(RegistryError::Conflict { .. }) => {}
            Err(other) => return Err(other),
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
        agree(&registry, &settings(8, checked), FormatRange::OWN).await.unwrap();
        agree(&registry, &settings(8, checked), FormatRange::OWN).await.unwrap();
        let other =
            agree(&registry, &settings(8, CoherenceProtocol::Nigh), FormatRange::OWN).await.unwrap_err().to_string();
        assert!(other.contains("cluster.coherence is nigh") && other.contains("version-check"), "{other}");
        let other = agree(&registry, &settings(9, checked), FormatRange::OWN).await.unwrap_err();
        assert!(matches!(other, ClusterStartError::OtherShards { own: 9, theirs: 8, .. }), "{other}");
    }

    #[tokio::test]
    async fn a_shape_that_an_older_build_wrote_is_of_nigh_s_own_protocol() {
        let folder = tempfile::tempdir().unwrap();
        let registry = LocalRegistry::new(StateFile::open(&folder.path().join("state.redb")).unwrap());
        registry.put(TABLE, KEY, br#"{"format":1,"shards":32}"#.to_vec(), None).await.unwrap();
        agree(&registry, &settings(32, CoherenceProtocol::Nigh), FormatRange::OWN).await.unwrap();
        assert!(agree(&registry, &settings(32, CoherenceProtocol::None), FormatRange::OWN).await.is_err());
        // And an older build can read what this one writes for Nigh's protocol.
        let (format, coherence) = (FORMAT_WITHOUT_PROTOCOL, CoherenceProtocol::Nigh);
        let own = Shape { format, shards: 32, coherence, cluster_format: None, raised_by: None };
        assert_eq!(serde_json::to_string(&own).unwrap(), r#"{"format":1,"shards":32}"#);
    }

    #[tokio::test]
    async fn a_raised_format_is_kept_with_the_shape_and_refuses_programs_that_cannot_use_it() {
        let folder = tempfile::tempdir().unwrap();
        let registry = LocalRegistry::new(StateFile::open(&folder.path().join("state.redb")).unwrap());
        let settings = settings(8, CoherenceProtocol::Nigh);
        let (old, new) = (FormatRange { oldest: 1, newest: 1 }, FormatRange { oldest: 1, newest: 2 });
        assert_eq!(agree(&registry, &settings, old).await.unwrap(), 1);
        assert_eq!(raise(&registry, 2, "1.4.0").await.unwrap(), 1);
        assert_eq!(raise(&registry, 2, "1.4.0").await.unwrap(), 2, "it is raised already");
        assert_eq!(raise(&registry, 1, "1.3.0").await.unwrap(), 2, "it never goes down");
        assert_eq!(agree(&registry, &settings, new).await.unwrap(), 2);
        let refused = agree(&registry, &settings, old).await.unwrap_err().to_string();
        assert!(refused.contains("format 2") && refused.contains("1.4.0 or newer"), "{refused}");
        let later = FormatRange { oldest: 3, newest: 4 };
        let refused = agree(&registry, &settings, later).await.unwrap_err().to_string();
        assert!(refused.contains("nigh cluster finalize"), "{refused}");
        // Programs from before the cluster's format read documents up to this format version, and refuse this one.
        let found = registry.get(TABLE, KEY).await.unwrap().unwrap().value;
        assert!(serde_json::from_slice::<serde_json::Value>(&found).unwrap()["format"].as_u64().unwrap() > 2);
    }
}
