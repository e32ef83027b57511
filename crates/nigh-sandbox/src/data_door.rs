//! The data door of a sandbox, as the invoker asks for it.
//!
//! Whoever assembles a node brings an implementation (it speaks S3); this room never learns what is spoken there.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use nigh_terms::{AccessKeyId, ByteSize};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

/// What stands in one sandbox's network for its data.
#[derive(Debug)]
pub struct DataListeners {
    /// For HTTP.
    pub http: TcpListener,
    /// For the fast path, a listening Unix socket that does not wait; none where the network is not the sandbox's own.
    pub fast: Option<OwnedFd>,
}

/// What a sandbox booked, which pays for what it holds of the node's memory.
pub trait HeldMemory: Send + Sync {
    /// From now on the sandbox holds so many bytes more. False, and nothing has changed, if what it booked does not pay
    /// for them beside what it uses itself. Blocks for a few writes of cgroup files.
    fn hold(&self, bytes: ByteSize) -> bool;
    /// It has let go of so many.
    fn let_go(&self, bytes: ByteSize);
}

/// Serves the data of one sandbox's namespace inside that sandbox.
pub trait DataDoor: Send + Sync {
    /// Serves on `listeners`, in tasks of its own, until `until` is cancelled. Only requests signed with `key` are
    /// answered: the listeners stand in one sandbox's network, and that sandbox has this key. What is handed out there is
    /// paid by `booked`. Must not block.
    fn serve(&self, listeners: DataListeners, key: AccessKeyId, booked: Arc<dyn HeldMemory>, until: CancellationToken);
}
