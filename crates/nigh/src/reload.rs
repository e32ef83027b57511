//! `nigh reload`.

use clap::Args;
use nigh_node::reload::{ChangedSetting, ReloadReport};

use crate::context::Globals;
use crate::error::CliError;
use crate::output;

/// Options of `nigh reload`.
#[derive(Args)]
#[command(after_help = "\
Example:
  nigh config check && nigh reload

The node takes over log.level, drain, drain_delay, s3.uploads_bytes, openwhisk.* and the shares of
namespaces, and reads certificates and keys again. It lists others that changed: they need a restart.
If any is wrong, nothing is changed. SIGHUP does the same to a node without a terminal.")]
pub(crate) struct ReloadArgs {}

/// Has the running node read its settings again, and tells what came of it.
pub(crate) async fn run(globals: &Globals) -> Result<(), CliError> {
    let report: ReloadReport = globals.admin()?.post("/reload").await?;
    if globals.json {
        return output::json(&report);
    }
    let ReloadReport { changed, reread, needs_restart } = report;
    if changed.is_empty() && reread.is_empty() && needs_restart.is_empty() {
        return output::line("Nothing has changed.");
    }
    let mut table = output::table(&["SETTING", "WAS", "IS", "STATE"]);
    let mut rows = |of: Vec<ChangedSetting>, state: &str| {
        for ChangedSetting { key, from, to } in of {
            table.add_row([key, from, to, state.to_owned()]);
        }
    };
    rows(changed, "changed");
    rows(needs_restart, "needs a restart");
    for part in reread {
        table.add_row([part, String::new(), String::new(), "read again".to_owned()]);
    }
    output::print_table(&table)
}
