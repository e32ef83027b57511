//! Chooses the kept lines of a trace: whole sets of the cache, by a line's place in its page.
//!
//! A page of 4 KiB has 64 lines. A line's place in its page is the same in virtual and physical memory and gives the
//! low six bits of its set, in whatever frame the page is. Keeping some places keeps all lines of some sets and none of
//! the others: in those sets a full-size cache behaves exactly as with all lines. Each kept access then stands for
//! several, in misses and in their time. Instructions are complete and must not be scaled. (Set sampling: Kessler, Hill
//! and Wood, IEEE Transactions on Computers 43(6), 1994.)

use std::fmt;

/// Lines of a page of 4 KiB.
const PLACES: u32 = 64;
/// An odd number and a shift: they put the 64 places in an order in which those of one sampling stand apart, and the
/// first of a page, which many structures begin with, is in neither of the two sparsest.
const STEP: u64 = 29;
const FIRST: u64 = 2;

/// One line in so many is kept: 1, 2, 4, ... 64. A coarser sampling keeps a part of what a finer one keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Sampling(u32);

impl Sampling {
    /// Every line.
    pub const ALL: Self = Self(1);

    /// One line in `number`; `None` unless that is a power of two up to 64.
    #[must_use]
    pub const fn one_in(number: u32) -> Option<Self> {
        if number.is_power_of_two() && number <= PLACES { Some(Self(number)) } else { None }
    }

    /// The number of lines of which one is kept.
    #[must_use]
    pub const fn number(self) -> u32 {
        self.0
    }

    /// Whether this line (address / 64) is kept.
    #[must_use]
    pub const fn keeps(self, line: u64) -> bool {
        let places = PLACES as u64;
        (line % places * STEP + FIRST) % places < places / self.0 as u64
    }

    /// Whether this keeps every line that `other` keeps.
    #[must_use]
    pub const fn contains(self, other: Self) -> bool {
        self.0 <= other.0
    }
}

impl fmt::Display for Sampling {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "1/{}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_sampling_keeps_its_share_of_a_page_and_all_that_a_coarser_one_keeps() {
        let samplings: Vec<_> = (0..7).map(|bits| Sampling::one_in(1 << bits).unwrap()).collect();
        for (index, &fine) in samplings.iter().enumerate() {
            let kept = (640..704).filter(|&line| fine.keeps(line)).count();
            assert_eq!(kept as u32 * fine.number(), PLACES);
            for &coarse in &samplings[index..] {
                assert!(fine.contains(coarse));
                assert!((0..64).all(|line| fine.keeps(line) || !coarse.keeps(line)));
            }
        }
    }

    #[test]
    fn the_first_line_of_a_page_is_kept_by_no_sparse_sampling() {
        assert!(!Sampling::one_in(32).unwrap().keeps(0) && !Sampling::one_in(64).unwrap().keeps(64));
    }

    #[test]
    fn a_number_that_is_no_power_of_two_up_to_64_is_refused() {
        assert_eq!([0, 3, 128].map(Sampling::one_in), [None; 3]);
    }
}
