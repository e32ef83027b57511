use std::time::Duration;

use nigh_terms::ByteSize;

use super::*;
use nigh_functions::test_support::function;

const SECOND: u64 = 1_000_000_000;

fn tasks(name: &str) -> Members {
    Members::Cgroup(name.into())
}

fn readings(occupancy: Counter, local: u64) -> Readings {
    let counters =
        DomainCounters { occupancy: Some(occupancy), total: None, local: Some(Counter::Bytes(ByteSize(local))) };
    BTreeMap::from([(CacheDomain(0), counters)])
}

fn bytes(bytes: u64) -> Counter {
    Counter::Bytes(ByteSize(bytes))
}

fn monitored(renamed: bool) -> BindResult {
    BindResult { monitored: true, renamed, ..BindResult::default() }
}

/// One counted sandbox of `f` in class 3, and its place.
fn counted() -> (CountedSandboxes, CountedPlace) {
    let mut counted = CountedSandboxes::new(2);
    counted.watch(&tasks("a"), SandboxId::random(), &function("f"));
    assert_eq!(counted.monitor_of(&tasks("a")), None, "its group does not stand yet");
    counted.moved(&tasks("a"), ClosId(3), &BindResult::default());
    let place = counted.unmade().remove(0);
    assert!(place.clos == ClosId(3) && counted.is_unmade(&place));
    counted.moved(&place.tasks, ClosId(3), &monitored(false));
    assert_eq!(counted.standing(), std::slice::from_ref(&place));
    (counted, place)
}

#[test]
fn two_readings_a_second_apart_are_bytes_a_second() {
    let (mut counted, place) = counted();
    counted.take(&place, Monotonic(SECOND), readings(bytes(4096), 1000));
    let first = counted.by_function().remove(0);
    assert_eq!(first.occupancy_bytes, UseFigure::Figure(4096));
    assert_eq!(first.local_bytes_per_s, UseFigure::Word(NoFigure::NotYet));
    counted.take(&place, Monotonic(3 * SECOND), readings(bytes(0), 5000));
    let second = counted.by_function().remove(0);
    assert_eq!((second.occupancy_bytes, second.local_bytes_per_s), (UseFigure::Figure(0), UseFigure::Figure(2000)));
    assert_eq!(second.total_bytes_per_s, UseFigure::Word(NoFigure::NotCounted));
    assert_eq!(Monotonic(3 * SECOND).since(Monotonic(SECOND)), Duration::from_secs(2));
}

#[test]
fn sandboxes_of_one_function_are_summed_and_a_word_stands_only_where_no_figure_does() {
    let (mut counted, first) = counted();
    counted.watch(&tasks("b"), SandboxId::random(), &function("f"));
    let second = counted.unmade().remove(0);
    counted.moved(&second.tasks, second.clos, &monitored(false));
    counted.take(&first, Monotonic(1), readings(Counter::Unavailable, 1));
    assert_eq!(counted.by_function()[0].occupancy_bytes, UseFigure::Word(NoFigure::Unavailable));
    counted.take(&second, Monotonic(1), readings(bytes(70), 1));
    let all = counted.by_function();
    assert_eq!((all.len(), all[0].sandboxes, all[0].occupancy_bytes), (1, 2, UseFigure::Figure(70)));
}

#[test]
fn a_sandbox_beyond_the_limit_waits_until_another_has_ended() {
    let (mut counted, first) = counted();
    for name in ["b", "c"] {
        counted.watch(&tasks(name), SandboxId::random(), &function("g"));
    }
    let second = counted.unmade();
    assert_eq!(second.len(), 1, "two at most, and one stands");
    counted.moved(&second[0].tasks, second[0].clos, &monitored(false));
    assert!(counted.unmade().is_empty());
    let g = counted.by_function().remove(1);
    assert_eq!((g.sandboxes, g.counted), (2, 1));
    counted.forget(&first.tasks);
    assert_eq!(counted.unmade().len(), 1);
}

#[test]
fn a_renamed_group_counts_on_and_a_new_one_from_anew() {
    for (renamed, expected) in [(true, UseFigure::Figure(100)), (false, UseFigure::Word(NoFigure::NotYet))] {
        let (mut counted, place) = counted();
        counted.take(&place, Monotonic(SECOND), readings(bytes(1), 100));
        assert!(counted.monitor_of(&place.tasks).is_some());
        counted.moved(&place.tasks, ClosId(5), &monitored(renamed));
        // What was read in the class that it left says nothing.
        counted.take(&place, Monotonic(2 * SECOND), readings(bytes(9), 900));
        assert_eq!(counted.by_function()[0].occupancy_bytes, UseFigure::Figure(1));
        let there = counted.standing().remove(0);
        counted.take(&there, Monotonic(2 * SECOND), readings(bytes(2), 200));
        assert_eq!(counted.by_function()[0].local_bytes_per_s, expected);
    }
}

#[test]
fn who_was_in_a_class_that_is_gone_gets_a_new_group_in_the_default_class() {
    let (mut counted, place) = counted();
    counted.removed(|clos| clos == ClosId(3));
    assert_eq!(counted.unmade(), [CountedPlace { clos: ClosId::DEFAULT, ..place.clone() }]);
    counted.astray(&place.tasks);
    assert!(counted.unmade().is_empty() && counted.standing().is_empty(), "nobody knows where it is");
    assert_eq!(counted.forget(&place.tasks), Some(place.monitor));
    assert!(counted.by_function().is_empty());
}

#[test]
fn a_figure_is_a_number_in_json_and_a_word_a_text() {
    let figures = [UseFigure::Figure(7), UseFigure::Word(NoFigure::Unavailable), UseFigure::Word(NoFigure::NotYet)];
    let text = serde_json::to_string(&figures).unwrap();
    assert_eq!(text, r#"[7,"Unavailable","not yet"]"#);
    assert_eq!(serde_json::from_str::<Vec<UseFigure>>(&text).unwrap(), figures);
}
