//! The files a sandbox sees: the system's programs, its code and its runtime, all read-only; a /tmp of its own.
//!
//! The new root is a folder in an empty file system, entered by `chroot` after `pivot_root`: in a process whose root
//! is not the mount's, the kernel makes no user namespace (clone(2), EPERM), so none can be made inside.

use std::ffi::CString;
use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, symlink};
use std::path::{Path, PathBuf};

use nigh_faas::sandbox::launch::{Launch, tmp_files};
use nigh_faas::sandbox::{CODE, mount_attributes};
use rustix::mount::{
    MountFlags, MountPropagationFlags, UnmountFlags, mount, mount_bind, mount_bind_recursive, mount_change, unmount,
};
use rustix::process::{chdir, chroot, pivot_root};

use crate::failure::{Failure, Step as _};
use crate::sys;

/// Any folder that is always there; it is covered only until the old root is left.
const STAGE: &str = "/proc";
const OLD: &str = "/old";
const NEW: &str = "/new";

/// The system's programs and libraries.
const SYSTEM: [&str; 7] = ["usr", "bin", "sbin", "lib", "lib32", "lib64", "libx32"];
/// What programs need of the host's /etc: the linker's cache, Debian's links, certificates, fonts, time zone.
const SETTINGS: [&str; 13] = [
    "alternatives",
    "ca-certificates",
    "fonts",
    "ImageMagick-6",
    "ImageMagick-7",
    "ld.so.cache",
    "localtime",
    "magic",
    "mime.types",
    "pki",
    "services",
    "ssl",
    "timezone",
];
const DEVICES: [&str; 5] = ["null", "zero", "full", "random", "urandom"];

const ROOT_OPTIONS: &str = "mode=0755,size=4m,nr_inodes=8192";
const DEVICES_OPTIONS: &str = "mode=0755,size=64k,nr_inodes=64";
/// Shared memory is the sandbox's own memory: its cgroup counts it too.
const SHARED_MEMORY_OPTIONS: &str = "mode=1777,size=64m,nr_inodes=4096";

/// Builds the root and enters it; without code its folder stays empty. `uid` is the user the command will have.
pub(crate) fn enter(launch: &Launch, uid: u32) -> Result<(), Failure> {
    // Names are resolved now: an absolute link would lead elsewhere below the moved root.
    let resolve = |path: &Path| fs::canonicalize(path).step(format_args!("find {}", path.display()));
    let code = launch.code.as_deref().map(|code| resolve(Path::new(code))).transpose()?;
    let runtimes = (launch.runtime_folders.iter())
        .map(|folder| Ok((PathBuf::from(folder), resolve(Path::new(folder))?)))
        .collect::<Result<Vec<_>, Failure>>()?;

    mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC).step("keep mounts to itself")?;
    memory_folder(Path::new(STAGE), ROOT_OPTIONS)?;
    for name in [OLD, NEW] {
        folder(&Path::new(STAGE).join(&name[1..]))?;
    }
    pivot_root(STAGE, format!("{STAGE}{OLD}")).step("change the root")?;
    chdir("/").step("change the root")?;

    system()?;
    for name in ["etc", "proc", "dev", "tmp", "var", "var/task"] {
        folder(&inside(name))?;
    }
    symlink("../tmp", inside("var/tmp")).step("link /var/tmp")?;
    settings(uid)?;
    devices()?;
    let quiet = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    mount("proc", inside("proc"), "proc", quiet, None).step("mount /proc")?;
    let options = format!("mode=1777,size={},nr_inodes={}", launch.tmp_bytes, tmp_files(launch.tmp_bytes));
    memory_folder(&inside("tmp"), &options)?;
    if let Some(code) = &code {
        show(code, CODE)?;
    }
    for (target, source) in &runtimes {
        show_folder(source, target)?;
    }

    unmount(OLD, UnmountFlags::DETACH).step("leave the old root")?;
    fs::remove_dir(OLD).step("leave the old root")?;
    sys::restrict_mount(Path::new("/"), false, mount_attributes::READ_ONLY).step("make the root read-only")?;
    chroot(NEW).step("enter the new root")?;
    chdir("/").step("enter the new root")
}

/// A path of the sandbox, as it is reached while the root is built.
fn inside(path: impl AsRef<Path>) -> PathBuf {
    let path = path.as_ref();
    Path::new(NEW).join(path.strip_prefix("/").unwrap_or(path))
}

/// A path of the host, as it is reached while the root is built.
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
    sys::restrict_mount(
        &to,
        true,
        mount_attributes::READ_ONLY | mount_attributes::NO_SET_UID | mount_attributes::NO_DEVICES,
    )
    .step(format_args!("make {name} read-only (Linux 5.12 or later is needed)"))
}

fn show_folder(source: &Path, target: &Path) -> Result<(), Failure> {
    // It may be part of what is there already: the read-only system, or another folder shown before.
    if !inside(target).is_dir() {
        folder(&inside(target))?;
    }
    show(source, target)
}

fn system() -> Result<(), Failure> {
    for name in SYSTEM {
        let source = Path::new("/").join(name);
        match fs::symlink_metadata(outside(&source)) {
            Ok(found) if found.is_symlink() => {
                let to = fs::read_link(outside(&source)).step(format_args!("read the link /{name}"))?;
                symlink(to, inside(name)).step(format_args!("link /{name}"))?;
            }
            Ok(found) if found.is_dir() => {
                folder(&inside(name))?;
                show(&source, &source)?;
            }
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error).step(format_args!("look at /{name}")),
        }
    }
    Ok(())
}

fn settings(uid: u32) -> Result<(), Failure> {
    // User 0 has a line already.
    let user = if uid == 0 { String::new() } else { format!("function:x:{uid}:{uid}:function:/tmp:/bin/sh\n") };
    let group = if uid == 0 { String::new() } else { format!("function:x:{uid}:\n") };
    for (name, text) in [
        ("passwd", format!("root:x:0:0:root:/root:/bin/sh\n{user}nobody:x:65534:65534:nobody:/:/bin/false\n")),
        ("group", format!("root:x:0:\n{group}nogroup:x:65534:\n")),
        ("hosts", "127.0.0.1 localhost\n".to_owned()),
        ("nsswitch.conf", "passwd: files\ngroup: files\nhosts: files\nservices: files\n".to_owned()),
        ("resolv.conf", String::new()),
    ] {
        fs::write(inside("etc").join(name), text).step(format_args!("write /etc/{name}"))?;
    }
    for name in SETTINGS {
        let source = Path::new("/etc").join(name);
        // Links are copied: their targets lie in what is shown.
        match fs::symlink_metadata(outside(&source)) {
            Ok(found) if found.is_symlink() => {
                let to = fs::read_link(outside(&source)).step(format_args!("read the link /etc/{name}"))?;
                symlink(to, inside(&source)).step(format_args!("link /etc/{name}"))?;
            }
            Ok(found) if found.is_dir() => show_folder(&source, &source)?,
            Ok(_) => {
                fs::write(inside(&source), "").step(format_args!("make /etc/{name}"))?;
                show(&source, &source)?;
            }
            Err(_) => {}
        }
    }
    Ok(())
}

fn devices() -> Result<(), Failure> {
    memory_folder(&inside("dev"), DEVICES_OPTIONS)?;
    for name in DEVICES {
        let target = inside("dev").join(name);
        fs::write(&target, "").step(format_args!("make /dev/{name}"))?;
        mount_bind(outside("dev").join(name), &target).step(format_args!("show /dev/{name}"))?;
    }
    for (name, to) in [("fd", "fd"), ("stdin", "fd/0"), ("stdout", "fd/1"), ("stderr", "fd/2")] {
        symlink(Path::new("/proc/self").join(to), inside("dev").join(name)).step(format_args!("link /dev/{name}"))?;
    }
    folder(&inside("dev/shm"))?;
    sys::restrict_mount(&inside("dev"), false, mount_attributes::READ_ONLY | mount_attributes::NO_EXEC)
        .step("make /dev read-only")?;
    memory_folder(&inside("dev/shm"), SHARED_MEMORY_OPTIONS)
}
