//! Responses to the runtime client, with the texts of Lambda's own Runtime API.

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderValue};
use http::{Response, StatusCode};
use http_body_util::Full;

use super::RESPONSE_BYTES_MAX;
use crate::runtime_protocol::Refusal;

pub(super) const JSON: HeaderValue = HeaderValue::from_static("application/json");

fn json(status: StatusCode, body: Bytes) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, JSON);
    response
}

pub(super) fn accepted() -> Response<Full<Bytes>> {
    json(StatusCode::ACCEPTED, Bytes::from_static(b"{\"status\":\"OK\"}\n"))
}

pub(super) fn error(status: StatusCode, kind: &str, message: &str) -> Response<Full<Bytes>> {
    let body = serde_json::json!({ "errorMessage": message, "errorType": kind });
    json(status, body.to_string().into())
}

pub(super) fn internal(message: &str) -> Response<Full<Bytes>> {
    error(StatusCode::INTERNAL_SERVER_ERROR, "InternalError", message)
}

pub(super) fn not_found() -> Response<Full<Bytes>> {
    error(StatusCode::NOT_FOUND, "NotFound", "404 page not found")
}

pub(super) fn too_large() -> Response<Full<Bytes>> {
    let message = format!("Exceeded maximum allowed payload size ({RESPONSE_BYTES_MAX} bytes).");
    error(StatusCode::PAYLOAD_TOO_LARGE, "RequestEntityTooLarge", &message)
}

pub(super) fn superseded() -> Response<Full<Bytes>> {
    error(StatusCode::CONFLICT, "Conflict", "a later answer came before this one was whole")
}

pub(super) fn refused(refusal: &Refusal) -> Response<Full<Bytes>> {
    let (status, kind) = match refusal {
        Refusal::InvalidRequestId => (StatusCode::BAD_REQUEST, "InvalidRequestID"),
        Refusal::InvalidStateTransition { .. } => (StatusCode::FORBIDDEN, "InvalidStateTransition"),
    };
    error(status, kind, &refusal.to_string())
}
