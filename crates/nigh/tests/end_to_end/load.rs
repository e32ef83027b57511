//! `nigh load`, as its users run it: on a node that serves others, which it leaves as it was.

use std::path::Path;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::platform::{Node, command, python};
use crate::skipped::skip;

fn project() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Two tenants whose functions need no more than Pillow and a dictionary.
const TENANTS: [&str; 9] =
    ["load", "--tenants", "2", "--functions", "thumbnail,wordcount", "--inputs", "2", "--interval", "0.25"];

fn has_inputs(test: &str) -> bool {
    let there = project().join(".deps/inputs/MANIFEST.json").exists();
    if !there {
        skip(test, "the inputs are missing; `make deps` makes them");
    }
    there
}

#[test]
fn a_load_tells_of_every_tenant_and_leaves_the_node_as_it_was() {
    let test = "a_load_tells_of_every_tenant_and_leaves_the_node_as_it_was";
    let Some(python) = python(test).filter(|_| has_inputs(test)) else { return };
    let node = Node::start(&python);
    let rest = ["--seconds", "4", "--booking", "normal", "--seed", "7", "--json"];
    let output = command(&node.state).args(TENANTS).args(rest).current_dir(project()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let rows = report["tenants"].as_array().unwrap();
    let names: Vec<&str> = rows.iter().map(|row| row["tenant"].as_str().unwrap()).collect();
    assert_eq!(names, ["load-01-thumbnail", "load-02-wordcount"]);
    for row in rows {
        let of = |field: &str| row[field].as_f64().unwrap_or_else(|| panic!("{field} of {row:#}"));
        assert!(of("invocations") > 3.0 && of("failed") == 0.0, "{row:#}");
        assert!(of("p50_ms") > 0.0 && of("p99_ms") >= of("p95_ms") && of("p95_ms") >= of("p50_ms"), "{row:#}");
        assert!(of("extract_ms") > 0.0 && of("transform_ms") > 0.0 && of("load_ms") > 0.0, "{row:#}");
        assert!(of("hit_ratio") > 0.9, "the inputs came through the node: {row:#}");
        assert!(of("billed_gb_s") > 0.0 && of("booked_mb") >= 128.0, "{row:#}");
    }
    assert_eq!(report["all"]["invocations"], report["scheduled"]);
    assert_eq!(node.json(["functions", "list"]), serde_json::json!([]), "its functions are gone");
    assert!(!node.ok(["objects", "ls"]).contains("nigh-load"), "its bucket is gone");
}

#[test]
fn a_load_that_is_interrupted_tells_what_was_done_and_cleans_up() {
    let test = "a_load_that_is_interrupted_tells_what_was_done_and_cleans_up";
    let Some(python) = python(test).filter(|_| has_inputs(test)) else { return };
    let node = Node::start(&python);
    let rest = ["--seconds", "600", "--booking", "naive", "--json"];
    let mut all = command(&node.state);
    let all = all.args(TENANTS).args(rest).current_dir(project());
    let running = all.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped()).spawn().unwrap();
    crate::platform::wait_for("the load to have begun", || {
        node.json(["activations", "--limit", "20"]).as_array().unwrap().len() >= 8
    });
    kill_process(Pid::from_raw(running.id() as i32).unwrap(), Signal::INT).unwrap();
    let output = running.wait_with_output().unwrap();
    assert!(!output.status.success());
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["interrupted"], true, "{report:#}");
    assert!(report["all"]["invocations"].as_u64().unwrap() < report["scheduled"].as_u64().unwrap(), "{report:#}");
    assert_eq!(node.json(["functions", "list"]), serde_json::json!([]), "its functions are gone");
}
