//! What a server asks of the code that answers calls.

use async_trait::async_trait;
use bytes::Bytes;
use tokio::time::Instant;

use crate::body::Body;
use crate::error::Refusal;
use crate::hello::Hello;
use crate::incoming::IncomingBody;
use crate::method::Method;

/// A call that came in.
#[derive(Debug)]
pub struct Call<'a> {
    /// The caller; with TLS its certificate proves it.
    pub peer: &'a Hello,
    /// The method that it calls.
    pub method: &'static Method,
    /// The call's head.
    pub head: Bytes,
    /// Its body. The server drops what the handler does not read, and closes the connection if that is much.
    pub body: IncomingBody<'a>,
    /// When the caller gives up and the handler is dropped.
    pub deadline: Instant,
}

/// The answer to a call.
#[derive(Debug)]
pub struct Reply {
    /// Its head, 1 MiB at most.
    pub head: Bytes,
    /// Its body.
    pub body: Body,
}

/// Answers calls.
///
/// The server drops the future of a call, at any await, when the call's deadline comes or its caller is gone: spawn a task
/// for work that must not stop half-way. (The server notices at once that a caller is gone if the call has no body, else
/// when it writes the answer.) A panic closes the connection.
#[async_trait]
pub trait Handler: Send + Sync + 'static {
    /// The method with this number, if there is one.
    fn method(&self, number: u16) -> Option<&'static Method>;

    /// Admits `peer`, or refuses every call of it.
    ///
    /// # Errors
    /// The refusal that the peer gets.
    fn admits(&self, _peer: &Hello) -> Result<(), Refusal> {
        Ok(())
    }

    /// Answers a call.
    async fn call(&self, call: Call<'_>) -> Result<Reply, Refusal>;
}
