//! The kernel's groups of processes: one for each sandbox, with its memory limit, its process limit and its freezer.
//!
//! Groups are made as `<Nigh's own group>/nigh-<instance>/<sandbox>`, in each v1 tree that serves or in the one v2
//! tree. What cannot be had is said as a reason, never taken as granted. Groups not named so are never touched.

mod control_file;
mod group;
mod layout;
mod pressure;
mod sweep;
pub mod v1;
pub mod v2;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use thiserror::Error;

pub use self::group::Group;
pub use self::layout::{Layout, Place, locate};

/// What the folders of all Nighs begin with.
const PREFIX: &str = "nigh-";
/// The v2 leaf that Nigh itself moves to: a v2 group that has groups below must have no processes.
const SELF_SUFFIX: &str = "-self";
const PROCS: &str = "cgroup.procs";

/// Why a group cannot be made or driven.
#[derive(Debug, Error)]
#[error("cgroup {path}: cannot {what}: {source}")]
pub struct CgroupError {
    /// What was tried.
    pub what: &'static str,
    /// The folder.
    pub path: PathBuf,
    /// The system's reason.
    #[source]
    pub source: io::Error,
}

/// A folder under which groups can be made, or why there is none.
type Parent = Result<PathBuf, String>;

#[derive(Debug)]
enum Parents {
    V1 { memory: Parent, freezer: Parent, pids: Parent },
    V2 { folder: Parent, memory: Result<(), String>, pids: Result<(), String> },
}

/// What the groups made here control, each with the reason if not.
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
}

/// Makes groups for the sandboxes of one Nigh.
#[derive(Debug)]
pub struct CgroupHost {
    instance: String,
    layout: Layout,
    parents: Arc<Parents>,
}

impl CgroupHost {
    /// Reads where this process stands and prepares the parent groups. `instance` tells this Nigh from others on the
    /// machine, the same at each start: letters and digits only.
    #[must_use]
    pub fn detect(instance: &str) -> Self {
        // Unreadable files mean the same as empty ones: no group can be made.
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let layout = locate(&read("/proc/self/cgroup"), &read("/proc/self/mountinfo"), |group| {
            fs::read_to_string(group.join(v2::CONTROLLERS)).unwrap_or_default()
        });
        Self::open(instance, layout)
    }

    /// As `detect`, with the places given.
    #[must_use]
    pub fn open(instance: &str, layout: Layout) -> Self {
        let folder = format!("{PREFIX}{instance}");
        let parents = match &layout {
            Layout::V1 { memory, freezer, pids } => {
                let parent = |place: &Option<Place>| match place {
                    Some(place) => make(&place.own.join(&folder)),
                    None => Err("the kernel has no such v1 tree mounted".to_owned()),
                };
                Parents::V1 { memory: parent(memory), freezer: parent(freezer), pids: parent(pids) }
            }
            Layout::V2(place) => delegate(place, &folder),
            Layout::Absent => {
                let absent = || Err("no cgroup tree is mounted".to_owned());
                Parents::V1 { memory: absent(), freezer: absent(), pids: absent() }
            }
        };
        Self { instance: instance.to_owned(), layout, parents: Arc::new(parents) }
    }

    /// What its groups control.
    #[must_use]
    pub fn controls(&self) -> Controls {
        let had = |parent: &Parent| parent.as_ref().map(drop).map_err(Clone::clone);
        match &*self.parents {
            Parents::V1 { memory, freezer, pids } => {
                Controls { version: "cgroup v1", memory: had(memory), processes: had(pids), freezer: had(freezer) }
            }
            Parents::V2 { folder, memory, pids } => Controls {
                version: "cgroup v2",
                memory: had(folder).and(memory.clone()),
                processes: had(folder).and(pids.clone()),
                freezer: had(folder),
            },
        }
    }

    /// Makes the group of one sandbox; `Group::bound` sets its limits. What this machine cannot control is left out.
    ///
    /// # Errors
    /// If the kernel refuses a folder or a file of it; nothing is left then.
    pub fn create(&self, name: &str) -> Result<Group, CgroupError> {
        let mut group = Group::new(&self.parents);
        let outcome = match &*self.parents {
            Parents::V1 { memory, freezer, pids } => group.add_v1(memory, freezer, pids, name),
            Parents::V2 { folder: Ok(parent), memory, pids } => {
                group.add_v2(&parent.join(name), memory.is_ok(), pids.is_ok())
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

    /// Ends all processes in groups that an earlier process of this Nigh left, and removes the groups; those that
    /// `living` names are passed over. Returns the number of sandboxes found.
    #[must_use]
    pub fn sweep(&self, living: &dyn Fn(&str) -> bool) -> usize {
        sweep::sweep(&self.layout, &format!("{PREFIX}{}", self.instance), &self.parents.folders(), living)
    }
}

impl Parents {
    fn folders(&self) -> Vec<&PathBuf> {
        let parents = match self {
            Self::V1 { memory, freezer, pids } => vec![memory, freezer, pids],
            Self::V2 { folder, .. } => vec![folder],
        };
        parents.into_iter().filter_map(|parent| parent.as_ref().ok()).collect()
    }
}

/// The host and each of its groups hold the parents: the last one removes them.
impl Drop for Parents {
    fn drop(&mut self) {
        for folder in self.folders() {
            // Not empty if a group could not be removed: it is the next sweep's, and so is this.
            let _still_used = fs::remove_dir(folder);
        }
    }
}

fn make(folder: &Path) -> Parent {
    match fs::create_dir(folder) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
            Err(format!("{} cannot be made: {error}", folder.display()))
        }
        _ => Ok(folder.to_owned()),
    }
}

/// Makes the v2 parent and passes the controllers down to it.
fn delegate(place: &Place, folder: &str) -> Parents {
    let leaf = format!("{folder}{SELF_SUFFIX}");
    // A second engine of this process finds itself in the leaf that the first one made.
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
    Parents::V2 { folder: parent, memory, pids }
}

fn has(group: &Path, file: &str, controller: &str) -> bool {
    fs::read_to_string(group.join(file)).is_ok_and(|text| text.split_whitespace().any(|one| one == controller))
}

/// Moves this process out of `own` into a group below, if it is alone there: other processes are not ours to move.
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

fn because(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> CgroupError {
    move |source| CgroupError { what, path: path.to_owned(), source }
}

#[cfg(test)]
mod tests {
    use nigh_terms::ByteSize;

    use super::*;
    use crate::grant::{Grant, SandboxMemoryError};

    #[test]
    fn where_no_tree_is_mounted_a_group_controls_nothing_and_says_so() {
        let host = CgroupHost::open("test", Layout::Absent);
        let controls = host.controls();
        assert!(controls.memory.is_err() && controls.processes.is_err() && controls.freezer.is_err());
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
        let host = CgroupHost::open("test", Layout::V2(Place { mount: tree.path().into(), own: own.clone() }));
        let reason = host.controls().memory.unwrap_err();
        assert!(reason.contains("other processes share"), "{reason}");
        assert_eq!(fs::read_dir(&own).unwrap().count(), 2);
    }

    #[test]
    fn a_v2_group_of_our_own_passes_its_controllers_down() {
        let tree = tempfile::tempdir().unwrap();
        let own = tree.path().join("nigh.service");
        // A real tree fills new folders with files by itself.
        for folder in [own.join("nigh-test"), own.join("nigh-test-self")] {
            fs::create_dir_all(&folder).unwrap();
            fs::write(folder.join(v2::SUBTREE_CONTROL), "").unwrap();
            fs::write(folder.join(PROCS), "").unwrap();
        }
        fs::write(own.join(v2::SUBTREE_CONTROL), "").unwrap();
        fs::write(own.join(PROCS), format!("{}\n", std::process::id())).unwrap();
        let host = CgroupHost::open("test", Layout::V2(Place { mount: tree.path().into(), own: own.clone() }));
        assert_eq!(host.controls().memory, Ok(()));
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
        let host = CgroupHost::open("test", Layout::V1 { memory, freezer: None, pids: None });
        assert!(host.controls().memory.unwrap_err().contains("nigh-test"));
    }

    /// A tree of the real kernel; the freezer and the killer are there without any controller.
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
            let host = CgroupHost::open(&instance, layout);
            host.controls().freezer.map(|()| host)
        });
        let host = match prepared {
            Ok(host) => host,
            Err(reason) => {
                let test = "a_frozen_process_in_a_real_v2_group_is_found_and_ended_by_the_sweep";
                return println!("SKIPPED: {test}: {reason}");
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
