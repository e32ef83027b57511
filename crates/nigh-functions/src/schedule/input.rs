//! The input of a scheduled run: pure.
//!
//! EventBridge Scheduler user guide, "Adding context attributes"; without an input of its own, a run gets EventBridge's
//! notification.

use nigh_terms::Timestamp;
use serde_json::json;

use super::{Schedule, schedule_arn};
use crate::function_arn::ACCOUNT;

/// The form of dates in inputs: seconds, in UTC.
fn seconds(at: Timestamp) -> String {
    format!("{}Z", &at.rfc3339()[..19])
}

impl Schedule {
    /// The input of the run that is due at `due`: JSON.
    #[must_use]
    pub fn input(&self, region: &str, due: Timestamp) -> String {
        let (arn, id, time) = (schedule_arn(region, &self.name), self.run_id(due).to_string(), seconds(due));
        match &self.settings.input {
            // The attributes have no character that JSON escapes. A run is put into the queue once: that is its one attempt.
            Some(input) => input
                .replace("<aws.scheduler.schedule-arn>", &arn)
                .replace("<aws.scheduler.scheduled-time>", &time)
                .replace("<aws.scheduler.execution-id>", &id)
                .replace("<aws.scheduler.attempt-number>", "1"),
            None => json!({
                "version": "0",
                "id": id,
                "detail-type": "Scheduled Event",
                "source": "aws.scheduler",
                "account": ACCOUNT,
                "time": time,
                "region": region,
                "resources": [arn],
                "detail": "{}",
            })
            .to_string(),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::super::ScheduleSettings;
    use super::super::tests::{NOW, schedule, settings};
    use super::*;

    #[test]
    fn an_input_has_the_attributes_of_its_run_and_without_one_there_is_a_notification() {
        let said = r#"{"at": "<aws.scheduler.scheduled-time>", "by": ["<aws.scheduler.schedule-arn>"],
            "run": "<aws.scheduler.execution-id>/<aws.scheduler.attempt-number>", "other": "<aws.scheduler.x>"}"#;
        let own = schedule(ScheduleSettings { input: Some(said.to_owned()), ..settings("rate(1 hour)") });
        let read = |schedule: &Schedule| -> Value { serde_json::from_str(&schedule.input("eu-west-3", NOW)).unwrap() };
        let (input, arn) = (read(&own), "arn:aws:scheduler:eu-west-3:000000000000:schedule/default/s");
        assert_eq!((&input["at"], &input["by"]), (&json!("2026-01-01T00:00:00Z"), &json!([arn])));
        assert_eq!(input["run"], format!("{}/1", own.run_id(NOW)));
        assert_eq!(input["other"], "<aws.scheduler.x>");
        let plain = schedule(settings("rate(1 hour)"));
        let event = read(&plain);
        assert_eq!((&event["source"], &event["resources"]), (&json!("aws.scheduler"), &json!([arn])));
        assert_eq!((&event["id"], &event["time"]), (&json!(plain.run_id(NOW)), &json!("2026-01-01T00:00:00Z")));
    }
}
