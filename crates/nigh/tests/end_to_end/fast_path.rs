//! boto3 without HTTP, against a whole node: outside by the node's own socket, and in sandboxes, where nothing but the
//! environment tells a function's boto3 of it.

use std::path::Path;
use std::process::{Command, Output};

use serde_json::{Value, json};

use crate::isolation::engines;
use crate::platform::{Node, python, wait_for};
use crate::programs::build_programs;
use crate::skipped::skip;

/// A handler that knows nothing of Nigh but what it asks the hook at the end.
const HANDLER: &str = r#"
import os
import sys
import boto3

s3 = boto3.client("s3")
BODY = bytes(range(256)) * 1024

def handler(event, context):
    put = s3.put_object(Bucket="data", Key="k", Body=BODY, Metadata={"a": "b"})
    got = s3.get_object(Bucket="data", Key="k")
    right = got["Body"].read() == BODY and got["Metadata"] == {"a": "b"} and got["ETag"] == put["ETag"]
    head = s3.head_object(Bucket="data", Key="k")
    right = right and head["ContentLength"] == len(BODY)
    try:
        s3.get_object(Bucket="data", Key="none")
        right = False
    except s3.exceptions.NoSuchKey:
        pass
    said = {"right": right, "address": os.environ.get("NIGH_FAST_PATH")}
    try:
        import nigh.hook
    except ImportError:
        return said
    with nigh.Client().create("data", "made", 100_000) as draft:
        draft.memory[:5] = b"12345"
        draft.commit()
    view = s3.get_object(Bucket="data", Key="made")["Body"].view()
    said["right"] = right and view[:6] == b"12345\0" and type(view.obj).__name__ in ("mmap", "Mapping")
    said["native"] = nigh.native.module is not None or sys.version_info < (3, 11)
    return {**said, **nigh.hook.counters()}
"#;
/// Holds views of objects until one does not come as a view any more; lets go of all.
const HOLDER: &str = r#"
import boto3

s3 = boto3.client("s3")
views = []

def handler(event, context):
    if event == "let go":
        views.clear()
        return {}
    for number in range(64):
        view = s3.get_object(Bucket="data", Key=str(number % event["objects"]))["Body"].view()
        if type(view.obj).__name__ not in ("mmap", "Mapping"):
            return {"views": len(views), "right": len(view) == event["bytes"]}
        if number >= event["objects"]:
            return {"views": len(views), "right": False}
        views.append(view)
"#;
/// The exit status with which a program says that what it tests is not on this machine.
const NOT_HERE: i32 = 77;
/// How many sandboxes may be started until one was prewarmed.
const STARTS_MAX: usize = 40;

/// Runs a program of the package's tests against `node`, by the node's own socket. `native` is the client's native module,
/// or `off`.
fn by_package(node: &Node, python: &Path, module: &str, native: &str) -> (Output, String) {
    let package = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../runtimes/python");
    let output = Command::new(python)
        .args(["-m", module])
        .current_dir(package)
        .envs(node.sdk_environment())
        .env("NIGH_FAST_PATH", node.endpoints()["fast_socket"].as_str().unwrap())
        .env("NIGH_NATIVE", native)
        .output()
        .unwrap();
    let said = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    (output, said)
}

fn checks(said: &str) -> usize {
    said.lines().filter(|line| line.starts_with("ok ")).count()
}

#[test]
fn every_result_of_boto3_is_the_same_by_the_fast_path_as_over_http() {
    let Some(python) = python("every_result_of_boto3_is_the_same_by_the_fast_path_as_over_http") else { return };
    let native = build_programs().join("libnigh_native.so");
    for (client, native) in [("native", native.to_str().unwrap()), ("Python", "off")] {
        let (output, said) = by_package(&Node::start(&python), &python, "tests.parity", native);
        assert!(output.status.success(), "{said}");
        assert!(said.contains(&format!("client: {client}\n")), "{said}");
        assert!(checks(&said) > 200, "{said}");
    }
}

#[test]
fn aiobotocore_beside_the_hook_goes_over_http_and_is_counted() {
    let test = "aiobotocore_beside_the_hook_goes_over_http_and_is_counted";
    let Some(python) = python(test) else { return };
    let aio = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.deps/s3fs/bin/python");
    if !aio.exists() {
        return skip(test, format_args!("{} is missing; scripts/install-test-tools.sh installs it", aio.display()));
    }
    let (output, said) = by_package(&Node::start(&python), &aio, "tests.aio", "off");
    if output.status.code() == Some(NOT_HERE) {
        return skip(test, said.trim());
    }
    assert!(output.status.success(), "{said}");
    assert_eq!(checks(&said), 12, "{said}");
}

/// What the handler says in a sandbox of its own, and how that was started.
fn says(node: &Node, name: &str) -> (Value, String) {
    node.deploy_code(name, HANDLER, "256MiB");
    let said = node.json(["invoke", name, "{}"])["payload"].clone();
    let start = node.last_activation()["sandbox_start"].as_str().unwrap().to_owned();
    (said, start)
}

/// How many prewarmed sandboxes wait for a function.
fn stems_ready(node: &Node) -> u64 {
    let status = node.json(["status"]);
    status["stems"].as_array().unwrap().iter().map(|stems| stems["ready"].as_u64().unwrap()).sum()
}

#[test]
fn a_function_s_boto3_goes_the_fast_way_under_each_engine_prewarmed_or_not() {
    let test = "a_function_s_boto3_goes_the_fast_way_under_each_engine_prewarmed_or_not";
    let Some(python) = python(test) else { return };
    let expected = json!({ "GetObject": 3, "HeadObject": 1, "PutObject": 1 });
    for engine in engines(test) {
        let node = Node::start_with(&python, &["--set", engine]);
        node.ok(["objects", "mb", "nigh://data"]);
        let mut seen: Vec<String> = Vec::new();
        for number in 0..STARTS_MAX {
            if number > 0 {
                wait_for("a prewarmed sandbox", || stems_ready(&node) > 0);
            }
            let (said, start) = says(&node, &format!("function-{number}"));
            if said["address"].is_null() {
                skip(test, "sandboxes have no network of their own here");
                return;
            }
            assert_eq!((&said["right"], &said["fast"], &said["http"]), (&json!(true), &expected, &json!({})), "{said}");
            assert_eq!(said["native"], json!(true), "{said}");
            seen.push(start);
            if seen.iter().any(|one| one == "prewarmed") && seen.iter().any(|one| one != "prewarmed") {
                break;
            }
        }
        assert!(seen.iter().any(|one| one == "prewarmed"), "{engine}: {seen:?}");
    }
}

#[test]
fn where_the_fast_path_is_off_boto3_uses_http_and_finds_the_same() {
    let Some(python) = python("where_the_fast_path_is_off_boto3_uses_http_and_finds_the_same") else { return };
    for setting in ["functions.fast_path=off", "s3.fast_path=off"] {
        let node = Node::start_with(&python, &["--set", setting]);
        node.ok(["objects", "mb", "nigh://data"]);
        let (said, _) = says(&node, "function");
        assert_eq!((&said["right"], said.get("fast")), (&json!(true), None), "{setting}: {said}");
    }
}

/// The limits of the node's sandboxes, as the kernel has them; those that wait for a function have one too.
fn limits(node: &Node, booked: u64) -> Vec<u64> {
    let files = ["memory.limit_in_bytes", "memory.high"];
    let groups = node.sandbox_groups();
    let read = groups.iter().flat_map(|group| files.map(|file| std::fs::read_to_string(group.join(file)).ok()));
    read.flatten().filter_map(|text| text.trim().parse().ok()).filter(|&limit| limit <= booked).collect()
}

#[test]
fn what_a_sandbox_holds_is_taken_off_its_limit_and_with_what_it_uses_is_no_more_than_it_booked() {
    let test = "what_a_sandbox_holds_is_taken_off_its_limit_and_with_what_it_uses_is_no_more_than_it_booked";
    const EACH: u64 = 8 << 20;
    const BOOKED: u64 = 128 << 20;
    let Some(python) = python(test) else { return };
    // The cap is above all that is booked; without grants an idle sandbox keeps the limit that it booked.
    let flags = ["--set", "cache.held_max=1 GiB", "--set", "functions.prewarm=off", "--set", "memory.grants=off"];
    let node = Node::start_with(&python, &flags);
    node.ok(["objects", "mb", "nigh://data"]);
    let bytes = node.state.join("bytes");
    std::fs::write(&bytes, vec![7; EACH as usize]).unwrap();
    for number in 0..14 {
        node.ok(["objects", "cp", bytes.to_str().unwrap(), &format!("nigh://data/{number}")]);
    }
    node.deploy_code("holder", HOLDER, "128MiB");
    let event = json!({ "objects": 14, "bytes": EACH }).to_string();
    let said = node.json(["invoke", "holder", &event])["payload"].clone();
    let held = said["views"].as_u64().unwrap() * EACH;
    let status = node.json(["status"])["fast_path"].clone();
    if limits(&node, BOOKED).is_empty() {
        skip(test, "sandboxes have no memory limits here");
        return;
    }
    assert_eq!(said["right"], json!(true), "{said}");
    assert!((3 * EACH..=BOOKED * 7 / 8).contains(&held), "{said}");
    assert_eq!((&status["held"], &status["over"]), (&json!(held), &json!(1)), "{status}");
    let now = limits(&node, BOOKED);
    assert!(now.contains(&(BOOKED - held)), "{held} of {BOOKED} are held: {now:?}");
    node.ok(["invoke", "holder", "\"let go\""]);
    wait_for("what was let go to be the sandbox's again", || limits(&node, BOOKED).contains(&BOOKED));
    assert_eq!(node.json(["status"])["fast_path"]["held"], json!(0));
    let again = node.json(["invoke", "holder", &event])["payload"]["views"].as_u64().unwrap();
    assert!(again >= 3, "{again}");
}
