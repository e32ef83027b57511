//! How far a sandbox may grow ahead of its need, and when to look at it again: pure.
//!
//! A grant is what an invocation is expected to need. The kernel's limit is a headroom above it: a sandbox that comes to
//! its limit inside a system call gets an error there on cgroup v1 (`ENOMEM`, `EFAULT`: the kernel parks page faults of
//! the program alone, Documentation/admin-guide/cgroup-v1/memory.rst, section 10), so that it has to be given more before
//! it is there. Who uses more than its grant grows by a step that doubles each time, to what it booked at most: a small
//! error costs little, a burst is met in a few steps. It decides nothing about where the memory comes from
//! (`memory_budget`).

use std::time::Duration;

use nigh_terms::ByteSize;

use crate::grant::Grant;

/// What the limit leaves above the grant: what the fastest writer takes in some milliseconds, in which it is noticed.
pub const HEADROOM: ByteSize = ByteSize::mib(32);
/// The first growth of a run.
const FIRST_STEP: u64 = 2 * HEADROOM.bytes();
/// Growths after which the step does not double any more: it is as large as any sandbox then.
const DOUBLINGS_MAX: u32 = 10;
/// What a processor writes to fresh memory at most, in a millisecond; faster ones park for a moment or two.
const FASTEST_BYTES_A_MS: u64 = 4 << 20;
/// A sandbox is looked at this often at most, and at least.
const LOOK_MIN: Duration = Duration::from_millis(1);
const LOOK_MAX: Duration = Duration::from_millis(8);

/// The limit under which a sandbox runs that uses `used` now and is expected to need `grant.memory`.
#[must_use]
pub fn limit_for(grant: Grant, used: ByteSize) -> ByteSize {
    // Below what is in use the kernel would take pages back, on the invocation's path.
    (grant.memory.max(used) + HEADROOM).min(grant.booked)
}

/// What is known of a sandbox that runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryReading {
    /// What it cannot do without: what is in use, but for the page cache, which the kernel takes back by itself.
    pub need: ByteSize,
    /// Its limit.
    pub limit: ByteSize,
    /// What it booked.
    pub booked: ByteSize,
    /// How often it has grown in this run.
    pub grown: u32,
}

/// The limit that it shall have, if it shall have another.
#[must_use]
pub fn growth(seen: &MemoryReading) -> Option<ByteSize> {
    if seen.limit >= seen.booked || seen.need + HEADROOM <= seen.limit {
        return None;
    }
    let step = ByteSize(FIRST_STEP << seen.grown.min(DOUBLINGS_MAX));
    Some((seen.limit.max(seen.need) + step).min(seen.booked))
}

/// How long a sandbox with so much left below its limit may go unseen.
#[must_use]
pub fn look_again(left: ByteSize) -> Duration {
    Duration::from_millis(left.bytes() / FASTEST_BYTES_A_MS).clamp(LOOK_MIN, LOOK_MAX)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const fn seen(need: u64, limit: u64, booked: u64, grown: u32) -> MemoryReading {
        MemoryReading { need: ByteSize::mib(need), limit: ByteSize::mib(limit), booked: ByteSize::mib(booked), grown }
    }

    #[test]
    fn a_limit_is_a_headroom_above_the_grant_and_never_above_what_was_booked() {
        let grant = |memory, booked| Grant { memory: ByteSize::mib(memory), booked: ByteSize::mib(booked) };
        assert_eq!(limit_for(grant(64, 512), ByteSize::mib(10)), ByteSize::mib(96));
        assert_eq!(limit_for(grant(64, 80), ByteSize::mib(10)), ByteSize::mib(80));
        assert_eq!(limit_for(grant(64, 512), ByteSize::mib(100)), ByteSize::mib(132));
    }

    #[test]
    fn who_stays_within_the_grant_does_not_grow_and_who_leaves_it_grows_by_doubling_steps() {
        assert_eq!(growth(&seen(64, 96, 2048, 0)), None);
        assert_eq!(growth(&seen(65, 96, 2048, 0)), Some(ByteSize::mib(160)));
        assert_eq!(growth(&seen(140, 160, 2048, 1)), Some(ByteSize::mib(288)));
        assert_eq!(growth(&seen(280, 288, 2048, 2)), Some(ByteSize::mib(544)));
        assert_eq!(growth(&seen(280, 288, 300, 2)), Some(ByteSize::mib(300)));
        assert_eq!(growth(&seen(300, 300, 300, 3)), None, "nobody grows beyond what was booked");
    }

    #[test]
    fn who_is_near_its_limit_is_looked_at_every_millisecond() {
        assert_eq!(look_again(ByteSize::mib(1)), Duration::from_millis(1));
        assert_eq!(look_again(ByteSize::mib(20)), Duration::from_millis(5));
        assert_eq!(look_again(ByteSize::gib(2)), Duration::from_millis(8));
    }

    proptest! {
        #[test]
        fn a_growth_is_a_growth_within_what_was_booked(
            need in 0u64..10_000, limit in 0u64..10_000, booked in 0u64..10_000, grown in 0u32..100,
        ) {
            let seen = seen(need, limit, booked, grown);
            match growth(&seen) {
                Some(to) => prop_assert!(to > seen.limit && to <= seen.booked),
                None => prop_assert!(limit >= booked || need + 32 <= limit),
            }
        }
    }
}
