//! One policy on one day of requests, in a cache of a given size.

use std::time::Instant;

use nigh_data::fetch_us;
use nigh_objects::eviction::{EvictionPolicy, Order, Origin, UnreadCopyRule};

use super::requests::Requests;
use crate::instrument::simulated_copies::SimulatedCopies;

/// The least that the node's cache counts for an object.
const OBJECT_MIN: u64 = 320;

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ReplayResult {
    pub(super) requests: u64,
    pub(super) reads: u64,
    pub(super) hits: u64,
    pub(super) read_bytes: u64,
    pub(super) hit_bytes: u64,
    /// The time of all fetches without a cache.
    pub(super) fetch_us: f64,
    /// The time of the fetches that hits saved.
    pub(super) saved_us: f64,
    /// The time of the replay.
    pub(super) seconds: f64,
}

impl ReplayResult {
    pub(super) fn add(&mut self, other: &Self) {
        self.requests += other.requests;
        self.reads += other.reads;
        self.hits += other.hits;
        self.read_bytes += other.read_bytes;
        self.hit_bytes += other.hit_bytes;
        self.fetch_us += other.fetch_us;
        self.saved_us += other.saved_us;
        self.seconds += other.seconds;
    }
}

pub(super) fn replay(
    policy: impl EvictionPolicy,
    outputs: UnreadCopyRule,
    requests: &Requests,
    budget: u64,
) -> ReplayResult {
    let mut copies = SimulatedCopies::new(Order::new(policy, outputs), budget);
    let mut done = ReplayResult { requests: requests.all.len() as u64, ..ReplayResult::default() };
    let begun = Instant::now();
    for request in &requests.all {
        copies.advance(request.at_s);
        let bytes = request.bytes.max(OBJECT_MIN);
        if request.writes {
            copies.insert(request.object, bytes, Origin::Written, |_| ());
            continue;
        }
        let cost_us = fetch_us(bytes);
        done.reads += 1;
        done.read_bytes += request.bytes;
        done.fetch_us += cost_us;
        if copies.touch(request.object) {
            done.hits += 1;
            done.hit_bytes += request.bytes;
            done.saved_us += cost_us;
        } else {
            copies.insert(request.object, bytes, Origin::Read, |_| ());
        }
    }
    done.seconds = begun.elapsed().as_secs_f64();
    done
}
