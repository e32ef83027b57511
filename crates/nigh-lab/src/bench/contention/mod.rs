//! Contention: what callers of several functions get when they share the memory that a node has for sandboxes.
//!
//! A cell is so many nodes, so much memory for the sandboxes of each, so many functions and so many callers. Each cell has
//! fresh nodes. All functions have the same handler, and book 256 MiB; caller `i` invokes function `i % functions`, or, in a
//! mixed cell, a function that it draws for each call, so that what each function needs changes all the time. It does so
//! through a Lambda door, over a connection of its own, by a fixed schedule that waits for no answer. A node that serves a caller
//! more than it has room for should go on as fast as it did: the callers wait for each other. One that ends an idle sandbox
//! of one function to start one of another instead spends its processors on starts, and its throughput collapses.

mod caller;
mod cell;
mod measure;
mod nodes;
mod requests;
mod schedule;
mod summary;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::time::Duration;

use clap::Args;
use nigh_node::local_cluster::find_nats_server;
use serde::{Deserialize, Serialize};

use self::cell::{BOOKED, Cell};
use super::RatioTarget;
use crate::LabError;
use crate::instrument::kept_progress::KeptProgress;
use crate::instrument::machine::Machine;
use crate::instrument::peer::installed::cache_folder;
use crate::instrument::progress;
use crate::instrument::table::table_of;

/// A handler waits, and then computes, for so long: 20 ms, as a function has that calls a service and works on the answer.
/// A handler that only slept would leave the processors to the starts of sandboxes, which then cost nobody anything; one
/// that only computed would be bound by the processors with a caller for each.
const SLEEP_MS: u64 = 10;
const COMPUTE_MS: u64 = 10;
const SECONDS: f64 = 10.0;
const QUICK_SECONDS: f64 = 6.0;

/// What the figures are.
pub(super) const HELP: &str = "\
Examples:
  nigh bench contention --quick                     one node with room for 8 sandboxes
  nigh bench contention --cell 1,4GiB,8,64,mixed    only this cell
  nigh bench contention --nodes 3                   only clusters; needs nats-server (`make peers`)

Every function books 256 MiB and runs for 20 ms, 10 of them on a processor. Caller i invokes
function i % functions; in a cell that is mixed, a function that is drawn anew for each call.
Calls are due by a schedule that waits for no answer; latency is told from when a call was sent,
and from when it was due. A call that is refused (429) is no answer and no failure.

worst_share_of_best
  The least throughput of a cell over the best of those that differ from it in callers only, two
  or more; or over what its callers offer, if that is less. Asked: at least 0.9.
cold_per_invocation_below_room
  Starts of sandboxes in the measured phase over answers in it: the most of all cells in which
  each caller can have a sandbox of its own. Asked: at most 0.01.
cold_per_invocation
  The same, the most of all cells.";

/// What `nigh bench contention` takes.
#[derive(Clone, Debug, Args)]
pub(super) struct ContentionArgs {
    /// Measured seconds of each cell [default: 10; 6 with --quick]
    #[arg(long, value_parser = seconds(0.1))]
    seconds: Option<f64>,
    /// Seconds of load before those; a cell of more than 12 sandboxes has 0.25 for each of them
    #[arg(long, default_value = "3", value_parser = seconds(0.0))]
    warmup: f64,
    /// Milliseconds between calls of one caller; 25 nearly fill a sandbox
    #[arg(long, default_value_t = 25, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    period: u64,
    /// Only this cell: memory of each node, callers that keep to a function or are mixed; may be given often
    #[arg(long, value_name = "NODES,MEMORY,FUNCTIONS,CALLERS[,mixed]", conflicts_with = "quick")]
    cell: Vec<Cell>,
    /// One node with room for 8 sandboxes: 3 functions, 3 to 64 callers
    #[arg(long)]
    quick: bool,
    /// Only cells of so many nodes: 1 or 3
    #[arg(long, value_parser = clap::value_parser!(u8).range(1..=3))]
    nodes: Option<u8>,
    /// Keeps what is done in this file, so that a run that is cut off goes on [default for the whole grid: in the cache]
    #[arg(long, value_name = "FILE")]
    progress: Option<PathBuf>,
}

/// The longest that a phase may be told to last.
const SECONDS_MAX: f64 = 3600.0;

/// Reads seconds of at least `min`.
fn seconds(min: f64) -> impl Fn(&str) -> Result<f64, String> + Clone + Send + Sync + 'static {
    move |text| match text.parse::<f64>() {
        Ok(seconds) if (min..=SECONDS_MAX).contains(&seconds) => Ok(seconds),
        _ => Err(format!("expected seconds, {min} to {SECONDS_MAX}")),
    }
}

/// What decides the outcome of a cell, beside the cell.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Settings {
    /// Measured seconds of each cell.
    seconds: f64,
    /// Seconds of load before them, at least.
    warmup_s: f64,
    /// Milliseconds from when a call of a caller is due to when its next one is.
    period_ms: u64,
    /// What each function books, MiB.
    booked_mib: u64,
    /// What each invocation sleeps, and then computes, milliseconds.
    sleep_ms: u64,
    compute_ms: u64,
}

/// One cell's figures.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Row {
    #[serde(flatten)]
    cell: Cell,
    /// True if each caller can have a sandbox of its own.
    has_room_for_all: bool,
    /// Who made the sandboxes.
    engine: String,
    /// The load before the measured phase, seconds.
    warmup_s: f64,
    /// Calls that are due a second.
    offered_per_s: f64,
    /// These, over those that the machine's processors could compute if nothing else cost any time.
    offered_over_machine: f64,
    /// Invocations answered in the measured phase, a second. Refused and failed ones are none.
    throughput_per_s: f64,
    /// `throughput_per_s` over the best of the group or, if that is less, over `offered_per_s`; not of a single caller.
    share_of_best: Option<f64>,
    /// Latency of the answered calls that were sent in the measured phase, from when they were sent.
    p50_ms: Option<f64>,
    p99_ms: Option<f64>,
    /// The same calls, from when they were due. Where more is offered than the node can do, it grows with the phase.
    due_p50_ms: Option<f64>,
    due_p99_ms: Option<f64>,
    /// Invocations answered in the measured phase.
    answered: u64,
    /// Calls refused in the measured phase: 429.
    refused: u64,
    /// Calls that failed otherwise, in the warm-up too.
    failed: u64,
    /// Why the first of them did.
    #[serde(skip_serializing_if = "Option::is_none")]
    first_failure: Option<String>,
    /// Callers without an answer in the measured phase.
    callers_unanswered: u64,
    /// Starts of sandboxes from the beginning of the cell to the end of the measured phase.
    starts: u64,
    /// Those that were the first of their function: functions with an answer.
    starts_first: u64,
    /// Those in the measured phase.
    starts_measured: u64,
    /// `starts_measured` over `answered`, or over 1 if there was no answer.
    cold_per_invocation: f64,
    /// Processor time of the nodes in the measured phase, without their sandboxes: share of all processors.
    node_cpu_share: f64,
    /// The same of the callers.
    client_cpu_share: f64,
}

/// What was not measured.
#[derive(Debug, Serialize)]
struct SkippedCells {
    cells: Vec<String>,
    why: String,
}

/// What the bench measures.
#[derive(Debug, Serialize)]
pub(super) struct ContentionReport {
    machine: Machine,
    settings: Settings,
    rows: Vec<Row>,
    #[serde(skip_serializing_if = "Option::is_none")]
    skipped: Option<SkippedCells>,
    /// `worst_share_of_best`: the least `share_of_best`. `cold_per_invocation_below_room`: the most of the rows in which
    /// each caller can have a sandbox; `cold_per_invocation`: of all rows.
    summary: BTreeMap<&'static str, f64>,
    /// What is asked of figures of the summary.
    asked: BTreeMap<&'static str, RatioTarget>,
}

/// The module of every function.
fn handler() -> String {
    let [sleep, compute] = [SLEEP_MS, COMPUTE_MS].map(|ms| ms as f64 / 1e3);
    format!(
        "import time\n\n\
         def handler(event, context):\n    \
             time.sleep({sleep})\n    \
             end = time.process_time() + {compute}\n    \
             while time.process_time() < end:\n        \
                 pass\n    \
             return event\n"
    )
}

impl ContentionArgs {
    fn settings(&self) -> Settings {
        Settings {
            seconds: self.seconds.unwrap_or(if self.quick { QUICK_SECONDS } else { SECONDS }),
            warmup_s: self.warmup,
            period_ms: self.period,
            booked_mib: BOOKED.bytes() >> 20,
            sleep_ms: SLEEP_MS,
            compute_ms: COMPUTE_MS,
        }
    }

    /// The cells that are asked for, each once, in the order in which they are measured.
    fn cells(&self) -> Vec<Cell> {
        let mut cells = Vec::new();
        let all = match (self.quick, self.cell.is_empty()) {
            (true, _) => cell::quick(),
            (false, true) => cell::grid(),
            (false, false) => self.cell.clone(),
        };
        for cell in all {
            if self.nodes.is_none_or(|nodes| nodes == cell.nodes) && !cells.contains(&cell) {
                cells.push(cell);
            }
        }
        cells
    }

    fn kept(&self, settings: &Settings) -> Result<Option<KeptProgress<Settings, Row>>, LabError> {
        let is_long = !self.quick && self.cell.is_empty();
        let usual = || is_long.then(|| cache_folder().with_file_name("bench-contention.state"));
        let Some(path) = self.progress.clone().or_else(usual) else { return Ok(None) };
        KeptProgress::open(&path, settings.clone()).map(Some)
    }
}

pub(super) async fn run(args: &ContentionArgs, machine: Machine) -> Result<ContentionReport, LabError> {
    let settings = args.settings();
    let has_cluster = find_nats_server().is_some();
    let (cells, left_out): (Vec<Cell>, Vec<Cell>) =
        args.cells().into_iter().partition(|cell| cell.nodes == 1 || has_cluster);
    let skipped = (!left_out.is_empty()).then(|| SkippedCells {
        cells: left_out.iter().map(Cell::to_string).collect(),
        why: nodes::no_nats_server().to_string(),
    });
    if cells.is_empty() {
        let nothing = LabError::Request { what: "--nodes".to_owned(), reason: "no cell has so many".to_owned() };
        return Err(if skipped.is_some() { nodes::no_nats_server() } else { nothing });
    }
    let kept = args.kept(&settings)?;
    let progress = progress::bar(cells.len() as u64);
    progress.enable_steady_tick(Duration::from_millis(500));
    let stop = progress::stop_on_interrupt();
    let mut rows = Vec::new();
    for cell in &cells {
        let name = cell.to_string();
        progress.set_message(format!("nodes, memory, functions, callers: {name}"));
        let row = match kept.as_ref().and_then(|kept| kept.done(&name)) {
            Some(done) => done,
            None => {
                let row = Box::pin(measure::measure(cell, &settings, machine.cores, &stop)).await;
                if stop.load(Ordering::Relaxed) {
                    let kept = if kept.is_some() {
                        "the same command goes on behind the last cell"
                    } else {
                        "nothing is kept"
                    };
                    return Err(LabError::Interrupted { kept });
                }
                let row = row?;
                kept.as_ref().map_or(Ok(()), |kept| kept.add(&name, &row))?;
                row
            }
        };
        rows.push(row);
        progress.inc(1);
    }
    progress.finish_and_clear();
    kept.map_or(Ok(()), KeptProgress::finish)?;
    let shares = summary::shares_of_best(&rows);
    rows.iter_mut().zip(shares).for_each(|(row, share)| row.share_of_best = share);
    let summary = summary::summary(&rows);
    Ok(ContentionReport { machine, settings, rows, skipped, summary, asked: summary::asked() })
}

/// The report for people.
pub(super) fn text(report: &ContentionReport) -> String {
    let mut table = table_of(
        "nodes | memory | functions | callers | functions are | 1/s | of best | p50 ms | p99 ms | due p50 | due p99 | refused | failed | starts | first | measured | a call | node cpu",
    );
    let number =
        |value: Option<f64>, digits: usize| value.map_or_else(String::new, |value| format!("{value:.digits$}"));
    for row in &report.rows {
        table.add_row([
            row.cell.nodes.to_string(),
            row.cell.memory.to_string(),
            row.cell.functions.to_string(),
            row.cell.callers.to_string(),
            (if row.cell.mixed { "drawn" } else { "a caller's own" }).to_owned(),
            format!("{:.1}", row.throughput_per_s),
            number(row.share_of_best, 2),
            number(row.p50_ms, 1),
            number(row.p99_ms, 1),
            number(row.due_p50_ms, 0),
            number(row.due_p99_ms, 0),
            row.refused.to_string(),
            row.failed.to_string(),
            row.starts.to_string(),
            row.starts_first.to_string(),
            row.starts_measured.to_string(),
            format!("{:.3}", row.cold_per_invocation),
            format!("{:.2}", row.node_cpu_share),
        ]);
    }
    let failures =
        report.rows.iter().filter_map(|row| Some(format!("{}: {}\n", row.cell, row.first_failure.as_ref()?)));
    let skipped = report.skipped.iter().map(|left| format!("left out: {}: {}\n", left.cells.join("  "), left.why));
    let figures = report.summary.iter().map(|(name, figure)| {
        let asked = report.asked.get(name).map(RatioTarget::to_string).unwrap_or_default();
        format!("{name}: {figure:.3} {asked}\n")
    });
    let said: String = failures.chain(skipped).chain(figures).collect();
    let engine = report.rows.first().map_or("", |row| row.engine.as_str());
    let machine = &report.machine;
    format!(
        "{table}\n{said}sandboxes by {engine}; {} x {}, load {}, Linux {}, {}",
        machine.cores, machine.cpu, machine.load, machine.kernel, machine.date
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_that_is_kept_is_read_again_with_answers_and_without() {
        let cell: Cell = "3,2GiB,8,64,mixed".parse().unwrap();
        for p50_ms in [None, Some(1.5)] {
            let row = Row { p50_ms, engine: "runc".to_owned(), starts: 7, ..Row::unmeasured(cell) };
            let kept: Row = serde_json::from_str(&serde_json::to_string(&row).unwrap()).unwrap();
            assert_eq!((kept.cell, kept.p50_ms, kept.starts, kept.first_failure), (cell, p50_ms, 7, None));
        }
    }

    #[test]
    fn cells_are_measured_once_each_and_only_those_of_so_many_nodes() {
        let [one, three] = ["1,2GiB,3,8", "3,2GiB,3,8"].map(|text| text.parse::<Cell>().unwrap());
        let args = ContentionArgs {
            seconds: None,
            warmup: 3.0,
            period: 25,
            cell: vec![one, three, one],
            quick: false,
            nodes: None,
            progress: None,
        };
        assert_eq!(args.cells(), [one, three]);
        assert_eq!(ContentionArgs { nodes: Some(3), ..args.clone() }.cells(), [three]);
        let quick = ContentionArgs { cell: Vec::new(), quick: true, ..args.clone() };
        assert_eq!((quick.cells(), quick.settings().seconds), (cell::quick(), QUICK_SECONDS));
        assert_eq!((args.settings().seconds, args.kept(&args.settings()).unwrap().is_none()), (SECONDS, true));
    }
}
