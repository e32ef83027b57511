//! The answers of servers to publishes: what each says about whether the message is in its stream. Pure.

use async_nats::jetstream::ErrorCode;
use serde::Deserialize;

/// The server cannot decide yet, because another conditional publish is under way (JetStream's error 10164).
const CONDITION_UNDECIDED: u64 = 10164;
/// Too many publishes, or batches, are under way in the server (10167, 10210).
const TOO_MANY_UNDER_WAY: [u64; 2] = [10167, 10210];
/// A message with the same id is under way (10158).
const SAME_UNDER_WAY: u64 = 10158;
/// Parts of a batch are missing, and none of the batch is written (10176).
const BATCH_INCOMPLETE: u64 = 10176;

/// Why a message is not in its stream, or may not be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum NotPublished {
    /// The condition of the message failed.
    Condition,
    /// The stream or its disks are full.
    Full,
    /// No server accepted the message.
    NotTaken(String),
    /// The message may be in the stream, now or later.
    Unknown(String),
    /// The server rejected the message for this reason.
    Refused(String),
}

/// A server's answer to a publish.
#[derive(Debug, Deserialize)]
pub(super) struct PublishReply {
    #[serde(default)]
    seq: u64,
    error: Option<AnswerError>,
}

#[derive(Debug, Deserialize)]
struct AnswerError {
    code: u16,
    err_code: u64,
    #[serde(default)]
    description: String,
}

/// The outcome of one attempt.
pub(super) enum Attempt {
    Stands(u64),
    Never(NotPublished),
    NotTaken(String),
    Unanswered(String),
}

impl PublishReply {
    /// What the answer says about the message.
    pub(super) fn judged(self) -> Attempt {
        let Some(AnswerError { code, err_code, description }) = self.error else { return Attempt::Stands(self.seq) };
        let reason = format!("{description} ({err_code})");
        let full = [
            ErrorCode::STORAGE_RESOURCES_EXCEEDED,
            ErrorCode::INSUFFICIENT_RESOURCES,
            ErrorCode::ACCOUNT_RESOURCES_EXCEEDED,
        ];
        match err_code {
            code if code == ErrorCode::STREAM_WRONG_LAST_SEQUENCE.0 => Attempt::Never(NotPublished::Condition),
            CONDITION_UNDECIDED | BATCH_INCOMPLETE => Attempt::NotTaken(reason),
            code if TOO_MANY_UNDER_WAY.contains(&code) => Attempt::NotTaken(reason),
            SAME_UNDER_WAY => Attempt::Unanswered(reason),
            code if full.iter().any(|full| full.0 == code) => Attempt::Never(NotPublished::Full),
            // This code means any error of the server's store: its limit, which is checked before the write, and others.
            code if code == ErrorCode::STREAM_STORE_FAILED.0 && description.contains("maximum") => {
                Attempt::Never(NotPublished::Full)
            }
            _ if code >= 500 => Attempt::Unanswered(reason),
            _ => Attempt::Never(NotPublished::Refused(reason)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(answer: &str) -> Result<u64, Option<NotPublished>> {
        match serde_json::from_str::<PublishReply>(answer).unwrap().judged() {
            Attempt::Stands(place) => Ok(place),
            Attempt::Never(never) => Err(Some(never)),
            Attempt::NotTaken(reason) => Err(Some(NotPublished::NotTaken(reason))),
            Attempt::Unanswered(_) => Err(None),
        }
    }

    #[test]
    fn only_what_says_that_nothing_was_written_is_taken_for_that() {
        assert_eq!(judged(r#"{"stream":"s","seq":7,"duplicate":true}"#), Ok(7));
        let error = |code: u16, own: u64, text: &str| {
            judged(&format!(r#"{{"error":{{"code":{code},"err_code":{own},"description":"{text}"}}}}"#))
        };
        assert_eq!(error(400, 10071, "wrong last sequence: 4"), Err(Some(NotPublished::Condition)));
        assert_eq!(error(503, 10077, "maximum bytes exceeded"), Err(Some(NotPublished::Full)));
        assert_eq!(error(500, 10047, "insufficient storage"), Err(Some(NotPublished::Full)));
        assert_eq!(error(503, 10077, "input/output error"), Err(None), "others may have stored it");
        assert_eq!(error(503, 10008, "temporarily unavailable"), Err(None));
        assert_eq!(error(409, 10158, "duplicate message id is in process"), Err(None));
        assert!(matches!(error(400, 10164, "wrong last sequence"), Err(Some(NotPublished::NotTaken(_)))));
        assert!(matches!(error(400, 10176, "batch is incomplete"), Err(Some(NotPublished::NotTaken(_)))));
        assert!(matches!(error(400, 10060, "expected stream"), Err(Some(NotPublished::Refused(_)))));
    }
}
