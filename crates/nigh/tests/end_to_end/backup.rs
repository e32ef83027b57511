//! A backup made while a node works, and a node made of it.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};

use crate::platform::{Node, command, python, wait_for};

const OBJECTS: usize = 40;

fn nigh(state: &Path, arguments: &[&str]) -> (bool, Value, String) {
    let output = command(state).arg("--json").args(arguments).output().unwrap();
    let said = serde_json::from_slice(&output.stdout).unwrap_or(Value::Null);
    (output.status.success(), said, String::from_utf8_lossy(&output.stderr).into_owned())
}

#[test]
fn a_node_made_of_a_backup_that_was_taken_under_load_works_and_a_kill_leaves_nothing_or_all() {
    let test = "a_node_made_of_a_backup_that_was_taken_under_load_works_and_a_kill_leaves_nothing_or_all";
    let Some(python) = python(test) else { return };
    let mut node = Node::start(&python);
    node.ok(["objects", "mb", "nigh://data"]);
    node.deploy("sleeper");
    let object = node.state.with_file_name("object");
    for n in 0..OBJECTS {
        std::fs::write(&object, format!("object {n}").repeat(20_000)).unwrap();
        node.ok(["objects", "cp", object.to_str().unwrap(), &format!("nigh://data/folder/{n}")]);
    }

    let running = node.begin(["invoke", "sleeper", r#"{"sleep": 3}"#]);
    wait_for("the invocation to run", || node.json(["status"])["sandboxes"]["running"] == 1);
    let file = node.state.with_file_name("node.tar");
    let file = file.to_str().unwrap();
    let made = node.json(["backup", file, "--objects"]);
    assert_eq!(made["content"]["objects"], OBJECTS, "{made}");
    assert_eq!((&made["content"]["buckets"], &made["content"]["code"]), (&json!(1), &json!(1)), "{made}");
    assert_eq!(std::fs::metadata(file).unwrap().permissions().mode() & 0o777, 0o600);
    assert!(!node.nigh(["backup", file]).status.success(), "a file that is there is not replaced");
    let held = node.nigh(["restore", file, "--force"]);
    assert!(String::from_utf8_lossy(&held.stderr).contains("another Nigh is running"), "{held:?}");
    assert!(running.wait_with_output().unwrap().status.success(), "an invocation goes on while a backup is made");
    let streamed = node.nigh(["backup", "-", "--objects"]);
    assert!(streamed.status.success() && streamed.stdout.len() > OBJECTS * 160_000);

    // Killed at one moment after another: what is there is nothing, and can be made, or all.
    let count = |state: &Path, name: &str| {
        let copy = state.with_extension(name);
        let (done, said, words) = nigh(state, &["backup", copy.to_str().unwrap(), "--objects"]);
        assert!(done, "{words}");
        said["content"]["objects"].clone()
    };
    let elsewhere = tempfile::tempdir().unwrap();
    let (mut nothing, mut all) = (0, 0);
    for round in 0..8_u64 {
        let state = elsewhere.path().join(round.to_string());
        let mut restoring = command(&state).args(["restore", file]).spawn().unwrap();
        std::thread::sleep(Duration::from_millis(20 + round * round * 12));
        restoring.kill().unwrap();
        restoring.wait().unwrap();
        let (done, _, words) = nigh(&state, &["restore", file]);
        if done {
            nothing += 1;
        } else {
            assert!(words.contains("not empty"), "{words}");
            all += 1;
        }
        assert_eq!(count(&state, "copy"), OBJECTS, "round {round}");
    }
    assert!(nothing > 0, "no kill came in time: {nothing} and {all}");

    let cut = elsewhere.path().join("cut.tar");
    let whole = std::fs::read(file).unwrap();
    std::fs::write(&cut, &whole[..whole.len() / 2]).unwrap();
    let (done, _, words) = nigh(&elsewhere.path().join("0"), &["restore", cut.to_str().unwrap(), "--check"]);
    assert!(!done && words.contains("cut off"), "{words}");

    // In the place of the node itself, which dies, and of what it has got since.
    node.ok(["objects", "cp", object.to_str().unwrap(), "nigh://data/late"]);
    node.kill();
    let (done, said, words) = nigh(&node.state, &["restore", file, "--force"]);
    assert!(done, "{words}");
    assert!(Path::new(said["moved_away"].as_str().unwrap()).join("state.redb").exists());
    node.restart();
    assert_eq!(node.json(["invoke", "sleeper", "{}"])["payload"]["echo"], json!({}));
    for n in [0, OBJECTS - 1] {
        assert_eq!(
            node.ok(["objects", "cp", &format!("nigh://data/folder/{n}"), "-"]),
            format!("object {n}").repeat(20_000)
        );
    }
    assert!(!node.nigh(["objects", "cp", "nigh://data/late", "-"]).status.success());
}
