//! The required behaviour of resctrl as a list of named cases, which run against any [`ResctrlFs`]: the emulator in
//! unit tests, a real kernel in a virtual machine or on this host.
//!
//! Each case uses its own groups (named `nigh-conformance-*`), which are removed afterwards, and leaves the mount as
//! before. Cases that briefly change the root group run only if the caller says that nobody else uses the mount. A case
//! that the hardware or kernel does not support says so, and counts as neither passed nor failed.
//!
//! Rules are numbered by subject: 1-5 mount, writes and ids; 6-9 `info/`; 10-15 `schemata` and `size`; 16-17 `mode`;
//! 18-21 tasks and CPUs; 22-26 making, removing, renaming; 27-30 monitoring and I/O. Source: fs/resctrl of the kernel.

mod bench;
mod file_cases;
mod group_cases;
mod limbo;
mod mask_cases;
mod task_cases;

use std::io;

use self::bench::Bench;
pub use self::bench::Stop;
pub use self::limbo::make_group;
use super::fs::ResctrlFs;
use super::task_view::{TaskView, Tid};

/// The part of the mount that the cases may change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Extent {
    /// Groups of their own alone: others use this mount.
    OwnGroups,
    /// Also the root group, briefly: nobody else uses the mount.
    WholeMount,
}

/// How a case ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// All answers were as expected.
    Passed,
    /// The machine lacks what the case needs.
    NotApplicable(String),
    /// An answer was not as expected, or the mount was not left as found.
    Failed(String),
}

/// One case's result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CaseResult {
    /// The rule it checks.
    pub rule: u8,
    /// The sentence it proves.
    pub name: &'static str,
    /// How it ended.
    pub outcome: Outcome,
}

/// A case before it runs.
pub(super) struct Case {
    rule: u8,
    name: &'static str,
    extent: Extent,
    run: fn(&Bench<'_>) -> Result<(), Stop>,
}

/// A case that needs groups of its own alone.
const fn case(rule: u8, name: &'static str, run: fn(&Bench<'_>) -> Result<(), Stop>) -> Case {
    Case { rule, name, extent: Extent::OwnGroups, run }
}

/// A case that changes the root group for a moment.
const fn root_case(rule: u8, name: &'static str, run: fn(&Bench<'_>) -> Result<(), Stop>) -> Case {
    Case { rule, name, extent: Extent::WholeMount, run }
}

/// Runs every case. `task` is a thread that the cases may move, and that ends in the root group.
///
/// If the mount does not exist or cannot be read.
pub fn run(fs: &dyn ResctrlFs, tasks: &dyn TaskView, task: Tid, extent: Extent) -> io::Result<Vec<CaseResult>> {
    let bench = Bench::new(fs, tasks, task)?;
    let _lock = fs.lock()?;
    let before = bench.snapshot()?;
    let all = [file_cases::CASES, mask_cases::CASES, group_cases::CASES, task_cases::CASES];
    let mut results = Vec::new();
    for case in all.into_iter().flatten() {
        let outcome = if case.extent == Extent::WholeMount && extent == Extent::OwnGroups {
            Outcome::NotApplicable("others use this mount, and the case changes the root group".to_owned())
        } else {
            let ran = bench.set_up().and_then(|()| (case.run)(&bench));
            let left = bench.tear_down().and_then(|()| bench.snapshot().map_err(Stop::from));
            match (ran, left) {
                (Err(Stop::NotApplicable(reason)), Ok(after)) if after == before => Outcome::NotApplicable(reason),
                (Err(Stop::Failed(reason)), _) => Outcome::Failed(reason),
                (_, Err(stop)) => Outcome::Failed(format!("not cleaned up: {stop}")),
                (_, Ok(after)) if after != before => {
                    Outcome::Failed(format!("the mount was left changed: {before:?} became {after:?}"))
                }
                _ => Outcome::Passed,
            }
        };
        results.push(CaseResult { rule: case.rule, name: case.name, outcome });
    }
    Ok(results)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resctrl::emulator::{
        BandwidthConfig, CacheConfig, Dialect, Emulator, GuestMachine, MachineConfig, MonitoringConfig,
    };
    use crate::resctrl::fs::MountOptions;

    fn run_on(machine: MachineConfig, options: MountOptions) -> Vec<CaseResult> {
        let emulator = Emulator::unmounted(machine);
        emulator.mount(options).unwrap();
        let results = run(&emulator, &emulator, Tid(1), Extent::WholeMount).unwrap();
        for result in &results {
            assert!(!matches!(result.outcome, Outcome::Failed(_)), "{result:?}");
        }
        results
    }

    fn passed(results: &[CaseResult]) -> usize {
        results.iter().filter(|result| result.outcome == Outcome::Passed).count()
    }

    #[test]
    fn the_emulator_conforms_on_every_kind_of_machine() {
        for dialect in [Dialect::Linux6_1, Dialect::Linux7] {
            run_on(MachineConfig::cat_only(dialect, 11, 8, 2, 2), MountOptions::default());
            run_on(MachineConfig::epyc(dialect), MountOptions::default());
            run_on(MachineConfig::silver_4210r(dialect), MountOptions { cdp: true, ..MountOptions::default() });
            run_on(MachineConfig::silver_4210r(dialect), MountOptions { mba_mbps: true, ..MountOptions::default() });
            let haswell = CacheConfig { min_bits: 2, shareable: 0xc0000, ..CacheConfig::intel(20, 4) };
            let machine = MachineConfig { l3: Some(haswell), ..MachineConfig::cat_only(dialect, 20, 4, 1, 4) };
            run_on(machine, MountOptions::default());
            let l2 = MachineConfig {
                l3: None,
                l2: Some(CacheConfig::intel(8, 8)),
                mb: Some(BandwidthConfig::intel(8)),
                monitoring: Some(MonitoringConfig::all_events(16)),
                ..MachineConfig::cat_only(dialect, 8, 8, 1, 4)
            };
            run_on(l2, MountOptions::default());
            for machine in GuestMachine::ALL {
                run_on(machine.config(dialect), MountOptions::default());
            }
        }
    }

    #[test]
    fn no_case_is_out_of_reach_of_every_machine() {
        let dialect = Dialect::Linux7;
        let machines = [
            run_on(MachineConfig::silver_4210r(dialect), MountOptions::default()),
            run_on(MachineConfig::silver_4210r(dialect), MountOptions { mba_mbps: true, ..MountOptions::default() }),
            run_on(MachineConfig::epyc(dialect), MountOptions::default()),
            run_on(MachineConfig::silver_4210r(Dialect::Linux6_1), MountOptions::default()),
            run_on(
                MachineConfig {
                    l3: Some(CacheConfig { min_bits: 2, ..CacheConfig::intel(20, 4) }),
                    ..MachineConfig::cat_only(dialect, 20, 4, 1, 4)
                },
                MountOptions::default(),
            ),
        ];
        for at in 0..machines[0].len() {
            let reached = machines.iter().any(|results| results[at].outcome == Outcome::Passed);
            assert!(reached, "no machine runs {:?}", machines[0][at]);
        }
        assert!(passed(&machines[0]) >= 30, "{}", passed(&machines[0]));
    }

    #[test]
    fn a_shared_mount_keeps_its_root_and_foreign_groups() {
        let emulator = Emulator::new(MachineConfig::silver_4210r(Dialect::Linux7));
        emulator.make_group("theirs").unwrap();
        emulator.write("theirs/schemata", "L3:0=3\n").unwrap();
        let results = run(&emulator, &emulator, Tid(1), Extent::OwnGroups).unwrap();
        assert!(results.iter().all(|result| !matches!(result.outcome, Outcome::Failed(_))), "{results:?}");
        assert!(emulator.read("theirs/schemata").unwrap().contains("0=3"));
    }
}
