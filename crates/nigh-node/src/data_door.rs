//! The S3 door inside sandboxes: what `nigh_faas` asks for, spoken by `nigh_s3`.

use nigh_faas::data_door::DataDoor;
use nigh_s3::S3Door;
use nigh_terms::AccessKeyId;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

/// Serves S3 to one sandbox at a time, each with its own key only.
pub(crate) struct SandboxDataDoor(pub(crate) S3Door);

impl DataDoor for SandboxDataDoor {
    fn serve(&self, listener: TcpListener, key: AccessKeyId, until: CancellationToken) {
        tokio::spawn(self.0.for_sandbox(key).serve_tcp(listener, until));
    }
}
