//! What the memory asks of the protocol's machines, under one lock: reads and writes begin here, and end when node and
//! home have said so.
//!
//! What has left memory by a step is handed out, to be freed without a lock. docs/design/coherence.md, "In a node".

use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::time::Duration;

use nigh_data::segment_cost::Cost;
use nigh_data::{ObjectError, ObjectId};
use nigh_engine::Ledger;
use nigh_protocol::{
    AppendId, CacheLimits, HomeInput, HomeLimits, Member, PutFailure, ReadDecision, Reply, Request, RequestId, Stamp,
    Write,
};
use nigh_terms::{Epoch, Monotonic, ShardId, Token, Version};
use tokio::sync::futures::Notified;
use tokio::sync::{Notify, mpsc, oneshot, watch};

use super::append_order::AppendNumber;
use super::cluster::{CoherenceProtocol, CopyUse};
use super::foreign::{Asker, ForeignWrite};
use super::invocations::Invocations;
use super::machines::{
    Copies, EntryVersion, FetchOutcome, ForeignAnswer, MachineEvent, NewHome, NewPut, Outcome, RequestState, State,
    Turn,
};
use super::reads::SharedFetchResult;
use crate::cache::CostedCopy;
use crate::kept::CachedCopy;
use crate::shards::Shards;
use crate::sync::{Mutex, MutexGuard, timeout};

/// A fetch that has begun.
pub(super) enum FetchStart {
    /// It need not: here is a copy.
    Hit(CachedCopy),
    /// Somebody else's serves.
    Join(watch::Receiver<SharedFetchResult>),
    /// The caller brings the bytes, for all who join.
    Lead(BegunFetch, watch::Sender<SharedFetchResult>),
    /// The caller brings them for itself.
    Past(BegunFetch),
}

/// A fetch whose bytes the caller brings.
pub(super) struct BegunFetch {
    pub(super) request: RequestId,
    /// From where, and whether it has ended.
    pub(super) stands: watch::Receiver<RequestState>,
}

/// A write that has begun, and the ledger's answer to it.
pub(super) struct BegunWrite {
    pub(super) request: RequestId,
    /// None if the home is elsewhere, or refuses.
    pub(super) append: Option<AppendId>,
    pub(super) stands: watch::Receiver<RequestState>,
    pub(super) done: oneshot::Receiver<Result<Stamp, PutFailure>>,
    /// The copy there was.
    pub(super) before: Option<CostedCopy>,
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

/// The machines of this process.
pub(super) struct Coherence {
    pub(super) state: Mutex<State>,
    /// Taken within the lock of `state`, or alone.
    pub(super) invocations: Mutex<Invocations>,
    pub(super) shards: Shards,
    ledger: Arc<dyn Ledger>,
    /// What the cluster's nodes do, if not all of this.
    pub(super) compared: CoherenceProtocol,
    /// More versions have been decided.
    decided: Notify,
    /// Who hears of what others are to be told; where there are none it is said in the log.
    happened: Option<mpsc::UnboundedSender<MachineEvent>>,
}

const fn too_much() -> ObjectError {
    ObjectError::SlowDown("too many objects are being read and written")
}

/// Why nothing is written any more.
pub(super) fn ended() -> ObjectError {
    let reason = "the home in this node has ended, and whether the write takes place is not known; a cluster's next home \
                  knows, a node alone must be restarted";
    let reason = reason.to_owned();
    ObjectError::Memory { operation: "order a write", reason }
}

/// Why a write is to be made again.
pub(super) const fn moved() -> ObjectError {
    ObjectError::SlowDown("the home of the object is moving")
}

/// Says what happened where nobody hears of it.
fn log(happened: &MachineEvent) {
    match happened {
        // Its own writer is the node, whose answers have arrived.
        MachineEvent::Settled(..) => {}
        MachineEvent::Rejoin => tracing::error!("the home in this node refuses the node; restart it"),
        MachineEvent::Retired(_) => {
            tracing::error!("the home in this node is deposed: it was told of a write out of order; restart it");
        }
        MachineEvent::GaveUp(_) => tracing::error!("the home in this node has given the node up; restart it"),
        MachineEvent::Said(..) | MachineEvent::Told(_) | MachineEvent::Fences(..) => {
            tracing::error!(?happened, "a node alone has something for others");
        }
    }
}

impl Coherence {
    /// A node with nothing in memory, of which copies may take `budget`, and no home. What others are to be told of goes to
    /// `happened`.
    pub(super) fn open(
        (me, shards): (Member, Shards),
        ledger: Arc<dyn Ledger>,
        limits: CacheLimits,
        budget: Cost,
        happened: Option<mpsc::UnboundedSender<MachineEvent>>,
    ) -> Self {
        let state = State::begin((me, shards), limits, budget, happened.is_none());
        let (state, invocations) = (Mutex::new(state), Mutex::default());
        let compared = CoherenceProtocol::default();
        Self { state, invocations, shards, ledger, compared, decided: Notify::new(), happened }
    }

    /// The same, of a cluster whose nodes have this protocol.
    pub(super) fn compared(self, compared: CoherenceProtocol) -> Self {
        Self { compared, ..self }
    }

    /// A home begins here.
    pub(super) fn take(&self, now: Monotonic, new: NewHome, limits: HomeLimits) -> Vec<CostedCopy> {
        self.step(|state, outcome| state.take(now, outcome, new, limits)).1
    }

    /// The copies.
    pub(super) fn shelf(&self) -> ShelfGuard<'_> {
        ShelfGuard(self.state.lock())
    }

    pub(super) fn step<T>(&self, act: impl FnOnce(&mut State, &mut Outcome) -> T) -> (T, Vec<CostedCopy>) {
        let mut outcome = Outcome::default();
        let given = act(&mut self.state.lock(), &mut outcome);
        for happened in outcome.happened {
            match &self.happened {
                // Nobody hears it at the end of the process.
                Some(hears) => drop(hears.send(happened)),
                None => log(&happened),
            }
        }
        (given, outcome.dropped)
    }

    /// True if the home of `shard` is in this process.
    pub(super) fn is_home(&self, shard: ShardId) -> bool {
        self.state.lock().homes.contains_key(&shard)
    }

    /// What the home of `object` here knows of it: its version, and who else has been given it.
    pub(super) fn sharers(&self, object: &ObjectId) -> (EntryVersion, Vec<Member>) {
        let (state, shard) = (self.state.lock(), self.shards.of(object));
        let Some(side) = state.homes.get(&shard) else { return (None, Vec::new()) };
        (side.home.version_of(object).map(|(version, _)| version), side.home.sharers(object))
    }

    /// The shard of an object, and the object.
    fn placed<'o>(&self, object: &'o ObjectId) -> (ShardId, &'o ObjectId) {
        (self.shards.of(object), object)
    }

    /// Begins a read. Where what the store shows is in doubt, by `past`, a copy serves and nothing else is kept.
    pub(super) fn read(
        &self,
        now: Monotonic,
        object: &ObjectId,
        past: impl FnOnce() -> bool,
    ) -> Result<FetchStart, ObjectError> {
        let shard = self.shards.of(object);
        // A read drops nothing.
        let (begun, _) = self.step(|state, outcome| {
            // A doubt arises before its write ends here: under this lock it is seen, or the write is.
            let checked = past() && state.node.cache.copies().peek(object).is_none();
            let is_full = state.node.cache.is_full();
            let mut said = Vec::new();
            let read = state.node.cache.read(now, shard, object, checked, &mut said);
            let (mut request, mut shared) = match read {
                ReadDecision::Hit(copy) => return Ok(FetchStart::Hit(copy.value.kept)),
                ReadDecision::Shared(request) => (request, true),
                ReadDecision::Private(request) => (request, false),
            };
            if let Some(landing) = state.node.fetches.get(&request).and_then(|fetch| fetch.landing.clone()) {
                if self.compared.copies_are() == CopyUse::Shown {
                    return Ok(FetchStart::Join(landing));
                }
                // Nobody would say that its answer is older than a write meanwhile.
                if let ReadDecision::Private(own) = state.node.cache.read(now, shard, object, true, &mut said) {
                    (request, shared) = (own, false);
                }
            }
            if is_full {
                state.node.cache.give_up_fetch(request);
                return Err(too_much());
            }
            let (send, landing) = watch::channel(None);
            let stands = state.fetch(now, outcome, request, shared.then_some(landing), said);
            let begun = BegunFetch { request, stands };
            Ok(if shared { FetchStart::Lead(begun, send) } else { FetchStart::Past(begun) })
        });
        begun
    }

    /// Begins a question to the home about an object, whatever copy there is.
    pub(super) fn ask(&self, now: Monotonic, object: &ObjectId) -> Result<BegunFetch, ObjectError> {
        let shard = self.shards.of(object);
        let (asked, _) = self.step(|state, outcome| {
            if state.node.cache.is_full() {
                return Err(too_much());
            }
            let mut said = Vec::new();
            let ReadDecision::Private(request) = state.node.cache.read(now, shard, object, true, &mut said) else {
                return Err(ObjectError::SlowDown("the object is being read"));
            };
            let stands = state.fetch(now, outcome, request, None, said);
            Ok(BegunFetch { request, stands })
        });
        asked
    }

    /// What the home here knows of the object of a fetch, whose bytes are now asked for.
    pub(super) fn note(&self, object: &ObjectId, request: RequestId) -> EntryVersion {
        let state = self.state.lock();
        match state.node.fetches.get(&request).and_then(|fetch| fetch.found.as_ref()) {
            Some((_, noted)) => *noted,
            None => state.noted(self.shards.of(object), object),
        }
    }

    /// The bytes asked for at `noted` are in hand: of `version` as far as they say, or there are none. `copy` is what
    /// may be kept of them, its room reserved; it is asked for only if they have landed.
    pub(super) fn found(
        &self,
        now: Monotonic,
        object: &ObjectId,
        asked: (RequestId, EntryVersion),
        found: (Version, bool),
        copy: &mut dyn FnMut() -> Option<CostedCopy>,
    ) -> (FetchOutcome, Vec<CostedCopy>) {
        self.step(|state, outcome| state.found(now, outcome, self.placed(object), asked, found, copy))
    }

    /// A fetch that waited for the node to catch up has landed.
    pub(super) fn landed(&self, request: RequestId) {
        self.state.lock().node.fetches.remove(&request);
    }

    /// The bytes of a fetch cannot be had.
    pub(super) fn give_up(&self, now: Monotonic, object: &ObjectId, request: RequestId) {
        let ((), _) = self.step(|state, outcome| {
            state.node.cache.give_up_fetch(request);
            if state.node.fetches.remove(&request).is_some_and(|fetch| fetch.found.is_none()) {
                state.home(now, outcome, self.shards.of(object), HomeInput::NotLoaded(object.clone()));
            }
        });
    }

    /// Comes to its end when a home here has been told of more than now.
    pub(super) fn more_decided(&self) -> Notified<'_> {
        self.decided.notified()
    }

    /// Waits until the home here has been told of `version`, if it ever is.
    pub(super) async fn until_told(
        &self,
        shard: ShardId,
        version: Version,
        within: Duration,
    ) -> Result<(), ObjectError> {
        let told = async {
            loop {
                let more = self.more_decided();
                if !self.state.lock().is_early(shard, version) {
                    return;
                }
                more.await;
            }
        };
        let late = |_| ObjectError::SlowDown("a write before this one has not been decided");
        timeout(within, told).await.map_err(late)
    }

    /// Begins a write of an object whose turn it is, by one who has seen `token`.
    pub(super) fn write(
        &self,
        now: Monotonic,
        object: &ObjectId,
        write: Write,
        token: Arc<Token>,
    ) -> Result<(BegunWrite, Vec<CostedCopy>), ObjectError> {
        let (begun, mut dropped) = self.step(|state, outcome| {
            if state.node.cache.is_full() {
                return Err(too_much());
            }
            let (send, done) = oneshot::channel();
            Ok((state.write(now, outcome, self.placed(object), (write, token), Some(send)), done))
        });
        let (NewPut { request, append, stands }, done) = begun?;
        // All that a write drops when it begins is its object's copy.
        let before = dropped.pop();
        Ok((BegunWrite { request, append, stands, done, before }, dropped))
    }

    /// Keeps a copy of what somebody else has written at a home here as `version`.
    pub(super) fn adopt(
        &self,
        now: Monotonic,
        object: &ObjectId,
        version: Version,
        copy: CostedCopy,
    ) -> Vec<CostedCopy> {
        self.step(|state, outcome| state.adopt(now, outcome, self.placed(object), version, copy)).1
    }

    /// A write that has begun, and of which no home was asked, is carried on by nobody: it does not take place.
    pub(super) fn withdraw_write(&self, request: RequestId) {
        let mut state = self.state.lock();
        state.node.puts.remove(&request);
        state.node.cache.abandon_put(request);
    }

    /// Another node writes an object whose turn it is.
    pub(super) fn foreign_write(&self, now: Monotonic, object: &ObjectId, request: Request<ObjectId>) -> ForeignWrite {
        // Who writes elsewhere drops nothing here before it is told.
        self.step(|state, outcome| state.foreign_write(now, outcome, self.shards.of(object), request)).0
    }

    /// Another node fetches an object.
    pub(super) fn foreign_fetch(&self, now: Monotonic, object: &ObjectId, request: Request<ObjectId>) {
        // What others ask drops nothing here.
        let ((), _) = self.step(|state, outcome| state.foreign_fetch(now, outcome, self.shards.of(object), request));
    }

    /// What the home here knows of the object of another node's fetch.
    pub(super) fn foreign_noted(&self, object: &ObjectId, asker: Asker) -> EntryVersion {
        self.state.lock().foreign_noted(self.shards.of(object), object, asker)
    }

    /// As `found`, for another node.
    pub(super) fn foreign_found(
        &self,
        now: Monotonic,
        object: &ObjectId,
        asked: (Asker, EntryVersion),
        found: (Version, bool),
    ) -> ForeignAnswer {
        self.step(|state, outcome| state.foreign_found(now, outcome, self.placed(object), asked, found)).0
    }

    /// As `give_up`, for another node.
    pub(super) fn foreign_give_up(&self, now: Monotonic, object: &ObjectId, asker: Asker) {
        let ((), _) = self.step(|state, outcome| state.foreign_give_up(now, outcome, self.placed(object), asker));
    }

    /// True if the home here has not met this write of another node, as far as it remembers.
    pub(super) fn is_new_write(&self, shard: ShardId, from: Member, request: RequestId) -> bool {
        self.state.lock().is_new(shard, from, request)
    }

    /// Has the home here fence `member`, if it is here.
    pub(super) fn fence(&self, now: Monotonic, shard: ShardId, member: Member) -> Option<oneshot::Receiver<Version>> {
        self.step(|state, outcome| state.fence(now, outcome, shard, member)).0
    }

    /// The ledger says that another home has the shard.
    pub(super) fn depose(&self, now: Monotonic, shard: ShardId) {
        let ((), _) = self.step(|state, outcome| state.home(now, outcome, shard, HomeInput::Deposed));
    }

    /// The home of `shard` is here no more.
    pub(super) fn let_go(&self, now: Monotonic, shard: ShardId) -> Vec<CostedCopy> {
        let ((), dropped) = self.step(|state, outcome| state.let_go(outcome, shard));
        self.look(now);
        self.decided.notify_waiters();
        dropped
    }

    /// Another process says something to a home here.
    pub(super) fn said(&self, now: Monotonic, shard: ShardId, request: Request<ObjectId>) -> Vec<CostedCopy> {
        let ((), dropped) = self.step(|state, outcome| state.said(now, outcome, shard, request));
        if self.compared.waits_for_sharers() {
            self.decided.notify_waiters();
        }
        dropped
    }

    /// True if a node that was told of a newer version of `object` has not said that it knows.
    pub(super) fn is_pending(&self, object: &ObjectId) -> bool {
        let state = self.state.lock();
        state.homes.get(&self.shards.of(object)).is_some_and(|side| !side.home.pending(object).is_empty())
    }

    /// The map of homes says that `shard` is under `epoch`.
    pub(super) fn meet(&self, now: Monotonic, shard: ShardId, epoch: Epoch) -> Vec<CostedCopy> {
        let ((), dropped) = self.step(|state, outcome| {
            state.depose_before(now, outcome, shard, epoch);
            state.node(now, outcome, |cache, out| cache.meet(now, shard, epoch, out));
        });
        self.look(now);
        dropped
    }

    /// A home elsewhere says something to this node.
    pub(super) fn hear(&self, now: Monotonic, reply: Reply<ObjectId>) -> Vec<CostedCopy> {
        let ((), dropped) = self.step(|state, outcome| state.hear(now, outcome, reply));
        self.look(now);
        self.decided.notify_waiters();
        dropped
    }

    /// A home elsewhere has answered a fetch; `copy` is what may be kept of its bytes.
    pub(super) fn landing(
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

    /// True if the node has caught up with `token`; else the homes are asked.
    pub(super) fn covers_or_asks(&self, now: Monotonic, token: &Token) -> bool {
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
    pub(super) fn reign_here(&self, shard: ShardId) -> Option<Epoch> {
        self.state.lock().homes.get(&shard).map(|side| side.home.epoch())
    }

    /// How far the homes here have come.
    pub(super) fn newest_here(&self) -> Vec<(ShardId, Version)> {
        self.state.lock().homes.iter().map(|(shard, side)| (*shard, side.home.newest())).collect()
    }

    /// What the home here wants appended for a write of the node's.
    pub(super) fn append_of(&self, request: RequestId) -> Option<AppendId> {
        self.state.lock().node.puts.get(&request).and_then(|put| put.append)
    }

    /// A write that began elsewhere and whose home came here has ended without being appended.
    pub(super) fn end_begun(&self, now: Monotonic, object: &ObjectId, request: RequestId) -> Vec<CostedCopy> {
        match self.append_of(request) {
            Some(append) => self.not_appended(now, self.shards.of(object), append),
            None => Vec::new(),
        }
    }

    /// True if there is no other process.
    pub(super) const fn is_alone(&self) -> bool {
        self.happened.is_none()
    }

    /// This life of this node.
    pub(super) fn member(&self) -> Member {
        self.state.lock().node.cache.member()
    }

    /// Somebody else has written an object in the store: what was kept of it is dropped, here and wherever it is.
    pub(super) fn outside(&self, now: Monotonic, object: &ObjectId) -> Vec<CostedCopy> {
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

    /// What is to be kept of a write when it is told, its room reserved.
    pub(super) fn deposit(&self, request: RequestId, copy: CostedCopy) {
        let mut state = self.state.lock();
        match state.node.puts.get_mut(&request) {
            Some(put) => put.copy = Some(copy),
            None => state.node.cache.copies_mut().release(copy.cost),
        }
    }

    /// Nothing is to be kept of a write, though it takes its place.
    pub(super) fn withdraw(&self, request: RequestId) -> Vec<CostedCopy> {
        let mut state = self.state.lock();
        let copy = state.node.puts.get_mut(&request).and_then(|put| put.copy.take());
        if let Some(copy) = &copy {
            state.node.cache.copies_mut().release(copy.cost);
        }
        copy.into_iter().collect()
    }

    /// Lets the order of a home here take something in, and tells the home what is in its turn.
    fn order(
        &self,
        now: Monotonic,
        shard: ShardId,
        act: impl FnOnce(&mut super::AppendOrder<Turn>, &dyn Ledger),
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

    /// The ledger is about to be asked for a version of `shard`; none if its home is not here.
    pub(super) fn appending(&self, shard: ShardId) -> Option<AppendNumber> {
        self.state.lock().homes.get_mut(&shard).map(|home| home.order.begins())
    }

    /// It has given one, durably, and readers of what stands behind see it. `stored` names the object if the store has it.
    pub(super) fn appended(
        &self,
        now: Monotonic,
        shard: ShardId,
        (append, asked): (AppendId, AppendNumber),
        version: Version,
        stored: Option<&ObjectId>,
    ) -> Vec<CostedCopy> {
        self.order(now, shard, |order, _| order.appended(asked, version, Turn { append, stored: stored.cloned() }))
    }

    /// It has given none; or, if `lost`, one that nobody knows.
    pub(super) fn refused(&self, now: Monotonic, shard: ShardId, asked: AppendNumber, lost: bool) -> Vec<CostedCopy> {
        self.order(now, shard, |order, ledger| {
            if lost {
                order.lost(asked, ledger.place(shard));
            } else {
                order.refused(asked);
            }
        })
    }

    /// It has given one that is no write's.
    pub(super) fn passed(
        &self,
        now: Monotonic,
        shard: ShardId,
        asked: AppendNumber,
        version: Version,
    ) -> Vec<CostedCopy> {
        self.order(now, shard, |order, _| order.passed(asked, version))
    }

    /// A version that no write has: to mark what goes to the store before its place in the order is known.
    pub(super) fn mark(&self, now: Monotonic, shard: ShardId) -> (Version, Vec<CostedCopy>) {
        let mut version = Version::OUTSIDE;
        let dropped = self.order(now, shard, |order, ledger| {
            version = ledger.place(shard);
            order.skip(version);
        });
        (version, dropped)
    }

    /// The write does not take place.
    pub(super) fn not_appended(&self, now: Monotonic, shard: ShardId, append: AppendId) -> Vec<CostedCopy> {
        self.step(|state, outcome| state.home(now, outcome, shard, HomeInput::NotAppended { append })).1
    }

    /// The store has a version.
    pub(super) fn pushed(&self, now: Monotonic, object: &ObjectId, version: Version) -> Vec<CostedCopy> {
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

    /// Time has passed.
    pub(super) fn tick(&self, now: Monotonic) -> Vec<CostedCopy> {
        let ((), dropped) = self.step(|state, outcome| {
            let shards: Vec<ShardId> = state.homes.keys().copied().collect();
            for shard in shards {
                state.home(now, outcome, shard, HomeInput::Tick);
            }
            state.node(now, outcome, |cache, out| cache.tick(now, out));
        });
        self.look(now);
        dropped
    }

    /// How many objects the homes have entries for.
    #[cfg(test)]
    pub(super) fn entries(&self) -> usize {
        self.state.lock().homes.values().map(|home| home.home.objects()).sum()
    }

    /// How much is under way.
    #[cfg(test)]
    pub(super) fn under_way(&self) -> usize {
        let state = self.state.lock();
        let early: usize = state.homes.values().map(|home| home.pushed_early.len()).sum();
        state.node.fetches.len() + state.node.puts.len() + early
    }
}
