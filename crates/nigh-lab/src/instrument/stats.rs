//! Statistics of measurements: percentiles, medians and their bootstrap confidence intervals. Pure.

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

/// Resamples of a bootstrap.
const RESAMPLES: usize = 1000;

/// Measurements, smallest first.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sample(Vec<f64>);

/// A figure and the interval that holds it with 95 % confidence.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub(crate) struct Estimate {
    pub value: f64,
    pub low: f64,
    pub high: f64,
}

impl Sample {
    /// Takes measurements in any order, without those that are no numbers.
    pub(crate) fn new(mut values: Vec<f64>) -> Self {
        values.retain(|value| value.is_finite());
        values.sort_by(f64::total_cmp);
        Self(values)
    }

    pub(crate) fn of<T>(all: &[T], figure: impl Fn(&T) -> f64) -> Self {
        Self::new(all.iter().map(figure).collect())
    }

    /// One field of each of a report's rows, where it is known.
    pub(crate) fn of_field(rows: &[serde_json::Value], field: &str) -> Self {
        Self::new(rows.iter().filter_map(|row| row[field].as_f64()).collect())
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The measurements, smallest first.
    pub(crate) fn values(&self) -> &[f64] {
        &self.0
    }

    /// The smallest measurement that at least `share` (0 to 1) of all do not exceed; not a number if there is none.
    pub(crate) fn percentile(&self, share: f64) -> f64 {
        let rank = (share * self.0.len() as f64).ceil() as usize;
        self.0.get(rank.clamp(1, self.0.len().max(1)) - 1).copied().unwrap_or(f64::NAN)
    }

    /// `percentile`, or none if there is no measurement.
    pub(crate) fn known_percentile(&self, share: f64) -> Option<f64> {
        (!self.is_empty()).then(|| self.percentile(share))
    }

    pub(crate) fn median(&self) -> f64 {
        self.percentile(0.5)
    }

    pub(crate) fn mean(&self) -> f64 {
        self.0.iter().sum::<f64>() / self.0.len() as f64
    }

    /// The median with its confidence interval by the percentile bootstrap; the same seed gives the same interval.
    pub(crate) fn median_estimate(&self, seed: u64) -> Estimate {
        self.estimate(seed, Self::median)
    }

    /// The mean with its confidence interval, likewise.
    pub(crate) fn mean_estimate(&self, seed: u64) -> Estimate {
        self.estimate(seed, Self::mean)
    }

    fn estimate(&self, seed: u64, figure: fn(&Self) -> f64) -> Estimate {
        grouped_estimate(std::slice::from_ref(&self.0), seed, |groups| figure(&Self::new(groups.concat())))
    }
}

/// A figure of measurements in groups with its confidence interval by the percentile bootstrap: each resample takes from
/// every group as many measurements as it has. The same seed gives the same interval.
pub(crate) fn grouped_estimate<T: Copy>(groups: &[Vec<T>], seed: u64, figure: impl Fn(&[Vec<T>]) -> f64) -> Estimate {
    let value = figure(groups);
    if groups.iter().all(|group| group.len() < 2) {
        return Estimate { value, low: value, high: value };
    }
    let mut random = StdRng::seed_from_u64(seed);
    let figures = (0..RESAMPLES).map(|_| {
        let drawn = |group: &Vec<T>| (0..group.len()).map(|_| group[random.random_range(0..group.len())]).collect();
        let resample: Vec<Vec<T>> = groups.iter().map(drawn).collect();
        figure(&resample)
    });
    let figures = Sample::new(figures.collect());
    Estimate { value, low: figures.percentile(0.025), high: figures.percentile(0.975) }
}

pub(crate) fn geometric_mean(values: impl IntoIterator<Item = f64>) -> f64 {
    let (sum, count) = values.into_iter().fold((0.0, 0.0), |(sum, count), value| (sum + value.ln(), count + 1.0));
    (sum / count).exp()
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

    #[test]
    fn a_resample_of_groups_takes_none_of_another_group() {
        // The mean of the groups' means: it can vary by what the first group varies.
        let groups = [vec![0.0, 2.0, 4.0, 6.0], vec![100.0; 4]];
        let mean = |group: &Vec<f64>| group.iter().sum::<f64>() / group.len() as f64;
        let estimate = grouped_estimate(&groups, 7, |groups| groups.iter().map(mean).sum::<f64>() / 2.0);
        assert_eq!(estimate.value, 51.5);
        assert!((50.0..51.5).contains(&estimate.low) && estimate.high > 51.5 && estimate.high <= 53.0, "{estimate:?}");
        let alone = grouped_estimate(&[vec![1.0], vec![2.0]], 7, |groups| groups[1][0]);
        assert_eq!((alone.value, alone.low, alone.high), (2.0, 2.0, 2.0));
    }

    #[test]
    fn the_geometric_mean_is_that_of_the_logarithms() {
        assert!((geometric_mean([1.0, 4.0, 2.0]) - 2.0).abs() < 1e-12);
    }
}
