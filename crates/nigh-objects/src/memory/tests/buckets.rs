//! Buckets that are created and removed while objects are written.

use nigh_stores::Store;

use super::write_back::LazyBench;
use super::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_write_is_not_acknowledged_into_a_bucket_that_is_removed_beside_it() {
    let l = LazyBench::new().await;
    let persisting = l.persist();
    for round in 0..50u32 {
        let (memory, who, bucket) = (l.memory.clone(), l.who.clone(), l.bucket.clone());
        let put = tokio::spawn(async move { memory.put(&who, &bucket, &key("a"), body(b"x")).await });
        for _ in 0..round % 7 {
            tokio::task::yield_now().await;
        }
        let removed = l.memory.delete_bucket(&l.who, &l.bucket).await;
        match (put.await.unwrap(), removed) {
            (Ok(_), Err(ObjectError::BucketNotEmpty(_))) => {
                assert_eq!(l.get("a").await.unwrap(), b"x");
                l.delete("a").await;
            }
            (Err(ObjectError::NoSuchBucket(_)), Ok(())) => l.memory.create_bucket(&l.who, &l.bucket).await.unwrap(),
            other => panic!("{other:?}"),
        }
    }
    l.stop.cancel();
    persisting.await.unwrap();
}

#[tokio::test]
async fn a_bucket_that_others_removed_takes_no_write_and_keeps_what_waits_until_it_is_made_anew() {
    let l = LazyBench::new().await;
    l.put("a", b"one").await;
    l.put("b", b"two").await;
    l.put("gone", b"x").await;
    l.delete("gone").await;
    l.store.delete_bucket(&l.who.namespace, &l.bucket).await.unwrap();
    let persisting = l.persist();
    until(|| l.memory.dirty().homeless == 2).await;
    let refused = l.put_with("c", body(b"x")).await;
    assert!(matches!(refused, Err(ObjectError::NoSuchBucket(_))), "{refused:?}");
    assert_eq!(l.get("a").await.unwrap(), b"one");
    let unpushed = l.memory.unpushed(&l.who.namespace, Some(&l.bucket), "", 10);
    let names: Vec<_> = unpushed.iter().map(|one| (one.object.key.as_str(), one.size, one.is_homeless)).collect();
    assert_eq!(names, [("a", Some(3), true), ("b", Some(3), true)]);
    // The operator drops one write, in the version that was shown and no other.
    let (object, shown) = (&unpushed[1].object, unpushed[1].version);
    assert!(!l.memory.drop_unpushed(object, unpushed[0].version).await);
    assert!(l.memory.drop_unpushed(object, shown).await);
    l.memory.create_bucket(&l.who, &l.bucket).await.unwrap();
    l.settled().await;
    assert_eq!((l.stored("a"), l.stored("b"), l.memory.dirty().homeless), (Some(b"one".to_vec()), None, 0));
    assert!(matches!(l.get("b").await, Err(ObjectError::NoSuchKey(_))));
    l.put("c", b"x").await;
    l.stop.cancel();
    persisting.await.unwrap();
}

#[tokio::test]
async fn a_bucket_that_was_made_listed_or_written_before_a_crash_is_not_asked_for_by_the_first_write() {
    let l = LazyBench::new().await;
    let looks = |l: &LazyBench| l.store.bucket_looks.load(Ordering::SeqCst);
    l.put("a", b"into a bucket just made").await;
    let l = l.restarted().await;
    l.put("b", b"into one of which something waits").await;
    assert_eq!(looks(&l), 0);
    let persisting = l.persist();
    l.delete("a").await;
    l.delete("b").await;
    until(|| l.memory.dirty().watched == 1 && l.memory.dirty().objects == 1).await;
    l.stop();
    persisting.await.unwrap();
    let l = l.restarted().await;
    l.put("c", b"of which deletions alone are known").await;
    assert_eq!(looks(&l), 1);

    let l = LazyBench::new().await.restarted().await;
    l.memory.list_buckets(&l.who).await.unwrap();
    l.put("d", b"into one that was listed").await;
    let l = LazyBench::new().await.restarted().await;
    l.names().await;
    l.put("e", b"into one whose objects were").await;
    assert_eq!(looks(&l), 0);
    let l = LazyBench::new().await.restarted().await;
    l.put("f", b"into one never heard of").await;
    assert_eq!(looks(&l), 1);
}
