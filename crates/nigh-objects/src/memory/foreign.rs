//! What other nodes ask of the homes in this process: their fetches, writes and fences at the machines.
//!
//! As for the node's own (`machines`): what a home has found waits until the bytes are in hand, and what it wants appended
//! is for who carries the write to append. It locks nothing and moves no bytes.

use nigh_data::ObjectId;
use nigh_protocol::{AppendId, Attempt, HomeInput, Member, Reply, Request, RequestId, ToHome};
use nigh_terms::{Monotonic, ShardId, Version};
use tokio::sync::{oneshot, watch};

use super::machines::{EntryVersion, ForeignAnswer, ForeignPut, Outcome, State};

/// Whose fetch it is.
pub(super) type Asker = (Member, Attempt);

/// How another node's write stands.
pub(super) enum ForeignWrite {
    /// It is new: this is to be appended, and the answer comes after that.
    Append(AppendId, watch::Receiver<Option<Reply<ObjectId>>>),
    /// It was met before, or needs nothing: this is the answer to it.
    Answer(Reply<ObjectId>),
    /// Nothing is to be said now; the node sends it again.
    Nothing,
}

impl State {
    /// Another node fetches. Its answer waits for the bytes.
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

    /// What the home knew of the object of a fetch when it answered, or knows now.
    pub(super) fn foreign_noted(&self, shard: ShardId, object: &ObjectId, asker: Asker) -> EntryVersion {
        let found = self.homes.get(&shard).and_then(|side| side.fetches.get(&asker));
        match found {
            Some(Some((_, noted))) => *noted,
            _ => self.noted(shard, object),
        }
    }

    /// As `found`, for another node.
    pub(super) fn foreign_found(
        &mut self,
        now: Monotonic,
        outcome: &mut Outcome,
        (shard, object): (ShardId, &ObjectId),
        (asker, noted): (Asker, EntryVersion),
        (version, absent): (Version, bool),
    ) -> ForeignAnswer {
        if self.is_early(shard, version) {
            return ForeignAnswer::Early(version);
        }
        let waits = |state: &Self| {
            let side = state.homes.get(&shard);
            side.and_then(|side| side.fetches.get(&asker)).is_some_and(Option::is_none)
        };
        if waits(self) {
            // Nothing was forgotten of the object while the home waits to hear of it.
            if self.noted(shard, object) != noted {
                return ForeignAnswer::Anew;
            }
            self.home(now, outcome, shard, HomeInput::Loaded { object: object.clone(), absent });
        }
        let found = self.homes.get_mut(&shard).and_then(|side| side.fetches.get_mut(&asker));
        match found.and_then(|found| found.take_if(|(_, then)| *then == noted)) {
            Some((reply, _)) => {
                self.foreign_forgotten(shard, asker);
                ForeignAnswer::Found(reply)
            }
            None => ForeignAnswer::Anew,
        }
    }

    fn foreign_forgotten(&mut self, shard: ShardId, asker: Asker) -> bool {
        let side = self.homes.get_mut(&shard);
        side.and_then(|side| side.fetches.remove(&asker)).is_some_and(|found| found.is_none())
    }

    /// The bytes of another node's fetch cannot be had, or nobody waits for them.
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

    /// Another node writes an object whose turn it is.
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
            // It is being appended by an earlier asking, or its node has to learn of this reign first.
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

    /// `member` is to be fenced at the home of `shard`, if that is here: the answer comes when the ledger says so.
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
