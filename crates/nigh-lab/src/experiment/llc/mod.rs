//! Experiments of the last-level cache: CASY's figures and tables, from recorded functions on a simulated machine.
//!
//! The simulator knows neither a prefetcher nor the kernel; what it and the recordings leave out is said beside each
//! figure.

mod chart;
mod contention;
mod paper;
mod prediction;
mod real_contention;
mod scenarios;
mod sensitivity;
pub(crate) mod sizing;
pub(crate) mod trace_library;
mod ways;

pub(crate) use self::contention::ContentionArgs;
pub(crate) use self::prediction::PredictionArgs;
pub(crate) use self::scenarios::ScenariosArgs;
pub(crate) use self::sensitivity::SensitivityArgs;
pub(crate) use self::ways::WaysArgs;

use serde::Serialize;

use crate::LabError;

/// Prints a report as JSON, or as what `text` makes of it with a line about the machine below.
#[expect(clippy::print_stdout, reason = "the report is the command's output")]
pub(crate) fn print_report(report: &impl Serialize, text: impl FnOnce() -> String, json: bool) -> Result<(), LabError> {
    if json {
        let text = serde_json::to_string_pretty(report).map_err(|error| LabError::file("report", &error))?;
        println!("{text}");
    } else {
        println!("{}", text());
    }
    Ok(())
}
