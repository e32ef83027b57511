//! Whatever comes to a function's URL, and whatever a function answers: no panic, events that are JSON, responses whose
//! headers are whole.
#![no_main]

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use libfuzzer_sys::fuzz_target;
use nigh_functions::function_url::{UrlRequest, UrlTarget, event_of_request, response_of_answer};
use nigh_lambda::http_passage::pass;
use nigh_terms::Timestamp;

const NAMES: [&str; 6] = ["content-type", "cookie", "host", "user-agent", "x-forwarded-for", "accept"];

fuzz_target!(|input: (&str, &str, &str, Vec<(u8, &[u8])>, &[u8])| {
    let (host, path, query, values, body) = input;
    let mut headers = HeaderMap::new();
    for (name, value) in &values {
        let Ok(value) = HeaderValue::from_bytes(value) else { continue };
        headers.append(HeaderName::from_static(NAMES[usize::from(*name) % NAMES.len()]), value);
    }
    let target = UrlTarget::of(Some(host), path);
    if let Some(target) = target {
        assert_eq!(target.id.len(), 32);
    }
    let target = target.unwrap_or(UrlTarget { id: "x", path: "/" });
    let event = event_of_request(&UrlRequest {
        target,
        method: &Method::POST,
        query,
        headers: &headers,
        body,
        source: "127.0.0.1",
        access_key: None,
        request_id: "request",
        at: Timestamp(1_700_000_000_000),
    });
    let _: serde_json::Value = serde_json::from_slice(&event).expect("an event is JSON");
    let _ = pass(&event, "request");
    let _ = pass(&Bytes::copy_from_slice(body), "request");
    if let Ok(response) = response_of_answer(Bytes::copy_from_slice(body)) {
        assert!(!response.status.is_informational() && !response.headers.contains_key("transfer-encoding"));
    }
});
