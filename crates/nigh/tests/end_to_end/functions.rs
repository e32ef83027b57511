//! An unmodified function runs, and its record says where its time went.

use std::io::{BufRead, BufReader};

use serde_json::{Value, json};

use crate::platform::{Node, python};

#[test]
fn a_boto3_handler_runs_unmodified_and_its_record_says_where_the_time_went() {
    let Some(python) = python("a_boto3_handler_runs_unmodified_and_its_record_says_where_the_time_went") else {
        return;
    };
    let mut node = Node::start(&python);
    let input = node.state.with_file_name("input");
    std::fs::write(&input, vec![7u8; 100_000]).unwrap();
    node.ok(["objects", "mb", "nigh://data"]);
    node.ok(["objects", "cp", input.to_str().unwrap(), "nigh://data/in"]);
    node.deploy("reverse");
    // With an empty cache: the first read is of the store.
    node.terminate();
    assert_eq!(node.exit_code(), Some(0));
    node.restart();

    assert_eq!(node.json(["invoke", "reverse", r#"{"read": "in"}"#])["payload"], json!({ "bytes": 100_000 }));
    let first = node.last_activation();
    assert_eq!((&first["cold"], &first["hits"], &first["misses"]), (&json!(true), &json!(0), &json!(1)), "{first}");
    node.json(["invoke", "reverse", r#"{"read": "in"}"#]);
    let second = node.last_activation();
    assert_eq!(
        (&second["cold"], &second["hits"], &second["misses"]),
        (&json!(false), &json!(1), &json!(0)),
        "{second}"
    );
    assert_eq!(second["sandbox"], first["sandbox"]);
    assert_eq!(second["init_us"], 0);

    let served: Vec<&str> =
        first["data_calls"].as_array().unwrap().iter().map(|c| c["served"].as_str().unwrap()).collect();
    assert_eq!(served, ["miss", "write"]);
    let phases = |one: &Value, name: &str| one["phases"][name].as_u64().unwrap();
    for one in [&first, &second] {
        let parts = ["extract_us", "transform_us", "load_us"].map(|name| phases(one, name));
        assert!(parts.iter().all(|part| *part > 0), "{one}");
        assert_eq!(parts.iter().sum::<u64>(), one["duration_us"].as_u64().unwrap());
    }
    assert!(first["log"].as_str().unwrap().contains("a line of the log"));

    let id = second["id"].as_str().unwrap();
    let explained = node.json(["explain", id]);
    let kinds: Vec<&str> = explained["steps"].as_array().unwrap().iter().map(|s| s["kind"].as_str().unwrap()).collect();
    assert!(kinds.contains(&"read") && kinds.contains(&"write") && kinds.contains(&"run"), "{kinds:?}");
    assert_eq!(explained["hit_percent"], 100.0);
    let words = node.ok(["explain", id]);
    assert!(words.contains("hit data/in, 97.7 KiB") && words.contains("extract"), "{words}");

    let output = node.state.with_file_name("output");
    node.ok(["objects", "cp", "nigh://data/in.reversed", output.to_str().unwrap()]);
    assert_eq!(std::fs::read(output).unwrap(), vec![7u8; 100_000]);
}

#[test]
fn a_record_says_what_its_invocation_had_seen_and_the_next_begins_with_that() {
    let test = "a_record_says_what_its_invocation_had_seen_and_the_next_begins_with_that";
    let Some(python) = python(test) else { return };
    let mut node = Node::start(&python);
    let input = node.state.with_file_name("input");
    std::fs::write(&input, b"1234").unwrap();
    node.ok(["objects", "mb", "nigh://data"]);
    node.ok(["objects", "cp", input.to_str().unwrap(), "nigh://data/in"]);
    node.deploy("reverse");
    // (epoch, sequence): the newest version seen.
    let seen = |node: &Node| {
        let token = &node.last_activation()["token"]["0"];
        (token["epoch"].as_u64().unwrap(), token["sequence"].as_u64().unwrap())
    };
    node.json(["invoke", "reverse"]);
    let before = seen(&node);
    node.json(["invoke", "reverse", r#"{"read": "in"}"#]);
    let written = seen(&node);
    assert!(written > before, "it has written: {written:?} after {before:?}");
    node.json(["invoke", "reverse"]);
    assert_eq!(seen(&node), written, "it has asked for no data, and begins with what was seen before it");
    node.ok(["objects", "cp", input.to_str().unwrap(), "nigh://data/other"]);
    node.nigh(["invoke", "reverse", r#"{"raise": "asked to"}"#]);
    let outside = seen(&node);
    assert!(outside > written, "a put from outside is handed over; an error is an end too");
    node.terminate();
    assert_eq!(node.exit_code(), Some(0));
    node.restart();
    node.json(["invoke", "reverse"]);
    assert!(seen(&node).0 > outside.0, "the next life's home has the later epoch");
}

#[test]
fn a_failing_function_says_so_by_exit_code_record_and_log() {
    let Some(python) = python("a_failing_function_says_so_by_exit_code_record_and_log") else { return };
    let node = Node::start(&python);
    node.deploy("fails");
    let failed = node.nigh(["--json", "invoke", "fails", r#"{"raise": "asked to"}"#, "--log"]);
    assert_eq!(failed.status.code(), Some(1));
    let reply: Value = serde_json::from_slice(&failed.stdout).unwrap();
    assert_eq!((&reply["function_error"], &reply["payload"]["errorType"]), (&json!("Unhandled"), &json!("ValueError")));
    assert!(reply["log"].as_str().unwrap().contains("a line of the log"), "{reply}");

    node.ok(["invoke", "fails"]);
    let errors = node.json(["activations", "--errors"]);
    assert_eq!(errors.as_array().unwrap().len(), 1);
    assert_eq!(errors[0]["outcome"]["kind"], "handler_error");
    assert_eq!(errors[0]["id"], reply["id"]);
    let plain = node.nigh(["invoke", "fails", r#"{"raise": "again"}"#]);
    let hint = String::from_utf8(plain.stderr).unwrap();
    let id = node.last_activation()["id"].as_str().unwrap().to_owned();
    assert!(hint.contains(&format!("nigh logs fails --id {id}")), "{hint}");
    let one = node.ok(["logs", "fails", "--id", &id]);
    assert!(one.contains("again") && one.matches("START").count() == 1, "{one}");
    assert!(String::from_utf8_lossy(&node.nigh(["invoke", "fails"]).stderr).contains("nigh: invocation "));
    let logs = node.ok(["logs", "fails"]);
    assert_eq!(logs.matches("a line of the log").count(), 4, "{logs}");
    // What cannot be invoked is refused, which is another matter.
    let missing = node.nigh(["invoke", "missing"]);
    assert_eq!(missing.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&missing.stderr).contains("there is no function missing"), "{missing:?}");
}

#[test]
fn logs_are_followed_as_invocations_end() {
    let Some(python) = python("logs_are_followed_as_invocations_end") else { return };
    let node = Node::start(&python);
    node.deploy("talks");
    let before = node.json(["invoke", "talks"])["id"].clone();
    let mut follower = node.begin(["--json", "logs", "talks", "--follow"]);
    let mut lines = BufReader::new(follower.stdout.take().unwrap()).lines();
    let mut next = || serde_json::from_str::<Value>(&lines.next().unwrap().unwrap()).unwrap();
    assert_eq!(next()["id"], before);
    for _ in 0..3 {
        let id = node.json(["invoke", "talks"])["id"].clone();
        let entry = next();
        assert_eq!((&entry["id"], &entry["outcome"]), (&id, &json!("answered")));
        assert!(entry["log"].as_str().unwrap().contains("a line of the log"));
    }
    // It ends with the node, not by an error.
    node.ok(["down"]);
    assert!(follower.wait().unwrap().success());
}

#[test]
fn objects_and_functions_are_listed_copied_and_removed_by_the_command() {
    let Some(python) = python("objects_and_functions_are_listed_copied_and_removed_by_the_command") else { return };
    let node = Node::start(&python);
    let folder = node.state.with_file_name("tree");
    std::fs::create_dir_all(folder.join("a")).unwrap();
    std::fs::write(folder.join("a/one & two.txt"), "1").unwrap();
    std::fs::write(folder.join("ü"), "").unwrap();
    node.ok(["objects", "mb", "nigh://tree"]);
    node.ok(["objects", "cp", "-r", folder.to_str().unwrap(), "nigh://tree/x"]);
    let listed = node.ok(["objects", "ls", "-r", "nigh://tree"]);
    assert!(listed.contains("x/a/one & two.txt") && listed.contains("x/ü"), "{listed}");
    assert_eq!(node.ok(["objects", "cp", "nigh://tree/x/a/one & two.txt", "-"]), "1");
    node.ok(["objects", "cp", "-r", "nigh://tree/x/", "nigh://tree/y"]);
    let back = node.state.with_file_name("back");
    node.ok(["objects", "cp", "-r", "nigh://tree/y/", back.to_str().unwrap()]);
    assert_eq!(std::fs::read(back.join("a/one & two.txt")).unwrap(), b"1");
    assert!(back.join("ü").exists());
    assert_eq!(node.nigh(["objects", "rb", "nigh://tree"]).status.code(), Some(1));
    assert_eq!(node.json(["objects", "rm", "nigh://tree/absent"]), json!({ "missing": "nigh://tree/absent" }));
    assert!(node.ok(["objects", "rm", "nigh://tree/absent"]).contains("there was no"));
    assert_eq!(node.json(["objects", "rm", "nigh://tree/x/ü"]), json!({ "removed": "nigh://tree/x/ü" }));
    node.ok(["objects", "rm", "-r", "nigh://tree/"]);
    node.ok(["objects", "rb", "nigh://tree"]);

    let gone = node.ok(["objects", "ls"]);
    assert!(!gone.contains("tree"), "{gone}");

    node.deploy("f");
    assert_eq!(node.json(["functions", "list"])[0]["FunctionName"], "f");
    node.deploy("f");
    let before = node.json(["functions", "show", "f"]);
    node.ok(["deploy", "f", "--timeout", "7s"]);
    let after = node.json(["functions", "show", "f"]);
    assert_eq!((&after["Timeout"], &after["CodeSha256"]), (&json!(7), &before["CodeSha256"]));
    assert_eq!(after["MemorySize"], before["MemorySize"]);
    let unknown = node.nigh(["deploy", "unknown", "--timeout", "7s"]);
    assert!(String::from_utf8_lossy(&unknown.stderr).contains("--folder or --zip"), "{unknown:?}");
    node.ok(["functions", "rm", "f"]);
    assert_eq!(node.json(["functions", "list"]), json!([]));
}
