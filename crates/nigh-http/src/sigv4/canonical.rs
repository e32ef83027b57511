//! The canonical form of a request: one text for all the ways to write the same request. Pure.

use std::fmt::{Display, Write as _};

use percent_encoding::percent_decode_str;

use super::{RequestHead, SignatureError};

/// The text that the signer hashes. `payload` is the body's digest, or says that the body is not signed.
pub(super) fn canonical_request(
    request: &RequestHead<'_>,
    signed_headers: &[&str],
    payload: &dyn Display,
    path_is_encoded_once: bool,
) -> Result<String, SignatureError> {
    let mut text = String::with_capacity(512);
    text.push_str(request.method);
    text.push('\n');
    match path_is_encoded_once {
        true => push_path_once(&mut text, request.path),
        false => push_path_twice(&mut text, request.path),
    }
    text.push('\n');
    push_query(&mut text, request.query);
    text.push('\n');
    for name in signed_headers {
        text.push_str(name);
        text.push(':');
        let mut values = request.headers.get_all(*name).iter().peekable();
        if values.peek().is_none() {
            return Err(SignatureError::Incomplete("a header it covers is absent"));
        }
        for (place, value) in values.enumerate() {
            let value = value.to_str().map_err(|_| SignatureError::Incomplete("a signed header is not ASCII"))?;
            text.push_str(if place > 0 { "," } else { "" });
            for (place, word) in value.split_ascii_whitespace().enumerate() {
                text.push_str(if place > 0 { " " } else { "" });
                text.push_str(word);
            }
        }
        text.push('\n');
    }
    let _ = write!(text, "\n{}\n{payload}", signed_headers.join(";"));
    Ok(text)
}

/// The path as it is, in its one encoded form.
fn push_path_once(text: &mut String, path: &str) {
    for (place, segment) in path.split('/').enumerate() {
        text.push_str(if place > 0 { "/" } else { "" });
        push_encoded(text, &percent_decode_str(segment).collect::<Vec<u8>>());
    }
}

/// The path without empty and dot segments, each octet that is not unreserved encoded once more.
fn push_path_twice(text: &mut String, path: &str) {
    let mut segments: Vec<&str> = Vec::new();
    for segment in path.split('/') {
        match segment {
            "" | "." => {}
            ".." => drop(segments.pop()),
            _ => segments.push(segment),
        }
    }
    for segment in &segments {
        text.push('/');
        push_encoded(text, segment.as_bytes());
    }
    if segments.is_empty() || path.ends_with('/') {
        text.push('/');
    }
}

/// The query's pairs, sorted, each in its one encoded form.
fn push_query(text: &mut String, query: &str) {
    let mut pairs: Vec<(String, String)> = query
        .split('&')
        .filter(|pair| !pair.is_empty())
        .map(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let once = |part: &str| {
                let mut encoded = String::with_capacity(part.len());
                push_encoded(&mut encoded, &percent_decode_str(part).collect::<Vec<u8>>());
                encoded
            };
            (once(name), once(value))
        })
        .collect();
    pairs.sort_unstable();
    for (place, (name, value)) in pairs.iter().enumerate() {
        text.push_str(if place > 0 { "&" } else { "" });
        text.push_str(name);
        text.push('=');
        text.push_str(value);
    }
}

fn push_encoded(text: &mut String, octets: &[u8]) {
    for &octet in octets {
        if octet.is_ascii_alphanumeric() || matches!(octet, b'-' | b'.' | b'_' | b'~') {
            text.push(char::from(octet));
        } else {
            let _ = write!(text, "%{octet:02X}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_path_is_canonical_whatever_its_dots() {
        for (path, canonical) in [
            ("", "/"),
            ("/", "/"),
            ("/a//b/./c/../d", "/a/b/d"),
            ("/../..", "/"),
            ("/a%20b/", "/a%2520b/"),
            ("/ü", "/%C3%BC"),
        ] {
            let mut text = String::new();
            push_path_twice(&mut text, path);
            assert_eq!(text, canonical, "{path}");
        }
        for (path, canonical) in [("/", "/"), ("/a//b/./%2E/ü%20/", "/a//b/././%C3%BC%20/")] {
            let mut text = String::new();
            push_path_once(&mut text, path);
            assert_eq!(text, canonical, "{path}");
        }
    }
}
