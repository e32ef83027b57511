//! `nigh config`.

use std::process::ExitCode;

use clap::Subcommand;
use nigh_node::config::ShownSetting;
use nigh_node::machine::Machine;
use serde_json::json;

use crate::context::Globals;
use crate::error::CliError;
use crate::output;

/// Subcommands of `nigh config`.
#[derive(Subcommand)]
pub(crate) enum ConfigCommand {
    /// Show each setting with its value and origin
    #[command(
        visible_alias = "ls",
        alias = "list",
        after_help = "\
Examples:
  nigh config show
  nigh config show functions          those whose names begin with `functions`
  nigh config show --set              those that are not the defaults

A value comes from, weakest first: the default, the configuration file, a variable, a flag of `nigh up`.
`functions.keep_alive` is the variable NIGH_FUNCTIONS__KEEP_ALIVE. Sizes are written 64 MiB, spans of time 600 s.
Without --running these are the settings that `nigh up` would use now."
    )]
    Show {
        /// Only settings whose names begin like this
        #[arg(value_name = "PREFIX")]
        prefix: Option<String>,
        /// Only settings that a file, a variable or a flag sets
        #[arg(long)]
        set: bool,
        /// Show the settings that the running node started with
        #[arg(long)]
        running: bool,
    },
    /// Report everything that is wrong with the settings
    #[command(after_help = "\
Examples:
  nigh config check
  nigh --config new.toml config check

The exit code is 1 if something is wrong. Only the settings are checked: `nigh doctor` looks at the machine.")]
    Check,
}

/// Runs it.
pub(crate) async fn run(command: ConfigCommand, globals: &Globals) -> Result<ExitCode, CliError> {
    match command {
        ConfigCommand::Show { prefix, set, running } => {
            show(prefix.as_deref().unwrap_or_default(), set, running, globals).await.map(|()| ExitCode::SUCCESS)
        }
        ConfigCommand::Check => check(globals),
    }
}

async fn show(prefix: &str, set: bool, running: bool, globals: &Globals) -> Result<(), CliError> {
    let mut shown: Vec<ShownSetting> =
        if running { globals.admin()?.get("/config").await? } else { globals.configuration(Vec::new())?.shown };
    shown.retain(|one| one.key.starts_with(prefix));
    if shown.is_empty() {
        return Err(CliError::Usage(format!(
            "no setting's name begins with {prefix}; `nigh config show` lists them all"
        )));
    }
    shown.retain(|one| !(set && one.origin == "default"));
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

/// Prints all faults; the exit code says whether there are any.
fn check(globals: &Globals) -> Result<ExitCode, CliError> {
    let faults: Vec<String> =
        globals.layers(Vec::new()).faults(&Machine::probe()).iter().map(ToString::to_string).collect();
    if globals.json {
        output::json(&json!({ "faults": faults }))?;
    } else if faults.is_empty() {
        output::line("nothing is wrong with the settings")?;
    } else {
        faults.iter().try_for_each(output::line)?;
    }
    Ok(if faults.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The settings that have another value in `node`.
fn others<'a>(shown: &'a [ShownSetting], node: &[ShownSetting]) -> Vec<&'a str> {
    let same = |one: &ShownSetting| node.iter().any(|other| other.key == one.key && other.value == one.value);
    shown.iter().filter(|one| !same(one)).map(|one| one.key.as_str()).collect()
}
