//! The running invocations of each class in one cache domain, and their load on every way: CASY's equations 2 and 3,
//! exactly.
//!
//! A function that needs P ways weighs P/N on each of the N ways of its class. Loads are integers in a unit that every
//! 1/N divides, so a release subtracts exactly what its commit added, and "load 1" is exact. A function without a model
//! weighs on every way it may use, as much as the mean of CASY's table III. (As printed it weighs nothing, an error of
//! the paper.)

use std::sync::Arc;

use nigh_terms::{ClosId, Monotonic, WayMask, Ways, invariant};
use serde::Serialize;
use thiserror::Error;

use crate::clos_layout::{Clos, ClosLayout};
use crate::load::{Load, ONE};
use crate::miss_curve::WAYS_MAX;
use crate::occupancy::{Regions, SharingProfile};
use crate::time_curve::CacheClass;

/// Invocations placed in one domain at a time. At the limit [`WayLoads::commit`] refuses.
pub const PLACED_MAX: usize = 4096;

/// A model's prediction for an invocation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct PredictedNeed {
    /// P: the ways it needs.
    pub ways: Ways,
    /// Its class.
    pub class: CacheClass,
}

/// The need of an invocation that is to be placed.
#[derive(Debug, Clone)]
pub struct Need {
    /// The prediction; `None` if the function has no model.
    pub predicted: Option<PredictedNeed>,
    /// How the invocation shares a cache; `None` if no curve is known.
    pub sharing: Option<Arc<SharingProfile>>,
    /// When it starts.
    pub at: Monotonic,
}

/// Names a placed invocation until its release.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct Ticket(u64);

/// A running invocation and where it was placed.
#[derive(Debug, Clone)]
pub struct PlacedInvocation {
    /// The ticket for its release.
    pub ticket: Ticket,
    /// Its class of service.
    pub clos: ClosId,
    /// Its need at the placement.
    pub need: Need,
}

/// Why a placement or release is refused.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum LoadError {
    /// The limit is reached.
    #[error("{PLACED_MAX} invocations are placed in this cache domain already: release those that ended")]
    Full,
    /// The layout has no such class.
    #[error(
        "the layout of these loads has {classes} classes and no class {clos}: place invocations with the layout that the loads belong to"
    )]
    NoSuchClass {
        /// The class asked for.
        clos: ClosId,
        /// The number of classes.
        classes: usize,
    },
    /// Released before, or never placed.
    #[error("ticket {} does not belong to a placed invocation: it was released before or belongs to another cache domain", ticket.0)]
    NotPlaced {
        /// The ticket.
        ticket: Ticket,
    },
}

/// The assumed need of a function without a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct UnknownNeed(pub Ways);

impl UnknownNeed {
    /// As printed in the paper: nothing.
    pub const LITERAL: Self = Self(Ways(0));

    /// The mean need of CASY's table III (64 ways over 16 rows, of a cache of 11), for a cache of another size.
    #[must_use]
    pub fn mean_of_table_3(cache: Ways) -> Self {
        Self(Ways((u16::from(cache.0) * 4).div_ceil(11) as u8))
    }
}

/// The loads of one cache domain.
#[derive(Debug, Clone)]
pub struct WayLoads {
    layout: Arc<ClosLayout>,
    regions: Regions,
    unknown: UnknownNeed,
    /// The load of each way, in units of 1/[`ONE`].
    loads: [u128; WAYS_MAX.0 as usize],
    /// By ticket, ascending.
    running: Vec<PlacedInvocation>,
    next: u64,
}

impl WayLoads {
    /// No load on the classes of a layout.
    #[must_use]
    pub fn new(layout: Arc<ClosLayout>, unknown: UnknownNeed) -> Self {
        let regions = Regions::of(&layout);
        Self { layout, regions, unknown, loads: [0; WAYS_MAX.0 as usize], running: Vec::new(), next: 0 }
    }

    /// The layout.
    #[must_use]
    pub fn layout(&self) -> &ClosLayout {
        &self.layout
    }

    pub(crate) const fn regions(&self) -> &Regions {
        &self.regions
    }

    /// The running invocations, in the order of their placement.
    #[must_use]
    pub fn running(&self) -> &[PlacedInvocation] {
        &self.running
    }

    /// The running invocation with this ticket.
    #[must_use]
    pub fn find(&self, ticket: Ticket) -> Option<&PlacedInvocation> {
        let at = self.running.binary_search_by_key(&ticket, |running| running.ticket).ok()?;
        self.running.get(at)
    }

    /// The assumed need of a function without a model.
    #[must_use]
    pub const fn unknown(&self) -> UnknownNeed {
        self.unknown
    }

    /// The load of one way (equation 3).
    #[must_use]
    pub fn way_load(&self, way: u8) -> Load {
        Load { sum: self.loads.get(usize::from(way)).copied().unwrap_or(0), ways: 1 }
    }

    /// The mean load over a class's ways (equation 4, corrected: as printed it is the sum).
    #[must_use]
    pub fn class_load(&self, class: &Clos) -> Load {
        Load { sum: self.sum(class.mask), ways: class.mask.count().0 }
    }

    /// The mean load that a class would have with one more function of this need in it.
    #[must_use]
    pub fn class_load_with(&self, class: &Clos, need: Ways) -> Load {
        // N ways take P/N each: P in all.
        Load { sum: self.sum(class.mask) + u128::from(need.0) * ONE, ways: class.mask.count().0 }
    }

    /// Equation 4 as printed, with one more function: the sum over the ways.
    #[must_use]
    pub fn summed_load_with(&self, class: &Clos, need: Ways) -> Load {
        Load { ways: 1, ..self.class_load_with(class, need) }
    }

    /// Places an invocation in a class.
    pub fn commit(&mut self, clos: ClosId, need: Need) -> Result<Ticket, LoadError> {
        if self.running.len() >= PLACED_MAX {
            return Err(LoadError::Full);
        }
        let classes = self.layout.classes().len();
        let Some(mask) = self.layout.class(clos).map(|class| class.mask) else {
            return Err(LoadError::NoSuchClass { clos, classes });
        };
        let weight = self.weight(&need, mask);
        self.add(mask, weight);
        let ticket = Ticket(self.next);
        self.next += 1;
        self.running.push(PlacedInvocation { ticket, clos, need });
        Ok(ticket)
    }

    /// Releases an invocation and returns it.
    pub fn release(&mut self, ticket: Ticket) -> Result<PlacedInvocation, LoadError> {
        let Ok(at) = self.running.binary_search_by_key(&ticket, |running| running.ticket) else {
            return Err(LoadError::NotPlaced { ticket });
        };
        let running = self.running.remove(at);
        let mask = self.mask(running.clos);
        let weight = self.weight(&running.need, mask);
        self.take(mask, weight);
        invariant!(
            !self.running.is_empty() || self.loads.iter().all(|&load| load == 0),
            "no invocation runs and the ways have loads: {:?}",
            self.loads
        );
        Ok(running)
    }

    /// Changes to another layout of the same cache. A running invocation keeps its class's number with the class's new
    /// ways; if the number is gone, the invocation is in the default class. Returns the tickets that changed to the
    /// default class.
    pub fn change_layout(&mut self, layout: Arc<ClosLayout>) -> Vec<Ticket> {
        self.regions = Regions::of(&layout);
        self.layout = layout;
        self.loads = [0; WAYS_MAX.0 as usize];
        let mut moved = Vec::new();
        let mut running = std::mem::take(&mut self.running);
        for one in &mut running {
            if self.layout.class(one.clos).is_none() {
                one.clos = ClosId::DEFAULT;
                moved.push(one.ticket);
            }
            let mask = self.mask(one.clos);
            let weight = self.weight(&one.need, mask);
            self.add(mask, weight);
        }
        self.running = running;
        moved
    }

    /// Moves a running invocation to another class.
    pub fn move_to(&mut self, ticket: Ticket, clos: ClosId) -> Result<(), LoadError> {
        let classes = self.layout.classes().len();
        let Some(to) = self.layout.class(clos).map(|class| class.mask) else {
            return Err(LoadError::NoSuchClass { clos, classes });
        };
        let Ok(at) = self.running.binary_search_by_key(&ticket, |running| running.ticket) else {
            return Err(LoadError::NotPlaced { ticket });
        };
        let from = self.mask(self.running[at].clos);
        let (less, more) = (self.weight(&self.running[at].need, from), self.weight(&self.running[at].need, to));
        self.take(from, less);
        self.add(to, more);
        self.running[at].clos = clos;
        Ok(())
    }

    fn add(&mut self, mask: WayMask, weight: u128) {
        for way in mask.ways() {
            self.loads[usize::from(way)] += weight;
        }
    }

    fn take(&mut self, mask: WayMask, weight: u128) {
        for way in mask.ways() {
            let load = self.loads[usize::from(way)];
            invariant!(load >= weight, "way {way} has load {load} and an invocation of {weight} is taken from it");
            self.loads[usize::from(way)] = load - weight;
        }
    }

    fn mask(&self, clos: ClosId) -> WayMask {
        self.layout.class(clos).map_or(self.layout.default_class().mask, |class| class.mask)
    }

    /// Equation 2, in units.
    fn weight(&self, need: &Need, mask: WayMask) -> u128 {
        let ways = need.predicted.map_or(self.unknown.0, |predicted| predicted.ways);
        u128::from(ways.0) * (ONE / u128::from(mask.count().0.max(1)))
    }

    fn sum(&self, mask: WayMask) -> u128 {
        mask.ways().map(|way| self.loads[usize::from(way)]).sum()
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::clos_layout::{CacheShape, CasyRequest};

    pub(crate) fn figure_4(unknown: UnknownNeed) -> WayLoads {
        let shape = CacheShape { ways: Ways(11), classes: 8, min_ways: Ways(1), shareable: WayMask::from_bits(0x600) };
        WayLoads::new(Arc::new(ClosLayout::casy(&CasyRequest::of(shape, Ways(3))).unwrap()), unknown)
    }

    pub(crate) fn need(ways: u8) -> Need {
        let class = if ways == 1 { CacheClass::Insensitive } else { CacheClass::Sensitive };
        Need { predicted: Some(PredictedNeed { ways: Ways(ways), class }), sharing: None, at: Monotonic(0) }
    }

    pub(crate) fn unknown() -> Need {
        Need { predicted: None, sharing: None, at: Monotonic(0) }
    }

    #[test]
    fn a_function_without_a_model_weighs_on_every_way() {
        let mut loads = figure_4(UnknownNeed::mean_of_table_3(Ways(11)));
        loads.commit(ClosId::DEFAULT, unknown()).unwrap();
        for way in 0..11 {
            assert!((loads.way_load(way).value() - 4.0 / 11.0).abs() < 1e-12);
        }
        let mut literal = figure_4(UnknownNeed::LITERAL);
        literal.commit(ClosId::DEFAULT, unknown()).unwrap();
        assert_eq!(literal.way_load(0).value(), 0.0);
    }

    #[test]
    fn three_eighths_and_five_eighths_are_a_full_class() {
        let mut loads = figure_4(UnknownNeed::LITERAL);
        loads.commit(ClosId(7), need(3)).unwrap();
        loads.commit(ClosId(7), need(5)).unwrap();
        assert_eq!(loads.class_load(&loads.layout().classes()[7]), Load::FULL);
    }

    #[test]
    fn what_is_not_placed_cannot_be_released() {
        let mut loads = figure_4(UnknownNeed::LITERAL);
        let ticket = loads.commit(ClosId(1), need(1)).unwrap();
        assert_eq!(loads.commit(ClosId(8), need(1)), Err(LoadError::NoSuchClass { clos: ClosId(8), classes: 8 }));
        assert!(loads.release(ticket).is_ok());
        assert_eq!(loads.release(ticket).unwrap_err(), LoadError::NotPlaced { ticket });
    }

    #[test]
    fn the_books_are_bounded() {
        let mut loads = figure_4(UnknownNeed::LITERAL);
        for _ in 0..PLACED_MAX {
            loads.commit(ClosId(7), need(8)).unwrap();
        }
        assert_eq!(loads.commit(ClosId(7), need(8)), Err(LoadError::Full));
    }

    proptest! {
        #[test]
        fn after_every_release_nothing_is_left(
            placed in proptest::collection::vec((0_u8..8, 1_u8..=11, any::<bool>()), 0..40), order: u64,
        ) {
            let mut loads = figure_4(UnknownNeed(Ways(4)));
            let mut tickets: Vec<_> = placed
                .iter()
                .map(|&(clos, ways, known)| loads.commit(ClosId(clos), if known { need(ways) } else { unknown() }).unwrap())
                .collect();
            let before = loads.clone();
            let extra = loads.commit(ClosId(3), need(7)).unwrap();
            loads.release(extra).unwrap();
            prop_assert_eq!(loads.loads, before.loads);
            let mut order = order;
            while !tickets.is_empty() {
                let at = (order % tickets.len() as u64) as usize;
                order = order.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                loads.release(tickets.swap_remove(at)).unwrap();
            }
            prop_assert_eq!(loads.loads, [0; 32]);
        }

        #[test]
        fn a_layout_change_weighs_as_placing_anew(placed in proptest::collection::vec((0_u8..8, 1_u8..=11), 0..20)) {
            let mut loads = figure_4(UnknownNeed(Ways(4)));
            for &(clos, ways) in &placed {
                loads.commit(ClosId(clos), need(ways)).unwrap();
            }
            let smaller = ClosLayout::casy(&CasyRequest::of(
                CacheShape { classes: 5, ..*loads.layout().shape() }, Ways(2),
            )).unwrap();
            let moved = loads.change_layout(Arc::new(smaller.clone()));
            prop_assert_eq!(moved.len(), placed.iter().filter(|(clos, _)| *clos >= 5).count());
            let mut anew = WayLoads::new(Arc::new(smaller), UnknownNeed(Ways(4)));
            for &(clos, ways) in &placed {
                anew.commit(ClosId(if clos >= 5 { 0 } else { clos }), need(ways)).unwrap();
            }
            prop_assert_eq!(loads.loads, anew.loads);
        }
    }
}
