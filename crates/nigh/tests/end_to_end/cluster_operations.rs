//! What an operator does to a cluster: cordon a node, drain it, and raise the cluster's format.

use std::process::{Child, Stdio};

use nigh_node::local_cluster::Process;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::cluster_workflows::Nodes;
use crate::command_line::has_its_form;
use crate::page_views::view_of;
use crate::platform::{NIGH, PATIENCE, command, wait_for};

/// What a node says of another; null if that is no member.
fn member(nodes: &Nodes, asked: usize, name: &str) -> Value {
    let table = nodes.json(asked, &["cluster", "ls"]);
    let members = table["members"].as_array().unwrap();
    has_its_form("cluster ls", &members[0]);
    members.iter().find(|member| member["node"] == name).cloned().unwrap_or_default()
}

fn homes(nodes: &Nodes, asked: usize, name: &str) -> u64 {
    member(nodes, asked, name)["homes"].as_u64().unwrap()
}

/// Runs the command at a node; it must fail. Its reason.
fn refused(nodes: &Nodes, node: usize, arguments: &[&str]) -> String {
    let output = command(&nodes.states[node]).args(arguments).output().unwrap();
    assert!(!output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stdout));
    String::from_utf8(output.stderr).unwrap()
}

/// True when a process has a handler of SIGINT, so that the signal does not just end it.
fn handles_interrupts(process: &Child) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{}/status", process.id())).unwrap_or_default();
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
    caught.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).is_some_and(|mask| mask & 0b10 != 0)
}

fn event(sleep: f64) -> String {
    json!({"run": "operated", "stage": 0, "sleep": sleep}).to_string()
}

/// How many invocations a node has run, by their records.
fn ran_at(nodes: &Nodes, node: usize) -> usize {
    let placed = format!("node-{} ", node + 1);
    let ids = recorded(nodes);
    let ran = ids.iter().filter(|id| {
        let explained = nodes.json(node, &["explain", id]);
        let why = explained["activation"]["placement"].as_str().unwrap();
        ["has ", "makes "].iter().any(|verb| why.contains(&format!("{placed}{verb}")))
    });
    ran.count()
}

/// The ids of all invocations that any node has recorded.
fn recorded(nodes: &Nodes) -> Vec<String> {
    let listed = nodes.json(0, &["activations", "--function", "again", "--limit", "1000"]);
    listed.as_array().unwrap().iter().map(|one| one["id"].as_str().unwrap().to_owned()).collect()
}

/// Ends a node in order, and starts it again by `prepare`.
fn restart(nodes: &mut Nodes, node: usize, prepare: impl FnOnce(&mut Process)) {
    let process = nodes.cluster.nodes()[node].process();
    process.ask_to_end().unwrap();
    assert!(process.wait(PATIENCE), "the node ends by itself");
    prepare(process);
    nodes.start_again(node);
}

#[test]
fn a_cordoned_node_gets_no_invocations_and_no_homes_over_its_restart_until_it_is_uncordoned() {
    let test = "a_cordoned_node_gets_no_invocations_and_no_homes_over_its_restart_until_it_is_uncordoned";
    let Some(mut nodes) = Nodes::start(test, 3) else { return };
    let table = nodes.json(0, &["cluster", "ls"]);
    let members = table["members"].as_array().unwrap();
    assert_eq!((members.len(), &table["format"]), (3, &json!(1)));
    for member in members {
        assert_eq!((&member["version"], &member["state"]), (&json!(env!("CARGO_PKG_VERSION")), &json!("available")));
        assert_eq!((&member["trouble"], &member["invocations"]), (&Value::Null, &json!(0)), "{member}");
    }
    wait_for("each node to have homes", || (1..=3).all(|node| homes(&nodes, 0, &format!("node-{node}")) > 0));

    let words = nodes.ok(0, &["cluster", "cordon", "node-2"]);
    assert!(words.contains("takes no new invocations"), "{words}");
    for asked in 0..3 {
        wait_for("all to see the cordon", || member(&nodes, asked, "node-2")["state"] == "cordoned");
    }
    wait_for("the page to show the cordon", || {
        let page = view_of(&nodes.states[0], "cluster");
        let rows = page["table"]["members"].as_array().cloned().unwrap_or_default();
        rows.iter().any(|row| row["node"] == "node-2" && row["state"] == "cordoned")
    });
    assert!(homes(&nodes, 2, "node-2") > 0, "it keeps its homes");
    let before = ran_at(&nodes, 1);
    for door in [0, 1, 2, 1, 0, 1] {
        nodes.ok(door, &["invoke", "again", &event(0.0)]);
    }
    wait_for("all records", || recorded(&nodes).len() == 6);
    assert_eq!(ran_at(&nodes, 1), before, "nothing runs there");
    assert!(ran_at(&nodes, 0) + ran_at(&nodes, 2) > 0);
    wait_for("all members to say what they have cached", || {
        nodes.states.iter().map(|node| view_of(node, "cached")).all(|cached| cached["unanswered"] == json!({}))
    });
    assert!(
        nodes.ok(1, &["objects", "ls", "nigh://marks", "--recursive"]).contains("operated/"),
        "its S3 door answers"
    );

    restart(&mut nodes, 1, |_| {});
    assert_eq!(member(&nodes, 0, "node-2")["state"], "cordoned", "it was restarted");
    wait_for("the others to have its homes", || homes(&nodes, 0, "node-1") + homes(&nodes, 0, "node-3") == 8);
    nodes.ok(1, &["invoke", "again", &event(0.0)]);
    assert_eq!(ran_at(&nodes, 1), before);

    nodes.ok(1, &["cluster", "cordon", "node-1"]);
    let reason = refused(&nodes, 1, &["cluster", "cordon", "node-3"]);
    assert!(reason.contains("node-3 is the last node"), "{reason}");
    let reason = refused(&nodes, 1, &["cluster", "drain", "node-9"]);
    assert!(reason.contains("has no node node-9"), "{reason}");
    nodes.ok(2, &["cluster", "uncordon", "node-1"]);
    nodes.ok(2, &["cluster", "uncordon", "node-2"]);
    wait_for("it to have homes again", || homes(&nodes, 0, "node-2") > 0);
    wait_for("it to run something again", || {
        let runs: Vec<Child> = (0..6).map(|at| nodes.begin(at % 3, &["invoke", "again", &event(0.3)])).collect();
        runs.into_iter().for_each(|mut run| assert!(run.wait().unwrap().success()));
        ran_at(&nodes, 1) > before
    });
}

#[test]
fn a_drain_ends_when_the_node_has_no_home_and_no_invocation_and_fails_none() {
    let Some(nodes) = Nodes::start("a_drain_ends_when_the_node_has_no_home_and_no_invocation_and_fails_none", 2) else {
        return;
    };
    // More than one node has sandboxes for, so that both run some. The sandboxes are made first: on a busy machine the last would
    // begin when the first has ended.
    let begin =
        |sleep| (0..8).map(|at| nodes.begin(at % 2, &["invoke", "again", &event(sleep)])).collect::<Vec<Child>>();
    begin(3.0).into_iter().for_each(|mut run| assert!(run.wait().unwrap().success()));
    let runs = begin(16.0);
    let busy = |node: &str| member(&nodes, 0, node)["invocations"].as_u64().unwrap_or(0);
    // One that waited for a sandbox of the other node alone could wait too long.
    wait_for("both to run them all", || busy("node-2") > 0 && busy("node-1") + busy("node-2") == 8);

    let late = refused(&nodes, 0, &["cluster", "drain", "node-2", "--deadline", "1 ms"]);
    assert!(late.contains("the deadline has passed, and the drain goes on"), "{late}");
    let reason = refused(&nodes, 0, &["cluster", "drain", "node-1"]);
    assert!(reason.contains("node-1 is the last node"), "{reason}");
    // Whoever waits may leave.
    let mut waiting = command(&nodes.states[0]);
    let waiting = waiting.args(["cluster", "drain", "node-2"]).stderr(Stdio::piped()).spawn().unwrap();
    wait_for("it to handle signals", || handles_interrupts(&waiting));
    kill_process(Pid::from_child(&waiting), Signal::INT).unwrap();
    let left = waiting.wait_with_output().unwrap();
    let words = String::from_utf8(left.stderr).unwrap();
    assert!(left.status.code() == Some(130) && words.contains("the drain of node-2 goes on"), "{words}");
    assert_ne!(member(&nodes, 0, "node-2")["state"], "available");
    let drain = command(&nodes.states[0]).args(["cluster", "drain", "node-2"]).stderr(Stdio::piped()).output().unwrap();
    let progress = String::from_utf8(drain.stderr).unwrap();
    assert!(drain.status.success() && progress.contains("node-2: "), "{progress}");
    let drained = member(&nodes, 1, "node-2");
    assert_eq!(
        (&drained["state"], &drained["homes"], &drained["invocations"]),
        (&json!("drained"), &json!(0), &json!(0))
    );
    assert_eq!(homes(&nodes, 1, "node-1"), 8);
    runs.into_iter().for_each(|mut run| assert!(run.wait().unwrap().success(), "no invocation failed"));
    // Its doors hand everything on.
    nodes.ok(1, &["invoke", "again", &event(0.0)]);

    nodes.ok(0, &["cluster", "drain", "node-2", "--cancel"]);
    wait_for("its homes to be back", || homes(&nodes, 0, "node-2") == 4);
}

#[test]
fn a_raised_format_is_used_by_all_and_refuses_a_program_that_does_not_know_it() {
    let Some(mut nodes) = Nodes::start("a_raised_format_is_used_by_all_and_refuses_a_program_that_does_not_know_it", 2)
    else {
        return;
    };
    let older = || vec![("NIGH_CLUSTER__FORMAT_MAX".to_owned(), "1".to_owned())];
    restart(&mut nodes, 1, |process| process.set_program(NIGH.as_ref(), older()));
    let reason = refused(&nodes, 0, &["cluster", "finalize"]);
    assert!(reason.contains("format 2 needs a newer Nigh on node-2"), "{reason}");
    assert_eq!(nodes.json(0, &["cluster", "ls"])["next_format"], Value::Null);

    // Before the format is raised, a program may be replaced by a newer one and back.
    restart(&mut nodes, 1, |process| process.set_program(NIGH.as_ref(), Vec::new()));
    assert_eq!(nodes.json(0, &["cluster", "ls"])["next_format"], 2);
    let words = nodes.ok(0, &["cluster", "finalize"]);
    assert!(words.contains("has format 2"), "{words}");
    assert!(nodes.ok(0, &["cluster", "finalize"]).contains("already"));
    for node in 0..2 {
        wait_for("both to follow", || nodes.json(node, &["cluster", "ls"])["format"] == 2);
    }
    nodes.ok(0, &["cluster", "cordon", "node-2"]);
    assert_eq!(member(&nodes, 1, "node-2")["state"], "cordoned");
    nodes.ok(1, &["invoke", "again", &event(0.0)]);
    nodes.ok(0, &["cluster", "uncordon", "node-2"]);

    let process = nodes.cluster.nodes()[1].process();
    process.ask_to_end().unwrap();
    assert!(process.wait(PATIENCE));
    process.set_program(NIGH.as_ref(), older());
    process.run().unwrap();
    wait_for("the older program to end", || process.ended().unwrap().is_some());
    let said = process.last_line();
    assert!(said.contains("has format 2") && said.contains("this program can use format 1"), "{said}");
}
