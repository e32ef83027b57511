//! Reads behind the cache: unpushed writes before what the store has.

use std::ops::Range;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use futures::StreamExt;
use nigh_data::{ByteStream, ETag, ListedObject, ObjectError, ObjectId, ObjectMeta};
use nigh_engine::LedgerError;
use nigh_stores::{ListQuery, check_pin};
use nigh_terms::{BucketName, Namespace, ObjectKey};

use super::dirty::{Base, ObjectState, UnpushedWrite};
use super::merged_page::{PagePart, Side, joined, merge, waiting};
use super::policy::WriteMode;
use super::{WriteBack, unkept};

/// A read is retried at most this often when the write that it reads is pushed and trimmed meanwhile.
const READ_ATTEMPTS: usize = 4;

/// Unpushed writes at homes in other processes.
#[async_trait]
pub(crate) trait AskElsewhere: Send + Sync {
    /// Up to `limit` unpushed writes of each home, after `after`.
    async fn waiting(
        &self,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<Side<(ObjectKey, Option<ListedObject>)>>, ObjectError>;
}

impl WriteBack {
    /// The metadata and mode of an object's unpushed put; `None` if it has no unpushed write.
    pub(crate) fn waiting_put(&self, object: &ObjectId) -> Result<Option<(Arc<ObjectMeta>, WriteMode)>, ObjectError> {
        match self.dirty.lock().get(object) {
            None => Ok(None),
            Some(UnpushedWrite { becomes: ObjectState::Gone, .. }) => Err(ObjectError::NoSuchKey(object.key.clone())),
            Some(UnpushedWrite { mode: WriteMode::Ephemeral, .. }) => {
                Err(ObjectError::EphemeralLost(object.key.clone()))
            }
            Some(UnpushedWrite { becomes: ObjectState::Lost, .. }) => Err(ObjectError::Damaged(object.key.clone())),
            Some(UnpushedWrite { becomes: ObjectState::Put(meta), mode, .. }) => Ok(Some((Arc::clone(meta), *mode))),
        }
    }

    /// The bytes of an unpushed put; `None` if the store has it, or a newer one, by now.
    pub(crate) async fn read_waiting(
        &self,
        object: &ObjectId,
        meta: &ObjectMeta,
    ) -> Result<Option<Bytes>, ObjectError> {
        let mut pieces: Vec<Bytes> = Vec::new();
        let (mut read, shard) = (0, self.shards.of(object));
        while read < meta.size {
            let piece = match self.ledger.read(shard, meta.version, read).await {
                Err(LedgerError::Unknown(_)) => return Ok(None),
                other => other?,
            };
            if piece.is_empty() {
                let reason = format!("its body in the journal ends at {read} of {} bytes", meta.size);
                return Err(unkept(object, &reason));
            }
            read += piece.len() as u64;
            pieces.push(piece);
        }
        let mut pieces = pieces.into_iter();
        Ok(Some(match (pieces.next(), pieces.next()) {
            (None, _) => Bytes::new(),
            (Some(one), None) => one,
            (Some(first), Some(second)) => {
                let mut whole = Vec::with_capacity(meta.size as usize);
                [first, second].into_iter().chain(pieces).for_each(|piece| whole.extend_from_slice(&piece));
                whole.into()
            }
        }))
    }

    /// The object's current metadata.
    ///
    /// # Errors
    /// `NoSuchKey`, `EphemeralLost`, or the store's.
    pub(crate) async fn head(&self, object: &ObjectId) -> Result<ObjectMeta, ObjectError> {
        if let Some((meta, _)) = self.held(object) {
            return Ok(ObjectMeta::clone(&meta));
        }
        for _ in 0..READ_ATTEMPTS {
            self.certain(object).await?;
            if let Some((meta, _)) = self.waiting_put(object)? {
                return Ok(ObjectMeta::clone(&meta));
            }
            let asked = self.clock.monotonic();
            match self.store.head(object).await {
                Err(_) if self.met_a_placeholder(object).await => {}
                other => {
                    if let Ok(meta) = &other {
                        self.note_seen(object, &Base::Holds(meta.etag.clone()), asked);
                    }
                    return other;
                }
            }
        }
        Err(ObjectError::SlowDown("the object changes faster than it can be read"))
    }

    /// The object's bytes in `range`, all of one version. If `pinned` names another entity tag, `PreconditionFailed`.
    ///
    /// # Errors
    /// `NoSuchKey`, `EphemeralLost`, the ledger's, or the store's.
    pub(crate) async fn get(
        &self,
        object: &ObjectId,
        range: Option<Range<u64>>,
        pinned: Option<&ETag>,
    ) -> Result<(ObjectMeta, ByteStream), ObjectError> {
        if let Some((meta, segment)) = self.held(object) {
            check_pin(&meta, pinned)?;
            let bytes = segment.slice(range.unwrap_or(0..meta.size)).into_bytes();
            return Ok((ObjectMeta::clone(&meta), futures::stream::iter([Ok(bytes)]).boxed()));
        }
        for _ in 0..READ_ATTEMPTS {
            self.certain(object).await?;
            let Some((meta, _)) = self.waiting_put(object)? else {
                let asked = self.clock.monotonic();
                match self.store.get(object, range.clone(), pinned).await {
                    Err(_) if self.met_a_placeholder(object).await => continue,
                    other => {
                        if let Ok((meta, _)) = &other {
                            self.note_seen(object, &Base::Holds(meta.etag.clone()), asked);
                        }
                        return other;
                    }
                }
            };
            check_pin(&meta, pinned)?;
            if let Some(bytes) = self.read_waiting(object, &meta).await? {
                let within = |at: u64| usize::try_from(at).map_or(bytes.len(), |at| at.min(bytes.len()));
                let wanted = range.map_or(0..bytes.len(), |range| within(range.start)..within(range.end));
                let bytes = bytes.slice(wanted);
                return Ok((ObjectMeta::clone(&meta), futures::stream::iter([Ok(bytes)]).boxed()));
            }
        }
        Err(ObjectError::SlowDown("the object changes faster than it can be read"))
    }

    /// Up to `limit` objects whose key begins with `prefix` and sorts after `after`, in the order of the keys' bytes,
    /// unpushed writes included.
    ///
    /// # Errors
    /// The store's.
    pub(crate) async fn list(
        &self,
        namespace: &Namespace,
        bucket: &BucketName,
        prefix: &str,
        after: Option<&str>,
        limit: usize,
        elsewhere: &(dyn AskElsewhere + '_),
    ) -> Result<Vec<ListedObject>, ObjectError> {
        let (mut listed, mut after) = (Vec::new(), after.map(str::to_owned));
        loop {
            let mut sides = elsewhere.waiting(after.as_deref(), limit).await?;
            sides.push(self.waiting(namespace, bucket, prefix, after.as_deref(), limit));
            let waiting = joined(sides);
            let since = self.buckets.moment();
            let entries =
                self.store.list(ListQuery { namespace, bucket, prefix, after: after.as_deref(), limit }).await?;
            self.buckets.heard(since, namespace, bucket);
            let more = entries.len() >= limit;
            let PagePart { listed: part, next } = merge(Side { entries, more }, waiting);
            listed.extend(part);
            let Some(next) = next.filter(|_| listed.len() < limit) else { break };
            after = Some(next.as_str().to_owned());
        }
        listed.truncate(limit);
        Ok(listed)
    }

    /// A bucket's unpushed writes here.
    pub(crate) fn waiting(
        &self,
        namespace: &Namespace,
        bucket: &BucketName,
        prefix: &str,
        after: Option<&str>,
        limit: usize,
    ) -> Side<(ObjectKey, Option<ListedObject>)> {
        waiting(&self.dirty.lock(), (namespace, bucket), prefix, after, limit)
    }
}
