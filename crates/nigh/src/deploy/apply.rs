//! Carries a plan out, all or nothing: if a door refuses a step, the steps before it are undone.
//!
//! The order makes that possible. A new function is created first, since all else hangs on it; to undo it is to delete
//! it. The code of a function that is there comes last, since a door does not give the old code back; that it will be
//! taken is checked before.

use nigh_node::client::{BucketNotifications, ClientError, CodeUpload, FunctionChange};
use nigh_terms::BucketName;
use serde_json::Value;

use super::description::{Reserve, UrlAccess};
use super::doors::{Doors, refused_trigger};
use super::plan::{Deployed, Plan};
use crate::context::Globals;
use crate::error::CliError;
use crate::schedules;

/// What takes a step back.
enum Undo {
    /// The function was new.
    Delete,
    /// It had these settings.
    Settings(Box<FunctionChange>),
    /// It had this reservation.
    Reserve(Option<u64>),
    /// It had this URL.
    Url(UrlAccess),
    /// The bucket had these rules.
    Rules(BucketName, BucketNotifications),
    /// It had this schedule; none: it had none.
    Schedule(Option<Value>),
    /// The state machine had this definition; none: there was none.
    Machine(Option<String>),
}

/// A deployment under way.
pub(super) struct Applying<'a> {
    pub(super) plan: &'a Plan,
    pub(super) deployed: &'a Deployed,
    pub(super) code: Option<&'a CodeUpload>,
    pub(super) doors: &'a Doors,
    pub(super) globals: &'a Globals,
}

/// The step that failed.
struct Refusal {
    step: String,
    error: Box<CliError>,
}

impl Refusal {
    fn of<E: Into<CliError>>(step: &str) -> impl FnOnce(E) -> Self {
        let step = step.to_owned();
        move |error| Self { step, error: Box::new(error.into()) }
    }
}

/// Checks at the doors what can be checked without a change.
pub(super) async fn check(applying: &Applying<'_>) -> Result<(), CliError> {
    let Applying { plan, deployed, code, doors, .. } = applying;
    plan.check_triggers(deployed).map_err(|(bucket, error)| refused_trigger(&plan.name, &bucket, error))?;
    if let (Some(states), Some(definition)) = (&doors.states, &plan.machine) {
        let faults = states.faults(definition).await?;
        if !faults.is_empty() {
            let faults = faults.join("; ");
            return Err(CliError::Failed(format!(
                "nothing is deployed: the workflow of {} is wrong: {faults}",
                plan.name
            )));
        }
    }
    // The code is the last step: if it is also the only one, its own answer is enough.
    if let Some(code) = code
        && plan.sends_code
        && !plan.is_new
        && plan.changes.len() > 1
    {
        doors.lambda.update_code(&plan.name, code, true).await?;
    }
    Ok(())
}

impl Applying<'_> {
    /// Does all steps. Returns the function's configuration, and its URL if the plan gives it one.
    ///
    /// # Errors
    /// The refusal of a step, after the steps before it were undone.
    pub(super) async fn run(&self) -> Result<(Value, Option<String>), CliError> {
        let mut undo = Vec::new();
        let Refusal { step, error } = match self.steps(&mut undo).await {
            Ok(done) => return Ok(done),
            Err(refusal) => refusal,
        };
        if undo.is_empty() {
            // Nothing was changed: the door's own words say all.
            return Err(*error);
        }
        let error = error.to_string();
        let mut left = Vec::new();
        while let Some(one) = undo.pop() {
            if let Err(error) = self.take_back(one).await {
                left.push(error.to_string());
            }
        }
        if left.is_empty() {
            return Err(CliError::Failed(format!("nothing is deployed: {step} is refused: {error}")));
        }
        Err(CliError::Failed(format!(
            "{} is deployed in part: {step} is refused: {error}; and what was changed before could not be undone: {}",
            self.plan.name,
            left.join("; ")
        )))
    }

    async fn steps(&self, undo: &mut Vec<Undo>) -> Result<(Value, Option<String>), Refusal> {
        let Self { plan, deployed, code, doors, globals } = self;
        let (name, lambda) = (&plan.name, &doors.lambda);
        let mut function = match (&deployed.function, code) {
            (Some(function), _) => function.configuration.clone(),
            (None, Some(code)) => {
                let made = lambda.create(name, &plan.settings, code).await.map_err(Refusal::of("the function"))?;
                undo.push(Undo::Delete);
                made
            }
            // `prepare` refuses it.
            (None, None) => {
                return Err(Refusal::of("the function")(CliError::Usage(format!("there is no function {name}"))));
            }
        };
        if !plan.is_new && !plan.settings.is_empty() {
            let before = FunctionChange::back_to(&function);
            let changed = lambda.update_settings(name, &plan.settings, &function).await;
            function = changed.map_err(Refusal::of("a setting"))?;
            undo.push(Undo::Settings(Box::new(before)));
        }
        if let Some(Reserve(count)) = plan.reserved {
            lambda.reserve(name, count).await.map_err(Refusal::of("the reserved concurrency"))?;
            undo.push(Undo::Reserve(deployed.function.as_ref().and_then(|function| function.reserved)));
        }
        let mut url = None;
        if let Some(access) = plan.url {
            url = self.set_url(access).await.map_err(Refusal::of("the URL"))?;
            undo.push(Undo::Url(deployed.url.as_ref().map_or(UrlAccess::None, |(_, access)| *access)));
        }
        let arn = function["FunctionArn"].as_str().unwrap_or_default().to_owned();
        for (bucket, step) in &plan.triggers {
            let Some(s3) = &doors.s3 else { break };
            let before = deployed.buckets.get(bucket).cloned().unwrap_or_default();
            let rules = step.after(&before, name, &arn);
            let set = s3.set_notifications(bucket, &rules).await;
            set.map_err(Refusal::of(&format!("a trigger on {bucket}")))?;
            undo.push(Undo::Rules(bucket.clone(), before));
        }
        if let (Some(states), Some(definition)) = (&doors.states, &plan.machine) {
            states.give(name.as_str(), definition).await.map_err(Refusal::of("the workflow"))?;
            undo.push(Undo::Machine(deployed.machine.clone()));
        }
        if let Some(schedule) = &plan.schedule {
            schedule.carry_out(name, &arn, globals).await.map_err(Refusal::of("the schedule"))?;
            undo.push(Undo::Schedule(deployed.schedule.clone()));
        }
        if let Some(code) = code
            && plan.sends_code
            && !plan.is_new
        {
            function = lambda.update_code(name, code, false).await.map_err(Refusal::of("the code"))?;
        }
        Ok((function, url))
    }

    async fn set_url(&self, access: UrlAccess) -> Result<Option<String>, ClientError> {
        let (name, lambda) = (&self.plan.name, &self.doors.lambda);
        match access.auth() {
            Some(auth) => lambda.give_url(name, auth).await.map(Some),
            None => lambda.take_url(name).await.map(|()| None),
        }
    }

    async fn take_back(&self, undo: Undo) -> Result<(), CliError> {
        let (name, doors) = (&self.plan.name, self.doors);
        match undo {
            Undo::Delete => doors.lambda.delete(name).await?,
            Undo::Settings(before) => doors.lambda.update_settings(name, &before, &Value::Null).await.map(drop)?,
            Undo::Reserve(count) => doors.lambda.reserve(name, count).await?,
            Undo::Url(access) => self.set_url(access).await.map(drop)?,
            Undo::Rules(bucket, rules) => {
                if let Some(s3) = &doors.s3 {
                    s3.set_notifications(&bucket, &rules).await?;
                }
            }
            Undo::Schedule(before) => schedules::set(name, before.as_ref(), self.globals).await?,
            Undo::Machine(definition) => match (&doors.states, definition) {
                (Some(states), Some(definition)) => states.give(name.as_str(), &definition).await?,
                (Some(states), None) => states.delete(name.as_str()).await?,
                (None, _) => {}
            },
        }
        Ok(())
    }
}
