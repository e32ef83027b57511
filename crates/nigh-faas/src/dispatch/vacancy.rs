//! What a node says of its room: for `NodeView`.

use std::time::Duration;

use nigh_terms::{ByteSize, FunctionName, Namespace};
use serde::{Deserialize, Serialize};

/// The idle sandboxes of one version of a function.
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
    /// What the one used last has of memory.
    pub granted: ByteSize,
    /// How long that one has been idle.
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
    /// Memory that all sandboxes together may book.
    pub memory: ByteSize,
    /// The part of it that new sandboxes may book.
    pub memory_free: ByteSize,
    /// Memory of idle sandboxes that may be ended to make room.
    pub memory_idle: ByteSize,
    /// Sandboxes that may be added before the node's limit.
    pub sandboxes_free: u32,
    /// Invocations that run.
    pub running: u32,
    /// Invocations that may be added before the node's limit.
    pub invocations_free: u32,
    /// Processors that invocations share.
    pub processors: u16,
    /// Last-level cache ways that no sensitive invocation which runs is predicted to need.
    pub ways_free: u8,
    /// The idle sandboxes by function.
    pub warm: Vec<WarmFunction>,
}
