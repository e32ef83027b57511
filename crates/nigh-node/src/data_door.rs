//! The S3 door inside sandboxes: what `nigh_faas` asks for, spoken by `nigh_s3`.

use nigh_faas::data_door::{DataDoor, DataListeners};
use nigh_s3::{FastPath, S3Door};
use nigh_terms::AccessKeyId;
use tokio_util::sync::CancellationToken;

/// Serves S3 to one sandbox at a time, each with its own key only.
pub(crate) struct SandboxDataDoor {
    /// Over HTTP.
    pub(crate) http: S3Door,
    /// Without it; none if that is off.
    pub(crate) fast: Option<FastPath>,
}

impl DataDoor for SandboxDataDoor {
    fn serve(&self, listeners: DataListeners, key: AccessKeyId, until: CancellationToken) {
        tokio::spawn(self.http.for_sandbox(key.clone()).serve_tcp(listeners.http, until.clone()));
        if let (Some(fast), Some(listener)) = (self.fast.clone(), listeners.fast) {
            tokio::spawn(async move {
                if let Err(error) = fast.serve(listener, Some(key), until).await {
                    tracing::warn!(%error, "a sandbox has no fast path; its clients use HTTP");
                }
            });
        }
    }
}
