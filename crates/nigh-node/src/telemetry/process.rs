//! The kernel's figures of this process, and which program it runs.

use rustix::process::{Resource, getrlimit};

use super::Sample;

/// The kernel's clock tick in `/proc/[pid]/stat`, the same on all Linux that Nigh runs on (`sysconf(_SC_CLK_TCK)`).
const TICKS_PER_SECOND: u64 = 100;

/// The kernel's figures of this process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProcessUse {
    /// Resident memory in bytes.
    pub resident_bytes: u64,
    /// Processor time in milliseconds, user and system.
    pub cpu_ms: u64,
    /// Number of open files.
    pub open_files: u64,
    /// Number of threads.
    pub threads: u64,
    /// Milliseconds from the machine's boot to the process's start.
    started_ms: u64,
}

impl ProcessUse {
    /// Reads the kernel's figures; missing ones are zero.
    #[must_use]
    pub fn now() -> Self {
        let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
        let open_files = std::fs::read_dir("/proc/self/fd").map_or(0, |entries| entries.count() as u64);
        Self { open_files, ..parse_stat(&stat, rustix::param::page_size() as u64).unwrap_or_default() }
    }
}

/// The figures as metrics.
pub(super) fn samples() -> Vec<Sample> {
    let own = ProcessUse::now();
    let mut samples = vec![
        Sample::number("nigh_build_info", 1.0).with("version", env!("CARGO_PKG_VERSION")),
        Sample::number("process_resident_memory_bytes", own.resident_bytes as f64),
        Sample::number("process_cpu_seconds_total", own.cpu_ms as f64 / 1e3),
        Sample::number("process_open_fds", own.open_files as f64),
        Sample::number("process_threads", own.threads as f64),
    ];
    // None: without a limit.
    let files = getrlimit(Resource::Nofile).current;
    samples.extend(files.map(|files| Sample::number("process_max_fds", files as f64)));
    let booted = std::fs::read_to_string("/proc/stat").ok().and_then(|stat| boot_second(&stat));
    let started = booted.map(|booted| booted as f64 + own.started_ms as f64 / 1e3);
    samples.extend(started.map(|started| Sample::number("process_start_time_seconds", started)));
    samples
}

/// proc_stat(5): the second in which the machine booted.
fn boot_second(stat: &str) -> Option<u64> {
    stat.lines().find_map(|line| line.strip_prefix("btime "))?.trim().parse().ok()
}

/// proc_pid_stat(5): after the name in parentheses, utime is field 14, stime 15, threads 20, the start 22, rss 24 (in
/// pages).
fn parse_stat(stat: &str, page_bytes: u64) -> Option<ProcessUse> {
    let fields: Vec<&str> = stat.rsplit_once(") ")?.1.split(' ').collect();
    let field = |number: usize| fields.get(number - 3)?.trim().parse::<u64>().ok();
    Some(ProcessUse {
        resident_bytes: field(24)? * page_bytes,
        cpu_ms: (field(14)? + field(15)?) * 1000 / TICKS_PER_SECOND,
        open_files: 0,
        threads: field(20)?,
        started_ms: field(22)? * 1000 / TICKS_PER_SECOND,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_parentheses_does_not_shift_the_fields() {
        let stat = "7 (a) b) S 1 7 7 0 -1 4194560 1 2 3 4 150 50 0 0 20 0 9 0 100 4096 25 18446744073709551615";
        let parsed = parse_stat(stat, 4096).unwrap();
        let whole = ProcessUse { resident_bytes: 25 * 4096, cpu_ms: 2000, open_files: 0, threads: 9, started_ms: 1000 };
        assert_eq!(parsed, whole);
        assert_eq!(parse_stat("", 4096), None);
        assert_eq!(boot_second("cpu  1 2\nbtime 1700000000\nprocesses 3\n"), Some(1_700_000_000));
    }

    #[test]
    fn this_process_started_before_now_and_uses_memory_and_files() {
        let own = ProcessUse::now();
        assert!(own.resident_bytes > 1 << 20 && own.open_files > 0 && own.threads > 0 && own.started_ms > 0);
        assert_eq!(samples().len(), 7, "{:?}", samples());
    }
}
