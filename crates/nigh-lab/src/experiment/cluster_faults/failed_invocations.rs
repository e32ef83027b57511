//! Why invocations failed, and how many of those a client with Lambda's retries would have noticed.
//!
//! An invocation fails for its client if no answer tells what it did. Lambda runs a failed event two more times, and its
//! SDKs send a failed call two more times: a failure that such a retry answers is counted apart.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind};

use serde::{Deserialize, Serialize};

use crate::instrument::http_load::{Reply, header};

/// Failed invocations of one cause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct FailureCount {
    /// Invocations whose first attempt failed.
    pub(super) failed: u64,
    /// Of these, those that the first or second retry answered.
    pub(super) answered_on_retry: u64,
}

/// Failed invocations by the cause of their first attempt's failure.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub(super) struct FailuresByCause(BTreeMap<String, FailureCount>);

impl FailuresByCause {
    pub(super) fn count(&mut self, cause: String, is_answered_on_retry: bool) {
        let count = self.0.entry(cause).or_default();
        count.failed += 1;
        count.answered_on_retry += u64::from(is_answered_on_retry);
    }

    pub(super) fn add(&mut self, other: Self) {
        for (cause, more) in other.0 {
            let count = self.0.entry(cause).or_default();
            count.failed += more.failed;
            count.answered_on_retry += more.answered_on_retry;
        }
    }

    /// All causes together.
    pub(super) fn sum(&self) -> FailureCount {
        let all = self.0.values();
        all.fold(FailureCount::default(), |sum, one| FailureCount {
            failed: sum.failed + one.failed,
            answered_on_retry: sum.answered_on_retry + one.answered_on_retry,
        })
    }
}

/// Why there is no connection to send a call on.
pub(super) fn cause_of_no_connection(error: &io::Error) -> String {
    match error.kind() {
        ErrorKind::ConnectionRefused => "no connection: refused".to_owned(),
        ErrorKind::TimedOut | ErrorKind::WouldBlock => "no connection: no answer in time".to_owned(),
        kind => format!("no connection: {kind}"),
    }
}

/// Why a call that was sent has no answer.
pub(super) fn cause_of_no_answer(error: &io::Error) -> String {
    match error.kind() {
        // Linux reports the time limit of a read as EAGAIN.
        ErrorKind::TimedOut | ErrorKind::WouldBlock => "no answer in time".to_owned(),
        ErrorKind::ConnectionReset | ErrorKind::UnexpectedEof | ErrorKind::BrokenPipe => "connection broken".to_owned(),
        kind => format!("no answer: {kind}"),
    }
}

/// Why an answer does not tell what the invocation did.
pub(super) fn cause_of_answer(reply: &Reply) -> String {
    if let Some(kind) = header(&reply.head, "x-amzn-errortype") {
        return format!("refused: {} {kind}", reply.status());
    }
    if header(&reply.head, "x-amz-function-error").is_some() {
        let error: serde_json::Value = serde_json::from_slice(&reply.body).unwrap_or_default();
        return format!("function error: {}", error["errorType"].as_str().unwrap_or("without a type"));
    }
    match reply.status() {
        200..=299 => "answer without its steps".to_owned(),
        status => format!("refused: {status}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reply(head: &str, body: &str) -> Reply {
        Reply { head: head.to_owned(), body: body.as_bytes().to_vec() }
    }

    #[test]
    fn each_failure_has_a_cause() {
        let refused =
            reply("HTTP/1.1 429 Too Many Requests\r\nx-amzn-ErrorType: TooManyRequestsException\r\n\r\n", "{}");
        assert_eq!(cause_of_answer(&refused), "refused: 429 TooManyRequestsException");
        let late =
            reply("HTTP/1.1 200 OK\r\nX-Amz-Function-Error: Unhandled\r\n\r\n", r#"{"errorType":"Sandbox.Timedout"}"#);
        assert_eq!(cause_of_answer(&late), "function error: Sandbox.Timedout");
        assert_eq!(cause_of_answer(&reply("HTTP/1.1 200 OK\r\n\r\n", "{}")), "answer without its steps");
        assert_eq!(cause_of_answer(&reply("HTTP/1.1 502 Bad Gateway\r\n\r\n", "")), "refused: 502");
        assert_eq!(cause_of_no_connection(&ErrorKind::ConnectionRefused.into()), "no connection: refused");
        assert_eq!(cause_of_no_answer(&ErrorKind::WouldBlock.into()), "no answer in time");
        assert_eq!(cause_of_no_answer(&ErrorKind::UnexpectedEof.into()), "connection broken");
    }

    #[test]
    fn causes_add_up() {
        let (mut one, mut other) = (FailuresByCause::default(), FailuresByCause::default());
        one.count("a".to_owned(), true);
        one.count("a".to_owned(), false);
        other.count("b".to_owned(), true);
        one.add(other);
        assert_eq!(one.sum(), FailureCount { failed: 3, answered_on_retry: 2 });
        let text = serde_json::to_value(&one).unwrap();
        assert_eq!(text["a"], serde_json::json!({"failed": 2, "answered_on_retry": 1}));
    }
}
