//! The canonical form of a request: one text for all the ways to write the same request. Pure.

use std::fmt::Write as _;

use nigh_terms::Hex;
use percent_encoding::percent_decode_str;

use super::{RequestHead, SignatureError};

/// What the signer hashed, if it signed this.
pub(super) fn canonical_request(
    request: &RequestHead<'_>,
    signed_headers: &[&str],
    body_sha256: &[u8; 32],
) -> Result<String, SignatureError> {
    let mut text = String::with_capacity(512);
    text.push_str(request.method);
    text.push('\n');
    push_path(&mut text, request.path);
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
    let _ = write!(text, "\n{}\n{}", signed_headers.join(";"), Hex(body_sha256));
    Ok(text)
}

/// The path without empty and dot segments, each octet that is not unreserved encoded once more.
fn push_path(text: &mut String, path: &str) {
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
            push_path(&mut text, path);
            assert_eq!(text, canonical, "{path}");
        }
    }
}
