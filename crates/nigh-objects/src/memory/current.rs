//! The current metadata of an object, from its copy or its home; and what drops a copy that the store contradicts.

use std::sync::Arc;

use nigh_data::{ObjectError, ObjectId, ObjectMeta};
use nigh_terms::Principal;

use super::ObjectMemoryState;
use super::cluster::CopyUse;
use super::reads::EPHEMERAL_ATTEMPTS;
use crate::write_back::Copies;

impl ObjectMemoryState {
    /// Drops the copy if the store has another object, where the bucket's policy bounds the age of copies and the store
    /// was not asked within the bound. An unpushed write over which others have written gives way to theirs.
    pub(super) async fn revalidate(&self, object: &ObjectId) -> Result<(), ObjectError> {
        let Some(bound) = self.back.freshness(object) else { return Ok(()) };
        if let Some(version) = self.back.agree_with_store(object).await? {
            self.forget(object, version);
        }
        if self.back.newest_waiting(object).is_some() {
            return Ok(());
        }
        let Some(kept) = self.shelf().peek(object).map(|kept| kept.meta.unpack()) else {
            return Ok(());
        };
        if self.back.is_fresh(object, &kept.etag, bound) {
            return Ok(());
        }
        match self.back.head(object).await {
            Ok(meta) if meta.etag == kept.etag => {}
            Ok(_) | Err(ObjectError::NoSuchKey(_)) => self.forget(object, kept.version),
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Handles an outside write of an object in the store: the object has a new version and no copy.
    pub(super) fn written_by_others(self: &Arc<Self>, object: &ObjectId) {
        if !self.coherence.is_home(self.coherence.shards.of(object)) {
            return self.outside_there(object);
        }
        self.written_by_others_here(object);
    }

    /// Handles a write by others as `written_by_others` does, for an object whose home is here.
    pub(super) fn written_by_others_here(&self, object: &ObjectId) {
        let kept = self.shelf().peek(object).map(|kept| kept.meta.version());
        let only_copy = kept.filter(|_| self.back.is_ephemeral(object));
        let forgotten = self.coherence.outside(self.now(), object);
        if let Some(version) = only_copy {
            self.back.gone_from_memory(object, version);
        }
        self.settle(forgotten);
    }

    /// The object's current metadata, which `who` is shown.
    pub(super) async fn current(
        self: &Arc<Self>,
        who: &Principal,
        object: &ObjectId,
    ) -> Result<Arc<ObjectMeta>, ObjectError> {
        let found = if who.invocation.is_none() && !self.coherence.is_alone() {
            self.current_from_outside(object).await
        } else {
            self.current_of(object).await
        };
        match &found {
            Ok(meta) => self.shows(who, object, meta),
            Err(_) => self.shows_newest(who),
        }
        found
    }

    /// The object's current metadata.
    pub(super) async fn current_of(self: &Arc<Self>, object: &ObjectId) -> Result<Arc<ObjectMeta>, ObjectError> {
        self.revalidate(object).await?;
        let mut attempts = 0;
        loop {
            let kept = self.shelf().peek(object).map(|kept| kept.meta.unpack());
            if let Some(meta) = kept
                && self.copies_are(object) == CopyUse::Shown
            {
                return Ok(meta);
            }
            attempts += 1;
            match self.look(object).await {
                // The object is cached again if a write has ended in between.
                Err(ObjectError::EphemeralLost(_)) if attempts < EPHEMERAL_ATTEMPTS => {}
                other => return other,
            }
        }
    }

    /// The object's current metadata; none if there is no object.
    pub(super) async fn current_if_any(
        self: &Arc<Self>,
        object: &ObjectId,
    ) -> Result<Option<Arc<ObjectMeta>>, ObjectError> {
        match self.current_of(object).await {
            Ok(meta) => Ok(Some(meta)),
            Err(ObjectError::NoSuchKey(_)) => Ok(None),
            Err(other) => Err(other),
        }
    }
}
