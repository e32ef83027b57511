//! `nigh config`.

use clap::Subcommand;
use nigh_node::config::ShownSetting;

use crate::context::Globals;
use crate::error::CliError;
use crate::output;

/// Subcommands of `nigh config`.
#[derive(Subcommand)]
pub(crate) enum ConfigCommand {
    /// Show each setting with its value and origin
    #[command(after_help = "\
A value comes from, weakest first: the default, the configuration file, a variable, a flag of `nigh up`.
`functions.keep_alive` is the variable NIGH_FUNCTIONS__KEEP_ALIVE. Sizes are written 64 MiB, spans of time 600 s.
Without --running these are the settings that `nigh up` would use now.")]
    Show {
        /// Show the settings that the running node started with
        #[arg(long)]
        running: bool,
    },
}

/// Runs it.
pub(crate) async fn run(command: ConfigCommand, globals: &Globals) -> Result<(), CliError> {
    let ConfigCommand::Show { running } = command;
    let shown = if running { globals.admin()?.get("/config").await? } else { globals.configuration(Vec::new())?.shown };
    if globals.json {
        return output::json(&shown);
    }
    if !running && let Ok(node) = globals.admin() {
        let others = others(&shown, &node.get::<Vec<ShownSetting>>("/config").await?);
        if !others.is_empty() {
            output::remark(format_args!(
                "nigh: the node that runs here has other values of {}; `nigh config show --running` shows its own",
                others.join(", ")
            ));
        }
    }
    let mut table = output::table(&["SETTING", "VALUE", "FROM"]);
    for one in shown {
        table.add_row([one.key, one.value, one.origin]);
    }
    output::print_table(&table)
}

/// The settings that have another value in `node`.
fn others<'a>(shown: &'a [ShownSetting], node: &[ShownSetting]) -> Vec<&'a str> {
    let same = |one: &ShownSetting| node.iter().any(|other| other.key == one.key && other.value == one.value);
    shown.iter().filter(|one| !same(one)).map(|one| one.key.as_str()).collect()
}
