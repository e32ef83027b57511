//! Homes that leave as planned, and the ephemeral objects that they hand over.
//!
//! Nothing but a home's memory has the bytes of its ephemeral objects. A home that leaves puts them into the journal; the
//! next home takes them into its memory before it begins, and removes them from the journal. The store never has them.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use async_recursion::async_recursion as boxed;
use futures::{StreamExt, TryStreamExt};
use nigh_data::segment::{Segment, SegmentWriter};
use nigh_data::{ObjectError, ObjectId, ObjectMeta};
use nigh_terms::{Epoch, ShardId, Version};
use tokio::time::{Instant, timeout_at};

use crate::kept::CachedCopy;
use crate::memory::write_ticket::AsideTicket;
use crate::memory::{ObjectMemory, ObjectMemoryState};
use crate::write_back::{HandedOverObject, WriteMode};
use crate::write_order::Turn;

/// How long the appends of a home that leaves may take.
const DRAIN_WITHIN: Duration = Duration::from_secs(10);
/// How long the ephemeral objects of a home may take to the journal, and from there to the next home. The rest is lost.
const HANDED_OVER_WITHIN: Duration = Duration::from_secs(10);
/// The most ephemeral objects that are handed over at a time.
const HANDED_OVER_AT_ONCE: usize = 8;

impl ObjectMemory {
    /// Lets the home of a shard leave. It takes no more writes; returns when those under way have ended, or after ten
    /// seconds, and its ephemeral objects are in the journal, or after ten more. Nothing of the shard is here then.
    #[boxed]
    pub async fn let_go_of_home(&self, shard: ShardId) {
        let inner = &self.0;
        let epoch = inner.coherence.epoch_here(shard);
        inner.uses.leave(shard, DRAIN_WITHIN).await;
        if let Some(epoch) = epoch {
            // No write comes between an object's bytes in the journal and the end of the home.
            let turns = inner.hand_over_ephemeral(shard, epoch).await;
            inner.lose_home(shard, epoch);
            drop(turns);
        }
        inner.uses.left(shard);
    }
}

impl ObjectMemoryState {
    /// Puts the bytes of the ephemeral objects of a home here into the journal. Returns their write locks.
    async fn hand_over_ephemeral(self: &Arc<Self>, shard: ShardId, epoch: Epoch) -> Vec<Turn> {
        let (mut turns, deadline) = (Vec::new(), Instant::now() + HANDED_OVER_WITHIN);
        let objects = futures::stream::iter(self.back.ephemeral_of(shard));
        let handing_over = objects.map(|object| async move {
            let handed_over = self.hand_over_object(&object, epoch).await;
            let lost = |error: &ObjectError| {
                tracing::warn!(%object, %error, "an ephemeral object is lost: its home moves, and the journal has not taken it");
            };
            handed_over.inspect_err(lost).ok()
        });
        let mut handing_over = pin!(handing_over.buffer_unordered(HANDED_OVER_AT_ONCE));
        loop {
            match timeout_at(deadline, handing_over.next()).await {
                Ok(Some(turn)) => turns.extend(turn),
                Ok(None) => return turns,
                Err(_) => {
                    tracing::warn!(%shard, "ephemeral objects are lost: their home moves, and the journal did not take all in time");
                    return turns;
                }
            }
        }
    }

    /// Puts the bytes of an ephemeral object into the journal, unless it has another state by now.
    async fn hand_over_object(self: &Arc<Self>, object: &ObjectId, epoch: Epoch) -> Result<Turn, ObjectError> {
        let turn = self.order.turn(object).await?;
        let newest = self.back.newest_waiting(object).filter(|newest| newest.mode == WriteMode::Ephemeral);
        let Some(newest) = newest else { return Ok(turn) };
        let kept = self.shelf().peek(object).filter(|kept| kept.meta.version() == newest.version).cloned();
        let Some(CachedCopy { meta, segment: Some(segment) }) = kept else {
            return Err(ObjectError::EphemeralLost(object.key.clone()));
        };
        // The next home takes the last record.
        self.back.mark_landed(object).await;
        let aside = AsideTicket::at_home(self, self.coherence.shards.of(object), epoch);
        let version = self.back.hand_over_bytes(object, epoch, (meta.unpack(), segment)).await?;
        aside.skipped(version);
        Ok(turn)
    }

    /// Takes the ephemeral objects into memory that a former home has handed over, before the home begins here. They
    /// are held for readers until `cache_taken`.
    ///
    /// # Errors
    /// The journal's. What it has not given in time is lost.
    pub(super) async fn take_ephemeral(
        self: &Arc<Self>,
        epoch: Epoch,
        handed_over: Vec<HandedOverObject>,
    ) -> Result<Vec<(ObjectId, Version)>, ObjectError> {
        let deadline = Instant::now() + HANDED_OVER_WITHIN;
        let taken = futures::stream::iter(handed_over).map(|(object, meta)| async move {
            let read = timeout_at(deadline, self.bytes_handed_over(&object, &meta)).await;
            match read.unwrap_or(Err(ObjectError::SlowDown("the journal did not give all in time"))) {
                Ok(segment) => self.back.hold(&object, Arc::clone(&meta), segment),
                Err(error) => {
                    tracing::warn!(%object, %error, "an ephemeral object is lost: its next home could not take it");
                    self.back.gone_from_memory(&object, meta.version);
                }
            }
            self.back.mark_again(&object, epoch, &meta).await?;
            Ok::<_, ObjectError>((object, meta.version))
        });
        taken.buffer_unordered(HANDED_OVER_AT_ONCE).try_collect().await
    }

    /// Caches the taken objects, when the home has begun. What finds no room is lost.
    pub(super) fn cache_taken(self: &Arc<Self>, taken: &[(ObjectId, Version)]) {
        for (object, version) in taken {
            self.cache_held(object);
            if self.shelf().peek(object).is_none() {
                self.back.gone_from_memory(object, *version);
            }
        }
    }

    async fn bytes_handed_over(self: &Arc<Self>, object: &ObjectId, meta: &ObjectMeta) -> Result<Segment, ObjectError> {
        let lost = || ObjectError::EphemeralLost(object.key.clone());
        let _room = self.reserve(self.account.cost(meta.size)).ok_or_else(lost)?;
        let bytes = self.back.read_waiting(object, meta).await?.ok_or_else(lost)?;
        let mut filling = SegmentWriter::new(&self.account, meta.size)?;
        filling.append(&bytes)?;
        filling.seal()
    }
}
