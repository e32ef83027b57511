//! Which node is the home of which shard. The map is changed by compare-and-set only; what makes a home is the epoch that
//! it then takes in the shard's journal.
//!
//! A home gives versions out only after its epoch stands here (`took`). So an entry bounds the epochs of all versions that
//! there are when it is written: by its own epoch, or by those `before`.

use nigh_terms::{Epoch, Incarnation, NodeId, NodeNumber, ShardId};
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
    /// Its number.
    pub number: NodeNumber,
    /// Which life of it.
    pub incarnation: Incarnation,
    /// The epoch that it has taken, once it has.
    pub epoch: Option<Epoch>,
    /// The highest epoch of the homes before it.
    #[serde(default)]
    pub before: Option<Epoch>,
    /// It has let go: it appends nothing more, and another is to claim the shard.
    #[serde(default)]
    pub free: bool,
}

impl ShardHome {
    /// The entry of a home that has taken `epoch`, or none yet.
    #[must_use]
    pub fn of(Claimant { node, number, incarnation }: &Claimant, epoch: Option<Epoch>) -> Self {
        let (node, number, incarnation) = (node.clone(), *number, *incarnation);
        Self { format: FORMAT, node, number, incarnation, epoch, before: None, free: false }
    }

    /// The entry of who claims a shard; `before` is the highest epoch of the homes before it.
    #[must_use]
    pub fn claimed(claimant: &Claimant, before: Option<Epoch>) -> Self {
        Self { before, ..Self::of(claimant, None) }
    }

    /// The highest epoch under which versions may have been given out.
    #[must_use]
    pub fn highest(&self) -> Option<Epoch> {
        self.epoch.max(self.before)
    }

    /// Whether that life of that node is the home, or about to be.
    #[must_use]
    pub fn is_of(&self, node: &NodeId, incarnation: Incarnation) -> bool {
        !self.free && self.node == *node && self.incarnation == incarnation
    }
}

/// Who is to be a home.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claimant {
    /// Its name.
    pub node: NodeId,
    /// Its number.
    pub number: NodeNumber,
    /// Which life of it.
    pub incarnation: Incarnation,
}

/// An entry as it came to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HomeEntry {
    /// The shard.
    pub shard: ShardId,
    /// Its home.
    pub home: ShardHome,
    /// Where the entry stands: grows with each write of any entry.
    pub revision: Revision,
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

    /// All entries, as a server knows them.
    ///
    /// # Errors
    /// If the servers do not answer, or an entry cannot be read.
    pub async fn list(&self) -> Result<Vec<HomeEntry>, RegistryError> {
        let mut entries = Vec::new();
        for (name, found) in self.documents.list(&[]).await? {
            let Some((shard, value)) = name.parse().ok().map(ShardId).zip(found.value) else { continue };
            entries.push(HomeEntry { shard, home: decode(shard, &value)?, revision: Revision(found.place) });
        }
        Ok(entries)
    }

    /// Makes `who` the home of `shard`, if its entry is as `found`: the claim by which the shard is taken.
    ///
    /// # Errors
    /// `Conflict` if another was faster; if the servers do not answer.
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

    /// Tells the epoch that was taken by `claim`. The answer is where the entry stands then.
    ///
    /// # Errors
    /// `Conflict` if the shard has another home meanwhile; if the servers do not answer.
    pub async fn took(&self, claim: &Claim, number: NodeNumber, epoch: Epoch) -> Result<Revision, RegistryError> {
        let Claim { shard, claim, node, incarnation } = claim.clone();
        let home = ShardHome::of(&Claimant { node, number, incarnation }, Some(epoch));
        self.write(shard, &home, Some(Revision(claim))).await
    }

    /// Tells that the home of `shard` has let go, if its entry is as `found`.
    ///
    /// # Errors
    /// `Conflict` if the shard has another home meanwhile; if the servers do not answer.
    pub async fn free(&self, shard: ShardId, found: (&ShardHome, Revision)) -> Result<Revision, RegistryError> {
        let (home, revision) = found;
        self.write(shard, &ShardHome { free: true, ..home.clone() }, Some(revision)).await
    }

    /// Every shard's entry, first as it is, then as it changes.
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
        return Err(told(format!("format {}, this build reads {FORMAT}: start the newer Nigh", home.format)));
    }
    Ok(home)
}
