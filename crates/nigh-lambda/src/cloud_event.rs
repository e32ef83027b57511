//! CloudEvents over HTTP: a posted event is converted into the event's JSON form, and an answer that is an event is returned
//! in the sender's mode. Pure.
//!
//! Follows CloudEvents 1.0.2: the specification, its JSON event format, and the HTTP protocol binding (binary and structured
//! content mode; batches are rejected).

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderName, HeaderValue};
use nigh_functions::function_url::is_text;
use percent_encoding::{AsciiSet, CONTROLS, percent_decode_str, utf8_percent_encode};
use serde_json::{Map, Value};
use thiserror::Error;

const SPEC_VERSION: &str = "1.0";
const STRUCTURED: &str = "application/cloudevents+json";
const PREFIX: &str = "ce-";
/// The attributes that every event has.
const REQUIRED: [&str; 4] = ["id", "source", "specversion", "type"];
/// The longest name of an attribute; the specification asks senders for 20 at most, and receivers to be lenient.
const NAME_BYTES_MAX: usize = 64;
/// Characters that headers encode (HTTP binding, 3.1.3.2): all but printable ASCII, and space, `"` and `%`.
const ENCODED: &AsciiSet = &CONTROLS.add(b' ').add(b'"').add(b'%');

/// The form of an event in a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ContentMode {
    /// Attributes in headers, data in the body.
    Binary,
    /// All of it in the body.
    Structured,
}

/// Why a message is no valid event.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[expect(missing_docs, reason = "each message says what the fields hold")]
pub enum CloudEventError {
    #[error("the message is not a CloudEvent: it has neither ce- headers nor the type {STRUCTURED}")]
    NoEvent,
    #[error("batches of CloudEvents and formats other than JSON are not supported: {0}")]
    Format(String),
    #[error("the CloudEvent has the specversion {0:?}; {SPEC_VERSION} is supported")]
    Version(String),
    #[error("the CloudEvent has no {0}")]
    Missing(&'static str),
    #[error("the CloudEvent is malformed: {0}")]
    Malformed(String),
}

fn malformed(why: impl Into<String>) -> CloudEventError {
    CloudEventError::Malformed(why.into())
}

fn content_type(headers: &HeaderMap) -> Option<&str> {
    headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok())
}

fn media_type(content_type: &str) -> String {
    content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase()
}

fn is_json(content_type: &str) -> bool {
    let kind = media_type(content_type);
    kind == "application/json" || kind == "text/json" || kind.ends_with("+json")
}

/// The event of a message in its JSON form, and its mode.
///
/// # Errors
/// If the message has no event, or one that violates the specification.
pub fn read(headers: &HeaderMap, body: &[u8]) -> Result<(ContentMode, Map<String, Value>), CloudEventError> {
    let kind = content_type(headers).map(media_type).unwrap_or_default();
    if kind == STRUCTURED {
        let event: Map<String, Value> =
            serde_json::from_slice(body).map_err(|error| malformed(format!("its body is no JSON object: {error}")))?;
        check(&event)?;
        return Ok((ContentMode::Structured, event));
    }
    if kind.starts_with("application/cloudevents") {
        return Err(CloudEventError::Format(kind));
    }
    let mut event = Map::new();
    for (name, value) in headers {
        let Some(attribute) = name.as_str().strip_prefix(PREFIX) else { continue };
        let bad = || malformed(format!("the header {name}"));
        let value = value.to_str().map_err(|_| bad())?;
        let value = percent_decode_str(value).decode_utf8().map_err(|_| bad())?;
        if event.insert(attribute.to_owned(), value.into_owned().into()).is_some() {
            return Err(malformed(format!("the header {name} stands twice")));
        }
    }
    if !event.contains_key("specversion") {
        return Err(CloudEventError::NoEvent);
    }
    // The type of the data is the message's own; data is its body.
    if let Some(name) = ["data", "data_base64", "datacontenttype"].iter().find(|name| event.contains_key(**name)) {
        return Err(malformed(format!("there is no header {PREFIX}{name}")));
    }
    if let Some(kind) = content_type(headers) {
        event.insert("datacontenttype".to_owned(), kind.into());
        if is_json(kind) && !body.is_empty() {
            let data =
                serde_json::from_slice(body).map_err(|error| malformed(format!("its data is no JSON: {error}")))?;
            event.insert("data".to_owned(), data);
        }
    }
    check(&event)?;
    if !body.is_empty() && !event.contains_key("data") {
        match std::str::from_utf8(body) {
            Ok(text) if content_type(headers).is_some_and(is_text) => {
                event.insert("data".to_owned(), text.into());
            }
            _ => {
                event.insert("data_base64".to_owned(), STANDARD.encode(body).into());
            }
        }
    }
    Ok((ContentMode::Binary, event))
}

/// Whether `answer` looks like an event.
#[must_use]
pub fn is_event(answer: &Map<String, Value>) -> bool {
    answer.contains_key("specversion") && check(answer).is_ok()
}

fn check(event: &Map<String, Value>) -> Result<(), CloudEventError> {
    for name in REQUIRED {
        let value = event.get(name).ok_or(CloudEventError::Missing(name))?;
        let text = value.as_str().ok_or_else(|| malformed(format!("{name} is no text")))?;
        if text.is_empty() {
            return Err(malformed(format!("{name} is empty")));
        }
        if name == "specversion" && text != SPEC_VERSION {
            return Err(CloudEventError::Version(text.chars().take(NAME_BYTES_MAX).collect()));
        }
    }
    for (name, value) in event.iter().filter(|(name, _)| !matches!(name.as_str(), "data" | "data_base64")) {
        let good = (1..=NAME_BYTES_MAX).contains(&name.len())
            && name.bytes().all(|octet| octet.is_ascii_lowercase() || octet.is_ascii_digit());
        if !good {
            return Err(malformed(format!("{name:?} is no attribute's name")));
        }
        if value.is_object() || value.is_array() {
            return Err(malformed(format!("the attribute {name} is no single value")));
        }
    }
    if event.contains_key("data") && event.contains_key("data_base64") {
        return Err(malformed("it has both data and data_base64"));
    }
    Ok(())
}

/// The headers and the body of a message with `event` in `mode`.
///
/// # Errors
/// If `event` is no event, or its data does not have its content type.
pub fn write(mode: ContentMode, event: &Map<String, Value>) -> Result<(HeaderMap, Bytes), CloudEventError> {
    check(event)?;
    let mut headers = HeaderMap::new();
    if mode == ContentMode::Structured {
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(STRUCTURED));
        let body = serde_json::to_vec(event).map_err(|error| malformed(error.to_string()))?;
        return Ok((headers, body.into()));
    }
    let mut kind = None;
    for (name, value) in event {
        let text = match value {
            _ if matches!(name.as_str(), "data" | "data_base64") => continue,
            Value::Null => continue,
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        let bad = || malformed(format!("the attribute {name}"));
        if name == "datacontenttype" {
            headers.insert(CONTENT_TYPE, HeaderValue::from_str(&text).map_err(|_| bad())?);
            kind = Some(text);
            continue;
        }
        let value = utf8_percent_encode(&text, ENCODED).to_string();
        let name = HeaderName::try_from(format!("{PREFIX}{name}")).map_err(|_| bad())?;
        headers.insert(name, HeaderValue::try_from(value).map_err(|_| bad())?);
    }
    let body = match (event.get("data"), event.get("data_base64")) {
        (None, None) => Bytes::new(),
        (None, Some(Value::String(text))) => {
            STANDARD.decode(text).map_err(|error| malformed(format!("data_base64: {error}")))?.into()
        }
        (Some(Value::String(text)), _) if kind.as_deref().is_some_and(|kind| !is_json(kind)) => {
            Bytes::from(text.clone())
        }
        (Some(data), _) => {
            headers.entry(CONTENT_TYPE).or_insert(HeaderValue::from_static("application/json"));
            Bytes::from(data.to_string())
        }
        (None, Some(_)) => return Err(malformed("data_base64 is no text")),
    };
    Ok((headers, body))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn headers(fields: &[(&'static str, &str)]) -> HeaderMap {
        let fields =
            fields.iter().map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_str(value).unwrap()));
        fields.collect()
    }

    const EVENT: [(&str, &str); 4] = [("ce-specversion", "1.0"), ("ce-id", "1"), ("ce-source", "/s"), ("ce-type", "t")];

    #[test]
    fn an_event_in_headers_becomes_json_and_goes_back_as_it_came() {
        for (kind, body, member, data) in [
            ("application/json", &b"{\"n\":1}"[..], "data", json!({ "n": 1 })),
            ("application/vnd.x+json", b"[1]", "data", json!([1])),
            ("text/plain", "grün".as_bytes(), "data", json!("grün")),
            ("image/png", b"\x89PNG", "data_base64", json!("iVBORw==")),
        ] {
            let mut fields = EVENT.to_vec();
            fields.extend([("content-type", kind), ("ce-subject", "gr%C3%BCn%20%25"), ("host", "x")]);
            let (mode, event) = read(&headers(&fields), body).unwrap();
            assert_eq!(mode, ContentMode::Binary);
            assert_eq!((&event["subject"], &event["datacontenttype"]), (&json!("grün %"), &json!(kind)));
            assert_eq!(event[member], data, "{kind}");
            let (out, sent) = write(mode, &event).unwrap();
            assert_eq!((sent.as_ref(), out[CONTENT_TYPE].as_bytes()), (body, kind.as_bytes()));
            assert_eq!(out["ce-subject"], "gr%C3%BCn%20%25");
            assert!(!out.contains_key("ce-datacontenttype") && !out.contains_key("host"));
        }
    }

    #[test]
    fn an_event_in_a_body_is_taken_as_it_is() {
        let event =
            json!({ "specversion": "1.0", "id": "1", "source": "/s", "type": "t", "ext": true, "data": { "n": 1 } });
        let kind = headers(&[("content-type", "application/cloudevents+json; charset=utf-8")]);
        let (mode, read) = read(&kind, event.to_string().as_bytes()).unwrap();
        assert_eq!((mode, Value::Object(read.clone())), (ContentMode::Structured, event));
        let (out, body) = write(mode, &read).unwrap();
        assert_eq!(out[CONTENT_TYPE], STRUCTURED);
        assert_eq!(serde_json::from_slice::<Map<String, Value>>(&body).unwrap(), read);
    }

    #[test]
    fn what_is_no_event_is_told_from_a_broken_one() {
        let structured = |body: &str| read(&headers(&[("content-type", STRUCTURED)]), body.as_bytes()).unwrap_err();
        assert_eq!(read(&HeaderMap::new(), b"{}"), Err(CloudEventError::NoEvent));
        assert!(matches!(
            read(&headers(&[("content-type", "application/cloudevents-batch+json")]), b"[]"),
            Err(CloudEventError::Format(_))
        ));
        assert_eq!(read(&headers(&EVENT[..3]), b""), Err(CloudEventError::Missing("type")));
        let mut old = EVENT;
        old[0].1 = "0.3";
        assert_eq!(read(&headers(&old), b""), Err(CloudEventError::Version("0.3".to_owned())));
        for (body, words) in [
            ("[]", "no JSON object"),
            (r#"{"specversion":"1.0","id":"","source":"s","type":"t"}"#, "id is empty"),
            (r#"{"specversion":"1.0","id":"1","source":"s","type":"t","Big":1}"#, "attribute's name"),
            (r#"{"specversion":"1.0","id":"1","source":"s","type":"t","a":[]}"#, "single value"),
            (r#"{"specversion":"1.0","id":"1","source":"s","type":"t","data":1,"data_base64":"AA=="}"#, "both"),
        ] {
            assert!(structured(body).to_string().contains(words), "{body}");
        }
        let mut json = EVENT.to_vec();
        json.push(("content-type", "application/json"));
        assert!(read(&headers(&json), b"{").unwrap_err().to_string().contains("its data"));
        assert!(!is_event(json!({ "specversion": "1.0" }).as_object().unwrap()));
    }
}
