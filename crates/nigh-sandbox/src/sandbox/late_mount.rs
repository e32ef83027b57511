//! Mounts a function's folders in a sandbox that is isolated already and that cannot mount by itself: the code, the
//! runtime's folders and the function's own files appear read-only, and /tmp gets its size.
//!
//! Each folder is cloned into a detached mount, restricted, and attached in its place by a thread that has entered the
//! sandbox's mount namespace and ends there. So nothing is mounted on the host, even after a crash. See
//! mount_namespaces(7), open_tree(2), move_mount(2) and setns(2). A thread can enter a mount namespace only with its
//! own `fs_struct`.

use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{CWD, Gid, Uid};
use rustix::mount::{MountFlags, MoveMountFlags, OpenTreeFlags, mount_remount, move_mount, open_tree};
use rustix::process::{getgid, getuid};
use rustix::thread::{
    LinkNameSpaceType, UnshareFlags, move_into_link_name_space, set_thread_res_gid, set_thread_res_uid, unshare_unsafe,
};
use tokio::sync::oneshot;

use super::mounts::{NO_DEVICES, NO_SET_UID, READ_ONLY, restrict};
use super::root_tree::{NEW_ROOT, tmp_options};
use super::step_failure::StepFailure;

/// The mount namespace of a sandbox.
#[derive(Clone, Debug)]
pub(super) struct MountNamespace {
    namespace: Arc<OwnedFd>,
    /// The sandbox's root in that namespace.
    root: &'static str,
}

impl MountNamespace {
    /// The namespace of a process. The process must be in the cgroup `group`, because its id may have been reused.
    pub(super) fn of(process: u32, group: &str) -> io::Result<Self> {
        let namespace = File::open(format!("/proc/{process}/ns/mnt"))?;
        let groups = fs::read_to_string(format!("/proc/{process}/cgroup"))?;
        match groups.lines().any(|line| line.rsplit('/').next() == Some(group)) {
            true => Ok(Self { namespace: Arc::new(namespace.into()), root: "/" }),
            false => Err(io::Error::new(io::ErrorKind::NotFound, format!("process {process} is not in {group}"))),
        }
    }

    /// The namespace of a sandbox whose init built the root.
    pub(super) fn of_init(namespace: OwnedFd) -> Self {
        Self { namespace: Arc::new(namespace), root: NEW_ROOT }
    }

    fn place(&self, path: &Path) -> PathBuf {
        Path::new(self.root).join(path.strip_prefix("/").unwrap_or(path))
    }
}

/// What is mounted in one sandbox.
#[derive(Clone, Debug)]
pub(super) struct Belongings {
    /// Folders and files of the host, each with its path inside.
    pub(super) shown: Vec<(PathBuf, PathBuf)>,
    /// The size of /tmp.
    pub(super) tmp_bytes: u64,
    /// The sandbox's user on the host. It owns the folders made below /tmp as mount points.
    pub(super) uid: u32,
}

/// Mounts all of `belongings`.
pub(super) async fn move_in(namespace: MountNamespace, belongings: Belongings) -> Result<(), StepFailure> {
    let (tell, told) = oneshot::channel();
    let work = move || {
        // The caller may have stopped waiting.
        let _nobody = tell.send(enter_and_mount(&namespace, &belongings));
    };
    // A new thread, not one of a pool: the thread cannot leave the namespace again.
    std::thread::Builder::new()
        .name("move-in".to_owned())
        .spawn(work)
        .map_err(|error| StepFailure::at("start a thread that moves the function in", error))?;
    told.await.map_err(|_| StepFailure::at("move the function in", "the thread ended"))?
}

fn enter_and_mount(namespace: &MountNamespace, belongings: &Belongings) -> Result<(), StepFailure> {
    let clone = |(source, target): &(PathBuf, PathBuf)| -> Result<(OwnedFd, PathBuf), StepFailure> {
        let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | OpenTreeFlags::AT_RECURSIVE;
        let tree = open_tree(CWD, source, flags)
            .map_err(|error| StepFailure::at(&format!("take up {}", source.display()), error))?;
        restrict(tree.as_fd(), Path::new(""), true, READ_ONLY | NO_SET_UID | NO_DEVICES)
            .map_err(|error| StepFailure::at(&format!("make {} read-only", source.display()), error))?;
        Ok((tree, namespace.place(target)))
    };
    let trees = belongings.shown.iter().map(clone).collect::<Result<Vec<_>, _>>()?;
    // SAFETY: this thread alone stops sharing its root and current folder with the others; descriptors stay shared.
    unsafe { unshare_unsafe(UnshareFlags::FS) }.map_err(|error| StepFailure::at("leave the host's root", error))?;
    move_into_link_name_space(namespace.namespace.as_fd(), Some(LinkNameSpaceType::Mount))
        .map_err(|error| StepFailure::at("enter the sandbox's files", error))?;
    for (tree, target) in trees {
        let step = || format!("show {}", target.display());
        make_folder(&target, belongings.uid).map_err(|error| StepFailure::at(&step(), error))?;
        move_mount(&tree, "", CWD, &target, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)
            .map_err(|error| StepFailure::at(&step(), error))?;
    }
    let size = std::ffi::CString::new(tmp_options(belongings.tmp_bytes))
        .map_err(|error| StepFailure::at("size /tmp", error))?;
    mount_remount(namespace.place(Path::new("/tmp")), MountFlags::NOSUID | MountFlags::NODEV, &*size)
        .map_err(|error| StepFailure::at("size /tmp", error))
}

/// Below /tmp only the sandbox's users can own files.
fn make_folder(path: &Path, uid: u32) -> io::Result<()> {
    if path.exists() {
        return Ok(());
    }
    let (user, group) = (getuid(), getgid());
    set_thread_res_gid(group, Gid::from_raw(uid), group)?;
    set_thread_res_uid(user, Uid::from_raw(uid), user)?;
    let made = fs::create_dir_all(path);
    set_thread_res_uid(user, user, user)?;
    set_thread_res_gid(group, group, group)?;
    made
}
