//! Metrics of this process, as Prometheus text.
//!
//! The crates record into the `metrics` facade. This is its only recorder; it adds what each family means, and the process's
//! own figures.

mod families;

use std::fmt::Write;
use std::sync::OnceLock;

use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};
use thiserror::Error;

use self::families::{Kind, meaning};

/// Bounds of all histograms of seconds: 50 us to 100 s, three per decade.
const SECONDS: [f64; 20] = [
    0.000_05, 0.000_1, 0.000_2, 0.000_5, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0,
    20.0, 50.0, 100.0,
];
/// The kernel's clock tick in `/proc/[pid]/stat`, the same on all Linux that Nigh runs on (`sysconf(_SC_CLK_TCK)`).
const TICKS_PER_SECOND: u64 = 100;

/// Why metrics cannot be recorded.
#[derive(Debug, Error)]
#[error("metrics: {0}")]
pub struct TelemetryError(String);

/// The metrics. Cheap to clone.
#[derive(Clone)]
pub struct Telemetry(PrometheusHandle);

/// The facade takes one recorder per process.
static RECORDER: OnceLock<PrometheusHandle> = OnceLock::new();

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
}

impl Telemetry {
    /// Starts to record. A second call in one process shares the metrics of the first.
    ///
    /// # Errors
    /// If another recorder is installed.
    pub fn install() -> Result<Self, TelemetryError> {
        if let Some(handle) = RECORDER.get() {
            return Ok(Self(handle.clone()));
        }
        let recorder = PrometheusBuilder::new()
            .set_buckets_for_metric(Matcher::Suffix("_seconds".to_owned()), &SECONDS)
            .map_err(|error| TelemetryError(error.to_string()))?
            .build_recorder();
        let handle = recorder.handle();
        metrics::set_global_recorder(recorder).map_err(|error| TelemetryError(error.to_string()))?;
        families::describe();
        Ok(Self(RECORDER.get_or_init(|| handle).clone()))
    }

    /// Folds the histograms, which keep each value in memory until then. Call this every few seconds.
    pub fn upkeep(&self) {
        self.0.run_upkeep();
    }

    /// All metrics: those of the crates, then those of the process.
    #[must_use]
    pub fn render(&self, gauges: &[(&str, f64)]) -> String {
        let mut text = self.0.render();
        let process = ProcessUse::now();
        let own = [
            ("process_resident_memory_bytes", process.resident_bytes as f64),
            ("process_cpu_seconds_total", process.cpu_ms as f64 / 1000.0),
            ("process_open_fds", process.open_files as f64),
            ("process_threads", process.threads as f64),
        ];
        for (name, value) in own.iter().chain(gauges) {
            // Writing to a String cannot fail.
            if let Some(meaning) = meaning(name) {
                let _ = writeln!(text, "# HELP {name} {meaning}");
            }
            let _ = write!(text, "# TYPE {name} {}\n{name} {value}\n", Kind::of(name).as_str());
        }
        text
    }
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

/// proc_pid_stat(5): after the name in parentheses, utime is field 14, stime 15, threads 20, rss 24 (in pages).
fn parse_stat(stat: &str, page_bytes: u64) -> Option<ProcessUse> {
    let fields: Vec<&str> = stat.rsplit_once(") ")?.1.split(' ').collect();
    let field = |number: usize| fields.get(number - 3)?.trim().parse::<u64>().ok();
    Some(ProcessUse {
        resident_bytes: field(24)? * page_bytes,
        cpu_ms: (field(14)? + field(15)?) * 1000 / TICKS_PER_SECOND,
        open_files: 0,
        threads: field(20)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_parentheses_does_not_shift_the_fields() {
        let stat = "7 (a) b) S 1 7 7 0 -1 4194560 1 2 3 4 150 50 0 0 20 0 9 0 100 4096 25 18446744073709551615";
        let parsed = parse_stat(stat, 4096).unwrap();
        assert_eq!(parsed, ProcessUse { resident_bytes: 25 * 4096, cpu_ms: 2000, open_files: 0, threads: 9 });
        assert_eq!(parse_stat("", 4096), None);
    }

    #[test]
    fn meters_are_rendered_with_the_process_behind_them() {
        let telemetry = Telemetry::install().unwrap();
        metrics::counter!("nigh_test_events_total").increment(3);
        metrics::histogram!("nigh_test_wait_seconds").record(0.003);
        let text = telemetry.render(&[("nigh_test_level", 7.0)]);
        assert!(text.contains("nigh_test_events_total 3"), "{text}");
        assert!(text.contains("nigh_test_wait_seconds_bucket{le=\"0.005\"} 1"), "{text}");
        assert!(text.contains("process_resident_memory_bytes ") && text.contains("nigh_test_level 7"), "{text}");
        assert!(
            text.contains("# HELP process_threads Threads of this process\n# TYPE process_threads gauge"),
            "{text}"
        );
        metrics::counter!("nigh_cold_starts_total", "reason" => "first").increment(1);
        let text = telemetry.render(&[]);
        assert!(text.contains("# HELP nigh_cold_starts_total Sandboxes made, by why"), "{text}");
        assert!(ProcessUse::now().resident_bytes > 1 << 20);
    }
}
