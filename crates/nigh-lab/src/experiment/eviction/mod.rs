//! `nigh experiment eviction`: which copies should go? The cache's policies, in the cache's own code, on a day of
//! invocations.
//!
//! When functions are invoked is recorded (Azure, 2019); which objects they read is not, and is made up (`requests`). A
//! policy is judged by the time of fetches that it saves: an object's fetch takes a fixed time and one by its size. The
//! numbers rank policies on the same requests; they do not foretell a hit ratio.

mod replay;
mod requests;

use std::path::PathBuf;

use clap::Args;
use nigh_objects::eviction::{DEFAULT_DOUBTFUL, GreedyDual, Lru, OfcCondition, PeriodicSweep, S3Fifo, UnreadCopyRule};
use serde::Serialize;

use self::replay::{ReplayResult, replay};
use self::requests::Requests;
use crate::LabError;
use crate::instrument::machine::Machine;
use crate::instrument::recorded_invocations;
use crate::instrument::report::print_report;
use crate::instrument::table::table_of;

/// Cache sizes, in percent of the bytes of all objects that are read.
const SIZES_PERCENT: [u64; 4] = [1, 5, 10, 25];

/// What `nigh experiment eviction` takes.
#[derive(Clone, Debug, Args)]
pub(super) struct EvictionArgs {
    /// Invocations by the minute, a line a function
    #[arg(long, value_name = "FILE", default_value = recorded_invocations::STORED)]
    trace: PathBuf,
    /// Seeds of the made-up requests; each gives a day of its own, and the means are told
    #[arg(long, default_value_t = 3)]
    seeds: u64,
}

/// One policy at one size of the cache.
#[derive(Debug, Serialize)]
struct EvictionRow {
    policy: &'static str,
    /// What becomes of outputs that nobody has read.
    outputs: &'static str,
    cache_percent: u64,
    cache_bytes: u64,
    /// Reads that found a copy.
    hit_ratio: f64,
    /// Bytes of them.
    byte_hit_ratio: f64,
    /// The part of the time of all fetches, were nothing kept, that was saved.
    saved: f64,
    /// Nanoseconds of the policy's work for a request.
    request_ns: f64,
}

#[derive(Debug, Serialize)]
struct EvictionReport {
    machine: Machine,
    trace: String,
    /// How what the trace does not tell is made up.
    objects: String,
    seeds: u64,
    /// Of one seed.
    requests: usize,
    read_bytes: u64,
    /// The mean of `saved` over the sizes, best first.
    ranking: Vec<(String, f64)>,
    /// What the node's cache does.
    default: String,
    rows: Vec<EvictionRow>,
}

/// The policies by name.
const POLICIES: [&str; 5] = ["lru", "greedy-dual", "s3-fifo", "ofc", "ofc-both"];
/// What becomes of outputs, by name.
const OUTPUTS: [(&str, UnreadCopyRule); 3] = [
    ("as others", UnreadCopyRule::AsOthers),
    ("first", UnreadCopyRule::FirstBeyond(0)),
    ("first beyond a tenth", DEFAULT_DOUBTFUL),
];
/// The one of each that the cache has.
const DEFAULT: (&str, &str) = ("s3-fifo", "first beyond a tenth");

fn replay_by(policy: &str, outputs: UnreadCopyRule, requests: &Requests, budget: u64) -> ReplayResult {
    match policy {
        "greedy-dual" => replay(GreedyDual::default(), outputs, requests, budget),
        "s3-fifo" => replay(S3Fifo::default(), outputs, requests, budget),
        "ofc" => replay(PeriodicSweep::new(OfcCondition::Either), outputs, requests, budget),
        "ofc-both" => replay(PeriodicSweep::new(OfcCondition::Both), outputs, requests, budget),
        _ => replay(Lru::default(), outputs, requests, budget),
    }
}

fn name_of(policy: &str, outputs: &str) -> String {
    format!("{policy}, outputs {outputs}")
}

impl EvictionArgs {
    pub(super) fn run(&self, machine: Machine, json: bool) -> Result<(), LabError> {
        let days = recorded_invocations::read_trace(&self.trace)?;
        let seeds = self.seeds.clamp(1, 100);
        let all: Vec<Requests> = (0..seeds).map(|seed| Requests::make(&days, seed)).collect();
        let mut rows = Vec::new();
        for percent in SIZES_PERCENT {
            for policy in POLICIES {
                for (outputs, rule) in OUTPUTS {
                    let mut sum = ReplayResult::default();
                    let mut cache_bytes = 0;
                    for requests in &all {
                        let budget = requests.read_bytes * percent / 100;
                        cache_bytes += budget / seeds;
                        sum.add(&replay_by(policy, rule, requests, budget));
                    }
                    rows.push(EvictionRow {
                        policy,
                        outputs,
                        cache_percent: percent,
                        cache_bytes,
                        hit_ratio: sum.hits as f64 / sum.reads as f64,
                        byte_hit_ratio: sum.hit_bytes as f64 / sum.read_bytes as f64,
                        saved: sum.saved_us / sum.fetch_us,
                        request_ns: sum.seconds * 1e9 / sum.requests as f64,
                    });
                }
            }
        }
        let report = EvictionReport {
            machine,
            trace: self.trace.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned()),
            objects: requests::ABOUT.to_owned(),
            seeds,
            requests: all[0].all.len(),
            read_bytes: all[0].read_bytes,
            ranking: ranking(&rows),
            default: name_of(DEFAULT.0, DEFAULT.1),
            rows,
        };
        print_report(&report, || text(&report), json)
    }
}

fn ranking(rows: &[EvictionRow]) -> Vec<(String, f64)> {
    let mut means: Vec<(String, f64)> = Vec::new();
    for policy in POLICIES {
        for (outputs, _) in OUTPUTS {
            let of_it = rows.iter().filter(|row| (row.policy, row.outputs) == (policy, outputs));
            let mean = of_it.map(|row| row.saved).sum::<f64>() / SIZES_PERCENT.len() as f64;
            means.push((name_of(policy, outputs), mean));
        }
    }
    means.sort_by(|one, other| other.1.total_cmp(&one.1));
    means
}

fn text(report: &EvictionReport) -> String {
    let mut table =
        table_of("policy | outputs nobody read | cache % | hits | hit bytes | fetch time saved | ns a request");
    for row in &report.rows {
        table.add_row([
            row.policy.to_owned(),
            row.outputs.to_owned(),
            row.cache_percent.to_string(),
            format!("{:.3}", row.hit_ratio),
            format!("{:.3}", row.byte_hit_ratio),
            format!("{:.3}", row.saved),
            format!("{:.0}", row.request_ns),
        ]);
    }
    let ranked = report.ranking.iter().map(|(name, saved)| format!("\n{saved:.3} {name}")).collect::<String>();
    format!(
        "{table}\n{}; {}; {} requests a seed, {} seeds\nmean of what is saved:{ranked}\nthe cache has: {}",
        report.trace, report.objects, report.requests, report.seeds, report.default
    )
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn the_cache_s_own_policy_saves_more_than_the_last_use_and_the_papers_rule_on_the_recorded_day() {
        let trace = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(recorded_invocations::STORED);
        let days = recorded_invocations::read_trace(&trace).unwrap();
        assert_eq!(days.len(), 200);
        let requests = Requests::make(&days, 1);
        let budget = requests.read_bytes / 20;
        let saved = |policy, rule| {
            let replayed = replay_by(policy, rule, &requests, budget);
            replayed.saved_us / replayed.fetch_us
        };
        let ours = saved(DEFAULT.0, DEFAULT_DOUBTFUL);
        for policy in ["lru", "ofc"] {
            assert!(ours > saved(policy, UnreadCopyRule::AsOthers), "{policy}");
        }
    }
}
