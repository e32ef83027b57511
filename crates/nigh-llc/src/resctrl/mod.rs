//! The kernel's resctrl file system: what the driver says to it, and an emulator that answers as the kernel does.
//!
//! Source: Documentation/filesystems/resctrl.rst and fs/resctrl of the kernel.

mod apply;
mod bandwidth;
mod binding;
mod command;
pub mod conformance;
mod cpu_list;
mod driver;
pub mod emulator;
mod fs;
mod groups;
mod kernel_fs;
mod layout_change;
mod monitoring;
pub mod oci;
mod probe;
mod schemata;
mod task_view;

pub use apply::{AppliedChange, ApplyError, Rollback};
pub use bandwidth::{BandwidthLimit, BandwidthRefusal};
pub use binding::{BindCheck, BindError, BindResult, PASSES_MAX, TaskTarget};
pub use command::{Command, CommandError};
pub use cpu_list::{CPU_MAX, CpuList, CpuListError};
pub use driver::{RemoveError, Resctrl, UnavailableReason};
pub use fs::{FsLock, MountOptions, ResctrlFs};
pub use groups::{GroupMode, GroupName, GroupNameError, LiveGroup, LiveState, NAME_MAX, OWNED_PREFIX};
pub use kernel_fs::{KernelFs, MOUNTINFO, READ_MAX};
pub use layout_change::{Refusal, Step, WantedGroup, WantedLayout, plan};
pub use monitoring::{Counter, DomainCounters, MemoryTraffic, bandwidth};
pub use probe::{BandwidthInfo, BandwidthUnit, CacheInfo, ClosBudget, MonitoringInfo, Probe};
pub use schemata::{Resource, Schemata, SchemataError, Value};
pub use task_view::{MEMBERS_MAX, Members, ProcTasks, ProcessRef, StartTime, TaskView, Tid};
