//! The outcome of an activation, in OpenWhisk's terms: success, or the kind of error. Pure.

use std::time::Duration;

use nigh_invoke::invocation::InvocationResult;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::limits::PAYLOAD_BYTES_MAX;

/// The member that makes a result an error.
pub(super) const ERROR: &str = "error";
/// The characters of an invalid answer that a message shows.
const SHOWN_CHARS_MAX: usize = 512;

/// The kind of outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Status {
    Success,
    /// The action returned an error.
    ApplicationError,
    /// The action failed without an answer.
    DeveloperError,
    /// Nigh could not run it.
    WhiskError,
}

impl Status {
    /// OpenWhisk's `statusCode`.
    pub(super) const fn code(self) -> u8 {
        match self {
            Self::Success => 0,
            Self::ApplicationError => 1,
            Self::DeveloperError => 2,
            Self::WhiskError => 3,
        }
    }

    const fn words(self) -> &'static str {
        match self {
            Self::Success => "success",
            Self::ApplicationError => "application error",
            Self::DeveloperError => "action developer error",
            Self::WhiskError => "whisk internal error",
        }
    }
}

/// The outcome and the answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Response {
    pub(super) status: Status,
    pub(super) result: Value,
    #[serde(default)]
    pub(super) size: Option<usize>,
}

impl Response {
    pub(super) fn success(result: Value) -> Self {
        Self { status: Status::Success, result, size: None }
    }

    /// An error of this kind, with a message.
    pub(super) fn error(status: Status, error: impl Into<Value>) -> Self {
        Self { status, result: json!({ ERROR: error.into() }), size: None }
    }

    /// The outcome of a run. Only the answer of an action must be an object.
    pub(super) fn of_run(invoked: &InvocationResult, timeout: Duration, is_action: bool) -> Self {
        let size = Some(invoked.payload.len());
        let value = serde_json::from_slice::<Value>(&invoked.payload);
        let response = match (invoked.function_error, value) {
            (None, _) if invoked.payload.len() > PAYLOAD_BYTES_MAX => Self::error(
                Status::ApplicationError,
                format!(
                    "The action produced a response that exceeded the allowed length: {} > {PAYLOAD_BYTES_MAX} bytes.",
                    invoked.payload.len()
                ),
            ),
            (None, Ok(value)) => Self::of_answer(value, is_action),
            (None, Err(_)) => Self::no_answer(&String::from_utf8_lossy(&invoked.payload)),
            (Some(_), value) => {
                let is_init = invoked.run.duration_us == 0 && invoked.run.init_us.is_some();
                Self::of_failure(&value.unwrap_or_default(), timeout, is_init)
            }
        };
        Self { size, ..response }
    }

    fn of_answer(value: Value, is_action: bool) -> Self {
        match value {
            Value::Object(mut answer) => match answer.remove(ERROR) {
                Some(error) => Self::error(Status::ApplicationError, error),
                None => Self::success(Value::Object(answer)),
            },
            Value::Array(_) => Self::success(value),
            Value::Null if !is_action => Self::success(Value::Object(Map::new())),
            other if !is_action => Self::success(json!({ "result": other })),
            other => Self::no_answer(&other.to_string()),
        }
    }

    fn no_answer(said: &str) -> Self {
        let said: String = said.chars().take(SHOWN_CHARS_MAX).collect();
        let words = format!("The action did not produce a valid JSON or JSON Array response: {said}");
        Self::error(Status::DeveloperError, words)
    }

    /// The outcome of an error from the Runtime API.
    fn of_failure(error: &Value, timeout: Duration, is_init: bool) -> Self {
        let text = |name: &str| error.get(name).and_then(Value::as_str).unwrap_or_default();
        let message = text("errorMessage");
        match text("errorType") {
            "Sandbox.Timedout" => {
                let during = if is_init { " during initialization." } else { "." };
                let words =
                    format!("The action exceeded its time limits of {} milliseconds{during}", timeout.as_millis());
                Self::error(Status::DeveloperError, words)
            }
            "Runtime.OutOfMemory" => {
                Self::error(Status::DeveloperError, "The action exhausted its memory and was aborted.")
            }
            "Runtime.ExitError" if is_init => {
                Self::error(Status::DeveloperError, "The action did not initialize and exited unexpectedly.")
            }
            "Runtime.ExitError" => Self::error(
                Status::DeveloperError,
                "The action did not produce a valid response and exited unexpectedly.",
            ),
            "Function.ResponseSizeTooLarge" => Self::error(Status::ApplicationError, message),
            _ if is_init => Self::error(Status::DeveloperError, message),
            "" => Self::error(Status::ApplicationError, message),
            kind => Self::error(Status::ApplicationError, format!("{kind}: {message}")),
        }
    }

    /// Whether the time limit was exceeded.
    pub(super) fn is_timeout(&self) -> bool {
        self.result
            .get(ERROR)
            .and_then(Value::as_str)
            .is_some_and(|words| words.starts_with("The action exceeded its time limits"))
            && self.status == Status::DeveloperError
    }

    /// The response in a record.
    pub(super) fn shown(&self) -> Value {
        let mut shown = json!({
            "status": self.status.words(),
            "statusCode": self.status.code(),
            "success": self.status == Status::Success,
            "result": self.result,
        });
        if let Some(size) = self.size {
            shown["size"] = size.into();
        }
        shown
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use nigh_terms::{InvocationId, Token};

    use super::*;
    use nigh_invoke::invocation::RunTimes;

    fn run(payload: &str, failed: bool, times: RunTimes) -> InvocationResult {
        InvocationResult {
            id: InvocationId::now(),
            payload: Bytes::copy_from_slice(payload.as_bytes()),
            function_error: failed.then_some("Unhandled"),
            log: Vec::new(),
            run: times,
            token: Token::empty(),
            touched: Vec::new(),
        }
    }

    fn of(payload: &str, failed: bool) -> Response {
        let ran = RunTimes { duration_us: 5, ..RunTimes::default() };
        Response::of_run(&run(payload, failed, ran), Duration::from_secs(1), true)
    }

    #[test]
    fn an_object_is_success_and_one_with_an_error_is_the_actions_own() {
        assert_eq!(of(r#"{"a":1}"#, false), Response { size: Some(7), ..Response::success(json!({ "a": 1 })) });
        assert_eq!(of("[1]", false).status, Status::Success);
        let failed = of(r#"{"error":{"why":1},"more":2}"#, false);
        assert_eq!((failed.status, &failed.result), (Status::ApplicationError, &json!({ "error": { "why": 1 } })));
        for none in ["1", "null", "\"text\"", "no json", ""] {
            assert_eq!(of(none, false).status, Status::DeveloperError, "{none}");
        }
        let long = format!("{{\"a\":\"{}\"}}", "x".repeat(PAYLOAD_BYTES_MAX));
        let too_long = of(&long, false);
        assert_eq!(too_long.status, Status::ApplicationError);
        assert!(too_long.result["error"].as_str().unwrap().contains("exceeded the allowed length: 1048584 > 1048576"));
    }

    #[test]
    fn what_is_no_action_may_answer_what_it_likes() {
        let of = |payload| Response::of_run(&run(payload, false, RunTimes::default()), Duration::ZERO, false).result;
        assert_eq!((of("null"), of("\"x\"")), (json!({}), json!({ "result": "x" })));
    }

    #[test]
    fn ends_without_an_answer_are_the_developers() {
        let error = |kind: &str| json!({ "errorType": kind, "errorMessage": "m" }).to_string();
        for (kind, status, said) in [
            ("Sandbox.Timedout", Status::DeveloperError, "time limits of 1000 milliseconds."),
            ("Runtime.OutOfMemory", Status::DeveloperError, "exhausted its memory"),
            ("Runtime.ExitError", Status::DeveloperError, "exited unexpectedly"),
            ("ValueError", Status::ApplicationError, "ValueError: m"),
        ] {
            let response = of(&error(kind), true);
            assert_eq!(response.status, status, "{kind}");
            assert!(response.result["error"].as_str().unwrap().contains(said), "{response:?}");
            assert_eq!(response.is_timeout(), kind == "Sandbox.Timedout");
        }
        let made = RunTimes { init_us: Some(9), ..RunTimes::default() };
        let init = Response::of_run(&run(&error("Action.Init"), true, made), Duration::ZERO, true);
        assert_eq!((init.status, &init.result["error"]), (Status::DeveloperError, &json!("m")));
    }
}
