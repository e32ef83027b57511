//! What a kill leaves: everything that was acknowledged, and nothing that ran.

use std::ffi::OsString;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use crate::platform::{Node, lives, python, wait_for};

#[test]
fn acknowledged_objects_and_functions_survive_kill_9_and_nothing_is_left_behind() {
    let Some(python) = python("acknowledged_objects_and_functions_survive_kill_9_and_nothing_is_left_behind") else {
        return;
    };
    let mut node = Node::start(&python);
    node.ok(["objects", "mb", "nigh://data"]);
    node.deploy("sleeper");
    let file = node.state.with_file_name("object");
    let key = |n: usize| format!("nigh://data/{n}");
    let mut acknowledged = 0;
    for round in 0..3 {
        // An idle sandbox, one in the midst of an invocation, and a write under way.
        node.ok(["invoke", "sleeper"]);
        let mut running = node.begin(["invoke", "sleeper", r#"{"sleep": 600}"#]);
        wait_for("the invocation to run", || node.json(["status"])["sandboxes"]["running"] == 1);
        for _ in 0..5 {
            std::fs::write(&file, format!("object {acknowledged}")).unwrap();
            node.ok(["objects", "cp", file.to_str().unwrap(), &key(acknowledged)]);
            acknowledged += 1;
        }
        let mut writing = node.begin(["objects", "cp", file.to_str().unwrap(), "nigh://data/unknown"]);
        let (sandboxes, groups) = (node.descendants(), node.sandbox_groups());
        assert!(!sandboxes.is_empty());
        node.kill();
        wait_for("the sandboxes to end with the node", || !sandboxes.iter().any(|pid| lives(*pid)));
        assert!(!running.wait().unwrap().success(), "round {round}: an invocation of a dead node was answered");
        writing.wait().unwrap();

        node.restart();
        // Those of the new life, made ahead of need, have other names.
        let left: Vec<_> = node.sandbox_groups().into_iter().filter(|group| groups.contains(group)).collect();
        assert!(left.is_empty(), "{left:?}");
        assert_eq!(node.json(["status"])["incarnation"], round + 2);
        for n in 0..acknowledged {
            assert_eq!(node.ok(["objects", "cp", &key(n), "-"]), format!("object {n}"));
        }
        assert_eq!(node.json(["invoke", "sleeper", "{}"])["payload"]["echo"], serde_json::json!({}));
    }
}

#[test]
fn a_signal_lets_running_invocations_answer_and_leaves_nothing() {
    let Some(python) = python("a_signal_lets_running_invocations_answer_and_leaves_nothing") else { return };
    let mut node = Node::start(&python);
    node.deploy("sleeper");
    let running = node.begin(["invoke", "sleeper", r#"{"sleep": 2}"#]);
    wait_for("the invocation to run", || node.json(["status"])["sandboxes"]["running"] == 1);
    let sandboxes = node.descendants();
    node.terminate();
    let answered = running.wait_with_output().unwrap();
    assert!(answered.status.success(), "{answered:?}");
    assert_eq!(String::from_utf8_lossy(&answered.stdout).trim(), r#"{"echo": {"sleep": 2}}"#);
    assert_eq!(node.exit_code(), Some(0));
    assert!(!sandboxes.iter().any(|pid| lives(*pid)));
    assert_eq!(node.sandbox_groups(), Vec::<std::path::PathBuf>::new());
    for left in ["endpoints.json", "admin.sock", "s3.sock"] {
        assert!(!node.state.join(left).exists(), "{left}");
    }
    assert!(!node.containers_folder().exists());
    // The record was flushed at the end.
    node.restart();
    assert_eq!(node.last_activation()["outcome"]["kind"], "answered");
}

/// Begins a session with a terminal of its own, in which the words behind it run.
const SESSION: &str = "\
import fcntl, os, sys, termios
master, terminal = os.openpty()
os.setsid()
fcntl.ioctl(terminal, termios.TIOCSCTTY, 0)
os.set_inheritable(master, True)
os.execvp(sys.argv[1], sys.argv[1:])";

fn hang_up(node: &Node) {
    kill_process(Pid::from_raw(node.process_id().cast_signed()).unwrap(), Signal::HUP).unwrap();
}

#[test]
fn a_lost_session_lets_running_invocations_answer_however_often_it_is_reported() {
    let Some(python) = python("a_lost_session_lets_running_invocations_answer_however_often_it_is_reported") else {
        return;
    };
    let session = [python.as_os_str().to_owned(), OsString::from("-c"), OsString::from(SESSION)].to_vec();
    let mut node = Node::start_by(session, &python, &[]);
    node.deploy("sleeper");
    let running = node.begin(["invoke", "sleeper", r#"{"sleep": 2}"#]);
    wait_for("the invocation to run", || node.json(["status"])["sandboxes"]["running"] == 1);
    // Both the kernel and the shell may send it.
    hang_up(&node);
    wait_for("the drain to begin", || !node.state.join("endpoints.json").exists());
    hang_up(&node);
    let answered = running.wait_with_output().unwrap();
    assert!(answered.status.success(), "{answered:?}");
    assert_eq!(node.exit_code(), Some(0));
    assert_eq!(node.sandbox_groups(), Vec::<std::path::PathBuf>::new());
}

#[test]
fn a_node_under_nohup_outlives_its_session() {
    let Some(python) = python("a_node_under_nohup_outlives_its_session") else { return };
    let mut node = Node::start_by(vec![OsString::from("nohup")], &python, &[]);
    hang_up(&node);
    std::thread::sleep(Duration::from_millis(500));
    assert!(node.json(["status"])["draining"].is_null());
    node.terminate();
    assert_eq!(node.exit_code(), Some(0));
}

#[test]
fn a_draining_node_says_what_it_awaits_and_another_starts_when_down_returns() {
    let Some(python) = python("a_draining_node_says_what_it_awaits_and_another_starts_when_down_returns") else {
        return;
    };
    let mut node = Node::start(&python);
    node.deploy("sleeper");
    let running = node.begin(["invoke", "sleeper", r#"{"sleep": 5}"#]);
    wait_for("the invocation to run", || node.json(["status"])["sandboxes"]["running"] == 1);
    assert_eq!(node.json(["down", "--no-wait"])["draining"]["invocations"], 1);
    wait_for("the drain to begin", || !node.state.join("endpoints.json").exists());
    assert_eq!(node.json(["status"])["draining"]["invocations"], 1);
    assert!(node.ok(["status"]).contains("waits for 1 invocation"));
    for refused in [["invoke", "sleeper"], ["objects", "ls"]] {
        let output = node.nigh(refused);
        let words = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(3), "{words}");
        assert!(words.contains("draining") && words.contains("waits for 1 invocation"), "{words}");
    }
    assert_eq!(node.json(["down"]), serde_json::json!({ "ended": true }));
    let answered = running.wait_with_output().unwrap();
    assert!(answered.status.success(), "{answered:?}");
    node.restart();
    let log = std::fs::read_to_string(node.state.with_extension("log")).unwrap();
    assert!(log.contains("waits for 1 invocation") && log.contains("drained"), "{log}");
}

#[test]
fn a_run_that_a_drain_ends_is_recorded_as_stopped() {
    let Some(python) = python("a_run_that_a_drain_ends_is_recorded_as_stopped") else { return };
    let mut node = Node::start_with(&python, &["--set", "drain=1 s"]);
    node.deploy("sleeper");
    let mut running = node.begin(["invoke", "sleeper", r#"{"sleep": 600}"#]);
    wait_for("the invocation to run", || node.json(["status"])["sandboxes"]["running"] == 1);
    node.ok(["down"]);
    assert!(!running.wait().unwrap().success());
    node.restart();
    assert_eq!(node.last_activation()["outcome"]["kind"], "stopped");
    assert!(node.ok(["activations"]).contains("stopped"));
}

#[test]
fn a_second_signal_ends_a_drain_at_once() {
    let Some(python) = python("a_second_signal_ends_a_drain_at_once") else { return };
    let mut node = Node::start(&python);
    node.deploy("sleeper");
    let mut running = node.begin(["invoke", "sleeper", r#"{"sleep": 600}"#]);
    wait_for("the invocation to run", || node.json(["status"])["sandboxes"]["running"] == 1);
    let sandboxes = node.descendants();
    node.terminate();
    wait_for("the drain to begin", || !node.state.join("endpoints.json").exists());
    // Supervisors repeat SIGTERM; a person presses Ctrl-C.
    node.terminate();
    std::thread::sleep(Duration::from_millis(500));
    assert_eq!(node.json(["status"])["draining"]["invocations"], 1);
    kill_process(Pid::from_raw(node.process_id().cast_signed()).unwrap(), Signal::INT).unwrap();
    assert_eq!(node.exit_code(), Some(130));
    wait_for("the sandboxes to end with the node", || !sandboxes.iter().any(|pid| lives(*pid)));
    assert!(!running.wait().unwrap().success());
}
