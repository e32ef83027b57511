//! The result: a row for each application and input, and a summary of all. Pure.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::{Value, json};

use super::Scenario;
use super::rounds::{Cell, Run};
use crate::LabError;
use crate::instrument::chart::{self, StackedBar};
use crate::instrument::machine::Machine;
use crate::instrument::report::name_of;
use crate::instrument::stats::Sample;
use crate::instrument::template::{Columns, fill};

/// Seeds the bootstrap: equal runs give equal intervals.
const SEED: u64 = 19;
/// The targets of each row: of the ceiling at least, and of Redis's time at most.
const CEILING_TARGET: f64 = 0.90;
const REDIS_TARGET: f64 = 1.03;
/// The most that OFC saves of Swift's time (EuroSys 2021, section 7.2.1: THIS with 125 MB): on a hit, 105 s to 35.84 s,
/// and on a miss.
const OFC_SAVED: f64 = 0.659;
const OFC_SAVED_MISS: f64 = 0.24;
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

/// A bar that is longer than Swift's by more is cut.
const SHOWN_MAX: f64 = 1.4;
const ABOUT: &str = "Four applications of several stages (OFC, figure 7, lower half). The ceiling is the share of the tasks' time on \
                     Swift that goes to fetching and storing objects: what a store without cost would save.";
const COLUMNS: Columns = Columns(
    "application | input = {size} | tasks | Swift ms = {swift_ms:.0} | Redis ms = {redis_ms:.0} | miss ms = {nigh_miss_ms:.0} | \
     hit ms = {nigh_ms:.0} | ceiling = {ceiling:%} | share of it = {share_of_ceiling:%} | whole = {share_of_ceiling_whole:%} | \
     / Redis = {ratio_to_redis.value:.3} | saved = {saved:%} (miss {saved_miss:%}) | \
     between, MB (to store) = {intermediate_bytes:M.1} ({bytes_to_store})",
);
/// The sentences under the table, about all rows.
const SENTENCES: &str = "{share_of_ceiling:%} of the ceiling in the median, {share_of_ceiling_least:%} at least (target: 90 %)\
    [; time over Redis {ratio_to_redis:.2}, {ratio_to_redis_most:.2} at most (target: 1.03)]\n\
    at most {saved_most:%} less than Swift ({saved_most_at}), OFC {ofc_saved_most:%}; on a miss {saved_miss_most:%}, OFC \
    {ofc_saved_miss_most:%}\nbytes of intermediates that Nigh sent to Swift: {bytes_to_store}";

/// A scenario's tasks together, medians over the rounds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(super) struct Phases {
    pub(super) extract_ms: f64,
    pub(super) transform_ms: f64,
    pub(super) load_ms: f64,
}

impl Phases {
    fn of(runs: &[Run]) -> Self {
        let median = |figure: fn(&Run) -> f64| Sample::of(runs, figure).median();
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

#[derive(Debug, Serialize)]
pub(super) struct PipelinesReport {
    machine: Machine,
    conditions: [&'static str; CONDITIONS.len()],
    rounds: usize,
    at_once: usize,
    ceiling_target: f64,
    redis_target: f64,
    /// The figures over all rows; null if nothing was played.
    overall: Value,
    /// By application and input.
    rows: Vec<Value>,
}

/// One scenario's time over another's, round by round.
fn ratios(runs: &[Run], other: &[Run]) -> Sample {
    Sample::new(runs.iter().zip(other).map(|(run, other)| run.total_ms / other.total_ms).collect())
}

/// None, if Swift or Nigh took no part. Milliseconds of whole executions are medians; null is what took no part.
fn row(cell: &Cell) -> Option<Value> {
    let of = |scenario| cell.runs.get(&scenario).map(Vec::as_slice);
    let (swift, miss, hit) = (of(Scenario::Swift)?, of(Scenario::NighMiss)?, of(Scenario::NighHit)?);
    let redis = of(Scenario::Redis);
    let total = |runs: &[Run]| Sample::of(runs, |run| run.total_ms).median();
    let (floor, saved) = (Phases::of(swift), |runs: &[Run]| 1.0 - ratios(runs, swift).median());
    let ceiling = floor.data() / floor.total();
    let share = |runs: &[Run]| (floor.data() - Phases::of(runs).data()) / floor.data();
    let ratio_to_redis = redis.map(|redis| ratios(hit, redis).median_estimate(SEED));
    let phases: BTreeMap<Scenario, Phases> =
        cell.runs.iter().map(|(scenario, runs)| (*scenario, Phases::of(runs))).collect();
    Some(json!({
        "application": cell.application,
        "size": cell.size,
        "bytes": cell.bytes,
        "tasks": cell.tasks,
        "rounds": hit.len(),
        "swift_ms": total(swift),
        "redis_ms": redis.map(total),
        "nigh_miss_ms": total(miss),
        "nigh_ms": total(hit),
        "phases": phases,
        // (Te + Tl) / (Te + Tt + Tl) of Swift, over all tasks: the share of their time that a store without cost would save.
        "ceiling": ceiling,
        // The part of Swift's Te + Tl that is saved. The work between is the same code: its noise is no saving.
        "share_of_ceiling": share(hit),
        "share_of_ceiling_miss": share(miss),
        "share_of_ceiling_redis": redis.map(share),
        // What is saved of the whole execution, over the ceiling: sandboxes, doors and the engine included.
        "share_of_ceiling_whole": saved(hit) / ceiling,
        // The whole execution over that on Redis: the median of the rounds' ratios, with its 95 % confidence interval.
        "ratio_to_redis": ratio_to_redis,
        // What is saved of Swift's time: medians of the rounds' ratios.
        "saved": saved(hit),
        "saved_miss": saved(miss),
        "saved_redis": redis.map(saved),
        // Intermediates of one execution, by the log of Swift's own scenario, and of all of Nigh's that Swift was sent.
        "intermediate_bytes": cell.swift_intermediates,
        "bytes_to_store": cell.bytes_to_store,
        "reaches_ceiling": share(hit) >= CEILING_TARGET,
        "reaches_redis": ratio_to_redis.map(|ratio| ratio.value <= REDIS_TARGET),
    }))
}

/// The figures over all rows, beside OFC's largest saving; null if there are no rows.
fn overall(rows: &[Value]) -> Value {
    let of = |field: &str| Sample::of_field(rows, field);
    let (share, saved) = (of("share_of_ceiling"), of("saved"));
    let to_redis = Sample::new(rows.iter().filter_map(|row| row["ratio_to_redis"]["value"].as_f64()).collect());
    let Some(saved_most) = saved.known_percentile(1.0) else { return Value::Null };
    let at = rows.iter().find(|row| row["saved"].as_f64() == Some(saved_most));
    json!({
        "share_of_ceiling": share.median(),
        "share_of_ceiling_least": share.percentile(0.0),
        "ratio_to_redis": to_redis.known_percentile(0.5),
        "ratio_to_redis_most": to_redis.known_percentile(1.0),
        "saved_most": saved_most,
        "saved_most_at": at.map(|row| fill("{application} {size}", row)),
        "ofc_saved_most": OFC_SAVED,
        "saved_miss_most": of("saved_miss").percentile(1.0),
        "ofc_saved_miss_most": OFC_SAVED_MISS,
        "bytes_to_store": rows.iter().filter_map(|row| row["bytes_to_store"].as_u64()).sum::<u64>(),
    })
}

impl PipelinesReport {
    pub(super) fn new(machine: Machine, rounds: usize, at_once: usize, cells: &[Cell]) -> Self {
        let rows: Vec<Value> = cells.iter().filter_map(row).collect();
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

    fn sentences(&self) -> String {
        if self.overall.is_null() { String::new() } else { fill(SENTENCES, &self.overall) }
    }

    pub(super) fn text(&self) -> String {
        let sentences = self.sentences();
        format!("{}\n{sentences}\n{}", COLUMNS.text(&self.rows), self.machine)
    }

    /// A chart for each application, as OFC's figure 7.
    pub(super) fn page(&self) -> Result<String, LabError> {
        let sentences = self.sentences();
        let mut body = chart::list(sentences.lines());
        for rows in self.rows.chunk_by(|one, other| one["application"] == other["application"]) {
            let title = "{application}: time of all tasks together over that on Swift (longer bars are cut)";
            let title = fill(title, &rows[0]);
            body += &chart::figure(&title, &bars(rows)?);
        }
        let (conditions, table) = (chart::list(self.conditions), COLUMNS.html(&self.rows));
        body += &format!("<h2>Conditions</h2>{conditions}<h2>All figures</h2>{table}");
        Ok(chart::page("Applications of several stages against Swift and Redis", ABOUT, &body, &self.machine))
    }
}

/// All inputs and scenarios of one application: bars of extract, transform and load.
fn bars(rows: &[Value]) -> Result<String, LabError> {
    let of =
        |phases: &Value| ["extract_ms", "transform_ms", "load_ms"].map(|phase| phases[phase].as_f64().unwrap_or(0.0));
    let mut bars = Vec::new();
    for row in rows {
        let whole = of(&row["phases"]["swift"]).iter().sum::<f64>();
        for scenario in Scenario::ALL.map(|scenario| name_of(&scenario)) {
            let phases = &row["phases"][&scenario];
            if !phases.is_null() {
                let label = format!("{} {scenario}", fill("{size}", row));
                bars.push(StackedBar::of_phases(label, of(phases).map(|ms| ms / whole), SHOWN_MAX));
            }
        }
    }
    chart::phase_bars(&bars, SHOWN_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn runs(extract_ms: f64, load_ms: f64, total_ms: f64) -> Vec<Run> {
        vec![Run { total_ms, extract_ms, transform_ms: 100.0, load_ms }; 3]
    }

    fn cell() -> Cell {
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
        let near = |value: &Value, figure: f64| (value.as_f64().unwrap() - figure).abs() < 1e-9;
        assert!(near(&row["ceiling"], 0.5), "100 of 200 ms are data");
        assert!(near(&row["share_of_ceiling"], 0.95) && row["reaches_ceiling"] == true);
        assert!(near(&row["share_of_ceiling_miss"], 0.78) && near(&row["share_of_ceiling_redis"], 0.9));
        assert!(near(&row["saved"], 0.45) && near(&row["share_of_ceiling_whole"], 0.9));
        assert!(near(&row["ratio_to_redis"]["value"], 1.1) && row["reaches_redis"] == false);
        assert!(near(&row["nigh_ms"], 66.0) && row["intermediate_bytes"] == 2_000_000 && row["bytes_to_store"] == 0);
    }

    #[test]
    fn where_redis_took_no_part_nothing_is_compared_with_it() {
        let mut cell = cell();
        cell.runs.remove(&Scenario::Redis);
        let row = row(&cell).unwrap();
        assert!(["redis_ms", "ratio_to_redis", "reaches_redis"].iter().all(|field| row[field].is_null()));
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

    #[test]
    fn a_page_has_a_chart_an_application_the_conditions_and_every_row() {
        let machine = Machine::read("nigh experiment pipelines".to_owned());
        let page = PipelinesReport::new(machine, 3, 2, &[cell()]).page().unwrap();
        assert_eq!((page.matches("<svg").count(), page.matches("<tr>").count()), (1, 2));
        assert!(page.contains("a&lt;b") && !page.contains("<td>a<b"));
        assert!(page.contains("acknowledges what no crash would leave"));
    }
}
