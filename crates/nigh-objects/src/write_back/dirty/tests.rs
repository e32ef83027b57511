//! Unpushed writes, and the order in which they are pushed.

use std::collections::BTreeMap;
use std::sync::Arc;

use nigh_data::{Attributes, ETag, ObjectMeta};
use nigh_terms::{Epoch, Sequence, Timestamp, Token};
use proptest::prelude::*;

use super::*;

const LIMITS: DirtyLimits = DirtyLimits {
    bytes: 1000,
    objects: 10,
    delay: Duration::from_secs(1),
    back_off: Duration::from_secs(2),
    back_off_max: Duration::from_secs(60),
    lands_within: Duration::from_secs(900),
};

fn object(key: &str) -> ObjectId {
    ObjectId {
        namespace: Namespace::new("n").unwrap(),
        bucket: BucketName::new("bucket").unwrap(),
        key: ObjectKey::new(key).unwrap(),
    }
}

const fn version(sequence: u64) -> Version {
    Version { epoch: Epoch(1), sequence: Sequence(sequence) }
}

const fn second(seconds: u64) -> Monotonic {
    Monotonic(seconds * 1_000_000_000)
}

fn meta(size: u64, etag: &str) -> Arc<ObjectMeta> {
    Arc::new(ObjectMeta {
        size,
        etag: ETag(etag.to_owned()),
        modified: Timestamp(0),
        attributes: Attributes::default(),
        tags: BTreeMap::new(),
        checksums: Vec::new(),
        parts: Vec::new(),
        version: Version::OUTSIDE,
        token: Token::empty(),
    })
}

fn put(dirty: &mut WriteBackQueue, key: &str, sequence: u64, now: Monotonic) -> TrimmableVersions {
    let becomes = ObjectState::Put(meta(10, &sequence.to_string()));
    dirty.write(&object(key), version(sequence), WriteMode::Lazy, becomes, PossibleBases::default(), now)
}

fn holds(sequence: u64) -> Base {
    Base::Holds(ETag(sequence.to_string()))
}

fn push(dirty: &mut WriteBackQueue, now: Monotonic) -> Push {
    match dirty.next(now, false) {
        NextPush::Push(push) => *push,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_newer_write_replaces_one_that_waits_and_lets_its_record_go() {
    let mut dirty = WriteBackQueue::new(LIMITS);
    assert_eq!(put(&mut dirty, "a", 1, second(0)), []);
    assert_eq!(put(&mut dirty, "a", 2, second(0)), [version(1)]);
    assert_eq!(dirty.next(second(0), false), NextPush::At(second(1)));
    let pushed = push(&mut dirty, second(1));
    assert_eq!((pushed.version, pushed.base), (version(2), Base::Unknown));
    assert_eq!(dirty.pushed(&object("a"), version(2), holds(2), second(1)), [version(2)]);
    assert_eq!((dirty.next(second(9), false), dirty.usage(second(9))), (NextPush::Idle, DirtyUsage::default()));
}

#[test]
fn a_write_during_a_push_is_pushed_after_it_onto_what_it_left() {
    let mut dirty = WriteBackQueue::new(LIMITS);
    put(&mut dirty, "a", 1, second(0));
    let first = push(&mut dirty, second(1));
    assert_eq!(put(&mut dirty, "a", 2, second(1)), [], "the record of what is being pushed stays");
    assert_eq!(dirty.next(second(9), true), NextPush::Idle, "one push of an object at a time");
    assert_eq!(dirty.pushed(&object("a"), first.version, holds(1), second(2)), [version(1)]);
    let next = push(&mut dirty, second(3));
    assert_eq!((next.version, next.base), (version(2), holds(1)));
}

#[test]
fn a_notice_of_others_asks_for_a_push_and_where_nothing_was_to_be_replaced_the_write_gives_way() {
    let (mut dirty, a) = (WriteBackQueue::new(LIMITS), object("a"));
    assert!(!dirty.noticed(&a, &holds(9)), "nothing waits");
    let below = PossibleBases { base: holds(7), attempts: vec![holds(8)] };
    let becomes = ObjectState::Put(meta(10, "1"));
    dirty.write(&a, version(1), WriteMode::Lazy, becomes, below, second(0));
    for ours in [1, 7, 8] {
        assert!(!dirty.noticed(&a, &holds(ours)), "{ours}");
    }
    assert!(dirty.noticed(&a, &holds(9)) && dirty.noticed(&a, &Base::Absent));
    let first = push(&mut dirty, second(1));
    assert!(!first.contested, "the store shows that what it was to replace is gone");
    dirty.pushed(&a, version(1), holds(1), second(1));
    for (name, number, change) in [("b", 2, Base::Absent), ("c", 3, holds(9))] {
        let below = PossibleBases { base: Base::Absent, ..PossibleBases::default() };
        let becomes = ObjectState::Put(meta(10, &number.to_string()));
        dirty.write(&object(name), version(number), WriteMode::Lazy, becomes, below, second(1));
        assert!(dirty.noticed(&object(name), &change));
        assert!(push(&mut dirty, second(2)).contested, "{name}");
    }
}

#[test]
fn a_failed_push_waits_twice_as_long_each_time_and_holds_no_other_up() {
    let mut dirty = WriteBackQueue::new(LIMITS);
    put(&mut dirty, "a", 1, second(0));
    let mut now = second(1);
    for wait in [2, 4, 8, 16, 32, 60, 60] {
        push(&mut dirty, now);
        dirty.failed(&object("a"), version(1), Some(holds(1)), None, now);
        assert_eq!(dirty.next(now, true), NextPush::At(now.after(Duration::from_secs(wait))));
        now = now.after(Duration::from_secs(wait));
    }
    dirty.want(&object("a"));
    put(&mut dirty, "b", 2, now);
    assert_eq!(push(&mut dirty, now).attempts, [holds(1)]);
    assert_eq!(push(&mut dirty, now.after(LIMITS.delay)).object, object("b"));
    assert_eq!(dirty.usage(now).failing, 1);
}

#[test]
fn an_object_waits_until_no_push_without_an_answer_can_land_over_the_last_one() {
    let mut dirty = WriteBackQueue::new(LIMITS);
    put(&mut dirty, "a", 1, second(0));
    push(&mut dirty, second(1));
    put(&mut dirty, "a", 2, second(1));
    assert_eq!(dirty.failed(&object("a"), version(1), Some(holds(1)), None, second(1)), [version(1)]);
    assert_eq!(push(&mut dirty, second(3)).version, version(2));
    assert_eq!(dirty.pushed(&object("a"), version(2), holds(2), second(3)), []);
    assert!(dirty.get(&object("a")).is_some(), "readers see it here, whatever lands");
    assert_eq!(dirty.next(second(4), false), NextPush::At(second(901)));
    let watched = DirtyUsage { objects: 1, bytes: 10, waiting_bytes: 0, watched: 1, ..DirtyUsage::default() };
    assert_eq!(dirty.usage(second(4)), watched, "it waits for nothing");
    let again = push(&mut dirty, second(901));
    assert_eq!((again.base, again.attempts), (holds(2), vec![holds(1)]));
    assert_eq!(dirty.pushed(&object("a"), version(2), holds(2), second(902)), [version(2)]);
    assert_eq!(dirty.next(second(902), false), NextPush::Idle);
}

#[test]
fn a_push_that_did_not_happen_is_not_looked_after_and_its_room_is_free_once_the_store_has_it() {
    let mut dirty = WriteBackQueue::new(LIMITS);
    put(&mut dirty, "a", 1, second(0));
    push(&mut dirty, second(1));
    dirty.failed(&object("a"), version(1), None, None, second(1));
    push(&mut dirty, second(3));
    assert_eq!(dirty.pushed(&object("a"), version(1), holds(1), second(3)), [version(1)]);
    assert_eq!(dirty.usage(second(3)), DirtyUsage::default());
}

#[test]
fn a_write_over_an_object_that_is_only_looked_after_is_pushed_when_it_is_due_itself() {
    let mut dirty = WriteBackQueue::new(LIMITS);
    put(&mut dirty, "a", 1, second(0));
    push(&mut dirty, second(1));
    dirty.failed(&object("a"), version(1), Some(holds(1)), None, second(1));
    push(&mut dirty, second(3));
    assert_eq!(dirty.pushed(&object("a"), version(1), holds(1), second(3)), []);
    assert_eq!(put(&mut dirty, "a", 2, second(5)), [version(1)]);
    assert_eq!(dirty.next(second(5), false), NextPush::At(second(6)));
    assert_eq!(push(&mut dirty, second(6)).version, version(2));
}

#[test]
fn in_a_hurry_what_is_not_due_goes_too() {
    let mut dirty = WriteBackQueue::new(LIMITS);
    put(&mut dirty, "a", 1, second(0));
    assert!(matches!(dirty.next(second(0), true), NextPush::Push(_)));
    put(&mut dirty, "b", 2, second(0));
    assert_eq!(dirty.want(&object("b")), Some(version(2)));
    assert!(matches!(dirty.next(second(0), false), NextPush::Push(_)));
}

#[test]
fn room_is_counted_in_bytes_and_objects_and_a_replaced_write_gives_its_own_back() {
    let mut dirty = WriteBackQueue::new(DirtyLimits { bytes: 25, objects: 2, ..LIMITS });
    put(&mut dirty, "a", 1, second(0));
    let has_room = |dirty: &mut WriteBackQueue, key: &str, bytes| {
        let promised = dirty.promise(&object(key), bytes);
        if promised {
            dirty.release(bytes);
        }
        promised
    };
    assert!(has_room(&mut dirty, "b", 15) && !has_room(&mut dirty, "b", 16) && has_room(&mut dirty, "a", 25));
    put(&mut dirty, "b", 2, second(0));
    assert!(!has_room(&mut dirty, "c", 0) && has_room(&mut dirty, "b", 15));
    assert_eq!(dirty.fullness(), 1.0);
}

#[test]
fn room_that_is_promised_to_one_write_is_not_promised_to_another() {
    let mut dirty = WriteBackQueue::new(DirtyLimits { bytes: 25, objects: 3, ..LIMITS });
    assert!(dirty.promise(&object("a"), 15) && !dirty.promise(&object("b"), 15));
    assert!(dirty.promise(&object("b"), 5) && dirty.promise(&object("c"), 5));
    assert!(!dirty.promise(&object("d"), 0), "three objects are promised");
    dirty.release(5);
    put(&mut dirty, "c", 1, second(0));
    assert!(!dirty.promise(&object("d"), 0), "one waits, two are promised");
    dirty.release(15);
    assert!(dirty.promise(&object("d"), 10));
}

#[test]
fn all_that_was_acknowledged_is_wanted_at_once_but_what_failed_or_came_later() {
    let mut dirty = WriteBackQueue::new(LIMITS);
    put(&mut dirty, "failed", 1, second(0));
    push(&mut dirty, second(1));
    dirty.failed(&object("failed"), version(1), None, None, second(1));
    for n in 0..3 {
        put(&mut dirty, &n.to_string(), n + 2, second(2));
    }
    dirty.want_all(second(2));
    put(&mut dirty, "later", 9, Monotonic(second(2).0 + 1));
    let now = Monotonic(second(2).0 + 2);
    for n in 0..3 {
        assert_eq!(push(&mut dirty, now).object, object(&n.to_string()));
    }
    assert_eq!(dirty.next(now, false), NextPush::At(second(3)), "the one that failed");
}

#[test]
fn an_ephemeral_object_is_never_pushed_until_a_durable_write_replaces_it() {
    let mut dirty = WriteBackQueue::new(LIMITS);
    let becomes = ObjectState::Put(meta(10, "e"));
    dirty.write(&object("a"), version(1), WriteMode::Ephemeral, becomes, PossibleBases::default(), second(0));
    assert_eq!((dirty.next(second(99), true), dirty.want(&object("a"))), (NextPush::Idle, None));
    assert_eq!(dirty.usage(second(99)), DirtyUsage { objects: 1, bytes: 10, ephemeral: 1, ..DirtyUsage::default() });
    assert_eq!(put(&mut dirty, "a", 2, second(100)), []);
    assert_eq!(dirty.next(second(100), false), NextPush::At(second(101)));
}

#[test]
fn a_lost_ephemeral_write_gives_its_room_back_and_stays_known_until_the_next_write() {
    let mut dirty = WriteBackQueue::new(LIMITS);
    let ephemeral = |dirty: &mut WriteBackQueue, sequence| {
        let becomes = ObjectState::Put(meta(900, "e"));
        dirty.write(&object("a"), version(sequence), WriteMode::Ephemeral, becomes, PossibleBases::default(), second(0))
    };
    ephemeral(&mut dirty, 1);
    assert!(!dirty.promise(&object("b"), 101));
    assert!(!dirty.lost(&object("b"), version(1)));
    assert!(dirty.lost(&object("a"), version(1)));
    assert!(dirty.promise(&object("b"), 1000));
    dirty.release(1000);
    let newest = dirty.get(&object("a")).unwrap();
    assert_eq!((newest.mode, &newest.becomes), (WriteMode::Ephemeral, &ObjectState::Lost));
    let lost = DirtyUsage { objects: 1, ephemeral: 1, lost: 1, ..DirtyUsage::default() };
    assert_eq!(dirty.usage(second(9)), lost);
    ephemeral(&mut dirty, 2);
    assert!(!dirty.lost(&object("a"), version(1)), "the copy of an older write says nothing of this one");
    assert_eq!(dirty.usage(second(9)).bytes, 900);
    put(&mut dirty, "b", 3, second(0));
    assert!(!dirty.lost(&object("b"), version(3)), "what is in the journal is not lost");
}

#[test]
fn keys_are_given_by_prefix_behind_a_marker_in_order() {
    let mut dirty = WriteBackQueue::new(LIMITS);
    for (at, key) in ["a", "b/1", "b/2", "b/3", "c"].into_iter().enumerate() {
        put(&mut dirty, key, at as u64 + 1, second(0));
    }
    let keys = |prefix, after| -> Vec<String> {
        let (namespace, bucket) = (Namespace::new("n").unwrap(), BucketName::new("bucket").unwrap());
        dirty.keys(&namespace, &bucket, prefix, after).map(|(key, _)| key.as_str().to_owned()).collect()
    };
    assert_eq!(keys("", None), ["a", "b/1", "b/2", "b/3", "c"]);
    assert_eq!(keys("b/", None), ["b/1", "b/2", "b/3"]);
    assert_eq!(keys("b/", Some("b/1")), ["b/2", "b/3"]);
    assert_eq!(keys("b/", Some("a")), ["b/1", "b/2", "b/3"]);
    assert_eq!(keys("b/", Some("c")), [""; 0]);
    assert_eq!(keys("", Some("b/\u{10ffff}")), ["c"]);
}

#[derive(Clone, Debug)]
enum Step {
    Put(u8),
    Delete(u8),
    Begin(bool),
    End(usize, bool, bool),
    Later(u64),
    Land(usize),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0u8..3).prop_map(Step::Put),
        1 => (0u8..3).prop_map(Step::Delete),
        4 => any::<bool>().prop_map(Step::Begin),
        4 => (any::<usize>(), any::<bool>(), any::<bool>()).prop_map(|(n, ok, landed)| Step::End(n, ok, landed)),
        2 => (0u64..20).prop_map(Step::Later),
        2 => any::<usize>().prop_map(Step::Land),
    ]
}

proptest! {
    /// Whatever is written, pushed, fails, or is carried out late without an answer: an object that is not unpushed has
    /// its newest state in the store; no record is trimmed while the object needs it; and in the end the store has the
    /// newest state of everything and every record is trimmed.
    #[test]
    fn what_does_not_wait_here_is_in_the_store_and_all_ends_there(steps in prop::collection::vec(step(), 0..80)) {
        let mut dirty: WriteBackQueue = WriteBackQueue::new(LIMITS);
        let mut now = second(0);
        let mut sequence = 0;
        // For each key: what was acknowledged, and what the store has (the bytes and the version of the state).
        let mut acknowledged: BTreeMap<u8, (Version, Option<u64>)> = BTreeMap::new();
        let mut stored: BTreeMap<u8, (Version, Option<u64>)> = BTreeMap::new();
        let mut records: BTreeSet<Version> = BTreeSet::new();
        let mut pushing: Vec<Push> = Vec::new();
        // Pushes without an answer, and until when they may be carried out.
        let mut late: Vec<(Monotonic, u8, Version, Option<u64>)> = Vec::new();
        let key_of = |object: &ObjectId| object.key.as_str().parse::<u8>().unwrap();
        let body = |becomes: &ObjectState| match becomes {
            ObjectState::Put(meta) => meta.etag.0.parse::<u64>().ok(),
            ObjectState::Gone | ObjectState::Lost => None,
        };
        let mut steps = steps;
        // At the end everything is pushed and answered.
        steps.extend((0..40).flat_map(|_| [Step::Land(0), Step::Later(200), Step::Begin(true), Step::End(0, true, true)]));
        for step in steps {
            let mut settled = Vec::new();
            match step {
                Step::Put(key) | Step::Delete(key) => {
                    sequence += 1;
                    let becomes = match step {
                        Step::Put(_) => ObjectState::Put(meta(1, &sequence.to_string())),
                        _ => ObjectState::Gone,
                    };
                    acknowledged.insert(key, (version(sequence), body(&becomes)));
                    records.insert(version(sequence));
                    settled = dirty.write(&object(&key.to_string()), version(sequence), WriteMode::Lazy, becomes, PossibleBases::default(), now);
                }
                Step::Begin(hurry) => {
                    if let NextPush::Push(push) = dirty.next(now, hurry) {
                        prop_assert!(pushing.iter().all(|other| other.object != push.object));
                        pushing.push(*push);
                    }
                }
                Step::End(at, ok, landed) if !pushing.is_empty() => {
                    let push = pushing.remove(at % pushing.len());
                    let key = key_of(&push.object);
                    let left = body(&push.becomes).map_or(Base::Absent, holds);
                    if !ok {
                        late.push((now.after(LIMITS.lands_within), key, push.version, body(&push.becomes)));
                    }
                    if ok || landed {
                        stored.insert(key, (push.version, body(&push.becomes)));
                    }
                    settled = if ok {
                        dirty.pushed(&push.object, push.version, left, now)
                    } else {
                        dirty.failed(&push.object, push.version, Some(left), None, now)
                    };
                }
                Step::End(..) => {}
                Step::Later(seconds) => now = now.after(Duration::from_secs(seconds)),
                Step::Land(at) => {
                    late.retain(|(until, ..)| now < *until);
                    if !late.is_empty() {
                        let (_, key, version, bytes) = late.remove(at % late.len());
                        stored.insert(key, (version, bytes));
                    }
                }
            }
            for record in settled {
                prop_assert!(records.remove(&record), "{record} went twice");
            }
            for (key, (newest, bytes)) in &acknowledged {
                if let Some(waits) = dirty.get(&object(&key.to_string())) {
                    prop_assert_eq!((waits.version, body(&waits.becomes)), (*newest, *bytes));
                    prop_assert!(records.contains(&waits.version));
                } else {
                    prop_assert_eq!(stored.get(key), Some(&(*newest, *bytes)));
                }
            }
        }
        prop_assert_eq!(dirty.usage(now), DirtyUsage::default());
        prop_assert!(records.is_empty(), "{records:?}");
    }
}
