//! Converts invocations into requests to an HTTP server, and its responses into answers. Pure.
//!
//! A CloudEvent is posted to `/` in binary mode, as Knative's brokers do. The event of a function URL becomes its original
//! request. Any other payload is posted to `/` as JSON. Responses are converted back the same way.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::header::{CONTENT_TYPE, COOKIE, SET_COOKIE};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Response};
use nigh_functions::function_url::{OF_THE_CONNECTION, is_text};
use serde_json::{Map, Value, json};
use thiserror::Error;

use crate::cloud_event::{self, ContentMode};

/// The length of a server's error in a message.
const WORDS_MAX: usize = 1024;

/// The kind of an invocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Event,
    Url,
    Plain,
}

/// A request to the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerRequest {
    /// The method.
    pub method: Method,
    /// Path and query.
    pub target: String,
    /// The headers, without host and length.
    pub headers: HeaderMap,
    /// The body.
    pub body: Bytes,
    kind: Kind,
}

/// Why a response is no answer.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum PassageError {
    /// Another status than success.
    #[error("the server answered {status}: {words}")]
    Status {
        /// The status.
        status: u16,
        /// The beginning of the body.
        words: String,
    },
    /// An invalid CloudEvent.
    #[error("the server's answer: {0}")]
    Event(#[from] cloud_event::CloudEventError),
}

/// The request for `payload` of the invocation `id`.
#[must_use]
pub fn pass(payload: &Bytes, id: &str) -> ServerRequest {
    let object: Option<Map<String, Value>> = serde_json::from_slice(payload).ok();
    let mut passed =
        object.and_then(|object| of_event(&object).or_else(|| of_url(&object))).unwrap_or_else(|| ServerRequest {
            method: Method::POST,
            target: "/".to_owned(),
            headers: HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static("application/json"))]),
            body: payload.clone(),
            kind: Kind::Plain,
        });
    if let Ok(id) = HeaderValue::from_str(id) {
        passed.headers.insert(HeaderName::from_static("x-request-id"), id);
    }
    passed
}

fn of_event(object: &Map<String, Value>) -> Option<ServerRequest> {
    if !cloud_event::is_event(object) {
        return None;
    }
    let (headers, body) = cloud_event::write(ContentMode::Binary, object).ok()?;
    Some(ServerRequest { method: Method::POST, target: "/".to_owned(), headers, body, kind: Kind::Event })
}

fn of_url(object: &Map<String, Value>) -> Option<ServerRequest> {
    let text = |value: Option<&Value>| value.and_then(Value::as_str).map(str::to_owned);
    let call = object.get("requestContext")?.get("http")?;
    let method = Method::from_bytes(text(call.get("method"))?.as_bytes()).ok()?;
    let path = text(object.get("rawPath")).filter(|path| path.starts_with('/'))?;
    let target = match text(object.get("rawQueryString")).filter(|query| !query.is_empty()) {
        Some(query) => format!("{path}?{query}"),
        None => path,
    };
    let mut headers = HeaderMap::new();
    for (name, value) in object.get("headers")?.as_object()? {
        let (Ok(name), Some(Ok(value))) = (HeaderName::try_from(name), value.as_str().map(HeaderValue::from_str))
        else {
            continue;
        };
        if name != http::header::HOST && !OF_THE_CONNECTION.contains(&name.as_str()) {
            headers.insert(name, value);
        }
    }
    let cookies: Vec<&str> =
        object.get("cookies").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).collect();
    if let Ok(cookies) = HeaderValue::from_str(&cookies.join("; "))
        && !cookies.is_empty()
    {
        headers.insert(COOKIE, cookies);
    }
    let body = text(object.get("body")).unwrap_or_default();
    let is_base64 = object.get("isBase64Encoded").and_then(Value::as_bool).unwrap_or(false);
    let body = if is_base64 { STANDARD.decode(body).ok()?.into() } else { Bytes::from(body) };
    target.parse::<http::Uri>().ok()?;
    Some(ServerRequest { method, target, headers, body, kind: Kind::Url })
}

/// The answer of a response to `passed`.
///
/// # Errors
/// If the response is an error of the server. (To the request of a URL any response is an answer.)
pub fn returned(passed: &ServerRequest, response: Response<Bytes>) -> Result<Bytes, PassageError> {
    let (head, body) = response.into_parts();
    if passed.kind == Kind::Url {
        return Ok(url_answer(&head, &body));
    }
    if !head.status.is_success() {
        let words = String::from_utf8_lossy(&body).chars().take(WORDS_MAX).collect();
        return Err(PassageError::Status { status: head.status.as_u16(), words });
    }
    if passed.kind == Kind::Event {
        match cloud_event::read(&head.headers, &body) {
            Ok((_, event)) => return Ok(Bytes::from(Value::Object(event).to_string())),
            Err(cloud_event::CloudEventError::NoEvent) => {}
            Err(error) => return Err(error.into()),
        }
    }
    if body.is_empty() {
        return Ok(Bytes::from_static(b"null"));
    }
    let is_json = serde_json::from_slice::<serde::de::IgnoredAny>(&body).is_ok();
    if is_json {
        return Ok(body);
    }
    let text = match std::str::from_utf8(&body) {
        Ok(text) => text.to_owned(),
        Err(_) => STANDARD.encode(&body),
    };
    Ok(Bytes::from(Value::String(text).to_string()))
}

/// A response in the form of function URLs.
fn url_answer(head: &http::response::Parts, body: &Bytes) -> Bytes {
    let mut headers = Map::new();
    let mut cookies = Vec::new();
    for (name, value) in &head.headers {
        let value = String::from_utf8_lossy(value.as_bytes()).into_owned();
        if *name == SET_COOKIE {
            cookies.push(value);
        } else if !OF_THE_CONNECTION.contains(&name.as_str()) {
            headers.insert(name.as_str().to_owned(), value.into());
        }
    }
    let kind = head.headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    let (body, is_base64) = match std::str::from_utf8(body) {
        Ok(text) if is_text(kind) || body.is_empty() => (text.to_owned(), false),
        _ => (STANDARD.encode(body), true),
    };
    let answer = json!({
        "statusCode": head.status.as_u16(),
        "headers": headers,
        "cookies": cookies,
        "body": body,
        "isBase64Encoded": is_base64,
    });
    Bytes::from(answer.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn response(status: u16, kind: &str, body: &[u8]) -> Response<Bytes> {
        let builder = Response::builder().status(status).header(CONTENT_TYPE, kind);
        builder.body(Bytes::copy_from_slice(body)).unwrap()
    }

    #[test]
    fn a_cloud_event_is_posted_in_binary_mode_and_comes_back_as_json() {
        let event = json!({ "specversion": "1.0", "id": "1", "source": "/s", "type": "t", "data": { "n": 1 } });
        let passed = pass(&Bytes::from(event.to_string()), "request");
        assert_eq!(
            (&passed.method, passed.target.as_str(), passed.body.as_ref()),
            (&Method::POST, "/", &b"{\"n\":1}"[..])
        );
        assert_eq!(passed.headers["ce-type"], "t");
        assert_eq!(passed.headers["x-request-id"], "request");
        let mut answer = response(200, "application/json", b"{\"m\":2}");
        for (name, value) in [("ce-specversion", "1.0"), ("ce-id", "2"), ("ce-source", "/f"), ("ce-type", "u")] {
            answer.headers_mut().insert(HeaderName::from_static(name), HeaderValue::from_static(value));
        }
        let back: Value = serde_json::from_slice(&returned(&passed, answer).unwrap()).unwrap();
        assert_eq!((&back["type"], &back["data"]), (&json!("u"), &json!({ "m": 2 })));
        let nothing = Response::builder().status(204).body(Bytes::new()).unwrap();
        assert_eq!(returned(&passed, nothing).unwrap(), "null");
    }

    #[test]
    fn a_url_s_event_becomes_the_request_that_it_was_and_any_response_is_its_answer() {
        let event = json!({
            "version": "2.0", "rawPath": "/a%20b", "rawQueryString": "q=1", "cookies": ["a=1", "b=2"],
            "headers": { "content-type": "image/png", "host": "x", "content-length": "9" },
            "requestContext": { "http": { "method": "PUT" } },
            "body": "iVBORw==", "isBase64Encoded": true,
        });
        let passed = pass(&Bytes::from(event.to_string()), "r");
        assert_eq!((&passed.method, passed.target.as_str()), (&Method::PUT, "/a%20b?q=1"));
        assert_eq!(passed.body.as_ref(), b"\x89PNG");
        assert_eq!(passed.headers[COOKIE], "a=1; b=2");
        assert!(!passed.headers.contains_key("host") && !passed.headers.contains_key("content-length"));
        let mut missing = response(404, "text/plain", b"no such page");
        missing.headers_mut().insert(SET_COOKIE, HeaderValue::from_static("c=3"));
        let back: Value = serde_json::from_slice(&returned(&passed, missing).unwrap()).unwrap();
        assert_eq!(
            (&back["statusCode"], &back["body"], &back["cookies"]),
            (&json!(404), &json!("no such page"), &json!(["c=3"]))
        );
        let binary: Value =
            serde_json::from_slice(&returned(&passed, response(200, "image/png", b"\x89P")).unwrap()).unwrap();
        assert_eq!((&binary["body"], &binary["isBase64Encoded"]), (&json!("iVA="), &json!(true)));
    }

    #[test]
    fn any_other_payload_is_posted_as_json_and_a_server_s_error_is_the_function_s() {
        let passed = pass(&Bytes::from_static(b"[1, 2]"), "r");
        assert_eq!((passed.body.as_ref(), passed.target.as_str()), (&b"[1, 2]"[..], "/"));
        assert_eq!(returned(&passed, response(200, "text/plain", b"text")).unwrap(), "\"text\"");
        assert_eq!(returned(&passed, response(200, "application/json", b"{\"a\":1}")).unwrap(), "{\"a\":1}");
        let failed = returned(&passed, response(500, "text/plain", b"broken")).unwrap_err();
        assert_eq!(failed.to_string(), "the server answered 500: broken");
    }
}
