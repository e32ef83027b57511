//! What a collector's answer means for a batch (OTLP specification, "OTLP/HTTP Response"). Pure.

use std::time::Duration;

use http::StatusCode;
use serde::Deserialize;

/// The longest wait that a collector may ask for.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(60);

/// What becomes of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The collector has taken it.
    Taken,
    /// It is sent again, after this time if the collector says when.
    Again(Option<Duration>),
    /// It is dropped.
    Refused,
}

/// Judges an answer by its status and its `Retry-After`.
pub(super) fn judge(status: StatusCode, retry_after: Option<&str>) -> Verdict {
    match status.as_u16() {
        200..=299 => Verdict::Taken,
        429 | 502 | 503 | 504 => {
            let seconds = retry_after.and_then(|text| text.trim().parse::<u64>().ok());
            Verdict::Again(seconds.map(|seconds| Duration::from_secs(seconds).min(RETRY_AFTER_MAX)))
        }
        _ => Verdict::Refused,
    }
}

/// The wait before try number `tries`, from 1, if the collector says nothing: it doubles.
pub(super) fn back_off(tries: u32) -> Duration {
    Duration::from_secs(1 << tries.saturating_sub(1).min(4))
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Answer {
    partial_success: Partial,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Partial {
    rejected_spans: Number,
}

/// Protobuf's JSON writes a 64-bit number as a text, and reads both forms.
#[derive(Deserialize)]
#[serde(untagged)]
enum Number {
    Plain(u64),
    Text(String),
}

impl Default for Number {
    fn default() -> Self {
        Self::Plain(0)
    }
}

/// How many of a taken batch's spans the collector has rejected.
pub(super) fn rejected(body: &[u8]) -> u64 {
    match serde_json::from_slice::<Answer>(body).unwrap_or_default().partial_success.rejected_spans {
        Number::Plain(count) => count,
        Number::Text(text) => text.parse().unwrap_or(0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_answer_that_asks_for_it_has_a_batch_sent_again() {
        let of = |status: u16, after| judge(StatusCode::from_u16(status).unwrap(), after);
        assert_eq!((of(200, None), of(202, None)), (Verdict::Taken, Verdict::Taken));
        for status in [429, 502, 503, 504] {
            assert_eq!(of(status, None), Verdict::Again(None));
            assert_eq!(of(status, Some(" 7 ")), Verdict::Again(Some(Duration::from_secs(7))));
            assert_eq!(of(status, Some("86400")), Verdict::Again(Some(RETRY_AFTER_MAX)));
            assert_eq!(of(status, Some("Wed, 21 Oct 2015 07:28:00 GMT")), Verdict::Again(None));
        }
        for status in [301, 400, 401, 404, 413, 500, 501] {
            assert_eq!(of(status, Some("1")), Verdict::Refused, "{status}");
        }
        assert_eq!([1, 2, 3, 9].map(|tries| back_off(tries).as_secs()), [1, 2, 4, 16]);
    }

    #[test]
    fn rejected_spans_are_read_in_each_form_that_collectors_write() {
        assert_eq!(rejected(br#"{"partialSuccess":{"rejectedSpans":"3","errorMessage":"late"}}"#), 3);
        assert_eq!(rejected(br#"{"partialSuccess":{"rejectedSpans":4}}"#), 4);
        for none in ["{}", "", "not json", r#"{"partialSuccess":{}}"#, r#"{"partialSuccess":{"rejectedSpans":"x"}}"#] {
            assert_eq!(rejected(none.as_bytes()), 0, "{none}");
        }
    }
}
