//! The files a sandbox sees: the system's programs, its code and its runtime, all read-only; a /tmp of its own.
//!
//! The new root is a folder in an empty file system, entered by `chroot` after `pivot_root`: in a process whose root
//! is not the mount's, the kernel makes no user namespace (clone(2), EPERM), so none can be made inside.

use std::ffi::CString;
use std::fs;
use std::os::unix::fs::{DirBuilderExt as _, symlink};
use std::path::{Path, PathBuf};

use nigh_sandbox::sandbox::launch::Launch;
use nigh_sandbox::sandbox::mounts::{NO_DEVICES, NO_EXEC, NO_SET_UID, READ_ONLY, restrict};
use nigh_sandbox::sandbox::root_tree::{
    CODE, DEVICE_LINKS, DEVICES, DEVICES_OPTIONS, Entry, LAYERS, NEW_ROOT, SHARED_MEMORY_OPTIONS, entries, tmp_options,
    users,
};
use rustix::fs::CWD;
use rustix::mount::{
    MountFlags, MountPropagationFlags, UnmountFlags, mount, mount_bind, mount_bind_recursive, mount_change, unmount,
};
use rustix::process::{chdir, chroot, pivot_root};

use crate::failure::{Failure, Step as _};

/// A folder that always exists; it is covered only until the old root is left.
const STAGE: &str = "/proc";
const OLD: &str = "/old";
const ROOT_OPTIONS: &str = "mode=0755,size=4m,nr_inodes=8192";

/// Builds the root and enters it; without code its folder stays empty. `uid` is the user the command will have.
pub(crate) fn enter(launch: &Launch, uid: u32) -> Result<(), Failure> {
    // Names are resolved now: an absolute link would lead elsewhere below the moved root.
    let resolve = |path: &Path| fs::canonicalize(path).step(format_args!("find {}", path.display()));
    let code = launch.code.as_deref().map(|code| resolve(Path::new(code))).transpose()?;
    let layers = launch.layers.as_deref().map(|layers| resolve(Path::new(layers))).transpose()?;
    let runtimes = (launch.runtime_folders.iter())
        .map(|folder| Ok((PathBuf::from(folder), resolve(Path::new(folder))?)))
        .collect::<Result<Vec<_>, Failure>>()?;

    mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC).step("keep mounts to itself")?;
    memory_folder(Path::new(STAGE), ROOT_OPTIONS)?;
    for name in [OLD, NEW_ROOT] {
        folder(&Path::new(STAGE).join(&name[1..]))?;
    }
    pivot_root(STAGE, format!("{STAGE}{OLD}")).step("change the root")?;
    chdir("/").step("change the root")?;

    for entry in entries(Path::new(OLD)).step("look at the host's root")? {
        build(entry)?;
    }
    for (path, text) in users(uid) {
        write(Path::new(path), &text)?;
    }
    for (path, text) in &launch.texts {
        write(Path::new(path), text)?;
    }
    devices()?;
    let quiet = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    mount("proc", inside("proc"), "proc", quiet, None).step("mount /proc")?;
    memory_folder(&inside("tmp"), &tmp_options(launch.tmp_bytes))?;
    for (folder, target) in [(&code, CODE), (&layers, LAYERS)] {
        if let Some(folder) = folder {
            show(folder, target)?;
        }
    }
    for (target, source) in &runtimes {
        show_folder(source, target)?;
    }

    unmount(OLD, UnmountFlags::DETACH).step("leave the old root")?;
    fs::remove_dir(OLD).step("leave the old root")?;
    restrict(CWD, Path::new("/"), false, READ_ONLY).step("make the root read-only")?;
    chroot(NEW_ROOT).step("enter the new root")?;
    chdir("/").step("enter the new root")
}

/// A path of the sandbox, as this process reaches it while the root is built.
fn inside(path: impl AsRef<Path>) -> PathBuf {
    let path = path.as_ref();
    Path::new(NEW_ROOT).join(path.strip_prefix("/").unwrap_or(path))
}

/// A path of the host, as this process reaches it while the root is built.
fn outside(path: impl AsRef<Path>) -> PathBuf {
    let path = path.as_ref();
    Path::new(OLD).join(path.strip_prefix("/").unwrap_or(path))
}

fn folder(path: &Path) -> Result<(), Failure> {
    fs::DirBuilder::new().recursive(true).mode(0o755).create(path).step(format_args!("make {}", path.display()))
}

fn memory_folder(path: &Path, options: &str) -> Result<(), Failure> {
    let options = CString::new(options).step("mount options")?;
    mount("tmpfs", path, "tmpfs", MountFlags::NOSUID | MountFlags::NODEV, &*options)
        .step(format_args!("mount an empty {}", path.display()))
}

/// Shows a folder of the host at an existing place of the sandbox, read-only.
fn show(source: &Path, target: impl AsRef<Path>) -> Result<(), Failure> {
    let (from, to) = (outside(source), inside(target));
    let name = source.display();
    mount_bind_recursive(&from, &to).step(format_args!("show {name}"))?;
    restrict(CWD, &to, true, READ_ONLY | NO_SET_UID | NO_DEVICES)
        .step(format_args!("make {name} read-only (Linux 5.12 or later is needed)"))
}

fn show_folder(source: &Path, target: &Path) -> Result<(), Failure> {
    // The mount point may exist already, in the read-only system or in another folder.
    if !inside(target).is_dir() {
        folder(&inside(target))?;
    }
    show(source, target)
}

fn write(path: &Path, text: &str) -> Result<(), Failure> {
    fs::write(inside(path), text).step(format_args!("write {}", path.display()))
}

fn build(entry: Entry) -> Result<(), Failure> {
    match entry {
        Entry::Folder(path) => folder(&inside(path)),
        Entry::Link { path, to } => symlink(to, inside(&path)).step(format_args!("link {}", path.display())),
        Entry::Text { path, text } => write(&path, &text),
        Entry::Shown { path, folder: true } => show_folder(&path, &path),
        Entry::Shown { path, folder: false } => {
            write(&path, "")?;
            show(&path, &path)
        }
    }
}

fn devices() -> Result<(), Failure> {
    memory_folder(&inside("dev"), DEVICES_OPTIONS)?;
    for name in DEVICES {
        let target = inside("dev").join(name);
        fs::write(&target, "").step(format_args!("make /dev/{name}"))?;
        mount_bind(outside("dev").join(name), &target).step(format_args!("show /dev/{name}"))?;
    }
    for (name, to) in DEVICE_LINKS {
        symlink(to, inside("dev").join(name)).step(format_args!("link /dev/{name}"))?;
    }
    folder(&inside("dev/shm"))?;
    restrict(CWD, &inside("dev"), false, READ_ONLY | NO_EXEC).step("make /dev read-only")?;
    memory_folder(&inside("dev/shm"), SHARED_MEMORY_OPTIONS)
}
