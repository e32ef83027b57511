//! The need of an input by its nearest profiled neighbours: CASY's model (V-A), along one quantity.
//!
//! k is 1 until there are enough rows for a vote (with scikit-learn's 5, the paper's four training files would all
//! vote). A tie goes to more ways. One vote decides need and class, so that they agree, and one way means insensitive.
//! A sorted list serves one dimension; a library of k-d trees would bring 20 to 40 packages.

use std::cmp::Reverse;

use nigh_terms::Ways;

use crate::time_curve::CacheClass;
use crate::training_rows::{Axis, TrainingRow};

/// The rows along one quantity.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct NearestRows {
    /// By the quantity's logarithm, ascending.
    sorted: Vec<(f64, Ways, CacheClass)>,
}

/// The number of neighbours that vote.
const fn voters(rows: usize) -> usize {
    match rows {
        0..12 => 1,
        12..40 => 3,
        _ => 5,
    }
}

impl NearestRows {
    pub(crate) fn fit<'a>(rows: impl Iterator<Item = &'a TrainingRow>, axis: Axis) -> Option<Self> {
        let place = |row: &TrainingRow| Some((row.input.along(axis)?, row.ways, row.class));
        let mut sorted = rows.map(place).collect::<Option<Vec<_>>>()?;
        sorted.sort_by(|left, right| left.0.total_cmp(&right.0));
        (!sorted.is_empty()).then_some(Self { sorted })
    }

    /// The voted need and class at a logarithm of the quantity.
    pub(crate) fn predict(&self, at: f64) -> (Ways, CacheClass) {
        let near = self.nearest(at);
        let votes = |ways: Ways| near.iter().filter(|row| row.1 == ways).count();
        let ways = near.iter().map(|row| row.1).max_by_key(|&ways| (votes(ways), ways)).unwrap_or(Ways(1));
        let of_class = |class| near.iter().filter(|row| row.1 == ways && row.2 == class).count();
        let class = near
            .iter()
            .filter(|row| row.1 == ways)
            .map(|row| row.2)
            .max_by_key(|&class| (of_class(class), Reverse(class)));
        (ways, agreed(ways, class.unwrap_or(CacheClass::Insensitive)))
    }

    /// The class that the nearest rows vote for by themselves; a tie is sensitive.
    pub(crate) fn class(&self, at: f64) -> CacheClass {
        let near = self.nearest(at);
        let votes = |class| near.iter().filter(|row| row.2 == class).count();
        if 2 * votes(CacheClass::Sensitive) >= near.len() {
            return CacheClass::Sensitive;
        }
        let insensitive = near.iter().map(|row| row.2).filter(|class| class.is_insensitive());
        insensitive.max_by_key(|&class| (votes(class), Reverse(class))).unwrap_or(CacheClass::Insensitive)
    }

    /// The least and the greatest place.
    pub(crate) fn range(&self) -> (f64, f64) {
        (self.sorted[0].0, self.sorted[self.sorted.len() - 1].0)
    }

    /// The voters, the nearest first; at equal distance, more ways first.
    fn nearest(&self, at: f64) -> Vec<(f64, Ways, CacheClass)> {
        let voters = voters(self.sorted.len()).min(self.sorted.len());
        // The nearest rows are adjacent. Rows as far as the last one compete for its place.
        let mut near = self.around(at, voters);
        near.sort_by(|left, right| (left.0 - at).abs().total_cmp(&(right.0 - at).abs()).then(right.1.cmp(&left.1)));
        near.truncate(voters);
        near
    }

    /// `count` rows on either side, and those at the distance of the farthest of them.
    fn around(&self, at: f64, count: usize) -> Vec<(f64, Ways, CacheClass)> {
        let middle = self.sorted.partition_point(|row| row.0 < at);
        let (mut from, mut to) = (middle.saturating_sub(count), (middle + count).min(self.sorted.len()));
        while from > 0 && self.sorted[from - 1].0 == self.sorted[from].0 {
            from -= 1;
        }
        while to < self.sorted.len() && self.sorted[to].0 == self.sorted[to - 1].0 {
            to += 1;
        }
        self.sorted[from..to].to_vec()
    }
}

/// One way always means insensitive.
pub(crate) fn agreed(ways: Ways, class: CacheClass) -> CacheClass {
    match class {
        CacheClass::Sensitive if ways.0 <= 1 => CacheClass::Insensitive,
        class => class,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::training_rows::tests::rows;

    fn predict(given: &[(u64, u8)], kib: u64) -> (u8, CacheClass) {
        let (ways, class) =
            NearestRows::fit(rows(given).iter(), Axis::Size).unwrap().predict(((kib * 1024) as f64).log2());
        (ways.0, class)
    }

    const BLUR: [(u64, u8); 4] = [(124, 1), (361, 1), (699, 4), (1434, 7)];

    #[test]
    fn four_rows_answer_with_the_nearest() {
        assert_eq!(predict(&BLUR, 150), (1, CacheClass::Light));
        assert_eq!(predict(&BLUR, 700), (4, CacheClass::Sensitive));
        assert_eq!(predict(&BLUR, 9000), (7, CacheClass::Sensitive));
        // Nearest by ratio, not by difference: 1001 KiB is 1.43 times 699 and 1/1.43 of 1434.
        assert_eq!(predict(&BLUR, 990).0, 4);
        assert_eq!(predict(&BLUR, 1010).0, 7);
    }

    #[test]
    fn a_tie_goes_to_more_ways() {
        assert_eq!(predict(&[(100, 2), (100, 5)], 100).0, 5);
        assert_eq!(predict(&[(64, 2), (256, 5)], 128).0, 5);
    }

    #[test]
    fn with_rows_enough_one_odd_row_is_outvoted() {
        let mut given: Vec<_> = (0..12).map(|at| (100 + at, 3)).collect();
        given.push((106, 9));
        assert_eq!(predict(&given, 106).0, 3);
        assert_eq!(predict(&[(100, 3), (106, 9)], 106).0, 9);
    }

    #[test]
    fn one_way_means_insensitive() {
        assert_eq!(agreed(Ways(1), CacheClass::Sensitive), CacheClass::Insensitive);
        assert_eq!(agreed(Ways(1), CacheClass::Thrashing), CacheClass::Thrashing);
        assert_eq!(agreed(Ways(4), CacheClass::Sensitive), CacheClass::Sensitive);
    }
}
