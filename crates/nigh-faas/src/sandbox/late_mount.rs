//! Brings a function's code into a sandbox that stands already, from outside.
//!
//! The sandbox's processes have no right to mount any more. Nigh clones the code's folder as a tree that is attached
//! nowhere (`open_tree(2)`), takes rights off it, enters the sandbox's mount namespace with one thread, which ends there,
//! and attaches the tree (`move_mount(2)`). Until then nothing but an open descriptor holds it, and after it nothing but
//! the sandbox's own namespace: whatever crashes, no mount is left on the host. Needs `CAP_SYS_ADMIN` there.

use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::Path;

use rustix::fs::CWD;
use rustix::mount::{
    FsPickFlags, MountPropagationFlags, MoveMountFlags, OpenTreeFlags, fsconfig_reconfigure, fsconfig_set_string,
    fspick, move_mount, open_tree,
};
use rustix::thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space};
use thiserror::Error;
use tokio::sync::oneshot;

use super::launch::tmp_files;
use super::mount_attributes::{NO_DEVICES, NO_SET_UID, READ_ONLY, restrict};

/// A step that failed.
#[derive(Debug, Error)]
#[error("{step}: {source}")]
pub(super) struct LateMountError {
    /// What was tried.
    step: &'static str,
    /// The system's reason.
    source: io::Error,
}

fn at(step: &'static str) -> impl FnOnce(rustix::io::Errno) -> LateMountError {
    move |source| LateMountError { step, source: source.into() }
}

/// Where things are brought to, as the sandbox's init opened it.
#[derive(Debug)]
pub(super) struct Places {
    mounts: OwnedFd,
    code: OwnedFd,
    tmp: OwnedFd,
}

impl Places {
    /// Of the descriptors that come with `Report::Warmed`.
    pub(super) fn new(descriptors: Vec<OwnedFd>) -> io::Result<Self> {
        let [mounts, code, tmp] = <[OwnedFd; 3]>::try_from(descriptors)
            .map_err(|other| io::Error::other(format!("three descriptors were expected, not {}", other.len())))?;
        Ok(Self { mounts, code, tmp })
    }

    /// The sandbox's /tmp has `bytes` from here on.
    pub(super) fn resize_tmp(&self, bytes: u64) -> Result<(), LateMountError> {
        let tmp = fspick(&self.tmp, "", FsPickFlags::FSPICK_EMPTY_PATH | FsPickFlags::FSPICK_CLOEXEC)
            .map_err(at("find the file system of /tmp"))?;
        for (name, value) in [("size", bytes), ("nr_inodes", tmp_files(bytes))] {
            fsconfig_set_string(&tmp, name, value.to_string()).map_err(at("set the size of /tmp"))?;
        }
        fsconfig_reconfigure(&tmp).map_err(at("set the size of /tmp"))
    }

    /// `folder` is the sandbox's code from here on, read-only.
    pub(super) async fn bring(self, folder: &Path) -> Result<(), LateMountError> {
        let tree = detached(folder)?;
        let (done, brought) = oneshot::channel();
        // A thread that has been in another mount namespace sees other files: it does this and nothing else.
        let thread = std::thread::Builder::new().name("late-mount".to_owned());
        let started = thread.spawn(move || {
            let _nobody_waits = done.send(self.attach(&tree));
        });
        started.map_err(|source| LateMountError { step: "start a thread", source })?;
        let lost = |_| LateMountError { step: "mount the code", source: io::ErrorKind::BrokenPipe.into() };
        brought.await.map_err(lost)?
    }

    fn attach(&self, tree: &OwnedFd) -> Result<(), LateMountError> {
        // SAFETY: the flag parts this thread's root and folder from the process's, and no descriptors; the thread ends
        // when this is done.
        unsafe { rustix::thread::unshare_unsafe(UnshareFlags::FS) }.map_err(at("part from the process's folders"))?;
        move_into_link_name_space(self.mounts.as_fd(), Some(LinkNameSpaceType::Mount))
            .map_err(at("enter the sandbox's mount namespace"))?;
        let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
        move_mount(tree, "", &self.code, "", flags).map_err(at("mount the code"))
    }
}

/// `folder` as a tree of its own, read-only, which no later mount of the host reaches.
fn detached(folder: &Path) -> Result<OwnedFd, LateMountError> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | OpenTreeFlags::AT_RECURSIVE;
    let tree = open_tree(CWD, folder, flags).map_err(at("take up the code's folder"))?;
    let rights = READ_ONLY | NO_SET_UID | NO_DEVICES;
    restrict(&tree, Path::new(""), true, rights, MountPropagationFlags::PRIVATE)
        .map_err(|source| LateMountError { step: "make the code read-only", source })?;
    Ok(tree)
}
