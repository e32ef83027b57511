//! The task that sends spans, and the connection to the collector.

use std::error::Error as _;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderValue, RETRY_AFTER};
use http::{HeaderMap, Method, Request, Uri};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use nigh_trace::FinishedSpan;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

use super::otlp::{Resource, request};
use super::verdict::{Verdict, back_off, judge, rejected};
use super::{Collector, count};

/// The most spans of one request: some hundred kilobytes.
const BATCH_MAX: usize = 512;
/// How long the first span of a batch waits for others.
const GATHER: Duration = Duration::from_secs(1);
/// How long a connection and an answer may take.
const CONNECT_WITHIN: Duration = Duration::from_secs(5);
const ANSWER_WITHIN: Duration = Duration::from_secs(10);
/// How often a batch is sent at most.
const TRIES_MAX: u32 = 5;
/// The most of an answer that is read.
const ANSWER_BYTES_MAX: usize = 64 << 10;
/// How long an unused connection stays open.
const UNUSED: Duration = Duration::from_secs(20);

/// A collector, with the connections to it.
pub(super) struct Target {
    uri: Uri,
    headers: HeaderMap,
    resource: Resource,
    client: Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
}

/// Why a batch was not taken.
enum SendFailure {
    /// It was not sent: it may be sent again.
    NotReached(String),
    /// It may have arrived.
    NoAnswer(String),
}

impl Target {
    /// The target for spans of `node`. No connection is opened yet.
    pub(super) fn new(collector: &Collector, node: &str) -> Result<Self, String> {
        let mut tcp = HttpConnector::new();
        tcp.enforce_http(false);
        tcp.set_nodelay(true);
        tcp.set_connect_timeout(Some(CONNECT_WITHIN));
        let connector = HttpsConnectorBuilder::new()
            .with_provider_and_native_roots(rustls::crypto::aws_lc_rs::default_provider())
            .map_err(|error| format!("traces: TLS cannot be set up: {error}"))?
            .https_or_http()
            .enable_http1()
            .wrap_connector(tcp);
        let client = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(UNUSED)
            .pool_max_idle_per_host(1)
            .build(connector);
        let mut headers = collector.headers.clone();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        let resource = Resource::new(&collector.service_name, node);
        Ok(Self { uri: collector.uri.clone(), headers, resource, client })
    }

    /// Sends a batch once; the verdict, and how many of its spans the collector has rejected.
    async fn post(&self, body: Bytes) -> Result<(Verdict, u64), SendFailure> {
        let mut post = Request::new(Full::new(body));
        *post.method_mut() = Method::POST;
        *post.uri_mut() = self.uri.clone();
        *post.headers_mut() = self.headers.clone();
        let exchange = async {
            let answer = self.client.request(post).await.map_err(|error| {
                let reason = error.source().map_or_else(|| error.to_string(), |source| format!("{error}: {source}"));
                if error.is_connect() { SendFailure::NotReached(reason) } else { SendFailure::NoAnswer(reason) }
            })?;
            let after = answer.headers().get(RETRY_AFTER).and_then(|value| value.to_str().ok());
            let verdict = judge(answer.status(), after);
            if verdict == Verdict::Refused {
                return Err(SendFailure::NoAnswer(format!("it answered {}", answer.status())));
            }
            // Read to its end, so that the connection is used again.
            let body = Limited::new(answer.into_body(), ANSWER_BYTES_MAX).collect().await;
            Ok((verdict, body.map_or(0, |body| rejected(&body.to_bytes()))))
        };
        let late = |_| SendFailure::NoAnswer(format!("no answer within {} s", ANSWER_WITHIN.as_secs()));
        timeout(ANSWER_WITHIN, exchange).await.map_err(late)?
    }
}

/// Sends the spans of a queue in batches.
pub(super) struct Exporter {
    spans: mpsc::Receiver<FinishedSpan>,
    targets: watch::Receiver<Option<Arc<Target>>>,
    /// Cancelled when no span comes any more.
    ending: CancellationToken,
    /// The last batch was not taken. Said once.
    fails: bool,
}

impl Exporter {
    pub(super) const fn new(
        spans: mpsc::Receiver<FinishedSpan>,
        targets: watch::Receiver<Option<Arc<Target>>>,
        ending: CancellationToken,
    ) -> Self {
        Self { spans, targets, ending, fails: false }
    }

    /// Works until it is told to end; then sends what is queued, each batch once.
    pub(super) async fn run(mut self) {
        let mut batch = Vec::with_capacity(BATCH_MAX);
        while self.gather(&mut batch).await {
            self.send(std::mem::take(&mut batch)).await;
        }
        loop {
            while batch.len() < BATCH_MAX
                && let Ok(span) = self.spans.try_recv()
            {
                batch.push(span);
            }
            if batch.is_empty() {
                return;
            }
            self.send(std::mem::take(&mut batch)).await;
        }
    }

    /// Takes spans until there are enough, or the first of them has waited long enough. False at the end.
    async fn gather(&mut self, batch: &mut Vec<FinishedSpan>) -> bool {
        tokio::select! {
            biased;
            () = self.ending.cancelled() => return false,
            taken = self.spans.recv_many(batch, BATCH_MAX) => if taken == 0 { return false },
        }
        let full_by = Instant::now() + GATHER;
        while batch.len() < BATCH_MAX {
            let room = BATCH_MAX - batch.len();
            tokio::select! {
                biased;
                () = self.ending.cancelled() => return false,
                () = sleep_until(full_by) => return true,
                taken = self.spans.recv_many(batch, room) => if taken == 0 { return false },
            }
        }
        true
    }

    async fn send(&mut self, batch: Vec<FinishedSpan>) {
        let spans = batch.len();
        let target = self.targets.borrow().clone();
        let Some(target) = target else { return count("dropped", spans) };
        let body = Bytes::from(request(&target.resource, &batch));
        drop(batch);
        let mut tries = 0;
        let failure = loop {
            tries += 1;
            let (failure, wait) = match target.post(body.clone()).await {
                Ok((Verdict::Taken, rejected)) => return self.taken(spans, rejected),
                Ok((Verdict::Again(wait), _)) => ("it asks to send again".to_owned(), wait),
                Ok((Verdict::Refused, _)) => break "it refuses them".to_owned(),
                Err(SendFailure::NotReached(why)) => (why, None),
                Err(SendFailure::NoAnswer(why)) => break why,
            };
            if tries == TRIES_MAX {
                break failure;
            }
            let again = Instant::now() + wait.unwrap_or_else(|| back_off(tries));
            // At the end of the node there is no time to wait.
            if self.ending.run_until_cancelled(sleep_until(again)).await.is_none() {
                break failure;
            }
        };
        count("failed", spans);
        if !self.fails {
            tracing::warn!(collector = %target.uri, reason = failure, "the collector does not take traces; spans are dropped");
        }
        self.fails = true;
    }

    fn taken(&mut self, spans: usize, rejected: u64) {
        let rejected = usize::try_from(rejected).unwrap_or(spans).min(spans);
        count("exported", spans - rejected);
        if rejected > 0 {
            count("rejected", rejected);
        }
        if std::mem::take(&mut self.fails) {
            tracing::info!("the collector takes traces again");
        }
    }
}
