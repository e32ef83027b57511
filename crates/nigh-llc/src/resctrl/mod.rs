//! The kernel's resctrl file system: what the driver says to it, and an emulator that answers as the kernel does.
//!
//! Source: Documentation/filesystems/resctrl.rst and fs/resctrl of the kernel.

pub mod conformance;
pub mod emulator;
mod fs;
mod kernel_fs;
mod task_view;

pub use fs::{FsLock, MountOptions, ResctrlFs};
pub use kernel_fs::{KernelFs, MOUNTINFO, READ_MAX};
pub use task_view::{MEMBERS_MAX, Members, ProcTasks, ProcessRef, StartTime, TaskView, Tid};
