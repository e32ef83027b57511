//! The context object, which paths that begin with `$$` read: pure.

use nigh_terms::Timestamp;
use serde_json::{Value, json};

use crate::event::Facts;

/// The item of a map's iteration.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct MapItem {
    /// The item's index in the map's array.
    pub(crate) index: usize,
    /// The item's value.
    pub(crate) value: Value,
}

/// The sources of the context object, which is made when a path asks for it.
pub(crate) struct Context<'a> {
    /// The execution; none outside one.
    pub(crate) facts: Option<&'a Facts>,
    /// The execution's input.
    pub(crate) input: &'a Value,
    /// The state's name.
    pub(crate) state: &'a str,
    /// When the state was entered.
    pub(crate) entered: Timestamp,
    /// The number of retries of the state.
    pub(crate) retries: u32,
    /// The map's item; none outside a map.
    pub(crate) item: Option<&'a MapItem>,
}

impl Context<'_> {
    /// A context without an execution.
    #[cfg(test)]
    pub(crate) const fn of_nothing() -> Self {
        Self { facts: None, input: &Value::Null, state: "", entered: Timestamp(0), retries: 0, item: None }
    }

    /// The context object.
    pub(crate) fn value(&self) -> Value {
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
