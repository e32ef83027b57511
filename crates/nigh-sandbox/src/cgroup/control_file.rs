//! A file of a cgroup, kept open: a read or write is one system call of about a microsecond; opening the file each time
//! would take ten.

use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

/// Longer than any file that is read here (`memory.events`, `cgroup.events`, `memory.oom_control`).
const TEXT_MAX_BYTES: usize = 4096;

/// An open file of a cgroup.
#[derive(Debug)]
pub(crate) struct ControlFile {
    path: PathBuf,
    file: File,
}

impl ControlFile {
    /// Opens `name` in `group` for reading.
    pub(crate) fn readable(group: &Path, name: &str) -> io::Result<Self> {
        Self::open(group, name, OpenOptions::new().read(true))
    }

    /// Opens `name` in `group` for reading and writing.
    pub(crate) fn writable(group: &Path, name: &str) -> io::Result<Self> {
        Self::open(group, name, OpenOptions::new().read(true).write(true))
    }

    /// Opens `name` in `group` for writing only: some files cannot be read.
    pub(crate) fn write_only(group: &Path, name: &str) -> io::Result<Self> {
        Self::open(group, name, OpenOptions::new().write(true))
    }

    /// A second handle on the same open file.
    pub(crate) fn try_clone(&self) -> io::Result<Self> {
        Ok(Self { path: self.path.clone(), file: self.file.try_clone()? })
    }

    fn open(group: &Path, name: &str, options: &OpenOptions) -> io::Result<Self> {
        let path = group.join(name);
        let file = options.open(&path)?;
        Ok(Self { path, file })
    }

    /// The file's path.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The file's present text.
    pub(crate) fn text(&self) -> io::Result<String> {
        let mut buffer = [0; TEXT_MAX_BYTES];
        let length = self.file.read_at(&mut buffer, 0)?;
        Ok(String::from_utf8_lossy(&buffer[..length]).into_owned())
    }

    /// The one number in the file; `max` reads as the largest number.
    pub(crate) fn number(&self) -> io::Result<u64> {
        let mut buffer = [0; 32];
        let length = self.file.read_at(&mut buffer, 0)?;
        parse_number(&buffer[..length])
            .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "the file does not hold one number"))
    }

    /// The number behind `name` in a file of lines `name number`.
    pub(crate) fn named_number(&self, name: &str) -> io::Result<u64> {
        named_number(&self.text()?, name)
            .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, format!("the file has no line `{name}`")))
    }

    /// Writes `value` in one system call.
    pub(crate) fn set(&self, value: &[u8]) -> io::Result<()> {
        self.file.write_at(value, 0).map(drop)
    }

    /// Writes a number in one system call.
    pub(crate) fn set_number(&self, value: u64) -> io::Result<()> {
        let mut buffer = [0; 20];
        let mut rest = &mut buffer[..];
        write!(rest, "{value}")?;
        let unused = rest.len();
        self.set(&buffer[..buffer.len() - unused])
    }
}

impl AsFd for ControlFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

fn parse_number(text: &[u8]) -> Option<u64> {
    match text.trim_ascii() {
        b"max" => Some(u64::MAX),
        digits => str::from_utf8(digits).ok()?.parse().ok(),
    }
}

/// The number behind `name` in lines of `name number`.
pub(crate) fn named_number(text: &str, name: &str) -> Option<u64> {
    text.lines().find_map(|line| {
        let (key, value) = line.split_once(' ')?;
        (key == name).then(|| value.trim().parse().ok()).flatten()
    })
}

/// Writes a file of a group once.
pub(crate) fn write_once(group: &Path, name: &str, value: &str) -> io::Result<()> {
    OpenOptions::new().write(true).open(group.join(name))?.write_all(value.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_read_back_as_written_and_max_is_the_largest() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("limit"), "max\n").unwrap();
        let file = ControlFile::writable(folder.path(), "limit").unwrap();
        assert_eq!(file.number().unwrap(), u64::MAX);
        for value in [0, 7, u64::MAX] {
            std::fs::write(folder.path().join("limit"), "").unwrap();
            file.set_number(value).unwrap();
            assert_eq!(file.number().unwrap(), value);
        }
    }

    #[test]
    fn a_line_is_found_by_its_whole_name() {
        let events = "low 0\noom 3\noom_kill 2\noom_group_kill 0\n";
        assert_eq!(named_number(events, "oom_kill"), Some(2));
        assert_eq!(named_number(events, "oom"), Some(3));
        assert_eq!(named_number(events, "oom_"), None);
    }
}
