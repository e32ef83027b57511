//! Puts of segments that clients fill: the node makes the segment, seals it, and only then hashes and writes it.
//!
//! A client never brings memory of its own. The node allocates the segment that the client fills, with its final
//! length, and reads the bytes only when nobody can change them any more.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use async_recursion::async_recursion as boxed;
use nigh_data::attributes::check_tags;
use nigh_data::digest::{Digest, PIECE_BYTES, TagDigest};
use nigh_data::segment::{ClientSegment, SealResult, Segment};
use nigh_data::{
    Attributes, ChecksumAlgorithm, ChecksumClaim, ClaimedValue, ObjectError, PutDone, Tags, WriteConditions,
};
use nigh_engine::RequestId;
use nigh_terms::{BucketName, ObjectKey, Principal};

use super::draft::{Content, Draft, PutHead};
use super::room::Reservation;
use super::{ObjectMemory, object, to_the_end};
use crate::notification::ObjectChange;
use crate::spool::blocking;

/// A segment that a client may fill, with room in the cache.
pub struct OpenSegment {
    lent: ClientSegment,
    room: Reservation,
}

impl OpenSegment {
    /// The segment's length in bytes.
    #[must_use]
    pub const fn length(&self) -> u64 {
        self.lent.length()
    }

    /// The memory that the segment takes, in bytes as the kernel counts them.
    #[must_use]
    pub const fn resident_bytes(&self) -> u64 {
        self.lent.cost().bytes
    }

    /// A descriptor for the client that fills the segment.
    ///
    /// # Errors
    /// If the system has no descriptor left.
    pub fn hand_out(&self) -> std::io::Result<OwnedFd> {
        self.lent.hand_out()
    }

    /// Seals the segment against every writer. Quick; if it is busy, try again.
    ///
    /// # Errors
    /// The system's; the segment is abandoned then.
    pub fn seal(self) -> Result<SealOutcome, ObjectError> {
        let Self { lent, room } = self;
        Ok(match lent.seal()? {
            SealResult::Sealed(segment) => SealOutcome::Sealed(SealedSegment { segment, room }),
            SealResult::Busy(lent) => SealOutcome::Busy(Self { lent, room }),
            SealResult::Refused(lent) => SealOutcome::Refused(AbandonedSegment(lent)),
        })
    }

    /// Abandons the segment; it takes memory until the client releases it.
    #[must_use]
    pub fn abandon(self) -> AbandonedSegment {
        AbandonedSegment(self.lent)
    }
}

/// The result of sealing.
pub enum SealOutcome {
    /// Nobody can change the segment any more.
    Sealed(SealedSegment),
    /// Somebody has the segment mapped for writing.
    Busy(OpenSegment),
    /// The client has made sealing impossible.
    Refused(AbandonedSegment),
}

/// A segment that was abandoned while a client may still have it.
pub struct AbandonedSegment(ClientSegment);

impl AbandonedSegment {
    /// True if a client has the segment open or mapped, or if the kernel cannot tell.
    #[must_use]
    pub fn is_held_elsewhere(&self) -> bool {
        self.0.is_held_elsewhere()
    }
}

/// A segment that nobody can change, with room in the cache.
pub struct SealedSegment {
    segment: Segment,
    room: Reservation,
}

impl SealedSegment {
    /// The segment.
    #[must_use]
    pub const fn segment(&self) -> &Segment {
        &self.segment
    }
}

/// The metadata and conditions of a put of a segment.
#[derive(Debug, Default)]
pub struct SegmentPut {
    /// The attributes that the writer gives the object.
    pub attributes: Attributes,
    /// The object's tags.
    pub tags: Tags,
    /// The conditions of the write.
    pub conditions: WriteConditions,
    /// The `Content-MD5` that the bytes must have; none if the client gave none.
    pub md5: Option<[u8; 16]>,
    /// A further checksum that the bytes must have; none if the client gave none.
    pub checksum: Option<ChecksumClaim>,
    /// The client's name for the request, the same when the client repeats the request.
    pub request: Option<RequestId>,
}

/// The checksum of an object whose writer claims none. Beside a tag that is no MD5 it is all of the SHA-256.
fn default_checksum(tag: TagDigest) -> ChecksumClaim {
    match tag {
        TagDigest::Md5 => ChecksumClaim::default(),
        TagDigest::Sha256 => ChecksumClaim { algorithm: ChecksumAlgorithm::Sha256, value: ClaimedValue::Compute },
    }
}

impl ObjectMemory {
    /// A segment of `length` bytes for a client to fill. None if an object of that size is not cached, or there is no
    /// room: the client must send a body.
    ///
    /// # Errors
    /// If the kernel gives no memory.
    #[boxed]
    pub async fn open_segment(&self, length: u64) -> Result<Option<OpenSegment>, ObjectError> {
        if length > self.0.limits.cached_object.bytes().min(self.0.limits.object.bytes()) {
            return Ok(None);
        }
        let Some(room) = self.0.reserve_share(self.0.account.cost_of_own(length)) else { return Ok(None) };
        let account = Arc::clone(&self.0.account);
        let lent = blocking(move || ClientSegment::new(&account, length)).await?;
        // While the client fills it.
        self.0.make_spares();
        Ok(Some(OpenSegment { lent, room }))
    }

    /// Writes a segment as an object. The write is durable when this returns.
    ///
    /// # Errors
    /// As of a put. The segment is gone in any case.
    #[boxed]
    pub async fn put_segment(
        &self,
        who: &Principal,
        bucket: &BucketName,
        key: &ObjectKey,
        sealed: SealedSegment,
        put: SegmentPut,
    ) -> Result<PutDone, ObjectError> {
        let mut call = self.0.begin_write(who, bucket, key);
        let SegmentPut { attributes, tags, conditions, md5, checksum, request } = put;
        attributes.check()?;
        check_tags(&tags)?;
        self.0.find_bucket(who, bucket).await?;
        let SealedSegment { segment, room } = sealed;
        let object = object(who, bucket, key);
        let hashed = segment.clone();
        let tag = self.0.back.tag_digest(&object, Some(segment.as_slice().len() as u64));
        let hashing = blocking(move || {
            let checksum = checksum.unwrap_or_else(|| default_checksum(tag));
            let mut digest = Digest::tagged(tag, Some(checksum.algorithm), md5.is_some());
            for piece in hashed.as_slice().chunks(PIECE_BYTES) {
                digest.update(piece);
            }
            digest.verify(md5, Some(checksum))
        });
        // At the same time as the checksums are computed.
        let staging = async {
            match self.0.goes_to_journal(&object, &tags) {
                Some(shard) => self.0.stage_segment(shard, &segment).await,
                None => Ok(None),
            }
        };
        let (verified, journal) = futures::try_join!(hashing, staging)?;
        let size = segment.as_slice().len() as u64;
        call.served(size);
        let head = PutHead {
            conditions,
            attributes,
            tags,
            size,
            etag: verified.etag,
            checksum: verified.checksum,
            parts: Vec::new(),
            change: ObjectChange::Put,
            modified: self.0.clock.wall(),
        };
        let draft = Draft { object, head, content: Content::Memory(segment, room), journal, request };
        to_the_end(Arc::clone(&self.0).commit(call, draft)).await
    }
}
