//! Which objects an invocation's input names, and where in the input: the base of every feature of its data.
//!
//! Three forms are read: a JSON object with a bucket's and a key's member, S3's event notification (its `s3` member),
//! and a text `s3://bucket/key`. Which of those named are inputs is not guessed from names; `input_paths` learns it
//! from what invocations read. Pure; what it reads is bounded.

use std::collections::BTreeSet;

use nigh_terms::{BucketName, ObjectKey};
use serde_json::{Map, Value};

use crate::activation::DataCallRecord;

/// Larger inputs are not read: the time for that would be the function's.
const PAYLOAD_BYTES_MAX: usize = 64 * 1024;
/// Named objects beyond this many are not looked at.
const NAMED_MAX: usize = 16;
/// Members below this depth are not looked at.
const DEPTH_MAX: usize = 8;

/// Names of members that hold a bucket's name, and those that hold a key.
const BUCKET_MEMBERS: [&str; 4] = ["bucket", "Bucket", "bucketName", "bucket_name"];
const KEY_MEMBERS: [&str; 4] = ["key", "Key", "objectKey", "object_key"];

/// An object that an input names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedObject {
    /// The members on the way to it, joined by `/`; members of lists are `*`.
    pub path: String,
    /// Its bucket.
    pub bucket: BucketName,
    /// Its key.
    pub key: ObjectKey,
}

/// The objects that `payload` names, in its order.
#[must_use]
pub fn named_objects(payload: &[u8]) -> Vec<NamedObject> {
    let mut found = Vec::new();
    if payload.len() <= PAYLOAD_BYTES_MAX
        && let Ok(value) = serde_json::from_slice::<Value>(payload)
    {
        walk(&value, "", 0, &mut found);
    }
    found
}

/// The paths of those among `named` that the invocation read.
#[must_use]
pub fn input_paths(named: &[NamedObject], calls: &[DataCallRecord]) -> BTreeSet<String> {
    let is_read = |object: &&NamedObject| {
        calls.iter().any(|call| {
            matches!(call.served.as_str(), "hit" | "miss" | "past")
                && call.bucket == object.bucket.as_str()
                && call.key.as_deref() == Some(object.key.as_str())
        })
    };
    named.iter().filter(is_read).map(|object| object.path.clone()).collect()
}

fn walk(value: &Value, path: &str, depth: usize, found: &mut Vec<NamedObject>) {
    if depth > DEPTH_MAX || found.len() >= NAMED_MAX {
        return;
    }
    match value {
        Value::Object(members) => {
            let named = pair(members).or_else(|| notification(members));
            if let Some((bucket, key)) = named {
                push(path, bucket, key, found);
                return;
            }
            for (name, member) in members {
                walk(member, &format!("{path}/{name}"), depth + 1, found);
            }
        }
        Value::Array(members) => {
            for member in members {
                walk(member, &format!("{path}/*"), depth + 1, found);
            }
        }
        Value::String(text) => {
            if let Some((bucket, key)) = text.strip_prefix("s3://").and_then(|rest| rest.split_once('/')) {
                push(path, bucket, key, found);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

fn push(path: &str, bucket: &str, key: &str, found: &mut Vec<NamedObject>) {
    if let (Ok(bucket), Ok(key)) = (BucketName::new(bucket), ObjectKey::new(key)) {
        found.push(NamedObject { path: path.to_owned(), bucket, key });
    }
}

fn member<'a>(members: &'a Map<String, Value>, names: &[&str]) -> Option<&'a str> {
    names.iter().find_map(|name| members.get(*name)?.as_str())
}

fn pair(members: &Map<String, Value>) -> Option<(&str, &str)> {
    Some((member(members, &BUCKET_MEMBERS)?, member(members, &KEY_MEMBERS)?))
}

/// The `s3` member of a notification's record: `{"bucket": {"name"}, "object": {"key"}}`.
fn notification(members: &Map<String, Value>) -> Option<(&str, &str)> {
    let bucket = members.get("bucket")?.get("name")?.as_str()?;
    Some((bucket, members.get("object")?.get("key")?.as_str()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(payload: &str) -> Vec<(String, String)> {
        let named = named_objects(payload.as_bytes());
        named.into_iter().map(|object| (object.path, format!("{}/{}", object.bucket, object.key))).collect()
    }

    fn pairs(expected: &[(&str, &str)]) -> Vec<(String, String)> {
        expected.iter().map(|(path, object)| ((*path).to_owned(), (*object).to_owned())).collect()
    }

    #[test]
    fn objects_are_found_as_pairs_as_notifications_and_as_addresses() {
        let payload = r#"{"input":{"bucket":"photos","key":"in.png"},"output":{"bucket":"photos","key":"out.png"}}"#;
        assert_eq!(found(payload), pairs(&[("/input", "photos/in.png"), ("/output", "photos/out.png")]));
        let payload = r#"{"Records":[{"s3":{"bucket":{"name":"photos"},"object":{"key":"a b","size":3}}}]}"#;
        assert_eq!(found(payload), pairs(&[("/Records/*/s3", "photos/a b")]));
        assert_eq!(found(r#"{"from":"s3://photos/x/y"}"#), pairs(&[("/from", "photos/x/y")]));
    }

    #[test]
    fn what_names_nothing_costs_nothing() {
        assert!(found("not json").is_empty());
        assert!(found(r#"{"bucket":"photos"}"#).is_empty());
        assert!(found(r#"{"bucket":"Not A Bucket","key":"k"}"#).is_empty());
        assert!(found(&format!(r#"{{"pad":"{}","a":"s3://photos/k"}}"#, "x".repeat(PAYLOAD_BYTES_MAX))).is_empty());
        assert!(found(&format!("{}\"s3://photos/k\"{}", "[".repeat(20), "]".repeat(20))).is_empty());
    }

    #[test]
    fn no_more_objects_are_looked_at_than_the_limit() {
        let many = vec![r#""s3://photos/k""#; 1000].join(",");
        assert_eq!(found(&format!("[{many}]")).len(), NAMED_MAX);
    }

    #[test]
    fn an_input_is_what_was_read() {
        let payload = r#"{"input":{"bucket":"photos","key":"in.png"},"output":{"bucket":"photos","key":"out.png"}}"#;
        let call = |served: &str, key: &str| DataCallRecord {
            served: served.to_owned(),
            bucket: "photos".to_owned(),
            key: Some(key.to_owned()),
            bytes: 1,
            began_us: 0,
            took_us: 1,
        };
        let calls = [call("miss", "in.png"), call("write", "out.png"), call("hit", "other")];
        let paths = input_paths(&named_objects(payload.as_bytes()), &calls);
        assert_eq!(paths, BTreeSet::from(["/input".to_owned()]));
    }
}
