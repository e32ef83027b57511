//! Writes: a body is taken in and verified without holding anything; then, in the object's turn, its
//! conditions are checked, what stands behind makes it durable and gives it its place, and it is kept.
//!
//! A body that goes to the journal goes there piece by piece as it comes, beside the computing of its checksums.

use std::path::PathBuf;
use std::sync::Arc;

use futures::{StreamExt, TryStreamExt};
use nigh_data::attributes::check_tags;
use nigh_data::conditions::check_write;
use nigh_data::digest::{Digest, PIECE_BYTES, VerifiedDigest};
use nigh_data::segment::{Segment, SegmentWriter};
use nigh_data::segment_cost::Cost;
use nigh_data::{
    Attributes, ByteStream, Checksum, ChecksumClaim, ETag, ObjectError, ObjectId, ObjectMeta, PutDone, PutRequest,
    ServeOutcome, Tags, WriteConditions,
};
use nigh_engine::{AppendResult, INLINE_MAX_BYTES, LedgerError, PIECE_MAX_BYTES, RequestId, StagedPiece};
use nigh_protocol::{self, Stamp};
use nigh_stores::Payload;
use nigh_terms::{BucketName, ObjectKey, Principal, ShardId, Timestamp, Token, Version};

use super::invocations::WriteCall;
use super::notify::ChangeDone;
use super::reads::metadata_cost;
use super::write_ticket::{WriteSource, WriteTicket};
use super::{ObjectMemory, ObjectMemoryState, Reservation, object, to_the_end};
use crate::eviction::Origin;
use crate::kept::CachedCopy;
use crate::notification::ObjectChange;
use crate::spool::SpoolFile;
use crate::stamps::Stamped as _;
use crate::sync::{TaskFailure, TaskHandle, spawn};
use crate::write_back::{CommittedWrite, PossibleBases, Write, WriteBack, WriteMode};
use crate::write_order::Turn;

/// The share of the cache's budget that bodies on their way in may take: one in so many. Beyond it they go to
/// the spool, so that slow clients cannot empty the cache.
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
    /// It is to be durable in the journal of this shard.
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

/// A body, verified, where the store can take it from.
pub(super) struct ReceivedBody {
    pub(super) content: Content,
    pub(super) size: u64,
    pub(super) verified: VerifiedDigest,
    /// Its pieces in the journal, if they went there as they came.
    pub(super) journal: Option<Vec<StagedPiece>>,
}

/// Bytes on their way into the store. What is not taken is freed when this is dropped.
pub(super) enum Content {
    /// In memory, with room to stay.
    Memory(Segment, Reservation),
    /// In a file of the spool.
    File(SpoolFile),
    /// In the files of an upload's parts. The store may take the first; only if it has made it the object.
    Parts(Vec<PathBuf>),
}

/// An object that waits for its turn.
pub(super) struct Draft {
    pub(super) object: ObjectId,
    pub(super) conditions: WriteConditions,
    pub(super) attributes: Attributes,
    pub(super) tags: Tags,
    pub(super) content: Content,
    /// Its pieces in the journal, if they went there as they came.
    pub(super) journal: Option<Vec<StagedPiece>>,
    pub(super) size: u64,
    pub(super) etag: ETag,
    pub(super) checksum: Option<Checksum>,
    pub(super) parts: Vec<u64>,
    /// How it came here.
    pub(super) change: ObjectChange,
    /// The client's name for the request, the same when it repeats it.
    pub(super) request: Option<RequestId>,
    /// When it was written, by the clock of the node that took it in.
    pub(super) modified: Timestamp,
}

impl ObjectMemory {
    /// Writes an object. When it returns the write is durable.
    ///
    /// # Errors
    /// `NoSuchBucket`, what is wrong with the body, a condition's, or the store's. Nothing is written then, but
    /// for a `Store` error, after which the object is the old or the new one.
    pub async fn put(
        &self,
        who: &Principal,
        bucket: &BucketName,
        key: &ObjectKey,
        request: PutRequest,
    ) -> Result<PutDone, ObjectError> {
        let inner = &self.0;
        let mut call = inner.begin_write(who, bucket, key);
        let PutRequest { attributes, tags, conditions, body, length, md5, checksum, request } = request;
        attributes.check()?;
        check_tags(&tags)?;
        let limit = inner.limits.object.bytes();
        if length.is_some_and(|length| length > limit) {
            return Err(ObjectError::EntityTooLarge { limit });
        }
        inner.find_bucket(who, bucket).await?;
        let object = object(who, bucket, key);
        let journal = inner.goes_to_journal(&object, &tags);
        let taken = inner.take_in(body, BodyClaims { length, md5, checksum, limit, journal }).await?;
        call.served(taken.size);
        let draft = Draft {
            object,
            conditions,
            attributes,
            tags,
            size: taken.size,
            etag: taken.verified.etag(),
            checksum: taken.verified.checksum,
            content: taken.content,
            journal: taken.journal,
            parts: Vec::new(),
            change: ObjectChange::Put,
            request,
            modified: inner.clock.wall(),
        };
        to_the_end(Arc::clone(inner).commit(call, draft)).await
    }

    /// Deletes an object; also one that is not there. `request` is the client's name for it, the same when it repeats it.
    ///
    /// # Errors
    /// `NoSuchBucket`, a condition's, or the store's.
    pub async fn delete(
        &self,
        who: &Principal,
        bucket: &BucketName,
        key: &ObjectKey,
        conditions: WriteConditions,
        request: Option<RequestId>,
    ) -> Result<(), ObjectError> {
        let inner = &self.0;
        let call = inner.begin_write(who, bucket, key);
        inner.find_bucket(who, bucket).await?;
        to_the_end(Arc::clone(inner).commit_delete(call, object(who, bucket, key), conditions, request)).await
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

    /// Writes `draft`, at its home wherever that is. Not to be given up half way: run it by `to_the_end`.
    pub(super) async fn commit(self: Arc<Self>, mut call: WriteCall, draft: Draft) -> Result<PutDone, ObjectError> {
        let (size, shard) = (draft.size, self.coherence.shards.of(&draft.object));
        let home = self.use_home(shard).await;
        let done = if home.is_some() {
            let turn = self.order.turn(&draft.object).await?;
            let source = WriteSource::Own(call.seen());
            self.put_here(&turn, call.principal().cloned(), source, draft).await
        } else {
            self.put_there(&mut call, draft).await
        };
        let (stamp, done) = self.fenced(done)?;
        drop(home);
        self.wrote(&mut call, shard, stamp).await?;
        call.succeeded(ServeOutcome::Write, Some(done.version), done.token.clone());
        call.of_object(size);
        Ok(done)
    }

    /// Takes note of a ledger that another home has taken: what became of the write the next home knows.
    fn fenced<T>(&self, written: Result<T, ObjectError>) -> Result<T, ObjectError> {
        if let Err(ObjectError::Ledger(LedgerError::Fenced { shard, .. })) = &written
            && !self.coherence.is_alone()
        {
            self.depose(*shard);
        }
        written
    }

    /// A write has its place: its writer's next invocation, or any of its namespace if it has none, is to know.
    pub(super) async fn wrote(&self, call: &mut WriteCall, shard: ShardId, stamp: Stamp) -> Result<(), ObjectError> {
        if !self.coherence.is_alone()
            && let Some(who) = call.principal().filter(|who| who.invocation.is_none())
        {
            let mut token = Token::empty();
            stamp.join_into(shard, &mut token);
            if self.compared().carries_tokens() {
                self.hand_over(&who.namespace, &token).await?;
            }
        }
        call.wrote(stamp);
        Ok(())
    }

    /// Writes `draft` at the home here, in its turn.
    pub(super) async fn put_here(
        self: &Arc<Self>,
        _turn: &Turn,
        who: Option<Principal>,
        source: WriteSource,
        draft: Draft,
    ) -> Result<(Stamp, PutDone), ObjectError> {
        let Draft {
            object,
            conditions,
            attributes,
            tags,
            content,
            journal,
            size,
            etag,
            checksum,
            parts,
            change,
            request,
            modified,
        } = draft;
        if let Some(done) = self.put_before(who.as_ref(), &object, change, request).await? {
            return Ok(done);
        }
        let below = self.check_write(&conditions, &object).await?;
        let notices = self.reserve_notices(&object, change)?;
        let mode = self.mode_of(&object, &tags, size, &content);
        let meta = ObjectMeta {
            size,
            etag,
            modified,
            attributes,
            tags,
            checksums: checksum.clone().into_iter().collect(),
            parts,
            version: Version::OUTSIDE,
            token: Token::empty(),
        };
        let node = self.writer_of(&source);
        let (mut ticket, _) = WriteTicket::begin(self, &object, nigh_protocol::Write::Put, source)?;
        let payload = match &content {
            Content::Memory(segment, _) => Payload::Segment(segment.clone()),
            Content::File(file) => Payload::Files(vec![file.path().to_owned()]),
            Content::Parts(files) => Payload::Files(files.clone()),
        };
        let (copy, _content) = self.copy_of(&object, &meta, content);
        if let Some(copy) = copy {
            ticket.keep(copy, if mode == WriteMode::Ephemeral { Origin::Ephemeral } else { Origin::Written });
        }
        let past_journal = size > self.limits.cached_object.bytes();
        let (object, order, by) = (&object, &ticket, ticket.by());
        let write = Write { object, meta, payload, staged: journal, mode, request, order, below, past_journal, by };
        let CommittedWrite { meta, repeated } = self.back.put(write).await.inspect_err(|error| ticket.failed(error))?;
        let stamp = ticket.ended(repeated).await?.unwrap_or_else(|| meta.stamp());
        self.doubts.lock().settle(object);
        self.until_dropped(object).await;
        let (version, token) = (stamp.version, stamp.others.as_deref().cloned().unwrap_or_default());
        if let Some(who) = who {
            let created = Some((size, &meta.etag));
            let done = ChangeDone { object, change, who: &who, created, stamp: &stamp, node, at: meta.modified };
            self.notify(notices, done).await?;
            self.back.told(object, request);
        }
        let done = PutDone { etag: meta.etag.clone(), size, modified: meta.modified, checksum, version, token };
        Ok((stamp, done))
    }

    /// What is kept of an object that is written: its bytes if they are in memory; if it is too large for that, its
    /// metadata. What else there is of its content stays until the write has ended.
    fn copy_of(
        self: &Arc<Self>,
        object: &ObjectId,
        meta: &ObjectMeta,
        content: Content,
    ) -> (Option<(CachedCopy, Reservation)>, Option<Content>) {
        match content {
            Content::Memory(segment, room) => (Some((CachedCopy::new(meta, Some(segment)), room)), None),
            Content::File(_) | Content::Parts(..) if meta.size > self.limits.cached_object.bytes() => {
                let room = self.reserve(metadata_cost(object, meta));
                (room.map(|room| (CachedCopy::new(meta, None), room)), Some(content))
            }
            Content::File(_) | Content::Parts(..) => (None, Some(content)),
        }
    }

    /// Refuses what the conditions forbid; where others write too, what they were checked on.
    async fn check_write(
        self: &Arc<Self>,
        conditions: &WriteConditions,
        object: &ObjectId,
    ) -> Result<Option<PossibleBases>, ObjectError> {
        if *conditions == WriteConditions::default() {
            return Ok(None);
        }
        if let Some((current, below)) = self.back.look_below(object).await? {
            check_write(conditions, object, current.as_deref())?;
            return Ok(Some(below));
        }
        let current = self.current_if_any(object).await?;
        check_write(conditions, object, current.as_deref()).map(|()| None)
    }

    /// How a write is kept: by the bucket's policy, as far as what there is of it allows.
    fn mode_of(&self, object: &ObjectId, tags: &Tags, size: u64, content: &Content) -> WriteMode {
        match self.back.mode(object, tags) {
            // What does not stay in memory is not kept there alone.
            WriteMode::Ephemeral if !matches!(content, Content::Memory(..)) => WriteMode::Lazy,
            mode => mode,
        }
        .max(self.least_mode(size))
        .max(self.least_mode_beside_others(object))
    }

    /// Beside a write of somebody else nothing waits: the store orders both.
    fn least_mode_beside_others(&self, object: &ObjectId) -> WriteMode {
        if self.is_written_outside(object) { WriteMode::Through } else { WriteMode::Ephemeral }
    }

    /// The journal to which the body of a write is to go, if it is not too large for that: none if its home is elsewhere,
    /// or it is kept otherwise.
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

    /// Objects too large for memory go to the store at once: the journal is not for them.
    fn least_mode(&self, size: u64) -> WriteMode {
        if size > self.limits.cached_object.bytes() { WriteMode::Through } else { WriteMode::Ephemeral }
    }

    async fn commit_delete(
        self: Arc<Self>,
        mut call: WriteCall,
        object: ObjectId,
        conditions: WriteConditions,
        request: Option<RequestId>,
    ) -> Result<(), ObjectError> {
        let shard = self.coherence.shards.of(&object);
        let home = self.use_home(shard).await;
        let stamp = if home.is_some() {
            let turn = self.order.turn(&object).await?;
            let source = WriteSource::Own(call.seen());
            self.delete_here(&turn, call.principal().cloned(), source, &object, &conditions, request).await
        } else {
            self.delete_there(&mut call, object, conditions, request).await
        };
        let stamp = self.fenced(stamp)?;
        drop(home);
        let version = stamp.version;
        self.wrote(&mut call, shard, stamp).await?;
        call.succeeded(ServeOutcome::Delete, Some(version), Token::empty());
        Ok(())
    }

    /// Deletes an object at the home here, in its turn.
    pub(super) async fn delete_here(
        self: &Arc<Self>,
        _turn: &Turn,
        who: Option<Principal>,
        source: WriteSource,
        object: &ObjectId,
        conditions: &WriteConditions,
        request: Option<RequestId>,
    ) -> Result<Stamp, ObjectError> {
        let change = ObjectChange::Delete;
        if let Some(version) = self.deleted_before(who.as_ref(), object, request).await? {
            return Ok(Stamp { version, others: None });
        }
        let below = self.check_write(conditions, object).await?;
        let is_wanted = self.is_wanted(object, change);
        let (is_there, tags) = if is_wanted || self.back.asks_tags(object) {
            match self.current_if_any(object).await {
                Ok(meta) => (meta.is_some(), meta.map(|meta| meta.tags.clone()).unwrap_or_default()),
                // What is lost can be deleted.
                Err(ObjectError::EphemeralLost(_) | ObjectError::Damaged(_)) => (true, Tags::new()),
                Err(error) => return Err(error),
            }
        } else {
            (false, Tags::new())
        };
        let mode = self.back.mode(object, &tags).max(self.least_mode_beside_others(object));
        // Nobody is told of the removal of what was not there.
        let notices = if is_wanted && is_there { self.reserve_notices(object, change)? } else { None };
        let node = self.writer_of(&source);
        let (mut ticket, _) = WriteTicket::begin(self, object, nigh_protocol::Write::Delete, source)?;
        let deleted = self.back.delete(object, mode, request, &ticket, below, ticket.by()).await;
        let AppendResult { version, repeated } = deleted.inspect_err(|error| ticket.failed(error))?;
        let stamp = ticket.ended(repeated).await?.unwrap_or(Stamp { version, others: None });
        self.doubts.lock().settle(object);
        self.until_dropped(object).await;
        if let Some(who) = who {
            let at = self.clock.wall();
            let done = ChangeDone { object, change, who: &who, created: None, stamp: &stamp, node, at };
            self.notify(notices, done).await?;
            self.back.told(object, request);
        }
        Ok(stamp)
    }

    pub(super) async fn write_tags(
        self: Arc<Self>,
        mut call: WriteCall,
        object: ObjectId,
        tags: Tags,
    ) -> Result<(), ObjectError> {
        let shard = self.coherence.shards.of(&object);
        let home = self.use_home(shard).await;
        let stamp = if home.is_some() {
            let turn = self.order.turn(&object).await?;
            self.tag_here(&turn, WriteSource::Own(call.seen()), &object, &tags).await
        } else {
            self.tag_there(&mut call, object, tags).await
        };
        let stamp = self.fenced(stamp)?;
        drop(home);
        let version = stamp.as_ref().map(|stamp| stamp.version);
        if let Some(stamp) = stamp {
            self.wrote(&mut call, shard, stamp).await?;
        }
        call.succeeded(ServeOutcome::Metadata, version, Token::empty());
        Ok(())
    }

    /// Replaces an object's tags at the home here, in its turn.
    pub(super) async fn tag_here(
        self: &Arc<Self>,
        _turn: &Turn,
        source: WriteSource,
        object: &ObjectId,
        tags: &Tags,
    ) -> Result<Option<Stamp>, ObjectError> {
        let (mut ticket, before) = WriteTicket::begin(self, object, nigh_protocol::Write::Put, source)?;
        // The bytes are as they were: a copy there was is kept on, with the new tags.
        if let Some(CachedCopy { meta, segment }) = before {
            let meta = ObjectMeta { tags: tags.clone(), ..ObjectMeta::clone(&meta.unpack()) };
            let cost = segment.as_ref().map_or_else(|| metadata_cost(object, &meta), Segment::cost);
            if let Some(room) = self.reserve(cost) {
                ticket.keep((CachedCopy::new(&meta, segment), room), Origin::Written);
            }
        }
        let tagged = self.back.put_tags(object, tags, &ticket, ticket.by()).await;
        tagged.inspect_err(|error| ticket.failed(error))?;
        let ended = ticket.ended(false).await;
        self.until_dropped(object).await;
        ended
    }
}
