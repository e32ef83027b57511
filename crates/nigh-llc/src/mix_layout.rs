//! Classes of service for an expected mix of functions: Nigh's own layout.
//!
//! Functions that share well are in one class, and classes share no ways. Groups and ways are chosen together for the
//! least predicted total time. A grouping in which a function is predicted slower than on the unpartitioned cache by
//! more than the guard is not considered. If nothing is gained, the cache stays unpartitioned. The groups that lose
//! least from it lie where devices write.

use std::sync::Arc;

use nigh_terms::{ClosId, WayMask, Ways};
use serde::Serialize;
use thiserror::Error;

use crate::clos_layout::{BeyondChunk, CacheShape, ClosKind, ClosLayout, LayoutRefusal, devices_write_low};
use crate::clustering::{Group, cluster};
use crate::occupancy::{ALL_CLASSES, Member, Regions, SharingProfile};
use crate::time_curve::Tolerance;

/// The most kinds of functions in a mix; the time of the search grows with the cube.
pub const MIX_MAX: usize = 48;

/// The least predicted gain that justifies partitioning, as a part of the total time.
const GAIN_LEAST: f64 = 0.002;

/// The rounds to the fixed point of the shares, to four digits.
const ROUNDS: usize = 24;

/// One kind of function of the mix.
#[derive(Debug, Clone)]
pub struct MixEntry {
    /// Its curves.
    pub profile: Arc<SharingProfile>,
    /// The average number of running invocations: arrivals per second times seconds of a run.
    pub running: f32,
}

/// Predicted time over time alone with the whole cache.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Slowdown {
    /// In its class.
    pub partitioned: f32,
    /// On the unpartitioned cache.
    pub without: f32,
}

/// A layout and which class each kind of function belongs to.
#[derive(Debug, Clone)]
pub struct ChosenLayout {
    /// The classes.
    pub layout: ClosLayout,
    /// By entry of the mix.
    pub classes: Vec<ClosId>,
    /// By entry of the mix.
    pub slowdowns: Vec<Slowdown>,
    /// Part of the total time that partitioning is predicted to save.
    pub gain: f64,
    /// Whether every grouping was weighed.
    pub exact: bool,
}

/// Why no layout was chosen.
#[derive(Debug, Clone, PartialEq, Error)]
pub enum MixError {
    /// The hardware does not allow a layout.
    #[error(transparent)]
    Refused(#[from] LayoutRefusal),
    /// The mix is empty or too large.
    #[error("a mix has {kinds} kinds of functions: give 1 to {MIX_MAX}, the most frequent first")]
    WrongMix {
        /// How many were given.
        kinds: usize,
    },
    /// The number of running functions is invalid.
    #[error("kind {kind} has {running} running functions: expected a number above zero")]
    NotRunning {
        /// Which.
        kind: usize,
        /// What was given.
        running: f32,
    },
}

/// The layout for a mix. No function is predicted slower than without partitioning by more than `guard`.
pub fn choose_layout(mix: &[MixEntry], shape: &CacheShape, guard: Tolerance) -> Result<ChosenLayout, MixError> {
    if mix.is_empty() || mix.len() > MIX_MAX {
        return Err(MixError::WrongMix { kinds: mix.len() });
    }
    if let Some((kind, entry)) = mix.iter().enumerate().find(|(_, e)| !(e.running > 0.0 && e.running.is_finite())) {
        return Err(MixError::NotRunning { kind, running: entry.running });
    }
    let unpartitioned = ClosLayout::unpartitioned(*shape)?;
    let everybody: Vec<usize> = (0..mix.len()).collect();
    let without = together(mix, &everybody, shape.ways);
    let costs = |members: &[usize]| -> Vec<f64> {
        let cost = |ways| {
            let slowdowns = together(mix, members, Ways(ways));
            let harmed = members.iter().zip(&slowdowns).any(|(&at, now)| f64::from(now / without[at]) > 1.0 + guard.0);
            if harmed { f64::INFINITY } else { total(mix, members, &slowdowns) }
        };
        (1..=shape.ways.0).map(cost).collect()
    };
    let groups_max = usize::from(shape.classes.saturating_sub(1));
    let found = cluster(mix.len(), shape.ways, shape.min_ways, groups_max, costs);
    let before = total(mix, &everybody, &without);
    let unchanged = || ChosenLayout {
        layout: unpartitioned.clone(),
        classes: vec![ClosId::DEFAULT; mix.len()],
        slowdowns: without.iter().map(|&without| Slowdown { partitioned: without, without }).collect(),
        gain: 0.0,
        exact: mix.len() <= crate::clustering::EXACT_MAX,
    };
    let Some(found) = found else { return Ok(unchanged()) };
    let gain = 1.0 - found.cost / before;
    if gain < GAIN_LEAST || found.groups.len() < 2 {
        return Ok(unchanged());
    }
    let groups = from_the_devices_away(mix, found.groups, shape);
    let mut first = 0;
    let mut masks = Vec::with_capacity(groups.len());
    let mut chosen = unchanged();
    for (at, group) in groups.iter().enumerate() {
        masks.push((ClosKind::Cluster, WayMask::contiguous(first, group.ways)));
        first += group.ways.0;
        for (&member, partitioned) in group.members.iter().zip(together(mix, &group.members, group.ways)) {
            chosen.classes[member] = ClosId(at as u8 + 1);
            chosen.slowdowns[member].partitioned = partitioned;
        }
    }
    chosen.layout = ClosLayout::new(*shape, masks, BeyondChunk::DefaultClass)?;
    Ok(ChosenLayout { gain, exact: found.exact, ..chosen })
}

/// Slowdowns of these kinds in one class of `ways`.
fn together(mix: &[MixEntry], members: &[usize], ways: Ways) -> Vec<f32> {
    let regions = Regions::whole(ways);
    let inside: Vec<_> =
        members.iter().map(|&at| Member { class: 0, profile: &mix[at].profile, count: mix[at].running }).collect();
    let mut shares = regions.start(&inside);
    regions.settle(&inside, &mut shares, ROUNDS, ALL_CLASSES);
    inside.iter().zip(shares.ways).map(|(one, share)| one.profile.slowdown(share)).collect()
}

/// Time a second of the mix takes, with these slowdowns.
fn total(mix: &[MixEntry], members: &[usize], slowdowns: &[f32]) -> f64 {
    members.iter().zip(slowdowns).map(|(&at, slowdown)| f64::from(mix[at].running * slowdown)).sum()
}

/// Orders the groups by their place in the cache: those that lose least from one way less are where devices write.
fn from_the_devices_away(mix: &[MixEntry], mut groups: Vec<Group>, shape: &CacheShape) -> Vec<Group> {
    let loss = |group: &Group| {
        let at = |ways| total(mix, &group.members, &together(mix, &group.members, Ways(ways)));
        at(group.ways.0.saturating_sub(1).max(1)) - at(group.ways.0)
    };
    groups.sort_by(|left, right| loss(right).total_cmp(&loss(left)));
    if devices_write_low(shape.shareable, shape.ways) {
        groups.reverse();
    }
    groups
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::occupancy::tests::{SHAPE, blur, profile, speech, stream};

    fn mix(entries: &[(Arc<SharingProfile>, f32)]) -> Vec<MixEntry> {
        entries.iter().map(|(profile, running)| MixEntry { profile: profile.clone(), running: *running }).collect()
    }

    #[test]
    fn the_recogniser_is_kept_from_the_streams() {
        let mix = mix(&[(speech(), 1.0), (stream(), 2.0), (blur(), 1.0)]);
        let chosen = choose_layout(&mix, &SHAPE, Tolerance::ONE_PERCENT).unwrap();
        assert!(chosen.gain > 0.05, "{chosen:?}");
        assert_ne!(chosen.classes[0], chosen.classes[1]);
        let of = |at: usize| chosen.layout.class(chosen.classes[at]).unwrap().mask;
        assert!(of(0).count() > of(1).count() && !of(0).overlaps(of(1)));
        assert!(!of(0).overlaps(WayMask::from_bits(0x400)), "the streams lie where devices write: {chosen:?}");
    }

    #[test]
    fn where_nothing_is_gained_nothing_is_partitioned() {
        let chosen = choose_layout(&mix(&[(stream(), 4.0), (stream(), 1.0)]), &SHAPE, Tolerance::ONE_PERCENT).unwrap();
        assert_eq!(chosen.layout.classes().len(), 1);
        assert_eq!((chosen.gain, chosen.classes), (0.0, vec![ClosId::DEFAULT; 2]));
    }

    #[test]
    fn a_mix_must_run_and_be_bounded() {
        let wrong = |entries: &[MixEntry]| choose_layout(entries, &SHAPE, Tolerance::ONE_PERCENT).unwrap_err();
        assert_eq!(wrong(&[]), MixError::WrongMix { kinds: 0 });
        assert!(matches!(wrong(&mix(&[(stream(), f32::NAN)])), MixError::NotRunning { kind: 0, .. }));
        assert!(matches!(wrong(&vec![mix(&[(stream(), 1.0)]).remove(0); 49]), MixError::WrongMix { kinds: 49 }));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]
        #[test]
        fn nobody_is_predicted_slower_by_more_than_the_guard(
            kinds in proptest::collection::vec((1.0..4000.0_f64, 0.0..1.0_f64, 1.0..11.0_f64, 0.1..4.0_f32), 1..6),
        ) {
            // Curves that fall from all accesses to a floor, at some number of ways.
            let mix: Vec<_> = kinds.iter().map(|&(minstr, floor, knee, running)| {
                let accesses = minstr * 5.0;
                let misses: Vec<_> = (1..=11)
                    .map(|ways| accesses * (floor + (1.0 - floor) / (1.0 + (f64::from(ways) - knee).exp())))
                    .collect();
                MixEntry { profile: profile(minstr, accesses, &misses), running }
            }).collect();
            let chosen = choose_layout(&mix, &SHAPE, Tolerance::ONE_PERCENT).unwrap();
            for slowdown in &chosen.slowdowns {
                prop_assert!(slowdown.partitioned <= slowdown.without * 1.0101, "{:?}", slowdown);
            }
            prop_assert!(chosen.gain >= 0.0);
            prop_assert!(chosen.layout.classes().len() <= 8);
        }
    }
}
