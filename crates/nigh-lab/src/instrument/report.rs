//! Where a report goes: standard output, as text or JSON, and a page in a file.

use std::path::Path;

use serde::Serialize;

use crate::LabError;

/// Prints a report as JSON, or as what `text` makes of it.
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

/// Writes a page.
pub(crate) fn write_page(path: &Path, page: &str) -> Result<(), LabError> {
    std::fs::write(path, page).map_err(|error| LabError::file(path, &error))
}
