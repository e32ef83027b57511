//! Function URLs: their management and their calls.

use std::net::IpAddr;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HOST};
use http::request::Parts;
use http::{HeaderValue, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use nigh_engine::AccessDenied;
use nigh_functions::function_arn::{function_arn, parse_function_reference};
use nigh_functions::function_store::{FunctionUrl, UrlAuth};
use nigh_functions::function_url::{URL_ID_CHARS, UrlRequest, UrlTarget, event_of_request, response_of_answer};
use nigh_http::request_body::RoomGuard;
use nigh_http::throttle::say_when;
use nigh_invoke::invocation::InvokeRequest;
use nigh_terms::{FunctionName, Namespace, Principal, Timestamp};
use rand::Rng as _;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use uuid::Uuid;

use super::operations::Request;
use super::response::{LambdaResponse, empty_answer, header, json_answer, set};
use super::server::SignedRequest;
use super::validation::read;
use super::{LambdaDoor, LambdaError, Operation};
use crate::cloud_event::{self, CloudEventError, ContentMode};

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct UrlShape {
    auth_type: Option<String>,
    invoke_mode: Option<String>,
    cors: Option<Map<String, Value>>,
}

impl UrlShape {
    fn auth(&self) -> Result<Option<UrlAuth>, LambdaError> {
        if self.invoke_mode.as_deref().is_some_and(|mode| mode != "BUFFERED") {
            return Err(LambdaError::invalid_parameter("InvokeMode can only be BUFFERED here"));
        }
        if self.cors.as_ref().is_some_and(|cors| !cors.is_empty()) {
            return Err(LambdaError::invalid_parameter(
                "Cors is not supported here; let the function answer OPTIONS and set the headers",
            ));
        }
        match self.auth_type.as_deref() {
            None => Ok(None),
            Some("AWS_IAM") => Ok(Some(UrlAuth::Iam)),
            Some("NONE") => Ok(Some(UrlAuth::Nobody)),
            Some(_) => Err(LambdaError::validation("AuthType must be AWS_IAM or NONE")),
        }
    }
}

fn fresh_id() -> String {
    let mut random = rand::rng();
    let digit = |_| char::from_digit(random.random_range(0..36), 36).unwrap_or('0');
    (0..URL_ID_CHARS).map(digit).collect()
}

fn no_url(arn: &str) -> LambdaError {
    LambdaError::not_found(format!("The resource you requested does not exist: {arn} has no function URL"))
}

impl LambdaDoor {
    pub(super) async fn create_url(
        &self,
        name: &FunctionName,
        request: &Request<'_>,
    ) -> Result<LambdaResponse, LambdaError> {
        self.deployed(name, request)?;
        let shape: UrlShape = read(&request.body)?;
        let auth = shape.auth()?.ok_or_else(|| LambdaError::validation("AuthType is required"))?;
        let arn = function_arn(&self.settings.region, name);
        let made = self.parts.functions.attach(&request.who.namespace, name, move |attached, now| {
            if attached.url.is_some() {
                return Err(LambdaError::conflict(format!("FunctionUrlConfig exists for this Lambda function: {arn}")));
            }
            attached.url = Some(FunctionUrl { id: fresh_id(), auth, created: now, modified: now });
            Ok(())
        });
        let deployed = made.await?;
        let url = deployed.attached.url.as_ref().ok_or_else(|| LambdaError::service("the URL was not kept"))?;
        Ok(json_answer(StatusCode::CREATED, &self.url_config(name, url, request)))
    }

    pub(super) fn get_url(&self, name: &FunctionName, request: &Request<'_>) -> Result<LambdaResponse, LambdaError> {
        let deployed = self.deployed(name, request)?;
        let arn = function_arn(&self.settings.region, name);
        let url = deployed.attached.url.as_ref().ok_or_else(|| no_url(&arn))?;
        Ok(json_answer(StatusCode::OK, &self.url_config(name, url, request)))
    }

    pub(super) fn list_urls(&self, name: &FunctionName, request: &Request<'_>) -> Result<LambdaResponse, LambdaError> {
        let deployed = self.deployed(name, request)?;
        let urls: Vec<Value> = deployed.attached.url.iter().map(|url| self.url_config(name, url, request)).collect();
        Ok(json_answer(StatusCode::OK, &json!({ "FunctionUrlConfigs": urls })))
    }

    pub(super) async fn update_url(
        &self,
        name: &FunctionName,
        request: &Request<'_>,
    ) -> Result<LambdaResponse, LambdaError> {
        self.deployed(name, request)?;
        let shape: UrlShape = read(&request.body)?;
        let auth = shape.auth()?;
        let arn = function_arn(&self.settings.region, name);
        let changed = self.parts.functions.attach(&request.who.namespace, name, move |attached, now| {
            let url = attached.url.as_mut().ok_or_else(|| no_url(&arn))?;
            url.auth = auth.unwrap_or(url.auth);
            url.modified = now;
            Ok::<_, LambdaError>(())
        });
        changed.await?;
        self.get_url(name, request)
    }

    pub(super) async fn delete_url(
        &self,
        name: &FunctionName,
        request: &Request<'_>,
    ) -> Result<LambdaResponse, LambdaError> {
        self.deployed(name, request)?;
        let arn = function_arn(&self.settings.region, name);
        let gone = self.parts.functions.attach(&request.who.namespace, name, move |attached, _| {
            attached.url.take().map(drop).ok_or_else(|| no_url(&arn))
        });
        gone.await?;
        Ok(empty_answer(StatusCode::NO_CONTENT))
    }

    fn url_config(&self, name: &FunctionName, url: &FunctionUrl, request: &Request<'_>) -> Value {
        let port = request.headers.get(HOST).and_then(|host| host.to_str().ok()).and_then(|host| host.rsplit_once(':'));
        let port = port.map(|(_, port)| format!(":{port}")).unwrap_or_default();
        let scheme = if self.has_tls.load(Ordering::Relaxed) { "https" } else { "http" };
        let date = |at: Timestamp| at.rfc3339();
        json!({
            "FunctionUrl": format!("{scheme}://{}.lambda-url.localhost{port}/", url.id),
            "FunctionArn": function_arn(&self.settings.region, name),
            "AuthType": url.auth.name(),
            "InvokeMode": "BUFFERED",
            "CreationTime": date(url.created),
            "LastModifiedTime": date(url.modified),
        })
    }

    /// Answers a call of a function's URL, or a CloudEvent; returns the body of any other request.
    pub(super) async fn by_url(&self, head: &Parts, body: Incoming, from: IpAddr) -> Result<LambdaResponse, Incoming> {
        let host = head.headers.get(HOST).and_then(|host| host.to_str().ok());
        let path = head.uri.path();
        let answered = if let Some(target) = UrlTarget::of(host, path) {
            self.call_by_url(target, head, body, from).await
        } else if let Some(to) = path.strip_prefix("/cloudevents/") {
            self.take_cloud_event(to, head, body).await
        } else {
            return Err(body);
        };
        Ok(answered.unwrap_or_else(|error| refusal(&error)))
    }

    async fn call_by_url(
        &self,
        target: UrlTarget<'_>,
        head: &Parts,
        body: Incoming,
        from: IpAddr,
    ) -> Result<LambdaResponse, LambdaError> {
        let (namespace, function, auth) = self.url_owner(target.id)?;
        let (who, key, body, _room) = self.let_in(namespace, &function, auth, head, body).await?;
        let request_id = Uuid::new_v4().to_string();
        let payload = event_of_request(&UrlRequest {
            target,
            method: &head.method,
            query: head.uri.query().unwrap_or_default(),
            headers: &head.headers,
            body: &body,
            source: &from.to_string(),
            access_key: key.as_deref(),
            request_id: &request_id,
            at: self.parts.clock.wall(),
        });
        let answer = self.answer_of(&who, function, payload).await?;
        let response = response_of_answer(answer).map_err(|error| LambdaError::bad_gateway(error.to_string()))?;
        let mut answer = Response::new(Full::new(response.body));
        *answer.status_mut() = response.status;
        *answer.headers_mut() = response.headers;
        set(answer.headers_mut(), header::REQUEST_ID, &request_id);
        Ok(answer)
    }

    /// Answers a CloudEvent for the function `to`, which is the id of a URL, or a name in a signed request.
    async fn take_cloud_event(&self, to: &str, head: &Parts, body: Incoming) -> Result<LambdaResponse, LambdaError> {
        if head.method != http::Method::POST {
            return Err(LambdaError::method_not_allowed("CloudEvents are sent by POST"));
        }
        let (who, function, body, _room) = match self.url_owner(to) {
            Ok((namespace, function, auth)) => {
                let (who, _, body, room) = self.let_in(namespace, &function, auth, head, body).await?;
                (who, function, body, room)
            }
            Err(_) => {
                let signed = self.signed_body(Operation::Invoke(to), head, body).await?;
                (signed.who, parse_function_reference(to)?, signed.body, signed.room)
            }
        };
        let (mode, event) = cloud_event::read(&head.headers, &body).map_err(|error| match error {
            CloudEventError::Format(_) | CloudEventError::NoEvent => LambdaError::unsupported_media(error.to_string()),
            other => LambdaError::invalid_content(other.to_string()),
        })?;
        let answer = self.answer_of(&who, function, Bytes::from(Value::Object(event).to_string())).await?;
        cloud_answer(mode, answer)
    }

    fn url_owner(&self, id: &str) -> Result<(Namespace, FunctionName, UrlAuth), LambdaError> {
        let found = self.parts.functions.by_url(id);
        found.ok_or_else(|| LambdaError::not_found("there is no function with this URL"))
    }

    /// The caller of a function's URL in `namespace`, and the body. If anybody may call it, its callers share the door
    /// as one.
    async fn let_in(
        &self,
        namespace: Namespace,
        function: &FunctionName,
        auth: UrlAuth,
        head: &Parts,
        body: Incoming,
    ) -> Result<(Principal, Option<String>, Bytes, RoomGuard), LambdaError> {
        let operation = Operation::Invoke(function.as_str());
        match auth {
            UrlAuth::Nobody => {
                let requester = format!("url {namespace}/{function}");
                let clock = &self.parts.clock;
                let counted = self.parts.keys.namespaces().take_request(&namespace, || clock.monotonic());
                counted.map_err(AccessDenied::from)?;
                let (body, room) = self.unsigned_body(&requester, operation, body).await?;
                Ok((Principal::outside(namespace), None, body, room))
            }
            UrlAuth::Iam => {
                let SignedRequest { who, key, body, room } = self.signed_body(operation, head, body).await?;
                if who.namespace != namespace {
                    return Err(LambdaError::access_denied("Forbidden"));
                }
                Ok((who, Some(key), body, room))
            }
        }
    }

    /// The answer of a run; an error of the function is answered as an error of a gateway.
    async fn answer_of(&self, who: &Principal, function: FunctionName, payload: Bytes) -> Result<Bytes, LambdaError> {
        let token = self.parts.invoke.seen(who);
        let request = InvokeRequest { function, payload, client_context: None, token, event: None };
        let invoked = self.parts.invoke.invoke(who, request).await?;
        match invoked.function_error {
            None => Ok(invoked.payload),
            Some(_) => Err(LambdaError::bad_gateway("Internal Server Error")),
        }
    }
}

/// Errors in the form of function URLs.
fn refusal(error: &LambdaError) -> LambdaResponse {
    let message = if error.status.is_server_error() { "Internal Server Error".into() } else { error.message.clone() };
    let mut answer = json_answer(error.status, &json!({ "Message": message }));
    answer.headers_mut().insert(header::ERROR_TYPE, HeaderValue::from_static(error.kind));
    say_when(error.status, answer.headers_mut());
    answer
}

/// An answer that is an event is returned as an event, an empty one as 204, any other as JSON.
fn cloud_answer(mode: ContentMode, answer: Bytes) -> Result<LambdaResponse, LambdaError> {
    let value: Value = serde_json::from_slice(&answer).unwrap_or(Value::Null);
    match value {
        Value::Null if answer.is_empty() || answer == "null" => Ok(empty_answer(StatusCode::NO_CONTENT)),
        Value::Object(event) if cloud_event::is_event(&event) => {
            let (headers, body) =
                cloud_event::write(mode, &event).map_err(|error| LambdaError::bad_gateway(error.to_string()))?;
            let mut answer = Response::new(Full::new(body));
            *answer.headers_mut() = headers;
            Ok(answer)
        }
        _ => {
            let mut response = Response::new(Full::new(answer));
            response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
            Ok(response)
        }
    }
}
