//! The interface of the data door of a sandbox.
//!
//! The node passes an implementation that speaks S3; this crate knows nothing of the protocol.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use nigh_terms::{AccessKeyId, ByteSize};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

/// The listeners of the data door in one sandbox's network.
#[derive(Debug)]
pub struct DataListeners {
    /// The listener of the S3 door.
    pub http: TcpListener,
    /// The listener of the fast path: a non-blocking Unix socket. None if the sandbox shares the host's network.
    pub fast: Option<OwnedFd>,
}

/// A sandbox's booking, which pays for the node's segments that the sandbox holds.
pub trait HeldMemory: Send + Sync {
    /// The sandbox holds `bytes` more from now on. False, without any change, if its booking does not pay for them
    /// beside its own memory. Blocks for a few writes of cgroup files.
    fn hold(&self, bytes: ByteSize) -> bool;
    /// The sandbox has released `bytes`.
    fn let_go(&self, bytes: ByteSize);
}

/// Serves the data of one sandbox's namespace inside that sandbox.
pub trait DataDoor: Send + Sync {
    /// Serves on `listeners`, in its own tasks, until `until` is cancelled. Answers only requests signed with `key`,
    /// which only the sandbox in that network has. `booked` pays for the segments handed out. Must not block.
    fn serve(&self, listeners: DataListeners, key: AccessKeyId, booked: Arc<dyn HeldMemory>, until: CancellationToken);
}
