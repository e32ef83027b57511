//! `nigh workflow`.

use std::collections::HashMap;
use std::io::IsTerminal as _;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Subcommand};
use nigh_node::client::{ClientError, StatesClient};
use serde_json::{Value, json};

use crate::context::Globals;
use crate::error::CliError;
use crate::invoke;
use crate::output::{self, Colour, coloured};
use crate::printable;

/// The longest definition: 1 MiB.
const DEFINITION_MAX: u64 = 1 << 20;
/// How often a watched execution is looked at.
const WATCH_EVERY: Duration = Duration::from_millis(300);
/// What one request is given of a list.
const PAGE: usize = 1000;

/// Subcommands of `nigh workflow`.
#[derive(Subcommand)]
#[command(after_help = "\
Examples:
  nigh workflow create thumbnails pipeline.asl.json       or change it: definitions in the Amazon States Language
  nigh workflow check pipeline.asl.json                   what is wrong with it, each by its place
  nigh workflow start thumbnails '{\"key\": \"cat.png\"}' --watch
  nigh workflow list                                      machines; with a name, its executions
  nigh workflow watch thumbnails RUN                      live, to its end
  nigh workflow stop thumbnails RUN

An execution goes on when the node is killed and started again: docs/workflows.md.")]
pub(crate) enum WorkflowCommand {
    /// Make a state machine, or change the one of that name; executions that run go on as they began
    Create(CreateArgs),
    /// Say what is wrong with a definition
    Check {
        /// A file, or - for standard input
        definition: String,
    },
    /// Start an execution
    Start(StartArgs),
    /// List state machines, or the executions of one, newest first
    #[command(visible_alias = "ls")]
    List {
        /// The machine
        machine: Option<String>,
        /// Only those that are so: running, succeeded, failed, timed_out, aborted
        #[arg(long)]
        status: Option<String>,
        /// How many
        #[arg(long, default_value_t = 100)]
        limit: usize,
    },
    /// Show a state machine, or an execution of it
    Describe {
        /// The machine
        machine: String,
        /// The execution
        execution: Option<String>,
    },
    /// Show what happens to an execution while it does, until it has ended
    Watch {
        /// The machine
        machine: String,
        /// The execution
        execution: String,
    },
    /// Stop an execution; functions that it runs go on to their end
    Stop {
        /// The machine
        machine: String,
        /// The execution
        execution: String,
        /// Why: kept with it
        #[arg(long)]
        cause: Option<String>,
    },
    /// Remove a state machine; executions that run go on
    Delete {
        /// The machine
        machine: String,
    },
}

/// Options of `nigh workflow create`.
#[derive(Args)]
pub(crate) struct CreateArgs {
    /// Its name
    name: String,
    /// The definition: a file, or - for standard input
    definition: String,
    /// In memory alone: for many short executions, whose caller waits
    #[arg(long)]
    express: bool,
    /// A folder for what lies between stages: in memory alone, and dropped at the end (BUCKET/FOLDER/)
    #[arg(long, value_name = "FOLDER")]
    scratch: Vec<String>,
}

/// Options of `nigh workflow start`.
#[derive(Args)]
pub(crate) struct StartArgs {
    /// The machine
    machine: String,
    /// Its input as JSON: the text itself, @FILE, or - for standard input
    #[arg(default_value = "{}")]
    input: String,
    /// The execution's name; started again by the same name it is the same execution
    #[arg(long)]
    name: Option<String>,
    /// Show what happens until it has ended; the exit code is 1 if it failed
    #[arg(long)]
    watch: bool,
}

struct Door {
    client: StatesClient,
    region: String,
}

impl Door {
    async fn reach(globals: &Globals) -> Result<Self, CliError> {
        let reached = globals.reach(|endpoints| endpoints.lambda).await?;
        let client = StatesClient::new(&reached.url, &reached.region, &reached.credentials)?;
        Ok(Self { client, region: reached.region })
    }

    fn machine(&self, name: &str) -> String {
        if name.starts_with("arn:") {
            return name.to_owned();
        }
        format!("arn:aws:states:{}:000000000000:stateMachine:{name}", self.region)
    }

    fn execution(&self, machine: &str, name: &str) -> String {
        if name.starts_with("arn:") {
            return name.to_owned();
        }
        format!("arn:aws:states:{}:000000000000:execution:{machine}:{name}", self.region)
    }

    async fn call(&self, operation: &str, body: &Value) -> Result<Value, CliError> {
        Ok(self.client.call(operation, body).await?)
    }
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
            let found = match execution {
                Some(name) => {
                    let body = json!({ "executionArn": door.execution(&machine, &name) });
                    door.call("DescribeExecution", &body).await?
                }
                None => {
                    let body = json!({ "stateMachineArn": door.machine(&machine) });
                    door.call("DescribeStateMachine", &body).await?
                }
            };
            describe(&found, globals.json)?;
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
        WorkflowCommand::Delete { machine } => {
            let door = Door::reach(globals).await?;
            door.call("DeleteStateMachine", &json!({ "stateMachineArn": door.machine(&machine) })).await?;
            if globals.json {
                output::json(&json!({ "deleted": machine }))?;
            } else {
                output::line(format_args!("deleted {machine}"))?;
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn definition(given: &str) -> Result<String, CliError> {
    let (what, bytes) = match given {
        "-" => ("standard input", invoke::read_all(std::io::stdin().lock(), "standard input")?),
        path => (path, invoke::read_all(std::fs::File::open(path).map_err(CliError::local(path))?, path)?),
    };
    if bytes.len() as u64 > DEFINITION_MAX {
        return Err(CliError::Usage(format!("{what} has more than the 1 MiB that a definition may have")));
    }
    String::from_utf8(bytes).map_err(|_| CliError::Usage(format!("{what} is no text")))
}

async fn create(args: &CreateArgs, globals: &Globals) -> Result<(), CliError> {
    let text = definition(&args.definition)?;
    let door = Door::reach(globals).await?;
    let mut body = json!({
        "name": args.name,
        "definition": text,
        "roleArn": "arn:aws:iam::000000000000:role/nigh",
        "type": if args.express { "EXPRESS" } else { "STANDARD" },
    });
    if !args.scratch.is_empty() {
        body["tags"] = json!([{ "key": "nigh:scratch", "value": args.scratch.join(" ") }]);
    }
    let (made, verb) = match door.client.call("CreateStateMachine", &body).await {
        Err(ClientError::Refused { code, .. }) if code == "StateMachineAlreadyExists" => {
            let change = json!({ "stateMachineArn": door.machine(&args.name), "definition": text });
            (door.call("UpdateStateMachine", &change).await?, "changed")
        }
        made => (made?, "made"),
    };
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
        output::line("it is a state machine")?;
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
    let mut table = output::table(&["NAME", "TYPE", "MADE"]);
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

fn describe(found: &Value, as_json: bool) -> Result<(), CliError> {
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
    for (name, field) in [("made", "creationDate"), ("began", "startDate"), ("ended", "stopDate")] {
        if found.get(field).is_some() {
            row(name, date(found, field));
        }
    }
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

/// Shows each event as it comes; the exit code says whether it succeeded.
async fn watch(door: &Door, arn: &str, as_json: bool) -> Result<ExitCode, CliError> {
    let (mut seen, mut progress) = (0, Progress::default());
    loop {
        // First how it stands: what led to an end is in the history that is asked for then.
        let described = door.call("DescribeExecution", &json!({ "executionArn": arn })).await?;
        loop {
            let body = json!({
                "executionArn": arn, "maxResults": PAGE, "includeExecutionData": false, "nextToken": seen.to_string(),
            });
            let page = door.call("GetExecutionHistory", &body).await?;
            for event in page["events"].as_array().into_iter().flatten() {
                seen += 1;
                if as_json {
                    output::bytes(format!("{event}\n").as_bytes())?;
                } else {
                    progress.show(event)?;
                }
            }
            if page.get("nextToken").is_none() {
                break;
            }
        }
        if described["status"] != "RUNNING" {
            return end(&described, as_json);
        }
        tokio::time::sleep(WATCH_EVERY).await;
    }
}

fn end(execution: &Value, as_json: bool) -> Result<ExitCode, CliError> {
    let succeeded = execution["status"] == "SUCCEEDED";
    if as_json {
        output::bytes(format!("{execution}\n").as_bytes())?;
    } else {
        let status = text(execution, "status");
        match (succeeded, execution["error"].as_str()) {
            (true, _) => output::remark(format_args!("nigh: {}", in_colour(&status))),
            (false, error) => {
                let (error, cause) = (error.unwrap_or_default(), text(execution, "cause"));
                output::remark(format_args!("nigh: {} {error}: {cause}", in_colour(&status)));
            }
        }
        if let Some(out) = execution["output"].as_str() {
            output::line(printable::shown(&std::io::stdout(), out))?;
        }
    }
    Ok(if succeeded { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// What was shown of a watched execution.
#[derive(Default)]
struct Progress {
    began: Option<f64>,
    /// When each state was entered last.
    entered: HashMap<String, f64>,
    /// Of the map that runs: iterations begun, done and to do.
    iterations: (u64, u64, u64),
}

impl Progress {
    fn show(&mut self, event: &Value) -> Result<(), CliError> {
        let (kind, at) = (event["type"].as_str().unwrap_or_default(), event["timestamp"].as_f64().unwrap_or_default());
        let began = *self.began.get_or_insert(at);
        let detail = |member: &str, field: &str| event[member][field].as_str().unwrap_or_default().to_owned();
        let words = match kind {
            _ if kind.ends_with("StateEntered") => {
                let name = detail("stateEnteredEventDetails", "name");
                let words = format!("{name}: {}", kind.trim_end_matches("StateEntered").to_lowercase());
                self.entered.insert(name, at);
                words
            }
            _ if kind.ends_with("StateExited") => {
                let name = detail("stateExitedEventDetails", "name");
                let took = self.entered.get(&name).map_or(0.0, |entered| at - entered);
                format!("{name}: done in {}", output::duration((took.max(0.0) * 1e6) as u64))
            }
            "MapStateStarted" => {
                self.iterations = (0, 0, event["mapStateStartedEventDetails"]["length"].as_u64().unwrap_or_default());
                format!("{} iterations", self.iterations.2)
            }
            "MapIterationSucceeded" | "MapIterationFailed" => {
                self.iterations.1 += 1;
                // A line each would hide all else: on a terminal one line says how many are done.
                if std::io::stderr().is_terminal() || self.iterations.1 == self.iterations.2 {
                    output::remark(format_args!("  {} of {} iterations", self.iterations.1, self.iterations.2));
                }
                return Ok(());
            }
            "LambdaFunctionFailed" => format!("failed: {}", detail("lambdaFunctionFailedEventDetails", "error")),
            "TaskFailed" => format!("failed: {}", detail("taskFailedEventDetails", "error")),
            "LambdaFunctionTimedOut" | "TaskTimedOut" => "timed out".to_owned(),
            _ => return Ok(()),
        };
        output::line(format_args!(
            "{:>9} {}",
            output::duration(((at - began).max(0.0) * 1e6) as u64),
            printable::shown(&std::io::stdout(), &words)
        ))
    }
}
