//! The protocol's machines in this process: a node, the home of its one shard, and the way between them.
//!
//! It carries what the machines say to each other until nothing is left to say, tells the home of writes in the order of
//! their versions, and holds what a home has found until the object's bytes are in hand. It decides neither what may be
//! kept or shown (`protocol`) nor what must make room (`cache`), and asks no store. The node's part and the home's know
//! each other by messages alone, so that a transport can stand where they meet here. docs/coherence.md says how.

use std::collections::{BTreeMap, HashMap};
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::time::Duration;

use nigh_engine::journal::RecoveredRecord;
use nigh_engine::{Change, Ledger};
use nigh_terms::{Incarnation, Monotonic, Token, Version};
use tokio::sync::{Notify, oneshot, watch};

use super::SHARD;
use super::append_order::{AppendOrder, Asked};
use super::reads::Landing;
use crate::cache::{Cost, Shelf, Shelved};
use crate::kept::Kept;
use crate::protocol::{
    AppendId, CacheLimits, CacheOutput, Contract, CopyStore, FromHome, Home, HomeInput, HomeLimits, HomeOutput,
    LedgerRecord, Member, NodeCache, NodeNumber, PutFailure, Read, Replayed, Reply, Request, RequestId, Stamp,
    Takeover, ToHome, Write,
};
use crate::sync::{Mutex, MutexGuard, Step, is_left_out};
use crate::{ObjectError, ObjectId};

/// Of the directory's entries over the limit, so many are forgotten at a time.
const FORGOTTEN_AT_ONCE: usize = 4096;

type Copies = Shelf<Kept>;
type Cache = NodeCache<ObjectId, Shelved, Contract, Copies>;

/// What the home knew of an object at some time: the version of its entry, if it had one.
pub(super) type Noted = Option<Version>;

/// A fetch that the node has under way.
#[derive(Default)]
struct Fetch {
    /// For those who may join it.
    landing: Option<watch::Receiver<Landing>>,
    /// What the home has answered, and what it knew then.
    found: Option<(Reply<ObjectId>, Noted)>,
}

/// A write that the node has under way.
#[derive(Default)]
struct Put {
    append: Option<AppendId>,
    /// What is to be kept of it.
    copy: Option<Shelved>,
    done: Option<oneshot::Sender<Result<Stamp, PutFailure>>>,
}

/// What the home is to be told in its turn.
struct Turn {
    append: AppendId,
    /// The store has it already.
    stored: Option<ObjectId>,
}

struct NodeSide {
    cache: Cache,
    fetches: HashMap<RequestId, Fetch>,
    puts: HashMap<RequestId, Put>,
}

struct HomeSide {
    home: Home<ObjectId>,
    order: AppendOrder<Turn>,
    /// Pushed before the home was told that they were written.
    pushed_early: BTreeMap<Version, ObjectId>,
}

struct State {
    node: NodeSide,
    home: HomeSide,
}

/// What comes of a step.
#[derive(Default)]
struct Outcome {
    /// To be freed when no lock is held.
    dropped: Vec<Shelved>,
    landed: Vec<(RequestId, Stamp)>,
    /// The home would have some of its directory forgotten.
    crowded: bool,
}

/// A fetch that has begun.
pub(super) enum Begun {
    /// It need not: here is a copy.
    Hit(Kept),
    /// Somebody else's serves.
    Join(watch::Receiver<Landing>),
    /// The caller brings the bytes, for all who join.
    Lead(RequestId, watch::Sender<Landing>),
    /// The caller brings them for itself.
    Past(RequestId),
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

/// A write that has begun, and the ledger's answer to it.
pub(super) struct BegunWrite {
    pub(super) request: RequestId,
    pub(super) append: AppendId,
    pub(super) done: oneshot::Receiver<Result<Stamp, PutFailure>>,
    /// The copy there was.
    pub(super) before: Option<Shelved>,
}

/// The copies, while nobody else decides.
pub(super) struct ShelfGuard<'c>(MutexGuard<'c, State>);

impl Deref for ShelfGuard<'_> {
    type Target = Copies;

    fn deref(&self) -> &Copies {
        self.0.node.cache.copies()
    }
}

impl DerefMut for ShelfGuard<'_> {
    fn deref_mut(&mut self) -> &mut Copies {
        self.0.node.cache.copies_mut()
    }
}

/// Node and home.
pub(super) struct Coherence {
    state: Mutex<State>,
    ledger: Arc<dyn Ledger>,
    /// More versions have been decided.
    decided: Notify,
}

/// Why nothing is written any more.
pub(super) fn ended() -> ObjectError {
    let reason = "the home in this node is deposed; the node must be restarted".to_owned();
    ObjectError::Memory { operation: "order a write", reason }
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
    /// Lets the node do something, and carries on what comes of it.
    fn node<T>(
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
    fn home(&mut self, now: Monotonic, outcome: &mut Outcome, input: HomeInput<ObjectId>) {
        let noted = match &input {
            HomeInput::Request(Request { body: ToHome::Fetch { object, .. }, .. })
            | HomeInput::Loaded { object, .. } => Some(object),
            _ => None,
        };
        let noted = noted.and_then(|object| self.home.home.version_of(object)).map(|(version, _)| version);
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
    fn tell(&mut self, now: Monotonic, outcome: &mut Outcome) {
        while let Some((version, Turn { append, stored })) = self.home.order.next() {
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

    fn found(
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
            if self.home.home.version_of(object).map(|(version, _)| version) != noted {
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
        let Some((reply, _)) = fetch.found.take_if(|(_, then)| *then == noted || is_left_out(Step::Stability)) else { return Answer::Anew };
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
}

impl Coherence {
    /// A node with nothing in memory, and the home of its shard, which takes `records` over. `budget` is what copies may
    /// take.
    pub(super) fn open(ledger: Arc<dyn Ledger>, records: Vec<RecoveredRecord>, budget: Cost) -> Self {
        let epoch = ledger.epoch(SHARD);
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
            order: AppendOrder::after(ledger.place(SHARD)),
            pushed_early: BTreeMap::new(),
        };
        let node = NodeSide { cache, fetches: HashMap::new(), puts: HashMap::new() };
        Self { state: Mutex::new(State { node, home }), ledger, decided: Notify::new() }
    }

    /// The copies.
    pub(super) fn shelf(&self) -> ShelfGuard<'_> {
        ShelfGuard(self.state.lock())
    }

    fn step<T>(&self, act: impl FnOnce(&mut State, &mut Outcome) -> T) -> (T, Vec<Shelved>) {
        let mut outcome = Outcome::default();
        let given = act(&mut self.state.lock(), &mut outcome);
        (given, outcome.dropped)
    }

    /// Begins a read. Where what the store shows is in doubt, by `past`, a copy serves and nothing else is kept.
    pub(super) fn read(
        &self,
        now: Monotonic,
        object: &ObjectId,
        past: impl FnOnce() -> bool,
    ) -> Result<Begun, ObjectError> {
        // A read drops nothing.
        let mut outcome = Outcome::default();
        let mut state = self.state.lock();
        // A doubt arises before its write ends here: under this lock it is seen, or the write is.
        let checked = past() && state.node.cache.copies().peek(object).is_none();
        let is_full = state.node.cache.is_full();
        let mut said = Vec::new();
        let read = state.node.cache.read(now, SHARD, object, checked, &mut said);
        let (request, shared) = match read {
            Read::Hit(copy) => return Ok(Begun::Hit(copy.value.kept)),
            Read::Shared(request) => (request, true),
            Read::Private(request) => (request, false),
        };
        if let Some(landing) = state.node.fetches.get(&request).and_then(|fetch| fetch.landing.clone()) {
            return Ok(Begun::Join(landing));
        }
        if is_full {
            state.node.cache.give_up_fetch(request);
            return Err(ObjectError::SlowDown("too many objects are being read and written"));
        }
        let (send, landing) = watch::channel(None);
        state.node.fetches.insert(request, Fetch { landing: shared.then_some(landing), found: None });
        for output in said {
            if let CacheOutput::Send(_, request) = output {
                state.home(now, &mut outcome, HomeInput::Request(request));
            }
        }
        Ok(if shared { Begun::Lead(request, send) } else { Begun::Past(request) })
    }

    /// Begins a question to the home about an object, whatever copy there is.
    pub(super) fn ask(&self, now: Monotonic, object: &ObjectId) -> Result<RequestId, ObjectError> {
        let (asked, _) = self.step(|state, outcome| {
            if state.node.cache.is_full() {
                return Err(ObjectError::SlowDown("too many objects are being read and written"));
            }
            let mut said = Vec::new();
            let Read::Private(request) = state.node.cache.read(now, SHARD, object, true, &mut said) else {
                return Err(ObjectError::SlowDown("the object is being read"));
            };
            state.node.fetches.insert(request, Fetch::default());
            for output in said {
                if let CacheOutput::Send(_, request) = output {
                    state.home(now, outcome, HomeInput::Request(request));
                }
            }
            Ok(request)
        });
        asked
    }

    /// What the home knows of the object of a fetch, whose bytes are now asked for.
    pub(super) fn note(&self, object: &ObjectId, request: RequestId) -> Noted {
        let state = self.state.lock();
        match state.node.fetches.get(&request).and_then(|fetch| fetch.found.as_ref()) {
            Some((_, noted)) => *noted,
            None => state.home.home.version_of(object).map(|(version, _)| version),
        }
    }

    /// The bytes asked for at `noted` are in hand: of `version` as far as they say, or there are none. `copy` is what
    /// may be kept of them, its room reserved; it is asked for only if they have landed.
    pub(super) fn found(
        &self,
        now: Monotonic,
        object: &ObjectId,
        asked: (RequestId, Noted),
        found: (Version, bool),
        copy: &mut dyn FnMut() -> Option<Shelved>,
    ) -> (Answer, Vec<Shelved>) {
        self.step(|state, outcome| state.found(now, outcome, object, asked, found, copy))
    }

    /// The bytes of a fetch cannot be had.
    pub(super) fn give_up(&self, now: Monotonic, object: &ObjectId, request: RequestId) {
        let ((), _) = self.step(|state, outcome| {
            state.node.cache.give_up_fetch(request);
            if state.node.fetches.remove(&request).is_some_and(|fetch| fetch.found.is_none()) {
                state.home(now, outcome, HomeInput::NotLoaded(object.clone()));
            }
        });
    }

    /// Waits until the home has been told of `version`, if it ever is.
    pub(super) async fn until_told(&self, version: Version, within: Duration) -> Result<(), ObjectError> {
        let told = async {
            loop {
                let more = self.decided.notified();
                if self.state.lock().home.order.is_decided(version) {
                    return;
                }
                more.await;
            }
        };
        let late = |_| ObjectError::SlowDown("a write before this one has not been decided");
        tokio::time::timeout(within, told).await.map_err(late)
    }

    /// Begins a write of an object whose turn it is.
    pub(super) fn write(
        &self,
        now: Monotonic,
        object: &ObjectId,
        write: Write,
    ) -> Result<(BegunWrite, Vec<Shelved>), ObjectError> {
        let (begun, mut dropped) = self.step(|state, outcome| {
            if state.node.cache.is_full() {
                return Err(ObjectError::SlowDown("too many objects are being read and written"));
            }
            let (send, done) = oneshot::channel();
            match state.write(now, outcome, object, write, Some(send)) {
                (request, Some(append)) => Ok((request, append, done)),
                (request, None) => {
                    state.node.puts.remove(&request);
                    Err(ended())
                }
            }
        });
        let (request, append, done) = begun?;
        // All that a write drops when it begins is its object's copy.
        let before = dropped.pop();
        Ok((BegunWrite { request, append, done, before }, dropped))
    }

    /// Somebody else has written an object in the store: what was kept of it is dropped, here and wherever it is.
    pub(super) fn outside(&self, now: Monotonic, object: &ObjectId) -> Vec<Shelved> {
        let ((), dropped) = self.step(|state, outcome| {
            let (_, append) = state.write(now, outcome, object, Write::Outside, None);
            let Some(append) = append else { return };
            let turn = Turn { append, stored: None };
            state.home.order.placed(self.ledger.place(SHARD), turn);
            state.tell(now, outcome);
        });
        self.decided.notify_waiters();
        dropped
    }

    /// What is to be kept of a write when it is told, its room reserved.
    pub(super) fn deposit(&self, request: RequestId, copy: Shelved) {
        let mut state = self.state.lock();
        match state.node.puts.get_mut(&request) {
            Some(put) => put.copy = Some(copy),
            None => state.node.cache.copies_mut().release(copy.cost),
        }
    }

    /// The ledger is about to be asked for a version.
    pub(super) fn appending(&self) -> Asked {
        self.state.lock().home.order.begins()
    }

    /// It has given one, durably, and readers of what stands behind see it. `stored` names the object if the store has it.
    pub(super) fn appended(
        &self,
        now: Monotonic,
        (append, asked): (AppendId, Asked),
        version: Version,
        stored: Option<&ObjectId>,
    ) -> Vec<Shelved> {
        let ((), dropped) = self.step(|state, outcome| {
            state.home.order.appended(asked, version, Turn { append, stored: stored.cloned() });
            state.tell(now, outcome);
        });
        self.decided.notify_waiters();
        dropped
    }

    /// It has given none; or, if `lost`, one that nobody knows.
    pub(super) fn refused(&self, now: Monotonic, asked: Asked, lost: bool) -> Vec<Shelved> {
        let ((), dropped) = self.step(|state, outcome| {
            if lost {
                state.home.order.lost(asked, self.ledger.place(SHARD));
            } else {
                state.home.order.refused(asked);
            }
            state.tell(now, outcome);
        });
        self.decided.notify_waiters();
        dropped
    }

    /// It has given one that is no write's.
    pub(super) fn passed(&self, now: Monotonic, asked: Asked, version: Version) -> Vec<Shelved> {
        let ((), dropped) = self.step(|state, outcome| {
            state.home.order.passed(asked, version);
            state.tell(now, outcome);
        });
        self.decided.notify_waiters();
        dropped
    }

    /// A version that no write has: to mark what goes to the store before its place in the order is known.
    pub(super) fn mark(&self, now: Monotonic) -> (Version, Vec<Shelved>) {
        let (version, dropped) = self.step(|state, outcome| {
            let version = self.ledger.place(SHARD);
            state.home.order.skip(version);
            state.tell(now, outcome);
            version
        });
        self.decided.notify_waiters();
        (version, dropped)
    }

    /// The write does not take place.
    pub(super) fn not_appended(&self, now: Monotonic, append: AppendId) -> Vec<Shelved> {
        self.step(|state, outcome| state.home(now, outcome, HomeInput::NotAppended { append })).1
    }

    /// The store has a version.
    pub(super) fn pushed(&self, now: Monotonic, object: &ObjectId, version: Version) -> Vec<Shelved> {
        let ((), dropped) = self.step(|state, outcome| {
            let early = version.epoch == state.home.home.epoch() && !state.home.order.is_decided(version);
            if early {
                state.home.pushed_early.insert(version, object.clone());
            } else {
                state.home(now, outcome, HomeInput::Pushed { object: object.clone(), version });
            }
        });
        dropped
    }

    /// Time has passed.
    pub(super) fn tick(&self, now: Monotonic) -> Vec<Shelved> {
        let ((), dropped) = self.step(|state, outcome| {
            state.home(now, outcome, HomeInput::Tick);
            state.node(now, outcome, |cache, out| cache.tick(now, out));
        });
        dropped
    }

    /// How many objects the home has entries for.
    #[cfg(test)]
    pub(super) fn entries(&self) -> usize {
        self.state.lock().home.home.objects()
    }

    /// How much is under way.
    #[cfg(test)]
    pub(super) fn under_way(&self) -> usize {
        let state = self.state.lock();
        state.node.fetches.len() + state.node.puts.len() + state.home.pushed_early.len()
    }
}

impl State {
    fn write(
        &mut self,
        now: Monotonic,
        outcome: &mut Outcome,
        object: &ObjectId,
        write: Write,
        done: Option<oneshot::Sender<Result<Stamp, PutFailure>>>,
    ) -> (RequestId, Option<AppendId>) {
        let mut said = Vec::new();
        let request = self.node.cache.write(now, SHARD, object, write, Arc::new(Token::empty()), &mut said);
        // There before the home hears of it.
        self.node.puts.insert(request, Put { done, ..Put::default() });
        self.node(now, outcome, |_, out| out.append(&mut said));
        (request, self.node.puts.get(&request).and_then(|put| put.append))
    }
}
