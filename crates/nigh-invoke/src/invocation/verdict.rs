//! How an invocation ended: what its record says and what its caller gets. Pure.
//!
//! The error objects are Lambda's, word for word where clients are known to look at them.

use std::time::Duration;

use bytes::Bytes;
use nigh_functions::function::Function;
use nigh_sandbox::runtime_api::{RESPONSE_BYTES_MAX, Reply};
use nigh_sandbox::sandbox::{ProgramFault, SandboxEnd};
use nigh_schedule::activation::{ExceededLimit, Outcome, stack_trace};
use nigh_terms::InvocationId;
use serde_json::Value;

use super::broken_program::BrokenProgram;

/// The value of `X-Amz-Function-Error`: Lambda knows no other since `Handled` went away.
const UNHANDLED: &str = "Unhandled";
/// How much of an error's message a record keeps; the caller gets all of it.
const MESSAGE_CHARS_MAX: usize = 1024;
/// The error type of a client that sends none.
const UNKNOWN_ERROR_TYPE: &str = "Runtime.Unknown";

/// How an invocation ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Verdict {
    /// For the record.
    pub(crate) outcome: Outcome,
    /// For the caller: the handler's answer, or an error object.
    pub(crate) payload: Bytes,
    /// Set if the payload is an error object.
    pub(crate) function_error: Option<&'static str>,
    /// For the record: the frames of the error, if its runtime reported any.
    pub(crate) stack_trace: Vec<String>,
    /// The limit of the initialisation, if that timed out.
    pub(crate) init_limit: Option<Duration>,
}

impl Verdict {
    /// The verdict on `reply`, of invocation `id`.
    pub(crate) fn of_reply(id: InvocationId, reply: Reply) -> Self {
        match reply {
            Reply::Response(payload) => Self {
                outcome: Outcome::Answered,
                payload,
                function_error: None,
                stack_trace: Vec::new(),
                init_limit: None,
            },
            Reply::Error { payload, error_type } => {
                let ErrorObject { payload, error_type, message, stack_trace } = error_object(payload, error_type);
                Self { stack_trace, ..Self::failed(Outcome::HandlerError { error_type, message }, payload) }
            }
            Reply::TooLarge => {
                let error_type = "Function.ResponseSizeTooLarge".to_owned();
                let message = format!(
                    "Response payload size exceeded maximum allowed payload size ({RESPONSE_BYTES_MAX} bytes)."
                );
                let payload = made(&error_type, &message);
                Self::failed(Outcome::HandlerError { error_type, message }, payload)
            }
            Reply::Ended { end, .. } => {
                let payload = exit_object(id, &end);
                let outcome = match end {
                    SandboxEnd::OutOfMemory => Outcome::OutOfMemory,
                    SandboxEnd::Destroyed => Outcome::Stopped,
                    SandboxEnd::Exited(0) => Outcome::Crashed { reason: "exited without an answer".to_owned() },
                    SandboxEnd::Exited(code) => Outcome::Crashed { reason: format!("exited with status {code}") },
                    SandboxEnd::Signalled(signal) => {
                        let name = signal_name(signal).map(|name| format!(" ({name})")).unwrap_or_default();
                        Outcome::Crashed { reason: format!("was ended by signal {signal}{name}") }
                    }
                };
                Self::failed(outcome, payload)
            }
        }
    }

    /// The verdict on an invocation whose sandbox could not be initialised, in the sandbox's own words.
    pub(crate) fn of_init_error(payload: Bytes, error_type: Option<String>) -> Self {
        let ErrorObject { payload, error_type, message, stack_trace } = error_object(payload, error_type);
        Self { stack_trace, ..Self::failed(Outcome::InitError { error_type, message }, payload) }
    }

    /// The verdict on invocation `id`, whose sandbox ended before it was initialised.
    pub(crate) fn of_init_end(id: InvocationId, end: &SandboxEnd) -> Self {
        let outcome = match end {
            SandboxEnd::OutOfMemory => Outcome::OutOfMemory,
            SandboxEnd::Destroyed => Outcome::Stopped,
            other => Outcome::InitError {
                error_type: "Runtime.ExitError".to_owned(),
                message: format!("Runtime exited {}", exit_reason(other)),
            },
        };
        Self::failed(outcome, exit_object(id, end))
    }

    /// The verdict on invocation `id`, whose function's program cannot be executed.
    pub(crate) fn of_broken_program(id: InvocationId, program: &BrokenProgram) -> Self {
        let BrokenProgram { path, fault, reason } = program;
        let error_type = "Runtime.InvalidEntrypoint";
        let message = match fault {
            ProgramFault::Missing => format!("Couldn't find valid bootstrap(s): [{path}]"),
            ProgramFault::Unusable => format!("fork/exec {path}: {}", as_go_says(reason)),
        };
        let payload = made(error_type, &format!("RequestId: {id} Error: {message}"));
        Self::failed(Outcome::InitError { error_type: error_type.to_owned(), message }, payload)
    }

    /// The verdict on invocation `id`, which had `timeout`.
    pub(crate) fn timed_out(id: InvocationId, timeout: Duration) -> Self {
        let message = format!("RequestId: {id} Error: {}", timeout_message(timeout));
        Self::failed(Outcome::TimedOut, made("Sandbox.Timedout", &message))
    }

    /// The verdict on invocation `id`, whose sandbox had `limit` to be initialised.
    pub(crate) fn init_timed_out(id: InvocationId, limit: Duration) -> Self {
        Self { init_limit: Some(limit), ..Self::timed_out(id, limit) }
    }

    /// The verdict on invocation `id`, whose sandbox ended without an answer and without a reason.
    pub(crate) fn lost(id: InvocationId) -> Self {
        Self::of_reply(id, Reply::Ended { end: SandboxEnd::Destroyed, taken: false })
    }

    /// The limit of `function` that ended its invocation; none if none did.
    pub(crate) const fn exceeded(&self, function: &Function) -> Option<ExceededLimit> {
        match (&self.outcome, self.init_limit) {
            (Outcome::TimedOut, Some(limit)) => Some(ExceededLimit::InitTimeout { limit_us: limit.as_micros() as u64 }),
            (Outcome::TimedOut, None) => Some(ExceededLimit::Timeout { limit_us: function.timeout.as_micros() as u64 }),
            (Outcome::OutOfMemory, _) => Some(ExceededLimit::Memory { booked: function.memory }),
            _ => None,
        }
    }

    const fn failed(outcome: Outcome, payload: Bytes) -> Self {
        Self { outcome, payload, function_error: Some(UNHANDLED), stack_trace: Vec::new(), init_limit: None }
    }
}

/// What Lambda prints and says when the time is up.
pub(crate) fn timeout_message(timeout: Duration) -> String {
    format!("Task timed out after {:.2} seconds", timeout.as_secs_f64())
}

fn made(error_type: &str, message: &str) -> Bytes {
    serde_json::json!({ "errorType": error_type, "errorMessage": message }).to_string().into()
}

/// An error object, and what a record keeps of it.
struct ErrorObject {
    payload: Bytes,
    error_type: String,
    message: String,
    stack_trace: Vec<String>,
}

/// What a runtime client sent as an error object, or one made around it if it is none.
fn error_object(payload: Bytes, error_type: Option<String>) -> ErrorObject {
    match serde_json::from_slice::<Value>(&payload) {
        Ok(object @ Value::Object(_)) => {
            let text = |name: &str| object.get(name).and_then(Value::as_str).map(ToOwned::to_owned);
            let kind = text("errorType").or(error_type).unwrap_or_else(|| UNKNOWN_ERROR_TYPE.to_owned());
            let message = text("errorMessage").unwrap_or_default();
            let stack_trace = stack_trace::lines(&object);
            ErrorObject { payload, error_type: shortened(&kind), message: shortened(&message), stack_trace }
        }
        _ => {
            let error_type = shortened(&error_type.unwrap_or_else(|| UNKNOWN_ERROR_TYPE.to_owned()));
            let message = shortened(&String::from_utf8_lossy(&payload));
            let payload = made(&error_type, &message);
            ErrorObject { payload, error_type, message, stack_trace: Vec::new() }
        }
    }
}

fn shortened(text: &str) -> String {
    text.chars().take(MESSAGE_CHARS_MAX).collect()
}

/// The text of a system error as Lambda's own runtime, a Go program, writes it: `exec format error`.
fn as_go_says(reason: &str) -> String {
    let words = reason.split(" (os error").next().unwrap_or_default();
    let mut letters = words.chars();
    letters.next().map(|first| first.to_ascii_lowercase()).into_iter().chain(letters).collect()
}

fn exit_object(id: InvocationId, end: &SandboxEnd) -> Bytes {
    let error_type = if *end == SandboxEnd::OutOfMemory { "Runtime.OutOfMemory" } else { "Runtime.ExitError" };
    made(error_type, &format!("RequestId: {id} Error: Runtime exited {}", exit_reason(end)))
}

fn exit_reason(end: &SandboxEnd) -> String {
    match end {
        SandboxEnd::Exited(0) => "without providing a reason".to_owned(),
        SandboxEnd::Exited(code) => format!("with error: exit status {code}"),
        SandboxEnd::Signalled(signal) => {
            let name = signal_name(*signal).map_or_else(|| format!("signal {signal}"), str::to_owned);
            format!("with error: signal: {name}")
        }
        SandboxEnd::OutOfMemory => "with error: signal: killed".to_owned(),
        SandboxEnd::Destroyed => "because the node is shutting down".to_owned(),
    }
}

/// A signal as Lambda names it, if it does.
const fn signal_name(signal: i32) -> Option<&'static str> {
    Some(match signal {
        4 => "illegal instruction",
        6 => "aborted",
        7 => "bus error",
        8 => "floating point exception",
        9 => "killed",
        11 => "segmentation fault",
        15 => "terminated",
        31 => "bad system call",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(verdict: &Verdict) -> Value {
        assert_eq!(verdict.function_error, Some("Unhandled"));
        serde_json::from_slice(&verdict.payload).unwrap()
    }

    #[test]
    fn an_answer_is_passed_on_as_it_is() {
        let verdict = Verdict::of_reply(InvocationId::now(), Reply::Response(Bytes::from_static(b"not json")));
        assert_eq!((verdict.payload.as_ref(), verdict.function_error), (&b"not json"[..], None));
        assert_eq!(verdict.outcome, Outcome::Answered);
    }

    #[test]
    fn a_handlers_error_reaches_the_caller_whole_with_its_trace() {
        let sent = br#"{"errorMessage":"no","errorType":"ValueError","stackTrace":["app.py line 3"]}"#;
        let reply = Reply::Error { payload: Bytes::from_static(sent), error_type: None };
        let verdict = Verdict::of_reply(InvocationId::now(), reply);
        assert_eq!(verdict.payload.as_ref(), sent);
        let outcome = Outcome::HandlerError { error_type: "ValueError".to_owned(), message: "no".to_owned() };
        assert_eq!((verdict.outcome, verdict.stack_trace), (outcome, vec!["app.py line 3".to_owned()]));
    }

    #[test]
    fn an_error_that_is_no_object_becomes_one() {
        for garbage in [&b"\xff\xfe"[..], b"", b"[1]", b"\"text\""] {
            let reply = Reply::Error { payload: garbage.into(), error_type: Some("Mine.Broken".to_owned()) };
            let verdict = Verdict::of_reply(InvocationId::now(), reply);
            assert_eq!(object(&verdict)["errorType"], "Mine.Broken");
        }
    }

    #[test]
    fn ends_are_told_in_lambdas_words() {
        let id = InvocationId::now();
        let ended = |end| object(&Verdict::of_reply(id, Reply::Ended { end, taken: true }));
        let exit = ended(SandboxEnd::Exited(1));
        assert_eq!(exit["errorType"], "Runtime.ExitError");
        assert_eq!(exit["errorMessage"], format!("RequestId: {id} Error: Runtime exited with error: exit status 1"));
        let silent = ended(SandboxEnd::Exited(0));
        assert_eq!(silent["errorMessage"], format!("RequestId: {id} Error: Runtime exited without providing a reason"));
        let killed = ended(SandboxEnd::Signalled(11));
        assert!(killed["errorMessage"].as_str().unwrap().ends_with("with error: signal: segmentation fault"));
        let memory = ended(SandboxEnd::OutOfMemory);
        assert_eq!(memory["errorType"], "Runtime.OutOfMemory");
        let late = object(&Verdict::timed_out(id, Duration::from_secs(3)));
        assert_eq!(late["errorType"], "Sandbox.Timedout");
        assert_eq!(late["errorMessage"], format!("RequestId: {id} Error: Task timed out after 3.00 seconds"));
        let large = object(&Verdict::of_reply(id, Reply::TooLarge));
        assert_eq!(large["errorType"], "Function.ResponseSizeTooLarge");
    }

    #[test]
    fn an_end_before_the_first_request_is_an_init_error_unless_memory_ran_out() {
        let id = InvocationId::now();
        let verdict = Verdict::of_init_end(id, &SandboxEnd::Exited(2));
        assert!(matches!(verdict.outcome, Outcome::InitError { error_type, .. } if error_type == "Runtime.ExitError"));
        assert_eq!(Verdict::of_init_end(id, &SandboxEnd::OutOfMemory).outcome, Outcome::OutOfMemory);
    }

    #[test]
    fn a_program_that_cannot_be_executed_is_an_init_error_in_lambdas_words() {
        let id = InvocationId::now();
        for (fault, reason, expected) in [
            (ProgramFault::Missing, "No such file or directory (os error 2)", "Couldn't find valid bootstrap(s): [/p]"),
            (ProgramFault::Unusable, "Exec format error (os error 8)", "fork/exec /p: exec format error"),
        ] {
            let program = BrokenProgram { path: "/p".to_owned(), fault, reason: reason.to_owned() };
            let verdict = Verdict::of_broken_program(id, &program);
            assert_eq!(object(&verdict)["errorType"], "Runtime.InvalidEntrypoint");
            assert_eq!(object(&verdict)["errorMessage"], format!("RequestId: {id} Error: {expected}"));
            assert!(matches!(verdict.outcome, Outcome::InitError { message, .. } if message == expected));
        }
    }

    #[test]
    fn what_the_node_ended_has_not_crashed() {
        let id = InvocationId::now();
        let stopped = Verdict::of_reply(id, Reply::Ended { end: SandboxEnd::Destroyed, taken: true });
        assert_eq!(stopped.outcome, Outcome::Stopped);
        assert!(object(&stopped)["errorMessage"].as_str().unwrap().ends_with("because the node is shutting down"));
        assert_eq!(Verdict::of_init_end(id, &SandboxEnd::Destroyed).outcome, Outcome::Stopped);
    }

    #[test]
    fn a_record_says_how_a_process_went_with_the_signals_number() {
        let reason = |end| match Verdict::of_reply(InvocationId::now(), Reply::Ended { end, taken: true }).outcome {
            Outcome::Crashed { reason } => reason,
            other => panic!("{other:?}"),
        };
        assert_eq!(reason(SandboxEnd::Exited(3)), "exited with status 3");
        assert_eq!(reason(SandboxEnd::Signalled(6)), "was ended by signal 6 (aborted)");
        assert_eq!(reason(SandboxEnd::Signalled(40)), "was ended by signal 40");
    }
}
