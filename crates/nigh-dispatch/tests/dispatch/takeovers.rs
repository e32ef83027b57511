//! What writers outside wait for when a dispatch owner is lost: for the next one's announcement, and for nothing more.

use std::time::{Duration, Instant};

use nigh_invoke::schedule_runner::LeadsNamespaces as _;
use serde_json::json;

use crate::processes::{PATIENCE, Processes};
use crate::world::who;

/// The time limit of a call to an owner.
const CALL_WITHIN: Duration = Duration::from_secs(2);
/// Time for what needs a few small calls, on any machine.
const SOON: Duration = Duration::from_secs(10);

#[tokio::test(flavor = "multi_thread")]
async fn a_write_is_acknowledged_before_the_next_owner_has_read_every_home_and_is_known_to_its_first_dispatch() {
    let test = "a_write_is_acknowledged_before_the_next_owner_has_read_every_home_and_is_known_to_its_first_dispatch";
    let Some(processes) = Processes::start(test).await else { return };
    processes.invoke("c1", "f", json!({"do": "put", "key": "k", "value": "before"})).await;
    assert_eq!(processes.owners(), ["c1"]);
    // Each node has a copy, which it may show until it knows better.
    for node in 0..3 {
        assert_eq!(processes.world.nodes[&node].reads("k").await, b"before");
    }
    processes.set_homes_answer(false);
    processes.kill("c1");
    processes.declare_gone("c1");
    let put = processes.world.nodes[&1].put("k", b"between");
    tokio::time::timeout(SOON, put).await.expect("the write waits until all homes were read").unwrap();
    let read = processes.invoke("n0", "g", json!({"do": "get", "key": "k"}));
    let released = async {
        tokio::time::sleep(Duration::from_millis(100)).await;
        processes.set_homes_answer(true);
    };
    let (read, ()) = tokio::join!(read, released);
    assert_eq!(read["value"], "between", "what the homes had answered before the write is not enough");
    for round in 0..6 {
        let read = processes.invoke("n2", &format!("h{round}"), json!({"do": "get", "key": "k"})).await;
        assert_eq!(read["value"], "between", "read at {read}");
    }
    processes.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dead_owner_is_followed_before_anybody_asks() {
    let Some(processes) = Processes::start("a_dead_owner_is_followed_before_anybody_asks").await else { return };
    processes.invoke("c1", "f", json!({"do": "put", "key": "k", "value": "before"})).await;
    processes.kill("c1");
    processes.declare_gone("c1");
    let followed = async {
        while !processes.owners().contains(&"c2") {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(PATIENCE, followed).await.expect("nobody follows");
    processes.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_to_an_owner_that_answers_not_ends_when_the_owner_is_a_member_no_more() {
    let test = "a_call_to_an_owner_that_answers_not_ends_when_the_owner_is_a_member_no_more";
    let Some(processes) = Processes::start(test).await else { return };
    let silent = processes.own_in_silence("c0").await;
    let put = async {
        processes.world.nodes[&0].put("k", b"value").await.unwrap();
        Instant::now()
    };
    let gone = async {
        let called = silent.accept().await.unwrap();
        processes.declare_gone("c0");
        // Held open, as by a machine that is stopped.
        (called, Instant::now())
    };
    let (put, (_called, gone)) = tokio::join!(put, gone);
    let waited = put.duration_since(gone);
    assert!(waited < CALL_WITHIN - Duration::from_millis(500), "the call went on for {waited:?}");
    processes.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_controller_begins_the_scheduled_runs_of_a_namespace_and_another_follows_it() {
    let test = "one_controller_begins_the_scheduled_runs_of_a_namespace_and_another_follows_it";
    let Some(processes) = Processes::start(test).await else { return };
    let namespace = who().namespace;
    let leads = async |name: &str| processes.all[name].dispatcher.leads(&namespace).await;
    assert!(leads("c1").await, "a namespace without an owner gets one");
    assert!(!leads("c2").await && !leads("n0").await);
    processes.kill("c1");
    processes.declare_gone("c1");
    let followed = async {
        while !leads("c2").await {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(PATIENCE, followed).await.expect("nobody begins the runs");
    processes.end().await;
}
