//! `nigh doctor`: what this machine has, what each lack costs, and the command that mends it.

mod checks;

use std::process::ExitCode;

use clap::Args;
use nigh_node::endpoints::Endpoints;
use nigh_node::inventory;
use nigh_node::machine::Machine;
use nigh_node::state_folder::StatePaths;
use serde_json::{Value, json};

use self::checks::{Check, Verdict, checks};
use crate::context::Globals;
use crate::error::CliError;
use crate::output::{self, Colour, coloured};
use crate::printable;

/// Options of `nigh doctor`.
#[derive(Args)]
#[command(after_help = "\
Examples:
  nigh doctor                      before the first `nigh up`, or when something is slow or off
  nigh --json doctor | jq -r '.[] | select(.verdict != \"ok\") | .mend'

Verdicts: ok; less (it works, at a cost); broken (a node or its functions cannot run). The exit code is 1
if something is broken. A sandbox is started for a moment, as `nigh up` does; nothing is changed.")]
pub(crate) struct DoctorArgs {
    /// Show only what is not in order
    #[arg(long)]
    faults: bool,
}

/// Checks this machine with the settings that `nigh up` would use.
pub(crate) async fn run(args: &DoctorArgs, globals: &Globals) -> Result<ExitCode, CliError> {
    let mut found = match globals.configuration(Vec::new()) {
        Ok(configuration) => {
            let settings = &configuration.settings;
            let node = Endpoints::read(&StatePaths::new(&settings.state)).ok();
            let inventory = inventory::take(settings, node.is_some()).await;
            let mut found =
                vec![Check::of_settings(&configuration.file, 0), Check::of_node(node.as_ref(), &settings.state)];
            found.extend(checks(&inventory));
            found
        }
        Err(CliError::Config(_)) => {
            let faults = globals.layers(Vec::new()).faults(&Machine::probe());
            vec![Check::of_settings(&None, faults.len().max(1))]
        }
        Err(error) => return Err(error),
    };
    let is_broken = found.iter().any(|check| check.verdict == Verdict::Broken);
    if args.faults {
        found.retain(|check| check.verdict != Verdict::Ok);
    }
    if globals.json {
        output::json(&found.iter().map(document).collect::<Vec<_>>())?;
    } else {
        print(&found)?;
    }
    Ok(if is_broken { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// A check for programs.
fn document(check: &Check) -> Value {
    json!({
        "check": check.name,
        "verdict": check.verdict.word(),
        "found": check.found,
        "cost": check.cost,
        "mend": check.mend,
    })
}

/// Prints the checks, each with its cost and its mend in lines of their own.
fn print(found: &[Check]) -> Result<(), CliError> {
    if found.is_empty() {
        return output::line("Nothing is off here.");
    }
    let shown = |text: &str| printable::shown(&std::io::stdout(), text).into_owned();
    let mut table = output::table(&[]);
    for check in found {
        let colour = match check.verdict {
            Verdict::Ok => Colour::Green,
            Verdict::Less => Colour::Yellow,
            Verdict::Broken => Colour::Red,
        };
        let mut text = format!("{}  {}", coloured(colour, check.verdict.word()), shown(&check.found));
        for (what, line) in [("costs", &check.cost), ("mend", &check.mend)] {
            if let Some(line) = line {
                text += &format!("\n{what}: {}", shown(line));
            }
        }
        table.add_row([check.name.to_owned(), text]);
    }
    output::print_table(&table)
}
