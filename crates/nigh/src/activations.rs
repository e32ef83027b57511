//! `nigh activations`.

use clap::Args;
use nigh_node::explain::{outcome_words, shares};
use nigh_node::{Activation, Outcome};
use nigh_terms::FunctionName;
use serde_json::Value;

use crate::context::Globals;
use crate::error::CliError;
use crate::output::{self, Colour, coloured, duration};

/// Characters of an error that a row shows.
const OUTCOME_MAX: usize = 60;

/// Options of `nigh activations`.
#[derive(Args)]
#[command(after_help = "\
Example:
  nigh activations --function blur --errors --limit 5

E, T and L are the shares of the handler's time spent reading inputs, computing, and writing outputs.
`nigh explain ID` shows one of them in full.")]
pub(crate) struct ActivationsArgs {
    /// Only of this function
    #[arg(long)]
    function: Option<FunctionName>,
    /// Only those that failed
    #[arg(long)]
    errors: bool,
    /// How many, newest first
    #[arg(long, default_value_t = 20)]
    limit: usize,
    /// Only those before this invocation: the next page
    #[arg(long, value_name = "ID")]
    before: Option<String>,
}

/// Lists them.
pub(crate) async fn run(args: ActivationsArgs, globals: &Globals) -> Result<(), CliError> {
    let mut path =
        format!("/activations?namespace={}&limit={}&errors={}", globals.namespace()?, args.limit, args.errors);
    if let Some(function) = &args.function {
        path.push_str(&format!("&function={function}"));
    }
    if let Some(before) = &args.before {
        // It goes into a URL; an id has nothing that needs encoding.
        if !before.chars().all(|c| c.is_ascii_alphanumeric() || c == '-') {
            return Err(CliError::Usage(format!("--before {before}: this is no invocation id")));
        }
        path.push_str(&format!("&before={before}"));
    }
    let admin = globals.admin()?;
    if globals.json {
        return output::json(&admin.get::<Value>(&path).await?);
    }
    let found: Vec<Activation> = admin.get(&path).await?;
    let mut table = output::table(&[
        "ID", "FUNCTION", "START", "WHERE", "WAIT", "INIT", "DURATION", "E/T/L %", "HITS", "PEAK", "OUTCOME",
    ]);
    for one in &found {
        table.add_row(row(one));
    }
    output::print_table(&table)
}

fn row(one: &Activation) -> [String; 11] {
    let shares = shares(&one.phases);
    let colour = if one.outcome == Outcome::Answered { Colour::Green } else { Colour::Red };
    let mut outcome: String = outcome_words(&one.outcome).chars().take(OUTCOME_MAX).collect();
    outcome = outcome.replace('\n', " ");
    [
        one.id.to_string(),
        one.function.to_string(),
        one.start.rfc3339(),
        if one.cold { "cold" } else { "warm" }.to_owned(),
        duration(one.wait_us),
        if one.init_us > 0 { duration(one.init_us) } else { "-".to_owned() },
        duration(one.duration_us),
        format!("{:.0}/{:.0}/{:.0}", shares.extract, shares.transform, shares.load),
        format!("{}/{}", one.hits, one.hits + one.misses),
        one.peak_memory.map_or_else(|| "-".to_owned(), |peak| peak.to_string()),
        coloured(colour, &outcome),
    ]
}
