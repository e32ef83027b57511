//! What the scheduler knows of a node, and why a node may not run an invocation.

use nigh_terms::{ByteSize, Incarnation};

use super::Fingerprint;
use super::placement::{Placement, WarmSandboxes};

/// A node's index in the scheduler's list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeIndex(pub u16);

/// What a node may run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum NodeRole {
    /// The node runs invocations.
    #[default]
    Worker,
    /// The node caches objects for others and runs no invocations.
    MemoryOnly,
    /// The node lets running invocations end and accepts no new ones.
    Draining,
}

/// What the scheduler knows of a node, for any placement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeView {
    /// The node's incarnation, which a dispatch names.
    pub incarnation: Incarnation,
    /// The fingerprint of its name: it gives each function an order of nodes.
    pub name: Fingerprint,
    /// What the node may run.
    pub role: NodeRole,
    /// The number of shards in which it has not shown that it covers the dispatch's token (`coverage_board`).
    pub shards_behind: u16,
    /// Number of idle sandboxes of all functions.
    pub idle: u32,
    /// Memory that sandboxes may book together while they run or are being made.
    pub memory: ByteSize,
    /// The part of it that a new sandbox may book without ending an idle one.
    pub memory_free: ByteSize,
    /// What a new sandbox may book in addition once idle ones have ended.
    pub memory_idle: ByteSize,
    /// Number of sandboxes that may be added before the node's limit.
    pub sandboxes_free: u32,
    /// Number of invocations that run or wait there, and of sandboxes that are being made.
    pub running: u32,
    /// Number of invocations that may be added before the node's limit.
    pub invocations_free: u32,
    /// Number of processors that invocations share.
    pub processors: u16,
    /// Number of last-level cache ways that no isolated class has; all of them if there is no allocation.
    pub ways_free: u8,
    /// The restart cost of the idle sandbox that would end next, in microseconds.
    pub evict_us: u64,
    /// The duration of a cold start there, in microseconds; 0 if unknown.
    pub start_us: u64,
}

/// Why a node does not run an invocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Refusal {
    /// The node only caches objects, or it drains.
    RunsNothing,
    /// The node has not shown that it covers the dispatch's token.
    Behind,
    /// The node runs its most invocations already.
    Busy,
    /// The node has its most sandboxes already, and none of them is idle.
    Crowded,
    /// The node has too little memory, even after its idle sandboxes end.
    Full,
}

impl Refusal {
    /// All reasons, in the order in which they are checked.
    pub const ALL: [Self; 5] = [Self::RunsNothing, Self::Behind, Self::Busy, Self::Crowded, Self::Full];

    /// The reason in words, after "the node".
    #[must_use]
    pub const fn reason(self) -> &'static str {
        match self {
            Self::RunsNothing => "lends memory only, or drains",
            Self::Behind => "has not applied all that the invocation's caller has seen",
            Self::Busy => "runs as many invocations as it may",
            Self::Crowded => "has as many sandboxes as it may, none of them idle",
            Self::Full => "has not enough memory beside the running sandboxes",
        }
    }
}

/// How a node would run an invocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Offer {
    /// In an idle sandbox of its function.
    Warm,
    /// In a new sandbox.
    Cold,
    /// In a new sandbox, once idle ones have ended for it.
    Evict,
}

impl NodeView {
    /// How this node would run `placement`; `warm` are its idle sandboxes of the function.
    pub(super) fn offer(&self, placement: &Placement<'_>, warm: Option<&WarmSandboxes>) -> Result<Offer, Refusal> {
        if self.role != NodeRole::Worker {
            return Err(Refusal::RunsNothing);
        }
        if self.shards_behind > 0 {
            return Err(Refusal::Behind);
        }
        if self.invocations_free == 0 {
            return Err(Refusal::Busy);
        }
        if warm.is_some_and(|warm| warm.sandboxes > 0) {
            return Ok(Offer::Warm);
        }
        if self.sandboxes_free > 0 && self.memory_free >= placement.booked {
            return Ok(Offer::Cold);
        }
        if self.sandboxes_free == 0 && self.idle == 0 {
            return Err(Refusal::Crowded);
        }
        if self.memory_free + self.memory_idle < placement.booked {
            return Err(Refusal::Full);
        }
        Ok(Offer::Evict)
    }
}
