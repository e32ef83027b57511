//! Buckets that are written from outside too: what a write checks first, and how the store is told what the write
//! replaces.
//!
//! No outside write is overwritten or deleted unseen: a client's write replaces only the state that its conditions were
//! checked on, and a write that is pushed later replaces only the state at its acknowledgement. Where the bucket's policy
//! bounds the age of copies, unpushed writes are compared with the store too: they give way to what others wrote.

use std::sync::Arc;

use nigh_data::{ETag, ObjectError, ObjectId, ObjectMeta, WriteConditions};
use nigh_stores::Payload;
use nigh_terms::{Monotonic, Version};

use super::dirty::{Base, ObjectState, PossibleBases, UnpushedWrite};
use super::policy::WriteMode;
use super::{Freshness, WriteBack};

impl WriteBack {
    /// In a shared bucket, where a cached copy may be old: the object's current metadata, and what a write that it
    /// allows may replace. One look at the store for both. None in other buckets.
    ///
    /// # Errors
    /// `Damaged`, or the store's.
    pub(crate) async fn look_below(
        &self,
        object: &ObjectId,
    ) -> Result<Option<(Option<Arc<ObjectMeta>>, PossibleBases)>, ObjectError> {
        if !self.is_shared(object) {
            return Ok(None);
        }
        self.agree_with_store(object).await?;
        let unpushed = {
            let dirty = self.dirty.lock();
            dirty.get(object).cloned().zip(dirty.below(object))
        };
        let (current, below) = match unpushed {
            Some((UnpushedWrite { mode: WriteMode::Ephemeral, becomes, .. }, _)) => (Some(becomes), None),
            Some((UnpushedWrite { becomes, .. }, below)) => (Some(becomes), Some(below)),
            None => (None, None),
        };
        let (there, below) = match below {
            Some(below) => (None, below),
            // Also under an ephemeral write, which never comes to the store and says nothing of what is there.
            None => {
                let (meta, base) = self.look_at(object).await?;
                (meta, PossibleBases { base, ..PossibleBases::default() })
            }
        };
        match current {
            None => Ok(Some((there.map(Arc::new), below))),
            Some(ObjectState::Put(meta)) => Ok(Some((Some(meta), below))),
            Some(ObjectState::Gone) => Ok(Some((None, below))),
            Some(ObjectState::Lost) => Err(ObjectError::Damaged(object.key.clone())),
        }
    }

    /// What the store has of an object now.
    async fn look_at(&self, object: &ObjectId) -> Result<(Option<ObjectMeta>, Base), ObjectError> {
        let asked = self.clock.monotonic();
        let (meta, base) = match self.store.head(object).await {
            Ok(meta) => {
                let base = Base::Holds(meta.etag.clone());
                (Some(meta), base)
            }
            Err(ObjectError::NoSuchKey(_)) => (None, Base::Absent),
            Err(error) => return Err(error),
        };
        self.note_seen(object, &base, asked);
        Ok((meta, base))
    }

    /// The store, asked at `asked`, had `holds`.
    pub(super) fn note_seen(&self, object: &ObjectId, holds: &Base, asked: Monotonic) {
        if self.freshness(object).is_some() {
            self.seen.lock().note(object, holds.clone(), asked);
        }
    }

    /// True if a copy with this entity tag may serve, as the bucket's policy bounds its age by `bound`: the store had the
    /// same within the bound.
    pub(crate) fn is_fresh(&self, object: &ObjectId, etag: &ETag, bound: Freshness) -> bool {
        let seen = self.seen.lock();
        let holds = seen.within(object, bound, self.clock.monotonic());
        matches!(holds, Some(Base::Holds(held)) if held == etag)
    }

    /// Looks whether others have written an object of a shared bucket over which a write of this node waits for its push,
    /// unless the store was asked within the bound of the bucket's policy. If they have, the write is pushed, which lets
    /// it give way to theirs; returns its version then. What others put and removed again since the last look leaves no
    /// trace.
    ///
    /// # Errors
    /// The store's, or `SlowDown` if the push takes longer than a write may wait.
    pub(crate) async fn agree_with_store(&self, object: &ObjectId) -> Result<Option<Version>, ObjectError> {
        let Some(bound) = self.freshness(object).filter(|_| self.is_shared(object)) else { return Ok(None) };
        let unpushed = {
            let dirty = self.dirty.lock();
            let newest = dirty.get(object).filter(|newest| newest.is_pushed_at_last());
            newest.map(|newest| newest.version).zip(dirty.below(object))
        };
        let Some((version, below)) = unpushed.filter(|(_, below)| below.base != Base::Unknown) else { return Ok(None) };
        let is_ours = |holds: &Base| *holds == below.base || below.attempts.contains(holds);
        if self.seen.lock().within(object, bound, self.clock.monotonic()).is_some_and(is_ours) {
            return Ok(None);
        }
        let (_, holds) = self.look_at(object).await?;
        if is_ours(&holds) {
            return Ok(None);
        }
        self.flush(object).await?;
        self.superseded(object).await;
        Ok(Some(version))
    }

    /// What the store may have below a write of `object`, if its push must not overwrite outside writes. `seen` is what
    /// the store has, if it was asked already.
    pub(crate) async fn below(
        &self,
        object: &ObjectId,
        seen: Option<PossibleBases>,
    ) -> Result<PossibleBases, ObjectError> {
        if seen.is_some() || !self.is_shared(object) {
            return Ok(seen.unwrap_or_default());
        }
        self.agree_with_store(object).await?;
        let below = {
            let dirty = self.dirty.lock();
            let knows = dirty.get(object).is_some_and(|newest| newest.mode != WriteMode::Ephemeral);
            dirty.below(object).filter(|_| knows)
        };
        match below {
            Some(below) => Ok(below),
            None => Ok(PossibleBases { base: self.look_at(object).await?.1, ..PossibleBases::default() }),
        }
    }

    /// Deletes the object; in a shared bucket only if the store still has `base`.
    pub(crate) async fn delete_from(&self, object: &ObjectId, base: &Base) -> Result<(), ObjectError> {
        let _sending = self.sending.begin(object, Base::Absent);
        match base {
            Base::Holds(etag) if self.is_shared(object) => self.store.delete_if(object, etag).await,
            Base::Absent if self.is_shared(object) => match self.store.head(object).await {
                Ok(_) => Err(ObjectError::PreconditionFailed("If-Match")),
                Err(ObjectError::NoSuchKey(_)) => Ok(()),
                Err(error) => Err(error),
            },
            Base::Unknown | Base::Absent | Base::Holds(_) => self.store.delete(object).await,
        }
    }

    /// Writes the object over `base`, if the store can compare.
    pub(crate) async fn put_onto(
        &self,
        object: &ObjectId,
        payload: &Payload,
        meta: &ObjectMeta,
        base: &Base,
    ) -> Result<(), ObjectError> {
        let condition = match base {
            Base::Unknown => WriteConditions::default(),
            Base::Absent => WriteConditions { if_absent: true, ..WriteConditions::default() },
            Base::Holds(etag) => WriteConditions { if_match: Some(etag.clone()), ..WriteConditions::default() },
        };
        let leaves = Base::Holds(meta.etag.clone());
        let (asked, _sending) = (self.clock.monotonic(), self.sending.begin(object, leaves.clone()));
        if condition != WriteConditions::default() && self.is_shared(object) {
            self.store.put_if(object, payload, meta, &condition).await?;
        } else {
            self.store.put(object, payload, meta).await?;
        }
        self.note_seen(object, &leaves, asked);
        Ok(())
    }
}
