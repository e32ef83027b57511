//! Counts invocations by how they ended, and measures how long they took.

use nigh_schedule::activation::{Activation, Outcome};

use super::{InvocationHook, Run};

/// Writes `nigh_invocations_total` and `nigh_invocation_seconds` to the `metrics` recorder.
#[derive(Clone, Copy, Debug, Default)]
pub struct InvocationMeter;

impl InvocationHook for InvocationMeter {
    fn name(&self) -> &'static str {
        "meter"
    }

    fn before_run(&self, _: &mut Run<'_>) -> Option<String> {
        None
    }

    fn after_run(&self, activation: &Activation) {
        metrics::counter!("nigh_invocations_total", "outcome" => outcome_name(&activation.outcome)).increment(1);
        metrics::histogram!("nigh_invocation_seconds").record(activation.duration_us as f64 / 1e6);
    }
}

/// The outcome's name in metrics and traces.
pub(crate) const fn outcome_name(outcome: &Outcome) -> &'static str {
    match outcome {
        Outcome::Answered => "answered",
        Outcome::HandlerError { .. } => "handler_error",
        Outcome::InitError { .. } => "init_error",
        Outcome::TimedOut => "timed_out",
        Outcome::OutOfMemory => "out_of_memory",
        Outcome::Crashed { .. } => "crashed",
        Outcome::Stopped => "stopped",
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
        assert_eq!(names.len(), ends.len());
    }
}
