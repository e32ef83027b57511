//! Fetches and writes of this node at the machines, from their start to the home's answer.

use std::sync::Arc;

use nigh_data::ObjectId;
use nigh_protocol::{CacheOutput, HomeInput, PutFailure, ReadDecision, Reply, RequestId, Stamp, Write};
use nigh_terms::{Monotonic, ShardId, Token, Version};
use tokio::sync::{oneshot, watch};

use super::{EntryVersion, Fetch, FetchOutcome, HomeSide, NewPut, Outcome, Put, RequestState, State};
use crate::cache::CostedCopy;
use crate::memory::fetch::SharedFetchResult;

impl State {
    /// Caches another node's written copy at a home here, if it is the newest, as if the node had fetched it.
    pub(in crate::memory) fn adopt(
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

    /// Begins a fetch. The answer that the home here has `said` waits for the bytes.
    pub(in crate::memory) fn fetch(
        &mut self,
        now: Monotonic,
        outcome: &mut Outcome,
        request: RequestId,
        landing: Option<watch::Receiver<SharedFetchResult>>,
        said: Vec<CacheOutput<ObjectId, CostedCopy>>,
    ) -> watch::Receiver<RequestState> {
        let (stands, standing) = watch::channel(RequestState::AskedLocalHome);
        self.node.fetches.insert(request, Fetch { landing, found: None, stands });
        self.carry(now, outcome, said);
        standing
    }

    /// Takes the bytes of a fetch, of the version in their metadata, or absent. They were read when the home knew
    /// `noted`. `copy` makes the copy to be cached.
    pub(in crate::memory) fn found(
        &mut self,
        now: Monotonic,
        outcome: &mut Outcome,
        (shard, object): (ShardId, &ObjectId),
        (request, noted): (RequestId, EntryVersion),
        (version, absent): (Version, bool),
        copy: &mut dyn FnMut() -> Option<CostedCopy>,
    ) -> FetchOutcome {
        if self.is_early(shard, version) {
            return FetchOutcome::NewerThanHome(version);
        }
        let waits = |state: &Self| state.node.fetches.get(&request).is_some_and(|fetch| fetch.found.is_none());
        if waits(self) {
            // While the home waits for the store's answer, it forgets no entry of the object.
            if self.noted(shard, object) != noted {
                return FetchOutcome::Refetch;
            }
            self.home(now, outcome, shard, HomeInput::Loaded { object: object.clone(), absent });
        }
        if waits(self) {
            // The home no longer knows the fetch: another fetch of the object has failed at the store.
            self.node(now, outcome, |cache, out| cache.fetch_again(now, request, out));
            return FetchOutcome::Refetch;
        }
        let Some(fetch) = self.node.fetches.get_mut(&request) else { return FetchOutcome::Refetch };
        let Some((reply, _)) = fetch.found.take_if(|(_, then)| *then == noted) else { return FetchOutcome::Refetch };
        self.landing(now, outcome, request, reply, copy())
    }

    /// Takes the answer to a fetch, with the copy to be cached.
    pub(in crate::memory) fn landing(
        &mut self,
        now: Monotonic,
        outcome: &mut Outcome,
        request: RequestId,
        reply: Reply<ObjectId>,
        value: Option<CostedCopy>,
    ) -> FetchOutcome {
        // If the fetch is begun again meanwhile, its state changes.
        let mut stands = match self.node.fetches.get(&request) {
            Some(fetch) => fetch.stands.subscribe(),
            None => return FetchOutcome::Refetch,
        };
        self.receive(now, outcome, reply, value);
        if !stands.has_changed().unwrap_or(true) {
            return FetchOutcome::InstalledWhenCovered;
        }
        let landed = match &*stands.borrow_and_update() {
            RequestState::Done(stamp) => Some(stamp.clone()),
            // The cache has met a newer version meanwhile.
            RequestState::AskedLocalHome | RequestState::SendToHome(_) => None,
        };
        let Some(stamp) = landed else { return FetchOutcome::Refetch };
        self.node.fetches.remove(&request);
        FetchOutcome::Installed(stamp)
    }

    pub(in crate::memory) fn is_early(&self, shard: ShardId, version: Version) -> bool {
        let early = |side: &HomeSide| version.epoch == side.home.epoch() && !side.order.is_decided(version);
        self.homes.get(&shard).is_some_and(early)
    }

    /// Begins a write by a writer that has seen `token`. The writing task makes the append that the home wants.
    pub(in crate::memory) fn write(
        &mut self,
        now: Monotonic,
        outcome: &mut Outcome,
        (shard, object): (ShardId, &ObjectId),
        (write, token): (Write, Arc<Token>),
        done: Option<oneshot::Sender<Result<Stamp, PutFailure>>>,
    ) -> NewPut {
        let mut said = Vec::new();
        let request = self.node.cache.write(now, shard, object, write, token, &mut said);
        let (sender, stands) = watch::channel(RequestState::AskedLocalHome);
        // Inserted before the home gets the write.
        self.node.puts.insert(request, Put { shard, append: None, copy: None, done, stands: sender });
        self.carry(now, outcome, said);
        NewPut { request, append: self.node.puts.get(&request).and_then(|put| put.append), stands }
    }
}
