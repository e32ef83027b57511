//! The results of reads, and what stays in memory.

use super::*;

#[tokio::test]
async fn what_a_reader_without_gain_reads_is_not_kept_and_what_is_kept_serves_it() {
    let fixture = Fixture::new().await;
    fixture.put("a", b"text").await;
    let fixture = fixture.restarted().await;
    let gainless = Principal { admission: Admission::Never, ..fixture.who.clone() };
    let read = async || {
        let got = fixture.memory.get(&gainless, &fixture.bucket, &key("a"), GetRequest::default()).await;
        bytes_of(got.unwrap()).await.unwrap()
    };
    assert_eq!((read().await, read().await), (b"text".to_vec(), b"text".to_vec()));
    assert_eq!(fixture.memory.usage().objects, 0);
    assert_eq!(fixture.get("a").await.unwrap(), b"text");
    assert_eq!((read().await, fixture.memory.usage().objects), (b"text".to_vec(), 1));
    assert_eq!(fixture.served()[2..], [ServeOutcome::Past, ServeOutcome::Past, ServeOutcome::Miss, ServeOutcome::Hit]);
    fixture.put("a", b"newer").await;
    assert_eq!(read().await, b"newer");
}

#[tokio::test]
async fn what_gains_its_reader_little_is_kept_while_half_of_the_memory_is_free() {
    let fixture = Fixture::new().await;
    let large = vec![7; CACHED];
    let names: Vec<String> = (0..30).map(|at| at.to_string()).collect();
    for name in &names {
        fixture.put(name, &large).await;
    }
    let fixture = fixture.restarted().await;
    let before = fixture.served().len();
    let who = Principal { admission: Admission::Spare, ..fixture.who.clone() };
    for name in names.iter().chain(&names[..1]) {
        let got = fixture.memory.get(&who, &fixture.bucket, &key(name), GetRequest::default()).await;
        assert_eq!(bytes_of(got.unwrap()).await.unwrap(), large);
    }
    let served = fixture.served().split_off(before);
    let brought = served.iter().take_while(|served| **served == ServeOutcome::Miss).count();
    assert_eq!(brought, ByteSize::mib(2).bytes() as usize / CACHED + 1);
    assert!(served[brought..30].iter().all(|served| *served == ServeOutcome::Past), "{served:?}");
    assert_eq!(served[30], ServeOutcome::Hit);
}

#[tokio::test]
async fn what_was_written_is_read_from_memory_without_a_copy() {
    let f = Fixture::new().await;
    let done = f.put("a", b"hello").await;
    let one = f.get_with("a", GetRequest::default()).await.unwrap();
    let two = f.get_with("a", GetRequest::default()).await.unwrap();
    let address = |got: &GetReply| got.body.as_segment().unwrap().as_ref().as_ptr();
    assert_eq!(address(&one), address(&two));
    assert_eq!((one.version, &one.meta.etag), (done.version, &done.etag));
    assert_eq!(done.etag.0, "5d41402abc4b2a76b9719d911017c592");
    assert_eq!(bytes_of(one).await.unwrap(), b"hello");
    drop(two);
    assert_eq!(f.store.gets.load(Ordering::SeqCst), 0);
    assert_eq!(f.served(), [ServeOutcome::Metadata, ServeOutcome::Write, ServeOutcome::Hit, ServeOutcome::Hit]);
    let events = f.events.0.lock();
    assert_eq!(events.iter().map(|event| event.bytes).collect::<Vec<_>>(), [0, 5, 5, 0]);
    assert!(events[1..].iter().all(|event| event.version == Some(done.version)));
    let usage = f.memory.usage();
    assert_eq!(
        (usage.hits, usage.hit_bytes, usage.writes, usage.objects, usage.kept),
        (2, 5, 1, 1, ByteSize(64 + 256))
    );
}

#[tokio::test]
async fn a_range_of_an_object_that_fits_brings_all_of_it_to_memory() {
    let f = Fixture::new().await;
    f.put("a", b"0123456789").await;
    f.put("empty", b"").await;
    let f = f.restarted().await;
    assert_eq!(f.range("a", RangeSpec::From { first: 2, last: Some(4) }).await.unwrap(), b"234");
    assert_eq!(f.range("a", RangeSpec::Suffix(3)).await.unwrap(), b"789");
    assert_eq!(f.range("a", RangeSpec::Part(1)).await.unwrap(), b"0123456789");
    assert_eq!(f.store.gets.load(Ordering::SeqCst), 1);
    let beyond = f.range("a", RangeSpec::From { first: 10, last: None }).await;
    assert!(matches!(beyond, Err(ObjectError::InvalidRange { size: 10 })));
    assert_eq!(f.get("empty").await.unwrap(), b"");
    assert_eq!(f.get("empty").await.unwrap(), b"");
    assert!(f.range("empty", RangeSpec::Suffix(1)).await.is_err());
}

#[tokio::test]
async fn an_object_too_large_to_keep_is_streamed_by_ranges_of_one_version() {
    let f = Fixture::new().await;
    let old: Vec<u8> = (0..200_000u32).map(|n| n as u8).collect();
    f.put("a", &old).await;
    let f = f.restarted().await;
    let range = RangeSpec::From { first: 100, last: Some(150_000) };
    assert_eq!(f.range("a", range).await.unwrap(), old[100..=150_000]);
    let asked = f.store.gets.load(Ordering::SeqCst);
    assert_eq!(f.range("a", range).await.unwrap(), old[100..=150_000]);
    assert_eq!(f.store.gets.load(Ordering::SeqCst), asked + 1, "its size is known now");
    assert_eq!(f.memory.usage().past, 2);
}

#[tokio::test]
async fn a_store_that_gives_too_few_bytes_is_found_out() {
    let f = Fixture::new().await;
    f.put("small", b"12345").await;
    f.put("large", &vec![1; 200_000]).await;
    let f = f.restarted().await;
    f.store.cut_gets.store(true, Ordering::SeqCst);
    for name in ["small", "large"] {
        assert!(matches!(f.get(name).await, Err(ObjectError::Store { .. })), "{name}");
    }
    assert_eq!(f.served()[3..], [ServeOutcome::Failed, ServeOutcome::Failed]);
    f.store.cut_gets.store(false, Ordering::SeqCst);
    assert_eq!(f.get("small").await.unwrap(), b"12345");
}

#[tokio::test]
async fn namespaces_do_not_meet() {
    let f = Fixture::new().await;
    f.put("a", b"mine").await;
    let other = Principal::outside(Namespace::new("other").unwrap());
    let get = f.memory.get(&other, &f.bucket, &key("a"), GetRequest::default()).await;
    assert!(matches!(get.map(drop), Err(ObjectError::NoSuchBucket(_))));
    f.memory.create_bucket(&other, &f.bucket).await.unwrap();
    let get = f.memory.get(&other, &f.bucket, &key("a"), GetRequest::default()).await;
    assert!(matches!(get.map(drop), Err(ObjectError::NoSuchKey(_))));
    f.memory.delete(&other, &f.bucket, &key("a"), WriteConditions::default(), None).await.unwrap();
    assert_eq!(f.get("a").await.unwrap(), b"mine");
    assert_eq!(
        f.memory.list(&other, &f.bucket, ListRequest { limit: 9, ..ListRequest::default() }).await.unwrap().objects,
        []
    );
}

#[tokio::test]
async fn conditions_of_reads_answer_as_http_does() {
    let f = Fixture::new().await;
    f.clock.advance(Duration::from_secs(100));
    let done = f.put("a", b"bytes").await;
    let none_match = || ReadConditions { if_none_match: Some(vec![done.etag.clone()]), ..ReadConditions::default() };
    let request = || GetRequest { conditions: none_match(), range: None };
    for _ in ["kept", "fetched"] {
        match f.get_with("a", request()).await.map(drop) {
            Err(ObjectError::NotModified { etag, modified }) => {
                assert_eq!((etag, modified), (done.etag.clone(), done.modified))
            }
            other => panic!("{other:?}"),
        }
        assert!(matches!(
            f.memory.head(&f.who, &f.bucket, &key("a"), request()).await,
            Err(ObjectError::NotModified { .. })
        ));
        let other = ReadConditions { if_match: Some(vec![ETag("x".to_owned())]), ..ReadConditions::default() };
        let refused = f.get_with("a", GetRequest { conditions: other, range: None }).await.map(drop);
        assert!(matches!(refused, Err(ObjectError::PreconditionFailed(_))));
        f.memory.set_cache_budget(ByteSize::ZERO);
        f.memory.set_cache_budget(ByteSize::mib(4));
    }
    assert_eq!(f.served()[2..5], [ServeOutcome::Metadata, ServeOutcome::Metadata, ServeOutcome::Failed]);
}

#[tokio::test]
async fn the_cache_stays_within_its_budget_and_gives_way_at_once() {
    let f = Fixture::new().await;
    for n in 0..200 {
        f.put(&n.to_string(), &vec![n as u8; 50_000]).await;
        let usage = f.memory.usage();
        assert!(usage.kept.bytes() + usage.reserved.bytes() <= usage.budget.bytes());
    }
    assert!(f.memory.usage().evictions > 0 && f.memory.usage().objects > 10);
    let held = f.get_with("199", GetRequest::default()).await.unwrap();
    f.memory.set_cache_budget(ByteSize::kib(64));
    let usage = f.memory.usage();
    assert!(usage.kept <= usage.budget);
    f.memory.set_cache_budget(ByteSize::ZERO);
    let usage = f.memory.usage();
    assert_eq!((usage.kept, usage.objects), (ByteSize::ZERO, 0));
    assert_eq!(usage.living, ByteSize(57_344 + 256), "what a reader holds");
    assert_eq!(bytes_of(held).await.unwrap(), vec![199; 50_000]);
    assert_eq!(f.memory.usage().living, ByteSize::ZERO);
    assert_eq!(f.get("7").await.unwrap(), vec![7; 50_000], "without a cache it is read past it");
    f.put("b", b"written without a cache").await;
    assert_eq!(f.get("b").await.unwrap(), b"written without a cache");
}

#[tokio::test]
async fn a_listing_rolls_up_prefixes_page_by_page() {
    let f = Fixture::new().await;
    for name in ["a/1", "a/2", "b", "c/1", "d"] {
        f.put(name, b"").await;
    }
    let mut request = ListRequest { delimiter: Some("/".to_owned()), limit: 2, ..ListRequest::default() };
    let mut entries = Vec::new();
    loop {
        let page = f.memory.list(&f.who, &f.bucket, request.clone()).await.unwrap();
        entries.extend(page.objects.iter().map(|listed| listed.key.to_string()));
        entries.extend(page.common_prefixes.iter().cloned());
        request.start_after = page.next;
        if request.start_after.is_none() {
            break;
        }
    }
    entries.sort();
    assert_eq!(entries, ["a/", "b", "c/", "d"]);
    let missing = BucketName::new("missing").unwrap();
    for limit in [0, 1] {
        let listed = f.memory.list(&f.who, &missing, ListRequest { limit, ..ListRequest::default() }).await;
        assert!(matches!(listed, Err(ObjectError::NoSuchBucket(_))));
    }
}
