//! Latencies of one window, counted in buckets a thirty-second of their value wide, and the quantile of them.
//!
//! A fixed array: recording never allocates, windows merge by adding, a quantile is at most 3.2 % above the true one.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// Buckets for each doubling of the latency.
const PER_DOUBLING: u64 = 32;

/// Latencies from here on (over an hour) share the last bucket.
const DOUBLINGS: u64 = 42;

const BUCKETS: usize = ((DOUBLINGS - 4) * PER_DOUBLING) as usize;

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

/// Latencies of one window.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LatencyHistogram {
    counts: Vec<u64>,
    total: u64,
}

impl Default for LatencyHistogram {
    fn default() -> Self {
        Self { counts: vec![0; BUCKETS], total: 0 }
    }
}

/// Below 32 ns each nanosecond has its bucket; above, each doubling has 32.
fn bucket(nanos: u64) -> usize {
    if nanos < PER_DOUBLING {
        return nanos as usize;
    }
    let shift = u64::from(nanos.ilog2()) - 5;
    ((shift * PER_DOUBLING + (nanos >> shift)) as usize).min(BUCKETS - 1)
}

/// The greatest latency of a bucket, in nanoseconds.
fn upper(bucket: usize) -> u64 {
    let bucket = bucket as u64;
    if bucket < PER_DOUBLING {
        return bucket;
    }
    let shift = bucket / PER_DOUBLING - 1;
    ((bucket - shift * PER_DOUBLING + 1) << shift) - 1
}

impl LatencyHistogram {
    /// Counts one latency.
    pub fn record(&mut self, latency: Duration) {
        self.record_many(latency, 1);
    }

    /// Counts a latency a number of times: how an exported histogram comes in.
    pub fn record_many(&mut self, latency: Duration, times: u64) {
        let nanos = u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX);
        let cell = &mut self.counts[bucket(nanos)];
        *cell = cell.saturating_add(times);
        self.total = self.total.saturating_add(times);
    }

    /// Counts latencies of which only a bound is known: in the last bucket that ends at the bound or before it, so that
    /// a quantile never lies above the bound.
    pub fn record_at_most(&mut self, bound: Duration, times: u64) {
        let nanos = u64::try_from(bound.as_nanos()).unwrap_or(u64::MAX);
        let at = bucket(nanos);
        let below = if upper(at) > nanos { at.saturating_sub(1) } else { at };
        self.record_many(Duration::from_nanos(upper(below)), times);
    }

    /// Adds another window.
    pub fn merge(&mut self, other: &Self) {
        for (mine, more) in self.counts.iter_mut().zip(&other.counts) {
            *mine = mine.saturating_add(*more);
        }
        self.total = self.total.saturating_add(other.total);
    }

    /// How many were counted.
    #[must_use]
    pub const fn total(&self) -> u64 {
        self.total
    }

    /// The latency that this percentile of the samples did not exceed, rounded up by at most 3.2 %; `None` without
    /// samples.
    #[must_use]
    pub fn quantile(&self, percentile: Percentile) -> Option<Duration> {
        let rank = (self.total as f64 * percentile.0 / 100.0).ceil().max(1.0) as u64;
        let mut counted = 0_u64;
        let at = self.counts.iter().position(|&count| {
            counted = counted.saturating_add(count);
            counted >= rank
        })?;
        (self.total > 0).then(|| Duration::from_nanos(upper(at)))
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
            prop_assert!(found >= truth && found <= truth * (1.0 + 1.0 / 31.0) + 1.0, "{found} {truth}");
            prop_assert_eq!(left.total(), micros.len() as u64);
        }

        #[test]
        fn of_a_bound_the_quantile_is_the_bound_or_a_little_less(nanos in 0_u64..1 << 41) {
            let mut histogram = LatencyHistogram::default();
            histogram.record_at_most(Duration::from_nanos(nanos), 3);
            let found = histogram.quantile(percentile(99.0)).unwrap().as_nanos() as u64;
            prop_assert!(found <= nanos && found as f64 >= nanos as f64 * (1.0 - 1.0 / 31.0) - 1.0, "{found} {nanos}");
        }

        #[test]
        fn every_latency_lies_in_its_bucket(nanos in 0_u64..1 << 41) {
            let at = bucket(nanos);
            prop_assert!(upper(at) >= nanos);
            prop_assert!(at == 0 || upper(at - 1) < nanos);
        }
    }
}
