//! `nigh schedules`, and what `nigh deploy` says of a schedule.

use clap::{Args, Subcommand};
use nigh_node::client::{ClientError, ScheduleName, ScheduleTimes, SchedulerClient, Timetable};
use nigh_node::config::Span;
use nigh_terms::{FunctionName, Timestamp};
use serde_json::{Value, json};

use crate::context::{DoorAccess, Globals};
use crate::error::CliError;
use crate::output::{self, Colour, coloured};
use crate::printable;

/// EventBridge requires a role; Nigh stores it and never uses it.
pub(crate) const ROLE: &str = "arn:aws:iam::000000000000:role/nigh";

/// When `nigh deploy` lets a function run by itself. The schedule has the function's name.
#[derive(Args, Debug, Default)]
pub(crate) struct ScheduleArgs {
    /// Run the function at once and then every so often, for example '5 min' or '1 h'; replaces its schedule
    #[arg(long, value_name = "TIME", value_parser = every, conflicts_with = "cron")]
    every: Option<Expression>,
    /// Run the function when the calendar fits: minutes hours day-of-month month day-of-week year, ? for one of the two
    /// days, for example '0 9 ? * MON-FRI *'; replaces its schedule
    #[arg(long, value_name = "FIELDS", value_parser = cron)]
    cron: Option<Expression>,
    /// The time zone of --cron, for example Europe/Berlin [default: UTC]
    #[arg(long, value_name = "ZONE", requires = "cron", conflicts_with = "every")]
    timezone: Option<String>,
}

/// A schedule expression, which was read.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Expression(String);

/// The words for this span as an interval of whole minutes.
fn every(text: &str) -> Result<Expression, String> {
    let millis = text.parse::<Span>().map_err(|error| error.to_string())?.duration().as_millis();
    let minutes = millis / 60_000;
    if minutes == 0 || !millis.is_multiple_of(60_000) {
        return Err("an interval is in whole minutes, at least one: write '5 min' or '1 h'".to_owned());
    }
    let (value, unit) = match minutes {
        days if days.is_multiple_of(24 * 60) => (days / (24 * 60), "day"),
        hours if hours.is_multiple_of(60) => (hours / 60, "hour"),
        minutes => (minutes, "minute"),
    };
    let plural = if value == 1 { "" } else { "s" };
    checked(format!("rate({value} {unit}{plural})"))
}

fn cron(text: &str) -> Result<Expression, String> {
    let text = text.trim();
    let fields = text.strip_prefix("cron(").and_then(|text| text.strip_suffix(')')).unwrap_or(text);
    checked(format!("cron({fields})"))
}

fn checked(expression: String) -> Result<Expression, String> {
    FunctionSchedule::of(Expression(expression), None).map(|schedule| Expression(schedule.expression))
}

impl ScheduleArgs {
    /// The schedule that was asked for.
    ///
    /// # Errors
    /// If there is no such time zone.
    pub(crate) fn schedule(&self) -> Result<Option<FunctionSchedule>, CliError> {
        let Some(expression) = self.every.as_ref().or(self.cron.as_ref()) else { return Ok(None) };
        let read = FunctionSchedule::of(expression.clone(), self.timezone.as_deref());
        read.map(Some).map_err(|why| CliError::Usage(format!("--timezone: {why}")))
    }
}

/// When a function runs by itself. The schedule has the function's name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FunctionSchedule {
    expression: String,
    zone: String,
}

impl FunctionSchedule {
    /// Reads a period or a calendar, with the calendar's time zone, as the flags of `nigh deploy` and a function's file
    /// have them. None if there is neither.
    ///
    /// # Errors
    /// If one of them cannot be read.
    pub(crate) fn read(
        period: Option<&str>,
        calendar: Option<&str>,
        zone: Option<&str>,
    ) -> Result<Option<Self>, String> {
        let expression = match (period, calendar) {
            (Some(period), _) => every(period)?,
            (None, Some(calendar)) => cron(calendar)?,
            (None, None) => return Ok(None),
        };
        Self::of(expression, zone).map(Some)
    }

    fn of(Expression(expression): Expression, zone: Option<&str>) -> Result<Self, String> {
        let time_zone = zone.unwrap_or("UTC").to_owned();
        let times = ScheduleTimes { expression, time_zone, start: None, end: None };
        Timetable::of(&times, Timestamp(0)).map_err(|error| error.to_string())?;
        Ok(Self { expression: times.expression, zone: times.time_zone })
    }

    /// The schedule in words.
    pub(crate) fn words(&self) -> String {
        format!("{} in {}", self.expression, self.zone)
    }

    /// True if `deployed`, in the API's form, is due at the same times.
    pub(crate) fn is(&self, deployed: &Value) -> bool {
        self.words() == words_of(deployed)
    }

    /// Gives it to the function `name`, whose ARN is `arn`.
    ///
    /// # Errors
    /// The door's refusal.
    pub(crate) async fn give(&self, name: &FunctionName, arn: &str, globals: &Globals) -> Result<(), CliError> {
        let schedule = json!({
            "ScheduleExpression": self.expression,
            "ScheduleExpressionTimezone": self.zone,
            "FlexibleTimeWindow": { "Mode": "OFF" },
            "Target": { "Arn": arn, "RoleArn": ROLE },
        });
        Ok(client(globals).await?.put(&schedule_of(name)?, &schedule).await.map(drop)?)
    }
}

/// The words for a schedule in the API's form.
pub(crate) fn words_of(schedule: &Value) -> String {
    format!("{} in {}", text(schedule, "/ScheduleExpression"), text(schedule, "/ScheduleExpressionTimezone"))
}

/// The schedule of the function `name`, in the API's form; none if it has none.
pub(crate) async fn deployed(name: &FunctionName, globals: &Globals) -> Result<Option<Value>, CliError> {
    match client(globals).await?.get(&schedule_of(name)?).await {
        Ok(schedule) => Ok(Some(schedule)),
        Err(error) if error.is_not_found() => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Gives the function `name` back the schedule that it had; none: it had none.
pub(crate) async fn put_back(name: &FunctionName, before: Option<&Value>, globals: &Globals) -> Result<(), CliError> {
    let (client, name) = (client(globals).await?, schedule_of(name)?);
    match before {
        Some(schedule) => Ok(client.put(&name, schedule).await.map(drop)?),
        None => Ok(client.delete(&name).await?),
    }
}

fn schedule_of(name: &FunctionName) -> Result<ScheduleName, CliError> {
    ScheduleName::new(name.as_str()).map_err(|error| CliError::Usage(error.to_string()))
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

`nigh deploy NAME --every TIME` or `--cron FIELDS` makes a schedule, which has the function's name. The SDKs and aws-cli
make others by EventBridge Scheduler's API: docs/reference/lambda.md.")]
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
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Words {
        #[command(flatten)]
        args: ScheduleArgs,
    }

    #[test]
    fn intervals_become_rates_in_the_largest_unit_that_fits() {
        for (text, rate) in [
            ("5 min", "rate(5 minutes)"),
            ("60 s", "rate(1 minute)"),
            ("90min", "rate(90 minutes)"),
            ("1 h", "rate(1 hour)"),
            ("48 h", "rate(2 days)"),
        ] {
            assert_eq!(every(text), Ok(Expression(rate.to_owned())));
        }
        for bad in ["30 s", "90 s", "0 min", "5"] {
            assert!(every(bad).is_err(), "{bad}");
        }
        assert!(every("99999999 h").unwrap_err().contains("ten years"));
    }

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

    #[test]
    fn a_cron_expression_is_checked_before_anything_is_deployed() {
        let read = |words: &[&str]| Words::try_parse_from([&["deploy"], words].concat());
        let args = read(&["--cron", "0 9 ? * MON-FRI *", "--timezone", "Europe/Berlin"]).unwrap().args;
        assert_eq!(args.cron, Some(Expression("cron(0 9 ? * MON-FRI *)".to_owned())));
        assert_eq!(cron("cron(0 9 ? * MON-FRI *)"), cron(" 0 9 ? * MON-FRI * "));
        assert_eq!(args.schedule().unwrap().unwrap().words(), "cron(0 9 ? * MON-FRI *) in Europe/Berlin");
        assert!(read(&[]).unwrap().args.schedule().unwrap().is_none());
        let nowhere = read(&["--cron", "0 9 ? * MON *", "--timezone", "Europe/Nowhere"]).unwrap().args.schedule();
        assert!(nowhere.unwrap_err().to_string().contains("Europe/Nowhere"));
        let five = read(&["--cron", "*/5 * * * *"]).unwrap_err().to_string();
        assert!(five.contains("six fields"), "{five}");
        assert!(read(&["--cron", "0 9 ? * MON *", "--every", "1 h"]).is_err());
        assert!(read(&["--every", "1 h", "--timezone", "UTC"]).is_err());
    }

    #[test]
    fn a_function_s_schedule_is_told_from_another_by_its_times() {
        let schedule = FunctionSchedule::read(Some("5 min"), None, None).unwrap().unwrap();
        assert_eq!(schedule.words(), "rate(5 minutes) in UTC");
        let deployed = json!({ "ScheduleExpression": "rate(5 minutes)", "ScheduleExpressionTimezone": "UTC" });
        assert!(schedule.is(&deployed));
        assert!(!schedule.is(&json!({ "ScheduleExpression": "rate(1 hour)", "ScheduleExpressionTimezone": "UTC" })));
        assert_eq!(FunctionSchedule::read(None, None, None), Ok(None));
        assert!(FunctionSchedule::read(None, Some("0 9 ? * MON *"), Some("Nowhere")).is_err());
    }
}
