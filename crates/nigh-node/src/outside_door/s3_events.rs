//! Events of S3 services: which objects were written or deleted. Pure.
//!
//! Two forms: a list of records, as S3 sends them to its targets and MinIO to a webhook ("Event message structure" of
//! the Amazon S3 User Guide; keys are encoded as in a form), and one event of `EventBridge` (keys as they are). Their
//! order does not matter: dropping a copy twice, or late, does no harm, and a push is conditional on what the store has.
//! Only the removals of a list of records count as removals: `EventBridge` sends them after their writers were answered,
//! so a write here may be newer than they are.

use nigh_data::ETag;
use nigh_objects::StoreChange;
use percent_encoding::percent_decode_str;
use serde::Deserialize;

/// An object that was changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChangedObject {
    /// The object's bucket, as the service names it.
    pub bucket: String,
    /// The object's key.
    pub key: String,
    /// What the store has now; `Changed` also if the metadata may have changed without the bytes.
    pub change: StoreChange,
}

#[derive(Deserialize)]
struct Message {
    #[serde(rename = "Records")]
    records: Option<Vec<Record>>,
    #[serde(rename = "detail-type")]
    detail_type: Option<String>,
    detail: Option<Entities>,
    /// The event's name in the message by which S3 tests a target.
    #[serde(rename = "Event")]
    event: Option<String>,
}

#[derive(Deserialize)]
struct Record {
    #[serde(rename = "eventName")]
    name: String,
    s3: Entities,
}

#[derive(Deserialize)]
struct Entities {
    bucket: Bucket,
    object: Object,
    /// In `EventBridge` only: the operation that wrote the object.
    reason: Option<String>,
}

#[derive(Deserialize)]
struct Bucket {
    name: String,
}

#[derive(Deserialize)]
struct Object {
    key: String,
    #[serde(alias = "eTag")]
    etag: Option<String>,
}

/// Parses a message.
///
/// # Errors
/// What is wrong with it.
pub fn parse(body: &[u8]) -> Result<Vec<ChangedObject>, String> {
    let message: Message = serde_json::from_slice(body).map_err(|error| error.to_string())?;
    if let Some(records) = message.records {
        return Ok(records.into_iter().filter_map(of_record).collect());
    }
    match (message.detail_type, message.detail) {
        (Some(kind), Some(entities)) => {
            let is_write = kind == "Object Created" && entities.reason.as_deref() != Some("CopyObject");
            let Entities { bucket, object, .. } = entities;
            let change = written(object.etag.filter(|_| is_write));
            Ok(vec![ChangedObject { bucket: bucket.name, key: object.key, change }])
        }
        _ if message.event.as_deref() == Some("s3:TestEvent") => Ok(Vec::new()),
        _ => Err("it has neither Records nor a detail".to_owned()),
    }
}

fn of_record(record: Record) -> Option<ChangedObject> {
    let name = record.name.strip_prefix("s3:").unwrap_or(&record.name);
    // MinIO reports reads, too.
    if name.starts_with("ObjectAccessed") {
        return None;
    }
    // A copy of an object onto itself changes the metadata, and the bytes stay.
    let is_write = name.starts_with("ObjectCreated") && name != "ObjectCreated:Copy";
    let Entities { bucket, object, .. } = record.s3;
    let key = object.key.replace('+', " ");
    let key = percent_decode_str(&key).decode_utf8().ok()?.into_owned();
    let change = match name.starts_with("ObjectRemoved") {
        true => StoreChange::Removed,
        false => written(object.etag.filter(|_| is_write)),
    };
    Some(ChangedObject { bucket: bucket.name, key, change })
}

/// A write that leaves bytes with this entity tag, which may have its quotes; or a change that does not say what it leaves.
fn written(etag: Option<String>) -> StoreChange {
    etag.map_or(StoreChange::Changed, |text| StoreChange::Holds(ETag(text.trim_matches('"').to_owned())))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn changed(bucket: &str, key: &str, etag: Option<&str>) -> ChangedObject {
        ChangedObject { bucket: bucket.to_owned(), key: key.to_owned(), change: written(etag.map(str::to_owned)) }
    }

    #[test]
    fn records_are_read_with_their_keys_decoded_and_reads_are_passed_over() {
        let record = |name: &str, key: &str| {
            format!(
                r#"{{"eventVersion": "2.1", "eventName": "{name}", "s3": {{"s3SchemaVersion": "1.0",
                "bucket": {{"name": "b", "arn": "x"}}, "object": {{"key": "{key}", "size": 3, "eTag": "e1", "sequencer": "0"}}}}}}"#
            )
        };
        let records = [
            record("ObjectCreated:Put", "a+b%2Fc%C3%BC"),
            record("s3:ObjectCreated:CompleteMultipartUpload", "d%2Be"),
            record("s3:ObjectCreated:Copy", "f"),
            record("ObjectRemoved:Delete", "g"),
            record("s3:ObjectAccessed:Get", "h"),
            record("ObjectCreated:Put", "%ff"),
        ];
        let body =
            format!(r#"{{"EventName": "s3:ObjectCreated:Put", "Key": "b/x", "Records": [{}]}}"#, records.join(","));
        let expected = [
            changed("b", "a b/cü", Some("e1")),
            changed("b", "d+e", Some("e1")),
            changed("b", "f", None),
            ChangedObject { change: StoreChange::Removed, ..changed("b", "g", None) },
        ];
        assert_eq!(parse(body.as_bytes()).unwrap(), expected);
    }

    #[test]
    fn an_event_of_eventbridge_is_read_with_its_key_as_it_is() {
        let event = |kind: &str, reason: &str| {
            format!(
                r#"{{"version": "0", "detail-type": "{kind}", "source": "aws.s3", "detail": {{"bucket": {{"name": "b"}},
                "object": {{"key": "a+b%2F", "etag": "e1"}}, "reason": "{reason}"}}}}"#
            )
        };
        let parse = |text: String| parse(text.as_bytes()).unwrap();
        assert_eq!(parse(event("Object Created", "PutObject")), [changed("b", "a+b%2F", Some("e1"))]);
        assert_eq!(parse(event("Object Created", "CopyObject")), [changed("b", "a+b%2F", None)]);
        assert_eq!(parse(event("Object Deleted", "DeleteObject")), [changed("b", "a+b%2F", None)]);
        assert_eq!(parse(r#"{"Service": "Amazon S3", "Event": "s3:TestEvent", "Bucket": "b"}"#.to_owned()), []);
    }

    #[test]
    fn what_is_no_event_is_refused() {
        for text in ["", "[]", "{}", r#"{"Records": 1}"#, r#"{"Records": [{"eventName": "x"}]}"#] {
            assert!(parse(text.as_bytes()).is_err(), "{text}");
        }
    }
}
