//! Refuses requests before anything else handles them. Pure.
//!
//! Two kinds of requests are refused. First, requests with headers that the signature must cover and does not: `s3s`
//! does not check this, and without the check the holder of a presigned URL for a put could turn the put into a copy by
//! adding a header. Second, requests with options that are not supported and that would change the request's meaning if
//! they were ignored: encryption, locks, grants, storage classes, versions. The second kind is answered with
//! `NotImplemented`.

use http::{HeaderMap, Method, Uri, header};
use nigh_terms::ACCOUNT;
use s3s::{S3Error, S3ErrorCode, S3Result};

use crate::checksum_headers::screen_checksum;
use crate::error::{invalid_request, not_implemented};
use crate::query;
use crate::transaction_header::TRANSACTION;

/// The most bytes that all header names and values of a request may have together.
pub(crate) const HEADERS_MAX: usize = 16 * 1024;
/// The longest life of a presigned URL, in seconds (API reference, "Authenticating requests: using query parameters").
const PRESIGNED_SECONDS_MAX: u64 = 7 * 24 * 3600;

/// The headers that a request says it has signed.
enum SignedHeaderNames<'r> {
    /// Header names separated by `;`.
    Names(std::borrow::Cow<'r, str>),
    /// The request has no credentials; `s3s` denies it later.
    Nothing,
}

/// Returns an error if the request is refused.
pub(crate) fn screen(method: &Method, uri: &Uri, headers: &HeaderMap) -> S3Result<()> {
    let query = ScreenedQuery::read(uri.query().unwrap_or_default());
    let signed = signed_headers(&query, headers)?;
    if let SignedHeaderNames::Names(names) = &signed
        && !is_signed(names, header::HOST.as_str())
    {
        return Err(unsigned_header(header::HOST.as_str()));
    }
    let mut size = 0;
    for (name, value) in headers {
        let name = name.as_str();
        size += name.len() + value.len();
        if name == TRANSACTION.as_str()
            && let SignedHeaderNames::Names(names) = &signed
            && !is_signed(names, name)
        {
            return Err(unsigned_header(name));
        }
        if let Some(amazon) = name.strip_prefix("x-amz-") {
            if let SignedHeaderNames::Names(names) = &signed
                && !may_be_unsigned(amazon)
                && !is_signed(names, name)
            {
                return Err(unsigned_header(name));
            }
            screen_header(amazon, value.to_str().unwrap_or("?"))?;
        }
    }
    if size > HEADERS_MAX {
        return Err(S3Error::with_message(
            S3ErrorCode::RequestHeaderSectionTooLarge,
            format!("the request's headers have more than {HEADERS_MAX} bytes"),
        ));
    }
    if method == Method::POST && is_form(headers) {
        return Err(not_implemented("uploading by an HTML form (POST Object)"));
    }
    query.refused.map_or(Ok(()), Err)
}

/// Finds the list of signed headers. Looks for credentials in the same order as `s3s`, and decodes names as `s3s` does.
/// Credentials without signed headers are refused, so that `s3s` never accepts credentials that this function does not
/// see.
fn signed_headers<'r>(query: &ScreenedQuery<'r>, headers: &'r HeaderMap) -> S3Result<SignedHeaderNames<'r>> {
    // A signature of version 2 does not cover the whole query: a client with a presigned URL could change its
    // operation.
    if query.is_version_2 {
        return Err(version_2());
    }
    if query.is_presigned {
        let names = query.signed_headers.and_then(query::QueryValue::decode);
        return names.map(SignedHeaderNames::Names).ok_or_else(nothing_signed);
    }
    let Some(authorization) = headers.get(header::AUTHORIZATION) else { return Ok(SignedHeaderNames::Nothing) };
    if authorization.as_bytes().starts_with(b"AWS ") {
        return Err(version_2());
    }
    let names = authorization.to_str().ok().and_then(signed_header_names);
    names.map(|names| SignedHeaderNames::Names(names.into())).ok_or_else(nothing_signed)
}

/// The names in the field `SignedHeaders` of an `Authorization` of version 4.
pub(crate) fn signed_header_names(authorization: &str) -> Option<&str> {
    authorization.split(',').find_map(|field| field.rsplit(' ').find_map(|word| word.strip_prefix("SignedHeaders=")))
}

fn version_2() -> S3Error {
    invalid_request(
        "signature version 2 is not supported, with which boto3 and aws-cli 1 presign by default; use version 4: in boto3 \
         by Config(signature_version='s3v4'), in aws-cli by `aws configure set default.s3.signature_version s3v4`",
    )
}

fn nothing_signed() -> S3Error {
    S3Error::with_message(S3ErrorCode::AccessDenied, "the request has credentials and names no signed headers")
}

/// Whether `name` is among `names`, which `;` separates.
pub(crate) fn is_signed(names: &str, name: &str) -> bool {
    names.split(';').any(|signed| signed.eq_ignore_ascii_case(name))
}

/// Returns true for a header that describes only the payload or the client.
fn may_be_unsigned(amazon: &str) -> bool {
    matches!(amazon, "content-sha256" | "user-agent" | "request-payer")
}

fn is_form(headers: &HeaderMap) -> bool {
    headers
        .get(header::CONTENT_TYPE)
        .is_some_and(|kind| kind.as_bytes().trim_ascii().to_ascii_lowercase().starts_with(b"multipart/form-data"))
}

/// Returns an error if a header is refused. `name` is the header's name without `x-amz-`.
pub(crate) fn screen_header(name: &str, value: &str) -> S3Result<()> {
    let refused = match name {
        "expected-bucket-owner" | "source-expected-bucket-owner" if value != ACCOUNT => {
            return Err(S3Error::with_message(
                S3ErrorCode::AccessDenied,
                format!("x-amz-{name} is {value}; all buckets here are of the account {ACCOUNT}"),
            ));
        }
        "acl" => !matches!(value, "private" | "bucket-owner-full-control"),
        "storage-class" => value != "STANDARD",
        "object-ownership" => value != "BucketOwnerEnforced",
        "bucket-object-lock-enabled" | "server-side-encryption-bucket-key-enabled" => {
            !value.eq_ignore_ascii_case("false")
        }
        "website-redirect-location"
        | "write-offset-bytes"
        | "mfa"
        | "bypass-governance-retention"
        | "rename-source"
        | "if-match-size"
        | "if-match-last-modified-time"
        | "if-match-initiated-time" => true,
        _ => {
            name.starts_with("server-side-encryption")
                || name.starts_with("copy-source-server-side-encryption")
                || name.starts_with("object-lock-")
                || name.starts_with("grant-")
        }
    };
    if refused { Err(not_implemented(&format!("x-amz-{name}: {value}"))) } else { screen_checksum(name, value) }
}

/// The parameters of a query that the screen needs, found in one pass.
#[derive(Default)]
struct ScreenedQuery<'q> {
    /// True if the query has a signature of version 2.
    is_version_2: bool,
    /// True if the query has a signature of version 4.
    is_presigned: bool,
    /// The first list of signed headers. None if the query has none.
    signed_headers: Option<query::QueryValue<'q>>,
    /// The refusal of the first parameter that is refused. None if no parameter is refused.
    refused: Option<S3Error>,
}

impl<'q> ScreenedQuery<'q> {
    fn read(query: &'q str) -> Self {
        let mut read = Self::default();
        for (name, value) in query::pairs(query) {
            match name.as_ref() {
                "Signature" => read.is_version_2 = true,
                "X-Amz-Signature" => read.is_presigned = true,
                "X-Amz-SignedHeaders" => read.signed_headers = read.signed_headers.or(Some(value)),
                // Objects have no versions; S3 calls the only one `null`.
                "versionId" if value.decode().as_deref() != Some("null") => {
                    read.refuse(|| not_implemented("versionId"))
                }
                "X-Amz-Expires" if is_too_long(value) => read.refuse(expires_too_late),
                _ => {}
            }
        }
        read
    }

    fn refuse(&mut self, why: impl FnOnce() -> S3Error) {
        self.refused.get_or_insert_with(why);
    }
}

fn expires_too_late() -> S3Error {
    S3Error::with_message(
        S3ErrorCode::AuthorizationQueryParametersError,
        "X-Amz-Expires must be less than a week (in seconds); that is, the given X-Amz-Expires must be less than \
         604800 seconds",
    )
}

/// Returns true if a presigned URL's life is too long. A text that is not a number is left to `s3s`.
fn is_too_long(expires: query::QueryValue<'_>) -> bool {
    let seconds = expires.decode().and_then(|text| text.parse::<u64>().ok());
    seconds.is_some_and(|seconds| seconds > PRESIGNED_SECONDS_MAX)
}

fn unsigned_header(name: &str) -> S3Error {
    S3Error::with_message(S3ErrorCode::AccessDenied, format!("the header {name} is present and not signed"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const AUTHORIZATION: &str = "AWS4-HMAC-SHA256 Credential=K/20250101/r/s3/aws4_request, \
                                 SignedHeaders=host;x-amz-acl;x-amz-date;x-amz-storage-class, Signature=00";

    fn verdict(method: &str, uri: &str, fields: &[(&str, &str)]) -> String {
        let mut headers = HeaderMap::new();
        for (name, value) in fields {
            headers.append(
                header::HeaderName::try_from(*name).unwrap(),
                http::HeaderValue::from_bytes(value.as_bytes()).unwrap(),
            );
        }
        let verdict = screen(&method.parse().unwrap(), &uri.parse().unwrap(), &headers);
        verdict.map_or_else(|error| error.code().as_str().to_owned(), |()| "passes".to_owned())
    }

    #[test]
    fn a_header_that_is_not_signed_is_refused() {
        let signed = ("authorization", AUTHORIZATION);
        assert_eq!(verdict("PUT", "/b/k", &[signed, ("x-amz-date", "x")]), "passes");
        assert_eq!(verdict("PUT", "/b/k", &[signed, ("x-amz-content-sha256", "x")]), "passes");
        assert_eq!(verdict("PUT", "/b/k", &[signed, ("x-amz-copy-source", "/b/secret")]), "AccessDenied");
        let presigned = "/b/k?X-Amz-SignedHeaders=host%3Bx-amz-meta-a&X-Amz-Signature=0";
        assert_eq!(verdict("PUT", presigned, &[("x-amz-meta-a", "1")]), "passes");
        assert_eq!(verdict("PUT", presigned, &[("x-amz-copy-source", "/b/secret")]), "AccessDenied");
        let without_host = "/b/k?X-Amz-SignedHeaders=x-amz-meta-a&X-Amz-Signature=0";
        assert_eq!(verdict("PUT", without_host, &[]), "AccessDenied");
    }

    #[test]
    fn an_encoded_name_in_a_presigned_url_does_not_hide_its_signature() {
        let copy = ("x-amz-copy-source", "/b/secret");
        for signature in ["X%2DAmz-Signature", "%58-Amz-Signature", "X-Amz-%53ignature", "X-Amz-Signature"] {
            for names in ["X-Amz-SignedHeaders", "X-Amz%2dSignedHeaders"] {
                let url = format!("/b/k?{names}=host&{signature}=0");
                assert_eq!(verdict("PUT", &url, &[]), "passes", "{url}");
                assert_eq!(verdict("PUT", &url, &[copy]), "AccessDenied", "{url}");
            }
        }
    }

    #[test]
    fn credentials_of_which_nothing_is_found_signed_are_refused() {
        assert_eq!(verdict("PUT", "/b/k?X-Amz-Signature=0", &[]), "AccessDenied");
        assert_eq!(verdict("PUT", "/b/k?X-Amz-Signature=0&X-Amz-SignedHeaders=%FF", &[]), "AccessDenied");
        for unreadable in ["AWS4-HMAC-SHA256 nonsense", "Bearer x", "\u{fc}, SignedHeaders=host", ""] {
            assert_eq!(verdict("PUT", "/b/k", &[("authorization", unreadable)]), "AccessDenied", "{unreadable}");
        }
        assert_eq!(verdict("PUT", "/b/k", &[]), "passes");
    }

    #[test]
    fn what_would_change_the_meaning_is_refused_and_its_default_is_not() {
        for (name, value, expected) in [
            ("x-amz-acl", "private", "passes"),
            ("x-amz-acl", "public-read", "NotImplemented"),
            ("x-amz-storage-class", "STANDARD", "passes"),
            ("x-amz-storage-class", "GLACIER", "NotImplemented"),
            ("x-amz-server-side-encryption", "AES256", "NotImplemented"),
            ("x-amz-server-side-encryption-customer-algorithm", "AES256", "NotImplemented"),
            ("x-amz-object-lock-mode", "GOVERNANCE", "NotImplemented"),
            ("x-amz-grant-read", "id=1", "NotImplemented"),
            ("x-amz-website-redirect-location", "/x", "NotImplemented"),
            ("x-amz-expected-bucket-owner", "000000000000", "passes"),
            ("x-amz-expected-bucket-owner", "111122223333", "AccessDenied"),
            ("x-amz-source-expected-bucket-owner", "000000000000", "passes"),
            ("x-amz-source-expected-bucket-owner", "1", "AccessDenied"),
            ("x-amz-request-payer", "requester", "passes"),
        ] {
            assert_eq!(verdict("PUT", "/b/k", &[(name, value)]), expected, "{name}: {value}");
        }
        assert_eq!(verdict("GET", "/b/k?versionId=null", &[]), "passes");
        assert_eq!(verdict("GET", "/b/k?versionId=abc", &[]), "NotImplemented");
    }

    #[test]
    fn old_signatures_forms_and_long_lived_urls_are_refused() {
        assert_eq!(verdict("GET", "/b/k", &[("authorization", "AWS K:sig")]), "InvalidRequest");
        assert_eq!(verdict("GET", "/b/k", &[("authorization", "AWS K:\u{fc}")]), "InvalidRequest");
        for name in ["Signature", "%53ignature"] {
            let url = format!("/b/k?AWSAccessKeyId=K&Expires=1&{name}=%FF");
            assert_eq!(verdict("GET", &url, &[]), "InvalidRequest");
            assert_eq!(
                verdict("GET", &format!("{url}&X-Amz-SignedHeaders=host&X-Amz-Signature=0"), &[]),
                "InvalidRequest"
            );
        }
        for kind in ["multipart/form-data; boundary=x", "Multipart/Form-Data; boundary=\"\u{fc}\""] {
            assert_eq!(verdict("POST", "/b", &[("content-type", kind)]), "NotImplemented");
        }
        let week = "/b/k?X-Amz-Expires=604801&X-Amz-SignedHeaders=host&X-Amz-Signature=0";
        assert_eq!(verdict("GET", week, &[]), "AuthorizationQueryParametersError");
    }

    #[test]
    fn huge_headers_are_refused() {
        let large = "x".repeat(HEADERS_MAX);
        assert_eq!(verdict("GET", "/b/k", &[("x-other", &large)]), "RequestHeaderSectionTooLarge");
    }
}
