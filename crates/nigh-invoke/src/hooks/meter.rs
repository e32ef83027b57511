//! Counts invocations by function and by how they ended, and measures how long they took.

mod functions;

use std::sync::Arc;

use nigh_schedule::activation::{Activation, Outcome};
use nigh_terms::Clock;
use parking_lot::Mutex;

use self::functions::FunctionMeters;
pub use self::functions::{DURATION_BOUNDS_S, FunctionTotals};
use super::{InvocationHook, Run};

/// Counts what has run, for whoever asks.
pub struct InvocationMeter {
    functions: Mutex<FunctionMeters>,
    clock: Arc<dyn Clock>,
}

impl InvocationMeter {
    /// Counts at most so many functions by name, and the others together.
    #[must_use]
    pub fn new(named_max: usize, clock: Arc<dyn Clock>) -> Self {
        Self { functions: Mutex::new(FunctionMeters::new(named_max)), clock }
    }

    /// What has run since the start.
    #[must_use]
    pub fn totals(&self) -> Vec<FunctionTotals> {
        self.functions.lock().totals()
    }
}

impl InvocationHook for InvocationMeter {
    fn name(&self) -> &'static str {
        "meter"
    }

    fn before_run(&self, _: &mut Run<'_>) -> Option<String> {
        None
    }

    fn after_run(&self, activation: &Activation) {
        let (now, seconds) = (self.clock.monotonic(), activation.duration_us as f64 / 1e6);
        let outcome = place_of(&activation.outcome);
        let function = (&activation.namespace, &activation.function);
        self.functions.lock().ended(now, function, outcome, activation.cold, seconds);
    }
}

/// The names of outcomes.
const OUTCOMES: [&str; 7] =
    ["answered", "handler_error", "init_error", "timed_out", "out_of_memory", "crashed", "stopped"];

/// The outcome's name in metrics and traces.
pub(crate) const fn outcome_name(outcome: &Outcome) -> &'static str {
    OUTCOMES[place_of(outcome)]
}

/// The place of an outcome's name.
const fn place_of(outcome: &Outcome) -> usize {
    match outcome {
        Outcome::Answered => 0,
        Outcome::HandlerError { .. } => 1,
        Outcome::InitError { .. } => 2,
        Outcome::TimedOut => 3,
        Outcome::OutOfMemory => 4,
        Outcome::Crashed { .. } => 5,
        Outcome::Stopped => 6,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_end_has_a_name_of_its_own() {
        let failed = || ("Type".to_owned(), "why".to_owned());
        let ends = [
            Outcome::Answered,
            Outcome::HandlerError { error_type: failed().0, message: failed().1 },
            Outcome::InitError { error_type: failed().0, message: failed().1 },
            Outcome::TimedOut,
            Outcome::OutOfMemory,
            Outcome::Crashed { reason: failed().1 },
            Outcome::Stopped,
        ];
        let names: std::collections::BTreeSet<_> = ends.iter().map(outcome_name).collect();
        assert_eq!(names.len(), OUTCOMES.len());
    }
}
