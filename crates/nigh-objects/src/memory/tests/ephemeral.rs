//! Ephemeral objects, whose bytes are only in memory.

use nigh_engine::RequestId;

use super::write_back::{LazyBench, settings};
use super::*;
use crate::{BucketPolicy, WriteMode, WriteSettings};

impl LazyBench {
    async fn mode(&self, mode: WriteMode) {
        self.policy(BucketPolicy { mode: Some(mode), ..BucketPolicy::default() }).await.unwrap();
    }

    /// Waits until the journal remembers the ephemeral objects over a restart.
    async fn marked(&self, records: u64) {
        until(|| self.journal.usage().records == records).await;
    }
}

#[tokio::test]
async fn tags_of_an_ephemeral_object_are_changed_and_its_bytes_stay() {
    let l = LazyBench::new().await;
    l.mode(WriteMode::Ephemeral).await;
    l.put("a", b"bytes").await;
    let tags: Tags = [("k".to_owned(), "v".to_owned())].into();
    l.memory.put_tags(&l.who, &l.bucket, &key("a"), tags.clone()).await.unwrap();
    assert_eq!(l.memory.get_tags(&l.who, &l.bucket, &key("a")).await.unwrap(), tags);
    assert_eq!(l.get("a").await.unwrap(), b"bytes");
    l.memory.set_cache_budget(ByteSize(0));
    let gone = l.memory.put_tags(&l.who, &l.bucket, &key("a"), Tags::new()).await;
    assert!(matches!(gone, Err(ObjectError::EphemeralLost(_))), "{gone:?}");
}

#[tokio::test]
async fn an_ephemeral_object_is_read_while_a_write_over_it_waits_and_stays_when_that_is_refused() {
    let l = LazyBench::with(WriteSettings { dirty_max: ByteSize(100), ..settings() }).await;
    l.mode(WriteMode::Ephemeral).await;
    l.put("a", b"old").await;
    for mode in [WriteMode::Ephemeral, WriteMode::Lazy] {
        l.mode(mode).await;
        let (memory, who, bucket) = (l.memory.clone(), l.who.clone(), l.bucket.clone());
        let refused = tokio::spawn(async move { memory.put(&who, &bucket, &key("a"), body(&[7; 200])).await });
        while !refused.is_finished() {
            assert_eq!(l.get("a").await.unwrap(), b"old");
            l.memory.head(&l.who, &l.bucket, &key("a"), GetRequest::default()).await.unwrap();
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        assert!(matches!(refused.await.unwrap(), Err(ObjectError::SlowDown(_))));
        assert_eq!(l.get("a").await.unwrap(), b"old");
    }
    l.put("a", b"new").await;
    assert_eq!(l.get("a").await.unwrap(), b"new");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readers_of_an_ephemeral_object_that_is_written_all_the_time_always_find_it() {
    let l = LazyBench::new().await;
    l.mode(WriteMode::Ephemeral).await;
    l.put("a", &[0; 100]).await;
    let (memory, who, bucket) = (l.memory.clone(), l.who.clone(), l.bucket.clone());
    let reading = tokio::spawn(async move {
        let mut last = 0;
        while last < 200 {
            let got = memory.get(&who, &bucket, &key("a"), GetRequest::default()).await.unwrap();
            let bytes = bytes_of(got).await.unwrap();
            assert!(bytes.iter().all(|byte| *byte == bytes[0]) && bytes[0] >= last);
            last = bytes[0];
        }
    });
    for n in 1..=200 {
        l.put("a", &[n; 100]).await;
    }
    reading.await.unwrap();
}

#[tokio::test]
async fn after_a_restart_an_ephemeral_object_is_said_to_be_lost_and_nothing_older_is_shown() {
    let l = LazyBench::new().await;
    let persisting = l.persist();
    l.put("a", b"older").await;
    l.settled().await;
    l.stop.cancel();
    persisting.await.unwrap();
    l.mode(WriteMode::Ephemeral).await;
    for name in ["a", "a", "b", "c"] {
        l.put(name, b"scratch").await;
    }
    l.marked(3).await;
    let l = l.restarted().await;
    for name in ["a", "b", "c"] {
        assert!(matches!(l.get(name).await, Err(ObjectError::EphemeralLost(_))), "{name}");
    }
    assert_eq!(l.names().await, [""; 0]);
    assert_eq!((l.memory.dirty().ephemeral, l.memory.dirty().bytes), (3, 0));
    l.mode(WriteMode::Lazy).await;
    l.put("a", b"newer").await;
    l.delete("b").await;
    l.mode(WriteMode::Through).await;
    l.put("c", &vec![5; CACHED + 1]).await;
    let l = l.restarted().await;
    assert_eq!((l.get("a").await.unwrap(), l.get("c").await.unwrap().len()), (b"newer".to_vec(), CACHED + 1));
    assert!(matches!(l.get("b").await, Err(ObjectError::NoSuchKey(_))));
    assert_eq!(l.memory.dirty().ephemeral, 0);
}

#[tokio::test]
async fn a_request_that_is_repeated_over_a_newer_ephemeral_object_leaves_that_alone() {
    let l = LazyBench::new().await;
    let named = || PutRequest { request: Some(RequestId(7)), ..body(b"first") };
    let first = l.put_with("a", named()).await.unwrap();
    let persisting = l.persist();
    l.mode(WriteMode::Ephemeral).await;
    l.put("a", b"newer").await;
    assert_eq!(l.put_with("a", named()).await.unwrap().version, first.version);
    assert_eq!(l.get("a").await.unwrap(), b"newer");
    l.stop.cancel();
    persisting.await.unwrap();
}
