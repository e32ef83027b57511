//! The spans of an execution and of its states. The execution's own span has its id from the start, so that whichever process
//! drives the execution puts the states under it; the process that concludes it records it.

use std::collections::{HashMap, VecDeque};
use std::fmt::{self, Display, Formatter};

use nigh_terms::Timestamp;
use nigh_trace::{Span, SpanContext, SpanId, SpanKind, Trigger, past};

use crate::event::{Outcome, TaskRun};
use crate::history::HistoryEvent;
use crate::run::Run;

/// The most states of one execution that have spans, beside those that run functions.
const STATES_MAX: usize = 1000;

/// The span of an execution, and the id of the one above it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ExecutionTrace {
    own: SpanContext,
    parent: Option<SpanId>,
}

/// A state that runs no function, from its beginning to its end.
#[derive(Clone, Debug, PartialEq, Eq)]
struct StateTimes {
    name: String,
    kind: String,
    entered: Timestamp,
    left: Timestamp,
}

impl ExecutionTrace {
    /// The span of an execution that begins now, under the request that starts it; none if that belongs to no trace.
    pub(super) fn begin() -> Option<Self> {
        let starter = nigh_trace::current()?.triggered(Trigger::Other);
        if starter.sampled && nigh_trace::is_on() {
            return Some(Self { own: starter.below(), parent: Some(starter.span) });
        }
        Some(Self { own: starter, parent: None })
    }

    /// Reads what `Display` has written. None if a later release has written it.
    pub(super) fn decode(text: &str) -> Option<Self> {
        let (own, parent) = text.split_once(' ').map_or((text, None), |(own, parent)| (own, Some(parent)));
        let parent = parent.and_then(|parent| SpanId::of_bits(u64::from_str_radix(parent, 16).ok()?));
        Some(Self { own: own.parse().ok()?, parent })
    }

    /// The span of a task's state.
    pub(super) fn task(&self, task: &TaskRun) -> Span {
        let mut span = Span::under(Some(self.own), "state", SpanKind::Internal);
        span.record(|span| {
            span.name(task.state.to_string());
            span.set("nigh.workflow.state", &*task.state);
            span.set("nigh.workflow.state_type", "Task");
            span.set("faas.invoked_name", task.function.as_str());
        });
        span
    }

    /// Records the spans of an execution that has ended.
    pub(super) fn ended(&self, run: &Run, outcome: &Outcome, stopped: Timestamp) {
        let facts = run.facts();
        let mut span = Span::with_ids(self.own, self.parent, "execution", SpanKind::Internal);
        if !span.is_recording() {
            return;
        }
        for state in times(run.shown(), stopped) {
            past(Some(self.own), "state", SpanKind::Internal, (date(state.entered), date(state.left)), |span| {
                span.set("nigh.workflow.state", state.name.as_str());
                span.set("nigh.workflow.state_type", state.kind.as_str());
                span.name(state.name.clone());
            });
        }
        span.record(|span| {
            span.set("nigh.workflow.execution", facts.arn.as_str());
            span.set("nigh.workflow.status", outcome.status());
            if !matches!(outcome, Outcome::Succeeded { .. }) {
                span.fail(outcome.status(), outcome.status());
            }
        });
        span.ended_at(date(facts.started), date(stopped));
    }
}

impl Display for ExecutionTrace {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self.parent {
            Some(parent) => write!(f, "{} {parent}", self.own),
            None => write!(f, "{}", self.own),
        }
    }
}

fn date(at: Timestamp) -> u64 {
    at.millis().saturating_mul(1_000_000)
}

/// The states in a history that run no function. One that is not left ends with the execution.
fn times(history: &[HistoryEvent], stopped: Timestamp) -> Vec<StateTimes> {
    let mut found: Vec<StateTimes> = Vec::new();
    // The places in `found` of states that are not left yet. Of several with one name the first entered is left first.
    let mut open: HashMap<(String, String), VecDeque<usize>> = HashMap::new();
    for event in history {
        let name = || Some(event.details.as_ref()?.1.get("name")?.as_str()?.to_owned());
        if let Some(kind) = event.kind.strip_suffix("StateEntered").filter(|kind| *kind != "Task") {
            let Some(name) = name().filter(|_| found.len() < STATES_MAX) else { continue };
            open.entry((kind.to_owned(), name.clone())).or_default().push_back(found.len());
            found.push(StateTimes { name, kind: kind.to_owned(), entered: event.at, left: stopped });
        } else if let Some(kind) = event.kind.strip_suffix("StateExited") {
            let left = name().and_then(|name| open.get_mut(&(kind.to_owned(), name))?.pop_front());
            if let Some(state) = left.and_then(|place| found.get_mut(place)) {
                state.left = event.at;
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn event(at: u64, kind: &str, name: &str) -> HistoryEvent {
        let details = Some(("stateEnteredEventDetails", json!({ "name": name })));
        HistoryEvent { id: at, previous: 0, at: Timestamp(at), kind: kind.to_owned(), details }
    }

    #[test]
    fn each_state_without_a_function_has_its_times() {
        let history = [
            event(1, "WaitStateEntered", "pause"),
            event(2, "TaskStateEntered", "work"),
            event(3, "WaitStateEntered", "pause"),
            event(5, "WaitStateExited", "pause"),
            event(6, "TaskStateExited", "work"),
            event(8, "WaitStateExited", "pause"),
            event(9, "FailStateEntered", "broken"),
        ];
        let found: Vec<_> = times(&history, Timestamp(20))
            .into_iter()
            .map(|state| (state.kind, state.name, state.entered.0, state.left.0))
            .collect();
        let expected = [("Wait", "pause", 1u64, 5u64), ("Wait", "pause", 3, 8), ("Fail", "broken", 9, 20)];
        assert_eq!(found, expected.map(|(kind, name, from, to)| (kind.to_owned(), name.to_owned(), from, to)));
    }

    #[test]
    fn a_stored_trace_is_read_as_it_was_written() {
        let own = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01;other";
        for parent in [None, SpanId::of_bits(77)] {
            let trace = ExecutionTrace { own: own.parse().unwrap(), parent };
            assert_eq!(ExecutionTrace::decode(&trace.to_string()), Some(trace));
        }
        assert_eq!(ExecutionTrace::decode("of a later release"), None);
    }
}
