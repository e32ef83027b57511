//! Turns the fast path's requests into what the S3 door understands: fields become headers, headers become requests.
//! Pure.

use http::{HeaderMap, HeaderName, HeaderValue, header};
use nigh_data::{Attributes, ChecksumClaim, ClaimedValue, GetRequest, RangeSpec, Tags, WriteConditions};
use nigh_engine::RequestId;
use s3s::dto::Metadata;
use s3s::{S3Error, S3ErrorCode, S3Result};

use super::wire::{Headers, ReadRequest};
use crate::error::{invalid_argument, invalid_request, not_implemented};
use crate::read::{PART_NUMBER_MAX, part_number_error};
use crate::screen::{HEADERS_MAX, screen_header};
use crate::{checksum_headers, conditions, metadata, payload, repeated, tagging};

const META: &str = "x-amz-meta-";
/// The beginning of an encoded word (RFC 2047). Only `s3s` decodes encoded words.
const ENCODED_WORD: &str = "=?";

static SDK_ALGORITHM: HeaderName = HeaderName::from_static("x-amz-sdk-checksum-algorithm");
static TAGGING: HeaderName = HeaderName::from_static("x-amz-tagging");

/// A read, as the object memory needs it, and what its answer also depends on.
#[derive(Debug)]
pub(super) struct Question {
    pub(super) wanted: GetRequest,
    pub(super) if_range: Option<String>,
    pub(super) with_checksum: bool,
}

/// The question that a read asks.
pub(super) fn of_read(read: ReadRequest) -> S3Result<Question> {
    if read.version_id.as_deref().is_some_and(|version| version != "null") {
        return Err(not_implemented("versionId"));
    }
    if read.part.is_some_and(|part| !(1..=PART_NUMBER_MAX).contains(&part)) {
        return Err(part_number_error());
    }
    let mut headers = HeaderMap::with_capacity(4);
    for (name, text) in [
        (header::IF_MATCH, &read.if_match),
        (header::IF_NONE_MATCH, &read.if_none_match),
        (header::IF_MODIFIED_SINCE, &read.if_modified_since),
        (header::IF_UNMODIFIED_SINCE, &read.if_unmodified_since),
    ] {
        if let Some(text) = text {
            headers.insert(name.clone(), value(&name, text)?);
        }
    }
    let range = match (read.range.as_deref().and_then(|text| conditions::range(text.trim())), read.part) {
        (Some(_), Some(_)) => return Err(invalid_request("a read takes a range or a part number, not both")),
        (range, part) => range.or(part.map(RangeSpec::Part)),
    };
    Ok(Question {
        wanted: GetRequest { conditions: conditions::of_read(&headers)?, range },
        if_range: read.if_range,
        with_checksum: read.checksum_mode.is_some_and(|mode| mode.eq_ignore_ascii_case("ENABLED")),
    })
}

fn value(name: &HeaderName, text: &str) -> S3Result<HeaderValue> {
    HeaderValue::from_str(text).map_err(|_| invalid_argument(format!("{name} is no value for a header")))
}

/// The object that a put describes in its headers.
#[derive(Debug)]
pub(super) struct Description {
    pub(super) attributes: Attributes,
    pub(super) tags: Tags,
    pub(super) conditions: WriteConditions,
    pub(super) md5: Option<[u8; 16]>,
    pub(super) checksum: Option<ChecksumClaim>,
    pub(super) request: Option<RequestId>,
}

/// The result of parsing the headers of a put.
#[derive(Debug)]
pub(super) enum PutHeaderOutcome {
    /// The object that the headers describe.
    As(Box<Description>),
    /// The headers can only be read over HTTP.
    ForHttp,
}

/// Parses the headers of a put of `length` bytes.
pub(super) fn of_put(given: &Headers, length: u64) -> S3Result<PutHeaderOutcome> {
    let size: usize = given.iter().map(|(name, value)| name.len() + value.len()).sum();
    if size > HEADERS_MAX {
        return Err(S3Error::with_message(
            S3ErrorCode::RequestHeaderSectionTooLarge,
            format!("the request's headers have more than {HEADERS_MAX} bytes"),
        ));
    }
    let (mut headers, mut user) = (HeaderMap::with_capacity(given.len()), Metadata::default());
    for (name, text) in given {
        let name = HeaderName::try_from(name.as_str())
            .map_err(|_| invalid_argument(format!("{name:?} is no name of a header")))?;
        let value = value(&name, text)?;
        if let Some(meta) = name.as_str().strip_prefix(META) {
            if text.contains(ENCODED_WORD) {
                return Ok(PutHeaderOutcome::ForHttp);
            }
            if !meta.is_empty() {
                user.insert(meta.to_owned(), text.trim().to_owned());
            }
        } else if let Some(amazon) = name.as_str().strip_prefix("x-amz-") {
            screen_header(amazon, text)?;
        }
        headers.insert(name, value);
    }
    if headers.contains_key("x-amz-copy-source") {
        return Err(not_implemented("a copy on the fast path; use HTTP"));
    }
    if let Some(claimed) = conditions::text(&headers, &header::CONTENT_LENGTH)
        && claimed.parse() != Ok(length)
    {
        return Err(S3Error::with_message(
            S3ErrorCode::IncompleteBody,
            format!("content-length says {claimed}, and {length} bytes came"),
        ));
    }
    let condition = |name: HeaderName| {
        conditions::text(&headers, &name)
            .map(|value| value.parse().map_err(|_| invalid_argument(format!("{name} is no entity tag"))))
            .transpose()
    };
    Ok(PutHeaderOutcome::As(Box::new(Description {
        tags: tagging::of_header(conditions::text(&headers, &TAGGING))?,
        conditions: conditions::of_write(condition(header::IF_MATCH)?, condition(header::IF_NONE_MATCH)?)?,
        md5: payload::content_md5(&headers)?,
        request: repeated::request(&headers),
        checksum: claim(&mut headers)?,
        attributes: metadata::attributes(&headers, Some(user)),
    })))
}

/// The checksum that the client claims or wants. Over HTTP, an SDK computes the checksum whose algorithm it names; here
/// the node may compute it. None if the headers name no checksum.
fn claim(headers: &mut HeaderMap) -> S3Result<Option<ChecksumClaim>> {
    if checksum_headers::claimed_algorithm(headers).is_none()
        && let Some(name) = headers.remove(&SDK_ALGORITHM)
    {
        let algorithm = checksum_headers::algorithm(name.to_str().unwrap_or_default())?;
        return Ok(Some(ChecksumClaim { algorithm, value: ClaimedValue::Compute }));
    }
    checksum_headers::claim(headers, None)
}

#[cfg(test)]
mod tests {
    use nigh_data::{ChecksumAlgorithm, ETag};

    use super::*;

    fn put(given: &[(&str, &str)]) -> Result<PutHeaderOutcome, String> {
        let given = given.iter().map(|&(name, value)| (name.to_owned(), value.to_owned())).collect();
        of_put(&given, 5).map_err(|error| error.code().as_str().to_owned())
    }

    fn described(given: &[(&str, &str)]) -> Description {
        match put(given) {
            Ok(PutHeaderOutcome::As(description)) => *description,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_reads_fields_are_headers() {
        let read = ReadRequest {
            range: Some("bytes=1-2".to_owned()),
            if_match: Some("\"a\"".to_owned()),
            checksum_mode: Some("enabled".to_owned()),
            version_id: Some("null".to_owned()),
            ..ReadRequest::default()
        };
        let question = of_read(read).unwrap();
        assert_eq!(question.wanted.range, Some(RangeSpec::From { first: 1, last: Some(2) }));
        assert_eq!(question.wanted.conditions.if_match, Some(vec![ETag("a".to_owned())]));
        assert!(question.with_checksum);
        let code = |read| of_read(read).unwrap_err().code().as_str().to_owned();
        assert_eq!(code(ReadRequest { version_id: Some("v".to_owned()), ..ReadRequest::default() }), "NotImplemented");
        assert_eq!(code(ReadRequest { part: Some(0), ..ReadRequest::default() }), "InvalidArgument");
        let both = ReadRequest { part: Some(1), range: Some("bytes=0-1".to_owned()), ..ReadRequest::default() };
        assert_eq!(code(both), "InvalidRequest");
        assert_eq!(
            code(ReadRequest { if_match: Some("a\r\nb".to_owned()), ..ReadRequest::default() }),
            "InvalidArgument"
        );
        let ignored = of_read(ReadRequest { range: Some("lines=1-2".to_owned()), ..ReadRequest::default() }).unwrap();
        assert_eq!(ignored.wanted.range, None, "as over HTTP");
    }

    #[test]
    fn a_puts_headers_describe_its_object() {
        let all = described(&[
            ("content-type", "text/plain"),
            ("content-length", "5"),
            ("x-amz-meta-A", " b "),
            ("x-amz-tagging", "t=1"),
            ("if-none-match", "*"),
            ("x-amz-checksum-crc32", "AAAAAA=="),
            ("amz-sdk-invocation-id", "00000000-0000-0000-0000-00000000002a"),
        ]);
        assert_eq!(all.attributes.content_type.as_deref(), Some("text/plain"));
        assert_eq!(all.attributes.user, [("a".to_owned(), "b".to_owned())].into());
        assert_eq!(all.tags, [("t".to_owned(), "1".to_owned())].into());
        assert!(all.conditions.if_absent);
        assert_eq!(all.request, Some(RequestId(42)));
        let claim = all.checksum.unwrap();
        assert!(matches!(claim.value, ClaimedValue::Given(value) if value == "AAAAAA=="));
    }

    #[test]
    fn a_checksum_that_is_only_named_is_computed() {
        let claim = described(&[("x-amz-sdk-checksum-algorithm", "SHA256")]).checksum.unwrap();
        assert!(matches!((claim.algorithm, claim.value), (ChecksumAlgorithm::Sha256, ClaimedValue::Compute)));
        assert_eq!(put(&[("x-amz-sdk-checksum-algorithm", "MD4")]).unwrap_err(), "InvalidRequest");
    }

    #[test]
    fn what_the_door_refuses_is_refused_and_what_only_it_reads_is_left_to_it() {
        for (name, value, code) in [
            ("x-amz-acl", "public-read", "NotImplemented"),
            ("x-amz-server-side-encryption", "AES256", "NotImplemented"),
            ("x-amz-copy-source", "/b/k", "NotImplemented"),
            ("content-length", "6", "IncompleteBody"),
            ("content-md5", "x", "InvalidDigest"),
            ("x-amz-trailer", "x-amz-checksum-crc32", "InvalidRequest"),
            ("not a name", "x", "InvalidArgument"),
            ("content-type", "a\nb", "InvalidArgument"),
            ("x-amz-tagging", "a=1&a=2", "InvalidTag"),
        ] {
            assert_eq!(put(&[(name, value)]).unwrap_err(), code, "{name}");
        }
        assert!(matches!(put(&[("x-amz-meta-a", "=?UTF-8?B?Z3LDvG4=?=")]), Ok(PutHeaderOutcome::ForHttp)));
        let long = "x".repeat(HEADERS_MAX);
        assert_eq!(put(&[("x-other", &long)]).unwrap_err(), "RequestHeaderSectionTooLarge");
    }
}
