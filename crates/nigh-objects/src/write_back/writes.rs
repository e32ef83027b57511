//! Writes and deletions by their mode: into the journal, through to the store, or kept in memory alone.
//!
//! Each is durable by its mode when it returns, and takes its place in the order then. What of an object waits goes
//! before: a write through it goes by the journal too.

use std::sync::Arc;

use bytes::Bytes;
use nigh_data::{ObjectError, ObjectId, ObjectMeta, Tags};
use nigh_engine::{
    AppendResult, Body as LedgerBody, Change, INLINE_MAX_BYTES, LedgerError, Record, RequestId, StagedPiece,
};
use nigh_stores::Payload;
use nigh_terms::{ShardId, Version};

use super::dirty::{Base, ObjectState, PossibleBases, TrimmableVersions, WriteBackQueue};
use super::policy::WriteMode;
use super::room::Room;
use super::{CommittedWrite, Order, Write, WriteBack, WriteOrigin, about, unkept};

impl WriteBack {
    /// Puts a piece of a body on its way to the ledger.
    pub(crate) async fn stage(self: Arc<Self>, shard: ShardId, piece: Bytes) -> Result<StagedPiece, ObjectError> {
        Ok(self.ledger.stage(shard, piece).await?)
    }

    /// Keeps a write; durable by its mode when it returns.
    ///
    /// # Errors
    /// `SlowDown` if there is no room, the store's, or the ledger's.
    pub(crate) async fn put(&self, write: Write<'_>) -> Result<CommittedWrite, ObjectError> {
        self.store.check(write.object, &write.meta)?;
        self.ledger.check(self.shards.of(write.object))?;
        let _inside = self.enter(write.object).await?;
        match write.mode {
            WriteMode::Through if self.member.is_some() && !write.past_journal => self.put_journal(write).await,
            WriteMode::Through => self.put_through(write).await,
            WriteMode::Ephemeral => self.put_ephemeral(write).await,
            WriteMode::Shadow => self.put_shadow(write).await,
            WriteMode::Lazy => {
                let (object, mode) = (write.object.clone(), write.mode);
                self.put_journal(write).await.inspect(|_| tracing::trace!(%object, %mode, "kept in the journal"))
            }
        }
    }

    pub(super) async fn put_through(&self, write: Write<'_>) -> Result<CommittedWrite, ObjectError> {
        let Write { object, meta, payload, below, past_journal, request, order, .. } = &write;
        let mut base = below.as_ref().map_or(Base::Unknown, |below| below.base.clone());
        if self.dirty.lock().get(object).is_some() {
            if !past_journal {
                // What the store gets of this object is the persistor's affair until nothing waits and nothing can land.
                return self.put_journal(write).await;
            }
            let left = self.hand_over(object).await?;
            if below.is_some() {
                base = left.unwrap_or(base);
            }
        }
        self.settle(object).await?;
        let meta = Arc::new(ObjectMeta { version: order.mark(), ..meta.clone() });
        self.note(*request, object, WriteMode::Through, meta.version, ObjectState::Put(Arc::clone(&meta)), false);
        self.put_onto(object, payload, &meta, &base).await?;
        // What was never to be pushed has stood until now.
        self.drop_where(object, |newest| !newest.is_pushed_at_last()).await;
        self.unmark(object).await;
        self.settle(object).await?;
        let meta = Arc::new(ObjectMeta { version: self.place_stored(object, *order), ..ObjectMeta::clone(&meta) });
        self.note(*request, object, WriteMode::Through, meta.version, ObjectState::Put(Arc::clone(&meta)), true);
        Ok(CommittedWrite { meta, repeated: false })
    }

    async fn put_ephemeral(&self, write: Write<'_>) -> Result<CommittedWrite, ObjectError> {
        let Write { object, meta, payload, request, order, .. } = write;
        self.flush(object).await?;
        let room = self.wait_for_room(object, meta.size).await?;
        let mark = self.mark_of(object, &meta)?;
        order.asking();
        let meta = Arc::new(ObjectMeta { version: self.ledger.place(self.shards.of(object)), ..meta });
        if let Payload::Segment(segment) = payload {
            self.hold(object, Arc::clone(&meta), segment);
        }
        let becomes = ObjectState::Put(Arc::clone(&meta));
        self.note(request, object, WriteMode::Ephemeral, meta.version, becomes.clone(), true);
        self.wrote(object, meta.version, WriteMode::Ephemeral, becomes, PossibleBases::default(), room).await;
        order.placed(meta.version, false);
        self.mark(object, mark, order);
        Ok(CommittedWrite { meta, repeated: false })
    }

    async fn put_journal(&self, write: Write<'_>) -> Result<CommittedWrite, ObjectError> {
        let Write { object, meta, payload, staged, mode, request, order, below, past_journal: _, by } = write;
        let room = self.wait_for_room(object, meta.size).await?;
        let below = self.below(object, below).await?;
        let about = about::encode(mode, Some(&meta), &below, by.clone()).map_err(|reason| unkept(object, &reason))?;
        let body = match staged {
            Some(staged) => LedgerBody::Staged(staged),
            None => self.journal_body(object, &payload, &meta).await?,
        };
        self.mark_landed(object).await;
        let appended = self.append(order, object, request, Change::Put { about }, body).await?;
        let meta = Arc::new(ObjectMeta { version: appended.version, ..meta });
        self.note(request, object, mode, meta.version, ObjectState::Put(Arc::clone(&meta)), true);
        if !appended.repeated {
            self.opened(object, meta.version, by.as_ref());
            self.wrote(object, meta.version, mode, ObjectState::Put(Arc::clone(&meta)), below, room).await;
            self.unmark(object).await;
            order.placed(meta.version, false);
        }
        // Who repeats a request is promised the same: the first may have been refused, or still wait.
        self.acknowledge(object, mode, meta.version).await?;
        Ok(CommittedWrite { meta, repeated: appended.repeated })
    }

    /// Does what `mode` asks for beyond the journal.
    pub(super) async fn acknowledge(
        &self,
        object: &ObjectId,
        mode: WriteMode,
        version: Version,
    ) -> Result<(), ObjectError> {
        match mode {
            WriteMode::Through => self.flushed(object, version).await,
            WriteMode::Ephemeral | WriteMode::Lazy | WriteMode::Shadow => Ok(()),
        }
    }

    /// The bytes of a payload as the ledger takes them.
    pub(super) async fn journal_body(
        &self,
        object: &ObjectId,
        payload: &Payload,
        meta: &ObjectMeta,
    ) -> Result<LedgerBody, ObjectError> {
        let shard = self.shards.of(object);
        let pieces = nigh_stores::payload_pieces(payload, meta)?;
        if meta.size <= INLINE_MAX_BYTES as u64 {
            let mut whole = Vec::with_capacity(meta.size as usize);
            pieces.iter().for_each(|piece| whole.extend_from_slice(piece));
            return Ok(LedgerBody::Inline(whole.into()));
        }
        let mut staged = Vec::new();
        for mut piece in pieces {
            while !piece.is_empty() {
                let part = piece.split_to(piece.len().min(nigh_engine::PIECE_MAX_BYTES));
                staged.push(self.ledger.stage(shard, part).await?);
            }
        }
        Ok(LedgerBody::Staged(staged))
    }

    /// A write stands in the ledger: if another node asked for it, it may ask again.
    fn opened(&self, object: &ObjectId, version: Version, by: Option<&WriteOrigin>) {
        if by.is_some_and(|by| Some(by.member) != self.member) {
            let dirty = self.dirty.lock();
            if self.reigns(&dirty, object, version) {
                self.trims.lock().opened(self.shards.of(object), object, version);
            }
        }
    }

    /// A write that the store has takes its place: the newest, whatever came to stand while it was on its way.
    fn place_stored(&self, object: &ObjectId, order: &dyn Order) -> Version {
        order.asking();
        let version = self.ledger.place(self.shards.of(object));
        order.placed(version, true);
        version
    }

    pub(super) async fn append(
        &self,
        order: &dyn Order,
        object: &ObjectId,
        request: Option<RequestId>,
        change: Change,
        body: LedgerBody,
    ) -> Result<AppendResult, ObjectError> {
        let (shard, ObjectId { namespace, bucket, key }) = (self.shards.of(object), object.clone());
        let request = request.unwrap_or_else(|| RequestId(uuid::Uuid::new_v4().as_u128()));
        order.asking();
        let appended = self.ledger.append(shard, Record { request, namespace, bucket, key, change }, body).await;
        match &appended {
            Ok(appended) if !appended.repeated => {}
            Ok(_) => order.refused(false),
            Err(error) => order.refused(error.may_have_taken_a_version()),
        }
        if matches!(appended, Err(LedgerError::Full)) {
            self.dirty.lock().want_all(self.clock.monotonic());
            self.work.notify_one();
        }
        Ok(appended?)
    }

    /// Takes note of a write that is durable, if its home is here still.
    pub(super) async fn wrote(
        &self,
        object: &ObjectId,
        version: Version,
        mode: WriteMode,
        becomes: ObjectState,
        below: PossibleBases,
        room: Room<'_>,
    ) {
        let now = self.clock.monotonic();
        let take = |dirty: &mut WriteBackQueue| {
            room.taken(dirty);
            if self.reigns(dirty, object, version) {
                dirty.write(object, version, mode, becomes, below, now)
            } else {
                TrimmableVersions::new()
            }
        };
        self.let_go(object, take).await;
        self.work.notify_one();
    }

    /// Deletes the object, by `mode`.
    ///
    /// # Errors
    /// As of a put.
    pub(crate) async fn delete(
        &self,
        object: &ObjectId,
        mode: WriteMode,
        request: Option<RequestId>,
        order: &dyn Order,
        below: Option<PossibleBases>,
        by: Option<WriteOrigin>,
    ) -> Result<AppendResult, ObjectError> {
        self.ledger.check(self.shards.of(object))?;
        let _inside = self.enter(object).await?;
        let waits = self.dirty.lock().get(object).is_some();
        // In a shared bucket a deletion is late only if a write of the object is. And a store shows that something is
        // coming, not that something is going.
        let through = mode >= WriteMode::Shadow || self.is_shared(object);
        if through && !waits && self.member.is_none() {
            self.settle(object).await?;
            let base = below.map_or(Base::Unknown, |below| below.base);
            self.delete_from(object, &base).await?;
            let version = self.place_stored(object, order);
            self.note(request, object, WriteMode::Through, version, ObjectState::Gone, true);
            return Ok(AppendResult { version, repeated: false });
        }
        let mode = if through { WriteMode::Through } else { mode.max(WriteMode::Lazy) };
        let room = self.wait_for_room(object, 0).await?;
        let below = self.below(object, below).await?;
        let about = about::encode(mode, None, &below, by.clone()).map_err(|reason| unkept(object, &reason))?;
        let body = LedgerBody::Inline(Bytes::new());
        self.mark_landed(object).await;
        let appended = self.append(order, object, request, Change::Delete { about }, body).await?;
        self.note(request, object, mode, appended.version, ObjectState::Gone, true);
        if !appended.repeated {
            self.opened(object, appended.version, by.as_ref());
            self.wrote(object, appended.version, mode, ObjectState::Gone, below, room).await;
            self.unmark(object).await;
            order.placed(appended.version, false);
        }
        self.acknowledge(object, mode, appended.version).await?;
        Ok(appended)
    }

    /// Replaces the object's tags. One that waits is written anew with them.
    ///
    /// # Errors
    /// `NoSuchKey`, or as of a put.
    pub(crate) async fn put_tags(
        &self,
        object: &ObjectId,
        tags: &Tags,
        order: &dyn Order,
        by: Option<WriteOrigin>,
    ) -> Result<(), ObjectError> {
        self.ledger.check(self.shards.of(object))?;
        let _inside = self.enter(object).await?;
        if self.retag(object, tags, order)? {
            return Ok(());
        }
        let waiting = match self.waiting_put(object)? {
            Some((meta, mode)) => self.read_waiting(object, &meta).await?.map(|bytes| (meta, mode, bytes)),
            None => None,
        };
        let Some((meta, mode, bytes)) = waiting else {
            self.settle(object).await?;
            self.store.put_tags(object, tags).await?;
            self.place_stored(object, order);
            return Ok(());
        };
        let meta = ObjectMeta { tags: tags.clone(), ..ObjectMeta::clone(&meta) };
        let payload = Payload::Segment(nigh_data::Segment::copy_of(&bytes)?);
        let (below, past_journal) = (None, false);
        let write = Write { object, meta, payload, staged: None, mode, request: None, order, below, past_journal, by };
        match mode {
            WriteMode::Shadow => self.put_shadow(write).await?,
            _ => self.put_journal(write).await?,
        };
        Ok(())
    }
}
