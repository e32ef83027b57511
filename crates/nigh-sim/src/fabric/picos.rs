//! Simulated time: whole picoseconds. A byte on the fastest link takes tens of them, a workflow 10^13.

use std::fmt;
use std::iter::Sum;
use std::ops::{Add, AddAssign, Sub};

const PER_SECOND: u128 = 1_000_000_000_000;

/// A time since the start, or a length of time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Picos(u64);

impl Picos {
    /// The start.
    pub const ZERO: Self = Self(0);

    /// From a count.
    pub const fn new(picos: u64) -> Self {
        Self(picos)
    }

    /// From nanoseconds.
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos * 1000)
    }

    /// From microseconds, rounded; nothing for what is no positive number.
    pub fn from_micros(micros: f64) -> Self {
        Self((micros * 1e6).round() as u64)
    }

    /// What `bytes` take at `bytes_per_second`, rounded up.
    pub const fn of_bytes(bytes: u64, bytes_per_second: u64) -> Self {
        Self((bytes as u128 * PER_SECOND).div_ceil(bytes_per_second as u128) as u64)
    }

    /// The count.
    pub const fn get(self) -> u64 {
        self.0
    }

    /// In microseconds.
    pub fn micros(self) -> f64 {
        self.0 as f64 / 1e6
    }

    /// `factor` times as long, rounded; a factor below nothing counts as nothing.
    pub fn scaled(self, factor: f64) -> Self {
        Self((self.0 as f64 * factor).round() as u64)
    }
}

impl Add for Picos {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self(self.0 + other.0)
    }
}

impl AddAssign for Picos {
    fn add_assign(&mut self, other: Self) {
        self.0 += other.0;
    }
}

/// Zero when the other is longer.
impl Sub for Picos {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}

impl Sum for Picos {
    fn sum<I: Iterator<Item = Self>>(times: I) -> Self {
        times.fold(Self::ZERO, Add::add)
    }
}

impl fmt::Display for Picos {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.3} us", self.micros())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_byte_at_ten_gigabytes_a_second_takes_a_hundred_picoseconds() {
        assert_eq!(Picos::of_bytes(1, 10_000_000_000), Picos::new(100));
        assert_eq!(Picos::of_bytes(1, 3), Picos::new(333_333_333_334));
        assert_eq!(Picos::from_nanos(3) - Picos::from_nanos(5), Picos::ZERO);
        assert_eq!(Picos::from_nanos(500).scaled(2.2).micros(), 1.1);
    }
}
