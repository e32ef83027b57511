//! A memory filled by reads from a store that makes its objects up, so that no disk is measured and every copy is clean.

use std::ops::Range;
use std::str::FromStr;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use futures::{StreamExt as _, TryStreamExt as _};
use nigh_data::{
    Attributes, BucketInfo, ByteStream, ETag, GetRequest, ListedObject, ObjectError, ObjectId, ObjectMeta, Tags,
};
use nigh_objects::{MemoryLimits, ObjectMemory, Writes};
use nigh_stores::{ListQuery, Payload, Store};
use nigh_terms::{
    BucketName, ByteSize, Clock, Epoch, NameError, Namespace, ObjectKey, Principal, Sequence, SystemClock, Timestamp,
    Token, Version,
};

use crate::LabError;
use crate::instrument::error::Tried;

/// Reads at a time.
const READERS: usize = 16;

pub(crate) fn failed(what: &str, reason: &dyn std::fmt::Display) -> LabError {
    LabError::Request { what: what.to_owned(), reason: reason.to_string() }
}

/// A name that is made up, too.
pub(crate) fn name<T: FromStr<Err = NameError>>(text: &str) -> Result<T, LabError> {
    text.parse().map_err(|error| failed("a name", &error))
}

/// A store in which every object is there, and nothing can be changed.
struct MadeUp {
    /// The length of each object.
    length: u64,
}

impl MadeUp {
    fn meta(&self, object: &ObjectId) -> ObjectMeta {
        let number = object.key.as_str().bytes().fold(0_u64, |number, byte| number.wrapping_mul(31) + u64::from(byte));
        ObjectMeta {
            size: self.length,
            etag: ETag(format!("{number:032x}")),
            modified: Timestamp(1_700_000_000_000),
            attributes: Attributes::default(),
            tags: Tags::new(),
            checksums: Vec::new(),
            parts: Vec::new(),
            version: Version { epoch: Epoch(1), sequence: Sequence(number) },
            token: Token::empty(),
        }
    }

    fn info(bucket: &BucketName) -> BucketInfo {
        BucketInfo { name: bucket.clone(), created: Timestamp(0) }
    }
}

fn read_only<T>() -> Result<T, ObjectError> {
    Err(ObjectError::InvalidRequest("a store of made-up objects is not changed".to_owned()))
}

#[async_trait]
impl Store for MadeUp {
    fn kind(&self) -> &'static str {
        "made-up"
    }

    async fn create_bucket(&self, _: &Namespace, _: &BucketName) -> Result<(), ObjectError> {
        read_only()
    }

    async fn delete_bucket(&self, _: &Namespace, _: &BucketName) -> Result<(), ObjectError> {
        read_only()
    }

    async fn head_bucket(&self, _: &Namespace, bucket: &BucketName) -> Result<BucketInfo, ObjectError> {
        Ok(Self::info(bucket))
    }

    async fn list_buckets(&self, _: &Namespace) -> Result<Vec<BucketInfo>, ObjectError> {
        Ok(Vec::new())
    }

    async fn put(&self, _: &ObjectId, _: &Payload, _: &ObjectMeta) -> Result<(), ObjectError> {
        read_only()
    }

    async fn head(&self, object: &ObjectId) -> Result<ObjectMeta, ObjectError> {
        Ok(self.meta(object))
    }

    async fn get(
        &self,
        object: &ObjectId,
        range: Option<Range<u64>>,
        _: Option<&ETag>,
    ) -> Result<(ObjectMeta, ByteStream), ObjectError> {
        let Range { start, end } = range.unwrap_or(0..self.length);
        let bytes = Bytes::from(vec![7; (end - start) as usize]);
        Ok((self.meta(object), futures::stream::iter([Ok(bytes)]).boxed()))
    }

    async fn delete(&self, _: &ObjectId) -> Result<(), ObjectError> {
        read_only()
    }

    async fn put_tags(&self, _: &ObjectId, _: &Tags) -> Result<(), ObjectError> {
        read_only()
    }

    async fn list(&self, _: ListQuery<'_>) -> Result<Vec<ListedObject>, ObjectError> {
        Ok(Vec::new())
    }
}

pub(crate) fn key(number: u64) -> Result<ObjectKey, LabError> {
    name(&format!("thumbnails/{number:010}.jpg"))
}

/// A store whose objects have `length` bytes each.
pub(crate) fn store(length: u64) -> Arc<dyn Store> {
    Arc::new(MadeUp { length })
}

/// A memory of this process with room for `cache` bytes of objects of `length` bytes each; none is in it.
pub(crate) struct FilledMemory {
    pub(crate) memory: ObjectMemory,
    _folder: tempfile::TempDir,
}

impl FilledMemory {
    pub(crate) async fn begin(length: u64, cache: ByteSize) -> Result<Self, LabError> {
        let folder = tempfile::tempdir().at("a folder")?;
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
        let limits = MemoryLimits { cache, cached_object: ByteSize::mib(16), object: ByteSize::mib(16) };
        let (store, spool) = (store(length), folder.path().join("spool"));
        let memory = ObjectMemory::open(store, Writes::through(Epoch(1)), clock, Vec::new(), spool, limits).await;
        Ok(Self { memory: memory.map_err(|error| failed("the memory", &error))?, _folder: folder })
    }

    /// Reads the objects of these numbers, which are kept then.
    pub(crate) async fn read(&self, numbers: Range<u64>) -> Result<(), LabError> {
        let memory = &self.memory;
        let (who, bucket) = (Principal::outside(name("bench")?), name("pictures")?);
        let all = futures::stream::iter(numbers).map(|number| {
            let (who, bucket) = (&who, &bucket);
            async move {
                let got = memory.get(who, bucket, &key(number)?, GetRequest::default()).await;
                let body = got.map_err(|error| failed("a get", &error))?.body;
                body.try_for_each(|_| async { Ok(()) }).await.map_err(|error| failed("a get", &error))
            }
        });
        all.buffer_unordered(READERS).try_for_each(|()| async { Ok(()) }).await
    }
}
