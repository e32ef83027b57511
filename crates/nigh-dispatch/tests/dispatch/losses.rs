//! What becomes of the invocations of a node that is lost.

use std::time::Duration;

use nigh_invoke::invocation::InvokeError;
use nigh_schedule::scheduler::lost_invocation::LossError;
use serde_json::json;

use crate::processes::{Processes, invoke};

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_node_is_fenced_and_only_what_is_idempotent_runs_again() {
    let test = "a_lost_node_is_fenced_and_only_what_is_idempotent_runs_again";
    let Some(mut processes) = Processes::start(test).await else { return };
    processes.invoke("c1", "f", json!({"do": "put", "key": "k", "value": "before"})).await;
    // One of each, at the same node.
    let owner = processes.all["c1"].dispatcher.clone();
    let spawn = |function: String, payload| {
        let owner = owner.clone();
        tokio::spawn(async move { invoke(&owner, &function, payload).await })
    };
    let once = spawn("once".to_owned(), json!({"do": "wait", "key": "once", "value": "1"}));
    let lost = processes.until_held(1).await.remove(0);
    // Where a function goes hangs on what its dispatcher knows of the nodes at that moment: one of them goes to that node.
    let (mut again, mut here) = (Vec::new(), 0);
    while again.len() < 12 || here == 0 {
        let number = again.len();
        assert!(number < 60, "none of {number} functions goes to {lost}");
        again.push(spawn(
            format!("again{number}"),
            json!({"do": "wait", "key": format!("again{number}"), "value": "1"}),
        ));
        let held = processes.until_held(number + 2).await;
        here = held.iter().skip(1).filter(|node| **node == lost).count();
    }
    let count = again.len();

    processes.kill(&lost);
    let number: u32 = lost[1..].parse().unwrap();
    let member = processes.world.nodes[&number].member;
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(!once.is_finished() && processes.fenced.lock().is_empty(), "a broken call alone proves nothing");
    processes.declare_gone(&lost);
    let error = tokio::time::timeout(crate::processes::PATIENCE, once).await.unwrap().unwrap().unwrap_err();
    assert!(matches!(error, InvokeError::Lost(LossError::MayHaveRun)), "{error}");
    assert!(processes.fenced.lock().contains(&member), "told only after the fence");
    // The node goes on in what it takes for its life: nobody takes what it writes.
    let zombie = &processes.world.nodes[&number];
    let wrote = tokio::time::timeout(Duration::from_secs(3), zombie.put("once", b"too late")).await;
    assert!(!matches!(wrote, Ok(Ok(_))), "it was fenced");
    // Those that run again wait again.
    processes.until_held(count + 1 + here).await;
    processes.held.go_on.notify_waiters();
    for one in again {
        let answer = one.await.unwrap().unwrap();
        assert_ne!(answer["node"], lost, "{answer}");
    }
    processes.lose_homes(number).await;
    let read = processes.invoke("c2", "g", json!({"do": "get", "key": "k"})).await;
    assert_eq!(read["value"], "before");
    for number in 0..count {
        let read = processes.invoke("c2", "g", json!({"do": "get", "key": format!("again{number}")})).await;
        assert_eq!(read["value"], "1");
    }
    processes.end().await;
}
