//! Schedules: functions that run at dates. What is said of a schedule, and which run is due now. Pure.
//!
//! The words are EventBridge Scheduler's (API reference, `CreateSchedule`). Each run has an id that follows from the
//! schedule and the date at which it is due, so that a run is the same one whoever begins it.

mod command;
mod cron;
mod cron_field;
mod expression;
mod input;
mod timetable;

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use nigh_terms::{FunctionName, InvocationId, NodeId, Timestamp};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use thiserror::Error;
use uuid::Uuid;

pub use self::command::{DATE_BACK_MAX, ScheduleCommand};
pub use self::cron::{CronError, CronExpression};
pub use self::cron_field::CronFieldError;
pub use self::expression::{ExpressionError, ScheduleExpression};
pub use self::timetable::{ScheduleTimes, Timetable};
use crate::function_arn::ACCOUNT;

/// The one group of schedules.
pub const GROUP: &str = "default";
/// Seconds for which a run is still begun after it was due, if the schedule does not say it (API reference,
/// `MaximumEventAgeInSeconds`).
pub const RUN_AGE_SECONDS_MAX: u32 = 86_400;
/// The longest name.
const NAME_BYTES_MAX: usize = 64;

/// Why a text is no name of a schedule.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{0:?} is no name of a schedule: write 1 to 64 letters, digits, hyphens, underscores and dots")]
pub struct ScheduleNameError(String);

/// The name of a schedule.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ScheduleName(String);

impl ScheduleName {
    /// Takes `text` as a name.
    ///
    /// # Errors
    /// If it is too long or has other characters.
    pub fn new(text: &str) -> Result<Self, ScheduleNameError> {
        let is_name = (1..=NAME_BYTES_MAX).contains(&text.len())
            && text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'));
        let refused = || ScheduleNameError(text.chars().take(NAME_BYTES_MAX).collect());
        is_name.then(|| Self(text.to_owned())).ok_or_else(refused)
    }

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ScheduleName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::str::FromStr for ScheduleName {
    type Err = ScheduleNameError;

    fn from_str(text: &str) -> Result<Self, ScheduleNameError> {
        Self::new(text)
    }
}

impl TryFrom<String> for ScheduleName {
    type Error = ScheduleNameError;

    fn try_from(text: String) -> Result<Self, ScheduleNameError> {
        Self::new(&text)
    }
}

impl From<ScheduleName> for String {
    fn from(name: ScheduleName) -> Self {
        name.0
    }
}

/// What the owner of a schedule says of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScheduleSettings {
    /// When it runs.
    pub times: ScheduleTimes,
    /// The function that it runs.
    pub function: FunctionName,
    /// The function's ARN, as it was given.
    pub target_arn: String,
    /// The role; Nigh only returns it.
    pub role: String,
    /// The input of each run, with context attributes; None for EventBridge's notification.
    pub input: Option<String>,
    /// For how many seconds after it was due a run is still begun; None for the most.
    pub run_age_s: Option<u32>,
    /// EventBridge's retries of a delivery; Nigh only returns them, because a run that is queued here is delivered.
    pub retries: Option<u32>,
    /// Each run begins within so many minutes after it is due; None for at once.
    pub window_minutes: Option<u32>,
    /// False while the schedule is paused.
    pub enabled: bool,
    /// The schedule is removed after its last run.
    pub delete_after: bool,
    /// The owner's description.
    pub description: Option<String>,
}

/// What came of a schedule's runs so far.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScheduleProgress {
    /// Runs that were due at or before this date have begun, or never will.
    pub done_to: Timestamp,
    /// The last run that has begun, by the date at which it was due.
    pub last: Option<Timestamp>,
    /// The last run of each node that has begun one: that node's queue has the run.
    pub taken: BTreeMap<NodeId, Timestamp>,
}

impl ScheduleProgress {
    /// The progress once `node` has the run that is due at `due`.
    #[must_use]
    pub fn with_run(&self, node: &NodeId, due: Timestamp) -> Self {
        let mut next = self.clone();
        next.done_to = due;
        next.last = Some(due);
        next.taken.insert(node.clone(), due);
        next
    }

    /// Whether the run that is due at `due` is the last one that `node` has begun.
    #[must_use]
    pub fn has_run(&self, node: &NodeId, due: Timestamp) -> bool {
        self.taken.get(node) == Some(&due)
    }
}

/// A schedule.
#[derive(Clone, Debug)]
pub struct Schedule {
    /// Its name.
    pub name: ScheduleName,
    /// Another schedule of this name, made later, has another id.
    pub id: Uuid,
    /// What its owner says of it.
    pub settings: ScheduleSettings,
    /// When it was made.
    pub created: Timestamp,
    /// When its owner changed it last.
    pub modified: Timestamp,
    /// When it was made or got its present times: a rate without a start date begins here.
    pub anchor: Timestamp,
    /// The request that made it: the same request again is no conflict.
    pub client_token: Option<String>,
    /// What came of its runs.
    pub progress: ScheduleProgress,
    /// When it is due.
    pub timetable: Timetable,
}

/// The ARN of a schedule.
#[must_use]
pub fn schedule_arn(region: &str, name: &ScheduleName) -> String {
    format!("arn:aws:scheduler:{region}:{ACCOUNT}:schedule/{GROUP}/{name}")
}

impl Schedule {
    /// A new schedule, which is due from `now` on.
    ///
    /// # Errors
    /// If its times cannot be read.
    pub fn new(
        name: ScheduleName,
        settings: ScheduleSettings,
        client_token: Option<String>,
        now: Timestamp,
    ) -> Result<Self, ExpressionError> {
        let timetable = Timetable::of(&settings.times, now)?;
        // A rate without a start date is due at once.
        let progress = ScheduleProgress { done_to: before(now), ..ScheduleProgress::default() };
        let (id, created) = (Uuid::new_v4(), now);
        Ok(Self { name, id, settings, created, modified: now, anchor: now, client_token, progress, timetable })
    }

    /// The schedule with other settings. What was due before `now` under other times, or while it was paused, is not
    /// made up.
    ///
    /// # Errors
    /// If the times cannot be read.
    pub fn with_settings(&self, settings: ScheduleSettings, now: Timestamp) -> Result<Self, ExpressionError> {
        let mut next = self.clone();
        if settings.times != self.settings.times {
            next.timetable = Timetable::of(&settings.times, now)?;
            next.anchor = now;
            next.progress.done_to = before(now);
        } else if settings.enabled && !self.settings.enabled {
            next.progress.done_to = self.progress.done_to.max(before(now));
        }
        next.modified = now;
        next.settings = settings;
        Ok(next)
    }

    /// The id of the run that is due at `due`. It sorts by that date, as ids of invocations do (UUID version 7).
    #[must_use]
    pub fn run_id(&self, due: Timestamp) -> InvocationId {
        let hash = self.hash(due);
        let mut bytes = [0; 16];
        bytes[..6].copy_from_slice(&due.millis().to_be_bytes()[2..]);
        bytes[6..].copy_from_slice(&hash[..10]);
        bytes[6] = 0x70 | (bytes[6] & 0x0f);
        bytes[8] = 0x80 | (bytes[8] & 0x3f);
        InvocationId::of_bytes(bytes)
    }

    fn hash(&self, due: Timestamp) -> [u8; 32] {
        Sha256::new().chain_update(self.id.as_bytes()).chain_update(due.millis().to_be_bytes()).finalize().into()
    }

    fn run_age_max(&self) -> Duration {
        Duration::from_secs(self.settings.run_age_s.unwrap_or(RUN_AGE_SECONDS_MAX).into())
    }

    fn window(&self) -> Duration {
        Duration::from_secs(u64::from(self.settings.window_minutes.unwrap_or(0)) * 60)
    }
}

/// The last date before `at`.
const fn before(at: Timestamp) -> Timestamp {
    Timestamp(at.0.saturating_sub(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(super) const NOW: Timestamp = Timestamp(1_767_225_600_000);

    pub(super) fn settings(expression: &str) -> ScheduleSettings {
        ScheduleSettings {
            times: ScheduleTimes {
                expression: expression.to_owned(),
                time_zone: "UTC".to_owned(),
                start: None,
                end: None,
            },
            function: FunctionName::new("f").unwrap(),
            target_arn: "arn:aws:lambda:us-east-1:000000000000:function:f".to_owned(),
            role: String::new(),
            input: None,
            run_age_s: None,
            retries: None,
            window_minutes: None,
            enabled: true,
            delete_after: false,
            description: None,
        }
    }

    pub(super) fn schedule(settings: ScheduleSettings) -> Schedule {
        Schedule::new(ScheduleName::new("s").unwrap(), settings, None, NOW).unwrap()
    }

    #[test]
    fn a_run_has_one_id_and_ids_sort_by_their_dates() {
        let (one, other) = (schedule(settings("rate(1 minute)")), schedule(settings("rate(1 minute)")));
        let (first, second) = (Timestamp(NOW.0 + 60_000), Timestamp(NOW.0 + 120_000));
        assert_eq!(one.run_id(first), one.clone().run_id(first));
        assert_ne!(one.run_id(first), other.run_id(first), "made again, it is another schedule");
        assert!(one.run_id(first) < one.run_id(second) && other.run_id(first) < one.run_id(second));
        let id = Uuid::from_bytes(*one.run_id(first).as_bytes());
        assert_eq!((id.get_version_num(), id.get_variant()), (7, uuid::Variant::RFC4122));
    }

    #[test]
    fn a_name_is_checked() {
        assert!(["a", "A.b-c_9", &"x".repeat(64)].iter().all(|name| ScheduleName::new(name).is_ok()));
        assert!(["", "a/b", "a b", "ä", &"x".repeat(65)].iter().all(|name| ScheduleName::new(name).is_err()));
        assert!(serde_json::from_str::<ScheduleName>("\"a/b\"").is_err());
    }

    #[test]
    fn new_times_and_a_pause_leave_what_was_due_before_behind() {
        let made = schedule(settings("rate(1 minute)"));
        let later = Timestamp(NOW.0 + 90_000);
        let hourly = made.with_settings(settings("rate(1 hour)"), later).unwrap();
        assert_eq!((hourly.anchor, hourly.progress.done_to, hourly.id), (later, before(later), made.id));
        let paused = ScheduleSettings { enabled: false, ..settings("rate(1 minute)") };
        let paused = made.with_settings(paused, later).unwrap();
        assert_eq!((paused.anchor, paused.progress.done_to), (NOW, made.progress.done_to));
        let resumed = paused.with_settings(settings("rate(1 minute)"), later).unwrap();
        assert_eq!((resumed.anchor, resumed.progress.done_to), (NOW, before(later)));
        let input = ScheduleSettings { input: Some("1".to_owned()), ..settings("rate(1 minute)") };
        assert_eq!(made.with_settings(input, later).unwrap().progress, made.progress);
    }
}
