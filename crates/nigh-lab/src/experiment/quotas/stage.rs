//! A node with two tenants: a neighbour without a quota, and a greedy one with a quota of requests.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use http::Method;
use nigh_engine::NamespaceQuota;
use nigh_node::client::AdminClient;
use tempfile::TempDir;

use super::flood::GreedyRequest;
use crate::LabError;
use crate::experiment::slow_clients::honest::{HonestCall, HonestRequest, READ_BYTES, WRITE_BYTES};
use crate::experiment::slow_clients::kind::Door;
use crate::instrument::error::Tried;
use crate::instrument::node_under_test::{self, NodeUnderTest, python};
use crate::instrument::platform::{Deployment, LambdaClient, invocations_path};
use crate::instrument::s3_door::S3Door;
use crate::instrument::sign::Signer;

const NEIGHBOUR: &str = "neighbour";
const GREEDY: &str = "greedy";
const BUCKET: &str = "quotas";
const FUNCTION: &str = "text";
const HANDLER: &str = "def handler(event, context):\n    return {'text': ''}\n";
const BOOKED_MB: u64 = 128;
const TIMEOUT_S: u64 = 30;

/// What requests of one tenant need.
struct Tenant {
    s3: S3Door,
    lambda: Signer,
}

/// The node.
pub(super) struct Stage {
    lambda: SocketAddr,
    neighbour: Tenant,
    greedy: Tenant,
    _node: NodeUnderTest,
    _work: TempDir,
}

impl Stage {
    /// Starts the node with the settings that users have, puts what all requests name, and gives the greedy tenant its quota.
    pub(super) async fn set(quota: u32) -> Result<Self, LabError> {
        let work = tempfile::tempdir().at(std::env::temp_dir())?;
        let mut settings = node_under_test::settings(None, &python()?);
        let tenants = [NEIGHBOUR, GREEDY].map(|tenant| (tenant.to_owned(), toml::Table::new().into()));
        settings.insert("namespaces".to_owned(), toml::Table::from_iter(tenants).into());
        let node = NodeUnderTest::start(work.path(), &settings)?;
        let code = work.path().join("code");
        std::fs::create_dir(&code).and_then(|()| std::fs::write(code.join("app.py"), HANDLER)).at(&code)?;
        let neighbour = furnish(&node, NEIGHBOUR, &code).await?;
        let greedy = furnish(&node, GREEDY, &code).await?;
        let quota = NamespaceQuota { requests: Some(quota), ..NamespaceQuota::default() };
        let admin = AdminClient::new(&node.endpoints.admin_socket);
        admin.give(&format!("/namespaces/{GREEDY}/quota"), &quota).await.of_node()?;
        Ok(Self { lambda: node.lambda()?, neighbour, greedy, _node: node, _work: work })
    }

    /// The neighbour's calls at `door`, to be sent within minutes: a signature ages.
    pub(super) async fn neighbour(&self, door: Door) -> Result<Vec<HonestRequest>, LabError> {
        let mut requests = Vec::new();
        for &call in HonestCall::of(door) {
            let GreedyRequest { server, bytes } = self.request(&self.neighbour, call).await?;
            requests.push(HonestRequest { call, server, bytes });
        }
        Ok(requests)
    }

    /// The greedy tenant's request at `door`, to be sent within minutes.
    pub(super) async fn greedy(&self, door: Door) -> Result<GreedyRequest, LabError> {
        let call = if door == Door::S3 { HonestCall::Get } else { HonestCall::Invoke };
        self.request(&self.greedy, call).await
    }

    async fn request(&self, who: &Tenant, call: HonestCall) -> Result<GreedyRequest, LabError> {
        let (server, s3) = (who.s3.address, &who.s3.signer);
        Ok(match call {
            HonestCall::Get => {
                let bytes = s3.signed(Method::GET, server, &object_path("read"), &[], b"").await?;
                GreedyRequest { server, bytes }
            }
            HonestCall::Put => {
                let body = vec![b'x'; WRITE_BYTES];
                let bytes = s3.signed(Method::PUT, server, &object_path("write"), &[], &body).await?;
                GreedyRequest { server, bytes }
            }
            HonestCall::Invoke | HonestCall::Action | HonestCall::FunctionUrl => {
                let headers = [("content-type", "application/json")];
                let path = invocations_path(FUNCTION);
                let bytes = who.lambda.signed(Method::POST, self.lambda, &path, &headers, b"{}").await?;
                GreedyRequest { server: self.lambda, bytes }
            }
        })
    }
}

/// Makes a tenant's bucket, object and function.
async fn furnish(node: &NodeUnderTest, tenant: &str, code: &std::path::Path) -> Result<Tenant, LabError> {
    let s3 = S3Door { signer: node.signer_of(tenant, "s3")?, address: node.s3()? };
    s3.send(Method::PUT, &format!("/{BUCKET}"), b"").await?;
    s3.send(Method::PUT, &object_path("read"), &[b'x'; READ_BYTES]).await?;
    let (memory_mb, timeout_s, environment) = (BOOKED_MB, TIMEOUT_S, BTreeMap::new());
    let deployment = Deployment { name: FUNCTION, code, handler: "app.handler", memory_mb, timeout_s, environment };
    LambdaClient::connect_as(node, tenant)?.deploy(&deployment).await?;
    Ok(Tenant { s3, lambda: node.signer_of(tenant, "lambda")? })
}

fn object_path(key: &str) -> String {
    format!("/{BUCKET}/{key}")
}
