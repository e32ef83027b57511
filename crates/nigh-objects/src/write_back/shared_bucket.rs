//! Buckets that are written from outside too: what a write checks first, and how the store is told what the write
//! replaces.
//!
//! No outside write is overwritten or deleted unseen: a client's write replaces only the state that its conditions were
//! checked on, and a write that is pushed later replaces only the state at its acknowledgement.

use std::sync::Arc;

use nigh_data::{ObjectError, ObjectId, ObjectMeta, WriteConditions};
use nigh_stores::Payload;

use super::WriteBack;
use super::dirty::{Base, ObjectState, PossibleBases};

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
        {
            let dirty = self.dirty.lock();
            if let (Some(newest), Some(below)) = (dirty.get(object), dirty.below(object)) {
                return match &newest.becomes {
                    ObjectState::Put(meta) => Ok(Some((Some(Arc::clone(meta)), below))),
                    ObjectState::Gone => Ok(Some((None, below))),
                    ObjectState::Lost => Err(ObjectError::Damaged(object.key.clone())),
                };
            }
        }
        let of = |base| PossibleBases { base, ..PossibleBases::default() };
        match self.store.head(object).await {
            Ok(meta) => {
                let below = of(Base::Holds(meta.etag.clone()));
                Ok(Some((Some(Arc::new(meta)), below)))
            }
            Err(ObjectError::NoSuchKey(_)) => Ok(Some((None, of(Base::Absent)))),
            Err(error) => Err(error),
        }
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
        if let Some(below) = self.dirty.lock().below(object) {
            return Ok(below);
        }
        Ok(self.look_below(object).await?.map(|(_, below)| below).unwrap_or_default())
    }

    /// Deletes the object; in a shared bucket only if the store still has `base`.
    pub(crate) async fn delete_from(&self, object: &ObjectId, base: &Base) -> Result<(), ObjectError> {
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
        if condition != WriteConditions::default() && self.is_shared(object) {
            self.store.put_if(object, payload, meta, &condition).await
        } else {
            self.store.put(object, payload, meta).await
        }
    }
}
