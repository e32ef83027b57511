//! The settings of workflows.

use nigh_terms::ByteSize;
use serde::{Deserialize, Serialize};

/// Executions of state machines.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WorkflowSettings {
    /// How many of a namespace run at once; further ones are rejected.
    pub running_max: usize,
    /// How many ended executions are kept with their history. Beyond that, the oldest of the namespace with the most are
    /// removed.
    pub kept_max: usize,
    /// The most bytes of all stored histories.
    pub kept_bytes: ByteSize,
}

impl Default for WorkflowSettings {
    fn default() -> Self {
        Self { running_max: 10_000, kept_max: 10_000, kept_bytes: ByteSize::mib(1024) }
    }
}
