//! Unpushed writes in the admin API, and the name by which a client drops one.

use nigh_objects::{UnpushedObject, WriteMode};
use nigh_terms::{BucketName, Namespace, ObjectKey, Version};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// An acknowledged write that is not in the store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct UnpushedRow {
    /// The write's name, by which a client drops it.
    #[serde(flatten)]
    pub name: UnpushedName,
    /// The mode in which the object was written.
    pub mode: WriteMode,
    /// The object's size in bytes. None for a deletion and for a damaged write.
    pub bytes: Option<u64>,
    /// True if it is damaged in the journal, so that it is never pushed.
    pub damaged: bool,
    /// Number of failed pushes in a row.
    pub failures: u32,
    /// True if its bucket was removed from the store from outside.
    pub homeless: bool,
}

/// The name of a write.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct UnpushedName {
    /// The name of the bucket.
    pub bucket: BucketName,
    /// The key of the object.
    pub key: ObjectKey,
    /// The write's version.
    pub version: Version,
}

/// The admin API's path for the unpushed writes of a namespace, limited to a bucket and a prefix if given.
#[must_use]
pub fn path(namespace: &Namespace, bucket: Option<&BucketName>, prefix: &str) -> String {
    let prefix = percent_encoding::utf8_percent_encode(prefix, percent_encoding::NON_ALPHANUMERIC);
    let bucket = bucket.map(|bucket| format!("&bucket={bucket}")).unwrap_or_default();
    format!("/buckets/{namespace}/unpushed?prefix={prefix}{bucket}")
}

/// The admin API's path that drops a write.
#[must_use]
pub fn drop_path(namespace: &Namespace) -> String {
    format!("/buckets/{namespace}/unpushed/drop")
}

impl From<UnpushedObject> for UnpushedRow {
    fn from(waits: UnpushedObject) -> Self {
        let UnpushedObject { object, version, mode, size, is_damaged, failures, is_homeless } = waits;
        Self {
            name: UnpushedName { bucket: object.bucket, key: object.key, version },
            mode,
            bytes: size,
            damaged: is_damaged,
            failures,
            homeless: is_homeless,
        }
    }
}
