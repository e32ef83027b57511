//! The registry: small documents by table and key, with compare-and-set.
//!
//! The registry holds functions, namespaces, keys and models. On one machine they are in the state file.

use std::collections::BTreeMap;

use async_trait::async_trait;
use redb::{ReadableTable, TableDefinition};
use thiserror::Error;
use tokio::sync::mpsc;

use crate::StateFile;
use crate::state_tables::{blocking, open_written, read_table, storage};

/// The revision of a document: each write has a higher one than the write before. Absent documents have none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Revision(pub u64);

/// A document and its revision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegistryDocument {
    /// The document.
    pub value: Vec<u8>,
    /// The document's revision.
    pub revision: Revision,
}

/// A write of a document, or its deletion.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegistryChange {
    /// The document's key.
    pub key: String,
    /// The document; none if it was deleted.
    pub now: Option<RegistryDocument>,
}

/// Why a registry operation failed.
#[derive(Debug, Error)]
pub enum RegistryError {
    /// Another writer was first.
    #[error("{table}/{key} was changed meanwhile (it is at revision {found:?}); read it again")]
    Conflict {
        /// The name of the table.
        table: String,
        /// The key of the document.
        key: String,
        /// The present revision.
        found: Option<Revision>,
    },
    /// The storage failed.
    #[error("registry: {0}")]
    Storage(String),
}

/// Documents by table and key. Every write is durable when it returns.
#[async_trait]
pub trait Registry: Send + Sync {
    /// The document at `key`.
    async fn get(&self, table: &str, key: &str) -> Result<Option<RegistryDocument>, RegistryError>;
    /// All documents whose key begins with `prefix`, in the order of their keys.
    async fn list(&self, table: &str, prefix: &str) -> Result<Vec<(String, RegistryDocument)>, RegistryError>;
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
    /// Writes or removes all these documents or none, at whatever revision they are. For documents of a single writer
    /// that can write them again: many cost as much as one.
    async fn apply(&self, table: &str, changes: Vec<(String, Option<Vec<u8>>)>) -> Result<(), RegistryError>;
    /// The documents of `table` as they are now, then each change. Quick successive writes may be one change, and changes
    /// may be repeated. Ends when the receiver is dropped.
    async fn watch(&self, table: &str) -> Result<mpsc::Receiver<RegistryChange>, RegistryError>;
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
    pub(crate) const fn state(&self) -> &StateFile {
        &self.state
    }
}

pub(crate) fn path(table: &str, key: &str) -> String {
    format!("{table}\0{key}")
}

pub(crate) fn decode(stored: &[u8]) -> Result<RegistryDocument, RegistryError> {
    let (revision, value) = stored
        .split_first_chunk::<8>()
        .ok_or_else(|| RegistryError::Storage("a document is shorter than its revision".to_owned()))?;
    Ok(RegistryDocument { value: value.to_vec(), revision: Revision(u64::from_le_bytes(*revision)) })
}

pub(crate) fn encode(revision: Revision, value: &[u8]) -> Vec<u8> {
    [&revision.0.to_le_bytes()[..], value].concat()
}

/// Writes or removes the document if it is at `expected`, in one durable transaction.
fn compare_and_set(
    state: &StateFile,
    table: &str,
    key: &str,
    expected: Option<Revision>,
    value: Option<&[u8]>,
) -> Result<Revision, RegistryError> {
    let write = state.begin_write().map_err(storage)?;
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
fn apply_all(state: &StateFile, table: &str, changes: &[(String, Option<Vec<u8>>)]) -> Result<(), RegistryError> {
    let write = state.begin_write().map_err(storage)?;
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

/// The results of `read` on the documents whose key begins with `prefix`, in the order of their keys.
fn listed<T>(
    state: &StateFile,
    table: &str,
    prefix: &str,
    read: impl Fn(&[u8]) -> Result<T, RegistryError>,
) -> Result<Vec<(String, T)>, RegistryError> {
    let transaction = state.begin_read().map_err(storage)?;
    let Some(documents) = open_written(&transaction, DOCUMENTS).map_err(storage)? else { return Ok(Vec::new()) };
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
    async fn get(&self, table: &str, key: &str) -> Result<Option<RegistryDocument>, RegistryError> {
        let place = path(table, key);
        read_table(&self.state, DOCUMENTS, move |documents| {
            documents.get(place.as_str()).map_err(storage)?.map(|stored| decode(stored.value())).transpose()
        })
        .await
    }

    async fn list(&self, table: &str, prefix: &str) -> Result<Vec<(String, RegistryDocument)>, RegistryError> {
        let (table, prefix) = (table.to_owned(), prefix.to_owned());
        blocking(&self.state, move |state| listed(state, &table, &prefix, decode)).await
    }

    async fn keys(&self, table: &str, prefix: &str) -> Result<Vec<String>, RegistryError> {
        let (table, prefix) = (table.to_owned(), prefix.to_owned());
        let listed = blocking(&self.state, move |state| listed(state, &table, &prefix, |_| Ok(()))).await?;
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
        let write = move |state: &StateFile| compare_and_set(state, &table, &key, expected, Some(&value));
        let revision = blocking(&self.state, write).await?;
        self.state.changed();
        Ok(revision)
    }

    async fn delete(&self, table: &str, key: &str, expected: Revision) -> Result<(), RegistryError> {
        let (table, key) = (table.to_owned(), key.to_owned());
        blocking(&self.state, move |state| compare_and_set(state, &table, &key, Some(expected), None)).await?;
        self.state.changed();
        Ok(())
    }

    async fn apply(&self, table: &str, changes: Vec<(String, Option<Vec<u8>>)>) -> Result<(), RegistryError> {
        let table = table.to_owned();
        blocking(&self.state, move |state| apply_all(state, &table, &changes)).await?;
        self.state.changed();
        Ok(())
    }

    async fn watch(&self, table: &str) -> Result<mpsc::Receiver<RegistryChange>, RegistryError> {
        let (send, changes) = mpsc::channel(1);
        let mut written = self.state.changes();
        let first = self.list(table, "").await?;
        let (registry, table) = (self.clone(), table.to_owned());
        tokio::spawn(async move {
            let mut told = BTreeMap::new();
            let mut now: BTreeMap<String, RegistryDocument> = first.into_iter().collect();
            loop {
                for change in differences(&told, &now) {
                    if send.send(change).await.is_err() {
                        return;
                    }
                }
                told = now;
                let more = tokio::select! {
                    more = written.changed() => more.is_ok(),
                    () = send.closed() => false,
                };
                let listed = if more { registry.list(&table, "").await } else { return };
                now = match listed {
                    Ok(listed) => listed.into_iter().collect(),
                    Err(error) => return tracing::error!(%error, table, "a table cannot be watched any more"),
                };
            }
        });
        Ok(changes)
    }
}

/// The changes between two states of a table.
fn differences(
    before: &BTreeMap<String, RegistryDocument>,
    now: &BTreeMap<String, RegistryDocument>,
) -> Vec<RegistryChange> {
    let written = now.iter().filter(|(key, revised)| before.get(*key) != Some(revised));
    let gone = before.keys().filter(|key| !now.contains_key(*key));
    let written = written.map(|(key, revised)| RegistryChange { key: key.clone(), now: Some(revised.clone()) });
    written.chain(gone.map(|key| RegistryChange { key: key.clone(), now: None })).collect()
}
