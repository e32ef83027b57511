//! A node's part: which copy answers a read, which reads share a fetch, what may be cached, and what is covered.
//!
//! Floors: while requests on an object are outstanding, the node remembers the newest version of it that an
//! invalidation or the acknowledgement of an own write has named in this epoch; nothing older is cached or served. A
//! write that begins drops the copy, and a fetch that began before the write is neither joined nor cached after it;
//! until the write has ended, each read fetches for itself.
//!
//! A copy is cached, and shown, only when the node covers its token, so a hit asks nobody. The shell decides what room
//! there is, and evicts.

mod arrivals;
mod terms;
#[cfg(test)]
mod tests;
mod work;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use nigh_terms::{Epoch, Monotonic, ShardId, Token, Version, broken_invariant, invariant};

pub use self::terms::{CacheLimits, CacheOutput, PutFailure, ReadDecision};
use self::work::{FoundVersion, PendingRequest, Work};
use super::copies::{CopyStore, PlainCopies};
use super::coverage::Coverage;
use super::message::{Member, ObjectName, Request, RequestId, Stamp, ToHome, Write};
use super::rules::{Contract, Rule, Rules};
use super::table::Table;

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Shard {
    coverage: Coverage,
    /// The version about which the home was last asked, and when.
    asked: Option<(Version, Monotonic)>,
}

/// The cache of one incarnation of a node. `V` is the shell's handle of a copy, cheap to clone; `S` stores the copies.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct NodeCache<O: Eq + std::hash::Hash, V, R = Contract, S = PlainCopies<O, V>> {
    me: Member,
    rules: R,
    limits: CacheLimits,
    shards: BTreeMap<ShardId, Shard>,
    copies: S,
    /// Objects with fetches or writes under way.
    work: Table<O, Work>,
    requests: BTreeMap<RequestId, PendingRequest<O, V>>,
    /// The requests whose answer waits until the node covers it.
    landed: BTreeSet<RequestId>,
    /// The requests that are writes.
    puts: BTreeSet<RequestId>,
    next: RequestId,
    given_up: bool,
}

impl<O: ObjectName, V: Clone, R: Rules> NodeCache<O, V, R> {
    /// An empty cache, whose copies are in a table.
    #[must_use]
    pub fn new(me: Member, limits: CacheLimits, rules: R) -> Self {
        Self::over(PlainCopies::default(), me, limits, rules)
    }
}

impl<O: ObjectName, V: Clone, R: Rules, S: CopyStore<O, V>> NodeCache<O, V, R, S> {
    /// A cache whose copies are in `copies`, which is empty.
    #[must_use]
    pub fn over(copies: S, me: Member, limits: CacheLimits, rules: R) -> Self {
        Self {
            me,
            rules,
            limits,
            shards: BTreeMap::new(),
            copies,
            work: Table::default(),
            requests: BTreeMap::new(),
            landed: BTreeSet::new(),
            puts: BTreeSet::new(),
            next: RequestId::default(),
            given_up: false,
        }
    }

    /// The incarnation that has this cache.
    #[must_use]
    pub const fn member(&self) -> Member {
        self.me
    }

    /// The cached copies.
    pub const fn copies(&self) -> &S {
        &self.copies
    }

    /// The cached copies, so that the shell can evict some. No home is told.
    pub const fn copies_mut(&mut self) -> &mut S {
        &mut self.copies
    }

    /// True if the shell must begin no more fetches and puts.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.requests.len() >= self.limits.requests_max
    }

    /// True if a home has declared this incarnation dead.
    #[must_use]
    pub const fn is_given_up(&self) -> bool {
        self.given_up
    }

    /// True if the node covers all of `token`.
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

    /// Learns a home's epoch from the shard map, not from the home.
    pub fn meet(&mut self, now: Monotonic, shard: ShardId, epoch: Epoch, out: &mut Vec<CacheOutput<O, V>>) {
        if self.shards.entry(shard).or_default().coverage.epoch() < epoch {
            self.flush(now, shard, epoch, out);
            // The new epoch covers the old ones: a fetch that waited for one of their versions ends now.
            self.settle(now, out);
        }
    }

    /// Decides how a read of `object`, in `shard`, is served. A hit takes one look-up. With `checked`, the home is
    /// asked even if there is a copy.
    pub fn read(
        &mut self,
        now: Monotonic,
        shard: ShardId,
        object: &O,
        checked: bool,
        out: &mut Vec<CacheOutput<O, V>>,
    ) -> ReadDecision<V> {
        if !checked && let Some(copy) = self.copies.get(object) {
            return ReadDecision::Hit(copy);
        }
        let work = self.work.get_or_insert_with(object, Work::default);
        let shared = !checked && work.writes == 0;
        if shared && let Some(request) = work.fetch {
            return ReadDecision::Shared(request);
        }
        let request = self.next;
        self.next.0 += 1;
        work.outstanding += 1;
        if shared {
            work.fetch = Some(request);
        }
        self.requests.insert(request, PendingRequest::fetch(object.clone(), shard, shared, now));
        self.ask_for(now, request, out);
        if shared { ReadDecision::Shared(request) } else { ReadDecision::Private(request) }
    }

    /// Begins a write of `object`, in `shard`, by a writer who has seen `token`. Writes of one object may overlap; the
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
        self.requests.insert(request, PendingRequest::put(object.clone(), shard, write, token, now));
        self.puts.insert(request);
        self.ask_for(now, request, out);
        request
    }

    /// Abandons a fetch whose bytes could not be had. Returns what had arrived.
    pub fn give_up_fetch(&mut self, request: RequestId) -> Option<V> {
        if self.puts.contains(&request) {
            return None;
        }
        self.landed.remove(&request);
        let pending = self.requests.remove(&request)?;
        self.end_work(&pending.object, request, false);
        pending.landed.and_then(|landed| landed.value)
    }

    /// Abandons an own write whose home has ended. The outcome stays unknown, and the write is not sent again. The
    /// shell must tell the writer a version of the next epoch, which covers the write.
    pub fn abandon_put(&mut self, request: RequestId) {
        if self.puts.remove(&request)
            && let Some(pending) = self.requests.remove(&request)
        {
            self.end_work(&pending.object, request, true);
        }
    }

    /// The newest version of `shard` that the node covers. The node has shown nothing newer.
    #[must_use]
    pub fn covered(&self, shard: ShardId) -> Version {
        self.shards.get(&shard).map_or(Version::OUTSIDE, |shard| shard.coverage.covered())
    }

    /// Asks the homes for what `token` needs and the node does not cover. A home is asked once, and again by `tick` if
    /// it does not answer.
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

    /// Sends again each request that has had no answer for its pause, which grows.
    pub fn tick(&mut self, now: Monotonic, out: &mut Vec<CacheOutput<O, V>>) {
        let late =
            |pending: &PendingRequest<O, V>| pending.landed.is_none() && now.since(pending.sent) >= pending.pause;
        let overdue: Vec<RequestId> =
            self.requests.iter().filter(|(_, pending)| late(pending)).map(|(request, _)| *request).collect();
        for request in overdue {
            let longer = self.requests.get(&request).map_or(Duration::ZERO, |pending| pending.pause.saturating_mul(2));
            self.ask_for(now, request, out);
            if let Some(pending) = self.requests.get_mut(&request) {
                pending.pause = longer.min(self.limits.resend_max);
            }
        }
        for state in self.shards.values_mut() {
            // Whoever still needs coverage asks again: the answered fetches below, waiting dispatches at the gate.
            state.asked = state.asked.filter(|(_, at)| now.since(*at) < self.limits.resend);
        }
        for request in self.landed.clone() {
            self.ask_for_cover(now, request, out);
        }
    }

    /// Sends `request`, for the first time or again. A node that was declared dead sends nothing: it would ignore the
    /// answer, and a home in the same process, which had answered a put, would take the put for a new one.
    fn ask_for(&mut self, now: Monotonic, request: RequestId, out: &mut Vec<CacheOutput<O, V>>) {
        if self.given_up {
            return;
        }
        let settled = self.puts.first().copied().unwrap_or(self.next);
        let Some(pending) = self.requests.get_mut(&request) else { return };
        (pending.sent, pending.pause) = (now, self.limits.resend);
        let body = pending.message(request, settled);
        let epoch = self.shards.entry(pending.shard).or_default().coverage.epoch();
        out.push(CacheOutput::Send(pending.shard, Request { from: self.me, epoch, body }));
    }

    fn ask_for_cover(&mut self, now: Monotonic, request: RequestId, out: &mut Vec<CacheOutput<O, V>>) {
        let Some(pending) = self.requests.get(&request) else { return };
        let shard = pending.shard;
        let Some(FoundVersion { stamp, .. }) = &pending.landed else { return };
        let stamp = stamp.clone();
        self.ask_shard(now, shard, stamp.version, out);
        if let Some(others) = &stamp.others {
            self.ask(now, others, out);
        }
    }

    /// A higher epoch begins: the copies and floors of the lower ones go, and outstanding requests are sent again. The
    /// new home knows all that former homes acknowledged, and may give it older versions than they did, which had
    /// forgotten what the ledger still has.
    fn flush(&mut self, now: Monotonic, shard: ShardId, epoch: Epoch, out: &mut Vec<CacheOutput<O, V>>) {
        let state = self.shards.entry(shard).or_default();
        state.coverage.begin(epoch);
        state.asked = None;
        out.push(CacheOutput::Grown);
        if self.rules.hold(Rule::EpochFlush) {
            for object in self.copies.objects_of(shard) {
                self.drop_copy(&object, out);
            }
        }
        let outstanding: Vec<RequestId> =
            self.requests.iter().filter(|(_, pending)| pending.shard == shard).map(|(request, _)| *request).collect();
        for request in outstanding {
            if let Some(pending) = self.requests.get(&request)
                && let Some(work) = self.work.get_mut(&pending.object)
            {
                work.floor = Version::OUTSIDE;
            }
            if self.puts.contains(&request) {
                self.ask_for(now, request, out);
            } else {
                self.fetch_again(now, request, out);
            }
        }
    }

    fn drop_copy(&mut self, object: &O, out: &mut Vec<CacheOutput<O, V>>) {
        out.extend(self.copies.remove(object).map(CacheOutput::Dropped));
    }

    /// A request on `object` has ended.
    fn end_work(&mut self, object: &O, request: RequestId, write: bool) {
        let Some(work) = self.work.get_mut(object) else {
            broken_invariant(format_args!("{request:?} ended, and no floor of {object:?} was kept for it"))
        };
        if work.end(request, write) {
            self.work.remove(object);
        }
        // No request is both an answered fetch and a put. A request that is neither is a fetch without an answer.
        let (puts, landed, requests) = (self.puts.len(), self.landed.len(), self.requests.len());
        invariant!(puts + landed <= requests, "{puts} puts and {landed} answered fetches of {requests} requests");
    }
}
