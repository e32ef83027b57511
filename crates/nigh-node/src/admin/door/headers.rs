//! What every answer over TCP says to browsers: no foreign content, no framing, no guessing of types, no referrer.

use axum::http::{HeaderMap, HeaderName, HeaderValue, header};

const USUAL: [(HeaderName, &str); 7] = [
    (header::CONTENT_SECURITY_POLICY, nigh_page::CONTENT_SECURITY_POLICY),
    (header::CACHE_CONTROL, "no-store"),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::REFERRER_POLICY, "no-referrer"),
    (header::X_FRAME_OPTIONS, "DENY"),
    (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
];

/// Adds the headers that an answer does not have itself.
pub(super) fn secure(headers: &mut HeaderMap) {
    for (name, value) in USUAL {
        headers.entry(name).or_insert(HeaderValue::from_static(value));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_not_stored_and_not_framed_and_may_say_more_itself() {
        let mut headers = HeaderMap::new();
        secure(&mut headers);
        assert_eq!(headers[header::CACHE_CONTROL], "no-store");
        assert!(headers[header::CONTENT_SECURITY_POLICY].to_str().unwrap().contains("frame-ancestors 'none'"));
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
        headers.insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static("sandbox"));
        secure(&mut headers);
        assert_eq!(headers[header::CACHE_CONTROL], "no-cache");
        assert_eq!(headers[header::CONTENT_SECURITY_POLICY], "sandbox");
    }
}
