//! `nigh experiment llc-sensitivity`: CASY's figure 2. The time of each recorded input by the ways it has, alone and warm,
//! over its time with all; priced from the exact counts of `curves.csv`.

use nigh_sim::llc::CoreTiming;
use nigh_terms::Ways;
use serde::Serialize;

use super::{PageArgs, paper, traces};
use crate::LabError;
use crate::instrument::cache_sizing;
use crate::instrument::chart::{self, Series};
use crate::instrument::machine::Machine;
use crate::instrument::report_text::{html_of, tell_with_page};
use crate::instrument::trace_library::{CURVE_WAYS, Role};

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

pub(crate) fn run(args: &PageArgs, machine: Machine, json: bool) -> Result<(), LabError> {
    tell_with_page(&report(machine)?, args.html.as_deref(), page, json)
}

fn report(machine: Machine) -> Result<SensitivityReport, LabError> {
    let library = traces()?;
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
    body += &html_of(report)?;
    let about = "CASY's figure 2 on a simulated Xeon Silver 4210R: each function alone and warm, by the ways it has.";
    Ok(chart::page("Time by ways", about, &body, &report.machine))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn speech_is_the_most_sensitive_and_effect_not_at_all() {
        let report = report(Machine::read("llc-sensitivity".to_owned())).unwrap();
        let worst = |function: &str| {
            let rows = report.rows.iter().filter(|row| row.function == function);
            rows.map(|row| row.slowdown[0]).fold(0.0, f64::max)
        };
        assert!(worst("speech") > 2.0 && worst("effect") < 1.01 && worst("blur") > 1.05);
        assert!(report.rows.iter().all(|row| row.slowdown[10] == 1.0 && row.seconds > 0.0));
        assert!(page(&report).unwrap().matches("<svg").count() == 4);
    }
}
