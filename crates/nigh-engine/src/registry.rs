//! The registry: small documents by table and key, with compare-and-set.
//!
//! Functions, namespaces, keys and models live here. One machine keeps them in its state file.

use std::sync::Arc;

use async_trait::async_trait;
use redb::{ReadableDatabase, ReadableTable, TableDefinition};
use thiserror::Error;

use crate::StateFile;

/// The number of times a document was written; absent documents have none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Revision(pub u64);

/// A document and its revision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Revised {
    /// The document.
    pub value: Vec<u8>,
    /// Its revision.
    pub revision: Revision,
}

/// Why the registry refused.
#[derive(Debug, Error)]
pub enum RegistryError {
    /// Somebody else wrote first.
    #[error("{table}/{key} was changed meanwhile (it is at revision {found:?}); read it again")]
    Conflict {
        /// The table.
        table: String,
        /// The key.
        key: String,
        /// What is there now.
        found: Option<Revision>,
    },
    /// The medium's own reason.
    #[error("registry: {0}")]
    Storage(String),
}

/// Documents by table and key. Every write is durable when it returns.
#[async_trait]
pub trait Registry: Send + Sync {
    /// The document at `key`.
    async fn get(&self, table: &str, key: &str) -> Result<Option<Revised>, RegistryError>;
    /// All documents whose key begins with `prefix`, in the order of their keys.
    async fn list(&self, table: &str, prefix: &str) -> Result<Vec<(String, Revised)>, RegistryError>;
    /// The keys of all documents that begin with `prefix`, in their order.
    async fn keys(&self, table: &str, prefix: &str) -> Result<Vec<String>, RegistryError>;
    /// Writes `value` if the document is at `expected` (`None`: if there is none), else `Conflict`.
    async fn put(
        &self,
        table: &str,
        key: &str,
        value: Vec<u8>,
        expected: Option<Revision>,
    ) -> Result<Revision, RegistryError>;
    /// Removes the document if it is at `expected`, else `Conflict`.
    async fn delete(&self, table: &str, key: &str, expected: Revision) -> Result<(), RegistryError>;
    /// Writes or removes these documents whatever they are at, all of them or none. For what only one writer has and can
    /// be made anew: many at a time cost what one does.
    async fn apply(&self, table: &str, changes: Vec<(String, Option<Vec<u8>>)>) -> Result<(), RegistryError>;
}

/// Key: table, NUL, key. Value: revision (8 bytes, little-endian), then the document.
pub(crate) const DOCUMENTS: TableDefinition<'static, &str, &[u8]> = TableDefinition::new("registry");

/// The registry of one machine, in its state file.
#[derive(Clone, Debug)]
pub struct LocalRegistry {
    state: StateFile,
}

impl LocalRegistry {
    /// The registry in `state`.
    #[must_use]
    pub const fn new(state: StateFile) -> Self {
        Self { state }
    }

    /// The open file.
    pub(crate) fn database(&self) -> &redb::Database {
        &self.state.database
    }

    async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&redb::Database) -> Result<T, RegistryError> + Send + 'static,
    ) -> Result<T, RegistryError> {
        let database = Arc::clone(&self.state.database);
        tokio::task::spawn_blocking(move || work(&database))
            .await
            .map_err(|join| RegistryError::Storage(join.to_string()))?
    }
}

pub(crate) fn storage(error: impl Into<redb::Error>) -> RegistryError {
    RegistryError::Storage(error.into().to_string())
}

pub(crate) fn path(table: &str, key: &str) -> String {
    format!("{table}\0{key}")
}

pub(crate) fn decode(stored: &[u8]) -> Result<Revised, RegistryError> {
    let (revision, value) = stored
        .split_first_chunk::<8>()
        .ok_or_else(|| RegistryError::Storage("a document is shorter than its revision".to_owned()))?;
    Ok(Revised { value: value.to_vec(), revision: Revision(u64::from_le_bytes(*revision)) })
}

pub(crate) fn encode(revision: Revision, value: &[u8]) -> Vec<u8> {
    [&revision.0.to_le_bytes()[..], value].concat()
}

/// Runs `change` on the document's place if it is at `expected`, in one durable transaction.
fn compare_and_set(
    database: &redb::Database,
    table: &str,
    key: &str,
    expected: Option<Revision>,
    value: Option<&[u8]>,
) -> Result<Revision, RegistryError> {
    let write = database.begin_write().map_err(storage)?;
    let revision = {
        let mut documents = write.open_table(DOCUMENTS).map_err(storage)?;
        let place = path(table, key);
        let found = match documents.get(place.as_str()).map_err(storage)? {
            Some(stored) => Some(decode(stored.value())?.revision),
            None => None,
        };
        if found != expected {
            return Err(RegistryError::Conflict { table: table.to_owned(), key: key.to_owned(), found });
        }
        let next = Revision(found.map_or(1, |revision| revision.0 + 1));
        match value {
            Some(value) => documents.insert(place.as_str(), encode(next, value).as_slice()).map_err(storage)?,
            None => documents.remove(place.as_str()).map_err(storage)?,
        };
        next
    };
    write.commit().map_err(storage)?;
    Ok(revision)
}

/// Does all of `changes` in one durable transaction.
fn apply_all(
    database: &redb::Database,
    table: &str,
    changes: &[(String, Option<Vec<u8>>)],
) -> Result<(), RegistryError> {
    let write = database.begin_write().map_err(storage)?;
    {
        let mut documents = write.open_table(DOCUMENTS).map_err(storage)?;
        for (key, value) in changes {
            let place = path(table, key);
            let found = documents.get(place.as_str()).map_err(storage)?.map(|stored| decode(stored.value()));
            let next = Revision(found.transpose()?.map_or(1, |found| found.revision.0 + 1));
            match value {
                Some(value) => documents.insert(place.as_str(), encode(next, value).as_slice()).map_err(storage)?,
                None => documents.remove(place.as_str()).map_err(storage)?,
            };
        }
    }
    write.commit().map_err(storage)
}

/// The documents whose key begins with `prefix`, in the order of their keys, as `read` takes them.
fn listed<T>(
    database: &redb::Database,
    table: &str,
    prefix: &str,
    read: impl Fn(&[u8]) -> Result<T, RegistryError>,
) -> Result<Vec<(String, T)>, RegistryError> {
    let transaction = database.begin_read().map_err(storage)?;
    let documents = match transaction.open_table(DOCUMENTS) {
        Ok(documents) => documents,
        Err(redb::TableError::TableDoesNotExist(_)) => return Ok(Vec::new()),
        Err(other) => return Err(storage(other)),
    };
    let first = path(table, prefix);
    let mut found = Vec::new();
    for entry in documents.range(first.as_str()..).map_err(storage)? {
        let (place, stored) = entry.map_err(storage)?;
        if !place.value().starts_with(&first) {
            break;
        }
        let key = place.value()[table.len() + 1..].to_owned();
        found.push((key, read(stored.value())?));
    }
    Ok(found)
}

#[async_trait]
impl Registry for LocalRegistry {
    async fn get(&self, table: &str, key: &str) -> Result<Option<Revised>, RegistryError> {
        let place = path(table, key);
        self.blocking(move |database| {
            let read = database.begin_read().map_err(storage)?;
            let documents = match read.open_table(DOCUMENTS) {
                Ok(documents) => documents,
                Err(redb::TableError::TableDoesNotExist(_)) => return Ok(None),
                Err(other) => return Err(storage(other)),
            };
            documents.get(place.as_str()).map_err(storage)?.map(|stored| decode(stored.value())).transpose()
        })
        .await
    }

    async fn list(&self, table: &str, prefix: &str) -> Result<Vec<(String, Revised)>, RegistryError> {
        let (table, prefix) = (table.to_owned(), prefix.to_owned());
        self.blocking(move |database| listed(database, &table, &prefix, decode)).await
    }

    async fn keys(&self, table: &str, prefix: &str) -> Result<Vec<String>, RegistryError> {
        let (table, prefix) = (table.to_owned(), prefix.to_owned());
        let listed = self.blocking(move |database| listed(database, &table, &prefix, |_| Ok(()))).await?;
        Ok(listed.into_iter().map(|(key, ())| key).collect())
    }

    async fn put(
        &self,
        table: &str,
        key: &str,
        value: Vec<u8>,
        expected: Option<Revision>,
    ) -> Result<Revision, RegistryError> {
        let (table, key) = (table.to_owned(), key.to_owned());
        self.blocking(move |database| compare_and_set(database, &table, &key, expected, Some(&value))).await
    }

    async fn delete(&self, table: &str, key: &str, expected: Revision) -> Result<(), RegistryError> {
        let (table, key) = (table.to_owned(), key.to_owned());
        self.blocking(move |database| compare_and_set(database, &table, &key, Some(expected), None).map(drop)).await
    }

    async fn apply(&self, table: &str, changes: Vec<(String, Option<Vec<u8>>)>) -> Result<(), RegistryError> {
        let table = table.to_owned();
        self.blocking(move |database| apply_all(database, &table, &changes)).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What every registry must do; a cluster's implementation runs the same.
    async fn conforms(registry: &dyn Registry) {
        assert_eq!(registry.get("t", "a").await.unwrap(), None);
        assert!(registry.list("t", "").await.unwrap().is_empty());
        let first = registry.put("t", "a", b"one".to_vec(), None).await.unwrap();
        assert!(matches!(
            registry.put("t", "a", b"other".to_vec(), None).await,
            Err(RegistryError::Conflict { found: Some(found), .. }) if found == first
        ));
        let second = registry.put("t", "a", b"two".to_vec(), Some(first)).await.unwrap();
        assert!(second > first);
        assert!(registry.put("t", "a", b"late".to_vec(), Some(first)).await.is_err());
        assert!(registry.delete("t", "a", first).await.is_err());
        assert_eq!(registry.get("t", "a").await.unwrap(), Some(Revised { value: b"two".to_vec(), revision: second }));

        registry.put("t", "ab", b"x".to_vec(), None).await.unwrap();
        registry.put("t", "b", b"x".to_vec(), None).await.unwrap();
        registry.put("u", "a", b"x".to_vec(), None).await.unwrap();
        let keys = |found: Vec<(String, Revised)>| found.into_iter().map(|(key, _)| key).collect::<Vec<_>>();
        assert_eq!(keys(registry.list("t", "a").await.unwrap()), ["a", "ab"]);
        assert_eq!(keys(registry.list("t", "").await.unwrap()), ["a", "ab", "b"]);
        assert_eq!(registry.keys("t", "a").await.unwrap(), ["a", "ab"]);

        registry.delete("t", "a", second).await.unwrap();
        assert_eq!(registry.get("t", "a").await.unwrap(), None);
        registry.put("t", "a", b"again".to_vec(), None).await.unwrap();

        let all = vec![("x".to_owned(), Some(b"1".to_vec())), ("ab".to_owned(), None), ("none".to_owned(), None)];
        registry.apply("t", all).await.unwrap();
        registry.apply("t", vec![("x".to_owned(), Some(b"2".to_vec()))]).await.unwrap();
        assert_eq!(keys(registry.list("t", "").await.unwrap()), ["a", "b", "x"]);
        let twice = registry.get("t", "x").await.unwrap().unwrap();
        assert_eq!((twice.value, twice.revision), (b"2".to_vec(), Revision(2)));
    }

    #[tokio::test]
    async fn the_local_registry_conforms_and_survives_a_restart() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state.redb");
        conforms(&LocalRegistry::new(StateFile::open(&path).unwrap())).await;
        let again = LocalRegistry::new(StateFile::open(&path).unwrap());
        assert_eq!(again.get("t", "a").await.unwrap().unwrap().value, b"again");
    }
}
