//! `nigh-lab llc price-traces`: training rows of memory traces. `nigh llc learn --trace` starts it.
//!
//! One broken trace fails the command, and no row is printed.

use std::path::{Path, PathBuf};

use clap::Args;
use nigh_llc::TrainingRow;
use nigh_sim::llc::TRACE_BYTES_MAX;
use nigh_terms::{ByteSize, Ways};

use crate::LabError;
use crate::instrument::error::Tried;
use crate::instrument::one_run;
use crate::instrument::report::print_report;

/// Options of `nigh-lab llc price-traces`.
#[derive(Clone, Debug, Args)]
pub struct PriceTracesArgs {
    /// How many ways the node's last-level cache has
    #[arg(long, value_name = "N")]
    ways: u8,
    /// How many cache lines one way has
    #[arg(long, value_name = "N")]
    lines_per_way: f64,
    /// Memory traces; @SIZE replaces the input size that the trace names
    #[arg(value_name = "FILE[@SIZE]", required = true)]
    traces: Vec<String>,
}

impl PriceTracesArgs {
    /// Prints the rows as JSON.
    ///
    /// # Errors
    /// If a trace cannot be read.
    pub fn run(&self) -> Result<(), LabError> {
        let rows: Result<Vec<_>, _> = self.traces.iter().map(|text| self.price(text)).collect();
        print_report(&rows?, String::new, true)
    }

    fn price(&self, text: &str) -> Result<TrainingRow, LabError> {
        let (file, size) = file_and_size(text)?;
        let bytes = std::fs::metadata(&file).at(&file)?.len();
        if bytes > TRACE_BYTES_MAX as u64 {
            let (bytes, limit) = (ByteSize(bytes), ByteSize(TRACE_BYTES_MAX as u64));
            return Err(LabError::file(file, &format!("a trace of {bytes}; at most {limit} are read")));
        }
        let bytes = std::fs::read(&file).at(&file)?;
        one_run::of_file(&bytes, size, Ways(self.ways), self.lines_per_way).at(&file)
    }
}

/// The file and the size in `FILE[@SIZE]`. If a file has the whole text as its name, the text is the file's name.
fn file_and_size(text: &str) -> Result<(PathBuf, Option<ByteSize>), LabError> {
    let whole = Path::new(text);
    match text.rsplit_once('@') {
        Some((file, size)) if !whole.exists() && size.starts_with(|c: char| c.is_ascii_digit()) => {
            let size = size.parse().map_err(|error| LabError::Usage(format!("--trace {text}: {error}")))?;
            Ok((PathBuf::from(file), Some(size)))
        }
        _ => Ok((whole.to_owned(), None)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_traces_size_follows_its_name() {
        let file_and_size = |text: &str| {
            let (file, size) = file_and_size(text).unwrap();
            (file.display().to_string(), size)
        };
        assert_eq!(file_and_size("a/blur.trace.zst"), ("a/blur.trace.zst".to_owned(), None));
        assert_eq!(file_and_size("blur.trace@100KiB"), ("blur.trace".to_owned(), Some(ByteSize::kib(100))));
        assert_eq!(file_and_size("me@home/blur.trace"), ("me@home/blur.trace".to_owned(), None));
        assert_eq!(file_and_size("me@home/blur@7"), ("me@home/blur".to_owned(), Some(ByteSize(7))));
        assert!(super::file_and_size("blur@7 parsecs").unwrap_err().to_string().contains("7 parsecs"));
    }

    #[test]
    fn a_file_whose_own_name_ends_like_a_size_is_meant_as_a_whole() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("blur@7");
        std::fs::write(&file, "").unwrap();
        assert_eq!(file_and_size(file.to_str().unwrap()).unwrap(), (file, None));
    }
}
