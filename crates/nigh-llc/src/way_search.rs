//! Chooses the next way count to time, and decides when the need is found: CASY's algorithm 1 for one input.
//!
//! Corrected: slower means a longer time (line 14 has the sign reversed). The result is the last way count that was not
//! slower, never above the cache (line 16 adds 1 even if the loop ended because no ways were left, and stores 12 of 11
//! when the first repetition is slower by noise). A run with the fewest ways is added, which equation 1 needs and the
//! loop leaves out. The reason of the loop's end is kept. [`SearchForm::Bisection`] finds the same number in fewer
//! runs, since time falls with ways, except for noise. [`SearchForm::Literal`] is the listing as printed.

use nigh_terms::Ways;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::time_curve::Tolerance;

/// The order of the way counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SearchForm {
    /// Algorithm 1 as printed, errors and all.
    Literal,
    /// Algorithm 1, corrected: one way fewer each time.
    Linear,
    /// The whole cache, the fewest ways, then halves.
    Bisection,
}

/// The parameters of a search.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct SearchRule {
    /// How.
    pub form: SearchForm,
    /// Ways of the whole cache.
    pub whole: Ways,
    /// The fewest ways that can be had.
    pub fewest: Ways,
    /// The slowdown that counts.
    pub threshold: Tolerance,
}

/// The time found at a way count.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct TimedWays {
    /// Ways.
    pub ways: Ways,
    /// Microseconds.
    pub micros: f64,
}

/// Why the search ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SearchExit {
    /// Not slower even with the fewest ways.
    ReachedFewest,
    /// Slower from here down.
    SlowerAt {
        /// The largest way count that was slower.
        ways: Ways,
    },
    /// The second run with the whole cache was slower than the first, for another reason.
    Drifted,
    /// The end of the printed loop, for any reason.
    AsPrinted,
}

/// The result of the search.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FoundWays {
    /// P: the ways needed.
    pub ways: Ways,
    /// Why it ended.
    pub exit: SearchExit,
    /// Equation 1, corrected; the printed form never runs with one way.
    pub sensitivity: Option<f64>,
}

/// The next thing to do.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum SearchStep {
    /// Time the function with this many ways.
    Time(Ways),
    /// Done.
    Found(FoundWays),
}

impl SearchRule {
    /// The next step after these timings, in the order they were taken; the first is with the whole cache.
    #[must_use]
    pub fn next(&self, timed: &[TimedWays]) -> SearchStep {
        let Some((reference, later)) = timed.split_first() else { return SearchStep::Time(self.whole) };
        match self.form {
            SearchForm::Literal => self.literal(reference.micros, later),
            SearchForm::Linear => self.linear(reference.micros, later),
            SearchForm::Bisection => self.bisection(reference.micros, later),
        }
    }

    /// Time added over the reference, as a share.
    fn slowdown(reference: f64, timed: &TimedWays) -> f64 {
        (timed.micros - reference) / reference
    }

    fn is_slower(&self, reference: f64, timed: &TimedWays) -> bool {
        Self::slowdown(reference, timed) > self.threshold.0
    }

    fn literal(&self, reference: f64, later: &[TimedWays]) -> SearchStep {
        let Some(last) = later.last() else { return SearchStep::Time(self.whole) };
        // Line 14, sign and all: negative when slower.
        let delta = (reference - last.micros) / reference;
        if delta < self.threshold.0 && last.ways.0 > 1 {
            return SearchStep::Time(Ways(last.ways.0 - 1));
        }
        SearchStep::Found(FoundWays { ways: Ways(last.ways.0 + 1), exit: SearchExit::AsPrinted, sensitivity: None })
    }

    fn linear(&self, reference: f64, later: &[TimedWays]) -> SearchStep {
        let Some(first) = later.first() else { return SearchStep::Time(self.whole) };
        let slower = later.iter().find(|timed| self.is_slower(reference, timed));
        let fewest = later.iter().find(|timed| timed.ways == self.fewest && (later.len() > 1 || timed == &first));
        match (slower, fewest) {
            (_, Some(fewest)) => {
                let (ways, exit) = match slower {
                    None => (self.fewest, SearchExit::ReachedFewest),
                    Some(slow) if slow.ways == self.whole => (self.whole, SearchExit::Drifted),
                    Some(slow) => (Ways(slow.ways.0 + 1), SearchExit::SlowerAt { ways: slow.ways }),
                };
                SearchStep::Found(FoundWays { ways, exit, sensitivity: Some(Self::slowdown(reference, fewest)) })
            }
            (Some(_), None) => SearchStep::Time(self.fewest),
            (None, None) => {
                let last = later.last().unwrap_or(first).ways;
                SearchStep::Time(Ways(last.0.saturating_sub(1).max(self.fewest.0)))
            }
        }
    }

    fn bisection(&self, reference: f64, later: &[TimedWays]) -> SearchStep {
        if self.fewest >= self.whole {
            let (ways, exit) = (self.whole, SearchExit::ReachedFewest);
            return SearchStep::Found(FoundWays { ways, exit, sensitivity: Some(0.0) });
        }
        let Some((fewest, halves)) = later.split_first() else { return SearchStep::Time(self.fewest) };
        let sensitivity = Some(Self::slowdown(reference, fewest));
        if !self.is_slower(reference, fewest) {
            let exit = SearchExit::ReachedFewest;
            return SearchStep::Found(FoundWays { ways: self.fewest, exit, sensitivity });
        }
        let (mut slow, mut enough) = (self.fewest.0, self.whole.0);
        for timed in halves {
            if self.is_slower(reference, timed) {
                slow = slow.max(timed.ways.0);
            } else {
                enough = enough.min(timed.ways.0);
            }
        }
        if enough - slow > 1 {
            return SearchStep::Time(Ways(slow + (enough - slow) / 2));
        }
        let exit = SearchExit::SlowerAt { ways: Ways(slow) };
        SearchStep::Found(FoundWays { ways: Ways(enough), exit, sensitivity })
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::time_curve::TimeCurve;

    fn rule(form: SearchForm, whole: u8) -> SearchRule {
        SearchRule { form, whole: Ways(whole), fewest: Ways(1), threshold: Tolerance::FIVE_PERCENT }
    }

    /// Runs a search against known times; also the way counts it timed.
    fn search(rule: &SearchRule, time: impl Fn(usize, Ways) -> f64) -> (FoundWays, Vec<u8>) {
        let mut timed: Vec<TimedWays> = Vec::new();
        loop {
            match rule.next(&timed) {
                SearchStep::Time(ways) => timed.push(TimedWays { ways, micros: time(timed.len(), ways) }),
                SearchStep::Found(found) => return (found, timed.iter().map(|timed| timed.ways.0).collect()),
            }
            assert!(timed.len() <= 34, "the search does not end: {timed:?}");
        }
    }

    /// Times of a function that slows below `need` ways.
    fn knee(need: u8) -> impl Fn(usize, Ways) -> f64 {
        move |_, ways| if ways.0 < need { 130.0 } else { 100.0 }
    }

    #[test]
    fn the_mended_loop_finds_table_3() {
        // Blur: 1, 1, 4, 7 ways; recognition: 10, 11; effect and resize: 1.
        for need in [1, 4, 7, 10, 11] {
            let (found, timed) = search(&rule(SearchForm::Linear, 11), knee(need));
            assert_eq!(found.ways, Ways(need));
            if need == 1 {
                assert_eq!(found.exit, SearchExit::ReachedFewest);
                assert_eq!(found.sensitivity, Some(0.0));
            } else {
                assert_eq!(found.exit, SearchExit::SlowerAt { ways: Ways(need - 1) });
                assert!((found.sensitivity.unwrap() - 0.3).abs() < 1e-12);
                assert_eq!(timed.last(), Some(&1), "the run that equation 1 needs");
            }
        }
    }

    #[test]
    fn the_mended_loop_times_as_the_listing_does() {
        let (_, timed) = search(&rule(SearchForm::Linear, 5), knee(4));
        assert_eq!(timed, [5, 5, 4, 3, 1]);
    }

    #[test]
    fn the_printed_loop_gives_two_to_every_function() {
        for need in [1, 4, 7, 11] {
            assert_eq!(search(&rule(SearchForm::Literal, 11), knee(need)).0.ways, Ways(2), "need {need}");
        }
        // Twelve of eleven, when the first repeat happens to be faster by more than the threshold.
        let lucky = |run: usize, _| if run == 0 { 100.0 } else { 90.0 };
        assert_eq!(search(&rule(SearchForm::Literal, 11), lucky).0.ways, Ways(12));
    }

    #[test]
    fn a_slow_repeat_with_the_whole_cache_is_called_drift() {
        let drift = |run: usize, _| if run == 0 { 100.0 } else { 110.0 };
        let (found, timed) = search(&rule(SearchForm::Linear, 11), drift);
        assert_eq!((found.ways, found.exit), (Ways(11), SearchExit::Drifted));
        assert_eq!(timed, [11, 11, 1]);
    }

    #[test]
    fn bisection_takes_fewer_runs() {
        let (found, timed) = search(&rule(SearchForm::Bisection, 11), knee(4));
        assert_eq!((found.ways, found.exit), (Ways(4), SearchExit::SlowerAt { ways: Ways(3) }));
        assert_eq!(timed, [11, 1, 6, 3, 4]);
        assert_eq!(search(&rule(SearchForm::Bisection, 11), knee(1)).1, [11, 1]);
    }

    #[test]
    fn a_cache_of_one_way_is_searched_at_once() {
        for form in [SearchForm::Linear, SearchForm::Bisection] {
            let (found, _) = search(&rule(form, 1), knee(1));
            assert_eq!((found.ways, found.exit), (Ways(1), SearchExit::ReachedFewest), "{form:?}");
        }
    }

    proptest! {
        #[test]
        fn both_forms_find_the_need_of_a_falling_curve(steps in proptest::collection::vec(0.0..20.0_f64, 1..12), fewest in 1_u8..4) {
            let mut micros: Vec<f64> = steps
                .iter()
                .scan(100.0, |total, step| {
                    *total += step;
                    Some(*total)
                })
                .collect();
            micros.reverse();
            let curve = TimeCurve::new(micros).unwrap();
            let need = curve.ways_needed(Tolerance::FIVE_PERCENT).max(Ways(fewest)).min(curve.ways());
            for form in [SearchForm::Linear, SearchForm::Bisection] {
                let fewest = Ways(fewest).min(curve.ways());
                let rule = SearchRule { fewest, ..rule(form, curve.ways().0) };
                let (found, timed) = search(&rule, |_, ways| curve.micros(ways));
                prop_assert_eq!(found.ways, need, "{:?}", form);
                prop_assert!(timed.iter().all(|&ways| ways >= fewest.0 && ways <= curve.ways().0));
            }
        }
    }
}
