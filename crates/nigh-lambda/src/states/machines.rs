//! Creates, updates, shows and validates state machines.

use std::collections::BTreeMap;

use nigh_workflow::arn::{WorkflowName, machine_arn};
use nigh_workflow::machine_store::{Machine, MachineError, MachineKind, NewMachine};
use nigh_workflow::scratch::{SCRATCH_TAG, ScratchFolder};
use nigh_workflow::{self, Problem};
use serde_json::{Value, json};

use super::super::LambdaDoor;
use super::super::operations::Request;
use super::error::StatesError;
use super::owner::Seat;
use super::shape::{
    ExecutionShape, MachineShape, PageShape, TagShape, bad_token, date, execution, given, machine, read,
};

/// Tags of one machine (AWS: 50).
const TAGS_MAX: usize = 50;

fn kind(text: Option<&str>) -> Result<MachineKind, StatesError> {
    match text {
        None | Some("STANDARD") => Ok(MachineKind::Standard),
        Some("EXPRESS") => Ok(MachineKind::Express),
        Some(other) => Err(StatesError::validation(format!("type is {other:?}; it can be STANDARD or EXPRESS"))),
    }
}

/// The errors of a definition, in the form of the API.
fn diagnostic(problem: &Problem) -> Value {
    json!({
        "severity": "ERROR", "code": problem.code, "message": problem.to_string(), "location": problem.location(),
    })
}

pub(super) fn validate(request: &Request<'_>) -> Result<Value, StatesError> {
    let shape: MachineShape = read(request)?;
    kind(shape.kind.as_deref())?;
    let problems = nigh_workflow::read(given("definition", shape.definition.as_deref())?).err().unwrap_or_default();
    let diagnostics: Vec<Value> = problems.iter().map(diagnostic).collect();
    let result = if problems.is_empty() { "OK" } else { "FAIL" };
    Ok(json!({ "result": result, "diagnostics": diagnostics, "truncated": false }))
}

impl LambdaDoor {
    fn machine(&self, name: &WorkflowName, request: &Request<'_>) -> Result<std::sync::Arc<Machine>, StatesError> {
        let found = self.parts.machines.get(&request.who.namespace, name);
        let arn = || machine_arn(&self.settings.region, name);
        found.ok_or_else(|| StatesError::machine_not_found(format!("State Machine Does Not Exist: '{}'", arn())))
    }

    /// The machine of an ARN.
    pub(super) fn machine_by_arn(
        &self,
        arn: Option<&str>,
        request: &Request<'_>,
    ) -> Result<std::sync::Arc<Machine>, StatesError> {
        self.machine(&machine(arn)?, request)
    }

    pub(super) async fn create_machine(&self, request: &Request<'_>) -> Result<Value, StatesError> {
        let shape: MachineShape = read(request)?;
        if shape.publish {
            return Err(StatesError::validation("versions of state machines are not supported: leave publish out"));
        }
        let mut new = NewMachine {
            name: WorkflowName::new(given("name", shape.name.as_deref())?)?,
            kind: kind(shape.kind.as_deref())?,
            text: given("definition", shape.definition.as_deref())?.to_owned(),
            role: shape.role_arn.unwrap_or_default(),
            tags: shape.tags.into_iter().map(|tag| (tag.key, tag.value)).collect(),
            scratch: Vec::new(),
        };
        new.scratch = self.declare_scratch(&new.tags, request).await?;
        let created = self.parts.machines.create(&request.who.namespace, new).await.map_err(|error| match error {
            MachineError::Exists(name) => StatesError::machine_exists(format!(
                "State Machine Already Exists: '{}', with another definition, role, type or tags",
                machine_arn(&self.settings.region, &name)
            )),
            other => other.into(),
        })?;
        Ok(json!({
            "stateMachineArn": machine_arn(&self.settings.region, &created.name),
            "creationDate": date(created.created),
        }))
    }

    /// The scratch folders that the tags of a machine declare; their objects are in memory only from now on.
    async fn declare_scratch(
        &self,
        tags: &BTreeMap<String, String>,
        request: &Request<'_>,
    ) -> Result<Vec<ScratchFolder>, StatesError> {
        if tags.len() > TAGS_MAX {
            return Err(StatesError::validation(format!("a state machine has at most {TAGS_MAX} tags")));
        }
        let scratch = tags.get(SCRATCH_TAG).map(|value| ScratchFolder::of_tag(value)).transpose()?.unwrap_or_default();
        for folder in &scratch {
            let declared = self.parts.executions.declare_scratch(&request.who.namespace, folder).await;
            declared.map_err(|why| StatesError::validation(format!("the tag {SCRATCH_TAG}: {why}")))?;
        }
        Ok(scratch)
    }

    /// Sets and removes tags of a machine. Its executions from now on have the scratch folders that the tags declare.
    pub(super) async fn tag_machine(&self, request: &Request<'_>) -> Result<Value, StatesError> {
        let shape: TagShape = read(request)?;
        let there = self.machine_by_arn(shape.resource_arn.as_deref(), request)?;
        let mut tags = there.tags.clone();
        tags.extend(shape.tags.into_iter().map(|tag| (tag.key, tag.value)));
        tags.retain(|name, _| !shape.tag_keys.contains(name));
        let scratch = self.declare_scratch(&tags, request).await?;
        self.parts.machines.set_tags(&request.who.namespace, &there, tags, scratch).await?;
        Ok(json!({}))
    }

    pub(super) async fn update_machine(&self, request: &Request<'_>) -> Result<Value, StatesError> {
        let shape: MachineShape = read(request)?;
        let name = self.machine_by_arn(shape.state_machine_arn.as_deref(), request)?.name.clone();
        if shape.definition.is_none() && shape.role_arn.is_none() {
            return Err(StatesError::missing("Either the definition, the role ARN, or both must be specified"));
        }
        let machines = &self.parts.machines;
        let updated = machines.update(&request.who.namespace, &name, shape.definition, shape.role_arn).await?;
        Ok(json!({ "updateDate": date(updated.updated), "revisionId": updated.revision_id }))
    }

    pub(super) async fn delete_machine(&self, request: &Request<'_>) -> Result<Value, StatesError> {
        let shape: MachineShape = read(request)?;
        let name = machine(shape.state_machine_arn.as_deref())?;
        self.parts.machines.delete(&request.who.namespace, &name).await?;
        Ok(json!({}))
    }

    pub(super) fn describe_machine(&self, request: &Request<'_>) -> Result<Value, StatesError> {
        let shape: MachineShape = read(request)?;
        let machine = self.machine_by_arn(shape.state_machine_arn.as_deref(), request)?;
        Ok(json!({
            "stateMachineArn": machine_arn(&self.settings.region, &machine.name),
            "name": machine.name,
            "status": "ACTIVE",
            "definition": &*machine.text,
            "roleArn": machine.role,
            "type": machine.kind.name(),
            "creationDate": date(machine.created),
            "revisionId": machine.revision_id,
            "loggingConfiguration": { "level": "OFF", "includeExecutionData": false },
            "tracingConfiguration": { "enabled": false },
        }))
    }

    pub(super) async fn describe_machine_of_execution(
        request: &Request<'_>,
        seat: &Seat<'_>,
    ) -> Result<Value, StatesError> {
        let shape: ExecutionShape = read(request)?;
        let (machine, name) = execution(shape.execution_arn.as_deref())?;
        let found = seat.executions.describe(&request.who.namespace, &machine, &name).await?;
        Ok(json!({
            "stateMachineArn": found.listed.machine_arn,
            "name": machine,
            "definition": found.definition,
            "roleArn": found.role,
            "updateDate": date(found.listed.started),
        }))
    }

    pub(super) fn list_machines(&self, request: &Request<'_>) -> Result<Value, StatesError> {
        let shape: PageShape = read(request)?;
        let after = shape.token()?.map(WorkflowName::new).transpose().map_err(|_| bad_token())?;
        let (page, more) = self.parts.machines.list(&request.who.namespace, after.as_ref(), shape.limit()?);
        let listed: Vec<Value> = page
            .iter()
            .map(|machine| {
                json!({
                    "stateMachineArn": machine_arn(&self.settings.region, &machine.name),
                    "name": machine.name,
                    "type": machine.kind.name(),
                    "creationDate": date(machine.created),
                })
            })
            .collect();
        let mut answer = json!({ "stateMachines": listed });
        if let Some(last) = page.last().filter(|_| more) {
            answer["nextToken"] = json!(last.name);
        }
        Ok(answer)
    }

    pub(super) fn list_machine_tags(&self, request: &Request<'_>) -> Result<Value, StatesError> {
        let shape: PageShape = read(request)?;
        let machine = self.machine_by_arn(shape.resource_arn.as_deref(), request)?;
        let tags: Vec<Value> = machine.tags.iter().map(|(key, value)| json!({ "key": key, "value": value })).collect();
        Ok(json!({ "tags": tags }))
    }
}
