//! The last-level cache's units: ways, masks of ways, classes of service and cache domains.
//!
//! A mask is what the hardware takes (Intel SDM vol. 3, 19.19: capacity bit mask); bit 0 is way 0.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A number of cache ways.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct Ways(pub u8);

impl fmt::Display for Ways {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A set of cache ways, at most 32.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct WayMask(u32);

impl WayMask {
    /// No way; no class of service may have this mask.
    pub const EMPTY: Self = Self(0);

    /// The mask with these bits.
    pub const fn from_bits(bits: u32) -> Self {
        Self(bits)
    }

    /// `count` neighbouring ways from way `first` on, without those beyond way 31.
    pub const fn contiguous(first: u8, count: Ways) -> Self {
        if first >= 32 {
            return Self(0);
        }
        let run = if count.0 >= 32 { u32::MAX } else { (1 << count.0) - 1 };
        Self(run << first)
    }

    /// The bits, as the kernel's masks have them.
    pub const fn bits(self) -> u32 {
        self.0
    }

    /// How many ways it holds.
    pub const fn count(self) -> Ways {
        Ways(self.0.count_ones() as u8)
    }

    /// Whether it holds no way.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Whether way `way` is in it.
    pub const fn holds(self, way: u8) -> bool {
        way < 32 && self.0 & (1 << way) != 0
    }

    /// Whether the two share a way.
    pub const fn overlaps(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    /// Whether every way of `other` is in it.
    pub const fn covers(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// The ways of either.
    pub const fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// The ways of both.
    pub const fn intersection(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// Its ways without those of `other`.
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// Whether its ways are neighbours (the empty mask is not).
    pub const fn is_contiguous(self) -> bool {
        self.0 != 0 && (self.0 >> self.0.trailing_zeros()).trailing_ones() == self.0.count_ones()
    }

    /// Its ways, lowest first.
    pub fn ways(self) -> impl Iterator<Item = u8> {
        (0..32).filter(move |&way| self.holds(way))
    }
}

impl fmt::LowerHex for WayMask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::LowerHex::fmt(&self.0, f)
    }
}

impl fmt::Display for WayMask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:x}", self.0)
    }
}

impl fmt::Debug for WayMask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "WayMask({:x})", self.0)
    }
}

/// A class of service of one layout: an index, 0 is the default class (resctrl's root group).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct ClosId(pub u8);

impl ClosId {
    /// The default class: every task and CPU that was not moved.
    pub const DEFAULT: Self = Self(0);
}

impl fmt::Display for ClosId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// One last-level cache of the machine, by the kernel's id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct CacheDomain(pub u32);

impl fmt::Display for CacheDomain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_contiguous_mask_has_its_ways_and_no_other() {
        let mask = WayMask::contiguous(3, Ways(4));
        assert_eq!(mask.bits(), 0x78);
        assert_eq!(mask.count(), Ways(4));
        assert_eq!(mask.ways().collect::<Vec<_>>(), [3, 4, 5, 6]);
        assert_eq!(WayMask::contiguous(0, Ways(32)).bits(), u32::MAX);
        assert_eq!(WayMask::contiguous(30, Ways(8)).bits(), 0xc000_0000);
    }

    #[test]
    fn only_a_single_run_of_ways_is_contiguous() {
        assert!(WayMask::from_bits(0x1).is_contiguous());
        assert!(WayMask::from_bits(0x600).is_contiguous());
        assert!(WayMask::from_bits(u32::MAX).is_contiguous());
        assert!(WayMask::from_bits(0x8000_0000).is_contiguous());
        assert!(!WayMask::from_bits(0x5).is_contiguous());
        assert!(!WayMask::EMPTY.is_contiguous());
    }
}
