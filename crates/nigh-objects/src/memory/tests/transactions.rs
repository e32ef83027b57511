//! Transactions over several objects on a node that is alone: all or nothing, invisible before the commit, refused if
//! something has changed.

use nigh_data::ObjectId;
use nigh_protocol::{TransactionId, TransactionRecord};
use nigh_terms::{ShardId, Token};

use super::write_back::LazyBench;
use super::*;
use crate::TransactionName;
use crate::transaction_part::{NewObject, Part, PartBecomes, PartWrite};

impl LazyBench {
    fn begin(&self) -> TransactionName {
        self.memory.begin_transaction(&self.who).unwrap().name
    }

    async fn put_in(&self, name: TransactionName, object: &str, bytes: &[u8]) -> Result<PutDone, ObjectError> {
        self.memory.put_in(name, &self.who, &self.bucket, &key(object), body(bytes)).await
    }

    async fn get_in(&self, name: TransactionName, object: &str) -> Result<Vec<u8>, ObjectError> {
        let got = self.memory.get_in(name, &self.who, &self.bucket, &key(object), GetRequest::default()).await?;
        bytes_of(got).await
    }

    async fn commit(&self, name: TransactionName) -> Result<usize, ObjectError> {
        self.memory.commit_transaction(name, &self.who).await.map(|committed| committed.written.len())
    }

    async fn plain(&self, object: &str) -> Option<Vec<u8>> {
        let got = self.memory.get(&self.who, &self.bucket, &key(object), GetRequest::default()).await;
        match got {
            Ok(got) => Some(bytes_of(got).await.unwrap()),
            Err(ObjectError::NoSuchKey(_)) => None,
            Err(error) => panic!("{error}"),
        }
    }

    async fn write(&self, object: &str, bytes: &[u8]) {
        self.memory.put(&self.who, &self.bucket, &key(object), body(bytes)).await.unwrap();
    }

    async fn nothing_waits_for_the_turn_of(&self, object: &str) {
        let written = tokio::time::timeout(Duration::from_secs(5), self.write(object, b"later"));
        written.await.unwrap();
    }
}

#[tokio::test]
async fn nobody_else_sees_a_write_before_its_commit_and_everybody_after() {
    let node = LazyBench::new().await;
    node.write("gone", b"x").await;
    let name = node.begin();
    node.put_in(name, "a", b"one").await.unwrap();
    node.put_in(name, "b", &[7; 90_000]).await.unwrap();
    node.memory.delete_in(name, &node.who, &node.bucket, &key("gone"), WriteConditions::default()).await.unwrap();
    assert_eq!(node.get_in(name, "a").await.unwrap(), b"one");
    assert!(matches!(node.get_in(name, "gone").await, Err(ObjectError::NoSuchKey(_))));
    assert_eq!((node.plain("a").await, node.plain("gone").await), (None, Some(b"x".to_vec())));
    assert_eq!(node.commit(name).await.unwrap(), 3);
    assert_eq!(node.plain("a").await.unwrap(), b"one");
    assert_eq!(node.plain("b").await.unwrap(), [7; 90_000]);
    assert_eq!(node.plain("gone").await, None);
    // A repeated commit gets the same answer.
    assert_eq!(node.commit(name).await.unwrap(), 3);
    node.nothing_waits_for_the_turn_of("a").await;
}

#[tokio::test]
async fn the_first_to_commit_wins_and_the_other_is_told_what_has_changed() {
    let node = LazyBench::new().await;
    node.write("a", b"0").await;
    let (first, second) = (node.begin(), node.begin());
    for name in [first, second] {
        assert_eq!(node.get_in(name, "a").await.unwrap(), b"0");
        assert!(matches!(node.get_in(name, "none").await, Err(ObjectError::NoSuchKey(_))));
        node.put_in(name, "b", b"1").await.unwrap();
    }
    node.put_in(first, "a", b"1").await.unwrap();
    node.commit(first).await.unwrap();
    let refused = node.commit(second).await.unwrap_err();
    let ObjectError::TransactionConflict(changed) = &refused else { panic!("{refused}") };
    assert_eq!(changed, &["bucket/a"]);
    assert!(matches!(node.commit(second).await, Err(ObjectError::TransactionConflict(_))));
    // A plain write counts as a change, and so does the creation of an object.
    let third = node.begin();
    assert!(matches!(node.get_in(third, "none").await, Err(ObjectError::NoSuchKey(_))));
    node.write("none", b"now").await;
    assert!(matches!(node.commit(third).await, Err(ObjectError::TransactionConflict(_))));
    node.nothing_waits_for_the_turn_of("a").await;
}

#[tokio::test]
async fn a_transaction_that_was_shown_two_versions_hears_of_it_at_once() {
    let node = LazyBench::new().await;
    node.write("a", b"0").await;
    let name = node.begin();
    node.get_in(name, "a").await.unwrap();
    node.write("a", b"1").await;
    assert!(matches!(node.get_in(name, "a").await, Err(ObjectError::TransactionConflict(_))));
}

#[tokio::test]
async fn a_condition_on_a_write_holds_at_the_commit() {
    let node = LazyBench::new().await;
    let only_new = || PutRequest {
        conditions: WriteConditions { if_absent: true, ..WriteConditions::default() },
        ..body(b"mine")
    };
    let put = async |name| node.memory.put_in(name, &node.who, &node.bucket, &key("a"), only_new()).await;
    let (first, second) = (node.begin(), node.begin());
    put(first).await.unwrap();
    put(second).await.unwrap();
    assert!(matches!(put(first).await, Err(ObjectError::PreconditionFailed(_))), "its own write counts");
    node.commit(first).await.unwrap();
    assert!(matches!(node.commit(second).await, Err(ObjectError::TransactionConflict(_))));
    assert!(matches!(put(node.begin()).await, Err(ObjectError::PreconditionFailed(_))));
}

#[tokio::test]
async fn one_that_was_given_up_writes_nothing() {
    let node = LazyBench::new().await;
    let name = node.begin();
    node.put_in(name, "a", b"x").await.unwrap();
    node.memory.abort_transaction(name, &node.who).unwrap();
    assert!(matches!(node.commit(name).await, Err(ObjectError::NoSuchTransaction(_))));
    assert!(matches!(node.put_in(name, "a", b"x").await, Err(ObjectError::NoSuchTransaction(_))));
    assert_eq!(node.plain("a").await, None);
}

#[tokio::test]
async fn one_that_only_reads_is_refused_if_what_it_read_is_no_more() {
    let node = LazyBench::new().await;
    node.write("a", b"0").await;
    let (good, bad) = (node.begin(), node.begin());
    node.get_in(good, "a").await.unwrap();
    node.get_in(bad, "a").await.unwrap();
    assert_eq!(node.commit(good).await.unwrap(), 0);
    node.write("a", b"1").await;
    assert!(matches!(node.commit(bad).await, Err(ObjectError::TransactionConflict(_))));
}

#[tokio::test]
async fn what_was_read_may_be_pushed_and_forgotten_before_the_commit() {
    let node = LazyBench::new().await;
    node.persist();
    node.write("a", b"0").await;
    let name = node.begin();
    node.get_in(name, "a").await.unwrap();
    node.memory.flush_all(Duration::from_secs(5)).await.unwrap();
    node.memory.set_cache_budget(ByteSize(0));
    node.memory.set_cache_budget(ByteSize::mib(4));
    node.put_in(name, "a", b"1").await.unwrap();
    node.commit(name).await.unwrap();
    assert_eq!(node.plain("a").await.unwrap(), b"1");
}

#[tokio::test(flavor = "multi_thread")]
async fn increments_of_two_counters_by_many_keep_their_sum() {
    let node = Arc::new(LazyBench::new().await);
    for counter in ["a", "b"] {
        node.write(counter, b"100").await;
    }
    let number = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap().parse::<i64>().unwrap();
    let movers = (0..6_i64).map(|mover| {
        let node = Arc::clone(&node);
        tokio::spawn(async move {
            let mut conflicts = 0;
            for round in 0..10 {
                let by = (mover + round) % 5 - 2;
                loop {
                    let name = node.begin();
                    let moved = async {
                        let (a, b) = (node.get_in(name, "a").await?, node.get_in(name, "b").await?);
                        let (a, b) = (number(a) - by, number(b) + by);
                        node.put_in(name, "a", a.to_string().as_bytes()).await?;
                        node.put_in(name, "b", b.to_string().as_bytes()).await?;
                        node.commit(name).await
                    };
                    match moved.await {
                        Ok(_) => break,
                        Err(ObjectError::TransactionConflict(_)) => conflicts += 1,
                        Err(error) => panic!("{error}"),
                    }
                }
            }
            conflicts
        })
    });
    let mut conflicts = 0;
    for mover in movers.collect::<Vec<_>>() {
        conflicts += mover.await.unwrap();
    }
    let sum = number(node.plain("a").await.unwrap()) + number(node.plain("b").await.unwrap());
    let moved: i64 = (0..6).flat_map(|mover| (0..10).map(move |round| (mover + round) % 5 - 2)).sum();
    assert_eq!(sum, 200);
    assert_eq!(number(node.plain("b").await.unwrap()), 100 + moved);
    assert!(conflicts > 0, "they never met");
}

fn part(node: &LazyBench, writes: &[(&str, Option<&[u8]>)]) -> (Part, Vec<Bytes>) {
    let object =
        |name: &str| ObjectId { namespace: node.who.namespace.clone(), bucket: node.bucket.clone(), key: key(name) };
    let write = |(name, bytes): &(&str, Option<&[u8]>)| PartWrite {
        object: object(name),
        becomes: bytes.map_or(PartBecomes::Gone, |bytes| {
            PartBecomes::Put(Box::new(NewObject {
                attributes: Attributes::default(),
                tags: Tags::new(),
                size: bytes.len() as u64,
                etag: ETag("0cc175b9c0f1b6a831c399e269772661".to_owned()),
                checksum: None,
                modified: nigh_terms::Timestamp(5),
            }))
        }),
    };
    let part = Part {
        transaction: TransactionId(0xdead),
        who: node.who.clone(),
        token: Token::empty(),
        reads: Vec::new(),
        writes: writes.iter().map(write).collect(),
    };
    let bytes = writes.iter().map(|(_, bytes)| Bytes::copy_from_slice(bytes.unwrap_or_default())).collect();
    (part, bytes)
}

#[tokio::test]
async fn what_was_decided_before_a_crash_is_carried_out_after_it_before_anything_else_is_written() {
    let node = LazyBench::new().await;
    node.write("gone", b"x").await;
    let large = [9; 90_000];
    let (part, bytes) = part(&node, &[("a", Some(b"one")), ("b", Some(&large)), ("gone", None)]);
    let decided = TransactionRecord::Decided { participants: std::collections::BTreeSet::new() };
    // The commit point, and nothing after it.
    let home = (ShardId(0), node.memory.0.coherence.epoch_here(ShardId(0)).unwrap());
    node.memory.0.back.append_transaction(home, &decided, &part, &bytes).await.unwrap();
    let node = node.restarted().await;
    // A write waits until the committed writes are applied.
    node.write("a", b"two").await;
    assert_eq!(node.plain("a").await.unwrap(), b"two");
    assert_eq!(node.plain("b").await.unwrap(), large);
    assert_eq!(node.plain("gone").await, None);
    // If the transaction were found once more, its writes would be applied over later ones.
    let node = node.restarted().await;
    assert_eq!(node.plain("a").await.unwrap(), b"two");
}

#[tokio::test]
async fn a_committed_transaction_is_whole_after_a_crash() {
    let node = LazyBench::new().await;
    let name = node.begin();
    node.put_in(name, "a", b"one").await.unwrap();
    node.put_in(name, "b", b"two").await.unwrap();
    let uncommitted = node.begin();
    node.put_in(uncommitted, "c", b"three").await.unwrap();
    node.commit(name).await.unwrap();
    let node = node.restarted().await;
    assert_eq!((node.plain("a").await.unwrap(), node.plain("b").await.unwrap()), (b"one".to_vec(), b"two".to_vec()));
    assert_eq!(node.plain("c").await, None);
    assert!(matches!(node.commit(uncommitted).await, Err(ObjectError::NoSuchTransaction(_))));
}

#[tokio::test]
async fn each_write_of_a_transaction_comes_to_the_store_as_an_ordinary_one() {
    let node = LazyBench::new().await;
    let name = node.begin();
    node.put_in(name, "a", b"one").await.unwrap();
    node.put_in(name, "b", b"two").await.unwrap();
    node.commit(name).await.unwrap();
    node.persist();
    node.memory.flush_all(Duration::from_secs(5)).await.unwrap();
    assert_eq!(node.memory.dirty().objects, 0);
    assert_eq!((node.stored("a").unwrap(), node.stored("b").unwrap()), (b"one".to_vec(), b"two".to_vec()));
    node.stop();
    let node = node.restarted().await;
    assert_eq!(node.plain("b").await.unwrap(), b"two");
}

#[tokio::test]
async fn an_ephemeral_object_is_in_no_transaction() {
    let settings = crate::WriteSettings { mode: crate::WriteMode::Ephemeral, ..write_back::settings() };
    let node = LazyBench::with(settings).await;
    let refused = node.put_in(node.begin(), "a", b"x").await;
    assert!(matches!(refused, Err(ObjectError::InvalidRequest(_))), "{refused:?}");
}
