//! The activation records of a node: kept in its record log, and followed live.

use std::collections::VecDeque;
use std::sync::Arc;

use async_recursion::async_recursion as boxed;
use nigh_engine::{RecordLog, RegistryError};
use nigh_schedule::activation::{Activation, Outcome};
use nigh_terms::{FunctionName, InvocationId, InvocationIdPrefix, Namespace, Timestamp};
use parking_lot::Mutex;
use tokio::sync::broadcast;

/// Records that a slow follower may lag behind before it misses some.
const FOLLOW_LAG: usize = 256;
/// Records whose order of ends is remembered: a follower that asks now and then misses those before.
const ENDS_MAX: usize = 1024;

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
    /// Only those whose ids begin so.
    pub prefix: Option<InvocationIdPrefix>,
    /// Only those that ended at this time or later.
    pub since: Option<Timestamp>,
}

impl ActivationQuery {
    /// True if the listing holds `activation`. The listing itself applies `before`.
    #[must_use]
    pub fn wants(&self, activation: &Activation) -> bool {
        self.namespace.as_ref().is_none_or(|namespace| *namespace == activation.namespace)
            && self.function.as_ref().is_none_or(|function| *function == activation.function)
            && (!self.errors_only || activation.outcome != Outcome::Answered)
            && self.prefix.as_ref().is_none_or(|prefix| prefix.is_of(activation.id))
            && self.since.is_none_or(|since| activation.ended() >= since)
    }
}

/// A record as a follower knows it before it is read.
#[derive(Debug)]
struct AddedRecord {
    id: InvocationId,
    attempt: u32,
    namespace: Namespace,
    function: FunctionName,
    failed: bool,
}

impl AddedRecord {
    /// What `ActivationQuery::wants` says as far as it is known without the record.
    fn may_be_wanted(&self, query: &ActivationQuery) -> bool {
        query.namespace.as_ref().is_none_or(|namespace| *namespace == self.namespace)
            && query.function.as_ref().is_none_or(|function| *function == self.function)
            && (!query.errors_only || self.failed)
    }
}

/// The last records in the order in which they were added: that of the invocations' ends.
#[derive(Debug, Default)]
struct LastAdded {
    /// How many were added in all.
    count: u64,
    records: VecDeque<AddedRecord>,
}

/// The records that were added from a position on.
#[derive(Debug, Default, PartialEq)]
pub struct AddedRecords {
    /// Each with the position after it, oldest first.
    pub records: Vec<(u64, Activation)>,
    /// Where the next question goes on, if all of `records` are taken.
    pub position: u64,
    /// Records between the asked position and these that are not remembered any more.
    pub missed: u64,
}

/// The key of an attempt's record: the next number after that of the attempt before. In practice no other invocation has it: the
/// last ten octets of an id are random.
fn place(id: InvocationId, attempt: u32) -> [u8; 16] {
    let mut place = *id.as_bytes();
    place[15] = place[15].wrapping_add(attempt.saturating_sub(1).min(ATTEMPTS_MAX - 1) as u8);
    place
}

/// What `ActivationQuery::before` must be so that a listing goes on behind `activation`: its other attempts are next.
#[must_use]
pub fn cursor_behind(activation: &Activation) -> InvocationId {
    InvocationId::of_bytes(place(activation.id, activation.attempt))
}

/// The activation records of a node.
#[derive(Clone, Debug)]
pub struct ActivationLog {
    records: RecordLog,
    live: broadcast::Sender<Arc<Activation>>,
    added: Arc<Mutex<LastAdded>>,
}

impl ActivationLog {
    /// A log in `records`, which hold nothing else.
    #[must_use]
    pub fn new(records: RecordLog) -> Self {
        Self { records, live: broadcast::channel(FOLLOW_LAG).0, added: Arc::default() }
    }

    /// Adds a record. It does not wait for the disk.
    pub fn append(&self, activation: Activation) {
        tracing::debug!(
            invocation = %activation.id,
            namespace = %activation.namespace,
            function = %activation.function,
            answered = activation.outcome == Outcome::Answered,
            duration_us = activation.duration_us,
            "an invocation ended"
        );
        match serde_json::to_vec(&activation) {
            Ok(record) => self.records.append(place(activation.id, activation.attempt), &activation.namespace, record),
            Err(error) => tracing::error!(%error, id = %activation.id, "activation lost: it cannot be written as JSON"),
        }
        self.remember(&activation);
        if self.live.receiver_count() > 0 {
            // It fails only if the last follower has just left.
            let _ = self.live.send(Arc::new(activation));
        }
    }

    fn remember(&self, activation: &Activation) {
        let added = AddedRecord {
            id: activation.id,
            attempt: activation.attempt,
            namespace: activation.namespace.clone(),
            function: activation.function.clone(),
            failed: activation.outcome != Outcome::Answered,
        };
        let mut last = self.added.lock();
        last.count += 1;
        if last.records.len() >= ENDS_MAX {
            last.records.pop_front();
        }
        last.records.push_back(added);
    }

    /// The position after the last record.
    #[must_use]
    pub fn position(&self) -> u64 {
        self.added.lock().count
    }

    /// Up to `limit` records that were added at `position` or later, oldest first.
    ///
    /// # Errors
    /// If the log cannot be read.
    #[boxed]
    pub async fn added_from(
        &self,
        position: u64,
        query: &ActivationQuery,
        limit: usize,
    ) -> Result<AddedRecords, RegistryError> {
        let (mut added, places) = self.places_from(position, query, limit);
        for (after, place) in places {
            // None if the record has made room for others already.
            let record = self.records.get(place).await?.and_then(|record| read(&record));
            added.records.extend(record.filter(|one| query.wants(one)).map(|one| (after, one)));
        }
        Ok(added)
    }

    /// An answer without its records, and where these are.
    fn places_from(
        &self,
        position: u64,
        query: &ActivationQuery,
        limit: usize,
    ) -> (AddedRecords, Vec<(u64, [u8; 16])>) {
        let last = self.added.lock();
        let oldest = last.count - last.records.len() as u64;
        // A position of an earlier life of this node is not one of this life.
        let from = if position > last.count { 0 } else { position };
        let mut places = Vec::new();
        for (at, one) in (oldest..).zip(&last.records).filter(|(at, _)| *at >= from) {
            if places.len() >= limit {
                return (
                    AddedRecords { position: at, missed: oldest.saturating_sub(from), ..AddedRecords::default() },
                    places,
                );
            }
            if one.may_be_wanted(query) {
                places.push((at + 1, place(one.id, one.attempt)));
            }
        }
        let added =
            AddedRecords { position: last.count, missed: oldest.saturating_sub(from), ..AddedRecords::default() };
        (added, places)
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
        let number = |id: InvocationId| u128::from_be_bytes(*id.as_bytes());
        let from = query.prefix.as_ref().map_or(0, |prefix| number(prefix.lowest()));
        let end = query.prefix.as_ref().map_or(u128::MAX, |prefix| number(prefix.highest()).saturating_add(1));
        let end = query.before.map_or(end, |before| number(before).min(end));
        let keep = move |record: &[u8]| read(record).filter(|one| query.wants(one));
        self.records.newest_of(from.to_be_bytes(), end.to_be_bytes(), limit, keep).await
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
        let prefix = all[1].id.to_string().parse().ok();
        let one = ActivationQuery { prefix, ..ActivationQuery::default() };
        assert_eq!(ids(log.list(one, 10).await.unwrap()), [all[1].id]);
        let since = Some(Timestamp(all[0].ended().millis() + 1));
        let later = ActivationQuery { since, ..ActivationQuery::default() };
        assert!(log.list(later, 10).await.unwrap().is_empty());
        assert_eq!(log.get(InvocationId::now()).await.unwrap(), None);
    }

    #[tokio::test]
    async fn who_asks_from_a_position_gets_what_was_added_since_in_that_order() {
        let folder = tempfile::tempdir().unwrap();
        let state = StateFile::open(&folder.path().join("state.redb")).unwrap();
        let log = ActivationLog::new(RecordLog::open(state, Retention::default()).unwrap());
        let add = |namespace: &str, outcome: Outcome| {
            let one = activation(namespace, "f", outcome);
            log.append(one.clone());
            one
        };
        add("one", Outcome::Answered);
        let position = log.position();
        assert_eq!(position, 1);
        let all = ActivationQuery::default();
        assert_eq!(log.added_from(position, &all, 10).await.unwrap(), AddedRecords { position, ..Default::default() });
        let (second, other, third) =
            (add("one", Outcome::TimedOut), add("two", Outcome::Answered), add("one", Outcome::Answered));
        let ones = ActivationQuery { namespace: Some(Namespace::new("one").unwrap()), ..ActivationQuery::default() };
        let added = log.added_from(position, &ones, 10).await.unwrap();
        assert_eq!((added.records, added.position), (vec![(2, second.clone()), (4, third)], 4));
        let first = log.added_from(position, &all, 1).await.unwrap();
        assert_eq!((first.records, first.position), (vec![(2, second)], 2));
        let next = log.added_from(2, &all, 1).await.unwrap();
        assert_eq!((next.records, next.position), (vec![(3, other)], 3));
        assert_eq!(log.added_from(99, &all, 10).await.unwrap().records.len(), 4, "a position of an earlier life");

        for _ in 0..ENDS_MAX {
            add("many", Outcome::Answered);
        }
        let added = log.added_from(0, &all, 1).await.unwrap();
        assert_eq!((added.missed, added.position), (4, 5));
    }
}
