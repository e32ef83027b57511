//! When a throttled client asks again.

use http::header::RETRY_AFTER;
use http::{HeaderMap, HeaderValue, StatusCode};

/// Seconds: within one second a sandbox becomes free, or is made.
const AGAIN_AFTER: HeaderValue = HeaderValue::from_static("1");

/// Adds `Retry-After` to an answer of the status 429 (RFC 6585, section 4).
pub fn say_when(status: StatusCode, headers: &mut HeaderMap) {
    if status == StatusCode::TOO_MANY_REQUESTS {
        headers.insert(RETRY_AFTER, AGAIN_AFTER);
    }
}
