//! Ways for each of several programs, none shared: the least total cost (bound B1), and UCP's greedy division.
//!
//! Strict partitioning is solved by dynamic programming in O(n W^2); a way's place in the cache does not matter, since
//! disjoint runs of any sizes can be laid side by side. UCP's lookahead (MICRO 2006) gives away the block of ways that
//! saves most per way; it is near the optimum and stands here as the known heuristic to compare with.

use nigh_terms::Ways;
use serde::Serialize;

use crate::miss_curve::MissCurve;

/// Ways for each program and what that costs in total.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct WayPartition {
    /// By program.
    pub ways: Vec<Ways>,
    /// The sum of the costs.
    pub cost: f64,
}

/// The division of at most `ways` ways with the least total cost, each program at least `least` ways.
///
/// `costs[i][w - 1]` is what program `i` costs with `w` ways; infinite where it must not be. `None` where there are too
/// few ways, or no division is allowed.
#[must_use]
pub fn strict_partition(costs: &[Vec<f64>], ways: Ways, least: Ways) -> Option<WayPartition> {
    let (all, least) = (usize::from(ways.0), usize::from(least.0.max(1)));
    // best[w]: the first programs' least cost with at most w ways; given[i][w]: what program i has in it.
    let mut best = vec![0.0_f64; all + 1];
    let mut given: Vec<Vec<usize>> = Vec::with_capacity(costs.len());
    for cost in costs {
        let mut next = vec![f64::INFINITY; all + 1];
        let mut choice = vec![0; all + 1];
        for total in least..=all {
            for mine in least..=total.min(cost.len()) {
                let sum = best[total - mine] + cost[mine - 1];
                if sum < next[total] {
                    (next[total], choice[total]) = (sum, mine);
                }
            }
        }
        best = next;
        given.push(choice);
    }
    let cost = best[all];
    if !cost.is_finite() {
        return None;
    }
    let mut left = all;
    let mut found: Vec<Ways> = given
        .iter()
        .rev()
        .map(|choice| {
            let mine = choice[left];
            left -= mine;
            Ways(mine as u8)
        })
        .collect();
    found.reverse();
    Some(WayPartition { ways: found, cost })
}

/// B1: the fewest misses that any strict partition of the cache leaves.
#[must_use]
pub fn strict_misses(curves: &[MissCurve], ways: Ways, least: Ways) -> Option<WayPartition> {
    let costs: Vec<Vec<f64>> = curves.iter().map(|curve| costs_of(curve, ways)).collect();
    strict_partition(&costs, ways, least)
}

pub(crate) fn costs_of(curve: &MissCurve, ways: Ways) -> Vec<f64> {
    (1..=ways.0).map(|ways| curve.misses(Ways(ways))).collect()
}

/// UCP's lookahead: each program starts with `least` ways; the block with the most misses saved per way goes out, until
/// no way is left or nothing is saved; what is left then goes to the first. `None` where there are too few ways.
#[must_use]
pub fn lookahead(curves: &[MissCurve], ways: Ways, least: Ways) -> Option<WayPartition> {
    let least = least.0.max(1);
    let mut left = ways.0.checked_sub(u8::try_from(curves.len()).ok()?.checked_mul(least)?)?;
    let mut given = vec![least; curves.len()];
    while left > 0 {
        let block = |(at, curve): (usize, &MissCurve)| {
            let held = given[at];
            let now = curve.misses(Ways(held));
            let per_way = |more: u8| (now - curve.misses(Ways(held + more))) / f64::from(more);
            (1..=left)
                .map(|more| (per_way(more), more))
                .max_by(|a, b| a.0.total_cmp(&b.0).then(b.1.cmp(&a.1)))
                .map(|(saved, more)| (saved, more, at))
        };
        let best = curves.iter().enumerate().filter_map(block).max_by(|a, b| a.0.total_cmp(&b.0).then(b.2.cmp(&a.2)));
        match best {
            Some((saved, more, at)) if saved > 0.0 => {
                given[at] += more;
                left -= more;
            }
            _ => {
                if let Some(first) = given.first_mut() {
                    *first += left;
                }
                left = 0;
            }
        }
    }
    let cost = curves.iter().zip(&given).map(|(curve, &ways)| curve.misses(Ways(ways))).sum();
    Some(WayPartition { ways: given.into_iter().map(Ways).collect(), cost })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_optimum_of_two_small_curves() {
        // 4 ways. A: 100, 40, 10, 0; B: 50, 45, 5, 0. (1,3): 105; (2,2): 85; (3,1): 60.
        let costs = [vec![100.0, 40.0, 10.0, 0.0], vec![50.0, 45.0, 5.0, 0.0]];
        let found = strict_partition(&costs, Ways(4), Ways(1)).unwrap();
        assert_eq!((found.ways, found.cost), (vec![Ways(3), Ways(1)], 60.0));
        let pairs = strict_partition(&costs, Ways(4), Ways(2)).unwrap();
        assert_eq!((pairs.ways, pairs.cost), (vec![Ways(2), Ways(2)], 85.0));
    }

    #[test]
    fn too_many_programs_have_no_partition() {
        assert_eq!(strict_partition(&vec![vec![1.0]; 3], Ways(2), Ways(1)), None);
        assert_eq!(strict_partition(&[vec![f64::INFINITY; 4]], Ways(4), Ways(1)), None);
        let curve = MissCurve::new(1.0, vec![1.0, 0.0]).unwrap();
        assert_eq!(lookahead(&vec![curve; 3], Ways(2), Ways(1)), None);
    }

    #[test]
    fn lookahead_sees_over_a_plateau() {
        // The first gains nothing before its fourth way, then everything; one way at a time would never find it.
        let cliff = MissCurve::new(100.0, vec![100.0, 100.0, 100.0, 0.0, 0.0]).unwrap();
        let slope = MissCurve::new(100.0, vec![50.0, 40.0, 30.0, 20.0, 10.0]).unwrap();
        assert_eq!(lookahead(&[cliff, slope], Ways(5), Ways(1)).unwrap().ways, [Ways(4), Ways(1)]);
    }

    fn every_division(costs: &[Vec<f64>], ways: usize) -> f64 {
        let Some((first, rest)) = costs.split_first() else { return 0.0 };
        (1..=ways).map(|mine| first[mine - 1] + every_division(rest, ways - mine)).fold(f64::INFINITY, f64::min)
    }

    proptest! {
        #[test]
        fn the_bound_is_that_of_trying_all(parts in proptest::collection::vec(proptest::collection::vec(0.0..1.0_f64, 6), 1..4)) {
            let curves: Vec<_> = parts.into_iter().map(|misses| MissCurve::new(1.0, misses).unwrap().monotone()).collect();
            let costs: Vec<_> = curves.iter().map(|curve| costs_of(curve, Ways(6))).collect();
            let exact = strict_misses(&curves, Ways(6), Ways(1)).unwrap();
            prop_assert!((exact.cost - every_division(&costs, 6)).abs() < 1e-12);
            prop_assert!(exact.ways.iter().map(|ways| ways.0).sum::<u8>() <= 6);
            let greedy = lookahead(&curves, Ways(6), Ways(1)).unwrap();
            prop_assert!(greedy.cost >= exact.cost - 1e-12);
            prop_assert_eq!(greedy.ways.iter().map(|ways| ways.0).sum::<u8>(), 6);
        }
    }
}
