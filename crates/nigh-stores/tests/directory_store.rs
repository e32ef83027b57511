//! The directory store from outside: it is a store, and it keeps its word when its process is killed.

#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "a test fails by panicking and may talk")]

mod conformance;

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;

use futures::TryStreamExt;
use nigh_data::{Attributes, ETag, ObjectId, ObjectMeta, Tags};
use nigh_stores::directory::DirectoryStore;
use nigh_stores::{ListQuery, Payload, Store};
use nigh_terms::{BucketName, Namespace, ObjectKey, SystemClock, Timestamp, Token, Version};

/// Set in the child that writes until it is killed: the store's root.
const CHILD: &str = "NIGH_TEST_STORE_ROOT";
/// Acknowledged writes before the kill.
const ACKNOWLEDGED: usize = 60;
const KEYS: usize = 7;

fn open(root: &Path) -> DirectoryStore {
    DirectoryStore::open(root, Arc::new(SystemClock::new())).unwrap()
}

fn object(n: usize) -> ObjectId {
    // Every other key is long, so that folders are made too.
    let key = if n.is_multiple_of(2) { format!("key-{n}") } else { format!("{n}/{}", "long".repeat(150)) };
    ObjectId {
        namespace: Namespace::new("tenant").unwrap(),
        bucket: BucketName::new("bucket").unwrap(),
        key: ObjectKey::new(&key).unwrap(),
    }
}

/// The bytes and metadata of one write: recognisable, and of one size per round.
fn content(round: usize) -> (Vec<u8>, ObjectMeta) {
    let bytes = round.to_string().repeat(1 + (round * 37) % 20_000).into_bytes();
    let meta = ObjectMeta {
        size: bytes.len() as u64,
        etag: ETag(round.to_string()),
        modified: Timestamp(round as u64),
        attributes: Attributes::default(),
        tags: Tags::new(),
        checksums: Vec::new(),
        parts: Vec::new(),
        version: Version::OUTSIDE,
        token: Token::empty(),
    };
    (bytes, meta)
}

#[tokio::test(flavor = "multi_thread")]
async fn the_directory_store_conforms() {
    let root = tempfile::tempdir().unwrap();
    let store = open(root.path());
    let namespace = Namespace::new("tenant").unwrap();
    let scratch = root.path().to_owned();
    conformance::check(&conformance::Subject { store: &store, namespace, scratch, takes_nul: true }).await;
}

async fn write_until_killed(root: &Path) {
    let store = open(root);
    let first = object(0);
    store.create_bucket(&first.namespace, &first.bucket).await.unwrap();
    for round in 0.. {
        let (bytes, meta) = content(round);
        let file = store.spool().unwrap().join(round.to_string());
        std::fs::write(&file, bytes).unwrap();
        store.put(&object(round % KEYS), &Payload::Files(vec![file]), &meta).await.unwrap();
        println!("acknowledged {round}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_acknowledged_write_survives_a_kill_of_the_process() {
    if let Ok(root) = std::env::var(CHILD) {
        return write_until_killed(root.as_ref()).await;
    }
    let root = tempfile::tempdir().unwrap();
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "every_acknowledged_write_survives_a_kill_of_the_process", "--nocapture"])
        .env(CHILD, root.path())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let acknowledged =
        |line: std::io::Result<String>| line.unwrap().strip_prefix("acknowledged ")?.parse::<usize>().ok();
    let mut last = lines.by_ref().filter_map(acknowledged).nth(ACKNOWLEDGED).expect("the child writes");
    child.kill().unwrap();
    child.wait().unwrap();
    // What it had said before the kill reached it.
    last = lines.filter_map(acknowledged).last().unwrap_or(last);

    let store = open(root.path());
    for n in 0..KEYS {
        let newest_acknowledged = (0..=last).rev().find(|round| round % KEYS == n).unwrap();
        let (meta, stream) = store.get(&object(n), None, None).await.unwrap();
        let read: Vec<bytes::Bytes> = stream.try_collect().await.unwrap();
        // The write under way at the kill may have got through as well.
        let round: usize = meta.etag.0.parse().unwrap();
        assert!(
            round == newest_acknowledged || round == last + 1,
            "key {n}: {round}, acknowledged {newest_acknowledged}"
        );
        assert_eq!((read.concat(), meta), content(round));
    }
    let first = object(0);
    assert_eq!(store.list(ListQuery::first(&first.namespace, &first.bucket, 100)).await.unwrap().len(), KEYS);
    assert_eq!(std::fs::read_dir(root.path().join("staging")).unwrap().count(), 0);
}
