//! The attributes of an object as headers: read from requests, and written into answers.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use http::{HeaderMap, HeaderName, HeaderValue, header};
use nigh_data::Attributes;
use s3s::dto::Metadata;

use crate::conditions::text;

const META: &str = "x-amz-meta-";
/// The content type that S3 answers if the writer of an object gave none.
const DEFAULT_TYPE: HeaderValue = HeaderValue::from_static("binary/octet-stream");

/// The attributes that a request states. `user` is the user metadata, whose values `s3s` has decoded (RFC 2047).
pub(crate) fn attributes(headers: &HeaderMap, user: Option<Metadata>) -> Attributes {
    let owned = |name| text(headers, name).map(str::to_owned);
    Attributes {
        content_type: owned(&header::CONTENT_TYPE),
        cache_control: owned(&header::CACHE_CONTROL),
        content_disposition: owned(&header::CONTENT_DISPOSITION),
        content_encoding: text(headers, &header::CONTENT_ENCODING).and_then(without_aws_chunked),
        content_language: owned(&header::CONTENT_LANGUAGE),
        expires: owned(&header::EXPIRES),
        user: user.unwrap_or_default().into_iter().collect(),
    }
}

/// Removes `aws-chunked` from a content encoding, because it describes the request's body and not the object. None if
/// no encoding is left.
fn without_aws_chunked(codings: &str) -> Option<String> {
    let is_chunked = |coding: &str| coding.eq_ignore_ascii_case("aws-chunked");
    let given = || codings.split(',').map(str::trim).filter(|coding| !coding.is_empty());
    if given().all(is_chunked) {
        return None;
    }
    if given().any(is_chunked) {
        return Some(given().filter(|coding| !is_chunked(coding)).collect::<Vec<_>>().join(", "));
    }
    Some(codings.to_owned())
}

/// Writes the attributes into the headers of an answer.
pub(crate) fn answer(attributes: &Attributes, headers: &mut HeaderMap) {
    let type_given = attributes.content_type.as_deref().and_then(header_value);
    headers.insert(header::CONTENT_TYPE, type_given.unwrap_or(DEFAULT_TYPE));
    for (name, value) in [
        (header::CACHE_CONTROL, &attributes.cache_control),
        (header::CONTENT_DISPOSITION, &attributes.content_disposition),
        (header::CONTENT_ENCODING, &attributes.content_encoding),
        (header::CONTENT_LANGUAGE, &attributes.content_language),
        (header::EXPIRES, &attributes.expires),
    ] {
        if let Some(value) = value.as_deref().and_then(header_value) {
            headers.insert(name, value);
        }
    }
    for (name, value) in &attributes.user {
        if let (Ok(name), Some(value)) = (HeaderName::try_from(format!("{META}{name}")), header_value(value)) {
            headers.insert(name, value);
        }
    }
}

/// `value` as it is, or as an encoded word (RFC 2047) if a header cannot carry it.
fn header_value(value: &str) -> Option<HeaderValue> {
    if value.bytes().all(|byte| (0x20..0x7f).contains(&byte) || byte == b'\t') {
        return HeaderValue::from_str(value).ok();
    }
    HeaderValue::try_from(format!("=?UTF-8?B?{}?=", BASE64_STANDARD.encode(value))).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_come_back_as_they_were_given() {
        let mut given = HeaderMap::new();
        for (name, value) in [
            ("content-type", "text/plain; charset=utf-8"),
            ("cache-control", "max-age=3"),
            ("content-disposition", "attachment; filename=a"),
            ("content-encoding", "aws-chunked, gzip"),
            ("content-language", "de"),
            ("expires", "not even a date"),
        ] {
            given.insert(name, value.parse().unwrap());
        }
        let user = [("a".to_owned(), "1".to_owned()), ("b".to_owned(), "grün".to_owned())];
        let attributes = attributes(&given, Some(user.into_iter().collect()));
        let mut back = HeaderMap::new();
        answer(&attributes, &mut back);
        given.insert("content-encoding", "gzip".parse().unwrap());
        for (name, value) in &given {
            assert_eq!(back[name], *value);
        }
        assert_eq!(back["x-amz-meta-a"], "1");
        assert_eq!(back["x-amz-meta-b"], "=?UTF-8?B?Z3LDvG4=?=");
    }

    #[test]
    fn an_object_without_a_type_has_the_default_one() {
        let mut back = HeaderMap::new();
        answer(&Attributes::default(), &mut back);
        assert_eq!(back.len(), 1);
        assert_eq!(back["content-type"], "binary/octet-stream");
    }

    #[test]
    fn codings_come_back_as_they_were_given_without_aws_chunked() {
        for (given, kept) in [
            ("deflate, gzip", Some("deflate, gzip")),
            ("deflate,gzip", Some("deflate,gzip")),
            ("aws-chunked,deflate,gzip", Some("deflate, gzip")),
            ("gzip, AWS-Chunked", Some("gzip")),
            ("aws-chunked", None),
            (" , ", None),
            ("", None),
        ] {
            assert_eq!(without_aws_chunked(given).as_deref(), kept, "{given:?}");
        }
    }
}
