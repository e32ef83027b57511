//! Listens for connections over TCP and Unix sockets. hyper serves each connection on a lane; the number of connections
//! is bounded, and connections are drained when the door stops.

use std::convert::Infallible;
use std::future::poll_fn;
use std::io;
use std::net::IpAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use http::Response;
use http_body::{Frame, SizeHint};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use nigh_http::listener::{DoorListener, FIRST_HEAD_TIME_MAX};
use nigh_http::places::Place;
use nigh_http::pulse::{AnsweringGuard, Order, Patience, Pulse};
use nigh_http::send_guard::SendGuard;
use nigh_http::shares::Share;
use nigh_http::tls::{DoorStream, ServerConfig};
use nigh_http::watch::Watch;
use rustix::net::sockopt::set_socket_send_buffer_size;
use s3s::{Body, StdError};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixListener, UnixStream};
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::S3Door;
use crate::read::SENT_AT_ONCE_MAX;

/// The most bytes that a connection buffers while it reads. A request's head must fit too; `screen` allows less.
const READ_BUFFER_MAX: usize = 256 * 1024;
/// The most headers of one request.
const HEADERS_MAX: usize = 100;
/// The default time that a client may be silent in the middle of an upload or of an answer.
const SILENCE_MAX: Duration = Duration::from_secs(30);
/// The most bytes that may wait in the kernel for a client on this machine; the kernel doubles this number for its own
/// data. By default, the buffer grows to 4 MiB, and a byte has left the processor's cache when the client reads it. A
/// connection within one machine needs no such buffer.
const LOCAL_SEND_BUFFER: usize = 256 * 1024;

/// The limits of the door.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DoorLimits {
    /// The most connections at a time, and so requests under way; `nigh_http::shares` says how many of them one key may
    /// have. If a further one comes, an idle one is closed; while none is idle, it waits in the listener's backlog.
    pub connections: usize,
    /// The most connections at a time of the door of one sandbox.
    pub sandbox_connections: usize,
    /// A new connection is closed if its first request head does not come whole in this time.
    pub first_head_timeout: Duration,
    /// A connection is closed if no whole request head comes for so long; idle ones too.
    pub head_timeout: Duration,
    /// An upload fails with `RequestTimeout` if its client pauses for so long in all and does not make up for it at
    /// `nigh_http`'s least rate.
    pub body_silence: Duration,
    /// A connection whose client takes less than the least rate of an answer for this time is closed, because the answer
    /// occupies memory.
    pub send_silence: Duration,
    /// How long requests in progress may take to finish after the door has stopped.
    pub drain: Duration,
    /// The largest XML document that is accepted, in bytes. DeleteObjects with 1000 long keys needs about 3 MiB at
    /// worst.
    pub document_bytes: usize,
}

impl Default for DoorLimits {
    fn default() -> Self {
        Self {
            connections: 1024,
            sandbox_connections: 128,
            first_head_timeout: FIRST_HEAD_TIME_MAX,
            head_timeout: Duration::from_secs(30),
            body_silence: SILENCE_MAX,
            send_silence: SILENCE_MAX,
            drain: Duration::from_secs(10),
            document_bytes: 4 << 20,
        }
    }
}

/// A socket that listens for connections.
trait Listener: Send + Sync + 'static {
    /// A connection that is not registered in any runtime yet.
    type RawStream: Send + 'static;
    /// A connection that is registered in a runtime.
    type Stream: AsyncRead + AsyncWrite + Unpin + Send + 'static;

    /// Accepts the next connection.
    fn next(&self) -> impl Future<Output = io::Result<Self::RawStream>> + Send;

    /// The client's address; none over a Unix socket.
    fn client(accepted: &Self::RawStream) -> Option<IpAddr>;

    /// Registers `accepted` in the runtime in which this function is called, and makes its TLS handshake if there is one.
    fn adopt(accepted: Self::RawStream) -> impl Future<Output = io::Result<Self::Stream>> + Send;
}

impl Listener for DoorListener {
    type RawStream = (std::net::TcpStream, Option<Arc<ServerConfig>>);
    type Stream = DoorStream;

    async fn next(&self) -> io::Result<Self::RawStream> {
        let (stream, client, tls) = self.accept().await?;
        // Without this, a small answer waits 40 ms for the acknowledgement of the answer before it.
        stream.set_nodelay(true)?;
        if client.ip().to_canonical().is_loopback() {
            set_socket_send_buffer_size(&stream, LOCAL_SEND_BUFFER)?;
        }
        Ok((stream.into_std()?, tls))
    }

    fn client((stream, _): &Self::RawStream) -> Option<IpAddr> {
        stream.peer_addr().ok().map(|client| client.ip().to_canonical())
    }

    async fn adopt((stream, tls): Self::RawStream) -> io::Result<DoorStream> {
        DoorStream::take_up(TcpStream::from_std(stream)?, tls).await
    }
}

impl Listener for UnixListener {
    type RawStream = std::os::unix::net::UnixStream;
    type Stream = UnixStream;

    async fn next(&self) -> io::Result<Self::RawStream> {
        self.accept().await?.0.into_std()
    }

    fn client(_: &Self::RawStream) -> Option<IpAddr> {
        None
    }

    async fn adopt(accepted: Self::RawStream) -> io::Result<UnixStream> {
        UnixStream::from_std(accepted)
    }
}

impl S3Door {
    /// Serves connections of `listener` until `stop`, then lets requests in progress finish, for `limits.drain` at
    /// most.
    ///
    /// The future is boxed, as in all serve functions; otherwise every crate that awaits this would compile the door
    /// again.
    pub fn serve_tcp(self, listener: impl Into<DoorListener>, stop: CancellationToken) -> BoxFuture<'static, ()> {
        self.serve_door(listener.into(), stop)
    }

    /// Serves connections over a Unix socket, as `serve_tcp` does over TCP.
    pub fn serve_unix(self, listener: UnixListener, stop: CancellationToken) -> BoxFuture<'static, ()> {
        Box::pin(self.serve(listener, stop))
    }

    fn serve_door(self, listener: DoorListener, stop: CancellationToken) -> BoxFuture<'static, ()> {
        Box::pin(self.serve(listener, stop))
    }

    async fn serve<L: Listener>(self, listener: L, stop: CancellationToken) {
        let tracker = TaskTracker::new();
        let DoorLimits { first_head_timeout, head_timeout, send_silence, .. } = self.limits;
        let first_head = first_head_timeout.min(head_timeout);
        let watch = self.places.watch(Patience { first_head, head: head_timeout, send: send_silence });
        tokio::select! {
            () = stop.cancelled() => {}
            () = self.accept(&listener, &tracker, &watch) => {}
            never = watch.keep() => match never {},
        }
        // From here on, connections are refused, and not left in a backlog that nobody reads.
        drop(listener);
        tracker.close();
        watch.tell(Order::Drain);
        let drained = async {
            tokio::select! {
                () = tracker.wait() => {}
                never = watch.keep() => match never {},
            }
        };
        let drain = self.farewell.drain().unwrap_or(self.limits.drain);
        if tokio::time::timeout(drain, drained).await.is_err() {
            tracing::warn!(
                connections = tracker.len(),
                "S3 requests were still under way at the end of the drain time"
            );
            watch.tell(Order::Close);
            tracker.wait().await;
        }
    }

    /// Accepts connections. Ends only if `connections` is closed.
    async fn accept<L: Listener>(&self, listener: &L, tracker: &TaskTracker, watch: &Watch) {
        let start = |accepted, permit| {
            let connection = self.clone().connection::<L>(accepted, permit, watch.add());
            self.lanes.run(tracker.track_future(connection));
        };
        nigh_http::listener::accept("S3 door", &self.places, || listener.next(), start).await;
    }

    /// Serves one connection, on its lane.
    async fn connection<L: Listener>(self, accepted: L::RawStream, permit: Place, pulse: Arc<Pulse>) {
        let from = L::client(&accepted);
        let stream = match pulse.before_requests(pin!(L::adopt(accepted))).await {
            Some(Ok(stream)) => stream,
            Some(Err(error)) => {
                tracing::debug!(%error, "a connection to the S3 door broke before its first request");
                return;
            }
            None => return,
        };
        let (door, home, place) = (&self, self.lanes.home(), Arc::new(permit));
        let service = service_fn(|request| {
            let (answering, place) = (AnsweringGuard::begin(&pulse), Arc::clone(&place));
            async move {
                let mut answer = pin!(door.answer(request, place, from));
                let response = poll_fn(|context| {
                    // What the request starts must run in the node's runtime and not on the lane.
                    let _home = home.enter();
                    answer.as_mut().poll(context)
                });
                let mut response = response.await;
                door.farewell.mark(response.headers_mut());
                Ok::<_, Infallible>(until_sent(response, answering, home))
            }
        });
        // hyper gets no timer and so sets no timeouts: the watch finds silent clients.
        let mut http = http1::Builder::new();
        http.max_headers(HEADERS_MAX).max_buf_size(READ_BUFFER_MAX);
        let stream = SendGuard::new(stream, Arc::clone(&pulse));
        let connection = pin!(http.serve_connection(TokioIo::new(stream), service));
        if let Err(error) = pulse.run(connection, |connection| connection.graceful_shutdown()).await {
            // Clients disconnect and send garbage: not a fault of the node.
            tracing::debug!(%error, "a connection to the S3 door broke");
        }
    }
}

/// The share of a request whose answer takes a while to send, in the answer's extensions.
#[derive(Clone)]
pub(crate) struct ShareUntilSent {
    _share: Arc<Share>,
}

impl ShareUntilSent {
    /// Keeps `share` until the answer is sent.
    pub(crate) fn new(share: Share) -> Self {
        Self { _share: Arc::new(share) }
    }
}

/// What lasts until an answer is sent: that its request is being answered, and the request's share.
struct UntilSent {
    _answering: AnsweringGuard,
    _share: Option<ShareUntilSent>,
}

/// `response`; unless its body is small and ready, the request counts as being answered, and as under way, until the body
/// is sent.
fn until_sent(mut response: Response<Body>, answering: AnsweringGuard, home: &Handle) -> Response<Body> {
    let until_sent = UntilSent { _answering: answering, _share: response.extensions_mut().remove() };
    match response.body().bytes() {
        Some(bytes) if bytes.len() as u64 <= SENT_AT_ONCE_MAX => {}
        Some(bytes) => {
            *response.body_mut() = Body::from(Bytes::from_owner(BytesUntilSent { bytes, _until_sent: until_sent }))
        }
        None => {
            return response.map(|body| {
                let home = home.clone();
                Body::http_body_unsync(BodyFromHome { body, home, _until_sent: until_sent })
            });
        }
    }
    response
}

/// A body that is ready, whose bytes the connection drops when they are sent.
struct BytesUntilSent {
    bytes: Bytes,
    _until_sent: UntilSent,
}

impl AsRef<[u8]> for BytesUntilSent {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// A body that is produced in the node's runtime while it is sent.
struct BodyFromHome {
    body: Body,
    home: Handle,
    _until_sent: UntilSent,
}

impl http_body::Body for BodyFromHome {
    type Data = Bytes;
    type Error = StdError;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, StdError>>> {
        let this = &mut *self;
        let _home = this.home.enter();
        Pin::new(&mut this.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
