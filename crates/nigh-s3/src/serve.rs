//! Listening: connections over TCP and Unix sockets, each served by hyper, all bounded, drained at the end.

use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::sync::OwnedSemaphorePermit;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::S3Door;
use crate::send_guard::SendGuard;

/// A connection reads up to this at a time; a request's head must fit too (`screen` allows less).
const READ_BUFFER_MAX: usize = 256 * 1024;
/// Headers of one request.
const HEADERS_MAX: usize = 100;
/// So long a client may neither send what it has begun nor take what it has asked for, unless set otherwise.
const SILENCE_MAX: Duration = Duration::from_secs(30);
/// After a failed accept, which means that file descriptors or memory are short: wait before the next.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// What the door allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DoorLimits {
    /// Connections at a time; further ones wait in the listener's backlog.
    pub connections: usize,
    /// The same, for the door of one sandbox.
    pub sandbox_connections: usize,
    /// A connection is closed if no whole request head comes for so long; idle ones too.
    pub head_timeout: Duration,
    /// An upload fails with `RequestTimeout` if none of its bytes comes for so long.
    pub body_silence: Duration,
    /// A connection is closed if its client takes no byte of an answer for so long: the answer holds memory.
    pub send_silence: Duration,
    /// At the end, requests under way have so long to finish.
    pub drain: Duration,
    /// The largest XML document taken, in bytes: DeleteObjects with 1000 long keys needs about 3 MiB at worst.
    pub document_bytes: usize,
}

impl Default for DoorLimits {
    fn default() -> Self {
        Self {
            connections: 1024,
            sandbox_connections: 128,
            head_timeout: Duration::from_secs(30),
            body_silence: SILENCE_MAX,
            send_silence: SILENCE_MAX,
            drain: Duration::from_secs(10),
            document_bytes: 4 << 20,
        }
    }
}

/// Where connections come from.
trait Listener: Send + Sync {
    /// A connection.
    type Stream: AsyncRead + AsyncWrite + Unpin + Send + 'static;

    /// The next one, ready to be served.
    fn next(&self) -> impl Future<Output = io::Result<Self::Stream>> + Send;
}

impl Listener for TcpListener {
    type Stream = TcpStream;

    async fn next(&self) -> io::Result<TcpStream> {
        let (stream, _) = self.accept().await?;
        // Without it a small answer waits for the acknowledgement of the one before it: 40 ms.
        stream.set_nodelay(true)?;
        Ok(stream)
    }
}

impl Listener for UnixListener {
    type Stream = UnixStream;

    async fn next(&self) -> io::Result<UnixStream> {
        Ok(self.accept().await?.0)
    }
}

impl S3Door {
    /// Serves connections of `listener` until `stop`, then lets requests under way finish, for `limits.drain` at most.
    pub async fn serve_tcp(self, listener: TcpListener, stop: CancellationToken) {
        self.serve(listener, stop).await;
    }

    /// The same, over a Unix socket.
    pub async fn serve_unix(self, listener: UnixListener, stop: CancellationToken) {
        self.serve(listener, stop).await;
    }

    async fn serve<L: Listener>(self, listener: L, stop: CancellationToken) {
        let tracker = TaskTracker::new();
        loop {
            let next = async {
                let accepted = listener.next().await;
                // One accepted connection waits here at most; those behind it wait in the kernel's backlog.
                (accepted, Arc::clone(&self.connections).acquire_owned().await)
            };
            let (accepted, permit) = tokio::select! {
                () = stop.cancelled() => break,
                next = next => next,
            };
            let Ok(permit) = permit else { break };
            match accepted {
                Ok(stream) => {
                    tracker.spawn(self.clone().connection(stream, permit, stop.clone()));
                }
                Err(error) => {
                    tracing::warn!(%error, "a connection to the S3 door could not be accepted");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
        // From here on connections are refused, and not left in a backlog that nobody reads.
        drop(listener);
        tracker.close();
        tracker.wait().await;
    }

    async fn connection<S>(self, stream: S, permit: OwnedSemaphorePermit, stop: CancellationToken)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let (door, place) = (&self, Arc::new(permit));
        let service = service_fn(|request| {
            let place = Arc::clone(&place);
            async move { Ok::<_, Infallible>(door.answer(request, place).await) }
        });
        let mut http = http1::Builder::new();
        http.timer(TokioTimer::new())
            .header_read_timeout(self.limits.head_timeout)
            .max_headers(HEADERS_MAX)
            .max_buf_size(READ_BUFFER_MAX);
        let connection = http.serve_connection(TokioIo::new(SendGuard::new(stream, self.limits.send_silence)), service);
        tokio::pin!(connection);
        let ended = tokio::select! {
            ended = connection.as_mut() => ended,
            () = stop.cancelled() => {
                connection.as_mut().graceful_shutdown();
                match tokio::time::timeout(self.limits.drain, connection).await {
                    Ok(ended) => ended,
                    Err(_) => {
                        tracing::warn!("an S3 request was still under way at the end of the drain time");
                        Ok(())
                    }
                }
            }
        };
        if let Err(error) = ended {
            // Clients go away, and write garbage: it is theirs to know.
            tracing::debug!(%error, "a connection to the S3 door broke");
        }
    }
}
