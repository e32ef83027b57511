//! What is learned of functions' memory, as a user meets it.

use serde_json::{Value, json};

use crate::command_line::has_its_form;
use crate::platform::{Node, python};

/// Rows as `nigh learn export` writes them: peaks by an argument.
fn rows(count: u64) -> String {
    let row = |at: u64| {
        let mib = 20 + at * 7 % 60;
        format!("{},false,0,false,{at},{mib},\"warm\"\n", (30 + mib) << 20)
    };
    let head = "peak_bytes,touched_limit,page_cache_bytes,missed,input,arg_mib,start\n";
    std::iter::once(head.to_owned()).chain((0..count).map(row)).collect()
}

#[test]
fn what_is_learned_is_listed_shown_exported_imported_and_forgotten_and_an_invocation_says_its_grant() {
    let Some(python) =
        python("what_is_learned_is_listed_shown_exported_imported_and_forgotten_and_an_invocation_says_its_grant")
    else {
        return;
    };
    let mut node = Node::start(&python);
    node.deploy("bare");
    node.deploy("echo");
    let level = |node: &Node| {
        let levels = node.json(["status"])["levels"].clone();
        levels.as_array().unwrap().iter().find(|level| level["name"] == "sizing").unwrap().clone()
    };
    assert!(level(&node)["detail"].as_str().unwrap().contains("lintree"), "{}", level(&node));
    assert_eq!(node.json(["learn", "ls"]), json!([]));
    let note = |node: &Node| {
        node.ok(["invoke", "echo", r#"{"mib": 40}"#]);
        let notes = node.last_activation()["notes"].clone();
        let note = notes.as_array().unwrap().iter().find_map(|note| note.as_str()?.strip_prefix("sizing: "));
        note.unwrap().to_owned()
    };
    assert!(note(&node).starts_with("all booked"));

    let file = node.state.with_file_name("rows.csv");
    std::fs::write(&file, rows(60)).unwrap();
    let taught = node.json(["learn", "import", "echo", file.to_str().unwrap()]);
    assert_eq!((&taught["mature"], &taught["rows"]), (&json!(true), &json!(60)));
    let sized = note(&node);
    assert!(sized.starts_with("granted") && sized.contains("lintree"), "{sized}");
    let listed = node.json(["learn", "ls"]);
    assert_eq!((listed.as_array().unwrap().len(), &listed[0]["function"]), (1, &json!("echo")), "{listed}");
    has_its_form("learn ls", &listed[0]);
    let filtered = |more: &[&str]| node.json([&["learn", "ls"], more].concat());
    assert_eq!([filtered(&["ec", "--mature"]), filtered(&["--limit", "1"])], [listed.clone(), listed]);
    assert_eq!([filtered(&["bare"]), filtered(&["--limit", "0"])], [json!([]), json!([])]);

    // It outlives the node.
    node.terminate();
    assert_eq!(node.exit_code(), Some(0));
    node.restart();
    let known = node.json(["learn", "show", "echo"]);
    assert_eq!((&known["mature"], &known["learner"]), (&json!(true), &json!("lintree")));
    let csv = String::from_utf8(node.nigh(["learn", "export", "echo"]).stdout).unwrap();
    assert!(csv.starts_with("peak_bytes,") && csv.contains("arg_mib"), "{csv}");

    std::fs::write(&file, "peak_bytes\nx\n").unwrap();
    let refused = node.nigh(["learn", "import", "echo", file.to_str().unwrap()]);
    let words = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(refused.status.code() == Some(1) && words.contains("touched_limit"), "{words}");
    node.ok(["learn", "forget", "echo"]);
    let gone = node.nigh(["learn", "show", "echo"]);
    assert_eq!(gone.status.code(), Some(1));
    assert_eq!(node.json(["learn", "ls"]), Value::Array(Vec::new()));
}
