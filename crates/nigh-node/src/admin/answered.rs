//! What is told of an answered admin request: its metrics, and its event in the audit trail if it may have changed
//! something or was refused at the door.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Instant;

use axum::extract::connect_info::Connected;
use axum::extract::{ConnectInfo, MatchedPath, Request, State};
use axum::http::{Extensions, Method, StatusCode};
use axum::middleware::Next;
use axum::response::Response;
use axum::serve::IncomingStream;
use nigh_http::audit::{AuditClient, AuditEvent, Caller, EventCategory, EventSource, fields};
use nigh_terms::AccessKeyId;
use serde_json::Map;

use super::door::LinkMaker;
use super::{AdminSource, OwnUserOnly, door};

/// The path in metrics and events of a request that matches no route.
const NO_ROUTE: &str = "none";

/// The user at the other end of the admin socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PeerUser(Option<u32>);

impl PeerUser {
    /// The user's uid; none if the system did not tell it.
    pub(super) const fn user(self) -> Option<u32> {
        self.0
    }
}

impl Connected<IncomingStream<'_, OwnUserOnly>> for PeerUser {
    fn connect_info(stream: IncomingStream<'_, OwnUserOnly>) -> Self {
        Self(stream.io().peer_cred().ok().map(|peer| peer.uid()))
    }
}

/// What the event of a request needs of its head.
struct Audited {
    caller: Caller,
    client: AuditClient,
    name: String,
    path: String,
}

impl Audited {
    fn record<N: AdminSource>(self, node: &N, read_only: bool, status: StatusCode) {
        let is_error = status.is_client_error() || status.is_server_error();
        node.audit().record(AuditEvent {
            source: EventSource::Admin,
            name: &self.name,
            category: EventCategory::Management,
            read_only,
            caller: self.caller,
            client: &self.client,
            request_id: "",
            status: status.as_u16(),
            error: status.canonical_reason().filter(|_| is_error),
            parameters: fields(&[("path", Some(self.path.as_str()))]),
            response: Map::new(),
        });
    }
}

/// The owner of `key`, whose secret the door has checked.
fn owner<N: AdminSource>(node: &N, key: &AccessKeyId) -> Caller {
    Caller::Key { access_key: key.clone(), principal: node.tenancy().keys.principal(key).ok() }
}

/// Who asks: the owner of the access key that the door has checked, whoever made the link of the session, or the user at the
/// socket.
fn caller<N: AdminSource>(node: &N, extensions: &Extensions) -> Caller {
    let asker = extensions.get::<door::Caller>();
    if let Some(key) = asker.and_then(door::Caller::access_key) {
        return owner(node, key);
    }
    let of_user = |uid: Option<u32>| uid.map_or(Caller::Anonymous, Caller::LocalUser);
    match asker.and_then(door::Caller::link_maker) {
        Some(LinkMaker::Key(key, _)) => Caller::Link(Box::new(owner(node, key))),
        Some(LinkMaker::LocalUser(uid)) => Caller::Link(Box::new(of_user(*uid))),
        None => of_user(extensions.get::<ConnectInfo<PeerUser>>().and_then(|ConnectInfo(peer)| peer.user())),
    }
}

/// Answers a request, then counts it and records its event.
pub(super) async fn answered<N: AdminSource>(State(node): State<Arc<N>>, request: Request, next: Next) -> Response {
    let began = Instant::now();
    let extensions = request.extensions();
    let matched = extensions.get::<MatchedPath>().map_or_else(|| NO_ROUTE.to_owned(), |path| path.as_str().to_owned());
    let audited = (!reads(request.method()) && node.audit().wants(EventCategory::Management)).then(|| {
        let caller = caller(&*node, extensions);
        let address = extensions.get::<ConnectInfo<SocketAddr>>().map(|ConnectInfo(address)| address.ip());
        let client = AuditClient::of(request.headers(), None, address);
        let name = format!("{} {matched}", request.method());
        Audited { caller, client, name, path: request.uri().path().to_owned() }
    });
    let answer = next.run(request).await;
    count(matched, answer.status(), began);
    if let Some(audited) = audited {
        audited.record(&*node, false, answer.status());
    }
    answer
}

/// Counts a request from the address `from` that the door has refused with `status`, and records its event. It named the
/// access key `named`, whose secret is not proved.
pub(super) fn refused<N: AdminSource>(
    node: &N,
    request: &Request,
    named: Option<&AccessKeyId>,
    from: IpAddr,
    (status, began): (StatusCode, Instant),
) {
    count(NO_ROUTE.to_owned(), status, began);
    if node.audit().wants(EventCategory::Management) {
        let named = named.map(AccessKeyId::as_str);
        let client = AuditClient::of(request.headers(), None, Some(from)).with_access_key(named);
        let (name, path) = (format!("{} {NO_ROUTE}", request.method()), request.uri().path().to_owned());
        let audited = Audited { caller: Caller::claimed(client.claimed_key()), client, name, path };
        audited.record(node, reads(request.method()), status);
    }
}

fn reads(method: &Method) -> bool {
    matches!(*method, Method::GET | Method::HEAD)
}

fn count(path: String, status: StatusCode, began: Instant) {
    let code = status.as_str().to_owned();
    metrics::counter!("nigh_admin_requests_total", "path" => path.clone(), "status" => code).increment(1);
    metrics::histogram!("nigh_admin_request_duration_seconds", "path" => path).record(began.elapsed());
}
