//! Which idle sandboxes end, and when: pure.
//!
//! An idle sandbox lives for `idle_for` after its last response; if more than `idle_max` are idle, the longest idle end
//! first. A frozen sandbox takes only the memory that it uses, so it is kept longer than elsewhere (Lambda and
//! OpenWhisk: about ten minutes). `sandbox_pool` decides which sandboxes end because others need their room.

use std::time::Duration;

use nigh_terms::Monotonic;

/// How long idle sandboxes live.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeepAlive {
    /// How long after its last response an idle sandbox ends.
    pub idle_for: Duration,
    /// The most idle sandboxes.
    pub idle_max: usize,
}

impl Default for KeepAlive {
    fn default() -> Self {
        Self { idle_for: Duration::from_secs(3600), idle_max: 256 }
    }
}

/// An idle sandbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IdleSince {
    /// When it became idle.
    pub since: Monotonic,
}

impl KeepAlive {
    /// How many of `idle`, which is sorted by the longest idle first, end at `now`: always a prefix.
    #[must_use]
    pub fn expired(&self, idle: &[IdleSince], now: Monotonic) -> usize {
        let surplus = idle.len().saturating_sub(self.idle_max);
        let old = idle.iter().take_while(|one| now.since(one.since) >= self.idle_for).count();
        surplus.max(old)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn idle(since_s: u64) -> IdleSince {
        IdleSince { since: Monotonic(since_s * 1_000_000_000) }
    }

    #[test]
    fn a_sandbox_ends_so_long_after_its_last_answer() {
        let keep = KeepAlive { idle_for: Duration::from_secs(600), ..KeepAlive::default() };
        let both = [idle(0), idle(300)];
        assert_eq!(keep.expired(&both, idle(599).since), 0);
        assert_eq!(keep.expired(&both, idle(600).since), 1);
        assert_eq!(keep.expired(&both, idle(900).since), 2);
    }

    #[test]
    fn the_longest_idle_end_when_there_are_too_many() {
        let keep = KeepAlive { idle_max: 1, ..KeepAlive::default() };
        assert_eq!(keep.expired(&[idle(0), idle(1), idle(2)], idle(3).since), 2);
    }
}
