//! Shrinks a storm that breaks a promise: faults are left out by halves as long as a promise is still broken.

use super::plan::Plan;
use super::world::Storm;
use super::{Fault, LeftOut, StormEnd};

/// The most storms that are run to shrink one.
const TRIES_MAX: usize = 200;

/// A storm that was shrunk.
#[derive(Clone, Debug, PartialEq)]
pub struct ShrunkStorm {
    /// The remaining faults.
    pub faults: Vec<Fault>,
    /// The result with its trace.
    pub end: StormEnd,
}

/// The storm of `seed` with the fewest faults that break the same promise; none if nothing is broken.
#[must_use]
pub fn shrink(seed: u64, left_out: LeftOut) -> Option<ShrunkStorm> {
    let whole = Plan::of(seed);
    let breach = |plan: &Plan| Storm::new(plan.clone(), left_out, false).play().violation.map(|broken| broken.breach);
    let first = breach(&whole)?;
    let breaks = |plan: &Plan| breach(plan) == Some(first);
    let mut tries = 0;
    let mut try_out = |plan: &Plan| {
        tries += 1;
        tries <= TRIES_MAX && breaks(plan)
    };
    let mut small = whole;
    let mut part = small.faults.len().div_ceil(2);
    while part > 0 && !small.faults.is_empty() {
        let (mut at, mut smaller) = (0, false);
        while at < small.faults.len() {
            let mut fewer = small.clone();
            fewer.faults.drain(at..(at + part).min(small.faults.len()));
            if try_out(&fewer) {
                (small, smaller) = (fewer, true);
            } else {
                at += part;
            }
        }
        if !smaller || part > small.faults.len() {
            part /= 2;
        }
    }
    while small.actors > 1 {
        let fewer = Plan { actors: small.actors - 1, ..small.clone() };
        if !try_out(&fewer) {
            break;
        }
        small = fewer;
    }
    let faults = small.faults.clone();
    Some(ShrunkStorm { faults, end: Storm::new(small, left_out, true).play() })
}
