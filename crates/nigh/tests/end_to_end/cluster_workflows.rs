//! Workflows of a cluster: whatever node is killed, what was started comes to its end by another, and any node starts, shows
//! and watches it. A folder holds one cluster.

use std::path::{Path, PathBuf};
use std::process::Child;
use std::time::Duration;

use nigh_node::local_cluster::{LocalCluster, LocalClusterSettings, find_nats_server};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::runtime::Runtime;

use crate::platform::{NIGH, PATIENCE, command, python, sdk_environment, wait_for};
use crate::programs::build_programs;
use crate::skipped::skip;

/// Leaves a mark in a bucket each time it begins.
const STEPS: &str = r#"
import time, uuid
import boto3

s3 = boto3.client("s3")

def handler(event, context):
    s3.put_object(Bucket="marks", Key=f"{event['run']}/{event['stage']}/{uuid.uuid4().hex}", Body=b"")
    time.sleep(event["sleep"])
    return event["stage"]
"#;
/// So long stages take that a node is killed in.
const LONG_S: f64 = 5.0;
/// Sandboxes of one node.
const SANDBOXES: usize = 4;

/// A cluster, killed when dropped.
pub(crate) struct Nodes {
    pub(crate) cluster: LocalCluster,
    runtime: Runtime,
    pub(crate) states: Vec<PathBuf>,
    folder: TempDir,
}

impl Nodes {
    /// As many nodes, with a bucket for marks and the function twice: `again` says that it is idempotent, `once` does not.
    pub(crate) fn start(test: &str, nodes: u8) -> Option<Self> {
        Self::start_with(test, nodes, &[])
    }

    /// The same, with further settings.
    pub(crate) fn start_with(test: &str, nodes: u8, more: &[String]) -> Option<Self> {
        let python = python(test)?;
        let Some(nats_server) = find_nats_server() else {
            skip(test, "nats-server is not installed; `make peers` installs it");
            return None;
        };
        build_programs();
        let folder = tempfile::tempdir().unwrap();
        let set = [
            format!("functions.python={}", python.display()),
            format!("functions.sandboxes_max={SANDBOXES}"),
            "functions.memory=1 GiB".to_owned(),
            "functions.prewarm=off".to_owned(),
            "cache.bytes=48 MiB".to_owned(),
            "llc.policy=off".to_owned(),
            "drain=5 s".to_owned(),
        ];
        let set = set.into_iter().chain(more.iter().cloned());
        let settings = LocalClusterSettings {
            folder: folder.path().join("cluster"),
            nodes,
            program: Path::new(NIGH).to_owned(),
            nats_server,
            networks: false,
            set: set.collect(),
            relays: Vec::new(),
        };
        let runtime = Runtime::new().unwrap();
        let mut cluster = runtime.block_on(LocalCluster::start(&settings, PATIENCE)).unwrap();
        let states = cluster.nodes().iter().map(|node| node.state().to_owned()).collect();
        let nodes = Self { cluster, runtime, states, folder };
        nodes.ok(0, &["objects", "mb", "nigh://marks"]);
        nodes.deploy("again", &["--env", "NIGH_IDEMPOTENT=true"]);
        nodes.deploy("once", &[]);
        Some(nodes)
    }

    fn deploy(&self, name: &str, more: &[&str]) {
        self.deploy_code(name, STEPS, more);
    }

    /// Deploys a module with a `handler`.
    pub(crate) fn deploy_code(&self, name: &str, module: &str, more: &[&str]) {
        let code = self.folder.path().join("code");
        std::fs::create_dir_all(&code).unwrap();
        std::fs::write(code.join("app.py"), module).unwrap();
        let status = self.json(0, &["status"]);
        let levels = status["levels"].as_array().unwrap();
        let python = levels.iter().find(|level| level["name"] == "python").unwrap();
        let runtime = python["detail"].as_str().unwrap().split(' ').next().unwrap();
        let given = ["deploy", name, "--folder", code.to_str().unwrap(), "--handler", "app.handler"];
        let given = given.into_iter().chain(["--runtime", runtime, "--memory", "128MiB", "--timeout", "30s"]);
        self.ok(0, &given.chain(more.iter().copied()).collect::<Vec<_>>());
    }

    /// Runs the command at a node; it must succeed. What it prints.
    pub(crate) fn ok(&self, node: usize, arguments: &[&str]) -> String {
        let output = command(&self.states[node]).args(arguments).output().unwrap();
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    pub(crate) fn json(&self, node: usize, arguments: &[&str]) -> Value {
        let all: Vec<&str> = ["--json"].into_iter().chain(arguments.iter().copied()).collect();
        serde_json::from_str(&self.ok(node, &all)).unwrap()
    }

    pub(crate) fn begin(&self, node: usize, arguments: &[&str]) -> Child {
        command(&self.states[node]).args(arguments).spawn().unwrap()
    }

    pub(crate) fn create(&self, node: usize, name: &str, machine: &Value) {
        let file = self.folder.path().join(format!("{name}.asl.json"));
        std::fs::write(&file, machine.to_string()).unwrap();
        self.ok(node, &["workflow", "create", name, file.to_str().unwrap()]);
    }

    pub(crate) fn start_run(&self, node: usize, machine: &str, run: &str, input: &Value) {
        self.ok(node, &["workflow", "start", machine, &input.to_string(), "--name", run]);
    }

    /// How an execution ended, by what a node says, once it has.
    pub(crate) fn ended(&self, node: usize, machine: &str, run: &str) -> Value {
        let described = || self.json(node, &["workflow", "describe", machine, run]);
        wait_for(&format!("{run} to end"), || described()["status"] != "RUNNING");
        let described = described();
        assert_eq!(described["status"], "SUCCEEDED", "{described}");
        serde_json::from_str(described["output"].as_str().unwrap()).unwrap()
    }

    /// How often the stages of `run` have begun, by what a node says.
    fn marks(&self, node: usize, run: &str, stage: usize) -> usize {
        let address = format!("nigh://marks/{run}/{stage}/");
        self.ok(node, &["--json", "objects", "ls", &address, "--recursive"]).lines().count()
    }

    fn meter(&self, node: usize, name: &str) -> f64 {
        let text = self.ok(node, &["metrics"]);
        let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        value.map_or(0.0, |value| value.parse().unwrap())
    }

    /// The node that owns the one namespace.
    pub(crate) fn owner(&self) -> usize {
        self.owner_beside(self.states.len())
    }

    /// The same, if one node does not answer.
    pub(crate) fn owner_beside(&self, silent: usize) -> usize {
        let owns = |node: &usize| *node != silent && self.meter(*node, "nigh_dispatch_namespaces_owned") > 0.0;
        (0..self.states.len()).find(owns).unwrap()
    }

    /// The environment of an SDK that talks to a node.
    pub(crate) fn sdk_environment(&self, node: usize) -> Vec<(String, String)> {
        sdk_environment(&self.states[node])
    }

    pub(crate) fn running(&self, node: usize) -> usize {
        self.json(node, &["status"])["sandboxes"]["running"].as_u64().unwrap() as usize
    }

    pub(crate) fn kill(&mut self, node: usize) {
        self.cluster.nodes()[node].process().kill().unwrap();
    }

    /// Starts a node again; all know it then.
    pub(crate) fn start_again(&mut self, node: usize) {
        self.cluster.nodes()[node].process().run().unwrap();
        let all = self.states.len();
        let (cluster, runtime) = (&mut self.cluster, &self.runtime);
        wait_for("the node to be back", || {
            let known = |status: nigh_node::status::Status| status.cluster.map_or(0, |cluster| cluster.members.len());
            cluster.nodes().iter().all(|node| runtime.block_on(node.status()).map_or(0, known) == all)
        });
    }
}

/// Three stages of `function`, each as long as the input says; who does not know how one ended goes to `Unknown`.
pub(crate) fn line(function: &str) -> Value {
    let stage = |number: usize, next: Value| {
        let mut task = json!({"Type": "Task", "Resource": function, 
            "Parameters": {"run.$": "$$.Execution.Name", "stage": number, "sleep.$": format!("$.sleep[{number}]")},
            "ResultPath": format!("$.result{number}"),
            "Catch": [{"ErrorEquals": ["Nigh.OutcomeUnknown"], "ResultPath": "$.unknown", "Next": "Unknown"}]});
        task.as_object_mut().unwrap().extend(next.as_object().unwrap().clone());
        task
    };
    json!({"StartAt": "First", "States": {
        "First": stage(0, json!({"Next": "Second"})),
        "Second": stage(1, json!({"Next": "Third"})),
        "Third": stage(2, json!({"End": true})),
        "Unknown": {"Type": "Pass", "End": true},
    }})
}

/// The input of a line whose stage `long` takes its time.
fn long_in(long: usize) -> Value {
    let sleep: Vec<f64> = (0..3).map(|stage| if stage == long { LONG_S } else { 0.0 }).collect();
    json!({"sleep": sleep})
}

#[test]
fn executions_go_on_by_another_node_when_their_owner_is_killed() {
    let Some(mut nodes) = Nodes::start("executions_go_on_by_another_node_when_their_owner_is_killed", 3) else {
        return;
    };
    for function in ["again", "once"] {
        nodes.create(1, function, &line(function));
    }
    let each = json!({"StartAt": "Each", "States": {"Each": {"Type": "Task", "Resource": "again", "End": true,
        "Parameters": {"run": "map", "stage.$": "$.stage", "sleep": 0.4}}}});
    let map = json!({"Type": "Map", "ItemsPath": "$.items", "MaxConcurrency": 3, "ItemProcessor": each, "End": true});
    nodes.create(1, "map", &json!({"StartAt": "Map", "States": {"Map": map}}));
    let late = json!({"Type": "Task", "Resource": "again", "TimeoutSeconds": 3, "End": true,
        "Parameters": {"run": "late", "stage": 0, "sleep": 12},
        "Catch": [{"ErrorEquals": ["States.Timeout"], "ResultPath": "$.late", "Next": "Late"}]});
    nodes.create(
        1,
        "late",
        &json!({"StartAt": "Slow", "States": {"Slow": late, "Late": {"Type": "Pass", "End": true}}}),
    );

    // One in each of its stages, of either function, and a map in its midst.
    let runs: Vec<(&str, usize, String)> = ["again", "once"]
        .into_iter()
        .flat_map(|function| (0..3).map(move |stage| (function, stage, format!("{function}-{stage}"))))
        .collect();
    for (number, (function, stage, run)) in runs.iter().enumerate() {
        nodes.start_run(number % 3, function, run, &long_in(*stage));
    }
    let items: Vec<Value> = (0..20).map(|stage| json!({"stage": stage})).collect();
    nodes.start_run(2, "map", "map", &json!({"items": items}));
    nodes.start_run(2, "late", "late", &json!({}));
    let owner = nodes.owner();
    let other = (owner + 1) % 3;
    let mut watched = nodes.begin(other, &["workflow", "watch", "again", "again-2"]);
    wait_for("all to be in their long stages", || {
        runs.iter().all(|(_, stage, run)| nodes.marks(other, run, *stage) > 0) && nodes.marks(other, "map", 1) > 0
    });
    // What led there is written by now.
    std::thread::sleep(Duration::from_millis(300));
    let cut_off = nodes.running(owner);
    nodes.kill(owner);

    let mut unknown = 0;
    for (function, long, run) in &runs {
        let output = nodes.ended(other, function, run);
        match output.get("unknown") {
            Some(why) => {
                assert_eq!((&why["Error"], *function), (&json!("Nigh.OutcomeUnknown"), "once"), "{output}");
                unknown += 1;
            }
            None => assert_eq!(output["result2"], 2, "{run}: {output}"),
        }
        for stage in 0..3 {
            let begun = nodes.marks(other, run, stage);
            // The end of those before the long one was written.
            let most = if *function == "once" || stage < *long { 1 } else { 2 };
            assert!(begun <= most, "{run}: stage {stage} has begun {begun} times");
        }
    }
    assert!(unknown <= cut_off, "of {unknown} it is not known how they ended, and {cut_off} ran at the node");
    let all: Vec<usize> = (0..20).collect();
    assert_eq!(nodes.ended(other, "map", "map"), json!(all));
    assert!(all.iter().all(|item| (1..=2).contains(&nodes.marks(other, "map", *item))));
    assert_eq!(nodes.ended(other, "late", "late")["late"]["Error"], "States.Timeout");
    assert!(watched.wait().unwrap().success(), "whoever watched by another node has seen the end");

    // A node that runs tasks and leads nothing: its own are lost, or run again, and nobody else's.
    nodes.start_again(owner);
    let idle = |nodes: &Nodes| (0..3).all(|node| nodes.running(node) == 0);
    wait_for("what timed out to end", || idle(&nodes));
    let runs: Vec<(&str, String)> = ["again", "once"]
        .into_iter()
        .flat_map(|function| (0..4).map(move |number| (function, format!("{function}-at-{number}"))))
        .collect();
    for (function, run) in &runs {
        nodes.start_run(0, function, run, &long_in(1));
    }
    wait_for("all to be in their long stages", || runs.iter().all(|(_, run)| nodes.marks(0, run, 1) > 0));
    std::thread::sleep(Duration::from_millis(300));
    let leads = nodes.owner();
    let busy = (0..3).filter(|node| *node != leads).max_by_key(|node| nodes.running(*node)).unwrap();
    let cut_off = nodes.running(busy);
    assert!(cut_off > 0, "no task runs elsewhere than at the owner");
    nodes.kill(busy);
    let (mut unknown, mut twice) = (0, 0);
    for (function, run) in &runs {
        let output = nodes.ended(leads, function, run);
        unknown += usize::from(output.get("unknown").is_some());
        assert!(*function == "once" || output["result2"] == 2, "{run}: {output}");
        let begun = nodes.marks(leads, run, 1);
        assert!(begun == 1 || *function == "again", "{run} has begun {begun} times");
        twice += begun - 1;
    }
    assert!((1..=cut_off).contains(&(unknown + twice)), "of {cut_off}, {unknown} are unknown and {twice} ran again");
}

#[test]
fn no_execution_fails_when_its_owner_ends_in_order() {
    let Some(mut nodes) = Nodes::start("no_execution_fails_when_its_owner_ends_in_order", 3) else { return };
    let each = line("once");
    let map = json!({"Type": "Map", "ItemsPath": "$.items", "ItemProcessor": each, "End": true});
    nodes.create(0, "map", &json!({"StartAt": "Map", "States": {"Map": map}}));
    let mut runs: Vec<String> = Vec::new();
    for round in 0..3 {
        // More tasks at once than run at a time, each followed by two more.
        let items: Vec<Value> = (0..24).map(|_| json!({"sleep": [0.2, 0.2, 0.2]})).collect();
        let run = format!("run-{round}");
        nodes.start_run(round % 3, "map", &run, &json!({"items": items}));
        wait_for("some of the first tasks to begin", || nodes.marks(0, &run, 0) >= 4);
        let owner = nodes.owner();
        let process = nodes.cluster.nodes()[owner].process();
        process.ask_to_end().unwrap();
        assert!(process.wait(PATIENCE), "the node ends by itself");
        nodes.start_again(owner);
        runs.push(run);
    }
    for run in runs {
        let output = nodes.ended(0, "map", &run);
        let unknown = output.as_array().unwrap().iter().filter(|line| line.get("unknown").is_some()).count();
        assert_eq!(unknown, 0, "{output}");
        for stage in 0..3 {
            assert_eq!(nodes.marks(0, &run, stage), 24, "each task of stage {stage} has run once");
        }
    }
}

#[test]
fn started_by_the_same_name_at_two_nodes_it_is_one_execution_which_any_node_shows_and_stops() {
    let test = "started_by_the_same_name_at_two_nodes_it_is_one_execution_which_any_node_shows_and_stops";
    let Some(nodes) = Nodes::start(test, 2) else { return };
    nodes.create(0, "again", &line("again"));
    let input = long_in(0).to_string();
    let mut starts: Vec<Child> = (0..6)
        .map(|number| nodes.begin(number % 2, &["workflow", "start", "again", &input, "--name", "same"]))
        .collect();
    assert!(starts.iter_mut().all(|start| start.wait().unwrap().success()));
    for node in 0..2 {
        let listed = nodes.json(node, &["workflow", "list", "again"]);
        assert_eq!(listed.as_array().unwrap().len(), 1, "{listed}");
    }
    let other =
        command(&nodes.states[1]).args(["workflow", "start", "again", "{}", "--name", "same"]).output().unwrap();
    assert!(String::from_utf8_lossy(&other.stderr).contains("Already Exists"), "{other:?}");
    let mut watches: Vec<Child> =
        (0..2).map(|node| nodes.begin(node, &["workflow", "watch", "again", "same"])).collect();
    assert_eq!(nodes.ended(1, "again", "same")["result2"], 2);
    assert!(watches.iter_mut().all(|watch| watch.wait().unwrap().success()));
    assert_eq!(nodes.marks(0, "same", 0), 1, "one execution ran its first stage twice");
    // A machine that was made at one node is started at once by the other, and stopped by the first.
    for number in 0..4 {
        let machine = format!("wait-{number}");
        let wait = json!({"StartAt": "Wait", "States": {"Wait": {"Type": "Wait", "Seconds": 600, "End": true}}});
        nodes.create(number % 2, &machine, &wait);
        nodes.start_run((number + 1) % 2, &machine, "run", &json!({}));
        nodes.ok(number % 2, &["workflow", "stop", &machine, "run", "--cause", "enough"]);
        let stopped = nodes.json((number + 1) % 2, &["workflow", "describe", &machine, "run"]);
        assert_eq!((&stopped["status"], &stopped["cause"]), (&json!("ABORTED"), &json!("enough")));
    }
}

#[test]
fn a_second_cluster_in_a_folder_is_refused_and_the_first_goes_on() {
    let Some(nodes) = Nodes::start("a_second_cluster_in_a_folder_is_refused_and_the_first_goes_on", 1) else { return };
    let folder = nodes.folder.path().join("cluster");
    let listed = || std::fs::read(folder.join("processes.json")).unwrap();
    let before = listed();
    let second =
        command(&nodes.states[0]).args(["cluster", "up", "--folder", folder.to_str().unwrap()]).output().unwrap();
    let words = String::from_utf8(second.stderr).unwrap();
    assert_eq!(second.status.code(), Some(1), "{words}");
    let holder = format!("(process {})", std::process::id());
    assert!(words.contains("a cluster runs in") && words.contains(&holder), "{words}");
    assert_eq!(listed(), before);
    nodes.ok(0, &["objects", "ls", "nigh://marks"]);
}
