//! Generated inputs of several sizes, stored while a function is profiled and removed afterwards.
//!
//! They are in a new bucket, or below a prefix of a bucket that the user names; no other object is touched. Events name
//! them by a template.

use std::io::Cursor;
use std::time::{SystemTime, UNIX_EPOCH};

use nigh_llc::SampleKind;
use nigh_node::client::S3Client;
use nigh_terms::{BucketName, ByteSize, ObjectKey};
use serde_json::Value;

use crate::error::CliError;

/// The placeholders of the bucket and the key in a template.
const BUCKET: &str = "{bucket}";
const KEY: &str = "{key}";
/// The default event, which names only the input.
pub(super) const TEMPLATE: &str = r#"{"bucket": "{bucket}", "key": "{key}"}"#;

/// The objects, until they are removed.
pub(super) struct SampleObjects {
    s3: S3Client,
    bucket: BucketName,
    /// Whether the bucket itself goes too.
    own_bucket: bool,
    keys: Vec<ObjectKey>,
}

impl SampleObjects {
    /// Makes an input of each size and puts it into `bucket`, or into one of its own. What was put is removed again if
    /// one cannot be.
    pub(super) async fn put(
        s3: S3Client,
        bucket: Option<BucketName>,
        kind: SampleKind,
        sizes: &[ByteSize],
    ) -> Result<Self, CliError> {
        let name = scratch_name();
        let wrong = |error: &dyn std::fmt::Display| CliError::Usage(error.to_string());
        let (bucket, prefix, own_bucket) = match bucket {
            Some(bucket) => (bucket, format!("{name}/"), false),
            None => (BucketName::new(&name).map_err(|error| wrong(&error))?, String::new(), true),
        };
        if own_bucket {
            s3.create_bucket(&bucket).await?;
        }
        let mut objects = Self { s3, bucket, own_bucket, keys: Vec::new() };
        match objects.fill(&prefix, kind, sizes).await {
            Ok(()) => Ok(objects),
            Err(error) => {
                // The first error is the one to report.
                let _ = objects.remove().await;
                Err(error)
            }
        }
    }

    async fn fill(&mut self, prefix: &str, kind: SampleKind, sizes: &[ByteSize]) -> Result<(), CliError> {
        for (at, &size) in (1..).zip(sizes) {
            let made = tokio::task::spawn_blocking(move || kind.make(size)).await;
            let made = made.map_err(|error| CliError::Failed(format!("an input could not be generated: {error}")))?;
            let made = made.map_err(|error| CliError::Usage(error.to_string()))?;
            let key = ObjectKey::new(&format!("{prefix}{at}-{}.{}", size.0, kind.suffix()));
            let key = key.map_err(|error| CliError::Usage(error.to_string()))?;
            let length = made.len() as u64;
            // From here on the object may exist, whatever the answer says.
            self.keys.push(key.clone());
            self.s3.put(&self.bucket, &key, length, Some(kind.content_type()), Cursor::new(made)).await?;
        }
        Ok(())
    }

    /// The events that the templates make of the objects.
    pub(super) fn events(&self, templates: &[Value]) -> Result<Vec<Value>, CliError> {
        let mut events = Vec::new();
        for key in &self.keys {
            for template in templates {
                let mut event = template.clone();
                let mut named = TemplateFields { bucket: false, key: false };
                named.fill(&mut event, self.bucket.as_str(), key.as_str());
                // An event may name a bucket that the user chose without {bucket}.
                if !named.key || (self.own_bucket && !named.bucket) {
                    return Err(CliError::Usage(format!(
                        "the event {template} does not say where the made-up inputs are: write {KEY} for the key and \
                         {BUCKET} for the bucket, as in {TEMPLATE}"
                    )));
                }
                events.push(event);
            }
        }
        Ok(events)
    }

    /// Removes them; all are tried, the first error is told.
    pub(super) async fn remove(self) -> Result<(), CliError> {
        let mut ended = Ok(());
        for key in &self.keys {
            let removed = self.s3.delete(&self.bucket, key).await;
            ended = ended.and(removed.map_err(|error| self.left(&error)));
        }
        if self.own_bucket {
            let removed = self.s3.delete_bucket(&self.bucket).await;
            ended = ended.and(removed.map_err(|error| self.left(&error)));
        }
        ended
    }

    fn left(&self, error: &dyn std::fmt::Display) -> CliError {
        CliError::Failed(format!(
            "made-up inputs are left in the bucket {}: {error}; remove them with `nigh objects rm`",
            self.bucket
        ))
    }
}

/// The placeholders that a template has.
struct TemplateFields {
    bucket: bool,
    key: bool,
}

impl TemplateFields {
    fn fill(&mut self, value: &mut Value, bucket: &str, key: &str) {
        match value {
            Value::String(text) => {
                self.bucket |= text.contains(BUCKET);
                self.key |= text.contains(KEY);
                *text = text.replace(BUCKET, bucket).replace(KEY, key);
            }
            Value::Array(list) => list.iter_mut().for_each(|one| self.fill(one, bucket, key)),
            Value::Object(members) => members.values_mut().for_each(|one| self.fill(one, bucket, key)),
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }
}

/// A unique name, made of the process and the time.
fn scratch_name() -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    format!("nigh-profile-{}-{}", std::process::id(), now.as_millis())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_templates_marks_are_filled_wherever_they_stand() {
        let mut event = json!({"input": {"bucket": "{bucket}", "key": "{key}"}, "all": ["s3://{bucket}/{key}", 7]});
        let mut named = TemplateFields { bucket: false, key: false };
        named.fill(&mut event, "b", "k.png");
        assert_eq!(event, json!({"input": {"bucket": "b", "key": "k.png"}, "all": ["s3://b/k.png", 7]}));
        assert!(named.bucket && named.key);
        let mut nowhere = TemplateFields { bucket: false, key: false };
        nowhere.fill(&mut json!({"{key}": "in a member's name"}), "b", "k");
        assert!(!nowhere.bucket && !nowhere.key);
    }

    #[test]
    fn scratch_names_are_buckets_names() {
        assert!(BucketName::new(&scratch_name()).is_ok());
    }
}
