//! Fetches, writes and fences of other nodes at the homes in this process.
//!
//! As with this node's own requests (`machines`), the home's answer to a fetch waits until the bytes are read, and the
//! task that serves a write makes the append that the home wants. This module locks nothing and moves no bytes.

use nigh_data::ObjectId;
use nigh_protocol::{AppendId, Attempt, HomeInput, Member, Reply, Request, RequestId, ToHome};
use nigh_terms::{Monotonic, ShardId, Version};
use tokio::sync::{oneshot, watch};

use super::machines::{EntryVersion, ForeignAnswer, ForeignPut, Outcome, State};

/// Names a fetch of another node.
pub(super) type Asker = (Member, Attempt);

/// The home's response to a write of another node.
pub(super) enum ForeignWrite {
    /// The write is new: append this; the answer comes after that.
    Append(AppendId, watch::Receiver<Option<Reply<ObjectId>>>),
    /// The write was decided before: this is its answer.
    Answer(Reply<ObjectId>),
    /// There is no answer now; the node sends the write again.
    Nothing,
}

impl State {
    /// Begins another node's fetch. The home's answer waits for the bytes.
    pub(super) fn foreign_fetch(
        &mut self,
        now: Monotonic,
        outcome: &mut Outcome,
        shard: ShardId,
        request: Request<ObjectId>,
    ) {
        let ToHome::Fetch { attempt, .. } = request.body else { return };
        let Some(side) = self.homes.get_mut(&shard) else { return };
        side.fetches.insert((request.from, attempt), None);
        self.home(now, outcome, shard, HomeInput::Request(request));
    }

    /// What the home knew of the object when it answered the fetch, or knows now.
    pub(super) fn foreign_noted(&self, shard: ShardId, object: &ObjectId, asker: Asker) -> EntryVersion {
        let found = self.homes.get(&shard).and_then(|side| side.fetches.get(&asker));
        match found {
            Some(Some((_, noted))) => *noted,
            _ => self.noted(shard, object),
        }
    }

    /// Takes what another node's fetch has found, as `found` takes the bytes of a fetch of this node.
    pub(super) fn foreign_found(
        &mut self,
        now: Monotonic,
        outcome: &mut Outcome,
        (shard, object): (ShardId, &ObjectId),
        (asker, noted): (Asker, EntryVersion),
        (version, absent): (Version, bool),
    ) -> ForeignAnswer {
        if self.is_early(shard, version) {
            return ForeignAnswer::NewerThanHome(version);
        }
        let waits = |state: &Self| {
            let side = state.homes.get(&shard);
            side.and_then(|side| side.fetches.get(&asker)).is_some_and(Option::is_none)
        };
        if waits(self) {
            // While the home waits for the store's answer, it forgets nothing of the object.
            if self.noted(shard, object) != noted {
                return ForeignAnswer::Refetch;
            }
            self.home(now, outcome, shard, HomeInput::Loaded { object: object.clone(), absent });
        }
        let found = self.homes.get_mut(&shard).and_then(|side| side.fetches.get_mut(&asker));
        match found.and_then(|found| found.take_if(|(_, then)| *then == noted)) {
            Some((reply, _)) => {
                self.foreign_forgotten(shard, asker);
                ForeignAnswer::Found(reply)
            }
            None => ForeignAnswer::Refetch,
        }
    }

    fn foreign_forgotten(&mut self, shard: ShardId, asker: Asker) -> bool {
        let side = self.homes.get_mut(&shard);
        side.and_then(|side| side.fetches.remove(&asker)).is_some_and(|found| found.is_none())
    }

    /// Ends a fetch of another node whose bytes cannot be had, or whose node has gone.
    pub(super) fn foreign_give_up(
        &mut self,
        now: Monotonic,
        outcome: &mut Outcome,
        (shard, object): (ShardId, &ObjectId),
        asker: Asker,
    ) {
        if self.foreign_forgotten(shard, asker) {
            self.home(now, outcome, shard, HomeInput::NotLoaded(object.clone()));
        }
    }

    /// Begins another node's write of an object, whose write lock is held.
    pub(super) fn foreign_write(
        &mut self,
        now: Monotonic,
        outcome: &mut Outcome,
        shard: ShardId,
        request: Request<ObjectId>,
    ) -> ForeignWrite {
        let ToHome::Put { request: id, .. } = request.body else { return ForeignWrite::Nothing };
        let writer = (request.from, id);
        let Some(side) = self.homes.get_mut(&shard) else { return ForeignWrite::Nothing };
        let (answer, answered) = watch::channel(None);
        side.puts.insert(writer, ForeignPut { append: None, answer });
        self.home(now, outcome, shard, HomeInput::Request(request));
        let reply = answered.borrow().clone();
        if let Some(reply) = reply {
            return ForeignWrite::Answer(reply);
        }
        let side = self.homes.get_mut(&shard);
        let append = side.and_then(|side| match side.puts.get(&writer)?.append {
            Some(append) => Some(append),
            // An earlier attempt is being appended, or the node has to learn of this epoch first.
            None => {
                side.puts.remove(&writer);
                None
            }
        });
        append.map_or(ForeignWrite::Nothing, |append| ForeignWrite::Append(append, answered))
    }

    /// True if the home has not met this write, as far as it remembers.
    pub(super) fn is_new(&self, shard: ShardId, from: Member, request: RequestId) -> bool {
        self.homes.get(&shard).is_some_and(|side| side.home.is_new(from, request))
    }

    /// Fences `member` at the home of `shard`, if that is here. The receiver gets the answer when the fence is in the
    /// ledger.
    pub(super) fn fence(
        &mut self,
        now: Monotonic,
        outcome: &mut Outcome,
        shard: ShardId,
        member: Member,
    ) -> Option<oneshot::Receiver<Version>> {
        let (send, fenced) = oneshot::channel();
        self.homes.get_mut(&shard)?.fences.push((member, send));
        self.home(now, outcome, shard, HomeInput::Fence(member));
        Some(fenced)
    }
}
