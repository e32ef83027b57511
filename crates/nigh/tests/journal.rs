//! `nigh journal` on a stopped node's state folder, and what a node says of a damaged one.

#![expect(clippy::unwrap_used, reason = "a test ends by panicking")]

#[path = "support/programs.rs"]
mod programs;

use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use bytes::Bytes;
use nigh_engine::{Body, Change, Journal, JournalSettings, Ledger as _, Record, RequestId};
use nigh_terms::{BucketName, ByteSize, Namespace, ObjectKey, ShardId};

use self::programs::build_programs;

fn nigh(state: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_nigh"));
    command.arg("--state").arg(state).args(arguments).output().unwrap()
}

fn json(output: &Output) -> serde_json::Value {
    serde_json::from_slice(&output.stdout).unwrap()
}

#[tokio::test]
async fn a_stopped_node_s_journal_is_listed_and_verified_and_damage_is_told_by_name_and_exit_code() {
    let folder = tempfile::tempdir().unwrap();
    let state = folder.path().join("state");
    std::fs::create_dir(&state).unwrap();
    let empty = nigh(&state, &["journal", "verify", "--json"]);
    assert!(empty.status.success(), "{empty:?}");
    assert_eq!(json(&empty)["records"], 0);

    let settings =
        JournalSettings { segment: ByteSize::mib(16), limit: ByteSize::mib(48), ..JournalSettings::default() };
    let (journal, _) = Journal::open(&state.join("journal"), &settings).unwrap();
    let record = |request| Record {
        request: RequestId(request),
        namespace: Namespace::new("tenant").unwrap(),
        bucket: BucketName::new("bucket").unwrap(),
        key: ObjectKey::new(&format!("key {request}")).unwrap(),
        change: Change::Put { about: Bytes::from_static(b"about") },
    };
    let body = || Body::Inline(Bytes::from_static(b"FIND ME IN THE FILE"));
    let stored = journal.append(ShardId(0), record(1), body()).await.unwrap();
    journal.append(ShardId(0), record(2), body()).await.unwrap();
    journal.append(ShardId(0), record(3), body()).await.unwrap();
    journal.stored(ShardId(0), stored.version).await.unwrap();
    let held = nigh(&state, &["journal", "ls"]);
    assert!(!held.status.success());
    let told = String::from_utf8_lossy(&held.stderr).into_owned();
    assert!(told.contains("in use by another process"), "{told}");
    drop(journal);

    let listed = json(&nigh(&state, &["journal", "ls", "--json"]));
    let keys: Vec<_> = listed.as_array().unwrap().iter().map(|one| one["key"].as_str().unwrap()).collect();
    assert_eq!(keys, ["key 2", "key 3"]);
    assert_eq!((&listed[0]["bytes"], &listed[0]["kind"]), (&19.into(), &"put".into()));
    let all = json(&nigh(&state, &["journal", "ls", "--all", "--json"]));
    assert_eq!((all.as_array().unwrap().len(), &all[0]["stored"]), (3, &true.into()));
    let whole = nigh(&state, &["journal", "verify"]);
    assert!(
        whole.status.success() && String::from_utf8_lossy(&whole.stdout).starts_with("whole: 3 records, 2 of them")
    );

    let file = state.join("journal/segment-000001");
    let bytes = std::fs::read(&file).unwrap();
    let bodies: Vec<usize> =
        (0..bytes.len() - 19).filter(|&at| &bytes[at..at + 19] == b"FIND ME IN THE FILE").collect();
    let file = std::fs::OpenOptions::new().write(true).open(file).unwrap();
    file.write_all_at(b"f", bodies[1] as u64).unwrap();
    let damaged = nigh(&state, &["journal", "verify", "--json"]);
    assert_eq!(damaged.status.code(), Some(1));
    let found = json(&damaged);
    assert_eq!((&found["whole"], &found["damage"][0]["record"]["key"]), (&false.into(), &"key 2".into()));
    let keys: Vec<_> = json(&nigh(&state, &["journal", "ls", "--json"]))
        .as_array()
        .unwrap()
        .iter()
        .map(|one| one["key"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(keys, ["key 3"], "what is damaged is not listed as if it were there");
}

/// Ends the node whatever the test comes to.
struct Ended(std::process::Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[tokio::test]
async fn a_node_that_starts_beside_damage_without_a_name_says_that_older_objects_may_be_served() {
    build_programs();
    let folder = tempfile::tempdir().unwrap();
    let state = folder.path().join("state");
    let up = || {
        let log = std::fs::OpenOptions::new().create(true).append(true).open(state.with_extension("log")).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_nigh"));
        for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("NIGH_")) {
            command.env_remove(name);
        }
        command.arg("--state").arg(&state);
        command.args(["up", "--s3-listen", "127.0.0.1:0", "--lambda-listen", "127.0.0.1:0", "--cache", "256 MiB"]);
        command.args(["--set", "writes.on_damage=keep-aside"]).stdout(log.try_clone().unwrap()).stderr(log);
        let mut node = Ended(command.spawn().unwrap());
        let began = Instant::now();
        loop {
            let status = nigh(&state, &["status", "--json"]);
            if status.status.success() {
                let levels = json(&status)["levels"].as_array().unwrap().clone();
                return (node, levels.into_iter().find(|level| level["name"] == "writes").unwrap());
            }
            let log = || std::fs::read_to_string(state.with_extension("log")).unwrap();
            assert!(node.0.try_wait().unwrap().is_none() && began.elapsed() < Duration::from_secs(60), "{}", log());
            std::thread::sleep(Duration::from_millis(50));
        }
    };
    let (node, level) = up();
    assert_eq!(level["on"], true, "{level}");
    drop(node);
    let segment = state.join("journal/segment-000001");
    let file = std::fs::OpenOptions::new().write(true).open(&segment).unwrap();
    file.set_len(file.metadata().unwrap().len() / 2).unwrap();
    let verified = nigh(&state, &["journal", "verify"]);
    let told = String::from_utf8_lossy(&verified.stdout).into_owned();
    assert!(verified.status.code() == Some(1) && told.contains("any object may have lost a write"), "{told}");
    assert!(!told.contains("it was not acknowledged"), "{told}");

    let note = state.join("journal/unnamed-damage");
    for _ in 0..2 {
        let (_node, level) = up();
        let detail = level["detail"].as_str().unwrap();
        assert_eq!(level["on"], false, "{level}");
        assert!(detail.contains("may be older") && detail.contains(note.to_str().unwrap()), "{level}");
    }
}
