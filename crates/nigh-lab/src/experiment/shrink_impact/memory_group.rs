//! A memory cgroup that the experiment makes, limits, reads, and removes when it is dropped.
//!
//! Kernel documents: cgroup-v1/memory.rst, cgroup-v2.rst. On v1 the OOM killer is disabled: a process at the limit waits until the
//! limit is raised.

use std::fs::{self, File};
use std::io::Write as _;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nigh_terms::ByteSize;

use crate::LabError;
use crate::instrument::error::Tried;

/// How long its processes may take to end when it is removed.
const EMPTY_WITHIN: Duration = Duration::from_secs(5);

#[derive(Debug)]
pub(super) struct MemoryGroup {
    folder: PathBuf,
    /// Kept open: a change is one write.
    limit: File,
    version: Version,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Version {
    One,
    Two,
}

/// Where the memory controller is, as `/proc/mounts` says.
fn controller(mounts: &str) -> Option<(PathBuf, Version)> {
    let fields = || mounts.lines().map(|line| line.split(' ').collect::<Vec<_>>());
    let one = fields().find(|mount| {
        mount.get(2) == Some(&"cgroup") && mount.get(3).is_some_and(|options| options.split(',').any(|o| o == "memory"))
    });
    let found = |mount: Vec<&str>, version| mount.get(1).map(|place| (PathBuf::from(place), version));
    match one {
        Some(mount) => found(mount, Version::One),
        None => fields().find(|mount| mount.get(2) == Some(&"cgroup2")).and_then(|mount| found(mount, Version::Two)),
    }
}

impl MemoryGroup {
    pub(super) fn make(name: &str) -> Result<Self, LabError> {
        let missing = |missing: String| LabError::Missing { missing, hint: "run this as root, with a memory cgroup" };
        let mounts = fs::read_to_string("/proc/mounts").unwrap_or_default();
        let (root, version) = controller(&mounts).ok_or_else(|| missing("a memory cgroup".to_owned()))?;
        let folder = root.join(name);
        fs::create_dir(&folder).map_err(|error| missing(format!("{}: {error}; a cgroup", folder.display())))?;
        let file = match version {
            Version::One => "memory.limit_in_bytes",
            Version::Two => "memory.max",
        };
        let opened = File::options().read(true).write(true).open(folder.join(file));
        let made = opened.and_then(|limit| {
            if version == Version::One {
                fs::write(folder.join("memory.oom_control"), "1")?;
            }
            Ok(limit)
        });
        match made {
            Ok(limit) => Ok(Self { folder, limit, version }),
            Err(error) => {
                // The group holds nothing yet.
                let _ = fs::remove_dir(&folder);
                Err(missing(format!("{file} of {}: {error}; it", folder.display())))
            }
        }
    }

    /// The file that takes a process's number.
    pub(super) fn procs(&self) -> PathBuf {
        self.folder.join("cgroup.procs")
    }

    pub(super) fn set_limit(&self, bytes: ByteSize) -> Result<(), LabError> {
        self.limit.write_all_at(bytes.bytes().to_string().as_bytes(), 0).map_err(|error| limit_error(&error))
    }

    /// The most that was used since the last reset.
    pub(super) fn peak(&self) -> Result<ByteSize, LabError> {
        self.number("memory.max_usage_in_bytes", "memory.peak")
    }

    /// Resets the peak; only v1 can.
    pub(super) fn reset_peak(&self) -> Result<(), LabError> {
        match self.version {
            Version::One => fs::write(self.folder.join("memory.max_usage_in_bytes"), "0"),
            Version::Two => Ok(()),
        }
        .map_err(|error| limit_error(&error))
    }

    /// What is in use now.
    pub(super) fn used(&self) -> Result<ByteSize, LabError> {
        self.number("memory.usage_in_bytes", "memory.current")
    }

    /// The number in a file, which has one name in v1 and another in v2.
    fn number(&self, one: &str, two: &str) -> Result<ByteSize, LabError> {
        let path = self.folder.join(if self.version == Version::One { one } else { two });
        let text = fs::read_to_string(&path).map_err(|error| limit_error(&error))?;
        text.trim().parse().map(ByteSize).map_err(|error| limit_error(&format!("{}: {error}", path.display())))
    }
}

fn limit_error(reason: &dyn std::fmt::Display) -> LabError {
    LabError::Node(format!("the function's memory limit: {reason}"))
}

impl Drop for MemoryGroup {
    fn drop(&mut self) {
        // A process that waits at the limit cannot end.
        let _ = self.limit.write_all_at(b"-1", 0).or_else(|_| self.limit.write_all_at(b"max", 0));
        let begin = Instant::now();
        while fs::remove_dir(&self.folder).is_err() && self.folder.exists() && begin.elapsed() < EMPTY_WITHIN {
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

/// Writes a program to `path` that enters the group and then executes `python`.
pub(super) fn python_inside(group: &MemoryGroup, python: &Path, path: &Path) -> Result<(), LabError> {
    use std::os::unix::fs::OpenOptionsExt as _;
    let procs = group.procs();
    let text = format!("#!/bin/sh\necho $$ > '{}' || exit 1\nexec '{}' \"$@\"\n", procs.display(), python.display());
    let file = File::options().write(true).create_new(true).mode(0o700).open(path);
    file.and_then(|mut file| file.write_all(text.as_bytes())).at(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_controller_is_found_on_either_version() {
        let one = "tmpfs /sys/fs/cgroup tmpfs rw 0 0\ncgroup /sys/fs/cgroup/cpu cgroup rw,cpu 0 0\n\
                   cgroup /sys/fs/cgroup/memory cgroup rw,nosuid,memory 0 0\n";
        assert_eq!(controller(one), Some((PathBuf::from("/sys/fs/cgroup/memory"), Version::One)));
        let two = "cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n";
        assert_eq!(controller(two), Some((PathBuf::from("/sys/fs/cgroup"), Version::Two)));
        assert_eq!(controller("proc /proc proc rw 0 0\n"), None);
    }
}
