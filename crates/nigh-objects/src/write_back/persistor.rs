//! Pushes unpushed writes into the store: the shell around `dirty`.
//!
//! In a bucket that is written from outside too, a push says what it replaces, and the store refuses the push if it
//! holds something else. The refused write is stored under a conflict key: nothing from outside is overwritten, and no
//! acknowledged write is lost.

use std::sync::Arc;
use std::time::Duration;

use nigh_data::{ObjectError, ObjectId, ObjectMeta, Segment};
use nigh_stores::Payload;
use nigh_terms::{ObjectKey, Version};
use nigh_trace::{Span, SpanKind};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::WriteBack;
use super::dirty::{Base, NextPush, ObjectState, Push, StoreState};
use super::policy::WriteMode;

/// When unpushed writes use this part of their room, writes are pushed before they are due.
const HURRY: f64 = 0.5;
/// How often trims are made durable, so that a restart pushes little again.
const SETTLE_EVERY: Duration = Duration::from_secs(1);
/// The most bytes of a key in S3.
const KEY_MAX: usize = 1024;

/// The cached copies.
pub(crate) trait Copies: Send + Sync {
    /// The cached bytes of this version; none if they are not cached.
    fn copy_of(&self, object: &ObjectId, version: Version) -> Option<Segment>;
    /// Drops a copy of `version`, or of an older one: the store has another object now.
    fn forget(&self, object: &ObjectId, version: Version);
    /// The store has this version.
    fn pushed(&self, object: &ObjectId, version: Version);
    /// Gives the time to the machines.
    fn tick(&self);
}

/// How a push ended.
pub(super) enum Outcome {
    /// The store holds what was pushed.
    Stored(Base),
    /// The push failed. If `attempted`, the store may have the state all the same.
    Failed { error: ObjectError, attempted: bool, base: Option<Base> },
    /// The store has a newer write of Nigh's, which the damaged journal has lost.
    Superseded,
    /// The object was written from outside.
    Conflict,
    /// The object was written from outside, and Nigh's write is stored under its conflict key.
    Apart,
}

impl Outcome {
    pub(super) const fn refused(error: ObjectError) -> Self {
        Self::Failed { error, attempted: false, base: None }
    }
}

/// The conflict key of a write: where it is stored when its own key was written from outside.
pub(crate) fn conflict_key(key: &ObjectKey, version: Version) -> Option<ObjectKey> {
    let suffix = format!(".nigh-conflict-{}-{}", version.epoch.0, version.sequence.0);
    let mut kept = KEY_MAX - suffix.len();
    let text = key.as_str();
    while !text.is_char_boundary(kept.min(text.len())) {
        kept -= 1;
    }
    ObjectKey::new(&format!("{}{suffix}", &text[..kept.min(text.len())])).ok()
}

impl WriteBack {
    /// Pushes what is due until `stop`, and then waits for the pushes under way.
    pub(crate) async fn persist(self: Arc<Self>, copies: Arc<dyn Copies>, stop: CancellationToken) {
        let mut pushes = JoinSet::new();
        let mut settle = tokio::time::interval(SETTLE_EVERY);
        settle.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            let mut sleep = None;
            while pushes.len() < self.settings.pushes_max {
                let next = {
                    let mut dirty = self.dirty.lock();
                    let hurry = dirty.fullness() >= HURRY;
                    dirty.next(self.clock.monotonic(), hurry)
                };
                match next {
                    NextPush::Push(push) => {
                        let (back, copies) = (Arc::clone(&self), Arc::clone(&copies));
                        pushes.spawn(async move { back.push(*push, &*copies).await });
                    }
                    NextPush::At(due) => {
                        sleep = Some(due.since(self.clock.monotonic()));
                        break;
                    }
                    NextPush::Idle => break,
                }
            }
            let due = async {
                match sleep {
                    Some(wait) => tokio::time::sleep(wait).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = stop.cancelled() => break,
                Some(_) = pushes.join_next() => {}
                () = due => {}
                () = self.work.notified() => {}
                _ = settle.tick() => {
                    copies.tick();
                    if let Err(error) = self.settle_all().await {
                        tracing::warn!(%error, "the ledger cannot keep what is stored; a restart will push it again");
                    }
                    self.meter.waits(&self.usage());
                }
            }
        }
        while pushes.join_next().await.is_some() {}
        if let Err(error) = self.settle_all().await {
            tracing::warn!(%error, "the ledger cannot keep what is stored; the next start will push it again");
        }
    }

    async fn push(&self, push: Push, copies: &dyn Copies) {
        let traced = if nigh_trace::is_on() { self.traced.take(&push.object) } else { None };
        let mut span = Span::under(traced, "write-back", SpanKind::Consumer);
        let mut outcome = span.scope(self.try_push(&push, copies)).await;
        if matches!(outcome, Outcome::Conflict) {
            outcome = span.scope(self.keep_apart(&push, copies)).await;
        }
        span.record(|span| {
            span.set("aws.s3.bucket", push.object.bucket.as_str());
            span.set("aws.s3.key", push.object.key.as_str());
            span.set("nigh.object.version", push.version.to_string());
            if let Outcome::Failed { error, .. } = &outcome {
                span.fail("push_failed", &error.to_string());
            }
        });
        if let (Outcome::Failed { .. }, Some(context)) = (&outcome, traced) {
            // The next try belongs to the trace too.
            self.traced.insert(push.object.clone(), context);
        }
        drop(span);
        if let Outcome::Failed { error: ObjectError::NoSuchBucket(_), .. } = &outcome {
            outcome = self.bucket_is_missing(&push);
        }
        let (object, version, now) = (&push.object, push.version, self.clock.monotonic());
        let going = match outcome {
            Outcome::Stored(base) => {
                self.meter.pushed(push.becomes.bytes());
                copies.pushed(object, version);
                self.announced(object, version);
                self.going_after(object, |dirty| dirty.pushed(object, version, base, now))
            }
            Outcome::Failed { error, attempted, base } => {
                self.meter.failed();
                let lands_late = self.store.abilities(&object.namespace).lands_late;
                let attempted = (attempted && lands_late).then(|| push.becomes.leaves());
                tracing::warn!(%object, %version, %error, "a write could not be pushed to the store; it stays in the journal");
                self.going_after(object, |dirty| dirty.failed(object, version, attempted, base, now))
            }
            Outcome::Superseded | Outcome::Apart | Outcome::Conflict => {
                if matches!(outcome, Outcome::Superseded) {
                    tracing::warn!(
                        %object, %version,
                        "the store has a newer write of the object, which the damaged journal has lost: that one stays"
                    );
                } else {
                    self.meter.conflict();
                }
                let going = self.going_after(object, |dirty| dirty.kept_apart(object, version, now));
                self.announced(object, version);
                copies.forget(object, version);
                going
            }
        };
        self.tell(going).await;
        self.pushes.send_modify(|pushes| *pushes += 1);
    }

    /// The bucket was removed from outside. A deletion has nothing left to delete; a put stays unpushed.
    fn bucket_is_missing(&self, push: &Push) -> Outcome {
        let ObjectId { namespace, bucket, .. } = &push.object;
        if self.buckets.miss(namespace, bucket) {
            tracing::error!(
                %namespace, %bucket,
                "somebody else removed the bucket; writes into it are refused, what was acknowledged waits until the \
                 bucket is made anew or the writes are dropped (`nigh objects unpushed`)"
            );
        }
        match push.becomes {
            ObjectState::Gone => Outcome::Stored(Base::Absent),
            ObjectState::Put(_) | ObjectState::Lost => Outcome::refused(ObjectError::NoSuchBucket(bucket.clone())),
        }
    }

    async fn try_push(&self, push: &Push, copies: &dyn Copies) -> Outcome {
        // A push in mode `shadow` replaces its own placeholder and nothing else, so the store need not be read first.
        if let (WriteMode::Shadow, ObjectState::Put(meta)) = (push.mode, &push.becomes) {
            return self.push_shadow(push, meta, copies).await;
        }
        if push.contested && self.is_shared(&push.object) {
            return Outcome::Conflict;
        }
        let mut base = push.base.clone();
        if push.looks_first() {
            match self.look(push).await {
                Ok(StoreState::Done(holds)) => return Outcome::Stored(holds),
                Ok(StoreState::Ours(holds)) => base = holds,
                // Others may have copied it with its version from another key.
                Ok(StoreState::Newer(_) | StoreState::Others(_)) if self.is_shared(&push.object) => {
                    return Outcome::Conflict;
                }
                Ok(StoreState::Newer(_)) => return Outcome::Superseded,
                Ok(StoreState::Others(holds)) => base = holds,
                Err(error) => return Outcome::refused(error),
            }
        }
        let put = match &push.becomes {
            ObjectState::Put(meta) => match self.payload(&push.object, meta, copies).await {
                Ok(Some(payload)) => self.put_onto(&push.object, &payload, meta, &base).await,
                // The write was dropped meanwhile: a newer one has been pushed, or the store was asked to forget it.
                Ok(None) => Ok(()),
                Err(error) => return Outcome::refused(error),
            },
            ObjectState::Gone => self.delete_from(&push.object, &base).await,
            // A lost state is never in the queue.
            ObjectState::Lost => return Outcome::refused(ObjectError::Damaged(push.object.key.clone())),
        };
        match put {
            Ok(()) => Outcome::Stored(push.becomes.leaves()),
            // Some services refuse a write over an object that is gone as they refuse a read of it.
            Err(ObjectError::PreconditionFailed(_) | ObjectError::NoSuchKey(_)) => match self.look(push).await {
                Ok(StoreState::Done(holds)) => Outcome::Stored(holds),
                Ok(StoreState::Newer(_) | StoreState::Others(_)) if self.is_shared(&push.object) => Outcome::Conflict,
                Ok(StoreState::Newer(_)) => Outcome::Superseded,
                Ok(StoreState::Ours(holds) | StoreState::Others(holds)) => {
                    let error = ObjectError::PreconditionFailed("the store held something else than was thought");
                    Outcome::Failed { error, attempted: false, base: Some(holds) }
                }
                Err(error) => Outcome::refused(error),
            },
            // The store was too busy to begin, or was not reached: the push cannot be carried out later, so the object
            // need not be watched.
            Err(error @ (ObjectError::SlowDown(_) | ObjectError::StoreUnreached { .. })) => Outcome::refused(error),
            Err(error) => Outcome::Failed { error, attempted: true, base: None },
        }
    }

    /// The bytes of an unpushed write, from memory or from the ledger; `None` if it is no longer unpushed.
    pub(super) async fn payload(
        &self,
        object: &ObjectId,
        meta: &ObjectMeta,
        copies: &dyn Copies,
    ) -> Result<Option<Payload>, ObjectError> {
        if let Some(segment) = copies.copy_of(object, meta.version) {
            return Ok(Some(Payload::Segment(segment)));
        }
        let Some(bytes) = self.read_waiting(object, meta).await? else { return Ok(None) };
        Ok(Some(Payload::Segment(Segment::copy_of(&bytes)?)))
    }

    /// Asks what the store has, and classifies it for this push.
    async fn look(&self, push: &Push) -> Result<StoreState, ObjectError> {
        let (holds, version) = match self.store.head(&push.object).await {
            Ok(meta) => (Base::Holds(meta.etag), Some(meta.version)),
            Err(ObjectError::NoSuchKey(_)) => (Base::Absent, None),
            Err(error) => return Err(error),
        };
        Ok(push.sees(holds, version))
    }

    /// Stores an acknowledged write under its conflict key, because its own key was written from outside.
    async fn keep_apart(&self, push: &Push, copies: &dyn Copies) -> Outcome {
        let is_newest = self.dirty.lock().get(&push.object).is_some_and(|newest| newest.version == push.version);
        if !is_newest {
            // The newer write gets the same result and is stored.
            return Outcome::refused(ObjectError::ConditionalRequestConflict);
        }
        if let ObjectState::Put(meta) = &push.becomes {
            let Some(key) = conflict_key(&push.object.key, push.version) else {
                return Outcome::refused(ObjectError::ConditionalRequestConflict);
            };
            let apart = ObjectId { key, ..push.object.clone() };
            let kept = match self.payload(&push.object, meta, copies).await {
                Ok(Some(payload)) => self.put_onto(&apart, &payload, meta, &Base::Absent).await,
                Ok(None) => Ok(()),
                Err(error) => Err(error),
            };
            match kept {
                // An object at the conflict key is from an earlier try whose answer was lost.
                Ok(()) | Err(ObjectError::PreconditionFailed(_)) => {
                    tracing::error!(
                        object = %push.object, kept = %apart,
                        "an outsider wrote the object before this push: the write is stored under a conflict key"
                    );
                }
                Err(error) => return Outcome::refused(error),
            }
        } else {
            tracing::error!(object = %push.object, "an outsider wrote the object before its deletion: it stays");
        }
        Outcome::Apart
    }
}

#[cfg(test)]
mod tests {
    use nigh_terms::{Epoch, Sequence};

    use super::*;

    #[test]
    fn a_conflict_key_is_a_key_whatever_the_key_was() {
        let version = Version { epoch: Epoch(2), sequence: Sequence(9) };
        let of = |key: &str| conflict_key(&ObjectKey::new(key).unwrap(), version).unwrap().as_str().to_owned();
        assert_eq!(of("a/b.txt"), "a/b.txt.nigh-conflict-2-9");
        for long in ["k".repeat(1024), "ü".repeat(512)] {
            let key = of(&long);
            assert!(key.len() <= KEY_MAX && key.ends_with(".nigh-conflict-2-9"), "{}", key.len());
        }
    }
}
