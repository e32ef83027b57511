//! The record of an asynchronous invocation's end, as its destination gets it. Pure.
//!
//! Form and names: Lambda developer guide, "Capturing records of Lambda asynchronous invocations".

use bytes::Bytes;
use nigh_functions::function_arn::{LATEST, function_arn};
use nigh_schedule::event_queue::Condition;
use nigh_terms::{FunctionName, InvocationId, Timestamp};
use serde_json::{Value, json};
use time::macros::format_description;
use uuid::Uuid;

/// How the last attempt ended.
#[derive(Clone, Debug)]
pub(crate) struct Response {
    /// What the function answered, or Lambda's error object.
    pub(crate) payload: Bytes,
    /// Set if it failed.
    pub(crate) function_error: Option<&'static str>,
}

/// The end of an event.
#[derive(Debug)]
pub(crate) struct EventEnd<'a> {
    /// The event.
    pub(crate) id: InvocationId,
    /// Its function.
    pub(crate) function: &'a FunctionName,
    /// The node's region.
    pub(crate) region: &'a str,
    /// Why it is done.
    pub(crate) condition: Condition,
    /// How often it was tried.
    pub(crate) attempts: u32,
    /// Its payload.
    pub(crate) request: &'a [u8],
    /// The last answer, if there was one since the node's start.
    pub(crate) response: Option<&'a Response>,
    /// When it was done.
    pub(crate) at: Timestamp,
}

/// JSON stays JSON; anything else becomes text.
fn value(payload: &[u8]) -> Value {
    serde_json::from_slice(payload).unwrap_or_else(|_| Value::String(String::from_utf8_lossy(payload).into_owned()))
}

/// The record.
pub(crate) fn invocation_record(end: &EventEnd<'_>) -> Bytes {
    let mut record = json!({
        "version": "1.0",
        "timestamp": end.at.rfc3339(),
        "requestContext": {
            "requestId": end.id,
            "functionArn": format!("{}:{LATEST}", function_arn(end.region, end.function)),
            "condition": end.condition.name(),
            "approximateInvokeCount": end.attempts,
        },
        "requestPayload": value(end.request),
    });
    if let Some(response) = end.response {
        let mut context = json!({ "statusCode": 200, "executedVersion": LATEST });
        if let Some(error) = response.function_error {
            context["functionError"] = error.into();
        }
        record["responseContext"] = context;
        record["responsePayload"] = value(&response.payload);
    }
    Bytes::from(record.to_string())
}

/// The key of a record in a bucket, as Lambda forms it.
pub(crate) fn record_key(function: &FunctionName, at: Timestamp) -> String {
    let date = at.date();
    let day = date.format(format_description!("[year]/[month]/[day]")).unwrap_or_default();
    let time = date.format(format_description!("[year]-[month]-[day]T[hour].[minute].[second]")).unwrap_or_default();
    format!("aws/lambda/async/{function}/{day}/{time}-{}", Uuid::new_v4())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_has_lambdas_members_and_a_response_only_if_there_was_one() {
        let (id, function) = (InvocationId::now(), FunctionName::new("f").unwrap());
        let response = Response { payload: Bytes::from_static(b"not json"), function_error: Some("Unhandled") };
        let mut end = EventEnd {
            id,
            function: &function,
            region: "us-east-1",
            condition: Condition::RetriesExhausted,
            attempts: 3,
            request: br#"{"a":1}"#,
            response: Some(&response),
            at: Timestamp(1_700_000_000_000),
        };
        let record: Value = serde_json::from_slice(&invocation_record(&end)).unwrap();
        assert_eq!(
            record,
            json!({
                "version": "1.0",
                "timestamp": "2023-11-14T22:13:20.000Z",
                "requestContext": {
                    "requestId": id.to_string(),
                    "functionArn": "arn:aws:lambda:us-east-1:000000000000:function:f:$LATEST",
                    "condition": "RetriesExhausted",
                    "approximateInvokeCount": 3,
                },
                "requestPayload": { "a": 1 },
                "responseContext": { "statusCode": 200, "executedVersion": "$LATEST", "functionError": "Unhandled" },
                "responsePayload": "not json",
            })
        );
        end.response = None;
        let record: Value = serde_json::from_slice(&invocation_record(&end)).unwrap();
        assert!(record.get("responseContext").is_none() && record.get("responsePayload").is_none());
        let key = record_key(&function, end.at);
        assert!(key.starts_with("aws/lambda/async/f/2023/11/14/2023-11-14T22.13.20-"), "{key}");
    }
}
