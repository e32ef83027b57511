//! The contract holds in every order of events, and each of its rules is needed. Here are the small worlds;
//! `nigh check` explores all.

use std::time::Duration;

use nigh_check::{Configuration, Missed, configurations, explore, find_stuck, weakenings};

/// Far above what any of these takes.
const LIMIT: Duration = Duration::from_secs(300);
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
const STATES_MAX: usize = 100_000;

fn small() -> impl Iterator<Item = Configuration> {
    let found: Vec<Configuration> =
        configurations().into_iter().filter(|config| SMALL.contains(&config.name)).collect();
    assert_eq!(found.len(), SMALL.len());
    found.into_iter()
}

#[test]
fn no_promise_is_broken_in_any_order_of_events() {
    for config in small() {
        let explored = explore(&config, LIMIT, false);
        assert!(explored.violations.is_empty(), "{}: {:#?}", config.name, explored.violations);
        assert!(explored.complete && explored.states > 100, "{}: {explored:?}", config.name);
    }
}

#[test]
fn whatever_happened_work_that_was_begun_can_be_finished() {
    for config in small() {
        let stuck = find_stuck(&config, STATES_MAX).unwrap_or_else(|| panic!("{} has grown", config.name));
        assert_eq!((stuck.writes, stuck.work), (0, 0), "{}", config.name);
    }
}

#[test]
fn every_rule_that_is_left_out_is_missed() {
    for weakening in weakenings() {
        let config = &weakening.configuration;
        match weakening.shows {
            Missed::Promise => {
                let explored = explore(config, LIMIT, true);
                assert!(!explored.violations.is_empty(), "{:?} is not missed: {explored:?}", weakening.rule);
            }
            Missed::Stuck => {
                let stuck = find_stuck(config, STATES_MAX);
                assert!(stuck.is_some_and(|stuck| stuck.work > 0), "{:?}: {stuck:?}", weakening.rule);
            }
        }
    }
}
