//! Whatever stands in the head of a request: no panic, and no signature by a secret that the sender has not.
#![no_main]

use http::{HeaderMap, HeaderValue};
use libfuzzer_sys::fuzz_target;
use nigh_http::sigv4::{Authorization, RequestHead, SigningKeys};
use nigh_terms::{SecretKey, Timestamp};

/// 2024-01-02T03:04:05Z.
const NOW: Timestamp = Timestamp(1_704_164_645_000);

fuzz_target!(|input: (&str, &str, &str, &str)| {
    let (authorization, date, path, query) = input;
    let mut headers = HeaderMap::new();
    headers.insert("host", HeaderValue::from_static("localhost"));
    for (name, value) in [("authorization", authorization), ("x-amz-date", date)] {
        let Ok(value) = HeaderValue::from_str(value) else { return };
        headers.insert(name, value);
    }
    let Ok(parsed) = Authorization::of(&headers) else { return };
    assert!(parsed.signed_headers.is_sorted());
    let claims = parsed.check_claims(&headers, "lambda", NOW);
    let head = RequestHead { method: "POST", path, query, headers: &headers };
    let secret = SecretKey::new("a secret that no input knows");
    assert!(parsed.check_signature(&head, &"UNSIGNED-PAYLOAD", &secret, &SigningKeys::default()).is_err());
    if claims.is_ok() {
        assert!(parsed.signed_headers.contains(&"host"));
    }
});
