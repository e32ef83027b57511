//! `nigh learn`: the memory models of functions.

use std::path::PathBuf;

use clap::Subcommand;
use nigh_node::learning::{ImportedRows, LearnedStatus};
use nigh_terms::{ByteSize, FunctionName};

use crate::context::Globals;
use crate::error::CliError;
use crate::output::{self, Colour, coloured};

/// The most functions of one answer.
const LISTED_MAX: usize = 1000;

/// Subcommands of `nigh learn`.
#[derive(Subcommand)]
#[command(after_help = "\
Examples:
  nigh learn ls --mature                 which functions' models are mature
  nigh learn export thumbnail > rows.csv
  nigh learn import thumbnail rows.csv   use rows that were measured elsewhere
  nigh learn forget thumbnail            after a change that is not in its code")]
pub(crate) enum LearnCommand {
    /// List the functions that have a model or training rows
    #[command(visible_alias = "list")]
    Ls {
        /// Only functions whose names begin like this
        prefix: Option<String>,
        /// Only functions whose models are mature
        #[arg(long)]
        mature: bool,
        /// List so many at most
        #[arg(long, default_value_t = LISTED_MAX)]
        limit: usize,
    },
    /// Show one function's model
    Show {
        /// The function's name
        function: FunctionName,
    },
    /// Print the training rows of a function's model as CSV
    Export {
        /// The function's name
        function: FunctionName,
        /// Write the rows to this file [default: standard output]
        #[arg(long, value_name = "FILE")]
        output: Option<PathBuf>,
    },
    /// Replace the training rows of a function by those of a CSV file
    Import {
        /// The function's name; the rows count as measured with its deployed code
        function: FunctionName,
        /// The file
        file: PathBuf,
    },
    /// Forget a function's model and training rows
    Forget {
        /// The function's name
        function: FunctionName,
    },
}

/// Runs it.
pub(crate) async fn run(command: LearnCommand, globals: &Globals) -> Result<(), CliError> {
    let namespace = globals.namespace().await?;
    let admin = globals.admin()?;
    let of = |function: &FunctionName| format!("/learn/{namespace}/{function}");
    match command {
        LearnCommand::Ls { prefix, mature, limit } => {
            // The node's limit counts functions without a model too.
            let path = format!("/learn?namespace={namespace}&limit={LISTED_MAX}");
            let mut found: Vec<LearnedStatus> = admin.get(&path).await?;
            let begins = |one: &LearnedStatus| {
                prefix.as_ref().is_none_or(|prefix| one.function.as_str().starts_with(prefix.as_str()))
            };
            found.retain(|one| begins(one) && (one.mature || !mature));
            found.truncate(limit);
            if globals.json { output::json(&found) } else { list(&found) }
        }
        LearnCommand::Show { function } => {
            let found: LearnedStatus = admin.get(&of(&function)).await?;
            if globals.json { output::json(&found) } else { show(&found) }
        }
        LearnCommand::Export { function, output } => {
            let csv = admin.text(&format!("{}/rows", of(&function))).await?;
            match output {
                Some(file) => std::fs::write(&file, csv).map_err(CliError::local(file.display())),
                None => output::bytes(&csv),
            }
        }
        LearnCommand::Import { function, file } => {
            let csv = std::fs::read_to_string(&file).map_err(CliError::local(file.display()))?;
            admin.give(&format!("{}/rows", of(&function)), &ImportedRows { csv }).await?;
            let now: LearnedStatus = admin.get(&of(&function)).await?;
            if globals.json { output::json(&now) } else { output::line(state(&now)) }
        }
        LearnCommand::Forget { function } => {
            admin.give(&format!("{}/forget", of(&function)), &()).await?;
            if globals.json {
                return output::json(&serde_json::json!({ "forgotten": function }));
            }
            output::line(format_args!("forgot the model and rows of {function}"))
        }
    }
}

fn list(found: &[LearnedStatus]) -> Result<(), CliError> {
    if found.is_empty() {
        return output::line("no function has a model or rows yet");
    }
    let mut table = output::table(&["FUNCTION", "CODE", "MODEL", "STATE", "ROWS", "OF", "CACHING"]);
    for one in found {
        let (colour, state) = match one.mature {
            true => (Colour::Green, "mature".to_owned()),
            false => (Colour::Yellow, format!("learning, {} invocations judged", one.judged)),
        };
        table.add_row([
            one.function.to_string(),
            one.version.chars().take(8).collect(),
            one.learner.clone(),
            coloured(colour, &state),
            one.rows.to_string(),
            one.offered.to_string(),
            if one.tells_benefit { "told" } else { "-" }.to_owned(),
        ]);
    }
    output::print_table(&table)
}

fn show(one: &LearnedStatus) -> Result<(), CliError> {
    let mut table = output::table(&[]);
    let mut row = |name: &str, value: String| {
        table.add_row([name.to_owned(), value]);
    };
    row("function", one.function.to_string());
    row("code", one.version.clone());
    row("model", format!("{}, {}", one.learner, ByteSize(one.bytes as u64)));
    row("state", state(one));
    row("rows", format!("{} kept of {} recorded, {} since the last fit", one.rows, one.offered, one.fresh));
    row("floors", format!("{} inputs are granted at least what an equal input needed", one.floors));
    row("caching", if one.tells_benefit { "told by the model" } else { "not told yet" }.to_owned());
    let inputs =
        if one.inputs.is_empty() { "every object that an input names".to_owned() } else { one.inputs.join(" ") };
    row("inputs", inputs);
    output::print_table(&table)
}

fn state(one: &LearnedStatus) -> String {
    match (one.mature, one.matured_at) {
        (true, Some(at)) => format!("{}: mature since invocation {at}, {} rows", one.function, one.rows),
        (true, None) => format!("{}: mature, {} rows", one.function, one.rows),
        (false, Some(at)) => {
            format!(
                "{}: no longer mature (it was at invocation {at}); runs are granted their whole booking",
                one.function
            )
        }
        (false, None) => {
            format!(
                "{}: not mature after {} invocations; runs are granted their whole booking",
                one.function, one.judged
            )
        }
    }
}

#[cfg(test)]
mod tests {
    use nigh_terms::Namespace;

    use super::*;

    #[test]
    fn the_state_of_a_model_is_told_in_words() {
        let mut one = LearnedStatus {
            namespace: Namespace::new("default").unwrap(),
            function: FunctionName::new("f").unwrap(),
            version: "code".to_owned(),
            learner: "lintree".to_owned(),
            mature: true,
            matured_at: Some(25),
            judged: 40,
            rows: 45,
            fresh: 0,
            offered: 45,
            floors: 1,
            tells_benefit: false,
            inputs: Vec::new(),
            bytes: 1000,
        };
        assert_eq!(state(&one), "f: mature since invocation 25, 45 rows");
        one.mature = false;
        assert!(state(&one).contains("no longer mature (it was at invocation 25)"));
        one.matured_at = None;
        assert!(state(&one).contains("not mature after 40 invocations"));
    }
}
