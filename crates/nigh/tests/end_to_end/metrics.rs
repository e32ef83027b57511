//! The metrics of a whole node, as Prometheus, its linter and Grafana read them; and the rules and pictures that name them.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Write as _;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::{Value, json};

use crate::platform::{Node, python, wait_for};
use crate::skipped::skip;

/// What Prometheus sends.
const ACCEPT: &str = "application/openmetrics-text;version=1.0.0;q=0.6,text/plain;version=0.0.4;q=0.3,*/*;q=0.2";
/// Families that only some nodes have: those with a known cache, in a cluster, before a remote store, with certificates; and
/// those of what has not happened here.
const OF_OTHER_NODES: [&str; 11] = [
    "nigh_llc_",
    "nigh_rpc_",
    "nigh_cluster_",
    "nigh_dispatch_",
    "nigh_store_",
    "nigh_certificate_",
    "nigh_audit_",
    "nigh_connections_closed_total",
    "nigh_events_",
    "nigh_memory_under_predictions_total",
    "nigh_prefetched_bytes_total",
];

fn project() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// A program of PATH, or that `scripts/install-test-tools.sh` makes; or says that a test is skipped.
fn tool(test: &str, name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let installed = [project().join(".deps/test/bin"), project().join(".deps")];
    let mut programs = installed.into_iter().chain(std::env::split_paths(&path)).map(|folder| folder.join(name));
    let found = programs.find(|program| program.is_file());
    if found.is_none() {
        skip(test, format_args!("{name} is missing; scripts/install-test-tools.sh makes it"));
    }
    found
}

/// Runs a program that reads `text`.
fn reads(program: &Path, arguments: &[&str], text: &str) -> Output {
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    child.wait_with_output().unwrap()
}

/// A node that has answered requests at each of its doors, well and badly.
fn node_under_load(python: &Path) -> Node {
    let node = Node::start(python);
    let file = node.state.join("endpoints.json");
    node.ok(["objects", "mb", "nigh://data"]);
    node.ok(["objects", "cp", file.to_str().unwrap(), "nigh://data/a"]);
    node.ok(["objects", "cat", "nigh://data/a"]);
    assert!(!node.nigh(["objects", "cat", "nigh://data/none"]).status.success());
    node.deploy("f");
    for _ in 0..3 {
        node.ok(["invoke", "f", &json!({ "read": "a" }).to_string()]);
    }
    assert!(!node.nigh(["invoke", "f", &json!({ "raise": "on purpose" }).to_string()]).status.success());
    let auth = node.ok(["openwhisk", "auth"]);
    let actions = format!("{}/api/v1/namespaces/_/actions", node.endpoints()["lambda"].as_str().unwrap());
    for user in [auth.trim(), "nobody:nothing"] {
        curl(&["--user", user, &actions]);
    }
    // Gauges of sandboxes are set once a second.
    wait_for("the sandboxes' states", || node.ok(["metrics"]).contains("nigh_sandboxes{state=\"idle\"}"));
    node
}

fn curl(arguments: &[&str]) -> String {
    let output = Command::new("curl").args(["--silent", "--show-error"]).args(arguments).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// The head and the body of what the admin API answers to a client that accepts this.
fn scrape(node: &Node, accept: &str) -> (String, String) {
    let socket = node.state.join("admin.sock");
    let accept = format!("Accept: {accept}");
    let answer =
        curl(&["--include", "--unix-socket", socket.to_str().unwrap(), "--header", &accept, "http://n/v1/metrics"]);
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.to_lowercase(), body.to_owned())
}

/// The values of a family whose labels have all of these.
fn values(metrics: &Value, name: &str, labels: &[(&str, &str)]) -> Vec<f64> {
    let has_all =
        |one: &&Value| one["name"] == name && labels.iter().all(|(label, value)| one["labels"][*label] == *value);
    metrics.as_array().unwrap().iter().filter(has_all).map(|one| one["value"].as_f64().unwrap()).collect()
}

#[test]
fn prometheus_own_linter_finds_no_fault_in_the_metrics_of_a_node_under_load() {
    let test = "prometheus_own_linter_finds_no_fault_in_the_metrics_of_a_node_under_load";
    let (Some(python), Some(promlint)) = (python(test), tool(test, "promlint")) else { return };
    let node = node_under_load(&python);
    let (head, text) = scrape(&node, "text/plain");
    assert!(head.contains("content-type: text/plain; version=0.0.4; charset=utf-8"), "{head}");
    let linted = reads(&promlint, &[], &text);
    let said = [linted.stdout, linted.stderr].map(|said| String::from_utf8(said).unwrap()).concat();
    assert!(linted.status.success(), "{said}\n{text}");
    // It does find faults.
    let bad = reads(&promlint, &[], "# TYPE nigh_waits_ms counter\nnigh_waits_ms 1\n");
    assert_eq!(bad.status.code(), Some(1), "{}", String::from_utf8_lossy(&bad.stdout));
}

#[test]
fn a_client_that_prefers_open_metrics_gets_what_their_own_parser_reads() {
    let test = "a_client_that_prefers_open_metrics_gets_what_their_own_parser_reads";
    let (Some(python), Some(parser)) = (python(test), tool(test, "python3")) else { return };
    let node = node_under_load(&python);
    let (head, text) = scrape(&node, ACCEPT);
    assert!(head.contains("content-type: application/openmetrics-text; version=1.0.0; charset=utf-8"), "{head}");
    let program = "import json, sys\nfrom prometheus_client.openmetrics.parser import text_string_to_metric_families\n\
                   families = text_string_to_metric_families(sys.stdin.read())\n\
                   print(json.dumps([[one.name, one.type, one.documentation, one.unit] for one in families]))";
    let parsed = reads(&parser, &["-c", program], &text);
    assert!(parsed.status.success(), "{}\n{text}", String::from_utf8_lossy(&parsed.stderr));
    let families: Vec<[String; 4]> = serde_json::from_slice(&parsed.stdout).unwrap();
    assert!(families.len() > 50, "{families:?}");
    for [name, kind, meaning, unit] in &families {
        assert!(!meaning.is_empty(), "{name} has no meaning");
        assert_ne!(kind, "unknown", "{name}");
        let in_name = ["seconds", "bytes"].into_iter().find(|unit| name.ends_with(&format!("_{unit}")));
        assert_eq!(in_name.unwrap_or_default(), unit, "{name}");
    }
    assert!(families.iter().any(|family| family[0] == "nigh_build" && family[1] == "info"), "{families:?}");
}

#[test]
fn each_door_counts_its_requests_their_errors_and_their_time() {
    let Some(python) = python("each_door_counts_its_requests_their_errors_and_their_time") else { return };
    let node = node_under_load(&python);
    let metrics = node.json(["metrics"]);
    let one = |name, labels: &[(&str, &str)]| {
        let sum: f64 = values(&metrics, name, labels).iter().sum();
        assert!(sum > 0.0, "{name} {labels:?}: {metrics:#}");
    };
    one("nigh_s3_requests_total", &[("operation", "PutObject"), ("status", "2xx")]);
    one("nigh_s3_requests_total", &[("status", "4xx")]);
    one("nigh_s3_request_duration_seconds_count", &[("operation", "PutObject")]);
    one("nigh_lambda_requests_total", &[("operation", "Invoke"), ("status", "200")]);
    one("nigh_lambda_request_duration_seconds_count", &[("operation", "Invoke")]);
    one("nigh_openwhisk_requests_total", &[("resource", "actions"), ("status", "200")]);
    one("nigh_openwhisk_requests_total", &[("resource", "actions"), ("status", "401")]);
    one("nigh_openwhisk_request_duration_seconds_count", &[("resource", "actions")]);
    one("nigh_admin_requests_total", &[("status", "200")]);
    one("nigh_admin_request_duration_seconds_count", &[]);
    one("nigh_invocations_total", &[("namespace", "default"), ("function", "f"), ("outcome", "answered")]);
    one("nigh_invocations_total", &[("function", "f"), ("outcome", "handler_error")]);
    one("nigh_invocation_duration_seconds_count", &[("function", "f")]);
    one("nigh_invocation_cold_starts_total", &[("function", "f")]);
    one("nigh_build_info", &[("version", env!("CARGO_PKG_VERSION"))]);
    one("process_start_time_seconds", &[]);
    one("process_max_fds", &[]);
}

#[test]
fn connections_are_counted_at_their_door_while_they_are_open() {
    let node = Node::start(Path::new("/bin/false"));
    let open = |door: &str| -> f64 {
        values(&node.json(["metrics"]), "nigh_door_connections", &[("door", door)]).iter().sum()
    };
    for door in ["s3", "lambda", "admin", "health"] {
        let address = node.endpoints()[door].as_str().unwrap().trim_start_matches("http://").to_owned();
        let before = open(door);
        let connections = [(); 3].map(|()| TcpStream::connect(&address).unwrap());
        wait_for("the connections to be counted", || open(door) >= before + 3.0);
        drop(connections);
        wait_for("the connections to be gone", || open(door) <= before);
    }
}

#[test]
fn beyond_the_limit_functions_are_counted_as_other_and_no_invocation_is_left_out() {
    let test = "beyond_the_limit_functions_are_counted_as_other_and_no_invocation_is_left_out";
    let Some(python) = python(test) else { return };
    let node = Node::start_with(&python, &["--set", "metrics.functions=1"]);
    for (function, times) in [("first", 1), ("second", 2), ("other", 3)] {
        node.deploy(function);
        for _ in 0..times {
            node.ok(["invoke", function, "{}"]);
        }
    }
    let metrics = node.json(["metrics"]);
    let all = metrics.as_array().unwrap().iter().filter(|one| one["name"] == "nigh_invocations_total");
    let counts: BTreeMap<String, f64> =
        all.map(|one| (one["labels"].to_string(), one["value"].as_f64().unwrap())).collect();
    let named = json!({ "function": "first", "namespace": "default", "outcome": "answered" });
    let rest = json!({ "function": "other", "outcome": "answered" });
    assert_eq!(counts, BTreeMap::from([(named.to_string(), 1.0), (rest.to_string(), 5.0)]));
}

/// The families that a text of the integrations names.
fn named(text: &str) -> BTreeSet<String> {
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let words = text.split(|c| !is_name(c)).filter(|word| word.starts_with("nigh_") || word.starts_with("process_"));
    words.map(|word| word.strip_suffix("_bucket").unwrap_or(word).to_owned()).collect()
}

#[test]
fn every_series_of_the_dashboard_and_the_alert_rules_is_one_of_a_nodes() {
    let test = "every_series_of_the_dashboard_and_the_alert_rules_is_one_of_a_nodes";
    let Some(python) = python(test) else { return };
    let read = |path: &str| fs::read_to_string(project().join(path)).unwrap();
    let reference = read("docs/reference/metrics.md");
    let text = node_under_load(&python).ok(["metrics"]);
    let dashboard = read("integrations/grafana/dashboard.json");
    let _: Value = serde_json::from_str(&dashboard).unwrap();
    for (file, least, used) in [
        ("dashboard.json", 35, named(&dashboard)),
        ("alerts.yml", 12, named(&read("integrations/grafana/alerts.yml"))),
        ("alerts_test.yml", 12, named(&read("integrations/grafana/alerts_test.yml"))),
    ] {
        assert!(used.len() >= least, "{file} is not read: {used:?}");
        for family in used {
            assert!(reference.contains(&format!("| `{family}` |")), "{file} names {family}, which does not exist");
            let is_here = text.contains(&format!("\n# TYPE {family} "));
            let is_of_others = OF_OTHER_NODES.iter().any(|other| family.starts_with(other));
            assert!(is_here || is_of_others, "{file} names {family}, which the node does not have: {text}");
        }
    }
}

#[test]
fn alert_rules_fire_when_they_should_and_only_then() {
    let test = "alert_rules_fire_when_they_should_and_only_then";
    let Some(promtool) = tool(test, "promtool") else { return };
    let folder = project().join("integrations/grafana");
    let tested = Command::new(promtool).args(["test", "rules", "alerts_test.yml"]).current_dir(&folder).output();
    let tested = tested.unwrap();
    let said = [tested.stdout, tested.stderr].map(|said| String::from_utf8(said).unwrap()).concat();
    assert!(tested.status.success(), "{said}");
    let rules = fs::read_to_string(folder.join("alerts.yml")).unwrap();
    let tests = fs::read_to_string(folder.join("alerts_test.yml")).unwrap();
    for rule in rules.lines().filter_map(|line| line.trim().strip_prefix("- alert: ")) {
        assert!(tests.contains(rule), "{rule} has no test");
    }
}
