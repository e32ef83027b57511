//! EventBridge Scheduler's API on the Lambda door's listener, for schedules that run functions.
//!
//! Paths and members are those of its API reference. There is one group, `default`. What Nigh does not have (other targets,
//! queues for dead letters, keys of KMS) is refused. `NextRun` and `LastRun` in answers are Nigh's own: the dates at which
//! the next run will be due and the last one was.

mod shape;

use http::StatusCode;
use nigh_functions::schedule::{GROUP, Schedule, ScheduleName, ScheduleSettings, schedule_arn};
use nigh_functions::schedule_store::{ScheduleError, ScheduleKey, StoredSchedule};
use nigh_terms::{ACCOUNT, Timestamp};
use serde_json::{Value, json};

use self::shape::{ScheduleShape, date, listed_state, settings, state_name};
use super::operations::Request;
use super::response::{LambdaResponse, json_answer};
use super::validation::read;
use super::{LambdaDoor, LambdaError};

/// The most schedules of one page, and the default.
const PAGE_MAX: usize = 100;

/// An operation of EventBridge Scheduler, with the name of its schedule or group as in the path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SchedulerOperation<'a> {
    /// `CreateSchedule`.
    Create(&'a str),
    /// `GetSchedule`.
    Get(&'a str),
    /// `UpdateSchedule`.
    Update(&'a str),
    /// `DeleteSchedule`.
    Delete(&'a str),
    /// `ListSchedules`.
    List,
    /// `GetScheduleGroup`.
    GetGroup(&'a str),
    /// `ListScheduleGroups`.
    ListGroups,
}

impl<'a> SchedulerOperation<'a> {
    /// The operation of `method` on the segments of a path; None if the path is not EventBridge Scheduler's.
    ///
    /// # Errors
    /// `NotImplemented` for an operation that only EventBridge has.
    pub(super) fn of(method: &str, segments: &[&'a str]) -> Option<Result<Self, LambdaError>> {
        Some(Ok(match (method, segments) {
            ("POST", ["schedules", name]) => Self::Create(name),
            ("GET", ["schedules", name]) => Self::Get(name),
            ("PUT", ["schedules", name]) => Self::Update(name),
            ("DELETE", ["schedules", name]) => Self::Delete(name),
            ("GET", ["schedules"]) => Self::List,
            ("GET", ["schedule-groups", name]) => Self::GetGroup(name),
            ("GET", ["schedule-groups"]) => Self::ListGroups,
            (_, ["schedule-groups", ..]) => {
                let one = format!("there is one group of schedules here, {GROUP:?}: leave GroupName out");
                return Some(Err(LambdaError::not_implemented(one)));
            }
            (_, ["tags", ..]) => {
                return Some(Err(LambdaError::not_implemented("groups of schedules have no tags here")));
            }
            _ => return None,
        }))
    }

    /// Its name in the API reference.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Create(_) => "CreateSchedule",
            Self::Get(_) => "GetSchedule",
            Self::Update(_) => "UpdateSchedule",
            Self::Delete(_) => "DeleteSchedule",
            Self::List => "ListSchedules",
            Self::GetGroup(_) => "GetScheduleGroup",
            Self::ListGroups => "ListScheduleGroups",
        }
    }
}

impl From<ScheduleError> for LambdaError {
    fn from(error: ScheduleError) -> Self {
        let message = error.to_string();
        match error {
            ScheduleError::NotFound(_) => Self::not_found(message),
            ScheduleError::Exists(_) | ScheduleError::Busy => Self::schedule_conflict(message),
            ScheduleError::Expression(_) => Self::validation(message),
            ScheduleError::TooMany => Self::quota_exceeded(message),
            ScheduleError::Document(..) | ScheduleError::Registry(_) => {
                tracing::error!(error = %message, "a schedule cannot be read or changed");
                Self::internal(message)
            }
        }
    }
}

fn key(name: &str, request: &Request<'_>) -> Result<ScheduleKey, LambdaError> {
    let name = ScheduleName::new(name).map_err(|error| LambdaError::validation(error.to_string()))?;
    Ok(ScheduleKey { namespace: request.who.namespace.clone(), name })
}

fn check_group(name: Option<&str>) -> Result<(), LambdaError> {
    match name {
        None | Some(GROUP) => Ok(()),
        Some(other) => Err(LambdaError::not_found(format!(
            "Schedule group {other} does not exist: there is one group here, {GROUP:?}"
        ))),
    }
}

fn group_summary(region: &str) -> Value {
    json!({
        "Arn": format!("arn:aws:scheduler:{region}:{ACCOUNT}:schedule-group/{GROUP}"),
        "Name": GROUP,
        "State": "ACTIVE",
    })
}

impl LambdaDoor {
    /// Performs `operation`.
    pub(super) async fn scheduler(
        &self,
        operation: SchedulerOperation<'_>,
        request: &Request<'_>,
    ) -> Result<LambdaResponse, LambdaError> {
        let answer = match operation {
            SchedulerOperation::Create(name) => self.create_schedule(&key(name, request)?, request).await?,
            SchedulerOperation::Update(name) => self.update_schedule(&key(name, request)?, request).await?,
            SchedulerOperation::Get(name) => self.get_schedule(&key(name, request)?, request).await?,
            SchedulerOperation::Delete(name) => {
                check_group(request.parameter("groupName").as_deref())?;
                self.parts.functions.schedules().delete(&key(name, request)?).await?;
                json!({})
            }
            SchedulerOperation::List => self.list_schedules(request)?,
            SchedulerOperation::GetGroup(name) => {
                check_group(Some(name))?;
                group_summary(&self.settings.region)
            }
            SchedulerOperation::ListGroups => {
                let prefix = request.parameter("NamePrefix").unwrap_or_default();
                let groups: Vec<Value> =
                    GROUP.starts_with(&prefix).then(|| group_summary(&self.settings.region)).into_iter().collect();
                json!({ "ScheduleGroups": groups })
            }
        };
        Ok(json_answer(StatusCode::OK, &answer))
    }

    /// The settings in a request, for a function that exists.
    fn schedule_settings(&self, request: &Request<'_>) -> Result<(ScheduleSettings, Option<String>), LambdaError> {
        let shape: ScheduleShape = read(&request.body)?;
        check_group(shape.group_name.as_deref())?;
        let token = shape.client_token.clone();
        let settings = settings(shape)?;
        if self.parts.functions.get(&request.who.namespace, &settings.function).is_none() {
            let name = &settings.function;
            return Err(LambdaError::validation(format!(
                "Target.Arn names the function {name}, and there is none; deploy it first"
            )));
        }
        Ok((settings, token))
    }

    async fn create_schedule(&self, key: &ScheduleKey, request: &Request<'_>) -> Result<Value, LambdaError> {
        let (settings, token) = self.schedule_settings(request)?;
        let made = self.parts.functions.schedules().create(key, settings, token).await?;
        Ok(json!({ "ScheduleArn": schedule_arn(&self.settings.region, &made.schedule.name) }))
    }

    async fn update_schedule(&self, key: &ScheduleKey, request: &Request<'_>) -> Result<Value, LambdaError> {
        let (settings, _) = self.schedule_settings(request)?;
        let updated = self.parts.functions.schedules().update(key, settings).await?;
        Ok(json!({ "ScheduleArn": schedule_arn(&self.settings.region, &updated.schedule.name) }))
    }

    async fn get_schedule(&self, key: &ScheduleKey, request: &Request<'_>) -> Result<Value, LambdaError> {
        check_group(request.parameter("groupName").as_deref())?;
        let found = self.parts.functions.schedules().read(key).await?;
        let found = found.ok_or_else(|| LambdaError::from(ScheduleError::NotFound(key.name.clone())))?;
        Ok(self.described(&found.schedule))
    }

    fn list_schedules(&self, request: &Request<'_>) -> Result<Value, LambdaError> {
        check_group(request.parameter("ScheduleGroup").as_deref())?;
        let limit = match request.parameter("MaxResults").map(|text| text.parse::<usize>()) {
            None => PAGE_MAX,
            Some(Ok(limit @ 1..=PAGE_MAX)) => limit,
            Some(_) => return Err(LambdaError::validation(format!("MaxResults must be between 1 and {PAGE_MAX}"))),
        };
        let after = request.parameter("NextToken").map(|token| ScheduleName::new(&token)).transpose();
        let after = after.map_err(|_| LambdaError::validation("NextToken is not one that ListSchedules gave"))?;
        let prefix = request.parameter("NamePrefix").unwrap_or_default();
        let state = listed_state(request.parameter("State").as_deref())?;
        let wanted = |schedule: &Schedule| {
            schedule.name.as_str().starts_with(&prefix) && state.is_none_or(|on| on == schedule.settings.enabled)
        };
        let schedules = self.parts.functions.schedules();
        let (page, more) = schedules.list(&request.who.namespace, after.as_ref(), limit, wanted);
        let mut answer = json!({ "Schedules": page.iter().map(|stored| self.summary(stored)).collect::<Vec<_>>() });
        if let Some(last) = page.last().filter(|_| more) {
            answer["NextToken"] = last.schedule.name.as_str().into();
        }
        Ok(answer)
    }

    fn summary(&self, stored: &StoredSchedule) -> Value {
        let schedule = &stored.schedule;
        let mut summary = json!({
            "Arn": schedule_arn(&self.settings.region, &schedule.name),
            "Name": schedule.name.as_str(),
            "GroupName": GROUP,
            "State": state_name(schedule.settings.enabled),
            "CreationDate": date(schedule.created),
            "LastModificationDate": date(schedule.modified),
            "Target": { "Arn": schedule.settings.target_arn },
            "ScheduleExpression": schedule.settings.times.expression,
            "ScheduleExpressionTimezone": schedule.settings.times.time_zone,
        });
        self.add_runs(schedule, &mut summary);
        summary
    }

    /// Adds the dates of the next run and of the last one.
    fn add_runs(&self, schedule: &Schedule, to: &mut Value) {
        let mut set = |name: &str, at: Option<Timestamp>| {
            if let Some(at) = at {
                to[name] = date(at).into();
            }
        };
        set("NextRun", schedule.next_due(self.parts.clock.wall()));
        set("LastRun", schedule.progress.last);
    }

    fn described(&self, schedule: &Schedule) -> Value {
        let mut answer = shape::described(schedule, &self.settings.region);
        self.add_runs(schedule, &mut answer);
        answer
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_paths_of_the_sdks_lead_to_their_operations_and_groups_are_told_apart() {
        let of = |method: &str, path: &'static str| {
            SchedulerOperation::of(method, &path.split('/').collect::<Vec<_>>())
                .map(|found| found.map_err(|e| e.status))
        };
        assert_eq!(of("POST", "schedules/nightly"), Some(Ok(SchedulerOperation::Create("nightly"))));
        assert_eq!(of("GET", "schedules"), Some(Ok(SchedulerOperation::List)));
        assert_eq!(of("GET", "schedule-groups"), Some(Ok(SchedulerOperation::ListGroups)));
        assert_eq!(of("POST", "schedule-groups/mine"), Some(Err(StatusCode::NOT_IMPLEMENTED)));
        assert_eq!(of("GET", "tags/arn"), Some(Err(StatusCode::NOT_IMPLEMENTED)));
        assert_eq!(of("PATCH", "schedules/nightly"), None);
        assert_eq!(of("GET", "2015-03-31/functions"), None);
        assert!(check_group(None).is_ok() && check_group(Some("default")).is_ok());
        assert_eq!(check_group(Some("mine")).unwrap_err().kind, "ResourceNotFoundException");
    }
}
