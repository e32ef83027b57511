//! Histories: what happened to something, an event after the other, and a head that says what it is and how it stands.
//!
//! Events are only added, at growing places; a history goes as a whole. Changes are durable when their `PendingCommit` says so,
//! and never without those that were queued before. What heads and events mean is their owner's; how much there may be, too.
//! On one machine they are in its state file; those of a cluster have one writer at a time (`nats/histories`).

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use nigh_terms::Namespace;
use redb::{ReadableTable as _, TableDefinition};

use crate::group_writer::{GroupWriter, PendingCommit};
use crate::registry::storage;
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

/// Histories, as their one writer has them.
#[async_trait]
pub trait Histories: Send + Sync {
    /// Queues `changes` behind all that were queued before. Those of one call stand together, as far as they are no more
    /// than [`TOGETHER_MAX`]; of more, never a later one without an earlier.
    ///
    /// # Errors
    /// If their writer has ended.
    async fn queue(&self, changes: Vec<HistoryChange>) -> Result<PendingCommit, RegistryError>;

    /// The heads of all histories, oldest first.
    ///
    /// # Errors
    /// If they cannot be read.
    async fn heads(&self) -> Result<Vec<(HistoryId, Vec<u8>)>, RegistryError>;

    /// The events of one history with their places, in their order.
    ///
    /// # Errors
    /// If they cannot be read.
    async fn events(&self, id: HistoryId) -> Result<Vec<(u64, Vec<u8>)>, RegistryError>;

    /// One event of a history.
    ///
    /// # Errors
    /// If it cannot be read.
    async fn event(&self, id: HistoryId, place: u64) -> Result<Option<Vec<u8>>, RegistryError>;

    /// Returns when another writer has them: nothing is written here any more. Never, where there is one writer alone.
    async fn lost(&self);
}

/// The changes of one call that stand together at least.
pub const TOGETHER_MAX: usize = 16;

/// Histories that the processes of a cluster share.
#[async_trait]
pub trait SharedHistories: Send + Sync {
    /// Takes those of `namespace`, in a term that is no other's. From then on a taker of a lower term writes nothing more,
    /// and what it has written is read.
    ///
    /// # Errors
    /// `Conflict` if there is a taker of a higher term; else if they cannot be taken now.
    async fn take(&self, namespace: &Namespace, term: u64) -> Result<Arc<dyn Histories>, RegistryError>;
}

/// A head or an event of a history, as it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredHistory {
    /// The history.
    pub id: HistoryId,
    /// The event's place; none of the head.
    pub place: Option<u64>,
    /// What stands there.
    pub value: Vec<u8>,
}

/// All rows at one moment.
pub(crate) struct HistoryRows {
    heads: redb::ReadOnlyTable<&'static [u8; 16], &'static [u8]>,
    events: redb::ReadOnlyTable<&'static [u8; 24], &'static [u8]>,
}

impl HistoryRows {
    /// Those that `read` sees; none if nothing was ever kept.
    pub(crate) fn of(read: &redb::ReadTransaction) -> Result<Option<Self>, RegistryError> {
        match (read.open_table(HEADS), read.open_table(EVENTS)) {
            (Ok(heads), Ok(events)) => Ok(Some(Self { heads, events })),
            (Err(redb::TableError::TableDoesNotExist(_)), _) => Ok(None),
            (Err(other), _) | (_, Err(other)) => Err(storage(other)),
        }
    }

    /// Each row: the heads, then the events, oldest first.
    pub(crate) fn rows(
        &self,
    ) -> Result<impl Iterator<Item = Result<StoredHistory, RegistryError>> + '_, RegistryError> {
        let heads = self.heads.iter().map_err(storage)?.map(|row| {
            let (id, head) = row.map_err(storage)?;
            Ok(StoredHistory { id: *id.value(), place: None, value: head.value().to_vec() })
        });
        let events = self.events.iter().map_err(storage)?.map(|row| {
            let (key, event) = row.map_err(storage)?;
            let mut id = [0; 16];
            id.copy_from_slice(&key.value()[..16]);
            Ok(StoredHistory { id, place: Some(place_of(key.value())), value: event.value().to_vec() })
        });
        Ok(heads.chain(events))
    }
}

/// The histories of one machine. A clone is another handle to the same.
#[derive(Clone, Debug)]
pub struct LocalHistories {
    state: StateFile,
    writer: GroupWriter<HistoryChange>,
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

impl LocalHistories {
    /// The histories in `state`. Their writer thread ends when the last handle is dropped.
    ///
    /// # Errors
    /// If the thread cannot be started.
    pub fn open(state: StateFile) -> std::io::Result<Self> {
        Ok(Self { writer: GroupWriter::start("histories", state.clone(), commit)?, state })
    }

    /// Writes `rows` into `state`, in one durable step, beside what is there. Blocks.
    ///
    /// # Errors
    /// If the state file cannot be written.
    pub fn take_in(state: &StateFile, rows: Vec<StoredHistory>) -> Result<(), RegistryError> {
        let changes: Vec<HistoryChange> = rows
            .into_iter()
            .map(|StoredHistory { id, place, value }| match place {
                None => HistoryChange::SetHead { id, head: value.into() },
                Some(place) => HistoryChange::Add { id, place, event: value.into() },
            })
            .collect();
        commit(state, &mut changes.iter())
    }

    async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&redb::ReadTransaction) -> Result<T, RegistryError> + Send + 'static,
    ) -> Result<T, RegistryError> {
        let state = self.state.clone();
        tokio::task::spawn_blocking(move || work(&state.begin_read().map_err(storage)?))
            .await
            .map_err(|join| RegistryError::Storage(join.to_string()))?
    }
}

#[async_trait]
impl Histories for LocalHistories {
    async fn queue(&self, changes: Vec<HistoryChange>) -> Result<PendingCommit, RegistryError> {
        self.writer.queue(changes).await
    }

    async fn heads(&self) -> Result<Vec<(HistoryId, Vec<u8>)>, RegistryError> {
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

    async fn events(&self, id: HistoryId) -> Result<Vec<(u64, Vec<u8>)>, RegistryError> {
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

    async fn event(&self, id: HistoryId, place: u64) -> Result<Option<Vec<u8>>, RegistryError> {
        self.blocking(move |read| match read.open_table(EVENTS) {
            Ok(events) => Ok(events.get(&key(id, place)).map_err(storage)?.map(|event| event.value().to_vec())),
            Err(redb::TableError::TableDoesNotExist(_)) => Ok(None),
            Err(other) => Err(storage(other)),
        })
        .await
    }

    async fn lost(&self) {
        std::future::pending().await
    }
}

fn commit(state: &StateFile, changes: &mut dyn Iterator<Item = &HistoryChange>) -> Result<(), RegistryError> {
    let write = state.begin_write().map_err(storage)?;
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
