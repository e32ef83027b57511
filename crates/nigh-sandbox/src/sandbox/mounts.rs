//! Attributes for a mount and all mounts below it, by `mount_setattr(2)` (Linux 5.12), which no safe crate offers.

use std::ffi::CString;
use std::io;
use std::mem::size_of;
use std::os::fd::{AsRawFd as _, BorrowedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

/// Nobody can write.
pub const READ_ONLY: u64 = 0x1;
/// Set-user-ID bits and file capabilities give a program no rights.
pub const NO_SET_UID: u64 = 0x2;
/// Device files cannot be opened.
pub const NO_DEVICES: u64 = 0x4;
/// Programs cannot be started.
pub const NO_EXEC: u64 = 0x8;

/// Attributes of a mount, as `mount_setattr(2)` takes them.
#[repr(C)]
struct Attributes {
    set: u64,
    clear: u64,
    propagation: u64,
    user_namespace: u64,
}

/// Adds attributes to the mount at `path`, seen from `folder`, and, if `recursive`, to all below. An empty path is the
/// mount that `folder` itself stands for.
///
/// # Errors
/// The kernel's reason; ENOSYS before Linux 5.12.
pub fn restrict(folder: BorrowedFd<'_>, path: &Path, recursive: bool, attributes: u64) -> io::Result<()> {
    let mut flags = if recursive { libc::AT_RECURSIVE } else { 0 };
    if path.as_os_str().is_empty() {
        flags |= libc::AT_EMPTY_PATH;
    }
    let path = CString::new(path.as_os_str().as_bytes())?;
    let attributes = Attributes { set: attributes, clear: 0, propagation: 0, user_namespace: 0 };
    // SAFETY: the path is a C string; the attributes have the kernel's layout and the size given.
    let result = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            folder.as_raw_fd(),
            path.as_ptr(),
            flags,
            &raw const attributes,
            size_of::<Attributes>(),
        )
    };
    if result == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
