//! Archives in objects of the namespace (`S3Bucket`, `S3Key`).

use async_trait::async_trait;
use bytes::Bytes;
use futures::stream::{BoxStream, StreamExt};
use nigh_data::{GetRequest, ObjectError};
use nigh_objects::ObjectMemory;
use nigh_terms::{BucketName, ByteSize, ObjectKey, Principal};

/// The bytes of an object, piece by piece.
pub type Pieces = BoxStream<'static, Result<Bytes, ObjectError>>;

/// Reads archives that are objects.
#[async_trait]
pub trait CodeObjects: Send + Sync {
    /// The object's size and its bytes.
    ///
    /// # Errors
    /// If the object cannot be read.
    async fn open(
        &self,
        who: &Principal,
        bucket: &BucketName,
        key: &ObjectKey,
    ) -> Result<(ByteSize, Pieces), ObjectError>;
    /// Whether the bucket exists.
    async fn has_bucket(&self, who: &Principal, bucket: &BucketName) -> bool;
}

#[async_trait]
impl CodeObjects for ObjectMemory {
    async fn has_bucket(&self, who: &Principal, bucket: &BucketName) -> bool {
        self.head_bucket(who, bucket).await.is_ok()
    }

    async fn open(
        &self,
        who: &Principal,
        bucket: &BucketName,
        key: &ObjectKey,
    ) -> Result<(ByteSize, Pieces), ObjectError> {
        let got = self.get(who, bucket, key, GetRequest::default()).await?;
        Ok((ByteSize(got.range.end - got.range.start), got.body.boxed()))
    }
}
