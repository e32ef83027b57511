//! The registry of a cluster. A document's revision is the place of its message: it grows with each write of any
//! document, even across deletions.

use async_recursion::async_recursion as boxed;
use async_trait::async_trait;
use tokio::sync::mpsc;

use super::document_format;
use super::documents::{Documents, NotWritten};
use super::{Cluster, ClusterError};
use crate::{Registry, RegistryChange, RegistryDocument, RegistryError, Revision};

/// The most bytes of a document.
pub const VALUE_MAX_BYTES: usize = document_format::VALUE_MAX_BYTES;

/// Documents in a bucket of the cluster.
#[derive(Clone, Debug)]
pub struct NatsRegistry {
    documents: Documents,
}

impl NatsRegistry {
    /// The registry of `cluster`, created if there is none.
    ///
    /// # Errors
    /// If the servers do not answer, or the stream has other settings.
    #[boxed]
    pub async fn open(cluster: Cluster) -> Result<Self, ClusterError> {
        Ok(Self { documents: Documents::open(cluster, "registry", std::time::Duration::ZERO).await? })
    }
}

fn too_long(table: &str, key: &str, bytes: usize) -> RegistryError {
    RegistryError::Storage(format!("{table}/{key} has {bytes} bytes, and {VALUE_MAX_BYTES} at most"))
}

#[async_trait]
impl Registry for NatsRegistry {
    async fn get(&self, table: &str, key: &str) -> Result<Option<RegistryDocument>, RegistryError> {
        let found = self.documents.get(&self.documents.subject(&[table, key])?).await?;
        Ok(found.and_then(|found| Some(RegistryDocument { value: found.value?, revision: Revision(found.place) })))
    }

    async fn list(&self, table: &str, prefix: &str) -> Result<Vec<(String, RegistryDocument)>, RegistryError> {
        let found = self.documents.list(&[table]).await?.into_iter().filter(|(key, _)| key.starts_with(prefix));
        let revised = found.filter_map(|(key, found)| {
            Some((key, RegistryDocument { value: found.value?, revision: Revision(found.place) }))
        });
        Ok(revised.collect())
    }

    async fn keys(&self, table: &str, prefix: &str) -> Result<Vec<String>, RegistryError> {
        Ok(self.list(table, prefix).await?.into_iter().map(|(key, _)| key).collect())
    }

    async fn put(
        &self,
        table: &str,
        key: &str,
        value: Vec<u8>,
        expected: Option<Revision>,
    ) -> Result<Revision, RegistryError> {
        if value.len() > VALUE_MAX_BYTES {
            return Err(too_long(table, key, value.len()));
        }
        self.write(table, key, Some(&value), expected).await
    }

    async fn delete(&self, table: &str, key: &str, expected: Revision) -> Result<(), RegistryError> {
        self.write(table, key, None, Some(expected)).await.map(|_| ())
    }

    async fn apply(&self, table: &str, changes: Vec<(String, Option<Vec<u8>>)>) -> Result<(), RegistryError> {
        let mut batch = Vec::with_capacity(changes.len());
        for (key, value) in changes {
            if let Some(bytes) = value.as_ref().map(Vec::len).filter(|&bytes| bytes > VALUE_MAX_BYTES) {
                return Err(too_long(table, &key, bytes));
            }
            batch.push((self.documents.subject(&[table, &key])?, value));
        }
        Ok(self.documents.write_all(batch).await?)
    }

    async fn watch(&self, table: &str) -> Result<mpsc::Receiver<RegistryChange>, RegistryError> {
        let mut documents = self.documents.watch(&[table])?;
        let (send, changes) = mpsc::channel(1);
        tokio::spawn(async move {
            while let Some((key, found)) = documents.recv().await {
                let revision = Revision(found.place);
                let now = found.value.map(|value| RegistryDocument { value, revision });
                if send.send(RegistryChange { key, now }).await.is_err() {
                    return;
                }
            }
        });
        Ok(changes)
    }
}

impl NatsRegistry {
    /// Writes a document that is at `expected`. A deleted document has a place but no revision.
    async fn write(
        &self,
        table: &str,
        key: &str,
        value: Option<&[u8]>,
        expected: Option<Revision>,
    ) -> Result<Revision, RegistryError> {
        let subject = self.documents.subject(&[table, key])?;
        let mut place = expected.map_or(0, |Revision(place)| place);
        loop {
            match self.documents.write(&subject, value, place).await {
                Ok(place) => return Ok(Revision(place)),
                Err(NotWritten::Other(error)) => return Err(error.into()),
                Err(NotWritten::Conflict) => {}
            }
            match self.documents.get(&subject).await? {
                Some(found) if found.value.is_none() && expected.is_none() && found.place != place => {
                    place = found.place
                }
                found => {
                    let found = found.filter(|found| found.value.is_some()).map(|found| Revision(found.place));
                    return Err(RegistryError::Conflict { table: table.to_owned(), key: key.to_owned(), found });
                }
            }
        }
    }
}
