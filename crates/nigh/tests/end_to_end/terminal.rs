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
        // The log tells of its removal while the node starts.
        std::fs::create_dir_all(state.join("functions/code/default/gone/version")).unwrap();
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
    // The log's level is coloured.
    assert!(coloured.contains(ESCAPE) && coloured.contains("INFO"), "{coloured}");
    assert!(!coloured.contains("crate feature"), "{coloured}");
    assert!(coloured.contains("eval \"$(nigh env)\""), "{coloured}");
    // The lines that stand there before the node is told to end.
    let told = coloured.split_inclusive("Ready.").next().unwrap();
    assert!(told.starts_with("Nigh ") && told.contains("Ready.") && told.lines().count() <= 9, "{told}");
    assert!(!told.contains("INFO") && coloured.contains("removed code that no function has"), "{coloured}");
    assert!(told.lines().all(|line| line.trim_end().chars().count() <= 100), "{told}");
    assert!(!told.contains("format") && !told.contains("prewarming up to"), "{told}");
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

#[test]
fn tables_fit_a_terminal_of_eighty_columns_and_a_pipe_has_them_whole() {
    let Some(python) = python("tables_fit_a_terminal_of_eighty_columns_and_a_pipe_has_them_whole") else { return };
    let node = Node::start(&python);
    node.deploy("a-function-whose-name-is-rather-long-for-a-table");
    node.nigh(["invoke", "a-function-whose-name-is-rather-long-for-a-table", r#"{"raise": "for a long reason, too"}"#]);
    let id = id(&node);
    for arguments in
        [["activations"].as_slice(), &["functions", "ls"], &["status"], &["status", "-v"], &["config", "show"]]
    {
        let mut shown = quiet(&python);
        // `stty` gives the terminal its width before the command looks.
        shown.args(["-c", TERMINAL, "sh", "-c", "stty cols 80 rows 24; exec \"$0\" \"$@\"", NIGH]).args(arguments);
        shown.env("NIGH_STATE", &node.state).env("TERM", "xterm").env("NO_COLOR", "1").stdin(Stdio::null());
        let words = String::from_utf8_lossy(&shown.output().unwrap().stdout).into_owned();
        // Messages beside a table are wrapped by the terminal.
        let mut lines = words.lines().filter(|line| !line.starts_with("nigh: "));
        let wide = lines.find(|line| line.trim_end().chars().count() > 80);
        assert!(!words.is_empty() && wide.is_none(), "{arguments:?}: {wide:?} of\n{words}");
        if arguments == ["activations"] {
            assert!(words.contains(&id) && words.contains("OUTCOME"), "{words}");
        }
    }
    let whole = node.ok(["activations"]);
    for part in ["a-function-whose-name-is-rather-long-for-a-table", "for a long reason, too", "GB-S", "T"] {
        assert!(whole.contains(part), "{part}: {whole}");
    }
}

#[test]
fn an_object_ends_its_last_line_on_a_terminal_and_is_exact_in_a_pipe() {
    let Some(python) = python("an_object_ends_its_last_line_on_a_terminal_and_is_exact_in_a_pipe") else { return };
    let node = Node::start(&python);
    node.ok(["objects", "mb", "texts"]);
    for (key, text) in [("open", "{}"), ("ended", "{}\n")] {
        let (file, object) = (node.state.with_file_name(key), format!("nigh://texts/{key}"));
        std::fs::write(&file, text).unwrap();
        node.ok(["objects", "cp", file.to_str().unwrap(), &object]);
        for arguments in [["objects", "cp", &object, "-"].as_slice(), &["objects", "cat", &object]] {
            assert_eq!(node.ok(arguments), text, "{arguments:?}");
            let shown = on_terminal(&node.state, &python, arguments).output().unwrap();
            let words = String::from_utf8_lossy(&shown.stdout).into_owned();
            assert!(words.ends_with("{}\r\n") && words.lines().count() == 1, "{arguments:?}: {words:?}");
        }
    }
}

fn id(node: &Node) -> String {
    node.last_activation()["id"].as_str().unwrap().to_owned()
}
