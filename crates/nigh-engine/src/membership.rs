//! Membership: which node this is, and which of its lives.
//!
//! The incarnation of a node grows by one at every start and is durable before it is used,
//! so that nothing of an earlier life can be taken for one of this.

use async_trait::async_trait;
use nigh_terms::{Incarnation, NodeId};
use tokio::sync::watch;

use crate::{Registry, RegistryError, Revision};

/// Nodes, and which of their lives.
pub type Members = Vec<(NodeId, Incarnation)>;

/// Who lives.
#[async_trait]
pub trait Membership: Send + Sync {
    /// This node.
    fn node(&self) -> &NodeId;
    /// This life of it.
    fn incarnation(&self) -> Incarnation;
    /// All nodes alive, as far as is known; this one among them, unless its life as a member is over.
    async fn alive(&self) -> Result<Members, RegistryError>;
    /// The same, as it changes.
    fn watch(&self) -> watch::Receiver<Members>;
}

/// One machine alone.
#[derive(Debug)]
pub struct LocalMembership {
    node: NodeId,
    incarnation: Incarnation,
}

const TABLE: &str = "membership";

impl LocalMembership {
    /// Begins a new life of `node`.
    ///
    /// # Errors
    /// If the registry cannot be read or written.
    pub async fn join(node: NodeId, registry: &dyn Registry) -> Result<Self, RegistryError> {
        let stored = registry.get(TABLE, &node.0).await?;
        let revision = stored.as_ref().map(|stored| stored.revision);
        let Revision(lives) = registry.put(TABLE, &node.0, Vec::new(), revision).await?;
        Ok(Self { node, incarnation: Incarnation(lives) })
    }
}

#[async_trait]
impl Membership for LocalMembership {
    fn node(&self) -> &NodeId {
        &self.node
    }

    fn incarnation(&self) -> Incarnation {
        self.incarnation
    }

    async fn alive(&self) -> Result<Members, RegistryError> {
        Ok(vec![(self.node.clone(), self.incarnation)])
    }

    fn watch(&self) -> watch::Receiver<Members> {
        // Its sender is gone at once: nothing ever changes.
        watch::channel(vec![(self.node.clone(), self.incarnation)]).1
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{LocalRegistry, StateFile};

    #[tokio::test]
    async fn every_start_is_a_new_incarnation() {
        let folder = tempfile::tempdir().unwrap();
        let registry = LocalRegistry::new(StateFile::open(&folder.path().join("state.redb")).unwrap());
        for life in 1..4 {
            let joined = LocalMembership::join(NodeId("n1".to_owned()), &registry).await.unwrap();
            assert_eq!(joined.incarnation(), Incarnation(life));
            assert_eq!(joined.alive().await.unwrap(), [(NodeId("n1".to_owned()), Incarnation(life))]);
        }
    }
}
