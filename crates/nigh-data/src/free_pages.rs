//! Which pages wait for another object, and which are freed. Pure.
//!
//! Pages wait in classes by size. Those that became free last are used first, for the processor's cache may have them
//! still; those that have been free longest are freed first.

use std::collections::{BTreeMap, VecDeque};

use crate::segment_cost::Cost;

/// The smallest class.
pub(crate) const CLASS_MIN: u64 = 64 << 10;
/// So many classes may wait for spare pages; further ones get none.
const WANTED_MAX: usize = 16;
/// Free pages take one part in so many of what all segments may take.
const SHARE: u64 = 8;

/// The class of pages for `length` bytes: a power of two, or one and a half times one. Pages of a class are at most
/// half again as many as an object of the class needs.
pub(crate) const fn class_of(length: u64) -> u64 {
    if length <= CLASS_MIN {
        return CLASS_MIN;
    }
    let Some(power) = length.checked_next_power_of_two() else { return u64::MAX };
    let between = power / 4 * 3;
    if length <= between { between } else { power }
}

/// What free pages may take, where all segments together may take `limit` and those of objects take `living`.
pub(crate) fn allowed(limit: Cost, living: Cost) -> Cost {
    let left = limit.minus(living);
    Cost { bytes: left.bytes.min(limit.bytes / SHARE), segments: left.segments.min(limit.segments / SHARE) }
}

#[derive(Debug)]
struct Free<P> {
    pages: P,
    cost: Cost,
    /// Grows with each that becomes free.
    number: u64,
}

/// Free pages.
#[derive(Debug)]
pub(crate) struct FreePages<P> {
    /// By class; those that have been free longest first.
    classes: BTreeMap<u64, VecDeque<Free<P>>>,
    cost: Cost,
    /// Lengths of objects whose classes are to get spare pages: those that came first are first.
    wanted: VecDeque<u64>,
    next: u64,
    /// Those with a smaller number were free already when `unused` was last called.
    seen: u64,
}

impl<P> Default for FreePages<P> {
    fn default() -> Self {
        Self { classes: BTreeMap::new(), cost: Cost::default(), wanted: VecDeque::new(), next: 0, seen: 0 }
    }
}

impl<P> FreePages<P> {
    /// What they take.
    pub(crate) const fn cost(&self) -> Cost {
        self.cost
    }

    /// Pages for `length` bytes, if there are any. If none are left then, spare ones are wanted.
    pub(crate) fn take(&mut self, length: u64) -> Option<P> {
        let class = class_of(length);
        let free = self.classes.get_mut(&class).and_then(VecDeque::pop_back);
        self.left(class, free.as_ref().map_or(Cost::default(), |free| free.cost));
        let is_wanted = self.wanted.iter().any(|other| class_of(*other) == class);
        if !self.classes.contains_key(&class) && !is_wanted && self.wanted.len() < WANTED_MAX {
            self.wanted.push_back(length);
        }
        free.map(|free| free.pages)
    }

    /// Whether spare pages are wanted.
    pub(crate) fn wants_spares(&self) -> bool {
        !self.wanted.is_empty()
    }

    /// For how many bytes the next spare pages are to be made, which take what `cost` says, so that all take what is
    /// `allowed`.
    pub(crate) fn next_spare(&mut self, allowed: Cost, cost: impl Fn(u64) -> Cost) -> Option<u64> {
        while let Some(length) = self.wanted.front().copied() {
            let is_there = self.classes.contains_key(&class_of(length));
            if !is_there && self.cost.plus(cost(length)).fits(allowed) {
                return Some(length);
            }
            self.wanted.pop_front();
        }
        None
    }

    /// Keeps the pages of an object of `length` bytes. Returns those to be freed, so that all take what is `allowed`.
    pub(crate) fn put(&mut self, pages: P, length: u64, cost: Cost, allowed: Cost) -> Vec<P> {
        if !cost.fits(allowed) {
            let mut gone = self.fit(allowed);
            gone.push(pages);
            return gone;
        }
        self.cost = self.cost.plus(cost);
        self.classes.entry(class_of(length)).or_default().push_back(Free { pages, cost, number: self.next });
        self.next += 1;
        self.fit(allowed)
    }

    /// The pages to be freed, so that those that stay take what is `allowed`.
    pub(crate) fn fit(&mut self, allowed: Cost) -> Vec<P> {
        if self.cost.fits(allowed) {
            return Vec::new();
        }
        self.free_while(|cost, _| !cost.fits(allowed))
    }

    /// The pages to be freed because nobody has needed them since the call before the last one.
    pub(crate) fn unused(&mut self) -> Vec<P> {
        let seen = std::mem::replace(&mut self.seen, self.next);
        self.free_while(|_, number| number < seen)
    }

    fn free_while(&mut self, more: impl Fn(Cost, u64) -> bool) -> Vec<P> {
        let mut gone = Vec::new();
        loop {
            let fronts = self.classes.iter().filter_map(|(class, free)| Some((free.front()?.number, *class)));
            let Some((number, class)) = fronts.min() else { break };
            if !more(self.cost, number) {
                break;
            }
            let Some(free) = self.classes.get_mut(&class).and_then(VecDeque::pop_front) else { break };
            self.left(class, free.cost);
            gone.push(free.pages);
        }
        gone
    }

    fn left(&mut self, class: u64, cost: Cost) {
        self.cost = self.cost.minus(cost);
        if self.classes.get(&class).is_some_and(VecDeque::is_empty) {
            self.classes.remove(&class);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const KIB: u64 = 1024;

    #[test]
    fn classes_are_powers_of_two_and_halves_between() {
        let found = [1, 64, 65, 96, 97, 128, 129, 192, 193, 256].map(|kib| class_of(kib * KIB) / KIB);
        assert_eq!(found, [64, 64, 96, 96, 128, 128, 192, 192, 256, 256]);
        assert_eq!((class_of(0), class_of(u64::MAX)), (CLASS_MIN, u64::MAX));
    }

    #[test]
    fn free_pages_take_an_eighth_at_most_and_only_what_objects_leave() {
        let cost = |bytes, segments| Cost { bytes, segments };
        assert_eq!(allowed(cost(800, 80), cost(0, 0)), cost(100, 10));
        assert_eq!(allowed(cost(800, 80), cost(750, 79)), cost(50, 1));
        assert_eq!(allowed(cost(800, 80), cost(900, 90)), Cost::default());
    }

    #[test]
    fn what_nobody_needs_between_two_looks_is_freed() {
        let one = Cost { bytes: 64 * KIB, segments: 1 };
        let all = Cost { bytes: u64::MAX, segments: u64::MAX };
        let mut free = FreePages::default();
        for name in ["a", "b"] {
            assert!(free.put(name, one.bytes, one, all).is_empty());
        }
        assert!(free.unused().is_empty(), "they became free after the look before");
        assert_eq!(free.take(one.bytes), Some("b"));
        assert!(free.put("b", one.bytes, one, all).is_empty());
        assert_eq!(free.unused(), ["a"]);
        assert_eq!((free.unused(), free.cost()), (vec!["b"], Cost::default()));
    }

    #[test]
    fn a_class_whose_last_pages_were_taken_gets_others_as_far_as_is_allowed() {
        let cost = |length| Cost { bytes: length, segments: 1 };
        let all = Cost { bytes: 300 * KIB, segments: 9 };
        let mut free = FreePages::default();
        assert!(!free.wants_spares() && free.next_spare(all, cost).is_none());
        assert_eq!((free.take(100 * KIB), free.take(110 * KIB), free.take(250 * KIB)), (None, None, None));
        let mut made = Vec::new();
        while let Some(length) = free.next_spare(all, cost) {
            assert!(free.put(made.len(), length, cost(length), all).is_empty());
            made.push(length / KIB);
        }
        assert_eq!(made, [100], "one a class, and the larger one's pages would be too many");
        assert!(!free.wants_spares());
        assert!(free.take(110 * KIB).is_some() && free.wants_spares());
        assert!(free.put(7, 100 * KIB, cost(100 * KIB), all).is_empty());
        assert!(free.next_spare(all, cost).is_none() && !free.wants_spares(), "others came back");
    }

    #[test]
    fn few_classes_wait_for_spare_pages() {
        let mut free: FreePages<u8> = FreePages::default();
        for power in 17..60 {
            assert!(free.take(1 << power).is_none());
        }
        assert_eq!(free.wanted.len(), WANTED_MAX);
    }

    #[derive(Clone, Debug)]
    enum Step {
        Put { length: u64, allowed: Cost },
        Take { length: u64 },
        Fit { allowed: Cost },
        Unused,
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let length = || (64u64..300).prop_map(|kib| kib * KIB);
        let allowed = || (0u64..2000, 0u64..12).prop_map(|(kib, segments)| Cost { bytes: kib * KIB, segments });
        let step = prop_oneof![
            4 => (length(), allowed()).prop_map(|(length, allowed)| Step::Put { length, allowed }),
            3 => length().prop_map(|length| Step::Take { length }),
            1 => allowed().prop_map(|allowed| Step::Fit { allowed }),
            1 => Just(Step::Unused),
        ];
        prop::collection::vec(step, 0..120)
    }

    proptest! {
        /// The model is one list, those that have been free longest first, with how many looks each has seen.
        #[test]
        fn free_pages_behave_as_one_list_and_their_bytes_are_accounted(steps in steps()) {
            let mut free = FreePages::default();
            let mut model: Vec<(usize, u64, u32)> = Vec::new();
            let cost = |length| Cost { bytes: length, segments: 1 };
            let sum = |model: &[(usize, u64, u32)]| {
                model.iter().fold(Cost::default(), |sum, (_, length, _)| sum.plus(cost(*length)))
            };
            for (name, step) in steps.into_iter().enumerate() {
                match step {
                    Step::Put { length, allowed } => {
                        let mut gone = Vec::new();
                        let stays = cost(length).fits(allowed);
                        if stays {
                            model.push((name, length, 0));
                        }
                        while !sum(&model).fits(allowed) {
                            gone.push(model.remove(0).0);
                        }
                        if !stays {
                            gone.push(name);
                        }
                        prop_assert_eq!(free.put(name, length, cost(length), allowed), gone);
                    }
                    Step::Take { length } => {
                        let at = model.iter().rposition(|(_, other, _)| class_of(*other) == class_of(length));
                        prop_assert_eq!(free.take(length), at.map(|at| model.remove(at).0));
                    }
                    Step::Fit { allowed } => {
                        let mut gone = Vec::new();
                        while !sum(&model).fits(allowed) {
                            gone.push(model.remove(0).0);
                        }
                        prop_assert_eq!(free.fit(allowed), gone);
                    }
                    Step::Unused => {
                        model.iter_mut().for_each(|(_, _, looks)| *looks += 1);
                        let (gone, stay): (Vec<_>, Vec<_>) = model.into_iter().partition(|(_, _, looks)| *looks > 1);
                        model = stay;
                        prop_assert_eq!(free.unused(), gone.into_iter().map(|(name, ..)| name).collect::<Vec<_>>());
                    }
                }
                prop_assert_eq!(free.cost(), sum(&model));
            }
        }
    }
}
