//! The Step Functions API of a node, as this command calls it.

use nigh_node::client::{ClientError, StatesClient};
use serde_json::{Value, json};

use crate::context::Globals;
use crate::error::CliError;

/// The Step Functions API of a node.
pub(crate) struct Door {
    client: StatesClient,
    region: String,
}

impl Door {
    pub(crate) async fn reach(globals: &Globals) -> Result<Self, CliError> {
        let reached = globals.reach(|endpoints| endpoints.lambda).await?;
        let client = StatesClient::new(&reached.door, &reached.region, &reached.credentials)?;
        Ok(Self { client, region: reached.region })
    }

    pub(super) fn machine(&self, name: &str) -> String {
        if name.starts_with("arn:") {
            return name.to_owned();
        }
        format!("arn:aws:states:{}:000000000000:stateMachine:{name}", self.region)
    }

    pub(super) fn execution(&self, machine: &str, name: &str) -> String {
        if name.starts_with("arn:") {
            return name.to_owned();
        }
        format!("arn:aws:states:{}:000000000000:execution:{machine}:{name}", self.region)
    }

    pub(super) async fn call(&self, operation: &str, body: &Value) -> Result<Value, CliError> {
        Ok(self.client.call(operation, body).await?)
    }

    /// The definition of a state machine; none if there is none of this name.
    pub(crate) async fn definition(&self, name: &str) -> Result<Option<String>, ClientError> {
        Ok(self.described(name).await?.and_then(|found| found["definition"].as_str().map(str::to_owned)))
    }

    /// What the API says of a state machine; none if there is none of this name.
    pub(super) async fn described(&self, name: &str) -> Result<Option<Value>, ClientError> {
        let body = json!({ "stateMachineArn": self.machine(name) });
        match self.client.call("DescribeStateMachine", &body).await {
            Ok(found) => Ok(Some(found)),
            Err(ClientError::Refused { code, .. }) if code == "StateMachineDoesNotExist" => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The errors in a definition, each with its place.
    pub(crate) async fn faults(&self, definition: &str) -> Result<Vec<String>, ClientError> {
        let found = self.client.call("ValidateStateMachineDefinition", &json!({ "definition": definition })).await?;
        if found["result"] == "OK" {
            return Ok(Vec::new());
        }
        let diagnostics = found["diagnostics"].as_array().into_iter().flatten();
        Ok(diagnostics.filter_map(|one| one["message"].as_str().map(str::to_owned)).collect())
    }

    /// Creates a standard state machine, or changes the one of that name.
    pub(crate) async fn give(&self, name: &str, definition: &str) -> Result<(), ClientError> {
        self.create_or_change(name, definition, creation(name, definition, false)).await.map(drop)
    }

    /// Deletes a state machine; running executions go on.
    pub(crate) async fn delete(&self, name: &str) -> Result<(), ClientError> {
        self.client.call("DeleteStateMachine", &json!({ "stateMachineArn": self.machine(name) })).await.map(drop)
    }

    /// What the API answers, and whether the machine was `created` or `changed`. The tags of the creation are set in both
    /// cases; a change leaves the others.
    pub(super) async fn create_or_change(
        &self,
        name: &str,
        definition: &str,
        creation: Value,
    ) -> Result<(Value, &'static str), ClientError> {
        match self.client.call("CreateStateMachine", &creation).await {
            Err(ClientError::Refused { code, .. }) if code == "StateMachineAlreadyExists" => {
                let arn = self.machine(name);
                // Before the definition, which may rely on what the tags declare.
                if let Some(tags) = creation.get("tags") {
                    self.client.call("TagResource", &json!({ "resourceArn": arn, "tags": tags })).await?;
                }
                let change = json!({ "stateMachineArn": arn, "definition": definition });
                Ok((self.client.call("UpdateStateMachine", &change).await?, "changed"))
            }
            made => Ok((made?, "created")),
        }
    }
}

/// The request that creates a state machine.
pub(super) fn creation(name: &str, definition: &str, is_express: bool) -> Value {
    json!({
        "name": name,
        "definition": definition,
        "roleArn": "arn:aws:iam::000000000000:role/nigh",
        "type": if is_express { "EXPRESS" } else { "STANDARD" },
    })
}
