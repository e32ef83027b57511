//! The processor time that may go into avoidable starts: pure.
//!
//! If a sandbox ends although its function will be invoked again, that costs another start. If more functions are
//! invoked than fit, such starts would take all processors: each start ends the sandbox that the next invocation needs.
//! So they are paid from a budget: a tenth of the processors' time, and half of their idle time. Then a busy node loses
//! at most a tenth of its time to restarts, whatever the load; invocations that wait for the budget are served later,
//! several in one sandbox. While processors are busy the budget also pays for further sandboxes of a function, which
//! would gain nothing then.

use std::time::Duration;

use nigh_terms::Monotonic;

/// The share of a busy processor's time that goes to the budget.
pub const BUSY_SHARE: f64 = 0.1;
/// The share of an idle processor's time that goes to the budget.
pub const IDLE_SHARE: f64 = 0.5;
/// The most seconds that are saved up for each processor.
pub const SAVED_MAX_S: f64 = 1.0;

/// Saved-up seconds of processor time.
#[derive(Clone, Copy, Debug)]
pub(super) struct RestartBudget {
    processors: f64,
    seconds: f64,
    at: Monotonic,
}

impl RestartBudget {
    /// A full budget of a node with `processors` processors.
    pub(super) fn new(processors: usize) -> Self {
        let processors = processors.max(1) as f64;
        Self { processors, seconds: processors * SAVED_MAX_S, at: Monotonic::default() }
    }

    /// Adds the budget of the time since the last call, in which `idle` processors had nothing to do.
    pub(super) fn pass(&mut self, idle: f64, now: Monotonic) {
        let rate = self.processors * BUSY_SHARE + idle.clamp(0.0, self.processors) * IDLE_SHARE;
        let passed = now.since(self.at).min(Duration::from_secs(60)).as_secs_f64();
        self.seconds = (self.seconds + rate * passed).min(self.processors * SAVED_MAX_S);
        // Two callers may arrive in another order than they have read the clock.
        self.at = self.at.max(now);
    }

    /// True if `seconds` can be paid. A price above the most that can be saved needs the whole budget.
    pub(super) fn can_pay(&self, seconds: f64) -> bool {
        self.seconds >= seconds.min(self.processors * SAVED_MAX_S)
    }

    pub(super) fn pay(&mut self, seconds: f64) {
        self.seconds -= seconds;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Monotonic {
        Monotonic::default().after(Duration::from_secs(seconds))
    }

    #[test]
    fn a_busy_nodes_starts_take_a_tenth_of_its_time_over_any_while() {
        let mut budget = RestartBudget::new(2);
        let mut paid = 0.0;
        for tick in 0..10_000_u64 {
            budget.pass(0.0, Monotonic::default().after(Duration::from_millis(tick * 10)));
            while budget.can_pay(0.3) {
                budget.pay(0.3);
                paid += 0.3;
            }
        }
        assert!((19.0..=22.3).contains(&paid), "{paid}");
    }

    #[test]
    fn what_costs_more_than_can_be_saved_is_paid_later_by_the_others() {
        let mut budget = RestartBudget::new(1);
        assert!(budget.can_pay(5.0));
        budget.pay(5.0);
        budget.pass(0.0, at(39));
        assert!(!budget.can_pay(0.1));
        budget.pass(1.0, at(41));
        assert!(budget.can_pay(0.1));
    }
}
