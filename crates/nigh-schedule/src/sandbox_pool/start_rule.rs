//! When a function gets a further sandbox: pure.
//!
//! A function without a sandbox gets one. A function with some gets another if waiting costs more than the start. The
//! cost of waiting is the expected time of its queue in its present sandboxes, or the time that its invocations have
//! waited since its last start, if that is more. The latter is the ski-rental rule (rent until the rents reach the
//! price): it costs at most twice what the best decision would, and no wrong estimate can starve a function. The
//! restart cost of the sandboxes that end for a start is part of its price.

use std::time::Duration;

/// The state of a function with waiting invocations.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Want {
    /// Number of waiting invocations.
    pub(super) waiting: usize,
    /// Number of its sandboxes, those being made included.
    pub(super) sandboxes: usize,
    /// Number of its sandboxes that are being made.
    pub(super) making: usize,
    /// The usual duration of a run; None if none has ended yet.
    pub(super) run: Option<Duration>,
    /// The usual duration of a start.
    pub(super) start: Duration,
    /// The seconds that its invocations have waited, all together, since its last start, including those that still
    /// wait.
    pub(super) waited_s: f64,
}

/// The state of the processors.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Processors {
    /// Number of idle processors.
    pub(super) idle: f64,
}

impl Processors {
    /// True if a processor is idle.
    pub(super) fn has_idle(self) -> bool {
        self.idle >= BUSY_BELOW
    }
}

/// If less than this of one processor is idle, all count as busy.
const BUSY_BELOW: f64 = 0.4;

impl Want {
    /// The cost of waiting, in seconds.
    fn cost_of_waiting_s(&self) -> f64 {
        if self.sandboxes == 0 {
            return f64::INFINITY;
        }
        // No run has ended yet, so the duration of a run is unknown.
        let Some(run) = self.run else { return f64::INFINITY };
        let queue = run.as_secs_f64() * self.waiting as f64 / self.sandboxes as f64;
        queue.max(self.waited_s)
    }

    /// What the restart budget must pay for a start whose victims have the restart cost `loss_s`. None if waiting is cheaper.
    pub(super) fn pays(&self, loss_s: f64, processors: Processors) -> Option<f64> {
        if self.waiting <= self.making {
            return None;
        }
        if self.sandboxes == 0 {
            // Other sandboxes end for it only when its invocations have waited as long as that will cost their
            // functions.
            return (self.waited_s >= loss_s).then_some(loss_s);
        }
        let start = self.start.as_secs_f64();
        if self.cost_of_waiting_s() <= start + loss_s {
            return None;
        }
        Some(if processors.has_idle() { loss_s } else { start + loss_s })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const IDLE: Processors = Processors { idle: 1.0 };
    const BUSY: Processors = Processors { idle: 0.0 };

    fn want(waiting: usize, sandboxes: usize) -> Want {
        let (run, start) = (Some(Duration::from_millis(20)), Duration::from_millis(300));
        Want { waiting, sandboxes, making: 0, run, start, waited_s: 0.0 }
    }

    #[test]
    fn the_first_sandbox_is_made_at_once_and_ends_others_once_it_has_waited_as_long_as_that_costs() {
        assert_eq!(want(1, 0).pays(0.0, BUSY), Some(0.0));
        assert_eq!(want(1, 0).pays(0.3, IDLE), None);
        assert_eq!(Want { waited_s: 0.3, ..want(1, 0) }.pays(0.3, IDLE), Some(0.3));
    }

    #[test]
    fn a_further_one_is_made_where_the_queue_takes_longer_than_a_start() {
        assert_eq!(want(15, 1).pays(0.0, IDLE), None, "300 ms, as a start takes");
        assert_eq!(want(16, 1).pays(0.0, IDLE), Some(0.0));
        assert_eq!(want(16, 2).pays(0.0, IDLE), None, "two sandboxes get through in 160 ms");
        assert_eq!(want(16, 1).pays(0.1, IDLE), None, "what it ends is dearer");
        assert_eq!(Want { run: None, ..want(1, 1) }.pays(0.0, IDLE), Some(0.0), "it may run for long");
    }

    #[test]
    fn who_has_waited_for_the_price_of_a_start_gets_it() {
        let waited = |waited_s| Want { waited_s, ..want(1, 1) }.pays(0.2, IDLE);
        assert_eq!((waited(0.5), waited(0.6)), (None, Some(0.2)));
    }

    #[test]
    fn on_busy_processors_the_budget_pays_for_what_brings_nothing() {
        assert_eq!(want(16, 1).pays(0.0, BUSY), Some(0.3));
    }

    #[test]
    fn nobody_gets_more_sandboxes_than_wait() {
        assert_eq!(Want { making: 2, ..want(2, 2) }.pays(0.0, IDLE), None);
    }
}
