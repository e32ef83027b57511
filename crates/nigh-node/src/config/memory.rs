//! The node's memory: how sandboxes and the cache share it, and how models size runs.

use std::path::PathBuf;

use nigh_invoke::node_memory::IdleMemory;
use nigh_learn::{Interval, Learner, LinTree};
use nigh_terms::ByteSize;
use serde::{Deserialize, Serialize};

use super::Switch;

/// How models of memory are used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Sizing {
    /// Runs are granted what the model predicts.
    On,
    /// Models are learned and shown; runs are granted their booking.
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
    /// OFC's tree of intervals, granting the next interval up.
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
    /// Whether the cache may use memory that sandboxes booked and are not granted.
    pub grants: Switch,
    /// The slack at the start: memory kept free for growth.
    pub slack: ByteSize,
    /// The least slack.
    pub slack_min: ByteSize,
    /// The most slack; it follows the growth.
    pub slack_max: ByteSize,
    /// Whether the kernel limits a sandbox to its grant on cgroup v1, where a system call may fail at the limit.
    pub park: Switch,
    /// What happens to the memory of idle sandboxes.
    pub idle: IdleMemory,
    /// Whether models size runs.
    pub sizing: Sizing,
    /// Prefetch objects that an application will probably read when it starts.
    pub prefetch: Switch,
    /// How models are fitted.
    pub learner: MemoryLearner,
    /// Whether headers of stored objects are read (docs/design/learning.md).
    pub features: Switch,
    /// How much memory the features of objects may take; they may take as much of the state file.
    pub features_memory: ByteSize,
    /// The program that reads headers; `nigh-features` beside `nigh` if absent.
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
