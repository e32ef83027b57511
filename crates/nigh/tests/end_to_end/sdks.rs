//! The SDK scripts of both doors against a whole node: handlers really run.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::platform::{Node, python};

fn script(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/sdk").join(name)
}

/// Runs a script that prints a line a check.
fn passes(node: &Node, program: &Path, name: &str) {
    let output = Command::new(program)
        .arg(script(name))
        .envs(node.sdk_environment())
        .env("NIGH_SDK_REAL", "1")
        .env("NIGH_SDK_RUNTIME", node.python_runtime())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{name}:\n{text}\n{}", String::from_utf8_lossy(&output.stderr));
    assert!(text.lines().filter(|line| line.starts_with("ok ")).count() > 5, "{text}");
}

#[test]
fn boto3_drives_a_whole_node() {
    let Some(python) = python("boto3_drives_a_whole_node") else { return };
    let node = Node::start(&python);
    passes(&node, &python, "boto3_s3.py");
    passes(&node, &python, "boto3_lambda.py");
}

#[test]
fn aws_cli_drives_a_whole_node() {
    let Some(python) = python("aws_cli_drives_a_whole_node") else { return };
    if !Command::new("aws").arg("--version").output().is_ok_and(|output| output.status.success()) {
        println!("SKIPPED: aws_cli_drives_a_whole_node: aws-cli is not installed");
        return;
    }
    let node = Node::start(&python);
    passes(&node, Path::new("bash"), "aws_cli_s3.sh");
    passes(&node, Path::new("bash"), "aws_cli_lambda.sh");
}
