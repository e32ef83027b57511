//! The machine a figure was taken on.

use nigh_terms::{Clock, SystemClock};
use serde::Serialize;

/// What a reader needs to know to weigh a figure.
#[derive(Clone, Debug, Serialize)]
pub struct Machine {
    /// The processor's name.
    pub cpu: String,
    /// Processors this process may run on.
    pub cores: usize,
    /// Memory in GiB.
    pub memory_gib: f64,
    /// The kernel's release.
    pub kernel: String,
    /// Load average of the last minute when the run began.
    pub load: f64,
    /// When, UTC.
    pub date: String,
    /// The command that prints the figure.
    pub command: String,
    /// Nigh's version.
    pub nigh: &'static str,
}

impl Machine {
    /// Reads this machine; `command` is what was run.
    #[must_use]
    pub fn read(command: String) -> Self {
        let file = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        let field = |text: &str, name: &str| {
            let line = text.lines().find(|line| line.starts_with(name));
            line.and_then(|line| line.split_once(':')).map(|(_, value)| value.trim().to_owned()).unwrap_or_default()
        };
        let memory = field(&file("/proc/meminfo"), "MemTotal");
        let kib: f64 = memory.split(' ').next().and_then(|kib| kib.parse().ok()).unwrap_or_default();
        Self {
            cpu: field(&file("/proc/cpuinfo"), "model name"),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            memory_gib: (kib / (1 << 20) as f64 * 10.0).round() / 10.0,
            kernel: file("/proc/sys/kernel/osrelease").trim().to_owned(),
            load: file("/proc/loadavg").split(' ').next().and_then(|load| load.parse().ok()).unwrap_or_default(),
            date: SystemClock::new().wall().rfc3339(),
            command,
            nigh: env!("CARGO_PKG_VERSION"),
        }
    }
}
