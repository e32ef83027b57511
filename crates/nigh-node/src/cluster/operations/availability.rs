//! Which nodes an operator has taken out of work: a document a node, in the registry. A node without one takes work.

use nigh_engine::{Availability, Registry, RegistryError};
use nigh_terms::NodeId;
use serde::{Deserialize, Serialize};

/// The table; its keys are the nodes' names.
pub(super) const TABLE: &str = "availability";
/// The format version that this build writes.
const FORMAT: u32 = 1;

/// The document of a node that takes no work.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct StoredAvailability {
    format: u32,
    pub(super) availability: Availability,
    /// When it was set, RFC 3339.
    pub(super) since: String,
}

impl StoredAvailability {
    pub(super) fn decode(node: &str, value: &[u8]) -> Result<Self, RegistryError> {
        let told = |why: String| RegistryError::Storage(format!("{TABLE}/{node}: {why}"));
        let stored: Self = serde_json::from_slice(value).map_err(|error| told(error.to_string()))?;
        if stored.format > FORMAT {
            let why = format!("format {}, this build reads {FORMAT}: start the newer Nigh", stored.format);
            return Err(told(why));
        }
        Ok(stored)
    }
}

/// What an operator has set for `node`.
///
/// # Errors
/// If the registry cannot be read, or has what a newer Nigh wrote.
pub(in crate::cluster) async fn of(registry: &dyn Registry, node: &NodeId) -> Result<Availability, RegistryError> {
    let found = registry.get(TABLE, &node.0).await?;
    let stored = found.map(|found| StoredAvailability::decode(&node.0, &found.value)).transpose()?;
    Ok(stored.map_or(Availability::Available, |stored| stored.availability))
}

/// All nodes that an operator has taken out of work, by name.
pub(super) async fn all(registry: &dyn Registry) -> Result<Vec<(NodeId, StoredAvailability)>, RegistryError> {
    let found = registry.list(TABLE, "").await?.into_iter();
    let decoded = found.map(|(node, found)| {
        let stored = StoredAvailability::decode(&node, &found.value)?;
        Ok((NodeId(node), stored))
    });
    decoded.collect()
}

/// Sets it for `node`. What is set already keeps its time.
pub(super) async fn set(
    registry: &dyn Registry,
    node: &NodeId,
    availability: Availability,
    now: &str,
) -> Result<(), RegistryError> {
    loop {
        let found = registry.get(TABLE, &node.0).await?;
        let stored = found.as_ref().map(|found| StoredAvailability::decode(&node.0, &found.value)).transpose()?;
        if stored.map_or(Availability::Available, |stored| stored.availability) == availability {
            return Ok(());
        }
        let written = match (found, availability.takes_work()) {
            (None, true) => return Ok(()),
            (Some(found), true) => registry.delete(TABLE, &node.0, found.revision).await,
            (found, false) => {
                let document = StoredAvailability { format: FORMAT, availability, since: now.to_owned() };
                let bytes = serde_json::to_vec(&document).map_err(|error| RegistryError::Storage(error.to_string()))?;
                registry.put(TABLE, &node.0, bytes, found.map(|found| found.revision)).await.map(drop)
            }
        };
        match written {
            // Another operator was faster.
            Err(RegistryError::Conflict { .. }) => {}
            other => return other,
        }
    }
}

#[cfg(test)]
mod tests {
    use nigh_engine::{LocalRegistry, StateFile};

    use super::*;

    #[tokio::test]
    async fn what_an_operator_sets_stays_until_it_is_set_again_and_keeps_its_time() {
        let folder = tempfile::tempdir().unwrap();
        let registry = LocalRegistry::new(StateFile::open(&folder.path().join("state.redb")).unwrap());
        let node = NodeId("n1".to_owned());
        assert_eq!(of(&registry, &node).await.unwrap(), Availability::Available);
        set(&registry, &node, Availability::Available, "t0").await.unwrap();
        assert!(all(&registry).await.unwrap().is_empty());
        set(&registry, &node, Availability::Cordoned, "t1").await.unwrap();
        set(&registry, &node, Availability::Cordoned, "t2").await.unwrap();
        let stored = all(&registry).await.unwrap();
        assert_eq!((stored[0].1.availability, stored[0].1.since.as_str()), (Availability::Cordoned, "t1"));
        set(&registry, &node, Availability::Draining, "t3").await.unwrap();
        assert_eq!(of(&registry, &node).await.unwrap(), Availability::Draining);
        set(&registry, &node, Availability::Available, "t4").await.unwrap();
        assert_eq!(of(&registry, &node).await.unwrap(), Availability::Available);
        assert!(all(&registry).await.unwrap().is_empty());
    }

    #[tokio::test]
    async fn a_document_of_a_newer_program_is_refused_by_its_name() {
        let folder = tempfile::tempdir().unwrap();
        let registry = LocalRegistry::new(StateFile::open(&folder.path().join("state.redb")).unwrap());
        let newer = br#"{"format":2,"availability":"cordoned","since":""}"#.to_vec();
        registry.put(TABLE, "n1", newer, None).await.unwrap();
        let refused = of(&registry, &NodeId("n1".to_owned())).await.unwrap_err().to_string();
        assert!(refused.contains("availability/n1") && refused.contains("newer Nigh"), "{refused}");
    }
}
