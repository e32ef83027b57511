//! Web actions, which anybody may call over HTTP.

use http::header::ACCESS_CONTROL_REQUEST_HEADERS;
use http::request::Parts;
use http::{Method, StatusCode};
use hyper::body::Incoming;
use nigh_engine::AccessDenied;
use nigh_functions::action::names::{EntityName, EntityPath};
use nigh_http::request_body::BodyRoom;
use nigh_terms::{Namespace, Principal};

use super::super::credentials::Credentials;
use super::super::error::WhiskError;
use super::super::limits::WAIT_MAX;
use super::super::response::Status;
use super::super::route::{Route, Web};
use super::super::web_action::{EXPORTED, Extension, OWN_OPTIONS, RAW, WebRequest, cors, input, may_call, response};
use super::invocation::{Input, WaitOutcome, with_id};
use super::lookup::ResolvedAction;
use super::{OpenWhiskDoor, OpenWhiskParts, WhiskResponse, WhiskResult, empty_answer};

const METHODS: &str = "OPTIONS, GET, DELETE, POST, PUT, HEAD, PATCH";

impl OpenWhiskDoor {
    /// Answers a call of a web action. An action that is not exported is answered with 404.
    pub(super) async fn web(&self, web: &Web, head: &Parts, body: Incoming, room: &BodyRoom) -> WhiskResult {
        let namespace = Namespace::new(&web.namespace).map_err(|_| WhiskError::not_found())?;
        let (name, extension) = Extension::split(&web.action);
        let path = EntityPath { package: web.package.clone(), name: EntityName::new(name)? };
        let resolved = self.resolve(&namespace, &path)?;
        let annotations = resolved.annotations();
        if !annotations.says(EXPORTED) {
            return Err(WhiskError::not_found());
        }
        let answers_options = annotations.says(OWN_OPTIONS);
        let mut answer = if head.method == Method::OPTIONS && !answers_options {
            empty_answer(StatusCode::OK)
        } else {
            self.call_web(web, namespace, resolved, extension, head, body, room).await?
        };
        if !answers_options {
            cors(answer.headers_mut(), METHODS, head.headers.get(ACCESS_CONTROL_REQUEST_HEADERS));
        }
        Ok(answer)
    }

    #[expect(clippy::too_many_arguments, reason = "a request, and what was found for it")]
    async fn call_web(
        &self,
        web: &Web,
        namespace: Namespace,
        resolved: ResolvedAction,
        extension: Extension,
        head: &Parts,
        body: Incoming,
        room: &BodyRoom,
    ) -> Result<WhiskResponse, WhiskError> {
        // A key must be right if there is one; some actions need no key.
        let user = Credentials::of(&head.headers).ok().flatten();
        let user = user.and_then(|user| user.principal(&self.0.parts.keys).ok()).map(|who| who.namespace);
        let annotations = resolved.annotations().clone();
        let route = Route::Web(web.clone());
        // Anybody may call it: its callers share the door as one.
        let package = web.package.as_ref().map_or("", EntityName::as_str);
        let requester = format!("web {namespace}/{package}/{}", Extension::split(&web.action).0);
        let (body, _room) = self.body(&requester, &head.method, &route, body, room).await?;
        let request = WebRequest {
            method: &head.method,
            headers: &head.headers,
            path: &web.rest,
            query: head.uri.query().unwrap_or_default(),
            body: &body,
            user: user.as_ref().map(Namespace::as_str),
        };
        if head.method != Method::OPTIONS && !may_call(&annotations, &request) {
            return Err(WhiskError::unauthorized("The supplied authentication is invalid."));
        }
        let OpenWhiskParts { keys, clock, .. } = &self.0.parts;
        let counted = keys.namespaces().take_request(&namespace, || clock.monotonic());
        counted.map_err(AccessDenied::from)?;
        self.count_invocation(&namespace)?;
        let parameters = resolved.parameters();
        let fixed = resolved.fixed(&parameters);
        let fixed: Vec<&str> = fixed.iter().map(String::as_str).collect();
        let input = input(&request, annotations.says(RAW), &fixed)?;
        let who = Principal::outside(namespace);
        let token = self.0.parts.invoke.seen(&who);
        let call = self.call(&who, resolved, Input::Object(input).under(&parameters), token);
        let ended = match self.begin_and_wait(call, WAIT_MAX).await? {
            WaitOutcome::Ended(ended) => ended,
            WaitOutcome::StillRuns(id) => {
                let not_ready = WhiskError { status: StatusCode::ACCEPTED, message: "Response not yet ready.".into() };
                tracing::debug!(%id, "a web action takes longer than its caller is kept");
                return Err(not_ready);
            }
        };
        if let Some(refused) = ended.refused {
            return Err(refused);
        }
        let record = ended.record;
        let answer = match record.response.status {
            Status::Success => response(extension, &record.response.result, false)?,
            Status::ApplicationError => response(extension, &record.response.result, true)?,
            Status::DeveloperError | Status::WhiskError => {
                return Err(WhiskError::bad_request("There was an error processing your request."));
            }
        };
        Ok(with_id(answer, record.id))
    }
}
