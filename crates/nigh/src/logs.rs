//! `nigh logs`.

use clap::Args;
use nigh_node::Activation;
use nigh_node::admin::LogEntry;
use nigh_node::client::AdminClient;
use nigh_node::status::Status;
use nigh_terms::{FunctionName, Namespace};
use serde::de::IgnoredAny;

use crate::activations::warn_of_unanswered;
use crate::context::{Globals, invocation};
use crate::error::CliError;
use crate::output::{self, Colour, coloured};
use crate::printable;

/// Options of `nigh logs`.
#[derive(Args)]
#[command(after_help = "\
Examples:
  nigh logs blur --limit 3
  nigh logs blur --id ID          ID is from `nigh invoke` or `nigh activations`
  nigh logs --follow

A log comes when its invocation has ended. In a cluster any node prints the logs of all members; --follow waits only for
invocations that run on the node itself. On a terminal, control characters are written out; --json has them as
they were printed.")]
pub(crate) struct LogsArgs {
    /// Only this function
    function: Option<FunctionName>,
    /// Only this invocation
    #[arg(long, value_name = "ID", conflicts_with_all = ["limit", "follow"])]
    id: Option<String>,
    /// Print the logs of this many ended invocations, the newest
    #[arg(long, default_value_t = 10)]
    limit: usize,
    /// Wait for further invocations, and print their logs when they end
    #[arg(long, short)]
    follow: bool,
}

/// Prints them.
pub(crate) async fn run(args: LogsArgs, globals: &Globals) -> Result<(), CliError> {
    let (admin, namespace) = (globals.admin()?, globals.namespace().await?);
    if let Some(id) = &args.id {
        let one: Activation = admin.get(&format!("/activations/{}", invocation(id)?)).await?;
        if one.namespace != namespace || args.function.as_ref().is_some_and(|function| *function != one.function) {
            return Err(CliError::Failed(format!(
                "{} is an invocation of {} in {}",
                one.id, one.function, one.namespace
            )));
        }
        return print(&LogEntry::from(&one), globals.json);
    }
    let mut path = format!("/logs?cluster=true&namespace={namespace}&limit={}&follow={}", args.limit, args.follow);
    if let Some(function) = &args.function {
        must_be_known(function, &namespace, &admin, globals).await?;
        path.push_str(&format!("&function={function}"));
    }
    let mut lines = admin.lines(&path).await?;
    warn_of_unanswered(lines.unanswered(), globals.json);
    if args.follow && !globals.json {
        let Status { node, cluster, .. } = admin.get("/status").await?;
        if cluster.is_some() {
            output::remark(format_args!("nigh: follows the invocations that run on {node}; see others with --state"));
        }
    }
    while let Some(entry) = lines.next::<LogEntry>().await? {
        print(&entry, globals.json)?;
    }
    Ok(())
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
    match globals.lambda().await?.get(function).await {
        Err(error) if error.is_not_found() => {
            Err(CliError::Failed(format!("there is no function {function}; `nigh functions list` lists them")))
        }
        found => Ok(found.map(drop)?),
    }
}

fn print(entry: &LogEntry, json: bool) -> Result<(), CliError> {
    if json {
        return output::line(serde_json::to_string(entry)?);
    }
    let shown = |text| printable::shown(&std::io::stdout(), text);
    let outcome = entry.outcome.replace('\n', " ");
    let head = format!("{} {} {} {}", entry.start, entry.function, entry.id, shown(&outcome));
    output::line(coloured(Colour::Dim, &head))?;
    for line in printable::lines(&entry.log) {
        output::line(format_args!("  {}", shown(line)))?;
    }
    if entry.log_omitted > 0 {
        output::line(format_args!("  ... {} more bytes were printed and are not stored", entry.log_omitted))?;
    }
    Ok(())
}
