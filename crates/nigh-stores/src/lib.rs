//! Stores, which hold the objects permanently behind the object memory: one trait, and a module for each
//! implementation.

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
mod reachability;
pub mod remote;
mod retry;
pub mod routed;
mod shadows;
#[cfg(test)]
#[path = "../../../tests/skipped.rs"]
mod skipped;
pub mod swift;
pub mod traced;
mod wire;
mod wire_error;

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
    /// The bytes are in memory.
    Segment(Segment),
    /// The bytes are in spool files, in this order. The lengths of the files are `ObjectMeta::parts`, or `size` if
    /// there is one file. The store may rename the first file, and may append to it before that: bytes after the file's
    /// length are ignored.
    Files(Vec<std::path::PathBuf>),
}

/// The abilities of a store that write-back needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoreAbilities {
    /// The store's kind, for messages.
    pub kind: &'static str,
    /// True if the store rejects a write whose condition on the stored object fails.
    pub conditions: bool,
    /// True if the store shows outsiders a placeholder of an unpushed object, and asks this node to push the object.
    pub shadows: bool,
    /// True if a write that got no answer may still be carried out later, even after its sender has ended.
    pub lands_late: bool,
    /// True if listings show the entity tag that an object was written with, whatever it is.
    pub lists_tags: bool,
}

/// Stores objects permanently. A write or deletion is durable when it returns.
///
/// The object memory orders the writes of a key: a store gets one write or deletion of a key at a time.
#[async_trait]
pub trait Store: Send + Sync {
    /// The store's kind, for messages: `directory`, `s3`.
    fn kind(&self) -> &'static str;
    /// A folder on the store's file system where payloads may be spooled. None if the store has no such folder.
    fn spool(&self) -> Option<&Path> {
        None
    }
    /// What is wrong with the store, by the outcomes of its newest requests. None if nothing is known to be.
    fn trouble(&self) -> Option<String> {
        None
    }
    /// The abilities that write-back needs, for the buckets of a namespace.
    fn abilities(&self, _namespace: &Namespace) -> StoreAbilities {
        StoreAbilities { kind: self.kind(), conditions: false, shadows: false, lands_late: true, lists_tags: false }
    }
    /// Returns true if the store obeys the conditions of writes in this bucket.
    async fn keeps_conditions(&self, namespace: &Namespace, _bucket: &BucketName) -> Result<bool, ObjectError> {
        Ok(self.abilities(namespace).conditions)
    }
    /// Rejects a key or metadata that `put` can never store.
    fn check(&self, _object: &ObjectId, _meta: &ObjectMeta) -> Result<(), ObjectError> {
        Ok(())
    }
    /// The interface to the store's placeholders. None if `abilities` has no `shadows`.
    fn shadows(&self, _namespace: &Namespace) -> Option<&dyn Shadows> {
        None
    }
    /// The buckets of Nigh that the store calls `name`, in `account` if the store has accounts. Empty for a store that
    /// only Nigh writes, because nobody reports outside writes to it.
    fn bucket_named(&self, _account: Option<&str>, _name: &str) -> Vec<(Namespace, BucketName)> {
        Vec::new()
    }
    /// Called when this node ends and has no unpushed write. The store need not report outside writes to this node any
    /// more.
    async fn let_go(&self) {}
    /// Creates a bucket; `BucketAlreadyOwnedByYou` if it exists.
    async fn create_bucket(&self, namespace: &Namespace, bucket: &BucketName) -> Result<(), ObjectError>;
    /// Removes an empty bucket.
    async fn delete_bucket(&self, namespace: &Namespace, bucket: &BucketName) -> Result<(), ObjectError>;
    /// The facts of a bucket; `NoSuchBucket` if there is none.
    async fn head_bucket(&self, namespace: &Namespace, bucket: &BucketName) -> Result<BucketInfo, ObjectError>;
    /// All buckets, by name.
    async fn list_buckets(&self, namespace: &Namespace) -> Result<Vec<BucketInfo>, ObjectError>;
    /// Writes the object, whole or not at all.
    async fn put(&self, object: &ObjectId, payload: &Payload, meta: &ObjectMeta) -> Result<(), ObjectError>;
    /// Writes the object if the stored object meets `condition`, in one step; otherwise `PreconditionFailed`. Called only
    /// if the abilities have `conditions`.
    async fn put_if(
        &self,
        object: &ObjectId,
        payload: &Payload,
        meta: &ObjectMeta,
        _condition: &WriteConditions,
    ) -> Result<(), ObjectError> {
        self.put(object, payload, meta).await
    }
    /// The object's metadata.
    async fn head(&self, object: &ObjectId) -> Result<ObjectMeta, ObjectError>;
    /// Reads the object's bytes in `range`, or all bytes if `range` is None. All bytes are of one version.
    /// `PreconditionFailed` if the object's entity tag is not `pinned`.
    async fn get(
        &self,
        object: &ObjectId,
        range: Option<std::ops::Range<u64>>,
        pinned: Option<&ETag>,
    ) -> Result<(ObjectMeta, ByteStream), ObjectError>;
    /// Removes the object, if there is one.
    async fn delete(&self, object: &ObjectId) -> Result<(), ObjectError>;
    /// Removes the object if its entity tag is `expected`; otherwise `PreconditionFailed`. Does nothing if there is no
    /// object. This default reads the object first, so an outside write may come in between; a store that can delete
    /// conditionally in one step overrides this.
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
    /// Lists the objects that `query` asks for, in the order of the keys' bytes.
    async fn list(&self, query: ListQuery<'_>) -> Result<Vec<ListedObject>, ObjectError>;
}

/// Asks for up to `limit` objects of a bucket whose keys begin with `prefix` and sort after `after`.
#[derive(Clone, Copy, Debug)]
#[expect(missing_docs, reason = "the type's line names each field")]
pub struct ListQuery<'a> {
    pub namespace: &'a Namespace,
    pub bucket: &'a BucketName,
    pub prefix: &'a str,
    pub after: Option<&'a str>,
    pub limit: usize,
}

impl<'a> ListQuery<'a> {
    /// Asks for the first objects of a bucket.
    #[must_use]
    pub const fn first(namespace: &'a Namespace, bucket: &'a BucketName, limit: usize) -> Self {
        Self { namespace, bucket, prefix: "", after: None, limit }
    }
}

/// The prefix of the keys of objects that test a store.
const PROBE: &str = ".nigh-probe-";

/// An object with an unused key, to test how a store behaves.
fn probe_in(namespace: &Namespace, bucket: &BucketName) -> Result<ObjectId, ObjectError> {
    let key = ObjectKey::new(&format!("{PROBE}{}", uuid::Uuid::new_v4().simple()));
    let key = key.map_err(|error| ObjectError::InvalidArgument(error.to_string()))?;
    Ok(ObjectId { namespace: namespace.clone(), bucket: bucket.clone(), key })
}

/// The payload as pieces in memory or of mapped files, in order.
pub fn payload_pieces(payload: &Payload, meta: &ObjectMeta) -> Result<Vec<bytes::Bytes>, ObjectError> {
    payload::pieces("journal", payload, meta)
}

/// Rejects a version other than `pinned`.
pub fn check_pin(meta: &ObjectMeta, pinned: Option<&ETag>) -> Result<(), ObjectError> {
    match pinned {
        Some(pinned) if *pinned != meta.etag => Err(ObjectError::PreconditionFailed("If-Match")),
        _ => Ok(()),
    }
}
