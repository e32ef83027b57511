//! The object memory: the one way to objects, for both doors and the runtime.
//!
//! The shell around the cache's decisions: it authorises by `Principal`, orders writes through the ledger,
//! moves bytes between callers, segments and the store, and emits an event for each data call.

use std::sync::Arc;

use nigh_engine::Ledger;
use nigh_terms::{BucketName, ByteSize, Clock, ObjectKey, Principal};

use crate::store::Store;
use crate::{
    BucketInfo, ByteStream, ChecksumClaim, Copied, CopyRequest, ETag, GetRequest, Got, ListPage, ListRequest,
    MultipartRequest, ObjectError, ObjectMeta, ObjectObserver, PartInfo, PutDone, PutRequest, RangeSpec,
    ReadConditions, Tags, UploadId, UploadInfo, WriteConditions,
};

/// The limits of a memory.
#[derive(Clone, Copy, Debug)]
pub struct MemoryLimits {
    /// The bytes that all segments together may take.
    pub cache: ByteSize,
    /// Objects above this are not kept.
    pub cached_object: ByteSize,
    /// Objects above this are refused.
    pub object: ByteSize,
}

/// Coherent object memory.
pub struct ObjectMemory {
    _private: (),
}

#[expect(unused_variables, clippy::missing_errors_doc, clippy::todo, clippy::unused_async, reason = "interface sketch")]
impl ObjectMemory {
    /// A memory in front of `store`. Unfinished uploads found in `spool` live on.
    pub async fn open(
        store: Arc<dyn Store>,
        ledger: Arc<dyn Ledger>,
        clock: Arc<dyn Clock>,
        observers: Vec<Arc<dyn ObjectObserver>>,
        spool: std::path::PathBuf,
        limits: MemoryLimits,
    ) -> Result<Self, ObjectError> {
        todo!()
    }

    /// Makes a bucket.
    pub async fn create_bucket(&self, who: &Principal, bucket: &BucketName) -> Result<(), ObjectError> {
        todo!()
    }
    /// Removes an empty bucket.
    pub async fn delete_bucket(&self, who: &Principal, bucket: &BucketName) -> Result<(), ObjectError> {
        todo!()
    }
    /// What is known of a bucket.
    pub async fn head_bucket(&self, who: &Principal, bucket: &BucketName) -> Result<BucketInfo, ObjectError> {
        todo!()
    }
    /// The namespace's buckets.
    pub async fn list_buckets(&self, who: &Principal) -> Result<Vec<BucketInfo>, ObjectError> {
        todo!()
    }

    /// Reads an object.
    pub async fn get(
        &self,
        who: &Principal,
        bucket: &BucketName,
        key: &ObjectKey,
        request: GetRequest,
    ) -> Result<Got, ObjectError> {
        todo!()
    }
    /// Reads what is known of an object; the conditions and the range are those of a get.
    pub async fn head(
        &self,
        who: &Principal,
        bucket: &BucketName,
        key: &ObjectKey,
        request: GetRequest,
    ) -> Result<Arc<ObjectMeta>, ObjectError> {
        todo!()
    }
    /// Writes an object. When it returns the write is durable.
    pub async fn put(
        &self,
        who: &Principal,
        bucket: &BucketName,
        key: &ObjectKey,
        request: PutRequest,
    ) -> Result<PutDone, ObjectError> {
        todo!()
    }
    /// Deletes an object; also one that is not there.
    pub async fn delete(
        &self,
        who: &Principal,
        bucket: &BucketName,
        key: &ObjectKey,
        conditions: WriteConditions,
    ) -> Result<(), ObjectError> {
        todo!()
    }
    /// Copies an object within the namespace.
    pub async fn copy(
        &self,
        who: &Principal,
        bucket: &BucketName,
        key: &ObjectKey,
        request: CopyRequest,
    ) -> Result<Copied, ObjectError> {
        todo!()
    }
    /// Lists a bucket.
    pub async fn list(
        &self,
        who: &Principal,
        bucket: &BucketName,
        request: ListRequest,
    ) -> Result<ListPage, ObjectError> {
        todo!()
    }
    /// An object's tags.
    pub async fn get_tags(&self, who: &Principal, bucket: &BucketName, key: &ObjectKey) -> Result<Tags, ObjectError> {
        todo!()
    }
    /// Replaces an object's tags; none removes them.
    pub async fn put_tags(
        &self,
        who: &Principal,
        bucket: &BucketName,
        key: &ObjectKey,
        tags: Tags,
    ) -> Result<(), ObjectError> {
        todo!()
    }

    /// Begins a multipart upload.
    pub async fn create_upload(
        &self,
        who: &Principal,
        bucket: &BucketName,
        key: &ObjectKey,
        request: MultipartRequest,
    ) -> Result<UploadId, ObjectError> {
        todo!()
    }
    /// Uploads a part; durable when it returns.
    #[expect(clippy::too_many_arguments, reason = "the S3 operation has so many")]
    pub async fn put_part(
        &self,
        who: &Principal,
        bucket: &BucketName,
        key: &ObjectKey,
        upload: &UploadId,
        number: u32,
        body: ByteStream,
        length: Option<u64>,
        md5: Option<[u8; 16]>,
        checksum: Option<ChecksumClaim>,
    ) -> Result<PartInfo, ObjectError> {
        todo!()
    }
    /// Takes a part from another object of the namespace.
    #[expect(clippy::too_many_arguments, reason = "the S3 operation has so many")]
    pub async fn copy_part(
        &self,
        who: &Principal,
        bucket: &BucketName,
        key: &ObjectKey,
        upload: &UploadId,
        number: u32,
        source: (&BucketName, &ObjectKey),
        range: Option<RangeSpec>,
        conditions: ReadConditions,
    ) -> Result<PartInfo, ObjectError> {
        todo!()
    }
    /// The parts uploaded so far whose number is above `after`, at most `limit`; and whether there are more.
    pub async fn list_parts(
        &self,
        who: &Principal,
        bucket: &BucketName,
        key: &ObjectKey,
        upload: &UploadId,
        after: u32,
        limit: usize,
    ) -> Result<(Vec<PartInfo>, bool), ObjectError> {
        todo!()
    }
    /// The uploads of a bucket that are not complete, by key and time.
    pub async fn list_uploads(
        &self,
        who: &Principal,
        bucket: &BucketName,
        prefix: &str,
    ) -> Result<Vec<UploadInfo>, ObjectError> {
        todo!()
    }
    /// Makes the object of the parts named, each with its entity tag.
    pub async fn complete_upload(
        &self,
        who: &Principal,
        bucket: &BucketName,
        key: &ObjectKey,
        upload: &UploadId,
        parts: Vec<(u32, ETag)>,
        conditions: WriteConditions,
    ) -> Result<PutDone, ObjectError> {
        todo!()
    }
    /// Drops an upload and its parts.
    pub async fn abort_upload(
        &self,
        who: &Principal,
        bucket: &BucketName,
        key: &ObjectKey,
        upload: &UploadId,
    ) -> Result<(), ObjectError> {
        todo!()
    }
}
