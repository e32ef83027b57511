//! Divides the ways among several programs, none shared, with the least total cost.
//!
//! Dynamic programming in O(n W^2). The place of a way in the cache does not matter: disjoint runs of any sizes can be
//! laid side by side.

use nigh_terms::{Ways, invariant};
use serde::Serialize;

/// The ways of each program and the total cost.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct WayPartition {
    /// The ways of each program.
    pub ways: Vec<Ways>,
    /// The sum of the costs.
    pub cost: f64,
}

/// The division of at most `ways` ways with the least total cost, each program at least `least` ways.
///
/// `costs[i][w - 1]` is the cost of program `i` with `w` ways; infinite if that is not allowed. `None` if there are too
/// few ways or no division is allowed.
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
    let given: usize = found.iter().map(|ways| usize::from(ways.0)).sum();
    invariant!(given <= all && found.iter().all(|ways| usize::from(ways.0) >= least), "{found:?} of {all} ways");
    Some(WayPartition { ways: found, cost })
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
    }

    fn every_division(costs: &[Vec<f64>], ways: usize) -> f64 {
        let Some((first, rest)) = costs.split_first() else { return 0.0 };
        (1..=ways).map(|mine| first[mine - 1] + every_division(rest, ways - mine)).fold(f64::INFINITY, f64::min)
    }

    proptest! {
        #[test]
        fn the_cost_is_the_least_of_all_divisions(
            costs in proptest::collection::vec(proptest::collection::vec(0.0..1.0_f64, 6), 1..4)
        ) {
            let exact = strict_partition(&costs, Ways(6), Ways(1)).unwrap();
            prop_assert!((exact.cost - every_division(&costs, 6)).abs() < 1e-12);
            prop_assert!(exact.ways.iter().map(|ways| ways.0).sum::<u8>() <= 6);
        }
    }
}
