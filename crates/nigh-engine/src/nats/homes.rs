//! The map of homes: the home of each shard. It changes by compare-and-set; a node becomes the home by then taking an epoch
//! in the shard's journal.
//!
//! A home assigns versions only after its epoch is in the map (`took`). So an entry bounds the epochs of all versions that
//! exist when it is written: by its own epoch, or by `before`.

use async_recursion::async_recursion as boxed;
use nigh_terms::{Epoch, Incarnation, NodeId, NodeNumber, ShardId};
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;

use super::documents::{Documents, NotWritten};
use super::{Claim, Cluster, ClusterError};
use crate::{RegistryError, Revision};

/// The format version of an entry that this build writes.
const FORMAT: u32 = 1;

/// A shard's entry.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShardHome {
    format: u32,
    /// The node that is the home.
    pub node: NodeId,
    /// The home's number.
    pub number: NodeNumber,
    /// The home's incarnation.
    pub incarnation: Incarnation,
    /// The epoch that the home has taken; none if it has not yet.
    pub epoch: Option<Epoch>,
    /// The highest epoch of the former homes; none if there were none.
    #[serde(default)]
    pub before: Option<Epoch>,
    /// True if the home has released the shard: it appends nothing more, and another node must claim the shard.
    #[serde(default)]
    pub free: bool,
}

impl ShardHome {
    /// The entry of a home, with its `epoch` if it has taken one.
    #[must_use]
    pub fn of(Claimant { node, number, incarnation }: &Claimant, epoch: Option<Epoch>) -> Self {
        let (node, number, incarnation) = (node.clone(), *number, *incarnation);
        Self { format: FORMAT, node, number, incarnation, epoch, before: None, free: false }
    }

    /// The entry of a node that claims a shard; `before` is the highest epoch of the former homes.
    #[must_use]
    pub fn claimed(claimant: &Claimant, before: Option<Epoch>) -> Self {
        Self { before, ..Self::of(claimant, None) }
    }

    /// The highest epoch under which versions may have been assigned.
    #[must_use]
    pub fn highest(&self) -> Option<Epoch> {
        self.epoch.max(self.before)
    }

    /// True if this incarnation of this node is the home, or has claimed the shard.
    #[must_use]
    pub fn is_of(&self, node: &NodeId, incarnation: Incarnation) -> bool {
        !self.free && self.node == *node && self.incarnation == incarnation
    }
}

/// A node that claims shards.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claimant {
    /// The node's name.
    pub node: NodeId,
    /// The node's number.
    pub number: NodeNumber,
    /// The node's incarnation.
    pub incarnation: Incarnation,
}

/// A change of an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HomeEntry {
    /// The id of the shard.
    pub shard: ShardId,
    /// The home that the entry names.
    pub home: ShardHome,
    /// The revision of the entry, which grows with each write of any entry.
    pub revision: Revision,
}

/// The map of homes.
#[derive(Clone, Debug)]
pub struct NatsHomes {
    documents: Documents,
}

impl NatsHomes {
    /// The map of `cluster`, created if there is none.
    ///
    /// # Errors
    /// If the servers do not answer, or the stream has other settings.
    #[boxed]
    pub async fn open(cluster: Cluster) -> Result<Self, ClusterError> {
        Ok(Self { documents: Documents::open(cluster, "homes", std::time::Duration::ZERO).await? })
    }

    /// The home of `shard` and the revision of its entry, as the servers know it.
    ///
    /// # Errors
    /// If the servers do not answer, or the entry cannot be read.
    #[boxed]
    pub async fn get(&self, shard: ShardId) -> Result<Option<(ShardHome, Revision)>, RegistryError> {
        let found = self.documents.get(&self.subject(shard)?).await?;
        let entry = found.and_then(|found| Some((found.value?, Revision(found.place))));
        entry.map(|(value, revision)| Ok((decode(shard, &value)?, revision))).transpose()
    }

    /// All entries, as a server knows them.
    ///
    /// # Errors
    /// If the servers do not answer, or an entry cannot be read.
    #[boxed]
    pub async fn list(&self) -> Result<Vec<HomeEntry>, RegistryError> {
        let mut entries = Vec::new();
        for (name, found) in self.documents.list(&[]).await? {
            let Some((shard, value)) = name.parse().ok().map(ShardId).zip(found.value) else { continue };
            entries.push(HomeEntry { shard, home: decode(shard, &value)?, revision: Revision(found.place) });
        }
        Ok(entries)
    }

    /// Claims `shard` for `who`, if its entry is `found`. Returns the claim.
    ///
    /// # Errors
    /// `Conflict` if another node was faster; else if the servers do not answer.
    #[boxed]
    pub async fn claim(
        &self,
        shard: ShardId,
        who: &Claimant,
        found: Option<(&ShardHome, Revision)>,
    ) -> Result<Claim, RegistryError> {
        let before = found.and_then(|(home, _)| home.highest());
        let home = ShardHome::claimed(who, before);
        let Claimant { node, incarnation, .. } = who.clone();
        let Revision(claim) = self.write(shard, &home, found.map(|(_, revision)| revision)).await?;
        Ok(Claim { shard, claim, node, incarnation })
    }

    /// Writes the epoch that was taken by `claim`. Returns the revision of the entry.
    ///
    /// # Errors
    /// `Conflict` if the shard has another home meanwhile; if the servers do not answer.
    #[boxed]
    pub async fn took(&self, claim: &Claim, number: NodeNumber, epoch: Epoch) -> Result<Revision, RegistryError> {
        let Claim { shard, claim, node, incarnation } = claim.clone();
        let home = ShardHome::of(&Claimant { node, number, incarnation }, Some(epoch));
        self.write(shard, &home, Some(Revision(claim))).await
    }

    /// Writes that the home of `shard` has released it, if its entry is `found`.
    ///
    /// # Errors
    /// `Conflict` if the shard has another home meanwhile; if the servers do not answer.
    #[boxed]
    pub async fn free(&self, shard: ShardId, found: (&ShardHome, Revision)) -> Result<Revision, RegistryError> {
        let (home, revision) = found;
        self.write(shard, &ShardHome { free: true, ..home.clone() }, Some(revision)).await
    }

    /// The entry of every shard, then each change.
    ///
    /// # Errors
    /// If the watch cannot begin.
    pub fn watch(&self) -> Result<mpsc::Receiver<HomeEntry>, RegistryError> {
        let mut documents = self.documents.watch(&[])?;
        let (send, homes) = mpsc::channel(1);
        tokio::spawn(async move {
            while let Some((name, found)) = documents.recv().await {
                let revision = Revision(found.place);
                let Some((shard, value)) = name.parse().ok().map(ShardId).zip(found.value) else { continue };
                match decode(shard, &value) {
                    Ok(home) => {
                        if send.send(HomeEntry { shard, home, revision }).await.is_err() {
                            return;
                        }
                    }
                    Err(error) => tracing::error!(%error, "the map of homes cannot be read"),
                }
            }
        });
        Ok(homes)
    }

    fn subject(&self, shard: ShardId) -> Result<String, ClusterError> {
        self.documents.subject(&[&shard.to_string()])
    }

    async fn write(
        &self,
        shard: ShardId,
        home: &ShardHome,
        expected: Option<Revision>,
    ) -> Result<Revision, RegistryError> {
        let value = serde_json::to_vec(home).map_err(|error| RegistryError::Storage(error.to_string()))?;
        let place = expected.map_or(0, |Revision(place)| place);
        match self.documents.write(&self.subject(shard)?, Some(&value), place).await {
            Ok(place) => Ok(Revision(place)),
            Err(NotWritten::Conflict) => Err(conflict(shard, None)),
            Err(NotWritten::Other(error)) => Err(error.into()),
        }
    }
}

fn conflict(shard: ShardId, found: Option<Revision>) -> RegistryError {
    RegistryError::Conflict { table: "homes".to_owned(), key: shard.to_string(), found }
}

fn decode(shard: ShardId, value: &[u8]) -> Result<ShardHome, RegistryError> {
    let told = |reason: String| RegistryError::Storage(format!("the home of shard {shard}: {reason}"));
    let home: ShardHome = serde_json::from_slice(value).map_err(|error| told(error.to_string()))?;
    if home.format > FORMAT {
        return Err(told(format!(
            "it has format {}, and this build reads {FORMAT}: start the newer Nigh",
            home.format
        )));
    }
    Ok(home)
}
