//! A node's API of state machines, by one connection. Requests are prepared as bytes, so that the time is the execution's and not the
//! client's.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use http::Method;
use serde_json::{Value, json};

use crate::LabError;
use crate::instrument::http_load::Connection;
use crate::instrument::node_under_test::NodeUnderTest;
use crate::instrument::sign::Signer;

/// How often a standard execution is asked for while it runs.
const ASKED_EVERY: Duration = Duration::from_millis(20);
/// What a synchronous execution may take (Step Functions quotas, express).
const SYNC_MAX: Duration = Duration::from_secs(300);

pub(crate) struct StatesDoor {
    signer: Signer,
    address: SocketAddr,
    connection: Connection,
}

pub(crate) fn failed(error: impl std::fmt::Display) -> LabError {
    LabError::Request { what: "workflow".to_owned(), reason: error.to_string() }
}

impl StatesDoor {
    pub(crate) fn connect(node: &NodeUnderTest) -> Result<Self, LabError> {
        Self::to(node.lambda()?, node.signer("states"))
    }

    /// Connects to the door at `address`, for which `signer` signs.
    pub(crate) fn to(address: SocketAddr, signer: Signer) -> Result<Self, LabError> {
        let connection = Connection::open_within(address, SYNC_MAX).map_err(failed)?;
        Ok(Self { signer, address, connection })
    }

    /// The bytes of a request, to be sent again and again.
    pub(crate) async fn request(&self, operation: &str, body: &Value) -> Result<Vec<u8>, LabError> {
        let target = format!("AWSStepFunctions.{operation}");
        let headers = [("content-type", "application/x-amz-json-1.0"), ("x-amz-target", target.as_str())];
        self.signer.signed(Method::POST, self.address, "/", &headers, body.to_string().as_bytes()).await
    }

    pub(crate) async fn call(&mut self, operation: &str, body: &Value) -> Result<Value, LabError> {
        let request = self.request(operation, body).await?;
        let (_, answer) = self.connection.fetch(&request).map_err(failed)?;
        serde_json::from_slice(&answer).map_err(failed)
    }

    /// Makes a machine, with a folder for intermediate objects if `scratch` names one. Returns its ARN.
    pub(crate) async fn create(
        &mut self,
        name: &str,
        kind: &str,
        definition: &str,
        scratch: Option<&str>,
    ) -> Result<String, LabError> {
        let mut body = json!({ "name": name, "type": kind, "roleArn": "", "definition": definition });
        if let Some(folder) = scratch {
            body["tags"] = json!([{ "key": "nigh:scratch", "value": folder }]);
        }
        let made = self.call("CreateStateMachine", &body).await?;
        Ok(made["stateMachineArn"].as_str().unwrap_or_default().to_owned())
    }

    /// Runs a prepared synchronous execution to its end. Returns its output and microseconds.
    pub(crate) fn run(&mut self, request: &[u8]) -> Result<(Value, f64), LabError> {
        let sent = Instant::now();
        let (_, answer) = self.connection.fetch(request).map_err(failed)?;
        let took = sent.elapsed().as_secs_f64() * 1e6;
        let ended: Value = serde_json::from_slice(&answer).map_err(failed)?;
        if ended["status"] != "SUCCEEDED" {
            return Err(failed(ended));
        }
        let output = serde_json::from_str(ended["output"].as_str().unwrap_or_default()).map_err(failed)?;
        Ok((output, took))
    }

    /// Runs an execution of a standard machine: microseconds by its dates.
    pub(crate) async fn run_kept(&mut self, machine: &str, input: &str) -> Result<f64, LabError> {
        let started = self.call("StartExecution", &json!({ "stateMachineArn": machine, "input": input })).await?;
        loop {
            let body = json!({ "executionArn": started["executionArn"] });
            let found = self.call("DescribeExecution", &body).await?;
            match (found["status"].as_str(), found["startDate"].as_f64(), found["stopDate"].as_f64()) {
                (Some("RUNNING"), ..) => tokio::time::sleep(ASKED_EVERY).await,
                (Some("SUCCEEDED"), Some(start), Some(stop)) => return Ok((stop - start) * 1e6),
                _ => return Err(failed(found)),
            }
        }
    }
}
