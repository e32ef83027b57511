//! `nigh dev`: a save becomes an answer, and a node comes and goes with the session.

use std::fs;
use std::io::{BufRead, BufReader, Lines};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::platform::{NIGH, Node, command, python, quiet, wait_for};
use crate::programs::build_programs;
use crate::projects::made;

/// A session whose lines are JSON.
struct Session {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Session {
    fn start(node: &Node, folder: &Path, arguments: &[&str]) -> Self {
        let mut command = command(&node.state);
        command.current_dir(folder).args(["--json", "dev"]).args(arguments);
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Self { child, lines }
    }

    /// The next line of this kind.
    fn next(&mut self, kind: &str) -> Value {
        for line in &mut self.lines {
            let line: Value = serde_json::from_str(&line.unwrap()).unwrap();
            if line["event"] == kind {
                return line;
            }
        }
        panic!("the session ended before a line {kind:?}");
    }

    /// The next answer, parsed.
    fn answer(&mut self) -> Value {
        let answer = self.next("answer");
        serde_json::from_str(answer["text"].as_str().unwrap()).unwrap()
    }

    /// Ends it as Ctrl-C does.
    fn end(mut self) {
        kill_process(Pid::from_child(&self.child), Signal::INT).unwrap();
        assert!(self.child.wait().unwrap().success());
    }
}

fn greeting(word: &str) -> String {
    format!("def handle(event, context):\n    print('says {word}')\n    return {{'says': '{word}'}}\n")
}

#[test]
fn a_save_is_deployed_and_answered_with_its_log_times_and_memory() {
    let Some(python) = python("a_save_is_deployed_and_answered_with_its_log_times_and_memory") else { return };
    let node = Node::start(&python);
    let folder = made(&node, "python");
    let mut session = Session::start(&node, &folder, &["--invoke"]);
    let first = session.next("deployed");
    assert!(first["changes"].as_array().unwrap().len() > 3, "{first}");
    assert_eq!(session.answer(), json!({ "greeting": "Hello, Ada!" }));

    let mut waits = Vec::new();
    for n in 0..9 {
        let word = format!("word {n}");
        let begin = Instant::now();
        fs::write(folder.join("main.py"), greeting(&word)).unwrap();
        assert_eq!(session.next("saved")["files"], json!(["main.py"]));
        let changes = session.next("deployed")["changes"].as_array().unwrap().clone();
        assert!(changes.len() == 1 && changes[0].as_str().unwrap().contains("~ code"), "{changes:?}");
        assert_eq!(session.answer(), json!({ "says": word }));
        waits.push(begin.elapsed());
    }
    waits.sort();
    println!("from a save to its answer: {:?} in the middle of {}", waits[waits.len() / 2], waits.len());

    // Whoever invokes it, the session shows it.
    node.json(["invoke", "python"]);
    let ended = session.next("ended");
    assert!(ended["log"].as_str().unwrap().contains("says word "), "{ended}");
    assert_eq!((&ended["outcome"], &ended["failed"]), (&json!("answered"), &json!(false)));
    assert!(ended["memory"]["booked"] == 128 << 20 && ended["memory"]["granted"].is_u64(), "{ended}");
    assert!(ended["duration_us"].as_u64().unwrap() > 0 && ended["start"].is_string(), "{ended}");

    // A changed event is no save.
    fs::write(folder.join("event.json"), "{}").unwrap();
    fs::write(folder.join("nigh.toml"), "[function]\nname = \"python\"\nmemory = 256\n").unwrap();
    assert_eq!(session.next("saved")["files"], json!(["nigh.toml"]));
    let settings = session.next("deployed");
    assert!(settings["changes"][0].as_str().unwrap().contains("128 MiB -> 256 MiB"), "{settings}");
    session.end();
    assert!(node.nigh(["status"]).status.success(), "a node that ran before runs on");
}

#[test]
fn what_cannot_be_deployed_is_told_and_mended_by_the_next_save() {
    let Some(python) = python("what_cannot_be_deployed_is_told_and_mended_by_the_next_save") else { return };
    let node = Node::start(&python);
    let folder = made(&node, "python");
    let mut session = Session::start(&node, &folder, &["--invoke"]);
    session.answer();
    fs::write(folder.join("main.py"), "def other(event, context):\n    pass\n").unwrap();
    let refused = session.next("not_deployed");
    assert_eq!(refused["earlier_runs"], true);
    assert!(refused["error"].as_str().unwrap().starts_with("main.py has no function handle"), "{refused}");
    // A module that does not even load is deployed, and its trial says why.
    fs::write(folder.join("main.py"), "def handle(event, context)\n    pass\n").unwrap();
    let failed = session.next("answer");
    assert!(failed["failed"] == true && failed["text"].as_str().unwrap().contains("SyntaxError"), "{failed}");
    fs::write(folder.join("main.py"), greeting("mended")).unwrap();
    assert_eq!(session.answer(), json!({ "says": "mended" }));
    // The session ends with its node.
    node.ok(["down"]);
    assert_eq!(session.child.wait().unwrap().code(), Some(1));
}

/// `nigh dev` on a state of its own, for which no node runs.
fn alone(state: &Path, folder: &Path, python: &Path) -> Command {
    let mut command = command(state);
    command.current_dir(folder).args(["dev"]).env("NIGH_FUNCTIONS__PYTHON", python).env("NIGH_CACHE__BYTES", "256 MiB");
    command.env("NIGH_S3__LISTEN", "127.0.0.1:0").env("NIGH_LAMBDA__LISTEN", "127.0.0.1:0");
    command
}

#[test]
fn once_deploys_and_answers_with_a_node_of_its_own_that_ends_with_it() {
    let Some(python) = python("once_deploys_and_answers_with_a_node_of_its_own_that_ends_with_it") else { return };
    build_programs();
    let root = tempfile::tempdir().unwrap();
    let state = root.path().join("state");
    let init = command(&state).current_dir(root.path()).args(["init", "hello"]).output().unwrap();
    assert!(init.status.success(), "{init:?}");
    let folder = root.path().join("hello");
    let once = |more: &[&str]| alone(&state, &folder, &python).arg("--once").args(more).output().unwrap();

    let first = once(&[]);
    let said = String::from_utf8(first.stderr).unwrap();
    assert!(first.status.success(), "{said}");
    assert_eq!(String::from_utf8(first.stdout).unwrap(), "{\"greeting\": \"Hello, Ada!\"}\n");
    for part in ["  + handler  main.handle", "greeting Ada", "nigh: answered in ", "booked 128 MiB"] {
        assert!(said.contains(part), "{part}: {said}");
    }
    assert_eq!(command(&state).arg("status").output().unwrap().status.code(), Some(3), "its node has ended");

    let other = once(&["--event", "{\"name\": \"Bob\"}"]);
    assert_eq!(String::from_utf8(other.stdout).unwrap(), "{\"greeting\": \"Hello, Bob!\"}\n");
    fs::write(folder.join("main.py"), "def handle(event, context):\n    raise ValueError('no')\n").unwrap();
    let failed = once(&[]);
    assert_eq!(failed.status.code(), Some(1));
    assert!(String::from_utf8(failed.stdout).unwrap().contains("ValueError"));
    // A failure is told as `nigh invoke` tells it, without the traceback of the runtime.
    let said = String::from_utf8(failed.stderr).unwrap();
    assert!(said.lines().any(|line| line == "main.py:2: ValueError: no"), "{said}");
    fs::write(folder.join("main.py"), "def handle(event, context)\n    pass\n").unwrap();
    let unread = once(&[]);
    let said = String::from_utf8(unread.stderr).unwrap();
    assert_eq!(unread.status.code(), Some(1), "{said}");
    assert!(said.lines().any(|line| line.starts_with("main.py:1: syntax error: ")), "{said}");
    assert!(said.contains("\nnigh: failed in ") && !said.contains("Traceback"), "{said}");
    fs::remove_file(folder.join("event.json")).unwrap();
    let missing = once(&[]);
    let said = String::from_utf8(missing.stderr).unwrap();
    assert_eq!(missing.status.code(), Some(2), "{said}");
    assert!(said.starts_with("nigh: there is no event: write ./event.json, or give --event"), "{said}");

    // A node that cannot start says why.
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let mut failing = alone(&state, &folder, &python);
    let output = failing.args(["--once", "--event", "{}"]).env("NIGH_S3__LISTEN", &address).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.starts_with("nigh: the node did not start: ") && said.contains(&address), "{said}");
}

#[test]
fn without_a_python_the_session_says_what_is_missing_and_what_mends_it() {
    build_programs();
    let root = tempfile::tempdir().unwrap();
    let state = root.path().join("state");
    assert!(command(&state).current_dir(root.path()).args(["init", "hello"]).status().unwrap().success());
    let output = alone(&state, &root.path().join("hello"), Path::new("/bin/false")).arg("--once").output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{said}");
    for part in ["Python with awslambdaric is not on this node", "/bin/false: ", "`nigh up --python PROGRAM`"] {
        assert!(said.contains(part), "{part}: {said}");
    }
}

#[test]
fn a_session_ends_the_node_that_it_started_also_when_it_is_terminated() {
    let Some(python) = python("a_session_ends_the_node_that_it_started_also_when_it_is_terminated") else { return };
    build_programs();
    let root = tempfile::tempdir().unwrap();
    let state = root.path().join("state");
    assert!(command(&state).current_dir(root.path()).args(["init", "hello"]).status().unwrap().success());
    let mut session = alone(&state, &root.path().join("hello"), &python);
    let mut session = session.stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(session.stdout.take().unwrap()).lines();
    assert!(lines.next().unwrap().unwrap().contains("a node was started"));
    assert!(lines.any(|line| line.unwrap().starts_with("deployed in ")));
    assert!(command(&state).arg("status").output().unwrap().status.success());
    kill_process(Pid::from_child(&session), Signal::TERM).unwrap();
    assert!(session.wait().unwrap().success());
    assert_eq!(command(&state).arg("status").output().unwrap().status.code(), Some(3));
}

/// Runs a program on a terminal of its own: for each step waits for a text and types keys.
const TYPES: &str = r#"
import os, pty, sys
steps = [step.split(">") for step in sys.argv[1].split("|")]
child, terminal = pty.fork()
if child == 0:
    os.execvp(sys.argv[2], sys.argv[2:])
seen = b""
for awaited, keys in steps:
    while awaited.encode() not in seen:
        part = os.read(terminal, 4096)
        sys.stdout.buffer.write(part)
        seen += part
    seen = seen.split(awaited.encode(), 1)[1]
    os.write(terminal, keys.encode())
try:
    while part := os.read(terminal, 4096):
        sys.stdout.buffer.write(part)
except OSError:
    pass
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"#;

#[test]
fn keys_invoke_edit_help_and_end() {
    let Some(python) = python("keys_invoke_edit_help_and_end") else { return };
    let node = Node::start(&python);
    let folder = made(&node, "python");
    let steps = "deployed in>i|Hello, Ada!>e|the edited event>i|Hello, Bob!>?|this list>x|lists the keys>q";
    let mut typing = quiet(&python);
    typing.args(["-c", TYPES, steps, NIGH, "dev"]).current_dir(&folder).env("NIGH_STATE", &node.state);
    typing.env("TERM", "xterm").env_remove("VISUAL").env("EDITOR", "sed -i s/Ada/Bob/").stdin(Stdio::null());
    let printed = folder.with_file_name("printed");
    let mut typing = typing.stdout(fs::File::create(&printed).unwrap()).spawn().unwrap();
    let begin = Instant::now();
    wait_for("the session to end", || {
        if begin.elapsed() > Duration::from_secs(50) {
            panic!("{}", String::from_utf8_lossy(&fs::read(&printed).unwrap()));
        }
        typing.try_wait().unwrap().is_some()
    });
    let text = String::from_utf8_lossy(&fs::read(&printed).unwrap()).into_owned();
    assert!(typing.wait().unwrap().success(), "{text}");
    assert!(text.contains("invoke with the event"), "{text}");
    assert!(fs::read_to_string(folder.join("event.json")).unwrap().contains("Bob"));
}
