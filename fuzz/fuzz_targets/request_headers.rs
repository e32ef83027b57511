//! Whatever stands in the head of an S3 request: no panic, no copy by a URL that was presigned for something else,
//! and ranges and dates that mean what they say.
#![no_main]

use http::{HeaderMap, HeaderName, HeaderValue, Method, Uri};
use libfuzzer_sys::fuzz_target;
use nigh_data::RangeSpec;
use nigh_s3::fuzzing::{http_date, http_date_text, passes_screen, query_pairs, range, reads_headers};

const NAMES: [&str; 8] = [
    "authorization",
    "content-md5",
    "content-type",
    "if-match",
    "if-modified-since",
    "x-amz-checksum-crc32",
    "x-amz-storage-class",
    "x-amz-trailer",
];

fn headers(values: &[(u8, &[u8])]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, value) in values {
        let Ok(value) = HeaderValue::from_bytes(value) else { continue };
        headers.append(HeaderName::from_static(NAMES[usize::from(*name) % NAMES.len()]), value);
    }
    headers
}

fuzz_target!(|input: (&str, Vec<(u8, &[u8])>, &str)| {
    let (query, values, text) = input;
    let mut headers = headers(&values);
    let _ = reads_headers(&headers);

    if let Some(RangeSpec::From { first, last: Some(last) }) = range(text) {
        assert!(first <= last);
    }
    if let Some(date) = http_date(text) {
        assert_eq!(http_date(&http_date_text(date)), Some(date));
    }

    let Ok(uri) = format!("/bucket/key?{query}").parse::<Uri>() else { return };
    let query = uri.query().unwrap_or_default();
    // The decoder that checks signatures is another than the one that screens.
    let decoded: Vec<_> = form_urlencoded::parse(query.as_bytes()).collect();
    for (name, value) in query_pairs(query) {
        assert!(decoded.iter().any(|(other, text)| *other == name && *text == value), "{name}={value}");
    }
    headers.insert("x-amz-copy-source", HeaderValue::from_static("/bucket/secret"));
    if passes_screen(&Method::PUT, &uri, &headers) {
        let value_of = |wanted: &str| decoded.iter().find(|(name, _)| name == wanted).map(|(_, value)| value);
        assert!(value_of("Signature").is_none());
        if value_of("X-Amz-Signature").is_some() {
            let signed = value_of("X-Amz-SignedHeaders").expect("a presigned URL names its headers");
            assert!(signed.split(';').any(|name| name.eq_ignore_ascii_case("x-amz-copy-source")));
        }
    }
});
