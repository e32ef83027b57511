//! What a person at a terminal sees, and what a pipe gets instead.

use std::path::Path;
use std::process::{Command, Stdio};

use crate::platform::{NIGH, Node, python, quiet, wait_for};
use crate::programs::build_programs;

/// Runs the words behind it on a terminal of their own, and copies what they print there.
const TERMINAL: &str = "import os, pty, sys; sys.exit(os.waitstatus_to_exitcode(pty.spawn(sys.argv[1:])))";
const ESCAPE: char = '\u{1b}';

/// The command on a terminal.
fn on_terminal(state: &Path, python: &Path, arguments: &[&str]) -> Command {
    let mut command = quiet(python);
    command.args(["-c", TERMINAL, NIGH]).args(arguments).env("NIGH_STATE", state).env("TERM", "xterm");
    command.env_remove("NO_COLOR").stdin(Stdio::null());
    command
}

#[test]
fn a_node_starts_on_a_terminal_in_colours_unless_they_are_not_wanted() {
    let Some(python) = python("a_node_starts_on_a_terminal_in_colours_unless_they_are_not_wanted") else { return };
    build_programs();
    let start = |no_color: bool| {
        let folder = tempfile::tempdir().unwrap();
        let (state, printed) = (folder.path().join("state"), folder.path().join("printed"));
        let mut up = on_terminal(
            &state,
            &python,
            &["up", "--s3-listen", "127.0.0.1:0", "--lambda-listen", "127.0.0.1:0", "--set", "llc.policy=off"],
        );
        up.stdout(std::fs::File::create(&printed).unwrap());
        if no_color {
            up.env("NO_COLOR", "1");
        }
        let mut up = up.spawn().unwrap();
        let text = || String::from_utf8_lossy(&std::fs::read(&printed).unwrap()).into_owned();
        wait_for("the node to be ready", || text().contains("Ready.") || up.try_wait().unwrap().is_some());
        let down = quiet(Path::new(NIGH)).args(["down"]).env("NIGH_STATE", &state).output().unwrap();
        assert!(down.status.success(), "{down:?} {}", text());
        assert!(up.wait().unwrap().success(), "{}", text());
        text()
    };
    let coloured = start(false);
    // The log's level, and the level that is off, are coloured.
    assert!(coloured.contains(ESCAPE) && coloured.contains("INFO"), "{coloured}");
    assert!(!coloured.contains("crate feature"), "{coloured}");
    assert!(coloured.contains("export AWS_DEFAULT_REGION=us-east-1"), "{coloured}");
    let plain = start(true);
    assert!(plain.contains("INFO") && !plain.contains(ESCAPE), "{plain}");
}

#[test]
fn a_functions_output_cannot_steer_a_terminal_and_is_untouched_in_a_pipe() {
    let Some(python) = python("a_functions_output_cannot_steer_a_terminal_and_is_untouched_in_a_pipe") else { return };
    let node = Node::start(&python);
    node.deploy("paints");
    let event = r#"{"raise": "\u001b]0;mine\u0007"}"#;
    let invoked = on_terminal(&node.state, &python, &["invoke", "paints", event, "--log"]).output().unwrap();
    let words = String::from_utf8_lossy(&invoked.stdout).into_owned();
    assert!(words.contains("\\u{1b}]0;mine\\u{7}") && !words.contains("\u{1b}]0;mine"), "{words}");

    let piped = node.ok(["logs", "paints"]);
    assert!(piped.contains("\u{1b}]0;mine\u{7}"), "{piped}");
    let trace = piped.lines().find(|line| line.contains("Traceback")).unwrap();
    assert!(trace.trim().starts_with("Traceback") && trace.trim().ends_with("(most recent call last):"), "{trace:?}");
    for arguments in [["logs", "paints"].as_slice(), &["activations"], &["explain", id(&node).as_str()]] {
        let shown = on_terminal(&node.state, &python, arguments).output().unwrap();
        let words = String::from_utf8_lossy(&shown.stdout).into_owned();
        assert!(words.contains("mine") && !words.contains("\u{1b}]0;mine"), "{arguments:?}: {words}");
    }
}

fn id(node: &Node) -> String {
    node.last_activation()["id"].as_str().unwrap().to_owned()
}
