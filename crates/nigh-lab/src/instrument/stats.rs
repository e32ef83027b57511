//! Statistics of measurements: percentiles, medians and their bootstrap confidence intervals. Pure.

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

/// Resamples of a bootstrap.
const RESAMPLES: usize = 1000;

/// Measurements in the order of their size.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sample(Vec<f64>);

/// A figure and the interval that holds it with 95 % confidence.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub(crate) struct Estimate {
    /// The figure.
    pub value: f64,
    /// The interval's lower end.
    pub low: f64,
    /// The interval's upper end.
    pub high: f64,
}

impl Sample {
    /// Takes measurements in any order; those that are no numbers are left out.
    #[must_use]
    pub(crate) fn new(mut values: Vec<f64>) -> Self {
        values.retain(|value| value.is_finite());
        values.sort_by(f64::total_cmp);
        Self(values)
    }

    /// The number of measurements.
    #[must_use]
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// True if there is none.
    #[must_use]
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The measurements, smallest first.
    #[must_use]
    pub(crate) fn values(&self) -> &[f64] {
        &self.0
    }

    /// The smallest measurement that at least `share` (0 to 1) of all do not exceed; not a number if there is none.
    #[must_use]
    pub(crate) fn percentile(&self, share: f64) -> f64 {
        let rank = (share * self.0.len() as f64).ceil() as usize;
        self.0.get(rank.clamp(1, self.0.len().max(1)) - 1).copied().unwrap_or(f64::NAN)
    }

    /// The middle one.
    #[must_use]
    pub(crate) fn median(&self) -> f64 {
        self.percentile(0.5)
    }

    /// The mean.
    #[must_use]
    pub(crate) fn mean(&self) -> f64 {
        self.0.iter().sum::<f64>() / self.0.len() as f64
    }

    /// The median with its confidence interval by the percentile bootstrap; the same seed gives the same interval.
    #[must_use]
    pub(crate) fn median_estimate(&self, seed: u64) -> Estimate {
        self.estimate(seed, Self::median)
    }

    /// The mean with its confidence interval, likewise.
    #[must_use]
    pub(crate) fn mean_estimate(&self, seed: u64) -> Estimate {
        self.estimate(seed, Self::mean)
    }

    fn estimate(&self, seed: u64, figure: fn(&Self) -> f64) -> Estimate {
        let value = figure(self);
        if self.0.len() < 2 {
            return Estimate { value, low: value, high: value };
        }
        let mut random = StdRng::seed_from_u64(seed);
        let figures = (0..RESAMPLES).map(|_| {
            let resample = (0..self.0.len()).map(|_| self.0[random.random_range(0..self.0.len())]).collect();
            figure(&Self::new(resample))
        });
        let figures = Self::new(figures.collect());
        Estimate { value, low: figures.percentile(0.025), high: figures.percentile(0.975) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_measurements_at_their_rank() {
        let sample = Sample::new((1..=100).rev().map(f64::from).collect());
        assert_eq!(sample.percentile(0.0), 1.0);
        assert_eq!(sample.median(), 50.0);
        assert_eq!(sample.percentile(0.99), 99.0);
        assert_eq!(sample.percentile(1.0), 100.0);
        assert!(Sample::new(vec![f64::NAN]).median().is_nan());
    }

    #[test]
    fn the_interval_holds_its_figure_and_shrinks_with_more_measurements() {
        let width = |n: u32| {
            let sample = Sample::new((0..n).map(|i| f64::from(i * 7919 % n)).collect());
            let (median, mean) = (sample.median_estimate(1), sample.mean_estimate(1));
            for estimate in [median, mean] {
                assert!(estimate.low <= estimate.value && estimate.value <= estimate.high);
            }
            [median, mean].map(|estimate| (estimate.high - estimate.low) / f64::from(n))
        };
        let (many, few) = (width(1000), width(20));
        assert!(many[0] < few[0] && many[1] < few[1]);
    }
}
