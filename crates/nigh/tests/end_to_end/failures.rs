//! What a user sees of a function that fails: the function's own error first, its place, and what to do. By real runtimes.

use std::fs::Permissions;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Output;

use serde_json::{Value, json};

use crate::platform::{Node, python, quiet, wait_for};
use crate::skipped::skip;

/// Fails in the standard library, three calls deep.
const RAISES: &str = r#"
import json

def handler(event, context):
    print("mine: before")
    return outer(event)

def outer(event):
    return inner(event["x"])

def inner(x):
    return json.loads(x)
"#;

/// Sends the half of an object, and waits.
const SENDS_HALF: &str = r#"
import http.client, os, time, urllib.parse
import boto3
from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest

session = boto3.Session()

def handler(event, context):
    endpoint = os.environ["AWS_ENDPOINT_URL_S3"]
    request = AWSRequest("PUT", endpoint + "/data/half", data=b"half whole")
    S3SigV4Auth(session.get_credentials(), "s3", session.region_name).add_auth(request)
    connection = http.client.HTTPConnection(urllib.parse.urlsplit(endpoint).netloc)
    connection.putrequest("PUT", "/data/half", skip_accept_encoding=True)
    for name, value in request.headers.items():
        connection.putheader(name, value)
    connection.putheader("Content-Length", "10")
    connection.endheaders()
    connection.send(b"half ")
    time.sleep(60)
"#;

/// What an invocation that fails prints on standard error; and on standard output the error object.
fn fails(node: &Node, words: &[&str]) -> (String, Value) {
    let output = node.nigh([&["invoke"][..], words].concat());
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    (String::from_utf8(output.stderr).unwrap(), serde_json::from_slice(&output.stdout).unwrap())
}

/// All lines as one, so that it does not matter where they are broken.
fn flat(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Runs a program of boto3 beside the node.
fn boto3(node: &Node, python: &Path, program: &str) {
    let ran = quiet(python).args(["-c", program]).envs(node.sdk_environment()).output().unwrap();
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
}

#[test]
fn an_exception_is_told_by_its_line_and_the_users_own_frames() {
    let Some(python) = python("an_exception_is_told_by_its_line_and_the_users_own_frames") else { return };
    let node = Node::start(&python);
    node.deploy_code("raises", RAISES, "256MiB");
    let (words, error) = fails(&node, &["raises", r#"{"x": "{"}"#]);
    assert_eq!(error["errorType"], "JSONDecodeError");
    assert!(words.starts_with("app.py:12: JSONDecodeError: Expecting property name"), "{words}");
    for frame in ["app.py:12 in inner", "app.py:9 in outer", "app.py:6 in handler", "return inner(event[\"x\"])"] {
        assert!(words.contains(frame), "{words}");
    }
    assert!(words.contains("mine: before") && !words.contains("json/decoder.py"), "{words}");
    assert!(words.contains("nigh logs raises --id"), "{words}");
    let (all, _) = fails(&node, &["raises", r#"{"x": "{"}"#, "--verbose"]);
    assert!(all.contains("json/decoder.py") && all.contains("REPORT RequestId"), "{all}");

    // The last one, without an id, by its beginning, and as the only row of a list.
    let id = node.last_activation()["id"].as_str().unwrap().to_owned();
    for words in [node.ok(["explain"]), node.ok(["explain", &id[..30]]), node.ok(["activations", "--last"])] {
        assert!(words.contains(&id) && words.contains("app.py:12: JSONDecodeError"), "{words}");
    }
    assert!(node.ok(["logs", "raises", "--id", &id[..30]]).contains(&id));
    let several = node.nigh(["explain", &id[..4]]);
    let several = String::from_utf8(several.stderr).unwrap();
    assert!(several.contains("several ids begin with") && several.contains(&id), "{several}");
    let none = node.nigh(["explain", "ffffffff"]);
    assert!(String::from_utf8_lossy(&none.stderr).contains("no invocation's id begins with ffffffff"), "{none:?}");
    assert_eq!(node.nigh(["explain", "nonsense"]).status.code(), Some(2));
    assert_eq!(node.json(["activations", "--last"]).as_array().unwrap().len(), 1);
}

#[test]
fn code_that_does_not_load_is_told_with_what_mends_it_and_without_words_of_the_runtime_client() {
    let test = "code_that_does_not_load_is_told_with_what_mends_it_and_without_words_of_the_runtime_client";
    let Some(python) = python(test) else { return };
    let node = Node::start(&python);
    node.deploy_code("syntax", "def handler(event, context):\n    return 1\n\nx = = 2\n", "256MiB");
    let (words, _) = fails(&node, &["syntax"]);
    assert!(words.starts_with("app.py:4: syntax error: invalid syntax\n") && words.contains("x = = 2"), "{words}");

    let lacking = "import humanize_is_not_here\n\ndef handler(event, context):\n    return 1\n";
    node.deploy_code("lacking", lacking, "256MiB");
    let (words, _) = fails(&node, &["lacking"]);
    assert!(words.starts_with("Unable to import module 'app': No module named 'humanize_is_not_here'"), "{words}");
    assert!(flat(&words).contains("add the line `humanize_is_not_here` to requirements.txt"), "{words}");

    node.deploy_code("misnamed", "def handler(event, context):\n    return 1\n", "256MiB");
    let rename = "import boto3; boto3.client('lambda').update_function_configuration(FunctionName='misnamed', \
                  Handler='app.handel')";
    boto3(&node, &python, rename);
    let (words, _) = fails(&node, &["misnamed"]);
    assert!(words.starts_with("Handler 'handel' missing on module 'app' (Runtime.HandlerNotFound)"), "{words}");
    let meant = "help: did you mean app.handler? `nigh deploy misnamed --handler app.handler`";
    assert!(flat(&words).contains(meant), "{words}");

    for name in ["syntax", "lacking", "misnamed"] {
        let log = node.ok(["logs", name]);
        assert!(log.contains("[ERROR]"), "the error itself is in the log: {log}");
        for foreign in ["LAMBDA_WARNING", "lambda_runtime_client", "RemoteDisconnected"] {
            assert!(!log.contains(foreign), "{log}");
        }
    }
}

#[test]
fn a_missing_bucket_is_named_with_the_command_that_makes_it() {
    let Some(python) = python("a_missing_bucket_is_named_with_the_command_that_makes_it") else { return };
    let node = Node::start(&python);
    node.deploy("reverse");
    let (words, _) = fails(&node, &["reverse", r#"{"read": "in"}"#]);
    assert!(words.starts_with("app.py:") && words.contains("NoSuchBucket"), "{words}");
    let help = "help: the namespace default has no bucket data; make it: `nigh objects mb nigh://data`";
    assert!(flat(&words).contains(help), "{words}");
    node.ok(["objects", "mb", "nigh://data"]);
    let (words, _) = fails(&node, &["reverse", r#"{"read": "in/a"}"#]);
    assert!(
        flat(&words).contains("there is no object in/a in data; what is there: `nigh objects ls nigh://data/in/`"),
        "{words}"
    );
}

#[test]
fn a_time_out_names_the_data_call_that_the_handler_waited_for() {
    let Some(python) = python("a_time_out_names_the_data_call_that_the_handler_waited_for") else { return };
    let node = Node::start(&python);
    node.ok(["objects", "mb", "nigh://data"]);
    node.deploy_code("half", SENDS_HALF, "256MiB");
    node.ok(["deploy", "half", "--timeout", "5s"]);
    let (words, error) = fails(&node, &["half"]);
    assert_eq!(error["errorType"], "Sandbox.Timedout");
    assert!(words.starts_with("half timed out after 5.00 s\n"), "{words}");
    assert!(words.contains("it waited for the write of data/half: not finished after"), "{words}");
    assert!(flat(&words).contains("`nigh deploy half --timeout 10s`"), "{words}");
    let record = &node.json(["explain"])["activation"];
    assert_eq!(record["exceeded"], json!({ "setting": "timeout", "limit_us": 5_000_000 }));
    let call = record["data_calls"].as_array().unwrap().last().unwrap();
    assert_eq!((&call["key"], &call["under_way"]), (&json!("half"), &json!("write")), "{record}");
}

#[test]
fn a_lack_of_memory_is_told_with_the_booking_and_a_size_that_may_do() {
    let test = "a_lack_of_memory_is_told_with_the_booking_and_a_size_that_may_do";
    let Some(python) = python(test) else { return };
    let node = Node::start(&python);
    let hoards = "def handler(event, context):\n    return len(bytearray(b'x' * (event['mib'] << 20)))\n";
    node.deploy_code("hoards", hoards, "128MiB");
    node.ok(["invoke", "hoards", r#"{"mib": 1}"#]);
    if node.last_activation()["peak_memory"].is_null() {
        return skip(test, "memory is not controlled here");
    }
    let (words, error) = fails(&node, &["hoards", r#"{"mib": 400}"#]);
    assert_eq!(error["errorType"], "Runtime.OutOfMemory");
    assert!(words.starts_with("hoards ran out of memory: it needed more than the 128 MiB that it booked\n"), "{words}");
    let words = flat(&words);
    assert!(words.contains("128 MiB booked (its setting `memory`)"), "{words}");
    assert!(words.contains("help: book more: `nigh deploy hoards --memory 256MiB`"), "{words}");
}

#[test]
fn a_program_of_ones_own_that_ends_is_told_with_what_it_printed() {
    let Some(python) = python("a_program_of_ones_own_that_ends_is_told_with_what_it_printed") else { return };
    let node = Node::start(&python);
    let code = node.state.with_file_name("shell");
    std::fs::create_dir_all(&code).unwrap();
    std::fs::write(code.join("bootstrap"), "#!/bin/sh\necho from the shell\nexit 3\n").unwrap();
    std::fs::set_permissions(code.join("bootstrap"), Permissions::from_mode(0o755)).unwrap();
    node.ok(["deploy", "shell", "--folder", code.to_str().unwrap(), "--runtime", "provided.al2023"]);
    let (words, error) = fails(&node, &["shell"]);
    assert_eq!(error["errorType"], "Runtime.ExitError");
    assert!(words.contains("exit status 3") && words.contains("    from the shell"), "{words}");
}

#[test]
fn an_event_is_read_from_a_file_and_invoked_again_when_it_or_the_function_changes() {
    let test = "an_event_is_read_from_a_file_and_invoked_again_when_it_or_the_function_changes";
    let Some(python) = python(test) else { return };
    let node = Node::start(&python);
    node.deploy("echo");
    let event = node.state.with_file_name("event.json");
    let write = |text: &str| {
        // As an editor saves: the file is whole at every moment.
        let new = event.with_extension("new");
        std::fs::write(&new, text).unwrap();
        std::fs::rename(&new, &event).unwrap();
    };
    write(r#"{"n": 1}"#);
    let path = event.to_str().unwrap();
    assert_eq!(node.json(["invoke", "echo", "-f", path])["payload"], json!({ "echo": { "n": 1 } }));
    let mut watching = node.begin(["invoke", "echo", "-f", path, "--watch"]);
    let mut lines = BufReader::new(watching.stdout.take().unwrap()).lines();
    let mut until = |expected: Value| {
        let is_it = |line: String| serde_json::from_str::<Value>(&line).unwrap() == expected;
        assert!(lines.by_ref().any(|line| is_it(line.unwrap())), "{expected}");
    };
    until(json!({ "echo": { "n": 1 } }));
    write(r#"{"n": 22}"#);
    until(json!({ "echo": { "n": 22 } }));
    node.deploy_code("echo", "def handler(event, context):\n    return {'new': event}\n", "256MiB");
    until(json!({ "new": { "n": 22 } }));
    watching.kill().unwrap();
    watching.wait().unwrap();
    let refused = node.nigh(["invoke", "echo", "-", "--watch"]);
    assert_eq!(refused.status.code(), Some(2), "{refused:?}");
}

#[test]
fn an_event_that_waits_for_another_attempt_says_what_went_wrong() {
    let Some(python) = python("an_event_that_waits_for_another_attempt_says_what_went_wrong") else { return };
    let node = Node::start_with(&python, &["--set", "events.retry_wait=1 h"]);
    node.deploy("worker");
    node.ok(["invoke", "worker", r#"{"raise": "asked to"}"#, "--event"]);
    let listed = || node.json(["events", "list"])["events"][0].clone();
    wait_for("the first attempt to fail", || listed()["last_error"].is_string());
    let event = listed();
    assert_eq!((&event["state"], &event["attempts"]), (&json!("waiting"), &json!(1)), "{event}");
    assert_eq!((&event["last_error"], &event["reason"]), (&json!("ValueError: asked to"), &Value::Null));
    let printed = node.nigh(["events", "list"]);
    assert!(String::from_utf8_lossy(&printed.stdout).contains("ValueError: asked to"), "{printed:?}");
    let counts = |printed: &Output| String::from_utf8_lossy(&printed.stderr).into_owned();
    assert_eq!(counts(&printed), "1 waiting or running, 0 dead letters\n");
    // What is not listed is not counted.
    let dead = node.nigh(["events", "list", "--dead"]);
    assert!(!String::from_utf8_lossy(&dead.stdout).contains("worker"), "{dead:?}");
    assert_eq!(counts(&dead), "0 dead letters\n");
    let of = |function: &str| node.json(["events", "list", "--function", function])["events"].clone();
    assert_eq!((of("worker").as_array().unwrap().len(), of("other")), (1, json!([])));
    node.ok(["events", "drop", event["id"].as_str().unwrap()]);
}

#[test]
fn the_last_lines_and_the_newest_logs_are_printed_alone() {
    let Some(python) = python("the_last_lines_and_the_newest_logs_are_printed_alone") else { return };
    let node = Node::start(&python);
    node.deploy_code(
        "talks",
        "def handler(event, context):\n    for n in range(30):\n        print('line', n)\n",
        "256MiB",
    );
    node.ok(["invoke", "talks"]);
    node.ok(["invoke", "talks"]);
    let last = node.ok(["logs", "talks", "--tail", "4"]);
    assert!(last.contains("line 29") && last.contains("REPORT") && !last.contains("line 27"), "{last}");
    assert_eq!(last.matches("REPORT").count(), 1, "{last}");
    assert_eq!(node.ok(["logs", "talks", "--since", "1h"]).matches("line 29").count(), 2);
    assert_eq!(node.ok(["logs", "talks", "--limit", "1"]).matches("line 29").count(), 1);
}
