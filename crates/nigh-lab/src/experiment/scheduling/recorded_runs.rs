//! How long recorded functions ran and what memory they had (data/azure-functions-2019).

use std::path::Path;

use rand::Rng as _;
use rand::rngs::StdRng;

use crate::LabError;
use crate::instrument::error::Tried;

/// Where the project keeps them.
pub(super) const STORED: &str = "data/azure-functions-2019/200_runs.csv";

#[derive(Clone, Debug)]
pub(super) struct RecordedRun {
    /// The lower quartile, the median, the upper quartile and the 99th percentile.
    pub(super) quartiles_ms: [f64; 4],
    pub(super) median_ms: f64,
    pub(super) memory_mib: u64,
}

impl RecordedRun {
    /// The time of one run: evenly between the points that are known.
    pub(super) fn draw(&self, random: &mut StdRng) -> f64 {
        let [quarter, half, most, nearly_all] = self.quartiles_ms;
        let between = |low: f64, high: f64, part: f64| low + (high - low) * part;
        match random.random_range(0.0..1.0) {
            at if at < 0.25 => between(quarter / 2.0, quarter, at * 4.0),
            at if at < 0.5 => between(quarter, half, (at - 0.25) * 4.0),
            at if at < 0.75 => between(half, most, (at - 0.5) * 4.0),
            at => between(most, nearly_all, ((at - 0.75) * 4.0).powi(4)),
        }
    }
}

pub(super) fn read_runs(path: &Path) -> Result<Vec<RecordedRun>, LabError> {
    let text = std::fs::read_to_string(path).at(path)?;
    let line = |line: &str| -> Option<RecordedRun> {
        let numbers: Vec<f64> = line.split(',').skip(1).map(|cell| cell.trim().parse().ok()).collect::<Option<_>>()?;
        let [quarter, half, most, nearly_all, memory] = numbers[..] else { return None };
        let quartiles_ms = [quarter, half, most, nearly_all];
        Some(RecordedRun { quartiles_ms, median_ms: half, memory_mib: (memory as u64).max(64) })
    };
    let runs: Option<Vec<RecordedRun>> = text.lines().skip(1).map(line).collect();
    runs.ok_or_else(|| LabError::file(path, &"a line has not the five numbers that it should"))
}
