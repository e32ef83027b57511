//! Function URLs: requests become events of payload format 2.0, answers become responses. Pure.
//!
//! Lambda developer guide, "Invoking Lambda function URLs": request and response payload format.

use std::collections::BTreeMap;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::header::{CONTENT_TYPE, COOKIE, HOST, SET_COOKIE, USER_AGENT};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use nigh_terms::Timestamp;
use percent_encoding::percent_decode_str;
use serde_json::{Map, Value, json};
use thiserror::Error;
use time::macros::format_description;

use crate::function_arn::ACCOUNT;

/// What follows the id in a host name.
const HOST_LABEL: &str = "lambda-url";
/// Letters and digits of an id.
pub const URL_ID_CHARS: usize = 32;
/// Headers of one connection (RFC 9110, 7.6.1), and the length, which is computed again.
pub const OF_THE_CONNECTION: [&str; 8] =
    ["connection", "content-length", "keep-alive", "proxy-connection", "te", "trailer", "transfer-encoding", "upgrade"];

/// The URL of a request, and the path below it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UrlTarget<'a> {
    /// The URL's id.
    pub id: &'a str,
    /// The path that the function sees, with its first `/`.
    pub path: &'a str,
}

fn is_id(text: &str) -> bool {
    text.len() == URL_ID_CHARS && text.bytes().all(|octet| octet.is_ascii_lowercase() || octet.is_ascii_digit())
}

impl<'a> UrlTarget<'a> {
    /// The target of a request for `path` at `host`: by name, `ID.lambda-url.REST`, or by path, `/lambda-url/ID/REST`.
    #[must_use]
    pub fn of(host: Option<&'a str>, path: &'a str) -> Option<Self> {
        let by_name = host
            .and_then(|host| host.split_once('.'))
            .filter(|(id, rest)| is_id(id) && rest.split(['.', ':']).next() == Some(HOST_LABEL));
        if let Some((id, _)) = by_name {
            return Some(Self { id, path });
        }
        let below = path.strip_prefix("/lambda-url/")?;
        let id = below.get(..URL_ID_CHARS).filter(|id| is_id(id))?;
        match &below[URL_ID_CHARS..] {
            "" => Some(Self { id, path: "/" }),
            rest if rest.starts_with('/') => Some(Self { id, path: rest }),
            _ => None,
        }
    }
}

/// A request to a function's URL.
#[derive(Clone, Copy, Debug)]
pub struct UrlRequest<'a> {
    /// The URL and the path.
    pub target: UrlTarget<'a>,
    /// The method.
    pub method: &'a Method,
    /// The query, unchanged.
    pub query: &'a str,
    /// The headers.
    pub headers: &'a HeaderMap,
    /// The body.
    pub body: &'a [u8],
    /// The client's address.
    pub source: &'a str,
    /// The key that signed, if the URL asks for a signature.
    pub access_key: Option<&'a str>,
    /// The request's id.
    pub request_id: &'a str,
    /// When it arrived.
    pub at: Timestamp,
}

/// The value of a header as text; bytes that are no text are replaced.
fn text(value: &HeaderValue) -> String {
    String::from_utf8_lossy(value.as_bytes()).into_owned()
}

fn joined(into: &mut BTreeMap<String, String>, name: String, value: &str) {
    into.entry(name)
        .and_modify(|values| {
            values.push(',');
            values.push_str(value);
        })
        .or_insert_with(|| value.to_owned());
}

/// True if a body of this type is passed as text.
pub fn is_text(content_type: &str) -> bool {
    let kind = content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    kind.starts_with("text/")
        || matches!(kind.as_str(), "application/json" | "application/javascript" | "application/xml")
        || kind.ends_with("+json")
        || kind.ends_with("+xml")
}

/// The event that the function gets.
#[must_use]
pub fn event_of_request(request: &UrlRequest<'_>) -> Bytes {
    let mut headers = BTreeMap::new();
    let mut cookies = Vec::new();
    for (name, value) in request.headers {
        if *name == COOKIE {
            cookies.extend(text(value).split(';').map(|cookie| cookie.trim().to_owned()));
        } else {
            joined(&mut headers, name.as_str().to_owned(), &text(value));
        }
    }
    let mut parameters = BTreeMap::new();
    for pair in request.query.split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        let decoded = |text: &str| percent_decode_str(&text.replace('+', " ")).decode_utf8_lossy().into_owned();
        joined(&mut parameters, decoded(name), &decoded(value));
    }
    let header = |name: HeaderName| request.headers.get(name).map(text).unwrap_or_default();
    let id = request.target.id;
    let time =
        request.at.date().format(format_description!("[day]/[month repr:short]/[year]:[hour]:[minute]:[second] +0000"));
    let mut context = json!({
        "accountId": if request.access_key.is_some() { ACCOUNT } else { "anonymous" },
        "apiId": id,
        "domainName": header(HOST),
        "domainPrefix": id,
        "http": {
            "method": request.method.as_str(),
            "path": request.target.path,
            "protocol": "HTTP/1.1",
            "sourceIp": request.source,
            "userAgent": header(USER_AGENT),
        },
        "requestId": request.request_id,
        "routeKey": "$default",
        "stage": "$default",
        "time": time.unwrap_or_default(),
        "timeEpoch": request.at.millis(),
    });
    if let Some(key) = request.access_key {
        context["authorizer"] = json!({ "iam": { "accessKey": key, "accountId": ACCOUNT } });
    }
    let mut event = json!({
        "version": "2.0",
        "routeKey": "$default",
        "rawPath": request.target.path,
        "rawQueryString": request.query,
        "headers": headers,
        "requestContext": context,
        "isBase64Encoded": false,
    });
    if !cookies.is_empty() {
        event["cookies"] = json!(cookies);
    }
    if !parameters.is_empty() {
        event["queryStringParameters"] = json!(parameters);
    }
    if !request.body.is_empty() {
        match std::str::from_utf8(request.body) {
            Ok(body) if is_text(&header(CONTENT_TYPE)) => event["body"] = body.into(),
            _ => {
                event["body"] = STANDARD.encode(request.body).into();
                event["isBase64Encoded"] = true.into();
            }
        }
    }
    Bytes::from(event.to_string())
}

/// What the client gets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UrlResponse {
    /// The status.
    pub status: StatusCode,
    /// The headers.
    pub headers: HeaderMap,
    /// The body.
    pub body: Bytes,
}

/// Why a function's answer is no response.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("the function's answer is not a valid HTTP response: {0}")]
pub struct ResponseError(String);

fn refused(why: impl Into<String>) -> ResponseError {
    ResponseError(why.into())
}

/// The response of a function's answer: if it has a `statusCode`, what it says; else 200 with the answer as JSON.
///
/// # Errors
/// If it has a `statusCode` and its other fields cannot be a response.
pub fn response_of_answer(answer: Bytes) -> Result<UrlResponse, ResponseError> {
    let object: Option<Map<String, Value>> = serde_json::from_slice(&answer).ok();
    let Some(object) = object.filter(|object| object.contains_key("statusCode")) else {
        let headers = HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static("application/json"))]);
        return Ok(UrlResponse { status: StatusCode::OK, headers, body: answer });
    };
    let status = object.get("statusCode").and_then(status).ok_or_else(|| refused("statusCode is no status"))?;
    let mut headers = HeaderMap::new();
    match object.get("headers") {
        None | Some(Value::Null) => {}
        Some(Value::Object(given)) => {
            for (name, value) in given {
                let bad = || refused(format!("{name:?} is no header"));
                let name_bytes = name.to_ascii_lowercase();
                if OF_THE_CONNECTION.contains(&name_bytes.as_str()) {
                    continue;
                }
                let header = HeaderName::try_from(name_bytes).map_err(|_| bad())?;
                let value = match value {
                    Value::String(text) => text.clone(),
                    Value::Number(_) | Value::Bool(_) => value.to_string(),
                    _ => return Err(bad()),
                };
                headers.insert(header, HeaderValue::try_from(value).map_err(|_| bad())?);
            }
        }
        Some(_) => return Err(refused("headers is no object")),
    }
    match object.get("cookies") {
        None | Some(Value::Null) => {}
        Some(Value::Array(cookies)) => {
            for cookie in cookies {
                let cookie = cookie.as_str().and_then(|cookie| HeaderValue::from_str(cookie).ok());
                headers.append(SET_COOKIE, cookie.ok_or_else(|| refused("a cookie is not a text of one line"))?);
            }
        }
        Some(_) => return Err(refused("cookies is no list")),
    }
    headers.entry(CONTENT_TYPE).or_insert(HeaderValue::from_static("application/json"));
    let is_base64 = object.get("isBase64Encoded").and_then(Value::as_bool).unwrap_or(false);
    let body = match object.get("body") {
        None | Some(Value::Null) => Bytes::new(),
        Some(Value::String(text)) if is_base64 => {
            STANDARD.decode(text).map_err(|error| refused(format!("body is no base64: {error}")))?.into()
        }
        Some(Value::String(text)) => Bytes::from(text.clone()),
        Some(other) => Bytes::from(other.to_string()),
    };
    Ok(UrlResponse { status, headers, body })
}

/// A final status, also written as text.
fn status(value: &Value) -> Option<StatusCode> {
    let code = value.as_u64().or_else(|| value.as_str()?.parse().ok())?;
    StatusCode::from_u16(u16::try_from(code).ok()?).ok().filter(|status| !status.is_informational())
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "abcdefghijklmnopqrstuvwxyz012345";

    #[test]
    fn a_url_is_known_by_name_and_by_path() {
        let host = format!("{ID}.lambda-url.localhost:9401");
        assert_eq!(UrlTarget::of(Some(&host), "/a/b"), Some(UrlTarget { id: ID, path: "/a/b" }));
        for (path, seen) in [(format!("/lambda-url/{ID}"), "/"), (format!("/lambda-url/{ID}/a%20b"), "/a%20b")] {
            assert_eq!(UrlTarget::of(Some("127.0.0.1:1"), &path), Some(UrlTarget { id: ID, path: seen }));
        }
        let (short, name) = (format!("/lambda-url/{}", &ID[1..]), format!("{ID}.other.localhost"));
        assert_eq!(UrlTarget::of(None, &short), None);
        assert_eq!(UrlTarget::of(Some(&name), "/2015-03-31/functions"), None);
        assert_eq!(UrlTarget::of(None, &format!("/lambda-url/{ID}x")), None);
        assert_eq!(UrlTarget::of(None, "/lambda-url/äöüäöüäöüäöüäöüäöü"), None);
    }

    fn event(headers: &[(&'static str, &str)], query: &str, body: &[u8]) -> Value {
        let headers = headers
            .iter()
            .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_str(value).unwrap()))
            .fold(HeaderMap::new(), |mut map, (name, value)| {
                map.append(name, value);
                map
            });
        let request = UrlRequest {
            target: UrlTarget { id: ID, path: "/p" },
            method: &Method::POST,
            query,
            headers: &headers,
            body,
            source: "127.0.0.1",
            access_key: None,
            request_id: "request",
            at: Timestamp(1_700_000_000_000),
        };
        serde_json::from_slice(&event_of_request(&request)).unwrap()
    }

    #[test]
    fn a_request_becomes_an_event_of_format_2() {
        let json =
            [("content-type", "application/json; charset=utf-8"), ("cookie", "a=1; b=2"), ("x-a", "1"), ("x-a", "2")];
        let event = event(&json, "q=a+b&q=%C3%BC&z", b"{\"n\": 1}");
        assert_eq!(event["version"], "2.0");
        assert_eq!(event["headers"], json!({ "content-type": "application/json; charset=utf-8", "x-a": "1,2" }));
        assert_eq!(event["cookies"], json!(["a=1", "b=2"]));
        assert_eq!(event["queryStringParameters"], json!({ "q": "a b,ü", "z": "" }));
        assert_eq!((&event["body"], &event["isBase64Encoded"]), (&json!("{\"n\": 1}"), &json!(false)));
        assert_eq!(event["requestContext"]["http"]["method"], "POST");
        assert_eq!(event["requestContext"]["time"], "14/Nov/2023:22:13:20 +0000");
        assert_eq!(event["requestContext"]["accountId"], "anonymous");
    }

    #[test]
    fn what_is_no_text_comes_as_base64() {
        for (kind, body) in [("application/octet-stream", &b"abc"[..]), ("text/plain", b"\xff\xfe")] {
            let event = event(&[("content-type", kind)], "", body);
            assert_eq!(event["isBase64Encoded"], true, "{kind}");
            assert_eq!(event["body"], STANDARD.encode(body));
        }
        assert!(event(&[], "", b"").get("body").is_none());
    }

    fn response(answer: Value) -> Result<UrlResponse, ResponseError> {
        response_of_answer(Bytes::from(answer.to_string()))
    }

    #[test]
    fn an_answer_with_a_status_is_the_response_and_any_other_is_json() {
        let said = response(json!({
            "statusCode": 201, "headers": { "Content-Type": "text/html", "X-N": 7, "Connection": "close" },
            "cookies": ["a=1", "b=2"], "body": "PGI+", "isBase64Encoded": true,
        }))
        .unwrap();
        assert_eq!((said.status.as_u16(), said.body.as_ref()), (201, &b"<b>"[..]));
        assert_eq!(said.headers[CONTENT_TYPE], "text/html");
        assert_eq!(said.headers["x-n"], "7");
        assert_eq!(said.headers.get_all(SET_COOKIE).iter().count(), 2);
        assert!(!said.headers.contains_key("connection"));
        for plain in [json!("text"), json!({ "message": 1 }), json!(null), json!([1])] {
            let said = response(plain.clone()).unwrap();
            assert_eq!((said.status, said.body), (StatusCode::OK, Bytes::from(plain.to_string())));
            assert_eq!(said.headers[CONTENT_TYPE], "application/json");
        }
        assert_eq!(response(json!({ "statusCode": "404", "body": { "a": 1 } })).unwrap().body, "{\"a\":1}");
    }

    #[test]
    fn what_cannot_be_a_response_is_refused() {
        for bad in [
            json!({ "statusCode": 42 }),
            json!({ "statusCode": 100 }),
            json!({ "statusCode": 200, "headers": { "a b": "c" } }),
            json!({ "statusCode": 200, "headers": { "a": "x\ny" } }),
            json!({ "statusCode": 200, "headers": [] }),
            json!({ "statusCode": 200, "cookies": ["a\r\nb"] }),
            json!({ "statusCode": 200, "body": "?", "isBase64Encoded": true }),
        ] {
            assert!(response(bad.clone()).is_err(), "{bad}");
        }
    }
}
