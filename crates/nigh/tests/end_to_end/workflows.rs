//! Workflows: what was started comes to its end, whatever happens to the node, and no function runs twice that does not
//! say that it may.

use std::fs;
use std::path::PathBuf;

use serde_json::{Value, json};

use crate::platform::{Node, python, wait_for};
use crate::sdks::passes;

/// Leaves a mark in a bucket each time it begins, so that a test counts how often that was.
const MARKING: &str = r#"
import time, uuid
import boto3

s3 = boto3.client("s3")

def handler(event, context):
    s3.put_object(Bucket="marks", Key=f"{event['n']}/{uuid.uuid4().hex}", Body=b"")
    time.sleep(event.get("sleep", 0))
    return event["n"] * 2
"#;

fn definition(node: &Node, name: &str, value: &Value) -> String {
    let file: PathBuf = node.state.with_file_name(format!("{name}.asl.json"));
    fs::write(&file, value.to_string()).unwrap();
    file.to_str().unwrap().to_owned()
}

/// Makes a machine that runs `marking` over each item, one after the other, as fast as the node lets it.
fn make_map(node: &Node) {
    let processor = json!({
        "StartAt": "Each",
        "States": {"Each": {"Type": "Task", "Resource": "arn:aws:lambda:us-east-1:000000000000:function:marking", "End": true}},
    });
    let map =
        json!({"Type": "Map", "ItemsPath": "$.items", "MaxConcurrency": 2, "ItemProcessor": processor, "End": true});
    let file = definition(node, "map", &json!({"StartAt": "Map", "States": {"Map": map}}));
    node.ok(["workflow", "create", "map", &file]);
}

fn described(node: &Node, machine: &str, name: &str) -> Value {
    node.json(["workflow", "describe", machine, name])
}

/// The objects whose address begins so.
fn objects(node: &Node, address: &str) -> usize {
    node.ok(["--json", "objects", "ls", address, "--recursive"]).lines().count()
}

/// How often each number was begun with.
fn marks(node: &Node, count: usize) -> Vec<usize> {
    (0..count).map(|n| objects(node, &format!("nigh://marks/{n}/"))).collect()
}

/// A state with these fields too.
fn with(state: &Value, more: &Value) -> Value {
    let mut state = state.clone();
    state.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    state
}

fn items(count: usize, sleep: f64) -> String {
    let items: Vec<Value> = (0..count).map(|n| json!({"n": n, "sleep": sleep})).collect();
    json!({"items": items}).to_string()
}

#[test]
fn boto3_drives_state_machines() {
    let Some(python) = python("boto3_drives_state_machines") else { return };
    let node = Node::start(&python);
    passes(&node, &python, "boto3_workflows.py");
}

#[test]
fn a_map_of_idempotent_functions_ends_though_the_node_is_killed_in_its_midst() {
    let Some(python) = python("a_map_of_idempotent_functions_ends_though_the_node_is_killed_in_its_midst") else {
        return;
    };
    let mut node = Node::start(&python);
    node.ok(["objects", "mb", "nigh://marks"]);
    node.deploy_code("marking", MARKING, "256MiB");
    node.ok(["deploy", "marking", "--env", "NIGH_IDEMPOTENT=true"]);
    make_map(&node);
    node.ok(["workflow", "start", "map", &items(8, 0.5), "--name", "run"]);
    for _ in 0..2 {
        let before = marks(&node, 8).iter().sum::<usize>();
        wait_for("some of the map to run", || marks(&node, 8).iter().sum::<usize>() >= (before + 2).min(8));
        node.kill();
        node.restart();
    }
    wait_for("the execution to end", || described(&node, "map", "run")["status"] != "RUNNING");
    let end = described(&node, "map", "run");
    assert_eq!(end["status"], "SUCCEEDED", "{end}");
    let expected: Vec<usize> = (0..8).map(|n| n * 2).collect();
    assert_eq!(serde_json::from_str::<Vec<usize>>(end["output"].as_str().unwrap()).unwrap(), expected);
    assert!(marks(&node, 8).iter().all(|begun| *begun >= 1));
    node.terminate();
    assert_eq!(node.exit_code(), Some(0));
}

#[test]
fn a_function_that_may_have_run_fails_with_a_typed_error_after_a_kill_and_does_not_run_again() {
    let name = "a_function_that_may_have_run_fails_with_a_typed_error_after_a_kill_and_does_not_run_again";
    let Some(python) = python(name) else { return };
    let mut node = Node::start(&python);
    node.ok(["objects", "mb", "nigh://marks"]);
    node.deploy_code("marking", MARKING, "256MiB");
    let task = json!({"Type": "Task", "Resource": "marking", "ResultPath": "$.result",
        "Catch": [{"ErrorEquals": ["Nigh.OutcomeUnknown"], "ResultPath": "$.why", "Next": "Unknown"}]});
    let machine = json!({"StartAt": "First", "States": {
        "First": with(&task, &json!({"Next": "Pause"})),
        "Pause": {"Type": "Pass", "Result": 600, "ResultPath": "$.sleep", "Next": "Second"},
        "Second": with(&task, &json!({"End": true})),
        "Unknown": {"Type": "Pass", "End": true},
    }});
    let file = definition(&node, "line", &machine);
    node.ok(["workflow", "create", "line", &file]);
    node.ok(["workflow", "start", "line", r#"{"n": 0}"#, "--name", "run"]);
    // The first has ended, and the second sleeps.
    wait_for("the second task to run", || marks(&node, 1) == [2]);
    node.kill();
    node.restart();
    wait_for("the execution to end", || described(&node, "line", "run")["status"] != "RUNNING");
    let end = described(&node, "line", "run");
    assert_eq!(end["status"], "SUCCEEDED", "{end}");
    let output: Value = serde_json::from_str(end["output"].as_str().unwrap()).unwrap();
    assert_eq!((&output["why"]["Error"], &output["result"]), (&json!("Nigh.OutcomeUnknown"), &json!(0)), "{output}");
    assert_eq!(marks(&node, 1), [2], "a function that may have run was run again");
    // By the same name it is another execution, which is refused; what ended stays as it was.
    let again = node.nigh(["workflow", "start", "line", r#"{"n": 0}"#, "--name", "run"]);
    assert!(String::from_utf8_lossy(&again.stderr).contains("Already Exists"), "{again:?}");
}

#[test]
fn no_execution_fails_when_the_node_ends_in_order_and_no_task_runs_twice() {
    let name = "no_execution_fails_when_the_node_ends_in_order_and_no_task_runs_twice";
    let Some(python) = python(name) else { return };
    let mut node = Node::start(&python);
    node.ok(["objects", "mb", "nigh://marks"]);
    node.deploy_code("marking", MARKING, "256MiB");
    // More tasks at once than run at a time, each followed by another.
    let task = json!({"Type": "Task", "Resource": "marking", "ResultPath": null});
    let each = json!({"StartAt": "First", "States": {
        "First": with(&task, &json!({"Next": "Second"})), "Second": with(&task, &json!({"End": true}))}});
    let map = json!({"Type": "Map", "ItemsPath": "$.items", "ItemProcessor": each, "End": true});
    let file = definition(&node, "map", &json!({"StartAt": "Map", "States": {"Map": map}}));
    node.ok(["workflow", "create", "map", &file]);
    node.ok(["workflow", "start", "map", &items(12, 0.3), "--name", "run"]);
    for least in [2, 9] {
        wait_for("some of the tasks to begin", || marks(&node, 12).iter().sum::<usize>() >= least);
        node.terminate();
        assert_eq!(node.exit_code(), Some(0));
        node.restart();
    }
    wait_for("the execution to end", || described(&node, "map", "run")["status"] != "RUNNING");
    let end = described(&node, "map", "run");
    assert_eq!(end["status"], "SUCCEEDED", "{end}");
    assert_eq!(marks(&node, 12), [2; 12], "each of both tasks has run once");
}

#[test]
fn waiting_and_time_outs_go_on_by_the_date_after_a_kill() {
    let Some(python) = python("waiting_and_time_outs_go_on_by_the_date_after_a_kill") else { return };
    let mut node = Node::start(&python);
    let machine = json!({"StartAt": "Wait", "States": {"Wait": {"Type": "Wait", "SecondsPath": "$.s", "End": true}}});
    let file = definition(&node, "wait", &machine);
    node.ok(["workflow", "create", "wait", &file]);
    node.ok(["workflow", "start", "wait", r#"{"s": 3}"#, "--name", "short"]);
    node.ok(["workflow", "start", "wait", r#"{"s": 86400}"#, "--name", "long"]);
    let mut limited = machine;
    limited["TimeoutSeconds"] = json!(4);
    let file = definition(&node, "limited", &limited);
    node.ok(["workflow", "create", "limited", &file]);
    node.ok(["workflow", "start", "limited", r#"{"s": 86400}"#, "--name", "late"]);
    node.kill();
    node.restart();
    wait_for("the wait to end", || described(&node, "wait", "short")["status"] == "SUCCEEDED");
    wait_for("the time to be over", || described(&node, "limited", "late")["status"] == "TIMED_OUT");
    assert_eq!(described(&node, "wait", "long")["status"], "RUNNING");
    node.ok(["workflow", "stop", "wait", "long", "--cause", "enough"]);
    let stopped = described(&node, "wait", "long");
    assert_eq!((&stopped["status"], &stopped["cause"]), (&json!("ABORTED"), &json!("enough")));
    let listed = node.json(["workflow", "list", "wait", "--status", "succeeded"]);
    assert_eq!(listed.as_array().unwrap().len(), 1);
    // Watching what has ended shows how it went, and says so by the exit code.
    assert!(node.nigh(["workflow", "watch", "wait", "short"]).status.success());
    assert!(!node.nigh(["workflow", "watch", "wait", "long"]).status.success());
}

#[test]
fn executions_of_a_backup_go_on_at_the_node_that_is_restored_from_it() {
    let Some(python) = python("executions_of_a_backup_go_on_at_the_node_that_is_restored_from_it") else { return };
    let mut node = Node::start(&python);
    let machine = json!({"StartAt": "Wait", "States": {"Wait": {"Type": "Wait", "SecondsPath": "$.s", "End": true}}});
    let file = definition(&node, "wait", &machine);
    node.ok(["workflow", "create", "wait", &file]);
    assert!(node.nigh(["workflow", "start", "wait", r#"{"s": 0}"#, "--name", "ended", "--watch"]).status.success());
    node.ok(["workflow", "start", "wait", r#"{"s": 3}"#, "--name", "runs"]);
    let backup = node.state.with_file_name("node.tar");
    let made = node.json(["backup", backup.to_str().unwrap()]);
    assert!(made["content"]["executions"].as_u64().unwrap() >= 5, "{made}");
    node.ok(["workflow", "start", "wait", "{\"s\": 0}", "--name", "later"]);
    node.kill();
    assert!(node.nigh(["restore", backup.to_str().unwrap(), "--force"]).status.success());
    node.restart();
    wait_for("the execution to end", || described(&node, "wait", "runs")["status"] == "SUCCEEDED");
    let ended = described(&node, "wait", "ended");
    assert_eq!((&ended["status"], &ended["output"]), (&json!("SUCCEEDED"), &json!(r#"{"s":0}"#)));
    assert_eq!(node.json(["workflow", "list", "wait"]).as_array().unwrap().len(), 2);
}

#[test]
fn what_lies_between_stages_is_in_memory_alone_and_goes_with_the_execution() {
    let name = "what_lies_between_stages_is_in_memory_alone_and_goes_with_the_execution";
    let Some(python) = python(name) else { return };
    let node = Node::start(&python);
    node.ok(["objects", "mb", "nigh://between"]);
    let stages = r#"
import boto3
s3 = boto3.client("s3")
def handler(event, context):
    key = f"stages/{event['run']}/data"
    if event["stage"] == "put":
        s3.put_object(Bucket="between", Key=key, Body=b"x" * 1000)
        return 0
    return len(s3.get_object(Bucket="between", Key=key)["Body"].read())
"#;
    node.deploy_code("stages", stages, "256MiB");
    let stage = |stage: &str, next: Value| {
        let mut task = json!({"Type": "Task", "Resource": "stages", "ResultPath": "$.bytes",
            "Parameters": {"stage": stage, "run.$": "$$.Execution.Name"}});
        task.as_object_mut().unwrap().extend(next.as_object().unwrap().clone());
        task
    };
    let machine = json!({"StartAt": "Put", "States": {
        "Put": stage("put", json!({"Next": "Get"})),
        "Get": stage("get", json!({"End": true})),
    }});
    let file = definition(&node, "stages", &machine);
    let refused = node.nigh(["workflow", "create", "stages", &file, "--scratch", "nowhere/stages/"]);
    assert!(!refused.status.success(), "a folder of a bucket that is not there was taken");
    // A folder that comes later is one all the same, and stays.
    node.ok(["workflow", "create", "stages", &file]);
    let changed = node.ok(["workflow", "create", "stages", &file, "--scratch", "between/stages/"]);
    assert_eq!(changed, "changed stages\n");
    node.ok(["workflow", "create", "stages", &file]);
    let shown = node.ok(["workflow", "show", "stages"]);
    assert!(shown.contains("scratch") && shown.contains("between/stages/"), "{shown}");
    let kind = node.nigh(["workflow", "create", "stages", &file, "--express"]);
    assert_eq!(kind.status.code(), Some(2), "{kind:?}");
    assert!(String::from_utf8_lossy(&kind.stderr).contains("nigh workflow rm stages"), "{kind:?}");
    let policy = node.json(["objects", "policy", "nigh://between"]);
    assert!(policy.to_string().contains("ephemeral"), "{policy}");
    let run = node.nigh(["workflow", "start", "stages", "{}", "--name", "run", "--watch"]);
    assert!(run.status.success(), "{run:?}");
    let shown = String::from_utf8_lossy(&run.stdout).into_owned();
    assert!(shown.contains("Put: task") && shown.contains("Get: done") && shown.contains("1000"), "{shown}");
    assert_eq!(objects(&node, "nigh://between/stages/"), 0);
}

#[test]
fn the_next_stage_finds_its_sandbox_memory_and_class_ready() {
    let Some(python) = python("the_next_stage_finds_its_sandbox_memory_and_class_ready") else { return };
    let node = Node::start(&python);
    let input = node.state.with_file_name("input");
    fs::write(&input, vec![7u8; 100_000]).unwrap();
    node.ok(["objects", "mb", "nigh://data"]);
    node.ok(["objects", "cp", input.to_str().unwrap(), "nigh://data/in"]);
    node.deploy("first");
    node.deploy("second");
    let has_cache = !node.json(["llc", "status"])["shape"].is_null();
    if has_cache {
        let rows = node.state.with_file_name("rows.json");
        let row = |size: u64, ways: u64| json!({"input": {"size": size}, "ways": ways, "class": "sensitive"});
        fs::write(&rows, json!([row(1000, 1), row(100_000, 2)]).to_string()).unwrap();
        node.ok(["llc", "learn", "second", "--rows", rows.to_str().unwrap()]);
    }
    let states = json!({
        "First": {"Type": "Task", "Resource": "first", "ResultPath": "$.first", "Next": "Second"},
        "Second": {"Type": "Task", "Resource": "second", "End": true,
            "Parameters": {"input": {"bucket": "data", "key.$": "$.key"}, "read.$": "$.key"}},
    });
    let file = definition(&node, "two", &json!({"StartAt": "First", "States": states}));
    node.ok(["workflow", "create", "two", &file]);
    // Warm, and not: its first sandbox is made meanwhile.
    for _ in 0..2 {
        let run = node.nigh(["workflow", "start", "two", r#"{"key": "in", "sleep": 2}"#, "--watch"]);
        assert!(run.status.success(), "{run:?}");
        let second = node.last_activation();
        assert_eq!((&second["function"], &second["cold"]), (&json!("second"), &json!(false)), "{second}");
        let notes = second["notes"].as_array().unwrap();
        let prepared = notes.iter().find_map(|note| note.as_str().unwrap().strip_prefix("prepared: "));
        let prepared = prepared.unwrap_or_else(|| panic!("{notes:?}"));
        assert!(prepared.contains(" of memory; ") && prepared.contains("sizing: "), "{prepared}");
        assert!(!has_cache || prepared.contains("97.7 KiB of data need 2 ways"), "{prepared}");
    }
    let metrics = node.ok(["metrics"]);
    let count = |name: &str| metrics.lines().find_map(|line| line.strip_prefix(name)?.trim().parse::<f64>().ok());
    assert_eq!((count("nigh_sandboxes_ahead_total"), count("nigh_invocations_prepared_total")), (Some(1.0), Some(2.0)));
}

#[test]
fn a_failed_execution_names_the_state_and_the_functions_error() {
    let Some(python) = python("a_failed_execution_names_the_state_and_the_functions_error") else { return };
    let node = Node::start(&python);
    node.deploy("fails");
    let machine = json!({"StartAt": "First", "States": {
        "First": {"Type": "Pass", "Result": {"raise": "asked to"}, "Next": "Second"},
        "Second": {"Type": "Task", "Resource": "fails", "End": true},
    }});
    let file = definition(&node, "line", &machine);
    node.ok(["workflow", "create", "line", &file]);
    let run = node.nigh(["workflow", "start", "line", "{}", "--name", "run", "--watch"]);
    assert_eq!(run.status.code(), Some(1), "{run:?}");
    let (shown, told) = (String::from_utf8_lossy(&run.stdout), String::from_utf8_lossy(&run.stderr));
    assert!(shown.contains("Second: failed: ValueError"), "{shown}");
    assert!(told.starts_with("nigh: FAILED in the state Second: app.py:"), "{told}");
    assert!(told.contains("ValueError: asked to") && told.contains("in handler"), "{told}");
    let described = node.ok(["workflow", "describe", "line", "run"]);
    assert!(described.lines().any(|line| line.starts_with("failed in") && line.contains("Second")), "{described}");
}
