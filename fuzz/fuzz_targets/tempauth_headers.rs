//! TempAuth's answer to a login: any headers grant an address by HTTP and a token, or are an error.

#![no_main]

use http::header::{HeaderMap, HeaderName, HeaderValue};
use libfuzzer_sys::fuzz_target;
use nigh_stores::swift::auth::parse_tempauth;

fuzz_target!(|bytes: &[u8]| {
    let names = ["x-auth-token", "x-storage-url", "x-auth-token-expires"].map(HeaderName::from_static);
    let values = bytes.split(|byte| *byte == b'\n').filter_map(|value| HeaderValue::from_bytes(value).ok());
    let headers: HeaderMap = names.into_iter().zip(values).collect();
    if let Ok(grant) = parse_tempauth(&headers) {
        assert!(grant.url.contains("://") && !grant.url.ends_with('/'));
        assert!(!grant.token.reveal().is_empty());
    }
});
