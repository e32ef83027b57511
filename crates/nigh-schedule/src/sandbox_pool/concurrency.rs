//! Counts the running invocations of each function, and limits them. Pure.
//!
//! Reserved concurrency is Lambda's (developer guide, "Configuring reserved concurrency"): a function's reservation is
//! for it alone, and it gets no more; all others share the rest.

use std::collections::HashMap;

use nigh_functions::function::Function;
use nigh_terms::{FunctionName, Namespace, invariant};

/// A function of a namespace.
pub(super) type FunctionKey = (Namespace, FunctionName);

pub(super) fn which(function: &Function) -> FunctionKey {
    (function.namespace.clone(), function.name.clone())
}

/// The running invocations of a node.
#[derive(Debug, Default)]
pub(super) struct Concurrency {
    all: usize,
    /// Functions without a running invocation have no entry.
    running: HashMap<FunctionKey, usize>,
    reserved: HashMap<FunctionKey, usize>,
}

impl Concurrency {
    pub(super) const fn all(&self) -> usize {
        self.all
    }

    pub(super) fn began(&mut self, function: &Function, limit: usize) {
        self.all += 1;
        // `run_in` gives no turn when `limit` run.
        invariant!(self.all <= limit, "{} invocations run, and {limit} may", self.all);
        *self.running.entry(which(function)).or_default() += 1;
    }

    pub(super) fn ended(&mut self, function: &Function) {
        let which = which(function);
        let running = self.running.get(&which).copied().unwrap_or_default();
        // `RunGuard` reports each end once.
        invariant!(running > 0 && self.all >= running, "{which:?} ends: {running} of {} run", self.all);
        self.all -= 1;
        if running == 1 {
            self.running.remove(&which);
        } else {
            self.running.insert(which, running - 1);
        }
    }

    pub(super) fn set_reserved(&mut self, namespace: &Namespace, function: &FunctionName, concurrency: Option<usize>) {
        let which = (namespace.clone(), function.clone());
        match concurrency {
            Some(concurrency) => drop(self.reserved.insert(which, concurrency)),
            None => drop(self.reserved.remove(&which)),
        }
    }

    /// The reserved concurrency of `function`, if its running and `waiting` invocations use all of it.
    pub(super) fn reserve_in_use(&self, function: &Function, waiting: usize) -> Option<usize> {
        if self.reserved.is_empty() {
            return None;
        }
        let which = which(function);
        let reserved = *self.reserved.get(&which)?;
        (self.running_of(&which) + waiting >= reserved).then_some(reserved)
    }

    /// How many more invocations of `function` may run, if `limit` may run in total.
    pub(super) fn free(&self, function: &Function, limit: usize) -> usize {
        let free = limit.saturating_sub(self.all);
        if self.reserved.is_empty() {
            return free;
        }
        let own = which(function);
        if let Some(reserved) = self.reserved.get(&own) {
            return reserved.saturating_sub(self.running_of(&own)).min(free);
        }
        // The unused part of each reserve is kept free.
        let kept: usize =
            self.reserved.iter().map(|(which, reserved)| reserved.saturating_sub(self.running_of(which))).sum();
        free.saturating_sub(kept)
    }

    fn running_of(&self, which: &FunctionKey) -> usize {
        self.running.get(which).copied().unwrap_or_default()
    }
}
