//! The kernel's resctrl file system: what the driver says to it, and an emulator that answers as the kernel does.
//!
//! Source: Documentation/filesystems/resctrl.rst and fs/resctrl of the kernel.

mod fs;

pub use fs::{FsLock, ResctrlFs};
