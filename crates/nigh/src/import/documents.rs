//! Documents of EventBridge Scheduler's and Lambda's APIs for what hangs on a function of a stack. Pure.

use nigh_node::client::{ScheduleName, ScheduleTimes, Timetable};
use nigh_terms::Timestamp;
use serde_json::{Value, json};

use crate::sam::{AsyncSettings, StackSchedule};
use crate::schedules::ROLE;

/// Checks that the schedule can be one.
///
/// # Errors
/// If its name, its expression or its time zone is none.
pub(super) fn check(schedule: &StackSchedule) -> Result<(), String> {
    name(schedule)?;
    let (expression, time_zone) = (schedule.expression.clone(), zone(schedule).to_owned());
    let times = ScheduleTimes { expression, time_zone, start: None, end: None };
    Timetable::of(&times, Timestamp(0)).map(drop).map_err(|error| error.to_string())
}

/// The schedule's name.
///
/// # Errors
/// If it is none.
pub(super) fn name(schedule: &StackSchedule) -> Result<ScheduleName, String> {
    ScheduleName::new(&schedule.name).map_err(|error| error.to_string())
}

fn zone(schedule: &StackSchedule) -> &str {
    schedule.timezone.as_deref().unwrap_or("UTC")
}

/// The schedule as EventBridge Scheduler's API takes it.
pub(super) fn schedule(schedule: &StackSchedule, arn: &str) -> Value {
    let mut document = json!({
        "ScheduleExpression": schedule.expression,
        "ScheduleExpressionTimezone": zone(schedule),
        "FlexibleTimeWindow": { "Mode": "OFF" },
        "State": if schedule.enabled { "ENABLED" } else { "DISABLED" },
        "Target": { "Arn": arn, "RoleArn": ROLE },
    });
    if let Some(input) = &schedule.input {
        document["Target"]["Input"] = input.as_str().into();
    }
    if let Some(description) = &schedule.description {
        document["Description"] = description.as_str().into();
    }
    document
}

/// The settings as Lambda's API takes them.
pub(super) fn event_config(events: &AsyncSettings) -> Value {
    let mut config = json!({});
    if let Some(retries) = events.retries {
        config["MaximumRetryAttempts"] = retries.into();
    }
    if let Some(age) = events.age_s {
        config["MaximumEventAgeInSeconds"] = age.into();
    }
    for (end, arn) in [("OnSuccess", &events.on_success), ("OnFailure", &events.on_failure)] {
        if let Some(arn) = arn {
            config["DestinationConfig"][end]["Destination"] = arn.as_str().into();
        }
    }
    config
}

#[cfg(test)]
mod tests {
    use super::*;

    fn often() -> StackSchedule {
        StackSchedule {
            name: "often".to_owned(),
            expression: "rate(5 minutes)".to_owned(),
            timezone: None,
            input: Some("{}".to_owned()),
            description: None,
            enabled: false,
        }
    }

    #[test]
    fn schedules_and_settings_of_events_are_documents_of_their_apis() {
        assert_eq!(
            schedule(&often(), "arn"),
            json!({
                "ScheduleExpression": "rate(5 minutes)", "ScheduleExpressionTimezone": "UTC", "State": "DISABLED",
                "FlexibleTimeWindow": { "Mode": "OFF" },
                "Target": { "Arn": "arn", "RoleArn": ROLE, "Input": "{}" },
            })
        );
        let events = AsyncSettings {
            retries: Some(0),
            on_failure: Some("arn:aws:s3:::b".to_owned()),
            ..AsyncSettings::default()
        };
        assert_eq!(
            event_config(&events),
            json!({
                "MaximumRetryAttempts": 0,
                "DestinationConfig": { "OnFailure": { "Destination": "arn:aws:s3:::b" } },
            })
        );
    }

    #[test]
    fn a_schedule_has_a_name_an_expression_and_a_zone_that_are_known() {
        let changes: [fn(&mut StackSchedule); 3] = [
            |one| one.name = "a b".to_owned(),
            |one| one.expression = "rate(often)".to_owned(),
            |one| one.timezone = Some("Nowhere".to_owned()),
        ];
        assert_eq!(check(&often()), Ok(()));
        for change in changes {
            let mut wrong = often();
            change(&mut wrong);
            assert!(check(&wrong).is_err(), "{wrong:?}");
        }
    }
}
