//! Buckets that are written from outside too.

use nigh_data::ObjectMeta;
use nigh_engine::RequestId;
use nigh_terms::{Timestamp, Token};

use super::write_back::LazyBench;
use super::*;
use crate::{Access, BucketPolicy, WriteMode};

pub(super) fn shared() -> BucketPolicy {
    BucketPolicy { access: Access::Shared, ..BucketPolicy::default() }
}

pub(super) async fn in_a_shared_bucket() -> LazyBench {
    let l = LazyBench::new().await;
    l.store.has_conditions.store(true, Ordering::SeqCst);
    l.policy(shared()).await.unwrap();
    l
}

pub(super) fn others_write(l: &LazyBench, name: &str, bytes: &'static [u8]) {
    let meta = ObjectMeta {
        size: bytes.len() as u64,
        etag: ETag(String::from_utf8_lossy(bytes).into_owned()),
        modified: Timestamp(0),
        attributes: Attributes::default(),
        tags: Tags::new(),
        checksums: Vec::new(),
        parts: Vec::new(),
        version: Version::OUTSIDE,
        token: Token::empty(),
    };
    l.store.put_by_others(&l.id(name), meta, Bytes::from_static(bytes));
}

pub(super) fn apart(name: &str, done: &PutDone) -> String {
    format!("{name}.nigh-conflict-{}-{}", done.version.epoch.0, done.version.sequence.0)
}

fn matching(etag: &ETag, bytes: &[u8]) -> PutRequest {
    let conditions = WriteConditions { if_match: Some(etag.clone()), ..WriteConditions::default() };
    PutRequest { conditions, ..body(bytes) }
}

#[tokio::test]
async fn what_others_wrote_is_not_overwritten_and_the_acknowledged_write_is_kept_apart() {
    let l = LazyBench::new().await;
    let shared = BucketPolicy { access: Access::Shared, ..BucketPolicy::default() };
    assert!(matches!(l.policy(shared.clone()).await, Err(ObjectError::InvalidArgument(_))), "the store cannot refuse");
    l.store.has_conditions.store(true, Ordering::SeqCst);
    l.policy(shared).await.unwrap();
    let done = l.put("a", b"ours").await;
    others_write(&l, "a", b"theirs");
    let persisting = l.persist();
    l.settled().await;
    assert_eq!((l.memory.dirty().conflicts, l.get("a").await.unwrap()), (1, b"theirs".to_vec()));
    assert_eq!(l.get(&apart("a", &done)).await.unwrap(), b"ours");
    // There is no outside write in between: the next write replaces the last outside one.
    l.put("a", b"next").await;
    l.settled().await;
    assert_eq!((l.stored("a"), l.memory.dirty().conflicts), (Some(b"next".to_vec()), 1));
    l.stop.cancel();
    persisting.await.unwrap();
}

#[tokio::test]
async fn a_write_acknowledged_while_the_one_before_is_kept_apart_is_not_lost() {
    let l = in_a_shared_bucket().await;
    let first = l.put("a", b"first").await;
    others_write(&l, "a", b"theirs");
    let gate = l.store.close(Point::PutAsked);
    let persisting = l.persist();
    gate.arrival().await;
    let second = l.put("a", b"second").await;
    l.store.open(Point::PutAsked);
    gate.let_one_on();
    l.settled().await;
    assert_eq!((l.stored("a"), l.stored(&apart("a", &first))), (Some(b"theirs".to_vec()), Some(b"first".to_vec())));
    assert_eq!(l.stored(&apart("a", &second)), Some(b"second".to_vec()), "it met the same, and is kept too");
    assert_eq!((l.memory.dirty().conflicts, l.get("a").await.unwrap()), (2, b"theirs".to_vec()));
    l.stop.cancel();
    persisting.await.unwrap();
}

#[tokio::test]
async fn a_deletion_that_comes_late_does_not_delete_what_others_wrote() {
    let l = in_a_shared_bucket().await;
    l.put("a", b"ours").await;
    let name = key("a");
    let delete = || l.memory.delete(&l.who, &l.bucket, &name, WriteConditions::default(), None);
    assert!(matches!(delete().await, Err(ObjectError::SlowDown(_))), "nobody pushes");
    others_write(&l, "a", b"theirs");
    let persisting = l.persist();
    l.settled().await;
    assert_eq!((l.stored("a"), l.memory.dirty().conflicts), (Some(b"theirs".to_vec()), 1));
    assert_eq!(l.get("a").await.unwrap(), b"theirs");
    // Without an outside write in between, the object is deleted.
    delete().await.unwrap();
    assert_eq!(l.stored("a"), None);
    l.put("a", b"again").await;
    delete().await.unwrap();
    l.settled().await;
    assert_eq!((l.stored("a"), l.memory.dirty().conflicts), (None, 1));
    l.stop.cancel();
    persisting.await.unwrap();
}

#[tokio::test]
async fn a_crash_after_a_write_was_kept_apart_keeps_it_there_once() {
    let l = in_a_shared_bucket().await;
    let done = l.put("a", b"ours").await;
    others_write(&l, "a", b"theirs");
    let gate = l.store.close(Point::PutDone);
    let persisting = l.persist();
    gate.arrival().await;
    persisting.abort();
    assert!(persisting.await.unwrap_err().is_cancelled());
    l.store.open(Point::PutDone);
    let l = l.restarted().await;
    let persisting = l.persist();
    l.settled().await;
    assert_eq!(l.names().await, ["a".to_owned(), apart("a", &done)]);
    assert_eq!((l.get("a").await.unwrap(), l.stored(&apart("a", &done))), (b"theirs".to_vec(), Some(b"ours".to_vec())));
    l.stop.cancel();
    persisting.await.unwrap();
}

#[tokio::test]
async fn what_an_earlier_life_has_pushed_is_not_taken_for_what_others_wrote() {
    let l = in_a_shared_bucket().await;
    others_write(&l, "a", b"before");
    l.put("a", b"first").await;
    let gate = l.store.close(Point::PutDone);
    let persisting = l.persist();
    gate.arrival().await;
    l.put("a", b"second").await;
    persisting.abort();
    assert!(persisting.await.unwrap_err().is_cancelled());
    l.store.open(Point::PutDone);
    assert_eq!(l.stored("a"), Some(b"first".to_vec()));
    let l = l.restarted().await;
    let persisting = l.persist();
    l.memory.flush(&l.who, &l.bucket, &key("a")).await.unwrap();
    assert_eq!((l.stored("a"), l.memory.dirty().conflicts), (Some(b"second".to_vec()), 0));
    l.stop.cancel();
    persisting.await.unwrap();
}

#[tokio::test]
async fn a_condition_is_checked_on_what_the_write_replaces_and_not_on_an_old_copy() {
    let l = in_a_shared_bucket().await;
    let persisting = l.persist();
    let ours = l.put("a", b"ours").await;
    l.settled().await;
    others_write(&l, "a", b"theirs");
    let refused = l.put_with("a", matching(&ours.etag, b"lost update")).await;
    assert!(matches!(refused, Err(ObjectError::PreconditionFailed(_))), "{refused:?}");
    let conditions = WriteConditions { if_match: Some(ours.etag), ..WriteConditions::default() };
    let refused = l.memory.delete(&l.who, &l.bucket, &key("a"), conditions, None).await;
    assert!(matches!(refused, Err(ObjectError::PreconditionFailed(_))), "{refused:?}");
    assert_eq!(l.stored("a"), Some(b"theirs".to_vec()));
    l.policy(BucketPolicy { mode: Some(WriteMode::Through), ..shared() }).await.unwrap();
    l.put_with("a", matching(&ETag("theirs".to_owned()), b"next")).await.unwrap();
    assert_eq!((l.stored("a"), l.memory.dirty().conflicts), (Some(b"next".to_vec()), 0));
    l.stop.cancel();
    persisting.await.unwrap();
}

#[tokio::test]
async fn a_write_through_that_was_refused_is_refused_when_it_is_repeated_until_the_store_has_it() {
    let l = LazyBench::new().await;
    l.put("a", b"lazy").await;
    l.policy(BucketPolicy { mode: Some(WriteMode::Through), ..BucketPolicy::default() }).await.unwrap();
    let named = || PutRequest { request: Some(RequestId(9)), ..body(b"through") };
    for _ in 0..2 {
        let refused = l.put_with("a", named()).await;
        assert!(matches!(refused, Err(ObjectError::SlowDown(_))), "{refused:?}");
    }
    let persisting = l.persist();
    l.put_with("a", named()).await.unwrap();
    assert_eq!(l.stored("a"), Some(b"through".to_vec()));
    l.stop.cancel();
    persisting.await.unwrap();
}

#[tokio::test]
async fn what_is_acknowledged_while_an_older_one_is_kept_apart_is_kept_apart_too() {
    let l = in_a_shared_bucket().await;
    let older = l.put("a", b"older").await;
    others_write(&l, "a", b"theirs");
    let gate = l.store.close(Point::PutAsked);
    let persisting = l.persist();
    gate.arrival().await;
    let newer = l.put("a", b"newer").await;
    l.store.open(Point::PutAsked);
    gate.let_one_on();
    l.settled().await;
    for (done, bytes) in [(older, b"older"), (newer, b"newer")] {
        let name = apart("a", &done);
        assert_eq!(l.stored(&name).unwrap(), bytes, "{name}");
    }
    assert_eq!(l.stored("a").unwrap(), b"theirs");
    l.stop.cancel();
    persisting.await.unwrap();
}

#[tokio::test]
async fn a_write_that_was_on_its_way_when_the_one_before_was_pushed_overwrites_nothing_of_others_either() {
    let l = in_a_shared_bucket().await;
    let gate = l.store.close(Point::PutDone);
    let persisting = l.persist();
    l.put("a", b"first").await;
    gate.arrival().await;
    let push_ends_meanwhile = async {
        // The write has looked at the store, and is on its way to the journal's disk.
        for _ in 0..20 {
            tokio::task::yield_now().await;
        }
        l.store.open(Point::PutDone);
        gate.let_one_on();
    };
    let (done, ()) = tokio::join!(l.put("a", b"second"), push_ends_meanwhile);
    others_write(&l, "a", b"theirs");
    l.settled().await;
    let apart = apart("a", &done);
    assert_eq!((l.stored("a").unwrap(), l.stored(&apart).unwrap()), (b"theirs".to_vec(), b"second".to_vec()));
    l.stop.cancel();
    persisting.await.unwrap();
}
