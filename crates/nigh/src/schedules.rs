//! `nigh schedules`, and what `nigh deploy` says of a schedule.

mod function_schedule;

use clap::Subcommand;
use nigh_node::client::{ClientError, ScheduleName, SchedulerClient};
use nigh_terms::{FunctionName, Timestamp};
use serde_json::{Value, json};

pub(crate) use self::function_schedule::{ScheduleArgs, ScheduleChange, deployed, set};
use crate::context::{DoorAccess, Globals};
use crate::error::CliError;
use crate::output::{self, Colour, coloured};
use crate::printable;

/// EventBridge requires a role; Nigh stores it and never uses it.
pub(crate) const ROLE: &str = "arn:aws:iam::000000000000:role/nigh";

/// The words for a schedule in the API's form.
pub(crate) fn words_of(schedule: &Value) -> String {
    format!("{} in {}", text(schedule, "/ScheduleExpression"), text(schedule, "/ScheduleExpressionTimezone"))
}

/// The schedules that run the function `name`, in the form of the API's list.
pub(crate) async fn of_function(name: &FunctionName, globals: &Globals) -> Result<Vec<Value>, CliError> {
    let mut all = client(globals).await?.list().await?;
    all.retain(|schedule| function_of(text(schedule, "/Target/Arn")) == name.as_str());
    Ok(all)
}

/// The function that an ARN names, perhaps with a version behind it.
fn function_of(arn: &str) -> &str {
    let named = arn.split_once(":function:").map_or(arn, |(_, named)| named);
    named.split(':').next().unwrap_or(named)
}

/// A client of the scheduler's API.
pub(crate) async fn client(globals: &Globals) -> Result<SchedulerClient, CliError> {
    let DoorAccess { door, region, credentials } = globals.reach(|endpoints| endpoints.lambda).await?;
    Ok(SchedulerClient::new(&door, &region, &credentials)?)
}

/// Subcommands of `nigh schedules`.
#[derive(Subcommand)]
#[command(after_help = "\
Examples:
  nigh deploy report --cron '0 9 ? * MON-FRI *' --timezone Europe/Berlin
  nigh schedules ls                       when each runs next
  nigh schedules pause report             until `nigh schedules resume report`; what falls due meanwhile is not made up
  nigh schedules rm report

`nigh deploy NAME --every TIME` or `--cron FIELDS` makes a schedule, which has the function's name, and `--every none`
removes it. The SDKs and aws-cli make others by EventBridge Scheduler's API: docs/reference/lambda.md.")]
pub(crate) enum SchedulesCommand {
    /// List the namespace's schedules with their next and last runs
    #[command(visible_alias = "ls")]
    List {
        /// Only schedules whose names begin like this
        prefix: Option<String>,
        /// Only schedules that run this function
        #[arg(long)]
        function: Option<FunctionName>,
        /// List so many at most
        #[arg(long, default_value_t = 1000)]
        limit: usize,
    },
    /// Show a schedule as EventBridge Scheduler's API describes it
    Show {
        /// The schedule's name
        name: ScheduleName,
    },
    /// Pause a schedule: no run of it begins
    Pause {
        /// The schedule's name
        name: ScheduleName,
    },
    /// Let a paused schedule go on; what fell due meanwhile is not made up
    Resume {
        /// The schedule's name
        name: ScheduleName,
    },
    /// Remove a schedule; its function stays
    Rm {
        /// The schedule's name
        name: ScheduleName,
    },
}

/// Runs it.
pub(crate) async fn run(command: SchedulesCommand, globals: &Globals) -> Result<(), CliError> {
    let client = client(globals).await?;
    match command {
        SchedulesCommand::List { prefix, function, limit } => {
            let mut schedules = client.list().await?;
            schedules.retain(|one| is_listed(one, prefix.as_deref(), function.as_ref()));
            schedules.truncate(limit);
            if globals.json { output::json(&schedules) } else { list(&schedules) }
        }
        SchedulesCommand::Show { name } => {
            let schedule = client.get(&name).await.map_err(|error| not_there(&name, error))?;
            if globals.json { output::json(&schedule) } else { show(&schedule) }
        }
        SchedulesCommand::Pause { name } => change(&client, &name, "DISABLED", "paused", globals).await,
        SchedulesCommand::Resume { name } => change(&client, &name, "ENABLED", "resumed", globals).await,
        SchedulesCommand::Rm { name } => {
            client.delete(&name).await.map_err(|error| not_there(&name, error))?;
            say("removed", &name, globals)
        }
    }
}

/// Whether a schedule's name begins with `prefix`, and it runs `function`; where these are asked for.
fn is_listed(schedule: &Value, prefix: Option<&str>, function: Option<&FunctionName>) -> bool {
    prefix.is_none_or(|prefix| text(schedule, "/Name").starts_with(prefix))
        && function.is_none_or(|function| function_of(text(schedule, "/Target/Arn")) == function.as_str())
}

async fn change(
    client: &SchedulerClient,
    name: &ScheduleName,
    state: &str,
    done: &str,
    globals: &Globals,
) -> Result<(), CliError> {
    client.set_state(name, state).await.map_err(|error| not_there(name, error))?;
    say(done, name, globals)
}

fn say(done: &str, name: &ScheduleName, globals: &Globals) -> Result<(), CliError> {
    if globals.json {
        return output::json(&json!({ done: name }));
    }
    output::line(format_args!("{done} {name}"))
}

fn not_there(name: &ScheduleName, error: ClientError) -> CliError {
    if error.is_not_found() {
        return CliError::Failed(format!("there is no schedule {name}; `nigh schedules ls` lists them"));
    }
    error.into()
}

/// A date as the API has it.
pub(crate) fn date(schedule: &Value, field: &str) -> String {
    let seconds = schedule.get(field).and_then(Value::as_f64);
    seconds.map_or_else(
        || "-".to_owned(),
        |seconds| format!("{}Z", &Timestamp((seconds * 1000.0).round() as u64).rfc3339()[..19]),
    )
}

fn text<'a>(schedule: &'a Value, pointer: &str) -> &'a str {
    schedule.pointer(pointer).and_then(Value::as_str).unwrap_or("?")
}

fn list(schedules: &[Value]) -> Result<(), CliError> {
    let mut table = output::table(&["NAME", "FUNCTION", "WHEN", "ZONE", "STATE", "NEXT", "LAST"]);
    for schedule in schedules {
        let is_on = text(schedule, "/State") == "ENABLED";
        let state = if is_on { "on".to_owned() } else { coloured(Colour::Yellow, "paused") };
        let function = function_of(text(schedule, "/Target/Arn"));
        let shown = |pointer: &str| printable::shown(&std::io::stdout(), text(schedule, pointer)).into_owned();
        table.add_row([
            text(schedule, "/Name").to_owned(),
            function.to_owned(),
            shown("/ScheduleExpression"),
            shown("/ScheduleExpressionTimezone"),
            state,
            date(schedule, "NextRun"),
            date(schedule, "LastRun"),
        ]);
    }
    output::print_table(&table)
}

fn show(schedule: &Value) -> Result<(), CliError> {
    let mut table = output::table(&["SETTING", "VALUE"]);
    for (field, value) in schedule.as_object().into_iter().flatten() {
        let is_date = field.ends_with("Date") || field.ends_with("Run");
        let value = match value {
            Value::Number(_) if is_date => date(schedule, field),
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        table.add_row([field.clone(), printable::shown(&std::io::stdout(), &value).into_owned()]);
    }
    output::print_table(&table)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schedules_are_listed_by_the_beginning_of_their_names_and_by_their_function() {
        let schedule = json!({
            "Name": "nightly-report",
            "Target": { "Arn": "arn:aws:lambda:us-east-1:000000000000:function:report" },
        });
        let [report, other] = ["report", "reports"].map(|name| FunctionName::new(name).unwrap());
        for (prefix, function, expected) in [
            (None, None, true),
            (Some("nightly"), Some(&report), true),
            (Some("report"), None, false),
            (None, Some(&other), false),
        ] {
            assert_eq!(is_listed(&schedule, prefix, function), expected, "{prefix:?} {function:?}");
        }
    }
}
