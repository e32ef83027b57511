//! Ephemeral objects: their bytes are in the cache alone; here is what readers need while one is being replaced, and
//! what a restart needs to know that one was there.
//!
//! The journal gets a mark without bytes, once for each key, and nobody waits for it: an ephemeral write costs no sync. A
//! durable write or deletion of the key comes behind its mark and lets it go. A crash before the mark is on the disk
//! leaves no trace of the object.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use nigh_data::{ObjectError, ObjectId, ObjectMeta, Segment, Tags};
use nigh_engine::{Body, Change, Record, RequestId};
use nigh_terms::Version;

use super::dirty::{ObjectState, PossibleBases};
use super::policy::WriteMode;
use super::{Order, WriteBack, about};
use crate::sync::{Mutex, TaskHandle, spawn};

enum Mark {
    /// On its way to the journal; absent in the end if that did not take it.
    Coming(TaskHandle<Option<Version>>),
    There(Version),
}

type EphemeralBytes = (Arc<ObjectMeta>, Segment);

/// What is known of ephemeral objects beside their order. Bounded by what may wait: each is one of that.
#[derive(Default)]
pub(super) struct EphemeralObjects {
    marks: Mutex<HashMap<ObjectId, Mark>>,
    /// Of objects that are being written: the old bytes and the new, until the cache has those that count.
    held: Mutex<HashMap<ObjectId, Vec<EphemeralBytes>>>,
}

impl EphemeralObjects {
    /// Forgets what is another's now.
    pub(super) fn forget(&self, is_gone: impl Fn(&ObjectId) -> bool) {
        self.marks.lock().retain(|object, _| !is_gone(object));
        let held: Vec<Vec<EphemeralBytes>> = {
            let mut held = self.held.lock();
            held.extract_if(|object, _| is_gone(object)).map(|(_, held)| held).collect()
        };
        drop(held);
    }

    /// A record of an earlier life: it says that the object was there, or that a durable write followed.
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
    /// The record by which the journal remembers that `object` is ephemeral.
    pub(super) fn mark_of(&self, object: &ObjectId, meta: &ObjectMeta) -> Result<Record, ObjectError> {
        let about = about::encode(WriteMode::Ephemeral, Some(meta), &PossibleBases::default(), None)
            .map_err(|reason| super::unkept(object, &reason))?;
        let ObjectId { namespace, bucket, key } = object.clone();
        let request = RequestId(uuid::Uuid::new_v4().as_u128());
        Ok(Record { request, namespace, bucket, key, change: Change::Put { about } })
    }

    /// Has the journal remember that `object` is ephemeral, without waiting for it.
    pub(super) fn mark(&self, object: &ObjectId, record: Record, order: &dyn Order) {
        let mut marks = self.ephemeral.marks.lock();
        if marks.contains_key(object) {
            return;
        }
        let (ledger, named, aside) = (Arc::clone(&self.ledger), object.clone(), order.aside());
        let shard = self.shards.of(object);
        let coming = spawn(async move {
            match ledger.append(shard, record, Body::Inline(Bytes::new())).await {
                Ok(appended) => {
                    aside.is(appended.version);
                    Some(appended.version)
                }
                Err(error) => {
                    tracing::warn!(object = %named, %error, "a restart will not know of this ephemeral object");
                    None
                }
            }
        });
        marks.insert(object.clone(), Mark::Coming(coming));
    }

    /// Waits until the mark of `object` is where it will be: what is appended now comes behind it.
    pub(super) async fn mark_landed(&self, object: &ObjectId) {
        let Some(mark) = self.ephemeral.marks.lock().remove(object) else { return };
        let version = match mark {
            Mark::There(version) => Some(version),
            Mark::Coming(coming) => coming.await.ok().flatten(),
        };
        if let Some(version) = version {
            self.ephemeral.marks.lock().insert(object.clone(), Mark::There(version));
        }
    }

    /// The object is ephemeral no more.
    pub(super) async fn unmark(&self, object: &ObjectId) {
        self.mark_landed(object).await;
        let mark = self.ephemeral.marks.lock().remove(object);
        if let Some(Mark::There(version)) = mark {
            self.let_go(object, |_| vec![version]).await;
        }
    }

    /// Keeps the bytes of an ephemeral object while it is being written, until `release`.
    pub(crate) fn hold(&self, object: &ObjectId, meta: Arc<ObjectMeta>, segment: Segment) {
        self.ephemeral.held.lock().entry(object.clone()).or_default().push((meta, segment));
    }

    /// What is held of the newest write of `object`, if that is ephemeral.
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

    /// The write has ended.
    pub(crate) fn release(&self, object: &ObjectId) {
        let released = self.ephemeral.held.lock().remove(object);
        drop(released);
    }

    /// Replaces the tags of an ephemeral object whose bytes are there; false if the newest write is another.
    pub(super) fn retag(&self, object: &ObjectId, tags: &Tags, order: &dyn Order) -> Result<bool, ObjectError> {
        let held = self.held(object);
        let now = self.clock.monotonic();
        let mut dirty = self.dirty.lock();
        if dirty.get(object).is_none_or(|newest| newest.mode != WriteMode::Ephemeral) {
            return Ok(false);
        }
        let Some((meta, segment)) = held else { return Err(ObjectError::EphemeralLost(object.key.clone())) };
        order.asking();
        let version = self.ledger.place(self.shards.of(object));
        let meta = Arc::new(ObjectMeta { tags: tags.clone(), version, ..ObjectMeta::clone(&meta) });
        self.hold(object, Arc::clone(&meta), segment);
        dirty.write(object, version, WriteMode::Ephemeral, ObjectState::Put(meta), PossibleBases::default(), now);
        drop(dirty);
        order.placed(version, false);
        Ok(true)
    }
}
