//! The object memory before a store that fails in every way the proxy knows: a real Swift behind it, by S3 and by its
//! own API. What is read is what was written, what is acknowledged is stored, now or from the journal later, and hits need
//! no store.

#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "a test fails by panicking and may talk")]

mod on_swift;
#[path = "../../../tests/skipped.rs"]
mod skipped;

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures::{StreamExt, TryStreamExt};
use http::Method;
use nigh_data::{Attributes, GetRequest, ObjectError, PutRequest, Tags, WriteConditions};
use nigh_engine::{Journal, JournalSettings, Ledger};
use nigh_lab::instrument::fault_proxy::FaultProxy;
use nigh_lab::instrument::fault_proxy::plan::{Fault, Plan, Rule};
use nigh_lab::instrument::peer::swift::Swift;
use nigh_objects::{MemoryLimits, ObjectMemory, WriteSettings, Writes};
use nigh_stores::remote::RemoteStore;
use nigh_stores::swift::SwiftStore;
use nigh_stores::{NetworkLimits, RetryPolicy, Store};
use nigh_terms::{BucketName, ByteSize, Clock, Epoch, ObjectKey, Principal, SystemClock};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tokio_util::sync::CancellationToken;

use self::on_swift::{by_s3, namespace, natively, start};

/// Objects above this are streamed past the cache.
const CACHED: u64 = 100_000;
const WRITERS: usize = 4;
const KEYS: usize = 6;
const STEPS: usize = 60;

/// The store may take so long to have everything when it is well again.
const STORED_WITHIN: Duration = Duration::from_secs(60);

async fn memory(store: Arc<dyn Store>, folder: &Path) -> ObjectMemory {
    memory_with(store, folder, Writes::through(Epoch(1))).await
}

/// Writes that are acknowledged by a journal of their own.
fn lazily(folder: &Path) -> Writes {
    let (journal, recovered) = Journal::open(folder, &JournalSettings::default()).unwrap();
    let settings = WriteSettings {
        delay: Duration::from_millis(5),
        back_off: Duration::from_millis(20),
        back_off_max: Duration::from_millis(200),
        ..WriteSettings::default()
    };
    let ledger: Arc<dyn Ledger> = Arc::new(journal);
    Writes { ledger, recovered: recovered.records, lost: Vec::new(), may_lack_writes: false, settings, registry: None }
}

async fn memory_with(store: Arc<dyn Store>, folder: &Path, writes: Writes) -> ObjectMemory {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let limits = MemoryLimits { cache: ByteSize::mib(16), cached_object: ByteSize(CACHED), object: ByteSize::gib(5) };
    let spool = folder.join(format!("spool-{}", uuid::Uuid::new_v4()));
    std::fs::create_dir(&spool).unwrap();
    ObjectMemory::open(store, writes, clock, Vec::new(), spool, limits).await.unwrap()
}

fn who() -> Principal {
    Principal::outside(namespace("tenant"))
}

async fn put(memory: &ObjectMemory, bucket: &BucketName, key: &ObjectKey, bytes: &[u8]) -> Result<(), ObjectError> {
    let request = PutRequest {
        attributes: Attributes::default(),
        tags: Tags::new(),
        conditions: WriteConditions::default(),
        body: futures::stream::iter([Ok(Bytes::copy_from_slice(bytes))]).boxed(),
        length: Some(bytes.len() as u64),
        md5: None,
        checksum: None,
        request: None,
    };
    memory.put(&who(), bucket, key, request).await.map(drop)
}

async fn get(memory: &ObjectMemory, bucket: &BucketName, key: &ObjectKey) -> Result<Option<Vec<u8>>, ObjectError> {
    let got = match memory.get(&who(), bucket, key, GetRequest::default()).await {
        Err(ObjectError::NoSuchKey(_)) => return Ok(None),
        other => other?,
    };
    let pieces: Vec<Bytes> = got.body.try_collect().await?;
    Ok(Some(pieces.concat()))
}

/// Every way to fail, each for a few requests in a hundred.
fn misfortune(seed: u64) -> Plan {
    let refuse = |status, retry_after_s| Fault::Refuse { status, retry_after_s };
    let faults = [
        refuse(500, None),
        refuse(503, None),
        refuse(503, Some(1)),
        refuse(429, Some(3600)),
        refuse(401, None),
        Fault::Break { status: 500 },
        Fault::Break { status: 504 },
        Fault::Close,
        Fault::WrongEtag,
        Fault::HalfBody,
        Fault::Throttle { bytes_per_s: 1_000_000 },
    ];
    // A login that is refused is not tried again for some seconds, and would end the run's last part.
    let but_logins = |fault| Rule { lacks: "/auth/".to_owned(), ..Rule::of_all(0.03, fault) };
    Plan { seed, rules: faults.into_iter().map(but_logins).collect(), ..Plan::default() }
}

/// What one writer knows of one key: what may be stored, the newest last.
struct Known {
    key: ObjectKey,
    may_be: Vec<Option<Vec<u8>>>,
}

/// Writes and reads its own keys, and checks each read. Gives what it knows, and what errors said.
async fn write_and_read(memory: ObjectMemory, bucket: BucketName, writer: usize) -> (Vec<Known>, BTreeSet<String>) {
    let mut draw = StdRng::seed_from_u64(writer as u64);
    let mut known: Vec<Known> = (0..KEYS)
        .map(|n| Known { key: ObjectKey::new(&format!("{writer}//{n}")).unwrap(), may_be: vec![None] })
        .collect();
    let mut said = BTreeSet::new();
    for step in 0..STEPS {
        let Known { key, may_be } = &mut known[draw.random_range(0..KEYS)];
        if draw.random::<f64>() < 0.4 {
            let length = draw.random_range(1..2 * CACHED as usize);
            let text = format!("{writer} {key} {step};");
            let bytes: Vec<u8> = text.bytes().cycle().take(length).collect();
            match put(&memory, &bucket, key, &bytes).await {
                Ok(()) => *may_be = vec![Some(bytes)],
                Err(error) => {
                    if error.is_in_doubt() {
                        may_be.push(Some(bytes));
                    }
                    said.insert(error.to_string());
                }
            }
        } else {
            match get(&memory, &bucket, key).await {
                Ok(read) => assert!(may_be.contains(&read), "{key}: {:?}", read.map(|bytes| bytes.len())),
                Err(error) => {
                    said.insert(error.to_string());
                }
            }
        }
    }
    (known, said)
}

async fn survives_misfortune(
    proxy: &FaultProxy,
    (store, writes): (Arc<dyn Store>, Writes),
    plan: Plan,
    folder: &Path,
    name: &str,
) {
    let bucket = BucketName::new(name).unwrap();
    let tried = memory_with(Arc::clone(&store), folder, writes).await;
    let stop = CancellationToken::new();
    let persisting = tokio::spawn(tried.clone().persist(stop.clone()));
    tried.create_bucket(&who(), &bucket).await.unwrap();
    let (requests_before, faults_before) = proxy.counts();
    proxy.set_plan(plan);
    let began = Instant::now();
    let writers = (0..WRITERS).map(|n| tokio::spawn(write_and_read(tried.clone(), bucket.clone(), n)));
    let ended = futures::future::join_all(writers.collect::<Vec<_>>()).await;
    proxy.set_plan(Plan::default());
    let afresh = memory(store, folder).await;
    let mut said = BTreeSet::new();
    for writer in ended {
        let (known, errors) = writer.unwrap();
        said.extend(errors);
        for Known { key, may_be } in known {
            let given = get(&tried, &bucket, &key).await.unwrap();
            assert!(may_be.contains(&given), "{key}: {:?}", given.map(|bytes| bytes.len()));
            let waiting = Instant::now();
            let stored = loop {
                afresh.invalidate(&who(), &bucket, &key);
                let stored = get(&afresh, &bucket, &key).await.unwrap();
                // What was acknowledged by the journal comes when the store is well.
                if may_be.contains(&stored) || waiting.elapsed() > STORED_WITHIN {
                    break stored;
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            };
            assert!(may_be.contains(&stored), "{key}: {:?}", stored.map(|bytes| bytes.len()));
        }
    }
    stop.cancel();
    persisting.await.unwrap();
    let (requests, faults) = proxy.counts();
    let (requests, faults) = (requests - requests_before, faults - faults_before);
    println!("{name}: {requests} requests, {faults} faults, {} ms", began.elapsed().as_millis());
    assert!(faults > 20, "{faults} of {requests}");
    for error in said {
        println!("  {error}");
        let names_store = ["store s3: ", "store swift: "].iter().any(|store| error.starts_with(store));
        assert!(names_store || error.starts_with("busy: "), "{error}");
    }
}

/// How long hits take while every request to the store hangs, and what those say that need it.
async fn hits_while_the_store_hangs(proxy: &FaultProxy, store: Arc<dyn Store>, folder: &Path, name: &str) {
    let bucket = BucketName::new(name).unwrap();
    let memory = memory(store, folder).await;
    memory.create_bucket(&who(), &bucket).await.unwrap();
    let key = |n: usize| ObjectKey::new(&format!("hot/{n}")).unwrap();
    for n in 0..20 {
        put(&memory, &bucket, &key(n), &vec![n as u8; 16 << 10]).await.unwrap();
        get(&memory, &bucket, &key(n)).await.unwrap().unwrap();
    }
    proxy.set_plan(Plan { rules: vec![Rule::of_all(1.0, Fault::Hang)], ..Plan::default() });
    let misses: Vec<_> = (0..200)
        .map(|n| {
            let (memory, bucket) = (memory.clone(), bucket.clone());
            tokio::spawn(async move { get(&memory, &bucket, &ObjectKey::new(&format!("cold/{n}")).unwrap()).await })
        })
        .collect();
    let writing = {
        let (memory, bucket) = (memory.clone(), bucket.clone());
        tokio::spawn(async move { put(&memory, &bucket, &ObjectKey::new("new").unwrap(), b"new").await })
    };
    tokio::time::sleep(Duration::from_millis(100)).await;
    let mut took: Vec<Duration> = Vec::new();
    for n in 0..10_000 {
        let began = Instant::now();
        let bytes = get(&memory, &bucket, &key(n % 20)).await.unwrap().unwrap();
        took.push(began.elapsed());
        assert_eq!((bytes.len(), bytes[0]), (16 << 10, (n % 20) as u8));
    }
    took.sort_unstable();
    let at = |share: f64| took[(took.len() as f64 * share) as usize].as_micros();
    println!("{name}: hits while the store hangs: p50 {} us, p99 {} us", at(0.5), at(0.99));
    assert!(at(0.99) < 50_000, "a hit waits for nobody");
    let is_clear = |error: &str| error.contains("no answer within") || error.contains("are under way");
    for miss in misses {
        let error = miss.await.unwrap().unwrap_err().to_string();
        assert!(is_clear(&error), "{error}");
    }
    let error = writing.await.unwrap().unwrap_err().to_string();
    assert!(is_clear(&error), "{error}");
    proxy.set_plan(Plan::default());
    assert_eq!(get(&memory, &bucket, &ObjectKey::new("cold/1").unwrap()).await.unwrap(), None);
}

/// Requests that bring a token which is no longer good, in the middle of reading an object by its parts.
async fn tokens_end_in_the_middle(swift: &Swift, proxy: &FaultProxy, folder: &Path) {
    let store = SwiftStore::new(&natively(swift, &proxy.endpoint(), NetworkLimits::default())).unwrap();
    let memory = memory(Arc::new(store), folder).await;
    let (bucket, key) = (BucketName::new("tokens").unwrap(), ObjectKey::new("k").unwrap());
    memory.create_bucket(&who(), &bucket).await.unwrap();
    let bytes = vec![7; 3 * CACHED as usize];
    put(&memory, &bucket, &key, &bytes).await.unwrap();
    let (before, _) = proxy.counts();
    let half =
        Rule { lacks: "/auth/".to_owned(), ..Rule::of_all(0.5, Fault::Refuse { status: 401, retry_after_s: None }) };
    proxy.set_plan(Plan { seed: 1, rules: vec![half.of(Method::GET)], ..Plan::default() });
    let mut read = 0;
    for _ in 0..20 {
        match get(&memory, &bucket, &key).await {
            Ok(whole) => {
                assert_eq!(whole.as_ref(), Some(&bytes));
                read += 1;
            }
            // Refused twice in a row: what the new token brought was no better.
            Err(error) => assert!(error.to_string().contains("401"), "{error}"),
        }
    }
    let (after, _) = proxy.counts();
    println!("tokens: {read} of 20 reads, {} requests", after - before);
    assert!(read >= 10);
    proxy.set_plan(Plan::default());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bad_store_costs_errors_and_time_but_no_byte_and_no_acknowledged_write() {
    let folder = tempfile::tempdir().unwrap();
    let test = "a_bad_store_costs_errors_and_time_but_no_byte_and_no_acknowledged_write";
    let Some(swift) = start(test, folder.path()) else { return };
    let proxy = FaultProxy::start(swift.endpoint(), Plan::default()).await.unwrap();
    let limits = NetworkLimits {
        answer: Duration::from_secs(10),
        retry: RetryPolicy { attempts: 3, backoff: Duration::from_millis(20), backoff_max: Duration::from_secs(2) },
        ..NetworkLimits::default()
    };
    let s3 = RemoteStore::new(&by_s3(&swift, &proxy.endpoint(), limits)).unwrap();
    let through = || Writes::through(Epoch(1));
    survives_misfortune(&proxy, (Arc::new(s3), through()), misfortune(7), folder.path(), "by-s3").await;
    let native = SwiftStore::new(&natively(&swift, &proxy.endpoint(), limits)).unwrap();
    survives_misfortune(&proxy, (Arc::new(native), through()), misfortune(7), folder.path(), "by-swift").await;

    let limits = NetworkLimits {
        answer: Duration::from_secs(2),
        concurrency: 16,
        retry: RetryPolicy { attempts: 1, ..RetryPolicy::default() },
        ..NetworkLimits::default()
    };
    let s3 = RemoteStore::new(&by_s3(&swift, &proxy.endpoint(), limits)).unwrap();
    hits_while_the_store_hangs(&proxy, Arc::new(s3), folder.path(), "hits-s3").await;
    let native = SwiftStore::new(&natively(&swift, &proxy.endpoint(), limits)).unwrap();
    hits_while_the_store_hangs(&proxy, Arc::new(native), folder.path(), "hits-swift").await;

    tokens_end_in_the_middle(&swift, &proxy, folder.path()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bad_store_behind_the_journal_gets_every_acknowledged_write_and_its_last_one_stays() {
    let folder = tempfile::tempdir().unwrap();
    let test = "a_bad_store_behind_the_journal_gets_every_acknowledged_write_and_its_last_one_stays";
    let Some(swift) = start(test, folder.path()) else { return };
    let proxy = FaultProxy::start(swift.endpoint(), Plan::default()).await.unwrap();
    let limits = NetworkLimits {
        answer: Duration::from_secs(1),
        retry: RetryPolicy { attempts: 2, backoff: Duration::from_millis(20), backoff_max: Duration::from_millis(200) },
        ..NetworkLimits::default()
    };
    let plan = |seed| {
        let mut plan = misfortune(seed);
        // Silence beside all else: the push ends by its time-out, and nobody knows what came of it.
        plan.rules.push(Rule { lacks: "/auth/".to_owned(), ..Rule::of_all(0.03, Fault::Hang) });
        plan
    };
    let s3: Arc<dyn Store> = Arc::new(RemoteStore::new(&by_s3(&swift, &proxy.endpoint(), limits)).unwrap());
    let journal = lazily(&folder.path().join("journal-s3"));
    survives_misfortune(&proxy, (s3, journal), plan(11), folder.path(), "lazy-by-s3").await;
    let native: Arc<dyn Store> = Arc::new(SwiftStore::new(&natively(&swift, &proxy.endpoint(), limits)).unwrap());
    let journal = lazily(&folder.path().join("journal-swift"));
    survives_misfortune(&proxy, (native, journal), plan(13), folder.path(), "lazy-by-swift").await;
}
