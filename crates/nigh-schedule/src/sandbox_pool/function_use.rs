//! What is known of a function on a node: its demand, its sandboxes, and the invocations that wait. Pure.

use nigh_terms::Monotonic;

use super::command::SandboxEndReason;
use super::demand::Demand;

/// What is known of a function.
#[derive(Clone, Debug)]
pub(super) struct FunctionUse<S> {
    pub(super) demand: Demand,
    /// The function's sandboxes, of all versions.
    pub(super) members: Vec<S>,
    /// Number of sandboxes that are being made.
    pub(super) making: usize,
    /// Number of waiting invocations, and the sum of their arrival times, in seconds.
    pub(super) waiting: usize,
    came_s: f64,
    /// True if an invocation is expected.
    pub(super) is_expected: bool,
    /// Why its last sandbox ended; None if none has.
    pub(super) lost: Option<SandboxEndReason>,
}

impl<S> Default for FunctionUse<S> {
    fn default() -> Self {
        Self {
            demand: Demand::default(),
            members: Vec::new(),
            making: 0,
            waiting: 0,
            came_s: 0.0,
            is_expected: false,
            lost: None,
        }
    }
}

fn seconds(at: Monotonic) -> f64 {
    at.since(Monotonic::default()).as_secs_f64()
}

impl<S> FunctionUse<S> {
    pub(super) fn waits(&mut self, since: Monotonic) {
        self.waiting += 1;
        self.came_s += seconds(since);
    }

    pub(super) fn waits_no_more(&mut self, since: Monotonic, now: Monotonic) {
        self.waiting = self.waiting.saturating_sub(1);
        self.came_s = if self.waiting == 0 { 0.0 } else { self.came_s - seconds(since) };
        self.demand.waited(now.since(since), now);
    }

    /// The seconds that its invocations have waited, all together, since its last start.
    pub(super) fn waited_s(&self, now: Monotonic) -> f64 {
        self.demand.waited_s(now) + (seconds(now) * self.waiting as f64 - self.came_s).max(0.0)
    }
}
