//! The group of one sandbox: its folders, its limits, its freezer, its end.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use async_recursion::async_recursion as boxed;
use nigh_schedule::memory::grant::{Grant, OnPressure, SandboxMemory, SandboxMemoryError};
use nigh_terms::ByteSize;
use rustix::process::{Pid, Signal, kill_process};

use super::cpu_weight::CpuWeight;
use super::parents::{Parent, Parents};
use super::{CgroupError, PROCS, because, control_file, cpuset, v1, v2};

/// The name is the same in v1 and v2.
const PIDS_MAX: &str = "pids.max";
/// The time that the processes of a group have to stop.
const FREEZE_PATIENCE: Duration = Duration::from_secs(2);
/// The time that a group may stay busy after its last process was killed.
pub(super) const REMOVE_PATIENCE: Duration = Duration::from_secs(5);
pub(super) const REMOVE_POLL: Duration = Duration::from_millis(1);

#[derive(Debug)]
enum Freezer {
    V1(v1::Freezer),
    V2(v2::Freezer),
}

#[derive(Debug)]
enum Memory {
    V1(v1::Memory),
    V2(v2::Memory),
    Uncontrolled,
}

/// The group of one sandbox. If it is dropped before its end, it is ended in the background.
#[derive(Debug)]
pub struct Group {
    folders: Vec<PathBuf>,
    memory: Memory,
    freezer: Option<Freezer>,
    /// The folder that limits processes.
    pids: Option<PathBuf>,
    /// The folder with the share of processors.
    cpu: Option<PathBuf>,
    v2: bool,
    ended: AtomicBool,
    parents: Arc<Parents>,
}

impl Group {
    /// A group without folders.
    pub(super) fn new(parents: &Arc<Parents>) -> Self {
        Self {
            folders: Vec::new(),
            memory: Memory::Uncontrolled,
            freezer: None,
            pids: None,
            cpu: None,
            v2: false,
            ended: AtomicBool::new(false),
            parents: Arc::clone(parents),
        }
    }

    pub(super) fn add_v1(
        &mut self,
        memory: &Parent,
        freezer: &Parent,
        pids: &Parent,
        cpu: &Parent,
        cpuset: &Parent,
        name: &str,
    ) -> Result<(), CgroupError> {
        if let Ok(parent) = memory {
            let folder = self.add_folder(parent.join(name))?;
            self.memory = Memory::V1(v1::Memory::open(&folder).map_err(because("open the memory files", &folder))?);
        }
        if let Ok(parent) = freezer {
            let folder = self.add_folder(parent.join(name))?;
            self.freezer =
                Some(Freezer::V1(v1::Freezer::begin(&folder).map_err(because("open the freezer", &folder))?));
        }
        if let Ok(parent) = pids {
            self.pids = Some(self.add_folder(parent.join(name))?);
        }
        if let Ok(parent) = cpu {
            self.cpu = Some(self.add_folder(parent.join(name))?);
        }
        if let Ok(parent) = cpuset {
            let folder = self.add_folder(parent.join(name))?;
            cpuset::inherit_v1(&folder).map_err(because("give the cgroup processors", &folder))?;
        }
        Ok(())
    }

    /// Adds a group in each tree that controls nothing.
    pub(super) fn add_beside(&mut self, others: &[PathBuf], name: &str) -> Result<(), CgroupError> {
        others.iter().try_for_each(|parent| self.add_folder(parent.join(name)).map(drop))
    }

    pub(super) fn add_v2(&mut self, folder: &Path, memory: bool, pids: bool, cpu: bool) -> Result<(), CgroupError> {
        self.v2 = true;
        let folder = self.add_folder(folder.to_owned())?;
        if memory {
            self.memory = Memory::V2(v2::Memory::open(&folder).map_err(because("open the memory files", &folder))?);
        }
        self.freezer = Some(Freezer::V2(v2::Freezer::begin(&folder).map_err(because("open the freezer", &folder))?));
        self.cpu = cpu.then(|| folder.clone());
        self.pids = pids.then_some(folder);
        Ok(())
    }

    /// Sets the first limits of memory, processes and threads, and the share of processors, which follows the booking
    /// and not the grant.
    ///
    /// # Errors
    /// If the kernel refuses them.
    pub fn bound(&self, grant: Grant, pids_max: u32) -> Result<(), CgroupError> {
        let outcome = match &self.memory {
            Memory::V1(memory) => memory.bound(grant),
            Memory::V2(memory) => memory.bound(grant),
            Memory::Uncontrolled => Ok(()),
        };
        outcome.map_err(|source| self.failed("limit memory", source))?;
        if let Some(folder) = &self.pids {
            control_file::write_once(folder, PIDS_MAX, &pids_max.to_string())
                .map_err(because("limit processes", folder))?;
        }
        let Some(folder) = &self.cpu else { return Ok(()) };
        let weight = CpuWeight::of_sandbox(grant.booked);
        let given = if self.v2 { weight.give_v2(folder) } else { weight.give_v1(folder) };
        given.map_err(because("weigh its share of the processors", folder))
    }

    fn add_folder(&mut self, folder: PathBuf) -> Result<PathBuf, CgroupError> {
        // Two controllers may share one tree.
        if !self.folders.contains(&folder) {
            fs::create_dir(&folder).map_err(because("make the group", &folder))?;
            self.folders.push(folder.clone());
        }
        Ok(folder)
    }

    /// The group's folders, one in each tree.
    #[must_use]
    pub fn folders(&self) -> &[PathBuf] {
        &self.folders
    }

    /// A process that writes `0` to each of these files joins the group.
    pub fn join_files(&self) -> impl Iterator<Item = PathBuf> {
        self.folders.iter().map(|folder| folder.join(PROCS))
    }

    /// The file and the word that thaw frozen processes, which get no signals (v1).
    #[must_use]
    pub fn thaw_before_death(&self) -> Option<(PathBuf, &'static str)> {
        match self.freezer {
            Some(Freezer::V1(_)) => self
                .folders
                .iter()
                .map(|folder| folder.join(v1::FREEZER_STATE))
                .find(|file| file.exists())
                .map(|file| (file, v1::THAWED)),
            _ => None,
        }
    }

    /// The group's memory. Its calls answer `NotControlled` without a memory controller.
    #[must_use]
    pub fn memory(&self) -> &dyn SandboxMemory {
        match &self.memory {
            Memory::V1(memory) => memory,
            Memory::V2(memory) => memory,
            Memory::Uncontrolled => &UncontrolledMemory,
        }
    }

    /// True if the group can stop its processes.
    #[must_use]
    pub fn has_freezer(&self) -> bool {
        self.freezer.is_some()
    }

    /// Stops all processes before it returns. Does nothing without a freezer.
    ///
    /// # Errors
    /// If the processes do not stop in time (then they continue), or the group is gone.
    #[boxed]
    pub async fn freeze(&self) -> Result<(), CgroupError> {
        let outcome = match &self.freezer {
            Some(Freezer::V1(freezer)) => freezer.freeze(FREEZE_PATIENCE).await,
            Some(Freezer::V2(freezer)) => freezer.freeze(FREEZE_PATIENCE).await,
            None => Ok(()),
        };
        outcome.map_err(|source| self.failed("freeze", source))
    }

    /// Continues the processes.
    ///
    /// # Errors
    /// If the group is gone.
    pub fn thaw(&self) -> Result<(), CgroupError> {
        let outcome = match &self.freezer {
            Some(Freezer::V1(freezer)) => freezer.thaw(),
            Some(Freezer::V2(freezer)) => freezer.thaw(),
            None => Ok(()),
        };
        outcome.map_err(|source| self.failed("thaw", source))
    }

    fn failed(&self, what: &'static str, source: io::Error) -> CgroupError {
        CgroupError { what, path: self.folders.first().cloned().unwrap_or_default(), source }
    }

    /// Kills all processes of the group and removes it. Blocks for milliseconds, at most `REMOVE_PATIENCE`; the next
    /// sweep removes the rest. True if nothing is left.
    pub fn end(&self) -> bool {
        let gone = end_folders(&self.folders, self.v2);
        self.ended.store(gone, Ordering::Release);
        gone
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        if self.folders.is_empty() || *self.ended.get_mut() {
            return;
        }
        let (folders, v2, parents) = (std::mem::take(&mut self.folders), self.v2, Arc::clone(&self.parents));
        // A new thread, because the async runtime may be shutting down. If it does not start, the next sweep ends the
        // group.
        let _no_thread = std::thread::Builder::new().name("end-cgroup".to_owned()).spawn(move || {
            end_folders(&folders, v2);
            drop(parents);
        });
    }
}

/// Kills, thaws and removes until the folders are gone or the time is over.
pub(super) fn end_folders(folders: &[PathBuf], v2: bool) -> bool {
    let until = Instant::now() + REMOVE_PATIENCE;
    loop {
        let gone = folders.iter().filter(|folder| !removed(folder)).count() == 0;
        if gone || Instant::now() > until {
            return gone;
        }
        for folder in folders {
            if !(v2 && v2::kill_all(folder)) {
                kill_members(folder);
            }
            // Frozen v1 processes die only when they run again. Other trees have no such file.
            let _no_freezer = control_file::write_once(folder, v1::FREEZER_STATE, v1::THAWED);
        }
        std::thread::sleep(REMOVE_POLL);
    }
}

/// True if the folder is gone now.
pub(super) fn removed(folder: &Path) -> bool {
    match fs::remove_dir(folder) {
        Ok(()) => true,
        Err(error) => error.kind() == io::ErrorKind::NotFound,
    }
}

/// Ends the processes of the group with the folder `folder`; frozen ones of cgroup v1 when they run again.
pub fn kill_members(folder: &Path) {
    let members = fs::read_to_string(folder.join(PROCS)).unwrap_or_default();
    for pid in members.lines().filter_map(|pid| Pid::from_raw(pid.parse().ok()?)) {
        // The process may have ended meanwhile.
        let _ended = kill_process(pid, Signal::KILL);
    }
}

/// The memory of a sandbox without a memory group.
struct UncontrolledMemory;

const UNCONTROLLED: SandboxMemoryError =
    SandboxMemoryError::NotControlled("no memory cgroup can be made on this machine; `nigh status` says why");

impl SandboxMemory for UncontrolledMemory {
    fn set_limit(&self, _: ByteSize) -> Result<(), SandboxMemoryError> {
        Err(UNCONTROLLED)
    }

    fn peak(&self) -> Result<ByteSize, SandboxMemoryError> {
        Err(UNCONTROLLED)
    }

    fn reset_peak(&self) -> Result<(), SandboxMemoryError> {
        Err(UNCONTROLLED)
    }

    fn used(&self) -> Result<ByteSize, SandboxMemoryError> {
        Err(UNCONTROLLED)
    }

    fn oom_kills(&self) -> Result<u64, SandboxMemoryError> {
        Err(UNCONTROLLED)
    }

    fn on_pressure(&self, _: OnPressure) -> Result<(), SandboxMemoryError> {
        Err(UNCONTROLLED)
    }
}
