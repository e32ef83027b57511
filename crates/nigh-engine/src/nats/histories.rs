//! Histories that the processes of a cluster share: documents of a bucket, one a head and one an event. Those of a
//! namespace have one writer at a time.
//!
//! A namespace has a *guard*, a document that goes with every group of its changes as the last of one atomic batch, on
//! condition that it stands where this writer left it. Who takes the namespace writes the guard anew, in a higher term: from
//! that place on no batch of the writer before is taken, also none that was sent and comes late, and what it has written
//! stands before it. Lists are read from servers that have all up to there. Whoever takes it writes by what it has read
//! behind its own guard, or not at all: two that take it at once, in whatever order, mix nothing.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use nigh_terms::Namespace;
use serde::{Deserialize, Serialize};
use tokio::sync::{mpsc, oneshot};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::document_format::encode;
use super::documents::{Documents, FoundDocument, NotWritten};
use super::{Cluster, ClusterError};
use crate::group_writer::{PendingCommit, ended};
use crate::histories::{Histories, HistoryChange, HistoryId, SharedHistories};
use crate::{RegistryError, Revision};

/// The format of the guard.
const FORMAT: u32 = 1;
/// Jobs that may wait for a writer.
const QUEUE: usize = 1024;
/// Of one batch, beside the guard: messages (the servers take 1000), and bytes of values from which on it takes no more.
const BATCH_MESSAGES: usize = 900;
const BATCH_BYTES: usize = 4 << 20;
/// Between two attempts to write, at first and at most.
const AGAIN: Duration = Duration::from_millis(50);
const AGAIN_MAX: Duration = Duration::from_secs(2);
/// First parts of the documents' names; the next one is the namespace.
const GUARD: &str = "guard";
const HEAD: &str = "head";
const EVENT: &str = "event";

/// The histories of all namespaces. A clone is another handle to the same.
#[derive(Clone, Debug)]
pub struct NatsHistories {
    documents: Documents,
}

#[derive(Serialize, Deserialize)]
struct Guard {
    format: u32,
    term: u64,
}

impl NatsHistories {
    /// Those of `cluster`; their bucket is made if it is not there.
    ///
    /// # Errors
    /// If the servers do not answer, or its stream is kept otherwise.
    pub async fn open(cluster: Cluster) -> Result<Self, ClusterError> {
        Ok(Self { documents: Documents::open(cluster, "histories", Duration::ZERO).await? })
    }

    /// Writes the guard of `namespace` over whatever stands there, however fast the writer before writes; its place. Should a
    /// taker of a lower term come to write its own behind it, this one loses the namespace, and takes it again.
    async fn take_guard(&self, namespace: &Namespace, subject: &str, guard: &Guard) -> Result<u64, RegistryError> {
        let unreadable = |why: String| RegistryError::Storage(format!("histories/{namespace}: {why}"));
        let value = serde_json::to_vec(guard).map_err(|error| unreadable(error.to_string()))?;
        let found = self.documents.get(subject).await?;
        if let Some(FoundDocument { place, value: Some(value) }) = found {
            let known: Guard = serde_json::from_slice(&value).map_err(|error| unreadable(error.to_string()))?;
            if known.format > FORMAT {
                return Err(unreadable(format!("format {}, this build reads {FORMAT}", known.format)));
            }
            if known.term > guard.term {
                let (table, key) = ("histories".to_owned(), namespace.to_string());
                return Err(RegistryError::Conflict { table, key, found: Some(Revision(place)) });
            }
        }
        Ok(self.documents.write_over(subject, &value).await?)
    }
}

#[async_trait]
impl SharedHistories for NatsHistories {
    async fn take(&self, namespace: &Namespace, term: u64) -> Result<Arc<dyn Histories>, RegistryError> {
        let below = |first| self.documents.subject(&[first, namespace.as_str()]);
        let (guard, heads, events) = (below(GUARD)?, below(HEAD)?, below(EVENT)?);
        let since = self.take_guard(namespace, &guard, &Guard { format: FORMAT, term }).await?;
        let (jobs, queue) = mpsc::channel(QUEUE);
        let (documents, namespace, lost) = (self.documents.clone(), namespace.clone(), CancellationToken::new());
        let names = Names { documents, namespace, guard, heads, events };
        let writer = Writer { names: names.clone(), term, place: since, lost: lost.clone() };
        tokio::spawn(writer.run(queue));
        Ok(Arc::new(OwnedHistories { names, since, jobs, lost }))
    }
}

/// The documents of one namespace.
#[derive(Clone)]
struct Names {
    documents: Documents,
    namespace: Namespace,
    /// The guard's subject, and what those of heads and events begin with.
    guard: String,
    heads: String,
    events: String,
}

fn hex(id: HistoryId) -> String {
    format!("{:032x}", u128::from_be_bytes(id))
}

impl Names {
    fn head(&self, id: HistoryId) -> String {
        format!("{}.k{}", self.heads, hex(id))
    }

    fn events(&self, id: HistoryId) -> String {
        format!("{}.k{}", self.events, hex(id))
    }

    fn event(&self, id: HistoryId, place: u64) -> String {
        // As wide as any, so that names are in the order of places.
        format!("{}.k{place:016x}", self.events(id))
    }
}

/// The histories of a namespace, by who has taken them.
struct OwnedHistories {
    names: Names,
    /// Where the guard stood when they were taken.
    since: u64,
    jobs: mpsc::Sender<Job>,
    lost: CancellationToken,
}

struct Job {
    changes: Vec<HistoryChange>,
    done: oneshot::Sender<Result<(), String>>,
}

#[async_trait]
impl Histories for OwnedHistories {
    async fn queue(&self, changes: Vec<HistoryChange>) -> Result<PendingCommit, RegistryError> {
        let (done, written) = PendingCommit::promised();
        self.jobs.send(Job { changes, done }).await.map_err(|_| ended())?;
        Ok(written)
    }

    async fn heads(&self) -> Result<Vec<(HistoryId, Vec<u8>)>, RegistryError> {
        let Names { documents, namespace, guard, .. } = &self.names;
        let found = documents.list_since(&[HEAD, namespace.as_str()], Some((guard, self.since))).await?;
        let named = found.into_iter().filter_map(|(id, found)| {
            let id = u128::from_str_radix(&id, 16).ok()?.to_be_bytes();
            Some((id, found.value?))
        });
        Ok(named.collect())
    }

    async fn events(&self, id: HistoryId) -> Result<Vec<(u64, Vec<u8>)>, RegistryError> {
        let Names { documents, namespace, guard, .. } = &self.names;
        let parts = [EVENT, namespace.as_str(), &hex(id)];
        let found = documents.list_since(&parts, Some((guard, self.since))).await?;
        let placed = found.into_iter().filter_map(|(place, found)| {
            let place = u64::from_str_radix(&place, 16).ok()?;
            Some((place, found.value?))
        });
        Ok(placed.collect())
    }

    async fn event(&self, id: HistoryId, place: u64) -> Result<Option<Vec<u8>>, RegistryError> {
        let found = self.names.documents.get(&self.names.event(id, place)).await?;
        Ok(found.and_then(|found| found.value))
    }

    async fn lost(&self) {
        self.lost.cancelled().await;
    }
}

/// Another has taken the namespace, or nobody waits any more.
struct NamespaceLost;

/// What writes the changes of a namespace, a batch after the other: while one is under way the next group gathers.
struct Writer {
    names: Names,
    term: u64,
    /// Where the guard stands.
    place: u64,
    lost: CancellationToken,
}

impl Writer {
    async fn run(mut self, mut queue: mpsc::Receiver<Job>) {
        while let Some(first) = queue.recv().await {
            let mut group = vec![first];
            let bytes = |job: &Job| job.changes.iter().map(bytes_of).sum::<usize>();
            let mut taken = group.iter().map(bytes).sum::<usize>();
            while taken < BATCH_BYTES
                && group.len() < BATCH_MESSAGES
                && let Ok(next) = queue.try_recv()
            {
                taken += bytes(&next);
                group.push(next);
            }
            if self.write(&group, &queue).await.is_err() {
                // Who waits learns that the writer has ended.
                self.lost.cancel();
                return;
            }
            for job in group {
                // Who no longer waits need not be told.
                let _ = job.done.send(Ok(()));
            }
        }
    }

    async fn write(&mut self, group: &[Job], queue: &mpsc::Receiver<Job>) -> Result<(), NamespaceLost> {
        let mut batch = Vec::new();
        for job in group {
            let documents: Vec<Vec<(String, Bytes)>> = job.changes.iter().map(|change| self.messages(change)).collect();
            if batch.len() + documents.iter().map(Vec::len).sum::<usize>() > BATCH_MESSAGES {
                self.commit(&std::mem::take(&mut batch), queue).await?;
            }
            // A document's chunks stand right before it.
            for messages in documents {
                if batch.len() + messages.len() > BATCH_MESSAGES {
                    self.commit(&std::mem::take(&mut batch), queue).await?;
                }
                batch.extend(messages);
            }
        }
        // Also for what only goes: whoever has taken the namespace says what does.
        self.commit(&batch, queue).await?;
        for change in group.iter().flat_map(|job| &job.changes) {
            if let HistoryChange::Remove { id } = change
                && let Err(error) = self.drop_history(*id).await
            {
                tracing::debug!(namespace = %self.names.namespace, %error, "a history that is to go stays for now");
            }
        }
        Ok(())
    }

    /// What is to be written for `change`.
    fn messages(&self, change: &HistoryChange) -> Vec<(String, Bytes)> {
        match change {
            HistoryChange::SetHead { id, head } => Documents::messages_of(&self.names.head(*id), head),
            HistoryChange::Add { id, place, event } => Documents::messages_of(&self.names.event(*id, *place), event),
            HistoryChange::Remove { .. } => Vec::new(),
        }
    }

    /// Writes `batch` with the guard, however long it takes.
    async fn commit(&mut self, batch: &[(String, Bytes)], queue: &mpsc::Receiver<Job>) -> Result<(), NamespaceLost> {
        let Names { documents, namespace, guard, .. } = &self.names;
        let value = serde_json::to_vec(&Guard { format: FORMAT, term: self.term }).unwrap_or_default();
        // The same each time: it stands once.
        let (message, _) = encode(Some(&value), rand::random());
        let mut wait = AGAIN;
        loop {
            match documents.write_beside(guard, &message, self.place, batch).await {
                Ok(place) => {
                    self.place = place;
                    return Ok(());
                }
                Err(NotWritten::Conflict) => {
                    tracing::info!(%namespace, term = self.term, "another has taken the histories of the namespace");
                    return Err(NamespaceLost);
                }
                Err(NotWritten::Other(_)) if queue.is_closed() => return Err(NamespaceLost),
                Err(NotWritten::Other(error)) => {
                    tracing::warn!(%namespace, %error, "histories cannot be written; it is tried again");
                }
            }
            sleep(wait).await;
            wait = (2 * wait).min(AGAIN_MAX);
        }
    }

    /// Its head goes last: while it stands, it is known that the history is to go.
    async fn drop_history(&self, id: HistoryId) -> Result<(), ClusterError> {
        self.names.documents.drop_with_all_below(&self.names.events(id)).await?;
        self.names.documents.drop_with_all_below(&self.names.head(id)).await
    }
}

fn bytes_of(change: &HistoryChange) -> usize {
    match change {
        HistoryChange::SetHead { head: value, .. } | HistoryChange::Add { event: value, .. } => value.len(),
        HistoryChange::Remove { .. } => 0,
    }
}
