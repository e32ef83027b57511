//! The system of record behind the object memory: one trait, one file an implementation.

mod answer;
mod bucket_names;
mod carried;
#[cfg(feature = "cloud-stores")]
pub mod cloud;
mod connections;
pub mod directory;
pub mod free_space;
pub mod overlay;
mod payload;
pub mod remote;
mod retry;
pub mod routed;
mod shadows;
pub mod swift;
mod wire;

use std::path::Path;

use async_trait::async_trait;
use nigh_data::{
    BucketInfo, ByteStream, ETag, ListedObject, ObjectError, ObjectId, ObjectMeta, Segment, Tags, WriteConditions,
};
use nigh_terms::{BucketName, Namespace, ObjectKey};

pub use bucket_names::PrefixesMeet;
pub use connections::NetworkLimits;
pub use retry::RetryPolicy;
pub use shadows::{ShadowVersions, Shadows};

/// A complete, verified object on its way into a store.
#[derive(Clone, Debug)]
pub enum Payload {
    /// In memory.
    Segment(Segment),
    /// In files of the spool, to be put one behind the other; their lengths are `ObjectMeta::parts`, or `size` if
    /// there is one only. The store may take the first as its own (rename), and may append to it before that: what
    /// stands behind its length counts for nothing.
    Files(Vec<std::path::PathBuf>),
}

/// What a store can do for write-back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoreAbilities {
    /// Its kind, for messages.
    pub kind: &'static str,
    /// It refuses a write whose condition on what it holds fails.
    pub conditions: bool,
    /// It shows outsiders that an object is coming, and asks for it.
    pub shadows: bool,
    /// A write that got no answer may be carried out later, also when whoever sent it is gone.
    pub lands_late: bool,
}

/// Where objects live for good. A write or deletion is durable when it returns.
///
/// The memory orders the writes of a key: a store sees one write or delete of a key at a time.
#[async_trait]
pub trait Store: Send + Sync {
    /// Its kind, for messages: `directory`, `s3`.
    fn kind(&self) -> &'static str;
    /// A folder on the store's file system where payloads may be spooled, if it has one.
    fn spool(&self) -> Option<&Path> {
        None
    }
    /// What it can do for writes that come later than they were acknowledged.
    fn abilities(&self, _namespace: &Namespace) -> StoreAbilities {
        StoreAbilities { kind: self.kind(), conditions: false, shadows: false, lands_late: true }
    }
    /// Whether the conditions that it has are kept in this bucket.
    async fn keeps_conditions(&self, namespace: &Namespace, _bucket: &BucketName) -> Result<bool, ObjectError> {
        Ok(self.abilities(namespace).conditions)
    }
    /// Refuses what `put` would refuse whatever the store holds: a key or metadata that it cannot keep.
    fn check(&self, _object: &ObjectId, _meta: &ObjectMeta) -> Result<(), ObjectError> {
        Ok(())
    }
    /// How it shows what is coming; none if it does not (`abilities` has no `shadows`).
    fn shadows(&self, _namespace: &Namespace) -> Option<&dyn Shadows> {
        None
    }
    /// Whose bucket the one is that the store calls `name`, in `account` where the store has such. Empty where nobody but
    /// Nigh writes, and so nobody tells of a write.
    fn bucket_named(&self, _account: Option<&str>, _name: &str) -> Vec<(Namespace, BucketName)> {
        Vec::new()
    }
    /// This node ends, and nothing waits: the store need not tell it of others' writes any more.
    async fn let_go(&self) {}
    /// Makes a bucket; `BucketAlreadyOwnedByYou` if it is there.
    async fn create_bucket(&self, namespace: &Namespace, bucket: &BucketName) -> Result<(), ObjectError>;
    /// Removes an empty bucket.
    async fn delete_bucket(&self, namespace: &Namespace, bucket: &BucketName) -> Result<(), ObjectError>;
    /// `NoSuchBucket` if it is not there.
    async fn head_bucket(&self, namespace: &Namespace, bucket: &BucketName) -> Result<BucketInfo, ObjectError>;
    /// All buckets, by name.
    async fn list_buckets(&self, namespace: &Namespace) -> Result<Vec<BucketInfo>, ObjectError>;
    /// Writes the object, whole or not at all.
    async fn put(&self, object: &ObjectId, payload: &Payload, meta: &ObjectMeta) -> Result<(), ObjectError>;
    /// As `put`, if what the store holds is as `condition` says, in one step; `PreconditionFailed` if not. Asked only of
    /// a store whose abilities have `conditions`.
    async fn put_if(
        &self,
        object: &ObjectId,
        payload: &Payload,
        meta: &ObjectMeta,
        _condition: &WriteConditions,
    ) -> Result<(), ObjectError> {
        self.put(object, payload, meta).await
    }
    /// What is known of the object.
    async fn head(&self, object: &ObjectId) -> Result<ObjectMeta, ObjectError>;
    /// The object's bytes in `range` (all if absent), all of one version; if `pinned` names another, `PreconditionFailed`.
    async fn get(
        &self,
        object: &ObjectId,
        range: Option<std::ops::Range<u64>>,
        pinned: Option<&ETag>,
    ) -> Result<(ObjectMeta, ByteStream), ObjectError>;
    /// Removes the object; nothing happens if it is not there.
    async fn delete(&self, object: &ObjectId) -> Result<(), ObjectError>;
    /// As `delete`, if the object is the one with the entity tag `expected`; `PreconditionFailed` if it is another.
    /// Here it is looked at first, which another's write may follow; a store that can do it in one step does.
    async fn delete_if(&self, object: &ObjectId, expected: &ETag) -> Result<(), ObjectError> {
        match self.head(object).await {
            Ok(meta) => check_pin(&meta, Some(expected))?,
            Err(ObjectError::NoSuchKey(_)) => return Ok(()),
            Err(error) => return Err(error),
        }
        self.delete(object).await
    }
    /// Replaces the object's tags.
    async fn put_tags(&self, object: &ObjectId, tags: &Tags) -> Result<(), ObjectError>;
    /// Up to `limit` objects whose key begins with `prefix` and sorts behind `after`, in the order of the keys' bytes.
    async fn list(
        &self,
        namespace: &Namespace,
        bucket: &BucketName,
        prefix: &str,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<ListedObject>, ObjectError>;
}

/// Keys of probes begin so.
const PROBE: &str = ".nigh-probe-";

/// An object of a name that nobody else uses, to try what a store does.
fn probe_in(namespace: &Namespace, bucket: &BucketName) -> Result<ObjectId, ObjectError> {
    let key = ObjectKey::new(&format!("{PROBE}{}", uuid::Uuid::new_v4().simple()));
    let key = key.map_err(|error| ObjectError::InvalidArgument(error.to_string()))?;
    Ok(ObjectId { namespace: namespace.clone(), bucket: bucket.clone(), key })
}

/// The payload as pieces in memory or of mapped files, one behind the other.
pub fn payload_pieces(payload: &Payload, meta: &ObjectMeta) -> Result<Vec<bytes::Bytes>, ObjectError> {
    payload::pieces("journal", payload, meta)
}

/// Refuses another version than the one `pinned`.
pub fn check_pin(meta: &ObjectMeta, pinned: Option<&ETag>) -> Result<(), ObjectError> {
    match pinned {
        Some(pinned) if *pinned != meta.etag => Err(ObjectError::PreconditionFailed("If-Match")),
        _ => Ok(()),
    }
}
