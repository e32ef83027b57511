//! Messages between homes and nodes of different processes, and homes that come here and go.

use nigh_data::ObjectId;
use nigh_protocol::{HomeInput, Member, Reply, Request, RequestId};
use nigh_terms::{Epoch, Monotonic, ShardId, Token, Version};
use tokio::sync::oneshot;

use super::Coherence;
use crate::cache::CostedCopy;
use crate::memory::foreign::{Asker, ForeignWrite};
use crate::memory::machines::{EntryVersion, FetchOutcome, ForeignAnswer};
use crate::memory::whereabouts::KnownCopies;

impl Coherence {
    /// Begins another node's write of an object, whose write lock is held.
    pub(in crate::memory) fn foreign_write(
        &self,
        now: Monotonic,
        object: &ObjectId,
        request: Request<ObjectId>,
    ) -> ForeignWrite {
        // A write of another node drops nothing here before the home is told its version.
        self.step(|state, outcome| state.foreign_write(now, outcome, self.shards.of(object), request)).0
    }

    /// Begins another node's fetch of an object.
    pub(in crate::memory) fn foreign_fetch(&self, now: Monotonic, object: &ObjectId, request: Request<ObjectId>) {
        // A fetch of another node drops nothing here.
        let ((), _) = self.step(|state, outcome| state.foreign_fetch(now, outcome, self.shards.of(object), request));
    }

    /// What the home here knows of the object of another node's fetch.
    pub(in crate::memory) fn foreign_noted(&self, object: &ObjectId, asker: Asker) -> EntryVersion {
        self.state.lock().foreign_noted(self.shards.of(object), object, asker)
    }

    /// Takes what another node's fetch has found, as `found` takes the bytes of a fetch of this node.
    pub(in crate::memory) fn foreign_found(
        &self,
        now: Monotonic,
        object: &ObjectId,
        asked: (Asker, EntryVersion),
        found: (Version, bool),
    ) -> ForeignAnswer {
        self.step(|state, outcome| state.foreign_found(now, outcome, self.placed(object), asked, found)).0
    }

    /// Gives up as `give_up` does, for another node.
    pub(in crate::memory) fn foreign_give_up(&self, now: Monotonic, object: &ObjectId, asker: Asker) {
        let ((), _) = self.step(|state, outcome| state.foreign_give_up(now, outcome, self.placed(object), asker));
    }

    /// True if the home here has not met this write of another node, as far as it remembers.
    pub(in crate::memory) fn is_new_write(&self, shard: ShardId, from: Member, request: RequestId) -> bool {
        self.state.lock().is_new(shard, from, request)
    }

    /// Makes the home here fence `member`. The receiver gets the home's newest version at the fence; none if the home
    /// is not here.
    pub(in crate::memory) fn fence(
        &self,
        now: Monotonic,
        shard: ShardId,
        member: Member,
    ) -> Option<oneshot::Receiver<Version>> {
        self.step(|state, outcome| state.fence(now, outcome, shard, member)).0
    }

    /// The ledger says that `epoch` is over: if the home here is of it, it ends.
    pub(in crate::memory) fn depose(&self, now: Monotonic, shard: ShardId, epoch: Epoch) {
        let ((), _) = self.step(|state, outcome| {
            if state.is_home_of(shard, epoch) {
                state.home(now, outcome, shard, HomeInput::Deposed);
            }
        });
    }

    /// The home of `shard` under `epoch` is here no more.
    pub(in crate::memory) fn let_go(&self, now: Monotonic, shard: ShardId, epoch: Epoch) -> Vec<CostedCopy> {
        let ((), dropped) = self.step(|state, outcome| state.let_go(outcome, shard, epoch));
        self.look(now);
        self.decided.notify_waiters();
        dropped
    }

    /// Delivers a message of another process to a home here.
    pub(in crate::memory) fn said(
        &self,
        now: Monotonic,
        shard: ShardId,
        request: Request<ObjectId>,
    ) -> Vec<CostedCopy> {
        let ((), dropped) = self.step(|state, outcome| state.said(now, outcome, shard, request));
        if self.compared.waits_for_sharers() {
            self.decided.notify_waiters();
        }
        dropped
    }

    /// What the home of `object` knows of its copies; none if that home is in another process.
    pub(in crate::memory) fn copies_known(&self, object: &ObjectId) -> Option<KnownCopies> {
        let state = self.state.lock();
        let home = &state.homes.get(&self.shards.of(object))?.home;
        Some(KnownCopies {
            version: home.version_of(object).map(|(version, _)| version),
            sharers: home.sharers(object).iter().map(|member| member.node).collect(),
            pending: home.pending(object).iter().map(|member| member.node).collect(),
        })
    }

    /// The number of invalidations that the homes here have sent and nobody has acknowledged.
    pub(in crate::memory) fn owed(&self) -> usize {
        self.state.lock().homes.values().map(|side| side.home.owed()).sum()
    }

    /// True if a node has not acknowledged an invalidation of `object`.
    pub(in crate::memory) fn is_pending(&self, object: &ObjectId) -> bool {
        let state = self.state.lock();
        state.homes.get(&self.shards.of(object)).is_some_and(|side| !side.home.pending(object).is_empty())
    }

    /// Learns from the map of homes that `shard` is under `epoch`.
    pub(in crate::memory) fn meet(&self, now: Monotonic, shard: ShardId, epoch: Epoch) -> Vec<CostedCopy> {
        let ((), dropped) = self.step(|state, outcome| {
            state.depose_before(now, outcome, shard, epoch);
            state.node(now, outcome, |cache, out| cache.meet(now, shard, epoch, out));
        });
        self.look(now);
        dropped
    }

    /// Delivers a message of a home elsewhere to this node.
    pub(in crate::memory) fn hear(&self, now: Monotonic, reply: Reply<ObjectId>) -> Vec<CostedCopy> {
        let ((), dropped) = self.step(|state, outcome| state.hear(now, outcome, reply));
        self.look(now);
        self.decided.notify_waiters();
        dropped
    }

    /// Takes the answer of a home elsewhere to a fetch; `copy` is the copy to be cached.
    pub(in crate::memory) fn landing(
        &self,
        now: Monotonic,
        request: RequestId,
        reply: Reply<ObjectId>,
        copy: Option<CostedCopy>,
    ) -> (FetchOutcome, Vec<CostedCopy>) {
        let landed = self.step(|state, outcome| state.landing(now, outcome, request, reply, copy));
        self.look(now);
        landed
    }

    /// True if the node covers `token`; if not, asks the homes.
    pub(in crate::memory) fn covers_or_asks(&self, now: Monotonic, token: &Token) -> bool {
        let (covers, _) = self.step(|state, outcome| {
            let covers = state.node.cache.covers(token);
            if !covers {
                state.node(now, outcome, |cache, out| cache.ask(now, token, out));
            }
            covers
        });
        covers
    }

    /// The epoch of the home of `shard` here.
    pub(in crate::memory) fn epoch_here(&self, shard: ShardId) -> Option<Epoch> {
        self.state.lock().homes.get(&shard).map(|side| side.home.epoch())
    }

    /// The newest versions of the homes here.
    pub(in crate::memory) fn newest_here(&self) -> Vec<(ShardId, Version)> {
        self.state.lock().homes.iter().map(|(shard, side)| (*shard, side.home.newest())).collect()
    }
}
