//! What a home's message does to a node's cache.

use nigh_terms::{Epoch, Monotonic, ShardId, Version};

use super::super::copies::{Copy, CopyStore};
use super::super::message::{
    Attempt, Counter, Cover, FromHome, ObjectName, Refusal, Reply, Request, RequestId, Stamp, ToHome,
};
use super::super::rules::{Rule, Rules};
use super::work::{FoundVersion, PendingRequest};
use super::{CacheOutput, NodeCache, PutFailure};

impl<O: ObjectName, V: Clone, R: Rules, S: CopyStore<O, V>> NodeCache<O, V, R, S> {
    /// Takes a home's message in. `value` is the shell's value for the version that a `Found` or `Written` names; none
    /// if there is no such value.
    pub fn receive(&mut self, now: Monotonic, reply: Reply<O>, value: Option<V>, out: &mut Vec<CacheOutput<O, V>>) {
        let Reply { shard, epoch, to, body } = reply;
        let known = self.shards.entry(shard).or_default().coverage.epoch();
        if to != self.me || epoch < known || self.given_up {
            out.extend(value.map(CacheOutput::Dropped));
            return;
        }
        if epoch > known {
            self.flush(now, shard, epoch, out);
        }
        match body {
            FromHome::Found { attempt, object, stamp, absent, cover } => {
                self.claim(shard, cover, out);
                self.found(now, shard, attempt, object, FoundVersion { stamp, value: value.filter(|_| !absent) }, out);
            }
            FromHome::Written { request, stamp, cover } => {
                self.claim(shard, cover, out);
                self.written(request, stamp, value, epoch, out);
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
        landed: FoundVersion<V>,
        out: &mut Vec<CacheOutput<O, V>>,
    ) {
        let request = if self.rules.hold(Rule::MatchReplies) {
            let awaited =
                |pending: &&PendingRequest<O, V>| pending.attempt == attempt.number && pending.landed.is_none();
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
            None => out.extend(landed.value.map(CacheOutput::Dropped)),
        }
    }

    /// Ends each fetch whose answer is covered now, and fetches again where the answer has become too old.
    pub(super) fn settle(&mut self, now: Monotonic, out: &mut Vec<CacheOutput<O, V>>) {
        if self.landed.is_empty() {
            return;
        }
        for request in self.landed.clone() {
            self.finish_if_covered(now, request, out);
        }
    }

    /// True if the fetch no longer waits: it has ended, or was sent again.
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
        let Some(PendingRequest { object, shard, keep, landed: Some(landed), .. }) = self.requests.remove(&request)
        else {
            return true;
        };
        self.end_work(&object, request, false);
        let FoundVersion { stamp, value } = landed;
        let kept = keep && !below && value.is_some();
        if kept && let Some(value) = value.clone() {
            self.install(shard, &object, FoundVersion { stamp: stamp.clone(), value: Some(value) }, out);
        }
        out.push(CacheOutput::Landed { request, object, stamp, value, kept });
        true
    }

    /// Fetches an object again, because the answer is of no use.
    pub fn fetch_again(&mut self, now: Monotonic, request: RequestId, out: &mut Vec<CacheOutput<O, V>>) {
        self.landed.remove(&request);
        if let Some(pending) = self.requests.get_mut(&request) {
            pending.attempt += 1;
            if let Some(FoundVersion { value: Some(value), .. }) = pending.landed.take() {
                out.push(CacheOutput::Dropped(value));
            }
        }
        self.ask_for(now, request, out);
    }

    fn install(&mut self, shard: ShardId, object: &O, landed: FoundVersion<V>, out: &mut Vec<CacheOutput<O, V>>) {
        let FoundVersion { stamp, value } = landed;
        if let Some(value) = value {
            let gone = self.copies.insert(shard, object, Copy { stamp, value });
            out.extend(gone.into_iter().map(CacheOutput::Dropped));
        }
    }

    /// The home of `epoch` has acknowledged an own write. A home that answers for a former one may know newer writes,
    /// and knows no sharers.
    fn written(
        &mut self,
        request: RequestId,
        stamp: Stamp,
        value: Option<V>,
        epoch: Epoch,
        out: &mut Vec<CacheOutput<O, V>>,
    ) {
        let pending = self.puts.remove(&request).then(|| self.requests.remove(&request)).flatten();
        let Some(PendingRequest { object, shard, keep, .. }) = pending else {
            return out.extend(value.map(CacheOutput::Dropped));
        };
        let (mut floor, mut others) = (Version::OUTSIDE, false);
        if let Some(work) = self.work.get_mut(&object) {
            floor = work.floor;
            others = work.writes > 1 || work.recalled;
            work.floor = floor.max(stamp.version);
        }
        self.end_work(&object, request, true);
        let fresh = stamp.version >= floor && !others || !self.rules.hold(Rule::AckFloor);
        let kept = keep && fresh && stamp.version.epoch == epoch && value.is_some();
        if kept {
            self.install(shard, &object, FoundVersion { stamp: stamp.clone(), value }, out);
        } else {
            out.extend(value.map(CacheOutput::Dropped));
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
        if self.copies.version(object).is_some_and(|kept| kept < version || recall) {
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
}
