//! What each part of a node may take of its memory: the settings, and no more than fits the node. Pure.
//!
//! Slack and prewarmed sandboxes are there for sandboxes that run. On a small node they would leave little to these, so
//! each has at most an eighth of what sandboxes may book, whatever its setting says.

use nigh_schedule::memory::slack::SlackBounds;
use nigh_terms::ByteSize;

use crate::config::{Settings, Switch};

/// Of what sandboxes may book, for each of the slack and the prewarmed sandboxes: one in so many.
const SHARE: u64 = 8;
/// The slack begins with half of its share, and never falls below a quarter.
const SLACK_FIRST: u64 = 2 * SHARE;
const SLACK_LEAST: u64 = 4 * SHARE;
/// Of the cache's own part, so many fourths are lent to sandboxes when they need them.
const LENT_FOURTHS: u64 = 3;

/// The parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct MemoryShares {
    /// What is kept free for grants that are raised.
    pub(super) slack: SlackBounds,
    /// What prewarmed sandboxes may book.
    pub(super) prewarm_memory: ByteSize,
    /// What sandboxes may take of the cache's own part, when what is set aside for them is not enough.
    pub(super) lent_max: ByteSize,
    /// Processors, and so sandboxes that are made at once.
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
    use std::path::{Path, PathBuf};

    use super::*;
    use crate::machine::Machine;

    fn settings(memory: ByteSize) -> Settings {
        let machine = Machine { hostname: "here".to_owned(), memory, cpus: 2, python: PathBuf::from("python3") };
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
