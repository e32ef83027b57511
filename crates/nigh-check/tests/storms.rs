//! Whole clusters in storms: no promise breaks, each kind of fault strikes, and what is left out is missed.
//! `nigh experiment storm` plays thousands.

use nigh_check::storm::{Duty, LeftOut, StormEnd, Strikes, shrink, storm, traced};
use nigh_protocol::Rule;

/// Storms that a test plays until a rule is missed.
const SEEDS_MAX: u64 = 400;

fn missed(left_out: LeftOut) -> u64 {
    missed_from(0, left_out)
}

fn missed_from(first: u64, left_out: LeftOut) -> u64 {
    let found = (first..first + SEEDS_MAX).find(|seed| storm(*seed, left_out).violation.is_some());
    found.unwrap_or_else(|| panic!("{left_out:?} is not missed in {SEEDS_MAX} storms from {first}"))
}

#[test]
fn no_storm_breaks_a_promise_and_every_kind_of_fault_strikes() {
    let (mut strikes, mut operations) = (Strikes::default(), 0);
    for seed in 0..300 {
        let StormEnd { violation, strikes: struck, operations: done, .. } = storm(seed, LeftOut::Nothing);
        assert_eq!(violation, None, "nigh experiment storm --seed {seed} --trace");
        strikes.join(&struck);
        operations += done;
    }
    assert!(strikes.iter().all(|(_, count)| count > 0), "{strikes:?}");
    assert!(operations > 50_000, "{operations}");
}

#[test]
fn equal_seeds_are_equal_storms() {
    let (one, again, other) = (traced(5, LeftOut::Nothing), traced(5, LeftOut::Nothing), storm(6, LeftOut::Nothing));
    assert_eq!(one, again);
    assert_eq!(one.trace_hash, storm(5, LeftOut::Nothing).trace_hash, "to tell it changes nothing");
    assert!(one.trace.len() > 100 && one.trace_hash != other.trace_hash);
}

#[test]
fn rules_that_are_left_out_are_missed() {
    for rule in [Rule::Gate, Rule::EpochFlush, Rule::Floor, Rule::RequestIds, Rule::FateOfPuts, Rule::NewIncarnation] {
        missed(LeftOut::Rule(rule));
    }
}

#[test]
fn a_duty_of_those_who_drive_the_machines_is_missed() {
    // The first of all storms that miss it is 1,355.
    missed_from(1_200, LeftOut::Duty(Duty::CheckedAnswerStands));
}

#[test]
fn a_storm_that_breaks_something_is_made_small_and_breaks_the_same() {
    let left_out = LeftOut::Rule(Rule::EpochFlush);
    let seed = missed(left_out);
    let whole = storm(seed, left_out).violation.unwrap();
    let small = shrink(seed, left_out).unwrap();
    assert_eq!(small.end.violation.as_ref().unwrap().breach, whole.breach);
    assert!(small.faults.len() < 8 && !small.end.trace.is_empty(), "{:?}", small.faults);
    assert_eq!(shrink(seed, LeftOut::Nothing), None);
}
