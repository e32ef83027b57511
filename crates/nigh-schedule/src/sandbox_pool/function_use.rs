//! What is known of a function on a node: its demand, its sandboxes, and the invocations that wait. Pure.

use nigh_terms::Monotonic;

use super::command::SandboxEndReason;
use super::demand::Demand;

/// What is known of a function.
#[derive(Clone, Debug)]
pub(super) struct FunctionUse<S> {
    pub(super) demand: Demand,
    /// Its sandboxes, of all versions.
    pub(super) members: Vec<S>,
    /// Those that are being made.
    pub(super) making: usize,
    /// Invocations that wait, and the sum of the times at which they came, in seconds.
    pub(super) waiting: usize,
    came_s: f64,
    /// An invocation is expected.
    pub(super) is_expected: bool,
    /// Why its last sandbox ended.
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

    /// What its invocations have waited together since its last start.
    pub(super) fn waited_s(&self, now: Monotonic) -> f64 {
        self.demand.waited_s(now) + (seconds(now) * self.waiting as f64 - self.came_s).max(0.0)
    }
}
