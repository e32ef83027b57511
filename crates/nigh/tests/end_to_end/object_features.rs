//! What is known of an object's data: put by boto3, seen by the command.

use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use crate::platform::{Node, lives, python, wait_for};

/// Puts what `body` gives, a Python expression, where `PNG` makes a picture of so many pixels.
const PUT: &str = r#"
import struct, sys, zlib
import boto3

def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

def png(width, height, pad=0):
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    rows = zlib.compress(b"".join(b"\0" + bytes(3 * width) for _ in range(height)))
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", rows) + chunk(b"zzZz", bytes(pad))
            + chunk(b"IEND", b""))

s3 = boto3.client("s3")
"#;

fn boto3(node: &Node, python: &Path, what: &str) {
    let script = format!("{PUT}{what}\n");
    let output = Command::new(python).args(["-c", &script]).envs(node.sdk_environment()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

fn features(node: &Node, address: &str) -> Value {
    node.json(["objects", "features", address])["features"].clone()
}

#[test]
fn the_features_of_a_picture_that_boto3_puts_are_seen_by_the_command_also_after_a_kill() {
    let test = "the_features_of_a_picture_that_boto3_puts_are_seen_by_the_command_also_after_a_kill";
    let Some(python) = python(test) else { return };
    let mut node = Node::start(&python);
    boto3(
        &node,
        &python,
        "s3.create_bucket(Bucket='data')\ns3.put_object(Bucket='data', Key='a b/ä.png', Body=png(64, 48))",
    );
    let address = "nigh://data/a b/ä.png";
    wait_for("a look at it", || features(&node, address)["in_width"] == 64.0);
    let known = features(&node, address);
    assert_eq!(
        (&known["in_height"], &known["in_channels"], &known["in_format"]),
        (&json!(48.0), &json!(3.0), &json!("png"))
    );
    let shown = node.ok(["objects", "features", address]);
    assert!(shown.contains("in_width") && shown.contains("64"), "{shown}");
    // The tenant's own metadata is as it was.
    boto3(&node, &python, "assert s3.head_object(Bucket='data', Key='a b/ä.png')['Metadata'] == {}");
    let status = node.json(["status"]);
    assert_eq!((&status["features"]["failed"], &status["features"]["objects"]), (&json!(0), &json!(1)), "{status}");
    let level = status["levels"].as_array().unwrap().iter().find(|level| level["name"] == "features").unwrap().clone();
    assert_eq!(level["on"], true, "{level}");

    boto3(&node, &python, "s3.put_object(Bucket='data', Key='a b/ä.png', Body=png(32, 16))");
    wait_for("a look at the new version", || features(&node, address)["in_width"] == 32.0);
    wait_for("its features to be stored", || node.json(["status"])["features"]["unstored"] == 0);
    let parsers = parser_processes(node.process_id());
    assert!(!parsers.is_empty());
    node.kill();
    wait_for("the parsers to end with the node", || parsers.iter().all(|parser| !lives(*parser)));
    node.restart();
    assert_eq!(features(&node, address)["in_width"], 32.0);
    boto3(&node, &python, "s3.delete_object(Bucket='data', Key='a b/ä.png')");
    assert_eq!(node.json(["objects", "features", address])["version"], Value::Null);
}

/// The processes `nigh-features` of a node.
fn parser_processes(node: u32) -> Vec<i32> {
    let all = std::fs::read_dir("/proc").unwrap().flatten();
    let pids = all.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    pids.filter(|pid| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let parent = stat.rsplit_once(") ").and_then(|(_, rest)| rest.split(' ').nth(1)?.parse::<u32>().ok());
        stat.contains("(nigh-features)") && parent == Some(node)
    })
    .collect()
}

#[test]
fn an_object_too_large_for_memory_is_looked_at_before_its_own_trigger_runs() {
    let test = "an_object_too_large_for_memory_is_looked_at_before_its_own_trigger_runs";
    let Some(python) = python(test) else { return };
    let node = Node::start_with(&python, &["--set", "cache.object_max=64 KiB"]);
    node.deploy("told");
    boto3(
        &node,
        &python,
        "
for bucket in ('plain', 'watched'):
    s3.create_bucket(Bucket=bucket)
s3.put_bucket_notification_configuration(Bucket='watched', NotificationConfiguration={
    'LambdaFunctionConfigurations': [{'Events': ['s3:ObjectCreated:*'],
        'LambdaFunctionArn': 'arn:aws:lambda:us-east-1:000000000000:function:told'}]})
for bucket in ('plain', 'watched'):
    s3.put_object(Bucket=bucket, Key='large +.png', Body=png(40, 30, pad=200_000))",
    );
    wait_for("the trigger's invocation", || {
        node.json(["activations", "--limit", "10"]).as_array().unwrap().iter().any(|one| one["function"] == "told")
    });
    // It waits for 20 ms; on a busy machine the look ends later.
    wait_for("a look at it", || features(&node, "nigh://watched/large +.png")["in_width"] == 40.0);
    assert_eq!(node.json(["objects", "features", "nigh://plain/large +.png"])["version"], Value::Null);
    let asked = node.json(["objects", "features", "nigh://plain/large +.png", "--look"]);
    assert_eq!(asked["features"]["in_width"], 40.0, "{asked}");
}

#[test]
fn where_headers_are_not_looked_at_it_is_said_and_nothing_is_known() {
    let Some(python) = python("where_headers_are_not_looked_at_it_is_said_and_nothing_is_known") else { return };
    let node = Node::start_with(&python, &["--set", "memory.features=off"]);
    boto3(
        &node,
        &python,
        "s3.create_bucket(Bucket='data')\ns3.put_object(Bucket='data', Key='a.png', Body=png(64, 48))",
    );
    let status = node.json(["status"]);
    let level = status["levels"].as_array().unwrap().iter().find(|level| level["name"] == "features").unwrap().clone();
    assert_eq!((&level["on"], &status["features"]), (&json!(false), &Value::Null));
    assert!(level["detail"].as_str().unwrap().contains("memory.features is off"), "{level}");
    assert_eq!(node.json(["objects", "features", "nigh://data/a.png"])["version"], Value::Null);
}
