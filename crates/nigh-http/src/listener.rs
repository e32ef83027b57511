//! Accepts connections up to a limit, serves each over HTTP/1.1, with TLS where the door has it, closes those of silent
//! clients, and drains them at the end. A TLS handshake must end in the time of the first request's head.

use std::convert::Infallible;
use std::error::Error;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use hyper::body::{Body, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use rustls::ServerConfig;
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::places::{Place, Places};
use crate::pulse::{AnsweringGuard, Order, Patience, Pulse};
use crate::send_guard::SendGuard;
use crate::tls::DoorStream;
use crate::tls::server::DoorTls;

/// The head of a request, and the bytes of a body that are read at once.
const HEAD_BYTES_MAX: usize = 64 << 10;
/// How long clients may be silent.
const PATIENCE: Patience =
    Patience { first_head: FIRST_HEAD_TIME_MAX, head: Duration::from_secs(60), send: Duration::from_secs(30) };
/// A new connection must send a whole head in this time.
pub const FIRST_HEAD_TIME_MAX: Duration = Duration::from_secs(10);
/// The wait after a failed accept, which means that file descriptors or memory are short.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// The listener of a door: TCP, with TLS or without.
#[derive(Debug)]
pub struct DoorListener {
    tcp: TcpListener,
    tls: Option<Arc<DoorTls>>,
}

impl DoorListener {
    /// A listener; its clients speak TLS if `tls` is given.
    #[must_use]
    pub const fn new(tcp: TcpListener, tls: Option<Arc<DoorTls>>) -> Self {
        Self { tcp, tls }
    }

    /// The same, with other TLS, or without.
    #[must_use]
    pub fn with_tls(self, tls: Option<Arc<DoorTls>>) -> Self {
        Self { tls, ..self }
    }

    /// The address that it is bound to.
    ///
    /// # Errors
    /// The system's.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.tcp.local_addr()
    }

    /// The door's TLS, if it has any.
    #[must_use]
    pub const fn tls(&self) -> Option<&Arc<DoorTls>> {
        self.tls.as_ref()
    }

    /// The next connection, for `DoorStream::take_up`, with the TLS of this moment.
    ///
    /// # Errors
    /// The system's.
    pub async fn accept(&self) -> io::Result<(TcpStream, SocketAddr, Option<Arc<ServerConfig>>)> {
        let (stream, peer) = self.tcp.accept().await?;
        Ok((stream, peer, self.tls.as_ref().map(|tls| tls.current())))
    }
}

impl From<TcpListener> for DoorListener {
    /// Without TLS.
    fn from(tcp: TcpListener) -> Self {
        Self::new(tcp, None)
    }
}

/// Accepts connections with `next` and gives each to `start` with a place of `places`. `start` must not block; the
/// place is free again when it is dropped.
///
/// While no place is free, a connection that no request needs is closed for the next one (`Places`); if there is none, one
/// accepted connection waits here and the others wait in the kernel's backlog. Never returns.
pub async fn accept<S, N>(
    door: &str,
    places: &Places,
    next: impl Fn() -> N + Send,
    mut start: impl FnMut(S, Place) + Send,
) where
    N: Future<Output = io::Result<S>> + Send,
{
    loop {
        match next().await {
            Ok(stream) => start(stream, places.take().await),
            Err(error) => {
                tracing::warn!(%error, "the {door} cannot accept a connection");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// Serves at most `connections_max` connections of `listener` at a time until `stop` is cancelled. Returns when the
/// requests that had begun are answered. `answer` also learns the client's address.
pub async fn serve<A, F, B>(
    door: &str,
    listener: impl Into<DoorListener>,
    connections_max: usize,
    stop: CancellationToken,
    answer: A,
) where
    A: Fn(Request<Incoming>, IpAddr) -> F + Clone + Send + Sync + 'static,
    F: Future<Output = Response<B>> + Send + 'static,
    B: Body<Data = Bytes, Error: Into<Box<dyn Error + Send + Sync>>> + Send + 'static,
{
    let listener: DoorListener = listener.into();
    let (places, tracker) = (Places::of_door(connections_max, &label(door)), TaskTracker::new());
    let watch = places.watch(PATIENCE);
    let accepting = accept(
        door,
        &places,
        || listener.accept(),
        |(stream, peer, tls), place| {
            let (pulse, answer) = (watch.add(), answer.clone());
            tracker.spawn(async move {
                let _place = place;
                connection(stream, tls, pulse, move |request| answer(request, peer.ip())).await;
            });
        },
    );
    tokio::select! {
        () = stop.cancelled() => {}
        () = accepting => {}
        never = watch.keep() => match never {},
    }
    drop(listener);
    tracker.close();
    watch.tell(Order::Drain);
    tokio::select! {
        () = tracker.wait() => {}
        never = watch.keep() => match never {},
    }
}

/// A door in metrics: `lambda` for `Lambda door`.
fn label(door: &str) -> String {
    door.split(' ').next().unwrap_or(door).to_ascii_lowercase()
}

async fn connection<F, B>(
    stream: TcpStream,
    tls: Option<Arc<ServerConfig>>,
    pulse: Arc<Pulse>,
    answer: impl Fn(Request<Incoming>) -> F + Send,
) where
    F: Future<Output = Response<B>> + Send,
    B: Body<Data = Bytes, Error: Into<Box<dyn Error + Send + Sync>>> + Send + 'static,
{
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "a connection is gone before its first request");
        return;
    }
    let stream = match pulse.before_requests(pin!(DoorStream::take_up(stream, tls))).await {
        Some(Ok(stream)) => stream,
        Some(Err(error)) => {
            tracing::debug!(%error, "a connection broke before its first request");
            return;
        }
        None => return,
    };
    let service = service_fn(|request| {
        let (answering, answered) = (AnsweringGuard::begin(&pulse), answer(request));
        async move {
            let response = answered.await;
            drop(answering);
            Ok::<_, Infallible>(response)
        }
    });
    // The watch finds silent clients: hyper gets no timer, and so sets none.
    let connection = http1::Builder::new()
        .max_buf_size(HEAD_BYTES_MAX)
        .serve_connection(TokioIo::new(SendGuard::new(stream, Arc::clone(&pulse))), service);
    if let Err(error) = pulse.run(pin!(connection), |connection| connection.graceful_shutdown()).await {
        tracing::debug!(%error, "a connection broke");
    }
}
