//! The settings of workflows.

use nigh_terms::ByteSize;
use serde::{Deserialize, Serialize};

/// Executions of state machines.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WorkflowSettings {
    /// The most executions that run at a time; further ones are rejected.
    pub running_max: usize,
    /// The most ended executions that are stored with their history; the oldest are removed first.
    pub kept_max: usize,
    /// The most bytes of all stored histories.
    pub kept_bytes: ByteSize,
}

impl Default for WorkflowSettings {
    fn default() -> Self {
        Self { running_max: 10_000, kept_max: 10_000, kept_bytes: ByteSize::mib(1024) }
    }
}
