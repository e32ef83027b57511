//! Misses by way count of a profiled input, counted by the hardware while it was timed: what makes curves of a profile
//! without a memory trace. Pure.
//!
//! A profile tries few way counts. Between two of them the misses are interpolated; a rise with more ways is noise and
//! is removed. Fewer than three way counts give no curve, since two cannot distinguish a slope from a step. The
//! accesses that reach the cache are not counted. They are the misses of a cache without ways, and are extrapolated
//! from the first two way counts: the least that a convex curve can have.

use nigh_terms::Ways;
use serde::{Deserialize, Serialize};

use crate::miss_curve::MissCurve;
use crate::repeated_timing::median;
use crate::way_search::{SearchForm, SearchRule, TimedWays};

/// Way counts that a curve takes.
pub const CURVE_POINTS_MIN: usize = 3;

/// The misses counted of one input.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub(crate) struct CountedMisses {
    /// The misses of the runs with the present way count.
    current: Vec<f64>,
    /// Way count and median misses, in the order they were timed.
    counted: Vec<(Ways, f64)>,
}

impl CountedMisses {
    /// Adds one run's.
    pub(crate) fn add(&mut self, misses: f64) {
        let at = self.current.partition_point(|&known| known < misses);
        self.current.insert(at, misses);
    }

    /// Ends a way count after `runs` runs. If only some of them have counts, its misses are unknown.
    pub(crate) fn conclude(&mut self, ways: Ways, runs: usize) {
        let current = std::mem::take(&mut self.current);
        if current.len() == runs {
            self.counted.push((ways, median(&current)));
        }
    }

    /// A further way count to time after the search, to complete the curve: the middle of the widest gap, if all runs
    /// were counted but there are too few points. The printed form of the search stays as printed.
    pub(crate) fn missing(&self, rule: &SearchRule, timed: &[TimedWays]) -> Option<Ways> {
        let tried = points(timed.iter().map(|timed| (timed.ways, timed.micros)));
        if rule.form == SearchForm::Literal || tried.len() >= CURVE_POINTS_MIN || self.points().len() < tried.len() {
            return None;
        }
        let gaps = tried.windows(2).map(|pair| (pair[1].0.0 - pair[0].0.0, pair[0].0));
        let (width, low) = gaps.max_by_key(|gap| gap.0)?;
        (width > 1).then(|| Ways(low.0 + width / 2))
    }

    /// The misses by way count; `None` with too few points.
    pub(crate) fn curve(&self, whole: Ways) -> Option<MissCurve> {
        let points = self.points();
        if points.len() < CURVE_POINTS_MIN {
            return None;
        }
        let misses = along_ways(&points, whole);
        let greatest = misses.iter().copied().fold(0.0, f64::max);
        let falling = MissCurve::new(greatest, misses).ok()?.monotone();
        let (first, second) = (falling.misses(Ways(1)), falling.misses(Ways(2)));
        let misses = (1..=whole.0).map(|ways| falling.misses(Ways(ways))).collect();
        MissCurve::new(first + (first - second), misses).ok()
    }

    fn points(&self) -> Vec<(Ways, f64)> {
        points(self.counted.iter().copied())
    }
}

/// Values by way count, ascending. Of two with the same way count the first is kept.
pub(crate) fn points(taken: impl Iterator<Item = (Ways, f64)>) -> Vec<(Ways, f64)> {
    let mut points: Vec<_> = taken.collect();
    points.sort_by_key(|point| point.0);
    points.dedup_by_key(|point| point.0);
    points
}

/// A value for each way count from 1 to `whole`: the measured value, else interpolated, and outside the tried range the
/// nearest value. `points` must not be empty.
pub(crate) fn along_ways(points: &[(Ways, f64)], whole: Ways) -> Vec<f64> {
    let value = |ways: u8| {
        let above = points.partition_point(|point| point.0.0 < ways).min(points.len() - 1);
        let (low, high) = (points[above.saturating_sub(1)], points[above]);
        if high.0.0 <= ways || high.0 == low.0 || low.0.0 >= ways {
            return high.1;
        }
        let part = f64::from(ways - low.0.0) / f64::from(high.0.0 - low.0.0);
        low.1 + (high.1 - low.1) * part
    };
    (1..=whole.0).map(value).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time_curve::Tolerance;

    fn counted(all: &[(u8, &[f64])]) -> CountedMisses {
        let mut counted = CountedMisses::default();
        for (ways, runs) in all {
            runs.iter().for_each(|&misses| counted.add(misses));
            counted.conclude(Ways(*ways), runs.len());
        }
        counted
    }

    fn rule(form: SearchForm) -> SearchRule {
        SearchRule { form, whole: Ways(11), fewest: Ways(1), threshold: Tolerance::FIVE_PERCENT }
    }

    fn timed(ways: &[u8]) -> Vec<TimedWays> {
        ways.iter().map(|&ways| TimedWays { ways: Ways(ways), micros: 1.0 }).collect()
    }

    #[test]
    fn the_curve_goes_through_the_medians_and_lies_on_the_line_between() {
        let counted = counted(&[(11, &[100.0, 90.0, 5000.0]), (1, &[900.0; 3]), (6, &[500.0, 499.0, 501.0])]);
        let curve = counted.curve(Ways(11)).unwrap();
        assert_eq!(curve.ways(), Ways(11));
        assert_eq!([1, 6, 11].map(|ways| curve.misses(Ways(ways))), [900.0, 500.0, 100.0]);
        assert_eq!(curve.misses(Ways(2)), 820.0);
        // With no way the line of the first two goes on.
        assert_eq!(curve.accesses(), 980.0);
    }

    #[test]
    fn a_rise_with_more_ways_is_taken_out() {
        let curve = counted(&[(4, &[100.0]), (2, &[300.0]), (3, &[350.0])]).curve(Ways(5)).unwrap();
        let misses: Vec<_> = (1..=5).map(|ways| curve.misses(Ways(ways))).collect();
        assert_eq!(misses, [300.0, 300.0, 300.0, 100.0, 100.0]);
        assert_eq!(curve.accesses(), 300.0);
    }

    #[test]
    fn two_way_counts_make_no_curve_and_a_third_is_asked_for() {
        let two = counted(&[(11, &[10.0]), (1, &[90.0])]);
        assert_eq!(two.curve(Ways(11)), None);
        assert_eq!(two.missing(&rule(SearchForm::Bisection), &timed(&[11, 1])), Some(Ways(6)));
        assert_eq!(two.missing(&rule(SearchForm::Literal), &timed(&[11, 1])), None);
        assert_eq!(two.missing(&rule(SearchForm::Bisection), &timed(&[2, 1])), None, "there is nothing between");
        assert_eq!(two.missing(&rule(SearchForm::Bisection), &timed(&[11, 1, 6])), None, "the third was not counted");
        // The whole cache twice is one way count.
        assert_eq!(counted(&[(11, &[10.0]), (11, &[12.0]), (1, &[90.0])]).curve(Ways(11)), None);
    }

    #[test]
    fn a_way_count_of_which_some_runs_were_not_counted_is_left_out() {
        let mut counted = counted(&[(11, &[10.0]), (1, &[90.0])]);
        counted.add(50.0);
        counted.conclude(Ways(6), 3);
        assert_eq!(counted.curve(Ways(11)), None);
        assert_eq!(CountedMisses::default().missing(&rule(SearchForm::Bisection), &timed(&[11, 1])), None);
    }
}
