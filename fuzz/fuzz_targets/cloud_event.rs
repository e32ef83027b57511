//! Whatever a sender calls a CloudEvent: no panic, and what is taken is an event that goes out as it came in.
#![no_main]

use http::{HeaderMap, HeaderName, HeaderValue};
use libfuzzer_sys::fuzz_target;
use nigh_lambda::cloud_event::{is_event, read, write};

const NAMES: [&str; 8] =
    ["ce-specversion", "ce-id", "ce-source", "ce-type", "ce-subject", "ce-time", "content-type", "ce-datacontenttype"];

fuzz_target!(|input: (Vec<(u8, &[u8])>, bool, &[u8])| {
    let (values, is_whole, body) = input;
    let mut headers = HeaderMap::new();
    if !is_whole {
        for (name, value) in [("ce-specversion", "1.0"), ("ce-id", "1"), ("ce-source", "s"), ("ce-type", "t")] {
            headers.insert(HeaderName::from_static(name), HeaderValue::from_static(value));
        }
    }
    for (name, value) in &values {
        let Ok(value) = HeaderValue::from_bytes(value) else { continue };
        headers.insert(HeaderName::from_static(NAMES[usize::from(*name) % NAMES.len()]), value);
    }
    let Ok((mode, event)) = read(&headers, body) else { return };
    assert!(is_event(&event));
    let Ok((out, sent)) = write(mode, &event) else { return };
    let (again, back) = read(&out, &sent).expect("what was written is an event");
    assert_eq!(again, mode);
    for name in ["specversion", "id", "source", "type"] {
        assert_eq!(back[name], event[name]);
    }
});
