//! `POST /functions/{namespace}/{function}/invoke`: runs a function once, as a client of its namespace would.

use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::response::Response;
use nigh_invoke::invocation::{InvocationResult, InvokeError, InvokeRequest, REQUEST_BYTES_MAX};
use nigh_terms::{FunctionName, InvocationId, Namespace, Principal};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use super::refusal::Refusal;
use super::{AdminSource, json};

/// The most bytes of an input.
pub(super) const INPUT_BYTES_MAX: usize = REQUEST_BYTES_MAX;

/// What a function answered, and how long it took.
#[derive(Debug, PartialEq, Serialize, JsonSchema)]
pub(super) struct InvokeAnswer {
    /// The id of the invocation.
    id: InvocationId,
    /// `Unhandled` if the function failed; then `payload` is the error.
    function_error: Option<&'static str>,
    /// What it answered.
    payload: Value,
    /// The end of the log.
    log: String,
    wait_us: u64,
    init_us: Option<u64>,
    duration_us: u64,
}

impl From<InvocationResult> for InvokeAnswer {
    fn from(result: InvocationResult) -> Self {
        // A handler with its own runtime may answer anything.
        let text = || Value::String(String::from_utf8_lossy(&result.payload).into_owned());
        Self {
            id: result.id,
            function_error: result.function_error,
            payload: serde_json::from_slice(&result.payload).unwrap_or_else(|_| text()),
            log: String::from_utf8_lossy(result.log_tail()).into_owned(),
            wait_us: result.run.wait_us,
            init_us: result.run.init_us,
            duration_us: result.run.duration_us,
        }
    }
}

pub(super) async fn invoke<N: AdminSource>(
    State(node): State<Arc<N>>,
    Path((namespace, function)): Path<(Namespace, FunctionName)>,
    payload: Bytes,
) -> Result<Response, Refusal> {
    let who = Principal::outside(namespace);
    let invoke = node.invoke();
    let payload = if payload.is_empty() { Bytes::from_static(b"{}") } else { payload };
    let token = invoke.seen(&who);
    let request = InvokeRequest { function, payload, client_context: None, token, event: None };
    let result = invoke.invoke(&who, request).await.map_err(refused)?;
    json(&InvokeAnswer::from(result))
}

fn refused(error: InvokeError) -> Refusal {
    let words = error.to_string();
    match error {
        InvokeError::NotFound(_) => Refusal::not_found(words),
        InvokeError::InvalidRequest(_) | InvokeError::PayloadTooLarge { .. } => Refusal::bad_request(words),
        InvokeError::TooManyRequests(_) | InvokeError::ReservedConcurrency { .. } | InvokeError::Gate(_) => {
            Refusal::too_many(words)
        }
        InvokeError::Network(_) | InvokeError::Lost(_) | InvokeError::ShuttingDown | InvokeError::Internal(_) => {
            Refusal::unavailable(words)
        }
    }
}

#[cfg(test)]
mod tests {
    use nigh_invoke::invocation::RunTimes;
    use nigh_terms::Token;
    use serde_json::json;

    use super::*;

    #[test]
    fn an_answer_that_is_no_json_is_given_as_text() {
        let result = |payload: &'static [u8]| InvocationResult {
            id: InvocationId::now(),
            payload: Bytes::from_static(payload),
            function_error: None,
            log: b"hello\n".to_vec(),
            run: RunTimes { wait_us: 1, init_us: None, duration_us: 2, log_omitted: 0 },
            token: Token::empty(),
            touched: Vec::new(),
        };
        let answer = InvokeAnswer::from(result(b"{\"a\":1}"));
        assert_eq!((answer.payload, answer.log.as_str(), answer.duration_us), (json!({"a": 1}), "hello\n", 2));
        assert_eq!(InvokeAnswer::from(result(b"<b>")).payload, json!("<b>"));
    }
}
