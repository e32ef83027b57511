//! Whatever comes to OpenWhisk's API, and whatever an action answers: no panic, refusals that are refusals, inputs in which
//! nobody passes for another, responses whose headers are whole.
#![no_main]

use http::{HeaderMap, HeaderName, HeaderValue};
use libfuzzer_sys::fuzz_target;
use nigh_openwhisk::ROOT;
use nigh_openwhisk::fuzzing::{read_answer, read_request};

const NAMES: [&str; 4] = ["content-type", "authorization", "x-request-id", "x-require-whisk-auth"];

fuzz_target!(|input: (&str, &str, Vec<(u8, &[u8])>, &[u8], bool)| {
    let (path, query, values, body, failed) = input;
    let mut headers = HeaderMap::new();
    for (name, value) in &values {
        let Ok(value) = HeaderValue::from_bytes(value) else { continue };
        headers.append(HeaderName::from_static(NAMES[usize::from(*name) % NAMES.len()]), value);
    }
    read_request(&format!("{ROOT}/{path}"), query, &headers, body);
    read_answer(body, failed);
});
