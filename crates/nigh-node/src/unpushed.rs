//! What the admin API says of writes that wait for the store, and how one is named to give it up.

use nigh_objects::{UnpushedObject, WriteMode};
use nigh_terms::{BucketName, Namespace, ObjectKey, Version};
use serde::{Deserialize, Serialize};

/// A write of a bucket that was acknowledged and is not in the store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnpushedRow {
    /// Which write; what `drop` is told.
    #[serde(flatten)]
    pub name: UnpushedName,
    /// How it was acknowledged.
    pub mode: WriteMode,
    /// Its bytes; absent for a deletion and for what is damaged.
    pub bytes: Option<u64>,
    /// It is damaged in the journal, and never pushed.
    pub damaged: bool,
    /// How often its push has failed in a row.
    pub failures: u32,
    /// Somebody else has removed its bucket from the store.
    pub homeless: bool,
}

/// One write.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnpushedName {
    /// The bucket.
    pub bucket: BucketName,
    /// The key.
    pub key: ObjectKey,
    /// Its place in the order of writes: a newer one is another write.
    pub version: Version,
}

/// Where the admin API has what waits of a namespace; of a bucket, and of its keys that begin with `prefix`, if named.
#[must_use]
pub fn path(namespace: &Namespace, bucket: Option<&BucketName>, prefix: &str) -> String {
    let prefix = percent_encoding::utf8_percent_encode(prefix, percent_encoding::NON_ALPHANUMERIC);
    let bucket = bucket.map(|bucket| format!("&bucket={bucket}")).unwrap_or_default();
    format!("/buckets/{namespace}/unpushed?prefix={prefix}{bucket}")
}

/// Where a write is given up.
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
