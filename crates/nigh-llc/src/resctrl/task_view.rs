//! The driver's view of tasks: the members of a sandbox, the start time of a task, and its groups.
//!
//! [`ProcTasks`] reads `/proc`; the emulator answers for its own tasks. Nothing here moves a task.
//!
//! Source: proc(5): `stat` field 22 (start time in ticks since boot, the guard against a reused id), `task`,
//! `children`, `cpu_resctrl_groups`.

use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use rustix::io::Errno;

/// A thread's id (`gettid`); a process's is that of its first thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tid(pub u32);

impl fmt::Display for Tid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// When a task started, in clock ticks since boot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StartTime(pub u64);

/// A process, distinct from a later one with the same id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ProcessRef {
    /// Its id.
    pub pid: Tid,
    /// When it started.
    pub started: StartTime,
}

/// The tasks of one sandbox.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Members {
    /// A process with all its threads and descendants.
    Tree(ProcessRef),
    /// Every thread in a cgroup's directory and those below it.
    Cgroup(PathBuf),
}

impl fmt::Display for Members {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tree(process) => write!(f, "process {} and its descendants", process.pid),
            Self::Cgroup(path) => write!(f, "cgroup {}", path.display()),
        }
    }
}

/// The machine's tasks, as the driver sees them.
pub trait TaskView: Send + Sync {
    /// When a task started; `ESRCH` or `ENOENT` when it is gone.
    fn started(&self, tid: Tid) -> io::Result<StartTime>;
    /// The parent process of a task.
    fn parent(&self, tid: Tid) -> io::Result<Tid>;
    /// The text of `/proc/<tid>/cpu_resctrl_groups`.
    fn groups(&self, tid: Tid) -> io::Result<String>;
    /// All threads of a sandbox. Threads that end during the read may be missing.
    fn members(&self, of: &Members) -> io::Result<Vec<Tid>>;
}

/// Whether an error means that the task has ended.
pub(super) fn is_gone(error: &io::Error) -> bool {
    let raw = error.raw_os_error().map(Errno::from_raw_os_error);
    matches!(raw, Some(Errno::SRCH | Errno::NOENT))
}

/// Most threads one sandbox may have; beyond, [`TaskView::members`] fails rather than leave some out.
pub const MEMBERS_MAX: usize = 65_536;
/// Deepest nesting of cgroups below a sandbox's.
const CGROUP_DEPTH_MAX: usize = 16;

/// The tasks in a `/proc`.
#[derive(Debug, Clone)]
pub struct ProcTasks {
    root: PathBuf,
}

impl Default for ProcTasks {
    fn default() -> Self {
        Self { root: PathBuf::from("/proc") }
    }
}

impl ProcTasks {
    /// The tasks below another directory of `/proc`'s form.
    pub fn at(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    /// A process by id, with its start time.
    pub fn process(&self, pid: Tid) -> io::Result<ProcessRef> {
        Ok(ProcessRef { pid, started: self.started(pid)? })
    }

    fn stat_field(&self, tid: Tid, field: usize) -> io::Result<u64> {
        let stat = fs::read_to_string(self.root.join(tid.to_string()).join("stat"))?;
        // The second field is the command in parentheses and may hold anything; fields count on from the third.
        let after = stat.rsplit_once(") ").map(|(_, after)| after);
        let value = after.and_then(|after| after.split(' ').nth(field - 3)).and_then(|value| value.parse().ok());
        value.ok_or_else(|| {
            io::Error::new(io::ErrorKind::InvalidData, format!("no field {field} in stat of task {tid}"))
        })
    }

    fn tree(&self, process: Tid, threads: &mut Vec<Tid>) -> io::Result<()> {
        let mut processes = vec![process];
        while let Some(process) = processes.pop() {
            let tasks = match fs::read_dir(self.root.join(process.to_string()).join("task")) {
                Ok(tasks) => tasks,
                Err(error) if is_gone(&error) => continue,
                Err(error) => return Err(error),
            };
            for task in tasks.flatten() {
                let Some(tid) = task.file_name().to_str().and_then(|name| name.parse().ok()).map(Tid) else { continue };
                add(threads, tid)?;
                match fs::read_to_string(task.path().join("children")) {
                    Ok(children) => {
                        processes.extend(children.split_whitespace().filter_map(|id| id.parse().ok()).map(Tid))
                    }
                    Err(error) if is_gone(&error) => {}
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(())
    }
}

fn add(threads: &mut Vec<Tid>, tid: Tid) -> io::Result<()> {
    if threads.len() == MEMBERS_MAX {
        return Err(io::Error::other(format!("more than {MEMBERS_MAX} threads")));
    }
    threads.push(tid);
    Ok(())
}

/// Adds the threads of a cgroup and those below it: `cgroup.threads` on v2, `tasks` on v1.
fn add_cgroup(path: &Path, depth: usize, threads: &mut Vec<Tid>) -> io::Result<()> {
    if depth > CGROUP_DEPTH_MAX {
        return Err(io::Error::other(format!("cgroups nested more than {CGROUP_DEPTH_MAX} deep")));
    }
    let text = match fs::read_to_string(path.join("cgroup.threads")) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => fs::read_to_string(path.join("tasks"))?,
        other => other?,
    };
    for tid in text.lines().filter_map(|line| line.parse().ok()) {
        add(threads, Tid(tid))?;
    }
    for below in fs::read_dir(path)?.flatten().filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())) {
        match add_cgroup(&below.path(), depth + 1, threads) {
            Err(error) if is_gone(&error) => {}
            other => other?,
        }
    }
    Ok(())
}

impl TaskView for ProcTasks {
    fn started(&self, tid: Tid) -> io::Result<StartTime> {
        self.stat_field(tid, 22).map(StartTime)
    }

    fn parent(&self, tid: Tid) -> io::Result<Tid> {
        self.stat_field(tid, 4).map(|parent| Tid(parent as u32))
    }

    fn groups(&self, tid: Tid) -> io::Result<String> {
        fs::read_to_string(self.root.join(tid.to_string()).join("cpu_resctrl_groups"))
    }

    fn members(&self, of: &Members) -> io::Result<Vec<Tid>> {
        let mut threads = Vec::new();
        match of {
            Members::Tree(process) => self.tree(process.pid, &mut threads)?,
            Members::Cgroup(path) => add_cgroup(path, 0, &mut threads)?,
        }
        Ok(threads)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_is_seen_with_all_its_threads() {
        let tasks = ProcTasks::default();
        let this = tasks.process(Tid(std::process::id())).unwrap();
        let (started, wait) = std::sync::mpsc::channel::<()>();
        let (report, tid) = std::sync::mpsc::channel();
        let thread = std::thread::spawn(move || {
            report.send(rustix::thread::gettid().as_raw_nonzero().get() as u32).unwrap();
            _ = wait.recv();
        });
        let tid = Tid(tid.recv().unwrap());
        let members = tasks.members(&Members::Tree(this)).unwrap();
        assert!(members.contains(&tid) && members.contains(&this.pid), "{members:?}");
        assert!(tasks.started(tid).unwrap() >= this.started);
        assert_eq!(tasks.parent(this.pid).unwrap(), Tid(std::os::unix::process::parent_id()));
        drop(started);
        thread.join().unwrap();
    }

    #[test]
    fn a_command_name_with_parentheses_does_not_shift_the_fields() {
        let proc = tempfile::tempdir().unwrap();
        fs::create_dir(proc.path().join("7")).unwrap();
        let fields: Vec<String> = (3..=30).map(|field| field.to_string()).collect();
        fs::write(proc.path().join("7/stat"), format!("7 (a) b) S) {}", fields.join(" "))).unwrap();
        let tasks = ProcTasks::at(proc.path());
        assert_eq!(tasks.started(Tid(7)).unwrap(), StartTime(22));
        assert!(is_gone(&tasks.started(Tid(8)).unwrap_err()));
    }

    #[test]
    fn a_cgroup_counts_the_threads_below_it() {
        let cgroup = tempfile::tempdir().unwrap();
        fs::write(cgroup.path().join("cgroup.threads"), "1\n2\n").unwrap();
        fs::create_dir(cgroup.path().join("inner")).unwrap();
        fs::write(cgroup.path().join("inner/cgroup.threads"), "3\n").unwrap();
        let members = ProcTasks::default().members(&Members::Cgroup(cgroup.path().to_owned())).unwrap();
        assert_eq!(members, [Tid(1), Tid(2), Tid(3)]);
    }
}
