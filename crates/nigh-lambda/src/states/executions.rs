//! Starts, stops and shows executions.

use nigh_terms::InvocationId;
use nigh_workflow::arn::{WorkflowName, machine_arn};
use nigh_workflow::event::Outcome;
use nigh_workflow::executions::{ExecutionSummary, NewExecution};
use nigh_workflow::machine_store::MachineKind;
use serde_json::{Value, json};

use super::super::LambdaDoor;
use super::super::operations::Request;
use super::error::StatesError;
use super::owner::Seat;
use super::shape::{ExecutionShape, PageShape, bad_token, date, execution, input, read};

/// The filter of a list of executions.
const STATUSES: [&str; 5] = ["RUNNING", "SUCCEEDED", "FAILED", "TIMED_OUT", "ABORTED"];

fn name(given: Option<&str>) -> Result<Option<WorkflowName>, StatesError> {
    Ok(given.map(WorkflowName::new).transpose()?)
}

fn set(object: &mut Value, name: &str, value: Option<impl Into<Value>>) {
    if let Some(value) = value {
        object[name] = value.into();
    }
}

fn listed(execution: &ExecutionSummary) -> Value {
    let mut value = json!({
        "executionArn": execution.arn,
        "stateMachineArn": execution.machine_arn,
        "name": execution.name,
        "status": execution.status,
        "startDate": date(execution.started),
    });
    set(&mut value, "stopDate", execution.stopped.map(date));
    value
}

impl LambdaDoor {
    pub(super) async fn start_execution(&self, request: &Request<'_>, seat: &Seat<'_>) -> Result<Value, StatesError> {
        let shape: ExecutionShape = read(request)?;
        let machine = self.machine_by_arn(shape.state_machine_arn.as_deref(), request)?;
        let (name, input) = (name(shape.name.as_deref())?, input(shape.input.as_deref())?);
        let new = NewExecution { id: seat.id, name, input, seen: seat.seen.clone() };
        let started = seat.executions.start(&request.who.namespace, &machine, new).await?;
        Ok(json!({ "executionArn": started.arn, "startDate": date(started.at) }))
    }

    pub(super) async fn start_sync_execution(
        &self,
        request: &Request<'_>,
        seat: &Seat<'_>,
    ) -> Result<Value, StatesError> {
        let shape: ExecutionShape = read(request)?;
        let machine = self.machine_by_arn(shape.state_machine_arn.as_deref(), request)?;
        if machine.kind != MachineKind::Express {
            return Err(StatesError::machine_kind("StartSyncExecution is for state machines of type EXPRESS"));
        }
        let (name, input) = (name(shape.name.as_deref())?, input(shape.input.as_deref())?);
        let text = input.to_string();
        let new = NewExecution { id: seat.id, name, input, seen: seat.seen.clone() };
        let ended = seat.executions.run(&request.who.namespace, &machine, new).await?;
        let took = ended.stopped.millis().saturating_sub(ended.started.millis());
        let mut value = json!({
            "executionArn": ended.arn,
            "stateMachineArn": machine_arn(&self.settings.region, &machine.name),
            "name": ended.name,
            "startDate": date(ended.started),
            "stopDate": date(ended.stopped),
            "status": ended.outcome.status(),
            "billingDetails": { "billedDurationInMilliseconds": took, "billedMemoryUsedInMB": 64 },
        });
        if shape.included_data.as_deref() != Some("METADATA_ONLY") {
            value["input"] = text.into();
            value["inputDetails"] = json!({ "included": true });
            if let Outcome::Succeeded { output } = &ended.outcome {
                value["output"] = output.to_string().into();
                value["outputDetails"] = json!({ "included": true });
            }
        }
        if let Outcome::Failed { error, cause } | Outcome::Aborted { error, cause } = ended.outcome {
            set(&mut value, "error", error);
            set(&mut value, "cause", cause);
        }
        Ok(value)
    }

    pub(super) async fn describe_execution(request: &Request<'_>, seat: &Seat<'_>) -> Result<Value, StatesError> {
        let shape: ExecutionShape = read(request)?;
        let (machine, name) = execution(shape.execution_arn.as_deref())?;
        let found = seat.executions.describe(&request.who.namespace, &machine, &name).await?;
        let mut value = listed(&found.listed);
        if shape.included_data.as_deref() != Some("METADATA_ONLY") {
            value["input"] = found.input.to_string().into();
            value["inputDetails"] = json!({ "included": true });
            if let Some(output) = &found.output {
                value["output"] = output.to_string().into();
                value["outputDetails"] = json!({ "included": true });
            }
        }
        set(&mut value, "error", found.listed.error);
        set(&mut value, "cause", found.listed.cause);
        Ok(value)
    }

    pub(super) fn list_executions(&self, request: &Request<'_>, seat: &Seat<'_>) -> Result<Value, StatesError> {
        let shape: PageShape = read(request)?;
        let machine = self.machine_by_arn(shape.state_machine_arn.as_deref(), request)?;
        let status = shape.status_filter.as_deref();
        if let Some(unknown) = status.filter(|status| !STATUSES.contains(status)) {
            return Err(StatesError::validation(format!("statusFilter is {unknown:?}; it is one of {STATUSES:?}")));
        }
        let before = shape.token()?.map(str::parse::<InvocationId>).transpose().map_err(|_| bad_token())?;
        let before = before.map(|id| *id.as_bytes());
        let namespace = &request.who.namespace;
        let (page, next) = seat.executions.list(namespace, &machine.name, status, before, shape.limit()?);
        let mut value = json!({ "executions": page.iter().map(listed).collect::<Vec<_>>() });
        set(&mut value, "nextToken", next.map(|id| InvocationId::of_bytes(id).to_string()));
        Ok(value)
    }

    pub(super) async fn stop_execution(request: &Request<'_>, seat: &Seat<'_>) -> Result<Value, StatesError> {
        let shape: ExecutionShape = read(request)?;
        let (machine, name) = execution(shape.execution_arn.as_deref())?;
        let namespace = &request.who.namespace;
        let stopped = seat.executions.stop(namespace, &machine, &name, shape.error, shape.cause).await?;
        Ok(json!({ "stopDate": date(stopped) }))
    }

    pub(super) async fn get_execution_history(request: &Request<'_>, seat: &Seat<'_>) -> Result<Value, StatesError> {
        let shape: PageShape = read(request)?;
        let (machine, name) = execution(shape.execution_arn.as_deref())?;
        let skipped = shape.token()?.map(str::parse::<usize>).transpose().map_err(|_| bad_token())?.unwrap_or(0);
        let limit = shape.limit()?;
        let mut shown = seat.executions.history(&request.who.namespace, &machine, &name).await?;
        if shape.reverse_order {
            shown.reverse();
        }
        let data = shape.include_execution_data.unwrap_or(true);
        let page: Vec<Value> = shown.iter().skip(skipped).take(limit).map(|event| event.value(data)).collect();
        let more = shown.len() > skipped.saturating_add(page.len());
        let next = more.then(|| (skipped + page.len()).to_string());
        let mut value = json!({ "events": page });
        set(&mut value, "nextToken", next);
        Ok(value)
    }
}
