//! A node that was paused for longer than its lease, and that the homes have declared dead meanwhile.

use std::process::{Child, Stdio};

use serde_json::json;

use super::{LIVE, READY, ask, check, get, health, probes, told};
use crate::cluster_workflows::Nodes;
use crate::platform::{PATIENCE, command, wait_for};

/// Longer than it takes to declare a node dead, so that the node has something to wait for when it is back.
const RUNS_FOR_S: f64 = 25.0;

/// How many of these runs have failed by now.
fn failed(runs: &mut [Child]) -> usize {
    runs.iter_mut().filter_map(|run| run.try_wait().unwrap()).filter(|status| !status.success()).count()
}

#[test]
fn a_node_that_was_declared_dead_is_live_takes_no_work_and_ends_by_itself() {
    let test = "a_node_that_was_declared_dead_is_live_takes_no_work_and_ends_by_itself";
    let Some(mut nodes) = Nodes::start_with(test, 2, &["drain=20 s".to_owned()]) else { return };
    let addresses: Vec<String> = nodes.states.iter().map(|state| health(state)).collect();
    wait_for("all homes", || addresses.iter().all(|address| get(address, READY).told().1 == "ok"));
    let file = nodes.states[0].with_file_name("object");
    std::fs::write(&file, "known").unwrap();
    nodes.ok(0, &["objects", "cp", file.to_str().unwrap(), "nigh://marks/known"]);
    nodes.ok(0, &["invoke", "once", &json!({"run": "first", "stage": 0, "sleep": 0}).to_string()]);

    let owns = "nigh_dispatch_namespaces_owned 1";
    wait_for("an owner", || (0..2).any(|node| nodes.ok(node, &["metrics"]).lines().any(|line| line == owns)));

    // Both nodes run some; `once` is not run again, so the caller of a lost run is told.
    let owner = nodes.owner();
    let (lost, name) = (1 - owner, format!("node-{}", 2 - owner));
    let event = json!({"run": "expelled", "stage": 0, "sleep": RUNS_FOR_S}).to_string();
    let mut runs: Vec<Child> = (0..8).map(|_| nodes.begin(owner, &["invoke", "once", &event])).collect();
    wait_for("both nodes to run some", || {
        let table = nodes.json(owner, &["cluster", "ls"]);
        let member = table["members"].as_array().unwrap().iter().find(|member| member["node"] == name.as_str());
        member.and_then(|member| member["invocations"].as_u64()).is_some_and(|count| count > 0)
    });
    nodes.cluster.nodes()[lost].process().stop().unwrap();
    // Its callers are told when every home rejects it.
    wait_for("its runs to be lost", || failed(&mut runs) > 0);
    nodes.cluster.nodes()[lost].process().go_on().unwrap();

    // It learns of it at its next request to a home.
    let read = ["objects", "cp", "nigh://marks/known", "-"];
    let mut reader = command(&nodes.states[lost]);
    let mut reader = reader.args(read).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let address = &addresses[lost];
    wait_for("it to be expelled", || {
        ask(address, "GET", READY).is_some_and(|answer| answer.told() == (503, "expelled".to_owned()))
    });
    assert_eq!(probes(address), told([(200, "ok"), (503, "expelled"), (503, "expelled"), (503, "expelled")]));
    let membership = check(&get(address, READY).json(), "membership");
    assert!(membership["why"].as_str().unwrap().contains("must be started again"), "{membership}");
    assert!(nodes.cluster.nodes()[lost].process().wait(PATIENCE), "it ends by itself");
    assert!(ask(address, "GET", LIVE).is_none());
    reader.wait().unwrap();

    nodes.start_again(lost);
    wait_for("the new incarnation to be ready", || {
        ask(address, "GET", READY).is_some_and(|answer| answer.told() == (200, "ok".to_owned()))
    });
    assert_eq!(nodes.ok(lost, &read), "known");
    // Those at the other node were not disturbed.
    wait_for("the other runs to end", || runs.iter_mut().all(|run| run.try_wait().unwrap().is_some()));
    assert!(failed(&mut runs) < runs.len());
}
