//! The operations of a resctrl mount, implemented by the kernel and by the emulator.
//!
//! Paths are relative to the mount ("", "info/L3/cbm_mask", "group/tasks"). Errors are the kernel's errno, unchanged;
//! `info/last_cmd_status` is an ordinary file to be read after a failure, under the same lock.

use std::fmt;
use std::io;

/// The options of the mount.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MountOptions {
    /// Separate masks for code and data in the L3.
    pub cdp: bool,
    /// Separate masks for code and data in the L2.
    pub cdpl2: bool,
    /// Memory bandwidth given in MiB/s, held by the kernel's software controller.
    pub mba_mbps: bool,
    /// Files with the hardware's ids.
    pub debug: bool,
}

impl MountOptions {
    /// Reads the file system's options of a mountinfo line; others are skipped.
    pub fn parse(options: &str) -> Self {
        let has = |name| options.split(',').any(|option| option == name);
        Self { cdp: has("cdp"), cdpl2: has("cdpl2"), mba_mbps: has("mba_MBps"), debug: has("debug") }
    }
}

impl fmt::Display for MountOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all = [(self.cdp, "cdp"), (self.cdpl2, "cdpl2"), (self.mba_mbps, "mba_MBps"), (self.debug, "debug")];
        let set: Vec<&str> = all.into_iter().filter_map(|(on, name)| on.then_some(name)).collect();
        f.write_str(&set.join(","))
    }
}

/// The mount's lock. Dropping it releases the lock.
pub trait FsLock: Send {}

/// A resctrl mount.
pub trait ResctrlFs: Send + Sync {
    /// The present mount options; `None` if it is not mounted (any more).
    fn mount_options(&self) -> io::Result<Option<MountOptions>>;
    /// Reads a whole file.
    fn read(&self, path: &str) -> io::Result<String>;
    /// Writes `text` with one `write(2)`: the kernel takes each write as one command.
    fn write(&self, path: &str, text: &str) -> io::Result<()>;
    /// Makes a directory: a control group at the root, a monitoring group in a `mon_groups`.
    fn make_group(&self, path: &str) -> io::Result<()>;
    /// Removes a group's directory.
    fn remove_group(&self, path: &str) -> io::Result<()>;
    /// Renames a monitoring group.
    fn rename_group(&self, from: &str, to: &str) -> io::Result<()>;
    /// The names in a directory, sorted, directories marked by a trailing `/`.
    fn list(&self, path: &str) -> io::Result<Vec<String>>;
    /// Takes the lock that applications agree on: `flock(LOCK_EX)` on the mount's directory.
    fn lock(&self) -> io::Result<Box<dyn FsLock + '_>>;
}
