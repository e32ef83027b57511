//! Counts of data calls, for status and metrics: the first observer of every event.
//!
//! The metrics recorder must be installed before the memory is opened: the handles are taken once, so that
//! counting costs two additions a call.

use std::sync::atomic::{AtomicU64, Ordering};

use metrics::{Counter, Gauge, counter, gauge};
use nigh_data::account::PoolCounts;
use nigh_data::segment_cost::Cost;
use nigh_data::{ObjectEvent, ObjectObserver, ServeOutcome};
use nigh_terms::ByteSize;

use crate::DirtyUsage;

/// Every outcome of a read, with its label.
const SERVED: [(ServeOutcome, &str); 7] = [
    (ServeOutcome::Hit, "hit"),
    (ServeOutcome::Miss, "miss"),
    (ServeOutcome::Past, "past"),
    (ServeOutcome::Metadata, "metadata"),
    (ServeOutcome::Write, "write"),
    (ServeOutcome::Delete, "delete"),
    (ServeOutcome::Failed, "failed"),
];

/// What a memory holds, and counts since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryUsage {
    /// The bytes that segments may take.
    pub budget: ByteSize,
    /// The bytes of the cached copies.
    pub kept: ByteSize,
    /// The bytes reserved for copies that are being made.
    pub reserved: ByteSize,
    /// The bytes of all living segments, including those that only readers still hold.
    pub living: ByteSize,
    /// The bytes of pages that wait for another object, within the budget too.
    pub pooled: ByteSize,
    /// Number of segments in pages of the pool.
    pub segments_pooled: u64,
    /// Number of segments in new pages.
    pub segments_made: u64,
    /// Number of cached objects, with bytes or with metadata only.
    pub objects: u64,
    /// Number of cached segments.
    pub segments: u64,
    /// The most cached segments.
    pub segments_max: u64,
    /// Number of copies evicted for room.
    pub evictions: u64,
    /// Number of reads served from memory.
    pub hits: u64,
    /// Number of reads that fetched an object into memory.
    pub misses: u64,
    /// Number of reads past the cache.
    pub past: u64,
    /// Bytes of hits.
    pub hit_bytes: u64,
    /// Bytes of misses.
    pub miss_bytes: u64,
    /// Bytes of reads past the cache.
    pub past_bytes: u64,
    /// Number of writes.
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
    pooled: Gauge,
    pooled_total: Counter,
    made_total: Counter,
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
            pooled: gauge!("nigh_objects_pool_bytes"),
            pooled_total: counter!("nigh_objects_segments_total", "pages" => "pooled"),
            made_total: counter!("nigh_objects_segments_total", "pages" => "new"),
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

    /// What the pool of pages takes, and where segments got their pages so far.
    pub(crate) fn pools(&self, pooled: Cost, counts: PoolCounts) {
        self.pooled.set(pooled.bytes as f64);
        self.pooled_total.absolute(counts.pooled);
        self.made_total.absolute(counts.made);
    }

    /// The counts, added to the cache's own figures.
    pub(crate) fn usage(&self, cache: MemoryUsage) -> MemoryUsage {
        let calls = |served| self.tally(served).calls.load(Ordering::Relaxed);
        let bytes = |served| self.tally(served).bytes.load(Ordering::Relaxed);
        MemoryUsage {
            evictions: self.evictions.load(Ordering::Relaxed),
            hits: calls(ServeOutcome::Hit),
            misses: calls(ServeOutcome::Miss),
            past: calls(ServeOutcome::Past),
            hit_bytes: bytes(ServeOutcome::Hit),
            miss_bytes: bytes(ServeOutcome::Miss),
            past_bytes: bytes(ServeOutcome::Past),
            writes: calls(ServeOutcome::Write),
            write_bytes: bytes(ServeOutcome::Write),
            ..cache
        }
    }

    const fn tally(&self, served: ServeOutcome) -> &Tally {
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

/// Counts what happens to the writes that the store gets later.
pub(crate) struct WriteBackMeter {
    pushes: Counter,
    bytes: Counter,
    failures: Counter,
    conflicts: Counter,
    conflicts_seen: AtomicU64,
    objects: Gauge,
    waiting: Gauge,
    failing: Gauge,
    watched: Gauge,
    ephemeral: Gauge,
    lost: Gauge,
    oldest: Gauge,
}

impl WriteBackMeter {
    pub(crate) fn new() -> Self {
        Self {
            pushes: counter!("nigh_writeback_pushes_total"),
            bytes: counter!("nigh_writeback_pushed_bytes_total"),
            failures: counter!("nigh_writeback_push_failures_total"),
            conflicts: counter!("nigh_writeback_conflicts_total"),
            conflicts_seen: AtomicU64::new(0),
            objects: gauge!("nigh_writeback_dirty_objects"),
            waiting: gauge!("nigh_writeback_dirty_bytes"),
            failing: gauge!("nigh_writeback_failing_objects"),
            watched: gauge!("nigh_writeback_watched_objects"),
            ephemeral: gauge!("nigh_writeback_ephemeral_objects"),
            lost: gauge!("nigh_writeback_lost_objects"),
            oldest: gauge!("nigh_writeback_oldest_age_seconds"),
        }
    }

    pub(crate) fn pushed(&self, bytes: u64) {
        self.pushes.increment(1);
        self.bytes.increment(bytes);
    }

    pub(crate) fn failed(&self) {
        self.failures.increment(1);
    }

    pub(crate) fn conflict(&self) {
        self.conflicts.increment(1);
        self.conflicts_seen.fetch_add(1, Ordering::Relaxed);
    }

    /// The number of writes that were stored under a conflict key.
    pub(crate) fn conflicts(&self) -> u64 {
        self.conflicts_seen.load(Ordering::Relaxed)
    }

    pub(crate) fn waits(&self, usage: &DirtyUsage) {
        self.objects.set(usage.waiting() as f64);
        self.waiting.set(usage.bytes as f64);
        self.failing.set(usage.failing as f64);
        self.watched.set(usage.watched as f64);
        self.ephemeral.set((usage.ephemeral - usage.lost) as f64);
        self.lost.set(usage.lost as f64);
        self.oldest.set(usage.oldest.as_secs_f64());
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
