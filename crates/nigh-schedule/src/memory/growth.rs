//! How far a sandbox may grow ahead of its need, and when to look at it again: pure.
//!
//! A grant is the predicted need of an invocation; the kernel's limit has a headroom above it. On cgroup v1 a system
//! call that reaches the limit fails (`ENOMEM`, `EFAULT`: the kernel suspends only the program's page faults,
//! Documentation/admin-guide/cgroup-v1/memory.rst, section 10), so the grant must be raised before the sandbox reaches
//! the limit. A sandbox that uses more than its grant grows by a step that doubles each time, up to its booking: a
//! small error costs little, and a few steps cover a burst. `budget` decides where the memory comes from.

use std::time::Duration;

use nigh_terms::ByteSize;

use super::grant::Grant;

/// The distance from the grant to the limit: what the fastest writer uses in the milliseconds until that is noticed.
pub const HEADROOM: ByteSize = ByteSize::mib(32);
/// The first growth of a run.
const FIRST_STEP: u64 = 2 * HEADROOM.bytes();
/// After this many growths the step does not double any more: it is larger than any sandbox.
const DOUBLINGS_MAX: u32 = 10;
/// The bytes that a processor writes to fresh memory in a millisecond; a faster writer is suspended for a moment.
const FASTEST_BYTES_A_MS: u64 = 4 << 20;
/// The shortest and the longest time between two looks at a sandbox's use.
const LOOK_MIN: Duration = Duration::from_millis(1);
const LOOK_MAX: Duration = Duration::from_millis(8);

/// The limit for a sandbox that uses `used` now and whose predicted need is `grant.memory`.
#[must_use]
pub fn limit_for(grant: Grant, used: ByteSize) -> ByteSize {
    // If the limit were below what is in use, the kernel would reclaim pages while the invocation runs.
    (grant.memory.max(used) + HEADROOM).min(grant.booked)
}

/// The figures of a running sandbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryReading {
    /// The memory in use, without the page cache, which the kernel reclaims by itself.
    pub need: ByteSize,
    /// The sandbox's limit.
    pub limit: ByteSize,
    /// The memory that the sandbox has booked.
    pub booked: ByteSize,
    /// Number of growths in this run.
    pub grown: u32,
}

/// The limit to which the sandbox must grow; None if it need not.
#[must_use]
pub fn growth(seen: &MemoryReading) -> Option<ByteSize> {
    if seen.limit >= seen.booked || seen.need + HEADROOM <= seen.limit {
        return None;
    }
    let step = ByteSize(FIRST_STEP << seen.grown.min(DOUBLINGS_MAX));
    Some((seen.limit.max(seen.need) + step).min(seen.booked))
}

/// The time until the next look at a sandbox with this much left below its limit.
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
