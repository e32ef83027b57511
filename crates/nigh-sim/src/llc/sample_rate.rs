//! Chooses the lines of a sampled stream: one in a power of two, by a hash (SHARDS: Waldspurger et al., FAST'15).
//!
//! Sampling in space keeps all accesses to a kept line, so distances between its accesses shrink by the rate, and a
//! cache with as many times fewer sets behaves like the whole one. Unlike SHARDS, the choice is stratified: of each two
//! neighbours one is kept, repeatedly, so that each aligned group of lines keeps exactly one. A working set of whole
//! pages then shrinks by exactly the rate, with much less variance than a hash of each line alone.

use std::fmt;

use thiserror::Error;

use super::geometry::mix;

/// The thinnest sample.
pub const SAMPLE_ONE_IN_MAX: u32 = 1 << 16;

/// Keeps the choice apart from the hash that chooses the slice.
const SALT: u32 = 0x5bd1_e995;

/// One line in how many is kept: a power of two.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SampleRate(u32);

/// A rate that is no power of two, or too thin.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("1 cache line in {0} cannot be sampled: use a power of two from 1 to {SAMPLE_ONE_IN_MAX}")]
pub struct SampleRateError(pub u32);

impl SampleRate {
    /// Every line.
    pub const ALL: Self = Self(1);

    /// One line in `one_in`.
    pub const fn new(one_in: u32) -> Result<Self, SampleRateError> {
        if !one_in.is_power_of_two() || one_in > SAMPLE_ONE_IN_MAX {
            return Err(SampleRateError(one_in));
        }
        Ok(Self(one_in))
    }

    /// One line in this many is kept.
    pub const fn one_in(self) -> u32 {
        self.0
    }

    /// Whether the line of this number is kept. What a thin rate keeps, every thicker one keeps too.
    #[inline]
    pub const fn keeps(self, line: u32) -> bool {
        let mut step = 1;
        let mut group = line;
        while step < self.0 {
            // One bit, from which pair this is at this step, chooses its left or its right half.
            let pair = group >> 1;
            if (mix(pair ^ SALT.wrapping_mul(step)) ^ group) & 1 != 0 {
                return false;
            }
            group = pair;
            step *= 2;
        }
        true
    }

    /// log2 of how many lines one stands for.
    pub(super) const fn shift(self) -> u32 {
        self.0.trailing_zeros()
    }

    /// One line in `rate` of those kept at this one.
    pub(super) const fn then(self, rate: Self) -> Result<Self, SampleRateError> {
        Self::new(self.0.saturating_mul(rate.0))
    }

    /// The rate that keeps half as many lines; none beyond [`SAMPLE_ONE_IN_MAX`].
    pub const fn halved(self) -> Option<Self> {
        if self.0 == SAMPLE_ONE_IN_MAX { None } else { Some(Self(self.0 * 2)) }
    }
}

impl fmt::Display for SampleRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_keeps_one_line_of_every_aligned_group() {
        for one_in in [1u32, 8, 32] {
            let rate = SampleRate::new(one_in).unwrap();
            for group in (0..64_000).step_by(one_in as usize) {
                assert_eq!((group..group + one_in).filter(|&line| rate.keeps(line)).count(), 1, "1 in {one_in}");
            }
        }
    }

    #[test]
    fn a_thinner_sample_is_part_of_a_thicker_one() {
        let (thick, thin) = (SampleRate::new(8).unwrap(), SampleRate::new(32).unwrap());
        assert!((0..100_000).filter(|&line| thin.keeps(line)).all(|line| thick.keeps(line)));
    }

    #[test]
    fn every_place_in_a_group_is_kept_equally_often_whatever_the_stride() {
        let rate = SampleRate::new(16).unwrap();
        for stride in [1, 2, 16, 64] {
            let kept = (0..64_000).filter(|step| rate.keeps(step * stride)).count() as f64;
            assert!((kept / 4000.0 - 1.0).abs() < 0.1, "stride {stride}: {kept}");
        }
    }

    #[test]
    fn only_powers_of_two_are_rates() {
        assert_eq!(SampleRate::new(0), Err(SampleRateError(0)));
        assert_eq!(SampleRate::new(3), Err(SampleRateError(3)));
        assert_eq!(SampleRate::new(1 << 17), Err(SampleRateError(1 << 17)));
        assert_eq!(SampleRate::new(SAMPLE_ONE_IN_MAX).unwrap().halved(), None);
    }
}
