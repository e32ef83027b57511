//! Attributes of mounts, by `mount_setattr(2)` (Linux 5.12): the one call for them that reaches a whole tree, and a tree
//! that is not attached anywhere.

use std::ffi::CString;
use std::io;
use std::mem::size_of;
use std::os::fd::{AsFd, AsRawFd as _};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use rustix::mount::MountPropagationFlags;

/// No writing.
pub const READ_ONLY: u64 = 0x1;
/// No program gains rights by its file.
pub const NO_SET_UID: u64 = 0x2;
/// No device files.
pub const NO_DEVICES: u64 = 0x4;
/// No programs.
pub const NO_EXEC: u64 = 0x8;

/// As the kernel takes them.
#[repr(C)]
struct MountAttributes {
    set: u64,
    clear: u64,
    propagation: u64,
    user_namespace: u64,
}

/// Adds attributes to the mount at `path` below `at`, or at `at` itself if `path` is empty, and to all mounts below if
/// `recursive`. Empty flags leave its propagation.
///
/// # Errors
/// The system's reason.
pub fn restrict(
    at: impl AsFd,
    path: &Path,
    recursive: bool,
    set: u64,
    propagation: MountPropagationFlags,
) -> io::Result<()> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    let propagation = u64::from(propagation.bits());
    let attributes = MountAttributes { set, clear: 0, propagation, user_namespace: 0 };
    let flags = libc::AT_EMPTY_PATH | if recursive { libc::AT_RECURSIVE } else { 0 };
    // SAFETY: the path is a C string, the attributes have the kernel's layout and the size given.
    let result = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            at.as_fd().as_raw_fd(),
            path.as_ptr(),
            flags,
            &raw const attributes,
            size_of::<MountAttributes>(),
        )
    };
    if result == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
