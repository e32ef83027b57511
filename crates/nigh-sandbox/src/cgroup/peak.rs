//! The most memory that a v2 group has used since its measurement was begun anew.
//!
//! From Linux 6.12 on the kernel measures that itself: a write to `memory.peak` begins anew for that open file. Before,
//! `memory.peak` holds the most since the group was made. Then this is known: if that number has grown since the
//! beginning, it is the peak; if not, the peak lies between what was in use at both ends and that number. Within these
//! bounds it is what is in use now and what the group's processes have given back since their own peaks, each of which
//! `clear_refs` begins anew (proc(5), `VmHWM`). What was used and given back by processes that have ended, or become
//! another program, in between is not seen then.
//!
//! A fresh child group for each measurement would not tell it: a process that is moved leaves what it has charged where
//! it was (cgroup-v2.rst, Memory Ownership), so the child's own peak counts only what came since; every move waits
//! until all processors have passed through the scheduler, and every group that was left stays in the kernel for as long
//! as a page of it.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use parking_lot::Mutex;

use super::PROCS;
use super::control_file::ControlFile;

const PEAK: &str = "memory.peak";
/// Begins a process's `VmHWM` anew.
const CLEAR_PEAK: &str = "5";
/// Processes whose peaks are asked for; a group with more has no estimate.
const PROCESSES_MAX: usize = 64;

/// Where a measurement began, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Beginning {
    /// The group's most ever.
    ever: u64,
    /// What was in use.
    used: u64,
}

/// Measures the peak of one group.
#[derive(Debug)]
pub(super) struct PeakMeter {
    file: ControlFile,
    group: PathBuf,
    /// The kernel itself begins anew.
    resets: bool,
    began: Mutex<Option<Beginning>>,
}

impl PeakMeter {
    /// The meter of `group`; none before Linux 5.19, which has no `memory.peak`.
    pub(super) fn open(group: &Path) -> Option<Self> {
        let (file, resets) = match ControlFile::writable(group, PEAK) {
            // Who may write everything may open it on every kernel.
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

    /// Begins anew; `used` is in use now.
    pub(super) fn reset(&self, used: impl FnOnce() -> io::Result<u64>) -> io::Result<()> {
        if self.resets {
            return self.file.set(b"0");
        }
        let ever = self.file.number()?;
        for process in self.processes()? {
            // One that has ended has no peak; one that refuses keeps its own, which is too much rather than too little.
            let _ = fs::write(process.join("clear_refs"), CLEAR_PEAK);
        }
        *self.began.lock() = Some(Beginning { ever, used: used()? });
        Ok(())
    }

    /// The peak since the last beginning.
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

/// The peak since `began`, where the group's most ever has not grown: `used` now, `given_back` since the processes' own.
fn estimate(began: Beginning, used: u64, given_back: u64) -> u64 {
    used.saturating_add(given_back).max(began.used).min(began.ever)
}

/// What a process has given back since its peak, by its `status`; nothing if it does not say.
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
        // A plain file takes every write, as kernels since 6.12 do.
        let meter = PeakMeter { resets: false, ..PeakMeter::open(folder.path()).unwrap() };
        write(PEAK, "1000\n");
        assert_eq!(meter.peak(|| Ok(5)).unwrap(), 1000, "nothing was begun");
        meter.reset(|| Ok(300)).unwrap();
        assert_eq!(meter.peak(|| Ok(400)).unwrap(), 400);
        write(PEAK, "2000\n");
        assert_eq!(meter.peak(|| Ok(400)).unwrap(), 2000);
    }
}
