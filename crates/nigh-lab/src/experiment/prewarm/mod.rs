//! `nigh experiment prewarm`: an application's objects are prefetched when its first function starts, against fetches when they are
//! read.
//!
//! Invocations are recorded (Azure, 2019). The functions that follow them and the objects that these read are not, and are made
//! up (`applications`). The node's own code learns, judges prefetches and evicts; the store is a time for each fetch. So the
//! figures show the value of learning where applications are as described, and its waste where they are not; they predict no hit
//! ratio.

mod applications;
mod replay;

use clap::Args;
use serde::Serialize;
use serde_json::{Value, json};

use self::replay::{Day, play};
use crate::LabError;
use crate::instrument::machine::Machine;
use crate::instrument::recorded_invocations::{self, STORED};
use crate::instrument::report_text::tell;
use crate::instrument::stats::Sample;

/// Decides the made-up applications.
const SEED: u64 = 1;
/// Cache sizes, in percent of the bytes of all objects that recur.
const SIZES_PERCENT: [u64; 3] = [2, 10, 50];

#[derive(Clone, Debug, Args)]
pub(super) struct PrewarmArgs {
    /// How many minutes of each recorded day to replay
    #[arg(long, default_value_t = 1440)]
    minutes: usize,
}

#[derive(Debug, Serialize)]
struct PrewarmReport {
    machine: Machine,
    trace: String,
    /// How the objects, which are not in the trace, are made up.
    applications: &'static str,
    runs: usize,
    recurring_bytes: u64,
    rows: Vec<Value>,
}

/// One cache, with prefetches or without.
fn row(cache_percent: u64, cache_bytes: u64, prewarmed: bool, day: Day) -> Value {
    let (waits, firsts) = (Sample::new(day.waits_ms), Sample::new(day.first_waits_ms));
    json!({
        "cache_percent": cache_percent,
        "cache_bytes": cache_bytes,
        "prewarmed": prewarmed,
        // Of the reads of following functions, the part that waited for nothing; and the waits of such reads.
        "hit_ratio": day.hits as f64 / day.reads.max(1) as f64,
        "mean_ms": waits.mean(),
        "p99_ms": waits.percentile(0.99),
        // The waits of the first read of each following function.
        "first_mean_ms": firsts.mean(),
        "first_p50_ms": firsts.median(),
        "first_p99_ms": firsts.percentile(0.99),
        "store_bytes": day.store_bytes,
        "prefetched_bytes": day.prefetch.prefetched_bytes,
        "used_bytes": day.prefetch.used_bytes,
        // Prefetched, and not read within a minute.
        "wasted_bytes": day.prefetch.wasted_bytes,
    })
}

impl PrewarmArgs {
    pub(super) fn run(&self, machine: Machine, json: bool) -> Result<(), LabError> {
        let mut days = recorded_invocations::read_trace(STORED.as_ref())?;
        days.iter_mut().for_each(|minutes| minutes.truncate(self.minutes.max(1)));
        let (all, starts) = applications::make(&days, SEED)?;
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
            trace: recorded_invocations::file_name(),
            applications: applications::ABOUT,
            runs: starts.len(),
            recurring_bytes,
            rows,
        };
        tell(&report, json)
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn what_is_brought_is_mostly_read_and_followers_wait_less() {
        let trace = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(STORED);
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
