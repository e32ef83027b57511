//! What is told of an answered admin request: its metrics, and its event in the audit trail if it may have changed
//! something, read what tenants have stored, or was refused at the door.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Instant;

use axum::extract::connect_info::Connected;
use axum::extract::{ConnectInfo, MatchedPath, Query, Request, State};
use axum::http::{Extensions, Method, StatusCode};
use axum::middleware::Next;
use axum::response::Response;
use axum::serve::IncomingStream;
use nigh_http::audit::{AuditClient, AuditEvent, Caller, EventCategory, EventSource, fields};
use nigh_terms::AccessKeyId;
use serde_json::{Map, Value};

use super::contents::ContentParams;
use super::door::LinkMaker;
use super::door::sign_in::SIGN_IN;
use super::{AdminSource, OwnUserOnly, VERSION, door};

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

/// Names of what a request has made, for its event. A handler gives them to its answer.
#[derive(Clone, Debug)]
pub(super) struct Made(pub(super) Map<String, Value>);

/// What a request is about; none if it only looks at the node.
fn category(method: &Method, route: &str) -> Option<EventCategory> {
    if !reads(method) {
        return Some(EventCategory::Management);
    }
    match route.strip_prefix(VERSION).unwrap_or(route) {
        // It may have keys, or lets somebody in.
        "/backup" | SIGN_IN => Some(EventCategory::Management),
        "/objects/{namespace}/{bucket}"
        | "/functions/{namespace}/{function}/code"
        | "/layers/{namespace}/{layer}/{version}/code"
        | "/events/{namespace}/{id}" => Some(EventCategory::Data),
        _ => None,
    }
}

/// What the event of a request needs of its head.
struct Audited {
    caller: Caller,
    client: AuditClient,
    category: EventCategory,
    read_only: bool,
    name: String,
    path: String,
    /// The key of the object that it is about.
    key: Option<String>,
}

impl Audited {
    fn record<N: AdminSource>(self, node: &N, status: StatusCode, made: Map<String, Value>) {
        let is_error = status.is_client_error() || status.is_server_error();
        node.audit().record(AuditEvent {
            source: EventSource::Admin,
            name: &self.name,
            category: self.category,
            read_only: self.read_only,
            caller: self.caller,
            client: &self.client,
            request_id: "",
            status: status.as_u16(),
            error: status.canonical_reason().filter(|_| is_error),
            parameters: fields(&[("path", Some(self.path.as_str())), ("key", self.key.as_deref())]),
            response: made,
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
    let category = category(request.method(), &matched).filter(|category| node.audit().wants(*category));
    let audited = category.map(|category| {
        let caller = caller(&*node, extensions);
        let address = extensions.get::<ConnectInfo<SocketAddr>>().map(|ConnectInfo(address)| address.ip());
        let client = AuditClient::of(request.headers(), None, address);
        let name = format!("{} {matched}", request.method());
        let key = Query::<ContentParams>::try_from_uri(request.uri()).ok().map(|Query(asked)| asked.key.to_string());
        let (path, read_only) = (request.uri().path().to_owned(), reads(request.method()));
        Audited { caller, client, category, read_only, name, path, key }
    });
    let answer = next.run(request).await;
    count(matched, answer.status(), began);
    if let Some(audited) = audited {
        let made = answer.extensions().get::<Made>().map(|Made(names)| names.clone());
        audited.record(&*node, answer.status(), made.unwrap_or_default());
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
        let (caller, category) = (Caller::claimed(client.claimed_key()), EventCategory::Management);
        let read_only = reads(request.method());
        let audited = Audited { caller, client, category, read_only, name, path, key: None };
        audited.record(node, status, Map::new());
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_changes_or_has_keys_is_management_what_tenants_stored_is_data_and_a_look_is_nothing() {
        for (method, route, expected) in [
            (Method::POST, "/v1/keys", Some(EventCategory::Management)),
            (Method::PUT, "/v1/objects/{namespace}/{bucket}", Some(EventCategory::Management)),
            (Method::GET, "/v1/objects/{namespace}/{bucket}", Some(EventCategory::Data)),
            (Method::HEAD, "/v1/events/{namespace}/{id}", Some(EventCategory::Data)),
            (Method::GET, "/v1/backup", Some(EventCategory::Management)),
            (Method::GET, "/sign-in", Some(EventCategory::Management)),
            (Method::GET, "/v1/status", None),
            (Method::GET, NO_ROUTE, None),
        ] {
            assert_eq!(category(&method, route), expected, "{method} {route}");
        }
    }
}
