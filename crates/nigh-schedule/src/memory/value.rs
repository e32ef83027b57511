//! What memory is worth, whoever has it: pure.
//!
//! A byte is worth the time that it saves, in microseconds per second. An idle sandbox saves its cold start at each
//! invocation, as often as it has run since it was made; the longer it is idle, the less it is worth. The cache saves
//! fetches: one more byte is worth the cost of misses, divided by the bytes that the cache has, as if a cache of twice
//! the size had no misses. That is only a rough estimate, so a sandbox ends for the cache only if it is worth much
//! less; `budget` decides that.

use std::cmp::Ordering;
use std::time::Duration;

use nigh_data::fetch_us;
use nigh_terms::{ByteSize, Monotonic};

/// How long the cache's misses are counted before they are evaluated.
const WINDOW: Duration = Duration::from_secs(10);
/// A younger sandbox is not evaluated: its function has had no time to be invoked again.
const YOUNG: Duration = Duration::from_secs(30);
/// How many times as much a byte must be worth to the cache before a sandbox ends for it.
const MARGIN: f64 = 2.0;

/// The microseconds that a byte saves each second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Worth(f64);

impl Worth {
    /// True if a byte is worth far more to `other`.
    #[must_use]
    pub fn yields_to(self, other: Self) -> bool {
        self.0 * MARGIN < other.0
    }

    /// Compares two worths.
    #[must_use]
    pub fn order(&self, other: &Self) -> Ordering {
        self.0.total_cmp(&other.0)
    }
}

/// The use of a sandbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SandboxUse {
    /// When it was made.
    pub made: Monotonic,
    /// The duration of the cold start.
    pub cold: Duration,
    /// Number of runs since then.
    pub runs: u64,
}

impl SandboxUse {
    /// The worth of each of its `bytes`; None if it is too young.
    #[must_use]
    pub fn worth(&self, bytes: ByteSize, now: Monotonic) -> Option<Worth> {
        (now.since(self.made) >= YOUNG).then(|| self.worth_so_far(bytes, now))
    }

    /// The worth of each of its `bytes`, whatever its age: to compare sandboxes.
    #[must_use]
    pub fn worth_so_far(&self, bytes: ByteSize, now: Monotonic) -> Worth {
        let age_s = now.since(self.made).as_secs_f64().max(1.0);
        let saved_us = self.cold.as_secs_f64() * 1e6 * self.runs as f64;
        Worth(saved_us / age_s / bytes.bytes().max(1) as f64)
    }
}

/// Misses and evictions of the cache since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheDemand {
    /// Number of reads that fetched an object.
    pub misses: u64,
    /// The bytes of these reads.
    pub miss_bytes: u64,
    /// Number of copies evicted for others.
    pub evictions: u64,
}

/// Computes the worth of a byte to the cache from its misses and evictions.
#[derive(Clone, Copy, Debug, Default)]
pub struct CacheMeter {
    since: Monotonic,
    before: CacheDemand,
}

impl CacheMeter {
    /// At the end of a window: the worth of one more byte to a cache that uses `takes`. None if the cache has room, and
    /// within a window.
    pub fn judge(&mut self, takes: ByteSize, now: Monotonic, demand: impl FnOnce() -> CacheDemand) -> Option<Worth> {
        let passed = now.since(self.since);
        if passed < WINDOW {
            return None;
        }
        let (demand, before) = (demand(), self.before);
        (self.since, self.before) = (now, demand);
        let misses = demand.misses.saturating_sub(before.misses);
        if misses == 0 || demand.evictions == before.evictions {
            return None;
        }
        let each = demand.miss_bytes.saturating_sub(before.miss_bytes) / misses;
        let cost_us = fetch_us(each) * misses as f64;
        Some(Worth(cost_us / passed.as_secs_f64() / takes.bytes().max(1) as f64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Monotonic {
        Monotonic::default().after(Duration::from_secs(seconds))
    }

    fn sandbox(runs: u64) -> SandboxUse {
        SandboxUse { made: at(0), cold: Duration::from_millis(200), runs }
    }

    #[test]
    fn a_sandbox_is_worth_less_the_longer_it_is_idle_and_the_more_it_takes() {
        let worth = |runs, mib, seconds| sandbox(runs).worth(ByteSize::mib(mib), at(seconds)).unwrap();
        assert!(worth(10, 40, 600).yields_to(worth(10, 40, 60)));
        assert!(worth(10, 400, 60).yields_to(worth(10, 40, 60)));
        assert!(worth(1, 40, 60).yields_to(worth(10, 40, 60)));
        assert!(!worth(10, 40, 60).yields_to(worth(11, 40, 60)), "nearly the same is no reason");
        assert_eq!(sandbox(1).worth(ByteSize::mib(1), at(29)), None);
    }

    #[test]
    fn a_sandbox_that_starts_slowly_is_worth_more() {
        let slow = SandboxUse { cold: Duration::from_millis(500), ..sandbox(10) };
        let worth = |sandbox: SandboxUse| sandbox.worth_so_far(ByteSize::mib(40), at(60));
        assert!(worth(sandbox(10)).yields_to(worth(slow)));
    }

    #[test]
    fn twice_the_worth_is_not_yet_far_more() {
        assert!(!Worth(1.0).yields_to(Worth(2.0)) && Worth(1.0).yields_to(Worth(2.5)));
    }

    #[test]
    fn a_byte_is_worth_to_the_cache_what_its_misses_cost_for_each_second_and_byte() {
        let demand = CacheDemand { misses: 200, miss_bytes: 200 << 20, evictions: 1 };
        let worth = CacheMeter::default().judge(ByteSize::gib(1), at(10), || demand);
        assert_eq!(worth, Some(Worth(fetch_us(1 << 20) * 200.0 / 10.0 / (1 << 30) as f64)));
    }

    #[test]
    fn a_cache_that_misses_much_is_worth_more_than_a_sandbox_that_nobody_needs_and_less_than_one_in_use() {
        let mut meter = CacheMeter::default();
        let demand = CacheDemand { misses: 200, miss_bytes: 200 << 20, evictions: 150 };
        assert_eq!(meter.judge(ByteSize::gib(1), at(9), || demand), None);
        let cache = meter.judge(ByteSize::gib(1), at(10), || demand).unwrap();
        let forgotten = sandbox(1).worth(ByteSize::mib(40), at(590)).unwrap();
        let used = sandbox(60).worth(ByteSize::mib(40), at(120)).unwrap();
        assert!(forgotten.yields_to(cache) && !used.yields_to(cache), "{forgotten:?} {cache:?} {used:?}");
    }

    #[test]
    fn a_cache_that_has_room_wants_nothing() {
        let mut meter = CacheMeter::default();
        let fills = CacheDemand { misses: 500, miss_bytes: 1 << 30, evictions: 0 };
        assert_eq!(meter.judge(ByteSize::gib(1), at(20), || fills), None);
        let rests = CacheDemand { evictions: 10, ..fills };
        assert_eq!(meter.judge(ByteSize::gib(1), at(40), || rests), None);
    }
}
