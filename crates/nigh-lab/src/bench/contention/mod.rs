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

use clap::Args;
use nigh_node::local_cluster::find_nats_server;
use serde::{Deserialize, Serialize};

use self::cell::{BOOKED, Cell};
use super::RatioTarget;
use crate::LabError;
use crate::instrument::kept_progress::KeptProgress;
use crate::instrument::machine::Machine;
use crate::instrument::peer::installed::cache_folder;
use crate::instrument::progress::{self, unless_stopped};

/// A handler waits, and then computes, for so long: 20 ms, as a function has that calls a service and works on the answer.
/// A handler that only slept would leave the processors to the starts of sandboxes, which then cost nobody anything; one
/// that only computed would be bound by the processors with a caller for each.
const SLEEP_MS: u64 = 10;
const COMPUTE_MS: u64 = 10;
const SECONDS: f64 = 10.0;
const QUICK_SECONDS: f64 = 6.0;
/// Load before the measured seconds; a cell of more than 12 sandboxes has 0.25 s for each of them.
const WARMUP_S: f64 = 3.0;
/// Between calls of one caller: they nearly fill a sandbox.
const PERIOD_MS: u64 = 25;

pub(super) const HELP: &str = "\
Examples:
  nigh bench contention --quick                     one node with room for 8 sandboxes
  nigh bench contention --cell 1,4GiB,8,64,mixed    only this cell

Cells of three nodes need nats-server (`make peers`).

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

#[derive(Clone, Debug, Args)]
pub(super) struct ContentionArgs {
    /// How long each cell of the grid is measured, in seconds [default: 10; 6 with --quick]
    #[arg(long, value_parser = seconds)]
    seconds: Option<f64>,
    /// Only this cell of the grid; MEMORY is of each node; with `mixed`, a caller invokes all functions instead of one; may
    /// be repeated
    #[arg(long, value_name = "NODES,MEMORY,FUNCTIONS,CALLERS[,mixed]", conflicts_with = "quick")]
    cell: Vec<Cell>,
    /// Measure only one node with room for 8 sandboxes: 3 functions, 3 to 64 callers
    #[arg(long)]
    quick: bool,
    /// The progress file: stores finished parts, so that an interrupted run resumes [default for the whole grid: in the
    /// cache folder]
    #[arg(long, value_name = "FILE")]
    progress: Option<PathBuf>,
}

const SECONDS_MIN: f64 = 0.1;
const SECONDS_MAX: f64 = 3600.0;

fn seconds(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(seconds) if (SECONDS_MIN..=SECONDS_MAX).contains(&seconds) => Ok(seconds),
        _ => Err(format!("expected {SECONDS_MIN} to {SECONDS_MAX} seconds")),
    }
}

/// What decides the outcome of a cell, beside the cell.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Settings {
    seconds: f64,
    warmup_s: f64,
    /// Milliseconds from when a call of a caller is due to when its next one is.
    period_ms: u64,
    booked_mib: u64,
    sleep_ms: u64,
    compute_ms: u64,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Row {
    #[serde(flatten)]
    cell: Cell,
    has_room_for_all: bool,
    /// Who made the sandboxes.
    engine: String,
    warmup_s: f64,
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
    answered: u64,
    refused: u64,
    /// Calls that failed otherwise, in the warm-up too.
    failed: u64,
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
    client_cpu_share: f64,
}

#[derive(Debug, Serialize)]
struct SkippedCells {
    cells: Vec<String>,
    why: String,
}

#[derive(Debug, Serialize)]
pub(super) struct ContentionReport {
    machine: Machine,
    settings: Settings,
    rows: Vec<Row>,
    #[serde(skip_serializing_if = "Option::is_none")]
    skipped: Option<SkippedCells>,
    /// `--help` says what each figure is.
    summary: BTreeMap<&'static str, f64>,
    asked: BTreeMap<&'static str, RatioTarget>,
}

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
            warmup_s: WARMUP_S,
            period_ms: PERIOD_MS,
            booked_mib: BOOKED.bytes() >> 20,
            sleep_ms: SLEEP_MS,
            compute_ms: COMPUTE_MS,
        }
    }

    fn cells(&self) -> Vec<Cell> {
        let mut cells = Vec::new();
        let all = match (self.quick, self.cell.is_empty()) {
            (true, _) => cell::quick(),
            (false, true) => cell::grid(),
            (false, false) => self.cell.clone(),
        };
        for cell in all {
            if !cells.contains(&cell) {
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
        return Err(nodes::no_nats_server());
    }
    let kept = args.kept(&settings)?;
    let progress = progress::ticking_bar(cells.len() as u64, "");
    let stop = progress::stop_on_interrupt();
    let mut rows = Vec::new();
    for cell in &cells {
        let name = cell.to_string();
        progress.set_message(format!("nodes, memory, functions, callers: {name}"));
        let row = match kept.as_ref().and_then(|kept| kept.done(&name)) {
            Some(done) => done,
            None => {
                let row = Box::pin(measure::measure(cell, &settings, machine.cores, &stop)).await;
                let goes_on = "the same command goes on behind the last cell";
                unless_stopped(&stop, if kept.is_some() { goes_on } else { "nothing is kept" })?;
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
    fn cells_are_measured_once_each() {
        let [one, three] = ["1,2GiB,3,8", "3,2GiB,3,8"].map(|text| text.parse::<Cell>().unwrap());
        let args = ContentionArgs { seconds: None, cell: vec![one, three, one], quick: false, progress: None };
        assert_eq!(args.cells(), [one, three]);
        let quick = ContentionArgs { cell: Vec::new(), quick: true, ..args.clone() };
        assert_eq!((quick.cells(), quick.settings().seconds), (cell::quick(), QUICK_SECONDS));
        assert_eq!((args.settings().seconds, args.kept(&args.settings()).unwrap().is_none()), (SECONDS, true));
    }
}
