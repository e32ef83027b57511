//! cgroup v2: one tree. Follows Documentation/admin-guide/cgroup-v2.rst.
//!
//! The grant is `memory.high`: there the kernel slows the sandbox down and reclaims pages. The booking is `memory.max`:
//! there the kernel kills. If the kernel cannot reclaim enough pages for a lower limit, the limit is set back.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use nigh_schedule::memory::grant::{Grant, OnPressure, SandboxMemory, SandboxMemoryError};
use nigh_terms::ByteSize;
use parking_lot::Mutex;
use tokio::time::Instant;

use super::control_file::{ControlFile, named_number, write_once};
use super::peak::PeakMeter;
use super::pressure::{PressureWatch, Wake};

const HIGH: &str = "memory.high";
const MAX: &str = "memory.max";
const SWAP_MAX: &str = "memory.swap.max";
const CURRENT: &str = "memory.current";
const MEMORY_EVENTS: &str = "memory.events";
const OOM_KILLS: &str = "oom_kill";
const STAT: &str = "memory.stat";
/// File pages, in the kernel's two lists.
const FILE_PAGES: [&str; 2] = ["inactive_file", "active_file"];
/// Exists since Linux 5.19.
const RECLAIM: &str = "memory.reclaim";
const FREEZE: &str = "cgroup.freeze";
const GROUP_EVENTS: &str = "cgroup.events";
const KILL: &str = "cgroup.kill";
/// The file with the controllers that a group's children may have.
pub(super) const SUBTREE_CONTROL: &str = "cgroup.subtree_control";
/// The file with the controllers that a group has.
pub(super) const CONTROLLERS: &str = "cgroup.controllers";
const FREEZER_POLL: Duration = Duration::from_micros(500);

/// The memory of one v2 group.
#[derive(Debug)]
pub struct Memory {
    high: ControlFile,
    max: ControlFile,
    current: ControlFile,
    /// None before Linux 5.19.
    peak: Option<PeakMeter>,
    events: ControlFile,
    stat: ControlFile,
    group: PathBuf,
    /// The value of `memory.high`. The lock makes lowering it and setting it back one step.
    grant: Mutex<ByteSize>,
    pressure: PressureWatch,
}

impl Memory {
    /// Opens the files and keeps swap out.
    pub(super) fn open(group: &Path) -> io::Result<Self> {
        // The file is absent if the kernel has no swap.
        match write_once(group, SWAP_MAX, "0") {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        Ok(Self {
            high: ControlFile::writable(group, HIGH)?,
            max: ControlFile::writable(group, MAX)?,
            current: ControlFile::readable(group, CURRENT)?,
            peak: PeakMeter::open(group),
            events: ControlFile::readable(group, MEMORY_EVENTS)?,
            stat: ControlFile::readable(group, STAT)?,
            group: group.to_owned(),
            grant: Mutex::new(ByteSize(u64::MAX)),
            pressure: PressureWatch::default(),
        })
    }

    /// Sets the first limits.
    pub(super) fn bound(&self, grant: Grant) -> io::Result<()> {
        self.max.set_number(grant.booked.bytes())?;
        self.high.set_number(grant.memory.bytes())?;
        *self.grant.lock() = grant.memory;
        Ok(())
    }

    fn peak_meter(&self) -> Result<&PeakMeter, SandboxMemoryError> {
        self.peak.as_ref().ok_or(SandboxMemoryError::NotControlled("memory.peak needs Linux 5.19"))
    }
}

impl SandboxMemory for Memory {
    fn set_limit(&self, limit: ByteSize) -> Result<(), SandboxMemoryError> {
        let mut grant = self.grant.lock();
        self.high.set_number(limit.bytes()).map_err(|source| failed(&self.high, source))?;
        if limit < *grant {
            // The write has reclaimed what it could.
            let used = self.used()?;
            if used > limit {
                self.high.set_number(grant.bytes()).map_err(|source| failed(&self.high, source))?;
                return Err(SandboxMemoryError::CannotShrink { target: limit, current: *grant, used });
            }
        }
        *grant = limit;
        Ok(())
    }

    fn set_ceiling(&self, ceiling: ByteSize) -> Result<(), SandboxMemoryError> {
        self.max.set_number(ceiling.bytes()).map_err(|source| failed(&self.max, source))
    }

    fn peak(&self) -> Result<ByteSize, SandboxMemoryError> {
        let meter = self.peak_meter()?;
        meter.peak(|| self.current.number()).map(ByteSize).map_err(|source| failed(meter.file(), source))
    }

    fn reset_peak(&self) -> Result<(), SandboxMemoryError> {
        let meter = self.peak_meter()?;
        meter.reset(|| self.current.number()).map_err(|source| failed(meter.file(), source))
    }

    fn used(&self) -> Result<ByteSize, SandboxMemoryError> {
        self.current.number().map(ByteSize).map_err(|source| failed(&self.current, source))
    }

    fn oom_kills(&self) -> Result<u64, SandboxMemoryError> {
        self.events.named_number(OOM_KILLS).map_err(|source| failed(&self.events, source))
    }

    fn page_cache(&self) -> Result<ByteSize, SandboxMemoryError> {
        let text = self.stat.text().map_err(|source| failed(&self.stat, source))?;
        Ok(FILE_PAGES.iter().filter_map(|name| named_number(&text, name)).map(ByteSize).sum())
    }

    fn reclaim(&self) -> Result<(), SandboxMemoryError> {
        let used = self.used()?;
        let write = |name, value: &str| {
            write_once(&self.group, name, value)
                .map_err(|source| SandboxMemoryError::Io { path: self.group.join(name), source })
        };
        // The file is absent if the kernel has no swap.
        let may_swap = write(SWAP_MAX, "max").is_ok();
        let outcome = match write(RECLAIM, &used.bytes().to_string()) {
            // The kernel reclaimed less than it was asked to.
            Err(SandboxMemoryError::Io { source, .. }) if source.kind() == io::ErrorKind::WouldBlock => Ok(()),
            outcome => outcome,
        };
        if may_swap {
            write(SWAP_MAX, "0")?;
        }
        outcome
    }

    fn on_pressure(&self, notice: OnPressure) -> Result<(), SandboxMemoryError> {
        let begin = || -> io::Result<()> {
            let events = self.events.try_clone()?;
            let current = self.current.try_clone()?;
            let mut seen = at_limit(&events.text()?);
            // The file also changes without pressure; only the counters at a limit count.
            let grown = move |text: &str| std::mem::replace(&mut seen, at_limit(text)) != seen;
            self.pressure.begin(Wake::Changes(events, Box::new(grown)), move || current.number().map(ByteSize), notice)
        };
        begin().map_err(|source| failed(&self.events, source))
    }
}

/// How often a group has reached `memory.high` and `memory.max`.
fn at_limit(events: &str) -> (Option<u64>, Option<u64>) {
    (named_number(events, "high"), named_number(events, "max"))
}

fn failed(file: &ControlFile, source: io::Error) -> SandboxMemoryError {
    SandboxMemoryError::Io { path: file.path().to_owned(), source }
}

/// The freezer of one v2 group.
#[derive(Debug)]
pub(super) struct Freezer {
    freeze: ControlFile,
    events: ControlFile,
}

impl Freezer {
    pub(super) fn begin(group: &Path) -> io::Result<Self> {
        Ok(Self { freeze: ControlFile::writable(group, FREEZE)?, events: ControlFile::readable(group, GROUP_EVENTS)? })
    }

    /// Stops all processes. Returns when the kernel reports that all are stopped, or `TimedOut`.
    pub(super) async fn freeze(&self, patience: Duration) -> io::Result<()> {
        self.freeze.set(b"1")?;
        let until = Instant::now() + patience;
        while self.events.named_number("frozen")? == 0 {
            if Instant::now() > until {
                self.thaw()?;
                return Err(io::ErrorKind::TimedOut.into());
            }
            tokio::time::sleep(FREEZER_POLL).await;
        }
        Ok(())
    }

    pub(super) fn thaw(&self) -> io::Result<()> {
        self.freeze.set(b"0")
    }
}

/// Kills all processes of a group, frozen ones too. False before Linux 5.14, which has no such file.
pub(super) fn kill_all(group: &Path) -> bool {
    write_once(group, KILL, "1").is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fake_group(current: ByteSize) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        let events = "low 0\nhigh 4\nmax 1\noom 1\noom_kill 3\n";
        let stat = "anon 1\nfile 9000\ninactive_file 4000\nactive_file 904\n";
        let current = current.bytes().to_string();
        for (name, text) in
            [(HIGH, "max"), (MAX, "max"), (CURRENT, current.as_str()), (MEMORY_EVENTS, events), (STAT, stat)]
        {
            std::fs::write(folder.path().join(name), text).unwrap();
        }
        folder
    }

    fn high_of(folder: &tempfile::TempDir) -> String {
        std::fs::read_to_string(folder.path().join(HIGH)).unwrap()
    }

    #[test]
    fn what_is_booked_is_the_maximum_and_the_grant_is_high() {
        let folder = fake_group(ByteSize::mib(1));
        let grant = Grant { memory: ByteSize::mib(64), booked: ByteSize::mib(128) };
        let memory = Memory::open(folder.path()).unwrap();
        memory.bound(grant).unwrap();
        let max = std::fs::read_to_string(folder.path().join(MAX)).unwrap();
        assert_eq!(max, ByteSize::mib(128).bytes().to_string());
        assert_eq!(high_of(&folder), ByteSize::mib(64).bytes().to_string());
        assert_eq!((memory.oom_kills().unwrap(), memory.page_cache().unwrap()), (3, ByteSize(4904)));
    }

    #[test]
    fn a_limit_below_what_is_in_use_is_taken_back() {
        let folder = fake_group(ByteSize::mib(50));
        let memory = Memory::open(folder.path()).unwrap();
        memory.bound(Grant::full(ByteSize::mib(64))).unwrap();
        let error = memory.set_limit(ByteSize::mib(40)).unwrap_err();
        assert!(
            matches!(error, SandboxMemoryError::CannotShrink { target, current, used }
                if target == ByteSize::mib(40) && current == ByteSize::mib(64) && used == ByteSize::mib(50)),
            "{error}"
        );
        assert_eq!(high_of(&folder), ByteSize::mib(64).bytes().to_string());
        memory.set_limit(ByteSize::mib(55)).unwrap();
        assert_eq!(high_of(&folder), ByteSize::mib(55).bytes().to_string());
    }

    #[test]
    fn a_kernel_without_a_peak_says_so() {
        let folder = fake_group(ByteSize::mib(1));
        let memory = Memory::open(folder.path()).unwrap();
        memory.bound(Grant::full(ByteSize::mib(64))).unwrap();
        assert!(matches!(memory.peak(), Err(SandboxMemoryError::NotControlled(_))));
    }
}
