//! What hangs on a function is seen beside it, and goes with it.

use serde_json::{Value, json};

use crate::platform::{Node, python, wait_for};

/// A date that is far away.
const ONCE_A_YEAR: &str = "0 0 1 1 ? *";

/// Deploys `hello` with all that can hang on a function.
fn deploy_full(node: &Node) {
    node.ok(["objects", "mb", "nigh://inbox"]);
    node.deploy("hello");
    let all =
        ["--trigger", "inbox/in/", "--url", "iam", "--reserved", "2", "--cron", ONCE_A_YEAR, "--env", "LEVEL=secret"];
    node.ok([&["deploy", "hello"], &all[..]].concat());
}

fn put(node: &Node, to: &str) {
    let object = node.state.with_file_name("object");
    std::fs::write(&object, "x").unwrap();
    node.ok(["objects", "cp", object.to_str().unwrap(), to]);
}

/// The row of `nigh functions show` that begins with `what`.
fn row(shown: &str, what: &str) -> String {
    let line = shown.lines().find(|line| line.starts_with(what)).unwrap_or_else(|| panic!("{what}: {shown}"));
    line.trim_start_matches(what).trim().to_owned()
}

#[test]
fn a_function_is_shown_with_all_that_hangs_on_it_and_how_it_failed_last() {
    let Some(python) = python("a_function_is_shown_with_all_that_hangs_on_it_and_how_it_failed_last") else { return };
    let node = Node::start(&python);
    node.deploy("plain");
    let plain = node.ok(["functions", "show", "plain"]);
    for what in ["Layers", "Concurrency", "Triggers", "URL", "Schedules", "Last errors"] {
        assert_eq!(row(&plain, what), "-", "{plain}");
    }
    assert_eq!(row(&plain, "Network"), "none");

    deploy_full(&node);
    for number in 0..4 {
        node.nigh(["invoke", "hello", &json!({ "raise": format!("error {number}") }).to_string()]);
    }
    let shown = node.ok(["functions", "show", "hello"]);
    assert_eq!(
        (row(&shown, "Triggers"), row(&shown, "Concurrency")),
        ("inbox/in/".to_owned(), "2 reserved".to_owned())
    );
    assert!(row(&shown, "URL").ends_with("(iam)") && row(&shown, "URL").starts_with("http://"), "{shown}");
    assert!(row(&shown, "Schedules").starts_with("hello: cron(0 0 1 1 ? *) in UTC, next 20"), "{shown}");
    assert_eq!(row(&shown, "Environment"), "LEVEL");
    assert!(!shown.contains("secret"), "values may be secrets: {shown}");
    assert_eq!(shown.matches("handler raised ValueError: error ").count(), 3, "{shown}");
    assert!(!shown.contains("error 0") && shown.contains("nigh explain "), "{shown}");

    let all = node.json(["functions", "show", "hello"]);
    assert_eq!(
        all["Triggers"],
        json!([{ "bucket": "inbox", "prefix": "in/", "suffix": "", "events": ["s3:ObjectCreated:*"] }])
    );
    assert_eq!(
        (&all["FunctionUrlAccess"], &all["Concurrency"]["ReservedConcurrentExecutions"]),
        (&json!("iam"), &json!(2))
    );
    assert_eq!((&all["Schedules"][0]["Name"], all["LastErrors"].as_array().unwrap().len()), (&json!("hello"), 3));
    assert_eq!(all["Environment"]["Variables"]["LEVEL"], "secret");
}

#[test]
fn a_function_goes_with_its_triggers_its_url_and_its_schedules() {
    let Some(python) = python("a_function_goes_with_its_triggers_its_url_and_its_schedules") else { return };
    let mut node = Node::start(&python);
    deploy_full(&node);
    node.deploy("other");
    node.ok(["deploy", "other", "--trigger", "inbox/other/"]);
    assert_eq!(
        node.ok(["functions", "rm", "hello"]).trim(),
        "removed hello with its trigger inbox/in/ and its schedule hello and its URL"
    );
    assert_eq!(node.json(["schedules", "list"]), json!([]));
    node.kill();
    node.restart();
    // Nothing is told of the object: there is no event, and no dead letter.
    put(&node, "nigh://inbox/in/a");
    let events = node.json(["events", "list"]);
    assert_eq!((&events["pending"], &events["dead"]), (&json!(0), &json!(0)), "{events}");
    // The triggers of others stay.
    put(&node, "nigh://inbox/other/a");
    wait_for("the other function to run", || node.json(["activations", "--function", "other"]) != json!([]));

    node.deploy("hello");
    let again = node.json(["functions", "show", "hello"]);
    assert_eq!((&again["Triggers"], &again["Schedules"]), (&json!([]), &json!([])), "a new function has none of it");
    assert!(again["FunctionUrl"].is_null() && again["Concurrency"].is_null(), "{again}");

    let absent = node.nigh(["--json", "functions", "rm", "absent"]);
    let said: Value = serde_json::from_slice(&absent.stderr).unwrap();
    assert_eq!((absent.status.code(), &said["code"]), (Some(1), &json!("ResourceNotFoundException")));
    let removed = node.json(["functions", "rm", "other"]);
    assert_eq!(removed, json!({ "removed": "other", "triggers": ["inbox/other/"], "url": null, "schedules": [] }));
}
