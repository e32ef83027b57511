//! Why an invocation failed: from its record, and from the error object that its caller got. Pure.

use nigh_node::{Activation, DataCallRecord, DataOperation, ExceededLimit, Outcome, stack_trace};
use serde_json::Value;

use super::frames::{Frame, frames};
use crate::output::duration;

/// Error types of runtimes and of Nigh, which name no class of the user's language.
const PLATFORM_TYPES: [&str; 3] = ["Runtime.", "Function.", "Sandbox."];
/// The error of Python's client for code that Python cannot read.
const SYNTAX_ERROR: &str = "Runtime.UserCodeSyntaxError";

/// A failed invocation.
pub(super) struct Cause<'a> {
    pub(super) record: &'a Activation,
    /// The error's type; empty if the failure is not an error of the code.
    pub(super) error_type: String,
    /// The error's whole message.
    pub(super) message: String,
    /// The lines of the stack trace as they were sent.
    pub(super) trace: Vec<String>,
    /// The frames in `trace`, innermost first.
    pub(super) frames: Vec<Frame>,
}

impl<'a> Cause<'a> {
    /// The cause in `record`; `error` is the caller's error object, which may have more, or null.
    pub(super) fn of(record: &'a Activation, error: &Value) -> Self {
        let (error_type, message) = match &record.outcome {
            Outcome::HandlerError { error_type, message } | Outcome::InitError { error_type, message } => {
                let text = |name: &str, recorded: &str| {
                    let sent = error.get(name).and_then(Value::as_str).filter(|text| text.contains(recorded));
                    sent.unwrap_or(recorded).to_owned()
                };
                (text("errorType", error_type), without_request(&text("errorMessage", message)).to_owned())
            }
            _ => (String::new(), String::new()),
        };
        let sent = stack_trace::lines(error);
        let trace = if sent.is_empty() { record.stack_trace.clone() } else { sent };
        Self { record, error_type, message, frames: frames(&trace), trace }
    }

    /// The error without its place, in one line or more.
    pub(super) fn headline(&self) -> String {
        let function = &self.record.function;
        match &self.record.outcome {
            Outcome::Answered => format!("{function} answered"),
            Outcome::TimedOut => match self.record.exceeded {
                Some(ExceededLimit::InitTimeout { limit_us }) => {
                    format!("{function} timed out: its initialisation took longer than {}", duration(limit_us))
                }
                Some(ExceededLimit::Timeout { limit_us }) => {
                    format!("{function} timed out after {}", duration(limit_us))
                }
                _ => format!("{function} timed out after {}", duration(self.record.duration_us)),
            },
            Outcome::OutOfMemory if self.record.memory.reached_booked || self.record.duration_us == 0 => {
                format!("{function} ran out of memory: it needed more than the {} that it booked", self.record.booked)
            }
            Outcome::OutOfMemory => {
                format!("{function} ran out of memory before it had all of the {} that it booked", self.record.booked)
            }
            Outcome::Crashed { reason } => format!("the process of {function} {reason}, and gave no answer"),
            Outcome::Stopped => format!("{function} did not finish: its node was stopping"),
            Outcome::HandlerError { .. } | Outcome::InitError { .. } => error_words(&self.error_type, &self.message),
        }
    }

    /// What is known about a limit that was exceeded, each a paragraph.
    pub(super) fn facts(&self) -> Vec<String> {
        match &self.record.outcome {
            Outcome::TimedOut => self.waited_for(),
            Outcome::OutOfMemory => vec![self.memory_words()],
            _ => Vec::new(),
        }
    }

    /// The data calls of the part that failed.
    fn data_calls(&self) -> &[DataCallRecord] {
        match self.record.exceeded {
            Some(ExceededLimit::InitTimeout { .. }) => &self.record.init_data_calls,
            _ => &self.record.data_calls,
        }
    }

    fn waited_for(&self) -> Vec<String> {
        let open: Vec<_> = self.data_calls().iter().filter_map(|call| Some((call, call.under_way?))).collect();
        if !open.is_empty() {
            let words = |(call, operation): &(&DataCallRecord, DataOperation)| {
                let (what, took) = (call_words(call, *operation), duration(call.took_us));
                let after = duration(call.began_us);
                format!("it waited for {what}: not finished after {took}; begun {after} after its start")
            };
            return open.iter().map(words).collect();
        }
        let Some(last) = self.data_calls().iter().max_by_key(|call| call.began_us + call.took_us) else {
            return vec![
                "it waited for none of its data: it made no data call. It computed, slept, or waited for another machine"
                    .to_owned(),
            ];
        };
        let ended = last.began_us + last.took_us;
        let since = match self.record.exceeded {
            Some(ExceededLimit::InitTimeout { limit_us } | ExceededLimit::Timeout { limit_us }) => limit_us,
            _ => self.record.duration_us,
        };
        vec![format!(
            "it waited for none of its data: the last data call ({} {}) had ended {} before. It computed, slept, or waited \
             for another machine",
            last.served,
            nigh_node::explain::object_words(last),
            duration(since.saturating_sub(ended))
        )]
    }

    fn memory_words(&self) -> String {
        let one = self.record;
        let peak = one.peak_memory.map_or_else(|| "not measured".to_owned(), |peak| peak.to_string());
        let predicted = match one.predicted_memory {
            Some(predicted) => format!("{predicted} predicted by its model"),
            None => "nothing predicted: its model knows too few runs".to_owned(),
        };
        format!(
            "memory: peak {peak}, {} booked (its setting `memory`), {} granted, {predicted}",
            one.booked, one.granted
        )
    }

    /// The last data call that failed, which an error of the store speaks of.
    pub(super) fn failed_call(&self) -> Option<&DataCallRecord> {
        let calls = [&self.record.data_calls, &self.record.init_data_calls];
        calls.into_iter().find_map(|calls| calls.iter().rev().find(|call| call.served == "failed"))
    }
}

/// An error in words; the class of the user's language stands first, a type of the platform last.
pub(super) fn error_words(kind: &str, message: &str) -> String {
    let message = message.trim();
    if kind == SYNTAX_ERROR {
        // `Syntax error in module 'main': invalid syntax (main.py, line 3)`; the place stands before it.
        let reason = message.split_once("': ").map_or(message, |(_, reason)| reason);
        let without_place = reason.rsplit_once(" (").filter(|(_, place)| place.contains(", line "));
        return format!("syntax error: {}", without_place.map_or(reason, |(reason, _)| reason));
    }
    match (PLATFORM_TYPES.iter().any(|prefix| kind.starts_with(prefix)), message.is_empty()) {
        (_, true) => kind.to_owned(),
        (true, false) => format!("{message} ({kind})"),
        (false, false) => format!("{kind}: {message}"),
    }
}

fn call_words(call: &DataCallRecord, operation: DataOperation) -> String {
    let object = nigh_node::explain::object_words(call);
    match operation {
        DataOperation::Read => format!("the read of {object}"),
        DataOperation::Write => format!("the write of {object}"),
        DataOperation::Metadata => format!("an answer about {object}"),
    }
}

/// `message` without `RequestId: ID Error: `, which Lambda puts before its own.
pub(super) fn without_request(message: &str) -> &str {
    message.strip_prefix("RequestId: ").and_then(|rest| Some(rest.split_once(" Error: ")?.1)).unwrap_or(message)
}
