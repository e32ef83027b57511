use std::sync::Arc;

use super::*;
use crate::clos_layout::{BeyondChunk, CacheShape, ClosKind};
use crate::miss_curve::tests::compose;
use crate::time_curve::{CpiModel, Work};

pub(crate) const LINES_PER_WAY: f64 = 20_480.0;

/// A profile of one run: millions of instructions, thousands of accesses and of misses by way.
pub(crate) fn profile(minstr: f64, accesses: f64, misses: &[f64]) -> Arc<SharingProfile> {
    let curve = MissCurve::new(accesses * 1e3, misses.iter().map(|misses| misses * 1e3).collect()).unwrap();
    let model = CpiModel {
        cycles_per_instruction: 0.5,
        hit_cycles: 20.0,
        miss_cycles: 200.0,
        neighbour_miss_cycles: None,
        megahertz: 2400.0,
    };
    let work = Work { instructions: minstr * 1e6, neighbour_share: 0.0 };
    let times = TimeCurve::from_misses(&curve, &work, &model).unwrap();
    Arc::new(SharingProfile::new(&curve, &times, LINES_PER_WAY).unwrap())
}

/// Curves of the shapes that traced functions have: a recogniser that wants all, a blur that wants seven ways, a
/// stream.
pub(crate) fn speech() -> Arc<SharingProfile> {
    let misses = [44391., 34369., 25065., 18001., 13035., 9585., 7128., 5338., 4005., 3010., 2268.];
    profile(3044.0, 51100.0, &misses)
}

pub(crate) fn blur() -> Arc<SharingProfile> {
    profile(1762.0, 1069.0, &[1043., 981., 879., 744., 600., 466., 354., 263., 194., 142., 102.])
}

pub(crate) fn stream() -> Arc<SharingProfile> {
    profile(114.0, 14717.0, &[14717.; 11])
}

pub(crate) const SHAPE: CacheShape =
    CacheShape { ways: Ways(11), classes: 8, min_ways: Ways(1), shareable: WayMask::from_bits(0x600) };

fn shares(masks: &[u32], members: &[(usize, &SharingProfile)]) -> Vec<f32> {
    let classes = masks.iter().map(|&bits| (ClosKind::Cluster, WayMask::from_bits(bits)));
    let layout = ClosLayout::new(SHAPE, classes, BeyondChunk::DefaultClass).unwrap();
    let regions = Regions::of(&layout);
    let members: Vec<_> = members.iter().map(|&(class, profile)| Member { class, profile, count: 1.0 }).collect();
    let mut shares = regions.start(&members);
    regions.settle(&members, &mut shares, 40, ALL_CLASSES);
    shares.ways
}

#[test]
fn alone_a_function_holds_its_class() {
    for profile in [speech(), blur(), stream()] {
        assert!((shares(&[0x7ff, 0xf], &[(2, &profile)])[0] - 4.0).abs() < 1e-3);
    }
}

#[test]
fn who_is_seldom_there_still_holds_its_class_when_it_is() {
    let (blur, stream) = (blur(), stream());
    let regions = Regions::whole(Ways(6));
    let seldom = |count| {
        let members = [Member { class: 0, profile: &blur, count: 1.0 }, Member { class: 0, profile: &stream, count }];
        let mut shares = regions.start(&members);
        regions.settle(&members, &mut shares, 40, ALL_CLASSES);
        shares.ways
    };
    let alone = [Member { class: 0, profile: &blur, count: 0.1 }];
    let mut share = regions.start(&alone);
    regions.settle(&alone, &mut share, 40, ALL_CLASSES);
    assert!((share.ways[0] - 6.0).abs() < 1e-3, "{:?}", share.ways);
    assert!(seldom(0.1)[0] > seldom(1.0)[0], "a rare neighbour takes less on average");
}

#[test]
fn a_class_that_does_not_move_goes_on_filling() {
    let (speech, stream) = (speech(), stream());
    let layout =
        ClosLayout::new(SHAPE, [(ClosKind::Cluster, WayMask::from_bits(0x7f))], BeyondChunk::DefaultClass).unwrap();
    let regions = Regions::of(&layout);
    let members: Vec<_> =
        [(0, &speech), (1, &stream)].map(|(class, profile)| Member { class, profile, count: 1.0 }).into();
    let mut shares = regions.start(&members);
    regions.settle(&members, &mut shares, 40, ALL_CLASSES);
    let mut again = shares.clone();
    regions.settle(&members, &mut again, 5, 0b01);
    assert_eq!(again.ways[1], shares.ways[1]);
    assert!((again.ways[0] - shares.ways[0]).abs() < 1e-3, "it was settled with the stream there");
    assert_eq!((regions.overlaps(0), regions.overlaps(1)), (0b11, 0b11));
}

#[test]
fn disjoint_classes_do_not_meet() {
    let found = shares(&[0x0ff, 0x700], &[(1, &speech()), (2, &stream()), (2, &stream())]);
    assert!((found[0] - 8.0).abs() < 1e-3 && (found[1] - 1.5).abs() < 1e-3, "{found:?}");
}

#[test]
fn a_stream_takes_more_of_a_shared_cache_than_what_it_disturbs() {
    let (speech, stream) = (speech(), stream());
    let found = shares(&[], &[(0, &speech), (0, &stream)]);
    assert!((found[0] + found[1] - 11.0).abs() < 0.01, "the cache is full: {found:?}");
    let apart = shares(&[0x0ff, 0x700], &[(1, &speech), (2, &stream)]);
    assert!(speech.slowdown(apart[0]) < speech.slowdown(found[0]), "{found:?} {apart:?}");
}

#[test]
fn one_shared_mask_is_the_equal_age_composition() {
    // The composed misses at the shares found are those that the curves' own composition gives.
    let curve = |misses: &[f64]| MissCurve::new(1000.0, misses.to_vec()).unwrap();
    let curves = [curve(&[900., 500., 100., 50.]), curve(&[990.; 4])];
    let flat = TimeCurve::new(vec![1000.0; 4]).unwrap();
    let profiles: Vec<_> = curves.iter().map(|c| SharingProfile::new(c, &flat, 100.0).unwrap()).collect();
    let layout = ClosLayout::unpartitioned(CacheShape { ways: Ways(4), ..SHAPE }).unwrap();
    let members: Vec<_> = profiles.iter().map(|profile| Member { class: 0, profile, count: 1.0 }).collect();
    let regions = Regions::of(&layout);
    let mut shares = regions.start(&members);
    regions.settle(&members, &mut shares, 60, ALL_CLASSES);
    let mine: f64 = curves.iter().zip(&shares.ways).map(|(curve, share)| curve.misses_at(f64::from(*share))).sum();
    let composed = compose(&curves).misses(Ways(4));
    assert!((mine - composed).abs() < 0.02 * composed, "{mine} {composed} {:?}", shares.ways);
}

#[test]
fn an_overlapping_class_loses_only_where_it_overlaps() {
    let (speech, stream) = (speech(), stream());
    // The recogniser may use every way, the stream two of them: it keeps more than the nine that are its own.
    let found = shares(&[0x600], &[(0, &speech), (1, &stream)]);
    assert!(found[0] > 9.0 && found[0] < 11.0 && found[0] + found[1] < 11.01, "{found:?}");
}
