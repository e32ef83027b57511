//! Membership: this node's identity and incarnation, and the other members.
//!
//! The incarnation of a node grows by one at every start and is durable before it is used, so that nothing of an earlier
//! incarnation is taken for something of this one.

use async_recursion::async_recursion as boxed;
use async_trait::async_trait;
use nigh_terms::{Incarnation, NodeId};
use tokio::sync::watch;

use crate::{Registry, RegistryError, Revision};

/// Nodes with their incarnations.
pub type Members = Vec<(NodeId, Incarnation)>;

/// The members of a cluster.
#[async_trait]
pub trait Membership: Send + Sync {
    /// This node.
    fn node(&self) -> &NodeId;
    /// This node's incarnation.
    fn incarnation(&self) -> Incarnation;
    /// All members, as far as is known; this node is one of them, unless its membership has ended.
    async fn alive(&self) -> Result<Members, RegistryError>;
    /// All members, as they change.
    fn watch(&self) -> watch::Receiver<Members>;
}

/// The membership of a node that is alone.
#[derive(Debug)]
pub struct LocalMembership {
    node: NodeId,
    incarnation: Incarnation,
}

const TABLE: &str = "membership";

impl LocalMembership {
    /// Begins a new incarnation of `node`.
    ///
    /// # Errors
    /// If the registry cannot be read or written.
    #[boxed]
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
        // The sender is dropped at once: the members never change.
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
