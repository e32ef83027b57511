//! The answers of the Lambda API.

use bytes::Bytes;
use http::header::{CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode};
use http_body_util::Full;
use nigh_http::throttle::say_when;
use serde_json::Value;

use super::LambdaError;

/// An answer of the door.
pub(super) type LambdaResponse = Response<Full<Bytes>>;

/// The headers of the Lambda API.
pub(super) mod header {
    use http::HeaderName;

    pub(crate) const INVOCATION_TYPE: HeaderName = HeaderName::from_static("x-amz-invocation-type");
    pub(crate) const LOG_TYPE: HeaderName = HeaderName::from_static("x-amz-log-type");
    pub(crate) const LOG_RESULT: HeaderName = HeaderName::from_static("x-amz-log-result");
    pub(crate) const CLIENT_CONTEXT: HeaderName = HeaderName::from_static("x-amz-client-context");
    pub(crate) const FUNCTION_ERROR: HeaderName = HeaderName::from_static("x-amz-function-error");
    pub(crate) const EXECUTED_VERSION: HeaderName = HeaderName::from_static("x-amz-executed-version");
    pub(crate) const REQUEST_ID: HeaderName = HeaderName::from_static("x-amzn-requestid");
    pub(crate) const ERROR_TYPE: HeaderName = HeaderName::from_static("x-amzn-errortype");
}

/// How long a throttled caller should wait: by then some running invocations have ended.
const RETRY_AFTER_SECONDS: HeaderValue = HeaderValue::from_static("1");
pub(super) const JSON: HeaderValue = HeaderValue::from_static("application/json");

pub(super) fn json_answer(status: StatusCode, body: &Value) -> LambdaResponse {
    let mut answer = Response::new(Full::new(Bytes::from(body.to_string())));
    *answer.status_mut() = status;
    answer.headers_mut().insert(CONTENT_TYPE, JSON);
    answer
}

pub(super) fn empty_answer(status: StatusCode) -> LambdaResponse {
    let mut answer = Response::new(Full::default());
    *answer.status_mut() = status;
    answer
}

/// The answer to a refused request.
pub(super) fn error_answer(error: &LambdaError) -> LambdaResponse {
    let mut answer = Response::new(Full::new(error.body()));
    *answer.status_mut() = error.status;
    answer.headers_mut().insert(CONTENT_TYPE, JSON);
    answer.headers_mut().insert(header::ERROR_TYPE, HeaderValue::from_static(error.kind));
    say_when(error.status, answer.headers_mut());
    if error.reason.is_some() {
        answer.headers_mut().insert(RETRY_AFTER, RETRY_AFTER_SECONDS);
    }
    answer
}

pub(super) fn set(headers: &mut HeaderMap, name: HeaderName, value: &str) {
    if let Ok(value) = HeaderValue::from_str(value) {
        headers.insert(name, value);
    }
}
