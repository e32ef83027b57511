//! Each requester's share of the requests that a door has under way, so that no requester keeps the others out.
//!
//! A requester is whoever a request is counted for: an access key, or the function behind a URL that anybody may call.
//!
//! The limit is a dynamic threshold, as switches use it for memory that queues share (Choudhury and Hahne, "Dynamic
//! Queue Length Thresholds for Shared-Memory Packet Switches", 1998): a requester may have `SHARE_TIMES_FREE` times as many
//! requests under way as places are free. So one requester alone gets three quarters of the door; requesters that all want more
//! than there is get equal shares; and places stay free for whoever comes next. A requester's first request is always taken.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use nigh_terms::{AccessKeyId, Principal};
use parking_lot::RwLock;

/// A requester's requests under way are at most so many times the places that are free.
const SHARE_TIMES_FREE: usize = 3;
/// From so many requesters on, those that have nothing under way are forgotten when a new one comes.
const REQUESTERS_KEPT: usize = 1024;

/// For whom a request of `who` counts, signed with `key`: for the key, or for the function that runs in the sandbox of
/// the key. A function's sandboxes are many, and each has a key.
#[must_use]
pub fn requester_of(who: &Principal, key: &AccessKeyId) -> String {
    match &who.function {
        Some(function) => format!("caller {}/{function}", who.namespace),
        None => key.to_string(),
    }
}

#[derive(Debug)]
struct Requester {
    under_way: AtomicUsize,
    all_under_way: Arc<AtomicUsize>,
}

/// The requests under way at one door, by requester.
#[derive(Debug)]
pub struct Shares {
    places: usize,
    all_under_way: Arc<AtomicUsize>,
    requesters: RwLock<HashMap<Box<str>, Arc<Requester>>>,
}

/// A request under way, until this is dropped.
#[derive(Debug)]
pub struct Share(Arc<Requester>);

impl Shares {
    /// For a door that may have so many requests under way.
    #[must_use]
    pub fn new(places: usize) -> Self {
        Self { places, all_under_way: Arc::default(), requesters: RwLock::default() }
    }

    /// Counts a further request of `requester`; none if the requester has its share. Allocates for new requesters only.
    pub fn take(&self, requester: &str) -> Option<Share> {
        let known = self.requesters.read().get(requester).map(Arc::clone);
        let share = Share::begin(known.unwrap_or_else(|| self.add(requester)));
        let own = share.0.under_way.load(Ordering::Relaxed);
        let free = self.places.saturating_sub(self.all_under_way.load(Ordering::Relaxed));
        (own <= 1 || own <= SHARE_TIMES_FREE * free).then_some(share)
    }

    fn add(&self, requester: &str) -> Arc<Requester> {
        let mut requesters = self.requesters.write();
        if requesters.len() >= REQUESTERS_KEPT {
            // Who has a request under way, or is about to, holds an `Arc`, which is cloned under the lock only.
            requesters.retain(|_, requester| Arc::strong_count(requester) > 1);
        }
        let all_under_way = Arc::clone(&self.all_under_way);
        let new = || Arc::new(Requester { under_way: AtomicUsize::new(0), all_under_way });
        Arc::clone(requesters.entry(requester.into()).or_insert_with(new))
    }
}

impl Share {
    fn begin(requester: Arc<Requester>) -> Self {
        requester.under_way.fetch_add(1, Ordering::Relaxed);
        requester.all_under_way.fetch_add(1, Ordering::Relaxed);
        Self(requester)
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.0.under_way.fetch_sub(1, Ordering::Relaxed);
        self.0.all_under_way.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fill(shares: &Shares, requester: &str) -> Vec<Share> {
        std::iter::from_fn(|| shares.take(requester)).collect()
    }

    #[test]
    fn one_requester_gets_three_quarters_and_the_next_one_finds_room() {
        let shares = Shares::new(1024);
        let greedy = fill(&shares, "greedy");
        assert_eq!(greedy.len(), 768);
        let second = fill(&shares, "second");
        assert_eq!(second.len(), 192);
        assert!(shares.take("third").is_some());
        drop(greedy);
        assert_eq!(fill(&shares, "second").len() + second.len(), 768);
    }

    #[test]
    fn requesters_that_all_want_more_get_equal_shares_and_a_place_is_left() {
        let shares = Shares::new(1000);
        let mut held: Vec<Vec<Share>> = (0..10).map(|_| Vec::new()).collect();
        for _ in 0..1000 {
            for (number, held) in held.iter_mut().enumerate() {
                held.extend(shares.take(&number.to_string()));
            }
        }
        let counts: Vec<usize> = held.iter().map(Vec::len).collect();
        assert!(counts.iter().all(|count| count.abs_diff(counts[0]) <= 1), "{counts:?}");
        assert!((960..990).contains(&counts.iter().sum::<usize>()), "{counts:?}");
    }

    #[test]
    fn the_first_request_of_a_requester_is_always_taken() {
        let shares = Shares::new(2);
        let held: Vec<_> = (0..5).map(|number| shares.take(&number.to_string()).unwrap()).collect();
        assert!(shares.take("0").is_none());
        drop(held);
        assert_eq!(shares.all_under_way.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn requesters_that_have_nothing_under_way_are_not_kept_without_limit() {
        let shares = Shares::new(10);
        let kept = shares.take("kept").unwrap();
        for number in 0..5 * REQUESTERS_KEPT {
            drop(shares.take(&number.to_string()).unwrap());
        }
        assert!(shares.requesters.read().len() <= REQUESTERS_KEPT);
        assert!(shares.requesters.read().contains_key("kept"));
        drop(kept);
    }
}
