//! Fits the classes of service again to the running invocations, with the fewest moves between classes.
//!
//! [`crate::fit_layout`] chooses the classes and their members, in any order. Here the classes get their numbers so
//! that few invocations move: a new class gets the number of the class that most of its members are in.

use nigh_terms::{ClosId, invariant};

use crate::clos_layout::{BeyondChunk, CacheShape, ClosLayout};
use crate::layout_fit::fit_layout;
use crate::mix_layout::{MIX_MAX, MixEntry, MixError};
use crate::time_curve::Tolerance;

/// A kind of running invocations.
#[derive(Debug, Clone)]
pub struct RunningKind {
    /// Its curves, and how many of its invocations run.
    pub entry: MixEntry,
    /// The present class of each of its invocations.
    pub classes: Vec<ClosId>,
}

/// Classes for the running invocations.
#[derive(Debug, Clone)]
pub struct Refit {
    /// The classes.
    pub layout: ClosLayout,
    /// The class of each kind.
    pub classes: Vec<ClosId>,
    /// The part of the total time that is predicted to be saved, compared with an unpartitioned cache.
    pub gain: f64,
}

/// Classes for these kinds. Functions without a profile run `beside` them in the default class. Of more kinds than
/// [`MIX_MAX`], the most frequent are fitted and the others are in the default class.
pub fn refit(
    kinds: &[RunningKind],
    beside: Option<&MixEntry>,
    shape: &CacheShape,
    guard: Tolerance,
) -> Result<Refit, MixError> {
    let mut weighed: Vec<usize> = (0..kinds.len()).collect();
    weighed
        .sort_by(|&one, &other| kinds[other].entry.running.total_cmp(&kinds[one].entry.running).then(one.cmp(&other)));
    weighed.truncate(MIX_MAX);
    let mix: Vec<MixEntry> = weighed.iter().map(|&kind| kinds[kind].entry.clone()).collect();
    let fitted = fit_layout(&mix, beside, shape, guard)?;

    let mut classes = vec![ClosId::DEFAULT; kinds.len()];
    for (&kind, &class) in weighed.iter().zip(&fitted.classes) {
        classes[kind] = class;
    }
    let numbers = numbers(kinds, &classes, fitted.layout.classes().len());
    for class in &mut classes {
        *class = numbers[usize::from(class.0)];
    }
    let mut ordered: Vec<_> = fitted
        .layout
        .classes()
        .iter()
        .map(|class| (numbers[usize::from(class.id.0)], class.kind, class.mask))
        .collect();
    ordered.sort_by_key(|(number, ..)| *number);
    invariant!(
        ordered.iter().enumerate().all(|(at, (number, ..))| usize::from(number.0) == at),
        "classes do not have the numbers from 0 on: {ordered:?}"
    );
    let beside_the_default = ordered.into_iter().skip(1).map(|(_, kind, mask)| (kind, mask));
    let layout = ClosLayout::new(*shape, beside_the_default, BeyondChunk::DefaultClass)?;
    Ok(Refit { layout, classes, gain: fitted.gain })
}

/// The number of each fitted class; the default class keeps its own. The class with most members in a number gets it.
fn numbers(kinds: &[RunningKind], fitted: &[ClosId], count: usize) -> Vec<ClosId> {
    let mut held = vec![vec![0_usize; count]; count];
    for (kind, to) in kinds.iter().zip(fitted) {
        for from in kind.classes.iter().map(|class| usize::from(class.0)).filter(|from| (1..count).contains(from)) {
            held[usize::from(to.0)][from] += 1;
        }
    }
    let mut pairs: Vec<_> = (1..count).flat_map(|to| (1..count).map(move |from| (to, from))).collect();
    pairs.sort_by_key(|&(to, from)| std::cmp::Reverse(held[to][from]));
    let mut numbers = vec![ClosId::DEFAULT; count];
    let mut taken = vec![false; count];
    for (to, from) in pairs {
        if numbers[to] == ClosId::DEFAULT && !taken[from] {
            // A layout has at most 32 classes.
            numbers[to] = ClosId(from as u8);
            taken[from] = true;
        }
    }
    numbers
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::occupancy::SharingProfile;
    use crate::occupancy::tests::{SHAPE, blur, speech, stream};

    fn kind(profile: &Arc<SharingProfile>, classes: &[u8]) -> RunningKind {
        let entry = MixEntry { profile: Arc::clone(profile), running: classes.len() as f32 };
        RunningKind { entry, classes: classes.iter().copied().map(ClosId).collect() }
    }

    fn refitted(kinds: &[RunningKind]) -> Refit {
        refit(kinds, None, &SHAPE, Tolerance::ONE_PERCENT).unwrap()
    }

    #[test]
    fn fitted_again_nobody_moves() {
        let (speech, blur, stream) = (speech(), blur(), stream());
        let first = refitted(&[kind(&speech, &[0]), kind(&stream, &[0, 0, 0]), kind(&blur, &[0])]);
        assert!(first.gain > 0.02 && first.layout.classes().len() > 1, "{first:?}");
        let at = |kind: usize, count: usize| vec![first.classes[kind].0; count];
        // The same in another order: the classes are found in another order too.
        let again = refitted(&[kind(&blur, &at(2, 1)), kind(&stream, &at(1, 3)), kind(&speech, &at(0, 1))]);
        assert_eq!([again.classes[2], again.classes[1], again.classes[0]], first.classes[..]);
        assert_eq!(again.layout.classes(), first.layout.classes());
    }

    #[test]
    fn a_class_keeps_the_number_that_most_of_its_members_are_in() {
        let kinds = [kind(&speech(), &[2, 2, 1]), kind(&stream(), &[1, 1])];
        let fitted = [ClosId(1), ClosId(2)];
        assert_eq!(numbers(&kinds, &fitted, 3), [ClosId(0), ClosId(2), ClosId(1)]);
        // Nobody is in any: each still gets a number of its own.
        let kinds = [kind(&speech(), &[0]), kind(&stream(), &[7])];
        let mut given = numbers(&kinds, &fitted, 3);
        given.sort_unstable();
        assert_eq!(given, [ClosId(0), ClosId(1), ClosId(2)]);
    }

    #[test]
    fn of_too_many_kinds_the_most_frequent_are_weighed() {
        let profile = stream();
        let mut kinds: Vec<_> = (0..MIX_MAX + 4).map(|_| kind(&profile, &[0])).collect();
        kinds.push(kind(&speech(), &[0, 0, 0]));
        let refit = refitted(&kinds);
        assert_eq!(refit.classes.len(), kinds.len());
        let none: [RunningKind; 0] = [];
        assert!(matches!(
            super::refit(&none, None, &SHAPE, Tolerance::ONE_PERCENT),
            Err(MixError::WrongMix { kinds: 0 })
        ));
    }
}
