//! Where a report goes: standard output, as text or JSON, and a page in a file.

use std::path::Path;

use serde::Serialize;

use crate::LabError;
use crate::instrument::error::Tried;

/// Prints a report as JSON, or as what `text` makes of it.
#[expect(clippy::print_stdout, reason = "the report is the command's output")]
pub(crate) fn print_report(report: &impl Serialize, text: impl FnOnce() -> String, json: bool) -> Result<(), LabError> {
    if json {
        let text = serde_json::to_string_pretty(report).at("report")?;
        println!("{text}");
    } else {
        println!("{}", text());
    }
    Ok(())
}

/// Writes a page.
pub(crate) fn write_page(path: &Path, page: &str) -> Result<(), LabError> {
    std::fs::write(path, page).at(path)
}

/// Writes the page of a report, if one is wanted, and prints the report.
pub(crate) fn publish<R: Serialize>(
    report: &R,
    html: Option<&Path>,
    page: fn(&R) -> Result<String, LabError>,
    text: fn(&R) -> String,
    json: bool,
) -> Result<(), LabError> {
    if let Some(path) = html {
        write_page(path, &page(report)?)?;
    }
    print_report(report, || text(report), json)
}
