//! Receives and verifies a body before its write holds a lock.
//!
//! The body goes to memory if its length is known and there is room, else to the spool. If it belongs into the journal,
//! it goes there piece by piece as it arrives, while its checksums are computed.

use std::sync::Arc;

use futures::{StreamExt, TryStreamExt};
use nigh_data::digest::{Digest, PIECE_BYTES, TagDigest, VerifiedDigest};
use nigh_data::segment::{Segment, SegmentWriter};
use nigh_data::segment_cost::Cost;
use nigh_data::{ByteStream, ChecksumClaim, ObjectError, ObjectId, Tags};
use nigh_engine::{INLINE_MAX_BYTES, PIECE_MAX_BYTES, StagedPiece};
use nigh_terms::ShardId;

use super::ObjectMemoryState;
use super::draft::{Content, ReceivedBody};
use super::room::Reservation;
use crate::spool::SpoolFile;
use crate::sync::{TaskFailure, TaskHandle, spawn};
use crate::write_back::{WriteBack, WriteMode};

/// Bodies that are being received may take one part in this many of the cache's budget. Further ones go to the spool,
/// so that slow clients cannot empty the cache.
const INCOMING_SHARE: u64 = 4;

/// The most pieces of a segment on their way to the journal at a time.
const PIECES_AT_ONCE: usize = 3;

/// What a body must satisfy, and where it goes.
pub(super) struct BodyClaims {
    pub(super) length: Option<u64>,
    pub(super) md5: Option<[u8; 16]>,
    pub(super) checksum: Option<ChecksumClaim>,
    /// What the entity tag is made of.
    pub(super) tag: TagDigest,
    /// The most bytes.
    pub(super) limit: u64,
    /// The shard whose journal gets the body; none if no journal does.
    pub(super) journal: Option<ShardId>,
}

impl BodyClaims {
    fn digest(&self) -> Digest {
        let algorithm = self.checksum.as_ref().map(|claim| claim.algorithm);
        Digest::tagged(self.tag, algorithm, self.md5.is_some())
    }
}

/// Sends a body to the journal while it is received.
struct JournalIntake {
    back: Arc<WriteBack>,
    shard: ShardId,
    piece: Vec<u8>,
    staging: Vec<TaskHandle<Result<StagedPiece, ObjectError>>>,
}

impl JournalIntake {
    const fn new(back: Arc<WriteBack>, shard: ShardId) -> Self {
        Self { back, shard, piece: Vec::new(), staging: Vec::new() }
    }

    /// Adds the next bytes.
    fn take(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let (now, later) = bytes.split_at(bytes.len().min(PIECE_MAX_BYTES - self.piece.len()));
            self.piece.extend_from_slice(now);
            bytes = later;
            if self.piece.len() == PIECE_MAX_BYTES {
                self.put_on_its_way();
            }
        }
    }

    fn put_on_its_way(&mut self) {
        let piece = std::mem::take(&mut self.piece).into();
        self.staging.push(spawn(Arc::clone(&self.back).stage(self.shard, piece)));
    }

    /// Ends the body. Returns all pieces, in order.
    async fn end(mut self) -> Result<Vec<StagedPiece>, ObjectError> {
        if !self.piece.is_empty() {
            self.put_on_its_way();
        }
        let mut staged = Vec::with_capacity(self.staging.len());
        for piece in self.staging {
            let ended = piece.await;
            let lost = |error: TaskFailure| ObjectError::Memory {
                operation: "keep a body in the journal",
                reason: error.to_string(),
            };
            staged.push(ended.map_err(lost)??);
        }
        Ok(staged)
    }
}

impl ObjectMemoryState {
    /// Receives a body: into memory if its length is known and there is room, else into the spool.
    pub(super) async fn take_in(
        self: &Arc<Self>,
        body: ByteStream,
        expected: BodyClaims,
    ) -> Result<ReceivedBody, ObjectError> {
        if let Some(length) = expected.length
            && let Some(room) = self.reserve_incoming(length)
        {
            return self.stage_in_memory(body, expected, length, room).await;
        }
        let (file, size, verified) = self.stage_in_spool(body, expected).await?;
        Ok(ReceivedBody { content: Content::File(file), size, verified, journal: None })
    }

    fn reserve_incoming(self: &Arc<Self>, length: u64) -> Option<Reservation> {
        if length > self.limits.cached_object.bytes() {
            return None;
        }
        self.reserve_share(self.account.cost(length))
    }

    /// Room for a body that is being received, within such bodies' share of the budget.
    pub(super) fn reserve_share(self: &Arc<Self>, cost: Cost) -> Option<Reservation> {
        let (reserved, budget) = {
            let cache = self.shelf();
            (cache.reserved(), cache.budget())
        };
        (reserved.bytes + cost.bytes <= budget.bytes / INCOMING_SHARE).then(|| self.reserve(cost)).flatten()
    }

    async fn stage_in_memory(
        &self,
        mut body: ByteStream,
        expected: BodyClaims,
        length: u64,
        room: Reservation,
    ) -> Result<ReceivedBody, ObjectError> {
        let mut filling = SegmentWriter::new(&self.account, length)?;
        let mut digest = expected.digest();
        let goes = expected.journal.filter(|_| length > INLINE_MAX_BYTES as u64);
        let mut journal = goes.map(|shard| JournalIntake::new(Arc::clone(&self.back), shard));
        while let Some(bytes) = body.next().await {
            let bytes = bytes?;
            if let Some(journal) = &mut journal {
                journal.take(&bytes);
            }
            for (at, piece) in bytes.chunks(PIECE_BYTES).enumerate() {
                if at > 0 {
                    tokio::task::yield_now().await;
                }
                filling.append(piece)?;
                digest.update(piece);
            }
        }
        let size = filling.filled();
        let segment = filling.seal()?;
        let verified = digest.verify(expected.md5, expected.checksum)?;
        let journal = match journal {
            Some(journal) => Some(journal.end().await?),
            None => None,
        };
        Ok(ReceivedBody { content: Content::Memory(segment, room), size, verified, journal })
    }

    /// Receives a body into a file of the spool, which is not durable yet.
    pub(super) async fn stage_in_spool(
        &self,
        body: ByteStream,
        expected: BodyClaims,
    ) -> Result<(SpoolFile, u64, VerifiedDigest), ObjectError> {
        let digest = expected.digest();
        self.stage_with(body, expected, digest).await
    }

    /// As `stage_in_spool`. `digest` is of no bytes yet; it computes the checksum that is expected, and may compute more.
    pub(super) async fn stage_with(
        &self,
        body: ByteStream,
        expected: BodyClaims,
        digest: Digest,
    ) -> Result<(SpoolFile, u64, VerifiedDigest), ObjectError> {
        let BodyClaims { length, md5, checksum, limit, .. } = expected;
        let too_long = move |received| match length {
            Some(expected) => ObjectError::IncompleteBody { expected, received },
            None => ObjectError::EntityTooLarge { limit },
        };
        let spooled = self.spool.take(body, digest, length.unwrap_or(0), length.unwrap_or(limit), too_long).await?;
        if let Some(expected) = length.filter(|length| *length != spooled.size) {
            return Err(ObjectError::IncompleteBody { expected, received: spooled.size });
        }
        Ok((spooled.file, spooled.size, spooled.digest.verify(md5, checksum)?))
    }

    /// The shard whose journal gets the body of a write; none if the home is elsewhere, or the write's mode has no
    /// record with a body.
    pub(super) fn goes_to_journal(&self, object: &ObjectId, tags: &Tags) -> Option<ShardId> {
        let shard = self.coherence.shards.of(object);
        let goes = matches!(self.back.mode(object, tags), WriteMode::Lazy | WriteMode::Shadow);
        (goes && self.coherence.is_home(shard)).then_some(shard)
    }

    /// Sends the bytes of a segment to the journal, unless they go with their record.
    pub(super) async fn stage_segment(
        &self,
        shard: ShardId,
        segment: &Segment,
    ) -> Result<Option<Vec<StagedPiece>>, ObjectError> {
        let length = segment.as_slice().len();
        if length <= INLINE_MAX_BYTES {
            return Ok(None);
        }
        let pieces = (0..length).step_by(PIECE_MAX_BYTES).map(|from| {
            let piece = segment.slice(from as u64..(from + PIECE_MAX_BYTES) as u64);
            Arc::clone(&self.back).stage(shard, piece.into_bytes())
        });
        futures::stream::iter(pieces).buffered(PIECES_AT_ONCE).try_collect().await.map(Some)
    }
}
