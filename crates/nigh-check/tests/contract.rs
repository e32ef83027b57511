//! The contract holds in every order of events, and each of its rules is needed.

use std::time::Duration;

#[test]
fn try_all() {
    for weak in nigh_check::weakenings() {
        let explored = nigh_check::explore(&weak.configuration, Duration::from_secs(20), true);
        println!(
            "{:24?} {:?} {:8} {} {:?} {:?}",
            weak.configuration.without.0,
            weak.shows,
            explored.states,
            explored.complete,
            explored.took,
            explored.violations.iter().map(|v| (v.promise, v.events.len())).collect::<Vec<_>>()
        );
        if weak.shows == nigh_check::Missed::Stuck {
            println!("{:?}", nigh_check::find_stuck(&weak.configuration, 300_000));
        }
    }
    for config in nigh_check::configurations().into_iter().chain(nigh_check::long_configurations()) {
        let explored = nigh_check::explore(&config, Duration::from_secs(20), false);
        println!(
            "{:24} {:8} depth {:3} complete {} {:?} {:?}",
            config.name, explored.states, explored.depth, explored.complete, explored.took, explored.violations
        );
    }
    for config in nigh_check::configurations() {
        println!("{:24} {:?}", config.name, nigh_check::find_stuck(&config, 150_000));
    }
}
