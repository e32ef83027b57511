//! How a node's memory is shared out, for people.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use nigh_schedule::memory::budget::BudgetLimits;
use nigh_terms::{ByteSize, SandboxId};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::NodeMemory;

/// How a node's memory is shared out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct MemoryStatus {
    /// What sandboxes may book together.
    pub booked: ByteSize,
    /// The cache's own part beside that. `granted + cache_takes <= booked + cache_own`, always.
    pub cache_own: ByteSize,
    /// What the sandboxes' limits come to, prewarmed ones included.
    pub granted: ByteSize,
    /// What the cache may take now.
    pub cache: ByteSize,
    /// What it takes.
    pub cache_takes: ByteSize,
    /// What is to be kept free for grants that are raised.
    pub slack: ByteSize,
    /// What is free now.
    pub room: ByteSize,
    /// The most that was granted within one second, of the last windows of a minute.
    pub churn: ByteSize,
    /// Since the start: limits raised for sandboxes that came near theirs,
    pub grown: u64,
    /// bytes that the cache has given way by,
    pub yielded: ByteSize,
    /// limits that the kernel did not lower,
    pub refused: u64,
    /// idle sandboxes ended so that others could grow,
    pub idle_ended: u64,
    /// invocations that were ended for want of memory,
    pub killed: u64,
    /// invocations that were run again because their limit was below what they booked,
    pub retried: u64,
    /// times that the cache got more,
    pub scale_up: u64,
    /// and times that it had to give way.
    pub scale_down: u64,
}

/// The memory of one sandbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SandboxShare {
    /// Its limit now.
    pub limit: ByteSize,
    /// What it uses now; none if that cannot be read.
    pub used: Option<ByteSize>,
}

impl NodeMemory {
    /// The memory of sandbox `id`, read now; none if there is no such sandbox, or the memory is not shared out.
    #[must_use]
    pub fn sandbox(&self, id: SandboxId) -> Option<SandboxShare> {
        let one = Arc::clone(self.0.as_ref()?.sandboxes.lock().get(&id)?);
        let used = one.sandbox().and_then(|sandbox| sandbox.memory().used().ok());
        let limit = one.held.lock().limit;
        Some(SandboxShare { limit, used })
    }

    /// How the memory is shared out; None where it is not (`off`).
    #[must_use]
    pub fn status(&self) -> Option<MemoryStatus> {
        let inner = self.0.as_ref()?;
        let (used, cache_takes) = {
            // Together: the cache gets more under this lock alone.
            let budget = inner.budget.lock();
            (budget.in_use(), inner.cache.takes())
        };
        let BudgetLimits { bookable, cache_own, .. } = inner.settings.limits;
        Some(MemoryStatus {
            booked: bookable,
            cache_own,
            granted: used.granted,
            cache: used.cache,
            cache_takes,
            slack: used.slack,
            room: used.room,
            churn: used.churn,
            grown: used.counts.grown,
            yielded: used.counts.yielded,
            refused: used.counts.refused,
            idle_ended: used.counts.idle_ended,
            killed: inner.killed.load(Ordering::Relaxed),
            retried: inner.retried.load(Ordering::Relaxed),
            scale_up: used.counts.scale_up,
            scale_down: used.counts.scale_down,
        })
    }
}
