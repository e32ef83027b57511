//! The processors of each sandbox: all of Nigh's, or one of its own while an invocation is pinned.
//!
//! Follows Documentation/admin-guide/cgroup-v1/cpusets.rst and Documentation/admin-guide/cgroup-v2.rst, "Cpuset". A v1
//! group takes no process before it has processors and memory nodes, so each gets its parent's; a v2 group has its
//! parent's until it is told otherwise. Memory stays wherever it is.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use nigh_llc::resctrl::{CpuList, Members};

use super::control_file::write_once;
use super::{CgroupError, because};

/// The name is the same in v1 and v2.
const CPUS: &str = "cpuset.cpus";
const MEMS: &str = "cpuset.mems";
/// The file with the processors that a group may really use: in v1, in v2.
const EFFECTIVE: [&str; 2] = ["cpuset.effective_cpus", "cpuset.cpus.effective"];

/// Whether each sandbox has a cpuset of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cpusets {
    /// No sandbox has a cpuset: all run on all of Nigh's processors.
    Unused,
    /// Each sandbox has a cpuset.
    OneEach,
}

/// Gives a v1 group the processors of its parent.
pub(super) fn inherit_v1(group: &Path) -> io::Result<()> {
    let parent = group.parent().unwrap_or(group);
    for file in [MEMS, CPUS] {
        let has = fs::read_to_string(parent.join(file))?;
        write_once(group, file, has.trim())?;
    }
    Ok(())
}

/// The processors of all sandboxes, and the way to confine one.
#[derive(Clone, Debug)]
pub struct SandboxCpus {
    parent: PathBuf,
    all: CpuList,
}

impl SandboxCpus {
    /// The processors of the sandboxes whose cpusets are below `parent`.
    pub fn below(parent: &Path) -> Result<Self, String> {
        let text = EFFECTIVE.iter().find_map(|file| fs::read_to_string(parent.join(file)).ok());
        let text = text.ok_or_else(|| format!("{} does not say which processors it has", parent.display()))?;
        let all: CpuList = text.parse().map_err(|error| format!("{}: {error}", parent.display()))?;
        if all.0.is_empty() {
            return Err(format!("the cgroup {} has no processor; give it some in its cpuset.cpus", parent.display()));
        }
        Ok(Self { parent: parent.to_owned(), all })
    }

    /// All processors that sandboxes may run on.
    #[must_use]
    pub const fn all(&self) -> &CpuList {
        &self.all
    }

    /// Confines a sandbox with all its processes to `cpus`, effective at the return.
    ///
    /// # Errors
    /// If the sandbox has no cgroup or the kernel refuses. The sandbox's processors are unchanged then.
    pub fn confine(&self, sandbox: &Members, cpus: &CpuList) -> Result<(), CgroupError> {
        let folder = match sandbox {
            Members::Cgroup(path) => path.file_name().map(|name| self.parent.join(name)),
            Members::Tree(_) => None,
        };
        let folder =
            folder.ok_or_else(|| because("confine a sandbox", &self.parent)(io::ErrorKind::NotFound.into()))?;
        write_once(&folder, CPUS, &cpus.to_string()).map_err(because("set the processors", &folder))
    }
}

/// A folder with the files of a cpuset of four processors, and one below it of a sandbox.
///
/// # Panics
/// If they cannot be written.
#[cfg(any(test, feature = "test-support"))]
#[expect(clippy::unwrap_used, reason = "tests end by panicking")]
#[must_use]
pub fn fake_cpusets(sandbox: &str) -> tempfile::TempDir {
    let tree = tempfile::tempdir().unwrap();
    for (file, text) in [(CPUS, "0-3\n"), (MEMS, "0\n"), (EFFECTIVE[0], "0-3\n")] {
        fs::write(tree.path().join(file), text).unwrap();
    }
    let group = tree.path().join(sandbox);
    fs::create_dir(&group).unwrap();
    for file in [CPUS, MEMS] {
        fs::write(group.join(file), "").unwrap();
    }
    tree
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_v1_group_gets_its_parents_and_is_confined_and_freed() {
        let tree = fake_cpusets("one");
        inherit_v1(&tree.path().join("one")).unwrap();
        let has = |file| fs::read_to_string(tree.path().join("one").join(file)).unwrap();
        assert_eq!((has(CPUS), has(MEMS)), ("0-3".to_owned(), "0".to_owned()));
        let cpus = SandboxCpus::below(tree.path()).unwrap();
        // The sandbox is found by its group's name, in whichever tree the group is.
        let sandbox = Members::Cgroup("/elsewhere/memory/one".into());
        fs::write(tree.path().join("one").join(CPUS), "").unwrap();
        cpus.confine(&sandbox, &"2".parse().unwrap()).unwrap();
        assert_eq!(has(CPUS), "2");
        let error = cpus.confine(&Members::Cgroup("/elsewhere/other".into()), cpus.all()).unwrap_err();
        assert!(error.to_string().contains("other"), "{error}");
    }

    #[test]
    fn a_folder_that_is_no_cpuset_is_said() {
        let tree = tempfile::tempdir().unwrap();
        assert!(SandboxCpus::below(tree.path()).unwrap_err().contains("does not say"));
        fs::write(tree.path().join(EFFECTIVE[1]), "\n").unwrap();
        assert!(SandboxCpus::below(tree.path()).unwrap_err().contains("no processor"));
    }
}
