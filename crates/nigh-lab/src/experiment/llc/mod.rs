//! Experiments of the last-level cache: CASY's figures and tables, from recorded functions on a simulated machine.
//!
//! The simulator knows neither a prefetcher nor the kernel. Each module says what its figure leaves out.

mod contention;
mod paper;
mod prediction;
mod real_contention;
mod scenarios;
mod sensitivity;
mod ways;

use std::path::PathBuf;

use clap::Args;

pub(crate) use self::contention::ContentionArgs;
pub(crate) use self::scenarios::ScenariosArgs;
use crate::LabError;
use crate::instrument::chart::{self, Series};
use crate::instrument::trace_library::TraceLibrary;

#[derive(Clone, Debug, Default, Args)]
pub(crate) struct PageArgs {
    /// Write the report as a page to this file
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

/// Options of an experiment with a short form.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct WaysArgs {
    /// Only inputs whose runs were recorded from start to end, which are small
    #[arg(long)]
    quick: bool,
    #[command(flatten)]
    page: PageArgs,
}

pub(crate) use self::prediction::run as run_prediction;
pub(crate) use self::sensitivity::run as run_sensitivity;
pub(crate) use self::ways::run as run_ways;

fn failed(what: &str, reason: &dyn std::fmt::Display) -> LabError {
    LabError::Simulation { what: what.to_owned(), reason: reason.to_string() }
}

fn traces() -> Result<TraceLibrary, LabError> {
    TraceLibrary::open(&from_project("data/llc-traces"))
}

/// A path in the project: commands are given in its folder, tests run in the crate's.
fn from_project(path: &str) -> PathBuf {
    PathBuf::from(if cfg!(test) { "../.." } else { "." }).join(path)
}

/// A bar's name and its height in a row.
type Bar<R> = (&'static str, fn(&R) -> f64);

/// A figure of bars for each of the paper's functions that has rows: a group for each row, a bar for each series.
fn bars_by_function<R>(
    rows: &[R],
    named: impl Fn(&R) -> (String, String),
    series: &[Bar<R>],
    y_name: &str,
) -> Result<String, LabError> {
    let mut figures = String::new();
    for function in paper::FUNCTIONS {
        let rows: Vec<&R> = rows.iter().filter(|row| named(row).0 == function).collect();
        if !rows.is_empty() {
            let groups: Vec<String> = rows.iter().map(|row| named(row).1).collect();
            let bars = series.iter().map(|(name, value)| Series::of_groups(*name, rows.iter().map(|row| value(row))));
            figures += &chart::figure(function, &chart::bars(&groups, &bars.collect::<Vec<_>>(), y_name)?);
        }
    }
    Ok(figures)
}
