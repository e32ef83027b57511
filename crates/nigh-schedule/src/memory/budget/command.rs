//! What the budget is given, what it commands, and what it tells of itself. Pure.

use nigh_terms::ByteSize;

use crate::memory::slack::SlackBounds;

/// What is shared out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BudgetLimits {
    /// What sandboxes may book together.
    pub bookable: ByteSize,
    /// The cache's own part. If it is zero, the cache gets nothing of the sandboxes' part either.
    pub cache_own: ByteSize,
    /// The part of the sandboxes' memory that the cache does not get, for growth.
    pub slack: SlackBounds,
}

/// What a sandbox that asked for more gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RaiseOutcome {
    /// The limit that is granted now; the caller may set it.
    pub limit: ByteSize,
    /// What is still missing. It is granted when the cache has shrunk (`next`).
    pub missing: ByteSize,
}

/// What the budget has its shell do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command<S> {
    /// The cache may take so much from now on. If that is less than before, answer with `cache_has` once it has shrunk.
    Cache(ByteSize),
    /// Raise this sandbox's limit, which is granted already.
    Limit(S, ByteSize),
    /// End this idle sandbox, for this reason.
    End(S, &'static str),
}

/// What has happened since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BudgetCounts {
    /// Limits raised for running sandboxes that came near theirs.
    pub grown: u64,
    /// Bytes by which the cache has shrunk.
    pub yielded: ByteSize,
    /// Limits that the kernel did not lower.
    pub refused: u64,
    /// Idle sandboxes ended for the growth of others, or because the cache uses their memory better.
    pub idle_ended: u64,
    /// How often the cache grew.
    pub scale_up: u64,
    /// How often the cache had to shrink.
    pub scale_down: u64,
}

/// How the memory is shared out now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BudgetUse {
    /// The sum of all sandboxes' limits, pre-warmed ones included.
    pub granted: ByteSize,
    /// What the cache may take.
    pub cache: ByteSize,
    /// What it took at the last look.
    pub cache_takes: ByteSize,
    /// What is kept free for growth.
    pub slack: ByteSize,
    /// What is free now.
    pub room: ByteSize,
    /// The most that was granted within one second, in the last windows.
    pub churn: ByteSize,
    /// What has happened.
    pub counts: BudgetCounts,
}
