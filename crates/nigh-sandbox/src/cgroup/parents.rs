//! The parents of the sandboxes' groups, one in each tree, and what they can control.
//!
//! In v1 each controller has its own tree, and each may be absent. In v2 controllers are passed from group to group,
//! and only a group without processes can pass them: Nigh moves itself into a leaf if it is alone in its group.

use std::fs;
use std::io;
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, access};

use super::cpu_weight::CpuWeight;
use super::cpuset::{self, Cpusets, SandboxCpus};
use super::layout::{Layout, Place};
use super::{PROCS, SELF_SUFFIX, control_file, v2};

/// Why there are no cpusets without the setting.
const NO_CPUSETS: &str = "sandboxes have no cpusets of their own";

/// The parent folder, or why there is none.
pub(super) type Parent = Result<PathBuf, String>;

/// The parents. Dropping this removes them.
#[derive(Debug)]
pub(super) enum Parents {
    V1 {
        memory: Parent,
        freezer: Parent,
        pids: Parent,
        cpu: Parent,
        cpuset: Parent,
        others: Vec<PathBuf>,
    },
    V2 {
        folder: Parent,
        memory: Result<(), String>,
        pids: Result<(), String>,
        cpu: Result<(), String>,
        cpuset: Result<(), String>,
    },
}

/// The trees in which a sandbox gets a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trees {
    /// The trees that control something.
    Controlled,
    /// All mounted trees, as with a container runtime.
    All,
}

/// What the groups control. Each error is the reason why they do not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Controls {
    /// `cgroup v1` or `cgroup v2`.
    pub version: &'static str,
    /// The memory limit.
    pub memory: Result<(), String>,
    /// The limit of processes.
    pub processes: Result<(), String>,
    /// The freezer.
    pub freezer: Result<(), String>,
    /// The share of busy processors.
    pub cpu: Result<(), String>,
}

impl Parents {
    /// Makes `folder` in the trees of `layout` that allow it, on a machine with `processors` processors.
    pub(super) fn make(layout: &Layout, folder: &str, processors: NonZeroU32, cpusets: Cpusets, trees: Trees) -> Self {
        let all = CpuWeight::of_all_sandboxes(processors);
        match layout {
            Layout::V1 { memory, freezer, pids, cpu, cpuset, others } => {
                let parent = |place: &Option<Place>| match place {
                    Some(place) => make(&place.own.join(folder)),
                    None => Err("the kernel has no such v1 tree mounted".to_owned()),
                };
                let weighed = |group: PathBuf| match all.give_v1(&group) {
                    Ok(()) => Ok(group),
                    Err(error) => Err(not_weighed(&group, &error)),
                };
                let with_processors = |group: PathBuf| match cpuset::inherit_v1(&group) {
                    Ok(()) => Ok(group),
                    Err(error) => Err(format!("{} cannot be given processors: {error}", group.display())),
                };
                // Without our own cpusets the container runtime assigns processors.
                let others = others.iter().chain(cpuset.iter().filter(|_| cpusets == Cpusets::Unused));
                let others = match trees {
                    Trees::All => others.filter_map(|place| make(&place.own.join(folder)).ok()).collect(),
                    Trees::Controlled => Vec::new(),
                };
                Self::V1 {
                    others,
                    memory: parent(memory),
                    freezer: parent(freezer),
                    pids: parent(pids),
                    cpu: parent(cpu).and_then(weighed),
                    cpuset: match cpusets {
                        Cpusets::OneEach => parent(cpuset).and_then(with_processors),
                        Cpusets::Unused => Err(NO_CPUSETS.to_owned()),
                    },
                }
            }
            Layout::V2(place) => delegate(place, folder, all, cpusets),
            Layout::Absent => {
                let absent = || Err("no cgroup tree is mounted; mount cgroup2 at /sys/fs/cgroup".to_owned());
                Self::V1 {
                    memory: absent(),
                    freezer: absent(),
                    pids: absent(),
                    cpu: absent(),
                    cpuset: absent(),
                    others: Vec::new(),
                }
            }
        }
    }

    /// What the groups below these parents control.
    pub(super) fn controls(&self) -> Controls {
        let had = |parent: &Parent| parent.as_ref().map(drop).map_err(Clone::clone);
        match self {
            Self::V1 { memory, freezer, pids, cpu, .. } => Controls {
                version: "cgroup v1",
                memory: had(memory),
                processes: had(pids),
                freezer: had(freezer),
                cpu: had(cpu),
            },
            Self::V2 { folder, memory, pids, cpu, .. } => Controls {
                version: "cgroup v2",
                memory: had(folder).and(memory.clone()),
                processes: had(folder).and(pids.clone()),
                freezer: had(folder),
                cpu: had(folder).and(cpu.clone()),
            },
        }
    }

    /// Can confine sandboxes to processors, if each has a cpuset.
    pub(super) fn sandbox_cpus(&self) -> Result<SandboxCpus, String> {
        let parent = match self {
            Self::V1 { cpuset, .. } => cpuset.clone(),
            Self::V2 { folder, cpuset, .. } => cpuset.clone().and(folder.clone()),
        };
        SandboxCpus::below(&parent?)
    }

    /// The parents that exist.
    pub(super) fn folders(&self) -> Vec<&PathBuf> {
        let (parents, others) = match self {
            Self::V1 { memory, freezer, pids, cpu, cpuset, others } => {
                (vec![memory, freezer, pids, cpu, cpuset], others.as_slice())
            }
            Self::V2 { folder, .. } => (vec![folder], [].as_slice()),
        };
        parents.into_iter().filter_map(|parent| parent.as_ref().ok()).chain(others).collect()
    }
}

impl Parents {
    /// Removes the parents that are empty. The next sweep removes the others.
    pub(super) fn remove(&self) {
        for folder in self.folders() {
            let _still_used = fs::remove_dir(folder);
        }
    }
}

/// The host and each group share the parents; the last one removes them.
impl Drop for Parents {
    fn drop(&mut self) {
        self.remove();
    }
}

fn make(folder: &Path) -> Parent {
    let made = fs::create_dir(folder).or_else(|error| match error.kind() {
        // A parent left by an earlier process may have other controllers now.
        io::ErrorKind::AlreadyExists => access(folder, Access::WRITE_OK).map_err(io::Error::from),
        _ => Err(error),
    });
    made.map(|()| folder.to_owned()).map_err(|error| format!("{} cannot be made: {error}", folder.display()))
}

fn not_weighed(group: &Path, error: &io::Error) -> String {
    format!("{} takes no weight: {error}", group.display())
}

/// Makes the v2 parent and passes the controllers down to it.
fn delegate(place: &Place, folder: &str, all: CpuWeight, cpusets: Cpusets) -> Parents {
    let leaf = format!("{folder}{SELF_SUFFIX}");
    // A second engine of this process is in the leaf that the first one made.
    let own = match place.own.parent() {
        Some(parent) if place.own.ends_with(&leaf) => parent,
        _ => &place.own,
    };
    let prepare = || -> Parent {
        if own != place.mount && own == place.own && !has(own, v2::SUBTREE_CONTROL, "memory") {
            move_to_leaf(own, &leaf)?;
        }
        make(&own.join(folder))
    };
    let parent = prepare();
    let pass = |controller: &str| -> Result<(), String> {
        let Ok(parent) = &parent else { return Ok(()) };
        for group in [own, parent] {
            if !has(group, v2::SUBTREE_CONTROL, controller) {
                control_file::write_once(group, v2::SUBTREE_CONTROL, &format!("+{controller}"))
                    .map_err(|error| format!("{} refuses to pass `{controller}` down: {error}", group.display()))?;
            }
        }
        Ok(())
    };
    let (memory, pids) = (pass("memory"), pass("pids"));
    let cpu = pass("cpu").and_then(|()| match &parent {
        Ok(group) => all.give_v2(group).map_err(|error| not_weighed(group, &error)),
        Err(_) => Ok(()),
    });
    let cpuset = match cpusets {
        Cpusets::OneEach => pass("cpuset"),
        Cpusets::Unused => Err(NO_CPUSETS.to_owned()),
    };
    Parents::V2 { folder: parent, memory, pids, cpu, cpuset }
}

fn has(group: &Path, file: &str, controller: &str) -> bool {
    fs::read_to_string(group.join(file)).is_ok_and(|text| text.split_whitespace().any(|one| one == controller))
}

/// Moves this process out of `own` into a group below, if it is alone there. Other processes are never moved.
fn move_to_leaf(own: &Path, leaf: &str) -> Result<(), String> {
    let this = std::process::id().to_string();
    let procs = fs::read_to_string(own.join(PROCS)).map_err(|error| format!("{}: {error}", own.display()))?;
    if procs.lines().any(|pid| pid != this) {
        return Err(format!(
            "other processes share Nigh's group {}; start Nigh in one of its own: systemd-run --scope -p Delegate=yes",
            own.display()
        ));
    }
    let leaf = make(&own.join(leaf))?;
    control_file::write_once(&leaf, PROCS, &this).map_err(|error| format!("{}: {error}", leaf.display()))
}
