//! A bad network and a bad store, on purpose: an HTTP reverse proxy before a real store that delays, refuses, breaks,
//! cuts and stalls requests by a plan (`plan`). Nothing is made up but the faults: what passes is the store's own.
//!
//! It runs in the process of a test, or on its own: `nigh-peer fault-proxy http://127.0.0.1:8080 plan.toml` prints its
//! port. The host that requests name is passed on, so that a store which tells its own address tells the proxy's.

pub mod plan;

use std::convert::Infallible;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt;
use http::header::{
    CONNECTION, CONTENT_LENGTH, ETAG, HeaderMap, HeaderName, HeaderValue, RETRY_AFTER, TRANSFER_ENCODING,
};
use http::{Request, Response, StatusCode, Uri};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, BodyStream, Empty, StreamBody};
use hyper::body::{Body, Frame, Incoming};
use hyper::service::service_fn;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioIo};
use parking_lot::RwLock;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use self::plan::{Fault, Plan};

/// What a throttled body is cut into, at most.
const PIECE: u64 = 16 << 10;

type Failure = Box<dyn std::error::Error + Send + Sync>;
type ProxyResponse = Response<BoxBody<Bytes, Failure>>;

/// A running proxy; it ends when dropped.
#[derive(Debug)]
pub struct FaultProxy {
    shared: Arc<FaultProxyState>,
    address: SocketAddr,
    serving: JoinHandle<()>,
}

#[derive(Debug)]
struct FaultProxyState {
    upstream: String,
    client: Client<HttpConnector, Incoming>,
    plan: RwLock<Plan>,
    requests: AtomicU64,
    faults: AtomicU64,
}

impl FaultProxy {
    /// A proxy on a free port of this machine before `upstream`, `http://host:port`.
    ///
    /// # Errors
    /// If no port can be had.
    pub async fn start(upstream: &str, plan: Plan) -> std::io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let mut tcp = HttpConnector::new();
        tcp.set_nodelay(true);
        let shared = Arc::new(FaultProxyState {
            upstream: upstream.trim_end_matches('/').to_owned(),
            client: Client::builder(TokioExecutor::new()).set_host(false).build(tcp),
            plan: RwLock::new(plan),
            requests: AtomicU64::new(0),
            faults: AtomicU64::new(0),
        });
        let serving = tokio::spawn(serve(listener, Arc::clone(&shared)));
        Ok(Self { shared, address, serving })
    }

    /// Where it listens: `http://127.0.0.1:<port>`.
    #[must_use]
    pub fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Its port.
    #[must_use]
    pub const fn port(&self) -> u16 {
        self.address.port()
    }

    /// What happens to requests from now on. Those that hang go on hanging.
    pub fn set_plan(&self, plan: Plan) {
        *self.shared.plan.write() = plan;
    }

    /// How many requests came, and how many of them met a fault.
    #[must_use]
    pub fn counts(&self) -> (u64, u64) {
        (self.shared.requests.load(Ordering::Relaxed), self.shared.faults.load(Ordering::Relaxed))
    }

    /// Serves until it fails, which it does not.
    ///
    /// # Errors
    /// If its task ended.
    pub async fn wait(&mut self) -> std::io::Result<()> {
        (&mut self.serving).await.map_err(std::io::Error::other)
    }
}

impl Drop for FaultProxy {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

async fn serve(listener: TcpListener, shared: Arc<FaultProxyState>) {
    // The connections end with the proxy.
    let mut connections = tokio::task::JoinSet::new();
    loop {
        let accepted = listener.accept().await;
        while connections.try_join_next().is_some() {}
        let Ok((stream, _)) = accepted else { continue };
        // Without it answers wait for acknowledgements; a socket that refuses it is only slower.
        let _ = stream.set_nodelay(true);
        let shared = Arc::clone(&shared);
        connections.spawn(async move {
            let service = service_fn(move |request| answer(Arc::clone(&shared), request));
            // An error is a fault of the plan, or a client that has gone.
            let _ = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
        });
    }
}

/// What one connection says of one of its ends alone, not to be passed on.
pub(crate) fn drop_hop_by_hop(headers: &mut HeaderMap) {
    for name in [CONNECTION, TRANSFER_ENCODING, HeaderName::from_static("keep-alive")] {
        headers.remove(name);
    }
}

fn status(status: u16, retry_after_s: Option<u64>) -> ProxyResponse {
    let mut answer = Response::new(Empty::new().map_err(|never: Infallible| match never {}).boxed());
    *answer.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    if let Some(seconds) = retry_after_s {
        answer.headers_mut().insert(RETRY_AFTER, HeaderValue::from(seconds));
    }
    answer
}

async fn answer(shared: Arc<FaultProxyState>, request: Request<Incoming>) -> Result<ProxyResponse, Failure> {
    let number = shared.requests.fetch_add(1, Ordering::Relaxed);
    let target = request.uri().path_and_query().map_or("/", |target| target.as_str()).to_owned();
    let fate = shared.plan.read().fate(number, request.method(), &target);
    if fate.delay_ms > 0.0 {
        tokio::time::sleep(Duration::from_secs_f64(fate.delay_ms / 1000.0)).await;
    }
    if fate.fault.is_some() {
        shared.faults.fetch_add(1, Ordering::Relaxed);
    }
    match fate.fault {
        Some(Fault::Refuse { status: code, retry_after_s }) => {
            // Read to its end, so that the client hears the answer and not that it may not go on.
            request.into_body().collect().await?;
            Ok(status(code, retry_after_s))
        }
        Some(Fault::Hang) => std::future::pending().await,
        fault => {
            let method = request.method().clone();
            let passed = pass(&shared, request, &target).await?;
            let length = passed.body().size_hint().exact();
            spoil(passed, fault, length.filter(|_| method != http::Method::HEAD)).await
        }
    }
}

async fn pass(
    shared: &FaultProxyState,
    request: Request<Incoming>,
    target: &str,
) -> Result<Response<Incoming>, Failure> {
    let (mut head, body) = request.into_parts();
    head.uri = format!("{}{target}", shared.upstream).parse::<Uri>()?;
    drop_hop_by_hop(&mut head.headers);
    let mut answer = shared.client.request(Request::from_parts(head, body)).await?;
    drop_hop_by_hop(answer.headers_mut());
    Ok(answer)
}

async fn spoil(
    answer: Response<Incoming>,
    fault: Option<Fault>,
    length: Option<u64>,
) -> Result<ProxyResponse, Failure> {
    let (mut head, body) = answer.into_parts();
    let whole = |body: Incoming| body.map_err(Failure::from).boxed();
    match fault {
        Some(Fault::Close) => {
            body.collect().await?;
            Err("closed as planned".into())
        }
        Some(Fault::Break { status: code }) => {
            body.collect().await?;
            Ok(status(code, None))
        }
        Some(Fault::WrongEtag) => {
            if head.headers.contains_key(ETAG) {
                head.headers.insert(ETAG, HeaderValue::from_static("\"00000000000000000000000000000bad\""));
            }
            Ok(Response::from_parts(head, whole(body)))
        }
        Some(Fault::HalfBody) => {
            let bytes = body.collect().await?.to_bytes();
            let half = bytes.slice(..bytes.len() / 2);
            if let Some(length) = length {
                head.headers.insert(CONTENT_LENGTH, HeaderValue::from(length));
            }
            let pieces: [Result<Frame<Bytes>, Failure>; 2] = [Ok(Frame::data(half)), Err("cut as planned".into())];
            // What was sent before an error would be lost if both were there at once.
            let pieces = futures::stream::iter(pieces).then(|piece| async move {
                if piece.is_err() {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
                piece
            });
            Ok(Response::from_parts(head, BodyExt::boxed(StreamBody::new(Box::pin(pieces) as SyncStream))))
        }
        Some(Fault::Throttle { bytes_per_s }) => {
            let pieces = BodyStream::new(body).flat_map(|frame| {
                let bytes = frame.map_err(Failure::from).map(|frame| frame.into_data().unwrap_or_default());
                futures::stream::iter(cut(bytes))
            });
            let slowed = pieces.then(move |piece| async move {
                let length = piece.as_ref().map_or(0, Bytes::len);
                tokio::time::sleep(Duration::from_secs_f64(length as f64 / bytes_per_s.max(1) as f64)).await;
                piece.map(Frame::data)
            });
            if let Some(length) = length {
                head.headers.insert(CONTENT_LENGTH, HeaderValue::from(length));
            }
            Ok(Response::from_parts(head, BodyExt::boxed(StreamBody::new(Box::pin(slowed) as SyncStream))))
        }
        Some(Fault::Refuse { .. } | Fault::Hang) | None => Ok(Response::from_parts(head, whole(body))),
    }
}

type SyncStream = std::pin::Pin<Box<dyn futures::Stream<Item = Result<Frame<Bytes>, Failure>> + Send + Sync>>;

fn cut(bytes: Result<Bytes, Failure>) -> Vec<Result<Bytes, Failure>> {
    match bytes {
        Ok(mut rest) => {
            let mut pieces = Vec::new();
            while !rest.is_empty() {
                pieces.push(Ok(rest.split_to(rest.len().min(PIECE as usize))));
            }
            pieces
        }
        Err(error) => vec![Err(error)],
    }
}

/// Runs a proxy before `upstream` by the plan in a file until the process ends; prints its port first.
///
/// # Errors
/// If an argument is missing, the plan cannot be read, or no port can be had.
#[expect(clippy::print_stdout, reason = "the port is this program's one output")]
pub async fn run(upstream: Option<String>, plan: Option<String>) -> std::io::Result<()> {
    let wrong =
        |what: String| std::io::Error::other(format!("{what}; nigh-peer fault-proxy <http://host:port> <plan.toml>"));
    let upstream = upstream.ok_or_else(|| wrong("before which store?".to_owned()))?;
    let path = plan.ok_or_else(|| wrong("by which plan?".to_owned()))?;
    let text = std::fs::read_to_string(&path).map_err(|error| wrong(format!("{path}: {error}")))?;
    let plan = toml::from_str(&text).map_err(|error| wrong(format!("{path}: {error}")))?;
    let mut proxy = FaultProxy::start(&upstream, plan).await?;
    println!("{}", proxy.port());
    proxy.wait().await
}
