//! Recorded invocations of real functions: how often each ran in each minute (data/azure-functions-2019).

use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use flate2::read::GzDecoder;

use crate::LabError;

/// Where the project keeps them.
pub(crate) const STORED: &str = "data/azure-functions-2019/200_minutes.csv.gz";
/// Bytes of a trace that are read.
const TRACE_MAX: u64 = 256 << 20;

/// Invocations in each minute, by function.
pub(crate) fn read_trace(path: &Path) -> Result<Vec<Vec<u32>>, LabError> {
    let failed = |error: &std::io::Error| LabError::file(path, error);
    let file = File::open(path).map_err(|error| failed(&error))?;
    let mut text = String::new();
    GzDecoder::new(file).take(TRACE_MAX).read_to_string(&mut text).map_err(|error| failed(&error))?;
    let line = |line: &str| line.split(',').skip(1).map(|count| count.trim().parse::<u32>()).collect::<Result<_, _>>();
    text.lines().map(line).collect::<Result<_, _>>().map_err(|error: std::num::ParseIntError| LabError::File {
        path: path.to_owned(),
        reason: format!("a count is no number: {error}"),
    })
}

/// The stored trace's name, as reports have it.
pub(crate) fn file_name() -> String {
    STORED.rsplit('/').next().unwrap_or_default().to_owned()
}
