//! How clients name state machines and executions: pure.

use std::fmt;

use nigh_functions::function_arn::ACCOUNT;
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// The longest name of a state machine or an execution.
const NAME_MAX: usize = 80;

/// The text is not a valid name.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error(
    "Invalid Name: '{0}': a name has 1 to 80 characters, without blanks, brackets, wildcards and control characters"
)]
pub struct WorkflowNameError(String);

/// The name of a state machine or an execution.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct WorkflowName(String);

impl WorkflowName {
    /// Checks that `text` is a valid name (Step Functions API reference, `CreateStateMachine`).
    ///
    /// # Errors
    /// If it has a character that names cannot have, or is too long.
    pub fn new(text: &str) -> Result<Self, WorkflowNameError> {
        // The characters that have a meaning in ARNs, patterns and paths.
        let refused =
            |letter: char| letter.is_whitespace() || letter.is_control() || "<>{}[]?*\"#%\\^|~`$&,;:/".contains(letter);
        if text.is_empty() || text.chars().count() > NAME_MAX || text.contains(refused) {
            return Err(WorkflowNameError(text.chars().take(NAME_MAX).collect()));
        }
        Ok(Self(text.to_owned()))
    }

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for WorkflowName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl TryFrom<String> for WorkflowName {
    type Error = WorkflowNameError;

    fn try_from(text: String) -> Result<Self, WorkflowNameError> {
        Self::new(&text)
    }
}

impl From<WorkflowName> for String {
    fn from(name: WorkflowName) -> Self {
        name.0
    }
}

/// The ARN of a state machine.
#[must_use]
pub fn machine_arn(region: &str, name: &WorkflowName) -> String {
    format!("arn:aws:states:{region}:{ACCOUNT}:stateMachine:{name}")
}

/// The ARN of an execution that is stored.
#[must_use]
pub fn execution_arn(region: &str, machine: &WorkflowName, name: &WorkflowName) -> String {
    format!("arn:aws:states:{region}:{ACCOUNT}:execution:{machine}:{name}")
}

/// The ARN of an execution of an express machine, which is not stored.
#[must_use]
pub fn express_arn(region: &str, machine: &WorkflowName, name: &WorkflowName, id: &str) -> String {
    format!("arn:aws:states:{region}:{ACCOUNT}:express:{machine}:{name}:{id}")
}

fn parts(arn: &str) -> Option<Vec<&str>> {
    let parts: Vec<&str> = arn.split(':').collect();
    match parts.as_slice() {
        ["arn", "aws" | "aws-cn" | "aws-us-gov", "states", _, ACCOUNT, ..] => Some(parts),
        _ => None,
    }
}

/// The name in a state machine's ARN; none if it is no such ARN.
#[must_use]
pub fn machine_of(arn: &str) -> Option<WorkflowName> {
    match parts(arn)?.get(5..)? {
        ["stateMachine", name] => WorkflowName::new(name).ok(),
        _ => None,
    }
}

/// The names in an execution's ARN: of the machine, and of the execution; none if it is no such ARN.
#[must_use]
pub fn execution_of(arn: &str) -> Option<(WorkflowName, WorkflowName)> {
    match parts(arn)?.get(5..)? {
        ["execution", machine, name] => Some((WorkflowName::new(machine).ok()?, WorkflowName::new(name).ok()?)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_arn_leads_back_to_the_names_that_it_was_made_of() {
        let (machine, name) = (WorkflowName::new("Thumb_nails.1").unwrap(), WorkflowName::new("run-1").unwrap());
        assert_eq!(machine_of(&machine_arn("eu-west-3", &machine)), Some(machine.clone()));
        let arn = execution_arn("eu-west-3", &machine, &name);
        assert_eq!(execution_of(&arn), Some((machine, name)));
        for no in ["", "x", "arn:aws:states:r:111111111111:stateMachine:x", "arn:aws:lambda:r:000000000000:function:x"]
        {
            assert_eq!(machine_of(no), None, "{no}");
        }
        for no in ["", "a b", "a:b", "a/b", "a*", &"x".repeat(81)] {
            assert!(WorkflowName::new(no).is_err(), "{no}");
        }
    }
}
