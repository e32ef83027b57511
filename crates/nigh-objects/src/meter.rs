//! Counts of data calls, for status and metrics: the first observer of every event.
//!
//! The metrics recorder must be installed before the memory is opened: the handles are taken once, so that
//! counting costs two additions a call.

use std::sync::atomic::{AtomicU64, Ordering};

use metrics::{Counter, Gauge, counter, gauge};
use nigh_terms::ByteSize;

use crate::cache::Cost;
use crate::{ObjectEvent, ObjectObserver, Served};

/// Every way of serving, and its label.
const SERVED: [(Served, &str); 7] = [
    (Served::Hit, "hit"),
    (Served::Miss, "miss"),
    (Served::Past, "past"),
    (Served::Metadata, "metadata"),
    (Served::Write, "write"),
    (Served::Delete, "delete"),
    (Served::Failed, "failed"),
];

/// What a memory holds, and has done since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryUsage {
    /// What segments may take.
    pub budget: ByteSize,
    /// What the copies kept take.
    pub kept: ByteSize,
    /// What is set aside for copies in the making.
    pub reserved: ByteSize,
    /// What all living segments take, those included that only readers hold still.
    pub living: ByteSize,
    /// Objects of which there is a copy, or at least the metadata.
    pub objects: u64,
    /// Segments kept.
    pub segments: u64,
    /// How many there may be.
    pub segments_max: u64,
    /// Copies dropped to make room.
    pub evictions: u64,
    /// Reads served from memory.
    pub hits: u64,
    /// Reads for which an object was brought into memory.
    pub misses: u64,
    /// Reads past the cache.
    pub past: u64,
    /// Bytes of hits.
    pub hit_bytes: u64,
    /// Bytes of misses.
    pub miss_bytes: u64,
    /// Bytes of reads past the cache.
    pub past_bytes: u64,
    /// Writes.
    pub writes: u64,
    /// Bytes of writes.
    pub write_bytes: u64,
}

struct Tally {
    calls: AtomicU64,
    bytes: AtomicU64,
    calls_total: Counter,
    bytes_total: Counter,
}

/// The counts.
pub(crate) struct Meter {
    tallies: [Tally; SERVED.len()],
    evictions: AtomicU64,
    evictions_total: Counter,
    kept: Gauge,
    budget: Gauge,
    segments: Gauge,
}

impl Meter {
    pub(crate) fn new() -> Self {
        Self {
            tallies: SERVED.map(|(_, served)| Tally {
                calls: AtomicU64::new(0),
                bytes: AtomicU64::new(0),
                calls_total: counter!("nigh_objects_calls_total", "served" => served),
                bytes_total: counter!("nigh_objects_bytes_total", "served" => served),
            }),
            evictions: AtomicU64::new(0),
            evictions_total: counter!("nigh_objects_evictions_total"),
            kept: gauge!("nigh_objects_cache_bytes"),
            budget: gauge!("nigh_objects_cache_budget_bytes"),
            segments: gauge!("nigh_objects_cache_segments"),
        }
    }

    pub(crate) fn evicted(&self, copies: usize) {
        self.evictions.fetch_add(copies as u64, Ordering::Relaxed);
        self.evictions_total.increment(copies as u64);
    }

    pub(crate) fn holds(&self, kept: Cost, budget: Cost) {
        self.kept.set(kept.bytes as f64);
        self.budget.set(budget.bytes as f64);
        self.segments.set(kept.segments as f64);
    }

    /// The counts, added to what the cache says of itself.
    pub(crate) fn usage(&self, cache: MemoryUsage) -> MemoryUsage {
        let calls = |served| self.tally(served).calls.load(Ordering::Relaxed);
        let bytes = |served| self.tally(served).bytes.load(Ordering::Relaxed);
        MemoryUsage {
            evictions: self.evictions.load(Ordering::Relaxed),
            hits: calls(Served::Hit),
            misses: calls(Served::Miss),
            past: calls(Served::Past),
            hit_bytes: bytes(Served::Hit),
            miss_bytes: bytes(Served::Miss),
            past_bytes: bytes(Served::Past),
            writes: calls(Served::Write),
            write_bytes: bytes(Served::Write),
            ..cache
        }
    }

    const fn tally(&self, served: Served) -> &Tally {
        &self.tallies[served as usize]
    }
}

impl ObjectObserver for Meter {
    fn observe(&self, event: &ObjectEvent) {
        let tally = self.tally(event.served);
        tally.calls.fetch_add(1, Ordering::Relaxed);
        tally.bytes.fetch_add(event.bytes, Ordering::Relaxed);
        tally.calls_total.increment(1);
        tally.bytes_total.increment(event.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_way_of_serving_has_its_own_count() {
        for (at, (served, _)) in SERVED.into_iter().enumerate() {
            assert_eq!(served as usize, at);
        }
    }
}
