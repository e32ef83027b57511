//! OpenWhisk's API on the same door: requests as its documentation and clients make them, and as none should. The actions
//! do not really run here; that they do is tested with a whole node.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use nigh_terms::{FunctionName, InvocationId, Namespace, SandboxId};
use serde_json::{Value, json};

use crate::lambda_door_support::{Client, Door, HttpAnswer};

pub(crate) const CODE: &str = "def main(args):\n    return args\n";

/// A client with a key, by Basic authentication.
pub(crate) struct Whisk<'a> {
    client: Client,
    door: &'a Door,
}

impl<'a> Whisk<'a> {
    pub(crate) fn new(door: &'a Door) -> Self {
        Self { client: door.client(), door }
    }

    pub(crate) async fn send(&self, method: &str, target: &str, headers: &[(&str, &str)], body: &[u8]) -> HttpAnswer {
        let mut head = format!("{method} {target} HTTP/1.1\r\nhost: {}\r\n", self.door.address);
        headers.iter().for_each(|(name, value)| head.push_str(&format!("{name}: {value}\r\n")));
        head.push_str(&format!("content-length: {}\r\nconnection: close\r\n\r\n", body.len()));
        self.client.raw(head.as_bytes(), body).await
    }

    fn basic(&self) -> String {
        format!("Basic {}", STANDARD.encode(format!("{}:{}", self.client.key.0, self.client.key.1.reveal())))
    }

    /// A request below the caller's own namespace.
    pub(crate) async fn ask(&self, method: &str, path: &str, body: &Value) -> HttpAnswer {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let target = format!("/api/v1/namespaces/_/{path}");
        self.send(method, &target, &[("authorization", &self.basic())], body.as_bytes()).await
    }

    /// The same, that must have this status.
    pub(crate) async fn must(&self, status: u16, method: &str, path: &str, body: Value) -> Value {
        let answer = self.ask(method, path, &body).await;
        assert_eq!(answer.status, status, "{method} {path}: {}", String::from_utf8_lossy(&answer.body));
        if answer.body.is_empty() { Value::Null } else { answer.json() }
    }

    /// The record of an activation, when it has ended.
    pub(crate) async fn recorded(&self, id: &str) -> Value {
        for _ in 0..500 {
            let answer = self.ask("GET", &format!("activations/{id}"), &Value::Null).await;
            if answer.status == 200 {
                return answer.json();
            }
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
        panic!("the record of {id} never comes");
    }

    pub(crate) async fn action(&self, name: &str) {
        self.must(200, "PUT", &format!("actions/{name}"), json!({ "exec": { "kind": "python:3", "code": CODE } }))
            .await;
    }
}

#[tokio::test]
async fn openwhisk_s_keys_are_asked_for_before_anything_is_told() {
    let door = Door::open().await;
    let whisk = Whisk::new(&door);
    let list = "/api/v1/namespaces/_/actions";
    let none = whisk.send("GET", list, &[("x-request-id", "mine")], b"").await;
    assert_eq!((none.status, none.header("www-authenticate").is_some()), (401, true));
    assert_eq!((&none.json()["code"], none.header("x-request-id")), (&json!("mine"), Some("mine")));
    for wrong in ["Basic x", "Basic bm9ib2R5Om5vdGhpbmc=", "Bearer x"] {
        assert_eq!(whisk.send("GET", list, &[("authorization", wrong)], b"").await.status, 401, "{wrong}");
    }
    let basic = whisk.basic();
    let authorized = [("authorization", basic.as_str())];
    assert_eq!(whisk.send("GET", list, &authorized, b"").await.json(), json!([]));
    assert_eq!(whisk.send("GET", "/api/v1/namespaces", &authorized, b"").await.json(), json!(["tenant"]));
    assert_eq!(whisk.send("GET", "/api/v1/namespaces/other/actions", &authorized, b"").await.status, 403);
    let open = whisk.send("GET", "/api/v1", &[], b"").await;
    assert_eq!((open.status, &open.json()["api_paths"]), (200, &json!(["/api/v1"])));
    let options = whisk.send("OPTIONS", list, &[], b"").await;
    assert_eq!((options.status, options.header("access-control-allow-origin")), (200, Some("*")));
    assert_eq!(whisk.send("GET", "/api/v1/nothing", &authorized, b"").await.status, 404);
    assert_eq!(whisk.send("PATCH", list, &authorized, b"").await.status, 405);
}

#[tokio::test]
async fn a_sandbox_may_invoke_actions_and_fire_triggers_and_nothing_else() {
    let door = Door::open().await;
    let whisk = Whisk::new(&door);
    whisk.action("f").await;
    whisk.must(200, "PUT", "triggers/t", json!({})).await;
    let tenant = Namespace::new("tenant").unwrap();
    let key = door.keys.issue_sandbox(tenant, FunctionName::new("caller").unwrap(), SandboxId::random());
    let inside = Whisk { client: Client { key, ..door.client() }, door: &door };
    assert_eq!(inside.ask("POST", "actions/f?blocking=true", &Value::Null).await.status, 403, "it runs nothing");
    door.keys.set_invocation(&inside.client.key.0, Some(InvocationId::now()));
    inside.must(200, "POST", "actions/f?blocking=true", Value::Null).await;
    inside.must(204, "POST", "triggers/t", Value::Null).await;
    for (method, path) in [("GET", "actions"), ("PUT", "actions/g"), ("DELETE", "actions/f"), ("GET", "activations")] {
        assert_eq!(inside.ask(method, path, &Value::Null).await.status, 403, "{method} {path}");
    }
    let tokens: Vec<bool> = door.invoke.tokens.lock().iter().map(|token| !token.is_empty()).collect();
    assert_eq!(tokens, [true], "it begins with what its caller has seen");
}

#[tokio::test]
async fn parameters_of_package_action_and_call_become_one_input() {
    let door = Door::open().await;
    let whisk = Whisk::new(&door);
    let parameter = |key: &str, value: u32| json!({ "key": key, "value": value });
    let package = json!({ "parameters": [parameter("a", 1), parameter("b", 1), parameter("c", 1)] });
    whisk.must(200, "PUT", "packages/p", package).await;
    let action = json!({
        "exec": { "kind": "python:3", "code": CODE },
        "parameters": [parameter("b", 2), parameter("c", 2), { "key": "HOME", "value": "/x", "init": true }],
    });
    whisk.must(200, "PUT", "actions/p/f", action).await;
    let answer = whisk.must(200, "POST", "actions/p/f?blocking=true&result=true", json!({ "c": 3 })).await;
    assert_eq!(answer, json!({ "echo": { "a": 1, "b": 2, "c": 3 } }));
    let shown = whisk.must(200, "GET", "actions/p/f", Value::Null).await;
    assert_eq!(shown["parameters"].as_array().unwrap().len(), 4, "{shown}");
    assert_eq!((&shown["namespace"], &shown["exec"]["code"]), (&json!("tenant/p"), &json!(CODE)));
    whisk
        .must(200, "PUT", "actions/p/f?overwrite=true", json!({ "annotations": [{ "key": "final", "value": true }] }))
        .await;
    whisk.must(400, "POST", "actions/p/f?blocking=true", json!({ "c": 3 })).await;
    whisk.must(200, "POST", "actions/p/f?blocking=true", json!({ "d": 3 })).await;
}

#[tokio::test]
async fn an_update_changes_what_it_says_and_a_conflict_is_told() {
    let door = Door::open().await;
    let whisk = Whisk::new(&door);
    whisk.action("f").await;
    let exists = whisk.must(409, "PUT", "actions/f", json!({ "exec": { "kind": "python:3", "code": CODE } })).await;
    assert_eq!(exists["error"], "resource already exists");
    whisk.must(400, "PUT", "actions/g", json!({})).await;
    let annotations = json!([{ "key": "a", "value": 1 }, { "key": "b", "value": 2 }]);
    whisk.must(200, "PUT", "actions/f?overwrite=true", json!({ "annotations": annotations, "publish": true })).await;
    let removed = json!({ "delAnnotations": ["a"], "limits": { "memory": 512 } });
    let shown = whisk.must(200, "PUT", "actions/f?overwrite=true", removed).await;
    assert_eq!((&shown["version"], &shown["publish"]), (&json!("0.0.3"), &json!(true)));
    assert_eq!((&shown["limits"]["memory"], &shown["limits"]["timeout"]), (&json!(512), &json!(60_000)));
    let keys: Vec<&str> =
        shown["annotations"].as_array().unwrap().iter().map(|one| one["key"].as_str().unwrap()).collect();
    assert_eq!(keys, ["provide-api-key", "exec", "b"]);
    let two = json!({ "exec": { "kind": "python:3", "code": "def run(a):\n    return {}\n", "main": "run" } });
    let changed = whisk.must(200, "PUT", "actions/f?overwrite=true", two).await;
    assert_eq!((&changed["exec"]["main"], &changed["limits"]["memory"]), (&json!("run"), &json!(512)));
    whisk.must(200, "PUT", "actions/f?overwrite=true", json!({ "version": "1.0.0" })).await;
    whisk.must(400, "PUT", "actions/f?overwrite=true", json!({ "version": "one" })).await;
    whisk.must(400, "PUT", "actions/f?overwrite=maybe", json!({})).await;
    whisk
        .must(
            413,
            "PUT",
            "actions/f?overwrite=true",
            json!({ "parameters": [{ "key": "a", "value": "x".repeat(1 << 20) }] }),
        )
        .await;

    // A sequence takes its place, and gives it back.
    whisk.action("g").await;
    let sequence = json!({ "exec": { "kind": "sequence", "components": ["/_/g"] } });
    let shown = whisk.must(200, "PUT", "actions/f?overwrite=true", sequence).await;
    assert_eq!((&shown["version"], &shown["exec"]["components"]), (&json!("1.0.1"), &json!(["/tenant/g"])));
    assert_eq!(whisk.must(200, "GET", "actions?count=true", Value::Null).await, json!({ "actions": 2 }));
    whisk
        .must(400, "PUT", "actions/g?overwrite=true", json!({ "exec": { "kind": "sequence", "components": ["/_/f"] } }))
        .await;
    let code = json!({ "exec": { "kind": "python:3", "code": CODE } });
    assert_eq!(whisk.must(200, "PUT", "actions/f?overwrite=true", code).await["version"], "1.0.2");
    assert_eq!(whisk.must(200, "GET", "actions/f", Value::Null).await["exec"]["kind"], "python:3");
}

#[tokio::test]
async fn who_waits_too_long_gets_the_id_and_the_record_comes_later() {
    let door = Door::open().await;
    let whisk = Whisk::new(&door);
    whisk.action("f").await;
    let held = door.invoke.gate.acquire().await.unwrap();
    let late = whisk.ask("POST", "actions/f?blocking=true&timeout=50", &json!({ "n": 1 })).await;
    assert_eq!(late.status, 202);
    let id = late.json()["activationId"].as_str().unwrap().to_owned();
    assert_eq!((late.header("x-openwhisk-activation-id"), id.len()), (Some(id.as_str()), 32));
    whisk.must(404, "GET", &format!("activations/{id}"), Value::Null).await;
    let now = whisk.must(202, "POST", "actions/f", json!({ "n": 2 })).await;
    drop(held);
    let record = whisk.recorded(&id).await;
    assert_eq!(record["response"]["result"], json!({ "echo": { "n": 1 } }));
    let result = whisk.must(200, "GET", &format!("activations/{id}/result"), Value::Null).await;
    assert_eq!((&result["status"], &result["success"]), (&json!("success"), &json!(true)));
    let logs = whisk.must(200, "GET", &format!("activations/{id}/logs"), Value::Null).await;
    assert_eq!(logs["logs"].as_array().unwrap().len(), 1);
    whisk.recorded(now["activationId"].as_str().unwrap()).await;
    assert_eq!(whisk.must(200, "GET", "activations?name=f&count=true", Value::Null).await, json!({ "activations": 2 }));
    assert_eq!(whisk.must(200, "GET", "activations?name=other", Value::Null).await, json!([]));
    whisk.must(400, "GET", "activations?limit=201", Value::Null).await;
    whisk.must(400, "GET", "activations?count=true&docs=true", Value::Null).await;
    whisk.must(400, "GET", "activations?since=yesterday", Value::Null).await;
    whisk.must(400, "GET", "activations/not-an-id", Value::Null).await;
    whisk.must(400, "POST", "actions/f?blocking=true&timeout=60001", Value::Null).await;
    door.until.cancel();
    door.served.await.unwrap();
}

#[tokio::test]
async fn what_is_no_input_is_refused_and_nothing_of_it_runs() {
    let door = Door::open().await;
    let whisk = Whisk::new(&door);
    whisk.action("f").await;
    for body in [json!([1]), json!("x"), json!(1)] {
        whisk.must(400, "POST", "actions/f?blocking=true", body).await;
    }
    let large = json!({ "a": "x".repeat(1 << 20) });
    whisk.must(413, "POST", "actions/f?blocking=true", large).await;
    whisk.must(404, "POST", "actions/nothing?blocking=true", Value::Null).await;
    whisk.must(404, "POST", "actions/p/f?blocking=true", Value::Null).await;
    whisk.must(405, "POST", "packages/p", Value::Null).await;
    assert!(door.invoke.tokens.lock().is_empty());
    let failed = whisk.must(502, "POST", "actions/f?blocking=true", json!({ "raise": 1 })).await;
    assert_eq!(failed["response"]["status"], "application error");
    let basic = whisk.basic();
    let broken = whisk.send("POST", "/api/v1/namespaces/_/actions/f", &[("authorization", &basic)], b"{").await;
    assert_eq!(broken.status, 400);
}

#[tokio::test]
async fn what_is_no_good_is_refused_in_openwhisk_s_own_words() {
    let door = Door::open().await;
    let whisk = Whisk::new(&door);
    let sequence = |components: &[&str]| json!({ "exec": { "kind": "sequence", "components": components } });
    for name in ["f", "g"] {
        whisk.action(name).await;
    }
    for (name, of) in [("one", "/_/f"), ("two", "/_/one"), ("three", "/_/two"), ("many", "/_/f")] {
        whisk.must(200, "PUT", &format!("actions/{name}"), sequence(&[of])).await;
    }
    whisk.must(200, "PUT", "actions/half?overwrite=true", sequence(&["/_/one"; 26])).await;
    let parameters = |count: usize, bytes: usize| {
        let all: Vec<Value> =
            (0..count).map(|n| json!({ "key": format!("p{n}"), "value": "x".repeat(bytes) })).collect();
        json!({ "exec": { "kind": "python:3", "code": CODE }, "parameters": all })
    };
    let kinds = "Valid values are: 'python:3', 'python:default', 'sequence'.";
    let of_kind = |kind: &str| json!({ "exec": { "kind": kind, "code": CODE } });
    let scratch = |folders: Value| {
        let annotations = json!([{ "key": "nigh:scratch", "value": folders }]);
        json!({ "exec": { "kind": "sequence", "components": ["/_/f"] }, "annotations": annotations })
    };
    for (status, path, body, words) in [
        // To itself: at once, through another, through several.
        (400, "actions/new", sequence(&["/_/new"]), "Sequence may not refer to itself."),
        (400, "actions/one?overwrite=true", sequence(&["/_/f", "/_/one"]), "Sequence may not refer to itself."),
        (400, "actions/one?overwrite=true", sequence(&["/_/three"]), "Sequence may not refer to itself."),
        (400, "actions/new", sequence(&[]), "No component specified for the sequence."),
        (400, "actions/new", sequence(&["/_/f", "/_/nothing"]), "Sequence component does not exist."),
        (400, "actions/new", sequence(&["/_/f"; 51]), "Too many actions in the sequence."),
        (400, "actions/new", sequence(&["/_/half", "/_/half"]), "Too many actions in the sequence."),
        (403, "actions/new", sequence(&["/other/f"]), "The supplied authentication is not authorized to access"),
        (
            400,
            "actions/new",
            of_kind("cobol:85"),
            &format!("The specified runtime 'cobol:85' is not supported by this platform. {kinds}"),
        ),
        (
            400,
            "actions/new",
            of_kind(""),
            &format!("The specified runtime '' is not supported by this platform. {kinds}"),
        ),
        (400, "actions/new", json!({ "exec": {} }), "exec has no kind"),
        (400, "actions/new", json!({}), "exec undefined"),
        (413, "actions/new", parameters(1, 1 << 20), "Parameters larger than allowed: "),
        (413, "actions/new", parameters(3000, 400), "Parameters larger than allowed: "),
        (400, "actions/new", scratch(json!(1)), "nigh:scratch has 1, which is no text"),
        (400, "actions/new", scratch(json!("bucket")), "nigh:scratch has \"bucket\"; it can have up to 8 of the form"),
        (400, "actions/new", scratch(json!("bucket/folder/")), "nigh:scratch: there is no bucket bucket"),
    ] {
        let refused = whisk.must(status, "PUT", path, body).await;
        let said = refused["error"].as_str().unwrap();
        assert!(said.starts_with(words), "{path}: {said}");
    }
    whisk.must(404, "GET", "actions/new", Value::Null).await;
    let large = whisk.must(413, "POST", "actions/f?blocking=true", json!({ "a": "x".repeat(1 << 20) })).await;
    let said = large["error"].as_str().unwrap();
    assert!(said.ends_with("larger than allowed: 1048584 > 1048576 bytes."), "{said}");

    // A component that is gone when its turn comes: what stands before it has run.
    whisk.must(200, "PUT", "actions/one?overwrite=true", sequence(&["/_/f", "/_/g", "/_/f"])).await;
    whisk.must(200, "DELETE", "actions/g", Value::Null).await;
    let record = whisk.must(502, "POST", "actions/one?blocking=true", json!({ "n": 1 })).await;
    assert_eq!(record["response"]["result"], json!({ "error": "Sequence component does not exist." }));
    assert_eq!(
        (&record["response"]["status"], record["logs"].as_array().unwrap().len()),
        (&json!("application error"), 1)
    );
}

#[tokio::test]
async fn a_function_is_reached_by_both_doors() {
    let door = Door::open().await;
    let whisk = Whisk::new(&door);
    door.create("of-lambda").await;
    let echo = whisk.must(200, "POST", "actions/of-lambda?blocking=true&result=true", json!({ "a": 1 })).await;
    assert_eq!(echo, json!({ "echo": { "a": 1 } }));
    let shown = whisk.must(200, "GET", "actions/of-lambda", Value::Null).await;
    assert_eq!((&shown["exec"]["kind"], &shown["exec"]["main"]), (&json!("python3.11"), &json!("app.handler")));
    whisk.must(200, "PUT", "actions/of-lambda?overwrite=true", json!({ "limits": { "timeout": 2500 } })).await;

    whisk.must(200, "PUT", "packages/p", json!({})).await;
    whisk.action("p/f").await;
    whisk.action("plain").await;
    let invoked = |name: &'static str| {
        let client = door.client();
        async move {
            let path = format!("/2015-03-31/functions/{name}/invocations");
            client.send("POST", &path, &[], br#"{"b":2}"#).await.json()
        }
    };
    assert_eq!(invoked("plain").await, json!({ "echo": { "b": 2 } }));
    assert_eq!(invoked("p__f").await, json!({ "echo": { "b": 2 } }));
    let listed = door.client().send("GET", "/2015-03-31/functions", &[], b"").await.json();
    let of = |name: &str| {
        listed["Functions"].as_array().unwrap().iter().find(|one| one["FunctionName"] == name).unwrap().clone()
    };
    assert_eq!((&of("p__f")["Runtime"], &of("of-lambda")["Timeout"]), (&json!("python:3"), &json!(2)));
    let actions = whisk.must(200, "GET", "actions", Value::Null).await;
    let mut names: Vec<String> = actions
        .as_array()
        .unwrap()
        .iter()
        .map(|one| format!("{}/{}", one["namespace"].as_str().unwrap(), one["name"].as_str().unwrap()))
        .collect();
    names.sort();
    assert_eq!(names, ["tenant/of-lambda", "tenant/p/f", "tenant/plain"]);
    // What stands in the way of an action says so.
    door.create("q__f").await;
    whisk.must(200, "PUT", "packages/q", json!({})).await;
    whisk.must(409, "PUT", "actions/q/f", json!({ "exec": { "kind": "python:3", "code": CODE } })).await;
    whisk.must(200, "DELETE", "actions/of-lambda", Value::Null).await;
    assert_eq!(door.client().send("GET", "/2015-03-31/functions/of-lambda", &[], b"").await.status, 404);
}

#[tokio::test]
async fn a_rule_has_its_trigger_s_action_invoked_while_it_is_active() {
    let door = Door::open().await;
    let whisk = Whisk::new(&door);
    whisk.action("f").await;
    whisk.must(200, "PUT", "triggers/t", json!({ "parameters": [{ "key": "a", "value": 1 }] })).await;
    whisk.must(409, "PUT", "triggers/t", json!({})).await;
    whisk.must(400, "PUT", "triggers/u", json!({ "annotations": [{ "key": "feed", "value": 1 }] })).await;
    whisk.must(400, "PUT", "rules/r", json!({ "trigger": "/_/t" })).await;
    let made = whisk.must(200, "PUT", "rules/r", json!({ "trigger": "/_/t", "action": "/tenant/f" })).await;
    assert_eq!((&made["status"], &made["action"]), (&json!("active"), &json!({ "path": "tenant", "name": "f" })));
    let fired = whisk.must(202, "POST", "triggers/t", json!({ "b": 2 })).await;
    let id = fired["activationId"].as_str().unwrap();
    let record = whisk.must(200, "GET", &format!("activations/{id}"), Value::Null).await;
    let result: Value = serde_json::from_str(record["logs"][0].as_str().unwrap()).unwrap();
    assert_eq!((&result["rule"], &result["success"]), (&json!("tenant/r"), &json!(true)));
    assert_eq!(record["response"]["result"], json!({ "b": 2 }));
    whisk.must(200, "POST", "rules/r", json!({ "status": "inactive" })).await;
    whisk.must(204, "POST", "triggers/t", Value::Null).await;
    whisk.must(400, "POST", "rules/r", json!({ "status": "sleepy" })).await;
    whisk.must(200, "DELETE", "triggers/t", Value::Null).await;
    whisk.must(404, "POST", "rules/r", json!({ "status": "active" })).await;
    whisk.must(200, "DELETE", "rules/r", Value::Null).await;
    whisk.must(404, "GET", "rules/r", Value::Null).await;
}

#[tokio::test]
async fn a_package_in_use_stays_and_a_binding_binds_no_binding() {
    let door = Door::open().await;
    let whisk = Whisk::new(&door);
    whisk.must(400, "PUT", "packages/default", json!({})).await;
    whisk.must(200, "PUT", "packages/p", json!({})).await;
    let binding = |name: &str| json!({ "binding": { "namespace": "_", "name": name } });
    whisk.must(200, "PUT", "packages/b", binding("p")).await;
    whisk.must(400, "PUT", "packages/c", binding("b")).await;
    whisk.must(400, "PUT", "packages/c", binding("nothing")).await;
    whisk.must(403, "PUT", "packages/c", json!({ "binding": { "namespace": "other", "name": "p" } })).await;
    whisk.must(409, "PUT", "packages/p?overwrite=true", binding("b")).await;
    whisk.action("p/f").await;
    let shown = whisk.must(200, "GET", "packages/b", Value::Null).await;
    assert_eq!((&shown["binding"]["name"], &shown["actions"][0]["name"]), (&json!("p"), &json!("f")));
    let basic = whisk.basic();
    let listed = whisk.send("GET", "/api/v1/namespaces/_/actions/b/", &[("authorization", &basic)], b"").await;
    assert_eq!(listed.json()[0]["name"], "f");
    let refused = whisk.must(409, "DELETE", "packages/p", Value::Null).await;
    assert!(refused["error"].as_str().unwrap().contains("contains 1 entity"), "{refused}");
    whisk.must(200, "DELETE", "packages/p?force=true", Value::Null).await;
    whisk.must(404, "GET", "actions/p/f", Value::Null).await;
    whisk.must(404, "POST", "actions/b/f", Value::Null).await;
}

#[tokio::test]
async fn a_web_action_is_open_to_anybody_and_what_is_not_exported_is_not_there() {
    let door = Door::open().await;
    let whisk = Whisk::new(&door);
    whisk.action("hidden").await;
    let page = json!({
        "exec": { "kind": "python:3", "code": CODE },
        "annotations": [{ "key": "web-export", "value": true }],
        "parameters": [{ "key": "fixed", "value": 1 }],
    });
    whisk.must(200, "PUT", "actions/page", page).await;
    let web = |rest: &str| format!("/api/v1/web/tenant/default/{rest}");
    let answer =
        whisk.send("POST", &web("page.json/x?q=1"), &[("content-type", "application/json")], br#"{"a":2}"#).await;
    let echo = &answer.json()["echo"];
    assert_eq!((&echo["q"], &echo["a"], &echo["fixed"]), (&json!("1"), &json!(2), &json!(1)));
    assert_eq!((&echo["__ow_method"], &echo["__ow_path"]), (&json!("post"), &json!("/x")));
    assert!(echo.get("__ow_user").is_none());
    let basic = whisk.basic();
    let known = whisk.send("GET", &web("page.json"), &[("authorization", &basic)], b"").await;
    assert_eq!(known.json()["echo"]["__ow_user"], "tenant");
    assert_eq!(whisk.send("GET", &web("page"), &[], b"").await.status, 204, "no body in its answer");
    for (path, status) in [("hidden", 404), ("nothing", 404), ("page.html", 400), ("page?__ow_user=x", 400)] {
        assert_eq!(whisk.send("GET", &web(path), &[], b"").await.status, status, "{path}");
    }
    assert_eq!(whisk.send("GET", "/api/v1/web/Other!/default/page", &[], b"").await.status, 404);
    let options = whisk.send("OPTIONS", &web("page"), &[("access-control-request-headers", "x-own")], b"").await;
    assert_eq!((options.status, options.header("access-control-allow-headers")), (200, Some("x-own")));
    whisk
        .must(
            200,
            "PUT",
            "actions/page?overwrite=true",
            json!({ "annotations": [{ "key": "require-whisk-auth", "value": true }] }),
        )
        .await;
    assert_eq!(whisk.send("GET", &web("page"), &[], b"").await.status, 401);
    assert_eq!(whisk.send("GET", &web("page"), &[("authorization", &basic)], b"").await.status, 204);
}
