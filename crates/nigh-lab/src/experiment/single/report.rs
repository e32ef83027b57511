//! The result: a row for each function, size and scenario, and a summary for each scenario. Pure.

use serde::Serialize;
use serde_json::{Value, json};

use super::Scenario;
use super::rounds::{Cell, RoundLimits, Run};
use crate::LabError;
use crate::instrument::chart::{self, StackedBar};
use crate::instrument::machine::Machine;
use crate::instrument::report::name_of;
use crate::instrument::stats::{Estimate, Sample};
use crate::instrument::template::{Columns, fill};

/// Seeds the bootstrap: equal runs give equal intervals.
const SEED: u64 = 11;
const CONDITIONS: [&str; 8] = [
    "one invocation at a time; every scenario once a round, in an order of the round's own",
    "the handler as it is, warm; its client's calls are timed in its own process, in the same way for all",
    "all scenarios but nigh_hit_sandboxed: a process under the vendor's runtime client without a sandbox, all servers \
     reached over loopback",
    "nigh_hit_sandboxed: the function deployed on Nigh, in its sandbox; where others load the machine it has a \
     sandbox's share of the processors, which the processes of the other scenarios have not",
    "Swift: proxy with s3api, one replica on one folder of this machine, no network between; boto3 and \
     python-swiftclient each with one connection kept",
    "Nigh stands in front of the same Swift, acknowledges from its journal on the same disk and writes to Swift behind",
    "Redis: in memory only, acknowledges what no crash would leave; redis-py with hiredis over loopback TCP",
    "a hit and a miss are what Nigh's own counts of the invocation say, or the run fails",
];

/// A bar that is longer than Swift's by more is cut.
const SHOWN_MAX: f64 = 1.6;
const ABOUT: &str = "Six image functions on inputs of six sizes (OFC, figure 7, upper half). The ceiling is the share of Swift's \
                     time that goes to fetching the input and storing the output: what a store without cost would save.";
const COLUMNS: Columns = Columns(
    "function | bytes | scenario | rounds | p50 ms = {p50_ms:.2} | 95 % of it = {p50_low_ms:.2} to {p50_high_ms:.2} | \
     p95 ms = {p95_ms:.2} | extract = {extract_ms:.2} | transform = {transform_ms:.2} | load = {load_ms:.2} | \
     ceiling = {ceiling:%} | share of it = {share_of_ceiling:%} | of extract = {share_of_extract:%} | \
     / Redis = {ratio_to_redis:.2} | cpu ms (servers) = {cpu_ms:.1}[ ({servers_cpu_ms:.1})]",
);
/// The line of a scenario under the table.
const SENTENCE: &str = "{scenario}[: {share_of_ceiling:%} of the ceiling in the median ({share_of_ceiling_least:%} at least), \
                        {share_of_extract:%} of extraction][, {share_of_high_ceilings:%} of ceilings above half]\
                        [; time over Redis {ratio_to_redis:.2} in the median][; at most {saved_most:%} less than Swift \
                        ({saved_most_at})][, OFC {ofc_saved_most:%}]";

#[derive(Debug, Serialize)]
pub(super) struct SingleReport {
    machine: Machine,
    conditions: [&'static str; CONDITIONS.len()],
    limits: RoundLimits,
    /// By scenario.
    overall: Vec<Value>,
    /// By function, size and scenario.
    rows: Vec<Value>,
}

impl SingleReport {
    pub(super) fn new(machine: Machine, limits: RoundLimits, cells: &[Cell]) -> Self {
        let rows: Vec<Value> = cells.iter().flat_map(rows_of).collect();
        let overall = Scenario::ALL.into_iter().filter_map(|scenario| overall(scenario, &rows)).collect();
        Self { machine, conditions: CONDITIONS, limits, overall, rows }
    }

    fn sentences(&self) -> impl Iterator<Item = String> {
        self.overall.iter().map(|scenario| fill(SENTENCE, scenario))
    }

    pub(super) fn text(&self) -> String {
        let sentences: Vec<String> = self.sentences().collect();
        format!("{}\n{}\n{}", COLUMNS.text(&self.rows), sentences.join("\n"), self.machine)
    }

    /// A chart for each function, as OFC's figure 7.
    pub(super) fn page(&self) -> Result<String, LabError> {
        let mut body = chart::list(self.sentences());
        for rows in self.rows.chunk_by(|one, other| one["function"] == other["function"]) {
            let title = fill("{function}: time over that of Swift by its S3 API (longer bars are cut)", &rows[0]);
            body += &chart::figure(&title, &bars(rows)?);
        }
        let (conditions, table) = (chart::list(self.conditions), COLUMNS.html(&self.rows));
        body += &format!("<h2>Conditions</h2>{conditions}<h2>All figures</h2>{table}");
        Ok(chart::page("Single functions against Swift and Redis", ABOUT, &body, &self.machine))
    }
}

/// All sizes and scenarios of one function: bars of extract, transform and load.
fn bars(rows: &[Value]) -> Result<String, LabError> {
    let bar = |row: &Value| {
        let is_swift = |other: &&Value| other["bytes"] == row["bytes"] && other["scenario"] == "swift_s3api";
        let of = |row: &Value, field: &str| row[field].as_f64().unwrap_or(f64::NAN);
        let whole = of(rows.iter().find(is_swift).unwrap_or(row), "p50_ms");
        let phases = ["extract_ms", "transform_ms", "load_ms"].map(|phase| of(row, phase) / whole);
        StackedBar::of_phases(fill("{bytes:K} KB {scenario}", row), phases, SHOWN_MAX)
    };
    chart::phase_bars(&rows.iter().map(bar).collect::<Vec<_>>(), SHOWN_MAX)
}

/// Medians of one scenario's runs.
struct Medians {
    total: Estimate,
    extract: f64,
    transform: f64,
    load: f64,
}

impl Medians {
    fn of(runs: &[Run]) -> Self {
        Self {
            total: Sample::of(runs, |run| run.times.total_ms).median_estimate(SEED),
            extract: Sample::of(runs, |run| run.times.extract_ms).median(),
            transform: Sample::of(runs, |run| run.times.transform_ms()).median(),
            load: Sample::of(runs, |run| run.times.load_ms).median(),
        }
    }

    fn data(&self) -> f64 {
        self.extract + self.load
    }
}

/// The rounds' ratios of the whole time; none if the other did not take part.
fn ratio(runs: &[Run], other: Option<&Vec<Run>>) -> Option<Estimate> {
    let ratios = runs.iter().zip(other?).map(|(run, other)| run.times.total_ms / other.times.total_ms);
    let ratios = Sample::new(ratios.collect());
    (!ratios.is_empty()).then(|| ratios.median_estimate(SEED))
}

/// The rows of a cell; none if Swift did not run.
fn rows_of(cell: &Cell) -> Vec<Value> {
    let Some(swift_runs) = cell.runs.get(&Scenario::SwiftS3api) else { return Vec::new() };
    let swift = Medians::of(swift_runs);
    let redis_runs = cell.runs.get(&Scenario::Redis);
    let row = |(&scenario, runs): (&Scenario, &Vec<Run>)| {
        let medians = Medians::of(runs);
        let (is_swift, is_redis) = (scenario == Scenario::SwiftS3api, scenario == Scenario::Redis);
        let saved = |of: f64, here: f64| (!is_swift).then(|| (of - here) / of);
        let to_swift = (!is_swift).then(|| ratio(runs, Some(swift_runs))).flatten();
        let to_redis = (!is_redis).then(|| ratio(runs, redis_runs)).flatten();
        let servers_cpu = Sample::new(runs.iter().filter_map(|run| run.servers_cpu_ms).collect());
        json!({
            "function": cell.function,
            "bytes": cell.bytes,
            "scenario": scenario,
            "rounds": runs.len(),
            // The median with its 95 % confidence interval, and the 95th percentile.
            "p50_ms": medians.total.value,
            "p50_low_ms": medians.total.low,
            "p50_high_ms": medians.total.high,
            "p95_ms": Sample::of(runs, |run| run.times.total_ms).percentile(0.95),
            // Medians.
            "extract_ms": medians.extract,
            "transform_ms": medians.transform,
            "load_ms": medians.load,
            // (Te + Tl) / (Te + Tt + Tl) of Swift: the share of its time that a store without cost would save.
            "ceiling": swift.data() / (swift.data() + swift.transform),
            // The part of Swift's Te + Tl that is saved. The work between is the same code: its noise is no saving.
            "share_of_ceiling": saved(swift.data(), medians.data()),
            "share_of_extract": saved(swift.extract, medians.extract),
            // The whole handler's time over Swift's and Redis's: medians of the rounds' ratios.
            "ratio_to_swift": to_swift.map(|ratio| ratio.value),
            "ratio_to_redis": to_redis.map(|ratio| ratio.value),
            "ratio_to_redis_low": to_redis.map(|ratio| ratio.low),
            "ratio_to_redis_high": to_redis.map(|ratio| ratio.high),
            // Processor time of the handler's process, and of the servers, with Swift behind Nigh.
            "cpu_ms": Sample::of(runs, |run| run.times.cpu_ms).median(),
            "servers_cpu_ms": servers_cpu.known_percentile(0.5),
            // The caller's time, with the runtime client and the Lambda door.
            "invocation_ms": Sample::of(runs, |run| run.invocation_ms).median(),
        })
    };
    cell.runs.iter().map(row).collect()
}

/// A scenario's figures over all rows: medians, and the most that is saved of Swift's time.
fn overall(scenario: Scenario, rows: &[Value]) -> Option<Value> {
    let name = name_of(&scenario);
    let rows: Vec<Value> = rows.iter().filter(|row| row["scenario"] == name.as_str()).cloned().collect();
    let (ceiling, median) =
        (Sample::of_field(&rows, "share_of_ceiling"), |field| Sample::of_field(&rows, field).known_percentile(0.5));
    // Rows that wait for data more than they work.
    let high: Vec<Value> = rows.iter().filter(|row| row["ceiling"].as_f64() > Some(0.5)).cloned().collect();
    let least = Sample::of_field(&rows, "ratio_to_swift").known_percentile(0.0);
    let most_saved = rows.iter().find(|row| least.is_some() && row["ratio_to_swift"].as_f64() == least);
    let overall = json!({
        "scenario": scenario,
        "share_of_ceiling": ceiling.known_percentile(0.5),
        "share_of_ceiling_least": ceiling.known_percentile(0.0),
        "share_of_high_ceilings": Sample::of_field(&high, "share_of_ceiling").known_percentile(0.5),
        "share_of_extract": median("share_of_extract"),
        "ratio_to_redis": median("ratio_to_redis"),
        "saved_most": least.map(|ratio| 1.0 - ratio),
        "saved_most_at": most_saved.map(|row| fill("{function} of {bytes} bytes", row)),
        // EuroSys 2021, section 7.2.1.
        "ofc_saved_most": match scenario {
            Scenario::NighHit | Scenario::NighHitSandboxed => Some(0.82),
            Scenario::NighMiss => Some(0.75),
            Scenario::SwiftS3api | Scenario::SwiftClient | Scenario::Redis => None,
        },
    });
    (!rows.is_empty()).then_some(overall)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::run::InvocationTimes;

    fn runs(extract_ms: f64, transform_ms: f64, load_ms: f64) -> Vec<Run> {
        let total_ms = extract_ms + transform_ms + load_ms;
        let times = InvocationTimes { total_ms, extract_ms, load_ms, cpu_ms: 1.0, ..InvocationTimes::default() };
        vec![Run { times, servers_cpu_ms: Some(2.0), invocation_ms: total_ms }; 5]
    }

    fn cell() -> Cell {
        let runs = [
            (Scenario::SwiftS3api, runs(20.0, 50.0, 30.0)),
            (Scenario::NighHit, runs(2.0, 50.0, 30.0)),
            (Scenario::Redis, runs(1.0, 50.0, 1.0)),
        ];
        Cell { function: "f<g".to_owned(), bytes: 1000, runs: runs.into() }
    }

    #[test]
    fn a_row_tells_the_ceiling_its_share_and_the_ratio_to_redis() {
        let rows = rows_of(&cell());
        let of = |scenario: &str| rows.iter().find(|row| row["scenario"] == scenario).unwrap();
        let (nigh, swift, redis) = (of("nigh_hit"), of("swift_s3api"), of("redis"));
        assert_eq!((&nigh["rounds"], &nigh["p50_ms"], &nigh["transform_ms"]), (&json!(5), &json!(82.0), &json!(50.0)));
        let near = |field: &str, figure: f64| (nigh[field].as_f64().unwrap() - figure).abs() < 1e-12;
        assert!(near("ceiling", 0.5), "50 of 100 ms are data");
        assert!(near("share_of_ceiling", 18.0 / 50.0) && near("share_of_extract", 0.9));
        assert!(near("ratio_to_swift", 0.82) && near("ratio_to_redis", 82.0 / 52.0));
        assert!(swift["share_of_ceiling"].is_null() && swift["ratio_to_swift"].is_null());
        assert!(redis["ratio_to_redis"].is_null() && redis["share_of_ceiling"].as_f64().unwrap() > 0.95);
    }

    #[test]
    fn where_redis_took_no_part_nothing_is_compared_with_it() {
        let mut cell = cell();
        cell.runs.remove(&Scenario::Redis);
        assert!(rows_of(&cell).iter().all(|row| row["ratio_to_redis"].is_null()));
    }

    #[test]
    fn the_report_names_the_best_saving_and_is_a_table_with_its_machine() {
        let report = SingleReport::new(
            Machine::read("nigh experiment single".to_owned()),
            RoundLimits { rounds_min: 1, rounds_max: 1, seconds: 0.0 },
            &[cell()],
        );
        let nigh = &report.overall[0];
        assert_eq!(nigh["scenario"], "nigh_hit");
        assert!((nigh["saved_most"].as_f64().unwrap() - 0.18).abs() < 1e-12);
        let text = report.text();
        assert!(text.contains("36 % of the ceiling") && text.contains("90 % of extraction"), "{text}");
        assert!(text.contains("OFC 82 %"), "{text}");
        assert!(text.contains(&report.machine.kernel));
    }

    #[test]
    fn a_page_has_a_chart_a_function_the_conditions_and_every_row() {
        let machine = Machine::read("nigh experiment single".to_owned());
        let limits = RoundLimits { rounds_min: 1, rounds_max: 1, seconds: 0.0 };
        let report = SingleReport::new(machine, limits, &[cell()]);
        let page = report.page().unwrap();
        assert_eq!(page.matches("<svg").count(), 1);
        assert_eq!(page.matches("<tr>").count(), 1 + report.rows.len());
        assert!(page.contains("f&lt;g") && !page.contains("<td>f<g"));
        assert!(page.contains("acknowledges what no crash would leave"));
    }
}
