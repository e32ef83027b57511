//! `nigh activations`.

use clap::Args;
use nigh_node::explain::{outcome_words, shares};
use nigh_node::{Activation, Outcome, SandboxStart};
use nigh_terms::{FunctionName, Timestamp};
use serde_json::Value;

use crate::context::{Globals, invocation};
use crate::error::CliError;
use crate::output::{self, Colour, coloured, duration};
use crate::printable;

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
        format!("/activations?namespace={}&limit={}&errors={}", globals.namespace().await?, args.limit, args.errors);
    if let Some(function) = &args.function {
        path.push_str(&format!("&function={function}"));
    }
    if let Some(before) = &args.before {
        path.push_str(&format!("&before={}", invocation(before)?));
    }
    let admin = globals.admin()?;
    if globals.json {
        let mut found: Vec<Value> = admin.get(&path).await?;
        found.iter_mut().for_each(date_start);
        return output::json(&found);
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

/// A record's start as all times are told: RFC 3339.
pub(crate) fn date_start(record: &mut Value) {
    if let Some(start) = record.get_mut("start")
        && let Some(millis) = start.as_u64()
    {
        *start = Timestamp(millis).rfc3339().into();
    }
}

fn row(one: &Activation) -> [String; 11] {
    let shares = shares(&one.phases);
    let colour = if one.outcome == Outcome::Answered { Colour::Green } else { Colour::Red };
    let outcome = outcome_words(&one.outcome).replace('\n', " ");
    let outcome = printable::shortened(&outcome, OUTCOME_MAX);
    let outcome = printable::shown(&std::io::stdout(), &outcome);
    [
        one.id.to_string(),
        one.function.to_string(),
        one.start.rfc3339(),
        match (one.cold, one.sandbox_start) {
            (false, _) => "warm",
            (true, Some(SandboxStart::Prewarmed)) => "prewarmed",
            (true, _) => "cold",
        }
        .to_owned(),
        duration(one.wait_us),
        if one.init_us > 0 { duration(one.init_us) } else { "-".to_owned() },
        duration(one.duration_us),
        format!("{:.0}/{:.0}/{:.0}", shares.extract, shares.transform, shares.load),
        format!("{}/{}", one.hits, one.hits + one.misses),
        one.peak_memory.map_or_else(|| "-".to_owned(), |peak| peak.to_string()),
        coloured(colour, &outcome),
    ]
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_records_start_is_a_date() {
        let mut record = json!({ "id": "x", "start": 1_700_000_000_120_u64 });
        date_start(&mut record);
        assert_eq!(record, json!({ "id": "x", "start": "2023-11-14T22:13:20.120Z" }));
        date_start(&mut record);
        assert_eq!(record["start"], "2023-11-14T22:13:20.120Z");
    }
}
