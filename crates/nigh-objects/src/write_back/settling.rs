//! Waiting until the store has what was acknowledged, and until no trimmed record can come back.

use std::collections::BTreeMap;
use std::time::Duration;

use nigh_data::{ObjectError, ObjectId};
use nigh_engine::LedgerError;
use nigh_terms::{ShardId, Version};

use super::WriteBack;
use super::dirty::{Base, ObjectState, TrimmableVersions, UnpushedWrite, WriteBackQueue};
use super::policy::WriteMode;

impl WriteBack {
    /// Waits until the store has the object's unpushed writes, and drops them: nothing of the object is pushed from now
    /// on. A push of unknown outcome may still be carried out. Returns what the store has then, as far as it is known.
    pub(crate) async fn hand_over(&self, object: &ObjectId) -> Result<Option<Base>, ObjectError> {
        let left = {
            let dirty = self.dirty.lock();
            dirty.get(object).filter(|newest| newest.is_pushed_at_last()).map(|newest| newest.becomes.leaves())
        };
        self.flush(object).await?;
        let is_idle = || self.dirty.lock().is_idle(object);
        self.until(self.settings.wait, is_idle, "the store has not taken what was written before").await?;
        self.drop_where(object, UnpushedWrite::is_pushed_at_last).await;
        Ok(left)
    }

    /// Drops the newest unpushed write of an object, if `fits` accepts it.
    pub(crate) async fn drop_where(&self, object: &ObjectId, fits: impl Fn(&UnpushedWrite) -> bool) {
        let drop = |dirty: &mut WriteBackQueue| {
            let version = dirty.get(object).filter(|newest| fits(newest)).map(|newest| newest.version);
            version.map(|version| dirty.drop_newest(object, version)).unwrap_or_default()
        };
        self.let_go(object, drop).await;
    }

    /// Waits until `holds` returns true, at most as long as a write may wait. `holds` is called after each end of a
    /// push.
    pub(super) async fn until(
        &self,
        within: Duration,
        holds: impl Fn() -> bool,
        why_not: &'static str,
    ) -> Result<(), ObjectError> {
        let mut pushes = self.pushes.subscribe();
        let waited = tokio::time::timeout(within, async {
            while !holds() {
                if pushes.changed().await.is_err() {
                    break;
                }
            }
        });
        waited.await.map_err(|_| ObjectError::SlowDown(why_not))
    }

    /// Waits until the store has, or has had, every acknowledged write of the object.
    ///
    /// # Errors
    /// `SlowDown` if it takes longer than a write may wait.
    pub(crate) async fn flush(&self, object: &ObjectId) -> Result<(), ObjectError> {
        let newest = self.dirty.lock().get(object).cloned();
        match newest {
            None
            | Some(
                UnpushedWrite { mode: WriteMode::Ephemeral, .. } | UnpushedWrite { becomes: ObjectState::Lost, .. },
            ) => Ok(()),
            Some(UnpushedWrite { version, .. }) => self.flushed(object, version).await,
        }
    }

    /// Waits until the store has every write acknowledged so far, at most `within`.
    ///
    /// # Errors
    /// `SlowDown` if it takes longer.
    pub(crate) async fn flush_all(&self, within: Duration) -> Result<(), ObjectError> {
        let waiting = {
            let mut dirty = self.dirty.lock();
            dirty.want_all(self.clock.monotonic());
            dirty.waiting()
        };
        self.work.notify_one();
        let all_had = || {
            let dirty = self.dirty.lock();
            waiting.iter().all(|(object, version)| dirty.has_had(object, *version))
        };
        self.until(within, all_had, "the store has not taken what was written before").await
    }

    /// Pushes the object's unpushed write of a shared bucket now, without waiting: others may have written it.
    pub(crate) fn push_soon(&self, object: &ObjectId) {
        if self.is_shared(object) {
            self.dirty.lock().want(object);
            self.work.notify_one();
        }
    }

    pub(super) async fn flushed(&self, object: &ObjectId, version: Version) -> Result<(), ObjectError> {
        self.dirty.lock().want(object);
        self.work.notify_one();
        let has_had = || self.dirty.lock().has_had(object, version);
        self.until(self.settings.wait, has_had, "the store has not taken the write yet").await
    }

    /// Changes the queue of unpushed writes by `step`, and tells the ledger which records may be trimmed after that.
    pub(crate) async fn let_go(&self, object: &ObjectId, step: impl FnOnce(&mut WriteBackQueue) -> TrimmableVersions) {
        let going = self.going_after(object, step);
        self.tell(going).await;
    }

    /// Changes the queue by `step`. Returns the records that the ledger must be told to trim.
    pub(super) fn going_after<'a>(
        &'a self,
        object: &'a ObjectId,
        step: impl FnOnce(&mut WriteBackQueue) -> TrimmableVersions,
    ) -> Option<TrimNotice<'a>> {
        let mut dirty = self.dirty.lock();
        let settled = step(&mut dirty);
        // Under the same lock: a caller that finds nothing unpushed also finds that these trims are not durable.
        self.going(object, self.trims.lock().stored(object, settled))
    }

    /// The writer of `version` never sends its write again.
    pub(crate) async fn writer_settled(&self, shard: ShardId, version: Version) {
        let goes = self.trims.lock().settled(shard, version);
        if let Some((object, versions)) = goes {
            self.tell(self.going(&object, versions)).await;
        }
    }

    /// The notice that `versions` of `object` may be trimmed; none if there are none. The ledger does not know yet.
    fn going<'a>(&'a self, object: &'a ObjectId, versions: Vec<Version>) -> Option<TrimNotice<'a>> {
        if versions.is_empty() {
            return None;
        }
        self.unsettled.lock().begin(object);
        Some(TrimNotice { back: self, object, versions })
    }

    /// Tells the ledger to trim records. Records that it cannot be told about stay, and are pushed again after a
    /// restart, to the same effect.
    pub(super) async fn tell(&self, going: Option<TrimNotice<'_>>) {
        let Some(TrimNotice { object, versions, .. }) = &going else { return };
        for version in versions {
            if let Err(error) = self.ledger.stored(self.shards.of(object), *version).await {
                tracing::warn!(
                    %object, %version, %error,
                    "the record of a stored write is not trimmed; a restart pushes the write again"
                );
            }
        }
    }

    /// Makes the trims of `object` durable, because the store is about to be written past the ledger: an older record
    /// that came back after a crash would be pushed over that write.
    pub(crate) async fn settle(&self, object: &ObjectId) -> Result<(), ObjectError> {
        if !self.unsettled.lock().contains(object) {
            return Ok(());
        }
        let is_told = || !self.unsettled.lock().is_being_told(object);
        self.until(self.settings.wait, is_told, "the ledger has not heard what of the object is stored").await?;
        self.settle_all().await
    }

    /// Makes all trims durable.
    pub(super) async fn settle_all(&self) -> Result<(), ObjectError> {
        let (settling, told) = self.unsettled.lock().all();
        let mut of_shards: BTreeMap<ShardId, Vec<ObjectId>> = BTreeMap::new();
        for object in settling {
            of_shards.entry(self.shards.of(&object)).or_default().push(object);
        }
        let mut all = Ok(());
        for (shard, objects) in of_shards {
            let settled = self.ledger.settle(shard).await;
            // The next home has the records whose trim is not durable, and pushes them again.
            if matches!(settled, Ok(()) | Err(LedgerError::Fenced { .. })) {
                self.unsettled.lock().settled(&objects, told);
            }
            all = all.and(settled);
        }
        Ok(all?)
    }
}

/// Records that the ledger is about to be told to trim.
pub(super) struct TrimNotice<'a> {
    back: &'a WriteBack,
    object: &'a ObjectId,
    versions: Vec<Version>,
}

impl Drop for TrimNotice<'_> {
    /// This also runs if the task is dropped before the ledger has answered.
    fn drop(&mut self) {
        self.back.unsettled.lock().told(self.object);
        // Wakes the tasks that wait for the end of a push.
        self.back.pushes.send_modify(|_| {});
    }
}
