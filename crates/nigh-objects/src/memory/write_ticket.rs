//! A write of an object whose turn it is, from its begin at the node to its place at the home.
//!
//! It passes on what becomes of the write, and sees to it that the home hears of each exactly once: one that is dropped
//! half way does not take place for the home, and is in doubt for readers. It decides nothing.

use std::sync::Arc;

use nigh_terms::{Token, Version};
use tokio::sync::oneshot;

use super::append_order::Asked;
use super::coherence::{BegunWrite, ended};
use super::{Inner, Reservation};
use crate::cache::Shelved;
use crate::eviction::Origin;
use crate::kept::Kept;
use crate::outside::Noticed;
use crate::protocol::{AppendId, PutFailure, RequestId, Stamp, Write};
use crate::sync::Mutex;
use crate::write_back::{Aside, Order};
use crate::{ETag, ObjectError, ObjectId};

/// How far a write has come.
#[derive(Debug)]
enum Stage {
    /// Nobody has been asked for a version.
    Begun,
    /// The ledger has.
    Asked(Asked),
    /// The home has been told, or will be in its turn.
    Told,
}

/// A write under way; one dropped leaves no copy, and a doubt.
pub(super) struct WriteTicket {
    inner: Arc<Inner>,
    object: ObjectId,
    request: RequestId,
    append: AppendId,
    stage: Mutex<Stage>,
    done: Option<oneshot::Receiver<Result<Stamp, PutFailure>>>,
    /// Of what is to be kept.
    etag: Option<ETag>,
    /// The store has said that it did not write.
    refused: bool,
}

impl WriteTicket {
    /// The node forgets the object, and the fetches begun before. The copy there was is given. The writer has `seen`.
    pub(super) fn begin(
        inner: &Arc<Inner>,
        object: &ObjectId,
        write: Write,
        seen: Arc<Token>,
    ) -> Result<(Self, Option<Kept>), ObjectError> {
        if inner.back.is_ephemeral(object) {
            let kept = inner.shelf().peek(object).cloned();
            if let Some(Kept { meta, segment: Some(segment) }) = kept {
                // Readers get it until the write has ended; if that is refused, it stays.
                inner.back.hold(object, meta.unpack(), segment);
            }
        }
        inner.writing.lock().insert(object.clone(), Noticed::default());
        let begun = inner.coherence.write(inner.now(), object, write, seen).inspect_err(|_| {
            inner.writing.lock().remove(object);
            inner.back.release(object);
        });
        let (begun, dropped) = begun?;
        inner.settle(dropped);
        let BegunWrite { request, append, done, before } = begun;
        let (inner, object, stage) = (Arc::clone(inner), object.clone(), Mutex::new(Stage::Begun));
        let ticket = Self { inner, object, request, append, stage, done: Some(done), etag: None, refused: false };
        Ok((ticket, before.map(|before| before.kept)))
    }

    /// This is kept of the write when it has its place.
    pub(super) fn keep(&mut self, (kept, room): (Kept, Reservation), origin: Origin) {
        self.etag = Some(kept.meta.unpack().etag.clone());
        self.inner.coherence.deposit(self.request, Shelved { kept, cost: room.take(), origin });
    }

    /// The ledger has spoken, if it was asked.
    fn leave(&self, next: Stage) -> Option<Asked> {
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
        let Some(done) = self.done.take() else { return Err(ended()) };
        match done.await {
            Ok(Ok(stamp)) => Ok(Some(stamp)),
            Ok(Err(_)) | Err(_) => Err(ended()),
        }
    }
}

impl Order for WriteTicket {
    fn mark(&self) -> Version {
        let (version, dropped) = self.inner.coherence.mark(self.inner.now());
        self.inner.settle(dropped);
        version
    }

    fn asking(&self) {
        *self.stage.lock() = Stage::Asked(self.inner.coherence.appending());
    }

    fn placed(&self, version: Version, stored: bool) {
        let Some(asked) = self.leave(Stage::Told) else { return };
        // Somebody else's write may come after this one; who tells of it does so before or after all of this.
        let mut writing = self.inner.writing.lock();
        let noticed = writing.remove(&self.object).unwrap_or_default();
        let is_own = self.etag.as_ref().is_none_or(|etag| noticed.is_of(etag));
        if !is_own || self.inner.is_written_outside(&self.object) {
            self.inner.settle(self.inner.coherence.withdraw(self.request));
        }
        let stored = stored.then_some(&self.object);
        let dropped = self.inner.coherence.appended(self.inner.now(), (self.append, asked), version, stored);
        drop(writing);
        self.inner.settle(dropped);
    }

    fn placed_unseen(&self, version: Version) {
        let Some(asked) = self.leave(Stage::Told) else { return };
        let withdrawn = self.inner.coherence.withdraw(self.request);
        self.inner.settle(withdrawn);
        let dropped = self.inner.coherence.appended(self.inner.now(), (self.append, asked), version, None);
        self.inner.settle(dropped);
    }

    fn passed(&self, version: Version) {
        let Some(asked) = self.leave(Stage::Begun) else { return };
        let dropped = self.inner.coherence.passed(self.inner.now(), asked, version);
        self.inner.settle(dropped);
    }

    fn aside(&self) -> Box<dyn Aside> {
        Box::new(AsideTicket { inner: Arc::clone(&self.inner), asked: Some(self.inner.coherence.appending()) })
    }

    fn refused(&self, lost: bool) {
        let Some(asked) = self.leave(Stage::Begun) else { return };
        let dropped = self.inner.coherence.refused(self.inner.now(), asked, lost);
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
                shelf.keep(&self.object, Kept::new(&meta, Some(segment)), cost, Origin::Ephemeral)
            };
            self.inner.settle(dropped);
        }
        self.inner.back.release(&self.object);
    }
}

/// A version that is no write's, on its way to the order.
struct AsideTicket {
    inner: Arc<Inner>,
    asked: Option<Asked>,
}

impl Aside for AsideTicket {
    fn is(mut self: Box<Self>, version: Version) {
        if let Some(asked) = self.asked.take() {
            let dropped = self.inner.coherence.passed(self.inner.now(), asked, version);
            self.inner.settle(dropped);
        }
    }
}

impl Drop for AsideTicket {
    fn drop(&mut self) {
        if let Some(asked) = self.asked.take() {
            let dropped = self.inner.coherence.refused(self.inner.now(), asked, true);
            self.inner.settle(dropped);
        }
    }
}

impl Drop for WriteTicket {
    fn drop(&mut self) {
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
        let dropped = self.inner.coherence.not_appended(self.inner.now(), self.append);
        self.inner.settle(dropped);
        self.release();
    }
}
