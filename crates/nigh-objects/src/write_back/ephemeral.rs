//! Ephemeral objects, whose bytes are only in the cache: what readers need while one is replaced, and what a restart
//! needs to know that there was one.
//!
//! The journal gets a mark without bytes, once for each key, and nobody waits for it: an ephemeral write costs no sync.
//! A durable write or deletion of the key comes after the mark and trims it. A crash before the mark is on the disk
//! leaves no trace of the object.
//!
//! A home that leaves as planned puts the bytes into the journal. The next home takes them into memory, and the journal
//! has a mark again.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use nigh_data::{ObjectError, ObjectId, ObjectMeta, Segment, Tags};
use nigh_engine::{Body as LedgerBody, Change, Record};
use nigh_stores::Payload;
use nigh_terms::{Epoch, ShardId, Version};

use super::dirty::{ObjectState, PossibleBases};
use super::policy::WriteMode;
use super::{WriteBack, about, about_write, record_of, unkept};
use crate::sync::{Mutex, TaskHandle};

enum Mark {
    /// On its way to the journal; none at its end if the journal refused it.
    Coming(TaskHandle<Option<Version>>),
    There(Version),
}

type EphemeralBytes = (Arc<ObjectMeta>, Segment);

/// An ephemeral object that a home has handed over by the journal. Its version is the record's.
pub(crate) type HandedOverObject = (ObjectId, Arc<ObjectMeta>);

/// The record by which the journal remembers that `object` is ephemeral.
pub(crate) fn mark_of(object: &ObjectId, meta: &ObjectMeta) -> Result<Record, ObjectError> {
    let about = about_write(object, WriteMode::Ephemeral, Some(meta), &PossibleBases::default(), None)?;
    Ok(record_of(object, None, Change::Put { about }))
}

/// The marks and held bytes of ephemeral objects. The limit of unpushed writes bounds them.
#[derive(Default)]
pub(super) struct EphemeralObjects {
    marks: Mutex<HashMap<ObjectId, Mark>>,
    /// The old and the new bytes of objects that are being written, until the cache has the right ones.
    held: Mutex<HashMap<ObjectId, Vec<EphemeralBytes>>>,
}

impl EphemeralObjects {
    /// Forgets the objects whose home is elsewhere now.
    pub(super) fn forget(&self, is_gone: impl Fn(&ObjectId) -> bool) {
        self.marks.lock().retain(|object, _| !is_gone(object));
        let held: Vec<Vec<EphemeralBytes>> = {
            let mut held = self.held.lock();
            held.extract_if(|object, _| is_gone(object)).map(|(_, held)| held).collect()
        };
        drop(held);
    }

    /// Takes a record of an earlier incarnation: a mark, or the durable write that followed one.
    pub(super) fn recover(&self, object: &ObjectId, version: Version, mode: WriteMode) {
        let mut marks = self.marks.lock();
        if mode == WriteMode::Ephemeral {
            marks.insert(object.clone(), Mark::There(version));
        } else {
            marks.remove(object);
        }
    }
}

impl WriteBack {
    /// True if the journal remembers that `object` is ephemeral, or was asked to.
    pub(crate) fn is_marked(&self, object: &ObjectId) -> bool {
        self.ephemeral.marks.lock().contains_key(object)
    }

    /// Records that the journal is being asked to remember that `object` is ephemeral.
    pub(crate) fn marking(&self, object: &ObjectId, coming: TaskHandle<Option<Version>>) {
        self.ephemeral.marks.lock().insert(object.clone(), Mark::Coming(coming));
    }

    /// Waits until the mark of `object` has its version: a record that is appended now comes after it.
    pub(crate) async fn mark_landed(&self, object: &ObjectId) {
        let Some(mark) = self.ephemeral.marks.lock().remove(object) else { return };
        let version = match mark {
            Mark::There(version) => Some(version),
            Mark::Coming(coming) => coming.await.ok().flatten(),
        };
        if let Some(version) = version {
            self.ephemeral.marks.lock().insert(object.clone(), Mark::There(version));
        }
    }

    /// The object is no longer ephemeral.
    pub(crate) async fn unmark(&self, object: &ObjectId) {
        self.mark_landed(object).await;
        let mark = self.ephemeral.marks.lock().remove(object);
        if let Some(Mark::There(version)) = mark {
            self.let_go(object, |_| vec![version]).await;
        }
    }

    /// Holds the bytes of an ephemeral object while it is being written, until `release`.
    pub(crate) fn hold(&self, object: &ObjectId, meta: Arc<ObjectMeta>, segment: Segment) {
        self.ephemeral.held.lock().entry(object.clone()).or_default().push((meta, segment));
    }

    /// The held bytes of the newest write of `object`, if it is ephemeral.
    pub(crate) fn held(&self, object: &ObjectId) -> Option<(Arc<ObjectMeta>, Segment)> {
        let held = self.ephemeral.held.lock().get(object)?.clone();
        let dirty = self.dirty.lock();
        let newest = dirty.get(object).filter(|newest| newest.mode == WriteMode::Ephemeral)?;
        let (_, segment) = held.into_iter().find(|(meta, _)| meta.version == newest.version)?;
        match &newest.becomes {
            ObjectState::Put(meta) => Some((Arc::clone(meta), segment)),
            ObjectState::Gone | ObjectState::Lost => None,
        }
    }

    /// Releases the held bytes when the write has ended.
    pub(crate) fn release(&self, object: &ObjectId) {
        let released = self.ephemeral.held.lock().remove(object);
        drop(released);
    }

    /// Replaces the tags of an ephemeral object. Returns the version with these tags.
    ///
    /// # Errors
    /// `EphemeralLost` if the object's bytes are gone.
    pub(crate) fn retag(&self, object: &ObjectId, tags: &Tags) -> Result<Version, ObjectError> {
        let held = self.held(object);
        let now = self.clock.monotonic();
        let mut dirty = self.dirty.lock();
        let (meta, segment) = held.ok_or_else(|| ObjectError::EphemeralLost(object.key.clone()))?;
        let version = self.ledger.place(self.shards.of(object));
        let meta = Arc::new(ObjectMeta { tags: tags.clone(), version, ..ObjectMeta::clone(&meta) });
        self.hold(object, Arc::clone(&meta), segment);
        dirty.write(object, version, WriteMode::Ephemeral, ObjectState::Put(meta), PossibleBases::default(), now);
        Ok(version)
    }

    /// The ephemeral objects of `shard` that are not lost.
    pub(crate) fn ephemeral_of(&self, shard: ShardId) -> Vec<ObjectId> {
        let dirty = self.dirty.lock();
        let ephemeral = dirty.all().filter(|(.., newest, _)| {
            newest.mode == WriteMode::Ephemeral && matches!(newest.becomes, ObjectState::Put(_))
        });
        let named = ephemeral.map(|(namespace, bucket, key, ..)| ObjectId {
            namespace: namespace.clone(),
            bucket: bucket.clone(),
            key: key.clone(),
        });
        named.filter(|object| self.shards.of(object) == shard).collect()
    }

    /// Puts the bytes of an ephemeral object into the journal, for the next home. Returns the record's version, which
    /// no write has.
    pub(crate) async fn hand_over_bytes(
        &self,
        object: &ObjectId,
        epoch: Epoch,
        (meta, segment): EphemeralBytes,
    ) -> Result<Version, ObjectError> {
        let about = about::encode_handed_over(&meta).map_err(|reason| unkept(object, &reason))?;
        let body = self.journal_body(object, &Payload::Segment(segment), &meta).await?;
        let record = record_of(object, None, Change::Put { about });
        Ok(self.append(object, epoch, record, body).await?.version)
    }

    /// The bytes of an object that was handed over are in memory, or lost: the journal has a mark again instead.
    pub(crate) async fn mark_again(
        &self,
        object: &ObjectId,
        epoch: Epoch,
        meta: &ObjectMeta,
    ) -> Result<(), ObjectError> {
        let body = LedgerBody::Inline(Bytes::new());
        let marked = self.append(object, epoch, mark_of(object, meta)?, body).await?.version;
        let before = self.ephemeral.marks.lock().insert(object.clone(), Mark::There(marked));
        if let Some(Mark::There(before)) = before {
            self.let_go(object, |_| vec![before]).await;
        }
        Ok(())
    }
}
