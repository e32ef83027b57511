//! The budget's limits, commands and reports. Pure.

use nigh_terms::ByteSize;

use crate::memory::slack::SlackBounds;

/// The memory to divide.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BudgetLimits {
    /// The most memory that all sandboxes may book.
    pub bookable: ByteSize,
    /// The cache's own part. If it is zero, the cache gets nothing of the sandboxes' part either.
    pub cache_own: ByteSize,
    /// The bounds of the slack, which is the part of the sandboxes' memory that the cache does not get.
    pub slack: SlackBounds,
}

/// The answer to a request for a higher limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RaiseOutcome {
    /// The limit that is granted now; the caller may set it.
    pub limit: ByteSize,
    /// The part of the request that is missing. It is granted when the cache has shrunk (`next`).
    pub missing: ByteSize,
}

/// What the shell must do for the budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command<S> {
    /// The cache's limit is this from now on. If it is lower than before, answer with `cache_has` once the cache has
    /// shrunk.
    Cache(ByteSize),
    /// Raise this sandbox's limit, which is granted already.
    Limit(S, ByteSize),
    /// End this idle sandbox, for this reason.
    End(S, &'static str),
}

/// Counts since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BudgetCounts {
    /// Number of limits raised for running sandboxes that came near theirs.
    pub grown: u64,
    /// Bytes by which the cache has shrunk.
    pub yielded: ByteSize,
    /// Number of limits that the kernel did not lower.
    pub refused: u64,
    /// Number of idle sandboxes ended for the growth of others, or because the cache uses their memory better.
    pub idle_ended: u64,
    /// Number of times that the cache's limit was raised.
    pub scale_up: u64,
    /// Number of times that the cache's limit was lowered.
    pub scale_down: u64,
}

/// The present division of the memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BudgetUse {
    /// The sum of all sandboxes' limits, pre-warmed ones included.
    pub granted: ByteSize,
    /// The cache's limit.
    pub cache: ByteSize,
    /// The cache's use at the last look.
    pub cache_takes: ByteSize,
    /// The slack: memory kept free for growth.
    pub slack: ByteSize,
    /// The free memory.
    pub room: ByteSize,
    /// The most that was granted within one second, in the last windows.
    pub churn: ByteSize,
    /// The counts since the start.
    pub counts: BudgetCounts,
}
