//! `nigh journal` on a stopped node's state folder.

#![expect(clippy::unwrap_used, reason = "a test ends by panicking")]

use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::process::{Command, Output};

use bytes::Bytes;
use nigh_engine::{Body, Change, Journal, JournalSettings, Ledger as _, Record, RequestId};
use nigh_terms::{BucketName, ByteSize, Namespace, ObjectKey, ShardId};

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
