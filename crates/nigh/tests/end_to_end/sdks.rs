//! The SDKs against a whole node: handlers really run, and each S3 SDK does every operation of `tests/sdk/README.md`.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::platform::{Node, python};
use crate::skipped::skip;

/// The exit status with which `run.sh` says that an SDK is not on this machine.
const NOT_HERE: i32 = 77;

fn script(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/sdk").join(name)
}

/// Runs a script that prints a line a check.
pub(crate) fn passes(node: &Node, program: &Path, name: &str) {
    let output = Command::new(program)
        .arg(script(name))
        .envs(node.sdk_environment())
        .env("NIGH_SDK_REAL", "1")
        .env("NIGH_SDK_RUNTIME", node.python_runtime())
        .env("SYNCHRONIZERS", "aws rclone s3cmd")
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{name}:\n{text}\n{}", String::from_utf8_lossy(&output.stderr));
    assert!(text.lines().filter(|line| line.starts_with("ok ")).count() > 5, "{text}");
}

/// The operations that the list of all SDKs names.
fn operations() -> BTreeSet<String> {
    let list = fs::read_to_string(script("README.md")).unwrap();
    let named = list.lines().filter_map(|line| Some(line.strip_prefix("| `")?.split_once('`')?.0.to_owned()));
    let named: BTreeSet<_> = named.collect();
    assert!(named.len() >= 20, "the list is not found: {named:?}");
    named
}

/// The SDK does every operation but the absent ones; false if it is not on this machine, which is said.
fn does_every_operation(test: &str, node: &Node, sdk: &str, absent: &[&str]) -> bool {
    let output = Command::new(script("run.sh")).arg(sdk).envs(node.sdk_environment()).output().unwrap();
    let (said, why) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    if output.status.code() == Some(NOT_HERE) {
        skip(test, why.trim());
        return false;
    }
    assert!(output.status.success(), "{sdk}: {}\n{said}\n{why}", output.status);
    let expected: BTreeSet<_> = operations().into_iter().filter(|one| !absent.contains(&one.as_str())).collect();
    let done: BTreeSet<_> = said
        .lines()
        .filter_map(|line| line.strip_prefix("ok ")?.split(": ").next())
        .flat_map(|named| named.split(", "))
        .map(str::to_owned)
        .collect();
    let left_out: Vec<_> = expected.difference(&done).collect();
    assert!(left_out.is_empty(), "{sdk} leaves out {left_out:?}:\n{said}");
    true
}

/// The same on a node of its own.
fn drives_a_whole_node(test: &str, sdk: &str) {
    let Some(python) = python(test) else { return };
    does_every_operation(test, &Node::start(&python), sdk, &[]);
}

#[test]
fn boto3_drives_a_whole_node() {
    let test = "boto3_drives_a_whole_node";
    let Some(python) = python(test) else { return };
    let node = Node::start(&python);
    assert!(does_every_operation(test, &node, "boto3", &[]));
    passes(&node, &python, "boto3_lambda.py");
}

#[test]
fn aws_cli_drives_a_whole_node() {
    let test = "aws_cli_drives_a_whole_node";
    let Some(python) = python(test) else { return };
    let node = Node::start(&python);
    if does_every_operation(test, &node, "aws-cli", &["presigned-put"]) {
        passes(&node, Path::new("bash"), "aws_cli_lambda.sh");
        passes(&node, Path::new("bash"), "aws_cli_scheduler.sh");
    }
}

#[test]
fn synchronizers_find_what_has_changed_whatever_entity_tags_a_bucket_has() {
    let test = "synchronizers_find_what_has_changed_whatever_entity_tags_a_bucket_has";
    let Some(python) = python(test) else { return };
    let here = |program: &&str| Command::new(program).arg("--version").output().is_ok_and(|said| said.status.success());
    let found: Vec<&str> = ["aws", "rclone", "s3cmd"].into_iter().filter(here).collect();
    if found.len() < 3 {
        return skip(test, format!("of aws, rclone and s3cmd only {found:?} are in PATH"));
    }
    let node = Node::start(&python);
    for tags in ["md5", "composite"] {
        let bucket = format!("nigh://sync-{tags}");
        node.ok(["objects", "mb", &bucket]);
        node.ok(["objects", "policy", &bucket, "--etag", tags]);
    }
    passes(&node, Path::new("bash"), "synchronizers.sh");
}

#[test]
fn s3fs_drives_a_whole_node() {
    drives_a_whole_node("s3fs_drives_a_whole_node", "s3fs");
}

#[test]
fn the_javascript_sdk_drives_a_whole_node() {
    drives_a_whole_node("the_javascript_sdk_drives_a_whole_node", "client-s3");
}

#[test]
fn the_go_sdk_drives_a_whole_node() {
    drives_a_whole_node("the_go_sdk_drives_a_whole_node", "aws-sdk-go-v2");
}

#[test]
fn minio_go_drives_a_whole_node() {
    drives_a_whole_node("minio_go_drives_a_whole_node", "minio-go");
}

#[test]
fn the_java_sdk_drives_a_whole_node() {
    drives_a_whole_node("the_java_sdk_drives_a_whole_node", "java");
}

#[test]
fn the_rust_sdk_drives_a_whole_node() {
    drives_a_whole_node("the_rust_sdk_drives_a_whole_node", "rust");
}
