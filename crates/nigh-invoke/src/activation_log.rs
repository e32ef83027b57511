//! The activation records of a node: kept in its record log, and followed live.

use std::sync::Arc;

use async_recursion::async_recursion as boxed;
use nigh_engine::{RecordLog, RegistryError};
use nigh_schedule::activation::{Activation, Outcome};
use nigh_terms::{FunctionName, InvocationId, Namespace};
use tokio::sync::broadcast;

/// Records that a slow follower may lag behind before it misses some.
const FOLLOW_LAG: usize = 256;

/// Attempts of an event whose records are kept apart (Lambda has at most two retries).
const ATTEMPTS_MAX: u32 = 3;

/// Which records a listing holds; a None excludes nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ActivationQuery {
    /// Only those of this namespace.
    pub namespace: Option<Namespace>,
    /// Only those of this function.
    pub function: Option<FunctionName>,
    /// Only failed ones.
    pub errors_only: bool,
    /// Only those older than this one: where the previous page ended.
    pub before: Option<InvocationId>,
}

impl ActivationQuery {
    /// True if the listing holds `activation`. The listing itself applies `before`.
    #[must_use]
    pub fn wants(&self, activation: &Activation) -> bool {
        self.namespace.as_ref().is_none_or(|namespace| *namespace == activation.namespace)
            && self.function.as_ref().is_none_or(|function| *function == activation.function)
            && (!self.errors_only || activation.outcome != Outcome::Answered)
    }
}

/// The key of an attempt's record: the next number after that of the attempt before. In practice no other invocation has it: the
/// last ten octets of an id are random.
fn place(id: InvocationId, attempt: u32) -> [u8; 16] {
    let mut place = *id.as_bytes();
    place[15] = place[15].wrapping_add(attempt.saturating_sub(1).min(ATTEMPTS_MAX - 1) as u8);
    place
}

/// The activation records of a node.
#[derive(Clone, Debug)]
pub struct ActivationLog {
    records: RecordLog,
    live: broadcast::Sender<Arc<Activation>>,
}

impl ActivationLog {
    /// A log in `records`, which hold nothing else.
    #[must_use]
    pub fn new(records: RecordLog) -> Self {
        Self { records, live: broadcast::channel(FOLLOW_LAG).0 }
    }

    /// Adds a record. It does not wait for the disk.
    pub fn append(&self, activation: Activation) {
        match serde_json::to_vec(&activation) {
            Ok(record) => self.records.append(place(activation.id, activation.attempt), &activation.namespace, record),
            Err(error) => tracing::error!(%error, id = %activation.id, "activation lost: it cannot be written as JSON"),
        }
        if self.live.receiver_count() > 0 {
            // It fails only if the last follower has just left.
            let _ = self.live.send(Arc::new(activation));
        }
    }

    /// The record of `id`; for an event, that of its last attempt.
    ///
    /// # Errors
    /// If the log cannot be read.
    #[boxed]
    pub async fn get(&self, id: InvocationId) -> Result<Option<Activation>, RegistryError> {
        for attempt in (1..=ATTEMPTS_MAX).rev() {
            if let Some(record) = self.records.get(place(id, attempt)).await?
                && let Some(found) = read(&record).filter(|found| found.id == id)
            {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    /// Up to `limit` records, newest first.
    ///
    /// # Errors
    /// If the log cannot be read.
    #[boxed]
    pub async fn list(&self, query: ActivationQuery, limit: usize) -> Result<Vec<Activation>, RegistryError> {
        let before = query.before.map(|id| *id.as_bytes());
        self.records.newest(before, limit, move |record| read(record).filter(|one| query.wants(one))).await
    }

    /// Records as they are added from now on.
    #[must_use]
    pub fn follow(&self) -> broadcast::Receiver<Arc<Activation>> {
        self.live.subscribe()
    }
}

/// Reads a record. One of another format (of another version of Nigh) is skipped with a warning.
fn read(record: &[u8]) -> Option<Activation> {
    serde_json::from_slice(record)
        .inspect_err(|error| tracing::warn!(%error, "an activation record cannot be read; it is skipped"))
        .ok()
}

#[cfg(test)]
mod tests {
    use nigh_engine::{Retention, StateFile};
    use nigh_schedule::test_support::activation;

    use super::*;

    #[tokio::test]
    async fn records_are_listed_by_tenant_function_and_failure_newest_first() {
        let folder = tempfile::tempdir().unwrap();
        let state = StateFile::open(&folder.path().join("state.redb")).unwrap();
        let log = ActivationLog::new(RecordLog::open(state, Retention::default()).unwrap());
        let mut live = log.follow();
        let mut all = Vec::new();
        for (namespace, function, outcome) in [
            ("one", "f", Outcome::Answered),
            ("one", "g", Outcome::TimedOut),
            ("two", "f", Outcome::OutOfMemory),
            ("one", "f", Outcome::Crashed { reason: "exit status 1".to_owned() }),
        ] {
            let one = activation(namespace, function, outcome);
            log.append(one.clone());
            assert_eq!(*live.recv().await.unwrap(), one);
            all.push(one);
        }
        let query = ActivationQuery { namespace: Some(Namespace::new("one").unwrap()), ..ActivationQuery::default() };
        let ids = |found: Vec<Activation>| found.into_iter().map(|one| one.id).collect::<Vec<_>>();
        assert_eq!(ids(log.list(query.clone(), 10).await.unwrap()), [all[3].id, all[1].id, all[0].id]);
        assert_eq!(ids(log.list(query.clone(), 1).await.unwrap()), [all[3].id]);
        let older = ActivationQuery { before: Some(all[3].id), ..query.clone() };
        assert_eq!(ids(log.list(older, 1).await.unwrap()), [all[1].id]);
        let failed = ActivationQuery { function: Some(FunctionName::new("f").unwrap()), errors_only: true, ..query };
        assert_eq!(ids(log.list(failed, 10).await.unwrap()), [all[3].id]);
        assert_eq!(log.get(all[2].id).await.unwrap().as_ref(), Some(&all[2]));
        assert_eq!(log.get(InvocationId::now()).await.unwrap(), None);
    }
}
