//! The time of a run with 1, 2, ... W ways, and from it the run's need and its class.
//!
//! Times are measured (a profile) or computed from a miss curve by a linear CPI model: cycles for instructions, for
//! each hit in the last-level cache and for each miss. A miss next to a line that was just fetched can be cheaper, as
//! with a prefetcher. CASY IV-B defines the need: the fewest ways within 5 % of the time with the whole cache. Its
//! equation 1 defines the sensitivity; Nigh corrects the sign. Sensitivity is the time added by one way instead of the
//! whole cache, and a run is *sensitive* if that exceeds the threshold.

use std::fmt;
use std::time::Duration;

use nigh_terms::Ways;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::miss_curve::{CurveError, MissCurve};

/// The part by which one time may exceed another: 0.05 is 5 %.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Tolerance(pub f64);

impl Tolerance {
    /// The strict bound: "not slower" in Nigh's promises.
    pub const ONE_PERCENT: Self = Self(0.01);
    /// CASY's threshold.
    pub const FIVE_PERCENT: Self = Self(0.05);
}

/// How a function uses the last-level cache on one input (CASY IV-B; Nigh divides the insensitive class).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum CacheClass {
    /// Insensitive (CASY: CI): within the threshold at one way, and hardly uses the cache.
    Light,
    /// Insensitive, with unknown misses: light or thrashing.
    Insensitive,
    /// Insensitive because its data never fit: it gains nothing from the cache and pollutes it.
    Thrashing,
    /// Sensitive (CASY: CS): slower with fewer ways.
    Sensitive,
}

impl fmt::Display for CacheClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Sensitive => "sensitive",
            Self::Light => "light",
            Self::Insensitive => "insensitive",
            Self::Thrashing => "thrashing",
        })
    }
}

impl CacheClass {
    /// Whether the class is one of the insensitive ones.
    #[must_use]
    pub const fn is_insensitive(self) -> bool {
        !matches!(self, Self::Sensitive)
    }

    /// The class of an insensitive run, by its misses with the whole cache.
    #[must_use]
    pub fn of_insensitive(curve: &MissCurve, lines_per_way: f64) -> Self {
        let left = curve.misses(curve.ways());
        let passes_through = left >= lines_per_way && curve.miss_ratio(curve.ways()) >= THRASHING_MISS_RATIO;
        if passes_through { Self::Thrashing } else { Self::Light }
    }
}

/// The least miss ratio with the whole cache of a thrashing run. The run must also fetch at least as many lines as one
/// way holds.
const THRASHING_MISS_RATIO: f64 = 0.25;

/// Cycles per event.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct CpiModel {
    /// Cycles of an instruction without accesses beyond the private caches.
    pub cycles_per_instruction: f64,
    /// Cycles added by a hit in the last-level cache.
    pub hit_cycles: f64,
    /// Cycles added by a miss.
    pub miss_cycles: f64,
    /// Cycles added by a miss whose neighbouring line was just fetched; `None`: the same as any miss.
    pub neighbour_miss_cycles: Option<f64>,
    /// Cycles in a microsecond.
    pub megahertz: f64,
}

/// The work of one run, beside its misses.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Work {
    /// Instructions retired.
    pub instructions: f64,
    /// The share of misses whose neighbouring line was just fetched, 0 to 1.
    pub neighbour_share: f64,
}

impl CpiModel {
    fn micros(&self, work: &Work, accesses: f64, misses: f64) -> f64 {
        let neighbours = misses * work.neighbour_share.clamp(0.0, 1.0);
        let cycles = work.instructions * self.cycles_per_instruction
            + (accesses - misses) * self.hit_cycles
            + (misses - neighbours) * self.miss_cycles
            + neighbours * self.neighbour_miss_cycles.unwrap_or(self.miss_cycles);
        cycles / self.megahertz
    }
}

/// Time of one run by way count.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "Vec<f64>", into = "Vec<f64>")]
pub struct TimeCurve {
    /// Microseconds with `index + 1` ways.
    micros: Vec<f64>,
}

impl TryFrom<Vec<f64>> for TimeCurve {
    type Error = CurveError;
    fn try_from(micros: Vec<f64>) -> Result<Self, CurveError> {
        Self::new(micros)
    }
}

impl From<TimeCurve> for Vec<f64> {
    fn from(curve: TimeCurve) -> Self {
        curve.micros
    }
}

impl TimeCurve {
    /// A curve of `micros[w - 1]` microseconds with `w` ways; each must be above zero.
    pub fn new(micros: Vec<f64>) -> Result<Self, CurveError> {
        if micros.is_empty() || micros.len() > usize::from(crate::WAYS_MAX.0) {
            return Err(CurveError::WrongLength { points: micros.len() });
        }
        match micros.iter().position(|&value| !value.is_finite() || value <= 0.0) {
            Some(at) => Err(CurveError::NoAmount { ways: Ways(at as u8 + 1), value: micros[at], limit: f64::MAX }),
            None => Ok(Self { micros }),
        }
    }

    /// The time of a run with these misses, by the model.
    pub fn from_misses(curve: &MissCurve, work: &Work, model: &CpiModel) -> Result<Self, CurveError> {
        let at = |ways| model.micros(work, curve.accesses(), curve.misses(Ways(ways)));
        Self::new((1..=curve.ways().0).map(at).collect())
    }

    /// The ways of the whole cache.
    #[must_use]
    pub fn ways(&self) -> Ways {
        Ways(self.micros.len() as u8)
    }

    /// Microseconds with `ways` ways, clamped to between one way and the whole cache.
    #[must_use]
    pub fn micros(&self, ways: Ways) -> f64 {
        self.micros[usize::from(ways.0).clamp(1, self.micros.len()) - 1]
    }

    /// Time with the whole cache.
    #[must_use]
    pub fn best(&self) -> Duration {
        Duration::from_secs_f64(self.micros(self.ways()) / 1e6)
    }

    /// Time with a fractional share of ways, on the line between its neighbours. Below one way, on the line through the
    /// first two.
    #[must_use]
    pub fn micros_at(&self, share: f64) -> f64 {
        let last = self.micros.len() as f64;
        let below = share.floor().clamp(1.0, (last - 1.0).max(1.0));
        let (low, high) = (self.micros(Ways(below as u8)), self.micros(Ways(below as u8 + 1)));
        (low + (high - low) * (share.clamp(0.0, last) - below)).max(self.micros(self.ways()) * f64::EPSILON)
    }

    /// Time with `ways` over time with the whole cache.
    #[must_use]
    pub fn slowdown(&self, ways: Ways) -> f64 {
        self.micros(ways) / self.micros(self.ways())
    }

    /// The fewest ways at which, and above which, no way count is slower than the whole cache by more than the
    /// tolerance.
    #[must_use]
    pub fn ways_needed(&self, tolerance: Tolerance) -> Ways {
        let slower = |&ways: &u8| self.slowdown(Ways(ways)) > 1.0 + tolerance.0;
        let last_slow = (1..self.ways().0).rev().find(slower).unwrap_or(0);
        Ways(last_slow + 1)
    }

    /// CASY's equation 1, corrected: the part of time that one way adds to the time with the whole cache.
    #[must_use]
    pub fn sensitivity(&self) -> f64 {
        self.slowdown(Ways(1)) - 1.0
    }

    /// The class by CASY's equation 1 at a threshold. Known misses tell light from thrashing.
    #[must_use]
    pub fn class(&self, threshold: Tolerance, misses: Option<(&MissCurve, f64)>) -> CacheClass {
        match misses {
            _ if self.sensitivity() > threshold.0 => CacheClass::Sensitive,
            Some((curve, lines_per_way)) => CacheClass::of_insensitive(curve, lines_per_way),
            None => CacheClass::Insensitive,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MODEL: CpiModel = CpiModel {
        cycles_per_instruction: 0.5,
        hit_cycles: 20.0,
        miss_cycles: 200.0,
        neighbour_miss_cycles: None,
        megahertz: 2400.0,
    };

    fn blur(work: Work, model: &CpiModel) -> TimeCurve {
        let misses = vec![389e3, 285e3, 183e3, 107e3, 60e3, 31e3, 16e3, 7.3e3, 3.2e3, 1.3e3, 0.5e3];
        TimeCurve::from_misses(&MissCurve::new(451e3, misses).unwrap(), &work, model).unwrap()
    }

    #[test]
    fn the_need_grows_as_the_tolerance_shrinks() {
        let curve = TimeCurve::new(vec![150.0, 120.0, 104.0, 100.5, 100.0]).unwrap();
        assert_eq!(curve.ways_needed(Tolerance::FIVE_PERCENT), Ways(3));
        assert_eq!(curve.ways_needed(Tolerance::ONE_PERCENT), Ways(4));
        assert_eq!(curve.ways_needed(Tolerance(0.0)), Ways(5));
        assert_eq!(curve.ways_needed(Tolerance(0.5)), Ways(1));
    }

    #[test]
    fn a_bump_at_more_ways_counts_against_fewer() {
        let curve = TimeCurve::new(vec![101.0, 103.0, 110.0, 100.0]).unwrap();
        assert_eq!(curve.ways_needed(Tolerance::FIVE_PERCENT), Ways(4));
    }

    #[test]
    fn sensitive_is_the_function_that_slows() {
        let slows = TimeCurve::new(vec![283.0, 100.0]).unwrap();
        assert!((slows.sensitivity() - 1.83).abs() < 1e-9);
        assert_eq!(slows.class(Tolerance::FIVE_PERCENT, None), CacheClass::Sensitive);
        let steady = TimeCurve::new(vec![101.0, 100.0]).unwrap();
        assert_eq!(steady.class(Tolerance::FIVE_PERCENT, None), CacheClass::Insensitive);
        let streams = MissCurve::new(15e6, vec![14.7e6; 2]).unwrap();
        let fits = MissCurve::new(28e3, vec![16e3, 0.0]).unwrap();
        assert_eq!(steady.class(Tolerance::FIVE_PERCENT, Some((&streams, 20480.0))), CacheClass::Thrashing);
        assert_eq!(steady.class(Tolerance::FIVE_PERCENT, Some((&fits, 20480.0))), CacheClass::Light);
    }

    #[test]
    fn cheaper_neighbour_misses_lower_the_need() {
        let prefetching = CpiModel { neighbour_miss_cycles: Some(20.0), ..MODEL };
        let work = Work { instructions: 739e6, neighbour_share: 0.9 };
        let (plain, prefetched) = (blur(work, &MODEL), blur(work, &prefetching));
        assert!(plain.ways_needed(Tolerance::FIVE_PERCENT) > prefetched.ways_needed(Tolerance::FIVE_PERCENT));
        assert_eq!(prefetched.ways_needed(Tolerance::FIVE_PERCENT), Ways(1));
    }

    #[test]
    fn a_fractional_share_is_between_and_never_free() {
        let curve = TimeCurve::new(vec![200.0, 100.0]).unwrap();
        assert_eq!(curve.micros_at(1.5), 150.0);
        assert_eq!(curve.micros_at(0.5), 250.0);
        assert_eq!(curve.micros_at(9.0), 100.0);
        assert_eq!(TimeCurve::new(vec![7.0]).unwrap().micros_at(0.3), 7.0);
        assert!(TimeCurve::new(vec![1.0, 0.0]).is_err());
    }
}
