//! Events: what was answered 202 runs, whatever happens to the node; what failed for good is shown and can be retried.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::Permissions;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt as _;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::platform::{Node, command, python, wait_for};
use crate::sdks::passes;

/// Waits of milliseconds where Lambda waits minutes.
pub(crate) const QUICK: [&str; 4] = ["--set", "events.retry_wait=100 ms", "--set", "events.back_off=100 ms"];

/// The attempts of each request, as the records have them.
fn attempts(node: &Node) -> BTreeMap<String, Vec<u64>> {
    let mut found: BTreeMap<String, Vec<u64>> = BTreeMap::new();
    for record in node.json(["activations", "--limit", "1000"]).as_array().unwrap() {
        found.entry(record["id"].as_str().unwrap().to_owned()).or_default().push(record["attempt"].as_u64().unwrap());
    }
    found
}

fn later(node: &Node, name: &str, event: &Value) -> String {
    let event = event.to_string();
    node.json(["invoke", name, &event, "--event"])["id"].as_str().unwrap().to_owned()
}

/// Deploys a handler that starts fast and writes nothing.
fn deploy_light(node: &Node, name: &str) {
    let code = node.state.with_file_name("light");
    std::fs::create_dir_all(&code).unwrap();
    let handler =
        "import time\n\ndef handler(event, context):\n    time.sleep(event.get('sleep', 0))\n    return event\n";
    std::fs::write(code.join("app.py"), handler).unwrap();
    let runtime = node.python_runtime();
    let code = code.to_str().unwrap();
    node.ok(["deploy", name, "--folder", code, "--handler", "app.handler", "--runtime", &runtime, "--timeout", "60s"]);
}

fn pending(node: &Node) -> u64 {
    node.json(["events", "list"])["pending"].as_u64().unwrap()
}

#[test]
fn boto3_drives_events_destinations_and_reserved_concurrency() {
    let Some(python) = python("boto3_drives_events_destinations_and_reserved_concurrency") else { return };
    let node = Node::start_with(&python, &QUICK);
    passes(&node, &python, "boto3_events.py");
}

#[test]
fn an_event_that_was_accepted_runs_though_the_node_is_killed_again_and_again() {
    let Some(python) = python("an_event_that_was_accepted_runs_though_the_node_is_killed_again_and_again") else {
        return;
    };
    // One at a time: what waits behind one that sleeps has not run when the node is killed.
    let one_at_a_time: Vec<&str> = QUICK.iter().copied().chain(["--set", "events.running_max=1"]).collect();
    let mut node = Node::start_with(&python, &one_at_a_time);
    deploy_light(&node, "worker");
    let mut accepted = Vec::new();
    // Not more often than an event is tried.
    for round in 0..2 {
        if round == 1 {
            accepted.push(later(&node, "worker", &json!({ "sleep": 3 })));
        }
        for n in 0..4 {
            accepted.push(later(&node, "worker", &json!({ "n": n })));
        }
        if round == 0 {
            // One in the midst of its run: its attempt counts, and another follows.
            accepted.push(later(&node, "worker", &json!({ "sleep": 3 })));
            // All before it have ended.
            wait_for("the event to run", || pending(&node) == 1 && node.json(["status"])["sandboxes"]["running"] != 0);
        }
        node.kill();
        node.restart();
    }
    wait_for("all events to be done", || pending(&node) == 0);
    assert_eq!(node.json(["events", "list"])["dead"], 0);
    // What ran to its end in this life has its record; what ended just before a kill may have lost it.
    let ran = attempts(&node);
    assert!(accepted[5..].iter().all(|id| ran.contains_key(id)), "{ran:?}");
    let repeated = &ran[&accepted[4]];
    assert!(*repeated == [2] || *repeated == [3], "the attempts that were cut off did not count: {repeated:?}");
    node.terminate();
    assert_eq!(node.exit_code(), Some(0));
}

#[test]
fn a_restored_node_runs_the_events_that_its_backup_found_queued() {
    let Some(python) = python("a_restored_node_runs_the_events_that_its_backup_found_queued") else { return };
    let mut node = Node::start_with(&python, &["--set", "events.running_max=1"]);
    deploy_light(&node, "worker");
    let held = later(&node, "worker", &json!({ "sleep": 4 }));
    let queued = later(&node, "worker", &json!({ "n": 1 }));
    wait_for("the first to run", || node.json(["status"])["sandboxes"]["running"] == 1);
    let file = node.state.with_file_name("node.tar");
    let file = file.to_str().unwrap();
    let made = node.json(["backup", file]);
    assert_eq!(made["content"]["events"], 2, "{made}");
    // What comes later is not of that moment.
    let late = later(&node, "worker", &json!({ "n": 2 }));
    node.kill();
    assert!(command(&node.state).args(["restore", file, "--force"]).status().unwrap().success());
    node.restart();
    wait_for("both to run", || [&held, &queued].iter().all(|id| attempts(&node).contains_key(*id)));
    assert_eq!(pending(&node), 0);
    assert!(!attempts(&node).contains_key(&late));
}

#[test]
fn what_failed_for_good_is_listed_shown_retried_and_dropped() {
    let Some(python) = python("what_failed_for_good_is_listed_shown_retried_and_dropped") else { return };
    let mut node = Node::start_with(&python, &QUICK);
    node.deploy("worker");
    let (first, second) = (
        later(&node, "worker", &json!({ "raise": "asked to" })),
        later(&node, "worker", &json!({ "raise": "as well" })),
    );
    wait_for("both to fail for good", || node.json(["events", "list"])["dead"] == 2);
    assert_eq!(attempts(&node)[&first], [3, 2, 1], "two retries, each with its record");
    assert_eq!(node.json(["explain", &first])["activation"]["attempt"], 3);
    // Dead letters are on the disk.
    node.kill();
    node.restart();
    let listed = node.json(["events", "list"]);
    assert_eq!(listed["events"][0]["id"], json!(second));
    assert!(listed["events"][1]["reason"].as_str().unwrap().contains("ValueError: asked to"), "{listed}");
    let shown = node.json(["events", "show", &first]);
    assert_eq!((&shown["payload"], &shown["attempts"]), (&json!({ "raise": "asked to" }), &json!(3)));
    assert!(node.ok(["events", "list"]).contains("dead"));

    node.ok(["events", "drop", &second]);
    assert_eq!(node.nigh(["events", "show", &second]).status.code(), Some(1));
    node.ok(["events", "retry", "--all"]);
    wait_for("it to fail again", || {
        let listed = node.json(["events", "list"]);
        listed["dead"] == 1 && listed["pending"] == 0
    });
    node.ok(["events", "drop", "--all"]);
    assert_eq!(node.json(["events", "list"])["events"], json!([]));
}

#[test]
fn a_full_queue_answers_429_and_loses_nothing_that_it_accepted() {
    let Some(python) = python("a_full_queue_answers_429_and_loses_nothing_that_it_accepted") else { return };
    let node = Node::start_with(&python, &[&QUICK[..], &["--set", "events.queue_max=5"]].concat());
    deploy_light(&node, "worker");
    let mut accepted = Vec::new();
    let mut refused = 0;
    while refused < 3 {
        let output = node.nigh(["--json", "invoke", "worker", r#"{"sleep": 5}"#, "--event"]);
        if output.status.success() {
            let reply: Value = serde_json::from_slice(&output.stdout).unwrap();
            accepted.push(reply["id"].as_str().unwrap().to_owned());
        } else {
            let words = String::from_utf8_lossy(&output.stderr).into_owned();
            assert!(words.contains("TooManyRequestsException") && words.contains("nigh events drop"), "{words}");
            refused += 1;
        }
    }
    assert!(accepted.len() >= 5, "{accepted:?}");
    wait_for("all events to be done", || pending(&node) == 0);
    let ran = attempts(&node);
    assert!(accepted.iter().all(|id| ran.contains_key(id)), "{ran:?}");
}

/// Puts objects one after the other until the node is gone, and prints each that was acknowledged.
const WRITER: &str = r#"
import itertools, boto3
from botocore.config import Config
s3 = boto3.client("s3", config=Config(retries={"total_max_attempts": 1}, connect_timeout=5, read_timeout=10))
for n in itertools.count():
    s3.put_object(Bucket="inbox", Key=f"in/{n}", Body=b"x")
    print(n, flush=True)
"#;

/// Leaves an object of the same key in another bucket.
const TOLD: &str = r#"
import boto3
s3 = boto3.client("s3")

def handler(event, context):
    for record in event["Records"]:
        s3.put_object(Bucket="told", Key=record["s3"]["object"]["key"], Body=b"")
"#;

/// Deploys `TOLD`.
fn deploy_told(node: &Node, more: &[&str]) {
    let code = node.state.with_file_name("told");
    std::fs::create_dir_all(&code).unwrap();
    std::fs::write(code.join("app.py"), TOLD).unwrap();
    let (code, runtime) = (code.to_str().unwrap().to_owned(), node.python_runtime());
    let settings = ["--handler", "app.handler", "--runtime", &runtime, "--timeout", "60s"];
    node.ok([&["deploy", "told", "--folder", &code], &settings[..], more].concat());
}

/// What the function `told` was told of, without the prefix `in/`.
fn told(node: &Node) -> BTreeSet<String> {
    let listed = node.ok(["objects", "ls", "-r", "nigh://told"]);
    listed.lines().filter_map(|line| Some(line.rsplit_once("in/")?.1.trim().to_owned())).collect()
}

#[test]
fn what_a_bucket_tells_a_function_that_is_gone_is_a_dead_letter() {
    let Some(python) = python("what_a_bucket_tells_a_function_that_is_gone_is_a_dead_letter") else { return };
    let mut node = Node::start_with(&python, &QUICK);
    node.ok(["objects", "mb", "nigh://told"]);
    node.ok(["objects", "mb", "nigh://inbox"]);
    deploy_told(&node, &["--trigger", "inbox/in/"]);
    node.ok(["functions", "rm", "told", "--keep-triggers"]);
    let object = node.state.with_file_name("object");
    std::fs::write(&object, "x").unwrap();
    node.ok(["objects", "cp", object.to_str().unwrap(), "nigh://inbox/in/before"]);
    wait_for("the event to be a dead letter", || node.json(["events", "list"])["dead"] == 1);
    node.kill();
    node.restart();
    let dead = node.json(["events", "list"])["events"][0].clone();
    assert_eq!((&dead["function"], &dead["attempts"]), (&json!("told"), &json!(0)));
    assert_eq!(dead["reason"], "FunctionDeleted: there is no function told");
    // The bucket's rule holds for the function that is deployed again, and what it missed is retried.
    deploy_told(&node, &[]);
    node.ok(["objects", "cp", object.to_str().unwrap(), "nigh://inbox/in/after"]);
    node.ok(["events", "retry", "--all"]);
    wait_for("both to be told", || told(&node) == BTreeSet::from(["after".to_owned(), "before".to_owned()]));
}

#[test]
fn an_event_of_a_program_that_cannot_be_executed_is_tried_as_often_as_one_that_fails() {
    let test = "an_event_of_a_program_that_cannot_be_executed_is_tried_as_often_as_one_that_fails";
    let Some(python) = python(test) else { return };
    let node = Node::start_with(&python, &QUICK);
    let code = node.state.with_file_name("astray");
    std::fs::create_dir_all(&code).unwrap();
    std::fs::write(code.join("bootstrap"), "#!/nowhere\n").unwrap();
    std::fs::set_permissions(code.join("bootstrap"), Permissions::from_mode(0o755)).unwrap();
    node.ok(["deploy", "astray", "--folder", code.to_str().unwrap(), "--runtime", "provided.al2023"]);
    let id = later(&node, "astray", &json!({}));
    wait_for("it to fail for good", || node.json(["events", "list"])["dead"] == 1);
    // In no order: they may have failed within one millisecond.
    assert_eq!(attempts(&node)[&id].iter().collect::<BTreeSet<_>>(), BTreeSet::from([&1, &2, &3]));
    assert_eq!(attempts(&node)[&id].len(), 3);
    let reason = node.json(["events", "show", &id])["reason"].as_str().unwrap().to_owned();
    assert!(reason.starts_with("RetriesExhausted: Runtime.InvalidEntrypoint: "), "{reason}");
    assert!(reason.ends_with("fork/exec /var/task/bootstrap: no such file or directory"), "{reason}");
}

#[test]
fn an_acknowledged_put_s_event_is_not_lost_by_kill_9() {
    let Some(python) = python("an_acknowledged_put_s_event_is_not_lost_by_kill_9") else { return };
    let mut node = Node::start_with(&python, &QUICK);
    node.ok(["objects", "mb", "nigh://told"]);
    node.ok(["objects", "mb", "nigh://inbox"]);
    // One at a time: most events wait when the node dies.
    deploy_told(&node, &["--reserved", "1", "--trigger", "inbox/in/"]);
    let mut writer = Command::new(&python)
        .args(["-c", WRITER])
        .envs(node.sdk_environment())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(writer.stdout.take().unwrap()).lines();
    for _ in 0..20 {
        lines.next().unwrap().unwrap();
    }
    node.kill();
    let acknowledged = 20 + lines.map_while(Result::ok).count();
    writer.wait().unwrap();
    node.restart();
    wait_for("all events to be done", || pending(&node) == 0);
    assert_eq!(node.json(["events", "list"])["dead"], 0);
    let told = told(&node);
    for n in 0..acknowledged {
        assert!(told.contains(&n.to_string()), "{n} of {acknowledged} was never told of: {told:?}");
    }
}

#[test]
fn a_deployment_whose_trigger_would_be_refused_changes_nothing() {
    let Some(python) = python("a_deployment_whose_trigger_would_be_refused_changes_nothing") else { return };
    let node = Node::start(&python);
    node.ok(["objects", "mb", "nigh://inbox"]);
    deploy_light(&node, "first");
    node.ok(["deploy", "first", "--trigger", "inbox/in/"]);
    let code = node.state.with_file_name("light");
    let (code, runtime) = (code.to_str().unwrap().to_owned(), node.python_runtime());
    let refused = |name: &str, more: &[&str]| {
        let deploy = ["deploy", name, "--folder", &code, "--handler", "app.handler", "--runtime", &runtime];
        let output = node.nigh([&deploy[..], more].concat());
        let words = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{words}");
        assert!(words.contains("nothing is deployed"), "{words}");
        words
    };
    assert!(refused("second", &["--trigger", "inbox/in/pictures/"]).contains("overlap"));
    assert!(refused("second", &["--trigger", "inbox/a/", "--trigger", "inbox/a/b/"]).contains("overlap"));
    assert!(refused("second", &["--trigger", "inbox/out/", "--trigger", "missing/"]).contains("NoSuchBucket"));
    refused("first", &["--trigger", "missing/", "--timeout", "7s"]);
    let listed = node.json(["functions", "list"]);
    let functions: Vec<_> =
        listed.as_array().unwrap().iter().map(|one| one["FunctionName"].as_str().unwrap()).collect();
    assert_eq!(functions, ["first"]);
    assert_eq!(node.json(["functions", "show", "first"])["Timeout"], 60);
    // None of the refused rules is left in the bucket's configuration.
    let settings = ["--handler", "app.handler", "--runtime", &runtime, "--trigger", "inbox/a/"];
    node.ok([&["deploy", "second", "--folder", &code], &settings[..]].concat());
}

#[test]
fn boto3_drives_urls_layers_cloud_events_and_http_servers() {
    let Some(python) = python("boto3_drives_urls_layers_cloud_events_and_http_servers") else { return };
    let node = Node::start_with(&python, &QUICK);
    passes(&node, &python, "boto3_urls.py");
}

/// A thousand synchronous invocations at once, each on a connection of its own; prints how each ended.
const FLOOD: &str = r#"
import http.client, os, threading
from urllib.parse import urlsplit
import boto3
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
threading.stack_size(128 * 1024)
door = urlsplit(os.environ["AWS_ENDPOINT_URL_LAMBDA"]).netloc
path = "/2015-03-31/functions/worker/invocations"
credentials = boto3.Session().get_credentials()
start = threading.Event()
ends = []

def invoke(n):
    body = b'{"sleep": 0.05, "n": %d}' % n
    request = AWSRequest(method="POST", url=f"http://{door}{path}", data=body, headers={"Host": door})
    SigV4Auth(credentials, "lambda", "us-east-1").add_auth(request)
    start.wait()
    for attempt in range(4):
        connection = http.client.HTTPConnection(door, timeout=120)
        try:
            connection.request("POST", path, body, dict(request.headers))
            answer = connection.getresponse()
            text = answer.read()
            is_own = answer.status != 200 or b'"n": %d' % n in text
            return ends.append(f"{answer.status} {answer.headers['retry-after']} {is_own}")
        except ConnectionError as error:
            # This process was too slow to send what it announced, and the door closed: SDKs try again too.
            broken = f"broken {error!r}"
    ends.append(broken)

threads = [threading.Thread(target=invoke, args=(n,)) for n in range(1000)]
for thread in threads: thread.start()
start.set()
for thread in threads: thread.join()
for end in ends: print(end)
"#;

#[test]
fn of_a_thousand_invocations_at_once_each_is_answered_or_refused_and_none_is_lost() {
    let Some(python) = python("of_a_thousand_invocations_at_once_each_is_answered_or_refused_and_none_is_lost") else {
        return;
    };
    let node = Node::start_with(&python, &["--set", "functions.sandboxes_max=4", "--set", "functions.queue_max=100"]);
    deploy_light(&node, "worker");
    let flood = Command::new(&python).args(["-c", FLOOD]).envs(node.sdk_environment()).output().unwrap();
    assert!(flood.status.success(), "{}", String::from_utf8_lossy(&flood.stderr));
    let mut ends: BTreeMap<String, usize> = BTreeMap::new();
    for line in String::from_utf8(flood.stdout).unwrap().lines() {
        *ends.entry(line.to_owned()).or_default() += 1;
    }
    let answered = ends.remove("200 None True").unwrap_or_default();
    let refused = ends.remove("429 1 True").unwrap_or_default();
    assert!(ends.is_empty() && answered + refused == 1000 && answered >= 100, "{answered} {refused} {ends:?}");
    let records = node.json(["activations", "--limit", "1000"]);
    let records = records.as_array().unwrap();
    let ran = records.iter().filter(|record| record["outcome"]["kind"] == "answered").count();
    assert_eq!(ran, answered, "an accepted invocation was lost, or one ran that was refused");
}
