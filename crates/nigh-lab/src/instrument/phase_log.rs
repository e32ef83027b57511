//! The phases of a handler's time, from the lines of the client-side instrument (`runtimes/python/nigh_phases`).
//!
//! The instrument runs in the function in the same way for every store.
//! Reads (GetObject, HeadObject, lists) are extraction, writes are load, and the rest of the duration is transformation.

use std::time::Duration;

use serde::{Deserialize, Serialize};

const MARK: &str = "nigh-phase ";

#[derive(Deserialize)]
struct Line {
    op: String,
    took_us: u64,
    cpu_us: Option<u64>,
}

/// The instrument's lines among others.
fn lines<'a>(log: impl Iterator<Item = &'a str>) -> impl Iterator<Item = Line> {
    log.filter_map(|line| line.split_once(MARK)).filter_map(|(_, line)| serde_json::from_str(line).ok())
}

/// Milliseconds of processor time that a handler and its children used from its first S3 call to its last, whatever else the
/// processors did meanwhile. None if it made fewer than two calls.
pub(crate) fn processor_ms<'a>(log: impl Iterator<Item = &'a str>) -> Option<f64> {
    let used: Vec<u64> = lines(log).filter_map(|line| line.cpu_us).collect();
    let (first, last) = (used.iter().min()?, used.iter().max()?);
    (used.len() > 1).then(|| (last - first) as f64 / 1e3)
}

/// Milliseconds of each phase of one run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub(crate) struct PhasesMs {
    pub(crate) extract: f64,
    pub(crate) transform: f64,
    pub(crate) load: f64,
}

impl PhasesMs {
    /// The phases of a run that took `total` and printed `log`.
    pub(crate) fn read<'a>(log: impl Iterator<Item = &'a str>, total: Duration) -> Self {
        let mut phases = Self::default();
        for line in lines(log) {
            let took_ms = line.took_us as f64 / 1e3;
            match line.op.as_str() {
                "GetObject" | "HeadObject" | "ListObjects" | "ListObjectsV2" => phases.extract += took_ms,
                _ => phases.load += took_ms,
            }
        }
        phases.transform = (total.as_secs_f64() * 1e3 - phases.extract - phases.load).max(0.0);
        phases
    }

    pub(crate) fn total(&self) -> f64 {
        self.extract + self.transform + self.load
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_and_writes_are_told_apart_and_the_rest_is_transformation() {
        let log = "START\nnigh-phase {\"op\":\"GetObject\",\"began_us\":1,\"took_us\":20000,\"bytes\":5}\nhello\n\
                   nigh-phase {\"op\":\"PutObject\",\"began_us\":2,\"took_us\":30000,\"bytes\":5}\nnigh-phase broken";
        let phases = PhasesMs::read(log.lines(), Duration::from_millis(100));
        assert_eq!(phases, PhasesMs { extract: 20.0, transform: 50.0, load: 30.0 });
        assert_eq!(phases.total(), 100.0);
    }
    #[test]
    fn the_work_between_the_first_call_and_the_last_is_told_in_processor_time() {
        let log = "nigh-phase {\"op\":\"GetObject\",\"began_us\":1,\"cpu_us\":5000,\"took_us\":20000,\"bytes\":5}\n\
                   nigh-phase {\"op\":\"PutObject\",\"began_us\":2,\"cpu_us\":9500,\"took_us\":30000,\"bytes\":5}";
        assert_eq!(processor_ms(log.lines()), Some(4.5));
        assert_eq!(processor_ms(log.lines().take(1)), None);
    }
}
