//! Why an event failed, in words for people. Pure.

use nigh_schedule::event_queue::Condition;
use nigh_terms::FunctionName;

use super::record::Response;

/// Characters of an error that a reason has.
const WORDS_MAX: usize = 300;

/// Why an event failed for good: what its function said last, else what went wrong in its last attempt.
pub(super) fn reason(
    condition: Condition,
    function: &FunctionName,
    response: Option<&Response>,
    last_error: Option<String>,
) -> String {
    let failed = response.filter(|response| response.function_error.is_some());
    let said = failed.map(|response| error_words(&response.payload));
    let is_gone = condition == Condition::FunctionDeleted;
    let words = said.or_else(|| is_gone.then(|| format!("there is no function {function}"))).or(last_error);
    match words {
        Some(words) => format!("{}: {words}", condition.name()),
        None => condition.name().to_owned(),
    }
}

/// What an error object says, shortened.
pub(super) fn error_words(payload: &[u8]) -> String {
    let object: serde_json::Value = serde_json::from_slice(payload).unwrap_or_default();
    let text = |name: &str| object.get(name).and_then(serde_json::Value::as_str).unwrap_or_default();
    format!("{}: {}", text("errorType"), text("errorMessage")).chars().take(WORDS_MAX).collect()
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    #[test]
    fn what_the_function_said_comes_before_what_else_went_wrong() {
        let function = FunctionName::new("worker").unwrap();
        let response = |function_error| Response {
            payload: Bytes::from_static(br#"{"errorType": "KeyError", "errorMessage": "1"}"#),
            function_error,
        };
        let last = || Some("no room".to_owned());
        let of =
            |condition, response: Option<&Response>, last_error| reason(condition, &function, response, last_error);
        let exhausted = Condition::RetriesExhausted;
        assert_eq!(of(exhausted, Some(&response(Some("Unhandled"))), last()), "RetriesExhausted: KeyError: 1");
        assert_eq!(of(exhausted, Some(&response(None)), last()), "RetriesExhausted: no room");
        assert_eq!(of(Condition::FunctionDeleted, None, last()), "FunctionDeleted: there is no function worker");
        assert_eq!(of(Condition::EventAgeExceeded, None, None), "EventAgeExceeded");
    }
}
