use proptest::prelude::*;

use super::*;

fn xeon() -> CacheShape {
    CacheShape { ways: Ways(11), classes: 8, min_ways: Ways(1), shareable: WayMask::from_bits(0x600) }
}

#[test]
fn figure_4_is_reproduced() {
    // 11 ways, 8 CLOS, three ways for the insensitive: three single ways, four classes over eight ways from two to
    // eight, and the default.
    let layout = ClosLayout::casy(&CasyRequest::of(xeon(), Ways(3))).unwrap();
    assert_eq!(layout.classes().len(), 8);
    assert_eq!(layout.default_class().mask.bits(), 0x7ff);
    let singles: Vec<_> = layout.of_kind(ClosKind::Insensitive).map(|class| class.mask.bits()).collect();
    assert_eq!(singles, [0x100, 0x200, 0x400], "the insensitive take the ways that devices write to");
    let sizes: Vec<_> = layout.of_kind(ClosKind::Sensitive).map(|class| class.mask.count().0).collect();
    assert_eq!(sizes, [2, 4, 6, 8]);
    for way in 0..8 {
        assert!(layout.of_kind(ClosKind::Sensitive).filter(|class| class.mask.holds(way)).count() <= 3);
    }
}

#[test]
fn a_need_above_the_chunk_goes_where_the_rule_says() {
    let mut request = CasyRequest::of(xeon(), Ways(3));
    let layout = ClosLayout::casy(&request).unwrap();
    let ids = |layout: &ClosLayout, need| layout.for_sensitive(Ways(need)).map(|class| class.id.0).collect::<Vec<_>>();
    assert_eq!(ids(&layout, 7), [4, 5, 6, 7]);
    assert_eq!(ids(&layout, 11), [7]);
    request.beyond = BeyondChunk::DefaultClass;
    assert_eq!(ids(&ClosLayout::casy(&request).unwrap(), 11), [0]);
}

#[test]
fn what_cannot_be_is_refused_with_its_reason() {
    let refuse = |change: fn(&mut CasyRequest)| {
        let mut request = CasyRequest::of(xeon(), Ways(3));
        change(&mut request);
        ClosLayout::casy(&request).unwrap_err()
    };
    assert_eq!(refuse(|r| r.shape.classes = 4), LayoutRefusal::TooFewClasses { needed: 5, available: 4 });
    assert!(matches!(refuse(|r| r.shape.min_ways = Ways(2)), LayoutRefusal::Indivisible { .. }));
    assert!(matches!(refuse(|r| r.insensitive = Ways(12)), LayoutRefusal::ChunkTooLarge { .. }));
    assert!(matches!(refuse(|r| r.insensitive = Ways(10)), LayoutRefusal::ChunkTooSmall { .. }));
    assert!(matches!(refuse(|r| r.shape.ways = Ways(0)), LayoutRefusal::NoSuchCache { .. }));
    assert!(matches!(refuse(|r| r.shape.ways = Ways(33)), LayoutRefusal::NoSuchCache { .. }));
    assert!(matches!(refuse(|r| r.sharing_max = 0), LayoutRefusal::NoSharing { .. }));
    let sparse = ClosLayout::new(xeon(), [(ClosKind::Cluster, WayMask::from_bits(0x5))], BeyondChunk::LargestClass);
    assert!(matches!(sparse, Err(LayoutRefusal::BadMask { id: ClosId(1), .. })));
}

#[test]
fn the_insensitive_lie_where_devices_write() {
    let low = CacheShape { shareable: WayMask::from_bits(0x3), ..xeon() };
    let layout = ClosLayout::casy(&CasyRequest::of(low, Ways(2))).unwrap();
    assert!(layout.of_kind(ClosKind::Insensitive).all(|class| low.shareable.covers(class.mask)));
    assert!(layout.of_kind(ClosKind::Sensitive).all(|class| !low.shareable.overlaps(class.mask)));
}

proptest! {
    #[test]
    fn every_layout_keeps_its_rules(
        ways in 1_u8..=32, classes in 0_u8..=20, insensitive in 0_u8..=32, min_ways in 1_u8..=3,
        sharing_max in 1_u8..=5, overlapping: bool, shareable: u32,
    ) {
        let shape =
            CacheShape { ways: Ways(ways), classes, min_ways: Ways(min_ways), shareable: WayMask::from_bits(shareable) };
        let nesting = if overlapping { Nesting::Overlapping } else { Nesting::Laminar };
        let request = CasyRequest { nesting, sharing_max, ..CasyRequest::of(shape, Ways(insensitive)) };
        let Ok(layout) = ClosLayout::casy(&request) else { return Ok(()) };
        let masks = |kind| layout.of_kind(kind).map(|class| class.mask).collect::<Vec<_>>();
        let (singles, sensitive) = (masks(ClosKind::Insensitive), masks(ClosKind::Sensitive));
        prop_assert!(layout.classes().len() <= usize::from(classes));
        prop_assert_eq!(masks(ClosKind::Default), vec![WayMask::contiguous(0, Ways(ways))]);
        prop_assert_eq!(singles.len(), usize::from(insensitive / min_ways));
        for (at, mask) in singles.iter().enumerate() {
            prop_assert_eq!(mask.count(), Ways(min_ways));
            prop_assert!(singles[at + 1..].iter().chain(&sensitive).all(|other| !mask.overlaps(*other)));
        }
        for way in 0..ways {
            let users = sensitive.iter().filter(|mask| mask.holds(way)).count();
            prop_assert!(users <= usize::from(sharing_max));
            prop_assert!(users > 0 || singles.iter().any(|mask| mask.holds(way)), "way {} is in no class", way);
        }
        for (at, mask) in sensitive.iter().enumerate() {
            for other in &sensitive[at + 1..] {
                prop_assert!(mask.count() != other.count());
                let nested = mask.covers(*other) || other.covers(*mask) || !mask.overlaps(*other);
                prop_assert!(overlapping || nested);
            }
        }
    }
}
