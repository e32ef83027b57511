//! A write of an object whose turn it is, from its begin at the node to its place at the home.
//!
//! It passes on what becomes of the write, and sees to it that the home hears of each exactly once: one that is dropped
//! half way does not take place for the home, and is in doubt for readers. It decides nothing.

use std::sync::Arc;

use nigh_data::{ETag, ObjectError, ObjectId};
use nigh_protocol::{AppendId, FromHome, PutFailure, Reply, Request, RequestId, Stamp, ToHome, Write};
use nigh_terms::{NodeNumber, ShardId, Token, Version};
use tokio::sync::{oneshot, watch};

use super::append_order::AppendNumber;
use super::coherence::{BegunWrite, ended, moved};
use super::foreign::ForeignWrite;
use super::{ObjectMemoryState, Reservation};
use crate::cache::CostedCopy;
use crate::eviction::Origin;
use crate::kept::CachedCopy;
use crate::outside::StoreNotice;
use crate::sync::Mutex;
use crate::write_back::{NonWriteVersion, Order, WriteOrigin};

/// How far a write has come.
#[derive(Debug)]
enum Stage {
    /// Nobody has been asked for a version.
    Begun,
    /// The ledger has.
    Asked(AppendNumber),
    /// The home has been told, or will be in its turn.
    Told,
}

/// Whose write is to begin.
pub(super) enum WriteSource {
    /// This node's, by one who has seen this.
    Own(Arc<Token>),
    /// This node's, begun when its home was elsewhere.
    Begun(BegunWrite, Arc<Token>),
    /// Another's.
    Foreign(Request<ObjectId>),
}

impl ObjectMemoryState {
    /// The node at which a write was begun.
    pub(super) fn writer_of(&self, source: &WriteSource) -> NodeNumber {
        match source {
            WriteSource::Own(_) | WriteSource::Begun(..) => self.coherence.member().node,
            WriteSource::Foreign(request) => request.from.node,
        }
    }
}

/// Whose write it is.
enum Writer {
    /// This node's.
    Own { request: RequestId, done: Option<oneshot::Receiver<Result<Stamp, PutFailure>>> },
    /// Another's, with what is kept of it here.
    Foreign { answered: watch::Receiver<Option<Reply<ObjectId>>>, copy: Option<CostedCopy> },
}

/// A write under way at a home here; one dropped leaves no copy, and a doubt.
pub(super) struct WriteTicket {
    inner: Arc<ObjectMemoryState>,
    object: ObjectId,
    shard: ShardId,
    writer: Writer,
    append: AppendId,
    by: WriteOrigin,
    stage: Mutex<Stage>,
    /// Of what is to be kept.
    etag: Option<ETag>,
    /// The store has said that it did not write.
    refused: bool,
}

impl WriteTicket {
    /// The write begins at its home here; the node's own at the node too, which forgets the object and the fetches begun
    /// before. The copy there was is given.
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

    /// Asks the home.
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

    /// Who asks, where the ledger is to know.
    pub(super) fn by(&self) -> Option<WriteOrigin> {
        (!self.inner.coherence.is_alone()).then(|| self.by.clone())
    }

    fn prepare(inner: &Arc<ObjectMemoryState>, object: &ObjectId) {
        if inner.back.is_ephemeral(object) {
            let kept = inner.shelf().peek(object).cloned();
            if let Some(CachedCopy { meta, segment: Some(segment) }) = kept {
                // Readers get it until the write has ended; if that is refused, it stays.
                inner.back.hold(object, meta.unpack(), segment);
            }
        }
        inner.writing.lock().insert(object.clone(), StoreNotice::default());
    }

    fn unprepare(inner: &Arc<ObjectMemoryState>, object: &ObjectId) {
        inner.writing.lock().remove(object);
        inner.back.release(object);
    }

    /// This is kept of the write when it has its place.
    pub(super) fn keep(&mut self, (kept, room): (CachedCopy, Reservation), origin: Origin) {
        self.etag = Some(kept.meta.unpack().etag.clone());
        let shelved = CostedCopy { kept, cost: room.take(), origin };
        match &mut self.writer {
            Writer::Own { request, .. } => self.inner.coherence.deposit(*request, shelved),
            Writer::Foreign { copy, .. } => *copy = Some(shelved),
        }
    }

    /// Nothing is kept of it, though it takes its place.
    fn withdraw(&self) {
        if let Writer::Own { request, .. } = &self.writer {
            let withdrawn = self.inner.coherence.withdraw(*request);
            self.inner.settle(withdrawn);
        }
    }

    /// The ledger has spoken, if it was asked.
    fn leave(&self, next: Stage) -> Option<AppendNumber> {
        let mut stage = self.stage.lock();
        let Stage::Asked(asked) = *stage else { return None };
        *stage = next;
        Some(asked)
    }

    /// What stands behind has failed with `error`. What may be its own trouble, or that of the way there, says nothing
    /// about the write.
    pub(super) fn failed(&mut self, error: &ObjectError) {
        self.refused = !error.is_in_doubt();
    }

    /// What stands behind has the write. Returns when the home has it too, in its place; one that is `repeated` has none.
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

impl Order for WriteTicket {
    fn mark(&self) -> Version {
        let (version, dropped) = self.inner.coherence.mark(self.inner.now(), self.shard);
        self.inner.settle(dropped);
        version
    }

    fn asking(&self) {
        // Where the home is gone the ledger refuses.
        if let Some(asked) = self.inner.coherence.appending(self.shard) {
            *self.stage.lock() = Stage::Asked(asked);
        }
    }

    fn placed(&self, version: Version, stored: bool) {
        let Some(asked) = self.leave(Stage::Told) else { return };
        // Somebody else's write may come after this one; who tells of it does so before or after all of this.
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

    fn placed_unseen(&self, version: Version) {
        let Some(asked) = self.leave(Stage::Told) else { return };
        self.withdraw();
        let appended = (self.append, asked);
        let dropped = self.inner.coherence.appended(self.inner.now(), self.shard, appended, version, None);
        self.inner.settle(dropped);
    }

    fn passed(&self, version: Version) {
        let Some(asked) = self.leave(Stage::Begun) else { return };
        let dropped = self.inner.coherence.passed(self.inner.now(), self.shard, asked, version);
        self.inner.settle(dropped);
    }

    fn aside(&self) -> Box<dyn NonWriteVersion> {
        let asked = self.inner.coherence.appending(self.shard);
        Box::new(AsideTicket { inner: Arc::clone(&self.inner), shard: self.shard, asked })
    }

    fn refused(&self, lost: bool) {
        let Some(asked) = self.leave(Stage::Begun) else { return };
        let dropped = self.inner.coherence.refused(self.inner.now(), self.shard, asked, lost);
        self.inner.settle(dropped);
    }
}

impl WriteTicket {
    /// The write has ended: the ephemeral object that there is still, or is now, is kept again, and held no more.
    fn release(&self) {
        if let Some((meta, segment)) = self.inner.back.held(&self.object)
            && self.inner.shelf().peek(&self.object).is_none()
            && let Some(room) = self.inner.reserve(segment.cost())
        {
            let cost = room.take();
            let dropped = {
                let mut shelf = self.inner.shelf();
                shelf.release(cost);
                shelf.keep(&self.object, CachedCopy::new(&meta, Some(segment)), cost, Origin::Ephemeral)
            };
            self.inner.settle(dropped);
        }
        self.inner.back.release(&self.object);
    }
}

/// A version that is no write's, on its way to the order.
struct AsideTicket {
    inner: Arc<ObjectMemoryState>,
    shard: ShardId,
    asked: Option<AppendNumber>,
}

impl NonWriteVersion for AsideTicket {
    fn is(mut self: Box<Self>, version: Version) {
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
        // A ledger that was asked, and not heard, may have it.
        self.refused(true);
        if matches!(*self.stage.lock(), Stage::Told) {
            self.release();
            return;
        }
        if !self.refused {
            self.inner.doubts.lock().arise(&self.object, self.inner.now());
        }
        let dropped = self.inner.coherence.not_appended(self.inner.now(), self.shard, self.append);
        self.inner.settle(dropped);
        self.release();
    }
}
