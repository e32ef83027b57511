//! An experiment's requests to a node: deploy a folder, invoke, read the records and the status.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::Method;
use nigh_node::Activation;
use nigh_node::status::Status;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::LabError;
use crate::instrument::error::Tried;
use crate::instrument::http_load::{Connection, header};
use crate::instrument::node_under_test::NodeUnderTest;
use crate::instrument::sign::Signer;

const FUNCTIONS: &str = "/2015-03-31/functions";
/// Records in one answer of the admin API.
const PAGE: usize = 1000;
/// How often a node is asked whether it has pushed its writes.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// A function to be deployed.
#[derive(Debug)]
pub(crate) struct Deployment<'a> {
    pub name: &'a str,
    /// The folder of its code.
    pub code: &'a Path,
    /// `module.function`.
    pub handler: &'a str,
    pub memory_mb: u64,
    pub timeout_s: u64,
    pub environment: BTreeMap<String, String>,
}

#[derive(Debug)]
pub(crate) struct InvocationAnswer {
    /// What the handler returned.
    pub payload: Vec<u8>,
    /// `Unhandled` if it failed.
    pub function_error: Option<String>,
    pub id: String,
    /// The end of its log.
    pub log: String,
}

/// A page of `ListFunctions`.
#[derive(Deserialize)]
struct Page {
    #[serde(rename = "Functions")]
    functions: Vec<ListedFunction>,
    #[serde(rename = "NextMarker")]
    next_marker: Option<String>,
}

#[derive(Deserialize)]
struct ListedFunction {
    #[serde(rename = "FunctionName")]
    name: String,
}

/// A signed client of the Lambda door, one connection.
pub(crate) struct LambdaClient {
    address: SocketAddr,
    signer: Signer,
    runtime: String,
    connection: Connection,
}

impl LambdaClient {
    pub(crate) fn connect(node: &NodeUnderTest) -> Result<Self, LabError> {
        Self::to(node.lambda()?, node.signer("lambda"))
    }

    /// Connects to the door of `node` as the tenant whose namespace this is.
    pub(crate) fn connect_as(node: &NodeUnderTest, namespace: &str) -> Result<Self, LabError> {
        Self::to(node.lambda()?, node.signer_of(namespace, "lambda")?)
    }

    /// Connects to the door at `address`, for which `signer` signs.
    pub(crate) fn to(address: SocketAddr, signer: Signer) -> Result<Self, LabError> {
        let connection = Connection::open(address).of_node()?;
        Ok(Self { address, signer, runtime: runtime_name()?, connection })
    }

    /// Waits so long for each answer.
    pub(crate) fn waiting(self, patience: Duration) -> Result<Self, LabError> {
        self.connection.wait_for(patience).of_node()?;
        Ok(self)
    }

    pub(crate) async fn deploy(&mut self, deployment: &Deployment<'_>) -> Result<(), LabError> {
        let request = self.creation(deployment, &zip_folder(deployment.code)?).await?;
        self.send(deployment.name, &request).map(drop)
    }

    /// The bytes of a request that creates a function of `archive`.
    pub(crate) async fn creation(&self, deployment: &Deployment<'_>, archive: &[u8]) -> Result<Vec<u8>, LabError> {
        let body = json!({
            "FunctionName": deployment.name,
            "Runtime": self.runtime,
            "Role": "arn:aws:iam::000000000000:role/lab",
            "Handler": deployment.handler,
            "MemorySize": deployment.memory_mb,
            "Timeout": deployment.timeout_s,
            "Environment": {"Variables": deployment.environment},
            "Code": {"ZipFile": STANDARD.encode(archive)},
        })
        .to_string();
        let headers = [("content-type", "application/json")];
        self.signer.signed(Method::POST, self.address, FUNCTIONS, &headers, body.as_bytes()).await
    }

    /// Opens a new connection: a door closes one that idles, and a broken one is not used again.
    pub(crate) fn reconnect(&mut self) -> Result<(), LabError> {
        self.connection = Connection::open(self.address).of_node()?;
        Ok(())
    }

    pub(crate) async fn set_memory(&mut self, function: &str, memory_mb: u64) -> Result<(), LabError> {
        let path = format!("{FUNCTIONS}/{function}/configuration");
        let body = json!({ "MemorySize": memory_mb }).to_string();
        let headers = [("content-type", "application/json")];
        let request = self.signer.signed(Method::PUT, self.address, &path, &headers, body.as_bytes()).await?;
        self.send(function, &request).map(drop)
    }

    pub(crate) async fn remove(&mut self, function: &str) -> Result<(), LabError> {
        let path = format!("{FUNCTIONS}/{function}");
        let request = self.signer.signed(Method::DELETE, self.address, &path, &[], b"").await?;
        self.send(function, &request).map(drop)
    }

    /// The names of all functions, page by page.
    pub(crate) async fn list(&mut self) -> Result<Vec<String>, LabError> {
        let mut names = Vec::new();
        let mut path = FUNCTIONS.to_owned();
        loop {
            let request = self.signer.signed(Method::GET, self.address, &path, &[], b"").await?;
            let page: Page = serde_json::from_slice(&self.send("the list of functions", &request)?.payload)
                .map_err(|error| LabError::Node(format!("the list of functions: {error}")))?;
            names.extend(page.functions.into_iter().map(|function| function.name));
            match page.next_marker {
                Some(marker) => path = format!("{FUNCTIONS}?Marker={marker}"),
                None => return Ok(names),
            }
        }
    }

    /// The bytes of an invocation with its log's tail, to be sent again and again.
    pub(crate) async fn invocation(&self, function: &str, payload: &[u8]) -> Result<Vec<u8>, LabError> {
        let path = invocations_path(function);
        let headers = [("content-type", "application/json"), ("x-amz-log-type", "Tail")];
        self.signer.signed(Method::POST, self.address, &path, &headers, payload).await
    }

    /// Sends a prepared request about `function`.
    pub(crate) fn send(&mut self, function: &str, request: &[u8]) -> Result<InvocationAnswer, LabError> {
        let failed = |error: std::io::Error| LabError::Request { what: function.to_owned(), reason: error.to_string() };
        let (head, payload) = self.connection.fetch(request).map_err(failed)?;
        let tail = header(&head, "x-amz-log-result").and_then(|tail| STANDARD.decode(tail).ok()).unwrap_or_default();
        Ok(InvocationAnswer {
            payload,
            function_error: header(&head, "x-amz-function-error").map(str::to_owned),
            id: header(&head, "x-amzn-requestid").unwrap_or_default().to_owned(),
            log: String::from_utf8_lossy(&tail).into_owned(),
        })
    }

    /// Sends a prepared invocation by a new connection, as a door closes one that idles. Returns the answer and the time from the
    /// request's first byte to the answer's last; an answer that is a failure is an error.
    pub(crate) fn invoke(&mut self, function: &str, request: &[u8]) -> Result<(InvocationAnswer, Duration), LabError> {
        self.reconnect()?;
        let begin = Instant::now();
        let answer = self.send(function, request)?;
        let took = begin.elapsed();
        match answer.function_error {
            Some(_) => Err(LabError::Function {
                function: function.to_owned(),
                input: "its event".to_owned(),
                reason: String::from_utf8_lossy(&answer.payload).into_owned(),
            }),
            None => Ok((answer, took)),
        }
    }
}

/// The path of the door at which `function` is invoked.
pub(crate) fn invocations_path(function: &str) -> String {
    format!("{FUNCTIONS}/{function}/invocations")
}

/// `python3.x` of the Python that `make deps` has set up.
pub(crate) fn runtime_name() -> Result<String, LabError> {
    static NAME: std::sync::OnceLock<String> = std::sync::OnceLock::new();
    if let Some(name) = NAME.get() {
        return Ok(name.clone());
    }
    let python = crate::instrument::node_under_test::python()?;
    let output = std::process::Command::new(&python)
        .args(["-c", "import sys; print(f'python3.{sys.version_info.minor}')"])
        .output()
        .at(&python)?;
    let name = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    Ok(NAME.get_or_init(|| name).clone())
}

/// The folder's files as an archive, by Python's own zipfile.
pub(crate) fn zip_folder(folder: &Path) -> Result<Vec<u8>, LabError> {
    let python = crate::instrument::node_under_test::python()?;
    let target = tempfile::tempdir().at(std::env::temp_dir())?;
    let archive = target.path().join("code.zip");
    let status = std::process::Command::new(&python)
        .args(["-c", "import shutil, sys; shutil.make_archive(sys.argv[1], 'zip', sys.argv[2])"])
        .arg(archive.with_extension(""))
        .arg(folder)
        .status()
        .at(&python)?;
    if !status.success() {
        return Err(LabError::file(folder, &"cannot be archived"));
    }
    std::fs::read(&archive).at(&archive)
}

/// The records of a node's invocations, from its admin API.
pub(crate) async fn activations(node: &NodeUnderTest, limit: usize) -> Result<Vec<Value>, LabError> {
    admin_api(&node.endpoints.admin_socket, &format!("/activations?limit={limit}"))
}

/// The newest records of the node whose admin socket is `admin`, until `wanted` is false of one, at most `limit`.
pub(crate) fn activations_while(
    admin: &Path,
    limit: usize,
    wanted: impl Fn(&Activation) -> bool,
) -> Result<Vec<Activation>, LabError> {
    let mut all: Vec<Activation> = Vec::new();
    loop {
        let before = all.last().map_or_else(String::new, |last| format!("&before={}", last.id));
        let page: Vec<Activation> = admin_api(admin, &format!("/activations?limit={PAGE}{before}"))?;
        let last_page = page.len() < PAGE;
        let known = all.len();
        all.extend(page.into_iter().take_while(&wanted));
        if last_page || all.len() - known < PAGE || all.len() >= limit {
            all.truncate(limit);
            return Ok(all);
        }
    }
}

/// The record of one invocation.
pub(crate) async fn activation(node: &NodeUnderTest, id: &str) -> Result<Activation, LabError> {
    admin_api(&node.endpoints.admin_socket, &format!("/activations/{id}"))
}

pub(crate) async fn status(node: &NodeUnderTest) -> Result<Status, LabError> {
    admin_api(&node.endpoints.admin_socket, "/status")
}

/// Waits until the node whose admin socket is `admin` has pushed all writes and removed all ephemeral objects.
pub(crate) async fn until_pushed(admin: &Path, within: Duration) -> Result<(), LabError> {
    let begun = Instant::now();
    loop {
        let writes = admin_api::<Status>(admin, "/status")?.writes;
        if writes.waiting == 0 && writes.ephemeral == 0 {
            return Ok(());
        }
        if begun.elapsed() > within {
            return Err(LabError::Node(format!("not all is in the store after {within:?}: {writes:?}")));
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// The answer to `GET target` below `/v1` of the node whose admin socket is `admin`.
pub(crate) fn admin_api<T: DeserializeOwned>(admin: &Path, target: &str) -> Result<T, LabError> {
    let body = ask_admin(admin, target)?;
    serde_json::from_slice(&body).map_err(|error| LabError::Node(format!("admin API: {error}")))
}

/// Reads that a node has answered since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Reads {
    /// From memory.
    pub hits: u64,
    /// From the store, cached or not.
    pub misses: u64,
}

impl Reads {
    /// The reads that `node` has counted.
    pub(crate) fn of(node: &NodeUnderTest) -> Result<Self, LabError> {
        Ok(Self::in_metrics(&String::from_utf8_lossy(&ask_admin(&node.endpoints.admin_socket, "/metrics")?)))
    }

    fn in_metrics(text: &str) -> Self {
        let of = |served: &str| {
            let name = format!("nigh_objects_calls_total{{served=\"{served}\"}} ");
            text.lines().find_map(|line| line.strip_prefix(&name)?.parse().ok()).unwrap_or(0)
        };
        Self { hits: of("hit"), misses: of("miss") + of("past") }
    }

    /// Those since `earlier`.
    pub(crate) const fn since(self, earlier: Self) -> Self {
        Self { hits: self.hits - earlier.hits, misses: self.misses - earlier.misses }
    }
}

/// A counter of the node whose admin socket is `admin`, summed over all labels; 0 if it is absent.
pub(crate) fn counter(admin: &Path, name: &str) -> Result<u64, LabError> {
    Ok(counter_in_metrics(&String::from_utf8_lossy(&ask_admin(admin, "/metrics")?), name))
}

fn counter_in_metrics(text: &str, name: &str) -> u64 {
    let of = |line: &str| {
        let rest = line.strip_prefix(name)?;
        let (labels, count) = rest.rsplit_once(' ')?;
        (labels.is_empty() || labels.starts_with('{')).then_some(())?;
        count.parse::<u64>().ok()
    };
    text.lines().filter_map(of).sum()
}

/// The body of the answer to `GET target`.
fn ask_admin(admin: &Path, target: &str) -> Result<Vec<u8>, LabError> {
    use std::io::{Read, Write};
    let failed = |error: &dyn std::fmt::Display| LabError::Node(format!("admin API: {error}"));
    let mut socket = std::os::unix::net::UnixStream::connect(admin).map_err(|error| failed(&error))?;
    write!(socket, "GET /v1{target} HTTP/1.0\r\nhost: nigh\r\n\r\n").map_err(|error| failed(&error))?;
    let mut reply = Vec::new();
    socket.read_to_end(&mut reply).map_err(|error| failed(&error))?;
    let body = reply.windows(4).position(|window| window == b"\r\n\r\n").map_or(0, |end| end + 4);
    Ok(reply.split_off(body))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_are_counted_as_the_node_tells_them() {
        let text = "# HELP x y\nnigh_objects_calls_total{served=\"hit\"} 7\nnigh_objects_calls_total{served=\"miss\"} 3\n\
                    nigh_objects_calls_total{served=\"past\"} 1\nnigh_objects_bytes_total{served=\"hit\"} 9\n";
        let reads = Reads::in_metrics(text);
        assert_eq!(reads, Reads { hits: 7, misses: 4 });
        assert_eq!(reads.since(Reads { hits: 6, misses: 4 }), Reads { hits: 1, misses: 0 });
    }
    #[test]
    fn a_counter_is_found_by_its_whole_name() {
        let text = "# TYPE nigh_cold_starts counter\nnigh_cold_starts_total_before 3\n\
                    nigh_cold_starts_total{reason=\"first\"} 12\nnigh_cold_starts_total{reason=\"busy\"} 2\n";
        assert_eq!(counter_in_metrics(text, "nigh_cold_starts_total"), 14);
        assert_eq!(counter_in_metrics(text, "nigh_cold_starts"), 0);
    }
}
