//! Classes of service for the running invocations: Nigh's own layout, fitted again when an invocation starts or ends.
//!
//! Starts from the unpartitioned cache and goes step by step to the neighbouring layout with the least predicted time.
//! In a step, a kind of function moves to another class or a new one, or a border of a class moves by a way. Masks may
//! overlap, unlike the disjoint clusters of [`crate::choose_layout`]: a stream can be confined to one way that others
//! still use. No step may make any function slower than without partitioning by more than the guard. If nothing is
//! gained, the cache stays unpartitioned. Neighbours are compared after a few rounds from the shares of their origin,
//! and the best ones after as many rounds as the fixed point needs. Running invocations may change their class: one
//! write moves a sandbox.

use nigh_terms::{ClosId, WayMask, Ways};

use crate::clos_layout::{BeyondChunk, CacheShape, ClosKind, ClosLayout, devices_write_low};
use crate::mix_layout::{ChosenLayout, MIX_MAX, MixEntry, MixError, Slowdown};
use crate::occupancy::{ALL_CLASSES, Member, Regions, Shares};
use crate::time_curve::Tolerance;

/// The rounds from a guess to the fixed point of the shares, to three digits.
const ROUNDS: usize = 10;

/// The rounds from a neighbour's shares; enough to choose the steps for a closer look.
const ROUNDS_NEARBY: usize = 4;

/// The tolerance for the error of these rounds, as a factor of the guard.
const SLACK_NEARBY: f32 = 1.006;

/// The most steps that get a closer look before the search ends.
const CLOSE_LOOKS_MAX: usize = 12;

/// The most steps. Each step must gain, so the search ends by itself; this bounds the time.
const STEPS_MAX: usize = 40;

/// A step must gain at least this part of the total time.
const STEP_LEAST: f32 = 2e-4;

/// A gain below this part of the total time is small. For a small gain no function is brought near the guard, since
/// predictions err by a third of the guard.
const GAIN_SMALL: f32 = 0.01;

/// The part of the guard that a small gain may use.
const GUARD_FOR_SMALL: f32 = 0.3;

/// Classes with their kinds of functions.
#[derive(Debug, Clone, PartialEq)]
struct Assignment {
    /// The mask of each class, the default first.
    masks: Vec<WayMask>,
    /// The class of each kind.
    class_of: Vec<usize>,
}

/// The problem to solve.
struct Fit<'m> {
    mix: &'m [MixEntry],
    /// The functions that stay in the default class.
    beside: Option<&'m MixEntry>,
    shape: CacheShape,
    /// The slowdown of each kind on the unpartitioned cache; functions of the default class last.
    without: Vec<f32>,
    /// The greatest allowed slowdown, in the same order.
    limits: Vec<f32>,
}

/// A layout with its shares and cost.
struct LayoutCandidate {
    assignment: Assignment,
    shares: Shares,
    cost: f32,
}

/// The layout for these running functions. None is predicted slower than without partitioning by more than `guard`.
/// Functions without a profile run `beside` them in the default class, and the guard holds for them too.
pub fn fit_layout(
    mix: &[MixEntry],
    beside: Option<&MixEntry>,
    shape: &CacheShape,
    guard: Tolerance,
) -> Result<ChosenLayout, MixError> {
    if mix.is_empty() || mix.len() > MIX_MAX {
        return Err(MixError::WrongMix { kinds: mix.len() });
    }
    if let Some((kind, entry)) =
        mix.iter().chain(beside).enumerate().find(|(_, e)| !(e.running > 0.0 && e.running.is_finite()))
    {
        return Err(MixError::NotRunning { kind, running: entry.running });
    }
    ClosLayout::unpartitioned(*shape)?;
    let whole = Assignment { masks: vec![WayMask::contiguous(0, shape.ways)], class_of: vec![0; mix.len()] };
    let mut fit = Fit { mix, beside, shape: *shape, without: Vec::new(), limits: Vec::new() };
    fit.without = fit.slowdowns(&whole);
    let before = fit.total(&fit.without);
    fit.allow(guard.0 as f32);
    let mut best = fit.descend(whole.clone());
    if best.cost > before * (1.0 - GAIN_SMALL) {
        fit.allow(guard.0 as f32 * GUARD_FOR_SMALL);
        best = fit.descend(whole);
    }
    let best = best.assignment;
    let partitioned = fit.slowdowns(&best);
    let classes = best.masks[1..].iter().map(|&mask| (ClosKind::Cluster, mask));
    Ok(ChosenLayout {
        layout: ClosLayout::new(*shape, classes, BeyondChunk::DefaultClass)?,
        classes: best.class_of.iter().map(|&class| ClosId(class as u8)).collect(),
        slowdowns: partitioned
            .iter()
            .zip(&fit.without)
            .take(mix.len())
            .map(|(&partitioned, &without)| Slowdown { partitioned, without })
            .collect(),
        gain: f64::from(1.0 - fit.total(&partitioned) / before),
        exact: false,
    })
}

impl Fit<'_> {
    /// Sets the greatest allowed slowdowns.
    fn allow(&mut self, guard: f32) {
        self.limits = self.without.iter().map(|without| without * (1.0 + guard)).collect();
    }

    /// All functions in these classes; those of the default class last.
    fn members(&self, class_of: &[usize]) -> Vec<Member<'_>> {
        let classes = class_of.iter().copied().chain(self.beside.map(|_| usize::from(ClosId::DEFAULT.0)));
        self.everybody()
            .zip(classes)
            .map(|(entry, class)| Member { class, profile: &entry.profile, count: entry.running })
            .collect()
    }

    fn settled(&self, assignment: &Assignment) -> (Vec<Member<'_>>, Shares) {
        let regions = Regions::of_masks(self.shape.ways, &assignment.masks);
        let members = self.members(&assignment.class_of);
        let mut shares = regions.start(&members);
        regions.settle(&members, &mut shares, ROUNDS, ALL_CLASSES);
        (members, shares)
    }

    /// The slowdown of each kind; functions of the default class last.
    fn slowdowns(&self, assignment: &Assignment) -> Vec<f32> {
        let (members, shares) = self.settled(assignment);
        members.iter().zip(shares.ways).map(|(one, share)| one.profile.slowdown(share)).collect()
    }

    fn everybody(&self) -> impl Iterator<Item = &MixEntry> {
        self.mix.iter().chain(self.beside)
    }

    fn total(&self, slowdowns: &[f32]) -> f32 {
        self.everybody().zip(slowdowns).map(|(entry, slowdown)| entry.running * slowdown).sum()
    }

    /// The total time; none if a function is slower than allowed by more than the slack.
    fn cost(&self, members: &[Member<'_>], shares: &Shares, slack: f32) -> Option<f32> {
        let mut total = 0.0;
        for ((one, &share), limit) in members.iter().zip(&shares.ways).zip(&self.limits) {
            let slowdown = one.profile.slowdown(share);
            if slowdown > limit * slack {
                return None;
            }
            total += one.count * slowdown;
        }
        Some(total)
    }

    /// Goes from the unpartitioned cache step by step until no step gains.
    fn descend(&self, whole: Assignment) -> LayoutCandidate {
        let least = STEP_LEAST * self.total(&self.without);
        let (_, shares) = self.settled(&whole);
        let mut best = LayoutCandidate { assignment: whole, shares, cost: self.total(&self.without) };
        for _ in 0..STEPS_MAX {
            let mut found = self.nearby(&best);
            found.retain(|(cost, ..)| *cost < best.cost - least);
            found.sort_by(|left, right| left.0.total_cmp(&right.0));
            let close = found.into_iter().take(CLOSE_LOOKS_MAX).find_map(|(_, mut assignment)| {
                assignment.drop_empty_classes();
                let (members, shares) = self.settled(&assignment);
                let cost = self.cost(&members, &shares, 1.0).filter(|cost| *cost < best.cost - least)?;
                Some(LayoutCandidate { assignment, shares, cost })
            });
            match close {
                Some(next) => best = next,
                None => break,
            }
        }
        best
    }

    /// The neighbouring layouts that seem allowed, with about their cost.
    fn nearby(&self, from: &LayoutCandidate) -> Vec<(f32, Assignment)> {
        let mut found = Vec::new();
        let Assignment { masks, class_of } = &from.assignment;
        let mut members = self.members(class_of);
        let mut shares = from.shares.clone();
        let mut weigh = |regions: &Regions, masks: &[WayMask], moved: Option<(usize, usize)>| {
            shares.clone_from(&from.shares);
            if let Some((kind, class)) = moved {
                let heads: f32 = members.iter().filter(|one| one.class == class).map(|one| one.count).sum();
                shares.ways[kind] = regions.class_ways(class) / (heads + members[kind].count).max(1.0);
                members[kind].class = class;
            }
            regions.settle(&members, &mut shares, ROUNDS_NEARBY, ALL_CLASSES);
            if let Some(cost) = self.cost(&members, &shares, SLACK_NEARBY) {
                let mut next = Assignment { masks: masks.to_vec(), class_of: class_of.clone() };
                if let Some((kind, class)) = moved {
                    next.class_of[kind] = class;
                }
                found.push((cost, next));
            }
            if let Some((kind, _)) = moved {
                members[kind].class = class_of[kind];
            }
        };
        let regions = Regions::of_masks(self.shape.ways, masks);
        for (kind, &now) in class_of.iter().enumerate() {
            for class in (0..masks.len()).filter(|&class| class != now) {
                weigh(&regions, masks, Some((kind, class)));
            }
        }
        let mut next = masks.clone();
        for class in 1..masks.len() {
            for moved in self.moved_borders(masks[class]) {
                next[class] = moved;
                weigh(&Regions::of_masks(self.shape.ways, &next), &next, None);
            }
            next[class] = masks[class];
        }
        if masks.len() < usize::from(self.shape.classes) {
            for mask in self.chunks() {
                next.push(mask);
                let regions = Regions::of_masks(self.shape.ways, &next);
                for kind in 0..self.mix.len() {
                    weigh(&regions, &next, Some((kind, masks.len())));
                }
                next.pop();
            }
        }
        found
    }

    /// The mask with one border a way further in or out.
    fn moved_borders(&self, mask: WayMask) -> impl Iterator<Item = WayMask> {
        let (cache, least) = (self.shape.ways.0, self.shape.min_ways.0.max(1));
        let (first, count) = (mask.ways().next().unwrap_or(0), mask.count().0);
        let moves = [
            (first > 0).then(|| (first - 1, count + 1)),
            (count > least).then(|| (first + 1, count - 1)),
            (first + count < cache).then_some((first, count + 1)),
            (count > least).then(|| (first, count - 1)),
        ];
        moves.into_iter().flatten().map(|(first, count)| WayMask::contiguous(first, Ways(count)))
    }

    /// Masks for a new class: runs from either end of the cache; borders move later. The first are where devices write.
    fn chunks(&self) -> impl Iterator<Item = WayMask> {
        let cache = self.shape.ways.0;
        let low = devices_write_low(self.shape.shareable, self.shape.ways);
        let sizes = self.shape.min_ways.0.max(1)..cache;
        sizes.flat_map(move |count| {
            let (near, far) = if low { (0, cache - count) } else { (cache - count, 0) };
            [near, far].map(|first| WayMask::contiguous(first, Ways(count)))
        })
    }
}

impl Assignment {
    fn drop_empty_classes(&mut self) {
        for class in (1..self.masks.len()).rev() {
            if !self.class_of.contains(&class) {
                self.masks.remove(class);
                for of in self.class_of.iter_mut().filter(|of| **of > class) {
                    *of -= 1;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::mix_layout::choose_layout;
    use crate::occupancy::SharingProfile;
    use crate::occupancy::tests::{SHAPE, blur, speech, stream};

    fn entry(profile: Arc<SharingProfile>, running: f32) -> MixEntry {
        MixEntry { profile, running }
    }

    #[test]
    fn streams_are_kept_from_what_needs_the_cache_and_lie_where_devices_write() {
        let mix = [entry(speech(), 1.0), entry(stream(), 3.0)];
        let fitted = fit_layout(&mix, None, &SHAPE, Tolerance::ONE_PERCENT).unwrap();
        let mask = |kind: usize| fitted.layout.class(fitted.classes[kind]).unwrap().mask;
        assert_eq!(mask(1), WayMask::from_bits(0x400), "{fitted:?}");
        assert!(mask(0).count() >= Ways(10));
        assert!(fitted.gain > 0.05 && fitted.slowdowns[0].partitioned < fitted.slowdowns[0].without);
    }

    #[test]
    fn alone_a_function_keeps_the_whole_cache() {
        for profile in [speech(), blur(), stream()] {
            let fitted = fit_layout(&[entry(profile, 1.0)], None, &SHAPE, Tolerance::ONE_PERCENT).unwrap();
            assert_eq!((fitted.layout.classes().len(), fitted.gain), (1, 0.0));
        }
    }

    #[test]
    fn nobody_is_slower_than_the_guard_and_the_gain_is_no_less_than_that_of_disjoint_clusters() {
        for counts in [[1.0, 1.0, 1.0], [1.0, 3.0, 2.0], [2.0, 1.0, 5.0], [3.0, 3.0, 1.0]] {
            let profiles = [speech(), blur(), stream()];
            let mix: Vec<_> = profiles.into_iter().zip(counts).map(|(profile, count)| entry(profile, count)).collect();
            let fitted = fit_layout(&mix, None, &SHAPE, Tolerance::ONE_PERCENT).unwrap();
            for slowdown in &fitted.slowdowns {
                assert!(slowdown.partitioned <= slowdown.without * 1.01, "{counts:?} {fitted:?}");
            }
            let disjoint = choose_layout(&mix, &SHAPE, Tolerance::ONE_PERCENT).unwrap();
            assert!(fitted.gain >= disjoint.gain - 0.01, "{counts:?}: {} after {}", fitted.gain, disjoint.gain);
        }
    }

    #[test]
    fn the_hardware_s_classes_are_not_exceeded_and_wrong_mixes_are_refused() {
        let mix = [entry(speech(), 1.0), entry(blur(), 2.0), entry(stream(), 2.0)];
        let two = CacheShape { classes: 2, ..SHAPE };
        assert!(fit_layout(&mix, None, &two, Tolerance::ONE_PERCENT).unwrap().layout.classes().len() <= 2);
        assert!(matches!(fit_layout(&[], None, &SHAPE, Tolerance::ONE_PERCENT), Err(MixError::WrongMix { kinds: 0 })));
        let none = [entry(speech(), 0.0)];
        assert!(matches!(fit_layout(&none, None, &SHAPE, Tolerance::ONE_PERCENT), Err(MixError::NotRunning { .. })));
    }

    #[test]
    fn who_has_no_model_stays_in_the_default_class_and_the_guard_holds_for_it() {
        let beside = entry(speech(), 2.0);
        let mix = [entry(blur(), 1.0), entry(stream(), 3.0)];
        let fitted = fit_layout(&mix, Some(&beside), &SHAPE, Tolerance::ONE_PERCENT).unwrap();
        assert_eq!((fitted.classes.len(), fitted.slowdowns.len()), (2, 2));
        // The streams are kept from it: it gains though it does not move.
        assert_ne!(fitted.classes[1], ClosId::DEFAULT);
        assert!(fitted.gain > 0.05, "{fitted:?}");
        let alone = fit_layout(&mix, None, &SHAPE, Tolerance::ONE_PERCENT).unwrap();
        assert!(alone.gain < fitted.gain);
    }
}
