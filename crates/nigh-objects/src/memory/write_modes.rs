//! A write or a deletion at its home here, by its mode: into the journal, through to the store, or in memory alone.
//!
//! When a call returns, the write is durable by its mode and has its version. From here calls go down only: to
//! `write_back`, which makes the write durable, and to `coherence`, with the version that the ledger gave. While the
//! object has an unpushed write in the journal, a write through to the store goes by the journal too.

use std::sync::Arc;

use bytes::Bytes;
use nigh_data::{ObjectError, ObjectId, ObjectMeta, Segment, Tags};
use nigh_engine::{AppendResult, Body as LedgerBody, Change, LedgerError, Record, RequestId};
use nigh_stores::{Payload, Shadows};
use nigh_terms::Version;

use super::coherence::ended;
use super::write_ticket::{AsideTicket, WriteTicket};
use crate::sync::spawn;
use crate::write_back::{
    Base, CommittedWrite, ObjectState, PlaceholderGuard, PlaceholderOutcome, PossibleBases, Room, Write, WriteBack,
    WriteMode, WriteOrigin, about_write, mark_of, record_of,
};

/// A write in mode `shadow` on its way to the journal.
struct ShadowAppend<'a> {
    object: &'a ObjectId,
    meta: ObjectMeta,
    request: Option<RequestId>,
    change: Change,
    body: LedgerBody,
    by: Option<WriteOrigin>,
}

impl WriteTicket {
    fn back(&self) -> &WriteBack {
        &self.inner.back
    }

    /// Makes a write durable by its mode, and gives it its version.
    ///
    /// # Errors
    /// `SlowDown` if there is no room, the store's, or the ledger's.
    pub(super) async fn put(&self, write: Write<'_>) -> Result<CommittedWrite, ObjectError> {
        self.back().store().check(write.object, &write.meta)?;
        let _inside = self.back().enter_write(write.object).await?;
        match write.mode {
            WriteMode::Through if self.inner.me.is_some() && !write.past_journal => self.put_journal(write).await,
            WriteMode::Through => self.put_through(write).await,
            WriteMode::Ephemeral => self.put_ephemeral(write).await,
            WriteMode::Shadow => self.put_shadow(write).await,
            WriteMode::Lazy => {
                let (object, mode) = (write.object.clone(), write.mode);
                self.put_journal(write).await.inspect(|_| tracing::trace!(%object, %mode, "kept in the journal"))
            }
        }
    }

    async fn put_through(&self, write: Write<'_>) -> Result<CommittedWrite, ObjectError> {
        let back = self.back();
        let Write { object, meta, payload, below, past_journal, request, .. } = &write;
        let mut base = below.as_ref().map_or(Base::Unknown, |below| below.base.clone());
        if back.newest_waiting(object).is_some() {
            if !past_journal {
                // Only the persistor writes this object to the store until nothing is unpushed and no push can land.
                return self.put_journal(write).await;
            }
            let left = back.hand_over(object).await?;
            if below.is_some() {
                base = left.unwrap_or(base);
            }
        }
        back.settle(object).await?;
        let meta = Arc::new(ObjectMeta { version: self.placeholder_version()?, ..meta.clone() });
        back.note(*request, object, WriteMode::Through, meta.version, ObjectState::Put(Arc::clone(&meta)), false);
        back.put_onto(object, payload, &meta, &base).await?;
        // The newest state so far was one that is never pushed.
        back.drop_where(object, |newest| !newest.is_pushed_at_last()).await;
        back.unmark(object).await;
        back.settle(object).await?;
        let meta = Arc::new(ObjectMeta { version: self.place_stored(object)?, ..ObjectMeta::clone(&meta) });
        back.note(*request, object, WriteMode::Through, meta.version, ObjectState::Put(Arc::clone(&meta)), true);
        Ok(CommittedWrite { meta, repeated: false })
    }

    async fn put_ephemeral(&self, write: Write<'_>) -> Result<CommittedWrite, ObjectError> {
        let back = self.back();
        let Write { object, meta, payload, request, .. } = write;
        back.flush(object).await?;
        let room = back.wait_for_room(object, meta.size).await?;
        let mark = mark_of(object, &meta)?;
        self.before_append()?;
        let meta = Arc::new(ObjectMeta { version: self.placed(back.place(object))?, ..meta });
        if let Payload::Segment(segment) = payload {
            back.hold(object, Arc::clone(&meta), segment);
        }
        let becomes = ObjectState::Put(Arc::clone(&meta));
        back.note(request, object, WriteMode::Ephemeral, meta.version, becomes.clone(), true);
        back.wrote(object, meta.version, WriteMode::Ephemeral, becomes, PossibleBases::default(), room).await;
        self.committed(meta.version, false);
        self.mark(object, mark);
        Ok(CommittedWrite { meta, repeated: false })
    }

    async fn put_journal(&self, write: Write<'_>) -> Result<CommittedWrite, ObjectError> {
        let back = self.back();
        let Write { object, meta, payload, staged, mode, request, below, past_journal: _, by } = write;
        let room = back.wait_for_room(object, meta.size).await?;
        let below = back.below(object, below).await?;
        let about = about_write(object, mode, Some(&meta), &below, by.clone())?;
        let body = match staged {
            Some(staged) => LedgerBody::Staged(staged),
            None => back.journal_body(object, &payload, &meta).await?,
        };
        back.mark_landed(object).await;
        let appended = self.append(object, request, Change::Put { about }, body).await?;
        let meta = Arc::new(ObjectMeta { version: appended.version, ..meta });
        back.note(request, object, mode, meta.version, ObjectState::Put(Arc::clone(&meta)), true);
        if !appended.repeated {
            back.opened(object, meta.version, by.as_ref());
            back.wrote(object, meta.version, mode, ObjectState::Put(Arc::clone(&meta)), below, room).await;
            back.unmark(object).await;
            self.committed(meta.version, false);
        }
        // A repeated request gets the same promise: the first attempt may have been refused, or still wait.
        back.acknowledge(object, mode, meta.version).await?;
        Ok(CommittedWrite { meta, repeated: appended.repeated })
    }

    async fn put_shadow(&self, write: Write<'_>) -> Result<CommittedWrite, ObjectError> {
        let back = self.back();
        let Some(shadows) = back.store().shadows(&write.object.namespace) else {
            let why = "the mode shadow needs a store that shows what is coming; set another mode for the bucket";
            return Err(ObjectError::InvalidRequest(why.to_owned()));
        };
        let waits = back.newest_waiting(write.object).map(|newest| newest.mode);
        if !shadows.fits(write.object, &write.meta) {
            let write = Write { mode: WriteMode::Through, ..write };
            // As in `put`: in a cluster only pushes write the store.
            return if self.inner.me.is_some() { self.put_journal(write).await } else { self.put_through(write).await };
        }
        // If a state without a placeholder were pushed now, it could replace the new placeholder.
        if waits.is_some_and(|mode| mode != WriteMode::Shadow) {
            back.flush(write.object).await?;
        }
        let Write { object, meta, payload, staged, mode, request, by, .. } = write;
        let room = back.wait_for_room(object, meta.size).await?;
        let about = about_write(object, mode, Some(&meta), &PossibleBases::default(), by.clone())?;
        let body = match staged {
            Some(staged) => LedgerBody::Staged(staged),
            None => back.journal_body(object, &payload, &meta).await?,
        };
        back.mark_landed(object).await;
        let appending = ShadowAppend { object, meta, request, change: Change::Put { about }, body, by };
        self.append_shadow(shadows, appending, room).await
    }

    async fn append_shadow(
        &self,
        shadows: &dyn Shadows,
        appending: ShadowAppend<'_>,
        room: Room<'_>,
    ) -> Result<CommittedWrite, ObjectError> {
        let back = self.back();
        let ShadowAppend { object, meta, request, change, body, by } = appending;
        let waits = back.newest_waiting(object).is_some();
        let name = request.map(|request| back.journal_name(request));
        let AppendResult { version, repeated } = self.append(object, name, change, body).await?;
        let meta = Arc::new(ObjectMeta { version, ..meta });
        if repeated && !back.is_unannounced(object, version) {
            back.check_happened(shadows, object, version).await?;
            back.note(request, object, WriteMode::Shadow, version, ObjectState::Put(Arc::clone(&meta)), true);
            return Ok(CommittedWrite { meta, repeated: true });
        }
        let _announcing = PlaceholderGuard::begin(back, object);
        // Trimming a record also trims the older ones of its object, and those may be unpushed.
        let may_be_trimmed = !repeated && !waits;
        let error = match back.place_placeholder(shadows, object, &meta).await {
            PlaceholderOutcome::Placed => {
                back.announced(object, version);
                back.note(request, object, WriteMode::Shadow, version, ObjectState::Put(Arc::clone(&meta)), true);
                if !repeated {
                    back.opened(object, version, by.as_ref());
                    back.wrote_shadow(object, &meta, room).await;
                    self.committed(version, false);
                }
                return Ok(CommittedWrite { meta, repeated });
            }
            PlaceholderOutcome::NotPlaced(error) if may_be_trimmed => {
                back.rename_refused(request);
                self.skipped(version);
                back.let_go(object, |_| vec![version]).await;
                back.settle(object).await?;
                return Err(error);
            }
            PlaceholderOutcome::NotPlaced(error) | PlaceholderOutcome::Unknown(error) => error,
        };
        if !repeated {
            // Recorded before the write can be pushed, because the push finds out whether the placeholder stands.
            back.note_unannounced(object, version);
            back.opened(object, version, by.as_ref());
            back.wrote_shadow(object, &meta, room).await;
            self.committed_hidden(version);
        }
        Err(error)
    }

    /// A write that the store has gets the newest version, whatever was written while it was on its way.
    ///
    /// # Errors
    /// `OutcomeUnknown` if the write's home has ended meanwhile. The home of now hears that the store has changed, so that
    /// no copy of what was there before stays.
    fn place_stored(&self, object: &ObjectId) -> Result<Version, ObjectError> {
        let placed = self.before_append().and_then(|()| self.placed(self.back().place(object)));
        let version = placed.map_err(|_| {
            self.inner.written_by_others(object);
            ended()
        })?;
        self.committed(version, true);
        Ok(version)
    }

    async fn append(
        &self,
        object: &ObjectId,
        request: Option<RequestId>,
        change: Change,
        body: LedgerBody,
    ) -> Result<AppendResult, ObjectError> {
        self.before_append()?;
        let appended = self.back().append(object, self.epoch(), record_of(object, request, change), body).await;
        match &appended {
            Ok(appended) if !appended.repeated => {}
            Ok(_) => self.append_failed(false),
            Err(error) => self.append_failed(error.may_have_taken_a_version()),
        }
        if matches!(appended, Err(LedgerError::Full)) {
            self.back().push_all();
        }
        Ok(appended?)
    }

    /// Deletes the object, by `mode`.
    ///
    /// # Errors
    /// As of a put.
    pub(super) async fn delete(
        &self,
        object: &ObjectId,
        mode: WriteMode,
        request: Option<RequestId>,
        below: Option<PossibleBases>,
    ) -> Result<AppendResult, ObjectError> {
        let (back, by) = (self.back(), self.by());
        let _inside = back.enter_write(object).await?;
        let waits = back.newest_waiting(object).is_some();
        // In a shared bucket a deletion is pushed late only if a write of the object is. And a store can show that an
        // object is coming, but not that one is going.
        let through = mode >= WriteMode::Shadow || back.is_shared(object);
        if through && !waits && self.inner.me.is_none() {
            back.settle(object).await?;
            let base = below.map_or(Base::Unknown, |below| below.base);
            back.delete_from(object, &base).await?;
            let version = self.place_stored(object)?;
            back.note(request, object, WriteMode::Through, version, ObjectState::Gone, true);
            return Ok(AppendResult { version, repeated: false });
        }
        let mode = if through { WriteMode::Through } else { mode.max(WriteMode::Lazy) };
        let room = back.wait_for_room(object, 0).await?;
        let below = back.below(object, below).await?;
        let about = about_write(object, mode, None, &below, by.clone())?;
        let body = LedgerBody::Inline(Bytes::new());
        back.mark_landed(object).await;
        let appended = self.append(object, request, Change::Delete { about }, body).await?;
        back.note(request, object, mode, appended.version, ObjectState::Gone, true);
        if !appended.repeated {
            back.opened(object, appended.version, by.as_ref());
            back.wrote(object, appended.version, mode, ObjectState::Gone, below, room).await;
            back.unmark(object).await;
            self.committed(appended.version, false);
        }
        back.acknowledge(object, mode, appended.version).await?;
        Ok(appended)
    }

    /// Replaces the object's tags. An unpushed write is written again with them.
    ///
    /// # Errors
    /// `NoSuchKey`, or as of a put.
    pub(super) async fn put_tags(&self, object: &ObjectId, tags: &Tags) -> Result<(), ObjectError> {
        let back = self.back();
        let _inside = back.enter_write(object).await?;
        if back.is_ephemeral(object) {
            self.before_append()?;
            let version = back.retag(object, tags).inspect_err(|_| self.append_failed(false))?;
            self.committed(self.placed(version)?, false);
            return Ok(());
        }
        let waiting = match back.waiting_put(object)? {
            Some((meta, mode)) => back.read_waiting(object, &meta).await?.map(|bytes| (meta, mode, bytes)),
            None => None,
        };
        let Some((meta, mode, bytes)) = waiting else {
            back.settle(object).await?;
            back.store().put_tags(object, tags).await?;
            self.place_stored(object)?;
            return Ok(());
        };
        let meta = ObjectMeta { tags: tags.clone(), ..ObjectMeta::clone(&meta) };
        let payload = Payload::Segment(Segment::copy_of(&bytes)?);
        let (below, past_journal, by) = (None, false, self.by());
        let write = Write { object, meta, payload, staged: None, mode, request: None, below, past_journal, by };
        match mode {
            WriteMode::Shadow => self.put_shadow(write).await?,
            _ => self.put_journal(write).await?,
        };
        Ok(())
    }

    /// Makes the journal remember that `object` is ephemeral, without waiting for it.
    fn mark(&self, object: &ObjectId, record: Record) {
        if self.back().is_marked(object) {
            return;
        }
        let (inner, named, aside) = (Arc::clone(&self.inner), object.clone(), AsideTicket::begin(self));
        let epoch = self.epoch();
        let marking = spawn(async move {
            match inner.back.append(&named, epoch, record, LedgerBody::Inline(Bytes::new())).await {
                Ok(appended) => {
                    aside.skipped(appended.version);
                    Some(appended.version)
                }
                Err(error) => {
                    tracing::warn!(object = %named, %error, "a restart will not know of this ephemeral object");
                    None
                }
            }
        });
        self.back().marking(object, marking);
    }
}
