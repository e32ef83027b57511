//! The node's memory: how sandboxes and the cache share it, and how models set grants.

use std::path::PathBuf;

use nigh_invoke::node_memory::IdleMemory;
use nigh_learn::{Interval, Learner, LinTree};
use nigh_terms::ByteSize;
use serde::{Deserialize, Serialize};

use super::Switch;

/// How memory models are used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Sizing {
    /// A run's grant is the model's prediction.
    On,
    /// Models are learned and shown; a run's grant is its booking.
    Watch,
    /// Nothing is learned.
    Off,
}

/// The names of memory models.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MemoryLearner {
    /// A line, a tree and a margin.
    Lintree,
    /// OFC's tree of intervals.
    J48,
    /// OFC's tree of intervals, with the next higher interval as the grant.
    J48Next,
}

impl MemoryLearner {
    /// The learner with this name.
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
    /// Whether the cache may use memory that sandboxes have booked but not been granted.
    pub grants: Switch,
    /// The slack at the start: the memory kept free for growth.
    pub slack: ByteSize,
    /// The least slack.
    pub slack_min: ByteSize,
    /// The most slack. The slack follows the growth.
    pub slack_max: ByteSize,
    /// Whether the kernel limits a sandbox to its grant on cgroup v1, where a system call may fail at the limit.
    pub park: Switch,
    /// What is done with the memory of idle sandboxes: `keep`, or `reclaim`: the kernel takes it.
    pub idle: IdleMemory,
    /// Whether models set grants.
    pub sizing: Sizing,
    /// When an application starts, prefetch objects that it will probably read.
    pub prefetch: Switch,
    /// The kind of model.
    pub learner: MemoryLearner,
    /// Whether headers of stored objects are read (docs/design/learning.md).
    pub features: Switch,
    /// The memory for features of objects; they may take as much of the state file.
    pub features_memory: ByteSize,
    /// The program that reads headers; if absent, `nigh-features` beside `nigh`.
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
