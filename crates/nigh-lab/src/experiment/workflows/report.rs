//! The result: a row for each workflow, how much faster Nigh is than each side, and the cost of a remote hit. Pure.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::{Value, json};

use super::Side;
use super::remote_hit::{Distance, Pair};
use super::rounds::{Cell, Run};
use crate::instrument::machine::Machine;
use crate::instrument::report::name_of;
use crate::instrument::stats::{Sample, geometric_mean};
use crate::instrument::template::{Columns, fill};

/// Seeds the bootstrap: equal runs give equal intervals.
const SEED: u64 = 13;
/// A remote hit may take 12.8 % longer than a local one (Apta's single functions).
const REMOTE_TARGET: f64 = 1.128;
const CONDITIONS: [&str; 10] = [
    "one workflow at a time; every side once a round, in an order of the round's own; each run on objects of its own, put \
     before it is timed",
    "the same handlers, warm; their clients' calls are timed in their own processes, in the same way for all",
    "none, version_check, synchronous, nigh: a cluster of three nodes each, the same but for cluster.coherence; functions in \
     sandboxes of 256 MB, three to a node, invoked by the Lambda door of the first node, placed by the scheduler; all say that \
     they gain by the cache",
    "none: an object is in its home's memory, and each read of another node fetches it; a third of all objects has its home \
     where it is read",
    "s3, redis: the same handlers as processes under the vendor's runtime client, without sandbox, door and placement: \
     around_ms says what the clusters have beside",
    "s3: Nigh's own S3 door before its directory, a process of its own that keeps nothing in memory and writes through",
    "redis: in memory only, acknowledges what no crash would leave; redis-py with hiredis over loopback TCP",
    "all processes of all sides are on this one machine: no network between, and the processors are shared",
    "none, version_check, synchronous, nigh: what one stage writes and another reads is ephemeral, in memory as Redis has it; \
     what is read by no stage, the outcome, is durable in three NATS servers on one disk, and its write waits for their syncs",
    "nigh_durable: the nigh cluster with all that is written as durable as the outcome",
];

const ROW_COLUMNS: Columns = Columns(
    "workflow, ms = {workflow} | s3 = {s3_ms:.0} | redis = {redis_ms:.0} | none = {none_ms:.0} | \
     version_check = {version_check_ms:.0} | synchronous = {synchronous_ms:.0} | nigh_durable = {nigh_durable_ms:.0} | \
     nigh = {nigh_ms:.0}",
);
const SIDE_SENTENCE: &str = "{side}: {speed_up:.2} times Nigh's time (geometric mean of {workflows}), {data_speed_up:.2} times \
                             its waiting for data, {extract_speed_up:.2} its reading[; Apta reports {apta:.2}, simulated]";
const REMOTE_COLUMNS: Columns = Columns(
    "function | bytes | local ms = {local_ms:.2} | remote ms = {remote_ms:.2} | ratio = {ratio:.3} | \
     95 % of it = {ratio_low:.3}-{ratio_high:.3} | reading, local = {local_extract_ms:.2} | remote = {remote_extract_ms:.2}",
);
const REMOTE_SENTENCE: &str =
    "a remote hit takes {remote_ratio:.3} of a local one (geometric mean; target: at most 1.128)";

#[derive(Clone, Debug, Serialize)]
pub(super) struct WorkflowsReport {
    machine: Machine,
    conditions: [&'static str; 10],
    rounds: usize,
    /// By side, over all workflows.
    overall: Vec<Value>,
    /// By workflow.
    rows: Vec<Value>,
    /// By function whose input is on another node.
    remote_hits: Vec<Value>,
    /// The geometric mean of the functions' ratios.
    remote_ratio: Option<f64>,
}

/// Another side's figure over Nigh's, round by round.
fn ratios(other: &[Run], nigh: &[Run], figure: impl Fn(&Run) -> f64) -> Sample {
    Sample::new(other.iter().zip(nigh).map(|(other, nigh)| figure(other) / figure(nigh)).collect())
}

/// A workflow. Milliseconds are medians; null is what took no part.
fn row(cell: &Cell) -> Value {
    let nigh = cell.runs.get(&Side::Nigh).map(Vec::as_slice).unwrap_or_default();
    // Sums over the stages of a run.
    let phases = |runs: &[Run]| {
        let median = |figure: fn(&Run) -> f64| Sample::of(runs, figure).median();
        json!({
            "extract_ms": median(|run| run.extract_ms),
            "transform_ms": median(|run| run.transform_ms),
            "load_ms": median(|run| run.load_ms),
            "around_ms": median(|run| run.around_ms),
        })
    };
    let by_side = |of: &dyn Fn(&[Run]) -> Value| -> BTreeMap<Side, Value> {
        cell.runs.iter().map(|(side, runs)| (*side, of(runs))).collect()
    };
    let mut speed_up = by_side(&|runs| json!(ratios(runs, nigh, |run| run.total_ms).median_estimate(SEED)));
    speed_up.remove(&Side::Nigh);
    let mut row = json!({
        "workflow": cell.workflow,
        "rounds": cell.runs.values().map(Vec::len).min().unwrap_or(0),
        "phases": by_side(&phases),
        // Each other side's time over Nigh's: the median of the rounds' ratios, and its 95 % confidence interval.
        "speed_up": speed_up,
        // How many of the workflow's functions each node has run, by cluster.
        "nodes": cell.nodes,
    });
    for side in Side::ALL {
        let total = cell.runs.get(&side).map(|runs| Sample::of(runs, |run| run.total_ms).median());
        row[format!("{}_ms", name_of(&side))] = total.into();
    }
    row
}

/// A side over all workflows: geometric means of its time over Nigh's.
fn overall(side: Side, cells: &[Cell]) -> Option<Value> {
    let both = |cell: &Cell| Some((cell.runs.get(&side)?.clone(), cell.runs.get(&Side::Nigh)?.clone()));
    let pairs: Vec<_> = cells.iter().filter_map(both).collect();
    if pairs.is_empty() || side == Side::Nigh {
        return None;
    }
    let mean = |figure: fn(&Run) -> f64| {
        geometric_mean(pairs.iter().map(|(other, nigh)| ratios(other, nigh, figure).median()))
    };
    Some(json!({
        "side": side,
        "workflows": pairs.len(),
        "speed_up": mean(|run| run.total_ms),
        // The same ratios of the stages' waits for reads and writes, and for reads alone.
        "data_speed_up": mean(|run| run.extract_ms + run.load_ms),
        "extract_speed_up": mean(|run| run.extract_ms),
        // DSN 2023, section VI: over RDMA with Faa$T, over uncached CXL, over CXL with synchronous invalidations.
        "apta": match side {
            Side::VersionCheck => Some(1.42),
            Side::None => Some(1.24),
            Side::Synchronous => Some(1.10),
            Side::S3 | Side::Redis | Side::NighDurable | Side::Nigh => None,
        },
    }))
}

/// A function whose input is on another node.
fn remote_hit(distance: &Distance) -> Value {
    let of = |figure: fn(&Pair) -> f64| Sample::of(&distance.pairs, figure);
    // The median of the pairs' ratios, and its 95 % confidence interval.
    let ratio = of(|pair| pair.remote_ms / pair.local_ms).median_estimate(SEED);
    json!({
        "function": distance.function,
        "bytes": distance.bytes,
        "pairs": distance.pairs.len(),
        "local_ms": of(|pair| pair.local_ms).median(),
        "remote_ms": of(|pair| pair.remote_ms).median(),
        "ratio": ratio.value,
        "ratio_low": ratio.low,
        "ratio_high": ratio.high,
        "local_extract_ms": of(|pair| pair.local_extract_ms).median(),
        "remote_extract_ms": of(|pair| pair.remote_extract_ms).median(),
        "target": REMOTE_TARGET,
        "within_target": ratio.value <= REMOTE_TARGET,
    })
}

impl WorkflowsReport {
    pub(super) fn new(machine: Machine, rounds: usize, cells: &[Cell], distances: &[Distance]) -> Self {
        let remote_hits: Vec<Value> = distances.iter().map(remote_hit).collect();
        let ratios = Sample::of_field(&remote_hits, "ratio");
        Self {
            machine,
            conditions: CONDITIONS,
            rounds,
            overall: Side::ALL.into_iter().filter_map(|side| overall(side, cells)).collect(),
            rows: cells.iter().map(row).collect(),
            remote_ratio: (!ratios.is_empty()).then(|| geometric_mean(ratios.values().iter().copied())),
            remote_hits,
        }
    }

    pub(super) fn text(&self) -> String {
        let mut parts = Vec::new();
        if !self.rows.is_empty() {
            parts.push(ROW_COLUMNS.text(&self.rows));
        }
        parts.extend(self.overall.iter().map(|side| fill(SIDE_SENTENCE, side)));
        if !self.remote_hits.is_empty() {
            parts.push(REMOTE_COLUMNS.text(&self.remote_hits));
            parts.push(fill(REMOTE_SENTENCE, self));
        }
        parts.push(self.machine.to_string());
        parts.join("\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn runs(total_ms: f64, extract_ms: f64) -> Vec<Run> {
        vec![Run { total_ms, extract_ms, transform_ms: 50.0, load_ms: 10.0, around_ms: 5.0 }; 3]
    }

    fn cell(workflow: &str, checked: f64) -> Cell {
        let runs = [
            (Side::VersionCheck, runs(checked, 30.0)),
            (Side::None, runs(150.0, 60.0)),
            (Side::Nigh, runs(100.0, 10.0)),
        ];
        Cell { workflow: workflow.to_owned(), runs: runs.into(), nodes: BTreeMap::new() }
    }

    #[test]
    fn speed_ups_are_geometric_means_over_the_workflows() {
        let machine = Machine::read("nigh experiment workflows".to_owned());
        let report = WorkflowsReport::new(machine, 3, &[cell("a", 200.0), cell("b", 800.0)], &[]);
        let of = |side: &str| report.overall.iter().find(|overall| overall["side"] == side);
        let checked = of("version_check").unwrap();
        let near = |field: &str, figure: f64| (checked[field].as_f64().unwrap() - figure).abs() < 1e-9;
        assert!(near("speed_up", 4.0), "2 and 8");
        assert!(near("data_speed_up", 2.0), "40 over 20 ms");
        assert!(near("extract_speed_up", 3.0));
        assert_eq!((of("nigh"), of("redis")), (None, None));
        assert!(report.rows[0]["nigh_ms"] == 100.0 && report.rows[0]["redis_ms"].is_null());
        let text = report.text();
        assert!(text.contains("version_check: 4.00 times") && text.contains("Apta reports 1.42"), "{text}");
    }

    #[test]
    fn a_remote_hit_is_compared_pair_by_pair_with_a_local_one() {
        let pair = |local_ms, remote_ms| Pair { local_ms, remote_ms, local_extract_ms: 1.0, remote_extract_ms: 2.0 };
        let pairs = vec![pair(10.0, 11.0), pair(20.0, 22.0), pair(10.0, 11.0)];
        let hit = remote_hit(&Distance { function: "f".to_owned(), bytes: 1, pairs });
        assert!((hit["ratio"].as_f64().unwrap() - 1.1).abs() < 1e-9 && hit["within_target"] == true);
        assert!(hit["local_ms"] == 10.0 && hit["remote_ms"] == 11.0 && hit["pairs"] == 3);
    }
}
