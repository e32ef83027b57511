//! Makes and finds the groups of one Nigh's sandboxes.

use std::fs;
use std::io;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Instant;

use super::cpuset::{Cpusets, SandboxCpus};
use super::group::{Group, REMOVE_PATIENCE, REMOVE_POLL};
use super::layout::{Layout, locate};
use super::parents::{Controls, Parents, Trees};
use super::{CgroupError, PREFIX, sweep, v2};

/// Makes groups for the sandboxes of one Nigh.
#[derive(Debug)]
pub struct CgroupHost {
    instance: String,
    layout: Layout,
    processors: NonZeroU32,
    cpusets: Cpusets,
    trees: Trees,
    parents: Arc<Parents>,
}

impl CgroupHost {
    /// Finds this process's own groups and makes the parents. `instance` distinguishes this Nigh from others on the
    /// machine. It is the same at each start; letters and digits only.
    #[must_use]
    pub fn detect(instance: &str, cpusets: Cpusets, trees: Trees) -> Self {
        // Unreadable files count as empty ones: no group can be made.
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let layout = locate(&read("/proc/self/cgroup"), &read("/proc/self/mountinfo"), |group| {
            fs::read_to_string(group.join(v2::CONTROLLERS)).unwrap_or_default()
        });
        // One processor if the number is unknown: then the node weighs as much as all sandboxes.
        let processors = std::thread::available_parallelism().ok().and_then(|count| NonZeroU32::try_from(count).ok());
        Self::open(instance, layout, processors.unwrap_or(NonZeroU32::MIN), cpusets, trees)
    }

    /// Opens the cgroups as `detect` does, but with a given layout and number of processors.
    #[must_use]
    pub fn open(instance: &str, layout: Layout, processors: NonZeroU32, cpusets: Cpusets, trees: Trees) -> Self {
        let parents = Parents::make(&layout, &format!("{PREFIX}{instance}"), processors, cpusets, trees);
        let (instance, parents) = (instance.to_owned(), Arc::new(parents));
        Self { instance, layout, processors, cpusets, trees, parents }
    }

    /// What the groups of this host control.
    #[must_use]
    pub fn controls(&self) -> Controls {
        self.parents.controls()
    }

    /// The cpusets of the groups, which can confine a sandbox.
    ///
    /// # Errors
    /// Why no sandbox can be confined.
    pub fn sandbox_cpus(&self) -> Result<SandboxCpus, String> {
        self.parents.sandbox_cpus()
    }

    /// Makes the group of one sandbox; `Group::bound` sets its limits. Controllers that this machine lacks are left
    /// out.
    ///
    /// # Errors
    /// If the kernel refuses a folder or file. All folders made are removed then.
    pub fn create(&self, name: &str) -> Result<Group, CgroupError> {
        match self.try_create(name) {
            Err(error) if error.source.kind() == io::ErrorKind::NotFound => {
                // The parents are gone: the last keeper of an earlier process of this Nigh has removed parents with
                // these names.
                let name_of_all = format!("{PREFIX}{}", self.instance);
                let again = Parents::make(&self.layout, &name_of_all, self.processors, self.cpusets, self.trees);
                // `again` must not remove the parents: their existing owners do.
                std::mem::forget(again);
                self.try_create(name)
            }
            outcome => outcome,
        }
    }

    fn try_create(&self, name: &str) -> Result<Group, CgroupError> {
        let mut group = Group::new(&self.parents);
        let outcome = match &*self.parents {
            Parents::V1 { memory, freezer, pids, cpu, cpuset, others } => {
                let added = group.add_v1(memory, freezer, pids, cpu, cpuset, name);
                added.and_then(|()| group.add_beside(others, name))
            }
            Parents::V2 { folder: Ok(parent), memory, pids, cpu, .. } => {
                group.add_v2(&parent.join(name), memory.is_ok(), pids.is_ok(), cpu.is_ok())
            }
            Parents::V2 { folder: Err(_), .. } => Ok(()),
        };
        match outcome {
            Ok(()) => Ok(group),
            Err(error) => {
                group.end();
                Err(error)
            }
        }
    }

    /// The path of the group `name` for a container runtime: below Nigh's own group in each v1 tree, or from the top of
    /// the v2 tree.
    ///
    /// # Errors
    /// Why no group can be made.
    pub fn runtime_path(&self, name: &str) -> Result<String, String> {
        match (&*self.parents, &self.layout) {
            (Parents::V2 { folder: Ok(folder), .. }, Layout::V2(place)) => {
                let below = folder.strip_prefix(&place.mount).map_err(|error| error.to_string())?;
                Ok(format!("/{}/{name}", below.display()))
            }
            (Parents::V2 { folder: Err(reason), .. }, _) => Err(reason.clone()),
            (Parents::V1 { memory: Err(reason), .. }, _) if self.parents.folders().is_empty() => Err(reason.clone()),
            _ => Ok(format!("{PREFIX}{}/{name}", self.instance)),
        }
    }

    /// Removes Nigh's own groups when no sandbox's group is left. For the end of the process, where nothing is dropped.
    /// Blocks for at most `REMOVE_PATIENCE`. The next sweep removes the rest.
    pub fn close(&self) {
        let until = Instant::now() + REMOVE_PATIENCE;
        while Arc::strong_count(&self.parents) > 1 && Instant::now() < until {
            std::thread::sleep(REMOVE_POLL);
        }
        self.parents.remove();
    }

    /// Kills all processes in groups that an earlier process of this Nigh left, and removes the groups, except those
    /// that `living` names. Returns the number of sandboxes found.
    #[must_use]
    pub fn sweep(&self, living: &dyn Fn(&str) -> bool) -> usize {
        sweep::sweep(&self.layout, &format!("{PREFIX}{}", self.instance), &self.parents.folders(), living)
    }
}

#[cfg(test)]
mod tests {
    use nigh_llc::resctrl::{CpuList, Members};
    use nigh_terms::ByteSize;

    use std::path::Path;

    use super::*;
    use crate::cgroup::{PROCS, Place};
    use crate::skipped::skip;
    use nigh_schedule::memory::grant::{Grant, SandboxMemoryError};

    /// On a machine with two processors.
    fn open(instance: &str, layout: Layout) -> CgroupHost {
        CgroupHost::open(instance, layout, NonZeroU32::new(2).unwrap(), Cpusets::Unused, Trees::Controlled)
    }

    #[test]
    fn where_no_tree_is_mounted_a_group_controls_nothing_and_says_so() {
        let host = open("test", Layout::Absent);
        let controls = host.controls();
        assert!(controls.memory.is_err() && controls.processes.is_err());
        assert!(controls.freezer.is_err() && controls.cpu.is_err());
        assert!(host.runtime_path("one").is_err());
        let group = host.create("one").unwrap();
        group.bound(Grant::full(ByteSize::mib(1)), 8).unwrap();
        assert!(group.folders().is_empty());
        assert!(matches!(group.memory().peak(), Err(SandboxMemoryError::NotControlled(_))));
        assert!(group.end());
    }

    #[test]
    fn a_v2_group_shared_with_others_is_not_reorganised() {
        let tree = tempfile::tempdir().unwrap();
        let own = tree.path().join("session");
        fs::create_dir(&own).unwrap();
        fs::write(own.join(v2::SUBTREE_CONTROL), "").unwrap();
        fs::write(own.join(PROCS), format!("1\n{}\n", std::process::id())).unwrap();
        let host = open("test", Layout::V2(Place { mount: tree.path().into(), own: own.clone() }));
        let reason = host.controls().memory.unwrap_err();
        assert!(reason.contains("other processes share"), "{reason}");
        assert_eq!(fs::read_dir(&own).unwrap().count(), 2);
    }

    #[test]
    fn a_v2_group_of_our_own_passes_its_controllers_down() {
        let tree = tempfile::tempdir().unwrap();
        let own = tree.path().join("nigh.service");
        // The kernel fills new folders of a real tree with files.
        for folder in [own.join("nigh-test"), own.join("nigh-test-self")] {
            fs::create_dir_all(&folder).unwrap();
            fs::write(folder.join(v2::SUBTREE_CONTROL), "").unwrap();
            fs::write(folder.join(PROCS), "").unwrap();
            fs::write(folder.join("cpu.weight"), "").unwrap();
        }
        fs::write(own.join(v2::SUBTREE_CONTROL), "").unwrap();
        fs::write(own.join(PROCS), format!("{}\n", std::process::id())).unwrap();
        let host = open("test", Layout::V2(Place { mount: tree.path().into(), own: own.clone() }));
        assert_eq!((host.controls().memory, host.controls().cpu), (Ok(()), Ok(())));
        assert_eq!(fs::read_to_string(own.join("nigh-test/cpu.weight")).unwrap(), "200");
        let moved = fs::read_to_string(own.join("nigh-test-self").join(PROCS)).unwrap();
        assert_eq!(moved, std::process::id().to_string());
        for group in [own.clone(), own.join("nigh-test")] {
            assert!(fs::read_to_string(group.join(v2::SUBTREE_CONTROL)).unwrap().contains('+'));
        }
    }

    #[test]
    fn a_folder_that_cannot_be_made_is_a_reason_and_not_a_failure() {
        let tree = tempfile::tempdir().unwrap();
        let memory = Some(Place { mount: tree.path().into(), own: tree.path().join("absent") });
        let host =
            open("test", Layout::V1 { memory, freezer: None, pids: None, cpu: None, cpuset: None, others: Vec::new() });
        assert!(host.controls().memory.unwrap_err().contains("nigh-test"));
    }

    #[test]
    fn a_tree_that_takes_no_weights_is_said_and_the_others_serve() {
        let tree = tempfile::tempdir().unwrap();
        let place = || Some(Place { mount: tree.path().into(), own: tree.path().into() });
        let (pids, cpu, others) = (place(), place(), Vec::new());
        let host = open("test", Layout::V1 { memory: None, freezer: None, pids, cpu, cpuset: None, others });
        let controls = host.controls();
        assert_eq!(controls.processes, Ok(()));
        let reason = controls.cpu.unwrap_err();
        assert!(reason.contains("nigh-test takes no weight"), "{reason}");
        assert_eq!(host.create("one").unwrap().folders(), [tree.path().join("nigh-test/one")]);
    }

    #[test]
    fn a_group_of_the_real_kernel_weighs_what_it_books_and_not_what_it_is_granted() {
        let host = CgroupHost::detect(&format!("weights{}", std::process::id()), Cpusets::Unused, Trees::Controlled);
        if let Err(reason) = host.controls().cpu {
            let test = "a_group_of_the_real_kernel_weighs_what_it_books_and_not_what_it_is_granted";
            return skip(test, reason);
        }
        let group = host.create("one").unwrap();
        group.bound(Grant { memory: ByteSize::mib(64), booked: ByteSize::mib(1769) }, 8).unwrap();
        let weight = |folder: &Path| {
            let text =
                ["cpu.shares", "cpu.weight"].iter().find_map(|name| fs::read_to_string(folder.join(name)).ok())?;
            text.trim().parse::<u64>().ok()
        };
        let (folder, weight_of_one) = group.folders().iter().find_map(|one| Some((one, weight(one)?))).unwrap();
        assert!([1024, 100].contains(&weight_of_one), "{weight_of_one}");
        let processors = std::thread::available_parallelism().unwrap().get() as u64;
        assert_eq!(weight(folder.parent().unwrap()), Some(weight_of_one * processors), "all sandboxes together");
        assert!(group.end());
    }

    #[test]
    fn a_process_in_a_group_of_the_real_kernel_runs_where_it_is_confined_to_with_its_children() {
        let host = CgroupHost::detect(&format!("cpus{}", std::process::id()), Cpusets::OneEach, Trees::Controlled);
        let cpus = match host.sandbox_cpus() {
            Ok(cpus) => cpus,
            Err(reason) => {
                let test = "a_process_in_a_group_of_the_real_kernel_runs_where_it_is_confined_to_with_its_children";
                return skip(test, reason);
            }
        };
        let group = host.create("one").unwrap();
        let mut shell = std::process::Command::new("sh")
            .args(["-c", "read go; sh -c 'grep Cpus_allowed_list /proc/self/status'"])
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        for file in group.join_files() {
            fs::write(file, shell.id().to_string()).unwrap();
        }
        let allowed = |pid: u32| {
            let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
            let line = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).unwrap();
            line.trim().parse::<CpuList>().unwrap()
        };
        let sandbox = Members::Cgroup(group.folders()[0].clone());
        assert_eq!(allowed(shell.id()), *cpus.all());
        let last = CpuList(cpus.all().0.last().copied().into_iter().collect());
        cpus.confine(&sandbox, &last).unwrap();
        assert_eq!(allowed(shell.id()), last);
        drop(shell.stdin.take());
        let child = shell.wait_with_output().unwrap();
        assert!(String::from_utf8_lossy(&child.stdout).trim().ends_with(&last.to_string()), "{child:?}");
        cpus.confine(&sandbox, cpus.all()).unwrap();
        assert!(group.end());
    }

    #[test]
    fn a_container_runtime_has_a_group_in_every_tree_below_our_own_and_all_go_again() {
        let tree = tempfile::tempdir().unwrap();
        let place = |name: &str| {
            let mount = tree.path().join(name);
            fs::create_dir(&mount).unwrap();
            Place { mount: mount.clone(), own: mount }
        };
        let (pids, others) = (Some(place("pids")), vec![place("devices"), place("systemd")]);
        let layout = Layout::V1 { memory: None, freezer: None, pids, cpu: None, cpuset: None, others };
        let host = CgroupHost::open("test", layout, NonZeroU32::MIN, Cpusets::Unused, Trees::All);
        assert_eq!(host.runtime_path("one").unwrap(), "nigh-test/one");
        let group = host.create("one").unwrap();
        let wanted = ["pids", "devices", "systemd"].map(|name| tree.path().join(name).join("nigh-test/one"));
        assert_eq!(group.folders(), wanted);
        assert!(group.end());
        drop((group, host));
        assert!(!tree.path().join("devices/nigh-test").exists());
    }

    #[test]
    fn parents_that_an_earlier_life_removed_late_are_made_again() {
        let tree = tempfile::tempdir().unwrap();
        let pids = Some(Place { mount: tree.path().into(), own: tree.path().into() });
        let others = Vec::new();
        let host = open("test", Layout::V1 { memory: None, freezer: None, pids, cpu: None, cpuset: None, others });
        fs::remove_dir(tree.path().join("nigh-test")).unwrap();
        let group = host.create("one").unwrap();
        assert!(group.end());
        drop((group, host));
        assert!(!tree.path().join("nigh-test").exists());
    }

    /// A tree of the real kernel. The freezer and `cgroup.kill` are there without any controller.
    fn real_v2() -> Result<Layout, String> {
        let read = |path: &str| fs::read_to_string(path).map_err(|error| format!("{path}: {error}"));
        match locate(&read("/proc/self/cgroup")?, &read("/proc/self/mountinfo")?, |_| "memory".to_owned()) {
            layout @ Layout::V2(_) => Ok(layout),
            _ => Err("no cgroup v2 tree is mounted".to_owned()),
        }
    }

    #[tokio::test]
    async fn a_frozen_process_in_a_real_v2_group_is_found_and_ended_by_the_sweep() {
        let instance = format!("v2-{}", std::process::id());
        let prepared = real_v2().and_then(|layout| {
            let host = open(&instance, layout);
            host.controls().freezer.map(|()| host)
        });
        let host = match prepared {
            Ok(host) => host,
            Err(reason) => {
                let test = "a_frozen_process_in_a_real_v2_group_is_found_and_ended_by_the_sweep";
                return skip(test, reason);
            }
        };
        let group = host.create("one").unwrap();
        let mut sleeper = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
        for file in group.join_files() {
            fs::write(file, sleeper.id().to_string()).unwrap();
        }
        group.freeze().await.unwrap();
        let events = fs::read_to_string(group.folders()[0].join("cgroup.events")).unwrap();
        assert!(events.contains("frozen 1"), "{events}");
        group.thaw().unwrap();
        group.freeze().await.unwrap();
        assert_eq!(host.sweep(&|name| name == "one"), 0, "a living group is passed over");

        // Only its parent can reap it, and only then is the group empty.
        let reaped = std::thread::spawn(move || sleeper.wait());
        assert_eq!(host.sweep(&|_| false), 1);
        let end = reaped.join().unwrap().unwrap();
        assert_eq!(std::os::unix::process::ExitStatusExt::signal(&end), Some(9));
        assert!(!group.folders()[0].exists());
    }
}
