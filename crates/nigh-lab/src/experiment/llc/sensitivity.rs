//! `nigh experiment llc-sensitivity`: CASY's figure 2. The time of each recorded input by the ways it has, alone and warm,
//! over its time with all; priced from the exact counts of `curves.csv`.

use std::path::PathBuf;

use clap::Args;
use nigh_sim::llc::CoreTiming;
use nigh_terms::Ways;
use serde::Serialize;

use super::paper;
use crate::LabError;
use crate::instrument::cache_sizing;
use crate::instrument::chart::{self, Series};
use crate::instrument::machine::Machine;
use crate::instrument::report::publish;
use crate::instrument::table::grid;
use crate::instrument::trace_library::{CURVE_WAYS, Role, TraceLibrary};

/// What `nigh experiment llc-sensitivity` takes.
#[derive(Clone, Debug, Args)]
pub(crate) struct SensitivityArgs {
    /// The folder of the recorded traces
    #[arg(long, default_value = "data/llc-traces")]
    traces: PathBuf,
    /// Writes the report as a page
    #[arg(long)]
    html: Option<PathBuf>,
}

#[derive(Debug, Serialize)]
struct Row {
    input: String,
    function: String,
    bytes: u64,
    /// Seconds of the whole run with all ways; of a recorded stretch, scaled by its share.
    seconds: f64,
    /// Time with 1, 2, ... ways over time with all.
    slowdown: Vec<f64>,
}

#[derive(Debug, Serialize)]
struct SensitivityReport {
    machine: Machine,
    rows: Vec<Row>,
    /// What the paper's section III says of its figure 2, which prints no numbers.
    paper: [(&'static str, &'static str); 4],
}

const PAPER: [(&str, &str); 4] = [
    ("effect", "insensitive at every size"),
    ("blur", "sensitive at 1.4 MB, less so the smaller the input"),
    ("speech", "sensitive at every size"),
    ("resize", "insensitive at every size"),
];

impl SensitivityArgs {
    pub(crate) fn run(self, machine: Machine, json: bool) -> Result<(), LabError> {
        let html = self.html.clone();
        publish(&self.report(machine)?, html.as_deref(), page, text, json)
    }

    fn report(self, machine: Machine) -> Result<SensitivityReport, LabError> {
        let library = TraceLibrary::open(&self.traces)?;
        let inputs = paper::FUNCTIONS.into_iter().flat_map(|function| library.of(function, Role::Table));
        let rows = inputs.map(|input| {
            let times = cache_sizing::counted_curves(input, &CoreTiming::CASCADE_LAKE)?.times;
            Ok(Row {
                input: input.name.clone(),
                function: input.function.clone(),
                bytes: input.size.bytes(),
                seconds: times.best().as_secs_f64() / input.share(),
                slowdown: (1..=CURVE_WAYS.0).map(|ways| times.slowdown(Ways(ways))).collect(),
            })
        });
        Ok(SensitivityReport { machine, rows: rows.collect::<Result<_, LabError>>()?, paper: PAPER })
    }
}

fn cells(row: &Row) -> Vec<String> {
    let slowdowns = row.slowdown.iter().map(|slowdown| format!("{slowdown:.3}"));
    [row.input.clone(), format!("{:.2}", row.seconds)].into_iter().chain(slowdowns).collect()
}

fn head() -> Vec<String> {
    ["input".to_owned(), "s with all".to_owned()]
        .into_iter()
        .chain((1..=CURVE_WAYS.0).map(|ways| ways.to_string()))
        .collect()
}

fn text(report: &SensitivityReport) -> String {
    let table = grid(head(), report.rows.iter().map(cells));
    let paper = report.paper.map(|(function, said)| format!("{function}: {said}")).join("; ");
    format!("{table}\nTime by ways over time with all. The paper's figure 2 in words: {paper}.\n")
}

fn page(report: &SensitivityReport) -> Result<String, LabError> {
    let mut body = String::new();
    for (function, said) in report.paper {
        let rows = report.rows.iter().filter(|row| row.function == function);
        let series: Vec<_> = rows
            .map(|row| Series {
                name: row.input.clone(),
                values: row.slowdown.iter().enumerate().map(|(at, &slowdown)| (at as f64 + 1.0, slowdown)).collect(),
            })
            .collect();
        if !series.is_empty() {
            let caption = format!("{function} (the paper: {said})");
            body += &chart::figure(&caption, &chart::lines(&series, "ways", "time over time with all")?);
        }
    }
    let head = head();
    let head: Vec<&str> = head.iter().map(String::as_str).collect();
    body += &chart::table(&head, &report.rows.iter().map(cells).collect::<Vec<_>>());
    let about = "CASY's figure 2 on a simulated Xeon Silver 4210R: each function alone and warm, by the ways it has.";
    Ok(chart::page("Time by ways", about, &body, &report.machine))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn speech_is_the_most_sensitive_and_effect_not_at_all() {
        let traces = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../data/llc-traces");
        let report =
            SensitivityArgs { traces, html: None }.report(Machine::read("llc-sensitivity".to_owned())).unwrap();
        let worst = |function: &str| {
            let rows = report.rows.iter().filter(|row| row.function == function);
            rows.map(|row| row.slowdown[0]).fold(0.0, f64::max)
        };
        assert!(worst("speech") > 2.0 && worst("effect") < 1.01 && worst("blur") > 1.05);
        assert!(report.rows.iter().all(|row| row.slowdown[10] == 1.0 && row.seconds > 0.0));
        assert!(page(&report).unwrap().matches("<svg").count() == 4);
        assert!(text(&report).contains("figure 2"));
    }
}
