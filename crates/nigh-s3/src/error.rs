//! Turns errors of the object memory into errors of the S3 API (API reference, "Error responses").

use http::{HeaderMap, HeaderValue, StatusCode, header};
use nigh_data::ObjectError;
use nigh_engine::{AccessDenied, LedgerError, OverQuota};
use s3s::{S3Error, S3ErrorCode};

use crate::http_date;
use crate::notes::{Fate, RequestNotes};

/// The message that a client receives for an internal fault; the log has the details.
const INTERNAL: &str = "an internal error occurred; the server's log has the details";
/// The message that a client receives if the journal did not accept a write.
const NOT_TAKEN: &str = "the write was not taken; write again later";
/// The message that a client receives if the journal gives no answer: a cluster's NATS servers are away, or the disk of a
/// node alone has failed.
const NO_JOURNAL: &str = "the journal gives no answer, and a write may or may not have taken place: try again later, and \
     read the object before you write it again; a node that is in no cluster must be restarted";
/// The message that a client receives if the store cannot be reached.
const UNREACHED: &str = "the store behind cannot be reached, and nothing was changed there; try again later";
/// The message that a client receives if the store does not answer.
const SILENT: &str = "the store behind gave no answer; a write may or may not have taken place; try again later";

/// The seconds after which a client should try again what is refused with the status 503.
const RETRY_AFTER: &str = "1";

/// Builds an error of the S3 API that `s3s` has no constant for.
fn named(code: &'static str, status: StatusCode, message: String) -> S3Error {
    let mut error = S3Error::with_message(S3ErrorCode::Custom(code.into()), message);
    error.set_status_code(status);
    error
}

/// The S3 error that corresponds to `error`. One with the status 503 says when to try again.
pub(crate) fn s3_error(error: ObjectError) -> S3Error {
    saying_when(corresponding(error))
}

/// The S3 error for a key that may not do what a request is about to do, now or at all. AWS calls a key that is inactive
/// unknown; Ceph has the name for a full namespace.
pub(crate) fn refused(why: AccessDenied) -> S3Error {
    let message = why.to_string();
    match why {
        AccessDenied::UnknownKey(_) | AccessDenied::BetweenInvocations(_) | AccessDenied::OutOfScope { .. } => {
            S3Error::with_message(S3ErrorCode::AccessDenied, message)
        }
        AccessDenied::Disabled(_) | AccessDenied::Expired { .. } => {
            S3Error::with_message(S3ErrorCode::InvalidAccessKeyId, message)
        }
        AccessDenied::OverQuota(OverQuota::Stored { .. }) => named("QuotaExceeded", StatusCode::FORBIDDEN, message),
        AccessDenied::OverQuota(_) => saying_when(S3Error::with_message(S3ErrorCode::SlowDown, message)),
    }
}

/// The error, which says when to try again if its status is 503.
fn saying_when(mut error: S3Error) -> S3Error {
    if error.status_code() == Some(StatusCode::SERVICE_UNAVAILABLE) {
        // The headers of an error replace those of its document.
        let mut headers = HeaderMap::with_capacity(2);
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/xml"));
        headers.insert(header::RETRY_AFTER, HeaderValue::from_static(RETRY_AFTER));
        error.set_headers(headers);
    }
    error
}

fn corresponding(error: ObjectError) -> S3Error {
    use S3ErrorCode as Code;
    let message = error.to_string();
    match error {
        ObjectError::NoSuchBucket(_) => S3Error::with_message(Code::NoSuchBucket, message),
        ObjectError::BucketAlreadyOwnedByYou(_) => S3Error::with_message(Code::BucketAlreadyOwnedByYou, message),
        ObjectError::BucketNotEmpty(_) => S3Error::with_message(Code::BucketNotEmpty, message),
        ObjectError::NoSuchKey(_) => S3Error::with_message(Code::NoSuchKey, message),
        ObjectError::NoSuchUpload(_) => S3Error::with_message(Code::NoSuchUpload, message),
        // s3fs compares the text of AWS's message to tell a file that was replaced during a read from other faults.
        ObjectError::PreconditionFailed(condition) => S3Error::with_message(
            Code::PreconditionFailed,
            format!("one of the pre-conditions given does not hold: {condition}"),
        ),
        ObjectError::NotModified { etag, modified } => {
            let mut error = S3Error::with_message(Code::NotModified, message);
            error.set_status_code(StatusCode::NOT_MODIFIED);
            let mut headers = HeaderMap::with_capacity(2);
            if let Ok(etag) = HeaderValue::try_from(format!("\"{etag}\"")) {
                headers.insert(header::ETAG, etag);
            }
            headers.insert(header::LAST_MODIFIED, http_date::header(modified));
            error.set_headers(headers);
            error
        }
        ObjectError::ConditionalRequestConflict => named("ConditionalRequestConflict", StatusCode::CONFLICT, message),
        ObjectError::InvalidRange { size } => {
            let mut error = S3Error::with_message(Code::InvalidRange, message);
            let mut headers = HeaderMap::with_capacity(2);
            if let Ok(range) = HeaderValue::try_from(format!("bytes */{size}")) {
                headers.insert(header::CONTENT_RANGE, range);
            }
            headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/xml"));
            error.set_headers(headers);
            error
        }
        ObjectError::InvalidPartNumber(_) => named("InvalidPartNumber", StatusCode::RANGE_NOT_SATISFIABLE, message),
        // AWS has a separate error for each of the three ways in which a body can differ from its announced digest.
        ObjectError::BadDigest { claim: crate::payload::PAYLOAD_SHA256 } => {
            named("XAmzContentSHA256Mismatch", StatusCode::BAD_REQUEST, message)
        }
        ObjectError::BadDigest { claim: crate::payload::CHUNK_SIGNATURE } => {
            S3Error::with_message(Code::SignatureDoesNotMatch, message)
        }
        ObjectError::BadDigest { .. } => S3Error::with_message(Code::BadDigest, message),
        ObjectError::IncompleteBody { .. } | ObjectError::Body(_) => {
            S3Error::with_message(Code::IncompleteBody, message)
        }
        ObjectError::EntityTooLarge { .. } => S3Error::with_message(Code::EntityTooLarge, message),
        ObjectError::EntityTooSmall { .. } => S3Error::with_message(Code::EntityTooSmall, message),
        ObjectError::InvalidPart(_) => S3Error::with_message(Code::InvalidPart, message),
        ObjectError::InvalidPartOrder => S3Error::with_message(Code::InvalidPartOrder, message),
        ObjectError::InvalidRequest(_) => S3Error::with_message(Code::InvalidRequest, message),
        ObjectError::InvalidArgument(_) => S3Error::with_message(Code::InvalidArgument, message),
        ObjectError::InvalidTag(_) => S3Error::with_message(Code::InvalidTag, message),
        ObjectError::MetadataTooLarge => S3Error::with_message(Code::MetadataTooLarge, message),
        ObjectError::TransactionConflict(_) => named("TransactionConflict", StatusCode::CONFLICT, message),
        ObjectError::NoSuchTransaction(_) => named("NoSuchTransaction", StatusCode::NOT_FOUND, message),
        ObjectError::TransactionElsewhere { .. } => named("TransactionElsewhere", StatusCode::BAD_REQUEST, message),
        ObjectError::TransactionUndecided => named("TransactionUndecided", StatusCode::SERVICE_UNAVAILABLE, message),
        ObjectError::EphemeralLost(_) => named("EphemeralObjectLost", StatusCode::GONE, message),
        ObjectError::Damaged(_) => named("ObjectDamaged", StatusCode::INTERNAL_SERVER_ERROR, message),
        ObjectError::SlowDown(_) | ObjectError::Busy(_) | ObjectError::Ledger(LedgerError::Full) => {
            S3Error::with_message(Code::SlowDown, message)
        }
        ObjectError::Ledger(LedgerError::Unavailable(_) | LedgerError::NotKept(_)) => {
            tracing::warn!(reason = %message, "an S3 request failed");
            S3Error::with_message(Code::SlowDown, NOT_TAKEN)
        }
        ObjectError::Ledger(LedgerError::Failed(_) | LedgerError::Fenced { .. }) => {
            tracing::error!(reason = %message, "an S3 request failed");
            S3Error::with_message(Code::ServiceUnavailable, NO_JOURNAL)
        }
        ObjectError::StoreUnreached { .. } => {
            tracing::warn!(reason = %message, "an S3 request failed");
            S3Error::with_message(Code::ServiceUnavailable, UNREACHED)
        }
        ObjectError::StoreSilent { .. } => {
            tracing::warn!(reason = %message, "an S3 request failed");
            S3Error::with_message(Code::ServiceUnavailable, SILENT)
        }
        ObjectError::OutcomeUnknown(_) => {
            tracing::warn!(reason = %message, "an S3 request failed");
            S3Error::with_message(Code::ServiceUnavailable, message)
        }
        ObjectError::Ledger(_) | ObjectError::Store { .. } | ObjectError::Memory { .. } | ObjectError::AtHome(_) => {
            tracing::error!(reason = %message, "an S3 request failed");
            S3Error::with_message(Code::InternalError, INTERNAL)
        }
    }
}

/// The S3 error for `error` on a request with a body. An error that occurred while the body was read takes precedence,
/// because it explains the error that followed.
pub(crate) fn upload_error(error: ObjectError, notes: Option<&RequestNotes>) -> S3Error {
    match (&error, notes.map_or(Fate::Whole, RequestNotes::fate)) {
        (ObjectError::Body(_) | ObjectError::IncompleteBody { .. }, fate) => {
            fate_error(fate).unwrap_or_else(|| s3_error(error))
        }
        _ => s3_error(error),
    }
}

/// The S3 error for a body that ended with `fate`. None if the body is whole.
pub(crate) fn fate_error(fate: Fate) -> Option<S3Error> {
    match fate {
        Fate::Whole => None,
        Fate::Stalled => Some(S3Error::with_message(
            S3ErrorCode::RequestTimeout,
            "the connection was not read from or written to within the timeout period; send the body without long pauses, at \
             4 KiB a second at least",
        )),
        Fate::Broken => Some(S3Error::with_message(S3ErrorCode::IncompleteBody, "the body broke off")),
        Fate::Malformed => {
            Some(S3Error::with_message(S3ErrorCode::InvalidRequest, "the aws-chunked encoding of the body is broken"))
        }
        Fate::ChunkTooLarge => Some(S3Error::with_message(
            S3ErrorCode::InvalidRequest,
            "a signed chunk of the body is larger than 16 MiB; sign smaller chunks",
        )),
        Fate::DocumentTooLarge => {
            Some(S3Error::with_message(S3ErrorCode::MaxMessageLengthExceeded, "Your request was too big"))
        }
        Fate::InvocationEnded => Some(invocation_ended()),
    }
}

/// The S3 error for a call whose invocation has ended.
pub(crate) fn invocation_ended() -> S3Error {
    S3Error::with_message(
        S3ErrorCode::AccessDenied,
        "the invocation ended before its request was whole; wait for data calls before the handler returns",
    )
}

/// The error for a feature that S3 has and this door does not support.
pub(crate) fn not_implemented(what: &str) -> S3Error {
    S3Error::with_message(S3ErrorCode::NotImplemented, format!("{what} is not supported here"))
}

/// The error for a value that is out of range or malformed.
pub(crate) fn invalid_argument(message: impl Into<String>) -> S3Error {
    S3Error::with_message(S3ErrorCode::InvalidArgument, message.into())
}

/// A request that contradicts itself.
pub(crate) fn invalid_request(message: impl Into<String>) -> S3Error {
    S3Error::with_message(S3ErrorCode::InvalidRequest, message.into())
}

#[cfg(test)]
mod tests {
    use nigh_data::ETag;
    use nigh_terms::{BucketName, Epoch, ObjectKey, ShardId, Timestamp};

    use super::*;

    fn code_and_status(error: ObjectError) -> (String, u16) {
        let error = s3_error(error);
        (error.code().as_str().to_owned(), error.status_code().map_or(0, |status| status.as_u16()))
    }

    #[test]
    fn a_failed_condition_is_named_with_the_word_that_clients_look_for() {
        let error = s3_error(ObjectError::PreconditionFailed("If-Match"));
        let message = error.message().unwrap();
        assert!(message.contains("pre-conditions") && message.contains("If-Match"), "{message}");
    }

    #[test]
    fn each_refusal_has_the_code_and_status_of_aws() {
        let bucket = BucketName::new("abc").unwrap();
        let key = ObjectKey::new("k").unwrap();
        let lost = key.clone();
        let (shard, held) = (ShardId(0), Epoch(1));
        for (error, code, status) in [
            (ObjectError::NoSuchBucket(bucket.clone()), "NoSuchBucket", 404),
            (ObjectError::BucketAlreadyOwnedByYou(bucket.clone()), "BucketAlreadyOwnedByYou", 409),
            (ObjectError::BucketNotEmpty(bucket), "BucketNotEmpty", 409),
            (ObjectError::NoSuchKey(key), "NoSuchKey", 404),
            (ObjectError::PreconditionFailed("If-Match"), "PreconditionFailed", 412),
            (ObjectError::ConditionalRequestConflict, "ConditionalRequestConflict", 409),
            (ObjectError::InvalidRange { size: 3 }, "InvalidRange", 416),
            (ObjectError::InvalidPartNumber(3), "InvalidPartNumber", 416),
            (ObjectError::BadDigest { claim: "Content-MD5" }, "BadDigest", 400),
            (ObjectError::BadDigest { claim: crate::payload::PAYLOAD_SHA256 }, "XAmzContentSHA256Mismatch", 400),
            (ObjectError::BadDigest { claim: crate::payload::CHUNK_SIGNATURE }, "SignatureDoesNotMatch", 403),
            (ObjectError::IncompleteBody { expected: 2, received: 1 }, "IncompleteBody", 400),
            (ObjectError::EntityTooLarge { limit: 1 }, "EntityTooLarge", 400),
            (ObjectError::EntityTooSmall { part: 1, size: 1 }, "EntityTooSmall", 400),
            (ObjectError::InvalidPart(1), "InvalidPart", 400),
            (ObjectError::InvalidPartOrder, "InvalidPartOrder", 400),
            (ObjectError::MetadataTooLarge, "MetadataTooLarge", 400),
            (ObjectError::SlowDown("x"), "SlowDown", 503),
            (ObjectError::Ledger(LedgerError::Full), "SlowDown", 503),
            (ObjectError::Ledger(LedgerError::Unavailable("x".to_owned())), "SlowDown", 503),
            (ObjectError::Ledger(LedgerError::NotKept("x".to_owned())), "SlowDown", 503),
            (ObjectError::EphemeralLost(lost), "EphemeralObjectLost", 410),
            (ObjectError::TransactionConflict(vec!["abc/k".to_owned()]), "TransactionConflict", 409),
            (ObjectError::NoSuchTransaction("0-1".to_owned()), "NoSuchTransaction", 404),
            (ObjectError::TransactionElsewhere { transaction: "0-1".to_owned(), node: 0 }, "TransactionElsewhere", 400),
            (ObjectError::TransactionUndecided, "TransactionUndecided", 503),
            (ObjectError::OutcomeUnknown("x"), "ServiceUnavailable", 503),
            (ObjectError::Ledger(LedgerError::Failed("x".to_owned())), "ServiceUnavailable", 503),
            (ObjectError::Ledger(LedgerError::Fenced { shard, held }), "ServiceUnavailable", 503),
        ] {
            let retry_after = s3_error(error.clone()).headers().and_then(|headers| headers.get("retry-after").cloned());
            assert_eq!(retry_after.is_some(), status == 503, "{error}");
            assert_eq!(code_and_status(error), (code.to_owned(), status));
        }
    }

    #[test]
    fn who_gets_no_answer_of_the_journal_is_told_to_read_before_writing_again() {
        for error in [ObjectError::Ledger(LedgerError::Failed("x".to_owned())), ObjectError::OutcomeUnknown("x")] {
            let message = s3_error(error).message().unwrap().to_owned();
            assert!(message.contains("read the object"), "{message}");
        }
    }

    #[test]
    fn not_modified_carries_the_entity_tag_and_the_date() {
        let error = s3_error(ObjectError::NotModified { etag: ETag("abc".into()), modified: Timestamp(0) });
        assert_eq!(error.status_code(), Some(StatusCode::NOT_MODIFIED));
        let headers = error.headers().unwrap();
        assert_eq!(headers["etag"], "\"abc\"");
        assert_eq!(headers["last-modified"], "Thu, 01 Jan 1970 00:00:00 GMT");
    }

    #[test]
    fn a_fault_inside_does_not_tell_the_client_its_details() {
        let (store, operation, reason) = ("directory", "put", "/secret/path".to_owned());
        for (error, code, status) in [
            (ObjectError::Store { store, operation, reason: reason.clone() }, "InternalError", 500),
            (ObjectError::StoreUnreached { store, operation, reason: reason.clone() }, "ServiceUnavailable", 503),
            (ObjectError::StoreSilent { store, operation, reason: reason.clone() }, "ServiceUnavailable", 503),
            (ObjectError::Ledger(LedgerError::Failed(reason)), "ServiceUnavailable", 503),
        ] {
            assert_eq!(code_and_status(error.clone()), (code.to_owned(), status));
            let message = s3_error(error).message().unwrap().to_owned();
            assert!(!message.contains("secret"), "{message}");
        }
    }
}
