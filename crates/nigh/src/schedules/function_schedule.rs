//! The schedule that `nigh deploy` gives a function. It has the function's name; others are left as they are.

use std::time::Duration;

use clap::Args;
use nigh_node::client::{ScheduleName, ScheduleTimes, Timetable};
use nigh_node::config::Span;
use nigh_terms::{FunctionName, Timestamp};
use serde_json::{Value, json};

use super::{ROLE, client, function_of, text, words_of};
use crate::context::Globals;
use crate::error::CliError;

/// The word that takes a schedule back.
const NONE: &str = "none";
/// Units of intervals, each with its seconds, beside those of settings (`s`, `min`, `h`).
const UNITS: [(&str, u64); 9] = [
    ("second", 1),
    ("seconds", 1),
    ("minute", 60),
    ("minutes", 60),
    ("hour", 3600),
    ("hours", 3600),
    ("d", 86_400),
    ("day", 86_400),
    ("days", 86_400),
];

/// When `nigh deploy` lets a function run by itself. The schedule has the function's name.
#[derive(Args, Debug, Default)]
pub(crate) struct ScheduleArgs {
    /// Run the function at once and then every so often, for example '5 min' or '1 hour'; replaces its schedule; `none`
    /// takes back the schedule that a deployment gave it
    #[arg(long, value_name = "TIME|none", value_parser = every, conflicts_with = "cron")]
    every: Option<Expression>,
    /// Run the function when the calendar fits: minutes hours day-of-month month day-of-week year, ? for one of the two
    /// days, for example '0 9 ? * MON-FRI *'; replaces its schedule; `none` as with --every
    #[arg(long, value_name = "FIELDS|none", value_parser = cron)]
    cron: Option<Expression>,
    /// The time zone of --cron, for example Europe/Berlin [default: UTC]
    #[arg(long, value_name = "ZONE", requires = "cron", conflicts_with = "every")]
    timezone: Option<String>,
}

/// A schedule expression, which was read; none for the word `none`.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Expression(Option<String>);

/// The words for this span as an interval of whole minutes.
fn every(text: &str) -> Result<Expression, String> {
    let text = text.trim();
    if text == NONE {
        return Ok(Expression(None));
    }
    // `nigh deploy` prints an interval so.
    let period = text.strip_prefix("rate(").and_then(|text| text.strip_suffix(')')).unwrap_or(text);
    let refused = || format!("{text:?} is no interval; write '5 min', '1 hour' or '2 days'");
    let millis = interval(period).ok_or_else(refused)?.as_millis();
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

/// The time that `text` names; none if it names none.
fn interval(text: &str) -> Option<Duration> {
    let text = text.trim();
    let (digits, unit) = text.split_at(text.find(|c: char| !c.is_ascii_digit())?);
    match UNITS.iter().find(|(name, _)| name.eq_ignore_ascii_case(unit.trim())) {
        Some((_, seconds)) => digits.parse::<u64>().ok()?.checked_mul(*seconds).map(Duration::from_secs),
        None => text.parse::<Span>().ok().map(Span::duration),
    }
}

fn cron(text: &str) -> Result<Expression, String> {
    let text = text.trim();
    if text == NONE {
        return Ok(Expression(None));
    }
    let fields = text.strip_prefix("cron(").and_then(|text| text.strip_suffix(')')).unwrap_or(text);
    checked(format!("cron({fields})"))
}

fn checked(expression: String) -> Result<Expression, String> {
    FunctionSchedule::of(expression, None).map(|schedule| Expression(Some(schedule.expression)))
}

impl ScheduleArgs {
    /// What was asked for.
    ///
    /// # Errors
    /// If there is no such time zone.
    pub(crate) fn change(&self) -> Result<Option<ScheduleChange>, CliError> {
        let Some(expression) = self.every.as_ref().or(self.cron.as_ref()) else { return Ok(None) };
        let read = ScheduleChange::of(expression.clone(), self.timezone.as_deref());
        read.map(Some).map_err(|why| CliError::Usage(format!("--timezone: {why}")))
    }
}

/// How a function's schedule changes: it gets this one, or, if there is none, loses the one that a deployment gave it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ScheduleChange(Option<FunctionSchedule>);

/// When a function runs by itself.
#[derive(Clone, Debug, PartialEq, Eq)]
struct FunctionSchedule {
    expression: String,
    zone: String,
}

impl ScheduleChange {
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
        match (expression, zone) {
            (Some(expression), zone) => FunctionSchedule::of(expression, zone).map(|schedule| Self(Some(schedule))),
            (None, None) => Ok(Self(None)),
            (None, Some(_)) => Err("`none` takes the schedule back: leave the time zone out".to_owned()),
        }
    }

    /// The new schedule in words; none if the function loses its schedule.
    pub(crate) fn words(&self) -> Option<String> {
        self.0.as_ref().map(FunctionSchedule::words)
    }

    /// True if there is nothing to do: `deployed` is the schedule of the function's name, in the API's form.
    pub(crate) fn is_done(&self, name: &FunctionName, deployed: Option<&Value>) -> bool {
        match (&self.0, deployed) {
            (Some(wanted), Some(deployed)) => wanted.words() == words_of(deployed),
            (Some(_), None) => false,
            (None, deployed) => !deployed.is_some_and(|deployed| is_of_deployment(name, deployed)),
        }
    }

    /// Carries it out for the function `name`, whose ARN is `arn`.
    ///
    /// # Errors
    /// The door's refusal.
    pub(crate) async fn carry_out(&self, name: &FunctionName, arn: &str, globals: &Globals) -> Result<(), CliError> {
        let Some(FunctionSchedule { expression, zone }) = &self.0 else { return set(name, None, globals).await };
        let schedule = json!({
            "ScheduleExpression": expression,
            "ScheduleExpressionTimezone": zone,
            "FlexibleTimeWindow": { "Mode": "OFF" },
            "Target": { "Arn": arn, "RoleArn": ROLE },
        });
        set(name, Some(&schedule), globals).await
    }
}

impl FunctionSchedule {
    fn of(expression: String, zone: Option<&str>) -> Result<Self, String> {
        let time_zone = zone.unwrap_or("UTC").to_owned();
        let times = ScheduleTimes { expression, time_zone, start: None, end: None };
        Timetable::of(&times, Timestamp(0)).map_err(|error| error.to_string())?;
        Ok(Self { expression: times.expression, zone: times.time_zone })
    }

    fn words(&self) -> String {
        format!("{} in {}", self.expression, self.zone)
    }
}

/// True if a deployment gave the function `name` this schedule. The SDKs may have made one of the same name, with a role
/// of theirs.
fn is_of_deployment(name: &FunctionName, schedule: &Value) -> bool {
    function_of(text(schedule, "/Target/Arn")) == name.as_str() && text(schedule, "/Target/RoleArn") == ROLE
}

/// The schedule of the function's name, in the API's form; none if there is none.
pub(crate) async fn deployed(name: &FunctionName, globals: &Globals) -> Result<Option<Value>, CliError> {
    match client(globals).await?.get(&schedule_of(name)?).await {
        Ok(schedule) => Ok(Some(schedule)),
        Err(error) if error.is_not_found() => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Makes this the schedule of the function's name, in the API's form; with none, there is none afterwards.
pub(crate) async fn set(name: &FunctionName, schedule: Option<&Value>, globals: &Globals) -> Result<(), CliError> {
    let (client, name) = (client(globals).await?, schedule_of(name)?);
    let Some(schedule) = schedule else {
        return match client.delete(&name).await {
            Err(error) if !error.is_not_found() => Err(error.into()),
            _ => Ok(()),
        };
    };
    Ok(client.put(&name, schedule).await.map(drop)?)
}

fn schedule_of(name: &FunctionName) -> Result<ScheduleName, CliError> {
    ScheduleName::new(name.as_str()).map_err(|error| CliError::Usage(error.to_string()))
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

    fn read(words: &[&str]) -> Result<Words, clap::Error> {
        Words::try_parse_from([&["deploy"], words].concat())
    }

    #[test]
    fn intervals_become_rates_in_the_largest_unit_that_fits() {
        for (text, rate) in [
            ("5 min", "rate(5 minutes)"),
            ("60 s", "rate(1 minute)"),
            ("60000 ms", "rate(1 minute)"),
            ("90min", "rate(90 minutes)"),
            ("1 h", "rate(1 hour)"),
            ("48 h", "rate(2 days)"),
            ("120 seconds", "rate(2 minutes)"),
            ("1 minute", "rate(1 minute)"),
            ("5minutes", "rate(5 minutes)"),
            ("1 hour", "rate(1 hour)"),
            ("2 Hours", "rate(2 hours)"),
            ("1d", "rate(1 day)"),
            ("1 day", "rate(1 day)"),
            (" 7 days ", "rate(7 days)"),
            ("rate(1 hour)", "rate(1 hour)"),
        ] {
            assert_eq!(every(text), Ok(Expression(Some(rate.to_owned()))), "{text}");
        }
        for bad in ["30 s", "90 seconds", "1 second", "0 min", "0 days"] {
            assert!(every(bad).unwrap_err().contains("whole minutes"), "{bad}");
        }
        for bad in
            ["", "5", "hour", "1.5 hours", "-1 h", "1 fortnight", "rate(1 hour", "None", "99999999999999999999 d"]
        {
            let refused = every(bad).unwrap_err();
            assert!(refused.starts_with(&format!("{bad:?} is no interval; write '5 min'")), "{refused}");
        }
        assert!(every("99999999 h").unwrap_err().contains("ten years"));
    }

    #[test]
    fn a_cron_expression_is_checked_before_anything_is_deployed() {
        let args = read(&["--cron", "0 9 ? * MON-FRI *", "--timezone", "Europe/Berlin"]).unwrap().args;
        assert_eq!(args.cron, Some(Expression(Some("cron(0 9 ? * MON-FRI *)".to_owned()))));
        assert_eq!(cron("cron(0 9 ? * MON-FRI *)"), cron(" 0 9 ? * MON-FRI * "));
        let words = args.change().unwrap().unwrap().words();
        assert_eq!(words.as_deref(), Some("cron(0 9 ? * MON-FRI *) in Europe/Berlin"));
        assert!(read(&[]).unwrap().args.change().unwrap().is_none());
        let nowhere = read(&["--cron", "0 9 ? * MON *", "--timezone", "Europe/Nowhere"]).unwrap().args.change();
        assert!(nowhere.unwrap_err().to_string().contains("Europe/Nowhere"));
        let five = read(&["--cron", "*/5 * * * *"]).unwrap_err().to_string();
        assert!(five.contains("six fields"), "{five}");
        assert!(read(&["--cron", "0 9 ? * MON *", "--every", "1 h"]).is_err());
        assert!(read(&["--every", "1 h", "--timezone", "UTC"]).is_err());
    }

    #[test]
    fn none_takes_back_the_schedule_of_a_deployment_and_no_other() {
        for flag in ["--every", "--cron"] {
            let change = read(&[flag, "none"]).unwrap().args.change().unwrap();
            assert_eq!(change, Some(ScheduleChange(None)), "{flag}");
        }
        let zone = read(&["--cron", "none", "--timezone", "UTC"]).unwrap().args.change().unwrap_err().to_string();
        assert!(zone.starts_with("--timezone: "), "{zone}");
        let none = ScheduleChange::read(Some("none"), None, None).unwrap().unwrap();
        assert_eq!((none.words(), ScheduleChange::read(None, Some("none"), None)), (None, Ok(Some(none.clone()))));
        let name = FunctionName::new("report").unwrap();
        let deployed = |function: &str, role: &str| {
            let arn = format!("arn:aws:lambda:us-east-1:000000000000:function:{function}");
            json!({ "ScheduleExpression": "rate(1 hour)", "Target": { "Arn": arn, "RoleArn": role } })
        };
        assert!(none.is_done(&name, None));
        for (function, role, is_done) in
            [("report", ROLE, false), ("report", "arn:aws:iam::000000000000:role/mine", true), ("other", ROLE, true)]
        {
            assert_eq!(none.is_done(&name, Some(&deployed(function, role))), is_done, "{function} {role}");
        }
    }

    #[test]
    fn a_function_s_schedule_is_told_from_another_by_its_times() {
        let name = FunctionName::new("report").unwrap();
        let schedule = ScheduleChange::read(Some("5 min"), None, None).unwrap().unwrap();
        assert_eq!(schedule.words().as_deref(), Some("rate(5 minutes) in UTC"));
        let is_done = |expression: &str| {
            let deployed = json!({ "ScheduleExpression": expression, "ScheduleExpressionTimezone": "UTC" });
            schedule.is_done(&name, Some(&deployed))
        };
        assert!(is_done("rate(5 minutes)") && !is_done("rate(1 hour)") && !schedule.is_done(&name, None));
        assert_eq!(ScheduleChange::read(None, None, None), Ok(None));
        assert!(ScheduleChange::read(None, Some("0 9 ? * MON *"), Some("Nowhere")).is_err());
    }
}
