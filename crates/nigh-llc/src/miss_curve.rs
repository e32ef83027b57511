//! The misses of a last-level cache with 1, 2, ... W ways. Every sizing decision starts from this curve.
//!
//! A curve belongs to one run of one function on one input. A curve from a stack-distance pass is exact. A sampled
//! curve may rise; [`MissCurve::monotone`] corrects that, since a larger LRU cache with the same sets never misses more
//! (Mattson, 1970).

use nigh_terms::Ways;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// The most ways a mask of the hardware can name.
pub const WAYS_MAX: Ways = Ways(32);

/// Why numbers are not a miss curve.
#[derive(Debug, Clone, PartialEq, Error)]
pub enum CurveError {
    /// No cache has this number of ways.
    #[error("a curve over {points} ways is not possible: a cache has 1 to {} ways", WAYS_MAX)]
    WrongLength {
        /// How many points were given.
        points: usize,
    },
    /// A point is out of range.
    #[error("the point at {ways} ways is {value}: it must be a finite number, zero or more, and at most {limit}")]
    NoAmount {
        /// The number of ways.
        ways: Ways,
        /// The value.
        value: f64,
        /// The greatest possible value.
        limit: f64,
    },
    /// Two curves are of different caches.
    #[error("curves over {left} and {right} ways cannot be combined: measure both on the same cache")]
    DifferentCaches {
        /// The ways of one cache.
        left: Ways,
        /// The ways of the other cache.
        right: Ways,
    },
}

/// Misses of one run by way count; fractions come from sampling and interpolation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "StoredCurve", into = "StoredCurve")]
pub struct MissCurve {
    accesses: f64,
    misses: Vec<f64>,
}

/// The curve as stored; read back through the checks of [`MissCurve::new`].
#[derive(Clone, Serialize, Deserialize, JsonSchema)]
struct StoredCurve {
    accesses: f64,
    misses: Vec<f64>,
}

impl TryFrom<StoredCurve> for MissCurve {
    type Error = CurveError;
    fn try_from(stored: StoredCurve) -> Result<Self, CurveError> {
        Self::new(stored.accesses, stored.misses)
    }
}

impl From<MissCurve> for StoredCurve {
    fn from(curve: MissCurve) -> Self {
        Self { accesses: curve.accesses, misses: curve.misses }
    }
}

impl MissCurve {
    /// A curve of `misses[w - 1]` misses with `w` ways, out of `accesses` that reached the cache.
    pub fn new(accesses: f64, misses: Vec<f64>) -> Result<Self, CurveError> {
        if misses.is_empty() || misses.len() > usize::from(WAYS_MAX.0) {
            return Err(CurveError::WrongLength { points: misses.len() });
        }
        if !accesses.is_finite() || accesses < 0.0 {
            return Err(CurveError::NoAmount { ways: Ways(0), value: accesses, limit: f64::MAX });
        }
        for (at, &value) in misses.iter().enumerate() {
            if !value.is_finite() || value < 0.0 || value > accesses {
                return Err(CurveError::NoAmount { ways: Ways(at as u8 + 1), value, limit: accesses });
            }
        }
        Ok(Self { accesses, misses })
    }

    /// The ways of the whole cache.
    #[must_use]
    pub fn ways(&self) -> Ways {
        Ways(self.misses.len() as u8)
    }

    /// Accesses that reached the cache: the misses without any way.
    #[must_use]
    pub const fn accesses(&self) -> f64 {
        self.accesses
    }

    /// Misses with `ways` ways: all accesses for 0 ways, those with the whole cache for more ways than it has.
    #[must_use]
    pub fn misses(&self, ways: Ways) -> f64 {
        match usize::from(ways.0) {
            0 => self.accesses,
            count => self.misses[count.min(self.misses.len()) - 1],
        }
    }

    /// Misses with a fractional share of ways, on the line between its neighbours.
    #[must_use]
    pub fn misses_at(&self, share: f64) -> f64 {
        let share = share.clamp(0.0, self.misses.len() as f64);
        let below = share.floor();
        let (low, high) = (self.misses(Ways(below as u8)), self.misses(Ways(below as u8 + 1)));
        low + (high - low) * (share - below)
    }

    /// Misses over accesses with `ways` ways; zero without accesses.
    #[must_use]
    pub fn miss_ratio(&self, ways: Ways) -> f64 {
        if self.accesses == 0.0 { 0.0 } else { self.misses(ways) / self.accesses }
    }

    /// The curve without rises: at each way count the least misses at that and all smaller counts.
    #[must_use]
    pub fn monotone(&self) -> Self {
        let mut least = self.accesses;
        let misses = self.misses.iter().map(|&misses| {
            least = least.min(misses);
            least
        });
        Self { accesses: self.accesses, misses: misses.collect() }
    }
}

/// The time in which a run fills a share of the cache. The unit is one run: the time in which its misses occur once.
pub(crate) struct FillTime {
    /// Time to fill `0, 1/4, 2/4, ...` ways.
    reached: Vec<f64>,
}

/// Steps in a way at which curves are sampled for sharing.
pub(crate) const STEPS_PER_WAY: usize = 4;

/// The least fill rate, as a share of a run's accesses. A run that fits into the cache fills very slowly rather than
/// never, so that two such runs still divide the rest of the cache.
const LEAST_FILL: f64 = 1e-6;

impl FillTime {
    /// From fill rates at each step of a quarter way; `greatest` is the rate that the floor is taken from.
    pub(crate) fn of_rates(steps: usize, greatest: f64, rate: impl Fn(usize) -> f64) -> Self {
        let least = (greatest * LEAST_FILL).max(f64::MIN_POSITIVE * 1e9);
        let mut time = 0.0;
        let mut reached = Vec::with_capacity(steps + 1);
        reached.push(0.0);
        for step in 0..steps {
            // The mean of the two ends: exact to second order, and monotone.
            let mean = f64::midpoint(rate(step), rate(step + 1)).max(least);
            time += 1.0 / (STEPS_PER_WAY as f64 * mean);
            reached.push(time);
        }
        Self { reached }
    }

    /// Time to fill the share at `step`.
    pub(crate) fn at_step(&self, step: usize) -> f64 {
        self.reached[step.min(self.reached.len() - 1)]
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use proptest::prelude::*;

    use super::*;

    impl FillTime {
        fn of(curve: &MissCurve) -> Self {
            Self::of_rates(usize::from(curve.ways().0) * STEPS_PER_WAY, curve.accesses(), |step| {
                curve.misses_at(step as f64 / STEPS_PER_WAY as f64)
            })
        }

        /// Ways filled after `time`, at most the cache.
        fn filled(&self, time: f64) -> f64 {
            let above = self.reached.partition_point(|&reached| reached <= time);
            if above >= self.reached.len() {
                return (self.reached.len() - 1) as f64 / STEPS_PER_WAY as f64;
            }
            let (low, high) = (self.reached[above - 1], self.reached[above]);
            ((above - 1) as f64 + (time - low) / (high - low)) / STEPS_PER_WAY as f64
        }

        fn longest(&self) -> f64 {
            self.reached[self.reached.len() - 1]
        }
    }

    /// The ways each run holds of `ways` when all lines are evicted at one age.
    fn shares_of_equal_age(fills: &[FillTime], ways: f64) -> Vec<f64> {
        let shares = |time: f64| fills.iter().map(move |fill| fill.filled(time));
        let mut low = 0.0;
        let mut high = fills.iter().map(FillTime::longest).fold(0.0, f64::max);
        // Halving 60 times leaves nothing of a double's precision to gain.
        for _ in 0..60 {
            let middle = f64::midpoint(low, high);
            if shares(middle).sum::<f64>() > ways {
                high = middle;
            } else {
                low = middle;
            }
        }
        shares(low).collect()
    }

    /// The curve of several runs that share every way for the same time: at each way count each run holds the ways that
    /// it fills in one common time, and the misses add up (AET, USENIX ATC 2016; Brock, ICPP 2015).
    pub(crate) fn compose(curves: &[MissCurve]) -> MissCurve {
        let fills: Vec<FillTime> = curves.iter().map(FillTime::of).collect();
        let accesses = curves.iter().map(MissCurve::accesses).sum();
        let misses = (1..=curves[0].ways().0).map(|ways| {
            let shares = shares_of_equal_age(&fills, f64::from(ways));
            curves.iter().zip(shares).map(|(curve, share)| curve.misses_at(share)).sum::<f64>().min(accesses)
        });
        MissCurve::new(accesses, misses.collect()).unwrap()
    }

    fn curve(accesses: f64, misses: &[f64]) -> MissCurve {
        MissCurve::new(accesses, misses.to_vec()).unwrap()
    }

    #[test]
    fn a_curve_refuses_what_no_cache_gives() {
        assert!(matches!(MissCurve::new(1.0, vec![]), Err(CurveError::WrongLength { points: 0 })));
        assert!(matches!(MissCurve::new(1.0, vec![0.0; 33]), Err(CurveError::WrongLength { points: 33 })));
        assert!(matches!(MissCurve::new(9.0, vec![8.0, f64::NAN]), Err(CurveError::NoAmount { ways: Ways(2), .. })));
        assert!(matches!(MissCurve::new(9.0, vec![10.0]), Err(CurveError::NoAmount { ways: Ways(1), .. })));
        assert!(serde_json::from_str::<MissCurve>(r#"{"accesses":1.0,"misses":[2.0]}"#).is_err());
    }

    #[test]
    fn a_fractional_share_lies_between_its_neighbours() {
        let curve = curve(100.0, &[50.0, 10.0]);
        assert_eq!(curve.misses_at(0.5), 75.0);
        assert_eq!(curve.misses_at(1.5), 30.0);
        assert_eq!(curve.misses_at(7.0), 10.0);
        assert_eq!(curve.misses(Ways(0)), 100.0);
    }

    #[test]
    fn a_stream_and_a_small_set_share_by_age() {
        // The stream misses at every size; the set fits in one way and asks as often as the stream. Of 4 ways the set
        // keeps its one: by the time its lines would be as old as the stream's oldest they were used again.
        let stream = curve(1000.0, &[1000.0; 4]);
        let set = curve(1000.0, &[0.0; 4]);
        let both = compose(&[stream, set]);
        assert!(both.misses(Ways(4)) < 1200.0, "{both:?}");
        // Alone in one way with the stream, it loses much of it.
        assert!(both.misses(Ways(1)) > 1300.0, "{both:?}");
    }

    #[test]
    fn two_equal_runs_hold_half_the_cache_each() {
        let one = curve(100.0, &[80.0, 60.0, 40.0, 20.0]);
        let both = compose(&[one.clone(), one.clone()]);
        assert!((both.misses(Ways(4)) - 2.0 * one.misses(Ways(2))).abs() < 1e-6);
        assert!((both.misses(Ways(2)) - 2.0 * one.misses(Ways(1))).abs() < 1e-6);
    }

    fn curves() -> impl Strategy<Value = MissCurve> {
        (1.0..1e6_f64, proptest::collection::vec(0.0..=1.0_f64, 6)).prop_map(|(accesses, parts)| {
            MissCurve::new(accesses, parts.iter().map(|part| part * accesses).collect()).unwrap()
        })
    }

    proptest! {
        #[test]
        fn a_monotone_curve_lies_under_its_curve_and_never_rises(curve in curves()) {
            let monotone = curve.monotone();
            for ways in 1..=6 {
                let (here, before) = (Ways(ways), Ways(ways - 1));
                prop_assert!(monotone.misses(here) <= curve.misses(here));
                prop_assert!(monotone.misses(here) <= monotone.misses(before));
            }
        }

        #[test]
        fn sharing_never_misses_less_than_each_alone(left in curves(), right in curves()) {
            let (left, right) = (left.monotone(), right.monotone());
            let both = compose(&[left.clone(), right.clone()]);
            for ways in 1..=6 {
                let alone = left.misses(Ways(ways)) + right.misses(Ways(ways));
                prop_assert!(both.misses(Ways(ways)) >= alone * (1.0 - 1e-9));
                prop_assert!(both.misses(Ways(ways)) <= both.misses(Ways(ways - 1)) * (1.0 + 1e-9));
            }
        }
    }
}
