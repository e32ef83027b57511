//! The operations a resctrl mount takes; behind them stand the kernel or the emulator.
//!
//! Paths are relative to the mount ("", "info/L3/cbm_mask", "group/tasks"). Errors are the kernel's errno, unchanged;
//! `info/last_cmd_status` is an ordinary file to be read after a failure, under the same lock.

use std::io;

/// What the holder of the mount's lock holds; dropped, it is released.
pub trait FsLock: Send {}

/// A resctrl mount.
pub trait ResctrlFs: Send + Sync {
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
    /// Takes the lock applications agree on: `flock(LOCK_EX)` on the mount's directory.
    fn lock(&self) -> io::Result<Box<dyn FsLock + '_>>;
}
