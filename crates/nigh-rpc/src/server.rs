//! Who answers: listens, and gives each call of an authenticated peer to a handler.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use tokio::net::TcpListener;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::accept::Door;
use crate::answering::answer_calls;
use crate::body::Body;
use crate::error::Refusal;
use crate::hello::Hello;
use crate::incoming::IncomingBody;
use crate::security::Security;
use crate::settings::ServerSettings;

/// After a connection could not be taken, for want of descriptors for instance.
const ACCEPT_REST: Duration = Duration::from_millis(50);

/// A method: its number and what its calls may carry. Both sides have the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Method {
    /// Its number on the wire.
    pub number: u16,
    /// Its name, for meters and messages.
    pub name: &'static str,
    /// The longest head of a call, bytes; never more than 1 MiB.
    pub head_max: u32,
    /// The longest body of a call, bytes.
    pub body_max: u64,
}

/// A call that came in.
#[derive(Debug)]
pub struct Call<'a> {
    /// Who calls; with TLS its certificate says so.
    pub peer: &'a Hello,
    /// What is called.
    pub method: &'static Method,
    /// The call's head.
    pub head: Bytes,
    /// Its body. What the handler leaves of it is read and dropped if it is little, else it costs the connection.
    pub body: IncomingBody<'a>,
    /// When the caller gives up; the handler is dropped then.
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

/// What answers calls.
///
/// A call whose caller is gone, or whose deadline comes, has its future dropped, at any await: work that must not stop
/// half-way belongs into a task of its own. (That the caller is gone is noticed at once if the call has no body, else when
/// the answer is written.) A panic costs the connection.
#[async_trait]
pub trait Handler: Send + Sync + 'static {
    /// The method of that number, if there is one.
    fn method(&self, number: u16) -> Option<&'static Method>;

    /// Whether to speak with `peer` at all.
    ///
    /// # Errors
    /// Why not; the peer is told.
    fn admits(&self, _peer: &Hello) -> Result<(), Refusal> {
        Ok(())
    }

    /// Answers a call.
    async fn call(&self, call: Call<'_>) -> Result<Reply, Refusal>;
}

/// Answers on `listener` as `own` until `ending` is cancelled; then calls under way may end, for `drain_max`, and it is
/// over when no connection is left.
pub async fn serve(
    listener: TcpListener,
    own: Hello,
    security: Security,
    settings: ServerSettings,
    handler: Arc<dyn Handler>,
    ending: CancellationToken,
) {
    let drain_max = settings.drain_max;
    let door = Arc::new(Door::new(own, security, settings, handler, ending.clone()));
    let (tasks, cut) = (TaskTracker::new(), CancellationToken::new());
    while let Some(accepted) = ending.run_until_cancelled(listener.accept()).await {
        let Ok((tcp, _)) = accepted.inspect_err(|error| tracing::warn!("a connection cannot be taken: {error}")) else {
            tokio::time::sleep(ACCEPT_REST).await;
            continue;
        };
        // Beyond the limit a connection is closed without a word.
        let Some(place) = door.place() else { continue };
        let (door, cut) = (Arc::clone(&door), cut.clone());
        tasks.spawn(async move {
            let served = async {
                if let Some(admitted) = door.admit(tcp, place).await {
                    answer_calls(&door, admitted).await;
                }
            };
            cut.run_until_cancelled(Box::pin(served)).await;
        });
    }
    drop(listener);
    tasks.close();
    if timeout(drain_max, tasks.wait()).await.is_err() {
        cut.cancel();
        tasks.wait().await;
    }
}
