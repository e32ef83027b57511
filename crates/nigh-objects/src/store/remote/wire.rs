//! Signed requests to an S3 endpoint: how many at once, how long, how often again.
//!
//! Keys go onto the wire as they are, percent-encoded once: `a//b`, `/a`, `a/../b` and `a/` are four keys, and no
//! step on the way (as a URL library would) may fold them. A request that was not sent, or that the store asks to
//! repeat, is repeated a few times. One that was sent and got no answer is repeated only if it changes no object: a
//! write may still be carried out, and each further one could be, over a newer write that was acknowledged
//! meanwhile. A body that breaks off is not resumed: the rest could be another version's.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_LENGTH, HeaderMap, HeaderName, HeaderValue};
use http::{Method, Request, StatusCode, Uri};
use http_body::{Body, Frame, SizeHint};
use http_body_util::{BodyExt, Limited};
use hyper_rustls::HttpsConnector;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use reqsign_aws_v4::{Credential, RequestSigner, StaticCredentialProvider};
use reqsign_core::Signer;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::RemoteConfig;
use super::xml::parse_error;
use crate::{ByteStream, ObjectError};

/// Attempts at one request.
const ATTEMPTS: u32 = 4;
/// The wait before the second attempt; doubled before each further one.
const BACKOFF: Duration = Duration::from_millis(100);
/// The slowest transfer that is waited for: a request may take the time-out plus its bytes at this rate.
const BYTES_PER_SECOND_MIN: u64 = 1024 * 1024;
/// The longest answer that is read into memory: a page of 1000 keys of 1024 bytes, encoded, fits.
const ANSWER_MAX: usize = 8 << 20;
/// How long an unused connection is kept; servers close theirs after a minute or so.
const IDLE: Duration = Duration::from_secs(20);

/// What may stand as it is in a path (RFC 3986, unreserved, and the slash).
const PATH: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~').remove(b'/');
/// What may stand as it is in a query's value.
const QUERY: &AsciiSet = &PATH.add(b'/');

/// A key as a part of a path.
pub(super) fn encode_path(text: &str) -> String {
    utf8_percent_encode(text, PATH).to_string()
}

/// A text as a query's value.
pub(super) fn encode_query(text: &str) -> String {
    utf8_percent_encode(text, QUERY).to_string()
}

/// A request, before it is signed.
#[derive(Clone, Debug)]
pub(super) struct Call {
    /// What it does, for messages.
    pub(super) operation: &'static str,
    pub(super) method: Method,
    /// Path and query, encoded; begins with a slash.
    pub(super) target: String,
    pub(super) headers: Vec<(HeaderName, HeaderValue)>,
    pub(super) body: Vec<Bytes>,
    /// True if it may be carried out twice, or late: it changes no object.
    repeatable: bool,
}

impl Call {
    pub(super) fn new(operation: &'static str, method: Method, target: String) -> Self {
        let repeatable = method == Method::GET || method == Method::HEAD;
        Self { operation, method, target, headers: Vec::new(), body: Vec::new(), repeatable }
    }

    /// Says of a request that writes something: it is no object.
    pub(super) fn repeatable(mut self) -> Self {
        self.repeatable = true;
        self
    }

    pub(super) fn header(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.headers.push((name, value));
        self
    }

    pub(super) fn body(mut self, body: Vec<Bytes>) -> Self {
        self.body = body;
        self
    }
}

/// A successful answer. It counts against the limit of requests until its body is read or dropped.
pub(super) struct Answer {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    body: hyper::body::Incoming,
    operation: &'static str,
    timeout: Duration,
    permit: OwnedSemaphorePermit,
}

/// Why there is none.
#[derive(Debug)]
pub(super) enum WireError {
    /// The store said no.
    Refused { status: StatusCode, code: String, message: String },
    /// It was not sent.
    NotSent(String),
    /// Nothing came, or nothing that could be read. It may have been carried out, or yet be.
    Failed(String),
}

impl WireError {
    /// True if it did not happen, and may when asked again.
    fn is_for_now(&self) -> bool {
        match self {
            Self::Refused { status, code, .. } => {
                matches!(*status, StatusCode::SERVICE_UNAVAILABLE | StatusCode::TOO_MANY_REQUESTS)
                    || matches!(code.as_str(), "RequestTimeout" | "OperationAborted" | "SlowDown")
            }
            Self::NotSent(_) => true,
            Self::Failed(_) => false,
        }
    }

    /// True if it may have happened, and nobody knows: no answer, or a proxy's or server's breakdown.
    fn is_in_doubt(&self) -> bool {
        match self {
            Self::Refused { status, .. } => {
                status.is_server_error() && *status != StatusCode::NOT_IMPLEMENTED && !self.is_for_now()
            }
            Self::NotSent(_) => false,
            Self::Failed(_) => true,
        }
    }

    /// The store's error for what has no closer one.
    pub(super) fn into_object_error(self, operation: &'static str) -> ObjectError {
        match self {
            Self::Refused { status, .. } if matches!(status.as_u16(), 429 | 503) => {
                ObjectError::SlowDown("the store behind asks for fewer requests")
            }
            Self::Refused { status, code, message } => {
                let hint = match status {
                    StatusCode::FORBIDDEN => "; check the store's access key, its rights, and this machine's clock",
                    StatusCode::MOVED_PERMANENTLY | StatusCode::BAD_REQUEST => {
                        "; check the store's endpoint and region"
                    }
                    _ => "",
                };
                ObjectError::Store { store: "s3", operation, reason: format!("{status} {code} {message}{hint}") }
            }
            Self::NotSent(reason) | Self::Failed(reason) => ObjectError::Store { store: "s3", operation, reason },
        }
    }
}

/// The client of one endpoint.
pub(super) struct Wire {
    client: Client<HttpsConnector<HttpConnector>, Pieces>,
    signer: Signer<Credential>,
    endpoint: String,
    timeout: Duration,
    requests: Arc<Semaphore>,
}

impl Wire {
    /// A client for the endpoint of `config`.
    pub(super) fn new(config: &RemoteConfig) -> Result<Self, String> {
        let endpoint = config.endpoint.trim_end_matches('/').to_owned();
        let uri: Uri = endpoint.parse().map_err(|error| format!("the endpoint {endpoint:?} is no URL: {error}"))?;
        if !matches!(uri.scheme_str(), Some("http" | "https")) || uri.path().len() > 1 {
            return Err(format!("the endpoint {endpoint:?} must be http://host:port or https://host, without a path"));
        }
        let mut tcp = HttpConnector::new();
        tcp.enforce_http(false);
        tcp.set_nodelay(true);
        tcp.set_connect_timeout(Some(config.timeout));
        let connector = hyper_rustls::HttpsConnectorBuilder::new()
            .with_provider_and_native_roots(rustls::crypto::aws_lc_rs::default_provider())
            .map_err(|error| format!("TLS cannot be set up: {error}"))?
            .https_or_http()
            .enable_http1()
            .wrap_connector(tcp);
        let client = Client::builder(TokioExecutor::new())
            .pool_timer(hyper_util::rt::TokioTimer::new())
            .pool_idle_timeout(IDLE)
            .pool_max_idle_per_host(config.concurrency)
            .build(connector);
        let signer = Signer::new(
            reqsign_core::Context::new(),
            StaticCredentialProvider::new(config.access_key.as_str(), config.secret_key.reveal()),
            RequestSigner::new("s3", &config.region),
        );
        let requests = Arc::new(Semaphore::new(config.concurrency.max(1)));
        Ok(Self { client, signer, endpoint, timeout: config.timeout, requests })
    }

    /// Sends `call`, a few times if need be and nothing can come of it, and returns its successful answer.
    pub(super) async fn send(&self, call: &Call) -> Result<Answer, WireError> {
        let mut backoff = BACKOFF;
        for attempt in 1.. {
            match self.send_once(call).await {
                Err(error) if attempt < ATTEMPTS && (error.is_for_now() || call.repeatable && error.is_in_doubt()) => {
                    tracing::debug!(operation = call.operation, attempt, ?error, "the store is asked again");
                    tokio::time::sleep(backoff).await;
                    backoff *= 2;
                }
                done => return done,
            }
        }
        Err(WireError::Failed("no attempt was made".to_owned()))
    }

    async fn send_once(&self, call: &Call) -> Result<Answer, WireError> {
        let not_sent =
            |what: &str, error: &dyn std::error::Error| WireError::NotSent(format!("{what}: {}", chain(error)));
        let permit = Arc::clone(&self.requests)
            .acquire_owned()
            .await
            .map_err(|error| not_sent("the limit of requests", &error))?;
        let request = Request::builder()
            .method(call.method.clone())
            .uri(format!("{}{}", self.endpoint, call.target))
            .body(())
            .map_err(|error| not_sent("the request", &error))?;
        let (mut head, ()) = request.into_parts();
        head.headers.extend(call.headers.iter().cloned());
        self.signer.sign(&mut head, None).await.map_err(|error| not_sent("signing", &error))?;
        let body = Pieces::new(call.body.clone());
        let length = body.length;
        if matches!(call.method, Method::PUT | Method::POST) {
            // HTTP allows to leave a length of 0 out, and S3 refuses a write without one.
            head.headers.insert(CONTENT_LENGTH, HeaderValue::from(length));
        }
        let patience = self.timeout + Duration::from_secs(length / BYTES_PER_SECOND_MIN);
        let answer = tokio::time::timeout(patience, self.client.request(Request::from_parts(head, body)))
            .await
            .map_err(|_| WireError::Failed(format!("no answer within {} s", patience.as_secs())))?
            .map_err(|error| match error.is_connect() {
                true => not_sent("the connection", &error),
                false => WireError::Failed(format!("the connection: {}", chain(&error))),
            })?;
        let (head, body) = answer.into_parts();
        let answer = Answer {
            status: head.status,
            headers: head.headers,
            body,
            operation: call.operation,
            timeout: self.timeout,
            permit,
        };
        if answer.status.is_success() {
            return Ok(answer);
        }
        let status = answer.status;
        let text = answer.read().await.unwrap_or_default();
        let (code, message) = parse_error(&text).unwrap_or_default();
        Err(WireError::Refused { status, code, message })
    }
}

/// An error with its causes.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text
}

impl Answer {
    /// The whole body.
    pub(super) async fn read(self) -> Result<Bytes, WireError> {
        let body = Limited::new(self.body, ANSWER_MAX).collect();
        match tokio::time::timeout(self.timeout + Duration::from_secs((ANSWER_MAX as u64) / BYTES_PER_SECOND_MIN), body)
            .await
        {
            Ok(Ok(body)) => Ok(body.to_bytes()),
            Ok(Err(error)) => Err(WireError::Failed(format!("the answer broke off: {error}"))),
            Err(_) => Err(WireError::Failed("the answer stalled".to_owned())),
        }
    }

    /// The body as it comes; `length` bytes, or an error.
    pub(super) fn into_stream(self, length: u64) -> ByteStream {
        let broken = |operation, reason: String| ObjectError::Store { store: "s3", operation, reason };
        Box::pin(futures::stream::try_unfold((self, length), move |(mut answer, rest)| async move {
            let operation = answer.operation;
            loop {
                let frame = tokio::time::timeout(answer.timeout, answer.body.frame())
                    .await
                    .map_err(|_| broken(operation, format!("nothing came for {} s", answer.timeout.as_secs())))?;
                match frame {
                    Some(Ok(frame)) => {
                        let Ok(bytes) = frame.into_data() else { continue };
                        let rest = rest
                            .checked_sub(bytes.len() as u64)
                            .ok_or_else(|| broken(operation, "more bytes came than were announced".to_owned()))?;
                        return Ok(Some((bytes, (answer, rest))));
                    }
                    Some(Err(error)) => {
                        return Err(broken(operation, format!("the body broke off: {}", chain(&error))));
                    }
                    None if rest == 0 => {
                        drop(answer.permit);
                        return Ok(None);
                    }
                    None => return Err(broken(operation, format!("the body ended {rest} bytes early"))),
                }
            }
        }))
    }
}

/// A request's body: pieces that are in memory or mapped, sent without a copy.
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

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use nigh_terms::{AccessKeyId, Namespace, SecretKey};
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    const NO_ANSWER: &str = "";
    const BUSY: &str = "HTTP/1.1 503 Busy\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
    const BROKEN: &str = "HTTP/1.1 500 Broken\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
    const DONE: &str = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";

    fn wire(endpoint: &str) -> Wire {
        let (namespace, id, secret) = (Namespace::new("n").unwrap(), AccessKeyId::new("key"), SecretKey::new("secret"));
        Wire::new(&RemoteConfig::of_one_namespace(namespace, endpoint, "us-east-1", id, secret)).unwrap()
    }

    /// A server that takes whole requests with a body of one byte or none, and gives `answers` in turn, then `DONE`.
    async fn serve(answers: &'static [&'static str]) -> (Wire, Arc<AtomicUsize>) {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let wire = wire(&format!("http://{}", listener.local_addr().unwrap()));
        let requests = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&requests);
        tokio::spawn(async move {
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                let mut request = Vec::new();
                let is_whole = |request: &[u8]| {
                    let end = request.windows(4).position(|end| end == b"\r\n\r\n");
                    end.is_some_and(|end| request.starts_with(b"GET") || request.len() > end + 4)
                };
                while !is_whole(&request) {
                    assert_ne!(stream.read_buf(&mut request).await.unwrap(), 0);
                }
                let answer = answers.get(counted.fetch_add(1, Ordering::SeqCst)).unwrap_or(&DONE);
                stream.write_all(answer.as_bytes()).await.unwrap();
            }
        });
        (wire, requests)
    }

    fn write(method: Method) -> Call {
        Call::new("write", method, "/bucket/key".to_owned()).body(vec![Bytes::from_static(b"x")])
    }

    #[tokio::test]
    async fn a_write_that_was_sent_and_got_no_answer_is_not_sent_again() {
        let cases: [&'static [&'static str]; 3] = [&[NO_ANSWER], &[BROKEN], &[BUSY, NO_ANSWER]];
        for answers in cases {
            for method in [Method::PUT, Method::POST, Method::DELETE] {
                let (wire, requests) = serve(answers).await;
                assert!(wire.send(&write(method)).await.err().unwrap().is_in_doubt());
                assert_eq!(requests.load(Ordering::SeqCst), answers.len());
            }
        }
    }

    #[tokio::test]
    async fn what_changes_no_object_is_sent_again_and_so_is_a_write_that_the_store_was_too_busy_for() {
        let (wire, requests) = serve(&[NO_ANSWER, BROKEN, BUSY]).await;
        wire.send(&Call::new("read", Method::GET, "/bucket/key".to_owned())).await.unwrap();
        assert_eq!(requests.load(Ordering::SeqCst), 4);
        let (wire, requests) = serve(&[NO_ANSWER]).await;
        wire.send(&write(Method::PUT).repeatable()).await.unwrap();
        assert_eq!(requests.load(Ordering::SeqCst), 2);
        let (wire, requests) = serve(&[BUSY, BUSY]).await;
        wire.send(&write(Method::PUT)).await.unwrap();
        assert_eq!(requests.load(Ordering::SeqCst), 3);
    }

    #[tokio::test]
    async fn a_write_that_could_not_be_sent_is_in_no_doubt() {
        let error = wire("http://127.0.0.1:1").send(&write(Method::PUT)).await.err().unwrap();
        assert!(matches!(&error, WireError::NotSent(_)), "{error:?}");
    }
}
