//! A history of appends by writers at once, and what it asks of a ledger that is opened after it: what was acknowledged is
//! there, once, with its bytes, in an order in which no write stands before one that was acknowledged before it began.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use nigh_engine::journal::JournalRecovery;
use nigh_engine::{Ledger, LedgerError};
use nigh_terms::Version;
use parking_lot::Mutex;
use tokio::task::JoinSet;

use crate::servers::PATIENCE;
use crate::under_test::{append, content, put, read};

/// The longest body, bytes; some are in pieces.
const BODY_MAX: usize = 200_000;
const PIECE: usize = 64 << 10;
/// Between an append that was refused and its repeat.
const AGAIN_AFTER: Duration = Duration::from_millis(50);

#[derive(Clone, Debug)]
enum Outcome {
    Acknowledged(Version),
    /// It is not there.
    Refused,
    /// It may be there.
    Unknown,
}

#[derive(Clone, Debug)]
struct Event {
    request: u128,
    key: String,
    bytes: usize,
    began: u64,
    ended: u64,
    outcome: Outcome,
}

/// What writers saw.
#[derive(Default)]
pub(crate) struct History {
    clock: AtomicU64,
    requests: AtomicU64,
    events: Mutex<Vec<Event>>,
    stop: AtomicBool,
}

impl History {
    fn now(&self) -> u64 {
        self.clock.fetch_add(1, Ordering::SeqCst)
    }

    /// Each of `writers` appends `each` times, one after the other.
    pub(crate) async fn appenders(self: Arc<Self>, ledger: Arc<dyn Ledger>, writers: usize, each: usize) {
        let mut tasks = JoinSet::new();
        for writer in 0..writers {
            let (history, ledger) = (Arc::clone(&self), Arc::clone(&ledger));
            tasks.spawn(async move { history.writer(&*ledger, writer, each).await });
        }
        tasks.join_all().await;
    }

    /// Writers go on after what they are doing.
    pub(crate) fn stop(&self) {
        self.stop.store(true, Ordering::SeqCst);
    }

    async fn writer(&self, ledger: &dyn Ledger, writer: usize, each: usize) {
        for at in 0..each {
            let request = u128::from(self.requests.fetch_add(1, Ordering::SeqCst)) + 1000;
            // Some keys are one writer's, some are shared.
            let key = if at % 3 == 0 { "shared".to_owned() } else { format!("key-{writer}-{}", at % 5) };
            let bytes = if at % 7 == 3 { BODY_MAX } else { 100 + (request as usize % 2000) };
            loop {
                if self.stop.load(Ordering::SeqCst) {
                    return;
                }
                let began = self.now();
                let piece = (bytes > PIECE).then_some(PIECE);
                let done = append(ledger, put(request, &key), content(request, bytes), piece).await;
                let outcome = match &done {
                    Ok(appended) => Outcome::Acknowledged(appended.version),
                    Err(LedgerError::Full | LedgerError::Unavailable(_) | LedgerError::NotKept(_)) => Outcome::Refused,
                    Err(_) => Outcome::Unknown,
                };
                let ended = self.now();
                let is_over = matches!(outcome, Outcome::Unknown);
                let is_done = matches!(outcome, Outcome::Acknowledged(_));
                self.events.lock().push(Event { request, key: key.clone(), bytes, began, ended, outcome });
                if is_over {
                    return;
                }
                if is_done {
                    break;
                }
                tokio::time::sleep(AGAIN_AFTER).await;
            }
        }
    }

    /// The versions that were acknowledged, with their requests.
    pub(crate) fn acknowledged(&self) -> BTreeMap<Version, u128> {
        let events = self.events.lock();
        let acknowledged = events.iter().filter_map(|event| match event.outcome {
            Outcome::Acknowledged(version) => Some((version, event.request)),
            Outcome::Refused | Outcome::Unknown => None,
        });
        acknowledged.collect()
    }

    /// Waits until so many more appends were acknowledged.
    pub(crate) async fn goes_on(&self, more: usize) {
        let (before, begun) = (self.acknowledged().len(), Instant::now());
        while self.acknowledged().len() < before + more {
            assert!(begun.elapsed() < PATIENCE, "nothing is acknowledged any more");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Appends of which it is not known whether they took place.
    pub(crate) fn unknown(&self) -> usize {
        self.events.lock().iter().filter(|event| matches!(event.outcome, Outcome::Unknown)).count()
    }

    /// Whether `recovered`, whose bodies `ledger` gives, agrees; nothing was told to be stored.
    pub(crate) async fn check(&self, recovered: &JournalRecovery, ledger: &dyn Ledger) {
        let events = self.events.lock().clone();
        assert_eq!(recovered.damage[..], []);
        assert!(recovered.records.is_sorted_by_key(|one| one.version));
        let mut there: BTreeMap<u128, (Version, String, u64)> = BTreeMap::new();
        for one in &recovered.records {
            let value = (one.version, one.record.key.as_str().to_owned(), one.body_bytes);
            let twice = there.insert(one.record.request.0, value);
            assert!(twice.is_none(), "request {} is there twice", one.record.request.0);
        }
        let mut asked = BTreeSet::new();
        let mut last: BTreeMap<u128, &Event> = BTreeMap::new();
        for event in &events {
            asked.insert(event.request);
            // Whoever was refused repeats the same request: the last answer counts.
            last.insert(event.request, event);
        }
        for event in last.values() {
            let found = there.get(&event.request);
            match event.outcome {
                Outcome::Acknowledged(version) => {
                    let expected = (version, event.key.clone(), event.bytes as u64);
                    assert_eq!(found, Some(&expected), "request {} was acknowledged", event.request);
                    let body = read(ledger, version).await.unwrap();
                    assert!(body == content(event.request, event.bytes), "{version} has other bytes");
                }
                Outcome::Refused => assert_eq!(found, None, "request {} was refused", event.request),
                Outcome::Unknown => {}
            }
        }
        assert!(there.keys().all(|request| asked.contains(request)), "nobody asked for some of what is there");
        respects_real_time(&events);
    }
}

/// No version is lower than one that was acknowledged before its append began.
fn respects_real_time(events: &[Event]) {
    let versions = |event: &&Event| match event.outcome {
        Outcome::Acknowledged(version) => Some((event.began, event.ended, version)),
        Outcome::Refused | Outcome::Unknown => None,
    };
    let done: Vec<_> = events.iter().filter_map(|event| versions(&event)).collect();
    let mut ends: Vec<_> = done.iter().map(|&(_, ended, version)| (ended, version)).collect();
    ends.sort();
    let mut begins = done.clone();
    begins.sort();
    let (mut highest, mut next) = (None, 0);
    for (began, _, version) in begins {
        while let Some(&(ended, before)) = ends.get(next).filter(|(ended, _)| *ended < began) {
            assert!(ended < began);
            highest = highest.max(Some(before));
            next += 1;
        }
        assert!(highest < Some(version), "{version} comes after {highest:?}, which was acknowledged before it began");
    }
    let distinct: BTreeSet<_> = done.iter().map(|(_, _, version)| version).collect();
    assert_eq!(distinct.len(), done.len(), "a version is given once");
}

#[cfg(test)]
mod tests {
    use nigh_terms::{Epoch, Sequence};

    use super::*;

    fn event(request: u128, began: u64, ended: u64, sequence: u64) -> Event {
        let outcome = Outcome::Acknowledged(Version { epoch: Epoch(1), sequence: Sequence(sequence) });
        Event { request, key: String::new(), bytes: 0, began, ended, outcome }
    }

    #[test]
    fn appends_at_once_may_stand_in_any_order() {
        respects_real_time(&[event(1, 0, 3, 2), event(2, 1, 2, 1), event(3, 4, 5, 3)]);
    }

    #[test]
    #[should_panic(expected = "acknowledged before it began")]
    fn a_later_append_that_stands_before_an_earlier_one_is_found() {
        respects_real_time(&[event(1, 0, 1, 2), event(2, 2, 3, 1)]);
    }

    #[test]
    #[should_panic(expected = "given once")]
    fn a_version_given_twice_is_found() {
        respects_real_time(&[event(1, 0, 2, 1), event(2, 1, 3, 1)]);
    }
}
