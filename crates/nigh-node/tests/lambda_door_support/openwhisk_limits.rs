//! What a namespace may have of OpenWhisk's API: in a minute, and at once.

use nigh_openwhisk::NamespaceLimits;
use serde_json::{Value, json};

use crate::lambda_door_support::Door;
use crate::openwhisk::{CODE, Whisk};

#[tokio::test]
async fn a_namespace_has_so_many_invocations_and_fires_a_minute_and_is_told() {
    let limits =
        NamespaceLimits { invocations_per_minute: Some(4), fires_per_minute: Some(1), ..NamespaceLimits::default() };
    // Its minutes begin with its clock: all of it is in the first.
    let door = Door::open_with(limits).await;
    let whisk = Whisk::new(&door);
    let told = whisk.must(200, "GET", "limits", Value::Null).await;
    assert_eq!((&told["invocationsPerMinute"], &told["firesPerMinute"]), (&json!(4), &json!(1)));
    assert_eq!(told["concurrentInvocations"], 10, "the node's own");
    whisk.action("f").await;
    let page = json!({ "exec": { "kind": "python:3", "code": CODE }, "annotations": [{ "key": "web-export", "value": true }] });
    whisk.must(200, "PUT", "actions/page", page).await;
    whisk.must(200, "PUT", "triggers/t", json!({})).await;
    whisk.must(200, "PUT", "rules/r", json!({ "trigger": "/_/t", "action": "/_/f" })).await;

    whisk.must(200, "POST", "actions/f?blocking=true", Value::Null).await;
    // What is not there counts too.
    whisk.must(404, "POST", "actions/nothing", Value::Null).await;
    let fired = whisk.must(202, "POST", "triggers/t", Value::Null).await;
    let second = whisk.must(429, "POST", "triggers/t", Value::Null).await;
    assert_eq!(second["error"], "Too many requests in the last minute (count: 2, allowed: 1).");
    assert!(second["code"].as_str().is_some_and(|code| !code.is_empty()));
    let record =
        whisk.must(200, "GET", &format!("activations/{}", fired["activationId"].as_str().unwrap()), Value::Null).await;
    assert!(record["logs"][0].as_str().unwrap().contains(r#""success":true"#), "{record}");
    let web = "/api/v1/web/tenant/default/page.json";
    assert_eq!(whisk.send("GET", web, &[], b"").await.status, 200);
    let fifth = whisk.must(429, "POST", "actions/f?blocking=true", Value::Null).await;
    assert_eq!(fifth["error"], "Too many requests in the last minute (count: 5, allowed: 4).");
    assert_eq!(whisk.send("GET", web, &[], b"").await.status, 429);
    // Nothing else is bounded so.
    whisk.must(200, "GET", "actions", Value::Null).await;
}

#[tokio::test]
async fn a_rule_whose_action_is_one_too_many_says_so_in_its_trigger_s_record() {
    let limits = NamespaceLimits { invocations_per_minute: Some(0), ..NamespaceLimits::default() };
    let door = Door::open_with(limits).await;
    let whisk = Whisk::new(&door);
    whisk.action("f").await;
    whisk.must(200, "PUT", "triggers/t", json!({})).await;
    whisk.must(200, "PUT", "rules/r", json!({ "trigger": "/_/t", "action": "/_/f" })).await;
    let fired = whisk.must(202, "POST", "triggers/t", Value::Null).await;
    let record =
        whisk.must(200, "GET", &format!("activations/{}", fired["activationId"].as_str().unwrap()), Value::Null).await;
    let result: Value = serde_json::from_str(record["logs"][0].as_str().unwrap()).unwrap();
    assert_eq!(result["success"], false);
    assert_eq!(result["error"], "Too many requests in the last minute (count: 1, allowed: 0).");
    assert!(door.invoke.tokens.lock().is_empty());
}

#[tokio::test]
async fn a_namespace_has_so_many_invocations_at_once() {
    let limits = NamespaceLimits { concurrent_invocations: Some(1), ..NamespaceLimits::default() };
    let door = Door::open_with(limits).await;
    let whisk = Whisk::new(&door);
    assert_eq!(whisk.must(200, "GET", "limits", Value::Null).await["concurrentInvocations"], 1);
    whisk.action("f").await;
    // A sequence is one, whatever it runs.
    whisk
        .must(200, "PUT", "actions/s", json!({ "exec": { "kind": "sequence", "components": ["/_/f", "/_/f"] } }))
        .await;
    let held = door.invoke.gate.acquire().await.unwrap();
    let first = whisk.must(202, "POST", "actions/s", Value::Null).await;
    let second = whisk.must(429, "POST", "actions/f", Value::Null).await;
    assert_eq!(second["error"], "Too many concurrent requests in flight (count: 1, allowed: 1).");
    drop(held);
    whisk.recorded(first["activationId"].as_str().unwrap()).await;
    // The place is given back right after the record is there.
    for _ in 0..500 {
        if whisk.ask("POST", "actions/f?blocking=true", &Value::Null).await.status == 200 {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    panic!("the place is never given back");
}
