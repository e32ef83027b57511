//! The requests of a client in an open transaction: reads, which the commit checks, and writes, which wait for it.

use std::sync::Arc;

use async_recursion::async_recursion as boxed;
use futures::StreamExt;
use nigh_data::attributes::check_tags;
use nigh_data::conditions::{check_read, check_write};
use nigh_data::range::resolve;
use nigh_data::{
    Body, DataOperation, Digest, GetReply, GetRequest, ObjectError, ObjectId, ObjectMeta, PutDone, PutRequest,
    ReadConditions, Segment, ServeOutcome, Tags, WriteConditions,
};
use nigh_protocol::TransactionId;
use nigh_terms::{BucketName, ObjectKey, Principal, Token, Version};

use super::TRANSACTION_BYTES_MAX;
use super::open::{NewTransaction, StagedWrite, TransactionName};
use crate::memory::{ObjectMemory, ObjectMemoryState, object};
use crate::transaction_part::{NewObject, PartBecomes};

impl ObjectMemory {
    /// Begins a transaction for `who`.
    ///
    /// # Errors
    /// `SlowDown` if there are too many transactions.
    pub fn begin_transaction(&self, who: &Principal) -> Result<NewTransaction, ObjectError> {
        let inner = &self.0;
        let id = TransactionId(uuid::Uuid::new_v4().as_u128());
        let name = TransactionName { node: inner.coherence.member().node, id };
        inner.transactions.open.lock().begin(inner.now(), name, who)
    }

    /// Reads an object in a transaction: the transaction's own write, or the current object. If the current object
    /// changes later, the commit is refused.
    ///
    /// # Errors
    /// The same as for `get`; `NoSuchTransaction`; `TransactionConflict` if the transaction was shown another version
    /// before.
    #[boxed]
    pub async fn get_in(
        &self,
        name: TransactionName,
        who: &Principal,
        bucket: &BucketName,
        key: &ObjectKey,
        request: GetRequest,
    ) -> Result<GetReply, ObjectError> {
        let inner = &self.0;
        let object = object(who, bucket, key);
        let (meta, own) = inner.shown_in(name, who, &object).await?;
        check_read(&request.conditions, &meta)?;
        let range = resolve(request.range, &meta)?;
        let Some(own) = own else {
            let request = GetRequest { conditions: ReadConditions::default(), range: request.range };
            let got = match self.get(who, bucket, key, request).await {
                Err(ObjectError::NoSuchKey(_)) => {
                    return Err(ObjectError::TransactionConflict(vec![format!("{bucket}/{key}")]));
                }
                got => got?,
            };
            // The object may have changed since its metadata was read.
            inner.transactions.open.lock().sees(inner.now(), name, who, &object, Some(&got.meta))?;
            return Ok(got);
        };
        let mut call = inner.begin(who, DataOperation::Read, bucket, Some(key));
        call.succeeded(ServeOutcome::Hit, None, Token::empty());
        call.of_object(meta.size);
        let slice = Segment::copy_of(&own)?.slice(range.clone());
        Ok(GetReply { meta, range, body: Body::segment(slice, call), version: Version::OUTSIDE, token: Token::empty() })
    }

    /// Reads the metadata of an object in a transaction, as `get_in` reads the object.
    ///
    /// # Errors
    /// As `get_in`.
    #[boxed]
    pub async fn head_in(
        &self,
        name: TransactionName,
        who: &Principal,
        bucket: &BucketName,
        key: &ObjectKey,
        request: GetRequest,
    ) -> Result<Arc<ObjectMeta>, ObjectError> {
        let meta = self.0.shown_in(name, who, &object(who, bucket, key)).await?.0;
        check_read(&request.conditions, &meta)?;
        resolve(request.range, &meta).map(|_| meta)
    }

    /// Writes an object in a transaction. Nobody else sees the write before the commit, or ever if there is none.
    ///
    /// # Errors
    /// As of a put; `EntityTooLarge` if the transaction would write too much; `InvalidRequest` for an object that
    /// cannot be in one.
    #[boxed]
    pub async fn put_in(
        &self,
        name: TransactionName,
        who: &Principal,
        bucket: &BucketName,
        key: &ObjectKey,
        request: PutRequest,
    ) -> Result<PutDone, ObjectError> {
        let inner = &self.0;
        let PutRequest { attributes, tags, conditions, mut body, length, md5, checksum, request: _ } = request;
        attributes.check()?;
        check_tags(&tags)?;
        let limit = TRANSACTION_BYTES_MAX.min(inner.limits.cached_object.bytes());
        let too_large = || ObjectError::EntityTooLarge { limit };
        if length.is_some_and(|length| length > limit) {
            return Err(too_large());
        }
        let object = object(who, bucket, key);
        inner.check_in(name, who, &object, &conditions, &tags).await?;
        let checksum = checksum.unwrap_or_default();
        let mut digest = Digest::new(Some(checksum.algorithm));
        let mut bytes = Vec::new();
        while let Some(piece) = body.next().await {
            let piece = piece?;
            digest.update(&piece);
            bytes.extend_from_slice(&piece);
            if bytes.len() as u64 > limit {
                return Err(too_large());
            }
        }
        let size = bytes.len() as u64;
        if let Some(expected) = length.filter(|length| *length != size) {
            return Err(ObjectError::IncompleteBody { expected, received: size });
        }
        let verified = digest.verify(md5, Some(checksum))?;
        let (etag, checksum, modified) = (verified.etag, verified.checksum, inner.clock.wall());
        let new = NewObject { attributes, tags, size, etag: etag.clone(), checksum: checksum.clone(), modified };
        let staged = StagedWrite { becomes: PartBecomes::Put(Box::new(new)), bytes: bytes.into() };
        inner.transactions.open.lock().stage(inner.now(), name, who, &object, staged)?;
        Ok(PutDone { etag, size, modified, checksum, version: Version::OUTSIDE, token: Token::empty() })
    }

    /// Deletes an object in a transaction.
    ///
    /// # Errors
    /// As `put_in`.
    #[boxed]
    pub async fn delete_in(
        &self,
        name: TransactionName,
        who: &Principal,
        bucket: &BucketName,
        key: &ObjectKey,
        conditions: WriteConditions,
    ) -> Result<(), ObjectError> {
        let (inner, object) = (&self.0, object(who, bucket, key));
        inner.check_in(name, who, &object, &conditions, &Tags::new()).await?;
        let staged = StagedWrite { becomes: PartBecomes::Gone, bytes: bytes::Bytes::new() };
        inner.transactions.open.lock().stage(inner.now(), name, who, &object, staged)
    }
}

impl ObjectMemoryState {
    /// Refuses a transaction that another node keeps.
    pub(super) fn is_kept_here(&self, name: TransactionName) -> Result<(), ObjectError> {
        let node = name.node;
        if node == self.coherence.member().node {
            return Ok(());
        }
        Err(ObjectError::TransactionElsewhere { transaction: name.to_string(), node: node.0 })
    }

    /// What a transaction sees of an object, and its own bytes of the object.
    async fn shown_in(
        self: &Arc<Self>,
        name: TransactionName,
        who: &Principal,
        object: &ObjectId,
    ) -> Result<(Arc<ObjectMeta>, Option<bytes::Bytes>), ObjectError> {
        self.is_kept_here(name)?;
        let none = || ObjectError::NoSuchKey(object.key.clone());
        let staged = self.transactions.open.lock().staged(self.now(), name, who, object)?;
        if let Some(StagedWrite { becomes, bytes }) = staged {
            return match becomes {
                PartBecomes::Put(new) => Ok((Arc::new(new.meta()), Some(bytes))),
                PartBecomes::Gone => Err(none()),
            };
        }
        let current = match self.current(who, object).await {
            Ok(meta) => Some(meta),
            Err(ObjectError::NoSuchKey(_)) => None,
            Err(error) => return Err(error),
        };
        self.transactions.open.lock().sees(self.now(), name, who, object, current.as_deref())?;
        current.map(|meta| (meta, None)).ok_or_else(none)
    }

    /// Refuses an object that a transaction cannot write, or a failed condition. A condition is checked on what the
    /// transaction sees; the commit checks that this is unchanged.
    async fn check_in(
        self: &Arc<Self>,
        name: TransactionName,
        who: &Principal,
        object: &ObjectId,
        conditions: &WriteConditions,
        tags: &Tags,
    ) -> Result<(), ObjectError> {
        self.is_kept_here(name)?;
        self.find_bucket(who, &object.bucket).await?;
        self.back.check_in_transaction(object, tags)?;
        if *conditions == WriteConditions::default() {
            return self.transactions.open.lock().staged(self.now(), name, who, object).map(|_| ());
        }
        let current = match self.shown_in(name, who, object).await {
            Ok((meta, _)) => Some(meta),
            Err(ObjectError::NoSuchKey(_)) => None,
            Err(error) => return Err(error),
        };
        check_write(conditions, object, current.as_deref())
    }
}
