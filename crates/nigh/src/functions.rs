//! `nigh functions`.

pub(crate) mod attached;
mod removal;
mod shown;

use clap::Subcommand;
use nigh_terms::{ByteSize, FunctionName};
use serde_json::Value;

use crate::context::Globals;
use crate::error::CliError;
use crate::output;

/// Subcommands of `nigh functions`.
#[derive(Subcommand)]
#[command(after_help = "\
Examples:
  nigh functions ls
  nigh functions ls thumb --runtime python        names that begin with thumb, Python alone
  nigh functions show blur
  nigh functions rm blur sepia")]
pub(crate) enum FunctionsCommand {
    /// List the namespace's functions
    #[command(visible_alias = "ls")]
    List {
        /// Only functions whose names begin like this
        #[arg(value_name = "PREFIX")]
        prefix: Option<String>,
        /// Only functions whose runtime begins like this
        #[arg(long)]
        runtime: Option<String>,
        /// List so many at most
        #[arg(long, default_value_t = 1000)]
        limit: usize,
        /// Show all columns whole, also where the terminal is too narrow
        #[arg(long)]
        wide: bool,
    },
    /// Show one function: its settings, triggers, URL, schedules, and how it failed last
    ///
    /// With --json it has the form of the Lambda API's GetFunctionConfiguration, and further fields: Concurrency,
    /// Triggers, FunctionUrl, FunctionUrlAccess, Schedules, EventInvokeConfig, LastErrors
    #[command(visible_alias = "describe")]
    Show {
        /// The function's name
        name: FunctionName,
    },
    /// Remove functions with their triggers, URLs and schedules; running invocations end first
    ///
    /// Events that wait become dead letters (`nigh events`), which can be retried when the function is deployed again
    #[command(visible_alias = "delete")]
    Rm {
        /// The functions' names
        #[arg(required = true)]
        names: Vec<FunctionName>,
        /// Leave the triggers: until a function of that name is deployed again, their events become dead letters
        #[arg(long)]
        keep_triggers: bool,
    },
}

/// Runs it.
pub(crate) async fn run(command: FunctionsCommand, globals: &Globals) -> Result<(), CliError> {
    match command {
        FunctionsCommand::List { prefix, runtime, limit, wide } => {
            let mut functions = globals.lambda().await?.list().await?;
            let begins = |function: &Value, field: &str, begin: &Option<String>| {
                begin.as_ref().is_none_or(|begin| text(function, field).starts_with(begin))
            };
            functions.retain(|one| begins(one, "FunctionName", &prefix) && begins(one, "Runtime", &runtime));
            functions.truncate(limit);
            if globals.json { output::json(&functions) } else { list(&functions, wide) }
        }
        FunctionsCommand::Show { name } => shown::run(&name, globals).await,
        FunctionsCommand::Rm { names, keep_triggers } => removal::run(names, keep_triggers, globals).await,
    }
}

fn text(function: &Value, field: &str) -> String {
    match function.get(field) {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Null) | None => String::new(),
        Some(other) => other.to_string(),
    }
}

fn list(functions: &[Value], wide: bool) -> Result<(), CliError> {
    let mut table = output::table(&["NAME", "RUNTIME", "HANDLER", "MEMORY", "TIMEOUT", "CODE", "MODIFIED"])
        .less_important(&["CODE", "MODIFIED", "TIMEOUT"]);
    for function in functions {
        let number = |field: &str| function.get(field).and_then(Value::as_u64).unwrap_or_default();
        table.add_row([
            text(function, "FunctionName"),
            text(function, "Runtime"),
            text(function, "Handler"),
            ByteSize::mib(number("MemorySize")).to_string(),
            format!("{} s", number("Timeout")),
            ByteSize(number("CodeSize")).to_string(),
            text(function, "LastModified"),
        ]);
    }
    if wide { output::print_whole_table(&table) } else { output::print_table(&table) }
}
