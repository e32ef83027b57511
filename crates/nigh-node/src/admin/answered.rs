//! What is told of an answered admin request: its metrics, and its event in the audit trail if it may have changed
//! something.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use axum::extract::connect_info::Connected;
use axum::extract::{ConnectInfo, MatchedPath, Request, State};
use axum::http::Method;
use axum::middleware::Next;
use axum::response::Response;
use axum::serve::IncomingStream;
use nigh_http::audit::{AuditClient, AuditEvent, Caller, EventCategory, EventSource, fields};
use serde_json::Map;

use super::{AdminSource, OwnUserOnly};

/// The user at the other end of the admin socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PeerUser(Option<u32>);

impl Connected<IncomingStream<'_, OwnUserOnly>> for PeerUser {
    fn connect_info(stream: IncomingStream<'_, OwnUserOnly>) -> Self {
        Self(stream.io().peer_cred().ok().map(|peer| peer.uid()))
    }
}

/// Answers a request, then counts it and records its event. Whoever has checked an access key before has left its `Caller` in
/// the request's extensions; else the caller is the user at the socket.
pub(super) async fn answered<N: AdminSource>(State(node): State<Arc<N>>, request: Request, next: Next) -> Response {
    let began = Instant::now();
    let extensions = request.extensions();
    let matched = extensions.get::<MatchedPath>().map_or_else(|| "none".to_owned(), |path| path.as_str().to_owned());
    let is_read = matches!(*request.method(), Method::GET | Method::HEAD);
    let audited = (!is_read && node.audit().wants(EventCategory::Management)).then(|| {
        let local = || extensions.get::<ConnectInfo<PeerUser>>().and_then(|ConnectInfo(peer)| peer.0);
        let address = extensions.get::<ConnectInfo<SocketAddr>>().map(|ConnectInfo(address)| address.ip());
        let caller = extensions.get::<Caller>().cloned();
        let caller = caller.unwrap_or_else(|| local().map_or(Caller::Anonymous, Caller::LocalUser));
        let client = AuditClient::of(request.headers(), None, address);
        (caller, client, format!("{} {matched}", request.method()), request.uri().path().to_owned())
    });
    let answer = next.run(request).await;
    let status = answer.status();
    let code = status.as_str().to_owned();
    metrics::counter!("nigh_admin_requests_total", "path" => matched.clone(), "status" => code).increment(1);
    metrics::histogram!("nigh_admin_request_duration_seconds", "path" => matched).record(began.elapsed());
    if let Some((caller, client, name, path)) = audited {
        let is_error = status.is_client_error() || status.is_server_error();
        node.audit().record(AuditEvent {
            source: EventSource::Admin,
            name: &name,
            category: EventCategory::Management,
            read_only: false,
            caller,
            client: &client,
            request_id: "",
            status: status.as_u16(),
            error: status.canonical_reason().filter(|_| is_error),
            parameters: fields(&[("path", Some(path.as_str()))]),
            response: Map::new(),
        });
    }
    answer
}
