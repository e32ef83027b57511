//! `nigh functions`.

use clap::Subcommand;
use nigh_node::client::ClientError;
use nigh_terms::{ByteSize, FunctionName};
use serde_json::Value;

use crate::context::Globals;
use crate::error::CliError;
use crate::output;
use crate::printable;

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
    /// Show one function as the Lambda API describes it
    #[command(visible_alias = "describe")]
    Show {
        /// The function's name
        name: FunctionName,
    },
    /// Remove functions; running invocations end first
    ///
    /// Buckets that trigger them go on: their events become dead letters (`nigh events`), which can be retried when the
    /// function is deployed again
    #[command(visible_alias = "delete")]
    Rm {
        /// The functions' names
        #[arg(required = true)]
        names: Vec<FunctionName>,
    },
}

/// Runs it.
pub(crate) async fn run(command: FunctionsCommand, globals: &Globals) -> Result<(), CliError> {
    let lambda = globals.lambda().await?;
    match command {
        FunctionsCommand::List { prefix, runtime, limit, wide } => {
            let mut functions = lambda.list().await?;
            let begins = |function: &Value, field: &str, begin: &Option<String>| {
                begin.as_ref().is_none_or(|begin| text(function, field).starts_with(begin))
            };
            functions.retain(|one| begins(one, "FunctionName", &prefix) && begins(one, "Runtime", &runtime));
            functions.truncate(limit);
            if globals.json { output::json(&functions) } else { list(&functions, wide) }
        }
        FunctionsCommand::Show { name } => {
            let function = lambda.get(&name).await?;
            if globals.json { output::json(&function) } else { show(&function) }
        }
        FunctionsCommand::Rm { names } => {
            let mut removed = Vec::new();
            for name in names {
                if let Err(error) = lambda.delete(&name).await {
                    return Err(left(&removed, error));
                }
                if !globals.json {
                    output::line(format_args!("removed {name}"))?;
                }
                removed.push(name);
            }
            match (removed.as_slice(), globals.json) {
                (_, false) => Ok(()),
                ([one], true) => output::json(&serde_json::json!({ "removed": one })),
                (all, true) => output::json(&serde_json::json!({ "removed": all })),
            }
        }
    }
}

/// The error at one of several functions: for a program, it says which are gone.
fn left(removed: &[FunctionName], error: ClientError) -> CliError {
    match (error, removed) {
        (ClientError::Refused { status, code, message }, [_, ..]) => {
            let gone = removed.iter().map(FunctionName::as_str).collect::<Vec<_>>().join(", ");
            ClientError::Refused { status, code, message: format!("{message}; already removed: {gone}") }.into()
        }
        (error, _) => error.into(),
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

fn show(function: &Value) -> Result<(), CliError> {
    let mut table = output::table(&["SETTING", "VALUE"]);
    for (field, value) in function.as_object().into_iter().flatten() {
        let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        table.add_row([field.clone(), printable::shown(&std::io::stdout(), &value).into_owned()]);
    }
    output::print_table(&table)
}
