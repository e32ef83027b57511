//! The settings of workflows.

use nigh_terms::ByteSize;
use serde::{Deserialize, Serialize};

/// Executions of state machines.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WorkflowSettings {
    /// How many run at once; further ones are refused.
    pub running_max: usize,
    /// How many that ended are kept with their history; the oldest goes first.
    pub kept_max: usize,
    /// What those may take together.
    pub kept_bytes: ByteSize,
}

impl Default for WorkflowSettings {
    fn default() -> Self {
        Self { running_max: 10_000, kept_max: 10_000, kept_bytes: ByteSize::mib(1024) }
    }
}
