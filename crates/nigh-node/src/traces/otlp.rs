//! A batch of spans as an `ExportTraceServiceRequest` in JSON. Pure.
//!
//! OTLP's JSON is protobuf's, but ids are hexadecimal; 64-bit numbers are texts, and enums are numbers.

use nigh_trace::{FinishedSpan, Value};
use serde::Serialize;

/// The status code `STATUS_CODE_ERROR`.
const ERROR: u8 = 2;

/// What all spans of a node share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Resource(Vec<(&'static str, String)>);

impl Resource {
    /// The resource of the node called `node`, in the service `service`.
    pub(super) fn new(service: &str, node: &str) -> Self {
        Self(vec![
            ("service.name", service.to_owned()),
            ("service.version", env!("CARGO_PKG_VERSION").to_owned()),
            ("service.instance.id", node.to_owned()),
            ("cloud.provider", "nigh".to_owned()),
            ("process.pid", std::process::id().to_string()),
        ])
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Request<'a> {
    resource_spans: [ResourceSpans<'a>; 1],
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ResourceSpans<'a> {
    resource: ResourceMessage<'a>,
    scope_spans: [ScopeSpans<'a>; 1],
}

#[derive(Serialize)]
struct ResourceMessage<'a> {
    attributes: Vec<KeyValue<'a>>,
}

#[derive(Serialize)]
struct ScopeSpans<'a> {
    scope: Scope,
    spans: Vec<Span<'a>>,
}

#[derive(Serialize)]
struct Scope {
    name: &'static str,
    version: &'static str,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Span<'a> {
    trace_id: String,
    span_id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    parent_span_id: Option<String>,
    flags: u32,
    name: &'a str,
    kind: u8,
    start_time_unix_nano: String,
    end_time_unix_nano: String,
    attributes: Vec<KeyValue<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<Status<'a>>,
}

#[derive(Serialize)]
struct KeyValue<'a> {
    key: &'a str,
    value: AnyValue<'a>,
}

#[derive(Serialize)]
enum AnyValue<'a> {
    #[serde(rename = "stringValue")]
    Text(&'a str),
    #[serde(rename = "intValue")]
    Integer(String),
    #[serde(rename = "boolValue")]
    Flag(bool),
}

#[derive(Serialize)]
struct Status<'a> {
    code: u8,
    message: &'a str,
}

/// The request that carries `spans`.
pub(super) fn request(resource: &Resource, spans: &[FinishedSpan]) -> Vec<u8> {
    let shared = resource.0.iter().map(|(key, value)| KeyValue { key, value: AnyValue::Text(value) });
    let request = Request {
        resource_spans: [ResourceSpans {
            resource: ResourceMessage { attributes: shared.collect() },
            scope_spans: [ScopeSpans {
                scope: Scope { name: "nigh", version: env!("CARGO_PKG_VERSION") },
                spans: spans.iter().map(span).collect(),
            }],
        }],
    };
    // Plain data with names as keys: this cannot fail.
    serde_json::to_vec(&request).unwrap_or_default()
}

fn span(finished: &FinishedSpan) -> Span<'_> {
    Span {
        trace_id: finished.context.trace.to_string(),
        span_id: finished.context.span.to_string(),
        parent_span_id: finished.parent.map(|parent| parent.to_string()),
        flags: u32::from(finished.context.sampled),
        name: &finished.name,
        kind: finished.kind as u8,
        start_time_unix_nano: finished.start_ns.to_string(),
        end_time_unix_nano: finished.end_ns.to_string(),
        attributes: finished.attributes.iter().map(|(key, value)| attribute(key, value)).collect(),
        status: finished.failure.as_deref().map(|message| Status { code: ERROR, message }),
    }
}

fn attribute<'a>(key: &'a str, value: &'a Value) -> KeyValue<'a> {
    let value = match value {
        Value::Text(text) => AnyValue::Text(text),
        Value::Integer(number) => AnyValue::Integer(number.to_string()),
        Value::Flag(flag) => AnyValue::Flag(*flag),
    };
    KeyValue { key, value }
}

#[cfg(test)]
mod tests {
    use nigh_trace::{SpanContext, SpanId, SpanKind};
    use serde_json::json;

    use super::*;

    #[test]
    fn a_batch_has_the_form_of_the_standard_s_example() {
        let context = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
        let child = FinishedSpan {
            context: SpanContext::of_traceparent(context).unwrap(),
            parent: SpanId::of_bits(0xabc),
            name: "S3.GetObject".into(),
            kind: SpanKind::Server,
            start_ns: 1_700_000_000_000_000_001,
            end_ns: u64::MAX,
            attributes: vec![
                ("aws.s3.key", Value::from("a \"b\"\n")),
                ("nigh.bytes", Value::Integer(i64::MAX)),
                ("faas.coldstart", Value::Flag(true)),
            ],
            failure: Some("why".to_owned()),
        };
        let root = FinishedSpan { parent: None, failure: None, attributes: Vec::new(), ..child.clone() };
        let bytes = request(&Resource::new("shop", "n1"), &[child, root]);
        let value: serde_json::Value = serde_json::from_slice(&bytes).unwrap();
        let of_resource = &value["resourceSpans"][0]["resource"]["attributes"];
        assert_eq!(of_resource[0], json!({ "key": "service.name", "value": { "stringValue": "shop" } }));
        let scope = &value["resourceSpans"][0]["scopeSpans"][0];
        assert_eq!(scope["scope"]["name"], "nigh");
        assert_eq!(
            scope["spans"][0],
            json!({
                "traceId": "0af7651916cd43dd8448eb211c80319c",
                "spanId": "b7ad6b7169203331",
                "parentSpanId": "0000000000000abc",
                "flags": 1,
                "name": "S3.GetObject",
                "kind": 2,
                "startTimeUnixNano": "1700000000000000001",
                "endTimeUnixNano": "18446744073709551615",
                "attributes": [
                    { "key": "aws.s3.key", "value": { "stringValue": "a \"b\"\n" } },
                    { "key": "nigh.bytes", "value": { "intValue": "9223372036854775807" } },
                    { "key": "faas.coldstart", "value": { "boolValue": true } },
                ],
                "status": { "code": 2, "message": "why" },
            })
        );
        let root = scope["spans"][1].as_object().unwrap();
        assert!(!root.contains_key("parentSpanId") && !root.contains_key("status"));
    }
}
