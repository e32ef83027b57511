//! `nigh workflow`.

mod door;
mod failed_state;
mod watch;

use std::process::ExitCode;

use clap::{Args, Subcommand};
use serde_json::{Value, json};

pub(crate) use self::door::Door;
use self::door::creation;
use self::watch::{failed_in, watch};
use crate::context::Globals;
use crate::error::CliError;
use crate::invoke;
use crate::output::{self, Colour, coloured};
use crate::printable;

/// The longest definition: 1 MiB.
const DEFINITION_MAX: u64 = 1 << 20;
/// Entries in one answer of a list.
const PAGE: usize = 1000;

/// Subcommands of `nigh workflow`.
#[derive(Subcommand)]
#[command(after_help = "\
Examples:
  nigh workflow create thumbnails pipeline.asl.json       create or change it; the definition is in the Amazon States Language
  nigh workflow check pipeline.asl.json                   each fault with its place
  nigh workflow start thumbnails '{\"key\": \"cat.png\"}' --watch
  nigh workflow list                                      machines; with a name, its executions
  nigh workflow watch thumbnails RUN                      live, to its end
  nigh workflow stop thumbnails RUN

An execution continues when the node is killed and started again: docs/howto/workflows.md.")]
pub(crate) enum WorkflowCommand {
    /// Create a state machine, or change the one of that name; running executions keep the old definition
    Create(CreateArgs),
    /// Report the errors in the definition of a state machine
    Check {
        /// A file, or - for standard input
        definition: String,
    },
    /// Start an execution
    Start(StartArgs),
    /// List state machines, or the executions of one, newest first
    #[command(visible_alias = "ls")]
    List {
        /// The state machine's name
        machine: Option<String>,
        /// Only executions with this status: running, succeeded, failed, timed_out, aborted
        #[arg(long)]
        status: Option<String>,
        /// How many
        #[arg(long, default_value_t = 100)]
        limit: usize,
    },
    /// Show a state machine, or an execution of it
    #[command(visible_alias = "show")]
    Describe {
        /// The state machine's name
        machine: String,
        /// The execution's name
        execution: Option<String>,
    },
    /// Print the events of an execution as they happen, until it ends
    Watch {
        /// The state machine's name
        machine: String,
        /// The execution's name
        execution: String,
    },
    /// Stop an execution; its running functions go on to their end
    Stop {
        /// The state machine's name
        machine: String,
        /// The execution's name
        execution: String,
        /// The reason, stored with the execution
        #[arg(long)]
        cause: Option<String>,
    },
    /// Delete state machines; running executions go on
    #[command(visible_alias = "rm")]
    Delete {
        /// The state machines' names
        #[arg(required = true)]
        machines: Vec<String>,
    },
}

/// Options of `nigh workflow create`.
#[derive(Args)]
pub(crate) struct CreateArgs {
    /// The state machine's name
    name: String,
    /// The definition: a file, or - for standard input
    definition: String,
    /// Keep executions in memory only: for many short executions whose callers wait
    #[arg(long)]
    express: bool,
    /// A folder for objects between stages: kept in memory only, dropped at the end (BUCKET/FOLDER/)
    #[arg(long, value_name = "FOLDER")]
    scratch: Vec<String>,
}

/// Options of `nigh workflow start`.
#[derive(Args)]
pub(crate) struct StartArgs {
    /// The state machine's name
    machine: String,
    /// The execution's input as JSON: the text itself, @FILE, or - for standard input
    #[arg(default_value = "{}")]
    input: String,
    /// The execution's name; if that execution of a standard machine still runs, a second start with the same input
    /// gives the same one
    #[arg(long)]
    name: Option<String>,
    /// Print the execution's events until it ends; the exit code is 1 if it failed
    #[arg(long)]
    watch: bool,
}

/// Runs it.
pub(crate) async fn run(command: WorkflowCommand, globals: &Globals) -> Result<ExitCode, CliError> {
    match command {
        WorkflowCommand::Create(args) => create(&args, globals).await?,
        WorkflowCommand::Check { definition } => return check(&definition, globals).await,
        WorkflowCommand::Start(args) => return start(&args, globals).await,
        WorkflowCommand::List { machine: None, limit, .. } => machines(limit, globals).await?,
        WorkflowCommand::List { machine: Some(machine), status, limit } => {
            executions(&machine, status, limit, globals).await?;
        }
        WorkflowCommand::Describe { machine, execution } => {
            let door = Door::reach(globals).await?;
            let mut state = None;
            let found = match execution {
                Some(name) => {
                    let arn = door.execution(&machine, &name);
                    let found = door.call("DescribeExecution", &json!({ "executionArn": arn })).await?;
                    if !globals.json && !matches!(found["status"].as_str(), Some("SUCCEEDED" | "RUNNING")) {
                        state = failed_in(&door, &arn, found["error"].as_str().unwrap_or_default()).await;
                    }
                    found
                }
                None => {
                    let arn = door.machine(&machine);
                    let mut found = door.call("DescribeStateMachine", &json!({ "stateMachineArn": arn })).await?;
                    let mut listed = door.call("ListTagsForResource", &json!({ "resourceArn": arn })).await?;
                    found["tags"] = listed["tags"].take();
                    found
                }
            };
            describe(&found, state, globals.json)?;
        }
        WorkflowCommand::Watch { machine, execution } => {
            let door = Door::reach(globals).await?;
            let arn = door.execution(&machine, &execution);
            return watch(&door, &arn, globals.json).await;
        }
        WorkflowCommand::Stop { machine, execution, cause } => {
            let door = Door::reach(globals).await?;
            let arn = door.execution(&machine, &execution);
            let stopped = door.call("StopExecution", &json!({ "executionArn": arn, "cause": cause })).await?;
            if globals.json {
                output::json(&stopped)?;
            } else {
                output::line(format_args!("stopped {execution}"))?;
            }
        }
        WorkflowCommand::Delete { machines } => {
            let door = Door::reach(globals).await?;
            for machine in machines {
                door.call("DeleteStateMachine", &json!({ "stateMachineArn": door.machine(&machine) })).await?;
                if globals.json {
                    output::json(&json!({ "deleted": machine }))?;
                } else {
                    output::line(format_args!("deleted {machine}"))?;
                }
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// The text of a definition: of a file, or - for standard input.
pub(crate) fn definition(given: &str) -> Result<String, CliError> {
    let (what, bytes) = match given {
        "-" => ("standard input", invoke::read_all(std::io::stdin().lock(), "standard input")?),
        path => (path, invoke::read_all(std::fs::File::open(path).map_err(CliError::local(path))?, path)?),
    };
    if bytes.len() as u64 > DEFINITION_MAX {
        return Err(CliError::Usage(format!("{what} is larger than 1 MiB, the most for a definition")));
    }
    String::from_utf8(bytes).map_err(|_| CliError::Usage(format!("{what} is not UTF-8 text")))
}

async fn create(args: &CreateArgs, globals: &Globals) -> Result<(), CliError> {
    let text = definition(&args.definition)?;
    let door = Door::reach(globals).await?;
    let is_standard = |found: &Value| found["type"] == "STANDARD";
    if args.express && door.described(&args.name).await?.as_ref().is_some_and(is_standard) {
        let name = &args.name;
        return Err(CliError::Usage(format!(
            "{name} is a standard state machine, and the type of one cannot change; delete it first (nigh workflow rm \
             {name}), or choose another name"
        )));
    }
    let mut body = creation(&args.name, &text, args.express);
    if !args.scratch.is_empty() {
        body["tags"] = json!([{ "key": "nigh:scratch", "value": args.scratch.join(" ") }]);
    }
    let (made, verb) = door.create_or_change(&args.name, &text, body).await?;
    if globals.json { output::json(&made) } else { output::line(format_args!("{verb} {}", args.name)) }
}

async fn check(given: &str, globals: &Globals) -> Result<ExitCode, CliError> {
    let text = definition(given)?;
    let found =
        Door::reach(globals).await?.call("ValidateStateMachineDefinition", &json!({ "definition": text })).await?;
    let is_whole = found["result"] == "OK";
    if globals.json {
        output::json(&found)?;
    } else if is_whole {
        output::line("the definition is valid")?;
    } else {
        for problem in found["diagnostics"].as_array().into_iter().flatten() {
            output::line(problem["message"].as_str().unwrap_or_default())?;
        }
    }
    Ok(if is_whole { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

async fn start(args: &StartArgs, globals: &Globals) -> Result<ExitCode, CliError> {
    let input = invoke::payload(&args.input)?;
    let door = Door::reach(globals).await?;
    let mut body = json!({
        "stateMachineArn": door.machine(&args.machine), "input": String::from_utf8_lossy(&input),
    });
    if let Some(name) = &args.name {
        body["name"] = name.as_str().into();
    }
    let started = door.call("StartExecution", &body).await?;
    let arn = started["executionArn"].as_str().unwrap_or_default();
    if args.watch {
        return watch(&door, arn, globals.json).await;
    }
    if globals.json {
        output::json(&started)?;
    } else {
        output::line(arn.rsplit(':').next().unwrap_or_default())?;
    }
    Ok(ExitCode::SUCCESS)
}

async fn pages(
    door: &Door,
    operation: &str,
    mut body: Value,
    member: &str,
    limit: usize,
) -> Result<Vec<Value>, CliError> {
    let mut all = Vec::new();
    while all.len() < limit {
        body["maxResults"] = (limit - all.len()).min(PAGE).into();
        let mut page = door.call(operation, &body).await?;
        if let Some(Value::Array(found)) = page.get_mut(member).map(Value::take) {
            all.extend(found);
        }
        match page.get_mut("nextToken").map(Value::take) {
            Some(next) => body["nextToken"] = next,
            None => break,
        }
    }
    Ok(all)
}

async fn machines(limit: usize, globals: &Globals) -> Result<(), CliError> {
    let door = Door::reach(globals).await?;
    let found = pages(&door, "ListStateMachines", json!({}), "stateMachines", limit).await?;
    if globals.json {
        return output::json(&found);
    }
    let mut table = output::table(&["NAME", "TYPE", "CREATED"]);
    for machine in &found {
        table.add_row([text(machine, "name"), text(machine, "type"), date(machine, "creationDate")]);
    }
    output::print_table(&table)
}

async fn executions(machine: &str, status: Option<String>, limit: usize, globals: &Globals) -> Result<(), CliError> {
    let door = Door::reach(globals).await?;
    let mut body = json!({ "stateMachineArn": door.machine(machine) });
    if let Some(status) = status {
        body["statusFilter"] = status.to_uppercase().into();
    }
    let found = pages(&door, "ListExecutions", body, "executions", limit).await?;
    if globals.json {
        return output::json(&found);
    }
    let mut table = output::table(&["NAME", "STATUS", "BEGAN", "TOOK"]);
    for execution in &found {
        let took = match (execution["startDate"].as_f64(), execution["stopDate"].as_f64()) {
            (Some(start), Some(stop)) => output::duration(((stop - start).max(0.0) * 1e6) as u64),
            _ => "-".to_owned(),
        };
        let status = text(execution, "status");
        table.add_row([text(execution, "name"), in_colour(&status), date(execution, "startDate"), took]);
    }
    output::print_table(&table)
}

fn in_colour(status: &str) -> String {
    match status {
        "SUCCEEDED" => status.to_owned(),
        "RUNNING" => coloured(Colour::Yellow, status),
        failed => coloured(Colour::Red, failed),
    }
}

fn text(value: &Value, name: &str) -> String {
    let text = value[name].as_str().unwrap_or_default();
    printable::shown(&std::io::stdout(), text).into_owned()
}

fn date(value: &Value, name: &str) -> String {
    let millis = value[name].as_f64().unwrap_or_default() * 1000.0;
    nigh_terms::Timestamp(millis.max(0.0) as u64).rfc3339()
}

fn describe(found: &Value, failed_in: Option<String>, as_json: bool) -> Result<(), CliError> {
    if as_json {
        return output::json(found);
    }
    let mut table = output::table(&[]);
    let mut row = |name: &str, value: String| {
        if !value.is_empty() {
            table.add_row([name.to_owned(), value]);
        }
    };
    row("name", text(found, "name"));
    row("type", text(found, "type"));
    row("status", text(found, "status"));
    for (name, field) in [("created", "creationDate"), ("began", "startDate"), ("ended", "stopDate")] {
        if found.get(field).is_some() {
            row(name, date(found, field));
        }
    }
    for tag in found["tags"].as_array().into_iter().flatten() {
        row(text(tag, "key").trim_start_matches("nigh:"), text(tag, "value"));
    }
    row("failed in", printable::shown(&std::io::stdout(), &failed_in.unwrap_or_default()).into_owned());
    row("error", text(found, "error"));
    row("cause", text(found, "cause"));
    output::print_table(&table)?;
    for field in ["definition", "input", "output"] {
        let Some(held) = found[field].as_str() else { continue };
        output::line(format_args!("{field}:"))?;
        match serde_json::from_str::<Value>(held) {
            Ok(value) => output::json(&value)?,
            Err(_) => output::line(held)?,
        }
    }
    Ok(())
}
