//! The record log: records of what happened on this node, newest last, up to a limit in number and bytes.
//!
//! Appending never waits for the disk: records queue for one writer thread, which commits all waiting records in one
//! transaction. A crash may lose the last batch; a clean shutdown loses nothing.
//! Records beyond what may wait (`waiting`) are dropped and counted. What is kept on the disk is bounded by `kept`.

mod kept;
mod waiting;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_recursion::async_recursion as boxed;
use nigh_terms::{ByteSize, Namespace};
use parking_lot::Mutex;
use tokio::sync::{mpsc, oneshot};

pub use self::kept::Retention;
use self::kept::{KeptRecords, NewRecord};
use self::waiting::{RECORD_BYTES_MIN, WAITING_BYTES_MAX, WaitingRecords};
use crate::state_tables::{RowsById, read_table, storage};
use crate::{RegistryError, StateFile};

/// Records, and requests to flush, that may wait for the writer.
const QUEUE: usize = (WAITING_BYTES_MAX / RECORD_BYTES_MIN) as usize;
/// How long the writer waits for more records before it commits.
const BATCH_WAIT: Duration = Duration::from_millis(50);

/// The table of activation records.
const RECORDS: &str = "records";

enum Job {
    Append(NewRecord),
    Flush(oneshot::Sender<()>),
}

/// Records by a 16-byte identifier that sorts by time (UUID version 7).
#[derive(Clone, Debug)]
pub struct RecordLog {
    state: StateFile,
    table: &'static str,
    jobs: mpsc::Sender<Job>,
    waiting: Arc<Mutex<WaitingRecords>>,
    dropped: Arc<AtomicU64>,
    /// The bytes of the records on the disk.
    bytes: Arc<AtomicU64>,
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
        let log =
            Self { state, table: name, jobs, waiting: Arc::default(), dropped: Arc::default(), bytes: Arc::default() };
        let writer = RecordWriter {
            state: log.state.clone(),
            kept: KeptRecords::new(name, retention),
            queue,
            waiting: Arc::clone(&log.waiting),
            bytes: Arc::clone(&log.bytes),
        };
        std::thread::Builder::new().name("record-log".to_owned()).spawn(move || writer.run())?;
        Ok(log)
    }

    /// Adds or replaces a record of `namespace`. It is dropped if too many wait for the disk.
    pub fn append(&self, id: [u8; 16], namespace: &Namespace, record: Vec<u8>) {
        let bytes = record.len();
        let admitted = self.waiting.lock().admit(namespace, bytes);
        let new = NewRecord { id, namespace: namespace.clone(), bytes: record };
        if !admitted {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        } else if self.jobs.try_send(Job::Append(new)).is_err() {
            self.waiting.lock().leave(namespace, bytes);
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// True while the writer's thread works.
    #[must_use]
    pub fn is_alive(&self) -> bool {
        !self.jobs.is_closed()
    }

    /// The bytes of the records on the disk.
    #[must_use]
    pub fn bytes(&self) -> ByteSize {
        ByteSize(self.bytes.load(Ordering::Relaxed))
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
        self.newest_of([0; 16], before.unwrap_or([0xff; 16]), limit, keep).await
    }

    /// Up to `limit` results of `keep` on the records whose identifiers are at least `from` and below `before`, newest
    /// first.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub async fn newest_of<T: Send + 'static>(
        &self,
        from: [u8; 16],
        before: [u8; 16],
        limit: usize,
        keep: impl Fn(&[u8]) -> Option<T> + Send + 'static,
    ) -> Result<Vec<T>, RegistryError> {
        if from >= before {
            return Ok(Vec::new());
        }
        self.flush().await;
        read_table(&self.state, RowsById::new(self.table), move |records| {
            let mut kept = Vec::new();
            for entry in records.range::<&[u8; 16]>(&from..&before).map_err(storage)?.rev() {
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

/// Writes the records of a log, on a thread of its own.
struct RecordWriter {
    state: StateFile,
    kept: KeptRecords,
    queue: mpsc::Receiver<Job>,
    waiting: Arc<Mutex<WaitingRecords>>,
    bytes: Arc<AtomicU64>,
}

impl RecordWriter {
    fn run(mut self) {
        // What an earlier build or larger limits have left is removed first, and between the batches.
        let mut more = self.write(&[]);
        loop {
            let first = if more { self.queue.try_recv().ok() } else { self.queue.blocking_recv() };
            if first.is_none() && !more {
                return;
            }
            if matches!(first, Some(Job::Append(..))) {
                std::thread::sleep(BATCH_WAIT);
            }
            let (mut batch, mut flushes) = (Vec::new(), Vec::new());
            let mut next = first;
            while let Some(job) = next {
                match job {
                    Job::Append(new) => batch.push(new),
                    Job::Flush(done) => flushes.push(done),
                }
                next = self.queue.try_recv().ok();
            }
            if more || !batch.is_empty() {
                more = self.write(&batch);
            }
            for done in flushes {
                let _ = done.send(());
            }
        }
    }

    /// Writes `batch`; true if more has to be removed to come within the limits.
    fn write(&mut self, batch: &[NewRecord]) -> bool {
        let more = self.kept.commit(&self.state, batch).unwrap_or_else(|error| {
            if batch.is_empty() {
                tracing::warn!(%error, "records beyond the limits stay until the state file can be written");
            } else {
                tracing::error!(%error, records = batch.len(), "records lost: the state file cannot be written");
            }
            false
        });
        self.bytes.store(self.kept.bytes(), Ordering::Relaxed);
        let mut waiting = self.waiting.lock();
        for new in batch {
            waiting.leave(&new.namespace, new.bytes.len());
        }
        more
    }
}

#[cfg(test)]
mod tests;
