//! A node with two tenants, an honest one and one whose clients are slow, and the requests of both.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use http::Method;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::honest::{HonestCall, HonestRequest, READ_BYTES, WRITE_BYTES};
use super::kind::{Door, SlowKind, SlowRequest};
use super::swarm::SlowPlan;
use crate::LabError;
use crate::instrument::error::Tried;
use crate::instrument::http_load::Connection;
use crate::instrument::node_under_test::{self, NodeUnderTest, python};
use crate::instrument::platform::{Deployment, LambdaClient, invocations_path};
use crate::instrument::s3_door::S3Door;
use crate::instrument::sign::Signer;

const HONEST: &str = "honest";
const SLOW: &str = "slow";
const BUCKET: &str = "slow-clients";
const FUNCTION: &str = "text";
/// Answers with so much text as the event asks for; at a function's URL, the query.
const HANDLER: &str = "def handler(event, context):\n    \
                           asked = event.get('queryStringParameters') or event\n    \
                           return {'text': 'x' * int(asked.get('bytes', 0))}\n";
const ACTION: &str = "text-action";
const ACTION_CODE: &str = "def main(args):\n    return {'text': 'x' * int(args.get('bytes', 0))}\n";
const BOOKED_MB: u64 = 128;
const TIMEOUT_S: u64 = 30;
/// An upload that a client just above the least rate ends in half a minute. It is JSON: a function takes it.
const UPLOAD_BYTES: usize = 128 << 10;
/// More than the kernel holds for a slow reader: at the S3 door, whose connections within a machine have more room, and at the
/// others.
const LARGE_OBJECT_BYTES: usize = 4 << 20;
const LARGE_ANSWER_BYTES: usize = 256 << 10;
/// Of a thousand clients, all connect within about a second; if each has a function run, a hundred a second do, so that they
/// are slow clients and no flood of invocations.
const OPENS_A_TICK: usize = 10;

/// What requests of one tenant need.
struct Tenant {
    s3: S3Door,
    lambda: Signer,
    basic: String,
    /// The path at which its function's URL is called.
    url: String,
}

/// The node.
pub(super) struct Stage {
    pub(super) node: NodeUnderTest,
    lambda: SocketAddr,
    honest: Tenant,
    slow: Tenant,
    _work: TempDir,
}

impl Stage {
    /// Starts the node with the settings that users have, and puts what all requests name.
    pub(super) async fn set() -> Result<Self, LabError> {
        let work = tempfile::tempdir().at(std::env::temp_dir())?;
        let mut settings = node_under_test::settings(None, &python()?);
        let tenants = [HONEST, SLOW].map(|tenant| (tenant.to_owned(), toml::Table::new().into()));
        settings.insert("namespaces".to_owned(), toml::Table::from_iter(tenants).into());
        let node = NodeUnderTest::start(work.path(), &settings)?;
        let code = work.path().join("code");
        std::fs::create_dir(&code).and_then(|()| std::fs::write(code.join("app.py"), HANDLER)).at(&code)?;
        let lambda = node.lambda()?;
        let mut tenants = Vec::new();
        for (tenant, object) in [(HONEST, READ_BYTES), (SLOW, LARGE_OBJECT_BYTES)] {
            let s3 = S3Door { signer: node.signer_of(tenant, "s3")?, address: node.s3()? };
            s3.send(Method::PUT, &format!("/{BUCKET}"), b"").await?;
            s3.send(Method::PUT, &object_path("read"), &vec![b'x'; object]).await?;
            let (memory_mb, timeout_s, environment) = (BOOKED_MB, TIMEOUT_S, BTreeMap::new());
            let deployment =
                Deployment { name: FUNCTION, code: &code, handler: "app.handler", memory_mb, timeout_s, environment };
            LambdaClient::connect_as(&node, tenant)?.deploy(&deployment).await?;
            let (signer, basic) = (node.signer_of(tenant, "lambda")?, node.basic_of(tenant)?);
            let url = make_url(lambda, &signer).await?;
            let exec = json!({ "exec": { "kind": "python:3", "code": ACTION_CODE } }).to_string();
            let made = by_basic("PUT", lambda, &basic, &action_path(""), exec.as_bytes());
            ask(lambda, "make an action", &made)?;
            tenants.push(Tenant { s3, lambda: signer, basic, url });
        }
        let [honest, slow] = <[Tenant; 2]>::try_from(tenants)
            .map_err(|_| LabError::Node("the node does not have two tenants".to_owned()))?;
        Ok(Self { node, lambda, honest, slow, _work: work })
    }

    /// The honest tenant's calls at `door`, to be sent within minutes: a signature ages.
    pub(super) async fn honest(&self, door: Door) -> Result<Vec<HonestRequest>, LabError> {
        let (who, server) = (&self.honest, self.server(door));
        let mut requests = Vec::new();
        for &call in HonestCall::of(door) {
            let bytes = match call {
                HonestCall::Get => who.read().await?,
                HonestCall::Put => self.upload(who, door, &[b'x'; WRITE_BYTES]).await?,
                HonestCall::Invoke | HonestCall::Action | HonestCall::FunctionUrl => {
                    self.upload(who, door, b"{}").await?
                }
            };
            requests.push(HonestRequest { call, server, bytes });
        }
        Ok(requests)
    }

    /// So many clients of the other tenant at `door`, slow in this way; to be started within minutes.
    pub(super) async fn slow(&self, door: Door, kind: SlowKind, clients: usize) -> Result<SlowPlan, LabError> {
        let who = &self.slow;
        let body = json!({ "pad": "x".repeat(UPLOAD_BYTES) }).to_string();
        let upload = self.upload(who, door, body.as_bytes()).await?;
        let answered = match door {
            Door::S3 => who.read().await?,
            Door::FunctionUrl => {
                request("GET", self.lambda, &format!("{}?bytes={LARGE_ANSWER_BYTES}", who.url), "", b"")
            }
            Door::Lambda | Door::Openwhisk => {
                self.upload(who, door, json!({ "bytes": LARGE_ANSWER_BYTES }).to_string().as_bytes()).await?
            }
        };
        let runs_function = kind == SlowKind::Answer && door != Door::S3;
        Ok(SlowPlan {
            server: self.server(door),
            request: SlowRequest::new(kind, upload, answered),
            clients,
            opens_a_tick: if runs_function { 1 } else { OPENS_A_TICK },
        })
    }

    fn server(&self, door: Door) -> SocketAddr {
        match door {
            Door::S3 => self.honest.s3.address,
            Door::Lambda | Door::Openwhisk | Door::FunctionUrl => self.lambda,
        }
    }

    /// A request with a body: a write at the S3 door; at the others, a run of the tenant's function or action on the event
    /// `body`, whose answer is awaited.
    async fn upload(&self, who: &Tenant, door: Door, body: &[u8]) -> Result<Vec<u8>, LabError> {
        Ok(match door {
            Door::S3 => who.s3.signer.signed(Method::PUT, who.s3.address, &object_path("write"), &[], body).await?,
            Door::Lambda => {
                let headers = [("content-type", "application/json")];
                who.lambda.signed(Method::POST, self.lambda, &invocations_path(FUNCTION), &headers, body).await?
            }
            Door::Openwhisk => {
                by_basic("POST", self.lambda, &who.basic, &action_path("?blocking=true&result=true"), body)
            }
            Door::FunctionUrl => request("POST", self.lambda, &who.url, "content-type: application/json\r\n", body),
        })
    }
}

impl Tenant {
    /// Reads the tenant's object.
    async fn read(&self) -> Result<Vec<u8>, LabError> {
        self.s3.signer.signed(Method::GET, self.s3.address, &object_path("read"), &[], b"").await
    }
}

fn object_path(key: &str) -> String {
    format!("/{BUCKET}/{key}")
}

/// Makes the URL of the function, which anybody may call. Returns the path at which it is called.
async fn make_url(server: SocketAddr, signer: &Signer) -> Result<String, LabError> {
    let path = format!("/2021-10-31/functions/{FUNCTION}/url");
    let headers = [("content-type", "application/json")];
    let request = signer.signed(Method::POST, server, &path, &headers, b"{\"AuthType\":\"NONE\"}").await?;
    let answer = ask(server, "make a function's URL", &request)?;
    let id = answer["FunctionUrl"].as_str().and_then(|url| url.strip_prefix("http://")?.split('.').next());
    let id = id.ok_or_else(|| LabError::Node(format!("a function's URL has no id: {answer}")))?;
    Ok(format!("/lambda-url/{id}/"))
}

fn action_path(query: &str) -> String {
    format!("/api/v1/namespaces/_/actions/{ACTION}{query}")
}

fn by_basic(method: &str, server: SocketAddr, basic: &str, path: &str, body: &[u8]) -> Vec<u8> {
    let headers = format!("authorization: {basic}\r\ncontent-type: application/json\r\n");
    request(method, server, path, &headers, body)
}

/// The bytes of a request; `headers` are whole lines.
fn request(method: &str, server: SocketAddr, path: &str, headers: &str, body: &[u8]) -> Vec<u8> {
    let length = body.len();
    let head =
        format!("{method} {path} HTTP/1.1\r\nhost: {server}\r\n{headers}content-length: {length}\r\n\r\n").into_bytes();
    [head.as_slice(), body].concat()
}

/// The JSON that answers a request.
fn ask(server: SocketAddr, what: &str, request: &[u8]) -> Result<Value, LabError> {
    let failed = |error: &dyn std::fmt::Display| LabError::Request { what: what.to_owned(), reason: error.to_string() };
    let answered = Connection::open(server).and_then(|mut connection| connection.fetch(request));
    let (_, body) = answered.map_err(|error| failed(&error))?;
    serde_json::from_slice(&body).map_err(|error| failed(&error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_without_a_signature_say_their_length_and_their_key() {
        let server = "127.0.0.1:9401".parse().unwrap();
        let text =
            String::from_utf8(by_basic("POST", server, "Basic a2V5", &action_path("?result=true"), b"{}")).unwrap();
        let expected = "POST /api/v1/namespaces/_/actions/text-action?result=true HTTP/1.1\r\nhost: 127.0.0.1:9401\r\n\
                        authorization: Basic a2V5\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}";
        assert_eq!(text, expected);
        assert!(request("GET", server, "/", "", b"").ends_with(b"content-length: 0\r\n\r\n"));
    }
}
