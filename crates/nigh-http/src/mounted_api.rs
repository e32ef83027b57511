//! An API below a path of another API's listener.

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
    /// Whether a request for `path` is this API's.
    fn answers(&self, path: &str) -> bool;
    /// Answers a request; its body takes room of `room`.
    async fn answer(&self, head: &Parts, body: Incoming, room: &BodyRoom) -> Response<Full<Bytes>>;
    /// Returns when what its requests began in the background has ended.
    async fn finished(&self);
}
