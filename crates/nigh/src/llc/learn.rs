//! `nigh llc learn`: makes a function's model from memory traces of single runs, or from rows that were measured elsewhere.
//!
//! `nigh-lab` makes the rows of traces. The node gets all rows at once: if one trace is broken, nothing is learned.

use std::path::{Path, PathBuf};

use clap::Args;
use nigh_llc::TrainingRow;
use nigh_node::llc::LlcStatus;
use nigh_node::profiling::ModelRows;
use nigh_terms::{ByteSize, FunctionName, Ways};
use serde::Serialize;

use crate::context::Globals;
use crate::error::CliError;
use crate::{lab, output};

/// Options of `nigh llc learn`.
#[derive(Args)]
#[command(after_help = "Examples:\n  nigh llc learn blur --trace blur-124k.trace.zst --trace blur-1.4m.trace.zst\n  \
nigh llc learn blur --trace mine.trace@700KiB\n  nigh llc learn blur --rows blur.json\n\n\
A trace records one run of the function on one input; give several of different sizes. `nigh llc pack-trace` makes\n\
a trace of a tracer's recording. The model replaces the function's present model.\n\
A row: {\"input\": {\"size\": 361000}, \"ways\": 4, \"class\": \"sensitive\"}")]
pub(crate) struct LearnArgs {
    /// The function; traces and rows count as measured with its deployed code
    function: FunctionName,
    /// A memory trace; @SIZE replaces the input size that the trace names; may be repeated
    #[arg(long = "trace", value_name = "FILE[@SIZE]", required_unless_present = "rows")]
    traces: Vec<String>,
    /// A file with a JSON list of training rows
    #[arg(long, value_name = "FILE")]
    rows: Option<PathBuf>,
}

/// The report of a row.
#[derive(Serialize)]
struct LearnedRow {
    bytes: u64,
    ways: Ways,
    class: String,
    /// Milliseconds with the whole cache and with one way; none if the row has no curve.
    best_ms: Option<f64>,
    one_way_ms: Option<f64>,
}

pub(super) async fn run(args: LearnArgs, globals: &Globals) -> Result<(), CliError> {
    let mut rows = args.rows.as_deref().map_or_else(|| Ok(Vec::new()), read_rows)?;
    if !args.traces.is_empty() {
        let status: LlcStatus = globals.admin()?.get("/llc").await?;
        let (Some(shape), Some(lines_per_way)) = (status.shape, status.lines_per_way) else {
            return Err(CliError::Failed(format!("this node cannot use models: {}", status.level.detail)));
        };
        rows.extend(price_traces(&args.traces, shape.ways, lines_per_way)?);
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

/// The rows of traces, made by nigh-lab for a cache of `ways` ways with `lines_per_way`.
fn price_traces(traces: &[String], ways: Ways, lines_per_way: f64) -> Result<Vec<TrainingRow>, CliError> {
    let mut words = ["llc", "price-traces", "--ways"].map(str::to_owned).to_vec();
    words.extend([ways.to_string(), "--lines-per-way".to_owned(), lines_per_way.to_string(), "--".to_owned()]);
    words.extend_from_slice(traces);
    let rows = lab::answer(&words).map_err(|error| match error {
        CliError::Failed(reason) => CliError::Failed(format!("{reason}; nothing is learned")),
        other => other,
    })?;
    Ok(serde_json::from_slice(&rows)?)
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
