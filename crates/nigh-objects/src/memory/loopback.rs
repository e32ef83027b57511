//! A node and the home of its one shard, and the way between them: what they say to each other is carried until nothing is
//! left to say.
//!
//! What a home has found waits here until the object's bytes are in hand. The two know each other by messages alone, so
//! that a transport can stand where they meet. It locks nothing, asks no store, and decides neither what may be kept or
//! shown (`protocol`) nor what must make room (`cache`).

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use nigh_engine::Change;
use nigh_engine::journal::RecoveredRecord;
use nigh_terms::{Epoch, Incarnation, Monotonic, Token, Version};
use tokio::sync::{oneshot, watch};

use super::SHARD;
use super::append_order::AppendOrder;
use super::reads::Landing;
use crate::ObjectId;
use crate::cache::{Cost, Shelf, Shelved};
use crate::kept::Kept;
use crate::protocol::{
    AppendId, CacheLimits, CacheOutput, Contract, CopyStore, FromHome, Home, HomeInput, HomeLimits, HomeOutput,
    LedgerRecord, Member, NodeCache, NodeNumber, PutFailure, Replayed, Reply, Request, RequestId, Stamp, Takeover,
    ToHome, Write,
};

/// Of the directory's entries over the limit, so many are forgotten at a time.
const FORGOTTEN_AT_ONCE: usize = 4096;

pub(super) type Copies = Shelf<Kept>;
pub(super) type Cache = NodeCache<ObjectId, Shelved, Contract, Copies>;

/// What the home knew of an object at some time: the version of its entry, if it had one.
pub(super) type Noted = Option<Version>;

/// A fetch that the node has under way.
#[derive(Default)]
pub(super) struct Fetch {
    /// For those who may join it.
    pub(super) landing: Option<watch::Receiver<Landing>>,
    /// What the home has answered, and what it knew then.
    pub(super) found: Option<(Reply<ObjectId>, Noted)>,
}

/// A write that the node has under way.
#[derive(Default)]
pub(super) struct Put {
    pub(super) append: Option<AppendId>,
    /// What is to be kept of it.
    pub(super) copy: Option<Shelved>,
    pub(super) done: Option<oneshot::Sender<Result<Stamp, PutFailure>>>,
}

/// What the home is to be told in its turn.
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

pub(super) struct HomeSide {
    pub(super) home: Home<ObjectId>,
    pub(super) order: AppendOrder<Turn>,
    /// Pushed before the home was told that they were written.
    pub(super) pushed_early: BTreeMap<Version, ObjectId>,
}

pub(super) struct State {
    pub(super) node: NodeSide,
    pub(super) home: HomeSide,
}

/// What comes of a step.
#[derive(Default)]
pub(super) struct Outcome {
    /// To be freed when no lock is held.
    pub(super) dropped: Vec<Shelved>,
    pub(super) landed: Vec<(RequestId, Stamp)>,
    /// The home would have some of its directory forgotten.
    pub(super) crowded: bool,
}

/// What became of bytes that were brought.
pub(super) enum Answer {
    /// They are this version's.
    Landed(Stamp),
    /// They may be another's: they are to be brought anew.
    Anew,
    /// They are a version's that the home has not been told of yet.
    Early(Version),
}

/// The limits of a home and a node between which nothing is lost: neither asks again.
fn limits() -> (HomeLimits, CacheLimits) {
    let cache = CacheLimits { resend: Duration::MAX, ..CacheLimits::default() };
    // The node's limit holds for both.
    (HomeLimits { puts_max: usize::MAX, ..HomeLimits::default() }, cache)
}

/// Acknowledged writes as the home takes them over. Who wrote them asks no more.
fn replayed(records: Vec<RecoveredRecord>, before: Member) -> Vec<Replayed<ObjectId>> {
    let mut records = records;
    records.sort_by_key(|record| record.version);
    let replay = |(number, RecoveredRecord { version, record, .. }): (u64, RecoveredRecord)| {
        let object = ObjectId { namespace: record.namespace, bucket: record.bucket, key: record.key };
        let write = match record.change {
            Change::Put { .. } | Change::Amend { .. } => Write::Put,
            Change::Delete { .. } => Write::Delete,
        };
        let (token, request) = (Arc::new(Token::empty()), RequestId(number));
        Replayed { version, record: LedgerRecord::Write { object, write, token, writer: before, request } }
    };
    (0..).zip(records).map(replay).collect()
}

impl State {
    /// A node with nothing in memory, of which copies may take `budget`, and the home of its shard under `epoch`, which
    /// takes `records` over. Every version up to `decided` has been told.
    pub(super) fn begin(epoch: Epoch, records: Vec<RecoveredRecord>, decided: Version, budget: Cost) -> Self {
        let node = NodeNumber(0);
        let me = Member { node, incarnation: Incarnation(epoch.0) };
        let before = Member { node, incarnation: Incarnation(epoch.0.saturating_sub(1)) };
        let (home_limits, cache_limits) = limits();
        let records = replayed(records, before);
        let takeover = Takeover { shard: SHARD, epoch, records, summary: Token::empty(), resident: Some(me) };
        let mut cache = Cache::over(Shelf::new(budget), me, cache_limits, Contract);
        cache.meet(Monotonic::default(), SHARD, epoch, &mut Vec::new());
        let home = HomeSide {
            home: Home::begin(takeover, home_limits, Contract),
            order: AppendOrder::after(decided),
            pushed_early: BTreeMap::new(),
        };
        Self { node: NodeSide { cache, fetches: HashMap::new(), puts: HashMap::new() }, home }
    }

    /// What the home knows of an object.
    pub(super) fn noted(&self, object: &ObjectId) -> Noted {
        self.home.home.version_of(object).map(|(version, _)| version)
    }

    /// Lets the node do something, and carries on what comes of it.
    pub(super) fn node<T>(
        &mut self,
        now: Monotonic,
        outcome: &mut Outcome,
        act: impl FnOnce(&mut Cache, &mut Vec<CacheOutput<ObjectId, Shelved>>) -> T,
    ) -> T {
        let mut said = Vec::new();
        let given = act(&mut self.node.cache, &mut said);
        for output in said {
            match output {
                CacheOutput::Send(_, request) => self.home(now, outcome, HomeInput::Request(request)),
                CacheOutput::Landed { request, stamp, value, .. } => {
                    outcome.dropped.extend(value);
                    outcome.landed.push((request, stamp));
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
                    tracing::error!("the home in this node refuses the node; restart it");
                    self.end(outcome);
                }
            }
        }
        given
    }

    /// Lets the home take something in, and carries on what comes of it.
    pub(super) fn home(&mut self, now: Monotonic, outcome: &mut Outcome, input: HomeInput<ObjectId>) {
        let noted = match &input {
            HomeInput::Request(Request { body: ToHome::Fetch { object, .. }, .. })
            | HomeInput::Loaded { object, .. } => Some(object),
            _ => None,
        };
        let noted = noted.and_then(|object| self.noted(object));
        let mut said = Vec::new();
        self.home.home.step(now, input, &mut said);
        for output in said {
            match output {
                HomeOutput::Send(reply) => self.hear(now, outcome, reply, noted),
                HomeOutput::Append { append, record } => self.wants(append, &record),
                // Whoever fetches brings the bytes, and with them the answer.
                HomeOutput::Load(_) => {}
                // The node that wrote is the home's own: its answers have arrived, and are asked for no more.
                HomeOutput::Settled(_) => {}
                HomeOutput::Crowded => outcome.crowded = true,
                HomeOutput::Fenced { member, .. } | HomeOutput::NotFenced(member) => {
                    tracing::error!(?member, "a fence was answered that this node has not asked for");
                }
                HomeOutput::GaveUp(member) => {
                    tracing::error!(?member, "the home in this node has given the node up; restart it");
                    self.end(outcome);
                }
                HomeOutput::Retired => {
                    tracing::error!(
                        "the home in this node is deposed: it was told of a write out of order; restart it"
                    );
                    self.end(outcome);
                }
            }
        }
    }

    /// The home wants a write appended: that is done by who writes.
    fn wants(&mut self, append: AppendId, record: &LedgerRecord<ObjectId>) {
        if let LedgerRecord::Write { request, .. } = record
            && let Some(put) = self.node.puts.get_mut(request)
        {
            put.append = Some(append);
        }
    }

    /// The node hears the home; what was found waits for its bytes.
    fn hear(&mut self, now: Monotonic, outcome: &mut Outcome, reply: Reply<ObjectId>, noted: Noted) {
        let value = match &reply.body {
            FromHome::Found { attempt, .. } => {
                if let Some(fetch) = self.node.fetches.get_mut(&attempt.request) {
                    fetch.found = Some((reply, noted));
                }
                return;
            }
            FromHome::Written { request, .. } => self.node.puts.get_mut(request).and_then(|put| put.copy.take()),
            FromHome::Covers { .. } | FromHome::Invalidate { .. } | FromHome::Refused { .. } => None,
        };
        if let Some(copy) = &value {
            // Its room is the shelf's again, which keeps it there or drops it.
            self.node.cache.copies_mut().release(copy.cost);
        }
        self.node(now, outcome, |cache, out| cache.receive(now, reply, value, out));
    }

    /// Tells the home what is in its turn.
    pub(super) fn tell(&mut self, now: Monotonic, outcome: &mut Outcome) {
        while let Some((version, Turn { append, stored })) = self.home.order.next_to_tell() {
            self.home(now, outcome, HomeInput::Appended { append, version });
            let early = self.home.pushed_early.remove(&version);
            if let Some(object) = stored.or(early) {
                self.home(now, outcome, HomeInput::Pushed { object, version });
            }
        }
        if std::mem::take(&mut outcome.crowded) {
            for object in self.home.home.forgettable(FORGOTTEN_AT_ONCE) {
                self.home(now, outcome, HomeInput::Forget(object));
            }
        }
    }

    /// Home and node do not trust each other any more, which cannot be between these two: nothing is served from memory
    /// or acknowledged from here on.
    fn end(&mut self, outcome: &mut Outcome) {
        let shelf = self.node.cache.copies_mut();
        let objects = shelf.objects_of(SHARD);
        outcome.dropped.extend(objects.iter().filter_map(|object| CopyStore::remove(shelf, object)));
        for (_, put) in self.node.puts.drain() {
            if let Some(copy) = put.copy {
                shelf.release(copy.cost);
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
        landing: Option<watch::Receiver<Landing>>,
        mut said: Vec<CacheOutput<ObjectId, Shelved>>,
    ) {
        self.node.fetches.insert(request, Fetch { landing, found: None });
        self.node(now, outcome, |_, out| out.append(&mut said));
    }

    /// Bytes are in hand, asked for when the home knew what `noted` says: of this version as far as they say, or none.
    /// `copy` is what may be kept of them.
    pub(super) fn found(
        &mut self,
        now: Monotonic,
        outcome: &mut Outcome,
        object: &ObjectId,
        (request, noted): (RequestId, Noted),
        (version, absent): (Version, bool),
        copy: &mut dyn FnMut() -> Option<Shelved>,
    ) -> Answer {
        let epoch = self.home.home.epoch();
        if version.epoch == epoch && !self.home.order.is_decided(version) {
            return Answer::Early(version);
        }
        let waits = |state: &Self| state.node.fetches.get(&request).is_some_and(|fetch| fetch.found.is_none());
        if waits(self) {
            // Nothing was forgotten of the object while the home waits to hear of it.
            if self.noted(object) != noted {
                return Answer::Anew;
            }
            self.home(now, outcome, HomeInput::Loaded { object: object.clone(), absent });
        }
        if waits(self) {
            // Its question is not known any more: who else asked could not ask the store.
            self.node(now, outcome, |cache, out| cache.fetch_again(now, request, out));
            return Answer::Anew;
        }
        let Some(fetch) = self.node.fetches.get_mut(&request) else { return Answer::Anew };
        let Some((reply, _)) = fetch.found.take_if(|(_, then)| *then == noted) else { return Answer::Anew };
        let value = copy();
        if let Some(copy) = &value {
            self.node.cache.copies_mut().release(copy.cost);
        }
        let before = outcome.landed.len();
        self.node(now, outcome, |cache, out| cache.receive(now, reply, value, out));
        let landed = outcome.landed.drain(before..).find(|(landed, _)| *landed == request);
        match landed {
            Some((_, stamp)) => {
                self.node.fetches.remove(&request);
                Answer::Landed(stamp)
            }
            // A newer version was met meanwhile.
            None => Answer::Anew,
        }
    }

    /// Begins a write by one who has seen `token`; the home's question to the ledger is for the writer to ask.
    pub(super) fn write(
        &mut self,
        now: Monotonic,
        outcome: &mut Outcome,
        object: &ObjectId,
        (write, token): (Write, Arc<Token>),
        done: Option<oneshot::Sender<Result<Stamp, PutFailure>>>,
    ) -> (RequestId, Option<AppendId>) {
        let mut said = Vec::new();
        let request = self.node.cache.write(now, SHARD, object, write, token, &mut said);
        // There before the home hears of it.
        self.node.puts.insert(request, Put { done, ..Put::default() });
        self.node(now, outcome, |_, out| out.append(&mut said));
        (request, self.node.puts.get(&request).and_then(|put| put.append))
    }
}
