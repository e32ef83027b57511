//! A real mount: the kernel behind [`ResctrlFs`].
//!
//! It makes no decisions. Each write is one `write(2)`, since the kernel takes each as one command; reads are bounded.
//! The lock is `flock(LOCK_EX)` on the mount's directory, as Documentation/filesystems/resctrl.rst asks. No descriptor
//! stays open between operations, so that an administrator can unmount.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, Mode, OFlags};

use super::fs::{FsLock, MountOptions, ResctrlFs};

/// Where the kernel's mounts are listed.
pub const MOUNTINFO: &str = "/proc/self/mountinfo";
/// Most bytes of one file that are read; `tasks` of a big machine is the longest (4 million ids of 8 bytes).
pub const READ_MAX: u64 = 32 << 20;

/// A mounted resctrl.
#[derive(Debug, Clone)]
pub struct KernelFs {
    mount: PathBuf,
    mountinfo: PathBuf,
}

/// The mount's directory, locked.
struct Flock(File);

impl FsLock for Flock {}

impl Drop for Flock {
    /// Closing is not enough: a child forked meanwhile has the file open until it runs its program.
    fn drop(&mut self) {
        // Unlocking a locked descriptor cannot fail (flock(2)).
        let _ = self.0.unlock();
    }
}

impl KernelFs {
    /// Finds the mount in a list of mounts (usually [`MOUNTINFO`]); `None` when resctrl is not mounted.
    pub fn find(mountinfo: impl Into<PathBuf>) -> io::Result<Option<Self>> {
        let mountinfo = mountinfo.into();
        let found = find_mount(&read_bounded(&mountinfo)?);
        Ok(found.map(|(mount, _)| Self { mount, mountinfo }))
    }

    /// Where it is mounted.
    pub fn path(&self) -> &Path {
        &self.mount
    }

    fn at(&self, path: &str) -> PathBuf {
        if path.is_empty() { self.mount.clone() } else { self.mount.join(path) }
    }
}

/// The first resctrl mount of a mountinfo text: where, and with which options. Only one can exist, but it may be
/// bound to several places.
fn find_mount(mountinfo: &str) -> Option<(PathBuf, MountOptions)> {
    mountinfo.lines().find_map(|line| {
        let (before, after) = line.split_once(" - ")?;
        let mut after = after.split(' ');
        if after.next()? != "resctrl" {
            return None;
        }
        let options = MountOptions::parse(after.nth(1).unwrap_or_default());
        Some((PathBuf::from(unescape(before.split(' ').nth(4)?)), options))
    })
}

/// mountinfo writes blanks and backslashes in a path as `\` and three octal digits.
fn unescape(path: &str) -> String {
    let mut plain = Vec::with_capacity(path.len());
    let mut bytes = path.as_bytes();
    while let Some((&first, rest)) = bytes.split_first() {
        let octal =
            (first == b'\\').then(|| rest.get(..3).and_then(|digits| std::str::from_utf8(digits).ok())).flatten();
        match octal.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(byte) => {
                plain.push(byte);
                bytes = &rest[3..];
            }
            None => {
                plain.push(first);
                bytes = rest;
            }
        }
    }
    String::from_utf8_lossy(&plain).into_owned()
}

fn read_bounded(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    File::open(path)?.take(READ_MAX + 1).read_to_string(&mut text)?;
    if text.len() as u64 > READ_MAX {
        return Err(io::Error::new(
            io::ErrorKind::InvalidData,
            format!("{} is longer than {READ_MAX} bytes", path.display()),
        ));
    }
    Ok(text)
}

impl ResctrlFs for KernelFs {
    fn mount_options(&self) -> io::Result<Option<MountOptions>> {
        let found = find_mount(&read_bounded(&self.mountinfo)?);
        Ok(found.filter(|(mount, _)| *mount == self.mount).map(|(_, options)| options))
    }

    fn read(&self, path: &str) -> io::Result<String> {
        read_bounded(&self.at(path))
    }

    fn write(&self, path: &str, text: &str) -> io::Result<()> {
        let mut file = OpenOptions::new().write(true).open(self.at(path))?;
        let written = file.write(text.as_bytes())?;
        if written < text.len() {
            // The kernel takes a command completely or not at all.
            return Err(io::Error::new(io::ErrorKind::WriteZero, format!("{written} of {} bytes taken", text.len())));
        }
        Ok(())
    }

    fn make_group(&self, path: &str) -> io::Result<()> {
        // create_dir, never create_dir_all: a missing parent must fail, not become a class of its own.
        fs::create_dir(self.at(path))
    }

    fn remove_group(&self, path: &str) -> io::Result<()> {
        fs::remove_dir(self.at(path))
    }

    fn rename_group(&self, from: &str, to: &str) -> io::Result<()> {
        fs::rename(self.at(from), self.at(to))
    }

    fn list(&self, path: &str) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(self.at(path))? {
            let entry = entry?;
            let mark = if entry.file_type()?.is_dir() { "/" } else { "" };
            names.push(entry.file_name().to_string_lossy().into_owned() + mark);
        }
        names.sort();
        Ok(names)
    }

    fn lock(&self) -> io::Result<Box<dyn FsLock + '_>> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = File::from(rustix::fs::open(&self.mount, flags, Mode::empty())?);
        rustix::io::retry_on_intr(|| rustix::fs::flock(&directory, FlockOperation::LockExclusive))?;
        Ok(Box::new(Flock(directory)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINES: &str = "22 28 0:20 / /sys rw,nosuid - sysfs sysfs rw\n\
        90 22 0:41 / /sys/fs/re\\040sctrl rw,relatime shared:9 - resctrl resctrl rw,cdp,mba_MBps\n";

    fn over(directory: &Path, mountinfo: &str) -> KernelFs {
        let list = directory.join("mountinfo");
        fs::write(&list, mountinfo.replace("/sys/fs/re\\040sctrl", &directory.display().to_string())).unwrap();
        KernelFs::find(list).unwrap().unwrap()
    }

    #[test]
    fn the_mount_is_found_with_its_options_in_a_list_of_mounts() {
        let (path, options) = find_mount(LINES).unwrap();
        assert_eq!(path, Path::new("/sys/fs/re sctrl"));
        assert_eq!(options, MountOptions { cdp: true, mba_mbps: true, ..MountOptions::default() });
        assert!(find_mount(LINES.lines().next().unwrap()).is_none());
        assert!(find_mount("garbage - resctrl").is_none());
    }

    #[test]
    fn an_unmount_is_noticed() {
        let directory = tempfile::tempdir().unwrap();
        let kernel = over(directory.path(), LINES);
        assert!(kernel.mount_options().unwrap().is_some());
        fs::write(directory.path().join("mountinfo"), "").unwrap();
        assert_eq!(kernel.mount_options().unwrap(), None);
        assert!(KernelFs::find(directory.path().join("mountinfo")).unwrap().is_none());
    }

    #[test]
    fn writing_never_makes_a_file_and_making_never_makes_a_parent() {
        let directory = tempfile::tempdir().unwrap();
        let kernel = over(directory.path(), LINES);
        assert_eq!(kernel.write("schemata", "L3:0=1\n").unwrap_err().kind(), io::ErrorKind::NotFound);
        assert_eq!(kernel.make_group("a/b").unwrap_err().kind(), io::ErrorKind::NotFound);
        kernel.make_group("a").unwrap();
        assert_eq!(kernel.list("").unwrap(), ["a/", "mountinfo"]);
    }

    #[test]
    fn the_lock_is_held_against_others_until_dropped() {
        let directory = tempfile::tempdir().unwrap();
        let kernel = over(directory.path(), LINES);
        let lock = kernel.lock().unwrap();
        let other = File::open(directory.path()).unwrap();
        let tried = rustix::fs::flock(&other, FlockOperation::NonBlockingLockExclusive);
        assert_eq!(tried, Err(rustix::io::Errno::WOULDBLOCK));
        drop(lock);
        rustix::fs::flock(&other, FlockOperation::NonBlockingLockExclusive).unwrap();
    }
}
