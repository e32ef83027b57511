//! The record log: records of what happened on this node, newest last, up to a limit.
//!
//! Appending never waits for the disk: records queue for one writer thread, which commits all waiting records in one
//! transaction. A crash may lose the last batch; a clean shutdown loses nothing.
//! At `QUEUE` waiting records further ones are dropped and counted.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_recursion::async_recursion as boxed;
use redb::ReadableTableMetadata;
use tokio::sync::{mpsc, oneshot};

use crate::state_tables::{RowsById, read_table, storage};
use crate::{RegistryError, StateFile};

/// The most records that wait for the writer.
const QUEUE: usize = 16_384;
/// How long the writer waits for more records before it commits.
const BATCH_WAIT: Duration = Duration::from_millis(50);

/// The table of activation records.
const RECORDS: &str = "records";

/// How much the log keeps. The oldest records are removed first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retention {
    /// The most records in the log.
    pub records_max: u64,
}

enum Job {
    Append([u8; 16], Vec<u8>),
    Flush(oneshot::Sender<()>),
}

/// Records by a 16-byte identifier that sorts by time (UUID version 7).
#[derive(Clone, Debug)]
pub struct RecordLog {
    state: StateFile,
    table: &'static str,
    jobs: mpsc::Sender<Job>,
    dropped: Arc<AtomicU64>,
}

impl RecordLog {
    /// The log in `state`. Its writer thread ends when the last handle is dropped.
    ///
    /// # Errors
    /// If the thread cannot be started.
    pub fn open(state: StateFile, retention: Retention) -> std::io::Result<Self> {
        Self::open_named(state, RECORDS, retention)
    }

    /// Opens a log in the table `name`, which holds nothing else. Otherwise the same as `open`.
    ///
    /// # Errors
    /// If the thread cannot be started.
    pub fn open_named(state: StateFile, name: &'static str, retention: Retention) -> std::io::Result<Self> {
        let (jobs, queue) = mpsc::channel(QUEUE);
        let writer = state.clone();
        std::thread::Builder::new()
            .name("record-log".to_owned())
            .spawn(move || write_batches(&writer, RowsById::new(name), queue, retention))?;
        Ok(Self { state, table: name, jobs, dropped: Arc::default() })
    }

    /// Adds or replaces a record.
    pub fn append(&self, id: [u8; 16], record: Vec<u8>) {
        if self.jobs.try_send(Job::Append(id, record)).is_err() {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// The number of records lost because the writer could not keep up.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    /// Returns when all records appended before are on the disk.
    #[boxed]
    pub async fn flush(&self) {
        let (done, flushed) = oneshot::channel();
        if self.jobs.send(Job::Flush(done)).await.is_ok() {
            // The writer drops `done` only when it ends, and then there is nothing left to wait for.
            let _ = flushed.await;
        }
    }

    /// The record `id`.
    ///
    /// # Errors
    /// If the file cannot be read.
    #[boxed]
    pub async fn get(&self, id: [u8; 16]) -> Result<Option<Vec<u8>>, RegistryError> {
        self.flush().await;
        read_table(&self.state, RowsById::new(self.table), move |records| {
            Ok(records.get(&id).map_err(storage)?.map(|record| record.value().to_vec()))
        })
        .await
    }

    /// Up to `limit` results of `keep` on the records older than `before`, newest first.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub async fn newest<T: Send + 'static>(
        &self,
        before: Option<[u8; 16]>,
        limit: usize,
        keep: impl Fn(&[u8]) -> Option<T> + Send + 'static,
    ) -> Result<Vec<T>, RegistryError> {
        self.flush().await;
        read_table(&self.state, RowsById::new(self.table), move |records| {
            let end = before.unwrap_or([0xff; 16]);
            let mut kept = Vec::new();
            for entry in records.range::<&[u8; 16]>(..&end).map_err(storage)?.rev() {
                if kept.len() >= limit {
                    break;
                }
                kept.extend(keep(entry.map_err(storage)?.1.value()));
            }
            Ok(kept)
        })
        .await
    }
}

fn write_batches(state: &StateFile, table: RowsById, mut queue: mpsc::Receiver<Job>, retention: Retention) {
    while let Some(first) = queue.blocking_recv() {
        if matches!(first, Job::Append(..)) {
            std::thread::sleep(BATCH_WAIT);
        }
        let mut batch = Vec::new();
        let mut flushes = Vec::new();
        let mut next = Some(first);
        while let Some(job) = next {
            match job {
                Job::Append(id, record) => batch.push((id, record)),
                Job::Flush(done) => flushes.push(done),
            }
            next = queue.try_recv().ok();
        }
        if !batch.is_empty()
            && let Err(error) = commit(state, table, &batch, retention)
        {
            tracing::error!(%error, records = batch.len(), "records lost: the state file cannot be written");
        }
        for done in flushes {
            let _ = done.send(());
        }
    }
}

fn commit(
    state: &StateFile,
    table: RowsById,
    batch: &[([u8; 16], Vec<u8>)],
    retention: Retention,
) -> Result<(), RegistryError> {
    let write = state.begin_write().map_err(storage)?;
    {
        let mut records = write.open_table(table).map_err(storage)?;
        for (id, record) in batch {
            records.insert(id, record.as_slice()).map_err(storage)?;
        }
        let surplus = records.len().map_err(storage)?.saturating_sub(retention.records_max);
        for _ in 0..surplus {
            records.pop_first().map_err(storage)?;
        }
    }
    write.commit().map_err(storage)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(n: u8) -> [u8; 16] {
        let mut id = [0; 16];
        id[0] = n;
        id
    }

    #[tokio::test]
    async fn the_newest_come_first_and_the_oldest_go_first() {
        let folder = tempfile::tempdir().unwrap();
        let state = StateFile::open(&folder.path().join("state.redb")).unwrap();
        let log = RecordLog::open(state, Retention { records_max: 3 }).unwrap();
        assert_eq!(log.get(id(1)).await.unwrap(), None);
        for n in 1..=5 {
            log.append(id(n), vec![n]);
        }
        assert_eq!(log.newest(None, 10, |r| Some(r[0])).await.unwrap(), [5, 4, 3]);
        assert_eq!(log.newest(Some(id(5)), 1, |r| Some(r[0])).await.unwrap(), [4]);
        assert_eq!(log.newest(None, 10, |r| (r[0] == 3).then_some(3u8)).await.unwrap(), [3]);
        assert_eq!(log.get(id(1)).await.unwrap(), None);
        assert_eq!(log.get(id(5)).await.unwrap(), Some(vec![5]));
        assert_eq!(log.dropped(), 0);
    }
}
