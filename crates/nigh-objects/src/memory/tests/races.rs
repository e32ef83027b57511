//! Reads and writes that race, in an order that the test forces.

use super::*;

#[tokio::test]
async fn concurrent_misses_become_one_fetch() {
    let f = Fixture::new().await;
    f.put("a", b"hello").await;
    let f = f.restarted().await;
    let gate = f.store.close(Point::GetSeen);
    let first = f.getting("a");
    gate.arrival().await;
    let more: Vec<_> = (0..5).map(|_| f.getting("a")).collect();
    first.abort(); // Who asked first hangs up; the others are served all the same.
    tokio::task::yield_now().await;
    gate.let_one_on();
    for get in more {
        assert_eq!(get.await.unwrap().unwrap(), b"hello");
    }
    assert_eq!(f.store.gets.load(Ordering::SeqCst), 1);
    f.store.open(Point::GetSeen);
    assert_eq!(f.get("a").await.unwrap(), b"hello");
    assert_eq!(f.store.gets.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn a_fetch_begun_before_a_write_is_neither_kept_nor_served_after_it() {
    let f = Fixture::new().await;
    f.put("a", b"old").await;
    let f = f.restarted().await;
    let gate = f.store.close(Point::GetSeen);
    let early = f.getting("a");
    gate.arrival().await; // It has seen the old bytes.
    f.store.open(Point::GetSeen);
    f.put("a", b"new").await;
    f.memory.set_cache_budget(ByteSize::ZERO); // So that the new copy does not hide an old one.
    f.memory.set_cache_budget(ByteSize::mib(4));
    assert_eq!(f.get("a").await.unwrap(), b"new");
    f.memory.set_cache_budget(ByteSize::ZERO);
    f.memory.set_cache_budget(ByteSize::mib(4));
    gate.let_one_on();
    assert_eq!(early.await.unwrap().unwrap(), b"new", "it asked again");
    assert_eq!(f.get("a").await.unwrap(), b"new");
    assert_eq!(f.get("a").await.unwrap(), b"new");
}

#[tokio::test]
async fn a_fetch_begun_before_a_delete_does_not_bring_the_object_back() {
    let f = Fixture::new().await;
    f.put("a", b"old").await;
    let f = f.restarted().await;
    let gate = f.store.close(Point::GetSeen);
    let early = f.getting("a");
    gate.arrival().await;
    f.store.open(Point::GetSeen);
    f.delete("a").await;
    gate.let_one_on();
    assert!(matches!(early.await.unwrap(), Err(ObjectError::NoSuchKey(_))));
    assert!(matches!(f.get("a").await, Err(ObjectError::NoSuchKey(_))));
    assert_eq!(f.memory.usage().objects, 0);
}

#[tokio::test]
async fn a_read_while_a_write_lasts_is_not_kept() {
    let f = Fixture::new().await;
    f.put("a", b"old").await;
    let gate = f.store.close(Point::PutAsked);
    let put = f.putting("a", b"new");
    gate.arrival().await;
    assert_eq!(f.get("a").await.unwrap(), b"old", "the write has not happened yet");
    gate.let_one_on();
    put.await.unwrap().unwrap();
    assert_eq!(f.get("a").await.unwrap(), b"new");
    assert_eq!(f.served()[2..], [ServeOutcome::Past, ServeOutcome::Write, ServeOutcome::Hit]);
}

#[tokio::test]
async fn once_a_reader_has_seen_a_write_that_lasts_no_later_one_sees_the_old_bytes() {
    let f = Fixture::new().await;
    f.put("a", b"old").await;
    let f = f.restarted().await;
    let gate = f.store.close(Point::GetSeen);
    let early = f.getting("a");
    gate.arrival().await;
    f.store.open(Point::GetSeen);
    let put_gate = f.store.close(Point::PutDone);
    let put = f.putting("a", b"new");
    put_gate.arrival().await;
    assert_eq!(f.get("a").await.unwrap(), b"new");
    assert_eq!(f.get("a").await.unwrap(), b"new", "it did not join the early fetch");
    gate.let_one_on();
    early.await.unwrap().unwrap();
    assert_eq!(f.get("a").await.unwrap(), b"new");
    put_gate.let_one_on();
    put.await.unwrap().unwrap();
    assert_eq!(f.get("a").await.unwrap(), b"new");
}

#[tokio::test]
async fn after_a_write_without_an_answer_the_store_is_asked() {
    let f = Fixture::new().await;
    f.put("a", b"old").await;
    f.store.lose_puts.store(true, Ordering::SeqCst);
    assert!(matches!(f.put_with("a", body(b"new")).await, Err(ObjectError::Store { .. })));
    f.store.lose_puts.store(false, Ordering::SeqCst);
    assert_eq!(f.get("a").await.unwrap(), b"new");
    assert_eq!(f.store.gets.load(Ordering::SeqCst), 1);
    assert_eq!(f.memory.usage().reserved, ByteSize::ZERO);
}

#[tokio::test]
async fn a_write_without_an_answer_that_lands_late_is_hidden_by_no_copy() {
    let f = Fixture::new().await;
    f.put("a", b"old").await;
    f.store.delay_puts.store(true, Ordering::SeqCst);
    assert!(matches!(f.put_with("a", body(b"late")).await, Err(ObjectError::Store { .. })));
    f.store.delay_puts.store(false, Ordering::SeqCst);
    assert_eq!(f.get("a").await.unwrap(), b"old");
    assert_eq!((f.served().last(), f.memory.usage().objects), (Some(&ServeOutcome::Past), 0), "it is not kept");
    f.store.land();
    assert_eq!(f.get("a").await.unwrap(), b"late");

    // A later write that succeeds makes the state of the store certain again, and so does time.
    f.put("a", b"new").await;
    f.memory.set_cache_budget(ByteSize::ZERO);
    f.memory.set_cache_budget(ByteSize::mib(4));
    assert_eq!(f.get("a").await.unwrap(), b"new");
    assert_eq!(f.served().last(), Some(&ServeOutcome::Miss));
    f.store.lose_puts.store(true, Ordering::SeqCst);
    assert!(f.put_with("a", body(b"newer")).await.is_err());
    f.clock.advance(Duration::from_secs(3600));
    assert_eq!(f.get("a").await.unwrap(), b"newer");
    assert_eq!(f.get("a").await.unwrap(), b"newer");
    assert_eq!(f.served().last(), Some(&ServeOutcome::Hit));
}

#[tokio::test]
async fn a_write_that_the_store_refused_leaves_no_doubt() {
    let f = Fixture::new().await;
    let missing = BucketName::new("missing").unwrap();
    f.memory.create_bucket(&f.who, &missing).await.unwrap();
    f.memory.put(&f.who, &missing, &key("a"), body(b"old")).await.unwrap();
    f.memory.delete(&f.who, &missing, &key("a"), WriteConditions::default(), None).await.unwrap();
    nigh_stores::Store::delete_bucket(&*f.store, &f.who.namespace, &missing).await.unwrap();
    let refused = f.memory.put(&f.who, &missing, &key("a"), body(b"new")).await;
    assert!(matches!(refused, Err(ObjectError::NoSuchBucket(_))));
    f.memory.create_bucket(&f.who, &missing).await.unwrap();
    let got = f.memory.get(&f.who, &missing, &key("a"), GetRequest::default()).await;
    assert!(matches!(got, Err(ObjectError::NoSuchKey(_))));
    assert!(!f.memory.0.doubts.lock().hold(
        &nigh_data::ObjectId { namespace: f.who.namespace.clone(), bucket: missing, key: key("a") },
        nigh_terms::Clock::monotonic(&*f.clock)
    ));
}

#[tokio::test]
async fn a_client_that_hangs_up_during_its_commit_leaves_a_whole_write() {
    let f = Fixture::new().await;
    let gate = f.store.close(Point::PutAsked);
    let put = f.putting("a", b"new");
    gate.arrival().await;
    put.abort();
    assert!(put.await.unwrap_err().is_cancelled());
    assert_eq!(f.served(), [ServeOutcome::Metadata], "its event waits for the end of the write");
    gate.let_one_on();
    until(|| f.served().len() == 2).await;
    assert_eq!(f.served(), [ServeOutcome::Metadata, ServeOutcome::Write]);
    assert_eq!(f.get("a").await.unwrap(), b"new");
}

#[tokio::test]
async fn a_slow_upload_holds_nobody_up_and_one_that_breaks_off_stores_nothing() {
    let f = Fixture::new().await;
    let (send, receive) = futures::channel::mpsc::unbounded();
    let slow = PutRequest { body: receive.boxed(), length: Some(6), ..body(b"") };
    let mut slow = Box::pin(f.put_with("a", slow));
    send.unbounded_send(Ok(Bytes::from_static(b"slow"))).unwrap();
    assert!(slow.as_mut().now_or_never().is_none());
    f.put("a", b"quick").await;
    assert_eq!(f.get("a").await.unwrap(), b"quick");
    send.unbounded_send(Err(ObjectError::Body("reset".to_owned()))).unwrap();
    assert!(matches!(slow.await, Err(ObjectError::Body(_))));
    assert_eq!(f.get("a").await.unwrap(), b"quick");
    assert_eq!(f.memory.usage().reserved, ByteSize::ZERO);
}

#[tokio::test]
async fn a_large_read_that_meets_a_newer_object_begins_anew() {
    let f = Fixture::new().await;
    f.put("a", &vec![1; 200_000]).await;
    let gate = f.store.close(Point::GetAsked);
    let (memory, who, bucket) = (f.memory.clone(), f.who.clone(), f.bucket.clone());
    let read = tokio::spawn(async move {
        let range = Some(RangeSpec::Suffix(250_000));
        let got = memory.get(&who, &bucket, &key("a"), GetRequest { range, ..GetRequest::default() }).await?;
        Ok::<_, ObjectError>((got.version, bytes_of(got).await?))
    });
    gate.arrival().await; // It knows the old object's length, and is about to ask for its bytes.
    f.store.open(Point::GetAsked);
    let done = f.put("a", &vec![2; 300_000]).await;
    gate.let_one_on();
    let (version, bytes) = read.await.unwrap().unwrap();
    assert_eq!(version, done.version);
    assert!(bytes == vec![2; 250_000], "the new object's last bytes, as many as asked for");
}

/// Each write of a key stores a higher number. A reader must see no less than any write that had ended, and any number
/// that another reader had seen, before it began: reads and writes have one order.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn under_load_no_read_goes_back_in_time() {
    const KEYS: usize = 3;
    const ROUNDS: u64 = 150;
    let f = Fixture::new().await;
    let seen: Arc<[AtomicU64; KEYS]> = Arc::default();
    for n in 0..KEYS {
        f.put(&n.to_string(), b"0").await;
    }
    let writers = (0..KEYS).map(|n| {
        let (memory, who, bucket, seen) = (f.memory.clone(), f.who.clone(), f.bucket.clone(), Arc::clone(&seen));
        tokio::spawn(async move {
            for round in 1..=ROUNDS {
                let text = round.to_string();
                // Sometimes in memory, sometimes in the spool, sometimes too large to be cached.
                let padded = " ".repeat(if round % 7 == 0 { CACHED } else { 20 }) + &text;
                let length = (round % 3 > 0).then_some(padded.len() as u64);
                let request = PutRequest { length, ..body(padded.as_bytes()) };
                memory.put(&who, &bucket, &key(&n.to_string()), request).await.unwrap();
                seen[n].fetch_max(round, Ordering::SeqCst);
            }
        })
    });
    let readers = (0..4).map(|reader| {
        let (memory, who, bucket, seen) = (f.memory.clone(), f.who.clone(), f.bucket.clone(), Arc::clone(&seen));
        tokio::spawn(async move {
            for round in 0.. {
                let n = (round + reader) % KEYS;
                let floor = seen[n].load(Ordering::SeqCst);
                if round % 5 == 0 {
                    memory.set_cache_budget(ByteSize::ZERO);
                    memory.set_cache_budget(ByteSize::mib(4));
                }
                let range = (round % 2 == 0).then_some(RangeSpec::Suffix(20));
                let request = GetRequest { range, ..GetRequest::default() };
                let got = match memory.get(&who, &bucket, &key(&n.to_string()), request).await {
                    Err(ObjectError::SlowDown(_)) => continue,
                    got => got.unwrap(),
                };
                let bytes = bytes_of(got).await.unwrap();
                let value: u64 = std::str::from_utf8(&bytes).unwrap().trim().parse().unwrap();
                assert!(value >= floor, "key {n}: {value} after {floor}");
                seen[n].fetch_max(value, Ordering::SeqCst);
                if seen.iter().all(|seen| seen.load(Ordering::SeqCst) == ROUNDS) {
                    return;
                }
            }
        })
    });
    let all: Vec<_> = writers.chain(readers).collect();
    for task in all {
        task.await.unwrap();
    }
    let usage = f.memory.usage();
    assert!(usage.hits > 0 && usage.misses > 0 && usage.past > 0, "{usage:?}");
    assert_eq!(usage.reserved, ByteSize::ZERO);
}

#[tokio::test]
async fn of_concurrent_conditional_writes_one_succeeds() {
    let f = Fixture::new().await;
    let conditions = WriteConditions { if_absent: true, if_match: None };
    let puts = (0..8u8).map(|n| f.put_with("a", PutRequest { conditions: conditions.clone(), ..body(&[n]) }));
    let done = futures::future::join_all(puts).await;
    assert_eq!(done.iter().filter(|done| done.is_ok()).count(), 1);
    assert!(done.iter().flat_map(|done| done.as_ref().err()).all(|e| matches!(e, ObjectError::PreconditionFailed(_))));
    let etag = done.into_iter().flatten().next().unwrap().etag;

    let conditions = WriteConditions { if_absent: false, if_match: Some(etag.clone()) };
    let puts = (10..18u8).map(|n| f.put_with("a", PutRequest { conditions: conditions.clone(), ..body(&[n]) }));
    let done = futures::future::join_all(puts).await;
    assert_eq!(done.iter().filter(|done| done.is_ok()).count(), 1);
    let deleted = f.memory.delete(&f.who, &f.bucket, &key("a"), conditions, None).await;
    assert!(matches!(deleted, Err(ObjectError::PreconditionFailed(_))));
}

#[tokio::test]
async fn a_delete_that_lasts_leaves_no_copy_to_read() {
    let f = Fixture::new().await;
    f.put("a", b"old").await;
    let gate = f.store.close(Point::DeleteDone);
    let delete = f.in_background(async |memory: ObjectMemory, who: Principal, bucket: BucketName| {
        memory.delete(&who, &bucket, &key("a"), WriteConditions::default(), None).await
    });
    let (deleted, ()) = futures::join!(delete, async {
        gate.arrival().await;
        assert!(matches!(f.get("a").await, Err(ObjectError::NoSuchKey(_))));
        gate.let_one_on();
    });
    deleted.unwrap();
    assert!(matches!(f.get("a").await, Err(ObjectError::NoSuchKey(_))));
}
