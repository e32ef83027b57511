use nigh_terms::{Epoch, Sequence};

use super::*;

fn version(sequence: u64) -> Version {
    Version { epoch: Epoch(1), sequence: Sequence(sequence) }
}

fn breach(observer: &Observer) -> Option<Breach> {
    observer.broken.as_ref().map(|broken| broken.breach)
}

fn write(observer: &mut Observer, author: Author, object: Object, sequence: u64) -> Op {
    let op = observer.begins(author, object);
    observer.happens(object, version(sequence), op, false);
    observer.acknowledged(author, op, version(sequence));
    op
}

#[test]
fn a_history_as_it_should_be_breaks_nothing() {
    let mut observer = Observer::new(1);
    let writer = observer.author(0, false);
    let op = write(&mut observer, writer, 0, 1);
    observer.ends(writer, false);
    let reader = observer.author(0, false);
    observer.reads(reader, 0, version(1), Some(op));
    observer.listed(reader, &[(0, true), (1, false)]);
    assert_eq!(observer.broken, None);
}

#[test]
fn who_reads_what_a_client_outside_wrote_need_not_see_what_that_had() {
    let shown_old = |from_outside: bool| {
        let mut observer = Observer::new(1);
        let writer = observer.author(0, false);
        let first = write(&mut observer, writer, 0, 1);
        observer.ends(writer, false);
        let reader = observer.author(0, false);
        let second = observer.author(0, false);
        write(&mut observer, second, 0, 2);
        observer.ends(second, false);
        let third = observer.author(0, from_outside);
        let other = write(&mut observer, third, 1, 1);
        observer.reads(reader, 1, version(1), Some(other));
        observer.reads(reader, 0, version(1), Some(first));
        breach(&observer)
    };
    assert_eq!(shown_old(false), Some(Breach::Promise(Promise::P6)));
    assert_eq!(shown_old(true), None, "it carries no token");
}

#[test]
fn each_promise_is_broken_by_the_history_that_breaks_it() {
    let old = |dispatched_after: bool| {
        let mut observer = Observer::new(1);
        let writer = observer.author(0, false);
        let first = write(&mut observer, writer, 0, 1);
        write(&mut observer, writer, 0, 2);
        let early = observer.author(0, false);
        observer.ends(writer, false);
        let reader = if dispatched_after { observer.author(0, false) } else { early };
        observer.reads(reader, 0, version(1), Some(first));
        breach(&observer)
    };
    assert_eq!(old(true), Some(Breach::Promise(Promise::P1)));
    assert_eq!(old(false), None, "who was dispatched before may see what was before");

    let mut observer = Observer::new(1);
    let author = observer.author(0, false);
    let first = write(&mut observer, author, 0, 1);
    write(&mut observer, author, 0, 2);
    let other = observer.author(0, false);
    observer.reads(other, 0, version(2), Some(first));
    assert_eq!(breach(&observer), Some(Breach::Promise(Promise::P2)), "the bytes of another version");

    let mut observer = Observer::new(1);
    let author = observer.author(0, false);
    let op = write(&mut observer, author, 0, 1);
    observer.happens(0, version(2), op, false);
    assert_eq!(breach(&observer), Some(Breach::Promise(Promise::P3)), "it took place twice");

    let mut observer = Observer::new(1);
    let (author, reader) = (observer.author(0, false), observer.author(0, false));
    let first = write(&mut observer, author, 0, 1);
    let second = write(&mut observer, author, 0, 2);
    observer.reads(reader, 0, version(2), Some(second));
    observer.reads(reader, 0, version(1), Some(first));
    assert_eq!(breach(&observer), Some(Breach::Promise(Promise::P4)));

    let mut observer = Observer::new(1);
    let author = observer.author(0, false);
    let op = observer.begins(author, 0);
    observer.acknowledged(author, op, version(1));
    assert_eq!(breach(&observer), Some(Breach::Promise(Promise::P5)), "acknowledged, and in no ledger");

    let mut observer = Observer::new(1);
    let (author, reader) = (observer.author(0, false), observer.author(0, false));
    write(&mut observer, author, 0, 1);
    let effect = write(&mut observer, author, 1, 2);
    observer.reads(reader, 1, version(2), Some(effect));
    observer.reads(reader, 0, Version::OUTSIDE, None);
    assert_eq!(breach(&observer), Some(Breach::Promise(Promise::P6)), "the effect without its cause");

    let mut observer = Observer::new(1);
    let author = observer.author(0, false);
    write(&mut observer, author, 0, 1);
    observer.listed(author, &[(0, false)]);
    assert_eq!(breach(&observer), Some(Breach::Listing));
}

#[test]
fn what_outsiders_wrote_is_no_older_than_what_was_heard_of() {
    let mut observer = Observer::new(1);
    let (first, second) = (observer.outsider_wrote(3), observer.outsider_wrote(3));
    let author = observer.author(0, false);
    observer.reads(author, 3, Version::OUTSIDE, Some(second));
    observer.reads(author, 3, Version::OUTSIDE, Some(first));
    assert_eq!(observer.broken, None, "nobody has told Nigh");
    observer.happens(3, version(1), second, false);
    observer.reads(author, 3, version(1), Some(first));
    assert_eq!(breach(&observer), Some(Breach::Promise(Promise::P2)));
}
