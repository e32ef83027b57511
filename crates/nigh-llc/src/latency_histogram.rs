//! Latencies of one window, and quantiles of them at most 1 % above the true ones.

use std::time::Duration;

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// Longer latencies are counted as this one: over an hour.
const LONGEST: u64 = 1 << 42;

/// More of one latency at once are counted as this many: sums of such counts fit 64 bits.
const MOST_AT_ONCE: u64 = 1 << 40;

/// Of a latency, so many decimal digits are kept.
const DIGITS: u8 = 2;

/// A percentile, above 0 and below 100.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd, Serialize, Deserialize)]
#[serde(try_from = "f64", into = "f64")]
pub struct Percentile(f64);

/// A number that is no percentile.
#[derive(Debug, Clone, Copy, PartialEq, Error)]
#[error("{0} is not a percentile: expected a number above 0 and below 100, like 99.9")]
pub struct NoPercentile(pub f64);

impl TryFrom<f64> for Percentile {
    type Error = NoPercentile;
    fn try_from(percent: f64) -> Result<Self, NoPercentile> {
        if percent > 0.0 && percent < 100.0 { Ok(Self(percent)) } else { Err(NoPercentile(percent)) }
    }
}

impl From<Percentile> for f64 {
    fn from(percentile: Percentile) -> Self {
        percentile.0
    }
}

impl Percentile {
    /// The fewest samples for this percentile: ten of them must be above it.
    #[must_use]
    pub fn samples_needed(self) -> u64 {
        (10.0 / (1.0 - self.0 / 100.0)).round() as u64
    }
}

/// Latencies of one window, in nanoseconds. Its counts are allocated once; windows merge by adding.
#[derive(Debug, Clone, PartialEq)]
pub struct LatencyHistogram(Histogram<u64>);

impl Default for LatencyHistogram {
    #[expect(clippy::expect_used, reason = "bound and digits are constants that the library accepts")]
    fn default() -> Self {
        Self(
            Histogram::new_with_max(LONGEST, DIGITS)
                .expect("a longest latency of two or more, and at most five digits"),
        )
    }
}

fn nanos(latency: Duration) -> u64 {
    u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX)
}

impl LatencyHistogram {
    /// Counts one latency.
    pub fn record(&mut self, latency: Duration) {
        self.record_many(latency, 1);
    }

    /// Counts a latency a number of times: how an exported histogram comes in.
    pub fn record_many(&mut self, latency: Duration, times: u64) {
        self.0.saturating_record_n(nanos(latency), times.min(MOST_AT_ONCE));
    }

    /// Counts latencies of which only a bound is known, so that a quantile never lies above the bound.
    pub fn record_at_most(&mut self, bound: Duration, times: u64) {
        let bound = nanos(bound);
        let lowest = self.0.lowest_equivalent(bound);
        let within = if self.0.highest_equivalent(bound) > bound { lowest.saturating_sub(1) } else { bound };
        self.record_many(Duration::from_nanos(within), times);
    }

    /// Adds another window.
    #[expect(clippy::expect_used, reason = "both have the same bound")]
    pub fn merge(&mut self, other: &Self) {
        self.0.add(&other.0).expect("every count of a histogram fits another of the same bounds");
    }

    /// How many were counted.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.0.len()
    }

    /// The latency that this percentile of the samples did not exceed, rounded up by at most 1 %; `None` without
    /// samples.
    #[must_use]
    pub fn quantile(&self, percentile: Percentile) -> Option<Duration> {
        (!self.0.is_empty()).then(|| Duration::from_nanos(self.0.value_at_percentile(percentile.0)))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn percentile(percent: f64) -> Percentile {
        Percentile::try_from(percent).unwrap()
    }

    #[test]
    fn a_percentile_is_between_its_ends() {
        for wrong in [0.0, 100.0, -1.0, f64::NAN] {
            assert!(Percentile::try_from(wrong).is_err(), "{wrong}");
        }
        assert_eq!(percentile(99.9).samples_needed(), 10_000);
        assert_eq!(percentile(50.0).samples_needed(), 20);
    }

    #[test]
    fn of_nothing_there_is_no_quantile() {
        assert_eq!(LatencyHistogram::default().quantile(percentile(99.0)), None);
    }

    #[test]
    fn the_longest_latencies_have_a_bucket_too() {
        let mut histogram = LatencyHistogram::default();
        histogram.record(Duration::MAX);
        assert!(histogram.quantile(percentile(50.0)).unwrap() > Duration::from_secs(3600));
    }

    proptest! {
        #[test]
        fn a_quantile_is_the_true_one_rounded_up_a_little(
            mut micros in proptest::collection::vec(1_u64..10_000_000, 1..300), percent in 1.0..99.9_f64,
        ) {
            let (mut left, mut right) = (LatencyHistogram::default(), LatencyHistogram::default());
            for (at, &micros) in micros.iter().enumerate() {
                if at % 2 == 0 { &mut left } else { &mut right }.record(Duration::from_micros(micros));
            }
            left.merge(&right);
            micros.sort_unstable();
            let rank = ((micros.len() as f64 * percent / 100.0).ceil() as usize).max(1);
            let truth = micros[rank - 1] as f64 * 1e3;
            let found = left.quantile(percentile(percent)).unwrap().as_nanos() as f64;
            prop_assert!(found >= truth && found <= truth * 1.01, "{found} {truth}");
            prop_assert_eq!(left.total(), micros.len() as u64);
        }

        #[test]
        fn of_a_bound_the_quantile_is_the_bound_or_a_little_less(nanos in 0_u64..1 << 41) {
            let mut histogram = LatencyHistogram::default();
            histogram.record_at_most(Duration::from_nanos(nanos), 3);
            let found = histogram.quantile(percentile(99.0)).unwrap().as_nanos() as u64;
            prop_assert!(found <= nanos && found as f64 >= nanos as f64 * 0.99 - 1.0, "{found} {nanos}");
        }
    }
}
