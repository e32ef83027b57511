//! An API that shares the listener of another API.

use std::net::IpAddr;

use async_trait::async_trait;
use bytes::Bytes;
use http::Response;
use http::request::Parts;
use http_body_util::Full;
use hyper::body::Incoming;

use crate::request_body::BodyRoom;

/// An API that a listener of another API serves too.
#[async_trait]
pub trait MountedApi: Send + Sync {
    /// Whether this API answers requests for `path`.
    fn answers(&self, path: &str) -> bool;
    /// Answers a request of a client at the address `from`. The request takes its share and its body's memory from `room`.
    async fn answer(&self, head: &Parts, body: Incoming, room: &BodyRoom, from: IpAddr) -> Response<Full<Bytes>>;
    /// Returns when the background work of its requests has ended.
    async fn finished(&self);
}

/// An API that the data door in one sandbox serves beside its own: the sandbox's function invokes others by it.
#[async_trait]
pub trait SandboxApi: Send + Sync {
    /// Answers a request that is signed for a service of this API. Only the sandbox's own key is good.
    async fn answer(&self, head: Parts, body: Incoming) -> Response<Full<Bytes>>;
}
