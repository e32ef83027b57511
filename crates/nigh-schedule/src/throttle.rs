//! What a refusal says that is over as soon as others have ended: when to ask again.

use http::header::RETRY_AFTER;
use http::{HeaderMap, HeaderValue, StatusCode};

/// Seconds: sandboxes become free, and are made, in less.
const AGAIN_AFTER: HeaderValue = HeaderValue::from_static("1");

/// Adds to an answer of this `status` when to ask again, if it is 429 (RFC 6585, section 4).
pub fn say_when(status: StatusCode, headers: &mut HeaderMap) {
    if status == StatusCode::TOO_MANY_REQUESTS {
        headers.insert(RETRY_AFTER, AGAIN_AFTER);
    }
}
