//! An in-memory resctrl that answers as the kernel does: same files, same texts, same errno.
//!
//! It has no cache and measures nothing. Its decisions are a pure state machine ([`state::State`] and the modules
//! beside it). This file is the shell: a mutex, the [`ResctrlFs`] trait, and the machine's part in tests (processes,
//! hot plug, other users of resctrl, counters). Pseudo-locking is refused as on a processor without it.
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
    shared: Arc<SharedEmulator>,
}

#[derive(Debug)]
struct SharedEmulator {
    inner: Mutex<EmulatorState>,
    unlocked: Condvar,
}

#[derive(Debug)]
struct EmulatorState {
    state: State,
    schedule: Schedule,
    locked: bool,
}

/// The emulated `flock`.
struct Lock<'a>(&'a SharedEmulator);

impl FsLock for Lock<'_> {}

impl Drop for Lock<'_> {
    fn drop(&mut self) {
        held(&self.0.inner).locked = false;
        self.0.unlocked.notify_one();
    }
}

/// A panic of one test thread leaves the state usable for the others.
fn held(inner: &Mutex<EmulatorState>) -> MutexGuard<'_, EmulatorState> {
    inner.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Emulator {
    /// A machine with resctrl mounted without options.
    pub fn new(machine: MachineConfig) -> Self {
        let emulator = Self::unmounted(machine);
        // A machine without resources cannot be mounted; tests use it for that.
        _ = held(&emulator.shared.inner).state.mount(MountOptions::default());
        emulator
    }

    /// A machine with resctrl not mounted.
    pub fn unmounted(machine: MachineConfig) -> Self {
        let inner = EmulatorState { state: State::new(machine), schedule: Schedule::default(), locked: false };
        Self { shared: Arc::new(SharedEmulator { inner: Mutex::new(inner), unlocked: Condvar::new() }) }
    }

    /// Mounts.
    pub fn mount(&self, options: MountOptions) -> io::Result<()> {
        Ok(self.state(|state| state.mount(options))?)
    }

    /// Unmounts.
    pub fn unmount(&self) -> io::Result<()> {
        Ok(self.state(State::unmount)?)
    }

    /// Schedules `fault` just before the `after`-th command from now (0: the next). Commands are writes, mkdirs, rmdirs
    /// and renames; reads do not count.
    pub fn schedule(&self, after: usize, fault: Fault) {
        held(&self.shared.inner).schedule.add(after, fault);
    }

    /// Applies a fault now.
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

    /// Runs the kernel's limbo worker once.
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

#[cfg(test)]
mod tests {
    use super::*;

    fn errno(answer: io::Result<()>) -> Option<Errno> {
        answer.err().and_then(|error| error.raw_os_error()).map(Errno::from_raw_os_error)
    }

    #[test]
    fn the_two_kernels_pad_as_they_do() {
        let old = Emulator::new(MachineConfig::silver_4210r(Dialect::Linux6_1));
        old.write("schemata", "L3:0=7f\nMB:0=90\n").unwrap();
        assert_eq!(old.read("schemata").unwrap(), "    MB:0= 90\n    L3:0=07f\n");
        let new = Emulator::new(MachineConfig::cat_only(Dialect::Linux7, 11, 8, 2, 1));
        new.write("schemata", "L3:1=7f\n").unwrap();
        assert_eq!(new.read("schemata").unwrap(), "L3:0=7ff;1=7f\n");
        let amd = Emulator::new(MachineConfig::epyc(Dialect::Linux7));
        assert!(amd.read("schemata").unwrap().starts_with("  SMBA:0=2048;1=2048\n    MB:0=2048;1=2048\n"));
    }

    #[test]
    fn monitoring_ids_stay_in_limbo_while_their_lines_are_cached() {
        let mut machine = MachineConfig::silver_4210r(Dialect::Linux7);
        machine.monitoring = Some(MonitoringConfig::all_events(2));
        let emulator = Emulator::new(machine);
        emulator.make_group("a").unwrap();
        assert_eq!(errno(emulator.make_group("b")), Some(Errno::NOSPC));
        assert_eq!(emulator.read("info/last_cmd_status").unwrap(), "Out of RMIDs\n");
        emulator.set_counter("a", 0, Event::Occupancy, Reading::Value(8 << 20)).unwrap();
        emulator.remove_group("a").unwrap();
        assert_eq!(errno(emulator.make_group("b")), Some(Errno::BUSY));
        assert!(!emulator.list("").unwrap().contains(&"b/".to_owned()));
        // Half the cache was the threshold; all of it is above the 8 MiB still cached.
        emulator.write("info/L3_MON/max_threshold_occupancy", "14417920\n").unwrap();
        emulator.run_limbo_worker();
        emulator.make_group("b").unwrap();
        assert_eq!(errno(emulator.write("info/L3_MON/max_threshold_occupancy", "99999999999\n")), Some(Errno::RANGE));
        assert_eq!(errno(emulator.write("info/L3_MON/max_threshold_occupancy", "99999999\n")), Some(Errno::INVAL));
    }

    #[test]
    fn the_io_class_takes_the_highest_closid_and_names_who_holds_it() {
        let emulator = Emulator::new(MachineConfig::epyc(Dialect::Linux7));
        let (io_alloc, cbm) = ("info/L3/io_alloc", "info/L3/io_alloc_cbm");
        assert_eq!(emulator.read(io_alloc).unwrap(), "disabled\n");
        assert!(emulator.read(cbm).is_err());
        emulator.write(io_alloc, "1\n").unwrap();
        emulator.write(cbm, "0=f;1=ff00\n").unwrap();
        assert_eq!(emulator.read(cbm).unwrap(), "0=f;1=ff00\n");
        for number in 1..15 {
            emulator.make_group(&format!("g{number}")).unwrap();
        }
        assert_eq!(errno(emulator.make_group("over")), Some(Errno::NOSPC));
        emulator.write(io_alloc, "0\n").unwrap();
        emulator.make_group("last").unwrap();
        assert_eq!(errno(emulator.write(io_alloc, "1\n")), Some(Errno::NOSPC));
        let status = "CLOSID (ctrl_hw_id) 15 for io_alloc is used by last group\n";
        assert_eq!(emulator.read("info/last_cmd_status").unwrap(), status);
        let plain = Emulator::new(MachineConfig::silver_4210r(Dialect::Linux7));
        assert_eq!(errno(plain.write(io_alloc, "1\n")), Some(Errno::NOENT));
    }

    #[test]
    fn a_changed_event_configuration_clears_its_domains_counters_once() {
        let emulator = Emulator::new(MachineConfig::epyc(Dialect::Linux7));
        emulator.set_counter("", 0, Event::TotalBytes, Reading::Value(7)).unwrap();
        emulator.set_counter("", 1, Event::TotalBytes, Reading::Value(7)).unwrap();
        emulator.write("info/L3_MON/mbm_total_bytes_config", "0=0x30\n").unwrap();
        assert_eq!(emulator.read("info/L3_MON/mbm_total_bytes_config").unwrap(), "0=0x30;1=0x7f\n");
        let read = |domain: u32| emulator.read(&format!("mon_data/mon_L3_0{domain}/mbm_total_bytes")).unwrap();
        assert_eq!((read(0), read(0), read(1)), ("Unavailable\n".into(), "0\n".into(), "7\n".into()));
    }

    #[test]
    fn an_unmount_takes_groups_and_masks_and_puts_tasks_back() {
        let emulator = Emulator::new(MachineConfig::silver_4210r(Dialect::Linux7));
        emulator.make_group("a").unwrap();
        emulator.write("a/tasks", "0").unwrap();
        emulator.write("schemata", "L3:0=f\n").unwrap();
        assert_eq!(errno(emulator.mount(MountOptions::default())), Some(Errno::BUSY));
        emulator.unmount().unwrap();
        assert_eq!(emulator.cpu_resctrl_groups(1).unwrap(), "res:\nmon:\n");
        assert_eq!(errno(emulator.write("tasks", "1")), Some(Errno::NOENT));
        assert_eq!(errno(emulator.make_group("a")), Some(Errno::NOENT));
        assert!(emulator.list("").unwrap().is_empty());
        emulator.mount(MountOptions { debug: true, ..MountOptions::default() }).unwrap();
        assert_eq!(emulator.cpu_resctrl_groups(1).unwrap(), "res:/\nmon:\n");
        assert!(emulator.read("schemata").unwrap().contains("L3:0=7ff"));
        emulator.make_group("b").unwrap();
        assert_eq!(emulator.read("b/ctrl_hw_id").unwrap(), "1\n");
    }

    #[test]
    fn a_cpu_off_line_leaves_its_group_and_comes_back_to_the_root() {
        let emulator = Emulator::new(MachineConfig::cat_only(Dialect::Linux7, 11, 8, 2, 2));
        emulator.make_group("a").unwrap();
        emulator.write("a/cpus_list", "2-3\n").unwrap();
        emulator.inject(Fault::CpuOffline(3));
        assert_eq!(emulator.read("a/cpus_list").unwrap(), "2\n");
        assert_eq!(errno(emulator.write("a/cpus_list", "3\n")), Some(Errno::INVAL));
        assert_eq!(emulator.read("info/last_cmd_status").unwrap(), "Can only assign online CPUs\n");
        emulator.inject(Fault::CpuOnline(3));
        assert_eq!(emulator.read("cpus_list").unwrap(), "0-1,3\n");
        assert_eq!(emulator.read("cpus").unwrap(), "b\n");
    }

    #[test]
    fn the_status_is_cut_where_the_kernels_buffer_ends() {
        let emulator = Emulator::new(MachineConfig::cat_only(Dialect::Linux7, 11, 8, 1, 1));
        let name = "X".repeat(2000);
        assert_eq!(errno(emulator.write("schemata", &format!("{name}:0=1\n"))), Some(Errno::INVAL));
        assert_eq!(emulator.read("info/last_cmd_status").unwrap().len(), 511);
    }
}
