//! Waiting for the store: until it has what was acknowledged, and until no record of that comes back.

use std::collections::BTreeMap;
use std::time::Duration;

use nigh_engine::LedgerError;
use nigh_terms::{ShardId, Version};

use super::WriteBack;
use super::dirty::{Base, Becomes, Unpushed};
use super::policy::WriteMode;
use crate::{ObjectError, ObjectId};

impl WriteBack {
    /// Sees to it that nothing of the object is pushed from now on: the store has what waited. What an earlier push
    /// without an answer may still do is the doubt of whoever writes next.
    /// It says what the store holds then, as far as it is known.
    pub(super) async fn hand_over(&self, object: &ObjectId) -> Result<Option<Base>, ObjectError> {
        let left = {
            let dirty = self.dirty.lock();
            dirty.get(object).filter(|newest| newest.is_pushed_at_last()).map(|newest| newest.becomes.leaves())
        };
        self.flush(object).await?;
        let is_idle = || self.dirty.lock().is_idle(object);
        self.until(self.settings.wait, is_idle, "the store has not taken what was written before").await?;
        self.drop_where(object, Unpushed::is_pushed_at_last).await;
        Ok(left)
    }

    /// Drops what waits of an object, if it is as `fits` says.
    pub(super) async fn drop_where(&self, object: &ObjectId, fits: impl Fn(&Unpushed) -> bool) {
        let settled = {
            let mut dirty = self.dirty.lock();
            let version = dirty.get(object).filter(|newest| fits(newest)).map(|newest| newest.version);
            version.map(|version| dirty.drop_newest(object, version)).unwrap_or_default()
        };
        self.let_go(object, settled).await;
    }

    /// Waits, bounded, until `holds`; it is looked at after each end of a push.
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

    /// Waits until the store has, or has had, all of the object that was acknowledged.
    ///
    /// # Errors
    /// `SlowDown` if it takes longer than a write may wait.
    pub(crate) async fn flush(&self, object: &ObjectId) -> Result<(), ObjectError> {
        let newest = self.dirty.lock().get(object).cloned();
        match newest {
            None | Some(Unpushed { mode: WriteMode::Ephemeral, .. } | Unpushed { becomes: Becomes::Lost, .. }) => {
                Ok(())
            }
            Some(Unpushed { version, .. }) => self.flushed(object, version).await,
        }
    }

    /// Waits, for so long, until the store has all that was acknowledged so far.
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

    pub(super) async fn flushed(&self, object: &ObjectId, version: Version) -> Result<(), ObjectError> {
        self.dirty.lock().want(object);
        self.work.notify_one();
        let has_had = || self.dirty.lock().has_had(object, version);
        self.until(self.settings.wait, has_had, "the store has not taken the write yet").await
    }

    /// Tells the ledger which records may go. If it cannot be told they stay, and are pushed again after a restart, to
    /// the same effect.
    pub(super) async fn let_go(&self, object: &ObjectId, settled: Vec<Version>) {
        let settled = self.trims.lock().stored(object, settled);
        self.may_go(object, settled).await;
    }

    /// Who wrote `version` asks for it no more.
    pub(crate) async fn writer_settled(&self, shard: ShardId, version: Version) {
        let goes = self.trims.lock().settled(shard, version);
        if let Some((object, versions)) = goes {
            self.may_go(&object, versions).await;
        }
    }

    async fn may_go(&self, object: &ObjectId, settled: Vec<Version>) {
        if settled.is_empty() {
            return;
        }
        self.unsettled.lock().insert(object.clone());
        for version in settled {
            if let Err(error) = self.ledger.stored(self.shards.of(object), version).await {
                tracing::warn!(%object, %version, %error, "the ledger keeps the record of a write that is stored");
            }
        }
    }

    /// Makes sure that no older record of `object` comes back after a crash: the store is about to be written past the
    /// ledger.
    pub(super) async fn settle(&self, object: &ObjectId) -> Result<(), ObjectError> {
        if !self.unsettled.lock().contains(object) {
            return Ok(());
        }
        self.settle_all().await
    }

    /// Makes durable what was let go.
    pub(super) async fn settle_all(&self) -> Result<(), ObjectError> {
        let settling = std::mem::take(&mut *self.unsettled.lock());
        if settling.is_empty() {
            return Ok(());
        }
        let mut of_shards: BTreeMap<ShardId, Vec<ObjectId>> = BTreeMap::new();
        for object in settling {
            of_shards.entry(self.shards.of(&object)).or_default().push(object);
        }
        let mut all = Ok(());
        for (shard, objects) in of_shards {
            let settled = self.ledger.settle(shard).await;
            // The next home has all that is not settled, and pushes it again.
            if !matches!(settled, Ok(()) | Err(LedgerError::Fenced { .. })) {
                self.unsettled.lock().extend(objects);
            }
            all = all.and(settled);
        }
        Ok(all?)
    }
}
