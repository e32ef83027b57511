//! What a node says of its room: for `NodeView`.

use std::time::Duration;

use nigh_terms::{ByteSize, FunctionName, Namespace};
use serde::{Deserialize, Serialize};

/// The sandboxes of one version of a function.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WarmFunction {
    /// Its tenant.
    pub namespace: Namespace,
    /// Its name.
    pub function: FunctionName,
    /// The version: `Function::revision_id`.
    pub revision: String,
    /// How many are idle.
    pub sandboxes: u32,
    /// How many run.
    #[serde(default)]
    pub busy: u32,
    /// What the one used last has of memory.
    pub granted: ByteSize,
    /// How long that one has been idle; nothing if none is.
    pub idle_for: Duration,
    /// Last-level cache ways that its last run was predicted to need; 0 if nothing is known.
    #[serde(default)]
    pub ways: u8,
}

/// What is free at a node. See `NodeView`, whose part it is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Vacancy {
    /// Idle sandboxes of all functions.
    pub idle: u32,
    /// Memory that sandboxes may book together while they run or are being made.
    pub memory: ByteSize,
    /// The part of it that one more may book without that an idle one ends.
    pub memory_free: ByteSize,
    /// What it may book beside that once idle ones have ended.
    pub memory_idle: ByteSize,
    /// Sandboxes that may be added before the node's limit.
    pub sandboxes_free: u32,
    /// Invocations that run.
    pub running: u32,
    /// Invocations that wait there, and sandboxes that are being made.
    #[serde(default)]
    pub waiting: u32,
    /// Invocations that may be added before the node's limit.
    pub invocations_free: u32,
    /// Processors that invocations share.
    pub processors: u16,
    /// Last-level cache ways that no sensitive invocation which runs is predicted to need.
    pub ways_free: u8,
    /// What it costs to end the idle sandbox that would end next: its function's next start, as likely as that is.
    #[serde(default)]
    pub evict_us: u64,
    /// How long a start takes there.
    #[serde(default)]
    pub start_us: u64,
    /// The sandboxes by function.
    pub warm: Vec<WarmFunction>,
}
