//! The processor time that may go into starts which could be done without: pure.
//!
//! A sandbox that ends although its function will come back costs another start. Where more functions are called than
//! fit, such starts would take all of the processors: each start ends what the next invocation needs. So they are paid
//! from a budget: a tenth of the processors' time, and half of what the processors have idle. Then at most a tenth of
//! what a busy node can do is lost to starting again, whatever is asked of it; who waits for the budget is served later,
//! several in one sandbox. When processors are busy the budget also pays for a function's further sandboxes, which would
//! bring nothing then.

use std::time::Duration;

use nigh_terms::Monotonic;

/// Of a busy processor's time.
pub const BUSY_SHARE: f64 = 0.1;
/// Of an idle processor's time.
pub const IDLE_SHARE: f64 = 0.5;
/// Seconds of each processor that may be saved up.
pub const SAVED_MAX_S: f64 = 1.0;

/// Seconds of processor time.
#[derive(Clone, Copy, Debug)]
pub(super) struct RestartBudget {
    processors: f64,
    seconds: f64,
    at: Monotonic,
}

impl RestartBudget {
    /// Saved up, for so many processors.
    pub(super) fn new(processors: usize) -> Self {
        let processors = processors.max(1) as f64;
        Self { processors, seconds: processors * SAVED_MAX_S, at: Monotonic::default() }
    }

    /// Time passes, in which so many processors had nothing to do.
    pub(super) fn pass(&mut self, idle: f64, now: Monotonic) {
        let rate = self.processors * BUSY_SHARE + idle.clamp(0.0, self.processors) * IDLE_SHARE;
        let passed = now.since(self.at).min(Duration::from_secs(60)).as_secs_f64();
        self.seconds = (self.seconds + rate * passed).min(self.processors * SAVED_MAX_S);
        // Who looked at the clock first may come second.
        self.at = self.at.max(now);
    }

    /// True if `seconds` can be paid: what is more than can be saved up is paid by who has saved all that.
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
