//! The node's writes at the machines, from their begin to the copy that stays.

use std::sync::Arc;

use nigh_data::{ObjectError, ObjectId};
use nigh_protocol::{AppendId, PutFailure, RequestId, Stamp, Write};
use nigh_terms::{Monotonic, Token, Version};
use tokio::sync::{oneshot, watch};

use super::{Coherence, too_much};
use crate::cache::CostedCopy;
use crate::memory::machines::{NewPut, RequestState};

/// A write that has begun.
pub(in crate::memory) struct BegunWrite {
    pub(in crate::memory) request: RequestId,
    /// The append that the home wants; none if the home is elsewhere, or refuses.
    pub(in crate::memory) append: Option<AppendId>,
    pub(in crate::memory) stands: watch::Receiver<RequestState>,
    pub(in crate::memory) done: oneshot::Receiver<Result<Stamp, PutFailure>>,
    /// The copy that was cached before; none if there was none.
    pub(in crate::memory) before: Option<CostedCopy>,
}

impl Coherence {
    /// Begins a write by a writer that has seen `token` and has the object's write lock.
    pub(in crate::memory) fn write(
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
        // A write that begins drops its object's copy, and nothing else.
        let before = dropped.pop();
        Ok((BegunWrite { request, append, stands, done, before }, dropped))
    }

    /// Caches a copy of what another node has written at a home here as `version`.
    pub(in crate::memory) fn adopt(
        &self,
        now: Monotonic,
        object: &ObjectId,
        version: Version,
        copy: CostedCopy,
    ) -> Vec<CostedCopy> {
        self.step(|state, outcome| state.adopt(now, outcome, self.placed(object), version, copy)).1
    }

    /// Abandons a write that was sent to no home, so it does not take place.
    pub(in crate::memory) fn withdraw_write(&self, request: RequestId) {
        let mut state = self.state.lock();
        state.node.puts.remove(&request);
        state.node.cache.abandon_put(request);
    }

    /// Leaves the copy to be cached when the home is told of the write; its room is reserved.
    pub(in crate::memory) fn deposit(&self, request: RequestId, copy: CostedCopy) {
        let mut state = self.state.lock();
        match state.node.puts.get_mut(&request) {
            Some(put) => put.copy = Some(copy),
            None => state.node.cache.copies_mut().release(copy.cost),
        }
    }

    /// Takes back the copy of a write that is committed but not to be cached.
    pub(in crate::memory) fn withdraw(&self, request: RequestId) -> Vec<CostedCopy> {
        let mut state = self.state.lock();
        let copy = state.node.puts.get_mut(&request).and_then(|put| put.copy.take());
        if let Some(copy) = &copy {
            state.node.cache.copies_mut().release(copy.cost);
        }
        copy.into_iter().collect()
    }
}
