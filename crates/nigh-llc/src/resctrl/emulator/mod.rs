//! An in-memory resctrl that answers as the kernel does: same files, same texts, same errno.
//!
//! It holds no cache and measures nothing. What it decides is a pure state machine ([`state::State`] and the modules
//! beside it); this file is the shell: a mutex, the [`ResctrlFs`] trait, and what tests need to play the machine's
//! part (processes, hot plug, other users of resctrl, counters). Pseudo-locking is refused as on a processor the
//! kernel cannot lock on.
//!
//! Source: fs/resctrl of Linux 7 and arch/x86/kernel/cpu/resctrl of Linux 6.1, by behaviour.

mod fault;
mod groups;
mod guest_machine;
mod info;
mod machine;
mod monitor;
mod number;
mod process;
mod schemata_file;
mod state;
mod task_file;
mod tree;

use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use rustix::io::Errno;

pub use fault::Fault;
pub use guest_machine::GuestMachine;
pub use machine::{BandwidthConfig, CacheConfig, CpuConfig, Dialect, MachineConfig, MonitoringConfig, Vendor};
pub use monitor::{Event, Reading};

use self::fault::Schedule;
use self::state::State;
use super::fs::{FsLock, MountOptions, ResctrlFs};
use super::task_view::{Members, ProcessRef, StartTime, TaskView, Tid};

/// An emulated mount; clones share it.
#[derive(Debug, Clone)]
pub struct Emulator {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    inner: Mutex<Inner>,
    unlocked: Condvar,
}

#[derive(Debug)]
struct Inner {
    state: State,
    schedule: Schedule,
    locked: bool,
}

/// The emulated `flock`.
struct Lock<'a>(&'a Shared);

impl FsLock for Lock<'_> {}

impl Drop for Lock<'_> {
    fn drop(&mut self) {
        held(&self.0.inner).locked = false;
        self.0.unlocked.notify_one();
    }
}

/// A panic of one test thread leaves the state usable for the others.
fn held(inner: &Mutex<Inner>) -> MutexGuard<'_, Inner> {
    inner.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Emulator {
    /// A machine with resctrl mounted without options.
    pub fn new(machine: MachineConfig) -> Self {
        let emulator = Self::unmounted(machine);
        // A machine without any resource cannot be mounted, and is of use as just that.
        _ = held(&emulator.shared.inner).state.mount(MountOptions::default());
        emulator
    }

    /// A machine with resctrl not mounted.
    pub fn unmounted(machine: MachineConfig) -> Self {
        let inner = Inner { state: State::new(machine), schedule: Schedule::default(), locked: false };
        Self { shared: Arc::new(Shared { inner: Mutex::new(inner), unlocked: Condvar::new() }) }
    }

    /// Mounts.
    pub fn mount(&self, options: MountOptions) -> io::Result<()> {
        Ok(self.state(|state| state.mount(options))?)
    }

    /// Unmounts.
    pub fn unmount(&self) -> io::Result<()> {
        Ok(self.state(State::unmount)?)
    }

    /// Has `fault` happen just before the `after`-th command from now (0: the next). Commands are writes, mkdirs,
    /// rmdirs and renames; reads do not count.
    pub fn schedule(&self, after: usize, fault: Fault) {
        held(&self.shared.inner).schedule.add(after, fault);
    }

    /// Has something happen now.
    pub fn inject(&self, fault: Fault) {
        self.state(|state| fault.happen(state));
    }

    /// Sets a counter of a group (`""` is the root) in a monitoring domain.
    pub fn set_counter(&self, group: &str, domain: u32, event: Event, reading: Reading) -> io::Result<()> {
        Ok(self.state(|state| match state.resolve(group)? {
            tree::Node::Dir(tree::Dir::Group(at)) => {
                let (_, rmid) = state.ids(at);
                state.counters.set(rmid, domain, event, reading);
                Ok(())
            }
            _ => Err(Errno::NOENT),
        })?)
    }

    /// Lets the kernel's limbo worker look once.
    pub fn run_limbo_worker(&self) {
        self.state(State::run_limbo_worker);
    }

    /// Which task writes, and as which user.
    pub fn set_writer(&self, tid: u32, uid: u32) {
        self.state(|state| (state.processes.writer_tid, state.processes.writer_uid) = (tid, uid));
    }

    /// The text of `/proc/<tid>/cpu_resctrl_groups`.
    pub fn cpu_resctrl_groups(&self, tid: u32) -> io::Result<String> {
        Ok(self.state(|state| state.show_groups_of(tid))?)
    }

    fn state<T>(&self, f: impl FnOnce(&mut State) -> T) -> T {
        f(&mut held(&self.shared.inner).state)
    }

    /// One command: what is scheduled for this moment happens first.
    fn command<T>(&self, f: impl FnOnce(&mut State) -> Result<T, Errno>) -> io::Result<T> {
        let mut inner = held(&self.shared.inner);
        let inner = &mut *inner;
        if let Some(errno) = inner.schedule.tick(&mut inner.state) {
            return Err(errno.into());
        }
        Ok(f(&mut inner.state)?)
    }
}

impl ResctrlFs for Emulator {
    fn mount_options(&self) -> io::Result<Option<MountOptions>> {
        Ok(self.state(|state| state.mount))
    }

    fn read(&self, path: &str) -> io::Result<String> {
        Ok(self.state(|state| state.read(path))?)
    }

    fn write(&self, path: &str, text: &str) -> io::Result<()> {
        self.command(|state| state.write(path, text))
    }

    fn make_group(&self, path: &str) -> io::Result<()> {
        self.command(|state| state.make(path))
    }

    fn remove_group(&self, path: &str) -> io::Result<()> {
        self.command(|state| state.remove(path))
    }

    fn rename_group(&self, from: &str, to: &str) -> io::Result<()> {
        self.command(|state| state.rename(from, to))
    }

    fn list(&self, path: &str) -> io::Result<Vec<String>> {
        Ok(self.state(|state| state.list(path))?)
    }

    fn lock(&self) -> io::Result<Box<dyn FsLock + '_>> {
        let mut inner = held(&self.shared.inner);
        while inner.locked {
            inner = self.shared.unlocked.wait(inner).unwrap_or_else(PoisonError::into_inner);
        }
        inner.locked = true;
        Ok(Box::new(Lock(&self.shared)))
    }
}

impl TaskView for Emulator {
    fn started(&self, tid: Tid) -> io::Result<StartTime> {
        let started = self.state(|state| state.processes.find(tid.0).map(|thread| StartTime(thread.started)));
        Ok(started.ok_or(Errno::SRCH)?)
    }

    fn parent(&self, tid: Tid) -> io::Result<Tid> {
        let parent = self.state(|state| state.processes.find(tid.0).map(|thread| Tid(thread.parent)));
        Ok(parent.ok_or(Errno::SRCH)?)
    }

    fn groups(&self, tid: Tid) -> io::Result<String> {
        self.cpu_resctrl_groups(tid.0)
    }

    fn members(&self, of: &Members) -> io::Result<Vec<Tid>> {
        let Members::Tree(ProcessRef { pid, .. }) = of else {
            return Err(io::Error::from(io::ErrorKind::Unsupported));
        };
        Ok(self.state(|state| {
            let mut processes = vec![pid.0];
            let mut threads = Vec::new();
            while let Some(process) = processes.pop() {
                threads.extend(state.processes.threads_of(process).into_iter().map(Tid));
                processes.extend(state.processes.children_of(process));
            }
            threads
        }))
    }
}
