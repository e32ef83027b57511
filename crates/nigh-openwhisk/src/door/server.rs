//! The HTTP of the door: routes, keys, bodies, and what every answer has.

use async_trait::async_trait;
use bytes::Bytes;
use http::header::{ACCESS_CONTROL_REQUEST_HEADERS, HeaderName, WWW_AUTHENTICATE};
use http::request::Parts;
use http::{HeaderValue, Method, StatusCode};
use hyper::body::Incoming;
use nigh_functions::action::parameters::PARAMETERS_BYTES_MAX;
use nigh_http::mounted_api::MountedApi;
use nigh_http::request_body::{BodyError, BodyRoom, RoomGuard, read_body};
use nigh_http::shares::requester_of;
use nigh_http::throttle::say_when;
use serde_json::json;
use uuid::Uuid;

use super::super::credentials;
use super::super::error::WhiskError;
use super::super::limits::{CODE_BYTES_MAX, PAYLOAD_BYTES_MAX};
use super::super::query::Query;
use super::super::route::{Collection, Route};
use super::super::web_action::cors;
use super::{OpenWhiskDoor, Request, WhiskResponse, WhiskResult, empty_answer, json_answer};

const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
/// The longest id of a request that is taken over.
const REQUEST_ID_BYTES_MAX: usize = 128;
const REALM: HeaderValue = HeaderValue::from_static("Basic realm=\"whisk rest service\"");
const METHODS: &str = "GET, DELETE, POST, PUT, HEAD";

/// The most that the body of such a request may have, and how often it is in memory at once.
fn body_limit(method: &Method, route: &Route) -> (u64, u64) {
    match (route, method.as_str()) {
        // Base64 of the code, and what stands beside it.
        (Route::One(_, Collection::Actions, _), "PUT") => {
            ((CODE_BYTES_MAX.div_ceil(3) * 4 + 2 * PARAMETERS_BYTES_MAX + (64 << 10)) as u64, 3)
        }
        (Route::One(..), "PUT") => ((2 * PARAMETERS_BYTES_MAX + (64 << 10)) as u64, 2),
        _ => (PAYLOAD_BYTES_MAX as u64, 2),
    }
}

impl From<BodyError> for WhiskError {
    fn from(error: BodyError) -> Self {
        match error {
            BodyError::TooLarge { received, limit } => Self::larger_than("Request", received as usize, limit as usize),
            BodyError::TimedOut | BodyError::TooSlow(_) | BodyError::Broken(_) => Self::bad_request(error.to_string()),
            BodyError::NoRoom | BodyError::ShareTaken => Self::too_many(error.to_string()),
        }
    }
}

#[async_trait]
impl MountedApi for OpenWhiskDoor {
    fn answers(&self, path: &str) -> bool {
        Route::is_ours(path)
    }

    async fn answer(&self, head: &Parts, body: Incoming, room: &BodyRoom) -> WhiskResponse {
        let request_id = head
            .headers
            .get(REQUEST_ID)
            .filter(|id| id.len() <= REQUEST_ID_BYTES_MAX && id.to_str().is_ok())
            .cloned()
            .or_else(|| HeaderValue::from_str(&Uuid::new_v4().simple().to_string()).ok());
        let route = Route::of(head.uri.path());
        let name = route.as_ref().map_or("none", Route::name);
        let is_web = matches!(route, Ok(Route::Web(_)));
        let answered = match route {
            Ok(route) => Box::pin(self.routed(route, head, body, room)).await,
            Err(error) => Err(error),
        };
        let mut answer = answered.unwrap_or_else(|error| refusal(&error, request_id.as_ref()));
        if !is_web {
            cors(answer.headers_mut(), METHODS, head.headers.get(ACCESS_CONTROL_REQUEST_HEADERS));
        }
        if let Some(request_id) = request_id {
            answer.headers_mut().insert(REQUEST_ID, request_id);
        }
        let status = answer.status().as_str().to_owned();
        metrics::counter!("nigh_openwhisk_requests_total", "resource" => name, "status" => status).increment(1);
        answer
    }

    async fn finished(&self) {
        self.0.tasks.close();
        self.0.tasks.wait().await;
    }
}

impl OpenWhiskDoor {
    async fn routed(&self, route: Route, head: &Parts, body: Incoming, room: &BodyRoom) -> WhiskResult {
        if let Route::Web(web) = &route {
            return self.web(web, head, body, room).await;
        }
        if head.method == Method::OPTIONS {
            return Ok(empty_answer(StatusCode::OK));
        }
        if route == Route::Root {
            return if head.method == Method::GET {
                Ok(json_answer(StatusCode::OK, &self.root()))
            } else {
                Err(WhiskError::method_not_allowed())
            };
        }
        let keys = &self.0.parts.keys;
        // Rejects unknown keys, and what a key may not do, before reading the body.
        let (who, key) = credentials::required(&head.headers, keys)?;
        let function = route.function();
        let action = route.action(&head.method, function.as_ref());
        keys.authorize(&key, action)?;
        Self::check_rights(&head.method, &route, &who)?;
        let namespace = match &route {
            Route::Namespace(text)
            | Route::Limits(text)
            | Route::All(text, _)
            | Route::One(text, ..)
            | Route::Packaged(text, _)
            | Route::Activations(text)
            | Route::Activation(text, ..) => Self::namespace(text, &who)?,
            Route::Root | Route::Namespaces | Route::Web(_) => who.namespace.clone(),
        };
        let (body, _room) = self.body(&requester_of(&who, &key), &head.method, &route, body, room).await?;
        // The key or its sandbox may have ended while the body arrived.
        let (who, _) = keys.admit(&key, action)?;
        let query = Query::of(head.uri.query().unwrap_or_default());
        let request = Request { who, namespace, query, body };
        self.perform(&head.method, route, request).await
    }

    /// Takes the share of `requester`'s request, and reads its body.
    pub(super) async fn body(
        &self,
        requester: &str,
        method: &Method,
        route: &Route,
        body: Incoming,
        room: &BodyRoom,
    ) -> Result<(Bytes, RoomGuard), WhiskError> {
        let (limit, copies) = body_limit(method, route);
        let room = room.take(requester, &body, limit, copies).await?;
        Ok((read_body(body, limit).await?, room))
    }
}

/// The answer to a rejected request.
fn refusal(error: &WhiskError, code: Option<&HeaderValue>) -> WhiskResponse {
    let code = code.and_then(|code| code.to_str().ok()).unwrap_or_default();
    let mut answer = json_answer(error.status, &json!({ "error": error.message, "code": code }));
    say_when(error.status, answer.headers_mut());
    if error.status == StatusCode::UNAUTHORIZED {
        answer.headers_mut().insert(WWW_AUTHENTICATE, REALM);
    }
    answer
}
