//! The peak memory of a v2 group since the last reset.
//!
//! From Linux 6.12 on the kernel can reset the peak: a write to `memory.peak` resets it for that open file. Before,
//! `memory.peak` is the peak since the group was made. If that value has grown since the reset, it is the new peak. If
//! not, the peak is between the use at both ends of the measurement and that value. The estimate in this range is the
//! present use plus the memory that the group's processes have freed since their own peaks. `clear_refs` resets each
//! process's peak (proc(5), `VmHWM`). The estimate misses memory that was used and freed by processes that have ended,
//! or that run another program now.
//!
//! A new child group for each measurement would not work. A moved process leaves its charged pages in the old group
//! (cgroup-v2.rst, Memory Ownership), so the child's peak counts only later pages. Each move waits for an RCU grace
//! period, and each old group stays in the kernel as long as one of its pages.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use parking_lot::Mutex;

use super::PROCS;
use super::control_file::ControlFile;

const PEAK: &str = "memory.peak";
/// Resets a process's `VmHWM`.
const CLEAR_PEAK: &str = "5";
/// The most processes whose peaks are read. A group with more has no estimate.
const PROCESSES_MAX: usize = 64;

/// The state at a reset, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Beginning {
    /// The group's peak since it was made.
    ever: u64,
    /// The memory in use.
    used: u64,
}

/// Measures the peak of one group.
#[derive(Debug)]
pub(super) struct PeakMeter {
    file: ControlFile,
    group: PathBuf,
    /// True if the kernel can reset the peak.
    resets: bool,
    began: Mutex<Option<Beginning>>,
}

impl PeakMeter {
    /// The meter of `group`; none before Linux 5.19, which has no `memory.peak`.
    pub(super) fn open(group: &Path) -> Option<Self> {
        let (file, resets) = match ControlFile::writable(group, PEAK) {
            // Root can open the file for writing on every kernel.
            Ok(file) => {
                let resets = file.set(b"0").is_ok();
                (file, resets)
            }
            Err(_) => (ControlFile::readable(group, PEAK).ok()?, false),
        };
        Some(Self { file, group: group.to_owned(), resets, began: Mutex::default() })
    }

    pub(super) const fn file(&self) -> &ControlFile {
        &self.file
    }

    /// Resets the peak; `used` is the present use.
    pub(super) fn reset(&self, used: impl FnOnce() -> io::Result<u64>) -> io::Result<()> {
        if self.resets {
            return self.file.set(b"0");
        }
        let ever = self.file.number()?;
        for process in self.processes()? {
            // An ended process has no peak. If the reset fails, the old peak stays, and the estimate is too high rather
            // than too low.
            let _ = fs::write(process.join("clear_refs"), CLEAR_PEAK);
        }
        *self.began.lock() = Some(Beginning { ever, used: used()? });
        Ok(())
    }

    /// The peak since the last reset.
    pub(super) fn peak(&self, used: impl FnOnce() -> io::Result<u64>) -> io::Result<u64> {
        let ever = self.file.number()?;
        let began = *self.began.lock();
        match began.filter(|began| !self.resets && ever <= began.ever) {
            None => Ok(ever),
            Some(began) => {
                let used = used()?;
                let processes = self.processes()?;
                if processes.len() > PROCESSES_MAX {
                    return Ok(ever);
                }
                let texts = processes.iter().filter_map(|process| fs::read_to_string(process.join("status")).ok());
                Ok(estimate(began, used, texts.map(|text| given_back(&text)).sum()))
            }
        }
    }

    /// The folders of its processes.
    fn processes(&self) -> io::Result<Vec<PathBuf>> {
        let text = fs::read_to_string(self.group.join(PROCS))?;
        Ok(text.lines().map(|pid| Path::new("/proc").join(pid)).collect())
    }
}

/// The peak since `began` if the group's total peak has not grown: `used` is the present use, `given_back` the memory
/// freed since the processes' own peaks.
fn estimate(began: Beginning, used: u64, given_back: u64) -> u64 {
    used.saturating_add(given_back).max(began.used).min(began.ever)
}

/// The memory that a process has freed since its peak, by its `status`; 0 if that does not say.
fn given_back(status: &str) -> u64 {
    let kib = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
        line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()
    };
    kib("VmHWM").zip(kib("VmRSS")).map_or(0, |(peak, now)| peak.saturating_sub(now).saturating_mul(1024))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_estimate_stays_between_what_is_certain() {
        let began = Beginning { ever: 100, used: 20 };
        assert_eq!(estimate(began, 30, 0), 30);
        assert_eq!(estimate(began, 30, 25), 55);
        assert_eq!(estimate(began, 10, 0), 20, "it began with more");
        assert_eq!(estimate(began, 90, 90), 100, "the group has never had more");
    }

    #[test]
    fn what_was_given_back_is_read_and_a_process_without_memory_gave_nothing() {
        let status = "Name:\tpython3\nVmPeak:\t  99999 kB\nVmHWM:\t   30000 kB\nVmRSS:\t   10000 kB\nThreads:\t1\n";
        assert_eq!(given_back(status), 20_000 * 1024);
        assert_eq!(given_back("Name:\tzombie\nState:\tZ\n"), 0);
        assert_eq!(given_back("VmHWM:\t1 kB\nVmRSS:\t3 kB\n"), 0);
    }

    #[test]
    fn a_peak_that_has_grown_is_the_kernels_own_and_one_that_has_not_is_estimated() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
        assert!(PeakMeter::open(folder.path()).is_none());
        write(PEAK, "1000\n");
        write(PROCS, "");
        // A plain file accepts every write, as kernels since 6.12 do.
        let meter = PeakMeter { resets: false, ..PeakMeter::open(folder.path()).unwrap() };
        write(PEAK, "1000\n");
        assert_eq!(meter.peak(|| Ok(5)).unwrap(), 1000, "nothing was begun");
        meter.reset(|| Ok(300)).unwrap();
        assert_eq!(meter.peak(|| Ok(400)).unwrap(), 400);
        write(PEAK, "2000\n");
        assert_eq!(meter.peak(|| Ok(400)).unwrap(), 2000);
    }
}
