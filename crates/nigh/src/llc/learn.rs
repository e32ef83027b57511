//! `nigh llc learn`: a function's model from memory traces of single runs, or from rows that were measured elsewhere.
//!
//! All traces are read and replayed before the node gets a row: if one is broken, nothing is learned.

use std::path::{Path, PathBuf};

use clap::Args;
use nigh_llc::TrainingRow;
use nigh_node::llc::LlcStatus;
use nigh_node::one_run;
use nigh_node::profiling::ModelRows;
use nigh_sim::llc::TRACE_BYTES_MAX;
use nigh_terms::{ByteSize, FunctionName, Ways};
use serde::Serialize;

use crate::context::Globals;
use crate::error::CliError;
use crate::output;

/// Options of `nigh llc learn`.
#[derive(Args)]
#[command(after_help = "Examples:\n  nigh llc learn blur --trace blur-124k.trace.zst --trace blur-1.4m.trace.zst\n  \
nigh llc learn blur --trace mine.trace@700KiB\n  nigh llc learn blur --rows blur.json\n\n\
A trace is of one run of the function on one input; give some of different sizes. `nigh llc pack-trace` makes one of\n\
what a tracer recorded. The model replaces the one that was there.\n\
A row: {\"input\": {\"size\": 361000}, \"ways\": 4, \"class\": \"sensitive\"}")]
pub(crate) struct LearnArgs {
    /// The function; traces and rows count as measured with its deployed code
    function: FunctionName,
    /// A memory trace; @SIZE replaces the input size that the trace names; may be repeated
    #[arg(long = "trace", value_name = "FILE[@SIZE]", required_unless_present = "rows")]
    traces: Vec<String>,
    /// A file with a JSON list of rows
    #[arg(long, value_name = "FILE")]
    rows: Option<PathBuf>,
}

/// The report of a row.
#[derive(Serialize)]
struct LearnedRow {
    bytes: u64,
    ways: Ways,
    class: String,
    /// Milliseconds with the whole cache, and with one way; none where the row has no curve.
    best_ms: Option<f64>,
    one_way_ms: Option<f64>,
}

/// A file and the size given with it. If a file of the whole name exists, the name has no size.
fn named(text: &str) -> Result<(PathBuf, Option<ByteSize>), CliError> {
    let whole = Path::new(text);
    match text.rsplit_once('@') {
        Some((file, size)) if !whole.exists() && size.starts_with(|c: char| c.is_ascii_digit()) => {
            let size = size.parse().map_err(|error| CliError::Usage(format!("--trace {text}: {error}")))?;
            Ok((PathBuf::from(file), Some(size)))
        }
        _ => Ok((whole.to_owned(), None)),
    }
}

/// Learns.
pub(super) async fn run(args: LearnArgs, globals: &Globals) -> Result<(), CliError> {
    let mut rows = args.rows.as_deref().map_or_else(|| Ok(Vec::new()), read_rows)?;
    if !args.traces.is_empty() {
        let status: LlcStatus = globals.admin()?.get("/llc").await?;
        let (Some(shape), Some(lines_per_way)) = (status.shape, status.lines_per_way) else {
            return Err(CliError::Failed(format!("this node cannot use models: {}", status.level.detail)));
        };
        for text in &args.traces {
            let (file, size) = named(text)?;
            rows.push(read_trace(&file, size, shape.ways, lines_per_way)?);
        }
    }
    let learned: Vec<_> = rows.iter().map(LearnedRow::from).collect();
    let given = ModelRows { namespace: globals.namespace().await?, function: args.function, rows };
    globals.admin()?.give("/llc/model", &given).await?;
    if globals.json {
        return output::json(&learned);
    }
    output::remark(format!("{} has a model of {} rows", given.function, learned.len()));
    show(&learned)
}

fn read_rows(file: &Path) -> Result<Vec<TrainingRow>, CliError> {
    let what = file.display();
    let text = std::fs::read_to_string(file).map_err(CliError::local(&what))?;
    let rows: Vec<TrainingRow> = serde_json::from_str(&text).map_err(|error| {
        CliError::Usage(format!("{what} is not a list of rows: {error}; `nigh llc learn --help` shows one"))
    })?;
    if rows.is_empty() {
        return Err(CliError::Usage(format!("{what} has no rows")));
    }
    Ok(rows)
}

fn read_trace(file: &Path, size: Option<ByteSize>, ways: Ways, lines_per_way: f64) -> Result<TrainingRow, CliError> {
    let what = file.display();
    let bytes = std::fs::metadata(file).map_err(CliError::local(&what))?.len();
    if bytes > TRACE_BYTES_MAX as u64 {
        let (bytes, limit) = (ByteSize(bytes), ByteSize(TRACE_BYTES_MAX as u64));
        return Err(CliError::Failed(format!(
            "{what} has {bytes}, more than the {limit} of a trace; nothing is learned"
        )));
    }
    let bytes = std::fs::read(file).map_err(CliError::local(&what))?;
    one_run::of_file(&bytes, size, ways, lines_per_way)
        .map_err(|error| CliError::Failed(format!("{what}: {error}; nothing is learned")))
}

impl From<&TrainingRow> for LearnedRow {
    fn from(row: &TrainingRow) -> Self {
        let millis = |ways| row.curves.as_ref().map(|curves| curves.times.micros(ways) / 1e3);
        let whole = row.curves.as_ref().map_or(row.ways, |curves| curves.times.ways());
        Self {
            bytes: row.input.size.0,
            ways: row.ways,
            class: row.class.to_string(),
            best_ms: millis(whole),
            one_way_ms: millis(Ways(1)),
        }
    }
}

fn show(learned: &[LearnedRow]) -> Result<(), CliError> {
    let mut table = output::table(&["size", "ways", "class", "time with all ways", "with one"]);
    let millis = |time: Option<f64>| time.map_or_else(String::new, |time| format!("{time:.1} ms"));
    for row in learned {
        table.add_row([
            ByteSize(row.bytes).to_string(),
            row.ways.to_string(),
            row.class.clone(),
            millis(row.best_ms),
            millis(row.one_way_ms),
        ]);
    }
    output::print_table(&table)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_traces_size_follows_its_name() {
        let named = |text: &str| {
            let (file, size) = named(text).unwrap();
            (file.display().to_string(), size)
        };
        assert_eq!(named("a/blur.trace.zst"), ("a/blur.trace.zst".to_owned(), None));
        assert_eq!(named("blur.trace@100KiB"), ("blur.trace".to_owned(), Some(ByteSize::kib(100))));
        assert_eq!(named("me@home/blur.trace"), ("me@home/blur.trace".to_owned(), None));
        assert_eq!(named("me@home/blur@7"), ("me@home/blur".to_owned(), Some(ByteSize(7))));
        assert!(super::named("blur@7 parsecs").unwrap_err().to_string().contains("7 parsecs"));
    }

    #[test]
    fn a_file_whose_own_name_ends_like_a_size_is_meant_as_a_whole() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("blur@7");
        std::fs::write(&file, "").unwrap();
        assert_eq!(named(file.to_str().unwrap()).unwrap(), (file, None));
    }
}
