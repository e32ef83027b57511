//! Events of an S3 service that sends none: a reverse proxy before it tells the node of each write and removal, and waits
//! for the node's answer before the writer gets the service's, as MinIO does with `sync_events`.
//!
//! It tells of every removal that the service has answered with success, also of one that found nothing.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{AUTHORIZATION, ETAG};
use http::{HeaderMap, Method, Request, Response, Uri};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioIo};
use nigh_terms::SecretKey;
use serde_json::json;
use tokio::net::TcpListener;
use tokio::task::{JoinHandle, JoinSet};

use crate::instrument::fault_proxy::drop_hop_by_hop;

/// How long the node's answer is waited for; MinIO waits for as long.
const TOLD_WITHIN: Duration = Duration::from_secs(10);

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// A running relay; it ends when dropped.
#[derive(Debug)]
pub(super) struct EventRelay {
    address: SocketAddr,
    serving: JoinHandle<()>,
}

/// What every connection of the relay needs.
struct RelayState {
    upstream: String,
    events: String,
    bearer: String,
    client: Client<HttpConnector, Incoming>,
    teller: Client<HttpConnector, Full<Bytes>>,
}

impl EventRelay {
    /// A relay on a free port before the service at `upstream`, which tells the door at `events`.
    pub(super) async fn start(upstream: &str, events: String, token: &SecretKey) -> std::io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let mut tcp = HttpConnector::new();
        tcp.set_nodelay(true);
        let state = Arc::new(RelayState {
            upstream: upstream.trim_end_matches('/').to_owned(),
            events,
            bearer: format!("Bearer {}", token.reveal()),
            // The host that requests name is passed on: it is signed.
            client: Client::builder(TokioExecutor::new()).set_host(false).build(tcp.clone()),
            teller: Client::builder(TokioExecutor::new()).build(tcp),
        });
        let serving = tokio::spawn(serve(listener, state));
        Ok(Self { address, serving })
    }

    /// Where it listens: `http://127.0.0.1:<port>`.
    pub(super) fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }
}

impl Drop for EventRelay {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

async fn serve(listener: TcpListener, state: Arc<RelayState>) {
    // The connections end with the relay.
    let mut connections = JoinSet::new();
    loop {
        let accepted = listener.accept().await;
        while connections.try_join_next().is_some() {}
        let Ok((stream, _)) = accepted else { continue };
        // Without it answers wait for acknowledgements; a socket that refuses it is only slower.
        let _ = stream.set_nodelay(true);
        let state = Arc::clone(&state);
        connections.spawn(async move {
            let service = service_fn(move |request| pass(Arc::clone(&state), request));
            // An error is of a client or a service that has gone.
            let _ = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
        });
    }
}

async fn pass(state: Arc<RelayState>, request: Request<Incoming>) -> Result<Response<Incoming>, Failure> {
    let (mut head, body) = request.into_parts();
    let target = head.uri.path_and_query().map_or("/", |target| target.as_str()).to_owned();
    let event = event_of(&head.method, &head.headers, &target);
    head.uri = format!("{}{target}", state.upstream).parse::<Uri>()?;
    drop_hop_by_hop(&mut head.headers);
    let mut answer = state.client.request(Request::from_parts(head, body)).await?;
    drop_hop_by_hop(answer.headers_mut());
    if let Some(name) = event.filter(|_| answer.status().is_success()) {
        let etag = answer.headers().get(ETAG).and_then(|etag| etag.to_str().ok());
        // MinIO logs an event that is not taken, and answers all the same.
        let _ = tokio::time::timeout(TOLD_WITHIN, tell(&state, record(name, &target, etag))).await;
    }
    Ok(answer)
}

/// The event of a request that succeeds; none if it changes no object.
fn event_of(method: &Method, headers: &HeaderMap, target: &str) -> Option<&'static str> {
    let (_, key) = target.strip_prefix('/')?.split_once('/')?;
    if key.is_empty() || key.contains('?') {
        return None;
    }
    match *method {
        Method::PUT if headers.contains_key("x-amz-copy-source") => Some("s3:ObjectCreated:Copy"),
        Method::PUT => Some("s3:ObjectCreated:Put"),
        Method::DELETE => Some("s3:ObjectRemoved:Delete"),
        _ => None,
    }
}

/// The message of an event; keys are encoded in a path as in events, but for spaces, which ours do not have.
fn record(name: &str, target: &str, etag: Option<&str>) -> String {
    let (bucket, key) = target.trim_start_matches('/').split_once('/').unwrap_or_default();
    let etag = etag.map(|etag| etag.trim_matches('"'));
    let object = json!({ "key": key, "eTag": etag });
    json!({ "Records": [{ "eventName": name, "s3": { "bucket": { "name": bucket }, "object": object } }] }).to_string()
}

async fn tell(state: &RelayState, message: String) -> Result<(), Failure> {
    let request = Request::post(&state.events).header(AUTHORIZATION, &state.bearer).body(Full::from(message))?;
    state.teller.request(request).await?.into_body().collect().await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_and_removals_of_objects_have_an_event_that_names_them() {
        let (mut copies, none) = (HeaderMap::new(), HeaderMap::new());
        copies.insert("x-amz-copy-source", http::HeaderValue::from_static("/b/k"));
        for (method, headers, target, event) in [
            (Method::PUT, &none, "/b/k", Some("s3:ObjectCreated:Put")),
            (Method::PUT, &copies, "/b/k", Some("s3:ObjectCreated:Copy")),
            (Method::DELETE, &none, "/b/k/l", Some("s3:ObjectRemoved:Delete")),
            (Method::GET, &none, "/b/k", None),
            (Method::PUT, &none, "/b", None),
            (Method::PUT, &none, "/b/", None),
            (Method::DELETE, &none, "/b/k?uploadId=1", None),
        ] {
            assert_eq!(event_of(&method, headers, target), event, "{method} {target}");
        }
        let message: serde_json::Value = serde_json::from_str(&record("n", "/b/k/l", Some("\"e\""))).unwrap();
        let s3 = &message["Records"][0]["s3"];
        assert_eq!(
            (&s3["bucket"]["name"], &s3["object"]["key"], &s3["object"]["eTag"]),
            (&json!("b"), &json!("k/l"), &json!("e"))
        );
    }
}
