//! What the audit trail gets of an S3 request, over HTTP and on the fast path.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use http::request::Parts;
use http::{Extensions, Response, StatusCode};
use nigh_engine::AccessKeys;
use nigh_http::audit::{Audit, AuditClient, AuditEvent, Caller, EventCategory, EventSource, fields};
use nigh_terms::AccessKeyId;
use percent_encoding::percent_decode_str;
use s3s::Body;
use serde_json::{Map, Value};

use crate::telemetry::Operation;

/// The client's name in events of the fast path, which has no header for it.
const FAST_PATH: &str = "nigh fast path";

impl Operation {
    /// The category of its event; none if it has none.
    pub(crate) const fn category(self) -> Option<EventCategory> {
        match self {
            Self::Unknown => None,
            Self::CreateBucket
            | Self::DeleteBucket
            | Self::GetBucketLocation
            | Self::GetBucketNotificationConfiguration
            | Self::GetBucketVersioning
            | Self::HeadBucket
            | Self::ListBuckets
            | Self::PutBucketNotificationConfiguration => Some(EventCategory::Management),
            _ => Some(EventCategory::Data),
        }
    }

    fn is_read_only(self) -> bool {
        ["Get", "Head", "List"].iter().any(|verb| self.name().starts_with(verb))
    }
}

/// Whether the signature of a request was found right, in the request's extensions.
#[derive(Debug, Default)]
pub(crate) struct SignatureNote(AtomicBool);

impl SignatureNote {
    /// Notes that the signature is right.
    pub(crate) fn note(extensions: &Extensions) {
        if let Some(note) = extensions.get::<Arc<Self>>() {
            note.0.store(true, Ordering::Release);
        }
    }
}

/// A request over HTTP that may get an event.
pub(crate) struct AuditedRequest {
    client: AuditClient,
    path: String,
    signature: Arc<SignatureNote>,
}

impl AuditedRequest {
    /// Takes what the event needs of the head of a request; none if no event of it is wanted.
    pub(crate) fn begin(audit: &Audit, parts: &mut Parts, is_read: bool, from: Option<IpAddr>) -> Option<Self> {
        let category = if is_read { EventCategory::Data } else { EventCategory::Management };
        audit.wants(category).then(|| {
            let signature = Arc::new(SignatureNote::default());
            parts.extensions.insert(Arc::clone(&signature));
            let client = AuditClient::of(&parts.headers, parts.uri.query(), from);
            Self { client, path: parts.uri.path().to_owned(), signature }
        })
    }

    /// Records the event of the answered request.
    pub(crate) fn record(self, audit: &Audit, keys: &AccessKeys, operation: Operation, answered: Answered<'_>) {
        // Whose signature is wrong is not routed to an operation, and is recorded all the same.
        let is_denied = answered.status == StatusCode::FORBIDDEN;
        let category = operation.category().or(is_denied.then_some(EventCategory::Management));
        let Some(category) = category.filter(|category| audit.wants(*category)) else { return };
        let path = percent_decode_str(self.path.trim_start_matches('/')).decode_utf8_lossy().into_owned();
        let (bucket, key) = path.split_once('/').unwrap_or((&path, ""));
        let named = self.client.claimed_key().map(AccessKeyId::new);
        let caller = match named.filter(|_| self.signature.0.load(Ordering::Acquire)) {
            Some(access_key) => caller(keys, access_key),
            None => Caller::claimed(self.client.claimed_key()),
        };
        record(audit, operation, category, caller, &self.client, object(bucket, key), answered);
    }
}

/// The outcome of a request.
pub(crate) struct Answered<'a> {
    pub(crate) status: StatusCode,
    pub(crate) request_id: &'a str,
    /// The code of the error, if it is known.
    pub(crate) error: Option<&'a str>,
}

/// The owner of `key`, which is proved.
fn caller(keys: &AccessKeys, access_key: AccessKeyId) -> Caller {
    Caller::Key { principal: keys.principal(&access_key).ok(), access_key }
}

fn object(bucket: &str, key: &str) -> Map<String, Value> {
    let text = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    fields(&[("bucketName", text(bucket).as_deref()), ("key", text(key).as_deref())])
}

/// A request on the fast path that gets an event.
pub(crate) struct AuditedCall {
    audit: Audit,
    keys: AccessKeys,
    key: AccessKeyId,
    operation: Operation,
    object: Map<String, Value>,
}

impl AuditedCall {
    /// A request of the owner of `key`, for an object; none if no event of it is wanted.
    pub(crate) fn begin(
        audit: &Audit,
        keys: &AccessKeys,
        key: &AccessKeyId,
        operation: Operation,
        (bucket, name): (&str, &str),
    ) -> Option<Self> {
        audit.wants(EventCategory::Data).then(|| Self {
            audit: audit.clone(),
            keys: keys.clone(),
            key: key.clone(),
            operation,
            object: object(bucket, name),
        })
    }

    /// Records the event of the answered request.
    pub(crate) fn record(self, answered: Answered<'_>) {
        let (caller, client) = (caller(&self.keys, self.key), AuditClient::named(FAST_PATH));
        record(&self.audit, self.operation, EventCategory::Data, caller, &client, self.object, answered);
    }
}

fn record(
    audit: &Audit,
    operation: Operation,
    category: EventCategory,
    caller: Caller,
    client: &AuditClient,
    parameters: Map<String, Value>,
    answered: Answered<'_>,
) {
    let Answered { status, request_id, error } = answered;
    let is_error = status.is_client_error() || status.is_server_error();
    audit.record(AuditEvent {
        source: EventSource::S3,
        name: operation.name(),
        category,
        read_only: operation.is_read_only(),
        caller,
        client,
        request_id,
        status: status.as_u16(),
        error: error.or(status.canonical_reason()).filter(|_| is_error),
        parameters,
        response: Map::new(),
    });
}

/// The code in an error document that is in memory.
pub(crate) fn error_code(answer: &Response<Body>) -> Option<String> {
    if !answer.status().is_client_error() && !answer.status().is_server_error() {
        return None;
    }
    let document = answer.body().bytes()?;
    let text = std::str::from_utf8(&document).ok()?;
    Some(text.split_once("<Code>")?.1.split_once("</Code>")?.0.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_on_buckets_are_management_and_those_on_objects_are_data() {
        let (management, data) = (Some(EventCategory::Management), Some(EventCategory::Data));
        for (name, category, read_only) in [
            ("CreateBucket", management, false),
            ("PutBucketNotificationConfiguration", management, false),
            ("ListBuckets", management, true),
            ("GetObject", data, true),
            ("ListObjectsV2", data, true),
            ("CompleteMultipartUpload", data, false),
            ("PutBucketPolicy", None, false),
        ] {
            let operation = Operation::of(name);
            assert_eq!((operation.category(), operation.is_read_only()), (category, read_only), "{name}");
        }
    }

    #[test]
    fn an_errors_code_is_found_in_its_document() {
        let answer = |status, body: &'static str| {
            let mut answer = Response::new(Body::from(bytes::Bytes::from_static(body.as_bytes())));
            *answer.status_mut() = status;
            answer
        };
        let document = "<Error><Code>NoSuchKey</Code><Message>none</Message></Error>";
        assert_eq!(error_code(&answer(StatusCode::NOT_FOUND, document)).as_deref(), Some("NoSuchKey"));
        assert_eq!(error_code(&answer(StatusCode::OK, document)), None);
        assert_eq!(error_code(&answer(StatusCode::FORBIDDEN, "no document")), None);
    }

    #[test]
    fn an_event_names_bucket_and_key() {
        assert_eq!(object("data", "a/b"), fields(&[("bucketName", Some("data")), ("key", Some("a/b"))]));
        assert_eq!(object("data", ""), fields(&[("bucketName", Some("data"))]));
    }
}
