//! Chooses the class of service of an invocation: CASY's algorithm 2, corrected, and as printed.
//!
//! Corrected: the load of a class is the *mean* load of its ways with the new function in it, computed for each
//! candidate, since the weight P/N and the shared ways depend on the class. Among the classes with a load of at most 1,
//! the highest load wins (best fit: no more ways than necessary); if there is none, the lowest load. Ties: fewer ways
//! in a best fit, more ways among overloaded classes, then the lower number. This packs until the classes are full and
//! balances afterwards, as section IV-C of the paper says; its introduction promises balance.
//!
//! As printed, the load is the sum over the ways, which is at least P on every class. So "at most 1" never holds for P
//! > 1, and the first of the least loaded classes is taken.

use std::cmp::Reverse;
use std::fmt;

use nigh_terms::{ClosId, WayMask, Ways};
use serde::Serialize;

use crate::clos_layout::{Clos, ClosKind};
use crate::load::Load;
use crate::way_loads::{Need, PredictedNeed, WayLoads};

/// The class of an invocation, and the reason.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PlacementDecision {
    /// The class.
    pub clos: ClosId,
    /// Its ways.
    pub mask: WayMask,
    /// The reason.
    pub because: PlacedBecause,
}

/// The reason of a placement.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "snake_case", tag = "reason")]
pub enum PlacedBecause {
    /// The function has no model (or no curve, where the policy needs one): the default class.
    NoModel,
    /// The layout has no class of its kind: the default class.
    NoClassOfKind,
    /// The fullest class that stays at load 1 or below.
    BestFit {
        /// The load with it.
        load: Load,
    },
    /// All classes would be above 1: the least loaded one.
    LeastLoaded {
        /// The load with it.
        load: Load,
    },
    /// The least predicted loss of all running functions, with none slower than without partitioning by more than the
    /// guard.
    LeastLoss {
        /// Microseconds that all that run, this one included, are predicted to lose to each other from here on.
        loss_micros: f32,
    },
    /// No class keeps the guard: the one with the least greatest slowdown.
    LeastHarm {
        /// The time over the time without partitioning.
        worst: f32,
    },
}

impl fmt::Display for PlacedBecause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoModel => f.write_str("nothing is known of its need: the default class"),
            Self::NoClassOfKind => f.write_str("the layout has no class for its kind: the default class"),
            Self::BestFit { load } => write!(f, "the fullest class that stays within load 1: {load}"),
            Self::LeastLoaded { load } => write!(f, "every class would be above load 1, the least loaded: {load}"),
            Self::LeastLoss { loss_micros } => {
                write!(f, "the least predicted loss of all that run: {loss_micros:.0} us")
            }
            Self::LeastHarm { worst } => write!(f, "every class slows somebody, this one the least: {worst:.3} times"),
        }
    }
}

impl PlacementDecision {
    pub(crate) const fn new(class: &Clos, because: PlacedBecause) -> Self {
        Self { clos: class.id, mask: class.mask, because }
    }

    pub(crate) fn in_default(state: &WayLoads, because: PlacedBecause) -> Self {
        Self::new(state.layout().default_class(), because)
    }
}

/// A policy: looks at what runs, decides, changes nothing.
pub trait Placement: Send + Sync {
    /// Its name in reports and settings.
    fn name(&self) -> &'static str;
    /// The class for one more invocation.
    fn place(&self, state: &WayLoads, need: &Need) -> PlacementDecision;
}

/// All invocations in the default class, as on a machine without partitioning.
#[derive(Debug, Clone, Copy, Default)]
pub struct DefaultClassPlacement;

impl Placement for DefaultClassPlacement {
    fn name(&self) -> &'static str {
        "no_cat"
    }

    fn place(&self, state: &WayLoads, _need: &Need) -> PlacementDecision {
        PlacementDecision::in_default(state, PlacedBecause::NoModel)
    }
}

/// Algorithm 2, corrected.
#[derive(Debug, Clone, Copy, Default)]
pub struct Casy;

impl Placement for Casy {
    fn name(&self) -> &'static str {
        "casy"
    }

    fn place(&self, state: &WayLoads, need: &Need) -> PlacementDecision {
        let Some(predicted) = need.predicted else {
            return PlacementDecision::in_default(state, PlacedBecause::NoModel);
        };
        let candidates = candidates(state, predicted);
        let loaded = candidates.map(|class| (class, state.class_load_with(class, predicted.ways)));
        let (fitting, over): (Vec<_>, Vec<_>) = loaded.partition(|(_, load)| *load <= Load::FULL);
        let best = fitting.iter().max_by_key(|(class, load)| (*load, Reverse(ways(class)), Reverse(class.id)));
        let least = over.iter().min_by_key(|(class, load)| (*load, Reverse(ways(class)), class.id));
        match (best, least) {
            (Some((class, load)), _) => PlacementDecision::new(class, PlacedBecause::BestFit { load: *load }),
            (None, Some((class, load))) => PlacementDecision::new(class, PlacedBecause::LeastLoaded { load: *load }),
            (None, None) => PlacementDecision::in_default(state, PlacedBecause::NoClassOfKind),
        }
    }
}

/// Algorithm 2 as printed, for comparison. Use it with [`crate::UnknownNeed::LITERAL`]. The listing leaves open which
/// candidate's weight line 14 adds; here it is each candidate's own, the most favourable reading.
#[derive(Debug, Clone, Copy, Default)]
pub struct CasyLiteral;

impl Placement for CasyLiteral {
    fn name(&self) -> &'static str {
        "casy_literal"
    }

    fn place(&self, state: &WayLoads, need: &Need) -> PlacementDecision {
        let Some(predicted) = need.predicted else {
            return PlacementDecision::in_default(state, PlacedBecause::NoModel);
        };
        let kind = kind_of(predicted);
        let mut sorted: Vec<_> =
            state.layout().of_kind(kind).map(|class| (class, state.summed_load_with(class, predicted.ways))).collect();
        // Stable: equal loads stay in the order of their numbers.
        sorted.sort_by_key(|(_, load)| *load);
        let last_fitting = sorted.iter().rfind(|(_, load)| *load <= Load::FULL);
        match (last_fitting, sorted.first()) {
            (Some((class, load)), _) => PlacementDecision::new(class, PlacedBecause::BestFit { load: *load }),
            (None, Some((class, load))) => PlacementDecision::new(class, PlacedBecause::LeastLoaded { load: *load }),
            (None, None) => PlacementDecision::in_default(state, PlacedBecause::NoClassOfKind),
        }
    }
}

const fn kind_of(predicted: PredictedNeed) -> ClosKind {
    if predicted.class.is_insensitive() { ClosKind::Insensitive } else { ClosKind::Sensitive }
}

fn candidates(state: &WayLoads, predicted: PredictedNeed) -> Box<dyn Iterator<Item = &Clos> + '_> {
    match kind_of(predicted) {
        ClosKind::Sensitive => Box::new(state.layout().for_sensitive(predicted.ways)),
        kind => Box::new(state.layout().of_kind(kind)),
    }
}

fn ways(class: &Clos) -> Ways {
    class.mask.count()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use proptest::prelude::*;

    use super::*;
    use crate::clos_layout::ClosLayout;
    use crate::way_loads::UnknownNeed;
    use crate::way_loads::tests::{figure_4, need, unknown};

    fn place(policy: &dyn Placement, loads: &mut WayLoads, ways: u8) -> (u8, f64) {
        let placed = policy.place(loads, &need(ways));
        loads.commit(placed.clos, need(ways)).unwrap();
        let load = match placed.because {
            PlacedBecause::BestFit { load } | PlacedBecause::LeastLoaded { load } => load.value(),
            other => panic!("{other:?}"),
        };
        (placed.clos.0, load)
    }

    fn close(found: (u8, f64), clos: u8, load: f64) {
        assert_eq!(found.0, clos, "{found:?}");
        assert!((found.1 - load).abs() < 1e-12, "{found:?}");
    }

    // Figure 4's sensitive classes: 4 = ways 6-7, 5 = ways 0-3, 6 = ways 0-5, 7 = ways 0-7.
    #[test]
    fn the_worked_example_of_three_sensitive_functions() {
        let mut loads = figure_4(UnknownNeed::LITERAL);
        // Empty, P = 4: loads 4/2, 4/4, 4/6, 4/8. At most 1 and highest: class 5.
        close(place(&Casy, &mut loads, 4), 5, 1.0);
        // Ways 0-3 at 1. P = 4 again: class 4: 2; 5: 1 + 1; 6: 4/6 + 4/6; 7: 4/8 + 4/8 = 1.
        close(place(&Casy, &mut loads, 4), 7, 1.0);
        // Ways 0-3 at 1.5, 4-7 at 0.5. P = 2: class 4: 0.5 + 1; 5: 1.5 + 0.5; 6: 7/6 + 2/6; 7: 1 + 1/4, the least.
        close(place(&Casy, &mut loads, 2), 7, 1.25);
    }

    #[test]
    fn an_empty_class_of_the_exact_size_is_taken_whole() {
        for (ways, clos) in [(2, 4), (4, 5), (6, 6), (8, 7)] {
            close(place(&Casy, &mut figure_4(UnknownNeed::LITERAL), ways), clos, 1.0);
        }
        // P = 3: 3/2 is too much, 3/4 the highest that fits; P = 7: only 7/8.
        close(place(&Casy, &mut figure_4(UnknownNeed::LITERAL), 3), 5, 0.75);
        close(place(&Casy, &mut figure_4(UnknownNeed::LITERAL), 7), 7, 0.875);
    }

    #[test]
    fn speech_needs_more_than_the_chunk_and_gets_its_largest_class() {
        close(place(&Casy, &mut figure_4(UnknownNeed::LITERAL), 11), 7, 11.0 / 8.0);
    }

    #[test]
    fn the_insensitive_spread_over_their_single_ways() {
        let mut loads = figure_4(UnknownNeed::LITERAL);
        for (clos, load) in [(1, 1.0), (2, 1.0), (3, 1.0), (1, 2.0), (2, 2.0)] {
            close(place(&Casy, &mut loads, 1), clos, load);
        }
    }

    #[test]
    fn functions_without_a_model_push_others_to_larger_classes() {
        let mut loads = figure_4(UnknownNeed::mean_of_table_3(Ways(11)));
        let placed = Casy.place(&loads, &unknown());
        assert_eq!((placed.clos, placed.because), (ClosId::DEFAULT, PlacedBecause::NoModel));
        loads.commit(placed.clos, unknown()).unwrap();
        // 4/11 on every way: P = 4 no longer fits in four ways (1.364), but in six: 4/11 + 4/6 = 1.030 neither; eight.
        close(place(&Casy, &mut loads, 4), 7, 4.0 / 11.0 + 0.5);
    }

    #[test]
    fn as_printed_every_class_is_overloaded_and_the_first_wins() {
        let mut loads = figure_4(UnknownNeed::LITERAL);
        // Equation 4 literally: P on every empty class. Least loaded, first in the list: two ways for a need of seven.
        close(place(&CasyLiteral, &mut loads, 7), 4, 7.0);
        // Ways 6-7 at 3.5. P = 3: class 4: 7 + 3; 5: 3; 6: 3; 7: 7 + 3. The first of the least.
        close(place(&CasyLiteral, &mut loads, 3), 5, 3.0);
        close(place(&CasyLiteral, &mut figure_4(UnknownNeed::LITERAL), 1), 3, 1.0);
    }

    #[test]
    fn without_a_class_of_its_kind_a_function_runs_in_the_default() {
        let shape = *figure_4(UnknownNeed::LITERAL).layout().shape();
        let loads = WayLoads::new(Arc::new(ClosLayout::unpartitioned(shape).unwrap()), UnknownNeed::LITERAL);
        for policy in [&Casy as &dyn Placement, &CasyLiteral] {
            let placed = policy.place(&loads, &need(4));
            assert_eq!((placed.clos, placed.because), (ClosId::DEFAULT, PlacedBecause::NoClassOfKind));
        }
        assert_eq!(DefaultClassPlacement.place(&loads, &need(4)).mask, WayMask::contiguous(0, Ways(11)));
    }

    proptest! {
        #[test]
        fn the_choice_is_the_highest_within_one_or_the_least(
            placed in proptest::collection::vec((0_u8..8, 1_u8..=11), 0..12), wanted in 2_u8..=8,
        ) {
            let mut loads = figure_4(UnknownNeed::LITERAL);
            for (clos, ways) in placed {
                loads.commit(ClosId(clos), need(ways)).unwrap();
            }
            let chosen = Casy.place(&loads, &need(wanted));
            let with = |class: &Clos| loads.class_load_with(class, Ways(wanted));
            let mine = with(loads.layout().class(chosen.clos).unwrap());
            for class in loads.layout().of_kind(ClosKind::Sensitive) {
                match chosen.because {
                    PlacedBecause::BestFit { .. } => prop_assert!(with(class) > Load::FULL || with(class) <= mine),
                    _ => prop_assert!(with(class) > Load::FULL && with(class) >= mine),
                }
            }
        }
    }
}
