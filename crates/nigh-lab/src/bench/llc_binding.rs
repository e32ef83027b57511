//! How long it takes to put a running process into a class of this machine's own resctrl: by its tasks, and by its CPU.
//!
//! Only where cache can be allocated and no class of Nigh's is in use: the bench has two classes of its own, and removes
//! them. What the emulator would take says nothing of hardware, where a write interrupts the CPU that runs the task.

use std::collections::BTreeMap;
use std::process::Command;
use std::time::{Duration, Instant};

use nigh_llc::resctrl::{CpuList, GroupName, Members, ProcTasks, Resctrl, TaskTarget, Tid, WantedGroup, WantedLayout};
use nigh_terms::{WayMask, Ways};
use serde::Serialize;

use crate::instrument::peer::KilledOnDrop;
use crate::instrument::stats::Sample;

const MOVES: usize = 200;
const GROUPS: [&str; 2] = ["nigh-bench-a", "nigh-bench-b"];
/// What is moved: a process of one thread that outlives the bench.
const MOVED: [&str; 2] = ["sleep", "600"];

#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(super) struct BindingTimes {
    /// Of all tasks of a process of one thread, looked for twice.
    by_tasks_us: f64,
    /// Of a CPU, by one write.
    by_cpus_us: f64,
}

pub(super) fn measure() -> Result<BindingTimes, String> {
    let driver = Resctrl::open_kernel().map_err(|error| format!("not measured: no CAT: {error}"))?;
    let failed = |error: &dyn std::fmt::Display| format!("not measured: {error}");
    let sleeper = Command::new(MOVED[0]).args(&MOVED[1..]).spawn().map(KilledOnDrop).map_err(|error| failed(&error))?;
    let pid = ProcTasks::default().process(Tid(sleeper.0.id())).map_err(|error| failed(&error))?;
    // Any will do.
    let text = std::fs::read_to_string("/sys/devices/system/cpu/online").map_err(|error| failed(&error))?;
    let online: CpuList = text.parse().map_err(|error| failed(&error))?;
    let cpu = CpuList(online.0.into_iter().take(1).collect());
    timed(&driver, &Members::Tree(pid), &cpu).map_err(|reason| failed(&reason))
}

/// Moves `members` and `cpu` to and fro between two classes, which are removed again.
fn timed(driver: &Resctrl, members: &Members, cpu: &CpuList) -> Result<BindingTimes, String> {
    let said = |error: &dyn std::fmt::Display| error.to_string();
    let in_use = driver.live().map_err(|error| said(&error))?.owned_names();
    if let Some(group) = in_use.first() {
        return Err(format!("the class {group} is in use (hint: stop the node)"));
    }
    let probe = driver.probe().map_err(|error| said(&error))?;
    let domains = probe.l3.map(|l3| l3.domains).unwrap_or_default();
    let groups = GROUPS.iter().map(|title| {
        let masks = domains.iter().map(|&domain| (domain, WayMask::contiguous(0, Ways(2)))).collect();
        Ok(WantedGroup {
            name: GroupName::new(*title).map_err(|error| said(&error))?,
            masks,
            bandwidth: BTreeMap::new(),
        })
    });
    let groups = groups.collect::<Result<Vec<_>, String>>()?;
    let names: Vec<GroupName> = groups.iter().map(|group| group.name.clone()).collect();
    driver.apply(&WantedLayout { groups }).map_err(|error| said(&error))?;
    let moves = || -> Result<BindingTimes, String> {
        let by_tasks_us = median(&names, |name| {
            let target = TaskTarget { group: Some(name.clone()), monitor: None };
            driver.bind_tasks(members, &target).map(drop).map_err(|error| said(&error))
        })?;
        let by_cpus_us = median(&names, |name| driver.bind_cpus(name, cpu).map(drop).map_err(|error| said(&error)))?;
        Ok(BindingTimes { by_tasks_us, by_cpus_us })
    };
    let times = moves();
    driver.remove_all().map_err(|error| said(&error))?;
    times
}

fn median(names: &[GroupName], mut bind: impl FnMut(&GroupName) -> Result<(), String>) -> Result<f64, String> {
    let mut times = Vec::with_capacity(MOVES);
    for name in names.iter().cycle().take(MOVES) {
        let begun = Instant::now();
        bind(name)?;
        times.push(begun.elapsed());
    }
    let micros = |time: &Duration| time.as_secs_f64() * 1e6;
    Ok(Sample::new(times.iter().map(micros).collect()).median())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use nigh_llc::resctrl::emulator::{Dialect, Emulator, Fault, MachineConfig};
    use nigh_llc::resctrl::{ProcessRef, ResctrlFs, TaskView};

    use super::*;

    #[test]
    fn both_ways_are_timed_in_classes_that_are_removed_again() {
        let emulator = Emulator::new(MachineConfig::silver_4210r(Dialect::Linux7));
        let driver = Resctrl::open(Arc::new(emulator.clone()), Arc::new(emulator.clone())).unwrap();
        emulator.inject(Fault::Spawn { pid: 100, uid: 0 });
        let started = emulator.started(Tid(100)).unwrap();
        let members = Members::Tree(ProcessRef { pid: Tid(100), started });
        let cpu: CpuList = "3".parse().unwrap();
        let times = timed(&driver, &members, &cpu).unwrap();
        assert!(times.by_tasks_us > 0.0 && times.by_cpus_us > 0.0, "{times:?}");
        assert!(driver.live().unwrap().owned_names().is_empty());
        emulator.make_group("nigh-node").unwrap();
        let refused = timed(&driver, &members, &cpu).unwrap_err();
        assert!(refused.contains("nigh-node is in use"), "{refused}");
        assert_eq!(driver.live().unwrap().owned_names().len(), 1, "the node's stays");
    }
}
