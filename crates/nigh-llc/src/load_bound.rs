//! How low the highest way load can be kept, whatever the placement (bound B4).
//!
//! A placement of K invocations is a packing: each brings P ways of weight. No policy can bring the fullest way below the
//! mean (area), nor below one where a function's own need passes the cache. The other side is what packing them into
//! disjoint runs, largest first, reaches; between the two lies what a cleverer placement could still gain.

use nigh_terms::Ways;
use serde::Serialize;

/// The bound and a packing that shows how near one can get.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct LoadBound {
    /// All needs over all ways: no placement has a lower highest load.
    pub area: f64,
    /// The largest need over the cache: what that function puts on every way even with all of them.
    pub largest: f64,
    /// The greater of the two.
    pub bound: f64,
    /// Caches that first-fit-decreasing fills with these needs, each way used by one: an upper bound on the load reached
    /// by giving each its own ways in turn.
    pub packed: u32,
}

/// The bound for these needs on a cache of `ways`; `None` for a cache of no way.
#[must_use]
pub fn load_bound(needs: &[Ways], ways: Ways) -> Option<LoadBound> {
    if ways.0 == 0 {
        return None;
    }
    let cache = f64::from(ways.0);
    let area = needs.iter().map(|need| f64::from(need.0)).sum::<f64>() / cache;
    let largest = needs.iter().map(|need| f64::from(need.0)).fold(0.0, f64::max) / cache;
    let mut sorted: Vec<u8> = needs.iter().map(|need| need.0.min(ways.0)).collect();
    sorted.sort_unstable_by(|left, right| right.cmp(left));
    let mut bins: Vec<u8> = Vec::new();
    for need in sorted {
        match bins.iter_mut().find(|left| **left >= need) {
            Some(left) => *left -= need,
            None => bins.push(ways.0 - need),
        }
    }
    Some(LoadBound { area, largest, bound: area.max(largest), packed: bins.len() as u32 })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::placement::{Casy, Placement};
    use crate::way_loads::UnknownNeed;
    use crate::way_loads::tests::{figure_4, need};

    #[test]
    fn four_functions_of_the_paper() {
        // Effect 1, resize 1, blur 7, recognition 11 ways of 11: 20/11, and two caches hold them apart.
        let bound = load_bound(&[Ways(1), Ways(1), Ways(7), Ways(11)], Ways(11)).unwrap();
        assert!((bound.area - 20.0 / 11.0).abs() < 1e-12);
        assert_eq!((bound.largest, bound.packed), (1.0, 2));
        assert_eq!(load_bound(&[], Ways(0)), None);
    }

    proptest! {
        #[test]
        fn no_placement_goes_below_the_bound(needs in proptest::collection::vec(1_u8..=11, 1..20)) {
            let mut loads = figure_4(UnknownNeed::LITERAL);
            for &ways in &needs {
                let placed = Casy.place(&loads, &need(ways));
                loads.commit(placed.clos, need(ways)).unwrap();
            }
            let highest = (0..11).map(|way| loads.way_load(way).value()).fold(0.0, f64::max);
            let all: Vec<_> = needs.iter().map(|&ways| Ways(ways)).collect();
            let bound = load_bound(&all, Ways(11)).unwrap();
            prop_assert!(highest >= bound.bound - 1e-9);
            prop_assert!(f64::from(bound.packed) >= bound.bound - 1e-9);
        }
    }
}
