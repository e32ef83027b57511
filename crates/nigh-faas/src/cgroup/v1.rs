//! cgroup v1: one tree a controller. Follows Documentation/admin-guide/cgroup-v1/{memory,freezer-subsystem,pids}.rst.
//!
//! The grant is `memory.limit_in_bytes`. The kernel's killer stays on: a sandbox at its limit loses a process.

use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::path::Path;
use std::time::Duration;

use nigh_terms::ByteSize;
use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Errno;
use tokio::time::Instant;

use super::control_file::{ControlFile, write_once};
use super::pressure::{PressureWatch, Wake};
use crate::grant::{Grant, OnPressure, SandboxMemory, SandboxMemoryError};

const LIMIT: &str = "memory.limit_in_bytes";
const USAGE: &str = "memory.usage_in_bytes";
const PEAK: &str = "memory.max_usage_in_bytes";
const OOM_CONTROL: &str = "memory.oom_control";
const OOM_KILLS: &str = "oom_kill";
const EVENT_CONTROL: &str = "cgroup.event_control";
const SWAPPINESS: &str = "memory.swappiness";
/// The freezer's switch.
pub(super) const FREEZER_STATE: &str = "freezer.state";
const FROZEN: &str = "FROZEN";
/// What is written to the freezer's switch to let processes run.
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
    pressure: PressureWatch,
}

impl Memory {
    /// Opens the files and keeps swap out.
    pub(super) fn open(group: &Path) -> io::Result<Self> {
        // Absent where the kernel has no swap; a function shall not grow into swap beyond its limit.
        match write_once(group, SWAPPINESS, "0") {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        Ok(Self {
            limit: ControlFile::writable(group, LIMIT)?,
            usage: ControlFile::readable(group, USAGE)?,
            peak: ControlFile::writable(group, PEAK)?,
            oom_control: ControlFile::readable(group, OOM_CONTROL)?,
            event_control: ControlFile::write_only(group, EVENT_CONTROL)?,
            pressure: PressureWatch::default(),
        })
    }

    /// Sets the first limit.
    pub(super) fn bound(&self, grant: Grant) -> io::Result<()> {
        self.limit.set_number(grant.memory.bytes())
    }
}

impl SandboxMemory for Memory {
    fn set_limit(&self, limit: ByteSize) -> Result<(), SandboxMemoryError> {
        match self.limit.set_number(limit.bytes()) {
            Err(error) if error.raw_os_error() == Some(Errno::BUSY.raw_os_error()) => {
                Err(SandboxMemoryError::CannotShrink {
                    target: limit,
                    current: read(&self.limit)?,
                    used: read(&self.usage)?,
                })
            }
            outcome => outcome.map_err(|source| failed(&self.limit, source)),
        }
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

    fn on_pressure(&self, notice: OnPressure) -> Result<(), SandboxMemoryError> {
        let begin = || -> io::Result<()> {
            let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
            let registration = format!("{} {}", event.as_raw_fd(), self.oom_control.as_fd().as_raw_fd());
            self.event_control.set(registration.as_bytes())?;
            let usage = self.usage.try_clone()?;
            self.pressure.begin(Wake::Counter(event), move || usage.number().map(ByteSize), notice)
        };
        begin().map_err(|source| failed(&self.event_control, source))
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

    /// Stops all processes; returns when the kernel says that all stand still, or `TimedOut`.
    pub(super) async fn freeze(&self, patience: Duration) -> io::Result<()> {
        let until = Instant::now() + patience;
        loop {
            // Written again each time: the v1 freezer misses processes forked while it freezes.
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
