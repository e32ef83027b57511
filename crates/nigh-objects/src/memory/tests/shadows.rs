//! Mode `shadow`, and a store's notices about outside readers and writers.

use crate::gated_store::PlaceholderFailure;
use nigh_data::ObjectMeta;
use nigh_engine::RequestId;

use super::write_back::LazyBench;
use super::*;
use crate::{BucketPolicy, PushOutcome, WriteMode};

const LEASE: Duration = Duration::from_secs(60);

async fn shadows() -> LazyBench {
    let l = LazyBench::new().await;
    let shadow = BucketPolicy { mode: Some(WriteMode::Shadow), ..BucketPolicy::default() };
    assert!(matches!(l.policy(shadow.clone()).await, Err(ObjectError::InvalidArgument(_))), "the store shows nothing");
    l.store.has_shadows.store(true, Ordering::SeqCst);
    l.policy(shadow).await.unwrap();
    l
}

fn shown(l: &LazyBench, name: &str) -> Option<Version> {
    l.store.shadows.lock().get(&l.id(name)).copied()
}

/// An outside write, `seconds` after 1970.
async fn others_write(l: &LazyBench, name: &str, bytes: &'static [u8], seconds: usize) {
    let some = l.put("some", b"").await;
    let meta = l.memory.head(&l.who, &l.bucket, &key("some"), GetRequest::default()).await.unwrap();
    assert_eq!(meta.version, some.version);
    let (size, etag) = (bytes.len() as u64, ETag("theirs".to_owned()));
    let meta = ObjectMeta { size, etag, version: Version::OUTSIDE, ..(*meta).clone() };
    l.store.others_at.store(seconds, Ordering::SeqCst);
    l.store.put_by_others(&l.id(name), meta, Bytes::from_static(bytes));
}

fn named(request: u128, bytes: &[u8]) -> PutRequest {
    PutRequest { request: Some(RequestId(request)), ..body(bytes) }
}

#[tokio::test]
async fn a_shadow_is_acknowledged_when_the_store_shows_it_and_is_pushed_on_demand() {
    let l = shadows().await;
    let done = l.put("a", b"one").await;
    assert_eq!((shown(&l, "a"), l.stored("a")), (Some(done.version), None));
    assert_eq!(l.get("a").await.unwrap(), b"one");
    let newer = l.put("a", b"two").await;
    assert_eq!(shown(&l, "a"), Some(newer.version));
    let persisting = l.persist();
    assert_eq!(l.memory.push_now(&l.id("a"), done.version).await.unwrap(), PushOutcome::Superseded);
    assert_eq!((shown(&l, "a"), l.stored("a").unwrap()), (None, b"two".to_vec()));
    assert_eq!(l.memory.push_now(&l.id("a"), newer.version).await.unwrap(), PushOutcome::Superseded);
    let lost = Version { sequence: nigh_terms::Sequence(99), ..newer.version };
    l.store.shadows.lock().insert(l.id("lost"), lost);
    assert_eq!(l.memory.push_now(&l.id("lost"), lost).await.unwrap(), PushOutcome::Unknown);
    // A deletion is acknowledged by the store: it can be shown in no other way.
    l.put("a", b"three").await;
    l.delete("a").await;
    assert_eq!(l.stored("a"), None);
    l.settled().await;
    l.stop();
    persisting.await.unwrap();
}

#[tokio::test]
async fn a_shadow_that_the_store_refuses_is_no_write_and_its_repetition_is_one() {
    let l = shadows().await;
    let persisting = l.persist();
    l.put("a", b"old").await;
    l.settled().await;
    l.stop();
    persisting.await.unwrap();
    *l.store.placing_fails.lock() = Some(PlaceholderFailure::NotSent);
    assert!(l.put_with("a", named(7, b"new")).await.is_err());
    assert_eq!((shown(&l, "a"), l.get("a").await.unwrap()), (None, b"old".to_vec()));
    let done = l.put_with("a", named(7, b"new")).await.unwrap();
    let again = l.put_with("a", named(7, b"new")).await.unwrap();
    assert_eq!((shown(&l, "a"), again.version), (Some(done.version), done.version));
    assert_eq!(l.get("a").await.unwrap(), b"new");
    let l = l.restarted().await;
    let persisting = l.persist();
    assert_eq!(l.get("a").await.unwrap(), b"new");
    l.settled().await;
    assert_eq!(l.stored("a").unwrap(), b"new");
    l.stop();
    persisting.await.unwrap();
}

#[tokio::test]
async fn a_shadow_without_an_answer_is_read_by_nobody_until_it_is_pushed() {
    // If an older write is unpushed, one that was not sent cannot be taken out of the journal either.
    for fails in [PlaceholderFailure::Lost, PlaceholderFailure::AnswerLost, PlaceholderFailure::NotSent] {
        let l = shadows().await;
        l.put("a", b"old").await;
        *l.store.placing_fails.lock() = Some(fails);
        assert!(l.put_with("a", named(7, b"new")).await.is_err());
        assert!(matches!(l.get("a").await, Err(ObjectError::SlowDown(_))), "{fails:?}");
        let persisting = l.persist();
        assert_eq!(l.get("a").await.unwrap(), b"new", "{fails:?}");
        l.settled().await;
        assert_eq!((shown(&l, "a"), l.stored("a").unwrap()), (None, b"new".to_vec()), "{fails:?}");
        l.stop();
        persisting.await.unwrap();
    }
    let l = shadows().await;
    *l.store.placing_fails.lock() = Some(PlaceholderFailure::Lost);
    assert!(l.put_with("a", named(7, b"new")).await.is_err());
    // The client repeats the request, and it is acknowledged as the same write.
    let done = l.put_with("a", named(7, b"new")).await.unwrap();
    assert_eq!((shown(&l, "a"), l.get("a").await.unwrap()), (Some(done.version), b"new".to_vec()));
}

#[tokio::test]
async fn a_kill_between_journal_and_placeholder_overwrites_nothing_of_others() {
    for (others_after, expected) in [(None, &b"new"[..]), (Some(1_000_000), b"new"), (Some(usize::MAX >> 8), b"theirs")]
    {
        let l = shadows().await;
        let gate = l.store.close(Point::Placing);
        let (memory, who, bucket) = (l.memory.clone(), l.who.clone(), l.bucket.clone());
        let putting = tokio::spawn(async move { memory.put(&who, &bucket, &key("a"), named(7, b"new")).await });
        gate.arrival().await;
        l.store.open(Point::Placing);
        if let Some(seconds) = others_after {
            others_write(&l, "a", b"theirs", seconds).await;
        }
        gate.let_one_on();
        // The node dies while its placeholder is on the way, and the placeholder is lost.
        drop(putting.await);
        l.store.shadows.lock().remove(&l.id("a"));
        let l = l.restarted().await;
        assert!(matches!(l.get("a").await, Err(ObjectError::SlowDown(_))), "nobody knows yet");
        let persisting = l.persist();
        assert_eq!(l.get("a").await.unwrap(), expected);
        l.settled().await;
        let apart: Vec<_> = l.names().await.into_iter().filter(|name| name.contains("conflict")).collect();
        assert_eq!(apart.len(), usize::from(expected == b"theirs"), "{apart:?}");
        l.stop();
        persisting.await.unwrap();
    }
}

#[tokio::test]
async fn what_others_wrote_over_a_shadow_stays_and_the_shadow_is_kept_apart() {
    let l = shadows().await;
    let done = l.put("a", b"ours").await;
    others_write(&l, "a", b"theirs", 1).await;
    let persisting = l.persist();
    l.settled().await;
    assert_eq!((l.get("a").await.unwrap(), l.stored("a").unwrap()), (b"theirs".to_vec(), b"theirs".to_vec()));
    let name = format!("a.nigh-conflict-{}-{}", done.version.epoch.0, done.version.sequence.0);
    assert_eq!(l.get(&name).await.unwrap(), b"ours");
    assert_eq!(l.memory.dirty().conflicts, 1);
    l.stop();
    persisting.await.unwrap();
}

#[tokio::test]
async fn while_others_write_nothing_is_kept_or_waits_and_reads_see_the_store() {
    let l = shadows().await;
    let persisting = l.persist();
    l.put("a", b"ours").await;
    let a = l.id("a");
    l.memory.outside_write_begins(&a, "t1", LEASE).await.unwrap();
    assert_eq!(
        (shown(&l, "a"), l.stored("a").unwrap()),
        (None, b"ours".to_vec()),
        "pushed before the begin is answered"
    );
    others_write(&l, "a", b"theirs", 1).await;
    assert_eq!(l.get("a").await.unwrap(), b"theirs");
    l.put("a", b"through").await;
    assert_eq!(l.stored("a").unwrap(), b"through");
    others_write(&l, "a", b"theirs again", 1).await;
    assert_eq!(l.get("a").await.unwrap(), b"theirs again", "the copy of a write beside theirs is not kept");
    // Nobody knows whether the store has the write, so the object stays held.
    l.memory.outside_write_ended(&a, "t1", None).await.unwrap();
    others_write(&l, "a", b"late", 1).await;
    assert_eq!(l.get("a").await.unwrap(), b"late");
    l.memory.outside_write_ended(&a, "t1", Some(true)).await.unwrap();
    assert_eq!(l.get("a").await.unwrap(), b"late");
    let gets = l.store.gets.load(Ordering::SeqCst);
    assert_eq!(l.get("a").await.unwrap(), b"late");
    assert_eq!(l.store.gets.load(Ordering::SeqCst), gets, "kept again");
    l.settled().await;
    l.stop();
    persisting.await.unwrap();
}

#[tokio::test]
async fn a_read_begun_before_others_wrote_leaves_no_copy() {
    let f = Fixture::new().await;
    f.put("a", b"old").await;
    let f = f.restarted().await;
    let a = nigh_data::ObjectId { namespace: f.who.namespace.clone(), bucket: f.bucket.clone(), key: key("a") };
    let gate = f.store.close(Point::GetSeen);
    let getting = f.getting("a");
    gate.arrival().await;
    f.memory.outside_write_begins(&a, "t", LEASE).await.unwrap();
    f.memory.outside_write_ended(&a, "t", Some(true)).await.unwrap();
    f.store.open(Point::GetSeen);
    gate.let_one_on();
    assert_eq!(getting.await.unwrap().unwrap(), b"old");
    let gets = f.store.gets.load(Ordering::SeqCst);
    f.get("a").await.unwrap();
    assert_eq!(f.store.gets.load(Ordering::SeqCst), gets + 1);
}

#[tokio::test]
async fn a_notice_of_this_node_s_own_write_leaves_its_copy_and_one_of_others_does_not() {
    let f = Fixture::new().await;
    let done = f.put("a", b"ours").await;
    let named = f.memory.bucket_named(None, f.bucket.as_str());
    let [(namespace, bucket)] = &named[..] else { panic!("{named:?}") };
    let a = nigh_data::ObjectId { namespace: namespace.clone(), bucket: bucket.clone(), key: key("a") };
    assert!(!f.memory.changed_outside(&a, Some(&done.etag)));
    f.get("a").await.unwrap();
    assert_eq!(f.store.gets.load(Ordering::SeqCst), 0);
    for etag in [Some(ETag("other".to_owned())), None] {
        let before = f.store.gets.load(Ordering::SeqCst);
        assert!(f.memory.changed_outside(&a, etag.as_ref()));
        f.get("a").await.unwrap();
        assert_eq!(f.store.gets.load(Ordering::SeqCst), before + 1);
    }
}

#[tokio::test]
async fn of_a_write_that_others_are_heard_to_overwrite_no_copy_is_kept() {
    let f = Fixture::new().await;
    let a = nigh_data::ObjectId { namespace: f.who.namespace.clone(), bucket: f.bucket.clone(), key: key("a") };
    let done = f.put("a", b"ours").await;
    for (heard, gets) in [(done.etag.clone(), 0), (ETag("theirs".to_owned()), 1)] {
        let gate = f.store.close(Point::PutDone);
        let putting = f.putting("a", b"ours");
        gate.arrival().await;
        f.memory.changed_outside(&a, Some(&heard));
        f.store.open(Point::PutDone);
        gate.let_one_on();
        putting.await.unwrap().unwrap();
        let before = f.store.gets.load(Ordering::SeqCst);
        f.get("a").await.unwrap();
        assert_eq!(f.store.gets.load(Ordering::SeqCst) - before, gets, "{heard}");
    }
}
