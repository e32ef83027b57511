//! What each S3 operation is about to do, for the check of its key's scope. Pure.

use http::{HeaderMap, HeaderName, header};
use nigh_engine::Action;

use crate::telemetry::Operation;

static COPY_SOURCE: HeaderName = HeaderName::from_static("x-amz-copy-source");
/// The length of an aws-chunked body without its chunks' heads.
static DECODED_LENGTH: HeaderName = HeaderName::from_static("x-amz-decoded-content-length");

/// What `operation` on `bucket` is about to do. An operation that is not answered here counts as a change.
pub(crate) fn action<'a>(operation: Operation, bucket: &'a str, headers: &HeaderMap) -> Action<'a> {
    match operation {
        Operation::ListBuckets => Action::ListBuckets,
        Operation::GetBucketLocation
        | Operation::GetBucketNotificationConfiguration
        | Operation::GetBucketVersioning
        | Operation::GetObject
        | Operation::GetObjectAttributes
        | Operation::GetObjectTagging
        | Operation::HeadBucket
        | Operation::HeadObject
        | Operation::ListMultipartUploads
        | Operation::ListObjects
        | Operation::ListObjectsV2
        | Operation::ListParts => Action::ReadBucket(bucket),
        Operation::PutObject | Operation::UploadPart => Action::Store { bucket, bytes: length(headers) },
        // The bytes of a copy are not known yet; those of an upload were counted with its parts.
        Operation::CompleteMultipartUpload
        | Operation::CopyObject
        | Operation::CreateMultipartUpload
        | Operation::UploadPartCopy => Action::Store { bucket, bytes: 0 },
        Operation::AbortMultipartUpload
        | Operation::CreateBucket
        | Operation::DeleteBucket
        | Operation::DeleteObject
        | Operation::DeleteObjectTagging
        | Operation::DeleteObjects
        | Operation::PutObjectTagging => Action::WriteBucket(bucket),
        Operation::AbortTransaction | Operation::BeginTransaction | Operation::CommitTransaction => Action::Transaction,
        // Notifications invoke functions.
        Operation::PutBucketNotificationConfiguration | Operation::Unknown => Action::Change,
    }
}

/// The bucket from which a copy reads; none without a source.
///
/// A source that is percent-encoded within the name of its bucket gives the encoded name, which is no bucket's: a key that
/// is limited to buckets is then refused.
pub(crate) fn copied_from(headers: &HeaderMap) -> Option<&str> {
    let source = headers.get(&COPY_SOURCE)?.to_str().unwrap_or_default();
    let source = source.strip_prefix('/').unwrap_or(source);
    Some(source.split_once('/').map_or(source, |(bucket, _)| bucket))
}

fn length(headers: &HeaderMap) -> u64 {
    let number = |name: &HeaderName| headers.get(name)?.to_str().ok()?.parse().ok();
    number(&DECODED_LENGTH).or_else(|| number(&header::CONTENT_LENGTH)).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(fields: &[(&'static str, &'static str)]) -> HeaderMap {
        fields.iter().map(|&(name, value)| (HeaderName::from_static(name), value.parse().unwrap())).collect()
    }

    #[test]
    fn a_write_says_how_many_bytes_it_stores_without_the_frames_of_its_chunks() {
        let plain = headers(&[("content-length", "10")]);
        assert_eq!(action(Operation::PutObject, "b", &plain), Action::Store { bucket: "b", bytes: 10 });
        let chunked = headers(&[("content-length", "95"), ("x-amz-decoded-content-length", "10")]);
        assert_eq!(action(Operation::UploadPart, "b", &chunked), Action::Store { bucket: "b", bytes: 10 });
        assert_eq!(action(Operation::DeleteObjects, "b", &plain), Action::WriteBucket("b"));
        assert_eq!(action(Operation::Unknown, "b", &plain), Action::Change);
    }

    #[test]
    fn a_copy_names_its_source_whatever_form_it_has() {
        assert_eq!(copied_from(&headers(&[])), None);
        for source in ["secret/key", "/secret/key", "/secret/a%2Fb?versionId=null"] {
            assert_eq!(copied_from(&headers(&[("x-amz-copy-source", source)])), Some("secret"));
        }
        assert_eq!(copied_from(&headers(&[("x-amz-copy-source", "public%2Fsecret/key")])), Some("public%2Fsecret"));
    }
}
