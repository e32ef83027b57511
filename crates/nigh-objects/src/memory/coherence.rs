//! The protocol's machines under one lock: reads and writes begin here, and end when node and home say so.
//!
//! A step returns the copies that it dropped; the caller frees them without the lock. docs/design/coherence.md, "In a
//! node".

mod appends;
mod homes;
mod writes;

use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::time::Duration;

use nigh_data::segment_cost::Cost;
use nigh_data::{ObjectError, ObjectId};
use nigh_engine::Ledger;
use nigh_protocol::{CacheLimits, HomeInput, HomeLimits, Member, ReadDecision, RequestId};
use nigh_terms::{Monotonic, Sequence, ShardId, Version};
use tokio::sync::futures::Notified;
use tokio::sync::{Notify, mpsc, watch};

pub(super) use self::writes::BegunWrite;
use super::cluster::{CoherenceProtocol, CopyUse};
use super::fetch::SharedFetchResult;
use super::invocations::Invocations;
use super::machines::{Copies, EntryVersion, FetchOutcome, MachineEvent, NewHome, Outcome, RequestState, State};
use crate::cache::CostedCopy;
use crate::kept::CachedCopy;
use crate::shards::Shards;
use crate::sync::{Mutex, MutexGuard, timeout};

/// Where a read gets its bytes.
pub(super) enum FetchStart {
    /// From the cached copy.
    Hit(CachedCopy),
    /// From another read's fetch.
    Join(watch::Receiver<SharedFetchResult>),
    /// This read fetches, and later reads of the object join its fetch.
    Shared(BegunFetch, watch::Sender<SharedFetchResult>),
    /// This read fetches for itself.
    Private(BegunFetch),
}

/// A fetch whose bytes the caller must get.
pub(super) struct BegunFetch {
    pub(super) request: RequestId,
    /// Which home to ask, and when the fetch has ended.
    pub(super) stands: watch::Receiver<RequestState>,
}

/// The cached copies, under the lock of the machines.
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
    /// Locked inside the lock of `state`, or alone.
    pub(super) invocations: Mutex<Invocations>,
    pub(super) shards: Shards,
    ledger: Arc<dyn Ledger>,
    /// The protocol of the cluster's nodes.
    pub(super) compared: CoherenceProtocol,
    /// Wakes waiters when a home here has been told of more versions.
    decided: Notify,
    /// Receives the messages to other processes; none if the node is alone, which logs them.
    happened: Option<mpsc::UnboundedSender<MachineEvent>>,
}

const fn too_much() -> ObjectError {
    ObjectError::SlowDown("too many objects are being read and written")
}

/// Why nothing is written any more.
pub(super) const fn ended() -> ObjectError {
    ObjectError::OutcomeUnknown("its home in this node has ended (restart a node that is in no cluster)")
}

/// The error that makes a writer send its write again.
pub(super) const fn moved() -> ObjectError {
    ObjectError::SlowDown("the home of the object is moving")
}

/// Logs an event of a node that is alone.
fn log(happened: &MachineEvent) {
    match happened {
        // The node itself is the writer, and has its answers.
        MachineEvent::Settled(..) => {}
        MachineEvent::Rejoin => tracing::error!("the home in this node rejects the node; restart the node"),
        MachineEvent::Retired(..) => {
            tracing::error!("the home in this node has ended: it was told of a write out of order; restart the node");
        }
        MachineEvent::GaveUp(_) => {
            tracing::error!("the home in this node has declared the node dead; restart the node")
        }
        MachineEvent::Said(..) | MachineEvent::Told(_) | MachineEvent::Fences(..) => {
            tracing::error!(?happened, "a node alone has something for others");
        }
    }
}

impl Coherence {
    /// A node with an empty cache of `budget`, and without homes. Messages to other processes go to `happened`.
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

    /// Sets the protocol of the cluster's nodes.
    pub(super) fn compared(self, compared: CoherenceProtocol) -> Self {
        Self { compared, ..self }
    }

    /// Begins a home here.
    pub(super) fn take(&self, now: Monotonic, new: NewHome, limits: HomeLimits) -> Vec<CostedCopy> {
        self.step(|state, outcome| {
            let place = self.ledger.place(new.shard);
            // What the ledger gave before this, it gave to no write of this home.
            let decided = if place.epoch == new.epoch { place.sequence } else { Sequence::default() };
            state.take(now, outcome, new, decided, limits);
        })
        .1
    }

    /// Locks the cached copies.
    pub(super) fn shelf(&self) -> ShelfGuard<'_> {
        ShelfGuard(self.state.lock())
    }

    pub(super) fn step<T>(&self, act: impl FnOnce(&mut State, &mut Outcome) -> T) -> (T, Vec<CostedCopy>) {
        let mut outcome = Outcome::default();
        let given = act(&mut self.state.lock(), &mut outcome);
        for happened in outcome.happened {
            match &self.happened {
                // Nobody receives the event at the end of the process.
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

    /// True if the home of `shard` is here and answers. A home that has been told of a later epoch does not.
    pub(super) fn has_answering_home(&self, shard: ShardId) -> bool {
        self.state.lock().homes.get(&shard).is_some_and(|side| !side.home.is_retired())
    }

    /// The version and the sharers of `object` that the home here knows.
    pub(super) fn sharers(&self, object: &ObjectId) -> (EntryVersion, Vec<Member>) {
        let (state, shard) = (self.state.lock(), self.shards.of(object));
        let Some(side) = state.homes.get(&shard) else { return (None, Vec::new()) };
        (side.home.version_of(object).map(|(version, _)| version), side.home.sharers(object))
    }

    /// The shard of an object, and the object itself.
    fn placed<'o>(&self, object: &'o ObjectId) -> (ShardId, &'o ObjectId) {
        (self.shards.of(object), object)
    }

    /// Begins a read. If `past` returns true, because the store may show a write of unknown outcome or from outside,
    /// only a copy that is cached already serves the read, and nothing is cached.
    pub(super) fn read(
        &self,
        now: Monotonic,
        object: &ObjectId,
        past: impl FnOnce() -> bool,
    ) -> Result<FetchStart, ObjectError> {
        let shard = self.shards.of(object);
        // A read drops nothing.
        let (begun, _) = self.step(|state, outcome| {
            // A write of unknown outcome is recorded before the write ends here: under this lock the read sees one or
            // the other.
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
                // A shared fetch could be older than a write meanwhile, and no home would tell.
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
            Ok(if shared { FetchStart::Shared(begun, send) } else { FetchStart::Private(begun) })
        });
        begun
    }

    /// Begins a question to the home about an object, even if there is a copy.
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

    /// What the home here knows of the object of a fetch, before its bytes are read.
    pub(super) fn note(&self, object: &ObjectId, request: RequestId) -> EntryVersion {
        let state = self.state.lock();
        match state.node.fetches.get(&request).and_then(|fetch| fetch.found.as_ref()) {
            Some((_, noted)) => *noted,
            None => state.noted(self.shards.of(object), object),
        }
    }

    /// Takes the bytes of a fetch, of the version in their metadata, or absent; they were read when the home knew
    /// `noted`. `copy` makes the copy to be cached, its room reserved; it is called only if the bytes are accepted.
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

    /// A fetch that waited until the node covers its version has ended.
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

    /// Returns when a home here has been told of more versions.
    pub(super) fn more_decided(&self) -> Notified<'_> {
        self.decided.notified()
    }

    /// Waits until the home here has been told of `version`, or never will be.
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

    /// True if there is no other process.
    pub(super) const fn is_alone(&self) -> bool {
        self.happened.is_none()
    }

    /// This incarnation of the node.
    pub(super) fn member(&self) -> Member {
        self.state.lock().node.cache.member()
    }

    /// Gives the machines the time.
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

    /// The number of entries in the directories of the homes here.
    #[cfg(test)]
    pub(super) fn entries(&self) -> usize {
        self.state.lock().homes.values().map(|home| home.home.objects()).sum()
    }

    /// The number of requests under way.
    #[cfg(test)]
    pub(super) fn under_way(&self) -> usize {
        let state = self.state.lock();
        let early: usize = state.homes.values().map(|home| home.pushed_early.len()).sum();
        state.node.fetches.len() + state.node.puts.len() + early
    }
}
