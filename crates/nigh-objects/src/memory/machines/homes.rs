//! Homes that begin in this process and end: what an epoch leaves to the next one.

use std::collections::{BTreeMap, HashMap};

use nigh_engine::journal::RecoveredRecord;
use nigh_protocol::{Contract, Home, HomeInput, HomeLimits, Member, Takeover};
use nigh_terms::{Epoch, Incarnation, Monotonic, Sequence, ShardId, Token, Version};

use super::replay::replayed;
use super::{HomeSide, Outcome, State};
use crate::memory::append_order::AppendOrder;

/// A shard that is taken.
pub(in crate::memory) struct NewHome {
    pub(in crate::memory) shard: ShardId,
    pub(in crate::memory) epoch: Epoch,
    /// The records that the ledger still has.
    pub(in crate::memory) records: Vec<RecoveredRecord>,
    /// What forgotten writers can have seen of other shards.
    pub(in crate::memory) summary: Token,
}

impl State {
    /// A home begins here, after an earlier one that is here still has ended. Every version of its epoch up to `decided`
    /// has been told.
    pub(in crate::memory) fn take(
        &mut self,
        now: Monotonic,
        outcome: &mut Outcome,
        new: NewHome,
        decided: Sequence,
        limits: HomeLimits,
    ) {
        let NewHome { shard, epoch, records, summary } = new;
        if let Some(earlier) = self.homes.get(&shard).map(|side| side.home.epoch()) {
            self.let_go(outcome, shard, earlier);
        }
        let me = self.node.cache.member();
        let before = Member { incarnation: Incarnation(me.incarnation.0.saturating_sub(1)), ..me };
        let records = replayed(records, before);
        let takeover = Takeover { shard, epoch, records, summary, resident: Some(me) };
        let home = HomeSide {
            home: Home::begin(takeover, limits, Contract),
            order: AppendOrder::after(Version { epoch, sequence: decided }),
            pushed_early: BTreeMap::new(),
            fetches: HashMap::new(),
            puts: HashMap::new(),
            fences: Vec::new(),
        };
        self.homes.insert(shard, home);
        self.node(now, outcome, |cache, out| cache.meet(now, shard, epoch, out));
    }

    /// Whether the home of `shard` is here, under `epoch`.
    pub(in crate::memory) fn is_home_of(&self, shard: ShardId, epoch: Epoch) -> bool {
        self.homes.get(&shard).is_some_and(|side| side.home.epoch() == epoch)
    }

    /// A version that is no older than any of `shard` that the node can have shown or written. The outcome of a write
    /// that was under way at a former home here is unknown; the next epoch covers it.
    pub(in crate::memory) fn newest(&self, shard: ShardId) -> Version {
        if let Some(side) = self.homes.get(&shard) {
            return side.home.newest();
        }
        let covered = self.node.cache.covered(shard);
        let next = self.ended.get(&shard).map(|ended| Version { epoch: Epoch(ended.0 + 1), sequence: Sequence(0) });
        next.map_or(covered, |next| next.max(covered))
    }

    /// Ends a home here whose epoch is before `epoch`.
    pub(in crate::memory) fn depose_before(
        &mut self,
        now: Monotonic,
        outcome: &mut Outcome,
        shard: ShardId,
        epoch: Epoch,
    ) {
        if self.homes.get(&shard).is_some_and(|side| side.home.epoch() < epoch) {
            self.home(now, outcome, shard, HomeInput::Deposed);
        }
    }

    /// The home of `shard` under `epoch` is here no more. The node sends what it has open there to the next home; the
    /// outcome of its writes stays unknown.
    pub(in crate::memory) fn let_go(&mut self, outcome: &mut Outcome, shard: ShardId, epoch: Epoch) {
        if !self.is_home_of(shard, epoch) {
            return;
        }
        self.homes.remove(&shard);
        self.ended.insert(shard, epoch);
        for (request, put) in self.node.puts.extract_if(|_, put| put.shard == shard && put.append.is_some()) {
            self.node.cache.abandon_put(request);
            if let Some(copy) = put.copy {
                self.node.cache.copies_mut().release(copy.cost);
                outcome.dropped.push(copy);
            }
        }
    }
}
