//! Chooses the victim in a full set: LRU, tree-PLRU and SRRIP, each within the ways that the class of service may fill.
//!
//! A hit updates the state wherever the line is; a victim is looked for among the allowed ways only (Intel SDM vol. 3,
//! 19.19.2: a mask restricts allocation, not look-up). What a real processor does to the state of ways outside the mask
//! is not published: here they do not age by another class's misses (SRRIP) and steer no choice (tree-PLRU).

use super::geometry::WAYS_MAX;
use super::lanes::{self, LANES};

/// How a set chooses its victim.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum ReplacementPolicy {
    /// Evicts the line used longest ago, exactly.
    #[default]
    Lru,
    /// A binary tree of bits that point away from recent use; the tree is padded to a power of two.
    TreePlru,
    /// Two-bit re-reference prediction, hit priority (Jaleel et al., ISCA 2010: SRRIP-HP): resists scans.
    Srrip,
}

/// The state of one set and its transitions. Ways are bits of `allowed`, which is never empty.
pub(super) trait Replacement {
    /// The state of one set.
    type State: Copy;

    /// The state of an empty set.
    fn empty(&self) -> Self::State;

    /// Serves one access: `found` is the way that holds the line (or none), `vacant()` the ways that hold no line. Returns
    /// the way that holds the line now.
    fn serve(&self, state: &mut Self::State, found: u32, vacant: impl FnOnce() -> u32, allowed: u32) -> u32;
}

/// Exact LRU: for every way its age rank (0 for the newest) and, below it, its own number, as one sortable key.
///
/// Hits and misses run the same few vector instructions over a fixed number of lanes, without a branch: the branch
/// could not be predicted, and a wrong prediction costs more than the extra work.
pub(super) struct Lru<const ROWS: usize>;

/// One rank in a key: the rank is stored above the 5 bits of the way's number.
const RANK_UNIT: i16 = 32;

impl<const ROWS: usize> Replacement for Lru<ROWS> {
    type State = [[i16; LANES]; ROWS];

    fn empty(&self) -> Self::State {
        // The lowest way is the oldest, so that vacant ways are taken in order and before any that was used.
        let key = |way: usize| (ROWS * LANES - 1 - way) as i16 * RANK_UNIT + way as i16;
        std::array::from_fn(|row| std::array::from_fn(|lane| key(row * LANES + lane)))
    }

    #[inline]
    fn serve(&self, keys: &mut Self::State, found: u32, _: impl FnOnce() -> u32, allowed: u32) -> u32 {
        // A hit is a choice among one way. Vacant ways need no check: they were never used, so they are the oldest.
        let choice = if found != 0 { found } else { allowed };
        let mut oldest = 0;
        for (row, keys) in keys.iter().enumerate() {
            oldest = oldest.max(lanes::oldest(keys, (choice >> (row * LANES)) as u16));
        }
        let way = oldest % RANK_UNIT;
        for keys in keys {
            lanes::age(keys, oldest, RANK_UNIT, way);
        }
        way as u32
    }
}

/// The way in `found` if there is one, else a vacant way or the victim among `allowed`; `true` for a hit.
#[inline]
fn choose(found: u32, vacant: impl FnOnce() -> u32, allowed: u32, victim: impl FnOnce() -> u32) -> (u32, bool) {
    if found != 0 {
        return (found.trailing_zeros(), true);
    }
    let vacant = vacant() & allowed;
    (if vacant != 0 { vacant.trailing_zeros() } else { victim() }, false)
}

/// One bit per node of a binary tree over the ways; node n has the children 2n and 2n+1, the root is 1. A set bit points
/// to the right half as the next victim.
pub(super) struct TreePlru {
    levels: u32,
}

impl TreePlru {
    /// For `ways` ways, from 1 to [`WAYS_MAX`].
    pub(super) const fn new(ways: u8) -> Self {
        assert!(ways >= 1 && ways <= WAYS_MAX);
        Self { levels: ways.next_power_of_two().trailing_zeros() }
    }
}

impl TreePlru {
    /// Turns every bit on the path to `way` away from it.
    #[inline]
    fn touch(&self, bits: &mut u32, way: u32) {
        let mut node = 1;
        for level in (0..self.levels).rev() {
            let right = (way >> level) & 1;
            *bits = (*bits & !(1 << node)) | ((right ^ 1) << node);
            node = node * 2 + right;
        }
    }

    /// The way that the bits point to; a half without an allowed way is skipped.
    #[inline]
    fn victim(&self, bits: u32, allowed: u32) -> u32 {
        let (mut node, mut first) = (1, 0);
        for level in (0..self.levels).rev() {
            let half = 1u32 << level;
            let half_ways = (1 << half) - 1;
            let left_allowed = (allowed >> first) & half_ways != 0;
            let right_allowed = (allowed >> (first + half)) & half_ways != 0;
            let right = if left_allowed && right_allowed { (bits >> node) & 1 } else { u32::from(right_allowed) };
            node = node * 2 + right;
            first += right * half;
        }
        first
    }
}

impl Replacement for TreePlru {
    type State = u32;

    fn empty(&self) -> u32 {
        0
    }

    #[inline]
    fn serve(&self, bits: &mut u32, found: u32, vacant: impl FnOnce() -> u32, allowed: u32) -> u32 {
        let (way, _) = choose(found, vacant, allowed, || self.victim(*bits, allowed));
        self.touch(bits, way);
        way
    }
}

/// Two bits per way, stored as two bit planes: 3 predicts reuse in the distant future (the victim), 0 in the near future.
pub(super) struct Srrip;

/// The re-reference prediction of every way, high and low bit.
#[derive(Clone, Copy)]
pub(super) struct Predictions {
    high: u32,
    low: u32,
}

impl Predictions {
    /// Ages the allowed ways until one of them is in the distant future. Returns the lowest such way.
    #[inline]
    fn victim(&mut self, allowed: u32) -> u32 {
        loop {
            let distant = self.high & self.low & allowed;
            if distant != 0 {
                return distant.trailing_zeros();
            }
            // Every allowed way is below 3 here, so adding 1 cannot overflow: at most three rounds.
            let carry = self.low & allowed;
            self.low ^= allowed;
            self.high ^= carry;
        }
    }
}

impl Replacement for Srrip {
    type State = Predictions;

    fn empty(&self) -> Predictions {
        Predictions { high: u32::MAX, low: u32::MAX }
    }

    #[inline]
    fn serve(&self, state: &mut Predictions, found: u32, vacant: impl FnOnce() -> u32, allowed: u32) -> u32 {
        let (way, hit) = choose(found, vacant, allowed, || state.victim(allowed));
        // A hit predicts the near future (0), a new line a long one (2).
        state.high = (state.high & !(1 << way)) | (u32::from(!hit) << way);
        state.low &= !(1 << way);
        way
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FULL: fn() -> u32 = || 0;

    fn hit<P: Replacement>(policy: &P, state: &mut P::State, way: u32) {
        assert_eq!(policy.serve(state, 1 << way, FULL, 1), way);
    }

    fn miss<P: Replacement>(policy: &P, state: &mut P::State, allowed: u32) -> u32 {
        policy.serve(state, 0, FULL, allowed)
    }

    #[test]
    fn lru_gives_up_the_oldest_of_the_allowed_ways() {
        let lru = Lru::<1>;
        let mut state = lru.empty();
        for way in [3, 1, 4, 0, 2, 1, 3] {
            hit(&lru, &mut state, way);
        }
        for (allowed, expected) in [(0b11111, 4), (0b01111, 0), (0b01010, 1), (0b11111, 2), (0b00001, 0)] {
            assert_eq!(miss(&lru, &mut state, allowed), expected);
        }
    }

    #[test]
    fn the_ranks_of_lru_stay_a_permutation() {
        let lru = Lru::<2>;
        let mut state = lru.empty();
        for step in 0..1000u32 {
            hit(&lru, &mut state, step * step * 7 % 32);
        }
        let keys = state.as_flattened();
        let mut ranks: Vec<i16> = keys.iter().map(|key| key / RANK_UNIT).collect();
        ranks.sort_unstable();
        assert_eq!(ranks, (0..32).collect::<Vec<i16>>());
        assert!((0..32).all(|way| keys[way] % RANK_UNIT == way as i16));
    }

    #[test]
    fn tree_plru_points_away_from_what_was_used() {
        let tree = TreePlru::new(4);
        let mut state = tree.empty();
        // After 0, 1, 2, 3 every bit points to the left; each access turns the bits on its own path only.
        for way in 0..4 {
            hit(&tree, &mut state, way);
        }
        assert_eq!([0, 2, 1, 3], [0; 4].map(|_| miss(&tree, &mut state, 0b1111)));
    }

    #[test]
    fn tree_plru_only_ever_names_an_allowed_way() {
        for ways in [1u8, 2, 11, 16, 20, 32] {
            let tree = TreePlru::new(ways);
            for step in 0..2000u64 {
                let all = ((1u64 << ways) - 1) as u32;
                let allowed = (step.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as u32 & all;
                let mut state = (step.wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 32) as u32;
                if allowed != 0 {
                    let victim = miss(&tree, &mut state, allowed);
                    assert!(allowed >> victim & 1 == 1, "{ways} ways, {allowed:b}: {victim}");
                }
            }
        }
    }

    #[test]
    fn srrip_lets_a_scan_pass_by_a_line_that_was_hit() {
        let srrip = Srrip;
        let mut state = srrip.empty();
        for way in 0..4 {
            assert_eq!(miss(&srrip, &mut state, 0b1111), way);
        }
        hit(&srrip, &mut state, 2);
        // The three lines that were never hit go first: 2 -> 3 in one round of ageing.
        assert_eq!([0, 1, 3], [0; 3].map(|_| miss(&srrip, &mut state, 0b1111)));
    }

    #[test]
    fn srrip_ages_only_the_ways_of_the_class_that_missed() {
        let srrip = Srrip;
        let mut state = srrip.empty();
        for way in 0..4 {
            hit(&srrip, &mut state, way);
        }
        assert_eq!(miss(&srrip, &mut state, 0b0011), 0);
        let of = |way: u32| (state.high >> way & 1) * 2 + (state.low >> way & 1);
        assert_eq!([0, 1, 2, 3].map(of), [2, 3, 0, 0]);
    }

    #[test]
    fn a_vacant_way_is_taken_before_any_line_is_given_up() {
        let srrip = Srrip;
        let mut state = srrip.empty();
        assert_eq!(srrip.serve(&mut state, 0, || 0b1000, 0b1100), 3);
        let tree = TreePlru::new(4);
        assert_eq!(tree.serve(&mut tree.empty(), 0, || 0b1001, 0b1100), 3);
    }
}
