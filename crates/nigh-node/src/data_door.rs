//! The doors inside sandboxes, on one listener in each: S3, which `nigh_s3` serves for `nigh_sandbox`, and beside it what
//! functions invoke others by, which `nigh_lambda` serves.

use std::sync::{Arc, OnceLock, Weak};

use async_trait::async_trait;
use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::request::Parts;
use http::{HeaderValue, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use nigh_http::mounted_api::SandboxApi;
use nigh_lambda::LambdaDoor;
use nigh_s3::{FastPath, FastPathPayer, S3Door};
use nigh_sandbox::data_door::{DataDoor, DataListeners, HeldMemory};
use nigh_terms::{AccessKeyId, ByteSize};
use tokio_util::sync::CancellationToken;

/// What a function is told that invokes another when the node has no Lambda door any more, in Lambda's form.
const NO_LAMBDA: &str = r#"{"Type":"Service","Message":"the node is ending and takes no invocations; try again"}"#;

/// Serves S3 in sandboxes, in each to that sandbox's own key only.
pub(crate) struct SandboxDataDoor {
    /// The S3 door over HTTP.
    pub(crate) http: S3Door,
    /// The fast path; none if it is off.
    pub(crate) fast: Option<FastPath>,
    /// The Lambda door; none if functions may invoke no others.
    pub(crate) lambda: Option<LambdaInside>,
}

/// The Lambda door as sandboxes reach it. It opens after the engine of the sandboxes, because it invokes by them.
#[derive(Clone, Default)]
pub(crate) struct LambdaInside(Arc<OnceLock<Weak<LambdaDoor>>>);

impl LambdaInside {
    /// Opens it to sandboxes, for as long as `door` is there.
    pub(crate) fn open(&self, door: &Arc<LambdaDoor>) {
        // A node has one Lambda door.
        let _ = self.0.set(Arc::downgrade(door));
    }
}

/// The Lambda door in the sandbox that has `key`.
struct LambdaOfSandbox {
    lambda: LambdaInside,
    key: AccessKeyId,
}

#[async_trait]
impl SandboxApi for LambdaOfSandbox {
    async fn answer(&self, head: Parts, body: Incoming) -> Response<Full<Bytes>> {
        if let Some(door) = self.lambda.0.get().and_then(Weak::upgrade) {
            return door.answer_sandbox(&self.key, head, body).await;
        }
        let mut answer = Response::new(Full::new(Bytes::from_static(NO_LAMBDA.as_bytes())));
        *answer.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
        answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        answer
    }
}

/// A sandbox's booking, which pays for bytes held over the fast path.
struct BookedPayer(Arc<dyn HeldMemory>);

impl FastPathPayer for BookedPayer {
    fn pay(&self, bytes: ByteSize) -> bool {
        self.0.hold(bytes)
    }

    fn refund(&self, bytes: ByteSize) {
        self.0.let_go(bytes);
    }
}

impl DataDoor for SandboxDataDoor {
    fn serve(&self, listeners: DataListeners, key: AccessKeyId, booked: Arc<dyn HeldMemory>, until: CancellationToken) {
        let mut http = self.http.for_sandbox(key.clone());
        if let Some(lambda) = self.lambda.clone() {
            http = http.with_functions(Arc::new(LambdaOfSandbox { lambda, key: key.clone() }));
        }
        tokio::spawn(http.serve_tcp(listeners.http, until.clone()));
        if let (Some(fast), Some(listener)) = (self.fast.clone(), listeners.fast) {
            tokio::spawn(async move {
                if let Err(error) = fast.serve_sandbox(listener, key, Arc::new(BookedPayer(booked)), until).await {
                    tracing::warn!(%error, "a sandbox has no fast path; its clients use HTTP");
                }
            });
        }
    }
}
