//! Which idle sandboxes end, and when: pure.
//!
//! An idle sandbox lives for `idle_for` after its last answer (Lambda and OpenWhisk keep theirs for about ten
//! minutes), earlier when more than `idle_max` are idle or when its memory is needed. The one idle longest goes first.

use std::time::Duration;

use nigh_terms::{ByteSize, Monotonic};

/// How long idle sandboxes live.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeepAlive {
    /// After its last answer.
    pub idle_for: Duration,
    /// At most so many at once.
    pub idle_max: usize,
}

impl Default for KeepAlive {
    fn default() -> Self {
        Self { idle_for: Duration::from_secs(600), idle_max: 256 }
    }
}

/// An idle sandbox, as these decisions see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Idle {
    /// Since when.
    pub since: Monotonic,
    /// What it books.
    pub booked: ByteSize,
}

impl KeepAlive {
    /// How many of `idle`, the one idle longest first, end at `now`: always a prefix.
    #[must_use]
    pub fn expired(&self, idle: &[Idle], now: Monotonic) -> usize {
        let surplus = idle.len().saturating_sub(self.idle_max);
        let old = idle.iter().take_while(|one| now.since(one.since) >= self.idle_for).count();
        surplus.max(old)
    }
}

/// How many of `idle`, the one idle longest first, must end for `sandboxes` more and `memory` more to fit: a prefix,
/// or `None` if all of them are not enough.
#[must_use]
pub fn victims(idle: &[Idle], sandboxes: usize, memory: ByteSize) -> Option<usize> {
    let mut freed = ByteSize::ZERO;
    for (count, one) in idle.iter().enumerate() {
        if count >= sandboxes && freed >= memory {
            return Some(count);
        }
        freed += one.booked;
    }
    (idle.len() >= sandboxes && freed >= memory).then_some(idle.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn idle(since_s: u64, mib: u64) -> Idle {
        Idle { since: Monotonic(since_s * 1_000_000_000), booked: ByteSize::mib(mib) }
    }

    #[test]
    fn a_sandbox_ends_ten_minutes_after_its_last_answer() {
        let keep = KeepAlive::default();
        let both = [idle(0, 128), idle(300, 128)];
        assert_eq!(keep.expired(&both, idle(599, 0).since), 0);
        assert_eq!(keep.expired(&both, idle(600, 0).since), 1);
        assert_eq!(keep.expired(&both, idle(900, 0).since), 2);
    }

    #[test]
    fn the_longest_idle_end_when_there_are_too_many() {
        let keep = KeepAlive { idle_max: 1, ..KeepAlive::default() };
        assert_eq!(keep.expired(&[idle(0, 1), idle(1, 1), idle(2, 1)], idle(3, 0).since), 2);
    }

    #[test]
    fn no_more_end_than_the_room_needs() {
        let three = [idle(0, 128), idle(1, 256), idle(2, 512)];
        assert_eq!(victims(&three, 0, ByteSize::ZERO), Some(0));
        assert_eq!(victims(&three, 1, ByteSize::ZERO), Some(1));
        assert_eq!(victims(&three, 0, ByteSize::mib(129)), Some(2));
        assert_eq!(victims(&three, 1, ByteSize::mib(896)), Some(3));
        assert_eq!(victims(&three, 1, ByteSize::mib(897)), None);
        assert_eq!(victims(&[], 1, ByteSize::ZERO), None);
    }
}
