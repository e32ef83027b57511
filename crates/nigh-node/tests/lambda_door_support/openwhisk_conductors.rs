//! Conductor actions of OpenWhisk. Actions do not really run here: one answers with its parameter `answer`, so that a
//! conductor's answer can say in `state` what it will answer next.

use serde_json::{Value, json};

use crate::lambda_door_support::Door;
use crate::openwhisk::{CODE, Whisk};

const TOO_LONG: &str = "Too many actions in the composition.";

async fn conductor(whisk: &Whisk<'_>, name: &str, memory: u32) {
    let action = json!({
        "exec": { "kind": "python:3", "code": CODE },
        "annotations": [{ "key": "conductor", "value": true }],
        "limits": { "memory": memory },
    });
    whisk.must(200, "PUT", &format!("actions/{name}"), action).await;
}

fn annotation(record: &Value, key: &str) -> Value {
    let all = record["annotations"].as_array().unwrap();
    all.iter().find(|one| one["key"] == key).map_or(Value::Null, |one| one["value"].clone())
}

#[tokio::test]
async fn a_conductor_decides_what_runs_and_its_record_names_all_that_ran() {
    let door = Door::open().await;
    let whisk = Whisk::new(&door);
    conductor(&whisk, "c", 128).await;
    let large = json!({ "exec": { "kind": "python:3", "code": CODE }, "limits": { "memory": 512 } });
    whisk.must(200, "PUT", "actions/f", large).await;
    let second = json!({ "params": 7 });
    let first = json!({ "action": "f", "params": { "n": 1 }, "state": { "answer": second, "mine": true } });
    let record = whisk.must(200, "POST", "actions/c?blocking=true", json!({ "answer": first })).await;
    assert_eq!((&record["response"]["result"], &record["name"]), (&json!({ "value": 7 }), &json!("c")));
    let said = ["kind", "conductor", "topmost", "causedBy"].map(|key| annotation(&record, key));
    assert_eq!(said, [json!("sequence"), json!(true), json!(true), Value::Null]);
    assert_eq!(annotation(&record, "limits")["memory"], 512, "the most that any of them has");
    let logs = record["logs"].as_array().unwrap();
    let mut ran = Vec::new();
    let mut duration = 0;
    for id in logs {
        let one = whisk.recorded(id.as_str().unwrap()).await;
        assert_eq!((&one["cause"], annotation(&one, "causedBy")), (&record["activationId"], json!("sequence")));
        assert_eq!(annotation(&one, "conductor"), Value::Null);
        duration += one["duration"].as_u64().unwrap();
        ran.push((one["name"].as_str().unwrap().to_owned(), one["response"]["result"].clone()));
    }
    assert_eq!(record["duration"].as_u64(), Some(duration));
    let names: Vec<&str> = ran.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["c", "f", "c"]);
    assert_eq!(ran[1].1, json!({ "echo": { "n": 1 } }));
    // Its own answers are shown as they were.
    assert_eq!(ran[2].1, json!({ "params": 7 }));
    let result = whisk.must(200, "POST", "actions/c?blocking=true&result=true", json!({ "answer": { "a": 1 } })).await;
    assert_eq!(result, json!({ "a": 1 }), "one that asks for nothing is done at once");
}

#[tokio::test]
async fn a_conductor_goes_on_with_result_and_state_over_its_parameters() {
    let door = Door::open().await;
    let whisk = Whisk::new(&door);
    conductor(&whisk, "c", 128).await;
    let parameters = json!({ "parameters": [{ "key": "own", "value": 1 }, { "key": "error", "value": "none" }] });
    whisk.must(200, "PUT", "actions/c?overwrite=true", parameters).await;
    whisk.action("f").await;
    let echo = |first: Value| {
        let whisk = &whisk;
        async move { whisk.must(200, "POST", "actions/c?blocking=true&result=true", json!({ "answer": first })).await }
    };
    // Without an answer of its own a conductor echoes its input, which is the end.
    assert_eq!(
        echo(json!({ "action": "/tenant/f", "params": { "n": 1 }, "state": { "kept": [2] } })).await,
        json!({ "echo": { "own": 1, "error": "none", "echo": { "n": 1 }, "kept": [2] } })
    );
    assert_eq!(
        echo(json!({ "action": "f", "params": "text", "state": 3 })).await,
        json!({ "echo": { "own": 1, "error": "none", "echo": { "value": "text" }, "state": 3 } })
    );
    // A component that fails does not end it.
    assert_eq!(
        echo(json!({ "action": "f", "params": { "raise": 1 }, "state": { "kept": 1 } })).await,
        json!({ "echo": { "own": 1, "error": "ValueError: asked to fail", "kept": 1 } })
    );
    // Nor does a name that leads nowhere: it is told.
    let named = "during composition.";
    for (action, words) in [
        (json!("nothing"), format!("Failed to resolve action with name 'tenant/nothing' {named}")),
        (json!("/other/f"), format!("Failed entitlement check for action with name 'other/f' {named}")),
        (json!(7), format!("Failed to parse action name from json value 7 {named}")),
    ] {
        assert_eq!(
            echo(json!({ "action": action, "state": { "kept": 1 } })).await,
            json!({ "echo": { "own": 1, "error": words, "kept": 1 } })
        );
    }
    let failed = whisk.must(502, "POST", "actions/c?blocking=true", json!({ "answer": { "error": "mine" } })).await;
    assert_eq!(
        (&failed["response"]["statusCode"], &failed["response"]["result"]["error"]),
        (&json!(1), &json!("mine"))
    );
    let raised = whisk.must(502, "POST", "actions/c?blocking=true", json!({ "raise": 1 })).await;
    assert_eq!((annotation(&raised, "conductor"), raised["logs"].as_array().unwrap().len()), (json!(true), 1));
}

#[tokio::test]
async fn sequences_and_conductors_run_each_other_and_what_has_no_end_is_ended() {
    let door = Door::open().await;
    let whisk = Whisk::new(&door);
    for name in ["c", "again", "inner"] {
        conductor(&whisk, name, 128).await;
    }
    whisk.action("f").await;
    let sequence = |components: Value| json!({ "exec": { "kind": "sequence", "components": components } });
    whisk.must(200, "PUT", "actions/s", sequence(json!(["/_/f", "/_/f"]))).await;
    // A sequence is one component; its own are its own record's.
    let first = json!({ "action": "s", "params": { "n": 1 }, "state": { "answer": { "params": { "done": true } } } });
    let record = whisk.must(200, "POST", "actions/c?blocking=true", json!({ "answer": first })).await;
    assert_eq!(record["logs"].as_array().unwrap().len(), 3);
    let inner = whisk.recorded(record["logs"][1].as_str().unwrap()).await;
    assert_eq!((&inner["name"], annotation(&inner, "topmost")), (&json!("s"), json!(false)));
    // A conductor in a sequence, and in a conductor.
    whisk.must(200, "PUT", "actions/t", sequence(json!(["/_/c", "/_/f"]))).await;
    let done = json!({ "answer": { "params": { "b": 2 } } });
    let result = whisk.must(200, "POST", "actions/t?blocking=true&result=true", done.clone()).await;
    assert_eq!(result, json!({ "echo": { "b": 2 } }));
    let nested = json!({ "action": "inner", "params": done, "state": { "answer": { "params": { "done": true } } } });
    let record = whisk.must(200, "POST", "actions/c?blocking=true", json!({ "answer": nested })).await;
    let inner = whisk.recorded(record["logs"][1].as_str().unwrap()).await;
    assert_eq!((&inner["name"], &inner["cause"]), (&json!("inner"), &record["activationId"]));
    assert_eq!(annotation(&inner, "causedBy"), json!("sequence"));

    // One whose parameter has it ask for more whatever comes: 50 components, and it is told; and is ended in the end.
    let always = json!({ "parameters": [{ "key": "answer", "value": { "action": "f" } }] });
    whisk.must(200, "PUT", "actions/again?overwrite=true", always).await;
    let ended = whisk.must(502, "POST", "actions/again?blocking=true", Value::Null).await;
    assert_eq!(ended["response"]["result"]["error"], TOO_LONG);
    assert_eq!(ended["response"]["status"], "application error");
    assert_eq!(ended["logs"].as_array().unwrap().len(), 50 + 101);
    // One that runs itself, at once and by a sequence.
    for action in ["c", "t"] {
        let itself = json!({ "parameters": [{ "key": "answer", "value": { "action": action } }] });
        whisk.must(200, "PUT", "actions/c?overwrite=true", itself).await;
        let ended = whisk.must(502, "POST", "actions/c?blocking=true", Value::Null).await;
        assert_eq!(ended["response"]["result"]["error"], TOO_LONG, "{action}");
    }
}
