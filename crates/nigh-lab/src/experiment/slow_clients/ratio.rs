//! A percentile with slow clients over the same without, and how sure the figure is. Pure.
//!
//! The latencies of all rounds are pooled: a single window has too few for its 99th percentile. The interval is a bootstrap that
//! draws whole rounds, because what disturbs a machine disturbs all calls of some seconds.

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use crate::instrument::stats::Estimate;

const RESAMPLES: usize = 1000;
const SEED: u64 = 10;

/// The latencies of one round in microseconds: without slow clients, and with them.
#[derive(Clone, Copy, Debug)]
pub(in crate::experiment) struct Round<'a> {
    pub(in crate::experiment) quiet: &'a [u32],
    pub(in crate::experiment) slow: &'a [u32],
}

/// The percentile `share` (0 to 1) with slow clients over that without, with the interval that holds it with 95 % confidence.
pub(in crate::experiment) fn ratio(rounds: &[Round<'_>], share: f64) -> Estimate {
    let of = |rounds: &[Round<'_>]| {
        pooled(rounds.iter().map(|round| round.slow), share) / pooled(rounds.iter().map(|round| round.quiet), share)
    };
    let value = of(rounds);
    if rounds.len() < 2 {
        return Estimate { value, low: value, high: value };
    }
    let mut random = StdRng::seed_from_u64(SEED);
    let mut drawn: Vec<f64> = (0..RESAMPLES)
        .map(|_| {
            let resample: Vec<Round<'_>> =
                (0..rounds.len()).map(|_| rounds[random.random_range(0..rounds.len())]).collect();
            of(&resample)
        })
        .filter(|ratio| ratio.is_finite())
        .collect();
    drawn.sort_by(f64::total_cmp);
    let at = |share: f64| drawn.get((share * drawn.len() as f64) as usize).copied().unwrap_or(f64::NAN);
    Estimate { value, low: at(0.025), high: at(0.975) }
}

/// The smallest latency that at least `share` of all do not exceed; not a number if there is none.
pub(in crate::experiment) fn pooled<'a>(windows: impl Iterator<Item = &'a [u32]>, share: f64) -> f64 {
    let mut all: Vec<u32> = windows.flatten().copied().collect();
    if all.is_empty() {
        return f64::NAN;
    }
    let rank = (share * all.len() as f64).ceil() as usize;
    let rank = rank.clamp(1, all.len()) - 1;
    f64::from(*all.select_nth_unstable(rank).1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn window(from: u32) -> Vec<u32> {
        (from..from + 100).rev().collect()
    }

    #[test]
    fn a_percentile_is_the_measurement_at_its_rank_in_all_windows() {
        let (low, high) = (window(1), window(101));
        let both = || [high.as_slice(), low.as_slice()].into_iter();
        assert_eq!((pooled(both(), 0.5), pooled(both(), 0.99), pooled(both(), 1.0)), (100.0, 198.0, 200.0));
        assert!(pooled([].into_iter(), 0.5).is_nan());
    }

    #[test]
    fn windows_that_are_alike_have_a_ratio_of_one_and_one_slow_round_widens_the_interval() {
        let (fast, slow) = (window(1000), window(3000));
        let alike = vec![Round { quiet: &fast, slow: &fast }; 6];
        assert_eq!(ratio(&alike, 0.99), Estimate { value: 1.0, low: 1.0, high: 1.0 });
        let mut one = alike.clone();
        one[0].slow = &slow;
        let estimate = ratio(&one, 0.99);
        assert!(estimate.low <= 1.1 && estimate.high > 2.0, "{estimate:?}");
        let all = vec![Round { quiet: &fast, slow: &slow }; 6];
        assert!(ratio(&all, 0.99).low > 2.0);
    }

    #[test]
    fn a_single_round_has_no_interval_and_none_has_no_ratio() {
        let (fast, slow) = (window(1000), window(2000));
        let estimate = ratio(&[Round { quiet: &fast, slow: &slow }], 0.5);
        assert!(estimate.low == estimate.value && estimate.high == estimate.value && estimate.value > 1.5);
        assert!(ratio(&[], 0.5).value.is_nan());
    }
}
