//! Simulated time: thousandths of a core cycle since the start of the simulation, in whole numbers, so that equal runs
//! are equal to the last digit.

use std::fmt;

/// Thousandths of a cycle.
pub(super) const MILLI: u64 = 1000;

/// A time, or a length of time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct SimTime(u64);

impl SimTime {
    /// The start.
    pub const ZERO: Self = Self(0);

    /// Whole cycles.
    pub const fn from_cycles(cycles: u64) -> Self {
        Self(cycles.saturating_mul(MILLI))
    }

    /// Thousandths of a cycle.
    pub const fn from_millicycles(millicycles: u64) -> Self {
        Self(millicycles)
    }

    /// Thousandths of a cycle.
    pub const fn millicycles(self) -> u64 {
        self.0
    }

    /// Cycles, with their fraction.
    pub fn cycles(self) -> f64 {
        self.0 as f64 / MILLI as f64
    }

    /// Seconds on a core of `hertz`.
    pub fn seconds(self, hertz: f64) -> f64 {
        self.cycles() / hertz
    }

    /// From `earlier` until this; zero when that is later.
    pub const fn since(self, earlier: Self) -> Self {
        Self(self.0.saturating_sub(earlier.0))
    }
}

impl fmt::Display for SimTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.0} cycles", self.cycles())
    }
}
