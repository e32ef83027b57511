//! The page's views of a cluster: any node shows an execution that another runs, and who used an object on all nodes.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Child;

use nigh_node::state_folder::StatePaths;
use serde_json::{Value, json};

use crate::cluster_workflows::{Nodes, line};
use crate::page_views::{answer, next_event, send, view_of};
use crate::platform::wait_for;

const LIST: &str = "workflows?workflow=again";
const RUN: &str = "workflows?workflow=again&execution=run-1";
const OBJECT: &str = "objects?bucket=marks&key=shared";

/// Writes or reads an object, and ends when there is a second one.
const USER: &str = r#"
import time
import boto3

s3 = boto3.client("s3")

def handler(event, context):
    if event["write"]:
        s3.put_object(Bucket="marks", Key="shared", Body=b"shared")
    else:
        s3.get_object(Bucket="marks", Key="shared")["Body"].read()
    while s3.list_objects_v2(Bucket="marks", Prefix="go").get("KeyCount", 0) == 0:
        time.sleep(0.2)
"#;

/// The status and the body with which the node with this state folder answers.
fn asked(state: &Path, path: &str) -> (u16, String) {
    let (status, body) = answer(send(&StatePaths::new(state).admin_socket(), &format!("GET /v1/{path}"), b""));
    (status, String::from_utf8(body).unwrap())
}

/// True if the node shows just this.
fn shows(state: &Path, view: &str, expected: &Value) -> bool {
    let (status, body) = asked(state, &format!("views/{view}"));
    status == 200 && serde_json::from_str::<Value>(&body).unwrap() == *expected
}

/// The states that an execution has left, in order.
fn left(execution: &Value) -> Vec<&str> {
    let history = execution["history"].as_object().unwrap();
    let events: BTreeMap<u64, &Value> = history.iter().map(|(id, event)| (id.parse().unwrap(), event)).collect();
    events.values().filter_map(|event| event["stateExitedEventDetails"]["name"].as_str()).collect()
}

#[test]
fn any_node_shows_the_executions_of_a_workflow_and_names_the_node_that_runs_them_if_it_is_silent() {
    let test = "any_node_shows_the_executions_of_a_workflow_and_names_the_node_that_runs_them_if_it_is_silent";
    let Some(mut nodes) = Nodes::start(test, 3) else { return };
    nodes.create(1, "again", &line("again"));
    for number in 0..3 {
        nodes.start_run(number, "again", &format!("run-{number}"), &json!({"sleep": [0, 0, 0]}));
    }
    for number in 0..3 {
        nodes.ended(number, "again", &format!("run-{number}"));
    }
    let owner = nodes.owner();
    let others = [(owner + 1) % 3, (owner + 2) % 3];
    let (list, run) = (view_of(&nodes.states[owner], LIST), view_of(&nodes.states[owner], RUN));
    assert_eq!(list["executions"].as_object().unwrap().len(), 3, "{list}");
    assert_eq!((&list["unanswered"], &list["executions"]["run-1"]["status"]), (&json!({}), &json!("SUCCEEDED")));
    assert_eq!(left(&run), ["First", "Second", "Third"], "{run}");
    for other in others {
        assert_eq!(view_of(&nodes.states[other], LIST), list);
        assert_eq!(view_of(&nodes.states[other], RUN), run);
        assert_eq!(asked(&nodes.states[other], "views/workflows?workflow=again&execution=none").0, 404);
    }

    // Followed at a node that does not run it.
    let wait = json!({"Type": "Wait", "Seconds": 600, "End": true});
    nodes.create(owner, "wait", &json!({"StartAt": "Wait", "States": {"Wait": wait}}));
    nodes.start_run(owner, "wait", "run", &json!({}));
    let socket = StatePaths::new(&nodes.states[others[0]]).admin_socket();
    let mut live = send(&socket, "GET /v1/live?view=workflows&workflow=wait&execution=run", b"");
    let first = next_event(&mut live);
    assert_eq!(first["snapshot"]["status"], "RUNNING", "{first}");
    nodes.ok(owner, &["workflow", "stop", "wait", "run"]);
    while next_event(&mut live)["patch"]["status"] != "ABORTED" {}
    drop(live);

    // A node that is paused is a member until its lease ends. One that runs no executions is not missed.
    nodes.cluster.nodes()[others[1]].process().stop().unwrap();
    let shown = [LIST, RUN].map(|view| view_of(&nodes.states[others[0]], view));
    nodes.cluster.nodes()[others[1]].process().go_on().unwrap();
    assert_eq!(shown, [list.clone(), run.clone()]);
    nodes.cluster.nodes()[owner].process().stop().unwrap();
    let name = nodes.cluster.nodes()[owner].name().to_owned();
    let state = &nodes.states[others[0]];
    let (silent, refused) = std::thread::scope(|scope| {
        let refused = scope.spawn(|| asked(state, &format!("views/{RUN}")));
        (view_of(state, LIST), refused.join().unwrap())
    });
    nodes.kill(owner);
    assert!(silent["unanswered"][&name].is_string(), "{silent}");
    assert_eq!((&silent["executions"], &silent["definition"]), (&json!({}), &list["definition"]));
    assert!(refused.0 == 503 && refused.1.contains(&format!("node {name} runs")), "{refused:?}");

    // Another node runs them from then on.
    for other in others {
        wait_for("the executions to be shown again", || {
            shows(&nodes.states[other], LIST, &list) && shows(&nodes.states[other], RUN, &run)
        });
    }
}

#[test]
fn any_node_shows_who_wrote_and_who_used_an_object_on_all_nodes_and_names_the_silent_one() {
    let test = "any_node_shows_who_wrote_and_who_used_an_object_on_all_nodes_and_names_the_silent_one";
    let Some(mut nodes) = Nodes::start(test, 3) else { return };
    nodes.deploy_code("user", USER, &[]);
    let mut calls: Vec<Child> = vec![nodes.begin(0, &["invoke", "user", &json!({"write": true}).to_string()])];
    wait_for("the object", || asked(&nodes.states[0], &format!("views/{OBJECT}")).0 == 200);
    // More at a time than a node has sandboxes: they run on two nodes at least.
    let readers =
        (0..5).map(|number| nodes.begin(number % 3, &["invoke", "user", &json!({"write": false}).to_string()]));
    calls.extend(readers);
    wait_for("all to run", || (0..3).map(|node| nodes.running(node)).sum::<usize>() == calls.len());
    let (status, body) =
        answer(send(&StatePaths::new(&nodes.states[0]).admin_socket(), "PUT /v1/objects/default/marks?key=go", b"go"));
    assert_eq!(status, 200, "{}", String::from_utf8_lossy(&body));
    assert!(calls.iter_mut().all(|call| call.wait().unwrap().success()));

    let of_node = |node: usize| -> Vec<String> {
        let (status, records) = asked(&nodes.states[node], "activations?function=user");
        assert_eq!(status, 200, "{records}");
        let records: Value = serde_json::from_str(&records).unwrap();
        records.as_array().unwrap().iter().map(|one| one["id"].as_str().unwrap().to_owned()).collect()
    };
    wait_for("all records", || (0..3).map(|node| of_node(node).len()).sum::<usize>() == calls.len());
    let ran: Vec<Vec<String>> = (0..3).map(of_node).collect();
    assert!(ran.iter().filter(|ids| !ids.is_empty()).count() > 1, "all ran on one node: {ran:?}");
    let mut all = ran.concat();
    all.sort_unstable();
    let ids = |page: &Value| page["users"].as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    let pages: Vec<Value> = nodes.states.iter().map(|state| view_of(state, OBJECT)).collect();
    for page in &pages {
        assert_eq!((ids(page), &page["unanswered"]), (all.clone(), &json!({})), "{page}");
        let wrote = page["users"].as_object().unwrap().values().filter(|user| user["served"] == "write");
        assert_eq!(wrote.count(), 1, "{page}");
    }

    // The home of the object answers without another node.
    let home = (0..3).find(|node| nodes.cluster.nodes()[*node].name() == pages[0]["home"]).unwrap();
    let paused = (0..3).filter(|node| *node != home).max_by_key(|node| ran[*node].len()).unwrap();
    let name = nodes.cluster.nodes()[paused].name().to_owned();
    nodes.cluster.nodes()[paused].process().stop().unwrap();
    let page = view_of(&nodes.states[home], OBJECT);
    nodes.cluster.nodes()[paused].process().go_on().unwrap();
    assert_eq!(page["unanswered"].as_object().unwrap().keys().collect::<Vec<_>>(), [&name], "{page}");
    all.retain(|id| !ran[paused].contains(id));
    assert_eq!(ids(&page), all, "{page}");
}
