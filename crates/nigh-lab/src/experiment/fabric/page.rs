//! The report as a page: figure 8 beside the paper's, figure 9, the sweeps and the jitter.

use nigh_sim::fabric::System;
use serde_json::Value;

use super::paper;
use super::report::FabricReport;
use super::robustness::{MESSAGES, STREAMS};
use crate::LabError;
use crate::instrument::chart::{self, Series};

const ABOUT: &str = "Six workflows on three compute servers and a memory server, simulated: Apta's timing study (DSN 2023) \
                     with Nigh's protocol beside it. Computing is fitted, one number a workflow; nothing else is fitted \
                     to these bars (docs/design/fabric.md).";

pub(super) fn page(report: &FabricReport) -> Result<String, LabError> {
    let (head, rows) = report.speedups();
    let head: Vec<&str> = head.iter().map(String::as_str).collect();
    let figures = [
        ("Times faster than RDMA without copies, by workflow", speedups(report)?),
        ("Geometric means: ours, held out, the paper's", geomeans(report)?),
        ("Gets and puts over RDMA's: Apta, ours and figure 9's", operations(report)?),
        ("A get that finds no copy, by bytes (powers of ten), microseconds (powers of ten)", sizes(report)?),
        ("Servers that read 1 MiB each at once", servers(report)?),
        ("Standard deviation under jitter over CXL's with copies", jitter(report)?),
    ];
    let figures: String = figures.iter().map(|(caption, svg)| chart::figure(caption, svg)).collect();
    let body = chart::table(&head, &rows) + &figures;
    Ok(chart::page("The fabric", ABOUT, &body, &report.machine))
}

fn speedups(report: &FabricReport) -> Result<String, LabError> {
    let groups = paper::WORKFLOWS.map(str::to_owned);
    let series: Vec<Series> = System::COMPARED[1..]
        .iter()
        .map(|system| {
            let rows = report.rows.iter().filter(|row| row.configuration == system.name());
            Series::of_groups(system.name(), rows.map(|row| row.speedup))
        })
        .collect();
    chart::bars(&groups, &series, "times faster")
}

fn geomeans(report: &FabricReport) -> Result<String, LabError> {
    let rows = || report.geomean.iter().filter(|row| row.paper.is_some());
    let groups: Vec<String> = rows().map(|row| row.configuration.to_owned()).collect();
    let series = [
        Series::of_groups("ours", rows().map(|row| row.speedup)),
        Series::of_groups("held out", rows().filter_map(|row| row.held_out)),
        Series::of_groups("paper", rows().filter_map(|row| row.paper)),
    ];
    chart::bars(&groups, &series, "times faster")
}

fn operations(report: &FabricReport) -> Result<String, LabError> {
    let rows = || report.rows.iter().filter(|row| row.configuration == System::Apta.name());
    let series = [
        Series::of_groups("gets", rows().map(|row| row.gets)),
        Series::of_groups("gets, paper", rows().filter_map(|row| row.gets_paper)),
        Series::of_groups("puts", rows().map(|row| row.puts)),
        Series::of_groups("puts, paper", rows().filter_map(|row| row.puts_paper)),
    ];
    chart::bars(&paper::WORKFLOWS.map(str::to_owned), &series, "over RDMA")
}

fn sizes(report: &FabricReport) -> Result<String, LabError> {
    let systems = [System::Rdma, System::FastRdmaFaast, System::CxlUncached, System::Apta, System::Nigh];
    let series = systems.map(|system| of_rows(&report.by_size, system, "bytes", "get_us", f64::log10));
    chart::lines(&series, "bytes", "us")
}

fn servers(report: &FabricReport) -> Result<String, LabError> {
    let systems = [System::Rdma, System::CxlUncached, System::Apta, System::Nigh];
    let series = systems.map(|system| of_rows(&report.by_servers, system, "servers", "gigabytes_per_second", |x| x));
    chart::lines(&series, "servers", "GB/s in all")
}

/// The line of a configuration's rows, each coordinate on the scale of `place`.
fn of_rows(rows: &[Value], system: System, x: &str, y: &str, place: fn(f64) -> f64) -> Series {
    let rows = rows.iter().filter(|row| row["configuration"] == system.name());
    let values = rows.filter_map(|row| Some((place(row[x].as_f64()?), place(row[y].as_f64()?)))).collect();
    Series { name: system.name().to_owned(), values }
}

fn jitter(report: &FabricReport) -> Result<String, LabError> {
    let mut series = Vec::new();
    for kind in [MESSAGES, STREAMS] {
        for (name, field) in [("Apta", "apta_over_cached"), ("Nigh", "nigh_over_cached")] {
            let rows = report.jitter.iter().filter(|row| row["varying"] == kind);
            let values = rows.map(|row| row[field].as_f64().unwrap_or(f64::NAN));
            series.push(Series::of_groups(format!("{name}, {kind}"), values));
        }
    }
    chart::bars(&paper::WORKFLOWS.map(str::to_owned), &series, "over CXL cached")
}
