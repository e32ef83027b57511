//! A write under the object's write lock, from its beginning at the node until the home has its version.
//!
//! The ticket tells the home the outcome of the write exactly once. If the ticket is dropped half way, the write does
//! not take place for the home, and has an unknown outcome for readers. The ticket decides nothing.

use std::sync::Arc;

use nigh_data::{ETag, ObjectError, ObjectId};
use nigh_engine::LedgerError;
use nigh_protocol::{AppendId, FromHome, PutFailure, Reply, Request, RequestId, Stamp, ToHome, Write};
use nigh_terms::{Epoch, NodeNumber, ShardId, Token, Version};
use tokio::sync::{oneshot, watch};

use super::ObjectMemoryState;
use super::append_order::AppendNumber;
use super::coherence::{BegunWrite, ended, moved};
use super::foreign::ForeignWrite;
use super::room::Reservation;
use crate::cache::CostedCopy;
use crate::eviction::Origin;
use crate::kept::CachedCopy;
use crate::outside::StoreNotice;
use crate::sync::Mutex;
use crate::write_back::WriteOrigin;

/// The stage of a write.
#[derive(Debug)]
enum Stage {
    /// The ledger was not asked for a version yet.
    Begun,
    /// The ledger was asked for a version.
    Asked(AppendNumber),
    /// The home was told the version, or will be when it was told all earlier ones.
    Told,
}

/// The source of a write.
pub(super) enum WriteSource {
    /// A writer of this node, who has seen this token.
    Own(Arc<Token>),
    /// A writer of this node, whose write began while its home was elsewhere.
    Begun(BegunWrite, Arc<Token>),
    /// Another node, by this request.
    Foreign(Request<ObjectId>),
}

impl ObjectMemoryState {
    /// The node at which the write began.
    pub(super) fn writer_of(&self, source: &WriteSource) -> NodeNumber {
        match source {
            WriteSource::Own(_) | WriteSource::Begun(..) => self.coherence.member().node,
            WriteSource::Foreign(request) => request.from.node,
        }
    }
}

/// Who waits for the home's answer to a write.
enum Writer {
    /// A request of this node waits.
    Own { request: RequestId, done: Option<oneshot::Receiver<Result<Stamp, PutFailure>>> },
    /// A request of another node waits; `copy` is cached here.
    Foreign { answered: watch::Receiver<Option<Reply<ObjectId>>>, copy: Option<CostedCopy> },
}

/// A write under way at a home here. If it is dropped half way, it leaves no copy, and its outcome is unknown.
pub(super) struct WriteTicket {
    pub(super) inner: Arc<ObjectMemoryState>,
    object: ObjectId,
    shard: ShardId,
    writer: Writer,
    append: AppendId,
    by: WriteOrigin,
    stage: Mutex<Stage>,
    /// The entity tag of the copy to be cached; none if there is no copy.
    etag: Option<ETag>,
    /// True if the store has said that it did not write.
    refused: bool,
}

impl WriteTicket {
    /// Begins the write at its home here. A write of this node begins at the node too: that drops the node's copy and
    /// forgets fetches that began before. Returns the dropped copy.
    pub(super) fn begin(
        inner: &Arc<ObjectMemoryState>,
        object: &ObjectId,
        write: Write,
        source: WriteSource,
    ) -> Result<(Self, Option<CachedCopy>), ObjectError> {
        Self::prepare(inner, object);
        let (inner, object) = (Arc::clone(inner), object.clone());
        let begun = Self::ask(&inner, &object, write, source).inspect_err(|_| Self::unprepare(&inner, &object));
        let (writer, append, by, before) = begun?;
        let (shard, stage) = (inner.coherence.shards.of(&object), Mutex::new(Stage::Begun));
        Ok((Self { inner, object, shard, writer, append, by, stage, etag: None, refused: false }, before))
    }

    /// Sends the write to its home.
    fn ask(
        inner: &Arc<ObjectMemoryState>,
        object: &ObjectId,
        write: Write,
        source: WriteSource,
    ) -> Result<(Writer, AppendId, WriteOrigin, Option<CachedCopy>), ObjectError> {
        let coherence = &inner.coherence;
        let (begun, token) = match source {
            WriteSource::Foreign(request) => {
                let ToHome::Put { request: id, token, .. } = &request.body else { return Err(ended()) };
                let by = WriteOrigin { member: request.from, request: *id, token: Token::clone(token) };
                return match coherence.foreign_write(inner.now(), object, request) {
                    ForeignWrite::Append(append, answered) => {
                        Ok((Writer::Foreign { answered, copy: None }, append, by, None))
                    }
                    ForeignWrite::Answer(_) | ForeignWrite::Nothing => Err(moved()),
                };
            }
            WriteSource::Begun(begun, token) => (begun, token),
            WriteSource::Own(token) => {
                let (begun, dropped) = coherence.write(inner.now(), object, write, Arc::clone(&token))?;
                inner.settle(dropped);
                (begun, token)
            }
        };
        let BegunWrite { request, append, done, before, stands: _ } = begun;
        let Some(append) = append else {
            coherence.withdraw_write(request);
            return Err(if coherence.is_alone() { ended() } else { moved() });
        };
        let by = WriteOrigin { member: coherence.member(), request, token: Token::clone(&token) };
        Ok((Writer::Own { request, done: Some(done) }, append, by, before.map(|before| before.kept)))
    }

    /// The writer, for the ledger's record; none if the node is alone.
    pub(super) fn by(&self) -> Option<WriteOrigin> {
        (!self.inner.coherence.is_alone()).then(|| self.by.clone())
    }

    fn prepare(inner: &Arc<ObjectMemoryState>, object: &ObjectId) {
        if inner.back.is_ephemeral(object) {
            let kept = inner.shelf().peek(object).cloned();
            if let Some(CachedCopy { meta, segment: Some(segment) }) = kept {
                // Readers get the old bytes until the write has ended; if the write is refused, the old bytes stay.
                inner.back.hold(object, meta.unpack(), segment);
            }
        }
        inner.writing.lock().insert(object.clone(), StoreNotice::default());
    }

    fn unprepare(inner: &Arc<ObjectMemoryState>, object: &ObjectId) {
        inner.writing.lock().remove(object);
        inner.back.release(object);
    }

    /// Sets the copy that is cached when the write has its version.
    pub(super) fn keep(&mut self, (kept, room): (CachedCopy, Reservation), origin: Origin) {
        self.etag = Some(kept.meta.unpack().etag.clone());
        let shelved = CostedCopy { kept, cost: room.take(), origin };
        match &mut self.writer {
            Writer::Own { request, .. } => self.inner.coherence.deposit(*request, shelved),
            Writer::Foreign { copy, .. } => *copy = Some(shelved),
        }
    }

    /// Takes the copy back: the write gets its version and is not cached.
    fn withdraw(&self) {
        if let Writer::Own { request, .. } = &self.writer {
            let withdrawn = self.inner.coherence.withdraw(*request);
            self.inner.settle(withdrawn);
        }
    }

    /// Moves to stage `next`. Returns the number of the append, if the ledger was asked.
    fn leave(&self, next: Stage) -> Option<AppendNumber> {
        let mut stage = self.stage.lock();
        let Stage::Asked(asked) = *stage else { return None };
        *stage = next;
        Some(asked)
    }

    /// The epoch of the home at which the write began.
    pub(super) const fn epoch(&self) -> Epoch {
        self.append.epoch
    }

    /// Records that the write has failed with `error`. An error of the store, or of the connection to it, leaves the
    /// outcome unknown.
    pub(super) fn failed(&mut self, error: &ObjectError) {
        self.refused = !error.is_in_doubt();
        let is_fenced = matches!(error, ObjectError::Ledger(LedgerError::Fenced { .. }));
        if is_fenced && !self.inner.coherence.is_alone() {
            self.inner.depose(self.shard, self.epoch());
        }
    }

    /// The write is durable. Returns when the home has applied its version; a `repeated` write has none.
    pub(super) async fn ended(mut self, repeated: bool) -> Result<Option<Stamp>, ObjectError> {
        if repeated {
            self.refused = true;
            return Ok(None);
        }
        let (answered, copy) = match &mut self.writer {
            Writer::Own { done, .. } => {
                let Some(done) = done.take() else { return Err(ended()) };
                return match done.await {
                    Ok(Ok(stamp)) => Ok(Some(stamp)),
                    Ok(Err(_)) | Err(_) => Err(ended()),
                };
            }
            Writer::Foreign { answered, copy } => (answered, copy),
        };
        let answer = answered.wait_for(Option::is_some).await.map(|answer| answer.clone());
        let Ok(Some(Reply { body: FromHome::Written { stamp, .. }, .. })) = answer else { return Err(ended()) };
        if let Some(copy) = copy.take() {
            let dropped = self.inner.coherence.adopt(self.inner.now(), &self.object, stamp.version, copy);
            self.inner.settle(dropped);
        }
        Ok(Some(stamp))
    }
}

/// Reports the ledger's answer about the write, in the order of the versions.
impl WriteTicket {
    /// A version that no write has, for what the store shows before the write has its place in the order.
    ///
    /// # Errors
    /// `SlowDown` if the write's home has ended: the store must not be written.
    pub(super) fn placeholder_version(&self) -> Result<Version, ObjectError> {
        let (version, dropped) = self.inner.coherence.mark(self.inner.now(), self.shard);
        self.inner.settle(dropped);
        if version.epoch == self.epoch() { Ok(version) } else { Err(moved()) }
    }

    /// The ledger is about to be asked for a version.
    ///
    /// # Errors
    /// `SlowDown` if the write's home has ended. A later home in this process does not know the write: the ledger must not
    /// be asked in its name.
    pub(super) fn before_append(&self) -> Result<(), ObjectError> {
        let asked = self.inner.coherence.appending(self.shard, self.epoch()).ok_or_else(moved)?;
        *self.stage.lock() = Stage::Asked(asked);
        Ok(())
    }

    /// Passes on a version that the ledger gave without a record.
    ///
    /// # Errors
    /// `SlowDown` if the ledger was the next home's already; the version is no write's then.
    pub(super) fn placed(&self, version: Version) -> Result<Version, ObjectError> {
        if version.epoch == self.epoch() {
            return Ok(version);
        }
        self.skipped(version);
        Err(moved())
    }

    /// The ledger gave this version, and readers of `write_back` see the write. `stored` is true if the store has it.
    pub(super) fn committed(&self, version: Version, stored: bool) {
        let Some(asked) = self.leave(Stage::Told) else { return };
        // An outside write is reported before or after this whole block: it may have come after this write.
        let mut writing = self.inner.writing.lock();
        let noticed = writing.remove(&self.object).unwrap_or_default();
        let is_own = self.etag.as_ref().is_none_or(|etag| noticed.is_of(etag));
        if !is_own || self.inner.is_written_outside(&self.object) {
            self.withdraw();
        }
        let (stored, appended) = (stored.then_some(&self.object), (self.append, asked));
        let dropped = self.inner.coherence.appended(self.inner.now(), self.shard, appended, version, stored);
        drop(writing);
        self.inner.settle(dropped);
    }

    /// The ledger gave this version, but the outcome is unknown, so nobody may read the write.
    pub(super) fn committed_hidden(&self, version: Version) {
        let Some(asked) = self.leave(Stage::Told) else { return };
        self.withdraw();
        let appended = (self.append, asked);
        let dropped = self.inner.coherence.appended(self.inner.now(), self.shard, appended, version, None);
        self.inner.settle(dropped);
    }

    /// The ledger gave this version, and the write does not take place.
    pub(super) fn skipped(&self, version: Version) {
        let Some(asked) = self.leave(Stage::Begun) else { return };
        let dropped = self.inner.coherence.passed(self.inner.now(), self.shard, asked, version);
        self.inner.settle(dropped);
    }

    /// The ledger gave no version; or, with `lost`, one that nobody knows.
    pub(super) fn append_failed(&self, lost: bool) {
        let Some(asked) = self.leave(Stage::Begun) else { return };
        let dropped = self.inner.coherence.refused(self.inner.now(), self.shard, asked, lost);
        self.inner.settle(dropped);
    }
}

impl ObjectMemoryState {
    /// Caches the held bytes of an ephemeral object, unless there is a copy, and holds them for readers no longer.
    pub(super) fn cache_held(self: &Arc<Self>, object: &ObjectId) {
        if let Some((meta, segment)) = self.back.held(object)
            && self.shelf().peek(object).is_none()
            && let Some(room) = self.reserve(segment.cost())
        {
            let cost = room.take();
            let dropped = {
                let mut shelf = self.shelf();
                shelf.release(cost);
                shelf.keep(object, CachedCopy::new(&meta, Some(segment)), cost, Origin::Ephemeral)
            };
            self.settle(dropped);
        }
        self.back.release(object);
    }
}

/// A version that no write has, while the ledger is asked for it. If this is dropped, the ledger gave none, or one that
/// nobody knows.
pub(super) struct AsideTicket {
    inner: Arc<ObjectMemoryState>,
    shard: ShardId,
    asked: Option<AppendNumber>,
}

impl AsideTicket {
    /// Call before the ledger is asked, beside the write of `ticket`.
    pub(super) fn begin(ticket: &WriteTicket) -> Self {
        Self::at_home(&ticket.inner, ticket.shard, ticket.epoch())
    }

    /// Call before the ledger is asked for what is no write at the home of `shard` under `epoch`.
    pub(super) fn at_home(inner: &Arc<ObjectMemoryState>, shard: ShardId, epoch: Epoch) -> Self {
        Self { inner: Arc::clone(inner), shard, asked: inner.coherence.appending(shard, epoch) }
    }

    /// The ledger gave this version.
    pub(super) fn skipped(mut self, version: Version) {
        if let Some(asked) = self.asked.take() {
            let dropped = self.inner.coherence.passed(self.inner.now(), self.shard, asked, version);
            self.inner.settle(dropped);
        }
    }
}

impl Drop for AsideTicket {
    fn drop(&mut self) {
        if let Some(asked) = self.asked.take() {
            let dropped = self.inner.coherence.refused(self.inner.now(), self.shard, asked, true);
            self.inner.settle(dropped);
        }
    }
}

impl Drop for WriteTicket {
    fn drop(&mut self) {
        if let Writer::Foreign { copy: Some(copy), .. } = &self.writer {
            self.inner.shelf().release(copy.cost);
        }
        self.inner.writing.lock().remove(&self.object);
        // The ledger was asked and may have the write, although it has not answered.
        self.append_failed(true);
        if matches!(*self.stage.lock(), Stage::Told) {
            self.inner.cache_held(&self.object);
            return;
        }
        if !self.refused {
            self.inner.doubts.lock().arise(&self.object, self.inner.now());
        }
        let dropped = self.inner.coherence.not_appended(self.inner.now(), self.shard, self.append);
        self.inner.settle(dropped);
        self.inner.cache_held(&self.object);
    }
}
