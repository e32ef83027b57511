//! A body on its way in: it is received and verified before its write holds anything.
//!
//! It goes to memory if its length is known and there is room, else to the spool. A body that goes to the journal goes
//! there piece by piece as it comes, while its checksums are computed.

use std::sync::Arc;

use futures::{StreamExt, TryStreamExt};
use nigh_data::digest::{Digest, PIECE_BYTES, VerifiedDigest};
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

/// Bodies on their way in may take one part in so many of the cache's budget. Further ones go to the spool, so that
/// slow clients cannot empty the cache.
const INCOMING_SHARE: u64 = 4;

/// Pieces of a segment on their way to the journal at a time.
const PIECES_AT_ONCE: usize = 3;

/// What is expected of a body.
pub(super) struct BodyClaims {
    pub(super) length: Option<u64>,
    pub(super) md5: Option<[u8; 16]>,
    pub(super) checksum: Option<ChecksumClaim>,
    /// The greatest length allowed.
    pub(super) limit: u64,
    /// The body goes to the journal of this shard.
    pub(super) journal: Option<ShardId>,
}

/// A body's way to the journal while it comes in.
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

    /// Takes the next bytes.
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

    /// All pieces, in their order.
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
    /// Takes a body in: to memory if its length is known and there is room, else to the spool.
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

    /// Room for something on its way in, within its share of the budget.
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
        let mut digest = Digest::new(expected.checksum.as_ref().map(|claim| claim.algorithm));
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

    /// Takes a body in to a file; it is not durable yet.
    pub(super) async fn stage_in_spool(
        &self,
        body: ByteStream,
        expected: BodyClaims,
    ) -> Result<(SpoolFile, u64, VerifiedDigest), ObjectError> {
        let BodyClaims { length, md5, checksum, limit, .. } = expected;
        let digest = Digest::new(checksum.as_ref().map(|claim| claim.algorithm));
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

    /// The shard to whose journal the body of a write goes; none if its home is elsewhere, or its mode has no record
    /// with a body.
    pub(super) fn goes_to_journal(&self, object: &ObjectId, tags: &Tags) -> Option<ShardId> {
        let shard = self.coherence.shards.of(object);
        let goes = matches!(self.back.mode(object, tags), WriteMode::Lazy | WriteMode::Shadow);
        (goes && self.coherence.is_home(shard)).then_some(shard)
    }

    /// Puts the bytes of a segment on their way to the journal, if they do not go with their record.
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
