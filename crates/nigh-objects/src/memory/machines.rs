//! A node and the homes in its process: the messages between them are delivered until there are none left.
//!
//! A home's answer waits here until the object's bytes are read. Messages to homes and nodes of other processes leave
//! as events (`MachineEvent`), except fetches and writes: the reader or writer sends those itself (`RequestState`).
//! This module takes no lock and asks no store. `nigh_protocol` decides what may be cached and shown, `cache` what is
//! evicted.

mod homes;
mod outcome;
mod replay;
mod requests;

use std::collections::{BTreeMap, HashMap};

use nigh_data::ObjectId;
use nigh_data::segment_cost::Cost;
use nigh_protocol::{
    AppendId, Attempt, CacheLimits, CacheOutput, Contract, CopyStore, FromHome, Home, HomeInput, HomeOutput,
    LedgerRecord, Member, NodeCache, PutFailure, Reply, Request, RequestId, Stamp, ToHome,
};
use nigh_terms::{Epoch, Monotonic, ShardId, Version};
use tokio::sync::{oneshot, watch};

pub(super) use self::homes::NewHome;
pub(super) use self::outcome::{FetchOutcome, ForeignAnswer, MachineEvent, Outcome};
use super::append_order::AppendOrder;
use super::fetch::SharedFetchResult;
use crate::cache::{CostedCopy, Shelf};
use crate::kept::CachedCopy;
use crate::shards::Shards;

/// The most entries that are forgotten at a time if the directory is over its limit.
const FORGOTTEN_AT_ONCE: usize = 4096;

pub(super) type Copies = Shelf<CachedCopy>;
pub(super) type Cache = NodeCache<ObjectId, CostedCopy, Contract, Copies>;

/// The version of an object's entry at the home; none if it had no entry.
pub(super) type EntryVersion = Option<Version>;

/// The answer of a home here to a fetch, and what the home knew of the object at that time.
pub(super) type HomeFinding = Option<(Reply<ObjectId>, EntryVersion)>;

/// The state of a fetch or write that the node has begun, for the task that carries it out.
#[derive(Clone, Debug)]
pub(super) enum RequestState {
    /// A home in this process has been asked.
    AskedLocalHome,
    /// The task sends this to a home in another process.
    SendToHome(Request<ObjectId>),
    /// The fetch has ended with this version.
    Done(Stamp),
}

/// A fetch of the node that is under way.
pub(super) struct Fetch {
    /// The result for the reads that may join the fetch; none if none may.
    pub(super) landing: Option<watch::Receiver<SharedFetchResult>>,
    /// The home's answer, if the home is here.
    pub(super) found: HomeFinding,
    stands: watch::Sender<RequestState>,
}

/// A write of the node that is under way.
pub(super) struct Put {
    shard: ShardId,
    pub(super) append: Option<AppendId>,
    /// The copy to be cached; none if there is none.
    pub(super) copy: Option<CostedCopy>,
    done: Option<oneshot::Sender<Result<Stamp, PutFailure>>>,
    stands: watch::Sender<RequestState>,
}

/// A write that begins at the node.
pub(super) struct NewPut {
    pub(super) request: RequestId,
    /// The append that the home wants, if the home is here and accepts the write.
    pub(super) append: Option<AppendId>,
    /// Which home to ask.
    pub(super) stands: watch::Receiver<RequestState>,
}

/// What a home is told when it was told all earlier versions.
pub(super) struct Turn {
    pub(super) append: AppendId,
    /// The object, if the store already has the version.
    pub(super) stored: Option<ObjectId>,
}

pub(super) struct NodeSide {
    pub(super) cache: Cache,
    pub(super) fetches: HashMap<RequestId, Fetch>,
    pub(super) puts: HashMap<RequestId, Put>,
}

/// A write of another node under way at a home here.
pub(super) struct ForeignPut {
    pub(super) append: Option<AppendId>,
    pub(super) answer: watch::Sender<Option<Reply<ObjectId>>>,
}

pub(super) struct HomeSide {
    pub(super) home: Home<ObjectId>,
    pub(super) order: AppendOrder<Turn>,
    /// Versions that were pushed before the home was told of their writes.
    pub(super) pushed_early: BTreeMap<Version, ObjectId>,
    /// The fetches of other nodes, until their bytes are read.
    pub(super) fetches: HashMap<(Member, Attempt), HomeFinding>,
    pub(super) puts: HashMap<(Member, RequestId), ForeignPut>,
    pub(super) fences: Vec<(Member, oneshot::Sender<Version>)>,
}

/// The machines of a process.
pub(super) struct State {
    pub(super) node: NodeSide,
    pub(super) homes: BTreeMap<ShardId, HomeSide>,
    /// There is no other process, so a home that ends here is nowhere.
    alone: bool,
    shards: Shards,
    /// The last epoch of each home that was here and has ended.
    ended: BTreeMap<ShardId, Epoch>,
}

impl State {
    /// A node with an empty cache of `budget`, and without homes.
    pub(super) fn begin((me, shards): (Member, Shards), limits: CacheLimits, budget: Cost, alone: bool) -> Self {
        let cache = Cache::over(Shelf::new(shards, budget), me, limits, Contract);
        let node = NodeSide { cache, fetches: HashMap::new(), puts: HashMap::new() };
        Self { node, homes: BTreeMap::new(), alone, shards, ended: BTreeMap::new() }
    }

    /// What the home knows of an object.
    pub(super) fn noted(&self, shard: ShardId, object: &ObjectId) -> EntryVersion {
        self.homes.get(&shard)?.home.version_of(object).map(|(version, _)| version)
    }

    /// Lets the node's cache take a step, and delivers its outputs.
    pub(super) fn node<T>(
        &mut self,
        now: Monotonic,
        outcome: &mut Outcome,
        act: impl FnOnce(&mut Cache, &mut Vec<CacheOutput<ObjectId, CostedCopy>>) -> T,
    ) -> T {
        let mut said = Vec::new();
        let given = act(&mut self.node.cache, &mut said);
        self.carry(now, outcome, said);
        given
    }

    fn carry(&mut self, now: Monotonic, outcome: &mut Outcome, said: Vec<CacheOutput<ObjectId, CostedCopy>>) {
        for output in said {
            match output {
                CacheOutput::Send(shard, request) => self.say(now, outcome, shard, request),
                CacheOutput::Landed { request, stamp, value, .. } => {
                    outcome.dropped.extend(value);
                    if let Some(fetch) = self.node.fetches.get(&request) {
                        fetch.stands.send_replace(RequestState::Done(stamp));
                    }
                }
                CacheOutput::Wrote { request, outcome: ended, .. } => {
                    let Some(Put { copy, done, .. }) = self.node.puts.remove(&request) else { continue };
                    if let Some(copy) = copy {
                        self.node.cache.copies_mut().release(copy.cost);
                        outcome.dropped.push(copy);
                    }
                    if let Some(done) = done {
                        // The receiver may be gone: nobody waits for a write from outside.
                        drop(done.send(ended));
                    }
                }
                CacheOutput::Dropped(copy) => outcome.dropped.push(copy),
                CacheOutput::Grown => {}
                CacheOutput::Rejoin => {
                    self.end(outcome);
                    outcome.happened.push(MachineEvent::Rejoin);
                }
            }
        }
    }

    /// Delivers a message of the node to a home.
    fn say(&mut self, now: Monotonic, outcome: &mut Outcome, shard: ShardId, request: Request<ObjectId>) {
        let is_here = self.homes.contains_key(&shard);
        let stands = match &request.body {
            ToHome::Fetch { attempt, .. } => self.node.fetches.get(&attempt.request).map(|fetch| &fetch.stands),
            ToHome::Put { request, .. } => self.node.puts.get(request).map(|put| &put.stands),
            ToHome::Ask { .. } | ToHome::Applied { .. } => None,
        };
        if let Some(stands) = stands {
            let there = || RequestState::SendToHome(request.clone());
            stands.send_replace(if is_here { RequestState::AskedLocalHome } else { there() });
        }
        if is_here {
            self.said(now, outcome, shard, request);
        } else if matches!(request.body, ToHome::Ask { .. } | ToHome::Applied { .. }) {
            outcome.happened.push(MachineEvent::Said(shard, request));
        }
    }

    /// Delivers a message to a home here. If the sender knows a later epoch, this home's epoch is over.
    pub(super) fn said(&mut self, now: Monotonic, outcome: &mut Outcome, shard: ShardId, request: Request<ObjectId>) {
        let later = match request.body {
            ToHome::Ask { need } => Some(need.epoch),
            _ => None,
        };
        self.depose_before(now, outcome, shard, later.unwrap_or_default());
        self.home(now, outcome, shard, HomeInput::Request(request));
    }

    /// Gives the home an input, and delivers its outputs.
    pub(super) fn home(&mut self, now: Monotonic, outcome: &mut Outcome, shard: ShardId, input: HomeInput<ObjectId>) {
        let noted = match &input {
            HomeInput::Request(Request { body: ToHome::Fetch { object, .. }, .. })
            | HomeInput::Loaded { object, .. } => self.noted(shard, object),
            _ => None,
        };
        let Some(side) = self.homes.get_mut(&shard) else { return };
        let (mut said, epoch) = (Vec::new(), side.home.epoch());
        side.home.step(now, input, &mut said);
        for output in said {
            match output {
                HomeOutput::Send(reply) if reply.to == self.node.cache.member() => {
                    self.hear_here(now, outcome, reply, noted);
                }
                HomeOutput::Send(reply) => self.tell_there(outcome, reply, noted),
                HomeOutput::Append { append, record } => self.wants(outcome, shard, append, &record),
                // The fetching task reads the store, and returns the answer with the bytes.
                HomeOutput::Load(_) => {}
                // A node that is alone is the only writer, and has its answers.
                HomeOutput::Settled(_) if self.alone => {}
                HomeOutput::Settled(version) => outcome.happened.push(MachineEvent::Settled(shard, version)),
                HomeOutput::Crowded => outcome.crowded.push(shard),
                HomeOutput::Fenced { member, through } => self.fenced(shard, member, through),
                // The caller asks for the fence again.
                HomeOutput::NotFenced(member) => tracing::warn!(?member, "a fence could not be kept in the ledger"),
                HomeOutput::GaveUp(member) => outcome.happened.push(MachineEvent::GaveUp(member)),
                HomeOutput::Retired => {
                    outcome.happened.push(MachineEvent::Retired(shard, epoch));
                    if self.alone {
                        self.end(outcome);
                    }
                }
            }
        }
    }

    /// Records that a home here wants a record appended; the writing task appends it.
    fn wants(&mut self, outcome: &mut Outcome, shard: ShardId, append: AppendId, record: &LedgerRecord<ObjectId>) {
        match record {
            LedgerRecord::Write { request, writer, .. } if *writer == self.node.cache.member() => {
                if let Some(put) = self.node.puts.get_mut(request) {
                    put.append = Some(append);
                }
            }
            LedgerRecord::Write { request, writer, .. } => {
                let side = self.homes.get_mut(&shard);
                if let Some(put) = side.and_then(|side| side.puts.get_mut(&(*writer, *request))) {
                    put.append = Some(append);
                }
            }
            LedgerRecord::Fence { member } => outcome.happened.push(MachineEvent::Fences(shard, append, *member)),
        }
    }

    /// Delivers a message of a home in this process. The answer to a fetch waits for the bytes.
    fn hear_here(&mut self, now: Monotonic, outcome: &mut Outcome, reply: Reply<ObjectId>, noted: EntryVersion) {
        if let FromHome::Found { attempt, .. } = &reply.body {
            if let Some(fetch) = self.node.fetches.get_mut(&attempt.request) {
                fetch.found = Some((reply, noted));
            }
            return;
        }
        self.hear(now, outcome, reply);
    }

    /// Delivers a message of a home that has no bytes.
    pub(super) fn hear(&mut self, now: Monotonic, outcome: &mut Outcome, reply: Reply<ObjectId>) {
        let value = match &reply.body {
            FromHome::Written { request, .. } => self.node.puts.get_mut(request).and_then(|put| put.copy.take()),
            _ => None,
        };
        self.receive(now, outcome, reply, value);
    }

    /// Delivers a message of a home, with the copy that belongs to it.
    fn receive(&mut self, now: Monotonic, outcome: &mut Outcome, reply: Reply<ObjectId>, value: Option<CostedCopy>) {
        if let Some(copy) = &value {
            // The room goes back to the shelf, which caches the copy in it or drops the copy.
            self.node.cache.copies_mut().release(copy.cost);
        }
        self.node(now, outcome, |cache, out| cache.receive(now, reply, value, out));
    }

    /// Delivers a message of a home here to another node. The task that serves the node's request sends an answer.
    fn tell_there(&mut self, outcome: &mut Outcome, reply: Reply<ObjectId>, noted: EntryVersion) {
        let Some(side) = self.homes.get_mut(&reply.shard) else { return };
        match &reply.body {
            FromHome::Found { attempt, .. } => {
                if let Some(found) = side.fetches.get_mut(&(reply.to, *attempt)) {
                    *found = Some((reply, noted));
                }
            }
            FromHome::Written { request, .. } | FromHome::Refused { request: Some(request), .. } => {
                if let Some(put) = side.puts.remove(&(reply.to, *request)) {
                    put.answer.send_replace(Some(reply));
                }
            }
            FromHome::Covers { .. } | FromHome::Invalidate { .. } | FromHome::Refused { .. } => {
                outcome.happened.push(MachineEvent::Told(reply));
            }
        }
    }

    fn fenced(&mut self, shard: ShardId, member: Member, through: Version) {
        let Some(side) = self.homes.get_mut(&shard) else { return };
        let waiting = side.fences.extract_if(.., |(fenced, _)| *fenced == member);
        for (_, waiting) in waiting {
            // A caller that has gone asks for the fence again.
            let _heard = waiting.send(through);
        }
    }

    /// Tells a home the versions that are next in the append order.
    pub(super) fn tell(&mut self, now: Monotonic, outcome: &mut Outcome, shard: ShardId) {
        while let Some(side) = self.homes.get_mut(&shard)
            && let Some((version, Turn { append, stored })) = side.order.next_to_tell()
        {
            let early = side.pushed_early.remove(&version);
            self.home(now, outcome, shard, HomeInput::Appended { append, version });
            if let Some(object) = stored.or(early) {
                self.home(now, outcome, shard, HomeInput::Pushed { object, version });
            }
        }
        while let Some(shard) = outcome.crowded.pop() {
            let forgettable = self.homes.get(&shard).map(|side| side.home.forgettable(FORGOTTEN_AT_ONCE));
            for object in forgettable.into_iter().flatten() {
                self.home(now, outcome, shard, HomeInput::Forget(object));
            }
        }
    }

    /// From now on nothing is served from memory or acknowledged.
    fn end(&mut self, outcome: &mut Outcome) {
        let shelf = self.node.cache.copies_mut();
        for shard in self.shards.all() {
            let objects = shelf.objects_of(shard);
            outcome.dropped.extend(objects.iter().filter_map(|object| CopyStore::remove(shelf, object)));
        }
        for (_, put) in self.node.puts.drain() {
            if let Some(copy) = put.copy {
                shelf.release(copy.cost);
                outcome.dropped.push(copy);
            }
        }
    }
}
