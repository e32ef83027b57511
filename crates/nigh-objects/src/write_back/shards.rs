//! Shards whose homes come here and leave: the journal's records of them, and its fences, which belong to no object.

use std::sync::Arc;

use nigh_data::{ObjectError, ObjectId};
use nigh_engine::journal::RecoveredRecord;
use nigh_engine::{Body, Change, LedgerError, Record, RequestId};
use nigh_protocol::Member;
use nigh_terms::{BucketName, Epoch, Namespace, ObjectKey, ShardId, Token, Version};

use super::dirty::{ObjectState, WriteBackQueue};
use super::ephemeral::HandedOverObject;
use super::policy::WriteMode;
use super::shadow::Life;
use super::{RequestRecord, WriteBack, about};

/// The bucket and key of a fence's record, which is no object's.
const FENCES: (&str, &str) = ("nigh", "fences");

fn failed(operation: &'static str, reason: String) -> ObjectError {
    ObjectError::Memory { operation, reason }
}

impl WriteBack {
    /// A home begins here, and the ledger has taken its shard. Gives the home's epoch. What an earlier home of the shard
    /// had here is forgotten.
    pub(crate) fn begin(&self, shard: ShardId) -> Epoch {
        let epoch = self.ledger.epoch(shard);
        self.forget_unless(shard, |_| false);
        let _what_waits_is_of_the_epochs = self.dirty.lock();
        self.epochs.lock().insert(shard, epoch);
        epoch
    }

    /// True if the home that wrote `version` of `object` is still here; that stays so while the queue is locked. The
    /// ledger may confirm a record when its home has gone: the record is then the next home's, which has found it.
    pub(super) fn is_of_home_here(&self, _what_waits: &WriteBackQueue, object: &ObjectId, version: Version) -> bool {
        self.member.is_none() || self.epochs.lock().get(&self.shards.of(object)) == Some(&version.epoch)
    }

    /// Takes over what an earlier incarnation, or home, has acknowledged and not pushed. The journal has lost the bytes
    /// of the records in `lost`. Returns the ephemeral objects that a home has handed over by the journal; until their
    /// bytes are in memory, they are as good as lost.
    ///
    /// # Errors
    /// Which record cannot be read.
    pub(crate) fn recover(
        &self,
        records: Vec<RecoveredRecord>,
        lost: Vec<RecoveredRecord>,
        may_lack_writes: bool,
    ) -> Result<Vec<HandedOverObject>, ObjectError> {
        let now = self.clock.monotonic();
        let mut handed_over = Vec::new();
        let whole = records.into_iter().map(|record| (record, true));
        let mut found: Vec<_> = whole.chain(lost.into_iter().map(|record| (record, false))).collect();
        found.sort_by_key(|(record, _)| record.version);
        for (RecoveredRecord { version, record, .. }, whole) in found {
            if matches!(record.change, Change::Fence { .. } | Change::Transaction { .. }) {
                continue;
            }
            let object = ObjectId { namespace: record.namespace, bucket: record.bucket, key: record.key };
            let shard = self.shards.of(&object);
            let written = about::decode(record.change.about(), version)
                .map_err(|reason| failed("read the journal", format!("the write {version} of {object}: {reason}")))?;
            // An unpushed object keeps this node from removing its bucket. If the bucket was removed from outside, the
            // first push finds out.
            if matches!(written.becomes, ObjectState::Put(_)) {
                self.buckets.heard(self.buckets.moment(), &object.namespace, &object.bucket);
            }
            if written.by.as_ref().is_some_and(|by| Some(by.member) != self.member) && self.member.is_some() {
                self.trims.lock().opened(shard, &object, version);
            }
            self.ephemeral.recover(&object, version, written.mode);
            let mut dirty = self.dirty.lock();
            if let (true, true, ObjectState::Put(meta)) = (whole, written.handed_over, &written.becomes) {
                handed_over.push((object.clone(), Arc::clone(meta)));
                dirty.recover(&object, version, written.mode, written.becomes.clone(), written.below, now);
                continue;
            }
            if written.mode == WriteMode::Ephemeral {
                // The record says that the object existed; its bytes are gone with the memory of the earlier
                // incarnation.
                dirty.recover(&object, version, written.mode, ObjectState::Lost, written.below, now);
                continue;
            }
            if !whole {
                tracing::error!(%object, %version, "an acknowledged write is damaged in the journal");
                dirty.recover(&object, version, written.mode, ObjectState::Lost, written.below, now);
                continue;
            }
            let (mode, becomes, told) = (written.mode, written.becomes.clone(), false);
            // Whether a write in mode `shadow` was acknowledged is not known before its request is repeated.
            if mode != WriteMode::Shadow {
                let known = RequestRecord { version, mode, becomes, is_certain: true, told };
                self.requests.lock().note(record.request, &object, known);
            }
            // Older writes of the object are in the journal too; they are trimmed when the newest has been pushed.
            dirty.recover(&object, version, written.mode, written.becomes, written.below, now);
            if may_lack_writes {
                dirty.may_lack(&object, self.ledger.epoch(shard), now);
            }
            let mut unannounced = self.unannounced.lock();
            if written.mode == WriteMode::Shadow {
                unannounced.insert(object, (version, Life::Earlier));
                continue;
            }
            unannounced.remove(&object);
            if self.store.abilities(&object.namespace).lands_late {
                dirty.doubt(&object, now);
            }
        }
        self.work.notify_one();
        let dirty = self.dirty.lock();
        handed_over.retain(|(object, meta)| dirty.get(object).is_some_and(|newest| newest.version == meta.version));
        Ok(handed_over)
    }

    /// The home of `shard` under `epoch` is here no more: what waits of it is the next one's to push. What a later home has
    /// here stays.
    pub(crate) fn forget(&self, shard: ShardId, epoch: Epoch) {
        self.forget_unless(shard, |here| here != Some(epoch));
    }

    /// Forgets what the home of `shard` had here, unless `stays` says otherwise of its epoch.
    fn forget_unless(&self, shard: ShardId, stays: impl FnOnce(Option<Epoch>) -> bool) {
        let is_of = |object: &ObjectId| self.shards.of(object) == shard;
        {
            // The next home begins after all of this.
            let mut dirty = self.dirty.lock();
            let mut epochs = self.epochs.lock();
            if stays(epochs.get(&shard).copied()) {
                return;
            }
            epochs.remove(&shard);
            dirty.forget(is_of);
            self.trims.lock().forget(shard);
            self.unsettled.lock().forget(is_of);
            self.unannounced.lock().retain(|object, _| !is_of(object));
            self.ephemeral.forget(is_of);
        }
        // A task that waits for a push looks again.
        self.pushes.send_modify(|_| {});
    }

    /// Returns when this process is known to have had `shard` under `epoch` after this was asked.
    pub(crate) async fn confirm(&self, shard: ShardId, epoch: Epoch) -> Result<(), LedgerError> {
        self.ledger.confirm(shard).await?;
        // It may have been taken again meanwhile, after another home had it.
        if self.ledger.epoch(shard) == epoch { Ok(()) } else { Err(LedgerError::Fenced { shard, held: epoch }) }
    }

    /// Has the journal say that `member` writes no more.
    pub(crate) async fn append_fence(
        &self,
        shard: ShardId,
        epoch: Epoch,
        member: Member,
    ) -> Result<Version, LedgerError> {
        let request = RequestId(uuid::Uuid::new_v4().as_u128());
        let record = fence_record(request, member).map_err(LedgerError::NotKept)?;
        let appended = self.ledger.append_under(shard, epoch, record, Body::Inline(bytes::Bytes::new())).await?;
        Ok(appended.version)
    }
}

fn fence_record(request: RequestId, member: Member) -> Result<Record, String> {
    let about = serde_json::to_vec(&member).map_err(|error| error.to_string())?.into();
    let (namespace, bucket) = FENCES;
    let namespace = Namespace::new(namespace).map_err(|error| error.to_string())?;
    let bucket = BucketName::new(bucket).map_err(|error| error.to_string())?;
    let key = ObjectKey::new(&member.node.0.to_string()).map_err(|error| error.to_string())?;
    Ok(Record { request, namespace, bucket, key, change: Change::Fence { about } })
}

/// The member that a record fences; none if the record is no fence.
pub(crate) fn fenced(about: &[u8]) -> Option<Member> {
    serde_json::from_slice(about).ok()
}

/// The writer that a record names; none if it names none.
pub(crate) fn written_by(about: &[u8]) -> Option<about::WriteOrigin> {
    about::decode(about, Version::OUTSIDE).ok()?.by
}

/// What the writer of a record that names none had seen of other shards, as far as the record says it.
pub(crate) fn token_in(about: &[u8]) -> Token {
    match about::decode(about, Version::OUTSIDE).map(|write| write.becomes) {
        Ok(ObjectState::Put(meta)) => meta.token.clone(),
        Ok(ObjectState::Gone | ObjectState::Lost) | Err(_) => Token::empty(),
    }
}

#[cfg(test)]
mod tests {
    use nigh_terms::Incarnation;

    use super::*;
    use nigh_protocol::NodeNumber;

    #[test]
    fn a_fence_is_read_back() {
        let member = Member { node: NodeNumber(7), incarnation: Incarnation(12) };
        let record = fence_record(RequestId(1), member).unwrap();
        assert_eq!(fenced(record.change.about()), Some(member));
        assert_eq!(fenced(b"{}"), None);
    }
}
