use nigh_terms::{Epoch, Sequence};

use super::*;

fn version(sequence: u64) -> Version {
    Version { epoch: Epoch(1), sequence: Sequence(sequence) }
}

fn object(key: &str) -> ObjectName {
    (Namespace::new("tenant").unwrap(), BucketName::new("bucket").unwrap(), ObjectKey::new(key).unwrap())
}

fn chunk(place: u64) -> PieceRef {
    PieceRef { id: PieceId(place), bytes: 10, crc: 0 }
}

/// An epoch record at place 1, then one write for each key, from place 2 on.
fn index(keys: &[&str]) -> StreamIndex {
    let mut index = StreamIndex::new(1);
    assert!(index.add(1, 100));
    for (at, key) in (2..).zip(keys) {
        assert!(index.add(at, 100));
        index.add_record(version(at), object(key), at, 50, Vec::new());
    }
    index
}

#[test]
fn what_is_stored_goes_with_what_is_older_of_its_object_and_only_a_prefix_is_trimmed() {
    let mut index = index(&["a", "b", "a", "c"]);
    assert_eq!(index.trimmable(), (2, 100));
    assert!(index.stored(version(4)));
    assert_eq!(index.notices, [version(2), version(4)]);
    assert_eq!(index.trimmable(), (3, 200), "b holds the rest back");
    assert_eq!(index.oldest_needed(), Some(version(3)));
    index.trim(3);
    assert_eq!((index.trimmed(), index.bytes()), (3, 300));
    assert!(index.stored(version(3)));
    assert_eq!(index.trimmable(), (5, 200));
    assert!(!index.stored(version(3)), "it is not there any more");
    assert_eq!(index.records(), 1);
}

#[test]
fn a_place_that_is_not_known_holds_the_trim_back_until_it_is() {
    let mut index = index(&["a"]);
    assert!(index.add(5, 100));
    assert!(index.stored(version(2)));
    assert_eq!(index.unknown(), [3, 4]);
    assert_eq!(index.trimmable(), (3, 200));
    assert!(index.add(3, 100) && index.add(4, 100));
    assert!(!index.add(4, 100), "a place is given once");
    assert_eq!((index.unknown(), index.trimmable()), (vec![], (6, 500)));
    index.trim(6);
    assert!(!index.add(4, 100), "nor is one that was trimmed");
}

#[test]
fn chunks_are_needed_until_their_write_is_stored_or_nobody_names_them() {
    let mut index = StreamIndex::new(1);
    for place in 1..=4 {
        assert!(index.add(place, 20));
        index.need_chunks(&[chunk(place)]);
    }
    index.add_piece(PieceId(100), vec![chunk(1), chunk(2)]);
    index.add_piece(PieceId(101), vec![chunk(3)]);
    index.add_piece(PieceId(102), vec![chunk(4)]);
    assert_eq!(index.name_pieces(&[(PieceId(100), 20), (PieceId(7), 10)]), Err(PieceId(7)));
    assert_eq!(index.name_pieces(&[(PieceId(100), 21)]), Err(PieceId(100)));
    let named = index.name_pieces(&[(PieceId(101), 10), (PieceId(100), 20)]).unwrap();
    assert_eq!(named.iter().map(|chunk| chunk.id.0).collect::<Vec<_>>(), [3, 1, 2]);
    assert!(index.add(5, 20));
    index.add_record(version(5), object("a"), 5, 0, named);
    index.release(PieceId(100));
    assert_eq!(index.trimmable().0, 1, "a write names it");
    index.release(PieceId(102));
    let record = index.record(version(5)).unwrap();
    assert_eq!(record.body_bytes(), 30);
    assert_eq!(record.part_at(25), Some((Part::Chunk(chunk(2)), 5)));
    assert_eq!(record.part_at(30), None);
    assert!(index.stored(version(5)));
    assert_eq!(index.trimmable().0, 6);
}

#[test]
fn a_message_is_needed_until_none_of_its_writes_is() {
    let mut index = StreamIndex::new(1);
    assert!(index.add(1, 100));
    for (sequence, key) in (1..).zip(["a", "b"]) {
        index.add_record(version(sequence), object(key), 1, 10, Vec::new());
    }
    assert!(index.stored(version(1)));
    assert_eq!(index.trimmable().0, 1);
    assert!(index.stored(version(2)));
    assert_eq!(index.trimmable().0, 2);
}

#[test]
fn a_copy_frees_the_older_place_and_one_that_comes_too_late_is_not_needed() {
    let mut index = index(&["a", "b"]);
    assert!(index.add(4, 100));
    index.moved(version(2), 4, Vec::new());
    assert_eq!(index.trimmable().0, 3);
    assert!(index.stored(version(3)));
    assert_eq!(index.trimmable().0, 4, "the copy is needed");
    assert!(index.stored(version(2)) && index.add(5, 100));
    index.moved(version(2), 5, Vec::new());
    assert_eq!(index.trimmable().0, 6);
}

#[test]
fn a_write_that_was_sent_again_is_named_for_as_long_as_a_copy_may_come() {
    let mut index = index(&["a", "b"]);
    index.sent_again(version(2));
    assert_eq!(index.resent_and_stored().count(), 0);
    assert!(index.stored(version(2)));
    index.notices.clear();
    index.trim(3);
    assert_eq!(index.resent_and_stored().collect::<Vec<_>>(), [version(2)]);
}
