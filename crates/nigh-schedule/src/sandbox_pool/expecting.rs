//! Expected invocations, and the sandboxes that are made ahead of them. Pure.

use std::hash::Hash;
use std::sync::Arc;

use nigh_functions::function::Function;
use nigh_terms::{FunctionName, Monotonic, Namespace};

use super::SandboxPool;
use super::command::{ColdReason, Start, StartId};
use super::pool_state::PendingStart;
use super::room::RoomShortage;
use super::turns::begin_start;

impl<S: Clone + Eq + Hash> SandboxPool<S> {
    /// Records that an invocation of `function` may come. False if that is known already.
    pub fn expect(&mut self, namespace: &Namespace, function: &FunctionName) -> bool {
        let known = self.state.functions.entry((namespace.clone(), function.clone())).or_default();
        !std::mem::replace(&mut known.is_expected, true)
    }

    /// Records that the invocation is no longer expected.
    pub fn expect_no_more(&mut self, namespace: &Namespace, function: &FunctionName) {
        if let Some(known) = self.state.functions.get_mut(&(namespace.clone(), function.clone())) {
            known.is_expected = false;
        }
    }

    /// Starts a sandbox of `function` for an expected invocation, if none is idle or being made, nobody waits, and there is free
    /// room.
    pub fn start_ahead(&mut self, function: &Arc<Function>, now: Monotonic) -> Option<Start<S>> {
        let state = &mut self.state;
        let is_free = state.lack(function, None).is_some_and(RoomShortage::is_none);
        let wants =
            state.of(function).is_expected && state.warmest(function).is_none() && state.making_of(function, now) == 0;
        let may = !self.closed && self.queue.is_empty() && state.may_start(&function.namespace, now);
        if !(is_free && wants && may) {
            return None;
        }
        self.starts += 1;
        let id = StartId(self.starts);
        begin_start(state, id, PendingStart { function: Arc::clone(function), since: now, is_ahead: true });
        let (function, after) = (Arc::clone(function), Vec::new());
        Some(Start { id, function, ticket: None, after, reason: ColdReason::Ahead })
    }
}
