//! The free capacity that a node reports: the base of its `NodeView`.

use std::time::Duration;

use nigh_terms::{ByteSize, FunctionName, Namespace};
use serde::{Deserialize, Serialize};

/// The sandboxes of one version of a function.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WarmFunction {
    /// The function's namespace.
    pub namespace: Namespace,
    /// The function's name.
    pub function: FunctionName,
    /// The version: `Function::revision_id`.
    pub revision: String,
    /// Number of idle sandboxes.
    pub sandboxes: u32,
    /// Number of busy sandboxes.
    #[serde(default)]
    pub busy: u32,
    /// The grant of the one used last.
    pub granted: ByteSize,
    /// How long the one used last has been idle; zero if none is.
    pub idle_for: Duration,
    /// Number of last-level cache ways that its last run was predicted to need; 0 if unknown.
    #[serde(default)]
    pub ways: u8,
}

/// The free capacity of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Vacancy {
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
    /// Number of invocations that run.
    pub running: u32,
    /// Number of invocations that wait, and of sandboxes that are being made.
    #[serde(default)]
    pub waiting: u32,
    /// Number of invocations that may be added before the node's limit.
    pub invocations_free: u32,
    /// Number of processors that invocations share.
    pub processors: u16,
    /// Number of last-level cache ways that no sensitive running invocation is predicted to need.
    pub ways_free: u8,
    /// The restart cost of the idle sandbox that would end next, in microseconds.
    #[serde(default)]
    pub evict_us: u64,
    /// The duration of a cold start, in microseconds.
    #[serde(default)]
    pub start_us: u64,
    /// The sandboxes of each function.
    pub warm: Vec<WarmFunction>,
}
