//! Somebody sets the machine's date an hour back. Durations come from the monotonic clock, and order from versions.

use nigh_terms::Clock;

use super::write_back::{LazyBench, settings};
use super::*;
use crate::{BucketPolicy, ModeRule, WriteMode};

const HOUR: Duration = Duration::from_secs(3600);

fn clock() -> Arc<ManualClock> {
    let clock = Arc::new(ManualClock::default());
    clock.advance(10 * HOUR);
    clock
}

async fn lazy(clock: &Arc<ManualClock>) -> LazyBench {
    LazyBench::by(Arc::clone(clock) as Arc<dyn Clock>, settings()).await
}

#[tokio::test]
async fn after_the_date_went_back_the_last_write_is_the_newest_also_after_a_crash() {
    let clock = clock();
    let l = lazy(&clock).await;
    let first = l.put("a", b"first").await;
    clock.turn_date_back(HOUR);
    let second = l.put("a", b"second").await;
    assert!(second.version > first.version);
    let meta = l.memory.head(&l.who, &l.bucket, &key("a"), GetRequest::default()).await.unwrap();
    assert_eq!(meta.modified, clock.wall(), "it says the date as it was set");
    clock.turn_date_back(HOUR);
    let l = l.restarted().await;
    assert_eq!(l.get("a").await.unwrap(), b"second");
    let third = l.put("a", b"third").await;
    assert!(third.version > second.version);
    let persisting = l.persist();
    clock.advance(HOUR);
    until(|| l.stored("a").is_some_and(|bytes| bytes == b"third")).await;
    l.stop();
    persisting.await.unwrap();
}

#[tokio::test]
async fn after_the_date_went_back_age_back_off_and_what_may_land_late_are_as_long_as_before() {
    let clock = clock();
    let l = lazy(&clock).await;
    l.put("a", b"one").await;
    clock.advance(Duration::from_secs(5));
    clock.turn_date_back(HOUR);
    assert_eq!(l.memory.dirty().oldest, Duration::from_secs(5));

    // The push gets no answer, and is tried again after its wait.
    l.store.delay_puts.store(true, Ordering::SeqCst);
    let persisting = l.persist();
    until(|| l.memory.dirty().failing == 1).await;
    clock.turn_date_back(HOUR);
    l.store.delay_puts.store(false, Ordering::SeqCst);
    clock.advance(settings().back_off);
    until(|| l.memory.dirty().watched == 1).await;
    assert_eq!(l.stored("a").as_deref(), Some(&b"one"[..]));
    // The object is watched for as long as that push may land, and no longer.
    clock.turn_date_back(HOUR);
    clock.advance(crate::doubts::LANDS_WITHIN);
    l.settled().await;
    l.stop();
    persisting.await.unwrap();
}

#[tokio::test]
async fn after_the_date_went_back_policies_hold_and_what_a_reader_has_stays_its_version() {
    let clock = clock();
    let l = lazy(&clock).await;
    let rule = ModeRule { prefix: "now/".to_owned(), tag: None, mode: WriteMode::Through };
    let policy = BucketPolicy { rules: vec![rule], ..BucketPolicy::default() };
    l.policy(policy.clone()).await.unwrap();
    let large = vec![1; CACHED];
    l.put("a", &large).await;
    let lent = l.memory.get(&l.who, &l.bucket, &key("a"), GetRequest::default()).await.unwrap();
    clock.turn_date_back(HOUR);
    l.put("a", &vec![2; CACHED]).await;
    assert_eq!(bytes_of(lent).await.unwrap(), large);
    let l = l.restarted().await;
    assert_eq!(l.memory.bucket_policy(&l.who, &l.bucket).await.unwrap(), policy);
    l.put("now/a", b"x").await;
    assert_eq!(l.stored("now/a"), Some(b"x".to_vec()), "it went through");
}
