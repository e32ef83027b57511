//! The gate in an invocation's way: what it begins with, what its end tells, and that it passes once each way.

use bytes::Bytes;
use nigh_invoke::activation_log::ActivationQuery;
use nigh_invoke::invocation::{Invoke, InvokeError, InvokeRequest};
use nigh_protocol::GateRefusal;
use nigh_terms::{FunctionName, InvocationId, Principal, SandboxId, Sequence, ShardId, Token, Version};
use serde_json::json;

use crate::node::{Node, settings};

const SHARD: ShardId = ShardId(0);

fn request(payload: &serde_json::Value, token: Token) -> InvokeRequest {
    let function = FunctionName::new("f").unwrap();
    InvokeRequest { function, payload: Bytes::from(payload.to_string()), client_context: None, token, event: None }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_invocation_leaves_the_gate_whatever_its_end_and_tells_what_it_had_seen() {
    let node = Node::start(settings()).await;
    node.deploy("f", |function| function.timeout = std::time::Duration::from_secs(1));
    let mut seen = Token::empty();
    for payload in [
        json!({"do": "data", "words": ["put"]}),
        json!({"do": "raise"}),
        json!({"do": "exit", "code": 3}),
        json!({"do": "kill", "signal": 9}),
        json!({"do": "sleep", "s": 60}),
        json!({"do": "data", "words": ["put"]}),
        json!({"do": "echo"}),
    ] {
        let record = node.record(node.invoke("f", payload.clone()).await.id).await;
        assert!(node.objects.seen_by(record.id).is_empty(), "{payload}: it has ended");
        assert!(record.token.covers(&seen), "{payload}: it began with what was seen before it");
        assert_eq!(record.token != seen, payload["do"] == "data", "{payload}: it saw no more than it wrote");
        seen = record.token;
    }
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_from_an_invocation_begins_with_what_that_has_seen_and_tells_it_more() {
    let node = Node::start(settings()).await;
    node.deploy("f", |_| ());
    let caller = InvocationId::now();
    node.objects.begin_invocation(&node.tenant, caller, &Token::empty()).await.unwrap();
    let who = Principal::inside(node.tenant.clone(), FunctionName::new("g").unwrap(), SandboxId::random(), caller);
    node.put(&who).await;
    let before = node.invoker.seen(&who);
    assert!(before.get(SHARD) > Some(Version { sequence: Sequence(0), ..before.get(SHARD).unwrap() }));
    assert_eq!(before, node.objects.seen_by(caller));
    let called = node.invoker.invoke(&who, request(&json!({"do": "echo"}), before.clone())).await.unwrap();
    assert_eq!((called.token, node.objects.seen_by(caller)), (before.clone(), before.clone()));
    let payload = json!({"do": "data", "words": ["put"]});
    let called = node.invoker.invoke(&who, request(&payload, before.clone())).await.unwrap();
    assert!(called.token.get(SHARD) > before.get(SHARD));
    assert_eq!(node.objects.seen_by(caller), called.token);
    assert_eq!(node.invoker.seen(&Principal::outside(node.tenant.clone())), Token::empty());
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_may_not_begin_has_not_run_and_its_sandbox_serves_the_next() {
    let node = Node::start(settings()).await;
    node.deploy("f", |_| ());
    let first = node.invoke("f", json!({"do": "data", "words": ["put"]})).await;
    let newest = node.record(first.id).await.token.get(SHARD).unwrap();
    let mut ahead = Token::empty();
    ahead.see(SHARD, Version { sequence: Sequence(newest.sequence.0 + 100), ..newest });
    let who = Principal::outside(node.tenant.clone());
    let refused = node.invoker.invoke(&who, request(&json!({"do": "echo"}), ahead)).await;
    assert!(matches!(refused, Err(InvokeError::Gate(GateRefusal::NotCovered))), "{refused:?}");
    let in_use = node.invoker.in_use();
    assert_eq!((in_use.running, in_use.idle), (0, 1));
    let records = node.activations.list(ActivationQuery::default(), 10).await.unwrap();
    assert_eq!(records.len(), 1, "it has no record");
    node.stop().await;
}
