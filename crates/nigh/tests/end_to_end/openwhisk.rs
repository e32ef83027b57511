//! OpenWhisk against a whole node: its own client, unchanged, and actions that read and write data as functions do.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

use crate::platform::{Node, python};
use crate::skipped::skip;

/// The exit status with which `run.sh` says that an SDK is not on this machine.
const NOT_HERE: i32 = 77;

/// An action that knows nothing of Nigh.
const REVERSE: &str = r#"
import os
import boto3

s3 = boto3.client("s3")

def main(args):
    body = s3.get_object(Bucket="data", Key=args["key"])["Body"].read()
    s3.put_object(Bucket="data", Key=args["key"] + ".reversed", Body=body[::-1])
    return {"bytes": len(body), "namespace": os.environ["__OW_NAMESPACE"], "own": os.environ.get("OWN")}
"#;

fn curl(node: &Node, method: &str, path: &str, body: &Value) -> Value {
    let auth = node.ok(["openwhisk", "auth"]);
    let url = format!("{}/api/v1/namespaces/_/{path}", node.endpoints()["lambda"].as_str().unwrap());
    let output = Command::new("curl")
        .args([
            "--silent",
            "--show-error",
            "--user",
            auth.trim(),
            "--request",
            method,
            "--data",
            &body.to_string(),
            &url,
        ])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap_or(Value::Null)
}

/// `nodejs:x`, if the node has one.
fn node_kind(node: &Node) -> String {
    let status = node.json(["status"]);
    let level = status["levels"].as_array().unwrap().iter().find(|level| level["name"] == "openwhisk").unwrap();
    let mut words = level["detail"].as_str().unwrap().split(' ');
    words.find(|word| word.starts_with("nodejs:")).unwrap_or_default().to_owned()
}

#[test]
fn openwhisks_own_client_drives_a_whole_node() {
    let test = "openwhisks_own_client_drives_a_whole_node";
    let Some(python) = python(test) else { return };
    let node = Node::start_with(&python, &["--set", "openwhisk.fires_per_minute=20"]);
    let script: PathBuf = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/sdk/run.sh");
    let output = Command::new(script)
        .arg("openwhisk")
        .env("NIGH_APIHOST", node.endpoints()["lambda"].as_str().unwrap())
        .env("NIGH_AUTH", node.ok(["openwhisk", "auth"]).trim())
        .env("NIGH_NODE_KIND", node_kind(&node))
        .output()
        .unwrap();
    let (said, why) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    if output.status.code() == Some(NOT_HERE) {
        skip(test, why.trim());
        return;
    }
    assert!(output.status.success(), "{}\n{said}\n{why}", output.status);
    assert!(
        said.lines().filter(|line| line.starts_with("ok ")).count() >= 11 && said.contains("all checks hold"),
        "{said}"
    );
}

#[test]
fn an_action_reads_and_writes_data_as_a_function_does_and_outlives_the_node() {
    let Some(python) = python("an_action_reads_and_writes_data_as_a_function_does_and_outlives_the_node") else {
        return;
    };
    let mut node = Node::start(&python);
    let input = node.state.with_file_name("input");
    std::fs::write(&input, b"1234").unwrap();
    node.ok(["objects", "mb", "nigh://data"]);
    node.ok(["objects", "cp", input.to_str().unwrap(), "nigh://data/in"]);
    let own = json!([{ "key": "OWN", "value": "mine", "init": true }]);
    let made = curl(
        &node,
        "PUT",
        "actions/reverse",
        &json!({ "exec": { "kind": "python:3", "code": REVERSE }, "parameters": own }),
    );
    assert_eq!(made["version"], "0.0.1", "{made}");
    let answer = curl(&node, "POST", "actions/reverse?blocking=true&result=true", &json!({ "key": "in" }));
    assert_eq!(answer, json!({ "bytes": 4, "namespace": "default", "own": "mine" }));
    let output = node.state.with_file_name("output");
    node.ok(["objects", "cp", "nigh://data/in.reversed", output.to_str().unwrap()]);
    assert_eq!(std::fs::read(&output).unwrap(), b"4321");
    // One record for both: the id, and where the time went.
    let listed = curl(&node, "GET", "activations?name=reverse", &Value::Null);
    let record = node.last_activation();
    let id = record["id"].as_str().unwrap().replace('-', "");
    assert_eq!(listed[0]["activationId"], id);
    assert_eq!((&record["function"], record["data_calls"].as_array().unwrap().len()), (&json!("reverse"), 2));
    assert_eq!(
        node.json(["invoke", "reverse", r#"{"key": "in"}"#])["payload"]["bytes"],
        4,
        "Lambda's Invoke reaches it too"
    );
    node.kill();
    node.restart();
    assert_eq!(curl(&node, "GET", "actions/reverse", &Value::Null)["exec"]["code"], REVERSE);
    let again = curl(&node, "POST", "actions/reverse?blocking=true&result=true", &json!({ "key": "in" }));
    assert_eq!(again["bytes"], 4, "{again}");
}

/// Leaves data for the component after it, in the folder of their activation.
const LEAVES: &str = r#"
import time
import boto3

s3 = boto3.client("s3")

def main(args):
    bucket, folder = args["__nigh_scratch"].split("/", 1)
    s3.put_object(Bucket=bucket, Key=folder + "data", Body=b"x" * 1000)
    time.sleep(args.get("sleep", 0))
    return {"fails": args.get("fails", False)}
"#;
/// Takes it.
const TAKES: &str = r#"
import boto3

s3 = boto3.client("s3")

def main(args):
    if args["fails"]:
        raise ValueError("asked to")
    bucket, folder = args["__nigh_scratch"].split("/", 1)
    return {"bytes": len(s3.get_object(Bucket=bucket, Key=folder + "data")["Body"].read()), "folder": folder}
"#;

#[test]
fn what_lies_between_the_components_of_a_sequence_goes_with_its_activation() {
    let Some(python) = python("what_lies_between_the_components_of_a_sequence_goes_with_its_activation") else {
        return;
    };
    let node = Node::start(&python);
    for (name, code) in [("leaves", LEAVES), ("takes", TAKES)] {
        curl(&node, "PUT", &format!("actions/{name}"), &json!({ "exec": { "kind": "python:3", "code": code } }));
    }
    let sequence = json!({
        "exec": { "kind": "sequence", "components": ["/_/leaves", "/_/takes"] },
        "annotations": [{ "key": "nigh:scratch", "value": "between/stages/" }],
    });
    let refused = curl(&node, "PUT", "actions/pipeline", &sequence);
    assert!(refused["error"].as_str().unwrap().starts_with("nigh:scratch: the bucket between:"), "{refused}");
    node.ok(["objects", "mb", "nigh://between"]);
    assert_eq!(curl(&node, "PUT", "actions/pipeline", &sequence)["version"], "0.0.1");
    assert!(node.json(["objects", "policy", "nigh://between"]).to_string().contains("ephemeral"));
    let left = |node: &Node| node.ok(["--json", "objects", "ls", "nigh://between/stages/", "--recursive"]);
    let done = curl(&node, "POST", "actions/pipeline?blocking=true", &json!({}));
    let folder = format!("stages/{}/", done["activationId"].as_str().unwrap());
    assert_eq!(done["response"]["result"], json!({ "bytes": 1000, "folder": folder }), "{done}");
    assert_eq!(left(&node), "");
    // Both have sandboxes now: the second's is made ready while the first runs.
    curl(&node, "POST", "actions/pipeline?blocking=true", &json!({ "sleep": 1 }));
    let taken = node.last_activation();
    let notes = taken["notes"].as_array().unwrap();
    assert_eq!((&taken["function"], &taken["cold"]), (&json!("takes"), &json!(false)), "{taken}");
    assert!(notes.iter().any(|note| note.as_str().unwrap().starts_with("prepared: ")), "{notes:?}");
    // However it ends.
    let failed = curl(&node, "POST", "actions/pipeline?blocking=true", &json!({ "fails": true }));
    assert_eq!((&failed["response"]["success"], left(&node).as_str()), (&json!(false), ""), "{failed}");
}
