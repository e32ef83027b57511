//! Histories that the processes of a cluster share: a document of a bucket for each head and each event. The histories of a
//! namespace have one writer at a time.
//!
//! Each namespace has a *history guard*, a document that is the last of each atomic batch of changes. A batch is rejected
//! unless the guard is at the place where its writer left it. A new writer writes the guard in a higher term: servers then
//! reject all batches of the former writer, also late ones, and all that the former writer wrote is before the guard. The
//! new writer reads from servers that have everything up to its guard, before it writes: two writers that take a namespace
//! at once never mix their changes.

use std::sync::Arc;
use std::time::Duration;

use async_recursion::async_recursion as boxed;
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

/// The format version of the guard.
const FORMAT: u32 = 1;
/// The most jobs that wait for a writer.
const QUEUE: usize = 1024;
/// The limits of one batch beside the guard: messages (servers accept 1000), and bytes of values after which it is
/// closed.
const BATCH_MESSAGES: usize = 900;
const BATCH_BYTES: usize = 4 << 20;
/// The first and the longest wait between two attempts to write.
const AGAIN: Duration = Duration::from_millis(50);
const AGAIN_MAX: Duration = Duration::from_secs(2);
/// The first parts of the documents' names; the second part is the namespace.
const GUARD: &str = "guard";
const HEAD: &str = "head";
const EVENT: &str = "event";

/// The histories of all namespaces. A clone is another handle to them.
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
    /// The histories of `cluster`, whose bucket is created if there is none.
    ///
    /// # Errors
    /// If the servers do not answer, or the stream has other settings.
    #[boxed]
    pub async fn open(cluster: Cluster) -> Result<Self, ClusterError> {
        Ok(Self { documents: Documents::open(cluster, "histories", Duration::ZERO).await? })
    }

    /// Writes the guard of `namespace`, wherever it is, and returns its place. If a writer of a lower term writes its
    /// guard later, this one loses the namespace and takes it again.
    async fn take_guard(&self, namespace: &Namespace, subject: &str, guard: &Guard) -> Result<u64, RegistryError> {
        let unreadable = |why: String| RegistryError::Storage(format!("histories/{namespace}: {why}"));
        let value = serde_json::to_vec(guard).map_err(|error| unreadable(error.to_string()))?;
        let found = self.documents.get(subject).await?;
        if let Some(FoundDocument { place, value: Some(value) }) = found {
            let known: Guard = serde_json::from_slice(&value).map_err(|error| unreadable(error.to_string()))?;
            if known.format > FORMAT {
                return Err(unreadable(format!(
                    "it has format {}, and this build reads {FORMAT}: start the newer Nigh",
                    known.format
                )));
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
    /// The guard's subject, and the prefixes of heads and events.
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
        // Of fixed width, so that names are in the order of places.
        format!("{}.k{place:016x}", self.events(id))
    }
}

/// The histories of a namespace, for the writer that has taken them.
struct OwnedHistories {
    names: Names,
    /// The guard's place when the histories were taken.
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

/// Another writer has taken the namespace, or nobody waits any more.
struct NamespaceLost;

/// Writes the changes of a namespace batch by batch: while one is under way the next gathers.
struct Writer {
    names: Names,
    term: u64,
    /// The guard's present place.
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
                // Dropping the jobs tells waiting callers that the writer has ended.
                self.lost.cancel();
                return;
            }
            for job in group {
                // The caller may no longer wait.
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
            // A document's chunks are right before it.
            for messages in documents {
                if batch.len() + messages.len() > BATCH_MESSAGES {
                    self.commit(&std::mem::take(&mut batch), queue).await?;
                }
                batch.extend(messages);
            }
        }
        // Also if the batch only removes: the guard's write proves that this is still the writer.
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

    /// The messages for `change`.
    fn messages(&self, change: &HistoryChange) -> Vec<(String, Bytes)> {
        match change {
            HistoryChange::SetHead { id, head } => Documents::messages_of(&self.names.head(*id), head),
            HistoryChange::Add { id, place, event } => Documents::messages_of(&self.names.event(*id, *place), event),
            HistoryChange::Remove { .. } => Vec::new(),
        }
    }

    /// Writes `batch` with the guard, until it succeeds or the namespace is lost.
    async fn commit(&mut self, batch: &[(String, Bytes)], queue: &mpsc::Receiver<Job>) -> Result<(), NamespaceLost> {
        let Names { documents, namespace, guard, .. } = &self.names;
        let value = serde_json::to_vec(&Guard { format: FORMAT, term: self.term }).unwrap_or_default();
        // Each attempt sends the same message, so that it is written once.
        let (message, _) = encode(Some(&value), rand::random());
        let mut wait = AGAIN;
        loop {
            match documents.write_beside(guard, &message, self.place, batch).await {
                Ok(place) => {
                    self.place = place;
                    return Ok(());
                }
                Err(NotWritten::Conflict) => {
                    tracing::info!(%namespace, term = self.term, "another writer has taken the histories of the namespace");
                    return Err(NamespaceLost);
                }
                Err(NotWritten::Other(_)) if queue.is_closed() => return Err(NamespaceLost),
                Err(NotWritten::Other(error)) => {
                    tracing::warn!(%namespace, %error, "histories cannot be written; trying again");
                }
            }
            sleep(wait).await;
            wait = (2 * wait).min(AGAIN_MAX);
        }
    }

    /// Removes the head last: it shows that the history must be removed.
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
