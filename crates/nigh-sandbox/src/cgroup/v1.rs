//! cgroup v1: one tree a controller. Follows Documentation/admin-guide/cgroup-v1/{memory,freezer-subsystem,pids}.rst.
//!
//! The grant is `memory.limit_in_bytes`. If Nigh listens for a sandbox at its limit, to give it more, the kernel's
//! out-of-memory killer is held back below the booking (`memory.oom_control`), and page faults wait. If not, the killer
//! stays on, and a sandbox at its limit loses a process.
//!
//! Thresholds of `memory.usage_in_bytes` are not used: they cannot be moved, and registering one waits for an RCU grace
//! period, for milliseconds.

use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use nigh_schedule::memory::grant::{Grant, OnPressure, SandboxMemory, SandboxMemoryError};
use nigh_terms::ByteSize;
use parking_lot::Mutex;
use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Errno;
use tokio::time::Instant;

use super::control_file::{ControlFile, named_number, write_once};
use super::pressure::{PressureWatch, Wake};

const LIMIT: &str = "memory.limit_in_bytes";
const USAGE: &str = "memory.usage_in_bytes";
const PEAK: &str = "memory.max_usage_in_bytes";
const OOM_CONTROL: &str = "memory.oom_control";
const OOM_KILLS: &str = "oom_kill";
const EVENT_CONTROL: &str = "cgroup.event_control";
const SWAPPINESS: &str = "memory.swappiness";
const STAT: &str = "memory.stat";
/// File pages, in the kernel's two lists.
const FILE_PAGES: [&str; 2] = ["inactive_file", "active_file"];
const LIMIT_HITS: &str = "memory.failcnt";
const FORCE_EMPTY: &str = "memory.force_empty";
/// The kernel's default. It holds while a sandbox is frozen and may be swapped.
const SWAPPINESS_IDLE: &str = "60";
/// The file of the freezer.
pub(super) const FREEZER_STATE: &str = "freezer.state";
const FROZEN: &str = "FROZEN";
/// The freezer's value that lets processes run.
pub(super) const THAWED: &str = "THAWED";
const FREEZER_POLL: Duration = Duration::from_micros(500);

/// The memory of one v1 group.
#[derive(Debug)]
pub struct Memory {
    limit: ControlFile,
    usage: ControlFile,
    peak: ControlFile,
    oom_control: ControlFile,
    event_control: ControlFile,
    stat: ControlFile,
    limit_hits: ControlFile,
    group: PathBuf,
    killer: Mutex<Killer>,
    pressure: PressureWatch,
}

/// Decides when the kernel's out-of-memory killer is held back.
#[derive(Debug)]
struct Killer {
    limit: ByteSize,
    ceiling: ByteSize,
    /// True if Nigh listens for a sandbox at its limit.
    is_heard: bool,
    is_held_back: bool,
}

impl Killer {
    /// True if the killer must be held back at `limit`.
    fn waits_at(&self, limit: ByteSize) -> bool {
        self.is_heard && limit < self.ceiling
    }
}

impl Memory {
    /// Opens the files and keeps swap out.
    pub(super) fn open(group: &Path) -> io::Result<Self> {
        // The file is absent if the kernel has no swap. A function must not grow into swap beyond its limit.
        match write_once(group, SWAPPINESS, "0") {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        Ok(Self {
            limit: ControlFile::writable(group, LIMIT)?,
            usage: ControlFile::readable(group, USAGE)?,
            peak: ControlFile::writable(group, PEAK)?,
            oom_control: ControlFile::writable(group, OOM_CONTROL)?,
            event_control: ControlFile::write_only(group, EVENT_CONTROL)?,
            stat: ControlFile::readable(group, STAT)?,
            limit_hits: ControlFile::readable(group, LIMIT_HITS)?,
            group: group.to_owned(),
            killer: Mutex::new(Killer {
                limit: ByteSize(u64::MAX),
                ceiling: ByteSize(u64::MAX),
                is_heard: false,
                is_held_back: false,
            }),
            pressure: PressureWatch::default(),
        })
    }

    /// Sets the first limit.
    pub(super) fn bound(&self, grant: Grant) -> io::Result<()> {
        let mut killer = self.killer.lock();
        self.limit.set_number(grant.memory.bytes())?;
        (killer.limit, killer.ceiling) = (grant.memory, grant.booked);
        Ok(())
    }

    /// Holds the killer back or releases it, if that changes anything. A waiting process then continues or is killed.
    fn hold_back(&self, killer: &mut Killer, hold: bool) -> Result<(), SandboxMemoryError> {
        if killer.is_held_back != hold {
            let word: &[u8] = if hold { b"1" } else { b"0" };
            self.oom_control.set(word).map_err(|source| failed(&self.oom_control, source))?;
            killer.is_held_back = hold;
        }
        Ok(())
    }
}

impl SandboxMemory for Memory {
    fn set_limit(&self, limit: ByteSize) -> Result<(), SandboxMemoryError> {
        let mut killer = self.killer.lock();
        if killer.waits_at(limit) {
            // The killer is held back before the sandbox can reach the lower limit.
            self.hold_back(&mut killer, true)?;
        }
        let outcome = match self.limit.set_number(limit.bytes()) {
            Ok(()) => {
                killer.limit = limit;
                Ok(())
            }
            Err(error) if error.raw_os_error() == Some(Errno::BUSY.raw_os_error()) => {
                Err(SandboxMemoryError::CannotShrink {
                    target: limit,
                    current: read(&self.limit)?,
                    used: read(&self.usage)?,
                })
            }
            Err(source) => Err(failed(&self.limit, source)),
        };
        let waits = killer.waits_at(killer.limit);
        self.hold_back(&mut killer, waits)?;
        outcome
    }

    fn set_ceiling(&self, ceiling: ByteSize) -> Result<(), SandboxMemoryError> {
        let mut killer = self.killer.lock();
        killer.ceiling = ceiling;
        let waits = killer.waits_at(killer.limit);
        self.hold_back(&mut killer, waits)
    }

    fn peak(&self) -> Result<ByteSize, SandboxMemoryError> {
        read(&self.peak)
    }

    fn reset_peak(&self) -> Result<(), SandboxMemoryError> {
        self.peak.set(b"0").map_err(|source| failed(&self.peak, source))
    }

    fn used(&self) -> Result<ByteSize, SandboxMemoryError> {
        read(&self.usage)
    }

    fn oom_kills(&self) -> Result<u64, SandboxMemoryError> {
        self.oom_control.named_number(OOM_KILLS).map_err(|source| failed(&self.oom_control, source))
    }

    fn page_cache(&self) -> Result<ByteSize, SandboxMemoryError> {
        let text = self.stat.text().map_err(|source| failed(&self.stat, source))?;
        Ok(FILE_PAGES.iter().filter_map(|name| named_number(&text, name)).map(ByteSize).sum())
    }

    fn limit_hits(&self) -> Result<u64, SandboxMemoryError> {
        self.limit_hits.number().map_err(|source| failed(&self.limit_hits, source))
    }

    fn fails_at_limit(&self) -> bool {
        true
    }

    fn reclaim(&self) -> Result<(), SandboxMemoryError> {
        let write = |name, value| {
            write_once(&self.group, name, value)
                .map_err(|source| SandboxMemoryError::Io { path: self.group.join(name), source })
        };
        // The file is absent if the kernel has no swap.
        let may_swap = write(SWAPPINESS, SWAPPINESS_IDLE).is_ok();
        let outcome = write(FORCE_EMPTY, "0");
        if may_swap {
            write(SWAPPINESS, "0")?;
        }
        outcome
    }

    fn on_pressure(&self, notice: OnPressure) -> Result<(), SandboxMemoryError> {
        let begin = || -> io::Result<()> {
            let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
            let registration = format!("{} {}", event.as_raw_fd(), self.oom_control.as_fd().as_raw_fd());
            self.event_control.set(registration.as_bytes())?;
            let usage = self.usage.try_clone()?;
            self.pressure.begin(Wake::Counter(event), move || usage.number().map(ByteSize), notice)
        };
        begin().map_err(|source| failed(&self.event_control, source))?;
        let mut killer = self.killer.lock();
        killer.is_heard = true;
        let waits = killer.waits_at(killer.limit);
        self.hold_back(&mut killer, waits)
    }
}

fn read(file: &ControlFile) -> Result<ByteSize, SandboxMemoryError> {
    file.number().map(ByteSize).map_err(|source| failed(file, source))
}

fn failed(file: &ControlFile, source: io::Error) -> SandboxMemoryError {
    SandboxMemoryError::Io { path: file.path().to_owned(), source }
}

/// The freezer of one v1 group.
#[derive(Debug)]
pub(super) struct Freezer(ControlFile);

impl Freezer {
    pub(super) fn begin(group: &Path) -> io::Result<Self> {
        ControlFile::writable(group, FREEZER_STATE).map(Self)
    }

    /// Stops all processes. Returns when the kernel reports that all are stopped, or `TimedOut`.
    pub(super) async fn freeze(&self, patience: Duration) -> io::Result<()> {
        let until = Instant::now() + patience;
        loop {
            // Written again in each round: the v1 freezer misses processes forked while it freezes.
            self.0.set(FROZEN.as_bytes())?;
            if self.0.text()?.trim_end() == FROZEN {
                return Ok(());
            }
            if Instant::now() > until {
                self.thaw()?;
                return Err(io::ErrorKind::TimedOut.into());
            }
            tokio::time::sleep(FREEZER_POLL).await;
        }
    }

    pub(super) fn thaw(&self) -> io::Result<()> {
        self.0.set(THAWED.as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fake_group() -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        let oom = "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n";
        for (name, text) in [
            (LIMIT, ""),
            (USAGE, "4096\n"),
            (PEAK, "8192\n"),
            (OOM_CONTROL, oom),
            (EVENT_CONTROL, ""),
            (SWAPPINESS, ""),
            (STAT, "cache 9000\nrss 1\nshmem 4096\ninactive_file 4000\nactive_file 904\n"),
            (LIMIT_HITS, "3\n"),
        ] {
            std::fs::write(folder.path().join(name), text).unwrap();
        }
        folder
    }

    #[test]
    fn the_first_limit_is_the_grant_and_swap_is_not_used() {
        let folder = fake_group();
        let grant = Grant { memory: ByteSize::mib(64), booked: ByteSize::mib(128) };
        let memory = Memory::open(folder.path()).unwrap();
        memory.bound(grant).unwrap();
        assert_eq!(std::fs::read_to_string(folder.path().join(LIMIT)).unwrap(), ByteSize::mib(64).bytes().to_string());
        assert_eq!(std::fs::read_to_string(folder.path().join(SWAPPINESS)).unwrap(), "0");
        assert_eq!(memory.used().unwrap(), ByteSize::kib(4));
        assert_eq!(memory.peak().unwrap(), ByteSize::kib(8));
        assert_eq!(memory.oom_kills().unwrap(), 2);
        assert_eq!((memory.page_cache().unwrap(), memory.limit_hits().unwrap()), (ByteSize(4904), 3));
    }

    #[tokio::test]
    async fn the_killer_is_held_back_where_somebody_hears_of_it_and_below_what_was_booked() {
        let folder = fake_group();
        let memory = Memory::open(folder.path()).unwrap();
        memory.bound(Grant { memory: ByteSize::mib(64), booked: ByteSize::mib(128) }).unwrap();
        let first = || std::fs::read(folder.path().join(OOM_CONTROL)).unwrap()[0];
        memory.set_limit(ByteSize::mib(70)).unwrap();
        assert_eq!(first(), b'o', "nobody hears of it, and nothing was written");
        memory.on_pressure(Box::new(|_| {})).unwrap();
        assert_eq!(first(), b'1');
        memory.set_limit(ByteSize::mib(128)).unwrap();
        assert_eq!(first(), b'0');
        memory.set_limit(ByteSize::mib(100)).unwrap();
        assert_eq!(first(), b'1');
        memory.set_ceiling(ByteSize::mib(100)).unwrap();
        assert_eq!(first(), b'0');
    }

    #[test]
    fn a_file_that_is_no_group_file_is_an_error_with_its_path() {
        let folder = fake_group();
        std::fs::write(folder.path().join(PEAK), "many").unwrap();
        let memory = Memory::open(folder.path()).unwrap();
        let error = memory.peak().unwrap_err();
        assert!(error.to_string().contains(PEAK), "{error}");
    }
}
