//! Another reading of a running node's settings and of the files that they name.

use std::ffi::OsString;
use std::path::Path;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::platform::{Node, python, wait_for};

/// Runs the words behind it in a session without a terminal, as a service manager does.
const NO_TERMINAL: &str = "import os, sys; os.setsid(); os.execvp(sys.argv[1], sys.argv[1:])";

/// A node without a terminal, with the settings of `file`.
fn start(python: &Path, file: &Path) -> Node {
    let session = [python.as_os_str().to_owned(), OsString::from("-c"), OsString::from(NO_TERMINAL)].to_vec();
    Node::start_by(session, python, &["--config", file.to_str().unwrap()])
}

/// The value of a setting in the running node.
fn shown(node: &Node, key: &str) -> Option<Value> {
    let all = node.json(["config", "show", "--running"]);
    all.as_array().unwrap().iter().find(|one| one["key"] == key).map(|one| one["value"].clone())
}

fn log(node: &Node) -> String {
    std::fs::read_to_string(node.state.with_extension("log")).unwrap()
}

fn signal(node: &Node, signal: Signal) {
    kill_process(Pid::from_raw(node.process_id().cast_signed()).unwrap(), signal).unwrap();
}

#[test]
fn a_reload_changes_what_can_change_tells_what_needs_a_restart_and_refuses_the_whole_if_a_part_is_wrong() {
    let test = "a_reload_changes_what_can_change_tells_what_needs_a_restart_and_refuses_the_whole_if_a_part_is_wrong";
    let Some(python) = python(test) else { return };
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("nigh.toml");
    let write = |text: &str| std::fs::write(&file, text).unwrap();
    write("drain = \"20 s\"\n[log]\nlevel = \"info\"\n");
    let mut node = start(&python, &file);
    assert_eq!(node.ok(["reload"]), "Nothing has changed.\n");

    write(
        "drain = \"7 s\"\ndrain_delay = \"1 s\"\nregion = \"eu-west-1\"\n[log]\nlevel = \"debug\"\n\
         [s3]\nuploads_bytes = \"6 GiB\"\n[namespaces.default]\nshare = 3\n[openwhisk]\nfires_per_minute = 5\n",
    );
    let report = node.json(["reload"]);
    let keys = |of: &Value| -> Vec<String> {
        let mut keys: Vec<String> =
            of.as_array().unwrap().iter().map(|one| one["key"].as_str().unwrap().to_owned()).collect();
        keys.sort();
        keys
    };
    let changed = keys(&report["changed"]);
    let expected = [
        "drain",
        "drain_delay",
        "log.level",
        "namespaces.default.share",
        "openwhisk.fires_per_minute",
        "s3.uploads_bytes",
    ];
    assert_eq!(changed, expected);
    assert!(keys(&report["needs_restart"]).contains(&"region".to_owned()), "{report}");
    assert_eq!((shown(&node, "drain"), shown(&node, "region")), (Some("7 s".into()), Some("us-east-1".into())));
    wait_for("lines of the new level", || {
        node.ok(["objects", "ls"]);
        log(&node).contains("DEBUG")
    });

    // By a signal, where there is no terminal; the node goes on.
    write("drain = \"9 s\"\n");
    signal(&node, Signal::HUP);
    wait_for("the settings to be read again", || shown(&node, "drain") == Some("9 s".into()));
    assert!(log(&node).contains("the settings were read again"));
    assert_eq!(node.ok(["reload"]), "Nothing has changed.\n");

    // One wrong part, and nothing is changed.
    write("drain = \"11 s\"\n[log]\nlevel = \"loud\"\n");
    let refused = node.nigh(["reload"]);
    let words = String::from_utf8(refused.stderr).unwrap();
    assert_eq!(refused.status.code(), Some(1), "{words}");
    assert!(words.contains("nothing was reloaded") && words.contains("log.level"), "{words}");
    assert_eq!(shown(&node, "drain"), Some("9 s".into()));
    signal(&node, Signal::HUP);
    // Log files are opened again: there is none, and the node goes on.
    signal(&node, Signal::USR1);
    assert!(node.json(["status"])["draining"].is_null());
    node.terminate();
    assert_eq!(node.exit_code(), Some(0));
}

#[test]
fn a_reload_is_refused_while_the_keys_file_cannot_be_written_and_completes_one_of_which_half_is_there() {
    let test = "a_reload_is_refused_while_the_keys_file_cannot_be_written_and_completes_one_of_which_half_is_there";
    let Some(python) = python(test) else { return };
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("nigh.toml");
    let write = |text: &str| std::fs::write(&file, text).unwrap();
    write("drain = \"20 s\"\n");
    let node = start(&python, &file);
    let keys = node.state.join("credentials");
    let whole = std::fs::read(&keys).unwrap();

    std::fs::write(&keys, &whole[..whole.len() / 2]).unwrap();
    assert_eq!(node.ok(["reload"]), "Nothing has changed.\n");
    assert_eq!(std::fs::read(&keys).unwrap(), whole);

    // Neither read nor replaced.
    std::fs::remove_file(&keys).unwrap();
    std::fs::create_dir(&keys).unwrap();
    write("drain = \"7 s\"\n");
    let refused = node.nigh(["reload"]);
    let words = String::from_utf8(refused.stderr).unwrap();
    assert_eq!(refused.status.code(), Some(1), "{words}");
    assert!(words.contains("nothing was reloaded: keys: ") && words.contains(keys.to_str().unwrap()), "{words}");
    assert_eq!(shown(&node, "drain"), Some("20 s".into()));
    let refusals = || log(&node).matches("nothing was reloaded: keys: ").count();
    let before = refusals();
    signal(&node, Signal::HUP);
    wait_for("the signal's reload to be refused", || refusals() > before);
    assert_eq!(shown(&node, "drain"), Some("20 s".into()));

    std::fs::remove_dir(&keys).unwrap();
    signal(&node, Signal::HUP);
    wait_for("the settings to be read again", || shown(&node, "drain") == Some("7 s".into()));
    assert_eq!(std::fs::read(&keys).unwrap(), whole);
}
