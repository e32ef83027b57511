//! The server: accepts connections, and gives each call of an authenticated peer to a handler.

use std::sync::Arc;
use std::time::Duration;

use async_recursion::async_recursion as boxed;
use tokio::net::TcpListener;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::accept::Door;
use crate::answering::answer_calls;
use crate::handler::Handler;
use crate::hello::Hello;
use crate::security::Security;
use crate::settings::ServerSettings;

/// The wait after a failed accept, which means that file descriptors or memory are short.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Answers on `listener` as `own` until `ending` is cancelled. Then lets calls under way end, for `drain_max` at most, and
/// returns when no connection is left.
#[boxed]
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
    let (following, until) = (Arc::clone(&door), ending.clone());
    tasks.spawn(async move {
        until.run_until_cancelled(following.security.follow_files()).await;
    });
    while let Some(accepted) = ending.run_until_cancelled(listener.accept()).await {
        let Ok((tcp, _)) = accepted.inspect_err(|error| {
            tracing::warn!("the server for calls of the cluster cannot accept a connection: {error}")
        }) else {
            tokio::time::sleep(ACCEPT_PAUSE).await;
            continue;
        };
        // Above the limit a connection is closed without an answer.
        let Some(place) = door.place() else { continue };
        let (door, cut) = (Arc::clone(&door), cut.clone());
        tasks.spawn(async move {
            let served = async {
                let Some(admitted) = door.admit(tcp, place).await else { return };
                let (peer, certificate) = (admitted.peer.identity.clone(), admitted.certificate.clone());
                tokio::select! {
                    () = answer_calls(&door, admitted) => {}
                    () = door.security.until_revoked(certificate) => {
                        tracing::warn!("the connection of {peer} is closed: its certificate is revoked");
                    }
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
