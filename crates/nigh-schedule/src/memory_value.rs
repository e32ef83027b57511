//! What memory is worth, whoever has it: pure.
//!
//! A byte is worth the time that it saves: microseconds a second. An idle sandbox saves its cold start each time that its
//! function comes back, as often as it has run since it was made; the longer it is idle, the less that is. The cache saves
//! fetches: a byte more of it as much as misses cost, shared among the bytes it has, as if one of twice the size missed
//! nothing. That is an estimate of the right order, no more: who is to end for the other's sake must be worth much less.
//! It decides nothing (`memory_budget`).

use std::cmp::Ordering;
use std::time::Duration;

use nigh_data::fetch_us;
use nigh_terms::{ByteSize, Monotonic};

/// How long the cache's misses are counted before they are judged.
const WINDOW: Duration = Duration::from_secs(10);
/// A sandbox is younger than this for no judgement: it has had no time to come back.
const YOUNG: Duration = Duration::from_secs(30);
/// How many times as much the cache must make of a byte.
const MARGIN: f64 = 2.0;

/// Microseconds that a byte saves each second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Worth(f64);

impl Worth {
    /// True if a byte had better be `other`'s.
    #[must_use]
    pub fn yields_to(self, other: Self) -> bool {
        self.0 * MARGIN < other.0
    }

    /// Which is worth less.
    #[must_use]
    pub fn order(&self, other: &Self) -> Ordering {
        self.0.total_cmp(&other.0)
    }
}

/// How a sandbox has been used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SandboxUse {
    /// When it was made.
    pub made: Monotonic,
    /// How long that took.
    pub cold: Duration,
    /// How often it has run since.
    pub runs: u64,
}

impl SandboxUse {
    /// What each of the `bytes` is worth that it has; none, if it is too young to say.
    #[must_use]
    pub fn worth(&self, bytes: ByteSize, now: Monotonic) -> Option<Worth> {
        (now.since(self.made) >= YOUNG).then(|| self.worth_so_far(bytes, now))
    }

    /// The same, whatever its age: to tell sandboxes from each other.
    #[must_use]
    pub fn worth_so_far(&self, bytes: ByteSize, now: Monotonic) -> Worth {
        let age_s = now.since(self.made).as_secs_f64().max(1.0);
        let saved_us = self.cold.as_secs_f64() * 1e6 * self.runs as f64;
        Worth(saved_us / age_s / bytes.bytes().max(1) as f64)
    }
}

/// What has been asked of the cache since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheDemand {
    /// Reads for which an object was brought in,
    pub misses: u64,
    /// and their bytes.
    pub miss_bytes: u64,
    /// Copies that had to go for others.
    pub evictions: u64,
}

/// Judges the cache by what is asked of it.
#[derive(Clone, Copy, Debug, Default)]
pub struct CacheMeter {
    since: Monotonic,
    before: CacheDemand,
}

impl CacheMeter {
    /// At the end of a window: what a byte more would be worth to a cache that takes `takes`. None where it has room, and in
    /// between.
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
