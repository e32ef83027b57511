//! Histories: what happened to something, an event after the other, and a head that says what it is and how it stands.
//!
//! Events are only added, at growing places; a history goes as a whole. Changes are durable when their `Written` says so,
//! and those of one job together. What heads and events mean is their owner's; how much there may be, too.

use std::sync::Arc;

use bytes::Bytes;
use redb::{ReadableDatabase, TableDefinition};

use crate::group_writer::{GroupWriter, Written};
use crate::{RegistryError, StateFile};

const HEADS: TableDefinition<'static, &[u8; 16], &[u8]> = TableDefinition::new("history-heads");
/// Key: the history, then the event's place, big-endian.
const EVENTS: TableDefinition<'static, &[u8; 24], &[u8]> = TableDefinition::new("history-events");

/// Names a history: a UUID of version 7, so that they are listed in the order of their making.
pub type HistoryId = [u8; 16];

/// One change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HistoryChange {
    /// Sets a history's head; it is made if it was not there.
    SetHead {
        /// The history.
        id: HistoryId,
        /// The head.
        head: Bytes,
    },
    /// Adds an event, or replaces the one at its place.
    Add {
        /// The history.
        id: HistoryId,
        /// Where.
        place: u64,
        /// The event.
        event: Bytes,
    },
    /// Removes a history with all its events, if it is there.
    Remove {
        /// The history.
        id: HistoryId,
    },
}

/// The histories of a node. A clone is another handle to the same.
#[derive(Clone, Debug)]
pub struct Histories {
    state: StateFile,
    writer: GroupWriter<HistoryChange>,
}

fn storage(error: impl Into<redb::Error>) -> RegistryError {
    RegistryError::Storage(error.into().to_string())
}

fn key(id: HistoryId, place: u64) -> [u8; 24] {
    let mut key = [0; 24];
    key[..16].copy_from_slice(&id);
    key[16..].copy_from_slice(&place.to_be_bytes());
    key
}

fn place_of(key: &[u8; 24]) -> u64 {
    let mut place = [0; 8];
    place.copy_from_slice(&key[16..]);
    u64::from_be_bytes(place)
}

impl Histories {
    /// The histories in `state`. Their writer thread ends when the last handle is dropped.
    ///
    /// # Errors
    /// If the thread cannot be started.
    pub fn open(state: StateFile) -> std::io::Result<Self> {
        Ok(Self { writer: GroupWriter::start("histories", state.clone(), commit)?, state })
    }

    /// Queues `changes` behind all that were queued before.
    ///
    /// # Errors
    /// If their writer has ended.
    pub async fn queue(&self, changes: Vec<HistoryChange>) -> Result<Written, RegistryError> {
        self.writer.queue(changes).await
    }

    /// The heads of all histories, oldest first.
    ///
    /// # Errors
    /// If the state file cannot be read.
    pub async fn heads(&self) -> Result<Vec<(HistoryId, Vec<u8>)>, RegistryError> {
        self.blocking(|read| {
            let heads = match read.open_table(HEADS) {
                Ok(heads) => heads,
                Err(redb::TableError::TableDoesNotExist(_)) => return Ok(Vec::new()),
                Err(other) => return Err(storage(other)),
            };
            let rows = heads.range::<&[u8; 16]>(..).map_err(storage)?;
            rows.map(|row| row.map(|(id, head)| (*id.value(), head.value().to_vec())).map_err(storage)).collect()
        })
        .await
    }

    /// The events of one history with their places, in their order.
    ///
    /// # Errors
    /// If the state file cannot be read.
    pub async fn events(&self, id: HistoryId) -> Result<Vec<(u64, Vec<u8>)>, RegistryError> {
        self.blocking(move |read| {
            let events = match read.open_table(EVENTS) {
                Ok(events) => events,
                Err(redb::TableError::TableDoesNotExist(_)) => return Ok(Vec::new()),
                Err(other) => return Err(storage(other)),
            };
            let (first, last) = (key(id, 0), key(id, u64::MAX));
            let rows = events.range::<&[u8; 24]>(&first..=&last).map_err(storage)?;
            rows.map(|row| row.map(|(key, event)| (place_of(key.value()), event.value().to_vec())).map_err(storage))
                .collect()
        })
        .await
    }

    /// One event of a history.
    ///
    /// # Errors
    /// If the state file cannot be read.
    pub async fn event(&self, id: HistoryId, place: u64) -> Result<Option<Vec<u8>>, RegistryError> {
        self.blocking(move |read| match read.open_table(EVENTS) {
            Ok(events) => Ok(events.get(&key(id, place)).map_err(storage)?.map(|event| event.value().to_vec())),
            Err(redb::TableError::TableDoesNotExist(_)) => Ok(None),
            Err(other) => Err(storage(other)),
        })
        .await
    }

    async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&redb::ReadTransaction) -> Result<T, RegistryError> + Send + 'static,
    ) -> Result<T, RegistryError> {
        let database = Arc::clone(&self.state.database);
        tokio::task::spawn_blocking(move || work(&database.begin_read().map_err(storage)?))
            .await
            .map_err(|join| RegistryError::Storage(join.to_string()))?
    }
}

fn commit(state: &StateFile, changes: &mut dyn Iterator<Item = &HistoryChange>) -> Result<(), RegistryError> {
    let write = state.database.begin_write().map_err(storage)?;
    {
        let mut heads = write.open_table(HEADS).map_err(storage)?;
        let mut events = write.open_table(EVENTS).map_err(storage)?;
        for change in changes {
            match change {
                HistoryChange::SetHead { id, head } => {
                    heads.insert(id, &head[..]).map_err(storage)?;
                }
                HistoryChange::Add { id, place, event } => {
                    events.insert(&key(*id, *place), &event[..]).map_err(storage)?;
                }
                HistoryChange::Remove { id } => {
                    heads.remove(id).map_err(storage)?;
                    let (first, last) = (key(*id, 0), key(*id, u64::MAX));
                    events.retain_in::<&[u8; 24], _>(&first..=&last, |_, _| false).map_err(storage)?;
                }
            }
        }
    }
    write.commit().map_err(storage)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: HistoryId = [1; 16];
    const TWO: HistoryId = [2; 16];

    fn head(id: HistoryId, text: &'static str) -> HistoryChange {
        HistoryChange::SetHead { id, head: Bytes::from_static(text.as_bytes()) }
    }

    fn add(id: HistoryId, place: u64, text: &'static str) -> HistoryChange {
        HistoryChange::Add { id, place, event: Bytes::from_static(text.as_bytes()) }
    }

    #[tokio::test]
    async fn a_history_is_read_in_its_order_and_goes_as_a_whole() {
        let folder = tempfile::tempdir().unwrap();
        let state = StateFile::open(&folder.path().join("state.redb")).unwrap();
        let histories = Histories::open(state).unwrap();
        assert!(histories.heads().await.unwrap().is_empty());
        assert!(histories.events(ONE).await.unwrap().is_empty());
        let first = histories.queue(vec![head(ONE, "runs"), add(ONE, 0, "begins")]).await.unwrap();
        let last = histories.queue(vec![add(ONE, 300, "late"), add(ONE, 2, "goes on"), add(TWO, 0, "another")]).await;
        last.unwrap().wait().await.unwrap();
        first.wait().await.unwrap();
        let events = histories.events(ONE).await.unwrap();
        assert_eq!(events.iter().map(|(place, _)| *place).collect::<Vec<_>>(), [0, 2, 300]);
        assert_eq!(histories.event(ONE, 300).await.unwrap().unwrap(), b"late");
        histories.queue(vec![head(ONE, "done")]).await.unwrap().wait().await.unwrap();
        assert_eq!(histories.heads().await.unwrap(), [(ONE, b"done".to_vec())]);
        histories.queue(vec![HistoryChange::Remove { id: ONE }]).await.unwrap().wait().await.unwrap();
        assert!(histories.heads().await.unwrap().is_empty() && histories.events(ONE).await.unwrap().is_empty());
        assert_eq!(histories.events(TWO).await.unwrap().len(), 1);
    }
}
