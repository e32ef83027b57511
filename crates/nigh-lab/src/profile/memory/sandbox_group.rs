//! The memory of one sandbox, read from its cgroup: the bytes in use, and how many of them are page cache.
//!
//! The group is found by its processes, which have the sandbox's id in their environment (the name of their log stream).
//! Follows Documentation/admin-guide/cgroup-v1/memory.rst and cgroup-v2.rst.

use std::fs;
use std::path::{Path, PathBuf};

use crate::LabError;
use crate::instrument::error::Tried;

const MOUNT: &str = "/sys/fs/cgroup";

/// The group of a living sandbox.
#[derive(Debug)]
pub(super) struct SandboxGroup {
    folder: PathBuf,
    /// The file with the bytes in use.
    used: &'static str,
}

impl SandboxGroup {
    /// The group of the sandbox with this id.
    pub(super) fn find(sandbox: &str) -> Result<Self, LabError> {
        let missing = || LabError::Missing {
            missing: format!("the memory cgroup of sandbox {sandbox}"),
            hint: "measure memory as root, where cgroups are mounted at /sys/fs/cgroup",
        };
        let processes = fs::read_dir("/proc").at("/proc")?;
        let has_id = |folder: &PathBuf| {
            let environment = fs::read(folder.join("environ")).unwrap_or_default();
            memchr::memmem::find(&environment, sandbox.as_bytes()).is_some()
        };
        let process = processes.flatten().map(|entry| entry.path()).find(has_id).ok_or_else(missing)?;
        let text = fs::read_to_string(process.join("cgroup")).map_err(|_| missing())?;
        Self::of_groups(&text, Path::new(MOUNT)).ok_or_else(missing)
    }

    /// The memory group among these of a process (cgroups(7)), below `mount`.
    fn of_groups(text: &str, mount: &Path) -> Option<Self> {
        let below = |root: PathBuf, path: &str| root.join(path.trim_start_matches('/'));
        let of_v1 = text.lines().find_map(|line| {
            let mut fields = line.splitn(3, ':').skip(1);
            let controllers = fields.next()?;
            let path = fields.next()?;
            controllers.split(',').any(|one| one == "memory").then(|| below(mount.join("memory"), path))
        });
        if let Some(folder) = of_v1 {
            return Some(Self { folder, used: "memory.usage_in_bytes" });
        }
        let path = text.lines().find_map(|line| line.strip_prefix("0::"))?;
        Some(Self { folder: below(mount.to_owned(), path), used: "memory.current" })
    }

    /// The bytes in use now.
    pub(super) fn used(&self) -> Result<u64, LabError> {
        let path = self.folder.join(self.used);
        let text = fs::read_to_string(&path).at(&path)?;
        text.trim().parse().at(&path)
    }

    /// The bytes of files that the kernel can drop; files in /tmp are memory and do not count.
    pub(super) fn page_cache(&self) -> Result<u64, LabError> {
        let path = self.folder.join("memory.stat");
        let text = fs::read_to_string(&path).at(&path)?;
        Ok(file_pages(&text))
    }
}

/// The bytes of file pages in a `memory.stat`: their two lists have the same names in both versions.
fn file_pages(stat: &str) -> u64 {
    let listed = |line: &str| {
        let (name, bytes) = line.split_once(' ')?;
        matches!(name, "inactive_file" | "active_file").then(|| bytes.trim().parse::<u64>().ok())?
    };
    stat.lines().filter_map(listed).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_memory_group_is_found_in_both_versions() {
        let mount = Path::new("/m");
        let v1 = SandboxGroup::of_groups("4:cpu,cpuacct:/c\n9:memory:/nigh-1/a\n0::/u\n", mount).unwrap();
        assert_eq!((v1.folder.to_str().unwrap(), v1.used), ("/m/memory/nigh-1/a", "memory.usage_in_bytes"));
        let v2 = SandboxGroup::of_groups("0::/nigh-1/a\n", mount).unwrap();
        assert_eq!((v2.folder.to_str().unwrap(), v2.used), ("/m/nigh-1/a", "memory.current"));
        assert!(SandboxGroup::of_groups("", mount).is_none());
    }

    #[test]
    fn page_cache_is_the_files_pages_and_not_those_of_tmp() {
        let stat = "cache 900\nshmem 500\nmapped_file 40\ninactive_anon 500\ninactive_file 100\nactive_file 300\n\
                    total_inactive_file 7000\n";
        assert_eq!(file_pages(stat), 400);
    }

    #[test]
    fn a_sandbox_that_is_not_there_is_told() {
        let error = SandboxGroup::find("no such sandbox, nor its environment").unwrap_err().to_string();
        assert!(error.contains("no such sandbox"), "{error}");
    }
}
