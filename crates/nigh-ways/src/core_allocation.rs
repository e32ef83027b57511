//! Chooses the core of a running invocation, if sandboxes are bound by cores. Pure.
//!
//! A core keeps its class when it is given back, so that the next invocation of that class finds nothing to write: best
//! is the sandbox's own last core in the right class, then any in the right class, then its own last core, then one of
//! the default class, which no other class is waiting for, then any. Cores are the kernel's logical processors.

use std::collections::BTreeMap;

use nigh_llc::resctrl::CpuList;
use nigh_terms::ClosId;

/// A logical processor, by the kernel's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Core(pub(super) u32);

#[derive(Clone, Copy, Debug)]
struct State {
    clos: ClosId,
    taken: bool,
    /// The core could not be put into a class: another group has it, or it is offline.
    refused: bool,
}

/// All cores that sandboxes may run on.
#[derive(Debug)]
pub(super) struct Cores(BTreeMap<Core, State>);

impl Cores {
    /// All cores free and in the default class.
    pub(super) fn new(all: &CpuList) -> Self {
        let free = State { clos: ClosId::DEFAULT, taken: false, refused: false };
        Self(all.0.iter().map(|&cpu| (Core(cpu), free)).collect())
    }

    /// Takes the best free core for an invocation of class `clos` whose sandbox ran last on `last`; none if no core is
    /// free.
    pub(super) fn take(&mut self, clos: ClosId, last: Option<Core>) -> Option<Core> {
        let free = self.0.iter().filter(|(_, state)| !state.taken && !state.refused).rev();
        // Among equals the last one wins, which has the lowest number.
        let worth =
            |(core, state): &(&Core, &State)| (state.clos == clos, last == Some(**core), state.clos == ClosId::DEFAULT);
        let core = *free.max_by_key(worth)?.0;
        self.0.get_mut(&core)?.taken = true;
        Some(core)
    }

    /// A core is free again; it keeps its class.
    pub(super) fn give_back(&mut self, core: Core) {
        if let Some(state) = self.0.get_mut(&core) {
            state.taken = false;
        }
    }

    /// A taken core could not be put into its class. It is not used until the classes change.
    pub(super) fn refuse(&mut self, core: Core) {
        if let Some(state) = self.0.get_mut(&core) {
            (state.taken, state.refused) = (false, true);
        }
    }

    /// The class of a core.
    pub(super) fn clos(&self, core: Core) -> ClosId {
        self.0.get(&core).map_or(ClosId::DEFAULT, |state| state.clos)
    }

    /// A core was put into a class.
    pub(super) fn put(&mut self, core: Core, clos: ClosId) {
        if let Some(state) = self.0.get_mut(&core) {
            state.clos = clos;
        }
    }

    /// The classes have changed: cores of those that are gone are in the default class, and what was refused may be
    /// tried again.
    pub(super) fn changed(&mut self, is_gone: impl Fn(ClosId) -> bool) {
        for state in self.0.values_mut() {
            state.refused = false;
            if is_gone(state.clos) {
                state.clos = ClosId::DEFAULT;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use rand::rngs::StdRng;
    use rand::{Rng as _, SeedableRng as _};

    use super::*;

    fn cores() -> Cores {
        Cores::new(&"0-3".parse().unwrap())
    }

    #[test]
    fn a_core_in_the_right_class_comes_first_and_the_sandboxs_own_among_those() {
        let mut cores = cores();
        cores.put(Core(1), ClosId(5));
        cores.put(Core(3), ClosId(5));
        assert_eq!(cores.take(ClosId(5), Some(Core(3))), Some(Core(3)));
        assert_eq!(cores.take(ClosId(5), Some(Core(0))), Some(Core(1)), "the class before the own core");
        assert_eq!(cores.take(ClosId(5), Some(Core(2))), Some(Core(2)), "the own core before another");
        assert_eq!(cores.take(ClosId(5), None), Some(Core(0)));
        assert_eq!(cores.take(ClosId(5), None), None);
        cores.give_back(Core(1));
        assert_eq!(cores.clos(Core(1)), ClosId(5), "it keeps its class");
        assert_eq!(cores.take(ClosId(2), None), Some(Core(1)));
    }

    #[test]
    fn another_classs_core_is_taken_last() {
        let mut cores = cores();
        for core in 0..3 {
            cores.put(Core(core), ClosId(4));
        }
        assert_eq!(cores.take(ClosId(5), None), Some(Core(3)));
        cores.refuse(Core(3));
        assert_ne!(cores.take(ClosId(5), Some(Core(3))), Some(Core(3)), "nobody gets what was refused");
        cores.changed(|clos| clos == ClosId(4));
        assert_eq!(cores.clos(Core(1)), ClosId::DEFAULT);
        assert_eq!(cores.take(ClosId(5), Some(Core(3))), Some(Core(3)));
    }

    #[test]
    fn no_core_is_given_twice_and_none_is_withheld() {
        for seed in 0..200 {
            let mut random = StdRng::seed_from_u64(seed);
            let mut cores = cores();
            let mut held: Vec<Core> = Vec::new();
            for _ in 0..60 {
                if random.random() && !held.is_empty() {
                    cores.give_back(held.swap_remove(random.random_range(0..held.len())));
                    continue;
                }
                let (clos, last) = (ClosId(random.random_range(0..4)), random.random_range(0..8));
                let taken = cores.take(clos, (last < 6).then_some(Core(last)));
                assert_eq!(taken.is_some(), held.len() < 4, "seed {seed}");
                if let Some(core) = taken {
                    assert!(!held.contains(&core), "seed {seed}");
                    cores.put(core, clos);
                    held.push(core);
                }
            }
        }
    }
}
