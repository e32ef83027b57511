//! When a run begins although every processor is busy: pure.
//!
//! Runs that share processors slow each other down, and hold their memory for longer. So a run begins only while a
//! processor is idle, or if it is so short that waiting would cost it more than its start costs the others. Cost is
//! counted in slowdown: the time that is lost, divided by the time that a run takes alone. Runs that sleep keep no
//! processor busy, and delay nobody.

use std::time::Duration;

/// The assumed duration of a function's run before one has ended.
pub(super) const RUN_UNKNOWN: Duration = Duration::from_millis(100);
/// Shorter runs count as if they took this many seconds.
const SHORT_S: f64 = 0.01;
/// A run begins if its gain is this many times its cost to the others, with one run on each processor; with twice as
/// many runs, twice as many times. Run times are known by function only, and a run that is expected to be long is often
/// short, so a factor below one serves best (`nigh experiment scheduling`).
const GAIN_MIN: f64 = 0.35;
/// The part of the time already waited that is added to the wait which beginning now would save, so that every run
/// begins in the end.
const AGING: f64 = 0.2;
/// A run that already takes longer than usual is expected to have this part of its time left.
const LEFT_MIN: f64 = 0.25;

/// True if a run that is expected to take `run_s` seconds and has waited for `waited_s` may begin beside the `busy`
/// ones, given as (expected seconds, seconds so far).
pub(super) fn may_begin(run_s: f64, waited_s: f64, busy: impl Iterator<Item = (f64, f64)>, processors: usize) -> bool {
    let (mut first_end_s, mut cost, mut count) = (f64::INFINITY, 0.0, 0.0);
    for (expected_s, ran_s) in busy {
        let left_s = (expected_s - ran_s).max(expected_s.max(ran_s) * LEFT_MIN);
        first_end_s = left_s.min(first_end_s);
        cost += run_s.min(left_s) / expected_s.max(SHORT_S);
        count += 1.0;
    }
    let shared = (count / processors as f64).max(1.0);
    let gain = (waited_s * AGING + first_end_s * shared) / run_s.max(SHORT_S);
    gain >= GAIN_MIN * shared * cost / processors as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_run_begins_beside_long_ones_and_a_long_one_waits() {
        let long = [(2.0, 0.0), (2.0, 1.0)];
        assert!(
            may_begin(0.02, 0.0, long.into_iter(), 2),
            "it costs them a hundredth, and it would wait for fifty times its run"
        );
        assert!(
            !may_begin(2.0, 0.0, [(0.02, 0.0); 2].into_iter(), 2),
            "it would wait for nothing, and take all from them"
        );
    }

    #[test]
    fn who_waits_long_begins_at_last() {
        let short = || [(0.02, 0.01); 4].into_iter();
        assert!(!may_begin(2.0, 1.0, short(), 2) && may_begin(2.0, 2000.0, short(), 2));
    }

    #[test]
    fn many_of_one_kind_run_a_few_at_a_time() {
        let admitted = |busy: usize| may_begin(0.02, 0.0, vec![(0.02, 0.01); busy].into_iter(), 2);
        let most = (2..100).take_while(|busy| admitted(*busy)).last().unwrap_or(2);
        assert!(most <= 8, "{most}");
    }
}
