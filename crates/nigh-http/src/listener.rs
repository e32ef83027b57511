//! Accepts connections up to a limit, serves each over HTTP/1.1, and drains them at the end.

use std::convert::Infallible;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// The head of a request, and the bytes of a body that are read at once.
const HEAD_BYTES_MAX: usize = 64 << 10;
/// A connection that sends no whole head in this time is closed; an idle one too.
const HEAD_TIME_MAX: Duration = Duration::from_secs(60);
/// The wait after a failed accept, which means that file descriptors or memory are short.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Accepts connections with `next` and gives each to `start` with a place of `places`. `start` must not block; the
/// place is free again when the permit is dropped.
///
/// While no place is free, one accepted connection waits here and the others wait in the kernel's backlog. Returns only
/// if `places` is closed.
pub async fn accept<S, N>(
    door: &str,
    places: &Arc<Semaphore>,
    next: impl Fn() -> N + Send,
    mut start: impl FnMut(S, OwnedSemaphorePermit) + Send,
) where
    N: Future<Output = io::Result<S>> + Send,
{
    loop {
        let accepted = next().await;
        let Ok(place) = Arc::clone(places).acquire_owned().await else { return };
        match accepted {
            Ok(stream) => start(stream, place),
            Err(error) => {
                tracing::warn!(%error, "the {door} cannot accept a connection");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// Serves at most `connections_max` connections of `listener` at a time until `stop` is cancelled. Returns when the
/// requests that had begun are answered. `answer` also learns the client's address.
pub async fn serve<A, F>(door: &str, listener: TcpListener, connections_max: usize, stop: CancellationToken, answer: A)
where
    A: Fn(Request<Incoming>, IpAddr) -> F + Clone + Send + Sync + 'static,
    F: Future<Output = Response<Full<Bytes>>> + Send + 'static,
{
    let (places, tracker) = (Arc::new(Semaphore::new(connections_max)), TaskTracker::new());
    let accepting = accept(
        door,
        &places,
        || listener.accept(),
        |(stream, peer), place| {
            let (stop, answer) = (stop.clone(), answer.clone());
            tracker.spawn(async move {
                let _place = place;
                connection(stream, stop, move |request| answer(request, peer.ip())).await;
            });
        },
    );
    stop.run_until_cancelled(accepting).await;
    drop(listener);
    tracker.close();
    tracker.wait().await;
}

async fn connection<F>(stream: TcpStream, stop: CancellationToken, answer: impl Fn(Request<Incoming>) -> F + Send)
where
    F: Future<Output = Response<Full<Bytes>>> + Send,
{
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "a connection is gone before its first request");
        return;
    }
    let service = service_fn(|request| {
        let answered = answer(request);
        async move { Ok::<_, Infallible>(answered.await) }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIME_MAX)
        .max_buf_size(HEAD_BYTES_MAX)
        .serve_connection(TokioIo::new(stream), service);
    tokio::pin!(connection);
    let result = tokio::select! {
        result = connection.as_mut() => result,
        () = stop.cancelled() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = result {
        tracing::debug!(%error, "a connection broke");
    }
}
