//! Namespaces as an operator manages them: quotas, as unmodified SDKs meet them, and removal.

use std::path::Path;
use std::process::Command;

use nigh_engine::{AccessKeys, LocalRegistry, NamespaceQuota, StateFile};
use nigh_terms::Namespace;
use serde_json::{Value, json};

use crate::platform::{Node, python, sdk_environment, wait_for};

/// Sends many requests at once; prints how many there were of each code, and whether refusals said when to try again.
const BURST: &str = r#"
import json, sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
import boto3
from botocore.config import Config
from botocore.exceptions import ClientError

once = Config(retries={"total_max_attempts": 1}, max_pool_connections=16)
s3, functions = boto3.client("s3", config=once), boto3.client("lambda", config=once)
calls = {
    "list": lambda: s3.list_buckets(),
    "functions": lambda: functions.list_functions(),
    "sleep": lambda: functions.invoke(FunctionName="sleeper", Payload=b'{"sleep": 2}'),
    "put": lambda: s3.put_object(Bucket="theirs", Key="k", Body=b"x" * 600_000),
}
silent = []

def call(name):
    try:
        calls[name]()
        return "ok"
    except ClientError as error:
        answer = error.response
        if answer["ResponseMetadata"]["HTTPStatusCode"] in (429, 503):
            if "retry-after" not in answer["ResponseMetadata"]["HTTPHeaders"]:
                silent.append(name)
        return answer["Error"]["Code"]

name, count, at_once = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
with ThreadPoolExecutor(at_once) as pool:
    codes = Counter(pool.map(call, [name] * count))
print(json.dumps({"codes": codes, "silent": silent}))
"#;

/// How many calls of each code there were.
fn burst(node: &Node, python: &Path, key: &Value, call: &str, count: usize, at_once: usize) -> Value {
    let output = Command::new(python)
        .args(["-c", BURST, call, &count.to_string(), &at_once.to_string()])
        .envs(sdk_environment(&node.state))
        .env("AWS_ACCESS_KEY_ID", key["key"]["id"].as_str().unwrap())
        .env("AWS_SECRET_ACCESS_KEY", key["secret"].as_str().unwrap())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let said: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(said["silent"], json!([]), "refusals say when to try again");
    said["codes"].clone()
}

/// The quota of the namespace in the state of a stopped node.
fn quota_in(state: &Path) -> NamespaceQuota {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let registry = LocalRegistry::new(StateFile::open(&state.join("state.redb")).unwrap());
    let keys = runtime.block_on(AccessKeys::load(&registry)).unwrap();
    keys.namespaces().quota(&Namespace::new("team-a").unwrap())
}

/// Writes the key as a profile of the credentials file, so that the command can act for the namespace.
fn add_profile(node: &Node, created: &Value) {
    let path = node.state.join("credentials");
    let text = std::fs::read_to_string(&path).unwrap();
    let key = &created["key"];
    let (id, secret) = (key["id"].as_str().unwrap(), created["secret"].as_str().unwrap());
    let namespace = key["namespace"].as_str().unwrap();
    let profile = format!("\n[{namespace}]\naws_access_key_id = {id}\naws_secret_access_key = {secret}\n");
    std::fs::write(&path, text + &profile).unwrap();
}

/// Deploys the handler of the tests for the namespace; whether that succeeded, and what was said.
fn deploy(node: &Node, namespace: &str, name: &str) -> (bool, String) {
    let code = node.state.with_file_name("code");
    std::fs::create_dir_all(&code).unwrap();
    std::fs::write(code.join("app.py"), crate::platform::HANDLER).unwrap();
    let (folder, runtime) = (code.to_str().unwrap(), node.python_runtime());
    let given = ["deploy", name, "--folder", folder, "--handler", "app.handler", "--profile", namespace];
    let more = ["--runtime", &runtime, "--memory", "128MiB", "--timeout", "30s"];
    let output = node.nigh(given.into_iter().chain(more));
    (output.status.success(), String::from_utf8(output.stderr).unwrap())
}

#[test]
fn a_namespace_over_its_quota_is_refused_with_the_words_of_each_door_and_others_are_not() {
    let test = "a_namespace_over_its_quota_is_refused_with_the_words_of_each_door_and_others_are_not";
    let Some(python) = python(test) else { return };
    let node = Node::start(&python);
    let key = node.json(["namespaces", "create", "team-a"]);
    add_profile(&node, &key);
    let quota = |more: &[&str]| node.json([&["namespaces", "quota", "team-a"], more].concat());

    // Functions.
    quota(&["--functions", "1"]);
    assert!(deploy(&node, "team-a", "sleeper").0);
    let (deployed, why) = deploy(&node, "team-a", "second");
    assert!(!deployed && why.contains("quota"), "{why}");
    assert!(deploy(&node, "team-a", "sleeper").0, "a function that is there can be changed");

    // Requests: one, and what the seconds bring in which the burst is sent.
    quota(&["--requests", "1/s"]);
    let codes = burst(&node, &python, &key, "list", 60, 12);
    assert!(codes["SlowDown"].as_u64().unwrap() >= 30, "{codes}");
    assert!(codes["ok"].as_u64().unwrap() >= 1, "{codes}");
    let codes = burst(&node, &python, &key, "functions", 60, 12);
    assert!(codes["TooManyRequestsException"].as_u64().unwrap() >= 30, "{codes}");
    node.ok(["objects", "ls"]);
    quota(&["--requests", "none"]);

    // Memory: two of four fit at once.
    quota(&["--memory", "256MiB"]);
    let codes = burst(&node, &python, &key, "sleep", 4, 4);
    assert_eq!(codes, json!({"ok": 2, "TooManyRequestsException": 2}));
    assert_eq!(burst(&node, &python, &key, "sleep", 2, 1), json!({"ok": 2}), "they have ended");
    quota(&["--memory", "none"]);

    // Stored bytes, of which a removal gives back.
    node.ok(["objects", "mb", "nigh://theirs", "--profile", "team-a"]);
    quota(&["--stored", "1MiB"]);
    assert_eq!(burst(&node, &python, &key, "put", 1, 1), json!({"ok": 1}));
    let stored = || node.json(["namespaces", "show", "team-a"])["stored"].as_u64().unwrap();
    wait_for("a listing", || stored() == 600_000);
    assert_eq!(burst(&node, &python, &key, "put", 1, 1), json!({"QuotaExceeded": 1}));
    node.ok(["objects", "rm", "nigh://theirs/k", "--profile", "team-a"]);
    quota(&["--stored", "2MiB"]);
    assert_eq!(burst(&node, &python, &key, "put", 1, 1), json!({"ok": 1}));
    let bad = node.nigh(["namespaces", "quota", "team-a", "--requests", "0"]);
    assert!(String::from_utf8(bad.stderr).unwrap().contains("at least 1"));
}

#[test]
fn a_namespace_and_its_quota_outlive_the_node_and_its_backup_and_go_when_they_are_removed() {
    let test = "a_namespace_and_its_quota_outlive_the_node_and_its_backup_and_go_when_they_are_removed";
    let Some(python) = python(test) else { return };
    let mut node = Node::start(&python);
    let key = node.json(["namespaces", "create", "team-a"]);
    add_profile(&node, &key);
    assert!(!node.nigh(["namespaces", "create", "team-a"]).status.success());
    node.ok(["namespaces", "quota", "team-a", "--functions", "7", "--requests", "100/s"]);
    assert!(deploy(&node, "team-a", "theirs").0);
    node.ok(["objects", "mb", "nigh://theirs", "--profile", "team-a"]);
    let file = node.state.with_file_name("k");
    std::fs::write(&file, "bytes").unwrap();
    node.ok(["objects", "cp", file.to_str().unwrap(), "nigh://theirs/k", "--profile", "team-a"]);
    node.kill();
    node.restart();
    let shown = node.json(["namespaces", "show", "team-a"]);
    assert_eq!((&shown["quota"], &shown["functions"]), (&json!({"functions": 7, "requests": 100}), &json!(1)));
    let listed = node.ok(["namespaces", "ls"]);
    assert!(listed.contains("1 of 7") && listed.contains("from settings"), "{listed}");

    let backup = node.state.with_file_name("backup.tar");
    node.ok(["backup", backup.to_str().unwrap()]);
    let again = node.state.with_file_name("again");
    let restored = crate::platform::command(&again).args(["restore", backup.to_str().unwrap()]).output().unwrap();
    assert!(restored.status.success(), "{}", String::from_utf8_lossy(&restored.stderr));
    let quota = NamespaceQuota { functions: Some(7), requests: Some(100), ..NamespaceQuota::default() };
    assert_eq!(quota_in(&again), quota);

    let full = node.nigh(["namespaces", "rm", "team-a", "--yes"]);
    let words = String::from_utf8(full.stderr).unwrap();
    assert!(words.contains("1 buckets, 1 functions") && words.contains("--with-everything"), "{words}");
    node.ok(["namespaces", "rm", "team-a", "--with-everything", "--yes"]);
    let all = node.json(["namespaces", "ls"]);
    assert!(all.as_array().unwrap().iter().all(|one| one["name"] != "team-a"), "{all}");
    let refused = node.nigh(["objects", "ls", "--profile", "team-a"]);
    assert!(!refused.status.success(), "its key is gone");
    let own = node.nigh(["namespaces", "rm", "default", "--yes"]);
    assert!(String::from_utf8(own.stderr).unwrap().contains("nigh.toml"));

    // Made again, it is empty.
    let key = node.json(["namespaces", "create", "team-a"]);
    let text = std::fs::read_to_string(node.state.join("credentials")).unwrap();
    let kept = text.split("\n[team-a]").next().unwrap().to_owned();
    std::fs::write(node.state.join("credentials"), kept).unwrap();
    add_profile(&node, &key);
    assert!(!node.ok(["objects", "ls", "--profile", "team-a"]).contains("theirs"));
}
