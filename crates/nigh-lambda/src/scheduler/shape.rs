//! The JSON of EventBridge Scheduler's requests and answers. Pure.

use std::collections::BTreeMap;

use nigh_functions::function_arn::parse_function_reference;
use nigh_functions::schedule::{GROUP, RUN_AGE_SECONDS_MAX, Schedule, ScheduleSettings, ScheduleTimes, schedule_arn};
use nigh_terms::{FunctionName, Timestamp};
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::{Value, json};

use super::super::LambdaError;

/// The longest input (API reference, `Target`).
const INPUT_BYTES_MAX: usize = 256 << 10;
/// The longest description.
const DESCRIPTION_CHARS_MAX: usize = 512;
/// The longest flexible window, in minutes.
const WINDOW_MINUTES_MAX: u32 = 1440;
/// The least greatest age of a run, in seconds.
const RUN_AGE_SECONDS_MIN: u32 = 60;
/// The most retries of a delivery.
const RETRIES_MAX: u32 = 185;
/// The latest date: the end of the year 9999.
const DATE_SECONDS_MAX: f64 = 253_402_300_799.0;

/// `CreateSchedule` and `UpdateSchedule`.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct ScheduleShape {
    pub(super) group_name: Option<String>,
    pub(super) client_token: Option<String>,
    schedule_expression: Option<String>,
    schedule_expression_timezone: Option<String>,
    start_date: Option<f64>,
    end_date: Option<f64>,
    description: Option<String>,
    state: Option<String>,
    kms_key_arn: Option<String>,
    target: Option<TargetShape>,
    flexible_time_window: Option<WindowShape>,
    action_after_completion: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct TargetShape {
    arn: Option<String>,
    role_arn: Option<String>,
    input: Option<String>,
    retry_policy: Option<RetryShape>,
    dead_letter_config: Option<DeadLetterShape>,
    /// Parameters of other targets.
    #[serde(flatten)]
    others: BTreeMap<String, Value>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct RetryShape {
    maximum_event_age_in_seconds: Option<i64>,
    maximum_retry_attempts: Option<i64>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct DeadLetterShape {
    arn: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct WindowShape {
    mode: Option<String>,
    maximum_window_in_minutes: Option<i64>,
}

fn missing(name: &str) -> LambdaError {
    LambdaError::validation(format!("{name} is required"))
}

fn within(name: &str, value: Option<i64>, least: u32, most: u32) -> Result<Option<u32>, LambdaError> {
    let Some(value) = value else { return Ok(None) };
    let found = u32::try_from(value).ok().filter(|value| (least..=most).contains(value));
    found
        .map(Some)
        .ok_or_else(|| LambdaError::validation(format!("{name} is {value}; it must be between {least} and {most}")))
}

/// A date in seconds, as this API has it.
pub(super) fn date(at: Timestamp) -> f64 {
    at.millis() as f64 / 1000.0
}

fn read_date(name: &str, seconds: Option<f64>) -> Result<Option<Timestamp>, LambdaError> {
    match seconds {
        None => Ok(None),
        Some(seconds) if (0.0..=DATE_SECONDS_MAX).contains(&seconds) => {
            Ok(Some(Timestamp((seconds * 1000.0).round() as u64)))
        }
        Some(_) => Err(LambdaError::validation(format!("{name} is no date after 1970"))),
    }
}

/// One of two words; the first if there is none.
fn choice(name: &str, value: Option<&str>, [first, second]: [&str; 2]) -> Result<bool, LambdaError> {
    match value {
        None => Ok(false),
        Some(word) if word == first => Ok(false),
        Some(word) if word == second => Ok(true),
        Some(_) => Err(LambdaError::validation(format!("{name} must be {first} or {second}"))),
    }
}

/// How the API writes whether a schedule is enabled.
pub(super) const fn state_name(enabled: bool) -> &'static str {
    if enabled { "ENABLED" } else { "DISABLED" }
}

/// The state of schedules that are to be listed; None for both.
pub(super) fn listed_state(word: Option<&str>) -> Result<Option<bool>, LambdaError> {
    let enabled = word.map(|_| choice("State", word, ["DISABLED", "ENABLED"]));
    enabled.transpose()
}

fn function(arn: &str) -> Result<FunctionName, LambdaError> {
    let service = arn.split(':').nth(2).filter(|_| arn.starts_with("arn:"));
    match service {
        Some("lambda") => Ok(parse_function_reference(arn)?),
        Some(other) => Err(LambdaError::validation(format!(
            "Target.Arn is of the service {other:?}; schedules run functions here: give \
             arn:aws:lambda:REGION:000000000000:function:NAME"
        ))),
        None => {
            Err(LambdaError::validation("Target.Arn is no ARN; give arn:aws:lambda:REGION:000000000000:function:NAME"))
        }
    }
}

fn check_input(input: &str) -> Result<(), LambdaError> {
    if input.len() > INPUT_BYTES_MAX {
        return Err(LambdaError::validation(format!("Target.Input has more than {INPUT_BYTES_MAX} bytes")));
    }
    serde_json::from_str::<IgnoredAny>(input).map(drop).map_err(|error| {
        LambdaError::validation(format!("Target.Input must be well-formed JSON for a function: {error}"))
    })
}

/// The settings of a schedule in a request.
///
/// # Errors
/// What is missing, wrong or not supported.
pub(super) fn settings(shape: ScheduleShape) -> Result<ScheduleSettings, LambdaError> {
    let target = shape.target.ok_or_else(|| missing("Target"))?;
    let target_arn = target.arn.ok_or_else(|| missing("Target.Arn"))?;
    let function = function(&target_arn)?;
    if let Some(name) = target.others.keys().find(|name| name.ends_with("Parameters")) {
        return Err(LambdaError::validation(format!("Target.{name} is not for functions: leave it out")));
    }
    if target.dead_letter_config.is_some_and(|queue| queue.arn.is_some()) {
        return Err(LambdaError::validation(
            "Target.DeadLetterConfig is not supported here, because there are no queues: runs that failed for good are \
             dead letters (nigh events list), or go where the function's OnFailure destination says",
        ));
    }
    if shape.kms_key_arn.is_some() {
        return Err(LambdaError::validation("KmsKeyArn is not supported here: leave it out"));
    }
    if let Some(input) = &target.input {
        check_input(input)?;
    }
    if shape.description.as_ref().is_some_and(|text| text.chars().count() > DESCRIPTION_CHARS_MAX) {
        return Err(LambdaError::validation(format!("Description has more than {DESCRIPTION_CHARS_MAX} characters")));
    }
    let window = shape.flexible_time_window.ok_or_else(|| missing("FlexibleTimeWindow"))?;
    let mode = window.mode.ok_or_else(|| missing("FlexibleTimeWindow.Mode"))?;
    let minutes = within("MaximumWindowInMinutes", window.maximum_window_in_minutes, 1, WINDOW_MINUTES_MAX)?;
    let window_minutes = match (choice("FlexibleTimeWindow.Mode", Some(&mode), ["OFF", "FLEXIBLE"])?, minutes) {
        (false, None) => None,
        (true, Some(minutes)) => Some(minutes),
        (true, None) => return Err(missing("FlexibleTimeWindow.MaximumWindowInMinutes")),
        (false, Some(_)) => {
            return Err(LambdaError::validation("MaximumWindowInMinutes is for the mode FLEXIBLE only"));
        }
    };
    let retry =
        target.retry_policy.unwrap_or(RetryShape { maximum_event_age_in_seconds: None, maximum_retry_attempts: None });
    let run_age_s = within(
        "MaximumEventAgeInSeconds",
        retry.maximum_event_age_in_seconds,
        RUN_AGE_SECONDS_MIN,
        RUN_AGE_SECONDS_MAX,
    )?;
    let (start, end) = (read_date("StartDate", shape.start_date)?, read_date("EndDate", shape.end_date)?);
    if start.zip(end).is_some_and(|(start, end)| end <= start) {
        return Err(LambdaError::validation("EndDate must be later than StartDate"));
    }
    Ok(ScheduleSettings {
        times: ScheduleTimes {
            expression: shape.schedule_expression.ok_or_else(|| missing("ScheduleExpression"))?,
            time_zone: shape.schedule_expression_timezone.unwrap_or_else(|| "UTC".to_owned()),
            start,
            end,
        },
        function,
        target_arn,
        role: target.role_arn.unwrap_or_default(),
        input: target.input,
        run_age_s,
        retries: within("MaximumRetryAttempts", retry.maximum_retry_attempts, 0, RETRIES_MAX)?,
        window_minutes,
        enabled: !choice("State", shape.state.as_deref(), ["ENABLED", "DISABLED"])?,
        delete_after: choice("ActionAfterCompletion", shape.action_after_completion.as_deref(), ["NONE", "DELETE"])?,
        description: shape.description,
    })
}

/// `GetSchedule`'s answer.
pub(super) fn described(schedule: &Schedule, region: &str) -> Value {
    let settings = &schedule.settings;
    let mut target = json!({
        "Arn": settings.target_arn,
        "RoleArn": settings.role,
        "RetryPolicy": {
            "MaximumEventAgeInSeconds": settings.run_age_s.unwrap_or(RUN_AGE_SECONDS_MAX),
            "MaximumRetryAttempts": settings.retries.unwrap_or(RETRIES_MAX),
        },
    });
    if let Some(input) = &settings.input {
        target["Input"] = input.as_str().into();
    }
    let window = match settings.window_minutes {
        None => json!({ "Mode": "OFF" }),
        Some(minutes) => json!({ "Mode": "FLEXIBLE", "MaximumWindowInMinutes": minutes }),
    };
    let mut answer = json!({
        "Arn": schedule_arn(region, &schedule.name),
        "Name": schedule.name.as_str(),
        "GroupName": GROUP,
        "ScheduleExpression": settings.times.expression,
        "ScheduleExpressionTimezone": settings.times.time_zone,
        "State": state_name(settings.enabled),
        "CreationDate": date(schedule.created),
        "LastModificationDate": date(schedule.modified),
        "Target": target,
        "FlexibleTimeWindow": window,
        "ActionAfterCompletion": if settings.delete_after { "DELETE" } else { "NONE" },
    });
    let mut set = |name: &str, value: Option<Value>| {
        if let Some(value) = value {
            answer[name] = value;
        }
    };
    set("StartDate", settings.times.start.map(|at| date(at).into()));
    set("EndDate", settings.times.end.map(|at| date(at).into()));
    set("Description", settings.description.as_deref().map(Value::from));
    answer
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A request that is well, with these members instead of its own; null takes one away.
    fn read(changes: &Value) -> Result<ScheduleSettings, LambdaError> {
        let mut request = json!({
            "ScheduleExpression": "rate(5 minutes)",
            "FlexibleTimeWindow": { "Mode": "OFF" },
            "Target": { "Arn": "arn:aws:lambda:eu-west-3:000000000000:function:f", "RoleArn": "role" },
        });
        for (name, value) in changes.as_object().unwrap() {
            match (&mut request[name], value) {
                (Value::Object(there), Value::Object(more)) => there.extend(more.clone()),
                (there, value) => *there = value.clone(),
            }
        }
        request.as_object_mut().unwrap().retain(|_, value| !value.is_null());
        settings(serde_json::from_value(request).unwrap())
    }

    #[test]
    fn what_is_not_said_is_eventbridges_default() {
        let said = read(&json!({})).unwrap();
        assert_eq!((said.function.as_str(), said.role.as_str(), said.times.time_zone.as_str()), ("f", "role", "UTC"));
        assert!(said.enabled && !said.delete_after);
        assert_eq!((said.window_minutes, said.run_age_s, said.retries, said.input), (None, None, None, None));
        let said = read(&json!({
            "State": "DISABLED", "ActionAfterCompletion": "DELETE", "StartDate": 1_700_000_000, "EndDate": 1_700_000_000.5,
            "FlexibleTimeWindow": { "Mode": "FLEXIBLE", "MaximumWindowInMinutes": 15 },
            "Target": { "Input": "{}", "RetryPolicy": { "MaximumEventAgeInSeconds": 60, "MaximumRetryAttempts": 0 } },
        }))
        .unwrap();
        assert!(!said.enabled && said.delete_after);
        assert_eq!((said.window_minutes, said.run_age_s, said.retries), (Some(15), Some(60), Some(0)));
        assert_eq!(said.times.end, Some(Timestamp(1_700_000_000_500)));
    }

    #[test]
    fn what_is_missing_wrong_or_not_here_is_refused_by_name() {
        for (changes, why) in [
            (json!({ "Target": null }), "Target is required"),
            (json!({ "ScheduleExpression": null }), "ScheduleExpression is required"),
            (json!({ "FlexibleTimeWindow": null }), "FlexibleTimeWindow is required"),
            (json!({ "FlexibleTimeWindow": { "Mode": "SOMETIMES" } }), "OFF or FLEXIBLE"),
            (json!({ "FlexibleTimeWindow": { "Mode": "FLEXIBLE" } }), "MaximumWindowInMinutes is required"),
            (json!({ "FlexibleTimeWindow": { "MaximumWindowInMinutes": 5 } }), "the mode FLEXIBLE only"),
            (json!({ "FlexibleTimeWindow": { "Mode": "FLEXIBLE", "MaximumWindowInMinutes": 1441 } }), "1 and 1440"),
            (json!({ "Target": { "Arn": "f" } }), "is no ARN"),
            (json!({ "Target": { "Arn": "arn:aws:sqs:us-east-1:000000000000:queue" } }), "\"sqs\""),
            (json!({ "Target": { "Arn": "arn:aws:scheduler:::aws-sdk:lambda:invoke" } }), "\"scheduler\""),
            (json!({ "Target": { "Input": "text" } }), "well-formed JSON"),
            (json!({ "Target": { "Input": format!("\"{}\"", "x".repeat(INPUT_BYTES_MAX)) } }), "262144 bytes"),
            (json!({ "Target": { "SqsParameters": { "MessageGroupId": "g" } } }), "SqsParameters is not for functions"),
            (json!({ "Target": { "DeadLetterConfig": { "Arn": "arn" } } }), "nigh events list"),
            (json!({ "Target": { "RetryPolicy": { "MaximumRetryAttempts": 186 } } }), "0 and 185"),
            (json!({ "Target": { "RetryPolicy": { "MaximumEventAgeInSeconds": 59 } } }), "60 and 86400"),
            (json!({ "KmsKeyArn": "arn" }), "KmsKeyArn"),
            (json!({ "State": "PAUSED" }), "ENABLED or DISABLED"),
            (json!({ "ActionAfterCompletion": "STOP" }), "NONE or DELETE"),
            (json!({ "Description": "x".repeat(513) }), "512"),
            (json!({ "StartDate": -1 }), "StartDate is no date"),
            (json!({ "StartDate": 2_000_000_000, "EndDate": 2_000_000_000 }), "later than StartDate"),
        ] {
            let error = read(&changes).unwrap_err();
            assert!(error.message.contains(why), "{changes}: {error:?}");
            assert_eq!(error.status, http::StatusCode::BAD_REQUEST);
        }
        let elsewhere = json!({ "Target": { "Arn": "arn:aws:lambda:us-east-1:123456789012:function:f" } });
        assert_eq!(read(&elsewhere).unwrap_err().kind, "ResourceNotFoundException");
    }
}
