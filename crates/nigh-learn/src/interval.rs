//! Intervals of memory: the classes of a classifier, and the steps in which memory is granted.

use nigh_terms::ByteSize;
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// The width of an interval. Interval 0 holds the sizes up to one width, interval 1 those above it up to two, and so
/// on; the grant for an interval is its upper end (OFC section 5.1.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "u64", into = "u64")]
pub struct Interval(u64);

/// No width.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("an interval of memory is at least one byte wide")]
pub struct EmptyInterval;

impl Interval {
    /// 16 million bytes: 2,048 million in 128 intervals, as the scripts of OFC's study cut them.
    pub const OFC: Self = Self(16_000_000);

    /// Takes a width.
    pub const fn new(width: ByteSize) -> Result<Self, EmptyInterval> {
        if width.0 == 0 { Err(EmptyInterval) } else { Ok(Self(width.0)) }
    }

    /// Its width.
    #[must_use]
    pub const fn width(self) -> ByteSize {
        ByteSize(self.0)
    }

    /// The interval that holds `size`.
    #[must_use]
    pub const fn index(self, size: ByteSize) -> u64 {
        size.0.saturating_sub(1) / self.0
    }

    /// The upper end of interval `index`.
    #[must_use]
    pub const fn upper_end(self, index: u64) -> ByteSize {
        ByteSize(index.saturating_add(1).saturating_mul(self.0))
    }

    /// The grant for a need of `size`: the upper end of its interval.
    #[must_use]
    pub const fn grant(self, size: ByteSize) -> ByteSize {
        self.upper_end(self.index(size))
    }
}

impl TryFrom<u64> for Interval {
    type Error = EmptyInterval;

    fn try_from(width: u64) -> Result<Self, EmptyInterval> {
        Self::new(ByteSize(width))
    }
}

impl From<Interval> for u64 {
    fn from(interval: Interval) -> Self {
        interval.0
    }
}

/// The grant for a need: at least the runtime's own memory, at most the booking.
///
/// A floor above the booked size gives the booked size: the owner's word is the last.
#[must_use]
pub fn clamp_grant(needed: ByteSize, runtime_floor: ByteSize, booked: ByteSize) -> ByteSize {
    needed.max(runtime_floor).min(booked)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_holds_its_upper_end_and_not_its_lower() {
        let interval = Interval::new(ByteSize(16)).unwrap();
        for (size, index) in [(0, 0), (1, 0), (16, 0), (17, 1), (32, 1), (33, 2)] {
            assert_eq!(interval.index(ByteSize(size)), index, "{size}");
            assert!(interval.grant(ByteSize(size)) >= ByteSize(size));
        }
        assert_eq!(interval.upper_end(u64::MAX), ByteSize(u64::MAX));
        assert_eq!(Interval::new(ByteSize::ZERO), Err(EmptyInterval));
        assert!(serde_json::from_str::<Interval>("0").is_err());
    }

    #[test]
    fn a_grant_lies_between_the_runtimes_floor_and_the_booked_size() {
        let [floor, booked] = [ByteSize::mib(32), ByteSize::mib(256)];
        for (needed, granted) in [(1, 32), (100, 100), (1000, 256)] {
            assert_eq!(clamp_grant(ByteSize::mib(needed), floor, booked), ByteSize::mib(granted));
        }
        assert_eq!(clamp_grant(ByteSize::mib(1), booked, floor), floor);
    }
}
