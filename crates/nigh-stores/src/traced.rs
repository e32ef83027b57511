//! A store whose reads and writes of objects are spans of the traces that cause them. It changes nothing else.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use futures::StreamExt as _;
use nigh_data::{BucketInfo, ByteStream, ETag, ListedObject, ObjectError, ObjectId, ObjectMeta, Tags, WriteConditions};
use nigh_terms::{BucketName, Namespace};
use nigh_trace::{Span, SpanKind};

use super::{ListQuery, Payload, Shadows, Store};
use crate::StoreAbilities;

/// A store with spans.
pub struct TracedStore(Arc<dyn Store>);

impl TracedStore {
    /// `store` with spans.
    #[must_use]
    pub fn new(store: Arc<dyn Store>) -> Self {
        Self(store)
    }

    fn span(&self, name: &'static str, object: &ObjectId) -> Span {
        let mut span = Span::child(name, SpanKind::Client);
        span.record(|span| {
            span.set("nigh.store", self.0.abilities(&object.namespace).kind);
            span.set("aws.s3.bucket", object.bucket.as_str());
            span.set("aws.s3.key", object.key.as_str());
        });
        span
    }

    /// The result of `call`, within the span `name`.
    async fn traced<T>(
        &self,
        name: &'static str,
        object: &ObjectId,
        call: impl Future<Output = Result<T, ObjectError>> + Send,
    ) -> Result<T, ObjectError> {
        let mut span = self.span(name, object);
        let done = call.await;
        failed(&mut span, done.as_ref().err());
        done
    }
}

fn failed(span: &mut Span, error: Option<&ObjectError>) {
    // That there is no object, or another one, is an answer.
    let is_answer = |error: &ObjectError| {
        matches!(error, ObjectError::NoSuchKey(_) | ObjectError::NoSuchBucket(_) | ObjectError::PreconditionFailed(_))
    };
    span.record(|span| match error {
        Some(error) if is_answer(error) => span.set("nigh.store.answer", error.to_string()),
        Some(error) => span.fail("store_failed", &error.to_string()),
        None => {}
    });
}

#[async_trait]
impl Store for TracedStore {
    fn kind(&self) -> &'static str {
        self.0.kind()
    }

    fn spool(&self) -> Option<&Path> {
        self.0.spool()
    }

    fn trouble(&self) -> Option<String> {
        self.0.trouble()
    }

    fn abilities(&self, namespace: &Namespace) -> StoreAbilities {
        self.0.abilities(namespace)
    }

    async fn keeps_conditions(&self, namespace: &Namespace, bucket: &BucketName) -> Result<bool, ObjectError> {
        self.0.keeps_conditions(namespace, bucket).await
    }

    fn check(&self, object: &ObjectId, meta: &ObjectMeta) -> Result<(), ObjectError> {
        self.0.check(object, meta)
    }

    fn shadows(&self, namespace: &Namespace) -> Option<&dyn Shadows> {
        self.0.shadows(namespace)
    }

    fn bucket_named(&self, account: Option<&str>, name: &str) -> Vec<(Namespace, BucketName)> {
        self.0.bucket_named(account, name)
    }

    async fn let_go(&self) {
        self.0.let_go().await;
    }

    async fn create_bucket(&self, namespace: &Namespace, bucket: &BucketName) -> Result<(), ObjectError> {
        self.0.create_bucket(namespace, bucket).await
    }

    async fn delete_bucket(&self, namespace: &Namespace, bucket: &BucketName) -> Result<(), ObjectError> {
        self.0.delete_bucket(namespace, bucket).await
    }

    async fn head_bucket(&self, namespace: &Namespace, bucket: &BucketName) -> Result<BucketInfo, ObjectError> {
        self.0.head_bucket(namespace, bucket).await
    }

    async fn list_buckets(&self, namespace: &Namespace) -> Result<Vec<BucketInfo>, ObjectError> {
        self.0.list_buckets(namespace).await
    }

    async fn put(&self, object: &ObjectId, payload: &Payload, meta: &ObjectMeta) -> Result<(), ObjectError> {
        self.traced("store put", object, self.0.put(object, payload, meta)).await
    }

    async fn put_if(
        &self,
        object: &ObjectId,
        payload: &Payload,
        meta: &ObjectMeta,
        condition: &WriteConditions,
    ) -> Result<(), ObjectError> {
        self.traced("store put", object, self.0.put_if(object, payload, meta, condition)).await
    }

    async fn head(&self, object: &ObjectId) -> Result<ObjectMeta, ObjectError> {
        self.traced("store head", object, self.0.head(object)).await
    }

    /// The span lasts until the bytes are read.
    async fn get(
        &self,
        object: &ObjectId,
        range: Option<Range<u64>>,
        pinned: Option<&ETag>,
    ) -> Result<(ObjectMeta, ByteStream), ObjectError> {
        let mut span = self.span("store get", object);
        let got = self.0.get(object, range, pinned).await;
        failed(&mut span, got.as_ref().err());
        let (meta, bytes) = got?;
        if span.context().is_none() {
            return Ok((meta, bytes));
        }
        let bytes = bytes.inspect(move |piece| failed(&mut span, piece.as_ref().err()));
        Ok((meta, bytes.boxed()))
    }

    async fn delete_if(&self, object: &ObjectId, expected: &ETag) -> Result<(), ObjectError> {
        self.traced("store delete", object, self.0.delete_if(object, expected)).await
    }

    async fn delete(&self, object: &ObjectId) -> Result<(), ObjectError> {
        self.traced("store delete", object, self.0.delete(object)).await
    }

    async fn put_tags(&self, object: &ObjectId, tags: &Tags) -> Result<(), ObjectError> {
        self.traced("store put tags", object, self.0.put_tags(object, tags)).await
    }

    async fn list(&self, query: ListQuery<'_>) -> Result<Vec<ListedObject>, ObjectError> {
        self.0.list(query).await
    }
}
