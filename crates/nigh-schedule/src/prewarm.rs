//! How many pre-warmed sandboxes of each runtime are kept ready: pure.
//!
//! In a pre-warmed sandbox a runtime waits with its imports done (SOCK, Catalyzer and Lambda's own pools have the
//! like). Their number follows demand: as many as cold starts came within one burst, with a half-life. A runtime that a
//! deployed function uses has at least one, any other none. Within the bounds of number and memory each runtime gets
//! its first one, then each its second, and so on.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use nigh_functions::function::Runtime;
use nigh_terms::{ByteSize, Monotonic};

/// The grant and booking of a pre-warmed sandbox: the least that a function can book, so that it fits every function.
pub const PREWARMED_MEMORY: ByteSize = ByteSize::mib(128);
/// Each cold start within this time wants a sandbox of its own, because making a few takes about as long.
const BURST: Duration = Duration::from_secs(5);
/// After this time a burst counts half.
const HALF_LIFE: Duration = Duration::from_secs(120);
/// The longest pause after a failure to make one of a runtime.
const PAUSE_MAX: Duration = Duration::from_secs(60);

/// How many pre-warmed sandboxes a node keeps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PrewarmSettings {
    /// The most memory that all of them may book, within the sandboxes' part.
    pub memory_max: ByteSize,
    /// The most pre-warmed sandboxes.
    pub stems_max: usize,
    /// The modules that pre-warmed Pythons import.
    pub imports: Vec<String>,
}

impl PrewarmSettings {
    /// The most sandboxes within both bounds.
    #[must_use]
    pub fn most(&self) -> usize {
        let fit = usize::try_from(self.memory_max.bytes() / PREWARMED_MEMORY.bytes()).unwrap_or(usize::MAX);
        fit.min(self.stems_max)
    }
}

/// The recent cold starts of one runtime.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Demand {
    recent: VecDeque<Monotonic>,
    level: f64,
    since: Monotonic,
}

impl Demand {
    /// A function of this runtime started cold. A burst counts as at most `most`.
    pub fn cold_start(&mut self, now: Monotonic, most: usize) {
        self.recent.push_back(now);
        while self.recent.len() > most || self.recent.front().is_some_and(|first| now.since(*first) > BURST) {
            self.recent.pop_front();
        }
        self.level = self.level(now).max(self.recent.len() as f64);
        self.since = now;
    }

    /// The number of pre-warmed sandboxes that the cold starts until `now` ask for.
    #[must_use]
    pub fn wanted(&self, now: Monotonic) -> usize {
        self.level(now).ceil() as usize
    }

    fn level(&self, now: Monotonic) -> f64 {
        self.level * 0.5f64.powf(now.since(self.since).as_secs_f64() / HALF_LIFE.as_secs_f64())
    }
}

/// The target number of pre-warmed sandboxes of each runtime, at most `most` together. `wanted` are the runtimes of
/// deployed functions, each with the number that its cold starts ask for.
#[must_use]
pub fn targets(wanted: &BTreeMap<Runtime, usize>, most: usize) -> BTreeMap<Runtime, usize> {
    let mut targets = BTreeMap::new();
    let mut left = most;
    for round in 0..most {
        for (runtime, wanted) in wanted {
            if left > 0 && round < (*wanted).max(1) {
                *targets.entry(runtime.clone()).or_default() += 1;
                left -= 1;
            }
        }
    }
    targets
}

/// The pause after this many failures in a row.
#[must_use]
pub fn pause(failures: u32) -> Duration {
    Duration::from_secs(1 << failures.min(6)).min(PAUSE_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Monotonic {
        Monotonic::default().after(Duration::from_secs(seconds))
    }

    fn python(minor: u8) -> Runtime {
        Runtime::Python { minor }
    }

    #[test]
    fn a_burst_wants_a_stem_for_each_and_is_forgotten_by_halves() {
        let mut demand = Demand::default();
        assert_eq!(demand.wanted(at(0)), 0);
        for _ in 0..4 {
            demand.cold_start(at(10), 100);
        }
        assert_eq!(demand.wanted(at(10)), 4);
        assert_eq!((demand.wanted(at(130)), demand.wanted(at(250))), (2, 1));
    }

    #[test]
    fn cold_starts_far_apart_want_one() {
        let mut demand = Demand::default();
        for minute in 0..20 {
            demand.cold_start(at(minute * 60), 100);
        }
        assert_eq!(demand.wanted(at(19 * 60)), 1);
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let mut demand = Demand::default();
        for _ in 0..1000 {
            demand.cold_start(at(1), 8);
        }
        assert_eq!((demand.recent.len(), demand.wanted(at(1))), (8, 8));
    }

    #[test]
    fn each_runtime_has_one_before_any_has_two_and_never_more_than_the_bound() {
        let wanted = BTreeMap::from([(python(11), 5), (python(12), 0), (python(13), 2)]);
        let of = |most| targets(&wanted, most).into_values().collect::<Vec<_>>();
        assert_eq!(of(100), [5, 1, 2]);
        assert_eq!(of(5), [2, 1, 2]);
        assert_eq!(of(2), [1, 1]);
        assert!(of(0).is_empty() && targets(&BTreeMap::new(), 8).is_empty());
    }

    #[test]
    fn both_bounds_hold() {
        let settings = PrewarmSettings { memory_max: ByteSize::mib(300), stems_max: 8, imports: Vec::new() };
        assert_eq!(settings.most(), 2);
        assert_eq!(PrewarmSettings { stems_max: 1, ..settings }.most(), 1);
    }

    #[test]
    fn pauses_grow_to_a_minute() {
        assert_eq!([0, 1, 3, 60].map(|failures| pause(failures).as_secs()), [1, 2, 8, 60]);
    }
}
