//! The outbox: one row for each piece of work that was accepted and is not done yet.
//!
//! A row has a head, which changes as the work goes on, and a body, which may be large and never changes. Every change is
//! durable when it returns. The owner of the outbox gives rows their meaning and limits their number.

use async_recursion::async_recursion as boxed;
use redb::{ReadOnlyTable, ReadableTable, TableDefinition};

use crate::group_writer::GroupWriter;
use crate::state_tables::{RowsById, all_rows, open_written, read_table, storage};
use crate::{RegistryError, StateFile};

const HEADS: RowsById = TableDefinition::new("outbox-heads");
const BODIES: RowsById = TableDefinition::new("outbox-bodies");

/// The identifier of a row: a UUID of version 7, so that lists are in the order of creation.
pub type OutboxId = [u8; 16];

/// One change of the outbox.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OutboxChange {
    /// Adds or replaces a row.
    Put {
        /// The id of the row.
        id: OutboxId,
        /// The head.
        head: Vec<u8>,
        /// The body.
        body: Vec<u8>,
    },
    /// Replaces a row's head; its body stays.
    SetHead {
        /// The id of the row.
        id: OutboxId,
        /// The new head.
        head: Vec<u8>,
    },
    /// Removes a row, if there is one.
    Remove {
        /// The id of the row.
        id: OutboxId,
    },
}

/// A row of a copy of the outbox.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredPromise {
    /// The id of the row.
    pub id: OutboxId,
    /// The head.
    pub head: Vec<u8>,
    /// The body.
    pub body: Vec<u8>,
}

/// All rows at one moment.
pub(crate) struct Promises {
    heads: ReadOnlyTable<&'static [u8; 16], &'static [u8]>,
    bodies: ReadOnlyTable<&'static [u8; 16], &'static [u8]>,
}

impl Promises {
    /// The rows that `read` sees; none if nobody has written any yet.
    pub(crate) fn of(read: &redb::ReadTransaction) -> Result<Option<Self>, RegistryError> {
        let heads = open_written(read, HEADS).map_err(storage)?;
        let bodies = open_written(read, BODIES).map_err(storage)?;
        Ok(heads.zip(bodies).map(|(heads, bodies)| Self { heads, bodies }))
    }

    /// Each row, oldest first.
    pub(crate) fn rows(
        &self,
    ) -> Result<impl Iterator<Item = Result<StoredPromise, RegistryError>> + '_, RegistryError> {
        Ok(self.heads.iter().map_err(storage)?.map(|row| {
            let (id, head) = row.map_err(storage)?;
            let body = self.bodies.get(id.value()).map_err(storage)?;
            let body = body.map(|body| body.value().to_vec()).unwrap_or_default();
            Ok(StoredPromise { id: *id.value(), head: head.value().to_vec(), body })
        }))
    }
}

/// The outbox of a node. A clone is another handle to it.
#[derive(Clone, Debug)]
pub struct Outbox {
    state: StateFile,
    writer: GroupWriter<OutboxChange>,
}

impl Outbox {
    /// The outbox in `state`. Its writer thread ends when the last handle is dropped.
    ///
    /// # Errors
    /// If the thread cannot be started.
    pub fn open(state: StateFile) -> std::io::Result<Self> {
        Ok(Self { writer: GroupWriter::start("outbox", state.clone(), commit)?, state })
    }

    /// Makes all `changes` or none of them; when it returns they are on the disk.
    ///
    /// # Errors
    /// If the state file cannot be written.
    #[boxed]
    pub async fn apply(&self, changes: Vec<OutboxChange>) -> Result<(), RegistryError> {
        self.writer.queue(changes).await?.wait().await
    }

    /// Adds `promises` to the outbox of `state`, which nobody has open, in one durable step. Blocks.
    ///
    /// # Errors
    /// If the state file cannot be written.
    pub fn take_in(state: &StateFile, promises: Vec<StoredPromise>) -> Result<(), RegistryError> {
        let puts = promises.into_iter().map(|StoredPromise { id, head, body }| OutboxChange::Put { id, head, body });
        commit(state, &mut puts.collect::<Vec<_>>().iter())
    }

    /// The body of a row.
    ///
    /// # Errors
    /// If the state file cannot be read.
    #[boxed]
    pub async fn body(&self, id: OutboxId) -> Result<Option<Vec<u8>>, RegistryError> {
        read_table(&self.state, BODIES, move |bodies| {
            Ok(bodies.get(&id).map_err(storage)?.map(|body| body.value().to_vec()))
        })
        .await
    }

    /// The heads of all rows, oldest first.
    ///
    /// # Errors
    /// If the state file cannot be read.
    #[boxed]
    pub async fn heads(&self) -> Result<Vec<(OutboxId, Vec<u8>)>, RegistryError> {
        all_rows(&self.state, HEADS).await
    }
}

fn commit(state: &StateFile, changes: &mut dyn Iterator<Item = &OutboxChange>) -> Result<(), RegistryError> {
    let write = state.begin_write().map_err(storage)?;
    {
        let mut heads = write.open_table(HEADS).map_err(storage)?;
        let mut bodies = write.open_table(BODIES).map_err(storage)?;
        for change in changes {
            match change {
                OutboxChange::Put { id, head, body } => {
                    heads.insert(id, head.as_slice()).map_err(storage)?;
                    bodies.insert(id, body.as_slice()).map_err(storage)?;
                }
                OutboxChange::SetHead { id, head } => {
                    heads.insert(id, head.as_slice()).map_err(storage)?;
                }
                OutboxChange::Remove { id } => {
                    heads.remove(id).map_err(storage)?;
                    bodies.remove(id).map_err(storage)?;
                }
            }
        }
    }
    write.commit().map_err(storage)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(id: u8, head: &[u8], body: &[u8]) -> OutboxChange {
        OutboxChange::Put { id: [id; 16], head: head.to_vec(), body: body.to_vec() }
    }

    #[tokio::test]
    async fn what_was_promised_is_there_after_a_restart_and_gone_once_removed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state.redb");
        {
            let outbox = Outbox::open(StateFile::open(&path).unwrap()).unwrap();
            assert!(outbox.heads().await.unwrap().is_empty());
            assert_eq!(outbox.body([1; 16]).await.unwrap(), None);
            let mut writers = tokio::task::JoinSet::new();
            for id in (1..=20).rev() {
                let outbox = outbox.clone();
                writers.spawn(async move { outbox.apply(vec![put(id, b"head", &[id])]).await });
            }
            assert!(writers.join_all().await.into_iter().all(|one| one.is_ok()));
            let later = OutboxChange::SetHead { id: [2; 16], head: b"later".to_vec() };
            outbox.apply(vec![later, OutboxChange::Remove { id: [1; 16] }]).await.unwrap();
        }
        // The writer has the file open until it notices that no handle is left.
        let mut tries = 0;
        let state = loop {
            match StateFile::open(&path) {
                Ok(state) => break state,
                Err(error) => assert!(tries < 2000, "{error}"),
            }
            tries += 1;
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        };
        let outbox = Outbox::open(state).unwrap();
        let heads = outbox.heads().await.unwrap();
        assert_eq!(heads.len(), 19);
        assert_eq!(heads[0], ([2; 16], b"later".to_vec()));
        assert!(heads.is_sorted());
        assert_eq!(outbox.body([2; 16]).await.unwrap(), Some(vec![2]));
        assert_eq!(outbox.body([1; 16]).await.unwrap(), None);
    }
}
