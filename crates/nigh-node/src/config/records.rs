//! What a node records for its operators: the audit trail, and the labels of metrics.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// The audit trail.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AuditSettings {
    /// The file to which one JSON object a line is appended for each request that manages functions, keys, buckets or the
    /// node, with the names of AWS CloudTrail; `stderr` for the standard error. If absent, nothing is recorded.
    pub file: Option<PathBuf>,
    /// Whether reads and writes of objects and invocations are recorded too.
    pub data: bool,
}

/// The metrics.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MetricsSettings {
    /// How many functions have labels of their own: those that are invoked most. The others are counted as `other`.
    pub functions: usize,
}

impl Default for MetricsSettings {
    fn default() -> Self {
        Self { functions: 100 }
    }
}
