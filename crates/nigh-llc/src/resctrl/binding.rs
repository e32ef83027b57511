//! Puts a sandbox into a class, in one of two ways.
//!
//! *By CPUs*: the sandbox is pinned by its cpuset, and its class gets those CPUs with one write to `cpus_list`; forks
//! are covered (CASY, section IV). *By tasks*: all threads are moved in passes, until two passes a moment apart find
//! none to move. A task that was being forked during the move of its parent has the old class and appears later. (If a
//! fork takes longer than that moment, on an overloaded machine, [`verify`] finds the task, and another move is
//! needed.) If the sandbox has its own monitoring group, a kernel that can rename the group into another class moves
//! all threads at once (Linux 6.5 and later, x86 only: elsewhere a monitoring id belongs to one class). Then the passes
//! find only threads that were being forked. Nothing is written for threads that are in place.
//!
//! Start times, read before and after the write, detect a reused id: a stranger that was moved is put back into its
//! parent's group.

use std::collections::BTreeSet;
use std::io;
use std::time::Duration;

use rustix::io::Errno;

use super::command::{self, Command, CommandError};
use super::cpu_list::CpuList;
use super::fs::ResctrlFs;
use super::groups::{GroupName, LiveState};
use super::task_view::{Members, StartTime, TaskView, Tid, is_gone};

/// The most passes over a sandbox's threads. A sandbox that still has threads to move forks too fast.
pub const PASSES_MAX: usize = 16;

/// The time before the last pass, in which a task that is being forked appears. A fork takes a tenth of it.
const FORK_SHOWS_WITHIN: Duration = Duration::from_micros(500);

/// The target of a move.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaskTarget {
    /// Its class; none for the default group.
    pub group: Option<GroupName>,
    /// The sandbox's monitoring group below the class, if its use is counted.
    pub monitor: Option<GroupName>,
}

impl TaskTarget {
    /// The directory; empty for the default group itself.
    pub fn path(&self) -> String {
        match &self.monitor {
            None => self.group_path().to_owned(),
            Some(monitor) => below(self.group_path(), &format!("mon_groups/{monitor}")),
        }
    }

    fn group_path(&self) -> &str {
        self.group.as_ref().map_or("", GroupName::as_str)
    }
}

/// A path below a group's directory.
fn below(group: &str, file: &str) -> String {
    if group.is_empty() { file.to_owned() } else { format!("{group}/{file}") }
}

/// The result of a move by tasks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct BindResult {
    /// Threads moved one by one.
    pub moved: usize,
    /// The passes over the threads. The last two found none to move; one pass if all threads were in place.
    pub passes: usize,
    /// Whether a monitoring group was renamed into the class.
    pub renamed: bool,
    /// Whether the sandbox has its monitoring group; false if monitoring ids ran out.
    pub monitored: bool,
    /// Strangers moved through a reused id, and put back.
    pub put_back: usize,
}

/// The groups of a sandbox's threads, from the kernel.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct BindCheck {
    /// The threads checked.
    pub checked: usize,
    /// Those in another group.
    pub astray: Vec<Tid>,
}

/// Why a sandbox was not put into a class.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    /// It has ended, or its id belongs to another process now.
    #[error("{0} has ended")]
    Ended(Members),
    /// It forks faster than its threads can be moved.
    #[error("{members}: {left} threads still not moved after {PASSES_MAX} passes (hint: freeze it first)")]
    StillForking {
        /// The sandbox.
        members: Members,
        /// Threads the last pass moved.
        left: usize,
    },
    /// The CPUs belong to a foreign group.
    #[error("the CPUs {cpus} belong to the group {holder}, which is not Nigh's")]
    Foreign {
        /// The CPUs.
        cpus: CpuList,
        /// Whose.
        holder: String,
    },
    /// A command failed.
    #[error(transparent)]
    Command(#[from] CommandError),
    /// Something could not be read.
    #[error("reading tasks or groups: {0}")]
    Read(#[from] io::Error),
}

fn cpus_of(fs: &dyn ResctrlFs, group: &str) -> io::Result<CpuList> {
    let text = fs.read(&format!("{group}/cpus_list"))?;
    text.parse().map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
}

/// Adds CPUs to a group's. The caller holds the lock.
pub(super) fn bind_cpus(fs: &dyn ResctrlFs, group: &GroupName, cpus: &CpuList) -> Result<bool, BindError> {
    let now = cpus_of(fs, group.as_str())?;
    if cpus.0.is_subset(&now.0) {
        return Ok(false);
    }
    for holder in LiveState::read(fs)?.foreign_names() {
        let taken: BTreeSet<u32> = cpus_of(fs, &holder)?.0.intersection(&cpus.0).copied().collect();
        if !taken.is_empty() {
            return Err(BindError::Foreign { cpus: CpuList(taken), holder });
        }
    }
    let all = CpuList(now.0.union(&cpus.0).copied().collect());
    command::write(fs, group.file("cpus_list"), format!("{all}\n"))?;
    Ok(true)
}

/// Takes CPUs from a group's. The caller holds the lock.
pub(super) fn release_cpus(fs: &dyn ResctrlFs, group: &GroupName, cpus: &CpuList) -> Result<bool, BindError> {
    let now = cpus_of(fs, group.as_str())?;
    if now.0.is_disjoint(&cpus.0) {
        return Ok(false);
    }
    let rest = CpuList(now.0.difference(&cpus.0).copied().collect());
    command::write(fs, group.file("cpus_list"), format!("{rest}\n"))?;
    Ok(true)
}

/// Nigh's monitoring groups with their paths, below each of Nigh's groups and the default group.
fn monitors(fs: &dyn ResctrlFs) -> io::Result<Vec<(GroupName, String)>> {
    let owned = |name: &String| GroupName::new(name.strip_suffix('/')?).ok();
    let mut found = Vec::new();
    let groups = fs.list("")?;
    for directory in groups.iter().filter_map(owned).map(|group| group.file("mon_groups")).chain(["mon_groups".into()])
    {
        match fs.list(&directory) {
            Ok(names) => {
                found.extend(names.iter().filter_map(owned).map(|name| (name.clone(), format!("{directory}/{name}"))));
            }
            Err(error) if is_gone(&error) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(found)
}

/// The path of the monitoring group with this name.
fn find_monitor(fs: &dyn ResctrlFs, monitor: &GroupName) -> io::Result<Option<String>> {
    Ok(monitors(fs)?.into_iter().find_map(|(name, path)| (name == *monitor).then_some(path)))
}

/// Removes those of Nigh's monitoring groups whose name is `wanted`; their tasks stay in their class. The caller holds
/// the lock. Returns how many there were.
pub(super) fn remove_monitors(fs: &dyn ResctrlFs, wanted: impl Fn(&GroupName) -> bool) -> Result<usize, BindError> {
    let mut removed = 0;
    for (_, path) in monitors(fs)?.into_iter().filter(|(name, _)| wanted(name)) {
        match command::run(fs, Command::Remove(path)) {
            Ok(()) => removed += 1,
            Err(error) if is_gone(&error.source) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(removed)
}

/// Whether a sandbox has ended with all its tasks.
pub(super) fn has_ended(tasks: &dyn TaskView, members: &Members) -> io::Result<bool> {
    match members {
        Members::Cgroup(path) => path.try_exists().map(|exists| !exists),
        Members::Tree(process) => match tasks.started(process.pid) {
            Ok(started) => Ok(started != process.started),
            Err(error) if is_gone(&error) => Ok(true),
            Err(error) => Err(error),
        },
    }
}

/// A task's groups, as `/proc/<pid>/cpu_resctrl_groups` shows them; empty names are the default group and none.
fn placement(text: &str) -> (&str, &str) {
    let field = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default();
    (field("res:").trim_start_matches('/'), field("mon:"))
}

/// Reads the group of each thread.
pub(super) fn verify(tasks: &dyn TaskView, members: &Members, target: &TaskTarget) -> Result<BindCheck, BindError> {
    let mut verified = BindCheck::default();
    let wanted = (target.group_path(), target.monitor.as_ref().map_or("", GroupName::as_str));
    for tid in tasks.members(members)? {
        match tasks.groups(tid) {
            Ok(text) => {
                verified.checked += 1;
                if placement(&text) != wanted {
                    verified.astray.push(tid);
                }
            }
            Err(error) if is_gone(&error) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(verified)
}

/// Moves a sandbox. The caller holds the lock.
pub(super) fn bind_tasks(
    fs: &dyn ResctrlFs,
    tasks: &dyn TaskView,
    members: &Members,
    target: &TaskTarget,
) -> Result<BindResult, BindError> {
    let mut binding = Binding { fs, tasks, members, target: target.clone(), bound: BindResult::default() };
    binding.check_alive()?;
    binding.place_monitor()?;
    let (mut left, mut settled) = (0, false);
    while binding.bound.passes < PASSES_MAX {
        binding.bound.passes += 1;
        left = binding.pass()?;
        // If nothing was moved, no parent was moved.
        if left == 0 && (settled || (binding.bound.moved == 0 && !binding.bound.renamed)) {
            return Ok(binding.bound);
        }
        settled = left == 0;
        if settled {
            std::thread::sleep(FORK_SHOWS_WITHIN);
        }
    }
    Err(BindError::StillForking { members: members.clone(), left })
}

struct Binding<'a> {
    fs: &'a dyn ResctrlFs,
    tasks: &'a dyn TaskView,
    members: &'a Members,
    target: TaskTarget,
    bound: BindResult,
}

impl Binding<'_> {
    /// The id must still belong to the same sandbox.
    fn check_alive(&self) -> Result<(), BindError> {
        // For a removed cgroup, reading the members fails.
        if matches!(self.members, Members::Tree(_)) && has_ended(self.tasks, self.members)? {
            return Err(BindError::Ended(self.members.clone()));
        }
        Ok(())
    }

    /// Ensures that the sandbox's monitoring group is below the class: there already, renamed, or made.
    fn place_monitor(&mut self) -> Result<(), BindError> {
        let Some(monitor) = self.target.monitor.clone() else { return Ok(()) };
        let wanted = self.target.path();
        self.bound.monitored = true;
        if let Some(from) = find_monitor(self.fs, &monitor)? {
            if from == wanted {
                return Ok(());
            }
            if cfg!(target_arch = "x86_64") {
                match command::run(self.fs, Command::Rename { from: from.clone(), to: wanted.clone() }) {
                    Ok(()) => {
                        self.bound.renamed = true;
                        return Ok(());
                    }
                    // An older kernel refuses any rename with this error.
                    Err(error) if error.errno() == Some(Errno::PERM) => {}
                    Err(error) => return Err(error.into()),
                }
            }
            command::run(self.fs, Command::Remove(from))?;
        }
        match command::run(self.fs, Command::Make(wanted)) {
            Ok(()) => Ok(()),
            // No monitoring, or no id left. The class matters more than the counter.
            Err(error) if matches!(error.errno(), Some(Errno::NOSPC | Errno::BUSY | Errno::NOENT)) => {
                self.bound.monitored = false;
                self.target.monitor = None;
                Ok(())
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Moves all threads that are not in place. Returns their number.
    fn pass(&mut self) -> Result<usize, BindError> {
        self.check_alive()?;
        let inside: BTreeSet<Tid> = self
            .fs
            .read(&below(&self.target.path(), "tasks"))?
            .lines()
            .filter_map(|id| id.parse().ok())
            .map(Tid)
            .collect();
        let astray = |tid: &Tid| !inside.contains(tid);
        let mut outside: Vec<(Tid, StartTime)> = Vec::new();
        for tid in self.tasks.members(self.members)?.into_iter().filter(astray) {
            match self.tasks.started(tid) {
                Ok(started) => outside.push((tid, started)),
                Err(error) if is_gone(&error) => {}
                Err(error) => return Err(error.into()),
            }
        }
        if outside.is_empty() {
            return Ok(0);
        }
        // An id may have been reused since the list was read; only ids that are still listed count.
        let still: BTreeSet<Tid> = self.tasks.members(self.members)?.into_iter().collect();
        let mut moved = 0;
        for (tid, started) in outside.into_iter().filter(|(tid, _)| still.contains(tid)) {
            moved += usize::from(self.move_thread(tid, started)?);
        }
        self.bound.moved += moved;
        Ok(moved)
    }

    /// Moves one thread; false when it has ended.
    fn move_thread(&mut self, tid: Tid, started: StartTime) -> Result<bool, BindError> {
        let group = self.target.group_path().to_owned();
        let monitor = self.target.monitor.as_ref().map(ToString::to_string);
        if !self.write_tid(tid, &group, monitor.as_deref())? {
            return Ok(false);
        }
        match self.tasks.started(tid) {
            Ok(now) if now != started && !self.tasks.members(self.members)?.contains(&tid) => {
                self.put_back(tid)?;
                Ok(false)
            }
            Err(error) if !is_gone(&error) => Err(error.into()),
            _ => Ok(true),
        }
    }

    /// Writes a thread to a control group, and to a monitoring group below it; false when it has ended.
    fn write_tid(&self, tid: Tid, group: &str, monitor: Option<&str>) -> Result<bool, BindError> {
        let mut files = vec![below(group, "tasks")];
        files.extend(monitor.map(|monitor| below(group, &format!("mon_groups/{monitor}/tasks"))));
        for file in files {
            match command::write(self.fs, file, tid.to_string()) {
                Err(error) if error.errno() == Some(Errno::SRCH) => return Ok(false),
                other => other?,
            }
        }
        Ok(true)
    }

    /// Puts a stranger into its parent's group, in which it was forked.
    fn put_back(&mut self, tid: Tid) -> Result<(), BindError> {
        let groups = self.tasks.parent(tid).and_then(|parent| self.tasks.groups(parent));
        let groups = match groups {
            Ok(groups) => groups,
            Err(error) if is_gone(&error) => String::new(),
            Err(error) => return Err(error.into()),
        };
        let (group, monitor) = placement(&groups);
        self.write_tid(tid, group, Some(monitor).filter(|monitor| !monitor.is_empty()))?;
        self.bound.put_back += 1;
        Ok(())
    }
}
