//! The OpenWhisk door: the operations of each resource, and who may perform them.
//!
//! The door answers requests below `/api/v1` on the Lambda door's listener. A request acts for the namespace of its key;
//! `_` in a path is that namespace, and a request reaches no other. A sandbox's key may invoke actions and fire triggers of
//! its namespace while the sandbox runs an invocation, and do nothing else here.

mod actions;
mod activations;
mod compositions;
mod invocation;
mod lookup;
mod packages;
mod rules;
mod sequence_scratch;
mod sequences;
mod server;
mod shown;
mod triggers;
mod web;

use std::sync::Arc;

use bytes::Bytes;
use http::{Method, Response, StatusCode};
use http_body_util::Full;
use nigh_engine::{AccessDenied, AccessKeys};
use nigh_functions::action::names::OWN;
use nigh_functions::function_network::NetworkPermission;
use nigh_functions::function_store::FunctionStore;
use nigh_functions::runtime_catalog::RuntimeCatalog;
use nigh_invoke::invocation::Invoke;
use nigh_terms::{Clock, Namespace, Principal};
use nigh_workflow::scratch::ScratchObjects;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::Semaphore;
use tokio_util::task::TaskTracker;

use super::activation_store::ActivationStore;
use super::entity_store::EntityStore;
use super::error::WhiskError;
use super::query::Query;
use super::route::{Collection, Route};
use super::throttle::{NamespaceLimits, Throttle};
use super::{kinds, limits};

type WhiskResponse = Response<Full<Bytes>>;
type WhiskResult = Result<WhiskResponse, WhiskError>;

/// The most activations under way, whether callers wait for them or not.
const ACTIVATIONS_MAX: usize = 2048;

/// The settings of the door.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenWhiskSettings {
    /// The most invocations at once.
    pub concurrency: usize,
    /// The limits of each namespace.
    pub limits: NamespaceLimits,
    /// Which functions may have an outbound network.
    pub network: NetworkPermission,
}

/// The parts that the door uses.
pub struct OpenWhiskParts {
    /// The functions.
    pub functions: FunctionStore,
    /// Packages, triggers, rules and sequences.
    pub entities: EntityStore,
    /// The records of activations.
    pub activations: ActivationStore,
    /// Runs functions.
    pub invoke: Arc<dyn Invoke>,
    /// The scratch folders of sequences.
    pub scratch: Arc<dyn ScratchObjects>,
    /// The access keys.
    pub keys: AccessKeys,
    /// The runtimes of this node.
    pub catalog: RuntimeCatalog,
    /// The time.
    pub clock: Arc<dyn Clock>,
}

struct OpenWhiskState {
    parts: OpenWhiskParts,
    settings: OpenWhiskSettings,
    /// The activations under way, which continue when nobody waits for them.
    tasks: TaskTracker,
    running: Arc<Semaphore>,
    throttle: Mutex<Throttle>,
}

/// The OpenWhisk door. A clone is another handle to it.
#[derive(Clone)]
pub struct OpenWhiskDoor(Arc<OpenWhiskState>);

/// A request whose key was checked.
struct Request {
    who: Principal,
    /// The namespace of `who`.
    namespace: Namespace,
    query: Query,
    body: Bytes,
}

impl OpenWhiskDoor {
    /// A door for the Lambda door to mount.
    #[must_use]
    pub fn new(parts: OpenWhiskParts, settings: OpenWhiskSettings) -> Self {
        let running = Arc::new(Semaphore::new(ACTIVATIONS_MAX));
        let throttle = Mutex::new(Throttle::new(settings.limits));
        Self(Arc::new(OpenWhiskState { parts, settings, tasks: TaskTracker::new(), running, throttle }))
    }

    /// From now on each namespace has these limits; what was counted counts on.
    pub fn set_limits(&self, limits: NamespaceLimits) {
        self.0.throttle.lock().set_limits(limits);
    }

    /// The limits of a namespace.
    fn limits(&self) -> Value {
        limits::of_namespace(self.0.settings.concurrency, self.0.throttle.lock().limits())
    }

    /// The description of the API, which needs no key.
    fn root(&self) -> Value {
        let runtimes: Vec<Value> =
            kinds::all(&self.0.parts.catalog).into_iter().map(|kind| json!({ "kind": kind })).collect();
        json!({
            "description": "OpenWhisk API",
            "api_paths": [super::ROOT],
            "build": env!("CARGO_PKG_VERSION"),
            "buildno": env!("CARGO_PKG_VERSION"),
            "implementation": "nigh",
            "runtimes": { "all": runtimes },
            "limits": { "concurrent_actions": self.0.settings.concurrency, "sequence_length": limits::SEQUENCE_MAX },
        })
    }

    /// Rejects a further function of a namespace that has as many as it may have.
    fn check_functions(&self, namespace: &Namespace) -> Result<(), WhiskError> {
        let OpenWhiskParts { functions, keys, .. } = &self.0.parts;
        let deployed = functions.totals(namespace).0;
        Ok(keys.namespaces().check_functions(namespace, deployed).map_err(AccessDenied::from)?)
    }

    /// Rejects operations that a sandbox's key may not perform.
    fn check_rights(method: &Method, route: &Route, who: &Principal) -> Result<(), WhiskError> {
        let invokes =
            *method == Method::POST && matches!(route, Route::One(_, Collection::Actions | Collection::Triggers, _));
        match &who.function {
            Some(_) if !invokes => Err(WhiskError::forbidden()),
            _ => Ok(()),
        }
    }

    /// The namespace that `text` names in a path of a request of `who`.
    fn namespace(text: &str, who: &Principal) -> Result<Namespace, WhiskError> {
        if text == OWN || text == who.namespace.as_str() {
            Ok(who.namespace.clone())
        } else {
            Err(WhiskError::forbidden())
        }
    }

    async fn perform(&self, method: &Method, route: Route, request: Request) -> WhiskResult {
        let get = *method == Method::GET;
        match route {
            Route::Namespaces if get => Ok(json_answer(StatusCode::OK, &json!([request.namespace]))),
            Route::Namespace(_) if get => Ok(json_answer(StatusCode::OK, &self.everything(&request))),
            Route::Limits(_) if get => Ok(json_answer(StatusCode::OK, &self.limits())),
            Route::All(_, collection) if get => self.list(collection, &request),
            Route::Packaged(_, package) if get => self.list_package(&package, &request),
            Route::Activations(_) if get => self.list_activations(&request).await,
            Route::Activation(_, id, part) if get => self.get_activation(&id, part, &request).await,
            Route::One(_, collection, path) => match (collection, method.as_str()) {
                (Collection::Actions, "GET") => self.get_action(&path, &request).await,
                (Collection::Actions, "PUT") => self.put_action(path, request).await,
                (Collection::Actions, "DELETE") => self.delete_action(&path, &request).await,
                (Collection::Actions, "POST") => self.invoke_action(&path, request).await,
                (Collection::Triggers, "GET") => self.get_trigger(&path, &request),
                (Collection::Triggers, "PUT") => self.put_trigger(&path, &request).await,
                (Collection::Triggers, "DELETE") => self.delete_trigger(&path, &request).await,
                (Collection::Triggers, "POST") => self.fire(&path, &request),
                (Collection::Rules, "GET") => self.get_rule(&path, &request),
                (Collection::Rules, "PUT") => self.put_rule(&path, &request).await,
                (Collection::Rules, "DELETE") => self.delete_rule(&path, &request).await,
                (Collection::Rules, "POST") => self.set_rule(&path, &request).await,
                (Collection::Packages, "GET") => self.get_package(&path, &request),
                (Collection::Packages, "PUT") => self.put_package(&path, &request).await,
                (Collection::Packages, "DELETE") => self.delete_package(&path, &request).await,
                _ => Err(WhiskError::method_not_allowed()),
            },
            _ => Err(WhiskError::method_not_allowed()),
        }
    }

    fn list(&self, collection: Collection, request: &Request) -> WhiskResult {
        let all = match collection {
            Collection::Actions => self.actions(&request.namespace, None),
            Collection::Triggers => self.triggers(&request.namespace),
            Collection::Rules => self.rules(&request.namespace),
            Collection::Packages => self.packages(&request.namespace),
        };
        listed(collection.name(), all, request)
    }

    fn everything(&self, request: &Request) -> Value {
        json!({
            "actions": self.actions(&request.namespace, None),
            "triggers": self.triggers(&request.namespace),
            "rules": self.rules(&request.namespace),
            "packages": self.packages(&request.namespace),
        })
    }
}

/// The requested part of a list, last changed first, or the length of the list.
fn listed(collection: &str, mut all: Vec<Value>, request: &Request) -> WhiskResult {
    let page = request.query.page(collection)?;
    if page.count {
        let count = all.len().saturating_sub(page.skip);
        return Ok(json_answer(StatusCode::OK, &json!({ collection: count })));
    }
    all.sort_by_key(|one| std::cmp::Reverse(one["updated"].as_u64()));
    Ok(json_answer(StatusCode::OK, &Value::Array(page.of(all))))
}

fn json_answer(status: StatusCode, body: &Value) -> WhiskResponse {
    let mut answer = Response::new(Full::new(Bytes::from(body.to_string())));
    *answer.status_mut() = status;
    answer.headers_mut().insert(http::header::CONTENT_TYPE, http::HeaderValue::from_static("application/json"));
    answer
}

fn empty_answer(status: StatusCode) -> WhiskResponse {
    let mut answer = Response::new(Full::default());
    *answer.status_mut() = status;
    answer
}
