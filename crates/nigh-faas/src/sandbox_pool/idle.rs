//! The idle sandboxes of a node, in the order in which they became idle. Pure.

use std::collections::VecDeque;
use std::sync::Arc;

use nigh_terms::{ByteSize, Monotonic};

use crate::dispatch::WarmFunction;
use crate::function::Function;
use crate::keep_alive::Idle;

struct IdleSandbox<S> {
    sandbox: S,
    function: Arc<Function>,
    since: Monotonic,
}

/// Idle sandboxes, the one idle longest first.
pub(super) struct IdleSandboxes<S>(VecDeque<IdleSandbox<S>>);

impl<S: PartialEq> IdleSandboxes<S> {
    pub(super) const fn new() -> Self {
        Self(VecDeque::new())
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// What all of them book.
    pub(super) fn booked(&self) -> ByteSize {
        self.0.iter().map(|one| one.function.memory).sum()
    }

    /// How many are of this version of a function.
    pub(super) fn of(&self, function: &Function) -> usize {
        self.0.iter().filter(|one| one.function.same_version(function)).count()
    }

    /// As the keep-alive decisions see them.
    pub(super) fn views(&self) -> Vec<Idle> {
        self.0.iter().map(|one| Idle { since: one.since, booked: one.function.memory }).collect()
    }

    /// Their functions, each version once.
    pub(super) fn functions(&self) -> Vec<Arc<Function>> {
        let mut functions: Vec<Arc<Function>> = Vec::new();
        for one in &self.0 {
            if !functions.iter().any(|known| known.same_version(&one.function)) {
                functions.push(Arc::clone(&one.function));
            }
        }
        functions
    }

    /// How many there are of each version of a function, and for how long the last one has been idle.
    pub(super) fn warm(&self, now: Monotonic) -> Vec<WarmFunction> {
        let mut all: Vec<WarmFunction> = Vec::new();
        for one in self.0.iter().rev() {
            let Function { namespace, name, revision_id, memory, .. } = &*one.function;
            let is_known = |known: &&mut WarmFunction| {
                (&known.namespace, &known.function, &known.revision) == (namespace, name, revision_id)
            };
            match all.iter_mut().find(is_known) {
                Some(known) => known.sandboxes += 1,
                None => all.push(WarmFunction {
                    namespace: namespace.clone(),
                    function: name.clone(),
                    revision: revision_id.clone(),
                    sandboxes: 1,
                    granted: *memory,
                    idle_for: now.since(one.since),
                    ways: 0,
                }),
            }
        }
        all
    }

    /// `sandbox` is idle since `since`, which is no earlier than any other's.
    pub(super) fn keep(&mut self, sandbox: S, function: Arc<Function>, since: Monotonic) {
        self.0.push_back(IdleSandbox { sandbox, function, since });
    }

    /// Takes out the one of this version that was used last.
    pub(super) fn take_warmest(&mut self, function: &Function) -> Option<S> {
        let warmest = self.0.iter().rposition(|one| one.function.same_version(function))?;
        self.0.remove(warmest).map(|one| one.sandbox)
    }

    /// The one that `take_warmest` would take.
    pub(super) fn warmest(&self, function: &Function) -> Option<&S> {
        self.0.iter().rev().find(|one| one.function.same_version(function)).map(|one| &one.sandbox)
    }

    /// Takes `sandbox` out. False if it is not idle.
    pub(super) fn take(&mut self, sandbox: &S) -> bool {
        let before = self.0.len();
        self.0.retain(|one| one.sandbox != *sandbox);
        self.0.len() < before
    }

    /// Takes out the `count` that are idle longest.
    pub(super) fn take_oldest(&mut self, count: usize) -> Vec<S> {
        self.0.drain(..count).map(|one| one.sandbox).collect()
    }

    /// Takes out those of whose function `is_one` says so.
    pub(super) fn take_those(&mut self, is_one: impl Fn(&Function) -> bool) -> impl Iterator<Item = S> {
        let (taken, kept): (VecDeque<_>, _) =
            std::mem::take(&mut self.0).into_iter().partition(|one| is_one(&one.function));
        self.0 = kept;
        taken.into_iter().map(|one| one.sandbox)
    }
}
