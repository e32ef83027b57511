//! What the runs say: a row a workflow, by how much Nigh is faster than each side, and what a remote hit costs. Pure.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use comfy_table::{Table, presets};
use serde::Serialize;

use super::remote_hit::Distance;
use super::rounds::{Cell, Run};
use super::side::Side;
use crate::instrument::machine::Machine;
use crate::instrument::stats::{Estimate, Sample};

/// The same resamples for the same runs.
const SEED: u64 = 13;
/// What a remote hit may take beyond a local one (Apta's single functions): 12.8 %.
const REMOTE_TARGET: f64 = 1.128;
/// The same for all, or said here.
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

/// A workflow. Milliseconds are medians; absent is what took no part.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Row {
    workflow: String,
    rounds: usize,
    s3_ms: Option<f64>,
    redis_ms: Option<f64>,
    none_ms: Option<f64>,
    version_check_ms: Option<f64>,
    synchronous_ms: Option<f64>,
    nigh_durable_ms: Option<f64>,
    nigh_ms: Option<f64>,
    /// Of each side: the stages' times together, in parts.
    phases: BTreeMap<Side, Phases>,
    /// Each other side's time over Nigh's: the median of the rounds' ratios, and its 95 % confidence interval.
    speed_up: BTreeMap<Side, Estimate>,
    /// Of each cluster, how many of the workflow's functions each node has run.
    nodes: BTreeMap<Side, Vec<usize>>,
}

/// Sums over the stages of a run; medians over the rounds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
struct Phases {
    extract_ms: f64,
    transform_ms: f64,
    load_ms: f64,
    around_ms: f64,
}

/// All workflows of a side: geometric means of its time over Nigh's.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct SideSummary {
    side: Side,
    workflows: usize,
    /// Of whole workflows.
    speed_up: f64,
    /// Of what the stages wait for reads and writes together.
    data_speed_up: f64,
    /// Of what they wait for reads.
    extract_speed_up: f64,
    /// What Apta reports of it over what stands for the side in its simulation, if anything does.
    apta: Option<f64>,
}

/// A function whose input is on another node.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct RemoteHit {
    function: String,
    bytes: u64,
    pairs: usize,
    local_ms: f64,
    remote_ms: f64,
    /// The median of the pairs' ratios, and its 95 % confidence interval.
    ratio: f64,
    ratio_low: f64,
    ratio_high: f64,
    local_extract_ms: f64,
    remote_extract_ms: f64,
    target: f64,
    within_target: bool,
}

#[derive(Clone, Debug, Serialize)]
pub(super) struct WorkflowsReport {
    machine: Machine,
    conditions: [&'static str; 10],
    rounds: usize,
    overall: Vec<SideSummary>,
    rows: Vec<Row>,
    remote_hits: Vec<RemoteHit>,
    /// The geometric mean of the functions' ratios.
    remote_ratio: Option<f64>,
}

fn median(runs: &[Run], figure: impl Fn(&Run) -> f64) -> f64 {
    Sample::new(runs.iter().map(figure).collect()).median()
}

fn geometric_mean(ratios: &[f64]) -> f64 {
    (ratios.iter().map(|ratio| ratio.ln()).sum::<f64>() / ratios.len() as f64).exp()
}

/// Another side's figure over Nigh's, round by round.
fn ratios(other: &[Run], nigh: &[Run], figure: impl Fn(&Run) -> f64) -> Sample {
    Sample::new(other.iter().zip(nigh).map(|(other, nigh)| figure(other) / figure(nigh)).collect())
}

fn row(cell: &Cell) -> Row {
    let total = |side| cell.runs.get(&side).map(|runs| median(runs, |run| run.total_ms));
    let phases = |runs: &Vec<Run>| Phases {
        extract_ms: median(runs, |run| run.extract_ms),
        transform_ms: median(runs, |run| run.transform_ms),
        load_ms: median(runs, |run| run.load_ms),
        around_ms: median(runs, |run| run.around_ms),
    };
    let nigh = cell.runs.get(&Side::Nigh).map(Vec::as_slice).unwrap_or_default();
    let others = cell.runs.iter().filter(|(side, _)| **side != Side::Nigh);
    let speed_up = |runs: &[Run]| ratios(runs, nigh, |run| run.total_ms).median_estimate(SEED);
    Row {
        workflow: cell.workflow.clone(),
        rounds: cell.runs.values().map(Vec::len).min().unwrap_or(0),
        s3_ms: total(Side::S3),
        redis_ms: total(Side::Redis),
        none_ms: total(Side::None),
        version_check_ms: total(Side::VersionCheck),
        synchronous_ms: total(Side::Synchronous),
        nigh_durable_ms: total(Side::NighDurable),
        nigh_ms: total(Side::Nigh),
        phases: cell.runs.iter().map(|(side, runs)| (*side, phases(runs))).collect(),
        speed_up: others.map(|(side, runs)| (*side, speed_up(runs))).collect(),
        nodes: cell.nodes.clone(),
    }
}

fn overall(side: Side, cells: &[Cell]) -> Option<SideSummary> {
    let both = |cell: &Cell| Some((cell.runs.get(&side)?.clone(), cell.runs.get(&Side::Nigh)?.clone()));
    let pairs: Vec<_> = cells.iter().filter_map(both).collect();
    if pairs.is_empty() || side == Side::Nigh {
        return None;
    }
    let mean = |figure: fn(&Run) -> f64| {
        let ratios: Vec<f64> = pairs.iter().map(|(other, nigh)| ratios(other, nigh, figure).median()).collect();
        geometric_mean(&ratios)
    };
    Some(SideSummary {
        side,
        workflows: pairs.len(),
        speed_up: mean(|run| run.total_ms),
        data_speed_up: mean(|run| run.extract_ms + run.load_ms),
        extract_speed_up: mean(|run| run.extract_ms),
        // DSN 2023, section VI: over RDMA with Faa$T, over uncached CXL, over CXL with synchronous invalidations.
        apta: match side {
            Side::VersionCheck => Some(1.42),
            Side::None => Some(1.24),
            Side::Synchronous => Some(1.10),
            Side::S3 | Side::Redis | Side::NighDurable | Side::Nigh => None,
        },
    })
}

fn remote_hit(distance: &Distance) -> RemoteHit {
    let of = |figure: fn(&super::remote_hit::Pair) -> f64| Sample::new(distance.pairs.iter().map(figure).collect());
    let ratio = of(|pair| pair.remote_ms / pair.local_ms).median_estimate(SEED);
    RemoteHit {
        function: distance.function.clone(),
        bytes: distance.bytes,
        pairs: distance.pairs.len(),
        local_ms: of(|pair| pair.local_ms).median(),
        remote_ms: of(|pair| pair.remote_ms).median(),
        ratio: ratio.value,
        ratio_low: ratio.low,
        ratio_high: ratio.high,
        local_extract_ms: of(|pair| pair.local_extract_ms).median(),
        remote_extract_ms: of(|pair| pair.remote_extract_ms).median(),
        target: REMOTE_TARGET,
        within_target: ratio.value <= REMOTE_TARGET,
    }
}

impl WorkflowsReport {
    pub(super) fn new(machine: Machine, rounds: usize, cells: &[Cell], distances: &[Distance]) -> Self {
        let remote_hits: Vec<RemoteHit> = distances.iter().map(remote_hit).collect();
        let remote: Vec<f64> = remote_hits.iter().map(|hit| hit.ratio).collect();
        Self {
            machine,
            conditions: CONDITIONS,
            rounds,
            overall: Side::ALL.into_iter().filter_map(|side| overall(side, cells)).collect(),
            rows: cells.iter().map(row).collect(),
            remote_hits,
            remote_ratio: (!remote.is_empty()).then(|| geometric_mean(&remote)),
        }
    }

    pub(super) fn text(&self) -> String {
        let mut text = String::new();
        if !self.rows.is_empty() {
            let mut table = Table::new();
            let sides = Side::ALL.map(Side::name);
            table.load_style(presets::NOTHING).set_header(["workflow, ms"].into_iter().chain(sides));
            for row in &self.rows {
                let times = [
                    row.s3_ms,
                    row.redis_ms,
                    row.none_ms,
                    row.version_check_ms,
                    row.synchronous_ms,
                    row.nigh_durable_ms,
                    row.nigh_ms,
                ];
                let times = times.map(|time| time.map_or_else(|| "-".to_owned(), |time| format!("{time:.0}")));
                table.add_row([row.workflow.clone()].into_iter().chain(times));
            }
            let _ = writeln!(text, "{table}");
        }
        for SideSummary { side, workflows, speed_up, data_speed_up, extract_speed_up, apta } in &self.overall {
            let apta = apta.map_or_else(String::new, |apta| format!("; Apta reports {apta:.2}, simulated"));
            let _ = writeln!(
                text,
                "{}: {speed_up:.2} times Nigh's time (geometric mean of {workflows}), {data_speed_up:.2} times its waiting \
                 for data, {extract_speed_up:.2} its reading{apta}",
                side.name()
            );
        }
        if !self.remote_hits.is_empty() {
            let mut table = Table::new();
            let head =
                ["function", "bytes", "local ms", "remote ms", "ratio", "95 % of it", "reading, local", "remote"];
            table.load_style(presets::NOTHING).set_header(head);
            for hit in &self.remote_hits {
                table.add_row([
                    hit.function.clone(),
                    hit.bytes.to_string(),
                    format!("{:.2}", hit.local_ms),
                    format!("{:.2}", hit.remote_ms),
                    format!("{:.3}", hit.ratio),
                    format!("{:.3}-{:.3}", hit.ratio_low, hit.ratio_high),
                    format!("{:.2}", hit.local_extract_ms),
                    format!("{:.2}", hit.remote_extract_ms),
                ]);
            }
            let _ = writeln!(text, "{table}");
        }
        if let Some(ratio) = self.remote_ratio {
            let _ = writeln!(
                text,
                "a remote hit takes {ratio:.3} of a local one (geometric mean; at most {REMOTE_TARGET})"
            );
        }
        let _ = write!(text, "{}", self.machine);
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::workflows::remote_hit::Pair;

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
        let of = |side| report.overall.iter().find(|overall| overall.side == side);
        let checked = of(Side::VersionCheck).unwrap();
        assert!((checked.speed_up - 4.0).abs() < 1e-9, "2 and 8");
        assert!((checked.data_speed_up - 2.0).abs() < 1e-9, "40 over 20 ms");
        assert!((checked.extract_speed_up - 3.0).abs() < 1e-9);
        assert_eq!((of(Side::Nigh), of(Side::Redis)), (None, None));
        assert_eq!((report.rows[0].nigh_ms, report.rows[0].redis_ms), (Some(100.0), None));
        let text = report.text();
        assert!(text.contains("version_check: 4.00 times") && text.contains("Apta reports 1.42"), "{text}");
    }

    #[test]
    fn a_remote_hit_is_compared_pair_by_pair_with_a_local_one() {
        let pair = |local_ms, remote_ms| Pair { local_ms, remote_ms, local_extract_ms: 1.0, remote_extract_ms: 2.0 };
        let pairs = vec![pair(10.0, 11.0), pair(20.0, 22.0), pair(10.0, 11.0)];
        let hit = remote_hit(&Distance { function: "f".to_owned(), bytes: 1, pairs });
        assert!((hit.ratio - 1.1).abs() < 1e-9 && hit.within_target);
        assert_eq!((hit.local_ms, hit.remote_ms, hit.pairs), (10.0, 11.0, 3));
    }
}
