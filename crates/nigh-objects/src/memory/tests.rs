//! The promises of reads and writes, with races on purpose.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures::{FutureExt, StreamExt, TryStreamExt};
use nigh_engine::WriteThrough;
use nigh_terms::{BucketName, ByteSize, Epoch, ManualClock, Namespace, ObjectKey, Principal, Version};
use parking_lot::Mutex;

use super::{MemoryLimits, ObjectMemory};
use crate::gated_store::{GatedStore, Point};
use crate::{
    Attributes, ByteStream, Checksum, ChecksumAlgorithm, ChecksumClaim, ClaimedValue, CompleteRequest, CompletedPart,
    CopyRequest, Direction, ETag, GetRequest, Got, ListRequest, MultipartRequest, ObjectError, ObjectEvent,
    ObjectObserver, PutDone, PutRequest, RangeSpec, ReadConditions, Served, Tags, UploadId, WriteConditions,
};

const CACHED: usize = 100_000;

#[derive(Default)]
struct Events(Mutex<Vec<ObjectEvent>>);

impl ObjectObserver for Events {
    fn observe(&self, event: &ObjectEvent) {
        self.0.lock().push(event.clone());
    }
}

struct Fixture {
    store: Arc<GatedStore>,
    memory: ObjectMemory,
    events: Arc<Events>,
    clock: Arc<ManualClock>,
    who: Principal,
    bucket: BucketName,
    folder: tempfile::TempDir,
}

async fn open(
    store: &Arc<GatedStore>,
    events: &Arc<Events>,
    clock: &Arc<ManualClock>,
    folder: &std::path::Path,
) -> ObjectMemory {
    let limits =
        MemoryLimits { cache: ByteSize::mib(4), cached_object: ByteSize(CACHED as u64), object: ByteSize::mib(32) };
    ObjectMemory::open(
        Arc::clone(store) as Arc<dyn crate::store::Store>,
        Arc::new(WriteThrough::new(Epoch(1))),
        Arc::clone(clock) as Arc<dyn nigh_terms::Clock>,
        vec![Arc::clone(events) as Arc<dyn ObjectObserver>],
        folder.to_owned(),
        limits,
    )
    .await
    .unwrap()
}

impl Fixture {
    async fn new() -> Self {
        let (store, events, clock) = (Arc::new(GatedStore::default()), Arc::default(), Arc::default());
        let folder = tempfile::tempdir().unwrap();
        let memory = open(&store, &events, &clock, folder.path()).await;
        let who = Principal::outside(Namespace::new("tenant").unwrap());
        let bucket = BucketName::new("bucket").unwrap();
        memory.create_bucket(&who, &bucket).await.unwrap();
        Self { store, memory, events, clock, who, bucket, folder }
    }

    /// The same memory after a restart: nothing is kept.
    async fn restarted(self) -> Self {
        let memory = open(&self.store, &self.events, &self.clock, self.folder.path()).await;
        Self { memory, ..self }
    }

    async fn put_with(&self, name: &str, request: PutRequest) -> Result<PutDone, ObjectError> {
        self.memory.put(&self.who, &self.bucket, &key(name), request).await
    }

    async fn put(&self, name: &str, bytes: &[u8]) -> PutDone {
        self.put_with(name, body(bytes)).await.unwrap()
    }

    async fn get_with(&self, name: &str, request: GetRequest) -> Result<Got, ObjectError> {
        self.memory.get(&self.who, &self.bucket, &key(name), request).await
    }

    async fn get(&self, name: &str) -> Result<Vec<u8>, ObjectError> {
        bytes_of(self.get_with(name, GetRequest::default()).await?).await
    }

    async fn range(&self, name: &str, range: RangeSpec) -> Result<Vec<u8>, ObjectError> {
        bytes_of(self.get_with(name, GetRequest { range: Some(range), ..GetRequest::default() }).await?).await
    }

    async fn delete(&self, name: &str) {
        self.memory.delete(&self.who, &self.bucket, &key(name), WriteConditions::default()).await.unwrap();
    }

    fn in_background<T: Send + 'static>(
        &self,
        work: impl AsyncFnOnce(ObjectMemory, Principal, BucketName) -> T,
    ) -> impl Future<Output = T> {
        work(self.memory.clone(), self.who.clone(), self.bucket.clone())
    }

    /// A get that runs by itself.
    fn getting(&self, name: &str) -> tokio::task::JoinHandle<Result<Vec<u8>, ObjectError>> {
        let (memory, who, bucket, key) = (self.memory.clone(), self.who.clone(), self.bucket.clone(), key(name));
        tokio::spawn(async move { bytes_of(memory.get(&who, &bucket, &key, GetRequest::default()).await?).await })
    }

    /// A put that runs by itself.
    fn putting(&self, name: &str, bytes: &[u8]) -> tokio::task::JoinHandle<Result<PutDone, ObjectError>> {
        let (memory, who, bucket, key) = (self.memory.clone(), self.who.clone(), self.bucket.clone(), key(name));
        let request = body(bytes);
        tokio::spawn(async move { memory.put(&who, &bucket, &key, request).await })
    }

    fn served(&self) -> Vec<Served> {
        self.events.0.lock().iter().map(|event| event.served).collect()
    }
}

fn key(name: &str) -> ObjectKey {
    ObjectKey::new(name).unwrap()
}

fn stream(bytes: &[u8]) -> ByteStream {
    let pieces: Vec<_> = bytes.chunks(70_000).map(|piece| Ok(Bytes::copy_from_slice(piece))).collect();
    futures::stream::iter(pieces).boxed()
}

fn body(bytes: &[u8]) -> PutRequest {
    PutRequest {
        attributes: Attributes::default(),
        tags: Tags::new(),
        conditions: WriteConditions::default(),
        body: stream(bytes),
        length: Some(bytes.len() as u64),
        md5: None,
        checksum: None,
    }
}

async fn bytes_of(got: Got) -> Result<Vec<u8>, ObjectError> {
    let range = got.range.clone();
    let bytes = got.body.try_fold(Vec::new(), |mut all, piece| async move {
        all.extend_from_slice(&piece);
        Ok(all)
    });
    let bytes = bytes.await?;
    assert_eq!(bytes.len() as u64, range.end - range.start);
    Ok(bytes)
}

/// Waits for what another task will make true.
async fn until(what: impl Fn() -> bool) {
    for _ in 0..2000 {
        if what() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("it did not come true");
}

#[tokio::test]
async fn what_was_written_is_read_from_memory_without_a_copy() {
    let f = Fixture::new().await;
    let done = f.put("a", b"hello").await;
    let one = f.get_with("a", GetRequest::default()).await.unwrap();
    let two = f.get_with("a", GetRequest::default()).await.unwrap();
    let address = |got: &Got| got.body.as_segment().unwrap().as_ref().as_ptr();
    assert_eq!(address(&one), address(&two));
    assert_eq!((one.version, &one.meta.etag), (done.version, &done.etag));
    assert_eq!(done.etag.0, "5d41402abc4b2a76b9719d911017c592");
    assert_eq!(bytes_of(one).await.unwrap(), b"hello");
    drop(two);
    assert_eq!(f.store.gets.load(Ordering::SeqCst), 0);
    assert_eq!(f.served(), [Served::Metadata, Served::Write, Served::Hit, Served::Hit]);
    let events = f.events.0.lock();
    assert_eq!(events.iter().map(|event| event.bytes).collect::<Vec<_>>(), [0, 5, 5, 0]);
    assert!(events[1..].iter().all(|event| event.version == Some(done.version)));
    let usage = f.memory.usage();
    assert_eq!((usage.hits, usage.hit_bytes, usage.writes, usage.objects, usage.kept), (2, 5, 1, 1, ByteSize::kib(4)));
}

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
    assert_eq!(early.await.unwrap().unwrap(), b"old", "it began before the write");
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
    assert_eq!(early.await.unwrap().unwrap(), b"old");
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
    assert_eq!(f.served()[2..], [Served::Past, Served::Write, Served::Hit]);
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
async fn a_client_that_hangs_up_during_its_commit_leaves_a_whole_write() {
    let f = Fixture::new().await;
    let gate = f.store.close(Point::PutAsked);
    let put = f.putting("a", b"new");
    gate.arrival().await;
    put.abort();
    assert!(put.await.unwrap_err().is_cancelled());
    assert_eq!(f.served(), [Served::Metadata], "its event waits for the end of the write");
    gate.let_one_on();
    until(|| f.served().len() == 2).await;
    assert_eq!(f.served(), [Served::Metadata, Served::Write]);
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
async fn a_body_that_is_not_what_was_claimed_is_not_stored() {
    let f = Fixture::new().await;
    let large = vec![7; CACHED + 1];
    for bytes in [&b"12345"[..], &large] {
        let claim = |algorithm, value| Some(ChecksumClaim { algorithm, value });
        let wrong = || Some("AAAAAA==".to_owned());
        let refused = [
            PutRequest { md5: Some([0; 16]), ..body(bytes) },
            PutRequest {
                checksum: claim(ChecksumAlgorithm::Crc32, ClaimedValue::Given("AAAAAA==".to_owned())),
                ..body(bytes)
            },
            PutRequest {
                checksum: claim(ChecksumAlgorithm::Crc32c, ClaimedValue::Trailer(Box::new(wrong))),
                ..body(bytes)
            },
            PutRequest { length: None, md5: Some([0; 16]), ..body(bytes) },
        ];
        for request in refused {
            assert!(matches!(f.put_with("a", request).await, Err(ObjectError::BadDigest { .. })));
        }
        let size = bytes.len() as u64;
        for length in [size - 1, size + 1] {
            let request = PutRequest { length: Some(length), ..body(bytes) };
            let refused = f.put_with("a", request).await.unwrap_err();
            assert!(matches!(refused, ObjectError::IncompleteBody { expected, .. } if expected == length), "{refused}");
        }
    }
    let long = PutRequest { length: Some(33 << 20), ..body(b"") };
    assert!(matches!(f.put_with("a", long).await, Err(ObjectError::EntityTooLarge { .. })));
    assert!(matches!(f.get("a").await, Err(ObjectError::NoSuchKey(_))));
    assert_eq!(f.memory.usage().reserved, ByteSize::ZERO);
}

#[tokio::test]
async fn bodies_of_any_kind_come_back_with_their_checksum() {
    let f = Fixture::new().await;
    for size in [0, 1, 4096, CACHED, CACHED + 1, 3_000_000] {
        let bytes: Vec<u8> = (0..size).map(|n| (n % 251) as u8).collect();
        for length in [Some(size as u64), None] {
            let checksum = Some(ChecksumClaim { algorithm: ChecksumAlgorithm::Sha256, value: ClaimedValue::Compute });
            let done = f.put_with("a", PutRequest { length, checksum, ..body(&bytes) }).await.unwrap();
            assert_eq!(done.size, size as u64);
            let got = f.get_with("a", GetRequest::default()).await.unwrap();
            assert_eq!(got.meta.checksums.as_slice(), done.checksum.as_slice());
            assert_eq!(bytes_of(got).await.unwrap(), bytes);
        }
    }
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

/// Each write of a key stores a higher number. Whoever reads must see no less than any write that had ended,
/// and any number that another reader had seen, before it began: reads and writes have one order.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn under_load_no_read_goes_back_in_time() {
    const KEYS: usize = 3;
    const ROUNDS: u64 = 400;
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
                // Now in memory, now in the spool, now too large to keep.
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
async fn a_store_that_gives_too_few_bytes_is_found_out() {
    let f = Fixture::new().await;
    f.put("small", b"12345").await;
    f.put("large", &vec![1; 200_000]).await;
    let f = f.restarted().await;
    f.store.cut_gets.store(true, Ordering::SeqCst);
    for name in ["small", "large"] {
        assert!(matches!(f.get(name).await, Err(ObjectError::Store { .. })), "{name}");
    }
    assert_eq!(f.served()[3..], [Served::Failed, Served::Failed]);
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
    f.memory.delete(&other, &f.bucket, &key("a"), WriteConditions::default()).await.unwrap();
    assert_eq!(f.get("a").await.unwrap(), b"mine");
    assert_eq!(
        f.memory.list(&other, &f.bucket, ListRequest { limit: 9, ..ListRequest::default() }).await.unwrap().objects,
        []
    );
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
    let deleted = f.memory.delete(&f.who, &f.bucket, &key("a"), conditions).await;
    assert!(matches!(deleted, Err(ObjectError::PreconditionFailed(_))));
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
    assert_eq!(f.served()[2..5], [Served::Metadata, Served::Metadata, Served::Failed]);
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
    assert_eq!(usage.living, ByteSize(53_248), "what a reader holds");
    assert_eq!(bytes_of(held).await.unwrap(), vec![199; 50_000]);
    assert_eq!(f.memory.usage().living, ByteSize::ZERO);
    assert_eq!(f.get("7").await.unwrap(), vec![7; 50_000], "without a cache it is read past it");
    f.put("b", b"written without a cache").await;
    assert_eq!(f.get("b").await.unwrap(), b"written without a cache");
}

#[tokio::test]
async fn a_delete_is_idempotent_and_versions_grow() {
    let f = Fixture::new().await;
    let one = f.put("a", b"1").await.version;
    f.delete("a").await;
    f.delete("a").await;
    assert!(matches!(f.get("a").await, Err(ObjectError::NoSuchKey(_))));
    let two = f.put("a", b"2").await.version;
    assert!(Version::OUTSIDE < one && one < two);
    let missing = BucketName::new("missing").unwrap();
    let deleted = f.memory.delete(&f.who, &missing, &key("a"), WriteConditions::default()).await;
    assert!(matches!(deleted, Err(ObjectError::NoSuchBucket(_))));
    let put = f.memory.put(&f.who, &missing, &key("a"), body(b"")).await;
    assert!(matches!(put, Err(ObjectError::NoSuchBucket(_))));
}

#[tokio::test]
async fn a_delete_that_lasts_leaves_no_copy_to_read() {
    let f = Fixture::new().await;
    f.put("a", b"old").await;
    let gate = f.store.close(Point::DeleteDone);
    let delete = f.in_background(async |memory: ObjectMemory, who: Principal, bucket: BucketName| {
        memory.delete(&who, &bucket, &key("a"), WriteConditions::default()).await
    });
    let (deleted, ()) = futures::join!(delete, async {
        gate.arrival().await;
        assert!(matches!(f.get("a").await, Err(ObjectError::NoSuchKey(_))));
        gate.let_one_on();
    });
    deleted.unwrap();
    assert!(matches!(f.get("a").await, Err(ObjectError::NoSuchKey(_))));
}

fn copy_of(source: &str) -> CopyRequest {
    CopyRequest {
        source_bucket: BucketName::new("bucket").unwrap(),
        source_key: key(source),
        source_conditions: ReadConditions::default(),
        conditions: WriteConditions::default(),
        attributes_from: Direction::Copy,
        attributes: Attributes::default(),
        tags_from: Direction::Copy,
        tags: Tags::new(),
        checksum: None,
    }
}

#[tokio::test]
async fn a_copy_carries_what_is_not_replaced() {
    let f = Fixture::new().await;
    let attributes = Attributes { content_type: Some("text/x".to_owned()), ..Attributes::default() };
    let tags = Tags::from([("a".to_owned(), "b".to_owned())]);
    for size in [5, CACHED * 3] {
        let bytes = vec![9; size];
        let request = PutRequest { attributes: attributes.clone(), tags: tags.clone(), ..body(&bytes) };
        let done = f.put_with("a", request).await.unwrap();
        let copied = f.memory.copy(&f.who, &f.bucket, &key("b"), copy_of("a")).await.unwrap();
        assert_eq!((&copied.done.etag, copied.source_version), (&done.etag, done.version));
        let got = f.get_with("b", GetRequest::default()).await.unwrap();
        assert_eq!((&got.meta.attributes, &got.meta.tags), (&attributes, &tags));
        assert_eq!(bytes_of(got).await.unwrap(), bytes);

        let to_itself = f.memory.copy(&f.who, &f.bucket, &key("a"), copy_of("a")).await;
        assert!(matches!(to_itself, Err(ObjectError::InvalidRequest(_))));
        let request = CopyRequest {
            attributes_from: Direction::Replace,
            tags_from: Direction::Replace,
            checksum: Some(ChecksumAlgorithm::Crc32),
            ..copy_of("a")
        };
        let copied = f.memory.copy(&f.who, &f.bucket, &key("a"), request).await.unwrap();
        assert!(copied.done.checksum.is_some());
        let got = f.get_with("a", GetRequest::default()).await.unwrap();
        assert_eq!((&got.meta.attributes, &got.meta.tags), (&Attributes::default(), &Tags::new()));
        assert_eq!(bytes_of(got).await.unwrap(), bytes);

        let source_conditions =
            ReadConditions { if_none_match: Some(vec![ETag("*".to_owned())]), ..ReadConditions::default() };
        let refused =
            f.memory.copy(&f.who, &f.bucket, &key("b"), CopyRequest { source_conditions, ..copy_of("a") }).await;
        assert!(matches!(refused, Err(ObjectError::PreconditionFailed(_))));
    }
    let missing = f.memory.copy(&f.who, &f.bucket, &key("b"), copy_of("missing")).await;
    assert!(matches!(missing, Err(ObjectError::NoSuchKey(_))));
}

#[tokio::test]
async fn tags_are_replaced_in_the_store_and_in_the_copy() {
    let f = Fixture::new().await;
    let done = f.put("a", b"bytes").await;
    let tags = Tags::from([("k".to_owned(), "v".to_owned())]);
    f.memory.put_tags(&f.who, &f.bucket, &key("a"), tags.clone()).await.unwrap();
    let got = f.get_with("a", GetRequest::default()).await.unwrap();
    assert_eq!((&got.meta.tags, got.version), (&tags, done.version));
    assert!(got.body.as_segment().is_some());
    assert_eq!(f.store.gets.load(Ordering::SeqCst), 0, "the copy was kept on");
    let f = f.restarted().await;
    assert_eq!(f.memory.get_tags(&f.who, &f.bucket, &key("a")).await.unwrap(), tags);
    let missing = f.memory.put_tags(&f.who, &f.bucket, &key("missing"), tags).await;
    assert!(matches!(missing, Err(ObjectError::NoSuchKey(_))));
    let wrong = Tags::from([(String::new(), String::new())]);
    assert!(f.memory.put_tags(&f.who, &f.bucket, &key("a"), wrong).await.is_err());
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

const PART: usize = 5 << 20;

impl Fixture {
    async fn begin_upload(&self, request: MultipartRequest) -> UploadId {
        self.memory.create_upload(&self.who, &self.bucket, &key("big"), request).await.unwrap()
    }

    async fn part(&self, upload: &UploadId, number: u32, bytes: &[u8]) -> Result<CompletedPart, ObjectError> {
        let length = Some(bytes.len() as u64);
        let part = self
            .memory
            .put_part(&self.who, &self.bucket, &key("big"), upload, number, stream(bytes), length, None, None)
            .await?;
        Ok(CompletedPart { number, etag: part.etag, checksum: part.checksum })
    }

    async fn complete(&self, upload: &UploadId, request: CompleteRequest) -> Result<PutDone, ObjectError> {
        self.memory.complete_upload(&self.who, &self.bucket, &key("big"), upload, request).await
    }
}

#[tokio::test]
async fn an_upload_survives_a_restart_and_becomes_one_object() {
    let f = Fixture::new().await;
    let tags = Tags::from([("k".to_owned(), "v".to_owned())]);
    let request = MultipartRequest {
        tags: tags.clone(),
        checksum: Some(ChecksumAlgorithm::Crc64Nvme),
        ..MultipartRequest::default()
    };
    let upload = f.begin_upload(request).await;
    let bytes: Vec<u8> = (0..2 * PART + 10).map(|n| (n % 253) as u8).collect();
    let mut parts = vec![f.part(&upload, 1, &bytes[..PART]).await.unwrap()];
    parts.push(f.part(&upload, 2, &[0; 100]).await.unwrap());
    let f = f.restarted().await;
    parts[1] = f.part(&upload, 2, &bytes[PART..2 * PART]).await.unwrap();
    parts.push(f.part(&upload, 3, &bytes[2 * PART..]).await.unwrap());
    let (listed, more) = f.memory.list_parts(&f.who, &f.bucket, &key("big"), &upload, 0, 2).await.unwrap();
    assert_eq!((listed.len(), more), (2, true));
    let uploads = f.memory.list_uploads(&f.who, &f.bucket, "").await.unwrap();
    assert_eq!((uploads.len(), &uploads[0].upload), (1, &upload));

    // A failure leaves the upload as it was.
    let wrong = Checksum { algorithm: ChecksumAlgorithm::Crc64Nvme, value: "AAAAAAAAAAA=".to_owned() };
    let request = CompleteRequest { parts: parts.clone(), checksum: Some(wrong), ..CompleteRequest::default() };
    assert!(matches!(f.complete(&upload, request).await, Err(ObjectError::BadDigest { .. })));
    f.store.lose_puts.store(true, Ordering::SeqCst);
    let request = CompleteRequest { parts: parts.clone(), ..CompleteRequest::default() };
    assert!(matches!(f.complete(&upload, request).await, Err(ObjectError::Store { .. })));
    f.store.lose_puts.store(false, Ordering::SeqCst);

    let request = CompleteRequest { parts, size: Some(bytes.len() as u64), ..CompleteRequest::default() };
    let done = f.complete(&upload, request.clone()).await.unwrap();
    assert!(done.etag.0.ends_with("-3"));
    let got = f.get_with("big", GetRequest::default()).await.unwrap();
    assert_eq!((&got.meta.tags, &got.meta.etag, got.meta.parts.len()), (&tags, &done.etag, 3));
    assert_eq!(bytes_of(got).await.unwrap(), bytes);
    assert_eq!(f.range("big", RangeSpec::Part(3)).await.unwrap(), bytes[2 * PART..]);
    let whole = f.put_with(
        "same",
        PutRequest {
            checksum: Some(ChecksumClaim { algorithm: ChecksumAlgorithm::Crc64Nvme, value: ClaimedValue::Compute }),
            ..body(&bytes)
        },
    );
    assert_eq!(whole.await.unwrap().checksum, done.checksum);
    assert!(matches!(f.complete(&upload, request).await, Err(ObjectError::NoSuchUpload(_))));
    assert_eq!(f.memory.list_uploads(&f.who, &f.bucket, "").await.unwrap(), []);
    let uploads = f.folder.path().join("uploads");
    assert_eq!(std::fs::read_dir(uploads).unwrap().count(), 0);
}

#[tokio::test]
async fn what_is_wrong_with_a_part_is_said_and_the_earlier_one_stays() {
    let f = Fixture::new().await;
    let upload = f
        .begin_upload(MultipartRequest { checksum: Some(ChecksumAlgorithm::Sha1), ..MultipartRequest::default() })
        .await;
    let good = f.part(&upload, 1, b"good").await.unwrap();
    assert_eq!(good.checksum.as_ref().map(|checksum| checksum.algorithm), Some(ChecksumAlgorithm::Sha1));
    for number in [0, 10_001] {
        assert!(matches!(f.part(&upload, number, b"").await, Err(ObjectError::InvalidArgument(_))));
    }
    let other = UploadId("other".to_owned());
    assert!(matches!(f.part(&other, 1, b"").await, Err(ObjectError::NoSuchUpload(_))));
    let big = key("big");
    let put = |length, md5, checksum| {
        f.memory.put_part(&f.who, &f.bucket, &big, &upload, 1, stream(b"bad"), length, md5, checksum)
    };
    assert!(matches!(put(Some(9), None, None).await, Err(ObjectError::IncompleteBody { .. })));
    assert!(matches!(put(None, Some([0; 16]), None).await, Err(ObjectError::BadDigest { .. })));
    let crc = Some(ChecksumClaim { algorithm: ChecksumAlgorithm::Crc32, value: ClaimedValue::Compute });
    assert!(matches!(put(None, None, crc).await, Err(ObjectError::InvalidRequest(_))));
    assert!(matches!(put(Some(33 << 20), None, None).await, Err(ObjectError::EntityTooLarge { .. })));

    let condition = WriteConditions { if_absent: true, if_match: None };
    f.put("big", b"there").await;
    let request = CompleteRequest { parts: vec![good.clone()], conditions: condition, ..CompleteRequest::default() };
    assert!(matches!(f.complete(&upload, request).await, Err(ObjectError::PreconditionFailed(_))));
    let request = CompleteRequest { parts: vec![good], ..CompleteRequest::default() };
    let done = f.complete(&upload, request).await.unwrap();
    assert!(done.checksum.unwrap().value.ends_with("-1"));
    assert_eq!(f.get("big").await.unwrap(), b"good");
}

#[tokio::test]
async fn a_part_is_copied_from_another_object() {
    let f = Fixture::new().await;
    f.put("source", b"0123456789").await;
    let upload = f.begin_upload(MultipartRequest::default()).await;
    let copy = |range, conditions| {
        let source = (f.bucket.clone(), key("source"));
        let (memory, who, bucket, upload) = (f.memory.clone(), f.who.clone(), f.bucket.clone(), upload.clone());
        async move {
            memory.copy_part(&who, &bucket, &key("big"), &upload, 1, (&source.0, &source.1), range, conditions).await
        }
    };
    let within = Some(RangeSpec::From { first: 2, last: Some(5) });
    let part = copy(within, ReadConditions::default()).await.unwrap();
    assert_eq!(part.size, 4);
    let beyond = Some(RangeSpec::From { first: 2, last: Some(10) });
    assert!(matches!(copy(beyond, ReadConditions::default()).await, Err(ObjectError::InvalidRange { size: 10 })));
    let conditions = ReadConditions { if_match: Some(vec![ETag("x".to_owned())]), ..ReadConditions::default() };
    assert!(matches!(copy(None, conditions).await, Err(ObjectError::PreconditionFailed(_))));
    let parts = vec![CompletedPart { number: 1, etag: part.etag, checksum: None }];
    f.complete(&upload, CompleteRequest { parts, ..CompleteRequest::default() }).await.unwrap();
    assert_eq!(f.get("big").await.unwrap(), b"2345");
}

#[tokio::test]
async fn an_aborted_upload_is_gone_and_a_bucket_takes_its_uploads_along() {
    let f = Fixture::new().await;
    let upload = f.begin_upload(MultipartRequest::default()).await;
    f.part(&upload, 1, b"part").await.unwrap();
    f.memory.abort_upload(&f.who, &f.bucket, &key("big"), &upload).await.unwrap();
    assert!(matches!(f.part(&upload, 1, b"part").await, Err(ObjectError::NoSuchUpload(_))));
    let again = f.memory.abort_upload(&f.who, &f.bucket, &key("big"), &upload).await;
    assert!(matches!(again, Err(ObjectError::NoSuchUpload(_))));

    let upload = f.begin_upload(MultipartRequest::default()).await;
    f.memory.delete_bucket(&f.who, &f.bucket).await.unwrap();
    f.memory.create_bucket(&f.who, &f.bucket).await.unwrap();
    assert!(matches!(f.part(&upload, 1, b"part").await, Err(ObjectError::NoSuchUpload(_))));
}
