//! Events that happen to an emulated machine: other users of resctrl, hot plug, processes that start and end, and
//! failing commands. Injected at once, or scheduled for a later command.

use rustix::io::Errno;

use super::state::State;
use crate::resctrl::fs::MountOptions;

/// One thing that happens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    /// A new process of process 1.
    Spawn {
        /// Its id.
        pid: u32,
        /// Its user.
        uid: u32,
    },
    /// A task makes a child process.
    Fork {
        /// The task.
        of: u32,
        /// The child's id.
        pid: u32,
    },
    /// A task starts another thread.
    Thread {
        /// The task.
        of: u32,
        /// The thread's id.
        tid: u32,
    },
    /// A task ends.
    Exit {
        /// The task.
        tid: u32,
    },
    /// Somebody unmounts.
    Unmount,
    /// Somebody unmounts and mounts with other options.
    Remount(MountOptions),
    /// A CPU goes off line.
    CpuOffline(u32),
    /// A CPU comes on line.
    CpuOnline(u32),
    /// Somebody makes a group.
    ForeignMake(String),
    /// Somebody removes a group.
    ForeignRemove(String),
    /// Somebody writes.
    ForeignWrite {
        /// The file.
        path: String,
        /// What is written.
        text: String,
    },
    /// The command fails with this errno and does nothing.
    Fail(i32),
}

impl Fault {
    /// Applies the fault. A failure of a foreign command is ignored.
    pub(super) fn happen(self, state: &mut State) {
        match self {
            Self::Spawn { pid, uid } => state.processes.spawn(pid, uid),
            Self::Fork { of, pid } => state.processes.fork(of, pid, false),
            Self::Thread { of, tid } => state.processes.fork(of, tid, true),
            Self::Exit { tid } => state.processes.exit(tid),
            Self::Unmount => _ = state.unmount(),
            Self::Remount(options) => {
                _ = state.unmount();
                _ = state.mount(options);
            }
            Self::CpuOffline(cpu) => state.set_cpu_online(cpu, false),
            Self::CpuOnline(cpu) => state.set_cpu_online(cpu, true),
            Self::ForeignMake(path) => _ = state.make(&path),
            Self::ForeignRemove(path) => _ = state.remove(&path),
            Self::ForeignWrite { path, text } => _ = state.write(&path, &text),
            Self::Fail(_) => {}
        }
    }
}

/// Scheduled faults, each with the number of commands before it.
#[derive(Debug, Default)]
pub(super) struct Schedule {
    waiting: Vec<(usize, Fault)>,
}

impl Schedule {
    pub(super) fn add(&mut self, after: usize, fault: Fault) {
        self.waiting.push((after, fault));
    }

    /// Plays what is due at this command; an errno is the command's own failure.
    pub(super) fn tick(&mut self, state: &mut State) -> Option<Errno> {
        let mut failure = None;
        for (after, fault) in std::mem::take(&mut self.waiting) {
            match (after, fault) {
                (0, Fault::Fail(errno)) => failure = Some(Errno::from_raw_os_error(errno)),
                (0, fault) => fault.happen(state),
                (after, fault) => self.waiting.push((after - 1, fault)),
            }
        }
        failure
    }
}
