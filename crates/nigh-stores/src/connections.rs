//! Connections to a store, and whole requests over them, each with a time limit.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_LENGTH, HeaderValue};
use http::request::Parts;
use http::{Method, Request, Response, StatusCode, Uri};
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use hyper_rustls::HttpsConnector;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;

use super::answer::{BYTES_PER_SECOND_MIN, StoreResponse};
use super::reachability::Reachability;
use super::retry::RetryPolicy;
use super::wire_error::{WireError, chain, not_sent};

/// How long an unused connection stays open; servers close theirs after a minute or so.
const UNUSED: Duration = Duration::from_secs(20);

/// The limits of requests to a store on the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NetworkLimits {
    /// The most requests at a time. Further requests wait for `answer` at most, and then fail.
    pub concurrency: usize,
    /// The longest time for opening a connection.
    pub connect: Duration,
    /// The longest wait for the first byte of an answer, in addition to the time for sending the request.
    pub answer: Duration,
    /// The longest wait for the next bytes of an answer.
    pub idle: Duration,
    /// Which requests are sent again.
    pub retry: RetryPolicy,
}

impl Default for NetworkLimits {
    fn default() -> Self {
        Self {
            concurrency: 64,
            connect: Duration::from_secs(5),
            answer: Duration::from_secs(30),
            idle: Duration::from_secs(30),
            retry: RetryPolicy::default(),
        }
    }
}

/// The connections of a store, for its requests and logins.
#[derive(Clone)]
pub(super) struct Connections {
    client: Client<HttpsConnector<HttpConnector>, Pieces>,
    limits: NetworkLimits,
    reachability: Arc<Reachability>,
}

impl Connections {
    /// Creates the connections of a store. No connection is opened yet.
    pub(super) fn new(limits: NetworkLimits) -> Result<Self, String> {
        let mut tcp = HttpConnector::new();
        tcp.enforce_http(false);
        tcp.set_nodelay(true);
        tcp.set_connect_timeout(Some(limits.connect));
        let connector = hyper_rustls::HttpsConnectorBuilder::new()
            .with_provider_and_native_roots(rustls::crypto::aws_lc_rs::default_provider())
            .map_err(|error| format!("TLS cannot be set up: {error}"))?
            .https_or_http()
            .enable_http1()
            .wrap_connector(tcp);
        let client = Client::builder(TokioExecutor::new())
            .pool_timer(hyper_util::rt::TokioTimer::new())
            .pool_idle_timeout(UNUSED)
            .pool_max_idle_per_host(limits.concurrency)
            .build(connector);
        Ok(Self { client, limits, reachability: Arc::default() })
    }

    pub(super) const fn limits(&self) -> &NetworkLimits {
        &self.limits
    }

    /// What is wrong with the store, by the outcomes of its newest requests.
    pub(super) fn trouble(&self) -> Option<String> {
        self.reachability.trouble()
    }

    /// Sends a whole request once and returns any answer. `asked` is the store and the operation, for messages; `work`
    /// is added to the time limit.
    pub(super) async fn ask(
        &self,
        request: (Parts, Vec<Bytes>),
        asked: (&'static str, &'static str),
        work: Duration,
    ) -> Result<StoreResponse, WireError> {
        let answer = self.send(request, work).await;
        match &answer {
            Ok(answer) if works(answer.status()) => self.reachability.answered(),
            Ok(answer) => self.reachability.failed(answer.status().to_string()),
            Err(WireError::NotSent(why) | WireError::Failed(why)) => self.reachability.failed(why.clone()),
            Err(_) => {}
        }
        answer.map(|answer| StoreResponse::new(answer, asked, self.limits.idle))
    }

    async fn send(
        &self,
        (mut head, body): (Parts, Vec<Bytes>),
        work: Duration,
    ) -> Result<Response<Incoming>, WireError> {
        let body = Pieces::new(body);
        let length = body.length;
        if matches!(head.method, Method::PUT | Method::POST) {
            // HTTP allows leaving out a length of 0, but stores reject writes without a length.
            head.headers.insert(CONTENT_LENGTH, HeaderValue::from(length));
        }
        let patience = self.limits.answer + work + Duration::from_secs(length / BYTES_PER_SECOND_MIN);
        tokio::time::timeout(patience, self.client.request(Request::from_parts(head, body)))
            .await
            .map_err(|_| WireError::Failed(format!("the store gave no answer within {} s", patience.as_secs_f32())))?
            .map_err(|error| match error.is_connect() {
                true => not_sent("the connection", &error),
                false => WireError::Failed(format!("the connection: {}", chain(&error))),
            })
    }
}

/// True if a store that answers with this status works, whether or not it did what it was asked for.
fn works(status: StatusCode) -> bool {
    !status.is_server_error() || status == StatusCode::NOT_IMPLEMENTED
}

/// Checks that an endpoint is `http://host:port` or `https://host`. A path is only allowed if `path` is true. Returns
/// the endpoint without a slash at its end.
pub(super) fn check_endpoint(endpoint: &str, path: bool) -> Result<String, String> {
    let endpoint = endpoint.trim_end_matches('/').to_owned();
    let uri: Uri = endpoint.parse().map_err(|error| format!("the endpoint {endpoint:?} is no URL: {error}"))?;
    if !matches!(uri.scheme_str(), Some("http" | "https")) || uri.query().is_some() {
        return Err(format!("the endpoint {endpoint:?} must be http://host:port or https://host"));
    }
    if !path && uri.path().len() > 1 {
        return Err(format!("the endpoint {endpoint:?} must be http://host:port or https://host, without a path"));
    }
    Ok(endpoint)
}

/// The head of a request to `url`.
pub(super) fn head_of(method: Method, url: &str) -> Result<Parts, WireError> {
    let request = Request::builder().method(method).uri(url).body(()).map_err(|error| not_sent("the request", &error));
    Ok(request?.into_parts().0)
}

/// A request's body: pieces in memory or mapped, sent without a copy.
pub(super) struct Pieces {
    pieces: VecDeque<Bytes>,
    length: u64,
}

impl Pieces {
    fn new(pieces: Vec<Bytes>) -> Self {
        let length = pieces.iter().map(|piece| piece.len() as u64).sum();
        Self { pieces: pieces.into_iter().filter(|piece| !piece.is_empty()).collect(), length }
    }
}

impl Body for Pieces {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let next = self.pieces.pop_front();
        if let Some(piece) = &next {
            self.length -= piece.len() as u64;
        }
        Poll::Ready(next.map(|piece| Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.pieces.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.length)
    }
}
