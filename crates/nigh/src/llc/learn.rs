//! `nigh llc learn`: a function's model from rows that were measured elsewhere.

use std::path::PathBuf;

use clap::Args;
use nigh_llc::TrainingRow;
use nigh_node::profiling::ModelRows;
use nigh_terms::FunctionName;

use crate::context::Globals;
use crate::error::CliError;
use crate::output;

/// Options of `nigh llc learn`.
#[derive(Args)]
#[command(after_help = "Example:\n  nigh llc learn blur --rows blur.json\n\n\
A row: {\"input\": {\"size\": 361000}, \"ways\": 4, \"class\": \"sensitive\"}")]
pub(crate) struct LearnArgs {
    /// The function; the rows are taken to be of its code as it is deployed
    function: FunctionName,
    /// A file with a JSON list of rows
    #[arg(long, value_name = "FILE")]
    rows: PathBuf,
}

/// Learns.
pub(super) async fn run(args: LearnArgs, globals: &Globals) -> Result<(), CliError> {
    let what = args.rows.display().to_string();
    let text = std::fs::read_to_string(&args.rows).map_err(CliError::local(&what))?;
    let rows: Vec<TrainingRow> = serde_json::from_str(&text)
        .map_err(|error| CliError::Usage(format!("{what} holds no list of rows: {error}; `nigh llc learn --help`")))?;
    if rows.is_empty() {
        return Err(CliError::Usage(format!("{what} holds no row")));
    }
    let count = rows.len();
    let learned = ModelRows { namespace: globals.namespace().await?, function: args.function, rows };
    globals.admin()?.give("/llc/model", &learned).await?;
    output::remark(format!("{} has a model of {count} rows", learned.function));
    Ok(())
}
