//! Escape attempts: a hostile function on a whole node, once for each engine that works here, tries to reach what is not its own.
//! None may succeed.
//!
//! A second function, with an outbound network, tries what that network could reach.
//!
//! As a control the same attempts are made without isolation, unless they would do harm. They succeed there, so that a refusal
//! shows isolation and not a faulty attempt.

mod targets;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use clap::Args;
use nigh_node::client::{NETWORK_VARIABLE, OUTBOUND};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use self::targets::{MARK_VARIABLE, Targets};
use crate::LabError;
use crate::instrument::error::Tried;
use crate::instrument::machine::Machine;
use crate::instrument::node_under_test::{self, NodeUnderTest, python, set};
use crate::instrument::platform::{Deployment, LambdaClient};
use crate::instrument::report::print_report;
use crate::instrument::template::{Columns, fill};

/// The attempts, each a function; see the head of the file.
const ATTEMPTS: &str = include_str!("attempts.py");
const ENGINES: [&str; 2] = ["runc", "process"];
const ATTACKER: &str = "attacker";
const VICTIM: &str = "victim";
/// The attacker with an outbound network.
const CONNECTED: &str = "connected";
/// The attempts of the group `CONNECTED`.
const CONNECTED_ATTEMPTS: [&str; 6] = [
    "doors_of_the_host",
    "doors_of_another_sandbox",
    "metadata_of_the_cloud",
    "abstract_sockets",
    "packets_past_the_stack",
    "network_interfaces",
];
/// Addresses beside a sandbox with an outbound network: the tool's two, and that of all sandboxes.
const AROUND: [&str; 3] = ["198.18.254.2", "198.18.254.3", "198.18.254.100"];
/// The attacker's memory: more than its /tmp, so that it meets both limits.
const MEMORY_MB: u64 = 1024;
/// Lambda's default /tmp, and its files in Nigh.
const TMP_BYTES: u64 = 512 << 20;
const FILES_MAX: u64 = 40_000;
const SHARED_BYTES: u64 = 64 << 20;
/// A sandbox's limits, as in Lambda.
const PROCESSES_MAX: u64 = 1024;
const OPEN_FILES_MAX: u64 = 1024;
/// The victim's own port, in its own network.
const VICTIM_PORT: u16 = 9777;
const VICTIM_SECONDS: u64 = 600;
const PATIENCE: Duration = Duration::from_secs(30);
/// An attempt without isolation is ended after so long.
const CONTROL_SECONDS: &str = "60";
const NOBODY: u32 = 65534;
/// Letters of a detail in the table.
const DETAIL_CHARS: usize = 80;
/// These may end their own sandbox when they are refused: forked processes need memory too.
const END_THE_SANDBOX: [&str; 2] = ["all_of_the_memory", "a_fork_bomb"];
/// The attempt that succeeds if a target has ended.
const ENDS_TARGETS: &str = "signals_to_other_processes";

#[derive(Clone, Debug, Args)]
pub(super) struct EscapeArgs {
    /// Leave out the attempts without isolation
    #[arg(long)]
    without_control: bool,
}

#[derive(Clone, Debug, Serialize)]
struct Row {
    /// The engine; `none` without isolation.
    engine: String,
    attempt: String,
    /// `refused`, `succeeded`, `not run`, or `broken`: the attempt itself went wrong.
    outcome: String,
    /// The system's reason, or what the attempt got.
    detail: String,
}

/// An engine that does not work here.
#[derive(Debug, Serialize)]
struct AbsentEngine {
    engine: &'static str,
    reason: String,
}

#[derive(Debug, Serialize)]
struct EscapeReport {
    machine: Machine,
    attempts: usize,
    succeeded: usize,
    broken: usize,
    rows: Vec<Row>,
    /// The same attempts without isolation.
    control: Vec<Row>,
    absent: Vec<AbsentEngine>,
}

#[derive(Debug, Deserialize)]
struct AttemptOutcome {
    outcome: String,
    detail: String,
}

#[derive(Clone, Debug, Deserialize)]
struct ListedAttempt {
    attempt: String,
    /// Which user makes it without isolation, `root` or `nobody`; else why it is not made.
    control: String,
}

impl EscapeArgs {
    pub(super) async fn run(self, machine: Machine, json: bool) -> Result<(), LabError> {
        let python = python()?;
        let mut targets = Targets::make()?;
        let listed = list(&python, &targets.code())?;
        let (mut rows, mut control, mut absent) = (Vec::new(), Vec::new(), Vec::new());
        for engine in ENGINES {
            let work = tempfile::tempdir().at(std::env::temp_dir())?;
            let node = match NodeUnderTest::start(work.path(), &settings(engine, &python)) {
                Ok(node) => node,
                Err(error) => {
                    absent.push(AbsentEngine { engine, reason: error.to_string() });
                    continue;
                }
            };
            if control.is_empty() && !self.without_control {
                control = without_walls(&python, &mut targets, &node, &listed)?;
            }
            rows.extend(behind_walls(engine, &mut targets, &node, &listed, &mut absent).await?);
        }
        let count = |outcome: &str| rows.iter().filter(|row| row.outcome == outcome).count();
        let (succeeded, broken) = (count("succeeded"), count("broken"));
        let report = EscapeReport { machine, attempts: rows.len(), succeeded, broken, rows, control, absent };
        print_report(&report, || report.text(), json)?;
        match (report.attempts, succeeded, broken) {
            (0, ..) => Err(LabError::Missing {
                missing: "an engine that keeps functions apart".to_owned(),
                hint: "the report says why each does not work",
            }),
            (_, 0, 0) => Ok(()),
            _ => Err(LabError::Found(format!(
                "{succeeded} escape attempts succeeded, and {broken} went wrong themselves"
            ))),
        }
    }
}

fn settings(engine: &str, python: &Path) -> toml::Table {
    let mut settings = node_under_test::settings(None, python);
    // The victim does not end by itself.
    set(&mut settings, &[("functions.engine", engine), ("functions.network", "permitted"), ("drain", "1 s")]);
    settings
}

fn list(python: &Path, code: &Path) -> Result<Vec<ListedAttempt>, LabError> {
    let output = Command::new(python).arg(code.join("attempts.py")).arg("--list").output();
    let output = output.at(python)?;
    serde_json::from_slice(&output.stdout).map_err(|error| LabError::file(code.join("attempts.py"), &error))
}

/// Files of a node that a function must never read, and the folder they are in.
fn state_of(node: &NodeUnderTest) -> (Vec<PathBuf>, PathBuf) {
    let state = node.endpoints.admin_socket.parent().unwrap_or(Path::new("/")).to_owned();
    let found = std::fs::read_dir(&state).into_iter().flatten().filter_map(Result::ok);
    let files = found.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_file())).map(|entry| entry.path());
    (files.collect(), state)
}

/// Sets the fields of `more` in `event`.
fn extend(event: &mut Value, more: &Value) {
    for (name, value) in more.as_object().into_iter().flatten() {
        event[name] = value.clone();
    }
}

/// The attempts as programs of the host.
fn without_walls(
    python: &Path,
    targets: &mut Targets,
    node: &NodeUnderTest,
    listed: &[ListedAttempt],
) -> Result<Vec<Row>, LabError> {
    let (state_files, state) = state_of(node);
    let mut rows = Vec::new();
    for ListedAttempt { attempt, control } in listed {
        let row = |outcome: &str, detail: String| Row {
            engine: "none".to_owned(),
            attempt: attempt.clone(),
            outcome: outcome.to_owned(),
            detail,
        };
        if !["root", "nobody"].contains(&control.as_str()) {
            rows.push(row("not run", control.clone()));
            continue;
        }
        targets.renew_canary()?;
        let mut event = targets.event();
        extend(&mut event, &targets.without_walls(&state_files, &state));
        event["attempt"] = json!(attempt);
        event["secret_sha256"] = json!(secret_of(node));
        if control == "nobody" {
            event["as"] = json!(NOBODY);
        }
        let mut command = Command::new("timeout");
        command.arg(CONTROL_SECONDS).arg(python).arg(targets.code().join("attempts.py")).arg(event.to_string());
        let output = command.output().at("timeout")?;
        rows.push(match serde_json::from_slice::<AttemptOutcome>(&output.stdout) {
            Ok(_) if attempt == ENDS_TARGETS && !targets.canary_lives() => {
                row("succeeded", "the canary was ended".to_owned())
            }
            Ok(said) => row(&said.outcome, said.detail),
            Err(_) => row("broken", String::from_utf8_lossy(&output.stderr).into_owned()),
        });
    }
    targets.renew_canary()?;
    Ok(rows)
}

/// The checksum of the node's secret key: a function can recognise the key by it, and cannot learn the key from it.
fn secret_of(node: &NodeUnderTest) -> String {
    Sha256::digest(node.s3_access().secret_key.reveal().as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The attempts as invocations, beside another function that runs.
async fn behind_walls(
    engine: &'static str,
    targets: &mut Targets,
    node: &NodeUnderTest,
    listed: &[ListedAttempt],
    absent: &mut Vec<AbsentEngine>,
) -> Result<Vec<Row>, LabError> {
    let mut client = LambdaClient::connect(node)?;
    let code = targets.code();
    client.deploy(&deployment(ATTACKER, &code, BTreeMap::new())).await?;
    let marked = BTreeMap::from([(MARK_VARIABLE.to_owned(), targets.mark.clone())]);
    client.deploy(&deployment(VICTIM, &code, marked)).await?;
    let canaries = targets.marked();
    let victim_socket = format!("{}-victim", targets.mark);
    let victim = json!({
        "attempt": "victim", "mark": targets.mark, "port": VICTIM_PORT, "abstract": victim_socket,
        "seconds": VICTIM_SECONDS,
    });
    let victim = client.invocation(VICTIM, victim.to_string().as_bytes()).await?;
    let mut victims_client = LambdaClient::connect(node)?;
    // The invocation ends with the node; the answer does not matter.
    std::thread::spawn(move || drop(victims_client.send(VICTIM, &victim)));
    let victims = await_victim(targets, &canaries)?;

    let (state_files, _) = state_of(node);
    let mut event = targets.event();
    event["abstract"] = json!([targets.mark, victim_socket]);
    let door = |port| json!(["127.0.0.1", port]);
    let mut doors: Vec<Value> = event["host_ports"].as_array().cloned().unwrap_or_default();
    doors.extend([node.s3()?.port(), node.lambda()?.port()].map(door));
    event["host_ports"] = json!(doors);
    let walled = json!({
        "pids": targets.marked(),
        "state_files": state_files,
        "socket_files": [node.endpoints.admin_socket, node.endpoints.s3_socket],
        "code": "/var/task",
        "other_ports": [door(VICTIM_PORT)],
        "data_door": "http://127.0.0.1:9000",
        "secret_sha256": secret_of(node),
        "processes_max": PROCESSES_MAX, "tmp_bytes": TMP_BYTES, "shared_bytes": SHARED_BYTES,
        "files_max": FILES_MAX, "memory_bytes": MEMORY_MB << 20, "open_files_max": OPEN_FILES_MAX,
    });
    extend(&mut event, &walled);
    let mut attack = Attack { engine, targets, victims: &victims, client };
    let mut rows = attack.run(ATTACKER, listed.iter().map(|one| one.attempt.as_str()), &event, "").await?;
    let of_connected = listed.iter().map(|one| one.attempt.as_str()).filter(|one| CONNECTED_ATTEMPTS.contains(one));
    let environment = BTreeMap::from([(NETWORK_VARIABLE.to_owned(), OUTBOUND.to_owned())]);
    match attack.client.deploy(&deployment(CONNECTED, &code, environment)).await {
        Ok(_) => {
            let event = connected_event(event, attack.targets.loopback_port());
            rows.extend(attack.run(CONNECTED, of_connected, &event, "_with_a_way_out").await?);
        }
        Err(error) => absent.push(AbsentEngine { engine, reason: format!("functions have no way out: {error}") }),
    }
    Ok(rows)
}

/// The event of a function with an outbound network: it may reach servers for others, but neither the host's own nor another
/// sandbox's.
fn connected_event(mut event: Value, loopback: u16) -> Value {
    let at = |hosts: &[&str], port: u16| hosts.iter().map(|host| json!([host, port])).collect::<Vec<Value>>();
    let own_doors = event["host_ports"].as_array().cloned().unwrap_or_default();
    let own_doors = own_doors.into_iter().filter(|door| door[0] == "127.0.0.1");
    event["host_ports"] = own_doors.chain(at(&AROUND, loopback)).collect();
    let own = targets::own_address();
    let around: Vec<&str> = AROUND.into_iter().chain(["127.0.0.1"]).chain(own.as_deref()).collect();
    event["other_ports"] = at(&around, VICTIM_PORT).into();
    event
}

/// Attempts as invocations of a function, beside victims that must not notice.
struct Attack<'a> {
    engine: &'static str,
    targets: &'a mut Targets,
    victims: &'a [u32],
    client: LambdaClient,
}

impl Attack<'_> {
    /// Has `function` make the attempts, which the report names with `suffix`.
    async fn run(
        &mut self,
        function: &str,
        attempts: impl Iterator<Item = &str>,
        event: &Value,
        suffix: &str,
    ) -> Result<Vec<Row>, LabError> {
        let Self { engine, targets, victims, client } = self;
        let mut rows = Vec::new();
        for attempt in attempts {
            let mut event = event.clone();
            event["attempt"] = json!(attempt);
            let request = client.invocation(function, event.to_string().as_bytes()).await?;
            let answer = client.send(function, &request)?;
            let text = String::from_utf8_lossy(&answer.payload).into_owned();
            let (mut outcome, mut detail) = match serde_json::from_slice::<AttemptOutcome>(&answer.payload) {
                Ok(said) => (said.outcome, said.detail),
                Err(_) if END_THE_SANDBOX.contains(&attempt) && answer.function_error.is_some() => {
                    ("refused".to_owned(), text)
                }
                Err(_) => ("broken".to_owned(), text),
            };
            let all_live =
                targets.canary_lives() && victims.iter().all(|pid| Path::new(&format!("/proc/{pid}")).exists());
            if !all_live {
                (outcome, detail) = ("succeeded".to_owned(), "a process of somebody else was ended".to_owned());
            }
            rows.push(Row { engine: (*engine).to_owned(), attempt: format!("{attempt}{suffix}"), outcome, detail });
        }
        Ok(rows)
    }
}

fn deployment<'a>(name: &'a str, code: &'a Path, environment: BTreeMap<String, String>) -> Deployment<'a> {
    Deployment { name, code, handler: "attempts.handler", memory_mb: MEMORY_MB, timeout_s: 900, environment }
}

/// Waits for the victim's processes, as the host sees them. Another user than root does not see them, and does not wait.
fn await_victim(targets: &Targets, canaries: &[u32]) -> Result<Vec<u32>, LabError> {
    let begin = Instant::now();
    while begin.elapsed() < PATIENCE {
        let victims: Vec<u32> = targets.marked().into_iter().filter(|pid| !canaries.contains(pid)).collect();
        if !victims.is_empty() || !rustix::process::geteuid().is_root() {
            return Ok(victims);
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Err(LabError::Node(format!("the function {VICTIM} does not run after {} s", PATIENCE.as_secs())))
}

impl EscapeReport {
    fn text(&self) -> String {
        let short = |row: &Row| Row { detail: row.detail.chars().take(DETAIL_CHARS).collect(), ..row.clone() };
        let rows: Vec<Row> = self.rows.iter().chain(&self.control).map(short).collect();
        let mut lines = vec![Columns("engine | attempt | outcome | detail").text(&rows)];
        lines.extend(self.absent.iter().map(|one| fill("{engine} does not work here: {reason}", one)));
        lines.push(fill("{attempts} attempts, {succeeded} succeeded, {broken} broken", self));
        lines.join("\n")
    }
}
