//! A node's part: which copy answers a read, which reads share a fetch, what may be kept, and what is covered.
//!
//! Floors: while work on an object is outstanding the node remembers the newest version it has met of it, in an
//! invalidation or in an own write's acknowledgement; nothing older is kept or served. A write that begins takes
//! the copy away, and no fetch begun before it is joined or kept after it; until it has ended, reads are
//! fetched each for itself.
//!
//! A copy is kept, and shown, only when the node covers its token; so a hit asks nothing. It decides neither what
//! room there is nor what must make place: the shell evicts.

#[cfg(test)]
mod tests;
mod work;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use nigh_terms::{Epoch, Monotonic, ShardId, Token, Version};

use self::work::{Landed, Pending, Work};
use super::coverage::Coverage;
use super::message::{
    Attempt, Counter, Cover, FromHome, Member, ObjectName, Refusal, Reply, Request, RequestId, Stamp, ToHome, Write,
};
use super::rules::{Contract, Rule, Rules};
use super::table::Table;

/// The limits of a node's cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CacheLimits {
    /// After so long what was asked for is asked for again.
    pub resend: Duration,
    /// Fetches and puts under way beyond which the shell begins no more: they wait in its queues.
    pub requests_max: usize,
}

impl Default for CacheLimits {
    fn default() -> Self {
        Self { resend: Duration::from_millis(200), requests_max: 65_536 }
    }
}

/// A copy of an object.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Copy<V> {
    /// Its version and that version's token.
    pub stamp: Stamp,
    /// What the shell keeps of it.
    pub value: V,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Kept<V> {
    copy: Copy<V>,
    shard: ShardId,
}

/// How a read is served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Read<V> {
    /// By this copy.
    Hit(Copy<V>),
    /// By the fetch of this name, which others may share: `CacheOutput::Landed` will name it.
    Shared(RequestId),
    /// By a fetch of its own: the object is being written here, or what the home has was asked for.
    Private(RequestId),
}

/// Why an own write has not been acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum PutFailure {
    /// It did not happen, and will not.
    #[error("the ledger did not take the write; write again later")]
    NotTaken,
    /// The node's incarnation was given up. If it happened, then no later than `through`.
    #[error("the home has given this node up; the write may have happened, up to version {through}")]
    GivenUp {
        /// The home's newest version when it refused.
        through: Version,
    },
}

/// What a node's cache wants done.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum CacheOutput<O, V> {
    /// Send this to the home of the shard.
    Send(ShardId, Request<O>),
    /// A fetch has ended: whoever reads by it is served this.
    Landed {
        /// The fetch.
        request: RequestId,
        /// Which object.
        object: O,
        /// The version found: each reader's token joins it.
        stamp: Stamp,
        /// What came with it; none if there is no object.
        value: Option<V>,
        /// The value is kept, and is the cache's too.
        kept: bool,
    },
    /// An own write has ended.
    Wrote {
        /// The write.
        request: RequestId,
        /// Its version, or why there is none.
        outcome: Result<Stamp, PutFailure>,
        /// What came with the acknowledgement is kept.
        kept: bool,
    },
    /// This left the cache, or came and was not wanted.
    Dropped(O, V),
    /// The node covers more than before: the gate may look again.
    Grown,
    /// The node was given up: it must end what runs and begin a new incarnation with an empty cache.
    Rejoin,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Shard {
    coverage: Coverage,
    /// What the home was last asked to cover, and when.
    asked: Option<(Version, Monotonic)>,
}

/// The cache of one incarnation of a node. `V` is what the shell keeps of a copy: cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct NodeCache<O: Eq + std::hash::Hash, V, R = Contract> {
    me: Member,
    rules: R,
    limits: CacheLimits,
    shards: BTreeMap<ShardId, Shard>,
    copies: Table<O, Kept<V>>,
    /// Objects on which something is outstanding.
    work: Table<O, Work>,
    requests: BTreeMap<RequestId, Pending<O, V>>,
    /// Those of `requests` whose answer waits for coverage.
    landed: BTreeSet<RequestId>,
    /// Those of `requests` that are writes.
    puts: BTreeSet<RequestId>,
    next: RequestId,
    given_up: bool,
}

impl<O: ObjectName, V: Clone, R: Rules> NodeCache<O, V, R> {
    /// An empty cache.
    #[must_use]
    pub fn new(me: Member, limits: CacheLimits, rules: R) -> Self {
        Self {
            me,
            rules,
            limits,
            shards: BTreeMap::new(),
            copies: Table::default(),
            work: Table::default(),
            requests: BTreeMap::new(),
            landed: BTreeSet::new(),
            puts: BTreeSet::new(),
            next: RequestId::default(),
            given_up: false,
        }
    }

    /// Whose cache this is.
    #[must_use]
    pub const fn member(&self) -> Member {
        self.me
    }

    /// The copy of `object`.
    #[must_use]
    pub fn peek(&self, object: &O) -> Option<&Copy<V>> {
        self.copies.get(object).map(|kept| &kept.copy)
    }

    /// How many copies there are.
    #[must_use]
    pub fn copies(&self) -> usize {
        self.copies.len()
    }

    /// True if the shell is to begin no more fetches and puts.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.requests.len() >= self.limits.requests_max
    }

    /// True if a home has given this incarnation up.
    #[must_use]
    pub const fn is_given_up(&self) -> bool {
        self.given_up
    }

    /// True if the node has caught up with all of `token`.
    #[must_use]
    pub fn covers(&self, token: &Token) -> bool {
        token.iter().all(|(shard, version)| self.covers_version(shard, version))
    }

    fn covers_version(&self, shard: ShardId, version: Version) -> bool {
        match self.shards.get(&shard) {
            Some(shard) => shard.coverage.covers(version, &self.rules),
            None => Coverage::default().covers(version, &self.rules),
        }
    }

    fn covers_stamp(&self, shard: ShardId, stamp: &Stamp) -> bool {
        if !self.rules.hold(Rule::CoverBeforeShow) {
            return true;
        }
        (!self.rules.hold(Rule::OwnNumber) || self.covers_version(shard, stamp.version))
            && stamp.others.as_ref().is_none_or(|others| self.covers(others))
    }

    /// Learns of a home's reign from elsewhere than the home: the shard map, at the start.
    pub fn meet(&mut self, now: Monotonic, shard: ShardId, epoch: Epoch, out: &mut Vec<CacheOutput<O, V>>) {
        if self.shards.entry(shard).or_default().coverage.epoch() < epoch {
            self.flush(now, shard, epoch, out);
        }
    }

    /// Decides how a read of `object`, in `shard`, is served. A hit takes one look-up. `checked` asks the home
    /// whatever copy there is.
    pub fn read(
        &mut self,
        now: Monotonic,
        shard: ShardId,
        object: &O,
        checked: bool,
        out: &mut Vec<CacheOutput<O, V>>,
    ) -> Read<V> {
        if !checked && let Some(kept) = self.copies.get(object) {
            return Read::Hit(kept.copy.clone());
        }
        let work = self.work.get_or_insert_with(object, Work::default);
        let shared = !checked && work.writes == 0;
        if shared && let Some(request) = work.fetch {
            return Read::Shared(request);
        }
        let request = self.next;
        self.next.0 += 1;
        work.outstanding += 1;
        if shared {
            work.fetch = Some(request);
        }
        self.requests.insert(request, Pending::fetch(object.clone(), shard, shared, now));
        self.ask_for(now, request, out);
        if shared { Read::Shared(request) } else { Read::Private(request) }
    }

    /// Begins a write of `object`, in `shard`, by one who has seen `token`. Writes of one object may overlap; the
    /// home orders them.
    pub fn write(
        &mut self,
        now: Monotonic,
        shard: ShardId,
        object: &O,
        write: Write,
        token: Arc<Token>,
        out: &mut Vec<CacheOutput<O, V>>,
    ) -> RequestId {
        let request = self.next;
        self.next.0 += 1;
        let work = self.work.get_or_insert_with(object, Work::default);
        work.outstanding += 1;
        work.writes += 1;
        if self.rules.hold(Rule::Floor)
            && let Some(fetch) = work.fetch.take()
            && let Some(fetch) = self.requests.get_mut(&fetch)
        {
            fetch.keep = false;
        }
        self.drop_copy(object, out);
        self.requests.insert(request, Pending::put(object.clone(), shard, write, token, now));
        self.puts.insert(request);
        self.ask_for(now, request, out);
        request
    }

    /// Takes the copy of `object` out, to make room. The home is not told.
    pub fn evict(&mut self, object: &O) -> Option<V> {
        self.copies.remove(object).map(|kept| kept.copy.value)
    }

    /// The fetch cannot be ended: the bytes could not be had. Nobody is served by it.
    pub fn give_up_fetch(&mut self, request: RequestId) {
        if self.puts.contains(&request) {
            return;
        }
        self.landed.remove(&request);
        if let Some(pending) = self.requests.remove(&request) {
            self.end_work(&pending.object, request, false);
        }
    }

    /// Asks the homes for what `token` needs and the node does not cover. They are asked once until they answer
    /// or `tick` finds it long ago.
    pub fn ask(&mut self, now: Monotonic, token: &Token, out: &mut Vec<CacheOutput<O, V>>) {
        for (shard, need) in token.iter() {
            self.ask_shard(now, shard, need, out);
        }
    }

    fn ask_shard(&mut self, now: Monotonic, shard: ShardId, need: Version, out: &mut Vec<CacheOutput<O, V>>) {
        if self.covers_version(shard, need) {
            return;
        }
        let state = self.shards.entry(shard).or_default();
        if state.asked.is_none_or(|(asked, _)| asked < need) {
            state.asked = Some((need, now));
            let epoch = state.coverage.epoch();
            out.push(CacheOutput::Send(shard, Request { from: self.me, epoch, body: ToHome::Ask { need } }));
        }
    }

    /// Takes a home's message in. `value` is what the shell has of the object that `Found` brings, or that
    /// `Written` acknowledges: in the version that the message names, or none.
    pub fn receive(&mut self, now: Monotonic, reply: Reply<O>, value: Option<V>, out: &mut Vec<CacheOutput<O, V>>) {
        let Reply { shard, epoch, to, body } = reply;
        let known = self.shards.entry(shard).or_default().coverage.epoch();
        if to != self.me || epoch < known || self.given_up {
            if let FromHome::Found { object, .. } = body {
                out.extend(value.map(|value| CacheOutput::Dropped(object, value)));
            }
            return;
        }
        if epoch > known {
            self.flush(now, shard, epoch, out);
        }
        match body {
            FromHome::Found { attempt, object, stamp, absent, cover } => {
                self.claim(shard, cover, out);
                self.found(now, shard, attempt, object, Landed { stamp, value: value.filter(|_| !absent) }, out);
            }
            FromHome::Written { request, stamp, cover } => {
                self.claim(shard, cover, out);
                self.written(request, stamp, value, out);
            }
            FromHome::Covers { cover } => {
                if let Some(state) = self.shards.get_mut(&shard) {
                    state.asked = None;
                }
                self.claim(shard, cover, out);
            }
            FromHome::Invalidate { counter, object, version, recall } => {
                self.invalidate(now, shard, counter, &object, (version, recall), out);
            }
            FromHome::Refused { request, reason, through } => self.refused(request, reason, through, out),
        }
        self.settle(now, out);
    }

    /// Time has passed: what was asked for long ago is asked for again.
    pub fn tick(&mut self, now: Monotonic, out: &mut Vec<CacheOutput<O, V>>) {
        let late = |pending: &Pending<O, V>| pending.landed.is_none() && now.since(pending.sent) >= self.limits.resend;
        let overdue: Vec<RequestId> =
            self.requests.iter().filter(|(_, pending)| late(pending)).map(|(request, _)| *request).collect();
        for request in overdue {
            self.ask_for(now, request, out);
        }
        for state in self.shards.values_mut() {
            // Whoever still needs it asks again: what has landed here, what waits at the gate there.
            state.asked = state.asked.filter(|(_, at)| now.since(*at) < self.limits.resend);
        }
        for request in self.landed.clone() {
            self.ask_for_cover(now, request, out);
        }
    }

    /// Sends what `request` wants, for the first time or again.
    fn ask_for(&mut self, now: Monotonic, request: RequestId, out: &mut Vec<CacheOutput<O, V>>) {
        let settled = self.puts.first().copied().unwrap_or(self.next);
        let Some(pending) = self.requests.get_mut(&request) else { return };
        pending.sent = now;
        let body = pending.message(request, settled);
        let epoch = self.shards.entry(pending.shard).or_default().coverage.epoch();
        out.push(CacheOutput::Send(pending.shard, Request { from: self.me, epoch, body }));
    }

    fn ask_for_cover(&mut self, now: Monotonic, request: RequestId, out: &mut Vec<CacheOutput<O, V>>) {
        let Some(pending) = self.requests.get(&request) else { return };
        let shard = pending.shard;
        let Some(Landed { stamp, .. }) = &pending.landed else { return };
        let stamp = stamp.clone();
        self.ask_shard(now, shard, stamp.version, out);
        if let Some(others) = &stamp.others {
            self.ask(now, others, out);
        }
    }

    fn claim(&mut self, shard: ShardId, cover: Cover, out: &mut Vec<CacheOutput<O, V>>) {
        let grown = self.shards.get_mut(&shard).is_some_and(|state| state.coverage.claim(cover, &self.rules));
        if grown {
            out.push(CacheOutput::Grown);
        }
    }

    fn found(
        &mut self,
        now: Monotonic,
        shard: ShardId,
        attempt: Attempt,
        object: O,
        landed: Landed<V>,
        out: &mut Vec<CacheOutput<O, V>>,
    ) {
        let request = if self.rules.hold(Rule::MatchReplies) {
            let awaited = |pending: &&Pending<O, V>| pending.attempt == attempt.number && pending.landed.is_none();
            self.requests.get(&attempt.request).filter(awaited).map(|_| attempt.request)
        } else {
            self.work.get(&object).and_then(|work| work.fetch)
        };
        match request {
            Some(request) => {
                if let Some(pending) = self.requests.get_mut(&request) {
                    pending.landed = Some(landed);
                    self.landed.insert(request);
                }
                if !self.finish_if_covered(now, request, out) {
                    self.ask_for_cover(now, request, out);
                }
            }
            None if !self.rules.hold(Rule::MatchReplies) && landed.value.is_some() => {
                self.install(shard, &object, landed, out);
            }
            None => out.extend(landed.value.map(|value| CacheOutput::Dropped(object, value))),
        }
    }

    /// Ends every fetch whose answer is covered by now, and asks again for those that have become too old.
    fn settle(&mut self, now: Monotonic, out: &mut Vec<CacheOutput<O, V>>) {
        if self.landed.is_empty() {
            return;
        }
        for request in self.landed.clone() {
            self.finish_if_covered(now, request, out);
        }
    }

    /// True if the fetch no longer waits: it has ended, or was sent anew.
    fn finish_if_covered(&mut self, now: Monotonic, request: RequestId, out: &mut Vec<CacheOutput<O, V>>) -> bool {
        let Some(pending) = self.requests.get(&request) else { return true };
        let Some(landed) = &pending.landed else { return true };
        let floor = self.work.get(&pending.object).map_or(Version::OUTSIDE, |work| work.floor);
        let below = landed.stamp.version < floor && self.rules.hold(Rule::Floor);
        if below && self.rules.hold(Rule::ServeFloor) {
            self.fetch_again(now, request, out);
            return true;
        }
        if !self.covers_stamp(pending.shard, &landed.stamp) {
            return false;
        }
        self.landed.remove(&request);
        let Some(Pending { object, shard, keep, landed: Some(landed), .. }) = self.requests.remove(&request) else {
            return true;
        };
        self.end_work(&object, request, false);
        let Landed { stamp, value } = landed;
        let kept = keep && !below && value.is_some();
        if kept && let Some(value) = value.clone() {
            self.install(shard, &object, Landed { stamp: stamp.clone(), value: Some(value) }, out);
        }
        out.push(CacheOutput::Landed { request, object, stamp, value, kept });
        true
    }

    fn fetch_again(&mut self, now: Monotonic, request: RequestId, out: &mut Vec<CacheOutput<O, V>>) {
        self.landed.remove(&request);
        if let Some(pending) = self.requests.get_mut(&request) {
            pending.attempt += 1;
            if let Some(Landed { value: Some(value), .. }) = pending.landed.take() {
                out.push(CacheOutput::Dropped(pending.object.clone(), value));
            }
        }
        self.ask_for(now, request, out);
    }

    fn install(&mut self, shard: ShardId, object: &O, landed: Landed<V>, out: &mut Vec<CacheOutput<O, V>>) {
        let Landed { stamp, value } = landed;
        if let Some(value) = value {
            let before = self.copies.insert(object.clone(), Kept { copy: Copy { stamp, value }, shard });
            out.extend(before.map(|kept| CacheOutput::Dropped(object.clone(), kept.copy.value)));
        }
    }

    fn written(&mut self, request: RequestId, stamp: Stamp, value: Option<V>, out: &mut Vec<CacheOutput<O, V>>) {
        if !self.puts.remove(&request) {
            return;
        }
        let Some(Pending { object, shard, keep, .. }) = self.requests.remove(&request) else { return };
        let (mut floor, mut others) = (Version::OUTSIDE, false);
        if let Some(work) = self.work.get_mut(&object) {
            floor = work.floor;
            others = work.writes > 1 || work.recalled;
            work.floor = floor.max(stamp.version);
        }
        self.end_work(&object, request, true);
        let fresh = stamp.version >= floor && !others || !self.rules.hold(Rule::AckFloor);
        let kept = keep && fresh && value.is_some();
        if kept {
            self.install(shard, &object, Landed { stamp: stamp.clone(), value }, out);
        } else {
            out.extend(value.map(|value| CacheOutput::Dropped(object, value)));
        }
        out.push(CacheOutput::Wrote { request, outcome: Ok(stamp), kept });
    }

    fn refused(
        &mut self,
        request: Option<RequestId>,
        reason: Refusal,
        through: Version,
        out: &mut Vec<CacheOutput<O, V>>,
    ) {
        if let Some(request) = request
            && self.puts.remove(&request)
            && let Some(pending) = self.requests.remove(&request)
        {
            self.end_work(&pending.object, request, true);
            let failure = match reason {
                Refusal::NotTaken => PutFailure::NotTaken,
                Refusal::GivenUp => PutFailure::GivenUp { through },
            };
            out.push(CacheOutput::Wrote { request, outcome: Err(failure), kept: false });
        }
        if reason == Refusal::GivenUp {
            self.given_up = true;
            out.push(CacheOutput::Rejoin);
        }
    }

    fn invalidate(
        &mut self,
        now: Monotonic,
        shard: ShardId,
        counter: Counter,
        object: &O,
        (version, recall): (Version, bool),
        out: &mut Vec<CacheOutput<O, V>>,
    ) {
        let stale = |kept: &Kept<V>| kept.copy.stamp.version < version || recall;
        if self.copies.get(object).is_some_and(stale) {
            self.drop_copy(object, out);
        }
        if let Some(work) = self.work.get_mut(object) {
            work.floor = work.floor.max(version);
            if recall {
                work.recalled = true;
                if let Some(fetch) = work.fetch.take().and_then(|fetch| self.requests.get_mut(&fetch)) {
                    fetch.keep = false;
                }
            }
        }
        let Some(state) = self.shards.get_mut(&shard) else { return };
        if state.coverage.apply(counter, &self.rules) {
            out.push(CacheOutput::Grown);
        }
        let (epoch, counter) = (state.coverage.epoch(), state.coverage.applied());
        out.push(CacheOutput::Send(shard, Request { from: self.me, epoch, body: ToHome::Applied { counter } }));
        self.settle(now, out);
    }

    /// A higher epoch: what was kept of the lower ones goes, and what is outstanding is asked for again.
    fn flush(&mut self, now: Monotonic, shard: ShardId, epoch: Epoch, out: &mut Vec<CacheOutput<O, V>>) {
        let state = self.shards.entry(shard).or_default();
        state.coverage.begin(epoch);
        state.asked = None;
        out.push(CacheOutput::Grown);
        if self.rules.hold(Rule::EpochFlush) {
            for object in self.copies.keys_where(|kept| kept.shard == shard) {
                self.drop_copy(&object, out);
            }
        }
        let outstanding: Vec<RequestId> =
            self.requests.iter().filter(|(_, pending)| pending.shard == shard).map(|(request, _)| *request).collect();
        for request in outstanding {
            if self.puts.contains(&request) {
                self.ask_for(now, request, out);
            } else {
                self.fetch_again(now, request, out);
            }
        }
    }

    fn drop_copy(&mut self, object: &O, out: &mut Vec<CacheOutput<O, V>>) {
        if let Some(kept) = self.copies.remove(object) {
            out.push(CacheOutput::Dropped(object.clone(), kept.copy.value));
        }
    }

    /// One thing less is outstanding on `object`.
    fn end_work(&mut self, object: &O, request: RequestId, write: bool) {
        let Some(work) = self.work.get_mut(object) else { return };
        if work.end(request, write) {
            self.work.remove(object);
        }
    }
}
