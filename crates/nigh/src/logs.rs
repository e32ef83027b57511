//! `nigh logs`.

mod tail;

use std::io::IsTerminal as _;

use clap::Args;
use nigh_node::Activation;
use nigh_node::admin::{LogEntry, LogLine};
use nigh_node::client::AdminClient;
use nigh_node::config::{ParseSpanError, Span};
use nigh_terms::{Clock as _, FunctionName, InvocationId, Namespace, SystemClock, Timestamp};
use serde::de::IgnoredAny;
use serde_json::json;

use self::tail::tail;
use crate::activations::warn_of_unanswered;
use crate::chosen_invocation::chosen;
use crate::context::Globals;
use crate::error::CliError;
use crate::output::{self, Colour, coloured};
use crate::printable;

/// Lines that `--follow` begins with.
const FOLLOWED_LINES: usize = 10;
/// Invocations whose logs are printed.
const LIMIT: usize = 10;
/// The most invocations of one answer.
const LIMIT_MAX: usize = 1000;

/// Options of `nigh logs`.
#[derive(Args)]
#[command(after_help = "\
Examples:
  nigh logs blur --limit 3
  nigh logs blur --id ID          ID, or its beginning, is from `nigh invoke` or `nigh activations`
  nigh logs --follow              the last ten lines, and then each log when its invocation has ended
  nigh logs blur --since 5min --tail 100

A log comes when its invocation has ended. In a cluster any node prints and follows the logs of all members, and names
those that do not answer. On a terminal, control characters are written out; --json has them as they were printed.")]
pub(crate) struct LogsArgs {
    /// Only this function
    function: Option<FunctionName>,
    /// Only this invocation
    #[arg(long, value_name = "ID", conflicts_with_all = ["limit", "follow", "tail", "since"])]
    id: Option<String>,
    /// Print the logs of this many ended invocations, the newest [default: 10; all that --since or --tail ask for]
    #[arg(long)]
    limit: Option<usize>,
    /// Begin with the last lines of the logs, this many [default with --follow: 10]
    #[arg(long, value_name = "LINES")]
    tail: Option<usize>,
    /// Only invocations that ended within this time, for example 5min or 5m
    #[arg(long, value_name = "TIME", value_parser = since)]
    since: Option<Span>,
    /// Wait for further invocations, and print their logs when they end
    #[arg(long, short)]
    follow: bool,
}

/// A span of time; minutes may be written `5m`, as other commands for logs have it.
fn since(text: &str) -> Result<Span, String> {
    let minutes = text.strip_suffix('m').and_then(|number| format!("{number}min").parse().ok());
    minutes.map_or_else(|| text.parse().map_err(|error: ParseSpanError| error.to_string()), Ok)
}

impl LogsArgs {
    /// Lines that the past begins with; none for all lines.
    fn lines_max(&self) -> Option<usize> {
        let by_itself = self.follow && self.since.is_none() && self.limit.is_none();
        self.tail.or(by_itself.then_some(FOLLOWED_LINES))
    }

    /// Invocations whose logs are printed. Each has several lines, of which the first is Lambda's.
    fn invocations_max(&self) -> usize {
        let asked = self.limit.or(self.lines_max()).or(self.since.map(|_| LIMIT_MAX));
        asked.unwrap_or(LIMIT).min(LIMIT_MAX)
    }
}

/// Prints them.
pub(crate) async fn run(args: LogsArgs, globals: &Globals) -> Result<(), CliError> {
    let (admin, namespace) = (globals.admin()?, globals.namespace().await?);
    if let Some(id) = &args.id {
        return print_one(chosen(Some(id.as_str()), globals).await?, &args, &namespace, globals).await;
    }
    let mut query = format!("/logs?cluster=true&namespace={namespace}");
    if let Some(function) = &args.function {
        must_be_known(function, &namespace, &admin, globals).await?;
        query.push_str(&format!("&function={function}"));
    }
    // Followed before the past is asked for: what ends in between is known by both, and printed once.
    let followed = if args.follow { Some(admin.lines(&format!("{query}&follow=true&limit=0")).await?) } else { None };
    if let Some(since) = args.since {
        let now = SystemClock::new().wall().millis();
        query.push_str(&format!("&since={}", now.saturating_sub(since.duration().as_millis() as u64)));
    }
    let mut past = admin.lines(&format!("{query}&limit={}", args.invocations_max())).await?;
    warn_of_unanswered(past.unanswered(), globals.json);
    let mut entries = Vec::new();
    while let Some(entry) = past.next::<LogEntry>().await? {
        entries.push(entry);
    }
    let printed: Vec<InvocationId> = entries.iter().map(|entry| entry.id).collect();
    let entries = match args.lines_max() {
        Some(lines) => tail(entries, lines, globals.json),
        None => entries,
    };
    for entry in &entries {
        print(entry, globals.json)?;
    }
    let Some(mut followed) = followed else { return Ok(()) };
    while let Some(line) = followed.next::<LogLine>().await? {
        match line {
            LogLine::Entry(entry) if printed.contains(&entry.id) => {}
            LogLine::Entry(entry) => print(&entry, globals.json)?,
            LogLine::Unanswered { unanswered } => tell_unanswered(&unanswered, globals.json),
        }
    }
    Ok(())
}

/// Prints the log of one invocation.
async fn print_one(
    id: InvocationId,
    args: &LogsArgs,
    namespace: &Namespace,
    globals: &Globals,
) -> Result<(), CliError> {
    let one: Activation = globals.admin()?.get(&format!("/activations/{id}")).await?;
    if one.namespace != *namespace || args.function.as_ref().is_some_and(|function| *function != one.function) {
        return Err(CliError::Failed(format!("{} is an invocation of {} in {}", one.id, one.function, one.namespace)));
    }
    print(&LogEntry::from(&one), globals.json)
}

/// Says which members do not answer from now on while they are followed.
fn tell_unanswered(unanswered: &[String], as_json: bool) {
    if as_json {
        return output::remark(json!({ "unanswered": unanswered }));
    }
    if unanswered.is_empty() {
        output::remark("nigh: all members answer again");
    } else {
        let names = unanswered.join(" and ");
        output::remark(format_args!("nigh: {names} did not answer: what ends there comes when it answers again"));
    }
}

/// Rejects a name without a function and without records. A removed function still has logs.
async fn must_be_known(
    function: &FunctionName,
    namespace: &Namespace,
    admin: &AdminClient,
    globals: &Globals,
) -> Result<(), CliError> {
    let records = format!("/activations?cluster=true&namespace={namespace}&function={function}&limit=1");
    if !admin.get::<Vec<IgnoredAny>>(&records).await?.is_empty() {
        return Ok(());
    }
    globals.lambda().await?.get(function).await.map(drop).map_err(CliError::of_function(function))
}

fn print(entry: &LogEntry, json: bool) -> Result<(), CliError> {
    if json {
        return output::line(serde_json::to_string(entry)?);
    }
    let shown = |text| printable::shown(&std::io::stdout(), text);
    let outcome = entry.outcome.replace('\n', " ");
    // Programs that read this have always had the time of the request.
    let is_terminal = std::io::stdout().is_terminal();
    let time = if is_terminal { output::when(Timestamp(entry.ended_ms)) } else { entry.start.clone() };
    let head = format!("{time} {} {} {}", entry.function, entry.id, shown(&outcome));
    output::line(coloured(Colour::Dim, &head))?;
    for line in printable::lines(&entry.log) {
        output::line(format_args!("  {}", shown(line)))?;
    }
    if entry.log_omitted > 0 {
        output::line(format_args!("  ... {} more bytes were printed and are not stored", entry.log_omitted))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Logs {
        #[command(flatten)]
        args: LogsArgs,
    }

    /// Lines and invocations that these words begin with.
    fn asked(words: &[&str]) -> (Option<usize>, usize) {
        let words = std::iter::once("logs").chain(words.iter().copied());
        let args = Logs::try_parse_from(words).unwrap_or_else(|error| panic!("{error}")).args;
        (args.lines_max(), args.invocations_max())
    }

    #[test]
    fn following_begins_with_ten_lines_and_everything_else_with_what_is_asked_for() {
        assert_eq!(asked(&[]), (None, 10));
        assert_eq!(asked(&["--follow"]), (Some(10), 10));
        assert_eq!(asked(&["-f", "--tail", "3"]), (Some(3), 3));
        assert_eq!(asked(&["--follow", "--since", "5m"]), (None, 1000));
        assert_eq!(asked(&["--limit", "7", "--tail", "2"]), (Some(2), 7));
        assert_eq!(asked(&["--tail", "5000"]), (Some(5000), 1000));
    }

    #[test]
    fn minutes_may_be_written_short_and_what_is_no_time_is_refused() {
        assert_eq!(
            (since("5m"), since("5min"), since("90 s")),
            (Ok(Span::seconds(300)), Ok(Span::seconds(300)), Ok(Span::seconds(90)))
        );
        let refused = since("soon").unwrap_err();
        assert!(refused.contains("soon"), "{refused}");
        assert!(since("xm").unwrap_err().contains("xm"));
    }
}
