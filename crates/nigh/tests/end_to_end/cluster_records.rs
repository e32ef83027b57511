//! The records and logs of a cluster: any node shows what ran on any member.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Stdio};
use std::sync::mpsc;

use serde_json::{Value, json};

use crate::cluster_workflows::Nodes;
use crate::platform::{PATIENCE, command, wait_for};

#[test]
fn any_node_lists_shows_and_explains_what_ran_on_another_and_names_who_does_not_answer() {
    let test = "any_node_lists_shows_and_explains_what_ran_on_another_and_names_who_does_not_answer";
    let Some(mut nodes) = Nodes::start(test, 2) else { return };
    let event = json!({"run": "listed", "stage": 0, "sleep": 0}).to_string();
    for node in [0, 1, 0, 1] {
        nodes.ok(node, &["invoke", "again", &event]);
    }
    let ids = |nodes: &Nodes, node: usize, more: &[&str]| -> Vec<String> {
        let listed = nodes.json(node, &[&["activations", "--function", "again"], more].concat());
        listed.as_array().unwrap().iter().map(|one| one["id"].as_str().unwrap().to_owned()).collect()
    };
    wait_for("all records", || ids(&nodes, 0, &[]).len() == 4);
    let all = ids(&nodes, 0, &[]);
    assert_eq!(ids(&nodes, 1, &[]), all, "any node answers the same");
    assert!(all.is_sorted_by(|newer, older| newer > older), "{all:?}");
    for node in 0..2 {
        let newest = ids(&nodes, node, &["--limit", "2"]);
        let older = ids(&nodes, node, &["--limit", "2", "--before", &newest[1]]);
        assert_eq!([newest, older].concat(), all);
        for id in &all {
            assert_eq!(nodes.json(node, &["explain", id])["activation"]["id"], id.as_str());
            assert!(nodes.ok(node, &["logs", "again", "--id", id]).contains(id.as_str()));
        }
        let logs = nodes.ok(node, &["logs", "again", "--limit", "4"]);
        assert!(all.iter().all(|id| logs.contains(id.as_str())), "{logs}");
    }

    // A node that is paused is a member until its lease ends.
    let state = nodes.states[0].clone();
    let remarks = || {
        let output = command(&state).args(["activations"]).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    assert_eq!(remarks(), "");
    nodes.cluster.nodes()[1].process().stop().unwrap();
    let words = remarks();
    nodes.cluster.nodes()[1].process().go_on().unwrap();
    assert!(words.contains("node-2 did not answer"), "{words}");
}

#[test]
fn any_node_follows_the_logs_of_all_and_explains_the_last_invocation_and_one_by_the_beginning_of_its_id() {
    let test = "any_node_follows_the_logs_of_all_and_explains_the_last_invocation_and_one_by_the_beginning_of_its_id";
    let Some(mut nodes) = Nodes::start(test, 2) else { return };
    let event = json!({"run": "followed", "stage": 0, "sleep": 0}).to_string();
    let mut followers: Vec<(Child, mpsc::Receiver<Value>)> = nodes.states.iter().map(|state| follow(state)).collect();
    let past = nodes.json(0, &["invoke", "again", &event])["id"].clone();
    // Each waits for the first one, so that it follows from then on.
    for (_, lines) in &followers {
        until(lines, |line| line["id"] == past);
    }
    let ids: Vec<Value> = [0, 1, 0, 1].map(|node| nodes.json(node, &["invoke", "again", &event])["id"].clone()).into();
    for (_, lines) in &followers {
        let mut left = ids.clone();
        until(lines, |line| {
            left.retain(|id| *id != line["id"]);
            left.is_empty()
        });
    }
    let newest = ids[3].as_str().unwrap();
    for node in 0..2 {
        assert_eq!(nodes.json(node, &["explain"])["activation"]["id"], newest);
        assert_eq!(nodes.json(node, &["explain", &newest[..32]])["activation"]["id"], newest);
        assert_eq!(nodes.json(node, &["activations", "--last"])[0]["id"], newest);
    }

    // A node that is paused is a member until its lease ends.
    nodes.cluster.nodes()[1].process().stop().unwrap();
    let words = BufReader::new(followers[0].0.stderr.take().unwrap()).lines().next().unwrap().unwrap();
    nodes.cluster.nodes()[1].process().go_on().unwrap();
    assert_eq!(words, r#"{"unanswered":["node-2"]}"#);
    for (mut follower, _) in followers {
        follower.kill().unwrap();
        follower.wait().unwrap();
    }
}

/// Follows the logs of `again` at a node; what it prints.
fn follow(state: &Path) -> (Child, mpsc::Receiver<Value>) {
    let words = ["--json", "logs", "again", "--follow"];
    let mut follower = command(state).args(words).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(follower.stdout.take().unwrap()).lines();
    let (tell, told) = mpsc::channel();
    std::thread::spawn(move || {
        for line in lines.map_while(Result::ok) {
            if tell.send(serde_json::from_str(&line).unwrap()).is_err() {
                return;
            }
        }
    });
    (follower, told)
}

/// Waits for the line that `is_it`.
fn until(lines: &mpsc::Receiver<Value>, mut is_it: impl FnMut(&Value) -> bool) {
    while !is_it(&lines.recv_timeout(PATIENCE).unwrap()) {}
}
