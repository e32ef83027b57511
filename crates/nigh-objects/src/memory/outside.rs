//! The store's notices about outside: somebody reads a placeholder, begins a write, or has written.
//!
//! This module does what a notice asks of the object's home; `cluster/outside.rs` finds the home.

use std::sync::Arc;
use std::time::Duration;

use async_recursion::async_recursion as boxed;
use nigh_data::{ETag, ObjectError, ObjectId};
use nigh_stores::swift::shadow::SwiftTimestamp;
use nigh_terms::{BucketName, Namespace, Version};
use serde::{Deserialize, Serialize};

use super::{ObjectMemory, ObjectMemoryState};
use crate::sync::timeout;
use crate::write_back::{NoticeKind, PushOutcome, StoreChange};

/// How long a notice of an outside write waits until this node's unpushed write of the object is settled with it. Amazon
/// EventBridge gives up after five seconds.
const NOTICE_WITHIN: Duration = Duration::from_secs(5);
/// The longest lease of an outside write.
const LEASE_MAX: Duration = Duration::from_secs(3600);

const fn too_many() -> ObjectError {
    ObjectError::SlowDown("too many writes of others are under way")
}

/// What Swift's middleware reports of an object.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) enum OutsideReport {
    /// Somebody reads the placeholder of this version, and waits.
    Reads(Version),
    /// Somebody begins the write that `token` names, and waits.
    WriteBegins { token: String, lease: Duration },
    /// That write has ended; `applied` says whether the store has it, if that is known.
    WriteEnded { token: String, applied: Option<bool> },
}

/// What the object's home answers.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct OutsideAnswer {
    /// For a reader: the result of the push.
    pub(super) pushed: Option<PushOutcome>,
    /// For a write that begins: the timestamp that it must exceed, if it is known.
    pub(super) newest: Option<String>,
}

impl ObjectMemoryState {
    /// True if `object` is being written from outside. It is not cached then, and writes of it here go through to the
    /// store.
    pub(super) fn is_written_outside(&self, object: &ObjectId) -> bool {
        self.outside.lock().hold(object, self.clock.monotonic())
    }

    /// Acts on a report at the object's home here. Whoever calls this checks that the home is still here afterwards.
    pub(super) async fn outside_here(
        self: &Arc<Self>,
        object: &ObjectId,
        report: OutsideReport,
    ) -> Result<OutsideAnswer, ObjectError> {
        let mut answer = OutsideAnswer::default();
        match report {
            OutsideReport::Reads(version) => {
                // A write under way may have its placeholder in the store already.
                drop(self.order.turn(object).await?);
                answer.pushed = Some(self.back.push_now(object, version).await?);
            }
            OutsideReport::WriteBegins { token, lease } => {
                let _turn = self.order.turn(object).await?;
                self.back.flush(object).await?;
                let now = self.now();
                let begun = self.outside.lock().begin(object, &token, now.after(lease.min(LEASE_MAX)), now);
                begun.map_err(|_| too_many())?;
                self.written_by_others(object);
                answer.newest = self.back.newest_there(object).map(|newest| newest.0);
            }
            OutsideReport::WriteEnded { token, applied } => {
                if applied != Some(false) {
                    self.back.superseded(object).await;
                }
                // Also for a write that was announced to an earlier incarnation of this node.
                self.written_by_others(object);
                if applied.is_some() {
                    self.outside.lock().end(object, &token);
                }
            }
        }
        Ok(answer)
    }

    /// Settles writes of `object` here with an outsider's, which the store has: what was acknowledged here is pushed, or
    /// gives way, and no later write of this node replaces what the store had before.
    async fn settle_with_outsider(self: &Arc<Self>, object: &ObjectId) -> Result<(), ObjectError> {
        let _turn = self.order.turn(object).await?;
        self.back.flush(object).await?;
        self.back.superseded(object).await;
        // A read may have cached the write that was unpushed until now.
        self.written_by_others(object);
        Ok(())
    }
}

impl ObjectMemory {
    /// The buckets that the store calls `name`, in `account` if the store has accounts.
    #[must_use]
    pub fn bucket_named(&self, account: Option<&str>, name: &str) -> Vec<(Namespace, BucketName)> {
        self.0.back.store().bucket_named(account, name)
    }

    /// Has the object's home push `version` now: a reader of the store has met its placeholder and waits.
    ///
    /// # Errors
    /// `SlowDown` if that takes longer than a write may wait, or no home answers; the store's.
    #[boxed]
    pub async fn push_now(&self, object: &ObjectId, version: Version) -> Result<PushOutcome, ObjectError> {
        let answer = self.0.report_outside(object, OutsideReport::Reads(version)).await?;
        Ok(answer.pushed.unwrap_or(PushOutcome::Unknown))
    }

    /// Prepares for an outside write of `object`. When this returns, the store has all acknowledged writes of the
    /// object, and no placeholder is on its way. Until `outside_write_ended`, or for `lease`, no copy is cached or
    /// served and writes go through; in a cluster also after a move of the object's home, which the next home hears
    /// of from this node. Returns the timestamp, in the store's own order, that the outside write must exceed, if it
    /// is known.
    ///
    /// # Errors
    /// `SlowDown` if too much waits, or no home answers; the outside write must not be made then.
    #[boxed]
    pub async fn outside_write_begins(
        &self,
        object: &ObjectId,
        token: &str,
        lease: Duration,
    ) -> Result<Option<SwiftTimestamp>, ObjectError> {
        let inner = &self.0;
        if inner.me.is_some() {
            // Before the home is asked: if it moves meanwhile, the next one is told.
            let now = inner.now();
            let begun = inner.announced.lock().begin(object, token, now.after(lease.min(LEASE_MAX)), now);
            begun.map_err(|_| too_many())?;
        }
        let report = OutsideReport::WriteBegins { token: token.to_owned(), lease };
        let begun = inner.report_outside(object, report).await;
        let answer = begun.inspect_err(|_| inner.announced.lock().end(object, token))?;
        Ok(answer.newest.map(SwiftTimestamp))
    }

    /// Ends an outside write: `applied` says whether the store has it, if that is known. Otherwise the object is held
    /// for the rest of the lease.
    ///
    /// # Errors
    /// In a cluster, why the object's home was not told: it holds the object for the rest of the lease.
    #[boxed]
    pub async fn outside_write_ended(
        &self,
        object: &ObjectId,
        token: &str,
        applied: Option<bool>,
    ) -> Result<(), ObjectError> {
        let report = OutsideReport::WriteEnded { token: token.to_owned(), applied };
        self.0.report_outside(object, report).await?;
        if applied.is_some() {
            self.0.announced.lock().end(object, token);
        }
        Ok(())
    }

    /// The store's notice that `object` was written or removed, by anybody: what `changed_outside` does, and where an
    /// outsider changed an object of a shared bucket that has an unpushed write, or is being written, that is settled
    /// before this returns. Where the object's home is on another node, that is told, and nobody waits for it. True if a
    /// copy was dropped.
    ///
    /// # Errors
    /// `SlowDown` if it takes longer than five seconds; the store's. The copy is dropped all the same.
    #[boxed]
    pub async fn noticed(&self, object: &ObjectId, change: &StoreChange) -> Result<bool, ObjectError> {
        let inner = &self.0;
        let kind = inner.back.heard(object, change);
        if kind == NoticeKind::Own {
            return Ok(false);
        }
        let is_under_way = inner.writing.lock().contains_key(object);
        let dropped = self.changed_outside(object, change.etag());
        if kind == NoticeKind::OverUnpushed || kind == NoticeKind::Outside && is_under_way {
            let late = "the store does not take what was written before the outsider's write";
            let settled = timeout(NOTICE_WITHIN, inner.settle_with_outsider(object)).await;
            settled.map_err(|_| ObjectError::SlowDown(late))??;
        }
        Ok(dropped)
    }

    /// The store reports that `object` was written or deleted, by anybody. If the store also reports its entity tag
    /// `now`, a copy with that tag is this node's own and stays; so does that of a write under way. True if a copy was
    /// dropped.
    pub fn changed_outside(&self, object: &ObjectId, now: Option<&ETag>) -> bool {
        let inner = &self.0;
        let mut writing = inner.writing.lock();
        if let Some(noticed) = writing.get_mut(object) {
            noticed.note(now);
        }
        let kept = inner.shelf().peek(object).map(|kept| kept.meta.unpack().etag.clone());
        if kept.is_some() && kept.as_ref() == now {
            return false;
        }
        inner.written_by_others(object);
        kept.is_some()
    }

    /// Nothing is unpushed and this node ends: the store need not notify it any more.
    #[boxed]
    pub async fn let_go_of_store(&self) {
        self.0.back.store().let_go().await;
    }
}
