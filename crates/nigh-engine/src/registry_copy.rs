//! A snapshot of the registry, the outbox and the histories, and a new state from a snapshot.
//!
//! A snapshot reads one transaction: writers continue, and the snapshot shows none of their writes. Revisions are kept,
//! because they count the incarnations of a node. Every function blocks.

use redb::ReadableTable;

use crate::histories::HistoryRows;
use crate::outbox::Promises;
use crate::registry::{DOCUMENTS, decode, encode, path};
use crate::state_tables::{open_written, storage};
use crate::{LocalRegistry, RegistryDocument, RegistryError, StoredHistory, StoredPromise};

/// A document with its table and key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredDocument {
    /// The name of the table.
    pub table: String,
    /// The key of the document.
    pub key: String,
    /// The document and its revision.
    pub revised: RegistryDocument,
}

/// The registry, the outbox and the histories at one moment. While it is held, the state file keeps replaced rows.
pub struct RegistrySnapshot {
    documents: Option<redb::ReadOnlyTable<&'static str, &'static [u8]>>,
    promises: Option<Promises>,
    histories: Option<HistoryRows>,
}

impl LocalRegistry {
    /// A snapshot of the registry, the outbox and the histories of the state file.
    ///
    /// # Errors
    /// If the state file cannot be read.
    pub fn snapshot(&self) -> Result<RegistrySnapshot, RegistryError> {
        let read = self.state().begin_read().map_err(storage)?;
        let documents = open_written(&read, DOCUMENTS).map_err(storage)?;
        Ok(RegistrySnapshot { documents, promises: Promises::of(&read)?, histories: HistoryRows::of(&read)? })
    }

    /// Writes `documents`, with their revisions, in one durable step. Other documents stay.
    ///
    /// # Errors
    /// `Conflict` if one of their places is taken; if the state file cannot be written.
    pub fn take_in(&self, documents: &[StoredDocument]) -> Result<(), RegistryError> {
        let write = self.state().begin_write().map_err(storage)?;
        {
            let mut table = write.open_table(DOCUMENTS).map_err(storage)?;
            for StoredDocument { table: of, key, revised } in documents {
                let place = path(of, key);
                let found = table
                    .insert(place.as_str(), encode(revised.revision, &revised.value).as_slice())
                    .map_err(storage)?
                    .map(|stored| decode(stored.value()).map(|revised| revised.revision))
                    .transpose()?;
                if found.is_some() {
                    return Err(RegistryError::Conflict { table: of.clone(), key: key.clone(), found });
                }
            }
        }
        write.commit().map_err(storage)
    }
}

impl RegistrySnapshot {
    /// All documents, by table and key.
    ///
    /// # Errors
    /// If the state file cannot be read; also each document may be an error.
    pub fn documents(&self) -> Result<impl Iterator<Item = Result<StoredDocument, RegistryError>> + '_, RegistryError> {
        let range = self.documents.as_ref().map(|documents| documents.iter().map_err(storage)).transpose()?;
        Ok(range.into_iter().flatten().map(|entry| {
            let (place, stored) = entry.map_err(storage)?;
            let (table, key) = place
                .value()
                .split_once('\0')
                .ok_or_else(|| RegistryError::Storage(format!("{:?} is no document's place", place.value())))?;
            let revised = decode(stored.value())?;
            Ok(StoredDocument { table: table.to_owned(), key: key.to_owned(), revised })
        }))
    }

    /// All rows of the outbox, oldest first.
    ///
    /// # Errors
    /// The same as for `documents`.
    pub fn promises(&self) -> Result<impl Iterator<Item = Result<StoredPromise, RegistryError>> + '_, RegistryError> {
        Ok(self.promises.as_ref().map(Promises::rows).transpose()?.into_iter().flatten())
    }

    /// All heads of histories, then all their events, oldest first.
    ///
    /// # Errors
    /// The same as for `documents`.
    pub fn histories(&self) -> Result<impl Iterator<Item = Result<StoredHistory, RegistryError>> + '_, RegistryError> {
        Ok(self.histories.as_ref().map(HistoryRows::rows).transpose()?.into_iter().flatten())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Histories, HistoryChange, LocalHistories, Outbox, OutboxChange, Registry, Revision, StateFile};

    fn registry(folder: &std::path::Path, name: &str) -> LocalRegistry {
        LocalRegistry::new(StateFile::open(&folder.join(name)).unwrap())
    }

    fn all(snapshot: &RegistrySnapshot) -> Vec<StoredDocument> {
        snapshot.documents().unwrap().collect::<Result<_, _>>().unwrap()
    }

    #[tokio::test]
    async fn a_copy_is_of_one_moment_and_has_the_revisions() {
        let folder = tempfile::tempdir().unwrap();
        let source = registry(folder.path(), "source");
        assert!(all(&source.snapshot().unwrap()).is_empty());
        let first = source.put("t", "a", b"one".to_vec(), None).await.unwrap();
        source.put("t", "a", b"two".to_vec(), Some(first)).await.unwrap();
        source.put("u", "", Vec::new(), None).await.unwrap();
        let snapshot = source.snapshot().unwrap();
        source.put("t", "late", b"x".to_vec(), None).await.unwrap();
        source.delete("u", "", Revision(1)).await.unwrap();
        let documents = all(&snapshot);
        let places: Vec<_> = documents.iter().map(|one| (one.table.as_str(), one.key.as_str())).collect();
        assert_eq!(places, [("t", "a"), ("u", "")]);

        let copy = registry(folder.path(), "copy");
        copy.take_in(&documents).unwrap();
        assert_eq!(all(&copy.snapshot().unwrap()), documents);
        assert_eq!(copy.get("t", "a").await.unwrap().unwrap().revision, Revision(2));
    }

    #[tokio::test]
    async fn what_is_promised_is_of_the_same_moment_and_kept_beside_what_is_there() {
        let folder = tempfile::tempdir().unwrap();
        let state = StateFile::open(&folder.path().join("source")).unwrap();
        let (registry, outbox) = (LocalRegistry::new(state.clone()), Outbox::open(state).unwrap());
        assert_eq!(registry.snapshot().unwrap().promises().unwrap().count(), 0);
        let put = |id: u8| OutboxChange::Put { id: [id; 16], head: vec![id], body: vec![id, id] };
        outbox.apply(vec![put(2), put(1)]).await.unwrap();
        let snapshot = registry.snapshot().unwrap();
        outbox.apply(vec![put(3), OutboxChange::Remove { id: [1; 16] }]).await.unwrap();
        let promises: Vec<StoredPromise> = snapshot.promises().unwrap().collect::<Result<_, _>>().unwrap();
        let row = |id: u8| StoredPromise { id: [id; 16], head: vec![id], body: vec![id, id] };
        assert_eq!(promises, [row(1), row(2)]);

        let state = StateFile::open(&folder.path().join("copy")).unwrap();
        Outbox::take_in(&state, promises.clone()).unwrap();
        let copy = LocalRegistry::new(state);
        assert_eq!(copy.snapshot().unwrap().promises().unwrap().collect::<Result<Vec<_>, _>>().unwrap(), promises);
    }

    #[tokio::test]
    async fn histories_are_of_the_same_moment_and_kept_beside_what_is_there() {
        let folder = tempfile::tempdir().unwrap();
        let state = StateFile::open(&folder.path().join("source")).unwrap();
        let (registry, histories) = (LocalRegistry::new(state.clone()), LocalHistories::open(state).unwrap());
        assert_eq!(registry.snapshot().unwrap().histories().unwrap().count(), 0);
        let add = |id: u8, place: u64| HistoryChange::Add { id: [id; 16], place, event: vec![id].into() };
        let head = HistoryChange::SetHead { id: [2; 16], head: vec![9].into() };
        histories.queue(vec![head, add(2, 0), add(2, u64::MAX)]).await.unwrap().wait().await.unwrap();
        let snapshot = registry.snapshot().unwrap();
        histories.queue(vec![HistoryChange::Remove { id: [2; 16] }, add(3, 0)]).await.unwrap().wait().await.unwrap();
        let rows: Vec<StoredHistory> = snapshot.histories().unwrap().collect::<Result<_, _>>().unwrap();
        let row = |place, value: u8| StoredHistory { id: [2; 16], place, value: vec![value] };
        assert_eq!(rows, [row(None, 9), row(Some(0), 2), row(Some(u64::MAX), 2)]);

        let state = StateFile::open(&folder.path().join("copy")).unwrap();
        LocalHistories::take_in(&state, rows.clone()).unwrap();
        let copy = LocalRegistry::new(state);
        assert_eq!(copy.snapshot().unwrap().histories().unwrap().collect::<Result<Vec<_>, _>>().unwrap(), rows);
    }

    #[tokio::test]
    async fn a_place_that_is_taken_stays_and_nothing_else_is_written() {
        let folder = tempfile::tempdir().unwrap();
        let registry = registry(folder.path(), "state");
        registry.put("t", "b", b"mine".to_vec(), None).await.unwrap();
        let document = |key: &str| StoredDocument {
            table: "t".to_owned(),
            key: key.to_owned(),
            revised: RegistryDocument { value: b"other".to_vec(), revision: Revision(7) },
        };
        let taken = registry.take_in(&[document("a"), document("b")]);
        assert!(matches!(taken, Err(RegistryError::Conflict { key, .. }) if key == "b"));
        assert_eq!(registry.get("t", "a").await.unwrap(), None);
        assert_eq!(registry.get("t", "b").await.unwrap().unwrap().value, b"mine");
    }
}
