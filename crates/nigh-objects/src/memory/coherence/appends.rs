//! The ledger's answers to appends, and the order in which a home here is told of them.

use std::sync::Arc;

use nigh_data::ObjectId;
use nigh_engine::Ledger;
use nigh_protocol::{AppendId, HomeInput, RequestId, Write};
use nigh_terms::{Epoch, Monotonic, ShardId, Token, Version};

use super::Coherence;
use crate::cache::CostedCopy;
use crate::memory::append_order::{AppendNumber, AppendOrder};
use crate::memory::machines::Turn;

impl Coherence {
    /// The append that the home here wants for a write of this node; none if it wants none.
    pub(in crate::memory) fn append_of(&self, request: RequestId) -> Option<AppendId> {
        self.state.lock().node.puts.get(&request).and_then(|put| put.append)
    }

    /// Ends a write whose home came here while it was sent elsewhere; it is not appended any more.
    pub(in crate::memory) fn end_begun(
        &self,
        now: Monotonic,
        object: &ObjectId,
        request: RequestId,
    ) -> Vec<CostedCopy> {
        match self.append_of(request) {
            Some(append) => self.not_appended(now, self.shards.of(object), append),
            None => Vec::new(),
        }
    }

    /// Handles an outside write of an object in the store: its copies are dropped, here and at other nodes.
    pub(in crate::memory) fn outside(&self, now: Monotonic, object: &ObjectId) -> Vec<CostedCopy> {
        let shard = self.shards.of(object);
        let ((), dropped) = self.step(|state, outcome| {
            let new = state.write(now, outcome, (shard, object), (Write::Outside, Arc::default()), None);
            let (Some(append), Some(home)) = (new.append, state.homes.get_mut(&shard)) else { return };
            let (version, turn) = (self.ledger.place(shard), Turn { append, stored: None });
            home.order.placed(version, turn);
            state.tell(now, outcome, shard);
            let mut token = Token::empty();
            token.see(shard, version);
            self.invocations.lock().hand_over(&object.namespace, &token);
        });
        self.decided.notify_waiters();
        dropped
    }

    /// Changes the append order of a home here, and tells the home the versions that are next.
    fn order(
        &self,
        now: Monotonic,
        shard: ShardId,
        act: impl FnOnce(&mut AppendOrder<Turn>, &dyn Ledger),
    ) -> Vec<CostedCopy> {
        let ((), dropped) = self.step(|state, outcome| {
            if let Some(home) = state.homes.get_mut(&shard) {
                act(&mut home.order, &*self.ledger);
                state.tell(now, outcome, shard);
            }
        });
        self.decided.notify_waiters();
        dropped
    }

    /// The ledger is about to be asked for a version of `shard`; none if its home of `epoch` is not here.
    pub(in crate::memory) fn appending(&self, shard: ShardId, epoch: Epoch) -> Option<AppendNumber> {
        let mut state = self.state.lock();
        let home = state.homes.get_mut(&shard).filter(|home| home.home.epoch() == epoch)?;
        Some(home.order.begins())
    }

    /// The ledger has the write durably as `version`, and readers of the write-back see it. `stored` names the object
    /// if the store has it.
    pub(in crate::memory) fn appended(
        &self,
        now: Monotonic,
        shard: ShardId,
        (append, asked): (AppendId, AppendNumber),
        version: Version,
        stored: Option<&ObjectId>,
    ) -> Vec<CostedCopy> {
        self.order(now, shard, |order, _| order.appended(asked, version, Turn { append, stored: stored.cloned() }))
    }

    /// The ledger has given no version; or, with `lost`, one that nobody knows.
    pub(in crate::memory) fn refused(
        &self,
        now: Monotonic,
        shard: ShardId,
        asked: AppendNumber,
        lost: bool,
    ) -> Vec<CostedCopy> {
        self.order(now, shard, |order, ledger| {
            if lost {
                order.lost(asked, ledger.place(shard));
            } else {
                order.refused(asked);
            }
        })
    }

    /// The ledger has given a version that is no write's.
    pub(in crate::memory) fn passed(
        &self,
        now: Monotonic,
        shard: ShardId,
        asked: AppendNumber,
        version: Version,
    ) -> Vec<CostedCopy> {
        self.order(now, shard, |order, _| order.passed(asked, version))
    }

    /// Takes a version that no write has, for a placeholder that goes to the store before its write has a version.
    pub(in crate::memory) fn mark(&self, now: Monotonic, shard: ShardId) -> (Version, Vec<CostedCopy>) {
        let mut version = Version::OUTSIDE;
        let dropped = self.order(now, shard, |order, ledger| {
            version = ledger.place(shard);
            order.skip(version);
        });
        (version, dropped)
    }

    /// The write of `append` does not take place.
    pub(in crate::memory) fn not_appended(&self, now: Monotonic, shard: ShardId, append: AppendId) -> Vec<CostedCopy> {
        self.step(|state, outcome| state.home(now, outcome, shard, HomeInput::NotAppended { append })).1
    }

    /// The store has `version` of the object.
    pub(in crate::memory) fn pushed(&self, now: Monotonic, object: &ObjectId, version: Version) -> Vec<CostedCopy> {
        let shard = self.shards.of(object);
        let ((), dropped) = self.step(|state, outcome| {
            let is_early = state.is_early(shard, version);
            match state.homes.get_mut(&shard) {
                Some(home) if is_early => {
                    home.pushed_early.insert(version, object.clone());
                }
                _ => state.home(now, outcome, shard, HomeInput::Pushed { object: object.clone(), version }),
            }
        });
        dropped
    }
}
