//! What the memory asks of the protocol's machines, under one lock: reads and writes begin here, and end when node and
//! home have said so.
//!
//! What has left memory by a step is handed out, to be freed when no lock is held. docs/coherence.md, "In a node".

use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::time::Duration;

use nigh_engine::Ledger;
use nigh_engine::journal::RecoveredRecord;
use nigh_terms::{Monotonic, Token, Version};
use tokio::sync::futures::Notified;
use tokio::sync::{Notify, oneshot, watch};

use super::SHARD;
use super::append_order::Asked;
use super::invocations::Invocations;
use super::loopback::{Answer, Copies, Noted, Outcome, State, Turn};
use super::reads::Landing;
use crate::cache::{Cost, Shelved};
use crate::kept::Kept;
use crate::protocol::{AppendId, HomeInput, PutFailure, Read, RequestId, Stamp, Write};
use crate::sync::{Mutex, MutexGuard, timeout};
use crate::{ObjectError, ObjectId};

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
    pub(super) state: Mutex<State>,
    /// Taken within the lock of `state`, or alone.
    pub(super) invocations: Mutex<Invocations>,
    ledger: Arc<dyn Ledger>,
    /// More versions have been decided.
    decided: Notify,
}

const fn too_much() -> ObjectError {
    ObjectError::SlowDown("too many objects are being read and written")
}

/// Why nothing is written any more.
pub(super) fn ended() -> ObjectError {
    let reason = "the home in this node is deposed; the node must be restarted".to_owned();
    ObjectError::Memory { operation: "order a write", reason }
}

impl Coherence {
    /// A node with nothing in memory, and the home of its shard, which takes `records` over. `budget` is what copies may
    /// take.
    pub(super) fn open(ledger: Arc<dyn Ledger>, records: Vec<RecoveredRecord>, budget: Cost) -> Self {
        let state = State::begin(ledger.epoch(SHARD), records, ledger.place(SHARD), budget);
        Self { state: Mutex::new(state), invocations: Mutex::default(), ledger, decided: Notify::new() }
    }

    /// The copies.
    pub(super) fn shelf(&self) -> ShelfGuard<'_> {
        ShelfGuard(self.state.lock())
    }

    pub(super) fn step<T>(&self, act: impl FnOnce(&mut State, &mut Outcome) -> T) -> (T, Vec<Shelved>) {
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
            return Err(too_much());
        }
        let (send, landing) = watch::channel(None);
        state.fetch(now, &mut outcome, request, shared.then_some(landing), said);
        Ok(if shared { Begun::Lead(request, send) } else { Begun::Past(request) })
    }

    /// Begins a question to the home about an object, whatever copy there is.
    pub(super) fn ask(&self, now: Monotonic, object: &ObjectId) -> Result<RequestId, ObjectError> {
        let (asked, _) = self.step(|state, outcome| {
            if state.node.cache.is_full() {
                return Err(too_much());
            }
            let mut said = Vec::new();
            let Read::Private(request) = state.node.cache.read(now, SHARD, object, true, &mut said) else {
                return Err(ObjectError::SlowDown("the object is being read"));
            };
            state.fetch(now, outcome, request, None, said);
            Ok(request)
        });
        asked
    }

    /// What the home knows of the object of a fetch, whose bytes are now asked for.
    pub(super) fn note(&self, object: &ObjectId, request: RequestId) -> Noted {
        let state = self.state.lock();
        match state.node.fetches.get(&request).and_then(|fetch| fetch.found.as_ref()) {
            Some((_, noted)) => *noted,
            None => state.noted(object),
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

    /// Comes to its end when the home has been told of more than now.
    pub(super) fn more_decided(&self) -> Notified<'_> {
        self.decided.notified()
    }

    /// Waits until the home has been told of `version`, if it ever is.
    pub(super) async fn until_told(&self, version: Version, within: Duration) -> Result<(), ObjectError> {
        let told = async {
            loop {
                let more = self.more_decided();
                if self.state.lock().home.order.is_decided(version) {
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
    ) -> Result<(BegunWrite, Vec<Shelved>), ObjectError> {
        let (begun, mut dropped) = self.step(|state, outcome| {
            if state.node.cache.is_full() {
                return Err(too_much());
            }
            let (send, done) = oneshot::channel();
            match state.write(now, outcome, object, (write, token), Some(send)) {
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
            let (_, append) = state.write(now, outcome, object, (Write::Outside, Arc::default()), None);
            let Some(append) = append else { return };
            let (version, turn) = (self.ledger.place(SHARD), Turn { append, stored: None });
            state.home.order.placed(version, turn);
            state.tell(now, outcome);
            let mut token = Token::empty();
            token.see(SHARD, version);
            self.invocations.lock().hand_over(&object.namespace, &token);
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

    /// Nothing is to be kept of a write, though it takes its place.
    pub(super) fn withdraw(&self, request: RequestId) -> Vec<Shelved> {
        let mut state = self.state.lock();
        let copy = state.node.puts.get_mut(&request).and_then(|put| put.copy.take());
        if let Some(copy) = &copy {
            state.node.cache.copies_mut().release(copy.cost);
        }
        copy.into_iter().collect()
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
        self.look(now);
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
