//! The node's memory: how sandboxes and the cache share it, and what is learned of what invocations need.

use std::path::PathBuf;

use nigh_invoke::node_memory::IdleMemory;
use nigh_learn::{Interval, Learner, LinTree};
use nigh_terms::ByteSize;
use serde::{Deserialize, Serialize};

use super::Switch;

/// What is done with what was learned of the memory that invocations need.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Sizing {
    /// It is granted.
    On,
    /// It is learned and said, and what is booked is granted.
    Watch,
    /// Nothing is learned.
    Off,
}

/// Models of memory by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MemoryLearner {
    /// A line, a tree and a margin.
    Lintree,
    /// OFC's tree of intervals.
    J48,
    /// The same, granting the next interval up.
    J48Next,
}

impl MemoryLearner {
    /// The learner of that name.
    pub(crate) const fn learner(self) -> Learner {
        match self {
            Self::Lintree => Learner::LinTree { margin_share: LinTree::MARGIN_SHARE },
            Self::J48 => Learner::J48 { interval: Interval::OFC, next_interval_up: false },
            Self::J48Next => Learner::J48 { interval: Interval::OFC, next_interval_up: true },
        }
    }
}

/// The node's memory: `functions.memory` and `cache.bytes` together.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MemorySettings {
    /// Whether the cache has what sandboxes booked and are not granted. Else each has a budget of its own.
    pub grants: Switch,
    /// What is kept free at first, for grants that are raised.
    pub slack: ByteSize,
    /// At least,
    pub slack_min: ByteSize,
    /// and at most, while it follows how much is raised.
    pub slack_max: ByteSize,
    /// Whether the kernel holds a sandbox to its grant where a system call may fail for it (cgroup v1).
    pub park: Switch,
    /// What becomes of the memory of idle sandboxes.
    pub idle: IdleMemory,
    /// Whether runs are sized by what was learned.
    pub sizing: Sizing,
    /// Objects that an application will probably read are brought into memory when it starts.
    pub prefetch: Switch,
    /// How models are fitted.
    pub learner: MemoryLearner,
    /// Whether headers of stored objects are looked at (docs/design/learning.md).
    pub features: Switch,
    /// What the features of objects may take in memory, and as much in the state file.
    pub features_memory: ByteSize,
    /// The program that looks at headers; beside `nigh` if absent.
    pub features_program: Option<PathBuf>,
}

impl Default for MemorySettings {
    fn default() -> Self {
        Self {
            grants: Switch::On,
            slack: ByteSize::mib(100),
            slack_min: ByteSize::mib(32),
            slack_max: ByteSize::gib(1),
            park: Switch::On,
            idle: IdleMemory::Keep,
            sizing: Sizing::On,
            prefetch: Switch::On,
            learner: MemoryLearner::Lintree,
            features: Switch::On,
            features_memory: ByteSize::mib(16),
            features_program: None,
        }
    }
}
