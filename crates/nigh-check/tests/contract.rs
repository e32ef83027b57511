//! The contract holds in every order of events, and each of its rules is needed. Here are the small worlds;
//! `nigh check` explores all.

use std::time::Duration;

use nigh_check::{Configuration, Limits, MutationSymptom, configurations, explore, weakenings};
use nigh_terms::ByteSize;

/// Far above what any of these takes.
const LIMITS: Limits = Limits { time: Duration::from_secs(300), memory: ByteSize::gib(8) };
/// Worlds of a few thousand states.
const SMALL: [&str; 9] = [
    "coalescing",
    "eviction",
    "two-objects",
    "kill",
    "deletes",
    "forgetting",
    "chain",
    "resident-loads",
    "two-residents",
];

fn small() -> impl Iterator<Item = Configuration> {
    let found: Vec<Configuration> =
        configurations().into_iter().filter(|config| SMALL.contains(&config.name)).collect();
    assert_eq!(found.len(), SMALL.len());
    found.into_iter()
}

#[test]
fn no_promise_is_broken_in_any_order_of_events_and_what_was_begun_can_be_finished() {
    for config in small() {
        let explored = explore(&config, &LIMITS);
        assert!(explored.violations.is_empty(), "{}: {:#?}", config.name, explored.violations);
        assert!(explored.complete && explored.states > 100, "{}: {explored:?}", config.name);
        let stuck = explored.stuck.map(|stuck| (stuck.writes, stuck.work));
        assert_eq!(stuck, Some((0, 0)), "{}", config.name);
    }
}

#[test]
fn every_rule_that_is_left_out_is_missed() {
    for weakening in weakenings() {
        let explored = explore(&weakening.configuration, &LIMITS);
        let missed = match weakening.shows {
            MutationSymptom::Promise => !explored.violations.is_empty(),
            MutationSymptom::Stuck => explored.stuck.is_some_and(|stuck| stuck.work > 0),
        };
        assert!(missed, "{:?} is not missed: {explored:?}", weakening.rule);
    }
}
