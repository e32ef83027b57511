//! How much slower than its predicted curve an input may be at each way count, estimated from the spread of the rows.
//!
//! Each row is left out in turn and its curve is predicted by the others. The logarithm of its slowdown over that
//! prediction is one observation for each way count. A further observation stays below the margin in nineteen cases of
//! twenty: Student's one-sided prediction interval. Rows outside the range of the others are not used: they measure
//! extrapolation, and extrapolated predictions are marked. Fewer than three observations give no margin.

use nigh_terms::Ways;

use crate::row_interpolation::CurveLine;
use crate::time_curve::{TimeCurve, Tolerance};
use crate::training_rows::{Axis, TrainingRows};

/// The fewest observations with a known spread.
const OBSERVED_LEAST: usize = 3;

/// The value that Student's t exceeds in one case of twenty, for 2, 3, ... degrees of freedom.
const STUDENT: [f64; 9] = [2.920, 2.353, 2.132, 2.015, 1.943, 1.895, 1.860, 1.833, 1.812];

/// For each way count, the logarithm of the greatest slowdown over the predicted one.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct SlowdownMargin {
    by_ways: Vec<f64>,
}

impl SlowdownMargin {
    /// `None` if rows have no curves, or if too few rows lie within the range of the others.
    pub(crate) fn of(rows: &TrainingRows, axis: Axis) -> Option<Self> {
        let whole = rows.iter().next()?.curves.as_ref()?.times.ways();
        let mut observed: Vec<Vec<f64>> = Vec::new();
        for (row, others) in rows.left_out() {
            let (line, at) = (CurveLine::fit(others.iter(), axis)?, row.input.along(axis)?);
            let (least, greatest) = line.range();
            if at < least || at > greatest {
                continue;
            }
            let (times, predicted) = (&row.curves.as_ref()?.times, line.predict(at)?.times);
            let slower = |ways: u8| (times.slowdown(Ways(ways)) / predicted.slowdown(Ways(ways))).ln();
            observed.push((1..=whole.0).map(slower).collect());
        }
        if observed.len() < OBSERVED_LEAST {
            return None;
        }
        let bound = |at: usize| upper_bound(&observed.iter().map(|one| one[at]).collect::<Vec<_>>());
        Some(Self { by_ways: (0..usize::from(whole.0)).map(bound).collect() })
    }

    /// The fewest ways with which, and with any more, the greatest slowdown is within the tolerance; the whole cache if
    /// no number is enough.
    pub(crate) fn ways_needed(&self, times: &TimeCurve, tolerance: Tolerance) -> Ways {
        let slower = |&ways: &u8| {
            let margin = self.by_ways[usize::from(ways - 1).min(self.by_ways.len() - 1)].exp();
            times.slowdown(Ways(ways)) * margin > 1.0 + tolerance.0
        };
        Ways((1..times.ways().0).rev().find(slower).unwrap_or(0) + 1)
    }
}

/// The bound that one more observation stays below in nineteen cases of twenty. Needs at least two observations.
fn upper_bound(observed: &[f64]) -> f64 {
    let count = observed.len() as f64;
    let mean = observed.iter().sum::<f64>() / count;
    let variance = observed.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / (count - 1.0);
    let freedom = observed.len() - 1;
    // Beyond the table: t approaches the normal distribution's value; this formula is right to three digits.
    let student = STUDENT.get(freedom.saturating_sub(2)).copied().unwrap_or(1.645 + 1.55 / freedom as f64);
    mean + student * (variance * (1.0 + 1.0 / count)).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::miss_curve::MissCurve;
    use crate::training_rows::tests::{row, version};
    use crate::training_rows::{RunCurves, TrainingRow};

    fn curve(slowdowns: &[f64]) -> TimeCurve {
        TimeCurve::new(slowdowns.iter().map(|slowdown| slowdown * 1e4).collect()).unwrap()
    }

    fn rows(given: &[(u64, [f64; 3])]) -> TrainingRows {
        let mut set = TrainingRows::new(version());
        for (kib, slowdowns) in given {
            let misses = MissCurve::new(1e3, slowdowns.iter().map(|slowdown| (slowdown - 1.0) * 500.0).collect());
            let curves = RunCurves { misses: misses.unwrap(), times: curve(slowdowns) };
            set.add(&version(), TrainingRow { curves: Some(curves), ..row(*kib, 2) }).unwrap();
        }
        set
    }

    #[test]
    fn the_bound_is_students() {
        // Mean 2, deviation 1, three observations: 2 + 2.920 * sqrt(4/3).
        assert!((upper_bound(&[1.0, 2.0, 3.0]) - 5.3717).abs() < 1e-3);
        assert!((upper_bound(&[0.5; 5]) - 0.5).abs() < 1e-12);
    }

    #[test]
    fn rows_that_one_quantity_cannot_tell_apart_ask_for_spare_ways() {
        let alike = rows(&[(64, [1.5, 1.040, 1.0]); 4]);
        let margin = SlowdownMargin::of(&alike, Axis::Size).unwrap();
        assert_eq!(margin.ways_needed(&curve(&[1.5, 1.040, 1.0]), Tolerance::FIVE_PERCENT), Ways(2));
        let spread =
            rows(&[(64, [1.5, 1.010, 1.0]), (64, [1.5, 1.040, 1.0]), (64, [1.5, 1.01, 1.0]), (64, [1.5, 1.04, 1.0])]);
        let margin = SlowdownMargin::of(&spread, Axis::Size).unwrap();
        assert_eq!(margin.ways_needed(&curve(&[1.5, 1.040, 1.0]), Tolerance::FIVE_PERCENT), Ways(3));
    }

    #[test]
    fn few_rows_or_rows_at_the_ends_tell_no_spread() {
        let line =
            rows(&[(64, [1.2, 1.1, 1.0]), (128, [1.3, 1.1, 1.0]), (256, [1.4, 1.1, 1.0]), (512, [1.5, 1.1, 1.0])]);
        assert_eq!(SlowdownMargin::of(&line, Axis::Size), None, "two lie among the others");
        let one_more = [(64, [1.2, 1.1, 1.0]), (128, [1.3, 1.1, 1.0]), (256, [1.4, 1.1, 1.0]), (512, [1.5, 1.1, 1.0])];
        let one_more = rows(&[&one_more[..], &[(1024, [1.6, 1.1, 1.0])]].concat());
        assert!(SlowdownMargin::of(&one_more, Axis::Size).is_some());
    }
}
