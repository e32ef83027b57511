//! Prints a report to standard output, as text or JSON, and writes its page to a file.

use std::path::{Path, PathBuf};

use clap::Args;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::LabError;
use crate::instrument::error::Tried;
use crate::instrument::kept_progress::KeptProgress;

/// Files that a long experiment writes.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct OutputArgs {
    /// Write the page with the charts to this file
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<PathBuf>,
    /// The progress file: stores finished parts, so that an interrupted run resumes [default: beside the page of --html, if
    /// that is given]
    #[arg(long, value_name = "FILE")]
    progress: Option<PathBuf>,
}

impl OutputArgs {
    /// The finished parts of an earlier run that was asked the same.
    pub(crate) fn kept<Q, T>(&self, asked: Q) -> Result<KeptProgress<Q, T>, LabError>
    where
        Q: PartialEq + Serialize + DeserializeOwned,
        T: Clone + Serialize + DeserializeOwned,
    {
        let beside_the_page = || Some(self.html.as_ref()?.with_extension("state"));
        KeptProgress::open_if(self.progress.clone().or_else(beside_the_page).as_deref(), asked)
    }
}

/// The name that results have for a value: that of a variant without fields.
pub(crate) fn name_of(value: &impl Serialize) -> String {
    let name = serde_json::to_value(value).ok();
    name.and_then(|name| name.as_str().map(str::to_owned)).unwrap_or_default()
}

/// Prints a report as JSON, or as the text that `text` makes of it.
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
