//! Which node is the home of which shard. The map is changed by compare-and-set only; what makes a home is the epoch that
//! it then takes in the shard's journal.

use nigh_terms::{Epoch, Incarnation, NodeId, ShardId};
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;

use super::documents::{Documents, NotWritten};
use super::{Claim, Cluster, ClusterError};
use crate::{RegistryError, Revision};

/// The format of an entry that this build writes.
const FORMAT: u32 = 1;

/// A shard's entry.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShardHome {
    format: u32,
    /// The home.
    pub node: NodeId,
    /// Which life of it.
    pub incarnation: Incarnation,
    /// The epoch that it has taken, once it has.
    pub epoch: Option<Epoch>,
}

/// The map of homes.
#[derive(Clone, Debug)]
pub struct NatsHomes {
    documents: Documents,
}

impl NatsHomes {
    /// The map of `cluster`, made if it is not there.
    ///
    /// # Errors
    /// If the servers do not answer, or its stream is kept otherwise.
    pub async fn open(cluster: Cluster) -> Result<Self, ClusterError> {
        Ok(Self { documents: Documents::open(cluster, "homes", std::time::Duration::ZERO).await? })
    }

    /// The home of `shard` and its entry's revision, as the servers know it.
    ///
    /// # Errors
    /// If they do not answer, or the entry cannot be read.
    pub async fn get(&self, shard: ShardId) -> Result<Option<(ShardHome, Revision)>, RegistryError> {
        let found = self.documents.get(&self.subject(shard)?).await?;
        let entry = found.and_then(|found| Some((found.value?, Revision(found.place))));
        entry.map(|(value, revision)| Ok((decode(shard, &value)?, revision))).transpose()
    }

    /// Makes `node` the home of `shard`, if its entry is at `expected`: the claim by which the shard is taken.
    ///
    /// # Errors
    /// `Conflict` if another was faster; if the servers do not answer.
    pub async fn claim(
        &self,
        shard: ShardId,
        (node, incarnation): (NodeId, Incarnation),
        expected: Option<Revision>,
    ) -> Result<Claim, RegistryError> {
        let home = ShardHome { format: FORMAT, node: node.clone(), incarnation, epoch: None };
        let Revision(claim) = self.write(shard, &home, expected).await?;
        Ok(Claim { shard, claim, node, incarnation })
    }

    /// Tells the epoch that was taken by `claim`.
    ///
    /// # Errors
    /// `Conflict` if the shard has another home meanwhile; if the servers do not answer.
    pub async fn took(&self, claim: &Claim, epoch: Epoch) -> Result<(), RegistryError> {
        let Claim { shard, claim, node, incarnation } = claim.clone();
        let home = ShardHome { format: FORMAT, node, incarnation, epoch: Some(epoch) };
        self.write(shard, &home, Some(Revision(claim))).await.map(|_| ())
    }

    /// Every shard's entry, first as it is, then as it changes.
    ///
    /// # Errors
    /// If the watch cannot begin.
    pub fn watch(&self) -> Result<mpsc::Receiver<(ShardId, ShardHome)>, RegistryError> {
        let mut documents = self.documents.watch(&[])?;
        let (send, homes) = mpsc::channel(1);
        tokio::spawn(async move {
            while let Some((name, found)) = documents.recv().await {
                let Some((shard, value)) = name.parse().ok().map(ShardId).zip(found.value) else { continue };
                match decode(shard, &value) {
                    Ok(home) => {
                        if send.send((shard, home)).await.is_err() {
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
        return Err(told(format!("format {}, this build reads {FORMAT}: start the newer Nigh", home.format)));
    }
    Ok(home)
}
