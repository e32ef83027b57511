//! Writes under way at the homes here, for whose end a home that leaves waits while no further ones begin; and writes of
//! this node that go on without their callers, because their homes elsewhere do not answer. Requests that come a little
//! before their home begins here wait for it.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use nigh_data::ObjectId;
use nigh_protocol::Member;
use nigh_terms::ShardId;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};

use super::super::ObjectMemoryState;
use super::wire::WireError;
use crate::sync::Mutex;

/// How long a request waits for its home to begin here.
const BEGUN_WITHIN: Duration = Duration::from_secs(1);

#[derive(Debug, Default)]
struct Use {
    writes: usize,
    leaves: bool,
}

/// The writes under way at each home here.
#[derive(Debug, Default)]
pub(in crate::memory) struct HomeUses {
    of: Mutex<HashMap<ShardId, Use>>,
    changed: Notify,
    /// Number of writes, by the shard of a home elsewhere, whose callers no longer wait for the home's answer.
    unanswered: Mutex<HashMap<ShardId, usize>>,
}

/// A write under way; its drop ends the use of the home.
pub(in crate::memory) struct HomeUse {
    inner: Arc<ObjectMemoryState>,
    shard: ShardId,
}

impl Drop for HomeUse {
    fn drop(&mut self) {
        let uses = &self.inner.uses;
        let mut of = uses.of.lock();
        if let Some(home) = of.get_mut(&self.shard) {
            home.writes -= 1;
            if home.writes == 0 && !home.leaves {
                of.remove(&self.shard);
            }
        }
        drop(of);
        uses.changed.notify_waiters();
    }
}

/// A write that goes on without its caller; its drop ends that.
pub(super) struct UnansweredWrite {
    inner: Arc<ObjectMemoryState>,
    shard: ShardId,
}

impl Drop for UnansweredWrite {
    fn drop(&mut self) {
        let mut unanswered = self.inner.uses.unanswered.lock();
        if let Some(writes) = unanswered.get_mut(&self.shard) {
            *writes -= 1;
            if *writes == 0 {
                unanswered.remove(&self.shard);
            }
        }
    }
}

impl HomeUses {
    /// Number of writes to the home of `shard` that go on without their callers.
    pub(super) fn unanswered(&self, shard: ShardId) -> usize {
        self.unanswered.lock().get(&shard).copied().unwrap_or_default()
    }

    /// True while the home of `shard` is about to leave.
    pub(super) fn leaves(&self, shard: ShardId) -> bool {
        self.of.lock().get(&shard).is_some_and(|home| home.leaves)
    }

    /// Lets no write begin from now on. Returns when those under way have ended, or `within` has passed.
    pub(super) async fn leave(&self, shard: ShardId, within: Duration) {
        self.of.lock().entry(shard).or_default().leaves = true;
        let deadline = Instant::now() + within;
        loop {
            let changed = self.changed.notified();
            if self.of.lock().get(&shard).is_none_or(|home| home.writes == 0) {
                return;
            }
            if timeout_at(deadline, changed).await.is_err() {
                tracing::warn!(%shard, "the home of a shard leaves before all writes there have ended");
                return;
            }
        }
    }

    /// A home has begun here.
    pub(super) fn begun(&self) {
        self.changed.notify_waiters();
    }

    /// The home of `shard` has left.
    pub(super) fn left(&self, shard: ShardId) {
        let mut of = self.of.lock();
        if let Some(home) = of.get_mut(&shard) {
            home.leaves = false;
            if home.writes == 0 {
                of.remove(&shard);
            }
        }
        drop(of);
        self.changed.notify_waiters();
    }
}

impl ObjectMemoryState {
    /// Begins a write at the home of `shard`, if the home is here. Waits while the home is about to leave.
    pub(in crate::memory) async fn use_home(self: &Arc<Self>, shard: ShardId) -> Option<HomeUse> {
        loop {
            let changed = self.uses.changed.notified();
            {
                let mut of = self.uses.of.lock();
                if !of.get(&shard).is_some_and(|home| home.leaves) {
                    if !self.coherence.is_home(shard) {
                        return None;
                    }
                    of.entry(shard).or_default().writes += 1;
                    return Some(HomeUse { inner: Arc::clone(self), shard });
                }
            }
            changed.await;
        }
    }

    /// From now on a write to the home of `shard` goes on without its caller.
    pub(super) fn begin_unanswered(self: &Arc<Self>, shard: ShardId) -> UnansweredWrite {
        *self.uses.unanswered.lock().entry(shard).or_default() += 1;
        UnansweredWrite { inner: Arc::clone(self), shard }
    }

    /// The shard of `object`, if its home is here. If it is to begin here, as the map of homes says, a request of another node
    /// waits for it: others hear of a new home when it has its epoch, which is before it can answer. This node's own requests
    /// are refused here, where they come when the map is ahead of the home: they go to the home directly once it has begun.
    pub(super) async fn home_here(&self, object: &ObjectId, from: Option<Member>) -> Result<ShardId, WireError> {
        let (shard, deadline) = (self.coherence.shards.of(object), Instant::now() + BEGUN_WITHIN);
        if from.is_some() && from == self.me {
            return Err(WireError::Elsewhere);
        }
        loop {
            let changed = self.uses.changed.notified();
            if self.coherence.has_answering_home(shard) {
                return Ok(shard);
            }
            let at = self.neighbours.as_ref().and_then(|neighbours| neighbours.home_of(shard));
            let begins = from.is_some() && at.is_some() && at == self.me.map(|me| me.node);
            if !begins || timeout_at(deadline, changed).await.is_err() {
                return Err(WireError::Elsewhere);
            }
        }
    }
}
