//! The span of an S3 request (OpenTelemetry's conventions for AWS S3), over HTTP and on the fast path. While nothing is
//! recorded, a request costs one branch here.

use http::StatusCode;
use http::request::Parts;
use nigh_engine::AccessKeys;
use nigh_http::request_trace::request_span;
use nigh_http::sigv4::Authorization;
use nigh_terms::{AccessKeyId, InvocationId};
use nigh_trace::{Incoming, Scoped, Span, SpanKind, running};

use crate::request_id::RequestId;
use crate::telemetry::Operation;

/// The span's name until the operation is known.
const NAME: &str = "S3";

/// A request's span.
pub(crate) struct RequestTrace {
    span: Span,
    /// The path, if the span is recorded.
    path: Option<String>,
}

impl RequestTrace {
    /// The span of a request over HTTP.
    pub(crate) fn of_http(parts: &Parts, keys: &AccessKeys) -> Self {
        if !nigh_trace::is_on() {
            return Self { span: Span::none(), path: None };
        }
        let caller = || {
            let authorization = Authorization::of(&parts.headers).ok()?;
            invocation_of(keys, &AccessKeyId::new(authorization.access_key))
        };
        let span = request_span(NAME, &parts.headers, caller);
        let path = span.is_recording().then(|| parts.uri.path().to_owned());
        Self { span, path }
    }

    /// The span of a request on the fast path, which has no headers of a trace.
    pub(crate) fn of_fast_path(key: Option<&AccessKeyId>, keys: &AccessKeys) -> Self {
        if !nigh_trace::is_on() {
            return Self { span: Span::none(), path: None };
        }
        let invocation = key.and_then(|key| invocation_of(keys, key));
        let caller = invocation.and_then(|id| running::context_of(id.as_bytes()));
        let mut span = Span::of_request(NAME, SpanKind::Server, caller.map(Incoming::from));
        span.record(|span| span.set("nigh.fast_path", true));
        Self { span, path: None }
    }

    /// Runs the request's work.
    pub(crate) fn scope<F: Future>(&self, work: F) -> Scoped<F> {
        self.span.scope(work)
    }

    /// Runs `log`: its lines have the trace's id.
    pub(crate) fn logged(&self, log: impl FnOnce()) {
        self.span.logged(log);
    }

    /// The request is answered.
    pub(crate) fn answered(mut self, operation: Operation, status: StatusCode, id: Option<RequestId>) {
        let path = self.path.take();
        self.span.record(|span| {
            span.name(format!("S3.{}", operation.name()));
            span.set("rpc.system.name", "aws-api");
            span.set("rpc.service", "S3");
            span.set("rpc.method", operation.name());
            span.set("http.response.status_code", u64::from(status.as_u16()));
            span.set_some("aws.request_id", id.as_ref().map(RequestId::as_str));
            let (bucket, key) = path.as_deref().map_or(("", ""), parts_of);
            span.set_some("aws.s3.bucket", Some(bucket).filter(|bucket| !bucket.is_empty()));
            span.set_some("aws.s3.key", Some(key).filter(|key| !key.is_empty()));
            if status.is_server_error() {
                span.fail(status.as_str(), "the request was not served");
            } else if status.is_client_error() {
                span.set("error.type", status.as_str());
            }
        });
    }
}

/// The invocation that runs in the sandbox of `key`.
fn invocation_of(keys: &AccessKeys, key: &AccessKeyId) -> Option<InvocationId> {
    keys.principal(key).ok()?.invocation
}

/// The bucket and the key of a path, percent-encoded as received; empty if absent.
fn parts_of(path: &str) -> (&str, &str) {
    let path = path.trim_start_matches('/');
    path.split_once('/').unwrap_or((path, ""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_has_a_bucket_and_perhaps_a_key() {
        assert_eq!(parts_of("/bucket/a/b"), ("bucket", "a/b"));
        assert_eq!(parts_of("/bucket"), ("bucket", ""));
        assert_eq!(parts_of("/"), ("", ""));
    }
}
