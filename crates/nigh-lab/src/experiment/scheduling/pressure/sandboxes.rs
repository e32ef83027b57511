//! The sandboxes that a policy has, and those of them that are idle in the order in which they became so.

use std::collections::{BTreeMap, VecDeque};

use nigh_terms::Monotonic;

use super::policy::SandboxNo;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct IdleSandbox {
    pub(super) sandbox: SandboxNo,
    pub(super) function: usize,
    pub(super) since: Monotonic,
}

#[derive(Debug, Default)]
pub(super) struct Sandboxes {
    next: u32,
    /// The function of each, from its promise until its end is asked for.
    functions: BTreeMap<SandboxNo, usize>,
    /// The one idle longest first.
    idle: VecDeque<IdleSandbox>,
}

impl Sandboxes {
    pub(super) fn make(&mut self, function: usize) -> SandboxNo {
        self.next += 1;
        self.functions.insert(SandboxNo(self.next), function);
        SandboxNo(self.next)
    }

    /// One is idle from `since` on.
    pub(super) fn keep(&mut self, sandbox: SandboxNo, since: Monotonic) {
        if let Some(&function) = self.functions.get(&sandbox) {
            self.idle.push_back(IdleSandbox { sandbox, function, since });
        }
    }

    /// The idle one of a function that was used last.
    pub(super) fn warmest(&self, function: usize) -> Option<SandboxNo> {
        self.idle.iter().rev().find(|one| one.function == function).map(|one| one.sandbox)
    }

    /// One is idle no longer: it runs.
    pub(super) fn take(&mut self, sandbox: SandboxNo) {
        self.idle.retain(|one| one.sandbox != sandbox);
    }

    /// An idle one ends. True if its function has none left.
    pub(super) fn end(&mut self, sandbox: SandboxNo) -> bool {
        self.take(sandbox);
        let function = self.functions.remove(&sandbox);
        !self.functions.values().any(|of| Some(*of) == function)
    }

    /// The idle ones, the one idle longest first.
    pub(super) fn idle(&self) -> impl DoubleEndedIterator<Item = IdleSandbox> {
        self.idle.iter().copied()
    }

    pub(super) fn function(&self, sandbox: SandboxNo) -> Option<usize> {
        self.functions.get(&sandbox).copied()
    }
}
