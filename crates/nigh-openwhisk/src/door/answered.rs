//! What is told of an answered request: its metrics, and its event in the audit trail.

use std::net::IpAddr;
use std::time::Instant;

use http::Method;
use http::request::Parts;
use nigh_http::audit::{AuditClient, AuditEvent, Caller, EventCategory, EventSource, fields};
use serde_json::{Map, Value};

use super::server::REQUEST_ID;
use super::{OpenWhiskDoor, WhiskResponse};
use crate::credentials::{self, Credentials};
use crate::route::{Collection, Route};

/// What a request is.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct RequestKind {
    /// The name in metrics.
    meter_name: &'static str,
    /// The name and category of its event; none if it has none.
    event: Option<(String, EventCategory)>,
    /// The names of what it is for.
    parameters: Map<String, Value>,
}

impl RequestKind {
    /// The name in metrics and traces.
    pub(super) const fn meter_name(&self) -> &'static str {
        self.meter_name
    }

    /// A request for `route`; none if the path is no resource's.
    pub(super) fn of(method: &Method, route: Option<&Route>) -> Self {
        let Some(route) = route else {
            return Self { meter_name: "none", event: None, parameters: Map::new() };
        };
        Self { meter_name: route.name(), event: event(method, route), parameters: parameters(route) }
    }
}

/// The name and category of the event of a request.
fn event(method: &Method, route: &Route) -> Option<(String, EventCategory)> {
    let is_get = *method == Method::GET;
    let read = |name: &str| is_get.then(|| (name.to_owned(), EventCategory::Management));
    match route {
        Route::Root => None,
        Route::Namespaces => read("ListNamespaces"),
        Route::Namespace(_) => read("GetNamespace"),
        Route::Limits(_) => read("GetLimits"),
        Route::All(_, collection) => read(&format!("List{}s", one_of(*collection))),
        Route::Packaged(..) => read("ListActions"),
        Route::Activations(_) => read("ListActivations"),
        Route::Activation(..) => read("GetActivation"),
        Route::Web(_) => Some(("InvokeWebAction".to_owned(), EventCategory::Data)),
        Route::One(_, collection, _) => {
            let one = one_of(*collection);
            let management = |verb: &str| Some((format!("{verb}{one}"), EventCategory::Management));
            match (method.as_str(), collection) {
                ("GET", _) => management("Get"),
                ("PUT", _) => management("Put"),
                ("DELETE", _) => management("Delete"),
                ("POST", Collection::Actions) => Some((format!("Invoke{one}"), EventCategory::Data)),
                ("POST", Collection::Triggers) => Some((format!("Fire{one}"), EventCategory::Data)),
                ("POST", _) => management("Set"),
                _ => None,
            }
        }
    }
}

const fn one_of(collection: Collection) -> &'static str {
    match collection {
        Collection::Actions => "Action",
        Collection::Triggers => "Trigger",
        Collection::Rules => "Rule",
        Collection::Packages => "Package",
    }
}

fn parameters(route: &Route) -> Map<String, Value> {
    match route {
        Route::One(namespace, _, path) => {
            fields(&[("namespace", Some(namespace.as_str())), ("name", Some(path.to_string().as_str()))])
        }
        Route::Packaged(namespace, package) => {
            fields(&[("namespace", Some(namespace.as_str())), ("name", Some(package.as_str()))])
        }
        Route::Activation(namespace, id, _) => {
            fields(&[("namespace", Some(namespace.as_str())), ("activationId", Some(id.as_str()))])
        }
        Route::Web(web) => fields(&[("namespace", Some(web.namespace.as_str())), ("name", Some(web.action.as_str()))]),
        Route::Root | Route::Namespaces => Map::new(),
        Route::Namespace(namespace)
        | Route::Limits(namespace)
        | Route::All(namespace, _)
        | Route::Activations(namespace) => fields(&[("namespace", Some(namespace.as_str()))]),
    }
}

impl OpenWhiskDoor {
    /// Counts an answered request and records its event.
    pub(super) fn answered(
        &self,
        kind: RequestKind,
        head: &Parts,
        from: IpAddr,
        began: Instant,
        answer: &WhiskResponse,
    ) {
        let (name, status) = (kind.meter_name, answer.status());
        let code = status.as_str().to_owned();
        metrics::counter!("nigh_openwhisk_requests_total", "resource" => name, "status" => code).increment(1);
        metrics::histogram!("nigh_openwhisk_request_duration_seconds", "resource" => name).record(began.elapsed());
        let Some((name, category)) = kind.event.filter(|(_, category)| self.0.audit.wants(*category)) else { return };
        let named = Credentials::of(&head.headers).ok().flatten();
        let client = AuditClient::of(&head.headers, None, Some(from));
        let client = client.with_access_key(named.as_ref().map(|named| named.key().as_str()));
        let caller = match credentials::required(&head.headers, &self.0.parts.keys) {
            Ok((who, access_key)) => Caller::Key { access_key, principal: Some(who) },
            Err(_) => Caller::claimed(client.claimed_key()),
        };
        let is_error = status.is_client_error() || status.is_server_error();
        self.0.audit.record(AuditEvent {
            source: EventSource::OpenWhisk,
            name: &name,
            category,
            read_only: name.starts_with("Get") || name.starts_with("List"),
            caller,
            client: &client,
            request_id: answer.headers().get(REQUEST_ID).and_then(|id| id.to_str().ok()).unwrap_or_default(),
            status: status.as_u16(),
            error: status.canonical_reason().filter(|_| is_error),
            parameters: kind.parameters,
            response: Map::new(),
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::route::ROOT;

    #[test]
    fn a_request_has_the_event_of_its_method_and_resource() {
        let (management, data) = (EventCategory::Management, EventCategory::Data);
        for (method, path, name, category) in [
            (Method::GET, "/namespaces/_/actions", "ListActions", management),
            (Method::PUT, "/namespaces/_/actions/p/a", "PutAction", management),
            (Method::POST, "/namespaces/_/actions/a", "InvokeAction", data),
            (Method::POST, "/namespaces/_/triggers/t", "FireTrigger", data),
            (Method::POST, "/namespaces/_/rules/r", "SetRule", management),
            (Method::DELETE, "/namespaces/_/packages/p", "DeletePackage", management),
            (Method::POST, "/web/guest/default/hello.json", "InvokeWebAction", data),
        ] {
            let kind = RequestKind::of(&method, Route::of(&format!("{ROOT}{path}")).ok().as_ref());
            assert_eq!(kind.event, Some((name.to_owned(), category)), "{path}");
        }
        let kind = RequestKind::of(&Method::PUT, Route::of(&format!("{ROOT}/namespaces/_/actions/p/a")).ok().as_ref());
        assert_eq!(kind.parameters, fields(&[("namespace", Some("_")), ("name", Some("p/a"))]));
        assert_eq!(RequestKind::of(&Method::GET, None).event, None);
        assert_eq!(RequestKind::of(&Method::GET, Some(&Route::Root)).event, None);
    }
}
