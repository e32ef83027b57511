//! OpenWhisk's side: an action, and the sequence that has it run several times, each called and awaited by one client.

use std::net::SocketAddr;
use std::time::Instant;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::{INPUT, SEQUENCE, failed};
use crate::LabError;
use crate::bench::us;
use crate::instrument::http_load::Connection;
use crate::instrument::node_under_test::NodeUnderTest;

const CODE: &str = "def main(args):\n    return args\n";

pub(super) struct Actions {
    server: SocketAddr,
    authorization: String,
    connection: Connection,
    action: Vec<u8>,
    sequence: Vec<u8>,
}

impl Actions {
    pub(super) fn deploy(node: &NodeUnderTest) -> Result<Self, LabError> {
        let keys = node.s3_access();
        let pair = STANDARD.encode(format!("{}:{}", keys.access_key, keys.secret_key.reveal()));
        let server = node.lambda()?;
        let connection = Connection::open(server).map_err(failed)?;
        let authorization = format!("Basic {pair}");
        let mut actions = Self { server, authorization, connection, action: Vec::new(), sequence: Vec::new() };
        let components = vec!["/_/noop-action"; SEQUENCE];
        for (name, exec) in [
            ("noop-action", json!({ "kind": "python:3", "code": CODE })),
            ("noop-sequence", json!({ "kind": "sequence", "components": components })),
        ] {
            let body = json!({ "exec": exec }).to_string();
            let request = actions.request("PUT", &format!("actions/{name}"), &body);
            actions.connection.exchange(&request).map_err(failed)?;
        }
        actions.action = actions.request("POST", "actions/noop-action?blocking=true", INPUT);
        actions.sequence = actions.request("POST", "actions/noop-sequence?blocking=true", INPUT);
        Ok(actions)
    }

    fn request(&self, method: &str, path: &str, body: &str) -> Vec<u8> {
        format!(
            "{method} /api/v1/namespaces/_/{path} HTTP/1.1\r\nhost: {}\r\nauthorization: {}\r\n\
             content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
            self.server,
            self.authorization,
            body.len()
        )
        .into_bytes()
    }

    pub(super) fn invoke(&mut self) -> Result<f64, LabError> {
        timed(&mut self.connection, &self.action, |_| true)
    }

    pub(super) fn run(&mut self) -> Result<f64, LabError> {
        timed(&mut self.connection, &self.sequence, |record| {
            record["logs"].as_array().is_some_and(|activations| activations.len() == SEQUENCE)
        })
    }
}

/// How long a call takes that must succeed, with a record that is `whole`.
fn timed(connection: &mut Connection, request: &[u8], whole: fn(&Value) -> bool) -> Result<f64, LabError> {
    let sent = Instant::now();
    let (_, answer) = connection.fetch(request).map_err(failed)?;
    let took = us(sent.elapsed());
    let record: Value = serde_json::from_slice(&answer).map_err(failed)?;
    if record["response"]["success"] == true && whole(&record) { Ok(took) } else { Err(failed(record)) }
}
