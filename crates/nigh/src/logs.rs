//! `nigh logs`.

use clap::Args;
use nigh_node::admin::LogEntry;
use nigh_terms::FunctionName;

use crate::context::Globals;
use crate::error::CliError;
use crate::output::{self, Colour, coloured};

/// Options of `nigh logs`.
#[derive(Args)]
#[command(after_help = "\
Examples:
  nigh logs blur --limit 3
  nigh logs --follow

A log comes when its invocation has ended.")]
pub(crate) struct LogsArgs {
    /// Only of this function
    function: Option<FunctionName>,
    /// Of how many invocations that have ended already
    #[arg(long, default_value_t = 10)]
    limit: usize,
    /// Go on with those to come
    #[arg(long, short)]
    follow: bool,
}

/// Prints them.
pub(crate) async fn run(args: LogsArgs, globals: &Globals) -> Result<(), CliError> {
    let mut path = format!("/logs?namespace={}&limit={}&follow={}", globals.namespace()?, args.limit, args.follow);
    if let Some(function) = &args.function {
        path.push_str(&format!("&function={function}"));
    }
    let mut lines = globals.admin()?.lines(&path).await?;
    while let Some(entry) = lines.next::<LogEntry>().await? {
        if globals.json {
            output::line(serde_json::to_string(&entry)?)?;
            continue;
        }
        let head = format!("{} {} {} {}", entry.start, entry.function, entry.id, entry.outcome.replace('\n', " "));
        output::line(coloured(Colour::Dim, &head))?;
        for line in entry.log.lines() {
            output::line(format_args!("  {line}"))?;
        }
        if entry.log_omitted > 0 {
            output::line(format_args!("  ... {} bytes more were printed and not kept", entry.log_omitted))?;
        }
    }
    Ok(())
}
