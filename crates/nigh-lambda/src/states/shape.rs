//! Parses the requests of the Step Functions API. Pure.

use nigh_terms::Timestamp;
use nigh_workflow::arn::{WorkflowName, execution_of, machine_of};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::super::operations::Request;
use super::error::StatesError;

/// The most items of a page, and the default.
const PAGE_MAX: usize = 1000;
const PAGE: usize = 100;
/// The longest ARN of machines and executions.
const TOKEN_MAX: usize = 128;

#[derive(Deserialize)]
pub(super) struct Tag {
    pub(super) key: String,
    pub(super) value: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct MachineShape {
    pub(super) name: Option<String>,
    pub(super) state_machine_arn: Option<String>,
    pub(super) definition: Option<String>,
    pub(super) role_arn: Option<String>,
    #[serde(rename = "type")]
    pub(super) kind: Option<String>,
    #[serde(default)]
    pub(super) tags: Vec<Tag>,
    #[serde(default)]
    pub(super) publish: bool,
}

/// The tags to set or to remove.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct TagShape {
    pub(super) resource_arn: Option<String>,
    #[serde(default)]
    pub(super) tags: Vec<Tag>,
    #[serde(default)]
    pub(super) tag_keys: Vec<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ExecutionShape {
    pub(super) state_machine_arn: Option<String>,
    pub(super) execution_arn: Option<String>,
    pub(super) name: Option<String>,
    pub(super) input: Option<String>,
    pub(super) error: Option<String>,
    pub(super) cause: Option<String>,
    pub(super) included_data: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct PageShape {
    pub(super) state_machine_arn: Option<String>,
    pub(super) resource_arn: Option<String>,
    pub(super) execution_arn: Option<String>,
    pub(super) status_filter: Option<String>,
    pub(super) max_results: Option<usize>,
    pub(super) next_token: Option<String>,
    #[serde(default)]
    pub(super) reverse_order: bool,
    pub(super) include_execution_data: Option<bool>,
}

impl PageShape {
    pub(super) fn limit(&self) -> Result<usize, StatesError> {
        match self.max_results {
            None | Some(0) => Ok(PAGE),
            Some(limit) if limit <= PAGE_MAX => Ok(limit),
            Some(limit) => Err(StatesError::validation(format!("maxResults is {limit}, {PAGE_MAX} is the most"))),
        }
    }

    pub(super) fn token(&self) -> Result<Option<&str>, StatesError> {
        match self.next_token.as_deref() {
            Some(token) if token.len() > TOKEN_MAX => Err(bad_token()),
            token => Ok(token),
        }
    }
}

pub(super) fn bad_token() -> StatesError {
    StatesError::invalid_token("Invalid Token: nextToken is not one that this operation gave")
}

pub(super) fn read<T: DeserializeOwned>(request: &Request<'_>) -> Result<T, StatesError> {
    let body: &[u8] = if request.body.is_empty() { b"{}" } else { &request.body };
    serde_json::from_slice(body).map_err(|error| StatesError::serialization(error.to_string()))
}

pub(super) fn given<'a>(name: &str, value: Option<&'a str>) -> Result<&'a str, StatesError> {
    value.ok_or_else(|| StatesError::validation(format!("{name} is missing")))
}

pub(super) fn machine(arn: Option<&str>) -> Result<WorkflowName, StatesError> {
    let arn = given("stateMachineArn", arn)?;
    machine_of(arn)
        .ok_or_else(|| StatesError::invalid_arn(format!("Invalid Arn: no state machine here has the ARN '{arn}'")))
}

pub(super) fn execution(arn: Option<&str>) -> Result<(WorkflowName, WorkflowName), StatesError> {
    let arn = given("executionArn", arn)?;
    if arn.contains(":express:") {
        return Err(StatesError::execution_not_found(format!(
            "Execution Does Not Exist: '{arn}': those of express machines are not kept"
        )));
    }
    execution_of(arn).ok_or_else(|| StatesError::invalid_arn(format!("Invalid Arn: '{arn}' is no execution's here")))
}

/// An execution's input, by default `{}`.
pub(super) fn input(text: Option<&str>) -> Result<Value, StatesError> {
    serde_json::from_str(text.unwrap_or("{}"))
        .map_err(|error| StatesError::invalid_input(format!("Invalid State Machine Execution Input: '{error}'")))
}

/// A date in seconds, as this API has it.
pub(super) fn date(at: Timestamp) -> f64 {
    at.millis() as f64 / 1000.0
}
