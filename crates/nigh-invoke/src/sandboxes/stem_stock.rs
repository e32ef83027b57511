//! The pre-warmed sandboxes (stems) of a node: which are ready, which are being made, and what the cold starts ask for. Pure;
//! `S` is a stem. The pool counts their memory.

use std::collections::{BTreeMap, BTreeSet};

use nigh_functions::function::Runtime;
use nigh_schedule::prewarm::{Demand, targets};
use nigh_terms::Monotonic;
use tokio_util::sync::CancellationToken;

/// The pre-warmed sandboxes of a node.
pub(crate) struct PrewarmedStock<S> {
    /// How many there may be, those being made included.
    most: usize,
    ready: Vec<(Runtime, S)>,
    coming: Vec<PendingPrewarmed>,
    /// The number of the last one.
    last: u64,
    demand: BTreeMap<Runtime, Demand>,
}

/// A pre-warmed sandbox that is being made.
#[derive(Clone, Debug)]
pub(crate) struct PendingPrewarmed {
    number: u64,
    pub(crate) runtime: Runtime,
    /// Cancelled when it is not wanted any more.
    pub(crate) cancel: CancellationToken,
}

/// The numbers of one runtime.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Count {
    pub(crate) ready: usize,
    pub(crate) coming: usize,
    pub(crate) wanted: usize,
}

impl<S> PrewarmedStock<S> {
    /// An empty stock of at most `most`.
    pub(crate) const fn new(most: usize) -> Self {
        Self { most, ready: Vec::new(), coming: Vec::new(), last: 0, demand: BTreeMap::new() }
    }

    /// A function of `runtime` starts cold: takes a ready stem, if there is one. If `most` is zero, nothing is kept or remembered.
    pub(crate) fn take(&mut self, runtime: &Runtime, now: Monotonic) -> Option<S> {
        if self.most == 0 {
            return None;
        }
        self.demand.entry(runtime.clone()).or_default().cold_start(now, self.most);
        let first = self.ready.iter().position(|(of, _)| of == runtime)?;
        Some(self.ready.remove(first).1)
    }

    /// `count` stems must end: takes out ready ones, and cancels those being made if these are not enough.
    pub(crate) fn give_way(&mut self, count: usize) -> Vec<S> {
        let waiting = count.min(self.ready.len());
        self.coming.iter().rev().take(count - waiting).for_each(|one| one.cancel.cancel());
        self.ready.drain(self.ready.len() - waiting..).map(|(_, stem)| stem).collect()
    }

    /// Takes out the ready stems of which `is_one` is true.
    pub(crate) fn take_those(&mut self, is_one: impl Fn(&S) -> bool) -> Vec<S> {
        self.ready.extract_if(.., |(_, stem)| is_one(stem)).map(|(_, stem)| stem).collect()
    }

    /// Cancels all that are being made.
    pub(crate) fn cancel(&self) {
        self.coming.iter().for_each(|one| one.cancel.cancel());
    }

    /// The runtimes in `usable`, once for each missing stem; and the ready stems that no runtime wants. `usable`: the runtimes of
    /// deployed functions.
    pub(crate) fn plan(&mut self, usable: &BTreeSet<Runtime>, now: Monotonic) -> (Vec<Runtime>, Vec<S>) {
        let counts = self.counts(usable, now);
        let mut missing = Vec::new();
        for (runtime, count) in &counts {
            let more = count.wanted.saturating_sub(count.ready + count.coming);
            missing.extend(std::iter::repeat_n(runtime.clone(), more));
        }
        let mut keep: BTreeMap<&Runtime, usize> =
            counts.iter().map(|(runtime, count)| (runtime, count.wanted)).collect();
        let surplus = self.ready.extract_if(.., |(runtime, _)| match keep.get_mut(runtime) {
            Some(left) if *left > 0 => {
                *left -= 1;
                false
            }
            _ => true,
        });
        let surplus = surplus.map(|(_, stem)| stem).collect();
        self.demand.retain(|runtime, _| usable.contains(runtime));
        (missing, surplus)
    }

    /// A stem of `runtime` is being made.
    pub(crate) fn comes(&mut self, runtime: Runtime) -> PendingPrewarmed {
        self.last += 1;
        let coming = PendingPrewarmed { number: self.last, runtime, cancel: CancellationToken::new() };
        self.coming.push(coming.clone());
        coming
    }

    /// The stem is made, or could not be. It is ready from now on; if it was cancelled meanwhile, it comes back.
    pub(crate) fn came(&mut self, coming: &PendingPrewarmed, stem: Option<S>) -> Option<S> {
        self.coming.retain(|one| one.number != coming.number);
        if coming.cancel.is_cancelled() {
            return stem;
        }
        self.ready.extend(stem.map(|stem| (coming.runtime.clone(), stem)));
        None
    }

    /// How many of all runtimes are being made.
    pub(crate) fn coming(&self) -> usize {
        self.coming.len()
    }

    /// What each runtime in `usable` has and wants.
    pub(crate) fn counts(&self, usable: &BTreeSet<Runtime>, now: Monotonic) -> BTreeMap<Runtime, Count> {
        let asked = usable.iter().map(|runtime| {
            let wanted = self.demand.get(runtime).map_or(0, |demand| demand.wanted(now));
            (runtime.clone(), wanted)
        });
        let targets = targets(&asked.collect(), self.most);
        let count = |runtime: &Runtime| Count {
            ready: self.ready.iter().filter(|(of, _)| of == runtime).count(),
            coming: self.coming.iter().filter(|one| one.runtime == *runtime).count(),
            wanted: targets.get(runtime).copied().unwrap_or_default(),
        };
        usable.iter().map(|runtime| (runtime.clone(), count(runtime))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: Runtime = Runtime::Python { minor: 11 };
    const B: Runtime = Runtime::Python { minor: 12 };
    const NOW: Monotonic = Monotonic(0);

    fn usable(runtimes: &[Runtime]) -> BTreeSet<Runtime> {
        runtimes.iter().cloned().collect()
    }

    /// Makes all that is missing; each is called by `names` in turn.
    fn fill(stock: &mut PrewarmedStock<u32>, runtimes: &[Runtime], names: &mut impl Iterator<Item = u32>) -> Vec<u32> {
        let (missing, surplus) = stock.plan(&usable(runtimes), NOW);
        for runtime in missing {
            let coming = stock.comes(runtime);
            assert_eq!(stock.came(&coming, names.next()), None);
        }
        surplus
    }

    #[test]
    fn a_deployed_runtime_has_one_and_a_stem_becomes_one_functions_only() {
        let (mut stock, mut names) = (PrewarmedStock::new(4), 1..);
        assert!(fill(&mut stock, &[A], &mut names).is_empty());
        assert_eq!((stock.take(&B, NOW), stock.take(&A, NOW), stock.take(&A, NOW)), (None, Some(1), None));
        // Two were wanted within a moment: two are kept from here on.
        assert!(fill(&mut stock, &[A], &mut names).is_empty());
        assert_eq!(stock.counts(&usable(&[A]), NOW)[&A], Count { ready: 2, coming: 0, wanted: 2 });
    }

    #[test]
    fn stems_of_a_runtime_that_nobody_uses_any_more_end() {
        let (mut stock, mut names) = (PrewarmedStock::new(4), 1..);
        fill(&mut stock, &[A, B], &mut names);
        assert_eq!(fill(&mut stock, &[B], &mut names), [1]);
        assert_eq!(fill(&mut stock, &[], &mut names), [2]);
    }

    #[test]
    fn what_is_coming_is_not_made_twice_and_gives_way_too() {
        let mut stock = PrewarmedStock::<u32>::new(4);
        let (missing, _) = stock.plan(&usable(&[A]), NOW);
        assert_eq!(missing, [A]);
        let coming = stock.comes(A);
        assert!(stock.plan(&usable(&[A]), NOW).0.is_empty());
        assert!(stock.give_way(1).is_empty() && coming.cancel.is_cancelled());
        assert_eq!((stock.came(&coming, Some(7)), stock.coming()), (Some(7), 0));
    }

    #[test]
    fn those_that_ended_come_out_and_a_stock_of_nothing_keeps_nothing() {
        let (mut stock, mut names) = (PrewarmedStock::new(4), 1..);
        fill(&mut stock, &[A, B], &mut names);
        assert_eq!(stock.take_those(|stem| *stem == 1), [1]);
        assert_eq!((stock.give_way(9), stock.take(&B, NOW)), (vec![2], None));
        let mut off = PrewarmedStock::<u32>::new(0);
        assert_eq!((off.take(&A, NOW), off.plan(&usable(&[A]), NOW)), (None, (Vec::new(), Vec::new())));
    }
}
