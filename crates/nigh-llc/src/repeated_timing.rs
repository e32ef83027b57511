//! The time of a repeated run: its median, the median's error, and whether the runs vary too much.
//!
//! Machines are noisy, and more often slow than fast; the paper times each run once. Here repeats stop early when the
//! median is sure enough, and a function whose own time swings is called unstable instead of being given a number.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::time_curve::Tolerance;

/// The rules for repetitions.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Repetitions {
    /// Never fewer.
    pub least: u8,
    /// Never more.
    pub most: u8,
    /// The standard error of the median, over the median, that is sure enough.
    pub sure: Tolerance,
    /// The spread over the median from which on the runs are unstable.
    pub unstable: Tolerance,
}

impl Repetitions {
    /// One run, as in the paper.
    pub const ONCE: Self = Self { least: 1, most: 1, sure: Tolerance(f64::MAX), unstable: Tolerance(f64::MAX) };

    /// Three to nine runs, until the median is sure to 1 %; a spread of a quarter is unstable.
    pub const SURE: Self = Self { least: 3, most: 9, sure: Tolerance(0.01), unstable: Tolerance(0.25) };
}

/// The runs so far.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct RepeatedTiming {
    /// Microseconds, sorted.
    sorted: Vec<f64>,
}

/// The result of the runs so far.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum TimingVerdict {
    /// Run it again.
    More,
    /// The time is known.
    Known {
        /// Microseconds.
        median: f64,
        /// Standard error of the median over the median.
        error: f64,
    },
    /// The runs vary too much for a comparison.
    Unstable {
        /// Greatest less least over the median, one outlier left out.
        spread: f64,
    },
}

/// From this many runs on the slowest one may be an outlier.
const OUTLIER_FROM: usize = 4;

/// The median of sorted values; 0 without values.
pub(crate) fn median(sorted: &[f64]) -> f64 {
    match sorted.len() {
        0 => 0.0,
        runs if runs % 2 == 1 => sorted[runs / 2],
        runs => f64::midpoint(sorted[runs / 2 - 1], sorted[runs / 2]),
    }
}

impl RepeatedTiming {
    /// Adds one run.
    pub fn add(&mut self, took: Duration) {
        let micros = took.as_secs_f64() * 1e6;
        let at = self.sorted.partition_point(|&known| known < micros);
        self.sorted.insert(at, micros);
    }

    /// The number of runs.
    #[must_use]
    pub fn runs(&self) -> usize {
        self.sorted.len()
    }

    /// The median, in microseconds; zero before the first run.
    #[must_use]
    pub fn median(&self) -> f64 {
        median(&self.sorted)
    }

    /// Greatest less least over the median; of four runs and more the slowest is left out.
    #[must_use]
    pub fn spread(&self) -> f64 {
        let kept = self.kept();
        match (kept.first(), kept.last()) {
            (Some(least), Some(greatest)) if self.median() > 0.0 => (greatest - least) / self.median(),
            _ => 0.0,
        }
    }

    /// Standard error of the median over the median, as for normal noise: 1.253 s / sqrt(n).
    #[must_use]
    pub fn error(&self) -> f64 {
        let kept = self.kept();
        let (count, median) = (kept.len() as f64, self.median());
        if kept.len() < 2 || median <= 0.0 {
            return 0.0;
        }
        let mean = kept.iter().sum::<f64>() / count;
        let variance = kept.iter().map(|micros| (micros - mean).powi(2)).sum::<f64>() / (count - 1.0);
        1.253 * (variance / count).sqrt() / median
    }

    /// The result of these runs.
    #[must_use]
    pub fn verdict(&self, rule: &Repetitions) -> TimingVerdict {
        let (runs, most) = (self.runs(), usize::from(rule.most.max(rule.least).max(1)));
        let (spread, error) = (self.spread(), self.error());
        let swings = spread >= rule.unstable.0;
        if runs < usize::from(rule.least.max(1)) || (runs < most && (swings || error > rule.sure.0)) {
            TimingVerdict::More
        } else if swings {
            TimingVerdict::Unstable { spread }
        } else {
            TimingVerdict::Known { median: self.median(), error }
        }
    }

    fn kept(&self) -> &[f64] {
        let outliers = usize::from(self.sorted.len() >= OUTLIER_FROM);
        &self.sorted[..self.sorted.len() - outliers]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn timing(millis: &[u64]) -> RepeatedTiming {
        let mut timing = RepeatedTiming::default();
        for &millis in millis {
            timing.add(Duration::from_millis(millis));
        }
        timing
    }

    #[test]
    fn a_steady_function_needs_three_runs() {
        assert_eq!(timing(&[100, 100]).verdict(&Repetitions::SURE), TimingVerdict::More);
        let verdict = timing(&[100, 101, 100]).verdict(&Repetitions::SURE);
        assert!(
            matches!(verdict, TimingVerdict::Known { median, .. } if (median - 100_000.0).abs() < 1.0),
            "{verdict:?}"
        );
    }

    #[test]
    fn one_accident_is_left_out() {
        let verdict = timing(&[100, 101, 100, 400, 101]).verdict(&Repetitions::SURE);
        assert!(matches!(verdict, TimingVerdict::Known { .. }), "{verdict:?}");
    }

    #[test]
    fn a_function_that_varies_by_half_is_unstable() {
        let runs = [100, 150, 101, 149, 100, 151, 100, 150, 148];
        assert_eq!(timing(&runs[..8]).verdict(&Repetitions::SURE), TimingVerdict::More);
        assert!(
            matches!(timing(&runs).verdict(&Repetitions::SURE), TimingVerdict::Unstable { spread } if spread > 0.3)
        );
    }

    #[test]
    fn some_noise_asks_for_more_runs_until_they_suffice() {
        assert_eq!(timing(&[100, 106, 103]).verdict(&Repetitions::SURE), TimingVerdict::More);
        let many = timing(&[100, 106, 103, 102, 104, 103, 101, 105, 103]);
        assert!(matches!(many.verdict(&Repetitions::SURE), TimingVerdict::Known { error, .. } if error < 0.01));
    }

    #[test]
    fn the_papers_one_run_is_believed() {
        assert!(matches!(timing(&[7]).verdict(&Repetitions::ONCE), TimingVerdict::Known { error: 0.0, .. }));
    }
}
