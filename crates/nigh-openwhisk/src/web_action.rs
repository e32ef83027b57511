//! Converts requests into inputs of web actions, with `__ow_*` members, and answers into responses. Pure.
//!
//! OpenWhisk documentation, "Web actions".

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Response, StatusCode};
use http_body_util::Full;
use nigh_functions::action::parameters::Parameters;
use nigh_functions::function_url::OF_THE_CONNECTION;
use serde_json::{Map, Value};

use super::error::WhiskError;
use super::query::Query;

/// Members that callers may not set.
const RESERVED: [&str; 6] = ["__ow_method", "__ow_headers", "__ow_path", "__ow_user", "__ow_query", "__ow_body"];
/// The annotation of an action that anybody may call.
pub(super) const EXPORTED: &str = "web-export";
/// The annotation of an action that gets requests unparsed.
pub(super) const RAW: &str = "raw-http";
/// The annotation of an action that answers OPTIONS itself.
pub(super) const OWN_OPTIONS: &str = "web-custom-options";
/// The annotation of an action that requires authentication.
pub(super) const GUARDED: &str = "require-whisk-auth";
/// The header with the secret that such an action requires.
const GUARD_HEADER: &str = "x-require-whisk-auth";

/// A request to a web action.
#[derive(Clone, Copy, Debug)]
pub(super) struct WebRequest<'a> {
    pub(super) method: &'a Method,
    pub(super) headers: &'a HeaderMap,
    /// The path behind the action.
    pub(super) path: &'a str,
    pub(super) query: &'a str,
    pub(super) body: &'a [u8],
    /// The namespace of the caller's key, if there is one.
    pub(super) user: Option<&'a str>,
}

/// The form of the answer, by the extension of the action's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Extension {
    Http,
    Json,
    Html,
    Svg,
    Text,
}

impl Extension {
    /// The action's name and the extension in `name`; the default is `.http`.
    pub(super) fn split(name: &str) -> (&str, Self) {
        let all = [
            (".http", Self::Http),
            (".json", Self::Json),
            (".html", Self::Html),
            (".svg", Self::Svg),
            (".text", Self::Text),
        ];
        let found = all.iter().find_map(|(ending, extension)| Some((name.strip_suffix(ending)?, *extension)));
        found.unwrap_or((name, Self::Http))
    }
}

/// Whether a caller may call an action with these annotations. `user`: the caller has a key.
pub(super) fn may_call(annotations: &Parameters, request: &WebRequest<'_>) -> bool {
    let shows =
        |secret: &str| request.headers.get(GUARD_HEADER).is_some_and(|shown| shown.as_bytes() == secret.as_bytes());
    match annotations.get(GUARDED) {
        None | Some(Value::Bool(false)) => true,
        Some(Value::Bool(true)) => request.user.is_some(),
        Some(Value::String(secret)) => shows(secret),
        Some(Value::Number(secret)) => shows(&secret.to_string()),
        Some(_) => false,
    }
}

/// The header's value as text.
fn text(value: &HeaderValue) -> String {
    String::from_utf8_lossy(value.as_bytes()).into_owned()
}

/// `type/subtype`, in lower case.
fn media_type(headers: &HeaderMap) -> String {
    let value = headers.get(CONTENT_TYPE).map(text).unwrap_or_default();
    value.split(';').next().unwrap_or_default().trim().to_ascii_lowercase()
}

fn is_json(media: &str) -> bool {
    media == "application/json" || media.ends_with("+json")
}

/// Whether a body of this type is text.
fn is_text(media: &str) -> bool {
    media.starts_with("text/")
        || is_json(media)
        || media.ends_with("+xml")
        || ["application/xml", "application/javascript", "application/x-www-form-urlencoded"].contains(&media)
}

/// The input of an action for `request`. `fixed` are the parameters that callers may not set.
pub(super) fn input(request: &WebRequest<'_>, is_raw: bool, fixed: &[&str]) -> Result<Map<String, Value>, WhiskError> {
    let media = media_type(request.headers);
    let as_text = |binary: bool| match std::str::from_utf8(request.body) {
        Ok(text) if !binary => Value::String(text.to_owned()),
        _ => Value::String(STANDARD.encode(request.body)),
    };
    let body = if request.body.is_empty() {
        None
    } else if is_json(&media) && !is_raw {
        let malformed = |error| WhiskError::bad_request(format!("The request content was malformed: {error}"));
        Some(serde_json::from_slice::<Value>(request.body).map_err(malformed)?)
    } else if media == "application/x-www-form-urlencoded" && !is_raw {
        let form = String::from_utf8_lossy(request.body);
        Some(Value::Object(
            Query::of(&form).into_pairs().into_iter().map(|(name, value)| (name, value.into())).collect(),
        ))
    } else {
        // JSON is encoded for raw actions, as OpenWhisk does.
        Some(as_text(!is_text(&media) || media == "application/json"))
    };
    let mut said = Map::new();
    if is_raw {
        said.insert("__ow_query".to_owned(), request.query.into());
        said.insert("__ow_body".to_owned(), body.unwrap_or_else(|| "".into()));
    } else {
        let asked = Query::of(request.query).into_pairs();
        let asked: Map<String, Value> = asked.into_iter().map(|(name, value)| (name, value.into())).collect();
        refuse(&asked, fixed)?;
        said.extend(asked);
        match body {
            Some(Value::Object(members)) => {
                refuse(&members, fixed)?;
                said.extend(members);
            }
            Some(other) => drop(said.insert("__ow_body".to_owned(), other)),
            None => {}
        }
    }
    let mut headers: Map<String, Value> = Map::new();
    for (name, value) in request.headers {
        let value = text(value);
        match headers.get_mut(name.as_str()) {
            Some(Value::String(values)) => values.push_str(&format!(", {value}")),
            _ => drop(headers.insert(name.as_str().to_owned(), value.into())),
        }
    }
    said.insert("__ow_method".to_owned(), request.method.as_str().to_ascii_lowercase().into());
    said.insert("__ow_headers".to_owned(), headers.into());
    said.insert("__ow_path".to_owned(), request.path.into());
    if let Some(user) = request.user {
        said.insert("__ow_user".to_owned(), user.into());
    }
    Ok(said)
}

fn refuse(said: &Map<String, Value>, fixed: &[&str]) -> Result<(), WhiskError> {
    if said.keys().any(|name| RESERVED.contains(&name.as_str()) || fixed.contains(&name.as_str())) {
        return Err(WhiskError::bad_request(
            "Request defines parameters that are not allowed (e.g., reserved properties).",
        ));
    }
    Ok(())
}

/// The response for `result` by `extension`. `failed`: `result` is an error of the action.
pub(super) fn response(
    extension: Extension,
    result: &Value,
    failed: bool,
) -> Result<Response<Full<Bytes>>, WhiskError> {
    let result = if failed { result.get(super::response::ERROR).unwrap_or(&Value::Null) } else { result };
    let member = |name: &str| result.get("body").or_else(|| result.get(name));
    let media = |kind: &str| WhiskError::bad_request(format!("Response is not valid '{kind}'."));
    match extension {
        Extension::Http => http_response(result),
        Extension::Json if result.is_object() || result.is_array() => {
            Ok(of(StatusCode::OK, "application/json", result.to_string().into()))
        }
        Extension::Json => Err(media("application/json")),
        Extension::Html | Extension::Svg => {
            let (name, kind, shown) = match extension {
                Extension::Svg => ("svg", "image/svg+xml", "image/svg+xml"),
                _ => ("html", "text/html", "text/html; charset=UTF-8"),
            };
            let body = if result.is_object() { member(name) } else { Some(result) };
            let body = body.and_then(Value::as_str).ok_or_else(|| media(kind))?;
            Ok(of(StatusCode::OK, shown, body.to_owned().into()))
        }
        Extension::Text => {
            let body = if result.is_object() { member("text") } else { Some(result) };
            let body = body.ok_or_else(|| WhiskError::absent("Response does not include requested property."))?;
            let shown = match body {
                Value::String(text) => text.clone(),
                Value::Object(_) | Value::Array(_) => serde_json::to_string_pretty(body).unwrap_or_default(),
                other => other.to_string(),
            };
            Ok(of(StatusCode::OK, "text/plain; charset=UTF-8", shown.into()))
        }
    }
}

fn of(status: StatusCode, kind: &str, body: Bytes) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body));
    *response.status_mut() = status;
    if let Ok(kind) = HeaderValue::from_str(kind) {
        response.headers_mut().insert(CONTENT_TYPE, kind);
    }
    response
}

/// The response for `{statusCode, headers, body}`.
fn http_response(result: &Value) -> Result<Response<Full<Bytes>>, WhiskError> {
    let invalid = || WhiskError::bad_request("Response is not valid 'message/http'.");
    let unmatched = || WhiskError::bad_request("Response type in header did not match generated content type.");
    let object = result.as_object().ok_or_else(invalid)?;
    let headers = match object.get("headers") {
        None => HeaderMap::new(),
        Some(Value::Object(headers)) => response_headers(headers).ok_or_else(invalid)?,
        Some(_) => return Err(invalid()),
    };
    let code = match object.get("statusCode") {
        None => None,
        Some(Value::Number(code)) => Some(code.as_u64().ok_or_else(invalid)?),
        Some(Value::String(code)) => Some(code.parse().map_err(|_| invalid())?),
        Some(_) => return Err(invalid()),
    };
    let status = |or: StatusCode| match code {
        None => Ok(or),
        // Informational statuses belong to the connection.
        Some(code) => u16::try_from(code)
            .ok()
            .filter(|code| *code >= 200)
            .and_then(|code| StatusCode::from_u16(code).ok())
            .ok_or_else(invalid),
    };
    let media = media_type(&headers);
    let given = headers.get(CONTENT_TYPE).map(text);
    let (status, kind, body) = match object.get("body") {
        None | Some(Value::Null) => (status(StatusCode::NO_CONTENT)?, None, Bytes::new()),
        Some(Value::String(body)) if body.is_empty() => (status(StatusCode::NO_CONTENT)?, None, Bytes::new()),
        Some(Value::String(body)) => {
            let decoded = || STANDARD.decode(body.as_bytes()).ok();
            let bytes = if given.is_none() || (is_text(&media) && !is_json(&media)) {
                body.clone().into()
            } else if is_json(&media) {
                // Older actions return JSON in base64.
                decoded().filter(|bytes| !bytes.is_empty()).map_or_else(|| body.clone().into(), Bytes::from)
            } else {
                decoded().map(Bytes::from).ok_or_else(unmatched)?
            };
            (status(StatusCode::OK)?, Some(given.unwrap_or_else(|| "text/html; charset=UTF-8".to_owned())), bytes)
        }
        Some(value) => {
            if given.is_some() && !is_json(&media) {
                return Err(unmatched());
            }
            let body = value.to_string().into();
            (status(StatusCode::OK)?, Some(given.unwrap_or_else(|| "application/json".to_owned())), body)
        }
    };
    let mut response = Response::new(Full::new(body));
    *response.status_mut() = status;
    *response.headers_mut() = headers;
    response.headers_mut().remove(CONTENT_TYPE);
    if let Some(kind) = kind.and_then(|kind| HeaderValue::from_str(&kind).ok()) {
        response.headers_mut().insert(CONTENT_TYPE, kind);
    }
    Ok(response)
}

/// The headers of an action's answer, without those of the connection; none if one is invalid.
fn response_headers(given: &Map<String, Value>) -> Option<HeaderMap> {
    let mut headers = HeaderMap::new();
    for (name, value) in given {
        let name = HeaderName::try_from(name.as_str()).ok()?;
        if OF_THE_CONNECTION.contains(&name.as_str()) {
            continue;
        }
        let values = match value {
            Value::Array(values) => values.iter().collect(),
            one => vec![one],
        };
        for value in values {
            let text = match value {
                Value::String(text) => text.clone(),
                Value::Bool(_) | Value::Number(_) => value.to_string(),
                _ => return None,
            };
            headers.append(name.clone(), HeaderValue::from_str(&text).ok()?);
        }
    }
    Some(headers)
}

/// The headers that allow pages of other origins to call; `asked` are the headers that they want to send.
pub(super) fn cors(headers: &mut HeaderMap, methods: &'static str, asked: Option<&HeaderValue>) {
    const ALLOWED: HeaderValue =
        HeaderValue::from_static("Authorization, Origin, X-Requested-With, Content-Type, Accept, User-Agent");
    for (name, value) in [
        ("access-control-allow-origin", HeaderValue::from_static("*")),
        ("access-control-allow-methods", HeaderValue::from_static(methods)),
        ("access-control-allow-headers", asked.cloned().unwrap_or(ALLOWED)),
    ] {
        headers.entry(HeaderName::from_static(name)).or_insert(value);
    }
}

#[cfg(test)]
mod tests;
