//! The driver's interface: the operations that Nigh uses, each under the mount's lock.
//!
//! It keeps no state between operations. Each operation reads the live state under the lock, so other users, crashes
//! and remounts are handled as found.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use nigh_terms::CacheDomain;
use rustix::fs::Access;
use rustix::io::Errno;

use super::apply::{self, AppliedChange, ApplyError};
use super::binding::{self, BindCheck, BindError, BindResult, TaskTarget};
use super::command::{self, Command, CommandError};
use super::cpu_list::CpuList;
use super::fs::ResctrlFs;
use super::groups::{GroupName, LiveState};
use super::kernel_fs::{KernelFs, MOUNTINFO};
use super::layout_change::WantedLayout;
use super::monitoring::{self, DomainCounters, MemoryTraffic};
use super::probe::Probe;
use super::task_view::{Members, ProcTasks, TaskView, is_gone};

/// Why this machine has no cache allocation, in one line for `nigh status`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UnavailableReason {
    /// The kernel knows no resctrl: built without, or the processor lacks it.
    #[error("no resctrl: the processor cannot allocate cache, or the kernel is built without it")]
    NoKernelSupport,
    /// Not mounted.
    #[error("resctrl is not mounted (hint: mount -t resctrl resctrl /sys/fs/resctrl)")]
    NotMounted,
    /// Mounted, but without an L3 to allocate.
    #[error("resctrl has no L3 cache allocation on this machine")]
    NoCache,
    /// Mounted, but not for this user.
    #[error("no permission to write resctrl (hint: run as root)")]
    NotPermitted,
    /// Others hold all classes.
    #[error("every class of service is taken by others: {}", .foreign.join(", "))]
    NoClass {
        /// Their groups.
        foreign: Vec<String>,
    },
    /// The mount cannot be read.
    #[error("resctrl cannot be read: {0}")]
    Unreadable(String),
}

/// Why Nigh's groups were not all removed.
#[derive(Debug, thiserror::Error)]
pub enum RemoveError {
    /// The mount could not be read or locked.
    #[error("removing Nigh's groups: {0}")]
    Read(#[from] io::Error),
    /// Some groups stayed.
    #[error("{} of Nigh's groups could not be removed: {}", .0.len(), .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
    Commands(Vec<CommandError>),
}

/// resctrl, as Nigh uses it.
#[derive(Clone)]
pub struct Resctrl {
    fs: Arc<dyn ResctrlFs>,
    tasks: Arc<dyn TaskView>,
}

impl Resctrl {
    /// Opens this machine's.
    pub fn open_kernel() -> Result<Self, UnavailableReason> {
        let unreadable = |error: io::Error| UnavailableReason::Unreadable(error.to_string());
        let Some(kernel) = KernelFs::find(MOUNTINFO).map_err(unreadable)? else {
            let known = std::fs::read_to_string("/proc/filesystems").map_err(unreadable)?;
            let has = known.lines().any(|line| line.split_whitespace().last() == Some("resctrl"));
            return Err(if has { UnavailableReason::NotMounted } else { UnavailableReason::NoKernelSupport });
        };
        // Other errors appear when it is read.
        let writable = rustix::fs::access(kernel.path().join("tasks"), Access::WRITE_OK);
        if matches!(writable, Err(Errno::ACCESS | Errno::PERM | Errno::ROFS)) {
            return Err(UnavailableReason::NotPermitted);
        }
        Self::open(Arc::new(kernel), Arc::new(ProcTasks::default()))
    }

    /// Opens a mount, real or emulated.
    pub fn open(fs: Arc<dyn ResctrlFs>, tasks: Arc<dyn TaskView>) -> Result<Self, UnavailableReason> {
        let this = Self { fs, tasks };
        let probe = this.probe()?;
        if probe.l3.is_none() {
            return Err(UnavailableReason::NoCache);
        }
        if probe.closids.available() == 0 {
            return Err(UnavailableReason::NoClass { foreign: probe.closids.foreign });
        }
        Ok(this)
    }

    /// The mount's capabilities and users.
    pub fn probe(&self) -> Result<Probe, UnavailableReason> {
        let read = || -> io::Result<Option<Probe>> {
            if self.fs.mount_options()?.is_none() {
                return Ok(None);
            }
            Probe::read(&*self.fs, &LiveState::read(&*self.fs)?)
        };
        match read() {
            Ok(Some(probe)) => Ok(probe),
            Ok(None) => Err(UnavailableReason::NotMounted),
            Err(_) if matches!(self.fs.mount_options(), Ok(None)) => Err(UnavailableReason::NotMounted),
            Err(error) => Err(UnavailableReason::Unreadable(error.to_string())),
        }
    }

    /// Every group as it is now.
    pub fn live(&self) -> io::Result<LiveState> {
        LiveState::read(&*self.fs)
    }

    /// Changes Nigh's groups to `wanted`, or changes nothing.
    pub fn apply(&self, wanted: &WantedLayout) -> Result<AppliedChange, ApplyError> {
        let _lock = self.fs.lock()?;
        apply::apply(&*self.fs, wanted)
    }

    /// Adds CPUs to a group. Tasks on them that are in no other group are in its class. Returns whether anything was
    /// written.
    pub fn bind_cpus(&self, group: &GroupName, cpus: &CpuList) -> Result<bool, BindError> {
        let _lock = self.fs.lock()?;
        binding::bind_cpus(&*self.fs, group, cpus)
    }

    /// Returns CPUs of a group to the default group. Returns whether anything was written.
    pub fn release_cpus(&self, group: &GroupName, cpus: &CpuList) -> Result<bool, BindError> {
        let _lock = self.fs.lock()?;
        binding::release_cpus(&*self.fs, group, cpus)
    }

    /// Moves all threads of a sandbox to a group, also those that it starts meanwhile.
    pub fn bind_tasks(&self, members: &Members, target: &TaskTarget) -> Result<BindResult, BindError> {
        let _lock = self.fs.lock()?;
        binding::bind_tasks(&*self.fs, &*self.tasks, members, target)
    }

    /// Checks for each thread of a sandbox whether it is in a group. For a sandbox that was bound without its
    /// monitoring group, the target must name none.
    pub fn verify(&self, members: &Members, target: &TaskTarget) -> Result<BindCheck, BindError> {
        binding::verify(&*self.tasks, members, target)
    }

    /// The counters of one of Nigh's groups, or of one of its monitoring groups, per L3.
    pub fn counters(&self, of: &TaskTarget) -> io::Result<BTreeMap<CacheDomain, DomainCounters>> {
        monitoring::read(&*self.fs, &of.path())
    }

    /// The memory traffic of one of Nigh's groups so far.
    pub fn traffic(&self, of: &TaskTarget) -> io::Result<MemoryTraffic> {
        Ok(MemoryTraffic::of(&self.counters(of)?))
    }

    /// Removes a monitoring group of Nigh's, wherever it stands; its tasks stay in their class. Returns whether there
    /// was one.
    pub fn remove_monitor(&self, monitor: &GroupName) -> Result<bool, BindError> {
        let _lock = self.fs.lock()?;
        binding::remove_monitors(&*self.fs, |name| name == monitor).map(|removed| removed > 0)
    }

    /// Removes every monitoring group of Nigh's, wherever it stands; tasks stay in their class. Returns how many there
    /// were.
    pub fn remove_monitors(&self) -> Result<usize, BindError> {
        let _lock = self.fs.lock()?;
        binding::remove_monitors(&*self.fs, |_| true)
    }

    /// Whether a sandbox is gone with all its tasks.
    pub fn has_ended(&self, members: &Members) -> io::Result<bool> {
        binding::has_ended(&*self.tasks, members)
    }

    /// Removes every group of Nigh's, monitoring groups below the default group included. Tasks and CPUs fall to the
    /// default group.
    pub fn remove_all(&self) -> Result<Vec<GroupName>, RemoveError> {
        let _lock = self.fs.lock()?;
        let mut removed = Vec::new();
        let mut failed = Vec::new();
        for directory in ["", "mon_groups"] {
            let names = match self.fs.list(directory) {
                Err(error) if is_gone(&error) => continue,
                other => other?,
            };
            for name in names.iter().filter_map(|name| GroupName::new(name.strip_suffix('/')?).ok()) {
                let path = if directory.is_empty() { name.to_string() } else { format!("{directory}/{name}") };
                match command::run(&*self.fs, Command::Remove(path)) {
                    Ok(()) => removed.push(name),
                    Err(error) if is_gone(&error.source) => {}
                    Err(error) => failed.push(error),
                }
            }
        }
        if failed.is_empty() { Ok(removed) } else { Err(RemoveError::Commands(failed)) }
    }
}
