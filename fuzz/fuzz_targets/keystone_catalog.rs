//! Keystone's answer to a login: any bytes grant an address by HTTP and a token that is used for no longer than it
//! lives, or are an error.

#![no_main]

use http::header::{HeaderMap, HeaderName, HeaderValue};
use libfuzzer_sys::fuzz_target;
use nigh_stores::swift::auth::{EndpointChoice, parse_keystone};

fuzz_target!(|bytes: &[u8]| {
    let token = (HeaderName::from_static("x-subject-token"), HeaderValue::from_static("token"));
    let headers: HeaderMap = [token].into_iter().collect();
    for region in [None, Some("one".to_owned())] {
        let choice = EndpointChoice { region, interface: "public".to_owned() };
        if let Ok(grant) = parse_keystone(&choice, &headers, bytes) {
            assert!(grant.url.contains("://") && !grant.url.ends_with('/'));
            assert_eq!(grant.token.reveal(), "token");
        }
    }
});
