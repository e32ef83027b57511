//! The data door of a sandbox, as the invoker asks for it.
//!
//! Whoever assembles a node brings an implementation (it speaks S3); this room never learns what is spoken there.

use nigh_terms::AccessKeyId;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

/// Serves the data of one sandbox's namespace inside that sandbox.
pub trait DataDoor: Send + Sync {
    /// Serves on `listener`, in tasks of its own, until `until` is cancelled. Only requests signed with `key` are
    /// answered: the listener stands in one sandbox's network, and that sandbox has this key. Must not block.
    fn serve(&self, listener: TcpListener, key: AccessKeyId, until: CancellationToken);
}
