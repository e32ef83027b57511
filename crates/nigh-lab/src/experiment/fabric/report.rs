//! The report: what the command prints, and its tables.

use nigh_sim::fabric::{Hardware, System};
use serde::Serialize;
use serde_json::{Value, json};

use super::speedups::{GeomeanRow, SpeedupRow};
use super::{QUICK_RUNS, QUICK_SCALES, RUNS, SCALES, SEED};
use super::{consistency, paper, robustness, speedups, stores, sweeps};
use crate::instrument::machine::Machine;
use crate::instrument::table::grid;
use crate::instrument::template::{Columns, fill};

#[derive(Clone, Debug, Serialize)]
pub(super) struct FabricReport {
    pub(super) machine: Machine,
    pub(super) quick: bool,
    /// The figures that have targets.
    pub(super) summary: Value,
    pub(super) geomean: Vec<GeomeanRow>,
    pub(super) rows: Vec<SpeedupRow>,
    pub(super) compute: Vec<Value>,
    pub(super) blind: Vec<Value>,
    /// What the paper's own figures leave open.
    pub(super) paper_consistency: Vec<Value>,
    pub(super) communication_mean: Vec<Value>,
    pub(super) communication: Vec<Value>,
    pub(super) by_bandwidth: Vec<Value>,
    pub(super) by_latency: Vec<Value>,
    pub(super) by_size: Vec<Value>,
    pub(super) by_sharers: Vec<Value>,
    pub(super) by_servers: Vec<Value>,
    pub(super) jitter_runs: u64,
    pub(super) jitter_mean: Vec<Value>,
    pub(super) jitter: Vec<Value>,
    pub(super) failures: Vec<Value>,
}

/// An error of this size and more is one too many for a single bar.
const BAR_ERROR_MOST: f64 = 0.25;

impl FabricReport {
    pub(super) fn make(machine: Machine, quick: bool) -> Self {
        let hardware = &Hardware::APTA;
        let (runs, scales) = if quick { (QUICK_RUNS, QUICK_SCALES) } else { (RUNS, SCALES) };
        let fitted = speedups::FittedWorkflow::all(hardware, scales);
        let rows = speedups::rows(&fitted, hardware);
        let geomean = speedups::geomeans(&rows);
        let communication = stores::shares(&fitted, hardware);
        let jitter = robustness::jitter(&fitted, hardware, runs, SEED);
        let jitter_mean = robustness::jitter_means(&jitter, paper::DEVIATION_OVER_CACHED);
        let lines_over_objects = sweeps::lines_over_objects(&fitted, hardware);
        Self {
            machine,
            quick,
            summary: summary(&rows, &geomean, &jitter_mean, lines_over_objects),
            compute: speedups::compute(&fitted, hardware),
            blind: speedups::blind(&fitted, hardware),
            paper_consistency: consistency::rows(),
            communication_mean: stores::means(&communication),
            communication,
            by_bandwidth: sweeps::by_bandwidth(&fitted, hardware),
            by_latency: sweeps::by_latency(&fitted, hardware),
            by_size: sweeps::by_size(hardware),
            by_sharers: sweeps::by_sharers(hardware),
            by_servers: sweeps::by_servers(hardware),
            jitter_runs: runs,
            jitter_mean,
            jitter,
            failures: robustness::failures(hardware),
            geomean,
            rows,
        }
    }
}

fn summary(
    rows: &[SpeedupRow],
    geomean: &[GeomeanRow],
    jitter: &[Value],
    [get_by_lines, put_by_lines]: [f64; 2],
) -> Value {
    let most = |errors: &mut dyn Iterator<Item = f64>| errors.map(f64::abs).fold(0.0, f64::max);
    let mean = |system: System| {
        geomean.iter().find(|row| row.configuration == system.name()).map_or(f64::NAN, |row| row.speedup)
    };
    let deviation = |varying: &str| {
        let mean = jitter.iter().find(|mean| mean["varying"] == varying);
        mean.and_then(|mean| mean["nigh_over_cached"].as_f64()).unwrap_or(f64::NAN)
    };
    let beyond = |row: &&SpeedupRow| row.held_out_error.is_some_and(|error| error.abs() > BAR_ERROR_MOST);
    json!({
        // The largest error, in size, of a geometric mean of figure 8; the target is 0.10. Then the largest held out.
        "geomean_error_most": most(&mut geomean.iter().filter_map(|row| row.error)),
        "geomean_held_out_error_most": most(&mut geomean.iter().filter_map(|row| row.held_out_error)),
        // How many of figure 8's 30 bars are off by more than 0.25, held out; the target is none, or explained.
        "bars_beyond_a_quarter": rows.iter().filter(beyond).count(),
        "apta_over_cached": mean(System::Apta) / mean(System::CxlCached),
        "apta_over_cached_paper": paper::APTA_OVER_CACHED,
        // The cost of our messages.
        "nigh_over_apta": mean(System::Nigh) / mean(System::Apta),
        "get_by_lines_over_objects": get_by_lines,
        "get_by_lines_over_objects_paper": paper::LINES_OVER_OBJECTS[0],
        "put_by_lines_over_objects": put_by_lines,
        "put_by_lines_over_objects_paper": paper::LINES_OVER_OBJECTS[1],
        // Nigh's standard deviation over CXL's with copies; the target is 0.68 at most. The paper does not tell which of two
        // readings is its own: each message's latency varies, or the pace of streams too, as in the published simulator.
        "nigh_deviation_over_cached_messages": deviation(robustness::MESSAGES),
        "nigh_deviation_over_cached_streams": deviation(robustness::STREAMS),
    })
}

const HELD_OUT: Columns = Columns(
    "configuration | geomean = {speedup:.3} | paper = {paper:.3} | error = {error:+%.1} | held out = {held_out_error:+%.1} | \
     four tests, held out = {test_error:+%.1}",
);
const FAILURES: Columns = Columns(
    "1 MiB, us = {configuration} | put = {put_us:.1} | sharer dead = {put_with_dead_sharer_us:.1|never} | \
     two puts = {two_puts_us:.1} | sharer dead = {two_puts_with_dead_sharer_us:.1|never}",
);
const SUMMARY: &str = "Held out: computing fitted without the configuration that is judged. {bars_beyond_a_quarter} of 30 bars are \
    off by more than a quarter.\nApta over CXL cached {apta_over_cached:.3} (paper {apta_over_cached_paper:.2}); Nigh over Apta \
    {nigh_over_apta:.4}.\nBy lines over by objects: get {get_by_lines_over_objects:.2} (paper \
    {get_by_lines_over_objects_paper:.2}), put {put_by_lines_over_objects:.2} (paper {put_by_lines_over_objects_paper:.2}).";

impl FabricReport {
    /// Speed-ups by workflow, ours and the paper's: head, and a row a workflow, the geometric mean last.
    pub(super) fn speedups(&self) -> (Vec<String>, Vec<Vec<String>>) {
        let cell = |speedup: f64, paper: Option<f64>| {
            paper.map_or_else(
                || format!("{speedup:.2}"),
                |paper| format!("{speedup:.2} ({paper:.2}, {:+.1} %)", (speedup / paper - 1.0) * 100.0),
            )
        };
        let compared = &System::COMPARED[1..];
        let head = std::iter::once("workflow".to_owned()).chain(compared.iter().map(|one| one.name().to_owned()));
        let of = |workflow: &&str| {
            let rows = self.rows.iter().filter(|row| row.workflow == *workflow).skip(1);
            let cells = rows.map(|row| cell(row.speedup, row.paper));
            std::iter::once((*workflow).to_owned()).chain(cells).collect()
        };
        let means = self.geomean.iter().skip(1).map(|row| cell(row.speedup, row.paper));
        let last = std::iter::once("geomean".to_owned()).chain(means).collect();
        (head.collect(), paper::WORKFLOWS.iter().map(of).chain(std::iter::once(last)).collect())
    }

    pub(super) fn text(&self) -> String {
        let (head, rows) = self.speedups();
        let speedups = grid(head, rows);
        let held_out: Vec<&GeomeanRow> = self.geomean.iter().filter(|row| row.paper.is_some()).collect();
        let share = |row: &Value| fill("{store} {mean:%}[ (paper {paper:%})]", row);
        let shares = self.communication_mean.iter().map(share).collect::<Vec<_>>().join(", ");
        let template = "{varying}: Apta {apta_over_cached:.3}, Nigh {nigh_over_cached:.3} (paper {paper:.2})";
        let jitter = |row: &Value| fill(template, row);
        let jitters = self.jitter_mean.iter().map(jitter).collect::<Vec<_>>().join("; ");
        format!(
            "Times faster than RDMA without copies (the paper's figure 8, error)\n{speedups}\n{}\n{}\nPart of a function's \
             time in gets and puts: {shares}.\nStandard deviation over CXL cached's, {} runs: {jitters}.\nA put beside a dead \
             sharer\n{}",
            HELD_OUT.text(&held_out),
            fill(SUMMARY, &self.summary),
            self.jitter_runs,
            FAILURES.text(&self.failures),
        )
    }
}
