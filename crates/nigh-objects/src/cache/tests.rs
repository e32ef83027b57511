use nigh_data::NamePrint;
use nigh_terms::{BucketName, Namespace, ObjectKey};
use proptest::prelude::*;

use super::*;

fn object(namespace: &str, key: u8) -> ObjectId {
    ObjectId {
        namespace: Namespace::new(namespace).unwrap(),
        bucket: BucketName::new("bucket").unwrap(),
        key: ObjectKey::new(&format!("k{key}")).unwrap(),
    }
}

const fn bytes(bytes: u64) -> Cost {
    Cost { bytes, segments: 1 }
}

fn shelf(budget: u64, segments: u64) -> Shelf<u64> {
    Shelf::new(Shards::ONE, Cost { bytes: budget, segments })
}

fn keep(shelf: &mut Shelf<u64>, object: &ObjectId, value: u64, cost: Cost, origin: Origin) -> Vec<u64> {
    let (granted, mut dropped) = shelf.reserve(cost, OverheadCost::default());
    assert!(granted);
    shelf.release(cost);
    dropped.extend(shelf.keep(object, value, cost, origin));
    dropped
}

fn put(shelf: &mut Shelf<u64>, object: &ObjectId, value: u64, cost: Cost) -> Vec<u64> {
    keep(shelf, object, value, cost, Origin::Written)
}

fn used(shelf: &mut Shelf<u64>, object: &ObjectId) -> Option<u64> {
    shelf.touch(object).map(|(value, _)| *value)
}

#[test]
fn a_copy_of_one_namespace_does_not_serve_another() {
    let mut shelf = shelf(100, 10);
    put(&mut shelf, &object("n", 1), 42, bytes(1));
    assert_eq!((used(&mut shelf, &object("n", 1)), used(&mut shelf, &object("m", 1))), (Some(42), None));
    assert_eq!(put(&mut shelf, &object("n", 1), 43, bytes(2)), [42]);
    assert_eq!((shelf.forget(&object("n", 1)), shelf.kept(), shelf.copies()), (Some(43), Cost::default(), 0));
}

#[test]
fn who_follows_the_copies_knows_them_from_whatever_they_were_told() {
    let mut shelf = shelf(10_000, 10_000);
    (0..20).for_each(|key| drop(put(&mut shelf, &object("n", key), 0, bytes(10))));
    let (mut known, mut cursor) = (std::collections::BTreeMap::new(), HoldingsCursor::default());
    for round in 0..40_u8 {
        let page = shelf.holdings(cursor, 3);
        if page.anew {
            known.clear();
        }
        for change in page.changes {
            match change.bytes {
                Some(bytes) => drop(known.insert(change.object, bytes)),
                None => drop(known.remove(&change.object)),
            }
        }
        // One page in four does not arrive.
        cursor = if round % 4 == 3 { cursor } else { page.cursor };
        if round < 20 {
            shelf.forget(&object("n", round));
            drop(put(&mut shelf, &object("n", 100 + round % 3), 0, bytes(u64::from(round) + 1)));
        }
    }
    let held: std::collections::BTreeMap<_, _> =
        [(100, 19), (101, 20), (102, 18)].map(|(key, bytes)| (NamePrint::of(&object("n", key)), bytes)).into();
    assert_eq!(known, held);
}

#[test]
fn the_largest_copies_of_a_namespace_are_found_however_the_shelf_is_walked() {
    let mut shelf = shelf(10_000, 10_000);
    (0..40).for_each(|key| drop(put(&mut shelf, &object("n", key), 0, bytes(10 + u64::from(key)))));
    put(&mut shelf, &object("m", 1), 0, bytes(5_000));
    shelf.forget(&object("n", 39));
    for slots in [1, 7, 1000] {
        let mut largest = LargestCopies::new(&Namespace::new("n").unwrap(), 3);
        let mut next = Some(0);
        while let Some(from) = next {
            next = shelf.offer_to(&mut largest, from, slots);
        }
        let found: Vec<_> = largest.found().into_iter().map(|one| (one.object, one.bytes)).collect();
        assert_eq!(found, [38, 37, 36].map(|key| (object("n", key), 10 + u64::from(key))), "{slots} slots at a time");
    }
    let mut none = LargestCopies::new(&Namespace::new("n").unwrap(), 0);
    assert_eq!((shelf.offer_to(&mut none, 0, 1000), none.found().len()), (None, 0));
}

#[test]
fn what_was_written_and_not_read_goes_before_what_was_read() {
    let mut shelf = shelf(30, 10);
    for key in 1..=3 {
        put(&mut shelf, &object("n", key), u64::from(key), bytes(10));
    }
    assert_eq!(used(&mut shelf, &object("n", 1)), Some(1));
    assert_eq!(put(&mut shelf, &object("n", 4), 4, bytes(10)), [2]);
    assert_eq!(shelf.set_budget(Cost { bytes: 10, segments: 10 }, OverheadCost::default()), [3, 4]);
    assert_eq!(shelf.set_budget(Cost { bytes: 9, segments: 10 }, OverheadCost::default()), [1]);
}

#[test]
fn what_is_given_back_spares_held_copies_and_takes_ephemeral_ones_last() {
    let mut shelf = shelf(100, 10);
    for key in 1..=4 {
        put(&mut shelf, &object("n", key), u64::from(key), bytes(10));
    }
    keep(&mut shelf, &object("n", 5), 5, bytes(10), Origin::Ephemeral);
    let given = shelf.give_back(15, 9, false, |value| *value == 1);
    assert_eq!((given.dropped, given.held), (vec![2, 3], 10));
    assert_eq!(used(&mut shelf, &object("n", 1)), Some(1));
    let given = shelf.give_back(100, 2, false, |value| *value == 1);
    assert_eq!((given.dropped, given.held, given.looked), (vec![4], 10, 2));
    let given = shelf.give_back(100, 9, true, |value| *value == 1);
    assert_eq!((given.dropped, given.held), (vec![5], 10));
    assert_eq!((shelf.copies(), shelf.kept()), (1, bytes(10)));
}

#[test]
fn the_number_of_segments_is_limited_too() {
    let mut shelf = shelf(1000, 2);
    for key in 1..=3 {
        put(&mut shelf, &object("n", key), u64::from(key), bytes(1));
    }
    assert_eq!(shelf.copies(), 2);
}

#[test]
fn what_readers_still_hold_counts_against_the_budget() {
    let mut shelf = shelf(30, 10);
    put(&mut shelf, &object("n", 1), 1, bytes(10));
    let held = |lingering| OverheadCost { lingering: bytes(lingering), slack: Cost::default() };
    assert_eq!(shelf.reserve(bytes(10), held(25)), (false, vec![]));
    assert_eq!(shelf.reserve(bytes(10), held(20)), (true, vec![1]));
}

#[test]
fn what_goes_with_the_copies_makes_room_by_their_going_and_refuses_nothing() {
    let mut shelf = shelf(30, 10);
    put(&mut shelf, &object("n", 1), 1, bytes(5));
    put(&mut shelf, &object("n", 2), 2, bytes(5));
    let beyond = OverheadCost { lingering: Cost::default(), slack: bytes(15) };
    assert_eq!(shelf.reserve(bytes(10), beyond), (true, vec![1]));
}

#[derive(Clone, Debug)]
enum Step {
    Keep(u8, u64),
    Use(u8),
    Forget(u8),
    Budget(u64, u64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0u8..4, 1u64..40).prop_map(|(key, cost)| Step::Keep(key, cost)),
        3 => (0u8..4).prop_map(Step::Use),
        1 => (0u8..4).prop_map(Step::Forget),
        1 => (0u64..120, 0u64..5).prop_map(|(bytes, segments)| Step::Budget(bytes, segments)),
    ]
}

proptest! {
    #[test]
    fn a_shelf_is_never_above_its_budget_and_has_what_was_kept_last(
        steps in prop::collection::vec(step(), 0..120),
    ) {
        let mut shelf = shelf(100, 4);
        let mut last = [None; 4];
        for (value, step) in (0u64..).zip(steps) {
            match step {
                Step::Keep(key, cost) => {
                    if shelf.reserve(bytes(cost), OverheadCost::default()).0 {
                        shelf.release(bytes(cost));
                        shelf.keep(&object("n", key), value, bytes(cost), Origin::Read);
                        last[usize::from(key)] = Some(value);
                    }
                }
                Step::Use(key) => {
                    let copy = used(&mut shelf, &object("n", key));
                    prop_assert!(copy.is_none() || copy == last[usize::from(key)]);
                }
                Step::Forget(key) => {
                    shelf.forget(&object("n", key));
                    last[usize::from(key)] = None;
                }
                Step::Budget(bytes, segments) => {
                    shelf.set_budget(Cost { bytes, segments }, OverheadCost::default());
                }
            }
            prop_assert!(shelf.kept().plus(shelf.reserved()).fits(shelf.budget()));
            prop_assert_eq!(shelf.reserved(), Cost::default());
            prop_assert_eq!(shelf.kept().segments as usize, shelf.copies());
        }
    }
}
