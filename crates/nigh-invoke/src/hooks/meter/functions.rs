//! Counts by function, for a bounded number of functions; the rest is counted together. Pure.
//!
//! A function with a place is counted by name. While places are free, whoever runs gets one. When none is, a function without
//! a place that ran more than twice as often in a window as the least of those with one takes its place at the window's end;
//! the counts of the one that leaves go to the rest, so that sums over all functions never fall. The functions without a
//! place are counted as Metwally et al. do ("Efficient Computation of Frequent and Top-k Elements in Data Streams", 2005):
//! one that is not known takes the place and the count of the least, so that those that run often are found.

use std::collections::HashMap;
use std::time::Duration;

use nigh_terms::{FunctionName, Monotonic, Namespace};

use super::OUTCOMES;

/// Upper bounds of the buckets of durations, in seconds.
pub const DURATION_BOUNDS_S: [f64; 11] = [0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 60.0, 300.0];
/// How long runs are counted before places may change hands.
const WINDOW: Duration = Duration::from_secs(600);
/// So many times as often a function must run to take the place of another.
const TIMES_AS_OFTEN: u64 = 2;
/// The most functions without a place that are counted in a window.
const CANDIDATES_MAX: usize = 128;

type FunctionKey = (Namespace, FunctionName);

/// What has run of one function.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FunctionTotals {
    /// The function; none for all that have no place.
    pub function: Option<(Namespace, FunctionName)>,
    ended: [u64; OUTCOMES.len()],
    /// Invocations that waited for a new sandbox.
    pub cold_starts: u64,
    /// Invocations by the bucket of their duration, those above the last bound last.
    by_duration: [u64; DURATION_BOUNDS_S.len() + 1],
    /// The sum of the durations, in seconds.
    pub seconds: f64,
}

impl FunctionTotals {
    /// Ended invocations by outcome, those that there were.
    pub fn ended(&self) -> impl Iterator<Item = (&'static str, u64)> {
        OUTCOMES.into_iter().zip(self.ended).filter(|(_, count)| *count > 0)
    }

    /// All ended invocations.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.by_duration.iter().sum()
    }

    /// How many durations are at most each bound.
    #[must_use]
    pub fn buckets(&self) -> Vec<(f64, u64)> {
        let mut below = 0;
        let counted = DURATION_BOUNDS_S.into_iter().zip(self.by_duration);
        let summed = counted.map(|(bound, count)| {
            below += count;
            (bound, below)
        });
        summed.collect()
    }

    fn add(&mut self, other: &Self) {
        let counts = self.ended.iter_mut().chain(&mut self.by_duration).chain([&mut self.cold_starts]);
        let more = other.ended.iter().chain(&other.by_duration).chain([&other.cold_starts]);
        counts.zip(more).for_each(|(count, more)| *count += more);
        self.seconds += other.seconds;
    }

    fn count_one(&mut self, outcome: usize, cold: bool, seconds: f64) {
        self.ended[outcome] += 1;
        self.cold_starts += u64::from(cold);
        self.by_duration[DURATION_BOUNDS_S.partition_point(|bound| *bound < seconds)] += 1;
        self.seconds += seconds;
    }
}

#[derive(Debug, Default)]
struct Named {
    totals: FunctionTotals,
    /// Runs in this window.
    recent: u64,
}

/// The counts of all functions.
#[derive(Debug)]
pub(super) struct FunctionMeters {
    named_max: usize,
    named: HashMap<FunctionKey, Named>,
    rest: FunctionTotals,
    /// Runs in this window of functions without a place, at most.
    candidates: HashMap<FunctionKey, u64>,
    window_began: Monotonic,
}

impl FunctionMeters {
    pub(super) fn new(named_max: usize) -> Self {
        Self {
            named_max,
            named: HashMap::new(),
            rest: FunctionTotals::default(),
            candidates: HashMap::new(),
            window_began: Monotonic::default(),
        }
    }

    /// Counts an invocation that has ended.
    pub(super) fn ended(
        &mut self,
        now: Monotonic,
        (namespace, function): (&Namespace, &FunctionName),
        outcome: usize,
        cold: bool,
        seconds: f64,
    ) {
        if now.since(self.window_began) >= WINDOW {
            self.end_window();
            self.window_began = now;
        }
        let key = (namespace.clone(), function.clone());
        let has_free_place = self.named.len() < self.named_max;
        if has_free_place && !self.named.contains_key(&key) {
            self.give_place(key.clone());
        }
        match self.named.get_mut(&key) {
            Some(named) => {
                named.totals.count_one(outcome, cold, seconds);
                named.recent += 1;
            }
            None => {
                self.rest.count_one(outcome, cold, seconds);
                self.count_candidate(key);
            }
        }
    }

    fn give_place(&mut self, key: FunctionKey) {
        let totals = FunctionTotals { function: Some(key.clone()), ..FunctionTotals::default() };
        self.named.insert(key, Named { totals, recent: 0 });
    }

    fn count_candidate(&mut self, key: FunctionKey) {
        if self.candidates.len() < CANDIDATES_MAX || self.candidates.contains_key(&key) {
            *self.candidates.entry(key).or_default() += 1;
            return;
        }
        let least = self.candidates.iter().min_by_key(|(_, count)| **count);
        if let Some((least, count)) = least.map(|(key, count)| (key.clone(), *count)) {
            self.candidates.remove(&least);
            self.candidates.insert(key, count + 1);
        }
    }

    fn end_window(&mut self) {
        let mut candidates: Vec<_> = self.candidates.drain().collect();
        candidates.sort_by(|(one, runs), (other, more)| more.cmp(runs).then_with(|| one.cmp(other)));
        let mut least: Vec<_> = self.named.iter().map(|(key, named)| (named.recent, key.clone())).collect();
        least.sort();
        for ((candidate, runs), (recent, leaves)) in candidates.into_iter().zip(least) {
            if runs <= TIMES_AS_OFTEN * recent {
                break;
            }
            if let Some(left) = self.named.remove(&leaves) {
                self.rest.add(&left.totals);
            }
            self.give_place(candidate);
        }
        self.named.values_mut().for_each(|named| named.recent = 0);
    }

    /// Those with a place, and the rest if it has run.
    pub(super) fn totals(&self) -> Vec<FunctionTotals> {
        let rest = (self.rest.count() > 0).then_some(&self.rest);
        self.named.values().map(|named| &named.totals).chain(rest).cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Monotonic {
        Monotonic::default().after(Duration::from_secs(seconds))
    }

    fn run(meters: &mut FunctionMeters, at: Monotonic, name: &str, times: u64) {
        let (namespace, function) = (Namespace::new("tenant").unwrap(), FunctionName::new(name).unwrap());
        for _ in 0..times {
            meters.ended(at, (&namespace, &function), 0, false, 0.02);
        }
    }

    fn of(meters: &FunctionMeters, name: Option<&str>) -> Option<u64> {
        let is_it = |totals: &FunctionTotals| totals.function.as_ref().map(|(_, function)| function.as_str()) == name;
        meters.totals().into_iter().find(is_it).map(|totals| totals.count())
    }

    fn all(meters: &FunctionMeters) -> u64 {
        meters.totals().iter().map(FunctionTotals::count).sum()
    }

    #[test]
    fn beyond_the_limit_functions_are_counted_together() {
        let mut meters = FunctionMeters::new(2);
        for name in ["a", "b", "c", "d"] {
            run(&mut meters, at(1), name, 3);
        }
        assert_eq!(
            [Some("a"), Some("b"), Some("c"), None].map(|name| of(&meters, name)),
            [Some(3), Some(3), None, Some(6)]
        );
        let mut none = FunctionMeters::new(0);
        run(&mut none, at(1), "a", 3);
        assert_eq!((of(&none, None), none.totals().len()), (Some(3), 1));
    }

    #[test]
    fn a_function_that_runs_more_than_twice_as_often_takes_the_place_of_the_least_and_no_sum_falls() {
        let mut meters = FunctionMeters::new(2);
        run(&mut meters, at(1), "often", 100);
        run(&mut meters, at(1), "seldom", 5);
        run(&mut meters, at(2), "new", 10);
        run(&mut meters, at(700), "often", 1);
        assert_eq!(of(&meters, Some("new")), None, "ten are not more than twice five");
        run(&mut meters, at(701), "seldom", 5);
        run(&mut meters, at(702), "new", 11);
        let before = all(&meters);
        run(&mut meters, at(1400), "new", 1);
        let counts = [Some("new"), Some("seldom"), Some("often"), None].map(|name| of(&meters, name));
        assert_eq!(counts, [Some(1), Some(10), None, Some(10 + 11 + 101)], "often ran least in the last window");
        assert_eq!(all(&meters), before + 1);
    }

    #[test]
    fn a_function_that_is_gone_gives_its_place_to_one_that_runs() {
        let mut meters = FunctionMeters::new(1);
        run(&mut meters, at(1), "gone", 4);
        run(&mut meters, at(700), "new", 3);
        let before = all(&meters);
        run(&mut meters, at(1400), "new", 2);
        assert_eq!((of(&meters, Some("new")), of(&meters, Some("gone")), of(&meters, None)), (Some(2), None, Some(7)));
        assert_eq!(all(&meters), before + 2);
    }

    #[test]
    fn candidates_are_bounded_and_one_that_runs_often_is_found_among_many() {
        let mut meters = FunctionMeters::new(1);
        run(&mut meters, at(1), "named", 1);
        for number in 0..10 * CANDIDATES_MAX {
            run(&mut meters, at(2), &format!("f{number}"), 1);
            run(&mut meters, at(2), "often", 1);
        }
        assert!(meters.candidates.len() <= CANDIDATES_MAX);
        run(&mut meters, at(700), "often", 1);
        assert_eq!(of(&meters, Some("often")), Some(1));
    }

    #[test]
    fn durations_are_in_the_buckets_that_are_at_least_as_long() {
        let mut totals = FunctionTotals::default();
        for seconds in [0.001, 0.0011, 400.0] {
            totals.count_one(3, true, seconds);
        }
        let buckets = totals.buckets();
        assert_eq!((buckets[0], buckets[1], buckets[10]), ((0.001, 1), (0.005, 2), (300.0, 2)));
        assert_eq!((totals.count(), totals.cold_starts), (3, 3));
        assert_eq!(totals.ended().collect::<Vec<_>>(), [("timed_out", 3)]);
        assert!((totals.seconds - 400.0021).abs() < 1e-9);
    }
}
