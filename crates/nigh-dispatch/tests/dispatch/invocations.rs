//! What invocations see of each other, and of what clients outside write, wherever they run and whoever owns their dispatch.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use nigh_engine::Availability;
use nigh_invoke::invocation::{Invoke as _, UpcomingInvocation};
use nigh_terms::FunctionName;
use serde_json::json;

use crate::locality::{node, until_one};
use crate::processes::{PATIENCE, Processes, invoke};
use crate::world::who;

#[tokio::test(flavor = "multi_thread")]
async fn an_invocation_sees_what_its_predecessor_wrote_at_another_node() {
    let test = "an_invocation_sees_what_its_predecessor_wrote_at_another_node";
    let Some(processes) = Processes::start(test).await else { return };
    let mut nodes = BTreeSet::new();
    let begin = Instant::now();
    let mut round = 0;
    // Where nodes report late, the one that covers has all of them for a while.
    while round < 40 || nodes.len() < 3 {
        assert!(begin.elapsed() < PATIENCE, "only {nodes:?} had any");
        let value = format!("round {round}");
        // Each function has its own order of nodes.
        let writer = format!("f{}", round % 7);
        let wrote = processes.invoke("c1", &writer, json!({"do": "put", "key": "k", "value": value})).await;
        let reader = format!("f{}", (round * 3 + 1) % 11);
        let read =
            processes.invoke(["c1", "c2", "n0", "n2"][round % 4], &reader, json!({"do": "get", "key": "k"})).await;
        assert_eq!(read["value"], value, "wrote at {wrote}, read at {read}");
        nodes.extend([wrote["node"].to_string(), read["node"].to_string()]);
        round += 1;
    }
    assert_eq!(processes.owners(), ["c1"], "the others have handed theirs on");
    processes.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_client_outside_has_written_is_known_to_the_next_dispatch() {
    let test = "what_a_client_outside_has_written_is_known_to_the_next_dispatch";
    let Some(processes) = Processes::start(test).await else { return };
    for round in 0..30_u32 {
        let value = format!("round {round}");
        processes.world.nodes[&(round % 3)].put("k", value.as_bytes()).await.unwrap();
        let reader = format!("f{}", round % 5);
        let read = processes.invoke(["c2", "n1"][round as usize % 2], &reader, json!({"do": "get", "key": "k"})).await;
        assert_eq!(read["value"], value, "read at {read}");
    }
    processes.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cordoned_node_ends_what_it_runs_and_gets_nothing_new_until_it_is_uncordoned() {
    let test = "a_cordoned_node_ends_what_it_runs_and_gets_nothing_new_until_it_is_uncordoned";
    let Some(processes) = Processes::start(test).await else { return };
    let dispatcher = processes.all["c1"].dispatcher.clone();
    let waits = json!({"do": "wait", "key": "waited", "value": "v"});
    let running = tokio::spawn(async move { invoke(&dispatcher, "waits", waits).await });
    let cordoned = processes.until_held(1).await[0].clone();
    let write = |function: String| {
        let processes = &processes;
        async move {
            let wrote = processes.invoke("c1", &function, json!({"do": "put", "key": "k", "value": "v"})).await;
            wrote["node"].as_str().unwrap().to_owned()
        }
    };
    for availability in [Availability::Cordoned, Availability::Draining] {
        processes.set_availability(&cordoned, availability);
        for round in 0..20 {
            assert_ne!(write(format!("f{round}")).await, cordoned, "{availability}, round {round}");
        }
    }
    processes.held.go_on.notify_waiters();
    assert_eq!(running.await.unwrap().unwrap()["node"], cordoned, "it has ended");
    processes.set_availability(&cordoned, Availability::Available);
    let (begin, mut round) = (Instant::now(), 0);
    while write(format!("g{round}")).await != cordoned {
        assert!(begin.elapsed() < PATIENCE, "nothing runs at {cordoned}");
        round += 1;
    }
    processes.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn when_an_owner_is_given_up_another_goes_on_with_all_that_was_seen() {
    let test = "when_an_owner_is_given_up_another_goes_on_with_all_that_was_seen";
    let Some(processes) = Processes::start(test).await else { return };
    processes.invoke("c1", "f", json!({"do": "put", "key": "k", "value": "first"})).await;
    assert_eq!(processes.owners(), ["c1"]);
    // It is not dead: only the others take it for that, and it has not heard so.
    let c1 = processes.all["c1"].dispatcher.clone();
    let waits = json!({"do": "wait", "key": "late", "value": "written under the owner that was"});
    let late = tokio::spawn(async move { invoke(&c1, "f2", waits).await });
    processes.until_held(1).await;
    processes.declare_gone("c1");
    let read = processes.invoke("c2", "f3", json!({"do": "get", "key": "k"})).await;
    assert_eq!(read["value"], "first");
    // The end of what the first has dispatched reaches the second before the caller hears of it.
    processes.held.go_on.notify_waiters();
    assert_eq!(late.await.unwrap().unwrap()["value"], "written under the owner that was");
    let read = processes.invoke("n1", "f4", json!({"do": "get", "key": "late"})).await;
    assert_eq!(read["value"], "written under the owner that was");
    // What it would dispatch now no node takes: it goes to the second.
    processes.invoke("c2", "f", json!({"do": "put", "key": "k", "value": "second"})).await;
    let read = processes.invoke("c1", "f", json!({"do": "get", "key": "k"})).await;
    assert_eq!((read["value"].as_str(), processes.owners()), (Some("second"), vec!["c2"]));
    processes.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sandbox_is_made_ahead_once_where_the_function_is_placed_then() {
    let test = "a_sandbox_is_made_ahead_once_where_the_function_is_placed_then";
    let Some(processes) = Processes::start(test).await else { return };
    // A function's place may change with the first report that a node covers what its tenant has seen.
    let nothing = json!({"do": "nothing"});
    until_one(&processes, "reported", &nothing, |ran| !ran["why"].as_str().unwrap().contains("at its gate")).await;
    let next = FunctionName::new("next").unwrap();
    for _ in 0..10 {
        processes.all["c1"]
            .dispatcher
            .prepare(&who().namespace, UpcomingInvocation { function: next.clone(), input: None, after: None });
    }
    let made = async {
        while processes.held.prepared.lock().is_empty() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(PATIENCE, made).await.unwrap();
    tokio::time::sleep(Duration::from_millis(100)).await;
    let prepared = processes.held.prepared.lock().clone();
    let ran = processes.invoke("c1", "next", nothing).await;
    assert_eq!(prepared, [(node(&ran).to_owned(), next)]);
    processes.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_owner_that_leaves_lets_go_and_one_that_is_killed_is_followed() {
    let test = "an_owner_that_leaves_lets_go_and_one_that_is_killed_is_followed";
    let Some(processes) = Processes::start(test).await else { return };
    processes.invoke("c2", "f", json!({"do": "put", "key": "k", "value": "by c2"})).await;
    processes.all["c2"].dispatcher.leave().await;
    assert!(processes.owners().is_empty());
    let read = processes.invoke("c1", "g", json!({"do": "get", "key": "k"})).await;
    assert_eq!((read["value"].as_str(), processes.owners()), (Some("by c2"), vec!["c1"]));
    processes.end().await;

    let Some(processes) = Processes::start(test).await else { return };
    processes.invoke("n0", "f", json!({"do": "put", "key": "k", "value": "before"})).await;
    let owner = processes.owners()[0].to_owned();
    let n0 = processes.all["n0"].dispatcher.clone();
    let waits = json!({"do": "wait", "key": "late", "value": "its owner was killed"});
    let late = tokio::spawn(async move { invoke(&n0, "h", waits).await });
    processes.until_held(1).await;
    processes.kill(&owner);
    processes.declare_gone(&owner);
    processes.world.nodes[&1].put("k", b"between").await.unwrap();
    processes.held.go_on.notify_waiters();
    // Its node has it, and tells whoever handed it to the owner; the next one sees what it wrote.
    assert_eq!(late.await.unwrap().unwrap()["value"], "its owner was killed");
    let read = processes.invoke("n2", "g", json!({"do": "get", "key": "late"})).await;
    assert_eq!(read["value"], "its owner was killed");
    let read = processes.invoke("n0", "g", json!({"do": "get", "key": "k"})).await;
    assert_eq!(read["value"], "between");
    processes.end().await;
}
