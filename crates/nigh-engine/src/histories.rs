//! Histories: a history is a list of events, and a head with the current state.
//!
//! Events are only appended, and a history is removed as a whole. A change is durable when its `PendingCommit` returns, and
//! never without the changes queued before it. The owner of the histories gives heads and events their meaning and limits
//! their number. On one machine the state file has them; in a cluster they have one writer at a time (`nats/histories`).

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use nigh_terms::Namespace;
use redb::{ReadableTable as _, TableDefinition};

use crate::group_writer::{GroupWriter, PendingCommit};
use crate::state_tables::{RowsById, all_rows, open_written, read_table, storage};
use crate::{RegistryError, StateFile};

const HEADS: RowsById = TableDefinition::new("history-heads");
/// Key: the history, then the event's place, big-endian.
const EVENTS: TableDefinition<'static, &[u8; 24], &[u8]> = TableDefinition::new("history-events");

/// The identifier of a history: a UUID of version 7, so that lists are in the order of creation.
pub type HistoryId = [u8; 16];

/// One change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HistoryChange {
    /// Sets a history's head, and creates the history if there is none.
    SetHead {
        /// The id of the history.
        id: HistoryId,
        /// The head.
        head: Bytes,
    },
    /// Adds an event, or replaces the event at its place.
    Add {
        /// The id of the history.
        id: HistoryId,
        /// The place of the event.
        place: u64,
        /// The event.
        event: Bytes,
    },
    /// Removes a history, if there is one, with all its events.
    Remove {
        /// The id of the history.
        id: HistoryId,
    },
}

/// Histories, for their only writer.
#[async_trait]
pub trait Histories: Send + Sync {
    /// Queues `changes` behind all that were queued before. Up to [`TOGETHER_MAX`] changes of one call are written together
    /// or not at all; of more changes, a later one is never written without the earlier ones.
    ///
    /// # Errors
    /// If the writer has ended.
    async fn queue(&self, changes: Vec<HistoryChange>) -> Result<PendingCommit, RegistryError>;

    /// The heads of all histories, oldest first.
    ///
    /// # Errors
    /// If the heads cannot be read.
    async fn heads(&self) -> Result<Vec<(HistoryId, Vec<u8>)>, RegistryError>;

    /// The events of one history, in the order of their places.
    ///
    /// # Errors
    /// If the events cannot be read.
    async fn events(&self, id: HistoryId) -> Result<Vec<(u64, Vec<u8>)>, RegistryError>;

    /// One event of a history.
    ///
    /// # Errors
    /// If the event cannot be read.
    async fn event(&self, id: HistoryId, place: u64) -> Result<Option<Vec<u8>>, RegistryError>;

    /// Returns when another writer has taken the histories: this one writes nothing more. On one machine it never returns.
    async fn lost(&self);
}

/// The most changes of one call that are always written together.
pub const TOGETHER_MAX: usize = 16;

/// Histories that the processes of a cluster share.
#[async_trait]
pub trait SharedHistories: Send + Sync {
    /// Takes the histories of `namespace` under `term`, which no other writer has. Writers of lower terms can write nothing
    /// more, and the new writer reads all that they wrote.
    ///
    /// # Errors
    /// `Conflict` if a writer of a higher term has taken the histories; else if they cannot be taken now.
    async fn take(&self, namespace: &Namespace, term: u64) -> Result<Arc<dyn Histories>, RegistryError>;
}

/// A stored head or event of a history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredHistory {
    /// The id of the history.
    pub id: HistoryId,
    /// The event's place; none for a head.
    pub place: Option<u64>,
    /// The head or the event.
    pub value: Vec<u8>,
}

/// All rows at one moment.
pub(crate) struct HistoryRows {
    heads: redb::ReadOnlyTable<&'static [u8; 16], &'static [u8]>,
    events: redb::ReadOnlyTable<&'static [u8; 24], &'static [u8]>,
}

impl HistoryRows {
    /// The rows that `read` sees; none if nobody has written any yet.
    pub(crate) fn of(read: &redb::ReadTransaction) -> Result<Option<Self>, RegistryError> {
        let heads = open_written(read, HEADS).map_err(storage)?;
        let events = open_written(read, EVENTS).map_err(storage)?;
        Ok(heads.zip(events).map(|(heads, events)| Self { heads, events }))
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

/// The histories of one machine. A clone is another handle to them.
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

    /// Adds `rows` to `state` in one durable step. Blocks.
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
}

#[async_trait]
impl Histories for LocalHistories {
    async fn queue(&self, changes: Vec<HistoryChange>) -> Result<PendingCommit, RegistryError> {
        self.writer.queue(changes).await
    }

    async fn heads(&self) -> Result<Vec<(HistoryId, Vec<u8>)>, RegistryError> {
        all_rows(&self.state, HEADS).await
    }

    async fn events(&self, id: HistoryId) -> Result<Vec<(u64, Vec<u8>)>, RegistryError> {
        read_table(&self.state, EVENTS, move |events| {
            let (first, last) = (key(id, 0), key(id, u64::MAX));
            let rows = events.range::<&[u8; 24]>(&first..=&last).map_err(storage)?;
            rows.map(|row| row.map(|(key, event)| (place_of(key.value()), event.value().to_vec())).map_err(storage))
                .collect()
        })
        .await
    }

    async fn event(&self, id: HistoryId, place: u64) -> Result<Option<Vec<u8>>, RegistryError> {
        read_table(&self.state, EVENTS, move |events| {
            Ok(events.get(&key(id, place)).map_err(storage)?.map(|event| event.value().to_vec()))
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
