//! Keys as an operator manages them, with unmodified SDKs at each door: what a limited key may do, rotation under load, and
//! how soon a change holds on all nodes.

use std::path::Path;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::cluster_workflows::Nodes;
use crate::platform::{Node, command, python, sdk_environment, wait_for};

/// A revoked key is refused at all nodes after this time.
const EVERYWHERE_AFTER: Duration = Duration::from_secs(1);

/// Does one thing and prints `ok`, or the error's code.
const ONE_CALL: &str = r#"
import json, sys
import boto3
from botocore.config import Config
from botocore.exceptions import ClientError

once = Config(retries={"total_max_attempts": 1})
s3, functions = boto3.client("s3", config=once), boto3.client("lambda", config=once)
calls = {
    "get": lambda: s3.get_object(Bucket="data", Key="k")["Body"].read(),
    "put": lambda: s3.put_object(Bucket="data", Key="k", Body=b"x"),
    "list": lambda: s3.list_objects_v2(Bucket="data"),
    "other": lambda: s3.get_object(Bucket="other", Key="k"),
    "copy": lambda: s3.copy_object(Bucket="data", Key="copied", CopySource={"Bucket": "other", "Key": "k"}),
    "invoke": lambda: functions.invoke(FunctionName="echo", Payload=b"{}"),
    "functions": lambda: functions.list_functions(),
    "delete": lambda: functions.delete_function(FunctionName="missing"),
}
said = {}
for name in sys.argv[1:]:
    try:
        calls[name]()
        said[name] = "ok"
    except ClientError as error:
        said[name] = error.response["Error"]["Code"]
print(json.dumps(said))
"#;

/// Reads and writes until its standard input ends, each time by the key that the file names now; prints what failed.
const LOAD: &str = r#"
import json, os, sys, threading
import boto3
from botocore.config import Config

once = Config(retries={"total_max_attempts": 1})
over, failures, calls = threading.Event(), [], [0]

def client(service):
    key = json.load(open(os.environ["KEY_FILE"]))
    return boto3.client(service, config=once, aws_access_key_id=key["id"], aws_secret_access_key=key["secret"])

def work():
    while not over.is_set():
        try:
            s3, functions = client("s3"), client("lambda")
            for _ in range(20):
                s3.put_object(Bucket="data", Key="k", Body=b"x")
                s3.get_object(Bucket="data", Key="k")["Body"].read()
                functions.list_functions()
                calls[0] += 3
        except Exception as error:
            failures.append(repr(error))

threads = [threading.Thread(target=work) for _ in range(2)]
for thread in threads:
    thread.start()
print("begun", flush=True)
sys.stdin.read()
over.set()
for thread in threads:
    thread.join()
print(json.dumps({"calls": calls[0], "failures": failures[:3]}), flush=True)
"#;

/// What each call is answered with by this key of the node with this state.
fn called(state: &Path, python: &Path, key: &Value, calls: &[&str]) -> Value {
    let output = Command::new(python)
        .args(["-c", ONE_CALL])
        .args(calls)
        .envs(sdk_environment(state))
        .env("AWS_ACCESS_KEY_ID", key["key"]["id"].as_str().unwrap())
        .env("AWS_SECRET_ACCESS_KEY", key["secret"].as_str().unwrap())
        .output()
        .unwrap();
    serde_json::from_str(&succeeded(output)).unwrap()
}

fn succeeded(output: Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// The status of a request to OpenWhisk's API with this key.
fn whisk_status(node: &Node, key: &Value, method: &str, path: &str) -> String {
    let user = format!("{}:{}", key["key"]["id"].as_str().unwrap(), key["secret"].as_str().unwrap());
    let url = format!("{}/api/v1/namespaces/_/{path}", node.endpoints()["lambda"].as_str().unwrap());
    let asked = ["--silent", "--output", "/dev/null", "--write-out", "%{http_code}", "--user", &user];
    let sent = ["--request", method, "--header", "content-type: application/json", "--data", "{}", &url];
    succeeded(Command::new("curl").args(asked).args(sent).output().unwrap())
}

/// A node with two buckets, each with an object, and the function `echo`.
fn furnished(python: &Path) -> Node {
    let node = Node::start(python);
    let file = node.state.with_file_name("k");
    std::fs::write(&file, "bytes").unwrap();
    for bucket in ["data", "other"] {
        node.ok(["objects", "mb", &format!("nigh://{bucket}")]);
        node.ok(["objects", "cp", file.to_str().unwrap(), &format!("nigh://{bucket}/k")]);
    }
    node.deploy("echo");
    node
}

#[test]
fn a_limited_key_does_at_each_door_what_its_scope_says_and_nothing_else() {
    let test = "a_limited_key_does_at_each_door_what_its_scope_says_and_nothing_else";
    let Some(python) = python(test) else { return };
    let node = furnished(&python);
    let create = |more: &[&str]| node.json([&["keys", "create"], more].concat());
    let of = |key: &Value, calls: &[&str]| called(&node.state, &python, key, calls);

    let reader = create(&["--name", "reader", "--read-only"]);
    assert_eq!(
        of(&reader, &["get", "list", "other", "put", "invoke", "functions", "delete"]),
        json!({"get": "ok", "list": "ok", "other": "ok", "put": "AccessDenied", "invoke": "AccessDeniedException",
            "functions": "ok", "delete": "AccessDeniedException"})
    );
    assert_eq!(whisk_status(&node, &reader, "GET", "actions"), "200");
    assert_eq!(whisk_status(&node, &reader, "POST", "actions/echo?blocking=true"), "403");

    let bucket = create(&["--name", "bucket", "--bucket", "data"]);
    assert_eq!(
        of(&bucket, &["get", "put", "other", "copy", "invoke", "functions"]),
        json!({"get": "ok", "put": "ok", "other": "AccessDenied", "copy": "AccessDenied",
            "invoke": "AccessDeniedException", "functions": "AccessDeniedException"})
    );

    let function = create(&["--name", "function", "--function", "echo"]);
    assert_eq!(
        of(&function, &["invoke", "get", "functions"]),
        json!({"invoke": "ok", "get": "AccessDenied", "functions": "AccessDeniedException"})
    );
    assert_eq!(whisk_status(&node, &function, "POST", "actions/echo?blocking=true"), "200");
    assert_eq!(whisk_status(&node, &function, "POST", "actions/other?blocking=true"), "403");

    // A key of another namespace reaches that one only.
    let created = node.json(["namespaces", "create", "team-a"]);
    assert_eq!(of(&created, &["get", "functions"]), json!({"get": "NoSuchBucket", "functions": "ok"}));
    let nowhere = node.nigh(["keys", "create", "--namespace", "nowhere"]);
    assert!(String::from_utf8(nowhere.stderr).unwrap().contains("nigh namespaces create nowhere"));
}

#[test]
fn a_key_is_listed_without_its_secret_and_refused_when_it_is_disabled_expired_or_removed() {
    let test = "a_key_is_listed_without_its_secret_and_refused_when_it_is_disabled_expired_or_removed";
    let Some(python) = python(test) else { return };
    let mut node = furnished(&python);
    let of = |node: &Node, key: &Value| called(&node.state, &python, key, &["get", "functions"]);
    let refused = json!({"get": "InvalidAccessKeyId", "functions": "UnrecognizedClientException"});
    let fine = json!({"get": "ok", "functions": "ok"});

    let key = node.json(["keys", "create", "--name", "job", "--description", "a nightly job", "--expires", "90d"]);
    let short = node.json(["keys", "create", "--name", "short", "--expires", "1s"]);
    assert_eq!(of(&node, &key), fine);
    let listed = node.ok(["keys", "ls"]);
    assert!(listed.contains("job") && listed.contains("(from settings)"), "{listed}");
    assert!(!listed.contains(key["secret"].as_str().unwrap()), "{listed}");
    let names = |node: &Node, words: &[&str]| -> Vec<Value> {
        let listed = node.json([&["keys", "ls"], words].concat());
        listed.as_array().unwrap().iter().map(|key| key["name"].clone()).collect()
    };
    assert_eq!(names(&node, &["jo", "--active", "--namespace", "default"]), ["job"]);
    assert_eq!(names(&node, &["--limit", "1"]).len(), 1);
    assert!(names(&node, &["jo", "--namespace", "team-a"]).is_empty());
    let shown = node.json(["keys", "show", "job"]);
    assert!(shown["last_used"].is_string() && shown.get("secret").is_none(), "{shown}");

    node.ok(["keys", "disable", "job"]);
    assert_eq!(of(&node, &key), refused);
    node.kill();
    node.restart();
    assert_eq!(of(&node, &key), refused, "it is disabled after a restart too");
    node.ok(["keys", "enable", "job"]);
    assert_eq!(of(&node, &key), fine);
    wait_for("a key to expire", || node.json(["keys", "show", "short"])["state"] == "expired");
    assert_eq!((names(&node, &["short"]).len(), names(&node, &["short", "--active"]).len()), (1, 0));
    assert_eq!(of(&node, &short), refused);

    let unasked = node.nigh(["keys", "rm", "job"]);
    assert!(String::from_utf8(unasked.stderr).unwrap().contains("--yes"));
    node.ok(["keys", "rm", "job", "--yes"]);
    assert_eq!(of(&node, &key)["functions"], "UnrecognizedClientException");
    let gone = node.nigh(["keys", "show", "job"]);
    assert!(String::from_utf8(gone.stderr).unwrap().contains("nigh keys ls"));

    // The node's own key stays, and its successor is the one that the command finds.
    let listed = node.json(["keys", "ls"]);
    let own = listed.as_array().unwrap().iter().find(|key| key["from_settings"] == true).unwrap();
    let own = own["id"].as_str().unwrap().to_owned();
    assert!(!node.nigh(["keys", "rm", &own, "--yes"]).status.success());
    let successor = node.json(["keys", "rotate", &own, "--overlap", "0s"]);
    node.ok(["objects", "ls"]);
    let credentials = std::fs::read_to_string(node.state.join("credentials")).unwrap();
    assert!(credentials.contains(successor["key"]["id"].as_str().unwrap()) && !credentials.contains(&own));
    node.kill();
    node.restart();
    node.ok(["objects", "ls"]);
}

#[test]
fn no_request_fails_while_a_key_is_rotated_under_load() {
    let test = "no_request_fails_while_a_key_is_rotated_under_load";
    let Some(python) = python(test) else { return };
    let node = furnished(&python);
    let file = node.state.with_file_name("key.json");
    let hand_out = |created: &Value| {
        let key = json!({"id": created["key"]["id"], "secret": created["secret"]}).to_string();
        let next = file.with_extension("next");
        std::fs::write(&next, key).unwrap();
        std::fs::rename(&next, &file).unwrap();
    };
    hand_out(&node.json(["keys", "create", "--name", "load"]));
    let mut load = Command::new(&python)
        .args(["-c", LOAD])
        .envs(node.sdk_environment())
        .env("KEY_FILE", &file)
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    for _ in 0..4 {
        std::thread::sleep(Duration::from_millis(500));
        hand_out(&node.json(["keys", "rotate", "load", "--overlap", "30s"]));
    }
    std::thread::sleep(Duration::from_millis(500));
    drop(load.stdin.take());
    let printed = succeeded(load.wait_with_output().unwrap());
    let said: Value = serde_json::from_str(printed.lines().last().unwrap()).unwrap();
    assert_eq!(said["failures"], json!([]), "{said}");
    assert!(said["calls"].as_u64().unwrap() > 0, "{said}");
    let all = node.json(["keys", "ls"]);
    let named = all.as_array().unwrap().iter().filter(|key| key["name"] == "load");
    assert_eq!(named.clone().count(), 5);
    assert_eq!(named.filter(|key| key["replaced_by"].is_null()).count(), 1);
}

#[test]
fn a_key_that_is_disabled_or_removed_at_one_node_is_refused_at_all_within_a_second() {
    let test = "a_key_that_is_disabled_or_removed_at_one_node_is_refused_at_all_within_a_second";
    let Some(python) = python(test) else { return };
    let Some(nodes) = Nodes::start(test, 3) else { return };
    let key = nodes.json(0, &["keys", "create", "--name", "shared"]);
    let at_all = |nodes: &Nodes, expected: &str| {
        (0..3).all(|node| called(&nodes.states[node], &python, &key, &["functions"])["functions"] == expected)
    };
    wait_for("the key at all nodes", || at_all(&nodes, "ok"));
    let changes: [(&str, &[&str], &str); 3] = [
        ("disable", &[], "UnrecognizedClientException"),
        ("enable", &[], "ok"),
        ("rm", &["--yes"], "UnrecognizedClientException"),
    ];
    for (verb, more, expected) in changes {
        nodes.ok(1, &[&["keys", verb, "shared"], more].concat());
        let changed = Instant::now();
        std::thread::sleep(EVERYWHERE_AFTER.saturating_sub(changed.elapsed()));
        assert!(at_all(&nodes, expected), "{verb}");
    }
    // A quota is known at all nodes too.
    nodes.ok(0, &["namespaces", "quota", "default", "--functions", "2"]);
    wait_for("the quota at all nodes", || {
        (0..3).all(|node| nodes.json(node, &["namespaces", "show", "default"])["quota"]["functions"] == 2)
    });
    let refused = command(&nodes.states[2]).args(["keys", "show", "shared"]).output().unwrap();
    assert!(!refused.status.success());
}
