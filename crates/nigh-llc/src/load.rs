//! A load on ways, exact: a sum of weights over a number of ways.
//!
//! Weights are integers in a unit that every 1/N divides, so that additions can be undone exactly and a load of 1 is
//! exact.

use std::cmp::Ordering;
use std::fmt;

use serde::{Serialize, Serializer};

use crate::miss_curve::WAYS_MAX;

/// The least common multiple of 1 to 32: a load of 1.
pub(crate) const ONE: u128 = {
    let (mut product, mut number) = (1_u128, 2_u128);
    while number <= WAYS_MAX.0 as u128 {
        let (mut left, mut right) = (product, number);
        while right != 0 {
            (left, right) = (right, left % right);
        }
        product = product / left * number;
        number += 1;
    }
    product
};

/// A load: a sum of weights over a number of ways, compared exactly. A load of 1 is one way fully needed by one
/// function.
#[derive(Debug, Clone, Copy)]
pub struct Load {
    pub(crate) sum: u128,
    pub(crate) ways: u8,
}

impl Load {
    /// The load 1.
    pub const FULL: Self = Self { sum: ONE, ways: 1 };

    /// The load as a number, for reports.
    #[must_use]
    pub fn value(self) -> f64 {
        self.sum as f64 / ONE as f64 / f64::from(self.ways)
    }
}

impl Ord for Load {
    fn cmp(&self, other: &Self) -> Ordering {
        // At most 4096 x 32 x 2^47 x 32, far below 2^128.
        (self.sum * u128::from(other.ways)).cmp(&(other.sum * u128::from(self.ways)))
    }
}

impl PartialOrd for Load {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Load {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Load {}

impl fmt::Display for Load {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.3}", self.value())
    }
}

impl Serialize for Load {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_f64(self.value())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_unit_is_divided_by_every_way_count() {
        assert_eq!(ONE, 144_403_552_893_600);
        assert!((1..=32).all(|ways| ONE.is_multiple_of(ways)));
    }
}
