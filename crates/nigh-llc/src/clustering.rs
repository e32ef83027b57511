//! Puts programs into at most C groups, each with its own ways, with the least total cost.
//!
//! There are fewer classes of service than programs, so some programs share. Up to [`EXACT_MAX`] programs all groupings
//! are compared (dynamic programming over subsets). Of more programs, groups are merged pair by pair as in KPart (HPCA
//! 2018): first the pair that loses least against a strict division of the same ways.

use nigh_terms::Ways;
use serde::Serialize;

use crate::way_partition::strict_partition;

/// The most programs for which the grouping is the optimum.
pub const EXACT_MAX: usize = 10;

/// Programs that share ways.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Group {
    /// Their indices, ascending.
    pub members: Vec<usize>,
    /// Their ways.
    pub ways: Ways,
}

/// Groups and their total cost.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Clustering {
    /// Each program is in one group.
    pub groups: Vec<Group>,
    /// The sum of the groups' costs.
    pub cost: f64,
    /// Whether all groupings were compared.
    pub exact: bool,
}

/// The cache to divide.
#[derive(Debug, Clone, Copy)]
struct Cache {
    ways: Ways,
    least: Ways,
    groups_max: usize,
}

/// Groups `programs` programs into at most `groups_max` groups that have at least `least` of `ways` ways each.
///
/// `costs(members)[w - 1]` is the cost of these programs together in `w` ways; infinite if that is not allowed. `None`
/// if there is no program or no grouping is allowed.
#[must_use]
pub fn cluster(
    programs: usize,
    ways: Ways,
    least: Ways,
    groups_max: usize,
    costs: impl Fn(&[usize]) -> Vec<f64>,
) -> Option<Clustering> {
    let groups_max = groups_max.min(programs).min(usize::from(ways.0 / least.0.max(1)));
    if groups_max == 0 {
        return None;
    }
    let cache = Cache { ways, least, groups_max };
    if programs <= EXACT_MAX { exact(programs, cache, &costs) } else { merged(programs, cache, &costs) }
}

fn members_of(set: usize) -> Vec<usize> {
    (0..usize::BITS as usize).filter(|at| set & (1 << at) != 0).collect()
}

/// The optimum: `best[k][set][w]` is the least cost of the programs in `set` in at most `k` groups and `w` ways.
fn exact(programs: usize, cache: Cache, costs: &impl Fn(&[usize]) -> Vec<f64>) -> Option<Clustering> {
    let (all, least) = (usize::from(cache.ways.0), usize::from(cache.least.0.max(1)));
    let sets = 1_usize << programs;
    let cost: Vec<Vec<f64>> =
        (0..sets).map(|set| if set == 0 { Vec::new() } else { costs(&members_of(set)) }).collect();
    let empty: Vec<Vec<(f64, usize, usize)>> =
        (0..sets).map(|set| vec![(if set == 0 { 0.0 } else { f64::INFINITY }, 0, 0); all + 1]).collect();
    let mut layers = vec![empty];
    for layer in 1..=cache.groups_max {
        let before = &layers[layer - 1];
        let mut now = before.clone();
        for (set, cells) in now.iter_mut().enumerate().skip(1) {
            let lowest = set & set.wrapping_neg();
            let others = set ^ lowest;
            // Every subset that has the lowest program: the group it is in.
            let mut rest = others;
            loop {
                let group = set ^ rest;
                for mine in least..=all.min(cost[group].len()) {
                    let own = cost[group][mine - 1];
                    for total in mine..=all {
                        let sum = own + before[rest][total - mine].0;
                        if sum < cells[total].0 {
                            cells[total] = (sum, group, mine);
                        }
                    }
                }
                if rest == 0 {
                    break;
                }
                rest = (rest - 1) & others;
            }
        }
        layers.push(now);
    }
    let (mut set, mut total, mut layer) = (sets - 1, all, cache.groups_max);
    let cost = layers[layer][set][total].0;
    if !cost.is_finite() {
        return None;
    }
    let mut groups = Vec::new();
    while set != 0 {
        // An unchanged cell was found in the layer below.
        while layers[layer - 1][set][total] == layers[layer][set][total] {
            layer -= 1;
        }
        let (_, group, mine) = layers[layer][set][total];
        groups.push(Group { members: members_of(group), ways: Ways(mine as u8) });
        set ^= group;
        total -= mine;
        layer -= 1;
    }
    Some(Clustering { groups, cost, exact: true })
}

/// Merges groups pair by pair. Returns the best stage with few enough groups.
fn merged(programs: usize, cache: Cache, costs: &impl Fn(&[usize]) -> Vec<f64>) -> Option<Clustering> {
    let mut groups: Vec<(Vec<usize>, Vec<f64>)> = (0..programs).map(|at| (vec![at], costs(&[at]))).collect();
    let mut pairs: Vec<Pair> = Vec::new();
    for right in 1..groups.len() {
        pairs.extend((0..right).map(|left| Pair::new(&groups[left], &groups[right], cache, costs)));
    }
    let mut best: Option<Clustering> = None;
    loop {
        if groups.len() <= cache.groups_max {
            let group_costs: Vec<_> = groups.iter().map(|(_, costs)| costs.clone()).collect();
            let divided = strict_partition(&group_costs, cache.ways, cache.least);
            if let Some(found) = divided.filter(|found| best.as_ref().is_none_or(|best| found.cost < best.cost)) {
                let with_ways = groups.iter().zip(found.ways);
                let groups = with_ways.map(|((members, _), ways)| Group { members: members.clone(), ways }).collect();
                best = Some(Clustering { groups, cost: found.cost, exact: false });
            }
        }
        let nearest = pairs.iter().enumerate().min_by(|a, b| a.1.loss.total_cmp(&b.1.loss)).map(|(at, _)| at);
        let Some(pair) = nearest.map(|at| pairs.swap_remove(at)) else { return best };
        let gone = |members: &Vec<usize>| members.iter().all(|at| pair.together.contains(at));
        groups.retain(|(members, _)| !gone(members));
        pairs.retain(|other| !other.together.iter().any(|at| pair.together.contains(at)));
        let joined = (pair.together, pair.costs);
        pairs.extend(groups.iter().map(|group| Pair::new(group, &joined, cache, costs)));
        groups.push(joined);
    }
}

/// Two groups that may be merged.
struct Pair {
    together: Vec<usize>,
    costs: Vec<f64>,
    /// The extra cost of sharing over dividing, summed over the sizes that allow both.
    loss: f64,
}

impl Pair {
    fn new(
        left: &(Vec<usize>, Vec<f64>),
        right: &(Vec<usize>, Vec<f64>),
        cache: Cache,
        costs: &impl Fn(&[usize]) -> Vec<f64>,
    ) -> Self {
        let mut together = [left.0.as_slice(), &right.0].concat();
        together.sort_unstable();
        let shared = costs(&together);
        let divided = [left.1.clone(), right.1.clone()];
        let losses = (2 * cache.least.0.max(1)..=cache.ways.0).filter_map(|ways| {
            let apart = strict_partition(&divided, Ways(ways), cache.least)?;
            Some(shared.get(usize::from(ways) - 1)? - apart.cost)
        });
        Self { loss: losses.sum(), together, costs: shared }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::miss_curve::MissCurve;
    use crate::miss_curve::tests::compose;

    fn costs_of(curve: &MissCurve, ways: Ways) -> Vec<f64> {
        (1..=ways.0).map(|ways| curve.misses(Ways(ways))).collect()
    }

    /// The costs of programs with these curves, in misses.
    fn misses_of(curves: &[MissCurve], ways: Ways) -> impl Fn(&[usize]) -> Vec<f64> {
        move |members| {
            let group: Vec<_> = members.iter().map(|&at| curves[at].clone()).collect();
            costs_of(&compose(&group), ways)
        }
    }

    fn cluster_misses(curves: &[MissCurve], ways: Ways, groups_max: usize) -> Clustering {
        cluster(curves.len(), ways, Ways(1), groups_max, misses_of(curves, ways)).unwrap()
    }

    fn curve(misses: [f64; 4]) -> MissCurve {
        MissCurve::new(1000.0, misses.to_vec()).unwrap()
    }

    #[test]
    fn two_streams_share_and_the_sensitive_is_left_alone() {
        let stream = curve([990.0; 4]);
        let sensitive = curve([900.0, 500.0, 0.0, 0.0]);
        let found = cluster_misses(&[stream.clone(), sensitive, stream], Ways(4), 2);
        assert!(found.exact);
        let mut groups = found.groups;
        groups.sort_by_key(|group| group.members.len());
        assert_eq!(groups[0], Group { members: vec![1], ways: Ways(3) });
        assert_eq!(groups[1], Group { members: vec![0, 2], ways: Ways(1) });
    }

    #[test]
    fn what_must_not_be_is_not_chosen() {
        // Together is forbidden, and there is one group.
        let apart_only = |members: &[usize]| vec![if members.len() > 1 { f64::INFINITY } else { 1.0 }; 4];
        assert_eq!(cluster(2, Ways(4), Ways(1), 1, apart_only), None);
        assert_eq!(cluster(2, Ways(4), Ways(1), 2, apart_only).unwrap().groups.len(), 2);
        assert_eq!(cluster(0, Ways(4), Ways(1), 2, apart_only), None);
        assert_eq!(cluster(2, Ways(4), Ways(5), 2, apart_only), None);
    }

    #[test]
    fn beyond_ten_the_streams_still_end_up_together() {
        let mut curves = vec![curve([990.0; 4]); 11];
        curves.push(curve([900.0, 500.0, 0.0, 0.0]));
        let found = cluster_misses(&curves, Ways(4), 3);
        assert!(!found.exact);
        let alone = found.groups.iter().find(|group| group.members == [11]).unwrap();
        assert!(alone.ways >= Ways(2), "{found:?}");
    }

    fn curves() -> impl Strategy<Value = Vec<MissCurve>> {
        let one = proptest::collection::vec(0.0..1.0_f64, 5);
        proptest::collection::vec(one.prop_map(|misses| MissCurve::new(1.0, misses).unwrap().monotone()), 1..5)
    }

    proptest! {
        #[test]
        fn every_program_is_in_one_group_and_more_groups_never_cost_more(curves in curves()) {
            let mut before = f64::INFINITY;
            for groups_max in 1..=4 {
                let found = cluster_misses(&curves, Ways(5), groups_max);
                let mut members: Vec<_> = found.groups.iter().flat_map(|group| group.members.clone()).collect();
                members.sort_unstable();
                prop_assert_eq!(members, (0..curves.len()).collect::<Vec<_>>());
                prop_assert!(found.groups.len() <= groups_max);
                prop_assert!(found.groups.iter().map(|group| group.ways.0).sum::<u8>() <= 5);
                prop_assert!(found.cost <= before + 1e-12);
                before = found.cost;
            }
            let costs: Vec<_> = curves.iter().map(|curve| costs_of(curve, Ways(5))).collect();
            let strict = strict_partition(&costs, Ways(5), Ways(1)).unwrap();
            prop_assert!(before <= strict.cost + 1e-12, "groups may be single programs");
        }

        #[test]
        fn merging_never_beats_the_optimum(curves in curves()) {
            let costs = misses_of(&curves, Ways(5));
            let cache = Cache { ways: Ways(5), least: Ways(1), groups_max: 3.min(curves.len()) };
            let greedy = merged(curves.len(), cache, &costs).unwrap();
            let best = exact(curves.len(), cache, &costs).unwrap();
            prop_assert!(greedy.cost >= best.cost - 1e-12);
        }
    }
}
