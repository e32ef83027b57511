//! The memory of slack, pre-warmed sandboxes and the cache's loan: the settings, limited by the size of the node. Pure.
//!
//! Slack and pre-warmed sandboxes serve running sandboxes. On a small node they would leave little for these, so each
//! has at most an eighth of the memory for sandboxes, whatever its setting.

use nigh_schedule::memory::slack::SlackBounds;
use nigh_terms::ByteSize;

use crate::config::{Settings, Switch};

/// The slack, and pre-warmed sandboxes, each get at most the memory for sandboxes divided by this.
const SHARE: u64 = 8;
/// The slack starts at half of its share at most, and its least value is a quarter at most.
const SLACK_FIRST: u64 = 2 * SHARE;
const SLACK_LEAST: u64 = 4 * SHARE;
/// The fourths of its own memory that the cache lends to sandboxes.
const LENT_FOURTHS: u64 = 3;

/// The shares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct MemoryShares {
    /// The bounds of the slack.
    pub(super) slack: SlackBounds,
    /// The most memory that pre-warmed sandboxes may book.
    pub(super) prewarm_memory: ByteSize,
    /// The most memory that the cache lends to sandboxes when their own is not enough.
    pub(super) lent_max: ByteSize,
    /// Number of processors; at most as many sandboxes start at a time.
    pub(super) processors: usize,
}

impl MemoryShares {
    pub(super) fn of(settings: &Settings) -> Self {
        let (memory, booked) = (&settings.memory, settings.functions.memory);
        let part = |of: u64| ByteSize(booked.bytes() / of);
        let slack = SlackBounds {
            first: memory.slack.min(part(SLACK_FIRST)),
            min: memory.slack_min.min(part(SLACK_LEAST)),
            max: memory.slack_max.min(part(SHARE)),
        };
        let lent_max = match memory.grants {
            Switch::On => ByteSize(settings.cache.bytes.bytes() / 4 * LENT_FOURTHS),
            Switch::Off => ByteSize::ZERO,
        };
        Self {
            slack,
            prewarm_memory: settings.functions.prewarm_memory.min(part(SHARE)),
            lent_max,
            processors: std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::machine::Machine;

    fn settings(memory: ByteSize) -> Settings {
        let machine = Machine { hostname: "here".to_owned(), memory, cpus: 2 };
        Settings::defaults(Path::new("/state"), &machine)
    }

    #[test]
    fn on_a_small_node_slack_and_prewarmed_sandboxes_leave_most_to_what_runs() {
        let shares = MemoryShares::of(&settings(ByteSize::gib(2)));
        assert_eq!(shares.slack.max, ByteSize::mib(128));
        assert_eq!((shares.slack.first, shares.slack.min), (ByteSize::mib(64), ByteSize::mib(32)));
        assert_eq!(shares.prewarm_memory, ByteSize::mib(128));
    }

    #[test]
    fn on_a_large_node_they_have_what_was_set() {
        let large = settings(ByteSize::gib(256));
        let shares = MemoryShares::of(&large);
        assert_eq!((shares.slack.max, shares.slack.first), (large.memory.slack_max, large.memory.slack));
        assert_eq!(shares.prewarm_memory, large.functions.prewarm_memory);
    }

    #[test]
    fn a_cache_that_shares_nothing_lends_nothing() {
        let mut apart = settings(ByteSize::gib(8));
        assert_eq!(MemoryShares::of(&apart).lent_max.bytes(), apart.cache.bytes.bytes() / 4 * 3);
        apart.memory.grants = Switch::Off;
        assert_eq!(MemoryShares::of(&apart).lent_max, ByteSize::ZERO);
    }
}
