//! A node and the homes in its process, and the way between them: what they say to each other is carried until nothing is
//! left to say.
//!
//! A home's answer waits here until the object's bytes are in hand. Messages to homes and nodes of other processes go out as
//! events (`MachineEvent`), except fetches and writes: the reader or writer sends those itself (`RequestState`). This module
//! takes no lock and asks no store. `nigh_protocol` decides what may be cached and shown, `cache` what makes room.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use nigh_data::ObjectId;
use nigh_data::segment_cost::Cost;
use nigh_engine::Change;
use nigh_engine::journal::RecoveredRecord;
use nigh_protocol::{
    AppendId, Attempt, CacheLimits, CacheOutput, Contract, CopyStore, FromHome, Home, HomeInput, HomeLimits,
    HomeOutput, LedgerRecord, Member, NodeCache, PutFailure, ReadDecision, ReplayedRecord, Reply, Request, RequestId,
    Stamp, Takeover, ToHome, Write,
};
use nigh_terms::{Epoch, Incarnation, Monotonic, Sequence, ShardId, Token, Version};
use tokio::sync::{oneshot, watch};

use super::append_order::AppendOrder;
use super::reads::SharedFetchResult;
use crate::cache::{CostedCopy, Shelf};
use crate::kept::CachedCopy;
use crate::shards::Shards;
use crate::write_back::{WriteOrigin, fenced, written_by};

/// Of the directory's entries over the limit, so many are forgotten at a time.
const FORGOTTEN_AT_ONCE: usize = 4096;

pub(super) type Copies = Shelf<CachedCopy>;
pub(super) type Cache = NodeCache<ObjectId, CostedCopy, Contract, Copies>;

/// What the home knew of an object at some time: the version of its entry, if it had one.
pub(super) type EntryVersion = Option<Version>;

/// What a home here has found, and what it knew of the object then.
pub(super) type HomeFinding = Option<(Reply<ObjectId>, EntryVersion)>;

/// How something that the node has begun stands, for the task that carries it.
#[derive(Clone, Debug)]
pub(super) enum RequestState {
    /// A home in this process has been asked.
    Here,
    /// This is to be said to a home elsewhere.
    There(Request<ObjectId>),
    /// A fetch has come to its end.
    Landed(Stamp),
}

/// A fetch that the node has under way.
pub(super) struct Fetch {
    /// For those who may join it.
    pub(super) landing: Option<watch::Receiver<SharedFetchResult>>,
    /// What the home has answered, if it is here.
    pub(super) found: HomeFinding,
    stands: watch::Sender<RequestState>,
}

/// A write that the node has under way.
pub(super) struct Put {
    shard: ShardId,
    pub(super) append: Option<AppendId>,
    /// What is to be kept of it.
    pub(super) copy: Option<CostedCopy>,
    done: Option<oneshot::Sender<Result<Stamp, PutFailure>>>,
    stands: watch::Sender<RequestState>,
}

/// A write that begins at the node.
pub(super) struct NewPut {
    pub(super) request: RequestId,
    /// What the home wants appended, if it is here and takes writes.
    pub(super) append: Option<AppendId>,
    /// What is to be said to the home, if it is elsewhere.
    pub(super) stands: watch::Receiver<RequestState>,
}

/// What a home is to be told in its turn.
pub(super) struct Turn {
    pub(super) append: AppendId,
    /// The store has it already.
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
    /// Pushed before the home was told that they were written.
    pub(super) pushed_early: BTreeMap<Version, ObjectId>,
    /// What other nodes fetch, until its bytes are in hand.
    pub(super) fetches: HashMap<(Member, Attempt), HomeFinding>,
    pub(super) puts: HashMap<(Member, RequestId), ForeignPut>,
    pub(super) fences: Vec<(Member, oneshot::Sender<Version>)>,
}

/// The machines of a process.
pub(super) struct State {
    pub(super) node: NodeSide,
    pub(super) homes: BTreeMap<ShardId, HomeSide>,
    /// There is no other process: a home that is lost here is nowhere.
    alone: bool,
    shards: Shards,
    /// Reigns of homes that were here and ended.
    ended: BTreeMap<ShardId, Epoch>,
}

/// What happened at the machines that concerns others than who asked.
#[derive(Debug)]
pub(super) enum MachineEvent {
    /// The node says this to a home elsewhere.
    Said(ShardId, Request<ObjectId>),
    /// A home here says this to another node.
    Told(Reply<ObjectId>),
    /// The writer of this version asks for it no more.
    Settled(ShardId, Version),
    /// A home here wants a fence appended.
    Fences(ShardId, AppendId, Member),
    /// A home here has given a node up.
    GaveUp(Member),
    /// A home here is deposed.
    Retired(ShardId),
    /// A home has given this node up: it must join again.
    Rejoin,
}

/// What comes of a step.
#[derive(Default)]
pub(super) struct Outcome {
    /// To be freed when no lock is held.
    pub(super) dropped: Vec<CostedCopy>,
    pub(super) happened: Vec<MachineEvent>,
    /// Homes that would have some of their directory forgotten.
    crowded: Vec<ShardId>,
}

/// What became of bytes that were brought.
pub(super) enum FetchOutcome {
    /// They are this version's.
    Landed(Stamp),
    /// They were taken, and land when the node has caught up with what they show.
    Waits,
    /// They may be another's: they are to be brought anew.
    Anew,
    /// They are a version's that the home has not been told of yet.
    Early(Version),
}

/// What became of bytes that were brought for another node.
pub(super) enum ForeignAnswer {
    /// This is said with them.
    Found(Reply<ObjectId>),
    /// As for the node's own.
    Anew,
    /// As for the node's own.
    Early(Version),
}

/// Acknowledged writes as the home takes them over. What says nothing of its writer was written by one who asks no more.
fn replayed(records: Vec<RecoveredRecord>, before: Member) -> Vec<ReplayedRecord<ObjectId>> {
    let mut records = records;
    records.sort_by_key(|record| record.version);
    let replay = |(number, RecoveredRecord { version, record, .. }): (u64, RecoveredRecord)| {
        let about = record.change.about();
        let write = match &record.change {
            Change::Put { .. } | Change::Amend { .. } => Write::Put,
            Change::Delete { .. } => Write::Delete,
            // No write's: those that it leads to have records of their own.
            Change::Transaction { .. } => return None,
            Change::Fence { .. } => {
                return fenced(about).map(|member| ReplayedRecord { version, record: LedgerRecord::Fence { member } });
            }
        };
        let (writer, request, token) = match written_by(about) {
            Some(WriteOrigin { member, request, token }) => (member, request, token),
            None => (before, RequestId(number), Token::empty()),
        };
        let object = ObjectId { namespace: record.namespace, bucket: record.bucket, key: record.key };
        let record = LedgerRecord::Write { object, write, token: Arc::new(token), writer, request };
        Some(ReplayedRecord { version, record })
    };
    (0..).zip(records).filter_map(replay).collect()
}

/// A shard that is taken.
pub(super) struct NewHome {
    pub(super) shard: ShardId,
    pub(super) epoch: Epoch,
    /// What the ledger still has of it.
    pub(super) records: Vec<RecoveredRecord>,
    /// Every version up to this one has been told.
    pub(super) decided: Version,
    /// What forgotten writers can have seen of other shards.
    pub(super) summary: Token,
}

impl State {
    /// A node with nothing in memory, of which copies may take `budget`, and no home.
    pub(super) fn begin((me, shards): (Member, Shards), limits: CacheLimits, budget: Cost, alone: bool) -> Self {
        let cache = Cache::over(Shelf::new(shards, budget), me, limits, Contract);
        let node = NodeSide { cache, fetches: HashMap::new(), puts: HashMap::new() };
        Self { node, homes: BTreeMap::new(), alone, shards, ended: BTreeMap::new() }
    }

    /// A home begins here.
    pub(super) fn take(&mut self, now: Monotonic, outcome: &mut Outcome, new: NewHome, limits: HomeLimits) {
        let NewHome { shard, epoch, records, decided, summary } = new;
        let me = self.node.cache.member();
        let before = Member { incarnation: Incarnation(me.incarnation.0.saturating_sub(1)), ..me };
        let records = replayed(records, before);
        let takeover = Takeover { shard, epoch, records, summary, resident: Some(me) };
        let home = HomeSide {
            home: Home::begin(takeover, limits, Contract),
            order: AppendOrder::after(decided),
            pushed_early: BTreeMap::new(),
            fetches: HashMap::new(),
            puts: HashMap::new(),
            fences: Vec::new(),
        };
        self.homes.insert(shard, home);
        self.node(now, outcome, |cache, out| cache.meet(now, shard, epoch, out));
    }

    /// What the home knows of an object.
    pub(super) fn noted(&self, shard: ShardId, object: &ObjectId) -> EntryVersion {
        self.homes.get(&shard)?.home.version_of(object).map(|(version, _)| version)
    }

    /// What is no older than any version of `shard` that the node can have shown or written. Of a write that a home here
    /// was deposed with nobody knows what became, but that the next reign covers it.
    pub(super) fn newest(&self, shard: ShardId) -> Version {
        if let Some(side) = self.homes.get(&shard) {
            return side.home.newest();
        }
        let covered = self.node.cache.covered(shard);
        let next = self.ended.get(&shard).map(|ended| Version { epoch: Epoch(ended.0 + 1), sequence: Sequence(0) });
        next.map_or(covered, |next| next.max(covered))
    }

    /// Lets the node do something, and carries on what comes of it.
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
                        fetch.stands.send_replace(RequestState::Landed(stamp));
                    }
                }
                CacheOutput::Wrote { request, outcome: ended, .. } => {
                    let Some(Put { copy, done, .. }) = self.node.puts.remove(&request) else { continue };
                    if let Some(copy) = copy {
                        self.node.cache.copies_mut().release(copy.cost);
                        outcome.dropped.push(copy);
                    }
                    if let Some(done) = done {
                        // Who wrote may not wait: a change that others made.
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

    /// The node says something to a home.
    fn say(&mut self, now: Monotonic, outcome: &mut Outcome, shard: ShardId, request: Request<ObjectId>) {
        let is_here = self.homes.contains_key(&shard);
        let stands = match &request.body {
            ToHome::Fetch { attempt, .. } => self.node.fetches.get(&attempt.request).map(|fetch| &fetch.stands),
            ToHome::Put { request, .. } => self.node.puts.get(request).map(|put| &put.stands),
            ToHome::Ask { .. } | ToHome::Applied { .. } => None,
        };
        if let Some(stands) = stands {
            let there = || RequestState::There(request.clone());
            stands.send_replace(if is_here { RequestState::Here } else { there() });
        }
        if is_here {
            self.said(now, outcome, shard, request);
        } else if matches!(request.body, ToHome::Ask { .. } | ToHome::Applied { .. }) {
            outcome.happened.push(MachineEvent::Said(shard, request));
        }
    }

    /// A home here is told something. Who asks for a version of a later reign knows that it is deposed.
    pub(super) fn said(&mut self, now: Monotonic, outcome: &mut Outcome, shard: ShardId, request: Request<ObjectId>) {
        let later = match request.body {
            ToHome::Ask { need } => Some(need.epoch),
            _ => None,
        };
        self.depose_before(now, outcome, shard, later.unwrap_or_default());
        self.home(now, outcome, shard, HomeInput::Request(request));
    }

    /// A home here of a reign before `epoch` is deposed.
    pub(super) fn depose_before(&mut self, now: Monotonic, outcome: &mut Outcome, shard: ShardId, epoch: Epoch) {
        if self.homes.get(&shard).is_some_and(|side| side.home.epoch() < epoch) {
            self.home(now, outcome, shard, HomeInput::Deposed);
        }
    }

    /// Lets a home take something in, and carries on what comes of it.
    pub(super) fn home(&mut self, now: Monotonic, outcome: &mut Outcome, shard: ShardId, input: HomeInput<ObjectId>) {
        let noted = match &input {
            HomeInput::Request(Request { body: ToHome::Fetch { object, .. }, .. })
            | HomeInput::Loaded { object, .. } => self.noted(shard, object),
            _ => None,
        };
        let Some(side) = self.homes.get_mut(&shard) else { return };
        let mut said = Vec::new();
        side.home.step(now, input, &mut said);
        for output in said {
            match output {
                HomeOutput::Send(reply) if reply.to == self.node.cache.member() => {
                    self.hear_here(now, outcome, reply, noted);
                }
                HomeOutput::Send(reply) => self.tell_there(outcome, reply, noted),
                HomeOutput::Append { append, record } => self.wants(outcome, shard, append, &record),
                // Whoever fetches brings the bytes, and with them the answer.
                HomeOutput::Load(_) => {}
                // The one writer's answers have arrived.
                HomeOutput::Settled(_) if self.alone => {}
                HomeOutput::Settled(version) => outcome.happened.push(MachineEvent::Settled(shard, version)),
                HomeOutput::Crowded => outcome.crowded.push(shard),
                HomeOutput::Fenced { member, through } => self.fenced(shard, member, through),
                // Who waits for it asks again.
                HomeOutput::NotFenced(member) => tracing::warn!(?member, "a fence could not be kept in the ledger"),
                HomeOutput::GaveUp(member) => outcome.happened.push(MachineEvent::GaveUp(member)),
                HomeOutput::Retired => {
                    outcome.happened.push(MachineEvent::Retired(shard));
                    if self.alone {
                        self.end(outcome);
                    }
                }
            }
        }
    }

    /// A home here wants a record appended: that is done by who writes.
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

    /// The node hears a home in this process; what was found waits for its bytes.
    fn hear_here(&mut self, now: Monotonic, outcome: &mut Outcome, reply: Reply<ObjectId>, noted: EntryVersion) {
        if let FromHome::Found { attempt, .. } = &reply.body {
            if let Some(fetch) = self.node.fetches.get_mut(&attempt.request) {
                fetch.found = Some((reply, noted));
            }
            return;
        }
        self.hear(now, outcome, reply);
    }

    /// The node hears a home; what it found, if anything, has no bytes.
    pub(super) fn hear(&mut self, now: Monotonic, outcome: &mut Outcome, reply: Reply<ObjectId>) {
        let value = match &reply.body {
            FromHome::Written { request, .. } => self.node.puts.get_mut(request).and_then(|put| put.copy.take()),
            _ => None,
        };
        self.receive(now, outcome, reply, value);
    }

    /// The node hears a home, whose answer `value` belongs to.
    fn receive(&mut self, now: Monotonic, outcome: &mut Outcome, reply: Reply<ObjectId>, value: Option<CostedCopy>) {
        if let Some(copy) = &value {
            // Its room is the shelf's again, which keeps it there or drops it.
            self.node.cache.copies_mut().release(copy.cost);
        }
        self.node(now, outcome, |cache, out| cache.receive(now, reply, value, out));
    }

    /// A home here answers another node: who serves its question passes that on.
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
            // Who has gone asks again.
            let _heard = waiting.send(through);
        }
    }

    /// Tells a home what is in its turn.
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

    /// Nothing is served from memory or acknowledged from here on.
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

    /// Keeps a copy that somebody else has written at a home here, if it is the newest: as if the node had fetched it.
    pub(super) fn adopt(
        &mut self,
        now: Monotonic,
        outcome: &mut Outcome,
        (shard, object): (ShardId, &ObjectId),
        version: Version,
        copy: CostedCopy,
    ) {
        let mut said = Vec::new();
        let is_newest = self.noted(shard, object) == Some(version);
        let read = match is_newest && self.node.cache.copies().peek(object).is_none() && !self.node.cache.is_full() {
            true => self.node.cache.read(now, shard, object, false, &mut said),
            false => {
                self.node.cache.copies_mut().release(copy.cost);
                return outcome.dropped.push(copy);
            }
        };
        let mut copy = Some(copy);
        if let ReadDecision::Shared(request) = read
            && !self.node.fetches.contains_key(&request)
        {
            let _stands = self.fetch(now, outcome, request, None, said);
            let noted = self.noted(shard, object);
            self.found(now, outcome, (shard, object), (request, noted), (version, false), &mut || copy.take());
            self.node.fetches.remove(&request);
            if copy.is_some() {
                self.node.cache.give_up_fetch(request);
            }
        } else if let ReadDecision::Private(request) = read {
            self.node.cache.give_up_fetch(request);
        }
        if let Some(copy) = copy {
            self.node.cache.copies_mut().release(copy.cost);
            outcome.dropped.push(copy);
        }
    }

    /// The home of `shard` is here no more. What the node has open there it asks its next home; of its writes nobody will
    /// tell what became.
    pub(super) fn let_go(&mut self, outcome: &mut Outcome, shard: ShardId) {
        let Some(side) = self.homes.remove(&shard) else { return };
        self.ended.insert(shard, side.home.epoch());
        for (request, put) in self.node.puts.extract_if(|_, put| put.shard == shard && put.append.is_some()) {
            self.node.cache.abandon_put(request);
            if let Some(copy) = put.copy {
                self.node.cache.copies_mut().release(copy.cost);
                outcome.dropped.push(copy);
            }
        }
    }

    /// A fetch that the cache has begun, by what it `said`, waits for its bytes.
    pub(super) fn fetch(
        &mut self,
        now: Monotonic,
        outcome: &mut Outcome,
        request: RequestId,
        landing: Option<watch::Receiver<SharedFetchResult>>,
        said: Vec<CacheOutput<ObjectId, CostedCopy>>,
    ) -> watch::Receiver<RequestState> {
        let (stands, standing) = watch::channel(RequestState::Here);
        self.node.fetches.insert(request, Fetch { landing, found: None, stands });
        self.carry(now, outcome, said);
        standing
    }

    /// Bytes are in hand, asked for when the home knew what `noted` says: of this version as far as they say, or none.
    /// `copy` is what may be kept of them.
    pub(super) fn found(
        &mut self,
        now: Monotonic,
        outcome: &mut Outcome,
        (shard, object): (ShardId, &ObjectId),
        (request, noted): (RequestId, EntryVersion),
        (version, absent): (Version, bool),
        copy: &mut dyn FnMut() -> Option<CostedCopy>,
    ) -> FetchOutcome {
        if self.is_early(shard, version) {
            return FetchOutcome::Early(version);
        }
        let waits = |state: &Self| state.node.fetches.get(&request).is_some_and(|fetch| fetch.found.is_none());
        if waits(self) {
            // Nothing was forgotten of the object while the home waits to hear of it.
            if self.noted(shard, object) != noted {
                return FetchOutcome::Anew;
            }
            self.home(now, outcome, shard, HomeInput::Loaded { object: object.clone(), absent });
        }
        if waits(self) {
            // Its question is not known any more: who else asked could not ask the store.
            self.node(now, outcome, |cache, out| cache.fetch_again(now, request, out));
            return FetchOutcome::Anew;
        }
        let Some(fetch) = self.node.fetches.get_mut(&request) else { return FetchOutcome::Anew };
        let Some((reply, _)) = fetch.found.take_if(|(_, then)| *then == noted) else { return FetchOutcome::Anew };
        self.landing(now, outcome, request, reply, copy())
    }

    /// The answer to a fetch, with what may be kept of its bytes.
    pub(super) fn landing(
        &mut self,
        now: Monotonic,
        outcome: &mut Outcome,
        request: RequestId,
        reply: Reply<ObjectId>,
        value: Option<CostedCopy>,
    ) -> FetchOutcome {
        // What is asked anew meanwhile is seen by that it changes.
        let mut stands = match self.node.fetches.get(&request) {
            Some(fetch) => fetch.stands.subscribe(),
            None => return FetchOutcome::Anew,
        };
        self.receive(now, outcome, reply, value);
        if !stands.has_changed().unwrap_or(true) {
            return FetchOutcome::Waits;
        }
        let landed = match &*stands.borrow_and_update() {
            RequestState::Landed(stamp) => Some(stamp.clone()),
            // A newer version was met meanwhile.
            RequestState::Here | RequestState::There(_) => None,
        };
        let Some(stamp) = landed else { return FetchOutcome::Anew };
        self.node.fetches.remove(&request);
        FetchOutcome::Landed(stamp)
    }

    pub(super) fn is_early(&self, shard: ShardId, version: Version) -> bool {
        let early = |side: &HomeSide| version.epoch == side.home.epoch() && !side.order.is_decided(version);
        self.homes.get(&shard).is_some_and(early)
    }

    /// Begins a write by one who has seen `token`; the home's question to the ledger is for the writer to ask.
    pub(super) fn write(
        &mut self,
        now: Monotonic,
        outcome: &mut Outcome,
        (shard, object): (ShardId, &ObjectId),
        (write, token): (Write, Arc<Token>),
        done: Option<oneshot::Sender<Result<Stamp, PutFailure>>>,
    ) -> NewPut {
        let mut said = Vec::new();
        let request = self.node.cache.write(now, shard, object, write, token, &mut said);
        let (sender, stands) = watch::channel(RequestState::Here);
        // There before the home hears of it.
        self.node.puts.insert(request, Put { shard, append: None, copy: None, done, stands: sender });
        self.carry(now, outcome, said);
        NewPut { request, append: self.node.puts.get(&request).and_then(|put| put.append), stands }
    }
}
