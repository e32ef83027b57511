//! How many invocations run, of which function, and how many may. Pure.
//!
//! Reserved concurrency is Lambda's (developer guide, "Configuring reserved concurrency"): what is reserved for a
//! function is its alone, and it has no more; all others share the rest.

use std::collections::HashMap;

use nigh_functions::function::Function;
use nigh_terms::{FunctionName, Namespace};

/// A function of a tenant.
pub(super) type FunctionKey = (Namespace, FunctionName);

pub(super) fn which(function: &Function) -> FunctionKey {
    (function.namespace.clone(), function.name.clone())
}

/// The running invocations of a node.
#[derive(Debug, Default)]
pub(super) struct Concurrency {
    all: usize,
    /// Functions of which none runs are not listed.
    running: HashMap<FunctionKey, usize>,
    reserved: HashMap<FunctionKey, usize>,
}

impl Concurrency {
    pub(super) const fn all(&self) -> usize {
        self.all
    }

    pub(super) fn began(&mut self, function: &Function) {
        self.all += 1;
        *self.running.entry(which(function)).or_default() += 1;
    }

    pub(super) fn ended(&mut self, function: &Function) {
        debug_assert!(self.all > 0, "an invocation ended that had not begun");
        self.all = self.all.saturating_sub(1);
        let which = which(function);
        if let Some(running) = self.running.get_mut(&which) {
            *running = running.saturating_sub(1);
            if *running == 0 {
                self.running.remove(&which);
            }
        }
    }

    pub(super) fn set_reserved(&mut self, namespace: &Namespace, function: &FunctionName, concurrency: Option<usize>) {
        let which = (namespace.clone(), function.clone());
        match concurrency {
            Some(concurrency) => drop(self.reserved.insert(which, concurrency)),
            None => drop(self.reserved.remove(&which)),
        }
    }

    /// The reserve of `function`, if all of it runs or is waited for by the `waiting` that wait.
    pub(super) fn reserve_in_use(&self, function: &Function, waiting: usize) -> Option<usize> {
        if self.reserved.is_empty() {
            return None;
        }
        let which = which(function);
        let reserved = *self.reserved.get(&which)?;
        (self.running_of(&which) + waiting >= reserved).then_some(reserved)
    }

    /// How many invocations of `function` may be added where `limit` may run.
    pub(super) fn free(&self, function: &Function, limit: usize) -> usize {
        let free = limit.saturating_sub(self.all);
        if self.reserved.is_empty() {
            return free;
        }
        let own = which(function);
        if let Some(reserved) = self.reserved.get(&own) {
            return reserved.saturating_sub(self.running_of(&own)).min(free);
        }
        // Of each reserve that part is kept free which does not run.
        let kept: usize =
            self.reserved.iter().map(|(which, reserved)| reserved.saturating_sub(self.running_of(which))).sum();
        free.saturating_sub(kept)
    }

    fn running_of(&self, which: &FunctionKey) -> usize {
        self.running.get(which).copied().unwrap_or_default()
    }
}
