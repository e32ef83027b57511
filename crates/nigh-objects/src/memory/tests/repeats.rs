//! Repeated requests.

use nigh_engine::{LocalRegistry, Registry, RequestId, StateFile};

use super::notices::{names, notified, rule};
use super::write_back::LazyBench;
use super::writes::copy_of;
use super::*;
use crate::{BucketPolicy, NotificationConfig, WriteMode};

fn create_only(request: u128, bytes: &[u8]) -> PutRequest {
    let conditions = WriteConditions { if_absent: true, ..WriteConditions::default() };
    PutRequest { conditions, request: Some(RequestId(request)), ..body(bytes) }
}

#[tokio::test]
async fn a_retried_write_gets_its_first_answer_by_every_mode_whatever_its_conditions_say_now() {
    let l = LazyBench::new().await;
    for (n, mode) in WriteMode::ALL.into_iter().filter(|mode| *mode != WriteMode::Shadow).enumerate() {
        l.policy(BucketPolicy { mode: Some(mode), ..BucketPolicy::default() }).await.unwrap();
        let name = mode.as_str();
        let first = l.put_with(name, create_only(n as u128, b"x")).await.unwrap();
        let again = l.put_with(name, create_only(n as u128, b"x")).await.unwrap();
        assert_eq!(again, first, "{mode}");
        let other = l.put_with(name, create_only(100, b"x")).await;
        assert!(matches!(other, Err(ObjectError::PreconditionFailed(_))), "{mode}: {other:?}");
    }
}

#[tokio::test]
async fn a_write_through_whose_answer_was_lost_is_found_in_the_store_when_it_is_retried() {
    let f = Fixture::new().await;
    f.store.lose_puts.store(true, Ordering::SeqCst);
    assert!(matches!(f.put_with("a", create_only(1, b"x")).await, Err(ObjectError::Store { .. })));
    f.store.lose_puts.store(false, Ordering::SeqCst);
    f.put_with("a", create_only(1, b"x")).await.unwrap();
    assert_eq!(f.store.puts.load(Ordering::SeqCst), 1);
    f.store.delay_puts.store(true, Ordering::SeqCst);
    assert!(matches!(f.put_with("b", create_only(2, b"x")).await, Err(ObjectError::Store { .. })));
    f.store.delay_puts.store(false, Ordering::SeqCst);
    f.put_with("b", create_only(2, b"x")).await.unwrap();
    assert_eq!((f.store.puts.load(Ordering::SeqCst), f.get("b").await.unwrap()), (3, b"x".to_vec()));
}

#[tokio::test]
async fn a_retried_copy_and_a_retried_deletion_leave_a_newer_write_alone() {
    for mode in [WriteMode::Lazy, WriteMode::Through] {
        let l = LazyBench::new().await;
        l.policy(BucketPolicy { mode: Some(mode), ..BucketPolicy::default() }).await.unwrap();
        l.put("source", b"copied").await;
        let request = || CopyRequest { request: Some(RequestId(1)), ..copy_of("source") };
        let first = l.memory.copy(&l.who, &l.bucket, &key("a"), request()).await.unwrap();
        l.put("a", b"newer").await;
        let again = l.memory.copy(&l.who, &l.bucket, &key("a"), request()).await.unwrap();
        assert_eq!((again.done, l.get("a").await.unwrap()), (first.done, b"newer".to_vec()));
        let name = key("a");
        let delete = || l.memory.delete(&l.who, &l.bucket, &name, WriteConditions::default(), Some(RequestId(2)));
        delete().await.unwrap();
        l.put("a", b"newest").await;
        delete().await.unwrap();
        assert_eq!(l.get("a").await.unwrap(), b"newest");
    }
}

#[tokio::test]
async fn functions_are_told_once_of_a_write_that_is_acknowledged_when_it_is_repeated() {
    let (l, folder) = (LazyBench::new().await, tempfile::tempdir().unwrap());
    let state = StateFile::open(&folder.path().join("state.redb")).unwrap();
    let registry: Arc<dyn Registry> = Arc::new(LocalRegistry::new(state));
    let told = notified(&l.memory, &registry).await;
    l.put("a", b"lazy").await;
    let config = NotificationConfig { rules: vec![rule("s3:ObjectCreated:*", "")] };
    l.memory.set_notification_config(&l.who, &l.bucket, config).await.unwrap();
    l.policy(BucketPolicy { mode: Some(WriteMode::Through), ..BucketPolicy::default() }).await.unwrap();
    let named = || PutRequest { request: Some(RequestId(3)), ..body(b"through") };
    assert!(matches!(l.put_with("a", named()).await, Err(ObjectError::SlowDown(_))), "nobody pushes");
    assert_eq!(names(&told), [""; 0]);
    let persisting = l.persist();
    for _ in 0..3 {
        l.put_with("a", named()).await.unwrap();
    }
    assert_eq!(names(&told), ["ObjectCreated:Put a"]);
    l.stop.cancel();
    persisting.await.unwrap();
}
