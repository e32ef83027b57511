//! Archives that lie in objects of the namespace (`S3Bucket`, `S3Key`).

use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use futures::TryStreamExt;
use nigh_objects::{GetRequest, ObjectError, ObjectMemory};
use nigh_terms::{BucketName, ByteSize, ObjectKey, Principal};

/// Where the door reads archives that are objects.
#[async_trait]
pub trait CodeObjects: Send + Sync {
    /// The whole object, if it is not above `limit`.
    ///
    /// # Errors
    /// `EntityTooLarge` above `limit`; else why it cannot be read.
    async fn read(
        &self,
        who: &Principal,
        bucket: &BucketName,
        key: &ObjectKey,
        limit: ByteSize,
    ) -> Result<Bytes, ObjectError>;
    /// Whether there is such a bucket.
    async fn has_bucket(&self, who: &Principal, bucket: &BucketName) -> bool;
}

#[async_trait]
impl CodeObjects for ObjectMemory {
    async fn has_bucket(&self, who: &Principal, bucket: &BucketName) -> bool {
        self.head_bucket(who, bucket).await.is_ok()
    }

    async fn read(
        &self,
        who: &Principal,
        bucket: &BucketName,
        key: &ObjectKey,
        limit: ByteSize,
    ) -> Result<Bytes, ObjectError> {
        let mut got = self.get(who, bucket, key, GetRequest::default()).await?;
        let size = got.range.end - got.range.start;
        if size > limit.bytes() {
            return Err(ObjectError::EntityTooLarge { limit: limit.bytes() });
        }
        let first = got.body.try_next().await?.unwrap_or_default();
        if first.len() as u64 == size {
            return Ok(first);
        }
        let mut whole = BytesMut::with_capacity(size as usize);
        whole.extend_from_slice(&first);
        while let Some(more) = got.body.try_next().await? {
            whole.extend_from_slice(&more);
        }
        Ok(whole.freeze())
    }
}
