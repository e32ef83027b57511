//! The S3 door inside sandboxes, which `nigh_s3` serves for `nigh_sandbox`.

use std::sync::Arc;

use nigh_s3::{FastPath, FastPathPayer, S3Door};
use nigh_sandbox::data_door::{DataDoor, DataListeners, HeldMemory};
use nigh_terms::{AccessKeyId, ByteSize};
use tokio_util::sync::CancellationToken;

/// Serves S3 in sandboxes, in each to that sandbox's own key only.
pub(crate) struct SandboxDataDoor {
    /// The S3 door over HTTP.
    pub(crate) http: S3Door,
    /// The fast path; none if it is off.
    pub(crate) fast: Option<FastPath>,
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
        tokio::spawn(self.http.for_sandbox(key.clone()).serve_tcp(listeners.http, until.clone()));
        if let (Some(fast), Some(listener)) = (self.fast.clone(), listeners.fast) {
            tokio::spawn(async move {
                if let Err(error) = fast.serve_sandbox(listener, key, Arc::new(BookedPayer(booked)), until).await {
                    tracing::warn!(%error, "a sandbox has no fast path; its clients use HTTP");
                }
            });
        }
    }
}
