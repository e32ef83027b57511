//! The steps of a write behind the memory: into the ledger, and into the queue of unpushed writes.
//! `memory/write_modes.rs` takes them in the order of each mode.

use std::sync::Arc;

use bytes::Bytes;
use nigh_data::{ObjectError, ObjectId, ObjectMeta};
use nigh_engine::{AppendResult, Body as LedgerBody, INLINE_MAX_BYTES, LedgerError, Record, StagedPiece};
use nigh_stores::Payload;
use nigh_terms::{Epoch, ShardId, Version};

use super::dirty::{ObjectState, PossibleBases, TrimmableVersions, WriteBackQueue};
use super::policy::WriteMode;
use super::room::Room;
use super::{WriteBack, WriteOrigin};

impl WriteBack {
    /// Sends a piece of a body to the ledger.
    pub(crate) async fn stage(self: Arc<Self>, shard: ShardId, piece: Bytes) -> Result<StagedPiece, ObjectError> {
        Ok(self.ledger.stage(shard, piece).await?)
    }

    /// Appends a record of the home of `epoch` to the ledger of the object's shard.
    pub(crate) async fn append(
        &self,
        object: &ObjectId,
        epoch: Epoch,
        record: Record,
        body: LedgerBody,
    ) -> Result<AppendResult, LedgerError> {
        self.ledger.append_under(self.shards.of(object), epoch, record, body).await
    }

    /// Takes a version of the object's shard for a write that needs no record.
    pub(crate) fn place(&self, object: &ObjectId) -> Version {
        self.ledger.place(self.shards.of(object))
    }

    /// The ledger is full: pushes all unpushed writes, so that records can be trimmed.
    pub(crate) fn push_all(&self) {
        self.dirty.lock().want_all(self.clock.monotonic());
        self.work.notify_one();
    }

    /// Does what `mode` requires beyond the journal.
    pub(crate) async fn acknowledge(
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

    /// The bytes of a payload in the ledger's form.
    pub(crate) async fn journal_body(
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

    /// Records a write in the ledger that another node may send again.
    pub(crate) fn opened(&self, object: &ObjectId, version: Version, by: Option<&WriteOrigin>) {
        if by.is_some_and(|by| Some(by.member) != self.member) {
            let dirty = self.dirty.lock();
            if self.is_of_home_here(&dirty, object, version) {
                self.trims.lock().opened(self.shards.of(object), object, version);
            }
        }
    }

    /// Adds a durable write to the unpushed ones, if its home is still here.
    pub(crate) async fn wrote(
        &self,
        object: &ObjectId,
        version: Version,
        mode: WriteMode,
        becomes: ObjectState,
        below: PossibleBases,
        room: Room<'_>,
    ) {
        let now = self.clock.monotonic();
        if let Some(context) = nigh_trace::current().filter(|context| context.sampled && nigh_trace::is_on()) {
            self.traced.insert(object.clone(), context);
        }
        let take = |dirty: &mut WriteBackQueue| {
            room.taken(dirty);
            if self.is_of_home_here(dirty, object, version) {
                dirty.write(object, version, mode, becomes, below, now)
            } else {
                TrimmableVersions::new()
            }
        };
        self.let_go(object, take).await;
        self.work.notify_one();
    }
}
