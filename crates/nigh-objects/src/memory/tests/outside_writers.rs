//! Outside writers and unpushed writes: the store's notices, and bounds on the age of copies.

use nigh_stores::Store;
use nigh_terms::Clock;

use super::shared_bucket::{apart, in_a_shared_bucket, others_write, shared};
use super::write_back::{LazyBench, settings};
use super::*;
use crate::{BucketPolicy, Freshness, StoreChange, WriteMode, WriteSettings};

fn always_asking() -> BucketPolicy {
    BucketPolicy { freshness: Some(Freshness::ALWAYS), ..shared() }
}

/// A shared bucket whose writes wait for a minute, unless something asks for their push.
async fn whose_writes_wait(policy: BucketPolicy) -> LazyBench {
    let (delay, wait) = (Duration::from_secs(60), Duration::from_secs(5));
    let l = LazyBench::with(WriteSettings { delay, wait, ..settings() }).await;
    l.store.has_conditions.store(true, Ordering::SeqCst);
    l.policy(policy).await.unwrap();
    l
}

fn holding(bytes: &[u8]) -> StoreChange {
    StoreChange::Holds(ETag(String::from_utf8_lossy(bytes).into_owned()))
}

async fn others_remove(l: &LazyBench, name: &str) {
    l.store.delete(&l.id(name)).await.unwrap();
}

#[tokio::test]
async fn a_notice_of_others_settles_what_waits_before_it_is_answered() {
    let l = whose_writes_wait(shared()).await;
    let persisting = l.persist();
    let (first, id) = (l.put("a", b"ours").await, l.id("a"));
    others_write(&l, "a", b"theirs");
    assert_eq!(l.get("a").await.unwrap(), b"ours", "nobody has told");
    l.memory.noticed(&id, &holding(b"theirs")).await.unwrap();
    assert_eq!(l.get("a").await.unwrap(), b"theirs");
    assert_eq!(l.stored(&apart("a", &first)), Some(b"ours".to_vec()));
    // The next write replaces theirs; they remove that, which the store shows.
    let second = l.put("a", b"next").await;
    others_remove(&l, "a").await;
    l.memory.noticed(&id, &StoreChange::Removed).await.unwrap();
    assert!(matches!(l.get("a").await, Err(ObjectError::NoSuchKey(_))));
    assert_eq!(l.stored(&apart("a", &second)), Some(b"next".to_vec()));
    // A late notice of what the waiting write replaces, and of a write like it, asks for nothing.
    others_write(&l, "b", b"before");
    l.put("b", b"ours").await;
    l.memory.noticed(&l.id("b"), &holding(b"before")).await.unwrap();
    assert_eq!((l.stored("b"), l.memory.dirty().objects), (Some(b"before".to_vec()), 1));
    l.stop.cancel();
    persisting.await.unwrap();
}

#[tokio::test]
async fn a_notice_of_a_removal_lets_a_write_give_way_though_the_store_shows_nothing_of_it() {
    let l = whose_writes_wait(shared()).await;
    let persisting = l.persist();
    let done = l.put("a", b"ours").await;
    others_write(&l, "a", b"theirs");
    others_remove(&l, "a").await;
    l.memory.noticed(&l.id("a"), &StoreChange::Removed).await.unwrap();
    assert!(matches!(l.get("a").await, Err(ObjectError::NoSuchKey(_))));
    assert_eq!((l.stored("a"), l.stored(&apart("a", &done))), (None, Some(b"ours".to_vec())));
    // What is written after that stays.
    l.put("a", b"next").await;
    l.memory.flush(&l.who, &l.bucket, &key("a")).await.unwrap();
    assert_eq!((l.stored("a"), l.memory.dirty().conflicts), (Some(b"next".to_vec()), 1));
    // The notice of a put may come when the object is removed already; that of the removal may come later.
    let done = l.put("b", b"ours").await;
    l.memory.noticed(&l.id("b"), &holding(b"theirs")).await.unwrap();
    assert!(matches!(l.get("b").await, Err(ObjectError::NoSuchKey(_))));
    assert_eq!((l.stored("b"), l.stored(&apart("b", &done))), (None, Some(b"ours".to_vec())));
    l.stop.cancel();
    persisting.await.unwrap();
}

#[tokio::test]
async fn a_notice_of_this_node_s_push_is_answered_during_it_and_one_of_others_after_it() {
    let l = in_a_shared_bucket().await;
    let (gate, id) = (l.store.close(Point::PutDone), l.id("a"));
    let persisting = l.persist();
    let done = l.put("a", b"ours").await;
    gate.arrival().await;
    // The store may wait for this answer before it answers the push.
    let own = l.memory.noticed(&id, &StoreChange::Holds(done.etag.clone())).now_or_never();
    assert!(matches!(own, Some(Ok(false))), "{own:?}");
    others_write(&l, "a", b"theirs");
    let change = holding(b"theirs");
    let mut notice = Box::pin(l.memory.noticed(&id, &change));
    assert!(notice.as_mut().now_or_never().is_none());
    l.store.open(Point::PutDone);
    gate.let_one_on();
    notice.await.unwrap();
    assert_eq!((l.get("a").await.unwrap(), l.memory.dirty().conflicts), (b"theirs".to_vec(), 0));
    let gate = l.store.close(Point::DeleteDone);
    let (memory, who, bucket) = (l.memory.clone(), l.who.clone(), l.bucket.clone());
    let deleting =
        tokio::spawn(async move { memory.delete(&who, &bucket, &key("a"), WriteConditions::default(), None).await });
    gate.arrival().await;
    let own = l.memory.noticed(&id, &StoreChange::Removed).now_or_never();
    assert!(matches!(own, Some(Ok(false))), "{own:?}");
    l.store.open(Point::DeleteDone);
    gate.let_one_on();
    deleting.await.unwrap().unwrap();
    l.stop.cancel();
    persisting.await.unwrap();
}

#[tokio::test]
async fn a_notice_that_cannot_be_settled_is_refused_so_that_it_is_sent_again() {
    let l = in_a_shared_bucket().await;
    l.put("a", b"ours").await;
    others_write(&l, "a", b"theirs");
    let refused = l.memory.noticed(&l.id("a"), &holding(b"theirs")).await;
    assert!(matches!(refused, Err(ObjectError::SlowDown(_))), "nobody pushes: {refused:?}");
    let persisting = l.persist();
    l.memory.noticed(&l.id("a"), &holding(b"theirs")).await.unwrap();
    assert_eq!(l.get("a").await.unwrap(), b"theirs");
    l.stop.cancel();
    persisting.await.unwrap();
}

#[tokio::test]
async fn where_the_store_is_asked_each_time_a_write_that_waits_hides_nothing_of_others() {
    let l = whose_writes_wait(always_asking()).await;
    let persisting = l.persist();
    let first = l.put("a", b"ours").await;
    assert_eq!(l.get("a").await.unwrap(), b"ours");
    assert_eq!(l.memory.dirty().waiting(), 1, "nobody else wrote: it goes on waiting");
    others_write(&l, "a", b"theirs");
    assert_eq!(l.get("a").await.unwrap(), b"theirs");
    assert_eq!(l.stored(&apart("a", &first)), Some(b"ours".to_vec()));
    // A write over one that waits replaces what others have written since.
    let second = l.put("a", b"second").await;
    others_write(&l, "a", b"theirs again");
    l.put("a", b"third").await;
    l.memory.flush(&l.who, &l.bucket, &key("a")).await.unwrap();
    assert_eq!((l.stored("a"), l.stored(&apart("a", &second))), (Some(b"third".to_vec()), Some(b"second".to_vec())));
    assert_eq!(l.memory.dirty().conflicts, 2);
    l.stop.cancel();
    persisting.await.unwrap();
}

#[tokio::test]
async fn a_copy_serves_without_a_question_to_the_store_until_its_bound() {
    let clock = Arc::new(ManualClock::default());
    clock.advance(Duration::from_secs(3600));
    let l = LazyBench::by(Arc::clone(&clock) as Arc<dyn Clock>, settings()).await;
    l.store.has_conditions.store(true, Ordering::SeqCst);
    let policy = |freshness| BucketPolicy { mode: Some(WriteMode::Through), freshness: Some(freshness), ..shared() };
    l.policy(policy(Freshness::millis(30_000))).await.unwrap();
    l.put("a", b"ours").await;
    others_write(&l, "a", b"theirs");
    for (seconds, expected) in [(0, b"ours".to_vec()), (29, b"ours".to_vec()), (1, b"theirs".to_vec())] {
        clock.advance(Duration::from_secs(seconds));
        assert_eq!(l.get("a").await.unwrap(), expected, "after {seconds} s more");
    }
    others_write(&l, "a", b"newer");
    for (seconds, expected) in [(29, b"theirs".to_vec()), (1, b"newer".to_vec())] {
        clock.advance(Duration::from_secs(seconds));
        assert_eq!(l.get("a").await.unwrap(), expected, "after {seconds} s more");
    }
    l.policy(policy(Freshness::ALWAYS)).await.unwrap();
    others_write(&l, "a", b"newest");
    assert_eq!(l.get("a").await.unwrap(), b"newest");
}

#[tokio::test]
async fn without_notices_and_a_bound_others_are_seen_when_what_waits_is_pushed() {
    let l = in_a_shared_bucket().await;
    l.put("a", b"ours").await;
    l.put("b", b"ours").await;
    others_write(&l, "a", b"theirs");
    // What others put and remove again leaves no trace that a condition could see.
    others_write(&l, "b", b"theirs");
    others_remove(&l, "b").await;
    assert_eq!(l.get("a").await.unwrap(), b"ours");
    let persisting = l.persist();
    l.settled().await;
    assert_eq!((l.get("a").await.unwrap(), l.get("b").await.unwrap()), (b"theirs".to_vec(), b"ours".to_vec()));
    l.stop.cancel();
    persisting.await.unwrap();
}

#[tokio::test]
async fn a_write_over_an_ephemeral_object_overwrites_nothing_of_others() {
    let l = in_a_shared_bucket().await;
    let mode = |mode| BucketPolicy { mode: Some(mode), ..shared() };
    l.policy(mode(WriteMode::Ephemeral)).await.unwrap();
    for name in ["a", "b"] {
        l.put(name, b"in memory").await;
    }
    others_write(&l, "b", b"before");
    l.policy(mode(WriteMode::Lazy)).await.unwrap();
    let done = l.put("a", b"ours").await;
    l.put("b", b"ours").await;
    others_write(&l, "a", b"theirs");
    let persisting = l.persist();
    l.settled().await;
    assert_eq!((l.stored("a"), l.stored(&apart("a", &done))), (Some(b"theirs".to_vec()), Some(b"ours".to_vec())));
    assert_eq!(l.stored("b"), Some(b"ours".to_vec()), "the write came after theirs");
    l.stop.cancel();
    persisting.await.unwrap();
}

#[tokio::test]
async fn an_ephemeral_object_that_others_are_heard_to_write_is_reported_lost() {
    let l = in_a_shared_bucket().await;
    l.policy(BucketPolicy { mode: Some(WriteMode::Ephemeral), ..always_asking() }).await.unwrap();
    l.put("a", b"in memory").await;
    others_write(&l, "a", b"theirs");
    assert_eq!(l.get("a").await.unwrap(), b"in memory", "the store is not asked about what it never gets");
    l.memory.noticed(&l.id("a"), &holding(b"theirs")).await.unwrap();
    assert!(matches!(l.get("a").await, Err(ObjectError::EphemeralLost(_))));
}
