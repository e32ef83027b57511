//! What the runs say: a row a function, size and scenario, and what all rows of a scenario have in common. Pure.

use std::fmt::Write as _;

use serde::Serialize;

use super::rounds::{Cell, RoundLimits, Run};
use super::scenario::Scenario;
use crate::instrument::machine::Machine;
use crate::instrument::stats::{Estimate, Sample};
use crate::instrument::table::plain_grid;

/// The same resamples for the same runs.
const SEED: u64 = 11;
/// The same for all, or said here.
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

/// A function, a size and a scenario. Milliseconds are medians but for `p95_ms`.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Row {
    pub(super) function: String,
    pub(super) bytes: u64,
    pub(super) scenario: Scenario,
    pub(super) rounds: usize,
    pub(super) p50_ms: f64,
    /// The 95 % confidence interval of the median.
    pub(super) p50_low_ms: f64,
    pub(super) p50_high_ms: f64,
    pub(super) p95_ms: f64,
    pub(super) extract_ms: f64,
    pub(super) transform_ms: f64,
    pub(super) load_ms: f64,
    /// (Te + Tl) / (Te + Tt + Tl) of `swift_s3api`: the share of its time that a store without cost would save.
    pub(super) ceiling: f64,
    /// Of what the ceiling allows, the share saved: of Te + Tl of `swift_s3api`, what Te + Tl are less here. The work
    /// between is the same code and is left out, so that its noise is not taken for a saving.
    pub(super) share_of_ceiling: Option<f64>,
    /// The same of extraction alone.
    pub(super) share_of_extract: Option<f64>,
    /// The whole handler's time over that of `swift_s3api`: the median of the rounds' ratios.
    pub(super) ratio_to_swift: Option<f64>,
    /// The same over `redis`, with its 95 % confidence interval.
    pub(super) ratio_to_redis: Option<f64>,
    pub(super) ratio_to_redis_low: Option<f64>,
    pub(super) ratio_to_redis_high: Option<f64>,
    /// Processor time of the handler's process.
    pub(super) cpu_ms: f64,
    /// Processor time of the servers behind it, Swift behind Nigh included.
    pub(super) servers_cpu_ms: Option<f64>,
    /// By who invoked it: with the runtime client, and in the sandbox the Lambda door.
    pub(super) invocation_ms: f64,
}

/// All rows of a scenario. Medians over functions and sizes.
#[derive(Clone, Debug, Serialize)]
pub(super) struct ScenarioSummary {
    pub(super) scenario: Scenario,
    pub(super) share_of_ceiling: Option<f64>,
    pub(super) share_of_ceiling_least: Option<f64>,
    /// The median of the rows whose ceiling is above half: of those that wait for data more than they work.
    pub(super) share_of_high_ceilings: Option<f64>,
    pub(super) share_of_extract: Option<f64>,
    pub(super) ratio_to_redis: Option<f64>,
    /// What is saved of Swift's time where most is; and where that is.
    pub(super) saved_most: Option<f64>,
    pub(super) saved_most_at: Option<String>,
    /// What OFC's paper says of that.
    pub(super) ofc_saved_most: Option<f64>,
}

/// All that a run of the experiment says.
#[derive(Debug, Serialize)]
pub(super) struct SingleReport {
    pub(super) machine: Machine,
    pub(super) conditions: [&'static str; CONDITIONS.len()],
    pub(super) limits: RoundLimits,
    pub(super) overall: Vec<ScenarioSummary>,
    pub(super) rows: Vec<Row>,
}

impl SingleReport {
    pub(super) fn new(machine: Machine, limits: RoundLimits, rows: Vec<Row>) -> Self {
        let overall = Scenario::ALL.into_iter().filter_map(|scenario| overall(scenario, &rows)).collect();
        Self { machine, conditions: CONDITIONS, limits, overall, rows }
    }

    pub(super) fn text(&self) -> String {
        let table = plain_grid(HEAD, self.rows.iter().map(|row| row.cells()));
        let mut text = table.to_string();
        for overall in &self.overall {
            let _ = write!(text, "\n{}", overall.sentence());
        }
        let _ = write!(text, "\n{}", self.machine);
        text
    }
}

pub(super) const HEAD: [&str; 15] = [
    "function",
    "bytes",
    "scenario",
    "rounds",
    "p50 ms",
    "95 % of it",
    "p95 ms",
    "extract",
    "transform",
    "load",
    "ceiling",
    "share of it",
    "of extract",
    "/ Redis",
    "cpu ms (servers)",
];

impl Row {
    pub(super) fn cells(&self) -> Vec<String> {
        let servers = self.servers_cpu_ms.map_or_else(String::new, |cpu| format!(" ({cpu:.1})"));
        vec![
            self.function.clone(),
            self.bytes.to_string(),
            self.scenario.name().to_owned(),
            self.rounds.to_string(),
            format!("{:.2}", self.p50_ms),
            format!("{:.2} to {:.2}", self.p50_low_ms, self.p50_high_ms),
            format!("{:.2}", self.p95_ms),
            format!("{:.2}", self.extract_ms),
            format!("{:.2}", self.transform_ms),
            format!("{:.2}", self.load_ms),
            percent(Some(self.ceiling)),
            percent(self.share_of_ceiling),
            percent(self.share_of_extract),
            self.ratio_to_redis.map_or_else(String::new, |ratio| format!("{ratio:.2}")),
            format!("{:.1}{servers}", self.cpu_ms),
        ]
    }
}

impl ScenarioSummary {
    pub(super) fn sentence(&self) -> String {
        let mut text = self.scenario.name().to_owned();
        if let (Some(share), Some(least), Some(extract)) =
            (self.share_of_ceiling, self.share_of_ceiling_least, self.share_of_extract)
        {
            let _ = write!(
                text,
                ": {} of the ceiling in the median ({} at least), {} of extraction",
                percent(Some(share)),
                percent(Some(least)),
                percent(Some(extract))
            );
        }
        if let Some(share) = self.share_of_high_ceilings {
            let _ = write!(text, ", {} of ceilings above half", percent(Some(share)));
        }
        if let Some(ratio) = self.ratio_to_redis {
            let _ = write!(text, "; time over Redis {ratio:.2} in the median");
        }
        if let (Some(saved), Some(at)) = (self.saved_most, &self.saved_most_at) {
            let _ = write!(text, "; at most {} less than Swift ({at})", percent(Some(saved)));
        }
        if let Some(saved) = self.ofc_saved_most {
            let _ = write!(text, ", OFC {}", percent(Some(saved)));
        }
        text
    }
}

fn percent(share: Option<f64>) -> String {
    share.map_or_else(String::new, |share| format!("{:.0} %", share * 100.0))
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
            total: sample(runs, |run| run.total_ms).median_estimate(SEED),
            extract: sample(runs, |run| run.extract_ms).median(),
            transform: sample(runs, Run::transform_ms).median(),
            load: sample(runs, |run| run.load_ms).median(),
        }
    }

    fn data(&self) -> f64 {
        self.extract + self.load
    }
}

fn sample(runs: &[Run], figure: impl Fn(&Run) -> f64) -> Sample {
    Sample::new(runs.iter().map(figure).collect())
}

/// The rounds' ratios of the whole time; none if the other did not take part.
fn ratio(runs: &[Run], other: Option<&Vec<Run>>) -> Option<Estimate> {
    let ratios = runs.iter().zip(other?).map(|(run, other)| run.total_ms / other.total_ms);
    let ratios = Sample::new(ratios.collect());
    (!ratios.is_empty()).then(|| ratios.median_estimate(SEED))
}

/// The rows of all cells; cells without a run of Swift have none.
pub(super) fn rows(cells: &[Cell]) -> Vec<Row> {
    cells.iter().flat_map(rows_of).collect()
}

fn rows_of(cell: &Cell) -> Vec<Row> {
    let Some(swift_runs) = cell.runs.get(&Scenario::SwiftS3api) else { return Vec::new() };
    let swift = Medians::of(swift_runs);
    let redis_runs = cell.runs.get(&Scenario::Redis);
    let row = |(&scenario, runs): (&Scenario, &Vec<Run>)| {
        let medians = Medians::of(runs);
        let saved = |of: f64, here: f64| (scenario != Scenario::SwiftS3api).then(|| (of - here) / of);
        let to_redis = (scenario != Scenario::Redis).then(|| ratio(runs, redis_runs)).flatten();
        let servers_cpu = Sample::new(runs.iter().filter_map(|run| run.servers_cpu_ms).collect());
        Row {
            function: cell.function.clone(),
            bytes: cell.bytes,
            scenario,
            rounds: runs.len(),
            p50_ms: medians.total.value,
            p50_low_ms: medians.total.low,
            p50_high_ms: medians.total.high,
            p95_ms: sample(runs, |run| run.total_ms).percentile(0.95),
            extract_ms: medians.extract,
            transform_ms: medians.transform,
            load_ms: medians.load,
            ceiling: swift.data() / (swift.data() + swift.transform),
            share_of_ceiling: saved(swift.data(), medians.data()),
            share_of_extract: saved(swift.extract, medians.extract),
            ratio_to_swift: (scenario != Scenario::SwiftS3api)
                .then(|| ratio(runs, Some(swift_runs)).map(|ratio| ratio.value))
                .flatten(),
            ratio_to_redis: to_redis.map(|ratio| ratio.value),
            ratio_to_redis_low: to_redis.map(|ratio| ratio.low),
            ratio_to_redis_high: to_redis.map(|ratio| ratio.high),
            cpu_ms: sample(runs, |run| run.cpu_ms).median(),
            servers_cpu_ms: (!servers_cpu.is_empty()).then(|| servers_cpu.median()),
            invocation_ms: sample(runs, |run| run.invocation_ms).median(),
        }
    };
    cell.runs.iter().map(row).collect()
}

fn overall(scenario: Scenario, rows: &[Row]) -> Option<ScenarioSummary> {
    let rows: Vec<&Row> = rows.iter().filter(|row| row.scenario == scenario).collect();
    if rows.is_empty() {
        return None;
    }
    let of = |figure: fn(&Row) -> Option<f64>| Sample::new(rows.iter().copied().filter_map(figure).collect());
    let known = |sample: &Sample, share: f64| (!sample.is_empty()).then(|| sample.percentile(share));
    let (ceiling, extract) = (of(|row| row.share_of_ceiling), of(|row| row.share_of_extract));
    let saved = |row: &&Row| row.ratio_to_swift.map(|ratio| 1.0 - ratio);
    let most = rows.iter().copied().max_by(|a, b| saved(a).partial_cmp(&saved(b)).unwrap_or(std::cmp::Ordering::Equal));
    Some(ScenarioSummary {
        scenario,
        share_of_ceiling: known(&ceiling, 0.5),
        share_of_ceiling_least: known(&ceiling, 0.0),
        share_of_high_ceilings: known(&of(|row| row.share_of_ceiling.filter(|_| row.ceiling > 0.5)), 0.5),
        share_of_extract: known(&extract, 0.5),
        ratio_to_redis: known(&of(|row| row.ratio_to_redis), 0.5),
        saved_most: most.and_then(|row| saved(&row)),
        saved_most_at: most
            .filter(|row| row.ratio_to_swift.is_some())
            .map(|row| format!("{} of {} bytes", row.function, row.bytes)),
        ofc_saved_most: scenario.ofc_saved_most(),
    })
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    fn runs(extract_ms: f64, transform_ms: f64, load_ms: f64) -> Vec<Run> {
        let total_ms = extract_ms + transform_ms + load_ms;
        let run =
            Run { total_ms, extract_ms, load_ms, cpu_ms: 1.0, servers_cpu_ms: Some(2.0), invocation_ms: total_ms };
        vec![run; 5]
    }

    pub(in super::super) fn cell() -> Cell {
        let runs = [
            (Scenario::SwiftS3api, runs(20.0, 50.0, 30.0)),
            (Scenario::NighHit, runs(2.0, 50.0, 30.0)),
            (Scenario::Redis, runs(1.0, 50.0, 1.0)),
        ];
        Cell { function: "f<g".to_owned(), bytes: 1000, runs: runs.into() }
    }

    #[test]
    fn a_row_tells_the_ceiling_its_share_and_the_ratio_to_redis() {
        let rows = rows(&[cell()]);
        let of = |scenario| rows.iter().find(|row| row.scenario == scenario).unwrap();
        let (nigh, swift, redis) = (of(Scenario::NighHit), of(Scenario::SwiftS3api), of(Scenario::Redis));
        assert_eq!((nigh.rounds, nigh.p50_ms, nigh.transform_ms), (5, 82.0, 50.0));
        assert!((nigh.ceiling - 0.5).abs() < 1e-12, "50 of 100 ms are data");
        assert!((nigh.share_of_ceiling.unwrap() - 18.0 / 50.0).abs() < 1e-12);
        assert!((nigh.share_of_extract.unwrap() - 0.9).abs() < 1e-12);
        assert!((nigh.ratio_to_swift.unwrap() - 0.82).abs() < 1e-12);
        assert!((nigh.ratio_to_redis.unwrap() - 82.0 / 52.0).abs() < 1e-12);
        assert_eq!((swift.share_of_ceiling, swift.ratio_to_swift), (None, None));
        assert!(redis.ratio_to_redis.is_none() && redis.share_of_ceiling.unwrap() > 0.95);
    }

    #[test]
    fn where_redis_took_no_part_nothing_is_compared_with_it() {
        let mut cell = cell();
        cell.runs.remove(&Scenario::Redis);
        assert!(rows(&[cell]).iter().all(|row| row.ratio_to_redis.is_none()));
    }

    #[test]
    fn the_report_names_the_best_saving_and_is_a_table_with_its_machine() {
        let report = SingleReport::new(
            Machine::read("nigh experiment single".to_owned()),
            RoundLimits { rounds_min: 1, rounds_max: 1, seconds: 0.0 },
            rows(&[cell()]),
        );
        let nigh = &report.overall[0];
        assert_eq!(nigh.scenario, Scenario::NighHit);
        assert!((nigh.saved_most.unwrap() - 0.18).abs() < 1e-12);
        let text = report.text();
        assert!(text.contains("36 % of the ceiling") && text.contains("90 % of extraction"), "{text}");
        assert!(text.contains("OFC 82 %"), "{text}");
        assert!(text.contains(&report.machine.kernel));
    }
}
