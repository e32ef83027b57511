//! A disk whose power can be cut: an ext4 file system on a loop device over a served image.

use std::ffi::CString;
use std::fs::{self, File, Permissions};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::fs::{Advice, FallocateFlags, MemfdFlags, fadvise, fallocate, memfd_create, statvfs};
use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};

use super::served_image::{DEVICE, ServedImage};
use super::write_cache::{Syncs, WriteCache};
use crate::LabError;
use crate::instrument::error::Tried;

/// Set in the process whose mounts are its own.
const OWN_MOUNTS: &str = "LAB_OWN_MOUNTS";
/// How long the last write of a killed process may keep the file system busy.
const UNMOUNTED_WITHIN: Duration = Duration::from_secs(10);
/// What fills a disk.
const FILLER: &str = "filler";

/// How the file system is mounted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Options {
    Usual,
    /// Nothing that ext4 does of itself for programs which do not sync: no order between a file's bytes and its name, no
    /// flush at a rename, and no commit of its journal but those that are asked for.
    Bare,
}

impl Options {
    const fn text(self) -> &'static str {
        match self {
            Self::Usual => "",
            Self::Bare => "data=writeback,noauto_da_alloc,commit=300",
        }
    }
}

#[derive(Debug)]
pub(super) struct Disk {
    at: PathBuf,
    options: Options,
    mounted: bool,
    image: ServedImage,
}

impl Disk {
    /// Makes an empty file system of so many bytes, to be mounted at `at`; its image is in memory, and mounted in `folder`
    /// under `name`. The power is off.
    pub(super) fn make(
        folder: &Path,
        name: &str,
        at: &Path,
        bytes: u64,
        seed: u64,
        options: Options,
    ) -> Result<Self, LabError> {
        // In memory: this machine's own disk, and who else writes to it, has no part in the experiment.
        let medium = File::from(memfd_create(name, MemfdFlags::CLOEXEC).at(name)?);
        let path = PathBuf::from(format!("/proc/{}/fd/{}", std::process::id(), medium.as_raw_fd()));
        medium.set_len(bytes).at(&path)?;
        let formats = ["-q", "-F", "-m", "0", "-N", "16384", "-J", "size=16"];
        let whole = ["-E", "lazy_itable_init=0,lazy_journal_init=0,nodiscard"];
        let text = path.to_string_lossy();
        run("mkfs.ext4", &[&formats[..], &whole[..], &[&*text]].concat())?;
        let cache = WriteCache::new(medium, seed).at(&path)?;
        let image = ServedImage::mount(&folder.join(format!("{name}.fuse")), cache)?;
        fs::create_dir_all(at).at(at)?;
        let mut disk = Self { at: at.to_owned(), options, mounted: false, image };
        disk.power_on()?;
        // An empty folder, and nobody else's, as a node makes its own.
        let found = at.join("lost+found");
        fs::remove_dir(&found).at(found)?;
        fs::set_permissions(at, Permissions::from_mode(0o700)).at(at)?;
        disk.power_off();
        disk.unmount()?;
        Ok(disk)
    }

    /// Mounts the file system, which replays its journal.
    pub(super) fn power_on(&mut self) -> Result<(), LabError> {
        self.image.power_on();
        let file = self.image.file().to_string_lossy().into_owned();
        let device = run("losetup", &["--find", "--show", "--direct-io=on", &file])?;
        let options = CString::new(self.options.text()).at(&self.at)?;
        let flags = MountFlags::NOSUID | MountFlags::NODEV;
        let mounted = mount(device.as_str(), &self.at, "ext4", flags, Some(options.as_c_str()));
        // A device that is mounted is detached with the unmount.
        let detached = run("losetup", &["--detach", &device]);
        let failed = |error: Errno| LabError::file(&self.at, &format!("ext4 cannot be mounted: {error}"));
        mounted.map_err(failed)?;
        self.mounted = true;
        detached.map(drop)
    }

    /// The power is gone: from this moment nothing is read, written or synced.
    pub(super) fn power_off(&self) {
        self.image.power_off();
    }

    /// After the processes that used it: what was not synced is forgotten, but for a random part.
    pub(super) fn forget(&mut self) -> Result<(), LabError> {
        self.unmount()?;
        self.image.lose_power().at(self.image.file())
    }

    fn unmount(&mut self) -> Result<(), LabError> {
        let begun = Instant::now();
        while self.mounted {
            match unmount(&self.at, UnmountFlags::empty()) {
                Ok(()) | Err(Errno::INVAL) => self.mounted = false,
                Err(Errno::BUSY) if begun.elapsed() < UNMOUNTED_WITHIN => {
                    std::thread::sleep(Duration::from_millis(5));
                }
                Err(error) => return Err(LabError::file(&self.at, &format!("unmount: {error}"))),
            }
        }
        Ok(())
    }

    pub(super) fn set_syncs(&self, syncs: Syncs) -> Result<(), LabError> {
        self.image.set_syncs(syncs).at(self.image.file())
    }

    /// Leaves the next sync of something without an answer, until the power is off.
    pub(super) fn hold_next_sync(&self) {
        self.image.hold_next_sync();
    }

    /// Whether a sync waits in vain.
    pub(super) fn holds_a_sync(&self) -> bool {
        self.image.holds_a_sync()
    }

    /// Has the kernel begin to write the dirty pages of all files, without a sync.
    pub(super) fn write_back(&self) {
        write_back_below(&self.at);
    }

    /// Syncs so far, and sectors that cuts have taken.
    pub(super) fn counts(&self) -> (u64, u64) {
        self.image.counts()
    }

    /// Fills the file system but for `left` bytes.
    pub(super) fn fill(&self, left: u64) -> Result<(), LabError> {
        let path = self.at.join(FILLER);
        let room = statvfs(&self.at).map(|room| room.f_bavail * room.f_frsize).at(&self.at)?;
        let file = File::create(&path).at(&path)?;
        match room.saturating_sub(left) {
            0 => Ok(()),
            // What others took meanwhile leaves less: it is full then.
            bytes => match fallocate(&file, FallocateFlags::empty(), 0, bytes) {
                Ok(()) | Err(Errno::NOSPC) => Ok(()),
                Err(error) => Err(LabError::file(path, &error)),
            },
        }
    }

    /// Makes room again.
    pub(super) fn unfill(&self) -> Result<(), LabError> {
        let path = self.at.join(FILLER);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(LabError::file(path, &error)),
            _ => Ok(()),
        }
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        self.power_off();
        if self.unmount().is_err() {
            // Somebody still uses it: it goes with its last user.
            let _ = unmount(&self.at, UnmountFlags::DETACH);
        }
    }
}

/// Files come and go meanwhile: what cannot be opened is left out.
fn write_back_below(folder: &Path) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => write_back_below(&entry.path()),
            Ok(kind) if kind.is_file() => {
                if let Ok(file) = File::open(entry.path()) {
                    // Of dirty pages, the kernel begins to write them and keeps them; it fails for no file.
                    let _ = fadvise(&file, 0, None, Advice::DontNeed);
                }
            }
            _ => {}
        }
    }
}

/// Runs a program to its end; what it printed.
fn run(program: &str, arguments: &[&str]) -> Result<String, LabError> {
    let failed = |reason: String| LabError::Node(format!("{program} {}: {reason}", arguments.join(" ")));
    let done = Command::new(program).args(arguments).output().map_err(|error| failed(error.to_string()))?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    if done.status.success() { Ok(text(&done.stdout)) } else { Err(failed(text(&done.stderr))) }
}

/// An error that names what this machine lacks for such disks.
pub(super) fn possible() -> Result<(), LabError> {
    let missing = |missing: &str| {
        Err(LabError::Missing {
            missing: missing.to_owned(),
            hint: "run this as root, where there are FUSE, loop devices, losetup, mkfs.ext4 and unshare",
        })
    };
    if !rustix::process::geteuid().is_root() {
        return missing("root");
    }
    for device in [DEVICE, "/dev/loop-control"] {
        if File::options().read(true).write(true).open(device).is_err() {
            return missing(device);
        }
    }
    for program in ["losetup", "mkfs.ext4", "unshare"] {
        if run(program, &[if program == "mkfs.ext4" { "-V" } else { "--version" }]).is_err() {
            return missing(program);
        }
    }
    Ok(())
}

/// Begins this process anew, under the same id, with mounts that nobody else sees: they and the loop devices below them go
/// with the last process that uses them, even if this one is killed. Returns in the process that has them.
pub(super) fn with_own_mounts() -> Result<(), LabError> {
    use std::os::unix::process::CommandExt as _;

    if std::env::var_os(OWN_MOUNTS).is_some() {
        return Ok(());
    }
    let own = std::env::current_exe().at("the program")?;
    let mut command = Command::new("unshare");
    command.args(["--mount", "--propagation", "private", "--"]).arg(own).args(std::env::args_os().skip(1));
    let error = command.env(OWN_MOUNTS, "1").exec();
    Err(LabError::Node(format!("unshare: {error}")))
}
