//! Sends requests to a store over HTTP, with limits of number and time.
//!
//! Keys are sent unchanged, percent-encoded once: `a//b`, `/a`, `a/../b` and `a/` are four keys, and no step may fold them,
//! as URL libraries do. `retry` decides which requests are sent again. An `Access` adds the signature or the token.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use http::header::{HeaderName, HeaderValue, RETRY_AFTER};
use http::request::Parts;
use http::{Method, StatusCode};
use nigh_data::{ListedObject, ObjectError};
use nigh_terms::BucketName;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use tokio::sync::Semaphore;

use super::ListQuery;
use super::answer::StoreResponse;
use super::connections::{Connections, head_of};
use super::retry::{Failure, RetryDecision, retry_after};
use super::wire_error::{WireError, not_sent};

/// Characters that are not encoded in a path: the unreserved characters of RFC 3986, and the slash.
const PATH: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~').remove(b'/');
/// Characters that are not encoded in a query's value.
const QUERY: &AsciiSet = &PATH.add(b'/');

/// Encodes a key as a part of a path.
pub(super) fn encode_path(text: &str) -> String {
    utf8_percent_encode(text, PATH).to_string()
}

/// Encodes a text as a query's value.
pub(super) fn encode_query(text: &str) -> String {
    utf8_percent_encode(text, QUERY).to_string()
}

/// A request, before it is authorised.
#[derive(Clone, Debug)]
pub(super) struct Call {
    /// The name of the operation, for messages.
    pub(super) operation: &'static str,
    pub(super) method: Method,
    /// The path below the store's URL and the query, both encoded. Empty, or begins with a slash or `?`.
    pub(super) target: String,
    pub(super) headers: Vec<(HeaderName, HeaderValue)>,
    pub(super) body: Vec<Bytes>,
    /// True if the request changes no object, so that it may be carried out twice or late.
    repeatable: bool,
    /// The time that the store needs for its answer, in addition to the usual time.
    pub(super) work: Duration,
}

impl Call {
    pub(super) fn new(operation: &'static str, method: Method, target: String) -> Self {
        let repeatable = method == Method::GET || method == Method::HEAD;
        Self { operation, method, target, headers: Vec::new(), body: Vec::new(), repeatable, work: Duration::ZERO }
    }

    /// Marks a request as repeatable: it writes, but changes no object.
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

    /// Limits a read to `range`, which must not be empty.
    pub(super) fn range(self, range: &Range<u64>) -> Result<Self, WireError> {
        let text = HeaderValue::try_from(format!("bytes={}-{}", range.start, range.end.saturating_sub(1)));
        let text = text.map_err(|error| WireError::NotSent(format!("the range: {error}")))?;
        Ok(self.header(http::header::RANGE, text))
    }
}

/// Numbers the authorisations of a store. A renewed authorisation has another number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Pass(pub(super) u64);

/// Authorises the requests to a store, and explains its refusals.
#[async_trait]
pub(super) trait Access: Send + Sync {
    /// The store's kind, for messages.
    fn store(&self) -> &'static str;
    /// Adds the URL of `target` and the authorisation to `head`.
    async fn authorise(&self, head: &mut Parts, target: &str) -> Result<Pass, WireError>;
    /// Renews an authorisation that the store rejected. Returns false if there is no other.
    async fn is_renewed(&self, pass: Pass) -> bool;
    /// The code and the message in the body of a refusal.
    fn explain(&self, body: &[u8]) -> (String, String);
    /// Returns true if an answer of 503 means that nothing was written, not even a part.
    fn busy_wrote_nothing(&self) -> bool;
}

/// The client of one store.
pub(super) struct Wire<A> {
    connections: Connections,
    pub(super) access: A,
    requests: Arc<Semaphore>,
}

impl<A: Access> Wire<A> {
    /// Creates a client that authorises its requests with `access`.
    pub(super) fn new(connections: Connections, access: A) -> Self {
        let requests = Arc::new(Semaphore::new(connections.limits().concurrency.max(1)));
        Self { connections, access, requests }
    }

    /// What is wrong with the store, by the outcomes of its newest requests.
    pub(super) fn trouble(&self) -> Option<String> {
        self.connections.trouble()
    }

    /// Sends `call`, repeatedly if `retry` allows it, and returns its successful answer.
    pub(super) async fn send(&self, call: &Call) -> Result<StoreResponse, WireError> {
        let policy = self.connections.limits().retry;
        let (mut attempt, mut renewed, mut doubted) = (1, false, false);
        loop {
            let (error, pass) = match self.send_once(call).await {
                Ok(answer) => return Ok(answer),
                Err(failed) => failed,
            };
            // A store does nothing for a request with a rejected authorisation, so the request is sent again with a new
            // one; but only once, because a new one that is rejected has not expired.
            if error.status() == Some(StatusCode::UNAUTHORIZED)
                && let Some(pass) = pass
                && !renewed
                && self.access.is_renewed(pass).await
            {
                renewed = true;
                continue;
            }
            let failure = error.failure();
            doubted |= failure.is_some_and(Failure::is_in_doubt);
            let next = failure.map(|why| policy.next(attempt, why, call.repeatable, rand::random()));
            let Some(RetryDecision::Wait(wait)) = next else {
                return Err(match error {
                    // An earlier attempt may have reached the store.
                    WireError::NotSent(reason) if doubted => WireError::Failed(reason),
                    error => error,
                });
            };
            tracing::debug!(operation = call.operation, attempt, ?error, ?wait, "the store is asked again");
            tokio::time::sleep(wait).await;
            attempt += 1;
        }
    }

    async fn send_once(&self, call: &Call) -> Result<StoreResponse, (WireError, Option<Pass>)> {
        let patience = self.connections.limits().answer;
        let permit = tokio::time::timeout(patience, Arc::clone(&self.requests).acquire_owned())
            .await
            .map_err(|_| (WireError::Queued, None))?
            .map_err(|error| (not_sent("the limit of requests", &error), None))?;
        let mut head = head_of(call.method.clone(), "/").map_err(|error| (error, None))?;
        head.headers.extend(call.headers.iter().cloned());
        let pass = self.access.authorise(&mut head, &call.target).await.map_err(|error| (error, None))?;
        let asked = (self.access.store(), call.operation);
        let answer = self.connections.ask((head, call.body.clone()), asked, call.work).await;
        let mut answer = answer.map_err(|error| (error, Some(pass)))?;
        answer.hold(permit);
        if answer.status.is_success() {
            return Ok(answer);
        }
        let status = answer.status;
        let retry_after = retry_after(answer.headers.get(RETRY_AFTER));
        let text = answer.read().await.unwrap_or_default();
        let (code, message) = self.access.explain(&text);
        Err((WireError::Refused { status, code, message, retry_after }, Some(pass)))
    }

    /// Sends `call` as `send` does, but fails with the general error of the store.
    pub(super) async fn send_or_fail(&self, call: &Call) -> Result<StoreResponse, ObjectError> {
        self.send(call).await.map_err(|error| self.error(error, call))
    }

    /// Sends `call`, which concerns `bucket`: an answer of 404 says that the bucket is missing, 409
    /// to a deletion that it has objects.
    pub(super) async fn send_for_bucket(&self, call: &Call, bucket: &BucketName) -> Result<StoreResponse, ObjectError> {
        self.send(call).await.map_err(|error| match error.status() {
            Some(StatusCode::NOT_FOUND) => ObjectError::NoSuchBucket(bucket.clone()),
            Some(StatusCode::CONFLICT) if call.method == Method::DELETE => ObjectError::BucketNotEmpty(bucket.clone()),
            _ => self.error(error, call),
        })
    }

    /// Lists objects page by page. `target` asks for the objects behind a key, up to a number; `parse` reads them and
    /// says whether the page was the last.
    pub(super) async fn list(
        &self,
        query: ListQuery<'_>,
        page_max: usize,
        target: impl Fn(Option<&str>, usize) -> String + Send,
        parse: impl Fn(&[u8], usize) -> Result<(Vec<ListedObject>, bool), String> + Send,
    ) -> Result<Vec<ListedObject>, ObjectError> {
        let mut listed: Vec<ListedObject> = Vec::new();
        while listed.len() < query.limit {
            let page = page_max.min(query.limit - listed.len());
            // The last key marks the place as well as a continuation token, and does not expire.
            let after = listed.last().map(|last| last.key.as_str()).or(query.after);
            let call = Call::new("list", Method::GET, target(after, page));
            let text = self.send_for_bucket(&call, query.bucket).await?.text().await?;
            let store = self.access.store();
            let failed = |reason| ObjectError::Store { store, operation: call.operation, reason };
            let (objects, is_last) = parse(&text, page).map_err(failed)?;
            listed.extend(objects);
            if is_last {
                break;
            }
        }
        Ok(listed)
    }

    /// The general error of the store. A busy store may have written a part of an object, unless its `Access` says
    /// otherwise.
    pub(super) fn error(&self, error: WireError, call: &Call) -> ObjectError {
        let store = self.access.store();
        match error {
            WireError::Refused { status: StatusCode::SERVICE_UNAVAILABLE, message, .. }
                if !call.repeatable && !self.access.busy_wrote_nothing() =>
            {
                let reason = format!("503 {message}; a part of the object may have been written");
                ObjectError::StoreSilent { store, operation: call.operation, reason }
            }
            error => error.into_object_error(store, call.operation),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;
    use crate::NetworkLimits;

    const NO_ANSWER: &str = "";
    const BUSY: &str = "HTTP/1.1 503 Busy\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
    const BROKEN: &str = "HTTP/1.1 500 Broken\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
    const UNKNOWN: &str = "HTTP/1.1 401 Who\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
    const DONE: &str = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";

    /// Sends every request to one endpoint, without authorisation.
    struct OpenAccess {
        endpoint: String,
        renewals: AtomicUsize,
    }

    #[async_trait]
    impl Access for OpenAccess {
        fn store(&self) -> &'static str {
            "open"
        }

        async fn authorise(&self, head: &mut Parts, target: &str) -> Result<Pass, WireError> {
            head.uri = head_of(Method::GET, &format!("{}{target}", self.endpoint))?.uri;
            Ok(Pass(0))
        }

        async fn is_renewed(&self, _: Pass) -> bool {
            self.renewals.fetch_add(1, Ordering::SeqCst);
            true
        }

        fn explain(&self, _: &[u8]) -> (String, String) {
            Default::default()
        }

        fn busy_wrote_nothing(&self) -> bool {
            true
        }
    }

    fn wire(endpoint: String, limits: NetworkLimits) -> Wire<OpenAccess> {
        Wire::new(Connections::new(limits).unwrap(), OpenAccess { endpoint, renewals: AtomicUsize::new(0) })
    }

    /// A server that accepts requests with a body of at most one byte, and gives `answers` in turn, then `DONE`.
    async fn serve(answers: &'static [&'static str]) -> (Wire<OpenAccess>, Arc<AtomicUsize>) {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let wire = wire(format!("http://{}", listener.local_addr().unwrap()), NetworkLimits::default());
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

    fn read() -> Call {
        Call::new("read", Method::GET, "/bucket/key".to_owned())
    }

    #[tokio::test]
    async fn a_write_that_was_sent_and_got_no_answer_is_not_sent_again() {
        let cases: [&'static [&'static str]; 3] = [&[NO_ANSWER], &[BROKEN], &[BUSY, NO_ANSWER]];
        for answers in cases {
            for method in [Method::PUT, Method::POST, Method::DELETE] {
                let (wire, requests) = serve(answers).await;
                let error = wire.send(&write(method)).await.err().unwrap();
                assert!(error.failure().unwrap().is_in_doubt());
                assert!(error.into_object_error("open", "write").is_in_doubt());
                assert_eq!(requests.load(Ordering::SeqCst), answers.len());
            }
        }
    }

    #[tokio::test]
    async fn what_changes_no_object_is_sent_again_and_so_is_a_write_that_the_store_was_too_busy_for() {
        let (wire, requests) = serve(&[NO_ANSWER, BROKEN, BUSY]).await;
        wire.send(&read()).await.unwrap();
        assert_eq!(requests.load(Ordering::SeqCst), 4);
        let (wire, requests) = serve(&[NO_ANSWER]).await;
        wire.send(&write(Method::PUT).repeatable()).await.unwrap();
        assert_eq!(requests.load(Ordering::SeqCst), 2);
        let (wire, requests) = serve(&[BUSY, BUSY]).await;
        wire.send(&write(Method::PUT)).await.unwrap();
        assert_eq!(requests.load(Ordering::SeqCst), 3);
    }

    #[tokio::test]
    async fn a_pass_that_is_refused_is_renewed_once_and_the_request_sent_again() {
        let (wire, requests) = serve(&[UNKNOWN]).await;
        wire.send(&write(Method::PUT)).await.unwrap();
        assert_eq!(requests.load(Ordering::SeqCst), 2);
        let (wire, requests) = serve(&[UNKNOWN, UNKNOWN]).await;
        assert_eq!(wire.send(&read()).await.err().unwrap().status(), Some(StatusCode::UNAUTHORIZED));
        assert_eq!((requests.load(Ordering::SeqCst), wire.access.renewals.load(Ordering::SeqCst)), (2, 1));
    }

    #[tokio::test]
    async fn a_write_that_could_not_be_sent_is_in_no_doubt() {
        let nowhere = wire("http://127.0.0.1:1".to_owned(), NetworkLimits::default());
        let error = nowhere.send_or_fail(&write(Method::PUT)).await.err().unwrap();
        assert!(matches!(&error, ObjectError::StoreUnreached { .. }) && !error.is_in_doubt(), "{error:?}");
    }

    #[tokio::test]
    async fn a_request_waits_for_those_before_it_no_longer_than_for_an_answer() {
        let limits = NetworkLimits { concurrency: 1, answer: Duration::from_millis(50), ..NetworkLimits::default() };
        let wire = wire("http://127.0.0.1:1".to_owned(), limits);
        let _all = Arc::clone(&wire.requests).acquire_owned().await.unwrap();
        let error = wire.send_or_fail(&read()).await.err().unwrap();
        assert!(matches!(error, ObjectError::SlowDown(_)), "{error:?}");
    }
}
