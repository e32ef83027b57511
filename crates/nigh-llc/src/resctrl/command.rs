//! One command to the kernel and, when it fails, everything known of why: the errno, and `last_cmd_status` read under
//! the same lock.

use std::fmt;
use std::io;

use rustix::io::Errno;

use super::fs::ResctrlFs;

/// A command to the kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Command {
    /// A group made.
    Make(String),
    /// A group removed.
    Remove(String),
    /// A file written.
    Write {
        /// The file.
        path: String,
        /// The text.
        text: String,
    },
    /// A monitoring group renamed.
    Rename {
        /// Its old path.
        from: String,
        /// Its new one.
        to: String,
    },
}

impl fmt::Display for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Make(path) => write!(f, "mkdir {path}"),
            Self::Remove(path) => write!(f, "rmdir {path}"),
            Self::Write { path, text } => write!(f, "write {:?} to {path}", text.trim_end()),
            Self::Rename { from, to } => write!(f, "rename {from} to {to}"),
        }
    }
}

/// A command the kernel refused.
#[derive(Debug, thiserror::Error)]
#[error("{command}: {source}; last_cmd_status: {}{}", .status.trim_end(), hint(.source))]
pub struct CommandError {
    /// The command.
    pub command: Command,
    /// The kernel's errno.
    pub source: io::Error,
    /// The kernel's message; `ok` if there is none.
    pub status: String,
}

impl CommandError {
    /// The kernel's errno, where the failure has one.
    pub fn errno(&self) -> Option<Errno> {
        self.source.raw_os_error().map(Errno::from_raw_os_error)
    }
}

/// A hint for an errno.
fn hint(error: &io::Error) -> &'static str {
    match error.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::NOSPC) => " (hint: classes of service or monitoring ids are used up; remove unused groups)",
        Some(Errno::BUSY) => " (hint: monitoring ids wait until their cache lines are gone; try again in seconds)",
        Some(Errno::ACCESS | Errno::PERM) => " (hint: run as root)",
        Some(Errno::NOENT | Errno::NODEV) => " (hint: the group, or the mount, was removed by somebody else)",
        _ => "",
    }
}

/// Runs a command.
pub(super) fn run(fs: &dyn ResctrlFs, command: Command) -> Result<(), CommandError> {
    let answer = match &command {
        Command::Make(path) => fs.make_group(path),
        Command::Remove(path) => fs.remove_group(path),
        Command::Write { path, text } => fs.write(path, text),
        Command::Rename { from, to } => fs.rename_group(from, to),
    };
    answer.map_err(|source| failed(fs, command, source))
}

/// A failure with the kernel's words.
pub(super) fn failed(fs: &dyn ResctrlFs, command: Command, source: io::Error) -> CommandError {
    let status = fs.read("info/last_cmd_status");
    let status = status.unwrap_or_else(|error| format!("not to be read: {error}"));
    CommandError { command, source, status }
}

/// Writes a file.
pub(super) fn write(fs: &dyn ResctrlFs, path: String, text: String) -> Result<(), CommandError> {
    run(fs, Command::Write { path, text })
}
