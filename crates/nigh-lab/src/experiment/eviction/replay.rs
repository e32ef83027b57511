//! One policy on one day of requests, in a cache of so many bytes.

use std::collections::HashMap;
use std::time::Instant;

use nigh_objects::eviction::{Doubtful, EvictionPolicy, Facts, Order, Origin, Slot, Slots, fetch_us};

use super::requests::Requests;

/// What an object takes at least, as the node's cache counts it.
const OBJECT_MIN: u64 = 320;

/// How it went.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Replayed {
    pub(super) requests: u64,
    pub(super) reads: u64,
    pub(super) hits: u64,
    pub(super) read_bytes: u64,
    pub(super) hit_bytes: u64,
    /// The time of all fetches, were nothing kept.
    pub(super) fetch_us: f64,
    /// That of those that hits saved.
    pub(super) saved_us: f64,
    /// What the replay took.
    pub(super) seconds: f64,
}

impl Replayed {
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

/// The copies, as the cache has them.
struct Copies<P> {
    slots: Slots<(u64, u64)>,
    order: Order<P>,
    by_object: HashMap<u64, Slot>,
    bytes: u64,
}

impl<P: EvictionPolicy> Copies<P> {
    fn remove(&mut self, slot: Slot) {
        self.order.remove(slot);
        if let Some((object, bytes)) = self.slots.remove(slot) {
            self.by_object.remove(&object);
            self.bytes -= bytes;
        }
    }

    fn insert(&mut self, object: u64, bytes: u64, origin: Origin, budget: u64) {
        if bytes > budget {
            return;
        }
        while self.bytes + bytes > budget {
            let Some(victim) = self.order.victim() else { return };
            self.remove(victim);
        }
        let slot = self.slots.insert((object, bytes));
        self.order.insert(slot, &Facts { bytes, fetch_us: fetch_us(bytes), name: object, origin });
        self.by_object.insert(object, slot);
        self.bytes += bytes;
    }
}

pub(super) fn replay(policy: impl EvictionPolicy, outputs: Doubtful, requests: &Requests, budget: u64) -> Replayed {
    let order = Order::new(policy, outputs);
    let mut copies = Copies { slots: Slots::default(), order, by_object: HashMap::new(), bytes: 0 };
    let mut done = Replayed { requests: requests.all.len() as u64, ..Replayed::default() };
    let begun = Instant::now();
    for request in &requests.all {
        for slot in copies.order.advance(request.at_s) {
            copies.remove(slot);
        }
        let bytes = request.bytes.max(OBJECT_MIN);
        if request.writes {
            copies.insert(request.object, bytes, Origin::Written, budget);
            continue;
        }
        let cost_us = fetch_us(bytes);
        done.reads += 1;
        done.read_bytes += request.bytes;
        done.fetch_us += cost_us;
        match copies.by_object.get(&request.object) {
            Some(slot) => {
                copies.order.touch(*slot);
                done.hits += 1;
                done.hit_bytes += request.bytes;
                done.saved_us += cost_us;
            }
            None => copies.insert(request.object, bytes, Origin::Read, budget),
        }
    }
    done.seconds = begun.elapsed().as_secs_f64();
    done
}
