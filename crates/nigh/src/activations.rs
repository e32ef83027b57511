//! `nigh activations`.

use clap::Args;
use nigh_node::explain::{outcome_words, shares};
use nigh_node::{Activation, Cost, Outcome, SandboxStart};
use nigh_terms::{FunctionName, Timestamp};
use serde::Deserialize as _;
use serde_json::{Value, json};

use crate::context::{Globals, invocation};
use crate::error::CliError;
use crate::failure;
use crate::output::{self, Colour, coloured, duration};
use crate::printable;

/// Characters of an error in a row.
const OUTCOME_MAX: usize = 60;
const HEADINGS: [&str; 12] =
    ["ID", "FUNCTION", "START", "TOOK", "OUTCOME", "WHERE", "WAIT", "INIT", "HITS", "PEAK", "E/T/L %", "GB-S"];
/// What a narrow terminal leaves out, first to last: an id, a function and an outcome stay.
const LESS_IMPORTANT: [&str; 9] = ["GB-S", "E/T/L %", "PEAK", "INIT", "WAIT", "HITS", "WHERE", "START", "TOOK"];

/// Options of `nigh activations`.
#[derive(Args)]
#[command(after_help = "\
Examples:
  nigh activations --function blur --errors --limit 5
  nigh activations --last                         and, if it failed, why

In a cluster any node lists the invocations of all members, and names those that do not answer.
START is when it was requested, TOOK how long the handler ran, WHERE the kind of start, HITS the reads from
memory, GB-S what is billed and the share of it that was used at the peak. E, T and L are the shares of the
handler's time spent reading inputs, computing, and writing outputs. A narrow terminal shows fewer columns.
`nigh explain ID` shows one of them in full.")]
pub(crate) struct ActivationsArgs {
    /// Only this function
    #[arg(long)]
    function: Option<FunctionName>,
    /// Only failed invocations
    #[arg(long)]
    errors: bool,
    /// How many invocations to list, newest first
    #[arg(long, default_value_t = 20)]
    limit: usize,
    /// Show all columns whole, also where the terminal is too narrow
    #[arg(long)]
    wide: bool,
    /// Only the last invocation; if it failed, also why
    #[arg(long, conflicts_with_all = ["limit", "before"])]
    last: bool,
    /// Only invocations older than this one; for the next page, give the last ID of the page before
    #[arg(long, value_name = "ID")]
    before: Option<String>,
}

/// Lists them.
pub(crate) async fn run(args: ActivationsArgs, globals: &Globals) -> Result<(), CliError> {
    let (namespace, errors) = (globals.namespace().await?, args.errors);
    let limit = if args.last { 1 } else { args.limit };
    let mut path = format!("/activations?cluster=true&namespace={namespace}&limit={limit}&errors={errors}");
    if let Some(function) = &args.function {
        path.push_str(&format!("&function={function}"));
    }
    if let Some(before) = &args.before {
        path.push_str(&format!("&before={}", invocation(before)?));
    }
    let admin = globals.admin()?;
    if globals.json {
        let (mut found, unanswered): (Vec<Value>, _) = admin.get_of_cluster(&path).await?;
        warn_of_unanswered(&unanswered, globals.json);
        for record in &mut found {
            add_cost(record);
            date_start(record);
        }
        return output::json(&found);
    }
    let (found, unanswered): (Vec<Activation>, _) = admin.get_of_cluster(&path).await?;
    warn_of_unanswered(&unanswered, globals.json);
    let mut table = output::table(&HEADINGS).less_important(&LESS_IMPORTANT);
    for one in &found {
        table.add_row(row(one));
    }
    if args.wide {
        output::print_whole_table(&table)?;
    } else {
        output::print_table(&table)?;
    }
    match found.as_slice() {
        [one] if args.last && one.outcome != Outcome::Answered => print_failure(one),
        _ => Ok(()),
    }
}

/// Prints why the invocation failed.
fn print_failure(one: &Activation) -> Result<(), CliError> {
    let words = failure::shown(one, &Value::Null, &one.log, failure::width(), false);
    words.lines().try_for_each(|line| output::line(printable::shown(&std::io::stdout(), line)))
}

/// Names, on standard error, the members of the cluster whose records are missing.
pub(crate) fn warn_of_unanswered(unanswered: &[String], as_json: bool) {
    if unanswered.is_empty() {
        return;
    }
    if as_json {
        return output::remark(json!({ "unanswered": unanswered }));
    }
    let names = unanswered.join(" and ");
    output::remark(format_args!("nigh: {names} did not answer: what ran there is missing here"));
}

/// A record's start in RFC 3339.
pub(crate) fn date_start(record: &mut Value) {
    if let Some(start) = record.get_mut("start")
        && let Some(millis) = start.as_u64()
    {
        *start = Timestamp(millis).rfc3339().into();
    }
}

/// Adds the cost of the recorded invocation; a record of another version stays as it is.
fn add_cost(record: &mut Value) {
    if let Ok(one) = Activation::deserialize(&*record) {
        let Cost { billed_gb_s, used_gb_s } = Cost::of(&one);
        record["cost"] = json!({ "billed_gb_s": billed_gb_s, "used_gb_s": used_gb_s });
    }
}

/// The billed cost, and the share of it that was used.
fn gigabyte_seconds(cost: &Cost) -> String {
    let used = cost.used_percent().map_or_else(String::new, |percent| format!(" {percent:.0} %"));
    format!("{:.4}{used}", cost.billed_gb_s)
}

fn row(one: &Activation) -> [String; 12] {
    let shares = shares(&one.phases);
    let colour = if one.outcome == Outcome::Answered { Colour::Green } else { Colour::Red };
    let outcome = outcome_words(&one.outcome).replace('\n', " ");
    let outcome = printable::shortened(&outcome, OUTCOME_MAX);
    let outcome = printable::shown(&std::io::stdout(), &outcome);
    [
        one.id.to_string(),
        one.function.to_string(),
        output::when(one.start),
        duration(one.duration_us),
        coloured(colour, &outcome),
        match (one.cold, one.sandbox_start) {
            (false, _) => "warm",
            (true, Some(SandboxStart::Prewarmed)) => "prewarmed",
            (true, _) => "cold",
        }
        .to_owned(),
        duration(one.wait_us),
        if one.init_us > 0 { duration(one.init_us) } else { "-".to_owned() },
        format!("{}/{}", one.hits, one.hits + one.misses),
        one.peak_memory.map_or_else(|| "-".to_owned(), |peak| peak.to_string()),
        format!("{:.0}/{:.0}/{:.0}", shares.extract, shares.transform, shares.load),
        gigabyte_seconds(&Cost::of(one)),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cost_is_told_with_the_share_of_it_that_was_used_where_that_is_known() {
        let cost = Cost { billed_gb_s: 0.25, used_gb_s: Some(0.1) };
        assert_eq!(gigabyte_seconds(&cost), "0.2500 40 %");
        assert_eq!(gigabyte_seconds(&Cost { used_gb_s: None, ..cost }), "0.2500");
        let mut strange = json!({ "id": 1 });
        add_cost(&mut strange);
        assert_eq!(strange, json!({ "id": 1 }));
    }

    #[test]
    fn a_records_start_is_a_date() {
        let mut record = json!({ "id": "x", "start": 1_700_000_000_120_u64 });
        date_start(&mut record);
        assert_eq!(record, json!({ "id": "x", "start": "2023-11-14T22:13:20.120Z" }));
        date_start(&mut record);
        assert_eq!(record["start"], "2023-11-14T22:13:20.120Z");
    }

    #[test]
    fn at_eighty_columns_a_row_has_its_id_function_and_outcome_and_as_much_more_as_fits() {
        let mut table = output::table(&HEADINGS).less_important(&LESS_IMPORTANT);
        let outcome = "handler raised ValueError: no such object";
        let cells = [
            "0191c2a4-7b1e-7c3a-9f00-0123456789ab",
            "blur",
            "12 min ago",
            "123.4 ms",
            outcome,
            "prewarmed",
            "1.2 ms",
            "310.0 ms",
            "12/14",
            "118.3 MiB",
            "40/50/10",
            "0.0123 40 %",
        ];
        table.add_row(cells);
        for width in [60, 80, 120, 170] {
            let text = table.text(Some(width));
            assert!(text.lines().all(|line| output::visible_width(line) <= width), "{width}: {text}");
            assert!(text.contains(cells[0]) && text.contains("OUTCOME"), "{width}: {text}");
            assert_eq!(text.lines().count(), 2, "{text}");
        }
        assert!(table.text(Some(80)).contains("FUNCTION"));
        assert!(HEADINGS.iter().all(|heading| table.text(None).contains(heading)));
    }
}
