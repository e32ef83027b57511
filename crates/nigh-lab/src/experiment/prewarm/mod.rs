//! `nigh experiment prewarm`: what applications read, brought into memory when their first function starts, against
//! waiting until it is read.
//!
//! When functions are invoked is recorded (Azure, 2019); what follows them and what that reads is not, and is made up
//! (`applications`). What learns, what judges and what makes room is the node's own code; the store is a time for each
//! fetch. So the figures show what the learning is worth where applications are as described, and what it wastes where they
//! are not; they foretell nobody's hit ratio.

mod applications;
mod replay;

use std::path::PathBuf;

use clap::Args;
use serde::Serialize;

use self::replay::{Day, play};
use crate::LabError;
use crate::instrument::machine::Machine;
use crate::instrument::recorded_invocations;
use crate::instrument::report::print_report;
use crate::instrument::stats::Sample;
use crate::instrument::table::table_of;

/// Cache sizes, in percent of the bytes of all objects that recur.
const SIZES_PERCENT: [u64; 3] = [2, 10, 50];

/// What `nigh experiment prewarm` takes.
#[derive(Clone, Debug, Args)]
pub(super) struct PrewarmArgs {
    /// Invocations by the minute, a line a function
    #[arg(long, value_name = "FILE", default_value = recorded_invocations::STORED)]
    trace: PathBuf,
    /// Seed of the made-up applications
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// So many minutes of the day
    #[arg(long, default_value_t = 1440)]
    minutes: usize,
}

/// One cache, with or without.
#[derive(Debug, Serialize)]
struct PrewarmRow {
    cache_percent: u64,
    cache_bytes: u64,
    prewarmed: bool,
    /// Of the reads of those who follow, the part that waited for nothing.
    hit_ratio: f64,
    /// What such a read waited, milliseconds.
    mean_ms: f64,
    p99_ms: f64,
    /// What the first read of each follower waited.
    first_mean_ms: f64,
    first_p50_ms: f64,
    first_p99_ms: f64,
    /// Bytes that the store has given.
    store_bytes: u64,
    prefetched_bytes: u64,
    used_bytes: u64,
    /// Brought, and not read within a minute.
    wasted_bytes: u64,
}

#[derive(Debug, Serialize)]
struct PrewarmReport {
    machine: Machine,
    trace: String,
    /// How what the trace does not tell is made up.
    applications: &'static str,
    runs: usize,
    recurring_bytes: u64,
    rows: Vec<PrewarmRow>,
}

fn row(cache_percent: u64, cache_bytes: u64, prewarmed: bool, day: Day) -> PrewarmRow {
    let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len().max(1) as f64;
    let (mean_ms, first_mean_ms) = (mean(&day.waits_ms), mean(&day.first_waits_ms));
    let (waits, firsts) = (Sample::new(day.waits_ms), Sample::new(day.first_waits_ms));
    PrewarmRow {
        cache_percent,
        cache_bytes,
        prewarmed,
        hit_ratio: day.hits as f64 / day.reads.max(1) as f64,
        mean_ms,
        p99_ms: waits.percentile(0.99),
        first_mean_ms,
        first_p50_ms: firsts.median(),
        first_p99_ms: firsts.percentile(0.99),
        store_bytes: day.store_bytes,
        prefetched_bytes: day.prefetch.prefetched_bytes,
        used_bytes: day.prefetch.used_bytes,
        wasted_bytes: day.prefetch.wasted_bytes,
    }
}

impl PrewarmArgs {
    pub(super) fn run(&self, machine: Machine, json: bool) -> Result<(), LabError> {
        let mut days = recorded_invocations::read_trace(&self.trace)?;
        days.iter_mut().for_each(|minutes| minutes.truncate(self.minutes.max(1)));
        let (all, starts) = applications::make(&days, self.seed)?;
        let recurring_bytes = all.iter().map(applications::Application::bytes).sum::<u64>();
        let mut rows = Vec::new();
        for percent in SIZES_PERCENT {
            let budget = recurring_bytes * percent / 100;
            for prewarmed in [false, true] {
                rows.push(row(percent, budget, prewarmed, play(&all, &starts, budget, prewarmed)?));
            }
        }
        let report = PrewarmReport {
            machine,
            trace: self.trace.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned()),
            applications: applications::ABOUT,
            runs: starts.len(),
            recurring_bytes,
            rows,
        };
        print_report(&report, || text(&report), json)
    }
}

fn text(report: &PrewarmReport) -> String {
    let mut table = table_of(
        "cache % | prewarmed | hits | mean ms | first mean ms | first p50 ms | first p99 ms | store GB | brought GB | in vain GB",
    );
    let gb = |bytes: u64| format!("{:.1}", bytes as f64 / 1e9);
    for row in &report.rows {
        table.add_row([
            row.cache_percent.to_string(),
            if row.prewarmed { "yes" } else { "no" }.to_owned(),
            format!("{:.3}", row.hit_ratio),
            format!("{:.2}", row.mean_ms),
            format!("{:.2}", row.first_mean_ms),
            format!("{:.2}", row.first_p50_ms),
            format!("{:.2}", row.first_p99_ms),
            gb(row.store_bytes),
            gb(row.prefetched_bytes),
            gb(row.wasted_bytes),
        ]);
    }
    format!("{table}\n{}; {}; {} runs", report.trace, report.applications, report.runs)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn what_is_brought_is_mostly_read_and_followers_wait_less() {
        let trace = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(recorded_invocations::STORED);
        let mut days = recorded_invocations::read_trace(&trace).unwrap();
        // Two hours are enough to learn in.
        days.iter_mut().for_each(|minutes| minutes.truncate(120));
        let (all, starts) = applications::make(&days, 1).unwrap();
        let budget = all.iter().map(applications::Application::bytes).sum::<u64>() / 10;
        let (without, with) = (play(&all, &starts, budget, false).unwrap(), play(&all, &starts, budget, true).unwrap());
        assert_eq!((without.prefetch.prefetched, without.reads), (0, with.reads));
        let mean = |day: &Day| day.waits_ms.iter().sum::<f64>() / day.waits_ms.len() as f64;
        assert!(mean(&with) < 0.8 * mean(&without), "{} {}", mean(&with), mean(&without));
        assert!(with.prefetch.wasted_bytes < with.prefetch.used_bytes, "{:?}", with.prefetch);
    }
}
