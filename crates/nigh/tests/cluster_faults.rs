//! The experiment `cluster-faults` in its short form: a real cluster, a few faults, and every figure of its report.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "support/programs.rs"]
mod programs;
#[path = "../../../tests/skipped.rs"]
mod skipped;

use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

use self::programs::build_programs;
use self::skipped::skip;

fn cluster_faults(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_nigh"));
    command.args(["experiment", "cluster-faults", "--json"]).args(arguments);
    command.current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")).output().unwrap()
}

/// What has to be installed first, if the command did not begin for want of it.
fn not_installed(output: &Output) -> Option<String> {
    let complaint = String::from_utf8_lossy(&output.stderr);
    let named = ["`make deps`", "`make peers`", "root is missing"].iter().any(|missing| complaint.contains(missing));
    (named && output.stdout.is_empty()).then(|| complaint.trim().to_owned())
}

fn json(output: &Output) -> Value {
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{complaint} {}", String::from_utf8_lossy(&output.stdout));
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {complaint}"))
}

#[test]
fn a_cluster_under_real_faults_loses_nothing_and_both_checkers_decide_every_object() {
    let test = "a_cluster_under_real_faults_loses_nothing_and_both_checkers_decide_every_object";
    build_programs();
    let folder = tempfile::tempdir().unwrap();
    let parts = folder.path().to_str().unwrap();
    let output = cluster_faults(&["--faults", "6", "--seed", "3", "--parts", parts]);
    if let Some(reason) = not_installed(&output) {
        return skip(test, reason);
    }
    let report = json(&output);
    let of = |field: &str| report[field].as_u64().unwrap_or_else(|| panic!("{field} of {report:#}"));
    for wrong in ["lost", "stale", "mixed", "not_recovered"] {
        assert_eq!(of(wrong), 0, "{wrong} of {report:#}");
    }
    for list in ["violations", "undecided"] {
        assert_eq!(report[list], Value::Array(Vec::new()), "{report:#}");
    }
    // Some generations of twenty objects, and an object for each shard and door.
    for checker in ["ours", "porcupine"] {
        let found = &report["checkers"][checker];
        assert!(found["objects"].as_u64().unwrap() > 60, "{report:#}");
        assert_eq!((&found["broken"], &found["undecided"]), (&Value::from(0), &Value::from(0)), "{report:#}");
    }
    assert_eq!(
        (&report["checkers"]["ours"]["missed"], report["undecided_share"].as_f64()),
        (&Value::from(0), Some(0.0))
    );
    let mutations = report["mutations"].as_array().unwrap();
    assert!(mutations.len() == 3 && mutations.iter().all(|one| one["ours"] == true && one["porcupine"] == true));

    let kinds: u64 = report["kinds"].as_object().unwrap().values().map(|count| count.as_u64().unwrap()).sum();
    assert_eq!((of("faults"), kinds, of("parts"), of("seed"), of("nodes")), (6, 6, 1, 3, 3), "{report:#}");
    assert!(!report["skipped"].as_array().unwrap().is_empty());
    assert!(report["seconds"].as_f64().unwrap() > 10.0 && report["recovery_max_s"].as_f64().unwrap() < 120.0);
    assert_eq!(report["put_with_sharers_dead"], Value::Null, "{report:#}");

    // Most operations have an answer, and of the others it is said whether somebody found what they wrote.
    assert!(of("operations") > 1000 && of("unknown") < of("operations") / 2, "{report:#}");
    assert_eq!(of("unknown"), of("unknown_found") + of("unknown_not_found"), "{report:#}");
    // Nodes were killed: at their doors nothing was sent.
    assert!(of("listed_entries") > 0 && of("read_back") > 100 && of("not_sent") > 0, "{report:#}");
    assert!(of("refused") < of("operations"), "{report:#}");
    assert!(of("by_invocations") > 0 && of("invocations") > 0 && of("nested_calls") > 0, "{report:#}");
    let by_cause = report["failed_by_cause"].as_object().unwrap();
    let sum = |field: &str| by_cause.values().map(|count| count[field].as_u64().unwrap()).sum::<u64>();
    assert_eq!(of("invocations_failed"), sum("failed"), "{report:#}");
    assert_eq!(of("invocations_failed_with_retries"), sum("failed") - sum("answered_on_retry"), "{report:#}");
    assert!(of("ended_by_itself") < 100, "{report:#}");

    // What is kept adds up to the same, and its history is judged the same.
    let added = json(&cluster_faults(&["--add", parts]));
    for field in ["kinds", "operations", "unknown", "checkers", "failed_by_cause", "built_from"] {
        assert_eq!(added[field], report[field], "{field}");
    }
    let history = folder.path().join("seed-3-part-0000.history.gz");
    let judged = json(&cluster_faults(&["--judge", history.to_str().unwrap()]));
    for field in ["operations", "lost", "stale", "checkers", "undecided_share"] {
        assert_eq!(judged[field], report[field], "{field}");
    }
}
