//! A sandbox's share of busy processors: in proportion to its booked memory.
//!
//! AWS Lambda does the same: a function with 1769 MB has one vCPU (developer guide, "Configure function memory"). A
//! weight is no limit: processor time that others leave unused is free for all. Follows
//! Documentation/scheduler/sched-design-CFS.rst (v1, `cpu.shares`) and Documentation/admin-guide/cgroup-v2.rst
//! (`cpu.weight`).
//!
//! All sandboxes together weigh as much as the machine has processors, and Nigh itself, beside their group, weighs as
//! much as one. So neither can starve the other, however many sandboxes run.

use std::io;
use std::num::NonZeroU32;
use std::path::Path;

use nigh_terms::ByteSize;

use super::control_file::write_once;

/// The memory that weighs as much as one processor.
const MIB_PER_CPU: u64 = 1769;
/// The file of cgroup v1, its value for one processor, and the kernel's limits.
const SHARES: &str = "cpu.shares";
const SHARES_PER_CPU: u64 = 1024;
const SHARES_MIN: u64 = 2;
const SHARES_MAX: u64 = 1 << 18;
/// The file of cgroup v2.
const WEIGHT: &str = "cpu.weight";
const WEIGHT_PER_CPU: u64 = 100;
const WEIGHT_MIN: u64 = 1;
const WEIGHT_MAX: u64 = 10_000;

/// A group's weight relative to its siblings, as an amount of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CpuWeight(ByteSize);

impl CpuWeight {
    /// The weight of a sandbox with this booking.
    pub(super) const fn of_sandbox(booked: ByteSize) -> Self {
        Self(booked)
    }

    /// The weight of all sandboxes together on a machine with `processors` processors.
    pub(super) fn of_all_sandboxes(processors: NonZeroU32) -> Self {
        Self(ByteSize::mib(MIB_PER_CPU * u64::from(processors.get())))
    }

    fn shares(self) -> u64 {
        self.scaled(SHARES_PER_CPU).clamp(SHARES_MIN, SHARES_MAX)
    }

    fn weight(self) -> u64 {
        self.scaled(WEIGHT_PER_CPU).clamp(WEIGHT_MIN, WEIGHT_MAX)
    }

    fn scaled(self, per_cpu: u64) -> u64 {
        let per_cpu_bytes = u128::from(ByteSize::mib(MIB_PER_CPU).bytes());
        let scaled = (u128::from(self.0.bytes()) * u128::from(per_cpu) + per_cpu_bytes / 2) / per_cpu_bytes;
        u64::try_from(scaled).unwrap_or(u64::MAX)
    }

    /// Gives a v1 group this weight.
    pub(super) fn give_v1(self, group: &Path) -> io::Result<()> {
        write_once(group, SHARES, &self.shares().to_string())
    }

    /// Gives a v2 group this weight.
    pub(super) fn give_v2(self, group: &Path) -> io::Result<()> {
        write_once(group, WEIGHT, &self.weight().to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_mib(mib: u64) -> CpuWeight {
        CpuWeight::of_sandbox(ByteSize::mib(mib))
    }

    #[test]
    fn a_sandbox_weighs_what_its_memory_is_worth_in_processors() {
        assert_eq!((of_mib(1769).shares(), of_mib(1769).weight()), (1024, 100));
        assert_eq!((of_mib(10_240).shares(), of_mib(10_240).weight()), (5928, 579));
        assert_eq!((of_mib(128).shares(), of_mib(128).weight()), (74, 7));
    }

    #[test]
    fn all_sandboxes_together_weigh_as_much_as_the_processors_there_are() {
        let all = CpuWeight::of_all_sandboxes(NonZeroU32::new(16).unwrap());
        assert_eq!((all.shares(), all.weight()), (16 * 1024, 1600));
    }

    #[test]
    fn a_weight_beyond_what_the_kernel_takes_is_the_nearest_it_does() {
        assert_eq!((of_mib(1).shares(), of_mib(0).weight()), (SHARES_MIN, WEIGHT_MIN));
        let all = CpuWeight::of_all_sandboxes(NonZeroU32::MAX);
        assert_eq!((all.shares(), all.weight()), (SHARES_MAX, WEIGHT_MAX));
        assert_eq!(CpuWeight::of_sandbox(ByteSize(u64::MAX)).shares(), SHARES_MAX);
    }

    #[test]
    fn each_kernel_is_told_in_its_own_file() {
        let group = tempfile::tempdir().unwrap();
        for name in [SHARES, WEIGHT] {
            std::fs::write(group.path().join(name), "").unwrap();
        }
        of_mib(1769 * 2).give_v1(group.path()).unwrap();
        of_mib(1769 * 2).give_v2(group.path()).unwrap();
        let told = [SHARES, WEIGHT].map(|name| std::fs::read_to_string(group.path().join(name)).unwrap());
        assert_eq!(told, ["2048", "200"]);
    }
}
