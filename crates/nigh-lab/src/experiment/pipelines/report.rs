//! What the runs say: a row an application and input, and what all rows have in common. Pure.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde::Serialize;

use super::rounds::{Cell, Run};
use super::scenario::Scenario;
use crate::instrument::machine::Machine;
use crate::instrument::stats::{Estimate, Sample};
use crate::instrument::table::plain_grid;

/// The same resamples for the same runs.
const SEED: u64 = 19;
/// What is asked of each row: of the ceiling at least, and of Redis's time at most.
const CEILING_TARGET: f64 = 0.90;
const REDIS_TARGET: f64 = 1.03;
/// What OFC saves of Swift's time where most is (EuroSys 2021, section 7.2.1: THIS with 125 MB): on a hit, 105 s to 35.84 s,
/// and on a miss.
const OFC_SAVED: f64 = 0.659;
const OFC_SAVED_MISS: f64 = 0.24;
/// The same for all, or said here.
const CONDITIONS: [&str; 9] = [
    "one execution at a time; every scenario once a round, in an order of the round's own; one run of each goes before, which \
     does not count",
    "the same handlers, warm; their client's calls are timed in their own process, in the same way for all; phases are added up \
     over an execution's tasks, of which some run at the same time",
    "the same state machine, gone through by the same code, with as many tasks of a map at a time as there are processors",
    "nigh_hit, nigh_miss: an express machine on a node, started by its API over loopback; functions in sandboxes, boto3 by the \
     hook; the time ends with the answer, behind which what lay between the stages is removed",
    "swift, redis: the machine in the experiment's own process, functions as bare processes under the vendor's runtime client, \
     without sandbox, door and record; what lay between the stages stays",
    "Swift: proxy with s3api and its access log, one replica on one folder of this machine, no network between; boto3 with one \
     connection kept; the same keys are written in each run",
    "Nigh stands in front of the same Swift: what lies between stages is in memory alone, outputs are acknowledged from its \
     journal on the same disk and written to Swift behind, which the next run waits for",
    "Redis: in memory only, acknowledges what no crash would leave; redis-py with hiredis over loopback TCP",
    "a hit is what Nigh's own records say, a miss has an input of its own in each run, and all scenarios answer the same",
];

/// A scenario's tasks together, medians over the rounds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(super) struct Phases {
    pub(super) extract_ms: f64,
    pub(super) transform_ms: f64,
    pub(super) load_ms: f64,
}

impl Phases {
    fn of(runs: &[Run]) -> Self {
        let median = |figure: fn(&Run) -> f64| Sample::new(runs.iter().map(figure).collect()).median();
        Self {
            extract_ms: median(|run| run.extract_ms),
            transform_ms: median(|run| run.transform_ms),
            load_ms: median(|run| run.load_ms),
        }
    }

    fn data(self) -> f64 {
        self.extract_ms + self.load_ms
    }

    pub(super) fn total(self) -> f64 {
        self.data() + self.transform_ms
    }
}

/// An application and an input. Milliseconds of whole executions are medians; absent is what took no part.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Row {
    pub(super) application: String,
    pub(super) size: String,
    pub(super) bytes: u64,
    tasks: usize,
    rounds: usize,
    swift_ms: f64,
    redis_ms: Option<f64>,
    nigh_miss_ms: f64,
    /// On a hit.
    nigh_ms: f64,
    pub(super) phases: BTreeMap<Scenario, Phases>,
    /// (Te + Tl) / (Te + Tt + Tl) of Swift, over all tasks: the share of their time that a store without cost would save.
    ceiling: f64,
    /// Of what the ceiling allows, the share saved on a hit: of Te + Tl of Swift, what Te + Tl are less. The work between is
    /// the same code and left out, so that its noise is not taken for a saving.
    share_of_ceiling: f64,
    share_of_ceiling_miss: f64,
    share_of_ceiling_redis: Option<f64>,
    /// What is saved of the whole execution's time, over the ceiling: sandboxes, doors and the engine included.
    share_of_ceiling_whole: f64,
    /// The whole execution's time over that on Redis: the median of the rounds' ratios, with its 95 % confidence interval.
    ratio_to_redis: Option<Estimate>,
    /// What is saved of Swift's time, on a hit, on a miss, and by Redis: of the rounds' ratios the median.
    saved: f64,
    saved_miss: f64,
    saved_redis: Option<f64>,
    /// Bytes that lay between the stages of one execution, by Swift's own log of its own scenario,
    intermediate_bytes: u64,
    /// and those of all of Nigh's executions that Swift was sent.
    bytes_to_store: u64,
    reaches_ceiling: bool,
    reaches_redis: Option<bool>,
}

/// All rows.
#[derive(Clone, Debug, Serialize)]
struct PipelinesSummary {
    share_of_ceiling: f64,
    share_of_ceiling_least: f64,
    ratio_to_redis: Option<f64>,
    ratio_to_redis_most: Option<f64>,
    /// Where most is saved of Swift's time, on a hit and on a miss, and what OFC saves there.
    saved_most: f64,
    saved_most_at: String,
    ofc_saved_most: f64,
    saved_miss_most: f64,
    ofc_saved_miss_most: f64,
    bytes_to_store: u64,
}

#[derive(Debug, Serialize)]
pub(super) struct PipelinesReport {
    pub(super) machine: Machine,
    pub(super) conditions: [&'static str; CONDITIONS.len()],
    rounds: usize,
    at_once: usize,
    ceiling_target: f64,
    redis_target: f64,
    /// None, if nothing was played.
    overall: Option<PipelinesSummary>,
    pub(super) rows: Vec<Row>,
}

/// One scenario's time over another's, round by round.
fn ratios(runs: &[Run], other: &[Run]) -> Sample {
    Sample::new(runs.iter().zip(other).map(|(run, other)| run.total_ms / other.total_ms).collect())
}

/// None, if Swift or Nigh took no part.
fn row(cell: &Cell) -> Option<Row> {
    let of = |scenario| cell.runs.get(&scenario).map(Vec::as_slice);
    let (swift, miss, hit) = (of(Scenario::Swift)?, of(Scenario::NighMiss)?, of(Scenario::NighHit)?);
    let redis = of(Scenario::Redis);
    let total = |runs: &[Run]| Sample::new(runs.iter().map(|run| run.total_ms).collect()).median();
    let (floor, saved) = (Phases::of(swift), |runs: &[Run]| 1.0 - ratios(runs, swift).median());
    let ceiling = floor.data() / floor.total();
    let share = |runs: &[Run]| (floor.data() - Phases::of(runs).data()) / floor.data();
    let ratio_to_redis = redis.map(|redis| ratios(hit, redis).median_estimate(SEED));
    Some(Row {
        application: cell.application.clone(),
        size: cell.size.clone(),
        bytes: cell.bytes,
        tasks: cell.tasks,
        rounds: hit.len(),
        swift_ms: total(swift),
        redis_ms: redis.map(total),
        nigh_miss_ms: total(miss),
        nigh_ms: total(hit),
        phases: cell.runs.iter().map(|(scenario, runs)| (*scenario, Phases::of(runs))).collect(),
        ceiling,
        share_of_ceiling: share(hit),
        share_of_ceiling_miss: share(miss),
        share_of_ceiling_redis: redis.map(share),
        share_of_ceiling_whole: saved(hit) / ceiling,
        ratio_to_redis,
        saved: saved(hit),
        saved_miss: saved(miss),
        saved_redis: redis.map(saved),
        intermediate_bytes: cell.swift_intermediates,
        bytes_to_store: cell.bytes_to_store,
        reaches_ceiling: share(hit) >= CEILING_TARGET,
        reaches_redis: ratio_to_redis.map(|ratio| ratio.value <= REDIS_TARGET),
    })
}

fn overall(rows: &[Row]) -> Option<PipelinesSummary> {
    let of = |figure: fn(&Row) -> f64| Sample::new(rows.iter().map(figure).collect());
    let share = of(|row| row.share_of_ceiling);
    let to_redis = Sample::new(rows.iter().filter_map(|row| Some(row.ratio_to_redis?.value)).collect());
    let known = |share: f64| (!to_redis.is_empty()).then(|| to_redis.percentile(share));
    let most = rows.iter().max_by(|a, b| a.saved.total_cmp(&b.saved))?;
    Some(PipelinesSummary {
        share_of_ceiling: share.median(),
        share_of_ceiling_least: share.percentile(0.0),
        ratio_to_redis: known(0.5),
        ratio_to_redis_most: known(1.0),
        saved_most: most.saved,
        saved_most_at: format!("{} {}", most.application, most.size),
        ofc_saved_most: OFC_SAVED,
        saved_miss_most: of(|row| row.saved_miss).percentile(1.0),
        ofc_saved_miss_most: OFC_SAVED_MISS,
        bytes_to_store: rows.iter().map(|row| row.bytes_to_store).sum(),
    })
}

impl PipelinesReport {
    pub(super) fn new(machine: Machine, rounds: usize, at_once: usize, cells: &[Cell]) -> Self {
        let rows: Vec<Row> = cells.iter().filter_map(row).collect();
        Self {
            machine,
            conditions: CONDITIONS,
            rounds,
            at_once,
            ceiling_target: CEILING_TARGET,
            redis_target: REDIS_TARGET,
            overall: overall(&rows),
            rows,
        }
    }

    pub(super) fn text(&self) -> String {
        let table = plain_grid(HEAD, self.rows.iter().map(|row| row.cells()));
        format!("{table}\n{}\n{}", self.sentences().join("\n"), self.machine)
    }

    /// What all rows say.
    pub(super) fn sentences(&self) -> Vec<String> {
        let Some(all) = &self.overall else { return Vec::new() };
        let mut ceiling = format!(
            "{} of the ceiling in the median, {} at least (asked: {})",
            percent(all.share_of_ceiling),
            percent(all.share_of_ceiling_least),
            percent(CEILING_TARGET)
        );
        if let (Some(median), Some(most)) = (all.ratio_to_redis, all.ratio_to_redis_most) {
            let _ = write!(ceiling, "; time over Redis {median:.2}, {most:.2} at most (asked: {REDIS_TARGET})");
        }
        let saved = format!(
            "at most {} less than Swift ({}), OFC {}; on a miss {}, OFC {}",
            percent(all.saved_most),
            all.saved_most_at,
            percent(OFC_SAVED),
            percent(all.saved_miss_most),
            percent(OFC_SAVED_MISS)
        );
        vec![ceiling, saved, format!("bytes of intermediates that Nigh sent to Swift: {}", all.bytes_to_store)]
    }
}

pub(super) const HEAD: [&str; 13] = [
    "application",
    "input",
    "tasks",
    "Swift ms",
    "Redis ms",
    "miss ms",
    "hit ms",
    "ceiling",
    "share of it",
    "whole",
    "/ Redis",
    "saved",
    "between, MB (to store)",
];

impl Row {
    pub(super) fn cells(&self) -> Vec<String> {
        let ms = |ms: f64| format!("{ms:.0}");
        vec![
            self.application.clone(),
            self.size.clone(),
            self.tasks.to_string(),
            ms(self.swift_ms),
            self.redis_ms.map_or_else(String::new, ms),
            ms(self.nigh_miss_ms),
            ms(self.nigh_ms),
            percent(self.ceiling),
            percent(self.share_of_ceiling),
            percent(self.share_of_ceiling_whole),
            self.ratio_to_redis.map_or_else(String::new, |ratio| format!("{:.3}", ratio.value)),
            format!("{} (miss {})", percent(self.saved), percent(self.saved_miss)),
            format!("{:.1} ({})", self.intermediate_bytes as f64 / 1e6, self.bytes_to_store),
        ]
    }
}

fn percent(share: f64) -> String {
    format!("{:.0} %", share * 100.0)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    fn runs(extract_ms: f64, load_ms: f64, total_ms: f64) -> Vec<Run> {
        vec![Run { total_ms, extract_ms, transform_ms: 100.0, load_ms }; 3]
    }

    pub(in super::super) fn cell() -> Cell {
        let runs = [
            (Scenario::Swift, runs(40.0, 60.0, 120.0)),
            (Scenario::Redis, runs(4.0, 6.0, 60.0)),
            (Scenario::NighMiss, runs(20.0, 2.0, 75.0)),
            (Scenario::NighHit, runs(3.0, 2.0, 66.0)),
        ];
        Cell {
            application: "a<b".to_owned(),
            size: "1m".to_owned(),
            bytes: 1_000_000,
            tasks: 4,
            runs: runs.into(),
            swift_intermediates: 2_000_000,
            bytes_to_store: 0,
        }
    }

    #[test]
    fn a_row_tells_the_ceiling_its_shares_and_the_ratio_to_redis() {
        let row = row(&cell()).unwrap();
        let near = |a: f64, b: f64| (a - b).abs() < 1e-9;
        assert!(near(row.ceiling, 0.5), "100 of 200 ms are data");
        assert!(near(row.share_of_ceiling, 0.95) && row.reaches_ceiling);
        assert!(near(row.share_of_ceiling_miss, 0.78) && near(row.share_of_ceiling_redis.unwrap(), 0.9));
        assert!(near(row.saved, 0.45) && near(row.share_of_ceiling_whole, 0.9));
        assert!(near(row.ratio_to_redis.unwrap().value, 1.1) && row.reaches_redis == Some(false));
        assert_eq!((row.nigh_ms, row.intermediate_bytes, row.bytes_to_store), (66.0, 2_000_000, 0));
    }

    #[test]
    fn where_redis_took_no_part_nothing_is_compared_with_it() {
        let mut cell = cell();
        cell.runs.remove(&Scenario::Redis);
        let row = row(&cell).unwrap();
        assert!(row.redis_ms.is_none() && row.ratio_to_redis.is_none() && row.reaches_redis.is_none());
        cell.runs.remove(&Scenario::Swift);
        assert!(super::row(&cell).is_none());
    }

    #[test]
    fn the_report_names_the_best_saving_beside_ofc_s_and_is_a_table_with_its_machine() {
        let report = PipelinesReport::new(Machine::read("nigh experiment pipelines".to_owned()), 3, 2, &[cell()]);
        let text = report.text();
        for said in [
            "95 % of the ceiling",
            "45 % less than Swift (a<b 1m), OFC 66 %",
            "sent to Swift: 0",
            "time over Redis 1.10",
        ] {
            assert!(text.contains(said), "{said}: {text}");
        }
        assert!(text.contains(&report.machine.kernel));
    }
}
