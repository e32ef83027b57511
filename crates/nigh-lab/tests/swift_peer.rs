//! The real Swift: it starts, answers, and leaves no process behind.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "../../../tests/skipped.rs"]
mod skipped;

use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use nigh_lab::instrument::peer::PeerError;
use nigh_lab::instrument::peer::swift::Swift;

use self::skipped::skip;

/// Set in the child that starts a Swift and is then killed.
const CHILD: &str = "NIGH_TEST_SWIFT_CHILD";
/// The test that starts itself again as that child.
const ENDS_WITH_PARENT: &str = "a_swift_ends_when_the_process_that_started_it_is_killed";

fn start(test: &str, folder: &std::path::Path) -> Option<Swift> {
    match Swift::start(folder) {
        Ok(swift) => Some(swift),
        Err(missing @ PeerError::NotInstalled { .. }) => {
            skip(test, missing);
            None
        }
        Err(error) => panic!("{error}"),
    }
}

fn port_of(endpoint: &str) -> u16 {
    endpoint.rsplit(':').next().unwrap().parse().unwrap()
}

fn listens(port: u16) -> bool {
    TcpStream::connect(("127.0.0.1", port)).is_ok()
}

/// The command lines of processes that mention `folder`.
fn processes_of(folder: &std::path::Path) -> Vec<String> {
    let folder = folder.to_str().unwrap();
    std::fs::read_dir("/proc")
        .unwrap()
        .filter_map(|entry| std::fs::read_to_string(entry.unwrap().path().join("cmdline")).ok())
        .map(|line| line.replace('\0', " "))
        .filter(|line| line.contains(folder) && line.contains("swift-"))
        .collect()
}

fn wait_until(what: impl Fn() -> bool) -> bool {
    let deadline = Instant::now() + Duration::from_secs(20);
    while Instant::now() < deadline {
        if what() {
            return true;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    false
}

#[test]
fn a_swift_answers_and_leaves_no_process_behind() {
    let folder = tempfile::tempdir().unwrap();
    let began = Instant::now();
    let Some(swift) = start("a_swift_answers_and_leaves_no_process_behind", folder.path()) else { return };
    println!("Swift started in {} ms", began.elapsed().as_millis());
    assert!(!format!("{swift:?}").contains(swift.s3().secret_key.reveal()));
    let port = port_of(swift.endpoint());
    assert!(listens(port));
    assert!(processes_of(folder.path()).len() >= 4);
    drop(swift);
    assert!(!listens(port));
    assert_eq!(processes_of(folder.path()), [""; 0]);
}

#[test]
fn a_swift_ends_when_the_process_that_started_it_is_killed() {
    if let Ok(folder) = std::env::var(CHILD) {
        let Some(swift) = start(ENDS_WITH_PARENT, folder.as_ref()) else { return };
        println!("started {}", swift.endpoint());
        std::thread::sleep(Duration::from_secs(120));
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", ENDS_WITH_PARENT, "--nocapture"])
        .env(CHILD, folder.path())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = std::io::BufRead::lines(std::io::BufReader::new(child.stdout.take().unwrap()));
    // The line begins with what libtest prints of the child's test. A skipped one says its name and the reason.
    let skips = format!("{ENDS_WITH_PARENT}: ");
    let said = lines.map_while(Result::ok).find(|line| line.contains("started ") || line.contains(&skips));
    let said = said.expect("the child says that it started or skipped");
    if let Some((_, reason)) = said.split_once(&skips) {
        child.wait().unwrap();
        return skip(ENDS_WITH_PARENT, reason);
    }
    assert!(processes_of(folder.path()).len() >= 4);
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(wait_until(|| processes_of(folder.path()).is_empty()), "{:?}", processes_of(folder.path()));
}
