//! `nigh functions`.

use clap::Subcommand;
use nigh_terms::{ByteSize, FunctionName};
use serde_json::Value;

use crate::context::Globals;
use crate::error::CliError;
use crate::output;
use crate::printable;

/// Subcommands of `nigh functions`.
#[derive(Subcommand)]
pub(crate) enum FunctionsCommand {
    /// List the namespace's functions
    #[command(visible_alias = "ls")]
    List,
    /// Show one function as the Lambda API describes it
    Show {
        /// The function's name
        name: FunctionName,
    },
    /// Remove a function; running invocations end first
    ///
    /// Buckets that trigger it go on: their events become dead letters (`nigh events`), which can be retried when the
    /// function is deployed again
    Rm {
        /// The function's name
        name: FunctionName,
    },
}

/// Runs it.
pub(crate) async fn run(command: FunctionsCommand, globals: &Globals) -> Result<(), CliError> {
    let lambda = globals.lambda().await?;
    match command {
        FunctionsCommand::List => list(&lambda.list().await?, globals.json),
        FunctionsCommand::Show { name } => {
            let function = lambda.get(&name).await?;
            if globals.json { output::json(&function) } else { show(&function) }
        }
        FunctionsCommand::Rm { name } => {
            lambda.delete(&name).await?;
            if globals.json {
                return output::json(&serde_json::json!({ "removed": name }));
            }
            output::line(format_args!("removed {name}"))
        }
    }
}

fn text(function: &Value, field: &str) -> String {
    match function.get(field) {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Null) | None => String::new(),
        Some(other) => other.to_string(),
    }
}

fn list(functions: &[Value], json: bool) -> Result<(), CliError> {
    if json {
        return output::json(functions);
    }
    let mut table = output::table(&["NAME", "RUNTIME", "HANDLER", "MEMORY", "TIMEOUT", "CODE", "MODIFIED"]);
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
    output::print_table(&table)
}

fn show(function: &Value) -> Result<(), CliError> {
    let mut table = output::table(&["SETTING", "VALUE"]);
    for (field, value) in function.as_object().into_iter().flatten() {
        let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        table.add_row([field.clone(), printable::shown(&std::io::stdout(), &value).into_owned()]);
    }
    output::print_table(&table)
}
