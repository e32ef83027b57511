//! Copies: a read and a write, joined by one stream, in bounded memory.

use std::sync::Arc;

use async_recursion::async_recursion as boxed;
use nigh_data::attributes::check_tags;
use nigh_data::conditions::source_error;
use nigh_data::{
    ChecksumClaim, ClaimedValue, CopyReply, CopyRequest, Direction, GetRequest, ObjectError, ObjectId, RangeSpec,
    ReadConditions,
};
use nigh_terms::{BucketName, ObjectKey, Principal};

use super::draft::{Draft, PutHead};
use super::intake::BodyClaims;
use super::reads::CheckedRead;
use super::{ObjectMemory, ObjectMemoryState, object, to_the_end};
use crate::notification::ObjectChange;

impl ObjectMemoryState {
    /// Reads the source of a copy.
    pub(super) async fn read_source(
        self: &Arc<Self>,
        who: &Principal,
        source: &ObjectId,
        conditions: ReadConditions,
        range: Option<RangeSpec>,
    ) -> Result<CheckedRead, ObjectError> {
        self.read(who, source, &GetRequest { conditions, range }).await.map_err(source_error)
    }
}

impl ObjectMemory {
    /// Copies an object within the namespace. The copy has the same bytes in one piece: its entity tag is their MD5,
    /// even if the source was uploaded in parts.
    ///
    /// # Errors
    /// As of a get of the source and a put of the copy; `InvalidRequest` for a copy of an object to itself that changes
    /// nothing.
    #[boxed]
    pub async fn copy(
        &self,
        who: &Principal,
        bucket: &BucketName,
        key: &ObjectKey,
        request: CopyRequest,
    ) -> Result<CopyReply, ObjectError> {
        let call = self.0.begin_write(who, bucket, key);
        let source = object(who, &request.source_bucket, &request.source_key);
        let target = object(who, bucket, key);
        if source == target && request.attributes_from == Direction::Copy {
            return Err(ObjectError::InvalidRequest(
                "This copy request is illegal because it is trying to copy an object to itself without changing \
                 the object's metadata, storage class, website redirect location or encryption attributes."
                    .to_owned(),
            ));
        }
        request.attributes.check()?;
        check_tags(&request.tags)?;
        self.0.find_bucket(who, bucket).await?;
        let read = self.0.read_source(who, &source, request.source_conditions, None).await?;
        let limit = self.0.limits.object.bytes();
        if read.meta.size > limit {
            return Err(ObjectError::EntityTooLarge { limit });
        }
        let tags = match request.tags_from {
            Direction::Copy => &read.meta.tags,
            Direction::Replace => &request.tags,
        };
        let algorithm = request.checksum.or_else(|| read.meta.checksums.first().map(|checksum| checksum.algorithm));
        let of_algorithm = |algorithm| ChecksumClaim { algorithm, value: ClaimedValue::Compute };
        let expected = BodyClaims {
            length: Some(read.meta.size),
            md5: None,
            checksum: Some(algorithm.map(of_algorithm).unwrap_or_default()),
            tag: self.0.back.tag_digest(&target, None),
            limit,
            journal: self.0.goes_to_journal(&target, tags),
        };
        let taken = self.0.take_in(read.source.into_stream(), expected).await?;
        let head = PutHead {
            conditions: request.conditions,
            attributes: match request.attributes_from {
                Direction::Copy => read.meta.attributes.clone(),
                Direction::Replace => request.attributes,
            },
            tags: tags.clone(),
            size: taken.size,
            etag: taken.verified.etag,
            checksum: taken.verified.checksum,
            parts: Vec::new(),
            change: ObjectChange::Copy,
            modified: self.0.clock.wall(),
        };
        let (content, journal, request) = (taken.content, taken.journal, request.request);
        let draft = Draft { object: target, head, content, journal, request };
        let done = to_the_end(Arc::clone(&self.0).commit(call, draft)).await?;
        Ok(CopyReply { done, source_version: read.meta.version })
    }
}
