//! `nigh experiment eviction`: which copies should be evicted? The cache's policies, in its own code, on a day of invocations.
//!
//! Invocations are recorded (Azure, 2019); the objects that they read are made up (`requests`). A policy is judged by the time of
//! fetches that it saves: a fetch takes a fixed time and one by the object's size. The figures rank policies on the same requests;
//! they predict no hit ratio.

mod replay;
mod requests;

use clap::Args;
use nigh_objects::eviction::{DEFAULT_DOUBTFUL, GreedyDual, Lru, OfcCondition, PeriodicSweep, S3Fifo, UnreadCopyRule};
use serde::Serialize;
use serde_json::{Value, json};

use self::replay::{ReplayResult, replay};
use self::requests::Requests;
use crate::LabError;
use crate::instrument::machine::Machine;
use crate::instrument::recorded_invocations::{self, STORED};
use crate::instrument::report::print_report;
use crate::instrument::template::{Columns, fill};

/// Cache sizes, in percent of the bytes of all objects that are read.
const SIZES_PERCENT: [u64; 4] = [1, 5, 10, 25];

const COLUMNS: Columns = Columns(
    "policy | outputs nobody read = {outputs} | cache % = {cache_percent} | hits = {hit_ratio:.3} | hit bytes = {byte_hit_ratio:.3} | \
     fetch time saved = {saved:.3} | ns a request = {request_ns:.0}",
);

#[derive(Clone, Debug, Args)]
pub(super) struct EvictionArgs {
    /// How many random seeds; each gives one day of generated requests, and the report shows the means
    #[arg(long, default_value_t = 3)]
    seeds: u64,
}

#[derive(Debug, Serialize)]
struct EvictionReport {
    machine: Machine,
    trace: String,
    /// How the objects, which are not in the trace, are made up.
    objects: String,
    seeds: u64,
    /// Requests of one seed.
    requests: usize,
    read_bytes: u64,
    /// The mean of `saved` over the sizes, best first.
    ranking: Vec<(String, f64)>,
    /// The policy and rule of the node's cache.
    default: String,
    /// By policy, rule for outputs, and size of the cache.
    rows: Vec<Value>,
}

const POLICIES: [&str; 5] = ["lru", "greedy-dual", "s3-fifo", "ofc", "ofc-both"];
/// The rules for outputs that nobody has read, by name.
const OUTPUTS: [(&str, UnreadCopyRule); 3] = [
    ("as others", UnreadCopyRule::AsOthers),
    ("first", UnreadCopyRule::FirstBeyond(0)),
    ("first beyond a tenth", DEFAULT_DOUBTFUL),
];
/// The policy and rule of the node's cache.
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
        let days = recorded_invocations::read_trace(STORED.as_ref())?;
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
                    rows.push(json!({
                        "policy": policy,
                        "outputs": outputs,
                        "cache_percent": percent,
                        "cache_bytes": cache_bytes,
                        // The hits as shares of the reads, and of their bytes.
                        "hit_ratio": sum.hits as f64 / sum.reads as f64,
                        "byte_hit_ratio": sum.hit_bytes as f64 / sum.read_bytes as f64,
                        // As a share of the time of all fetches without a cache.
                        "saved": sum.saved_us / sum.fetch_us,
                        // The policy's work.
                        "request_ns": sum.seconds * 1e9 / sum.requests as f64,
                    }));
                }
            }
        }
        let report = EvictionReport {
            machine,
            trace: recorded_invocations::file_name(),
            objects: requests::ABOUT.to_owned(),
            seeds,
            requests: all[0].all.len(),
            read_bytes: all[0].read_bytes,
            ranking: ranking(&rows),
            default: name_of(DEFAULT.0, DEFAULT.1),
            rows,
        };
        print_report(&report, || report.text(), json)
    }
}

fn ranking(rows: &[Value]) -> Vec<(String, f64)> {
    let mut means: Vec<(String, f64)> = Vec::new();
    for policy in POLICIES {
        for (outputs, _) in OUTPUTS {
            let of_it = rows.iter().filter(|row| row["policy"] == policy && row["outputs"] == outputs);
            let saved = of_it.filter_map(|row| row["saved"].as_f64());
            let mean = saved.sum::<f64>() / SIZES_PERCENT.len() as f64;
            means.push((name_of(policy, outputs), mean));
        }
    }
    means.sort_by(|one, other| other.1.total_cmp(&one.1));
    means
}

impl EvictionReport {
    fn text(&self) -> String {
        let ranked = self.ranking.iter().map(|(name, saved)| format!("\n{saved:.3} {name}")).collect::<String>();
        let about = fill("{trace}; {objects}; {requests} requests a seed, {seeds} seeds", self);
        let default = &self.default;
        format!("{}\n{about}\nmean of what is saved:{ranked}\nthe cache has: {default}", COLUMNS.text(&self.rows))
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn the_cache_s_own_policy_saves_more_than_the_last_use_and_the_papers_rule_on_the_recorded_day() {
        let trace = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(STORED);
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
