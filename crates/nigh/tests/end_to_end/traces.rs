//! Traces of the real `nigh up`: what a caller begins is one tree, through the doors, the queue, sandboxes, the handler's data
//! calls, the store and other nodes; and what an absent or hanging collector costs.

mod collector;

use std::net::TcpListener;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use serde_json::Value;

use self::collector::{CLIENT, Collector, SERVER};
use crate::cluster_workflows::Nodes;
use crate::platform::{Node, python, wait_for};

/// Calls by boto3 that carry the header in the script's first argument.
const BOTO3: &str = r#"
import json, sys, time
import boto3

def client(service):
    made = boto3.client(service)
    carry = lambda params, **more: params["headers"].update(dict([sys.argv[1].split(": ", 1)]))
    made.meta.events.register(f"before-call.{made.meta.service_model.service_id.hyphenize()}", carry)
    return made

s3, functions, workflows = client("s3"), client("lambda"), client("stepfunctions")

def call(name, event, **more):
    answer = functions.invoke(FunctionName=name, Payload=json.dumps(event), **more)
    return answer["Payload"].read().decode()
"#;

/// A `traceparent` of a caller that records.
fn caller(number: u64) -> String {
    format!("00-{:032x}-{:016x}-01", 0xabc_0000 + number, number)
}

/// What `script` prints; its calls carry `header`.
fn boto3(environment: Vec<(String, String)>, python: &Path, header: &str, script: &str) -> String {
    let output =
        Command::new(python).args(["-c", &format!("{BOTO3}\n{script}\n"), header]).envs(environment).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

fn traced(node: &Node, python: &Path, parent: &str, script: &str) -> String {
    boto3(node.sdk_environment(), python, &format!("traceparent: {parent}"), script)
}

/// A node that sends its traces to `collector`, with further flags.
fn node(python: &Path, collector: &Collector, more: &[&str]) -> Node {
    let flag = collector.flag();
    let flags: Vec<&str> = ["--set", &flag].into_iter().chain(more.iter().copied()).collect();
    let node = Node::start_with(python, &flags);
    node.ok(["objects", "mb", "nigh://data"]);
    node.deploy("work");
    node
}

#[test]
fn an_invocation_its_data_calls_and_their_writes_to_the_store_are_one_tree_under_the_caller() {
    let test = "an_invocation_its_data_calls_and_their_writes_to_the_store_are_one_tree_under_the_caller";
    let Some(python) = python(test) else { return };
    let collector = Collector::start();
    let node = node(&python, &collector, &["--set", "writes.mode=lazy"]);
    let (put, invoke) = (caller(1), caller(2));
    traced(&node, &python, &put, "s3.put_object(Bucket='data', Key='a.txt', Body=b'hello')");
    let tree = collector.tree(&put, &["S3.PutObject", "object write", "write-back", "store put"]);
    assert_eq!(tree.above("store put"), ["write-back", "object write", "S3.PutObject", "caller"]);

    let answer = traced(&node, &python, &invoke, "print(call('work', {'read': 'a.txt'}))");
    assert_eq!(answer, r#"{"bytes": 5}"#);
    let names = [
        "Lambda.Invoke",
        "work",
        "wait for a sandbox",
        "sandbox start",
        "handler",
        "S3.GetObject",
        "object read",
        "S3.PutObject",
        "object write",
        "write-back",
        "store put",
    ];
    let tree = collector.tree(&invoke, &names);
    assert_eq!(tree.above("object read"), ["S3.GetObject", "handler", "work", "Lambda.Invoke", "caller"]);
    assert_eq!(tree.above("store put")[2..4], ["S3.PutObject", "handler"]);
    let work = tree.span("work");
    let said = ["faas.trigger", "faas.coldstart", "faas.name", "nigh.outcome"].map(|key| work.text(key));
    assert_eq!(said, ["other", "true", "work", "answered"]);
    assert_eq!(work.kind, SERVER);
    let read = tree.span("object read");
    assert_eq!((read.text("aws.s3.key"), read.text("nigh.served")), ("a.txt".to_owned(), "hit".to_owned()));

    // The ids are in the record, in what explains it, and in the function's log.
    let record = node.last_activation();
    assert_eq!(record["trace_id"], work.trace.as_str());
    let id = record["id"].as_str().unwrap();
    assert!(node.ok(["explain", id]).contains(&work.trace));
    let log = node.json(["explain", id])["activation"]["log"].as_str().unwrap().to_owned();
    assert!(log.contains(&format!("SegmentId: {}\tSampled: true", work.id)), "{log}");
    collector.is_read_by_the_definitions(test);
}

#[test]
fn a_line_of_the_log_has_the_request_id_that_its_client_received_and_the_trace_that_it_sent() {
    let test = "a_line_of_the_log_has_the_request_id_that_its_client_received_and_the_trace_that_it_sent";
    let Some(python) = python(test) else { return };
    let collector = Collector::start();
    let levels = "log.level=info,nigh_s3=debug,nigh_lambda=debug,nigh_invoke=debug";
    let node = node(&python, &collector, &["--set", "log.format=json", "--set", levels]);
    let lines = || -> Vec<Value> {
        let log = std::fs::read_to_string(node.state.with_extension("log")).unwrap();
        // What `nigh up` prints for people stands in the same file here.
        log.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
    };
    let calls = [
        ("s3.put_object(Bucket='data', Key='a.txt', Body=b'hello')", "an S3 request was answered", "request"),
        ("functions.list_functions()", "a Lambda request was answered", "request"),
        ("functions.invoke(FunctionName='work', Payload='{}')", "a Lambda request was answered", "request"),
        ("functions.invoke(FunctionName='work', Payload='{}')", "an invocation ended", "invocation"),
    ];
    for ((call, message, field), number) in calls.into_iter().zip(1..) {
        let parent = caller(number);
        let id = traced(&node, &python, &parent, &format!("print({call}['ResponseMetadata']['RequestId'])"));
        let found =
            || lines().into_iter().find(|line| line["fields"]["message"] == message && line["fields"][field] == *id);
        wait_for("the line of the call", || found().is_some());
        let line = found().unwrap();
        assert_eq!(line["span"]["trace_id"], parent.split('-').nth(1).unwrap(), "{call}: {line}");
    }
}

#[test]
fn an_event_a_trigger_and_a_schedule_are_traced_through_the_queue() {
    let test = "an_event_a_trigger_and_a_schedule_are_traced_through_the_queue";
    let Some(python) = python(test) else { return };
    let collector = Collector::start();
    let node = node(&python, &collector, &[]);
    let (event, write) = (caller(1), caller(2));
    traced(&node, &python, &event, "call('work', {}, InvocationType='Event')");
    let tree = collector.tree(&event, &["Lambda.Invoke", "event", "wait in the event queue", "work", "handler"]);
    assert_eq!(tree.above("handler"), ["work", "event", "Lambda.Invoke", "caller"]);
    assert_eq!(tree.span("work").text("faas.trigger"), "pubsub");

    let arn = "arn:aws:lambda:us-east-1:000000000000:function:work";
    let rule = format!("{{'Events': ['s3:ObjectCreated:*'], 'LambdaFunctionArn': '{arn}'}}");
    let configure = format!(
        "s3.create_bucket(Bucket='watched')\ns3.put_bucket_notification_configuration(Bucket='watched', \
         NotificationConfiguration={{'LambdaFunctionConfigurations': [{rule}]}})"
    );
    traced(&node, &python, &caller(9), &configure);
    traced(&node, &python, &write, "s3.put_object(Bucket='watched', Key='new', Body=b'x')");
    let tree = collector.tree(&write, &["S3.PutObject", "object write", "event", "work"]);
    assert_eq!(tree.above("work"), ["event", "object write", "S3.PutObject", "caller"]);
    assert_eq!(tree.span("work").text("faas.trigger"), "datasource");

    node.ok(["deploy", "work", "--every", "1 h"]);
    let scheduled = || {
        let spans = collector.spans();
        let work = spans.iter().find(|span| span.name == "work" && span.text("faas.trigger") == "timer")?.clone();
        Some(spans.into_iter().filter(|span| span.trace == work.trace).map(|span| span.name).collect::<Vec<_>>())
    };
    wait_for("the scheduled run's trace", || {
        scheduled().is_some_and(|names| ["schedule", "event"].iter().all(|name| names.iter().any(|one| one == name)))
    });
    collector.is_read_by_the_definitions(test);
}

#[test]
fn an_execution_has_its_states_and_their_invocations_under_it() {
    let test = "an_execution_has_its_states_and_their_invocations_under_it";
    let Some(python) = python(test) else { return };
    let collector = Collector::start();
    let node = node(&python, &collector, &[]);
    let arn = "arn:aws:lambda:us-east-1:000000000000:function";
    let machine = format!(
        "{{'StartAt': 'First', 'States': {{'First': {{'Type': 'Task', 'Resource': '{arn}:work', 'Next': 'Between'}}, \
         'Between': {{'Type': 'Pass', 'Next': 'Second'}}, \
         'Second': {{'Type': 'Task', 'Resource': '{arn}:work', 'End': True}}}}}}"
    );
    let start = format!(
        "machine = workflows.create_state_machine(name='two', definition=json.dumps({machine}), \
         roleArn='arn:aws:iam::000000000000:role/any')['stateMachineArn']\n\
         run = workflows.start_execution(stateMachineArn=machine, name='one', input='{{}}')['executionArn']\n\
         while workflows.describe_execution(executionArn=run)['status'] == 'RUNNING': time.sleep(0.05)\n\
         ended = workflows.describe_execution(executionArn=run)\n\
         print(ended['status'], ended.get('cause', ''))"
    );
    let parent = caller(1);
    assert_eq!(traced(&node, &python, &parent, &start).trim(), "SUCCEEDED");
    let names = ["Lambda.StartExecution", "execution", "First", "Between", "Second", "work", "handler"];
    let tree = collector.tree(&parent, &names);
    assert_eq!(tree.above("Between"), ["execution", "Lambda.StartExecution", "caller"]);
    assert!(
        ["First", "Second"]
            .iter()
            .any(|state| tree.above("work") == [state, "execution", "Lambda.StartExecution", "caller"])
    );
    assert_eq!(tree.span("execution").text("nigh.workflow.status"), "SUCCEEDED");
    assert_eq!(tree.spans.iter().filter(|span| span.name == "work").count(), 2);
    collector.is_read_by_the_definitions(test);
}

#[test]
fn a_trace_goes_on_at_other_nodes_of_a_cluster() {
    let test = "a_trace_goes_on_at_other_nodes_of_a_cluster";
    let Some(python) = python(test) else { return };
    let collector = Collector::start();
    let Some(nodes) = Nodes::start_with(test, 2, &[collector.flag()]) else { return };
    nodes.ok(0, &["objects", "mb", "nigh://shared"]);
    let at = |node: usize, number: u64, script: &str| {
        let parent = caller(number);
        boto3(nodes.sdk_environment(node), &python, &format!("traceparent: {parent}"), script);
        parent
    };
    // Of so many keys some have their home at the other node.
    let keys = 12;
    for key in 0..keys {
        at(0, 100 + key, &format!("s3.put_object(Bucket='shared', Key='{key}', Body=b'x' * 1000)"));
    }
    let mut elsewhere = 0;
    for key in 0..keys {
        let parent = at(1, 200 + key, &format!("s3.get_object(Bucket='shared', Key='{key}')['Body'].read()"));
        let tree = collector.tree(&parent, &["S3.GetObject", "object read"]);
        let root = tree.span("S3.GetObject");
        let is_served_there = |span: &&collector::Span| span.kind == SERVER && span.node != root.node;
        let Some(served) = tree.spans.iter().find(is_served_there) else { continue };
        elsewhere += 1;
        let asked = tree.spans.iter().find(|span| Some(&span.id) == served.parent.as_ref()).unwrap();
        assert_eq!((asked.kind, served.kind, &asked.node), (CLIENT, SERVER, &root.node));
        assert_eq!(asked.text("rpc.system.name"), "nigh");
        assert!(tree.above(&asked.name).contains(&"object read"), "{:?}", tree.spans);
    }
    assert!(elsewhere > 0, "no home was at the other node");

    nodes.deploy_code("quick", "def handler(event, context):\n    return 1\n", &[]);
    for node in 0..2 {
        let parent = at(node, 300 + node as u64, "call('quick', {})");
        let tree = collector.tree(&parent, &["Lambda.Invoke", "dispatch", "quick", "handler"]);
        assert_eq!(tree.above("dispatch").last(), Some(&"caller"));
        assert!(tree.above("handler").contains(&"dispatch"), "{:?}", tree.spans);
    }
    collector.is_read_by_the_definitions(test);
}

#[test]
fn callers_decide_what_is_recorded_and_where_nothing_is_their_ids_still_reach_the_handler() {
    let test = "callers_decide_what_is_recorded_and_where_nothing_is_their_ids_still_reach_the_handler";
    let Some(python) = python(test) else { return };
    let tells = "import os\n\ndef handler(event, context):\n    return os.environ['_X_AMZN_TRACE_ID']\n";
    let collector = Collector::start();
    let sampled_out = node(&python, &collector, &["--set", "traces.sample=0"]);
    sampled_out.deploy_code("tells", tells, "128MiB");
    let told = boto3(sampled_out.sdk_environment(), &python, "x-test: none", "print(call('tells', {}))");
    assert!(told.starts_with("\"Root=1-") && told.ends_with(";Sampled=0\""), "{told}");
    let parent = caller(7);
    let told = traced(&sampled_out, &python, &parent, "print(call('tells', {}))");
    let tree = collector.tree(&parent, &["tells", "handler"]);
    let own = format!("\"Root=1-00000000-{:024x};Parent={};Sampled=1\"", 0xabc_0007, tree.span("handler").id);
    assert_eq!(told, own);
    let traces: std::collections::BTreeSet<_> = collector.spans().into_iter().map(|span| span.trace).collect();
    assert_eq!(traces.len(), 1, "only the caller's trace is recorded: {traces:?}");

    let off = Node::start(&python);
    off.deploy_code("tells", tells, "128MiB");
    let xray = "Root=1-67891233-abcdef012345678912345678;Parent=463ac35c9f6413ad;Sampled=1";
    let told = boto3(off.sdk_environment(), &python, &format!("X-Amzn-Trace-Id: {xray}"), "print(call('tells', {}))");
    assert_eq!(told, format!("\"{xray}\""));
    assert_eq!(off.last_activation()["trace_id"], "67891233abcdef012345678912345678");
    let told = boto3(off.sdk_environment(), &python, "x-test: none", "print(call('tells', {}))");
    assert!(told.ends_with(";Sampled=0\""), "{told}");
}

#[test]
fn a_collector_that_hangs_or_is_away_stops_neither_requests_nor_the_end_of_the_node() {
    let Some(python) = python("a_collector_that_hangs_or_is_away_stops_neither_requests_nor_the_end_of_the_node")
    else {
        return;
    };
    // It accepts connections, and says nothing; nobody listens at the other address.
    let hangs = TcpListener::bind("127.0.0.1:0").unwrap();
    let away = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    for address in [hangs.local_addr().unwrap(), away] {
        let flag = format!("traces.endpoint=http://{address}");
        let mut node = Node::start_with(&python, &["--set", &flag]);
        node.ok(["objects", "mb", "nigh://data"]);
        node.deploy("work");
        for round in 0..3 {
            let parent = caller(round);
            let put = "s3.put_object(Bucket='data', Key='a', Body=b'x' * 100); print(call('work', {'read': 'a'}))";
            assert_eq!(traced(&node, &python, &parent, put), r#"{"bytes": 100}"#);
            // Longer than a batch is gathered.
            std::thread::sleep(Duration::from_millis(1200));
        }
        node.terminate();
        assert_eq!(node.exit_code(), Some(0));
    }
}
