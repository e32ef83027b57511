//! The context object, which paths that begin with `$$` look at: pure.

use nigh_terms::Timestamp;
use serde_json::{Value, json};

use super::event::Facts;

/// The item of a map that an iteration has.
#[derive(Clone, Debug, PartialEq)]
pub struct MapItem {
    /// Its place.
    pub index: usize,
    /// What it is.
    pub value: Value,
}

/// What is made into the object when a path asks for it.
pub struct Context<'a> {
    /// The execution.
    pub facts: Option<&'a Facts>,
    /// Its input.
    pub input: &'a Value,
    /// The state's name.
    pub state: &'a str,
    /// When it was entered.
    pub entered: Timestamp,
    /// How often it was tried again.
    pub retries: u32,
    /// Within a map: the item.
    pub item: Option<&'a MapItem>,
}

impl Context<'_> {
    /// A context without an execution.
    #[cfg(test)]
    pub(super) const fn of_nothing() -> Self {
        Self { facts: None, input: &Value::Null, state: "", entered: Timestamp(0), retries: 0, item: None }
    }

    /// The object.
    #[must_use]
    pub fn value(&self) -> Value {
        let mut object = json!({
            "State": { "Name": self.state, "EnteredTime": self.entered.rfc3339(), "RetryCount": self.retries },
        });
        if let Some(facts) = self.facts {
            object["Execution"] = json!({
                "Id": facts.arn,
                "Name": facts.name,
                "Input": self.input,
                "RoleArn": facts.role,
                "StartTime": facts.started.rfc3339(),
            });
            object["StateMachine"] = json!({ "Id": facts.machine_arn, "Name": facts.machine });
        }
        if let Some(item) = self.item {
            object["Map"] = json!({ "Item": { "Index": item.index, "Value": item.value } });
        }
        object
    }
}
