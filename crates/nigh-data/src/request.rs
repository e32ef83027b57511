//! What may be asked of the object memory, and what it answers.

use std::fmt;
use std::ops::Range;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures::stream::BoxStream;
use nigh_engine::RequestId;
use nigh_terms::{BucketName, Namespace, ObjectKey, Timestamp, Token, Version};
use serde::{Deserialize, Serialize};

use crate::{
    Attributes, Checksum, ChecksumAlgorithm, ChecksumClaim, ChecksumType, DataCall, ETag, ObjectError, ObjectMeta,
    SegmentSlice, Tags,
};

/// Bytes as they come. An error ends it.
pub type ByteStream = BoxStream<'static, Result<Bytes, ObjectError>>;

/// An object's full name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ObjectId {
    /// The tenant.
    pub namespace: Namespace,
    /// The bucket.
    pub bucket: BucketName,
    /// The key.
    pub key: ObjectKey,
}

impl fmt::Display for ObjectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.namespace, self.bucket, self.key)
    }
}

/// A bucket in a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BucketInfo {
    /// Its name.
    pub name: BucketName,
    /// When it was made.
    pub created: Timestamp,
}

/// Conditions of a read (RFC 9110 section 13, in the precedence it states). Entity tags without quotes; `*` is any.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReadConditions {
    /// `If-Match`.
    pub if_match: Option<Vec<ETag>>,
    /// `If-None-Match`.
    pub if_none_match: Option<Vec<ETag>>,
    /// `If-Modified-Since`.
    pub if_modified_since: Option<Timestamp>,
    /// `If-Unmodified-Since`.
    pub if_unmodified_since: Option<Timestamp>,
}

/// Conditions of a write.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WriteConditions {
    /// `If-Match`: the object is there with this tag.
    pub if_match: Option<ETag>,
    /// `If-None-Match: *`: there is no object.
    pub if_absent: bool,
}

/// A part of an object, as HTTP's `Range` states it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum RangeSpec {
    /// From `first` to `last`, both included; to the end if `last` is absent.
    From {
        /// The first byte.
        first: u64,
        /// The last byte.
        last: Option<u64>,
    },
    /// The last so many bytes.
    Suffix(u64),
    /// The part of this number (from 1) of an object that was uploaded in parts.
    Part(u32),
}

/// The bytes of an answer within the object; end excluded.
pub type ByteRange = Range<u64>;

/// A read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GetRequest {
    /// Its conditions.
    pub conditions: ReadConditions,
    /// The part wanted; all of it if absent.
    pub range: Option<RangeSpec>,
}

/// A read's answer.
pub struct GetReply {
    /// What is known of the object.
    pub meta: Arc<ObjectMeta>,
    /// The bytes that `body` gives.
    pub range: ByteRange,
    /// The bytes.
    pub body: Body,
    /// The version read.
    pub version: Version,
    /// What its writer had seen; empty on one node alone.
    pub token: Token,
}

/// The bytes of an answer: a view of a segment, or a stream past the cache.
///
/// The read it belongs to counts as ended, and its event is emitted, when the body has ended or is dropped.
pub struct Body {
    source: Source,
    call: DataCall,
}

enum Source {
    Segment(Option<SegmentSlice>),
    Stream(ByteStream),
}

impl Body {
    /// A body that gives `slice` in one piece.
    #[must_use]
    pub const fn segment(slice: SegmentSlice, call: DataCall) -> Self {
        Self { source: Source::Segment(Some(slice)), call }
    }

    /// A body that gives what `stream` gives.
    #[must_use]
    pub const fn stream(stream: ByteStream, call: DataCall) -> Self {
        Self { source: Source::Stream(stream), call }
    }

    /// The view, if the object is in memory and nothing was taken yet.
    #[must_use]
    pub const fn as_segment(&self) -> Option<&SegmentSlice> {
        match &self.source {
            Source::Segment(slice) => slice.as_ref(),
            Source::Stream(_) => None,
        }
    }
}

impl futures::Stream for Body {
    type Item = Result<Bytes, ObjectError>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = self.get_mut();
        let next = match &mut this.source {
            Source::Segment(slice) => {
                Poll::Ready(slice.take().filter(|slice| !slice.as_ref().is_empty()).map(|slice| Ok(slice.into_bytes())))
            }
            Source::Stream(stream) => stream.as_mut().poll_next(context),
        };
        match &next {
            Poll::Ready(Some(Ok(bytes))) => this.call.served(bytes.len() as u64),
            Poll::Ready(Some(Err(_))) => this.call.failed(),
            Poll::Ready(None) | Poll::Pending => {}
        }
        next
    }
}

/// A write.
pub struct PutRequest {
    /// What the writer says of the object.
    pub attributes: Attributes,
    /// Its tags.
    pub tags: Tags,
    /// Its conditions.
    pub conditions: WriteConditions,
    /// The bytes.
    pub body: ByteStream,
    /// How many there will be, if known; another number is `IncompleteBody`.
    pub length: Option<u64>,
    /// `Content-MD5`.
    pub md5: Option<[u8; 16]>,
    /// A further checksum.
    pub checksum: Option<ChecksumClaim>,
    /// The client's name for the request, the same when it repeats it: what was written is not written again.
    pub request: Option<RequestId>,
}

/// A write's answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PutDone {
    /// The new entity tag.
    pub etag: ETag,
    /// How many bytes were written.
    pub size: u64,
    /// When.
    pub modified: Timestamp,
    /// The checksum that was verified or computed.
    pub checksum: Option<Checksum>,
    /// The write's place in the order.
    pub version: Version,
    /// What its writer had seen, itself included.
    pub token: Token,
}

/// Keep what the source says, or replace it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Direction {
    /// As at the source.
    #[default]
    Copy,
    /// As in the request.
    Replace,
}

/// A copy.
#[derive(Clone, Debug)]
pub struct CopyRequest {
    /// Where from; of the same namespace.
    pub source_bucket: BucketName,
    /// Where from.
    pub source_key: ObjectKey,
    /// Conditions on the source.
    pub source_conditions: ReadConditions,
    /// Conditions on the target.
    pub conditions: WriteConditions,
    /// Whose attributes the copy has.
    pub attributes_from: Direction,
    /// The attributes, if replaced.
    pub attributes: Attributes,
    /// Whose tags the copy has.
    pub tags_from: Direction,
    /// The tags, if replaced.
    pub tags: Tags,
    /// A checksum to compute for the copy.
    pub checksum: Option<ChecksumAlgorithm>,
    /// The client's name for the request, the same when it repeats it.
    pub request: Option<RequestId>,
}

/// A copy's answer.
#[derive(Clone, Debug)]
pub struct CopyReply {
    /// As of a write.
    pub done: PutDone,
    /// The version that was copied.
    pub source_version: Version,
}

/// A listing.
#[derive(Clone, Debug, Default)]
pub struct ListRequest {
    /// Only keys that begin so.
    pub prefix: String,
    /// Keys that share what stands before it, behind the prefix, become one common prefix.
    pub delimiter: Option<String>,
    /// Only keys, and common prefixes, that sort behind this one.
    pub start_after: Option<String>,
    /// At most so many entries, common prefixes included; the door caps it at 1000.
    pub limit: usize,
}

/// One object of a listing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListedObject {
    /// Its key.
    pub key: ObjectKey,
    /// Its length.
    pub size: u64,
    /// Its entity tag.
    pub etag: ETag,
    /// When it was written.
    pub modified: Timestamp,
}

/// A page of a listing, in the order of the keys' bytes.
#[derive(Clone, Debug, Default)]
pub struct ListPage {
    /// The objects.
    pub objects: Vec<ListedObject>,
    /// The common prefixes.
    pub common_prefixes: Vec<String>,
    /// Where to go on (`start_after`), if there is more.
    pub next: Option<String>,
    /// What the reader has now seen.
    pub token: Token,
}

/// Names one multipart upload.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UploadId(pub String);

/// The beginning of a multipart upload.
#[derive(Clone, Debug, Default)]
pub struct MultipartRequest {
    /// As of the object to be.
    pub attributes: Attributes,
    /// As of the object to be.
    pub tags: Tags,
    /// The checksum each part will carry.
    pub checksum: Option<ChecksumAlgorithm>,
    /// What the object's checksum will be taken over; if absent, what S3 takes for `checksum`.
    pub checksum_type: Option<ChecksumType>,
}

/// A part named when an upload is completed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompletedPart {
    /// 1 to 10,000.
    pub number: u32,
    /// The entity tag its upload answered.
    pub etag: ETag,
    /// The checksum its upload answered, if it is repeated.
    pub checksum: Option<Checksum>,
}

/// The end of a multipart upload.
#[derive(Clone, Debug, Default)]
pub struct CompleteRequest {
    /// The parts of the object, in ascending order.
    pub parts: Vec<CompletedPart>,
    /// Conditions on the object there is.
    pub conditions: WriteConditions,
    /// The checksum that the whole should have.
    pub checksum: Option<Checksum>,
    /// The length that the whole should have.
    pub size: Option<u64>,
}

/// A part that was uploaded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartInfo {
    /// 1 to 10,000.
    pub number: u32,
    /// Its length.
    pub size: u64,
    /// Its entity tag.
    pub etag: ETag,
    /// When it was uploaded.
    pub modified: Timestamp,
    /// Its checksum, if it carries one.
    pub checksum: Option<Checksum>,
}

/// An upload that is not complete.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UploadInfo {
    /// Its name.
    pub upload: UploadId,
    /// The key it will write.
    pub key: ObjectKey,
    /// When it began.
    pub initiated: Timestamp,
    /// The checksum its parts carry.
    pub checksum: Option<ChecksumAlgorithm>,
    /// What the object's checksum will be taken over.
    pub checksum_type: Option<ChecksumType>,
}
