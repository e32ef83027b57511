//! The bytes of an upload, and the digests that the request states for them.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use futures::StreamExt;
use http::{HeaderMap, HeaderName};
use nigh_data::{ByteStream, ObjectError};
use s3s::dto::StreamingBlob;
use s3s::{S3Error, S3ErrorCode, S3Result};

/// The name of the claim that is the SHA-256 of a body signed as a whole.
pub(crate) const PAYLOAD_SHA256: &str = "x-amz-content-sha256";
/// The name of the claim that is the signature of a chunk or of a trailer.
pub(crate) const CHUNK_SIGNATURE: &str = "chunk signature";

static CONTENT_MD5: HeaderName = HeaderName::from_static("content-md5");

/// The bytes of `blob`. If `s3s` finds a fault in them, the stream ends with the matching error.
pub(crate) fn byte_stream(blob: Option<StreamingBlob>) -> ByteStream {
    match blob {
        Some(blob) => blob.map(|item| item.map_err(|error| broken_off(&error.to_string()))).boxed(),
        None => futures::stream::empty().boxed(),
    }
}

/// The error that `s3s` reports as `reason`. `s3s` does not export the types of these errors, so only their text can be
/// compared (0.14.1, which the workspace pins; the tests of this crate send each of these bodies).
fn broken_off(reason: &str) -> ObjectError {
    if reason.contains("Sha256Mismatch") {
        ObjectError::BadDigest { claim: PAYLOAD_SHA256 }
    } else if reason.contains("SignatureMismatch") {
        ObjectError::BadDigest { claim: CHUNK_SIGNATURE }
    } else {
        ObjectError::Body(reason.to_owned())
    }
}

/// The value of `Content-MD5`. None if the header is absent.
pub(crate) fn content_md5(headers: &HeaderMap) -> S3Result<Option<[u8; 16]>> {
    let Some(value) = headers.get(&CONTENT_MD5) else { return Ok(None) };
    let decoded = BASE64_STANDARD.decode(value.as_bytes()).ok().and_then(|bytes| bytes.try_into().ok());
    decoded.map(Some).ok_or_else(|| {
        S3Error::with_message(S3ErrorCode::InvalidDigest, "the Content-MD5 given is not base64 of 16 bytes")
    })
}

/// The length of the decoded bytes. None if it is unknown.
pub(crate) fn length(content_length: Option<i64>) -> Option<u64> {
    content_length.and_then(|length| u64::try_from(length).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_md5_is_base64_of_sixteen_bytes() {
        let with = |value: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(CONTENT_MD5.clone(), value.parse().unwrap());
            content_md5(&headers)
        };
        assert_eq!(with("AAAAAAAAAAAAAAAAAAAAAA==").unwrap(), Some([0; 16]));
        for bad in ["", "AAAA", "!!", "AAAAAAAAAAAAAAAAAAAAAAAA"] {
            assert_eq!(with(bad).unwrap_err().code().as_str(), "InvalidDigest");
        }
        assert_eq!(content_md5(&HeaderMap::new()).unwrap(), None);
    }
}
