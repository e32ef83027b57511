//! The memory driven by the protocol's machines: what the home is told, and that nothing is left behind.

use nigh_engine::{AppendResult, Ledger, LedgerError, Record, StagedPiece, WriteThrough};
use nigh_terms::{ShardId, SystemClock};
use tokio_util::sync::CancellationToken;

use super::write_back::{LazyBench, settings};
use super::*;
use crate::{WriteMode, WriteSettings};

#[tokio::test]
async fn what_the_store_has_needs_no_entry_of_the_home() {
    let l = LazyBench::new().await;
    for n in 0..50 {
        l.put(&n.to_string(), b"x").await;
    }
    l.delete("7").await;
    assert_eq!(l.memory.0.coherence.entries(), 50, "each waits for the store");
    let persisting = l.persist();
    l.settled().await;
    assert_eq!((l.memory.0.coherence.entries(), l.memory.0.coherence.under_way()), (0, 0));
    l.memory.set_cache_budget(ByteSize::ZERO);
    l.memory.set_cache_budget(ByteSize::mib(4));
    assert_eq!(l.get("3").await.unwrap(), b"x");
    assert!(matches!(l.get("7").await, Err(ObjectError::NoSuchKey(_))));
    assert_eq!((l.memory.0.coherence.entries(), l.memory.0.coherence.under_way()), (0, 0));
    l.stop.cancel();
    persisting.await.unwrap();
    let f = Fixture::new().await;
    f.put("a", b"through").await;
    f.delete("a").await;
    assert_eq!((f.memory.0.coherence.entries(), f.memory.0.coherence.under_way()), (0, 0));
}

#[tokio::test]
async fn a_write_that_the_store_is_slow_to_take_holds_no_other_up_and_its_version_is_that_of_its_end() {
    let f = Fixture::new().await;
    let gate = f.store.close(Point::PutAsked);
    let slow = f.putting("slow", b"1");
    gate.arrival().await;
    f.store.open(Point::PutAsked);
    let quick = f.put("quick", b"2").await;
    gate.let_one_on();
    let slow = slow.await.unwrap().unwrap();
    assert!(quick.version < slow.version);
    let got = f.get_with("slow", GetRequest::default()).await.unwrap();
    assert_eq!(got.version, slow.version);
}

#[tokio::test]
async fn reads_that_fail_and_reads_of_nothing_leave_nothing_behind() {
    let f = Fixture::new().await;
    f.put("a", b"12345").await;
    let f = f.restarted().await;
    f.store.cut_gets.store(true, Ordering::SeqCst);
    for _ in 0..3 {
        assert!(f.get("a").await.is_err() && f.get("missing").await.is_err());
        assert!(f.range("missing", RangeSpec::Suffix(1)).await.is_err());
        let head = f.memory.head(&f.who, &f.bucket, &key("missing"), GetRequest::default()).await;
        assert!(matches!(head, Err(ObjectError::NoSuchKey(_))));
    }
    assert_eq!((f.memory.0.coherence.entries(), f.memory.0.coherence.under_way()), (0, 0));
    f.store.cut_gets.store(false, Ordering::SeqCst);
    assert_eq!(f.get("a").await.unwrap(), b"12345");
}

#[tokio::test]
async fn what_others_wrote_is_a_version_of_its_own_and_is_asked_of_the_store() {
    let f = Fixture::new().await;
    let ours = f.put("a", b"ours").await;
    let object = nigh_data::ObjectId { namespace: f.who.namespace.clone(), bucket: f.bucket.clone(), key: key("a") };
    let kept = f.get_with("a", GetRequest::default()).await.unwrap();
    let meta = nigh_data::ObjectMeta { size: 6, etag: ETag("theirs".to_owned()), ..(*kept.meta).clone() };
    f.store.put_by_others(&object, meta, Bytes::from_static(b"theirs"));
    assert_eq!(f.get("a").await.unwrap(), b"ours", "nobody has said so");
    f.memory.invalidate(&f.who, &f.bucket, &key("a"));
    let got = f.get_with("a", GetRequest::default()).await.unwrap();
    assert!(got.version > ours.version);
    assert_eq!(bytes_of(got).await.unwrap(), b"theirs");
    assert_eq!((f.memory.0.coherence.entries(), f.memory.0.coherence.under_way()), (0, 0));
}

/// How a ledger reacts when it is told what is stored, or must settle.
#[derive(Clone, Copy, PartialEq, Eq)]
enum LedgerReaction {
    Given,
    Held,
    /// The ledger is told what is stored, and cannot settle.
    Refused,
}

/// A ledger that fails on demand, in an append that it has taken, as if its disk were gone.
struct TestLedger {
    order: WriteThrough,
    breaks: std::sync::atomic::AtomicBool,
    broken: std::sync::atomic::AtomicBool,
    answers: tokio::sync::watch::Sender<LedgerReaction>,
    /// The number of answers that it holds back.
    held: AtomicU64,
}

impl TestLedger {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            order: WriteThrough::new(Epoch(1)),
            breaks: false.into(),
            broken: false.into(),
            answers: tokio::sync::watch::Sender::new(LedgerReaction::Given),
            held: AtomicU64::new(0),
        })
    }

    async fn hear(&self) {
        self.held.fetch_add(1, Ordering::SeqCst);
        self.answers.subscribe().wait_for(|answers| *answers != LedgerReaction::Held).await.unwrap();
        self.held.fetch_sub(1, Ordering::SeqCst);
    }

    /// Waits until it holds back `many` answers.
    async fn holds_answers(&self, many: u64) {
        while self.held.load(Ordering::SeqCst) < many {
            tokio::task::yield_now().await;
        }
    }
}

#[async_trait::async_trait]
impl Ledger for TestLedger {
    fn epoch(&self, shard: ShardId) -> Epoch {
        self.order.epoch(shard)
    }

    fn check(&self, _shard: ShardId) -> Result<(), LedgerError> {
        let broken = self.broken.load(Ordering::SeqCst);
        if broken { Err(LedgerError::Failed("its disk is gone".to_owned())) } else { Ok(()) }
    }

    fn place(&self, shard: ShardId) -> Version {
        self.order.place(shard)
    }

    async fn stage(&self, shard: ShardId, piece: Bytes) -> Result<StagedPiece, LedgerError> {
        self.order.stage(shard, piece).await
    }

    async fn append(
        &self,
        shard: ShardId,
        _record: Record,
        _body: nigh_engine::Body,
    ) -> Result<AppendResult, LedgerError> {
        let version = self.place(shard);
        // Other writes are appended in between.
        tokio::time::sleep(Duration::from_millis(20)).await;
        if self.breaks.load(Ordering::SeqCst) {
            self.broken.store(true, Ordering::SeqCst);
        }
        self.check(shard)?;
        Ok(AppendResult { version, repeated: false })
    }

    async fn stored(&self, shard: ShardId, _version: Version) -> Result<(), LedgerError> {
        self.hear().await;
        self.check(shard)
    }

    async fn settle(&self, shard: ShardId) -> Result<(), LedgerError> {
        self.hear().await;
        if *self.answers.borrow() == LedgerReaction::Refused {
            return Err(LedgerError::Unavailable("not yet".to_owned()));
        }
        self.check(shard)
    }

    async fn read(&self, shard: ShardId, version: Version, offset: u64) -> Result<Bytes, LedgerError> {
        self.order.read(shard, version, offset).await
    }
}

/// A memory in front of `store` whose writes are lazy.
async fn over(ledger: &Arc<TestLedger>, store: &Arc<GatedStore>, folder: &tempfile::TempDir) -> ObjectMemory {
    let writes = Writes {
        ledger: Arc::clone(ledger) as Arc<dyn Ledger>,
        settings: WriteSettings { mode: WriteMode::Lazy, wait: Duration::from_secs(30), ..settings() },
        ..Writes::through(Epoch(1))
    };
    let limits =
        MemoryLimits { cache: ByteSize::mib(4), cached_object: ByteSize(CACHED as u64), object: ByteSize::mib(32) };
    let (as_store, clock) = (Arc::clone(store) as Arc<dyn nigh_stores::Store>, Arc::new(SystemClock::new()));
    ObjectMemory::open(as_store, writes, clock, Vec::new(), folder.path().to_owned(), limits).await.unwrap()
}

#[tokio::test]
async fn nothing_is_written_past_the_ledger_until_that_keeps_what_was_stored_before() {
    let (ledger, store, folder) = (TestLedger::new(), Arc::default(), tempfile::tempdir().unwrap());
    let memory = over(&ledger, &store, &folder).await;
    let (who, bucket) = (Principal::outside(Namespace::new("tenant").unwrap()), BucketName::new("bucket").unwrap());
    memory.create_bucket(&who, &bucket).await.unwrap();
    let stop = CancellationToken::new();
    let persisting = tokio::spawn(memory.clone().persist(stop.clone()));
    let put = |name: &'static str, bytes: Vec<u8>| {
        let (memory, who, bucket) = (memory.clone(), who.clone(), bucket.clone());
        async move { memory.put(&who, &bucket, &key(name), body(&bytes)).await.unwrap() }
    };
    let size = |name: &str| {
        let id = nigh_data::ObjectId { namespace: who.namespace.clone(), bucket: bucket.clone(), key: key(name) };
        store.holds(&id).map_or(0, |bytes| bytes.len())
    };
    let comes = async |name: &str, bytes: usize| {
        while size(name) != bytes {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    // A settle of one object holds back a settle of another, ...
    ledger.answers.send_replace(LedgerReaction::Refused);
    for name in ["a", "b"] {
        put(name, b"small".to_vec()).await;
        memory.flush(&who, &bucket, &key(name)).await.unwrap();
    }
    ledger.answers.send_replace(LedgerReaction::Held);
    let large = vec![1; CACHED + 1];
    let first = tokio::spawn(put("a", large.clone()));
    ledger.holds_answers(1).await;
    let second = tokio::spawn(put("b", large.clone()));
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!((size("a"), size("b")), (5, 5));
    ledger.answers.send_replace(LedgerReaction::Given);
    first.await.unwrap();
    second.await.unwrap();
    assert_eq!((size("a"), size("b")), (large.len(), large.len()));
    // ... and so does a ledger that was not told what is stored.
    ledger.answers.send_replace(LedgerReaction::Held);
    put("c", b"small".to_vec()).await;
    comes("c", 5).await;
    ledger.holds_answers(1).await;
    let third = tokio::spawn(put("c", large.clone()));
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(size("c"), 5);
    ledger.answers.send_replace(LedgerReaction::Given);
    third.await.unwrap();
    assert_eq!(size("c"), large.len());
    stop.cancel();
    persisting.await.unwrap();
}

#[tokio::test]
async fn a_ledger_that_failed_refuses_writes_and_what_is_there_is_read_on() {
    let (ledger, store, folder) = (TestLedger::new(), Arc::default(), tempfile::tempdir().unwrap());
    let memory = over(&ledger, &store, &folder).await;
    let (who, bucket) = (Principal::outside(Namespace::new("tenant").unwrap()), BucketName::new("bucket").unwrap());
    memory.create_bucket(&who, &bucket).await.unwrap();
    let large = vec![1; CACHED + 1];
    let put = |name: &'static str, bytes: &[u8]| {
        let (memory, who, bucket, request) = (memory.clone(), who.clone(), bucket.clone(), body(bytes));
        async move { memory.put(&who, &bucket, &key(name), request).await }
    };
    let before = put("a", b"before").await.unwrap();
    // A write that goes to the store at once gets a version between the lost ones.
    ledger.breaks.store(true, Ordering::SeqCst);
    let (lost, through, too) = futures::join!(put("b", b"lost"), put("large", &large), put("c", b"lost too"));
    for refused in [lost, too, put("d", b"refused").await, put("large", &large).await] {
        assert!(matches!(refused, Err(ObjectError::Ledger(LedgerError::Failed(_)))), "{refused:?}");
    }
    assert!(through.unwrap().version > before.version, "it is told when what is lost is known to be");
    let read = |name: &str| {
        let (memory, who, bucket, key) = (memory.clone(), who.clone(), bucket.clone(), key(name));
        async move { bytes_of(memory.get(&who, &bucket, &key, GetRequest::default()).await?).await }
    };
    assert_eq!((read("a").await.unwrap(), read("large").await.unwrap()), (b"before".to_vec(), large));
    assert!(matches!(read("b").await, Err(ObjectError::NoSuchKey(_))));
    assert_eq!((memory.0.coherence.entries(), memory.0.coherence.under_way()), (1, 0), "one waits for the store");
}

/// As `under_load_no_read_goes_back_in_time`, with late pushes, evictions and deletions.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn under_load_no_read_goes_back_in_time_though_the_store_is_behind() {
    const KEYS: usize = 3;
    const ROUNDS: u64 = 60;
    let l = LazyBench::new().await;
    let persisting = l.persist();
    let seen: Arc<[AtomicU64; KEYS]> = Arc::default();
    for n in 0..KEYS {
        l.put(&n.to_string(), b"0").await;
    }
    let writers = (0..KEYS).map(|n| {
        let (memory, who, bucket, seen) = (l.memory.clone(), l.who.clone(), l.bucket.clone(), Arc::clone(&seen));
        tokio::spawn(async move {
            let mut last = Version::OUTSIDE;
            for round in 1..=ROUNDS {
                let text = round.to_string();
                let padded = " ".repeat(if round % 7 == 0 { CACHED } else { 20 }) + &text;
                let name = key(&n.to_string());
                let done = loop {
                    match memory.put(&who, &bucket, &name, body(padded.as_bytes())).await {
                        Err(ObjectError::SlowDown(_) | ObjectError::Ledger(LedgerError::Full)) => continue,
                        done => break done.unwrap(),
                    }
                };
                assert!(done.version > last);
                last = done.version;
                seen[n].fetch_max(round, Ordering::SeqCst);
            }
        })
    });
    let readers = (0..4).map(|reader| {
        let (memory, who, bucket, seen) = (l.memory.clone(), l.who.clone(), l.bucket.clone(), Arc::clone(&seen));
        tokio::spawn(async move {
            for round in 0.. {
                // A hit never waits, so without this other tasks would never run.
                tokio::task::yield_now().await;
                let n = (round + reader) % KEYS;
                let floor = seen[n].load(Ordering::SeqCst);
                if round % 3 == 0 {
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
    l.settled().await;
    assert_eq!((l.memory.0.coherence.entries(), l.memory.0.coherence.under_way()), (0, 0));
    assert_eq!(l.memory.usage().reserved, ByteSize::ZERO);
    l.stop.cancel();
    persisting.await.unwrap();
}
