//! Writes that the store gets later: an acknowledged write is visible, survives, and reaches the store in order.

use nigh_data::ObjectId;
use nigh_engine::{Journal, JournalSettings, LocalRegistry, Registry, RequestId, StateFile};
use nigh_terms::{Clock, SystemClock};
use tokio_util::sync::CancellationToken;

use super::*;
use crate::{BucketPolicy, EntityTag, ModeRule, WriteMode, WriteSettings};

pub(super) struct LazyBench {
    pub(super) store: Arc<GatedStore>,
    pub(super) memory: ObjectMemory,
    pub(super) journal: Arc<Journal>,
    pub(super) who: Principal,
    pub(super) bucket: BucketName,
    folder: tempfile::TempDir,
    clock: Arc<dyn Clock>,
    pub(super) stop: CancellationToken,
}

pub(super) fn settings() -> WriteSettings {
    WriteSettings {
        delay: Duration::from_millis(20),
        back_off: Duration::from_millis(20),
        wait: Duration::from_millis(300),
        ..WriteSettings::default()
    }
}

async fn open_lazy(
    store: &Arc<GatedStore>,
    folder: &std::path::Path,
    settings: WriteSettings,
    (is_damaged, may_lack_writes): (impl Fn(&str) -> bool, bool),
    clock: &Arc<dyn Clock>,
) -> (ObjectMemory, Arc<Journal>) {
    let journal =
        JournalSettings { limit: ByteSize::mib(64), segment: ByteSize::mib(16), ..JournalSettings::default() };
    let (journal, recovered) = Journal::open(&folder.join("journal"), &journal).unwrap();
    let journal = Arc::new(journal);
    let (lost, whole) = recovered.records.into_iter().partition(|one| is_damaged(one.record.key.as_str()));
    let registry: Arc<dyn Registry> =
        Arc::new(LocalRegistry::new(StateFile::open(&folder.join("state.redb")).unwrap()));
    let writes = Writes {
        ledger: Arc::clone(&journal) as Arc<dyn nigh_engine::Ledger>,
        recovered: whole,
        lost,
        may_lack_writes,
        settings,
        registry: Some(registry),
    };
    let limits =
        MemoryLimits { cache: ByteSize::mib(4), cached_object: ByteSize(CACHED as u64), object: ByteSize::mib(32) };
    let store = Arc::clone(store) as Arc<dyn nigh_stores::Store>;
    let memory =
        ObjectMemory::open(store, writes, Arc::clone(clock), Vec::new(), folder.join("spool"), limits).await.unwrap();
    (memory, journal)
}

impl LazyBench {
    pub(super) async fn new() -> Self {
        Self::with(settings()).await
    }

    pub(super) async fn with(settings: WriteSettings) -> Self {
        Self::by(Arc::new(SystemClock::new()), settings).await
    }

    /// A bench whose time is that of `clock`.
    pub(super) async fn by(clock: Arc<dyn Clock>, settings: WriteSettings) -> Self {
        let (store, folder) = (Arc::new(GatedStore::default()), tempfile::tempdir().unwrap());
        let (memory, journal) = open_lazy(&store, folder.path(), settings, (|_: &str| false, false), &clock).await;
        let who = Principal::outside(Namespace::new("tenant").unwrap());
        let bucket = BucketName::new("bucket").unwrap();
        memory.create_bucket(&who, &bucket).await.unwrap();
        Self { store, memory, journal, who, bucket, folder, clock, stop: CancellationToken::new() }
    }

    /// As after `kill -9`: nothing is ended, and all memory is gone.
    pub(super) async fn restarted(self) -> Self {
        self.restarted_with(|_| false, false).await
    }

    /// As after a crash that has damaged in the journal what `is_damaged` names, or what nobody can name.
    pub(super) async fn restarted_with(self, is_damaged: impl Fn(&str) -> bool, may_lack_writes: bool) -> Self {
        let Self { store, memory, journal, who, bucket, folder, clock, .. } = self;
        // A task that has just answered may hold the memory for a moment longer.
        drop(memory);
        while Arc::strong_count(&journal) > 1 {
            tokio::task::yield_now().await;
        }
        drop(journal);
        let (memory, journal) =
            open_lazy(&store, folder.path(), settings(), (is_damaged, may_lack_writes), &clock).await;
        Self { store, memory, journal, who, bucket, folder, clock, stop: CancellationToken::new() }
    }

    pub(super) fn persist(&self) -> tokio::task::JoinHandle<()> {
        tokio::spawn(self.memory.clone().persist(self.stop.clone()))
    }

    pub(super) async fn put_with(&self, name: &str, request: PutRequest) -> Result<PutDone, ObjectError> {
        self.memory.put(&self.who, &self.bucket, &key(name), request).await
    }

    pub(super) async fn put(&self, name: &str, bytes: &[u8]) -> PutDone {
        self.put_with(name, body(bytes)).await.unwrap()
    }

    pub(super) async fn get(&self, name: &str) -> Result<Vec<u8>, ObjectError> {
        bytes_of(self.memory.get(&self.who, &self.bucket, &key(name), GetRequest::default()).await?).await
    }

    pub(super) async fn delete(&self, name: &str) {
        self.memory.delete(&self.who, &self.bucket, &key(name), WriteConditions::default(), None).await.unwrap();
    }

    pub(super) async fn names(&self) -> Vec<String> {
        let request = ListRequest { limit: 1000, ..ListRequest::default() };
        let page = self.memory.list(&self.who, &self.bucket, request).await.unwrap();
        page.objects.iter().map(|listed| listed.key.as_str().to_owned()).collect()
    }

    pub(super) async fn policy(&self, policy: BucketPolicy) -> Result<(), ObjectError> {
        self.memory.set_bucket_policy(&self.who, &self.bucket, policy).await
    }

    pub(super) fn stop(&self) {
        self.stop.cancel();
    }

    pub(super) fn id(&self, name: &str) -> ObjectId {
        ObjectId { namespace: self.who.namespace.clone(), bucket: self.bucket.clone(), key: key(name) }
    }

    pub(super) fn stored(&self, name: &str) -> Option<Vec<u8>> {
        self.store.holds(&self.id(name)).map(|bytes| bytes.to_vec())
    }

    /// Waits until nothing is unpushed.
    pub(super) async fn settled(&self) {
        for _ in 0..500 {
            if self.memory.dirty().objects == 0 && self.journal.usage().records == 0 {
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        panic!("{:?} {:?}", self.memory.dirty(), self.journal.usage());
    }
}

#[tokio::test]
async fn an_acknowledged_write_is_seen_before_the_store_has_it_and_comes_there_later() {
    let l = LazyBench::new().await;
    for (name, size) in [("small", 10), ("large", CACHED), ("empty", 0)] {
        let bytes: Vec<u8> = (0..size).map(|n| n as u8).collect();
        let done = l.put(name, &bytes).await;
        assert_eq!(l.get(name).await.unwrap(), bytes);
        let meta = l.memory.head(&l.who, &l.bucket, &key(name), GetRequest::default()).await.unwrap();
        assert_eq!((meta.size, meta.version), (size as u64, done.version));
        assert_eq!(l.stored(name), None);
    }
    assert_eq!(l.names().await, ["empty", "large", "small"]);
    assert_eq!(l.memory.dirty().objects, 3);
    let persisting = l.persist();
    l.settled().await;
    assert_eq!(l.stored("large").unwrap().len(), CACHED);
    assert_eq!(l.names().await, ["empty", "large", "small"]);
    l.stop.cancel();
    persisting.await.unwrap();
}

#[tokio::test]
async fn what_was_acknowledged_is_there_after_a_crash_and_is_pushed_then() {
    let l = LazyBench::new().await;
    let large = vec![7; CACHED];
    l.put("a", b"old").await;
    l.put("a", b"new").await;
    l.put("b", &large).await;
    l.put("gone", b"x").await;
    l.delete("gone").await;
    let l = l.restarted().await;
    assert_eq!((l.get("a").await.unwrap(), l.get("b").await.unwrap()), (b"new".to_vec(), large));
    assert!(matches!(l.get("gone").await, Err(ObjectError::NoSuchKey(_))));
    assert_eq!(l.names().await, ["a", "b"]);
    let persisting = l.persist();
    l.memory.flush(&l.who, &l.bucket, &key("a")).await.unwrap();
    l.memory.flush(&l.who, &l.bucket, &key("b")).await.unwrap();
    assert_eq!(l.stored("a"), Some(b"new".to_vec()));
    assert_eq!(l.memory.dirty().objects, 3, "a push of the earlier life may land: they are looked after");
    l.stop.cancel();
    persisting.await.unwrap();
}

#[tokio::test]
async fn of_writes_that_follow_each_other_the_store_gets_the_last() {
    let l = LazyBench::new().await;
    for n in 0..20u8 {
        l.put("a", &[n]).await;
    }
    let persisting = l.persist();
    l.settled().await;
    assert_eq!((l.stored("a"), l.store.puts.load(Ordering::SeqCst)), (Some(vec![19]), 1));
    l.stop.cancel();
    persisting.await.unwrap();
}

#[tokio::test]
async fn a_deletion_hides_the_object_until_the_store_has_deleted_it() {
    let l = LazyBench::new().await;
    let persisting = l.persist();
    l.put("a", b"x").await;
    l.put("b", b"x").await;
    l.settled().await;
    let gate = l.store.close(Point::DeleteDone);
    l.delete("a").await;
    assert!(matches!(l.get("a").await, Err(ObjectError::NoSuchKey(_))));
    assert_eq!(l.names().await, ["b"]);
    gate.arrival().await;
    gate.let_one_on();
    l.settled().await;
    assert_eq!((l.stored("a"), l.names().await), (None, vec!["b".to_owned()]));
    let refused = l.memory.delete_bucket(&l.who, &l.bucket).await;
    assert!(matches!(refused, Err(ObjectError::BucketNotEmpty(_))));
    l.store.open(Point::DeleteDone);
    l.delete("b").await;
    l.memory.delete_bucket(&l.who, &l.bucket).await.unwrap();
    l.stop.cancel();
    persisting.await.unwrap();
}

#[tokio::test]
async fn a_request_that_is_repeated_is_one_write_also_after_a_restart() {
    let l = LazyBench::new().await;
    let named = |bytes: &[u8]| PutRequest { request: Some(RequestId(7)), ..body(bytes) };
    let first = l.put_with("a", named(b"one")).await.unwrap();
    l.put("a", b"two").await;
    let again = l.put_with("a", named(b"one")).await.unwrap();
    assert_eq!((again.version, l.get("a").await.unwrap()), (first.version, b"two".to_vec()));
    let l = l.restarted().await;
    let again = l.put_with("a", named(b"one")).await.unwrap();
    assert_eq!((again.version, l.get("a").await.unwrap()), (first.version, b"two".to_vec()));
}

#[tokio::test]
async fn a_store_that_fails_delays_pushes_and_loses_nothing() {
    let l = LazyBench::new().await;
    // The next try looks first and finds the write there; only the attempt stays recorded.
    l.store.lose_puts.store(true, Ordering::SeqCst);
    let persisting = l.persist();
    l.put("a", b"one").await;
    // The failure shows only for a moment: the next try finds what the first has left.
    until(|| l.store.puts.load(Ordering::SeqCst) > 0).await;
    l.put("a", b"two").await;
    assert_eq!(l.get("a").await.unwrap(), b"two");
    l.store.lose_puts.store(false, Ordering::SeqCst);
    until(|| l.stored("a") == Some(b"two".to_vec())).await;
    l.stop.cancel();
    persisting.await.unwrap();
}

#[tokio::test]
async fn what_waits_is_bounded_and_a_write_beyond_it_is_refused() {
    let l = LazyBench::with(WriteSettings { dirty_max: ByteSize(100), ..settings() }).await;
    l.put("a", &[0; 60]).await;
    let refused = l.put_with("b", body(&[0; 60])).await;
    assert!(matches!(refused, Err(ObjectError::SlowDown(_))), "{refused:?}");
    assert_eq!(l.names().await, ["a"]);
    let persisting = l.persist();
    l.put("b", &[0; 60]).await;
    l.stop.cancel();
    persisting.await.unwrap();
}

#[tokio::test]
async fn modes_follow_the_policy_of_the_bucket() {
    let l = LazyBench::new().await;
    let rule = |prefix: &str, mode| ModeRule { prefix: prefix.to_owned(), tag: None, mode };
    let rules = vec![rule("through/", WriteMode::Through), rule("scratch/", WriteMode::Ephemeral)];
    l.policy(BucketPolicy { rules, ..BucketPolicy::default() }).await.unwrap();
    l.put("through/a", b"x").await;
    assert_eq!(l.stored("through/a"), Some(b"x".to_vec()));
    l.put("scratch/a", b"y").await;
    assert_eq!(l.get("scratch/a").await.unwrap(), b"y");
    until(|| l.journal.usage().records == 1).await;
    assert_eq!((l.memory.dirty().ephemeral, l.stored("scratch/a")), (1, None), "the journal knows that it was there");
    let shadow = BucketPolicy { mode: Some(WriteMode::Shadow), ..BucketPolicy::default() };
    assert!(matches!(l.policy(shadow).await, Err(ObjectError::InvalidArgument(_))));
    // The object's memory is needed elsewhere.
    l.memory.set_cache_budget(ByteSize(0));
    assert!(matches!(l.get("scratch/a").await, Err(ObjectError::EphemeralLost(_))));
}

#[tokio::test]
async fn entity_tags_follow_the_policy_of_the_bucket() {
    let l = LazyBench::new().await;
    let md5 = l.put("a", b"x").await.etag;
    assert_eq!(md5.0, "9dd4e461268c8034f5c8564e155c67a6");
    l.policy(BucketPolicy { etag: Some(EntityTag::Composite), ..BucketPolicy::default() }).await.unwrap();
    assert_eq!(l.put("a", b"x").await.etag.0, "2d711642b726b04401627ca9fbac32f5-1");
    l.policy(BucketPolicy::default()).await.unwrap();
    assert_eq!(l.put("a", b"x").await.etag, md5);
}

#[tokio::test]
async fn an_ephemeral_object_whose_memory_was_needed_gives_its_room_among_what_waits_back() {
    let l = LazyBench::with(WriteSettings { dirty_max: ByteSize::kib(100), ..settings() }).await;
    let rules = vec![ModeRule { prefix: "scratch/".to_owned(), tag: None, mode: WriteMode::Ephemeral }];
    l.policy(BucketPolicy { rules, ..BucketPolicy::default() }).await.unwrap();
    let bytes = vec![7; 80 << 10];
    l.put("scratch/a", &bytes).await;
    let more = l.memory.put(&l.who, &l.bucket, &key("scratch/b"), body(&bytes)).await;
    assert!(matches!(more, Err(ObjectError::SlowDown(_))), "{more:?}");
    l.memory.shrink(ByteSize::mib(4));
    let dirty = l.memory.dirty();
    assert_eq!((dirty.ephemeral, dirty.lost, dirty.bytes), (1, 1, 0));
    l.put("scratch/b", &bytes).await;
    assert_eq!(l.get("scratch/b").await.unwrap(), bytes);
    assert!(matches!(l.get("scratch/a").await, Err(ObjectError::EphemeralLost(_))));
    // An outside write may have changed it: the copy is gone, and readers are told so.
    l.memory.invalidate(&l.who, &l.bucket, &key("scratch/b"));
    assert!(matches!(l.get("scratch/b").await, Err(ObjectError::EphemeralLost(_))));
    assert_eq!(l.memory.dirty().bytes, 0);
    l.put("scratch/a", b"anew").await;
    assert_eq!(l.get("scratch/a").await.unwrap(), b"anew");
    assert_eq!((l.memory.dirty().ephemeral, l.memory.dirty().lost), (2, 1));
}

#[tokio::test]
async fn a_write_through_an_object_that_waits_is_the_newest_also_after_a_crash() {
    let l = LazyBench::new().await;
    let persisting = l.persist();
    l.put("a", b"lazy").await;
    l.policy(BucketPolicy { mode: Some(WriteMode::Through), ..BucketPolicy::default() }).await.unwrap();
    l.put("a", b"through").await;
    assert_eq!(l.stored("a"), Some(b"through".to_vec()));
    l.settled().await;
    l.put("a", b"last").await;
    assert_eq!(l.stored("a"), Some(b"last".to_vec()));
    l.stop.cancel();
    persisting.await.unwrap();
    let l = l.restarted().await;
    assert_eq!((l.memory.dirty().objects, l.get("a").await.unwrap()), (0, b"last".to_vec()));
}

#[tokio::test]
async fn a_write_too_large_for_the_journal_goes_to_the_store_when_what_waits_before_it_is_there() {
    let l = LazyBench::new().await;
    let large = vec![3; CACHED + 1];
    l.put("a", b"small").await;
    let refused = l.put_with("a", body(&large)).await;
    assert!(matches!(refused, Err(ObjectError::SlowDown(_))), "nobody pushes: {refused:?}");
    assert_eq!(l.get("a").await.unwrap(), b"small");
    let persisting = l.persist();
    // One push without an answer may land late, so the object is watched.
    l.store.lose_puts.store(true, Ordering::SeqCst);
    until(|| l.store.puts.load(Ordering::SeqCst) > 0).await;
    l.store.lose_puts.store(false, Ordering::SeqCst);
    let commits = l.journal.usage().commits;
    l.put("a", &large).await;
    assert_eq!((l.stored("a"), l.memory.dirty().objects), (Some(large.clone()), 0));
    assert_eq!(l.journal.usage().commits, commits, "it went past the journal");
    l.stop.cancel();
    persisting.await.unwrap();
    let l = l.restarted().await;
    assert_eq!((l.get("a").await.unwrap(), l.memory.dirty().objects), (large, 0));
}

#[tokio::test]
async fn a_deletion_follows_the_mode_of_the_tags_that_the_object_has() {
    let l = LazyBench::new().await;
    let tag = ("keep".to_owned(), "yes".to_owned());
    let rules = vec![ModeRule { prefix: String::new(), tag: Some(tag.clone()), mode: WriteMode::Through }];
    l.policy(BucketPolicy { rules, ..BucketPolicy::default() }).await.unwrap();
    l.put_with("a", PutRequest { tags: [tag].into(), ..body(b"x") }).await.unwrap();
    assert_eq!(l.stored("a"), Some(b"x".to_vec()));
    l.delete("a").await;
    assert_eq!((l.stored("a"), l.memory.dirty().objects), (None, 0), "nobody pushes: the store was asked at once");
    l.put("b", b"x").await;
    l.delete("b").await;
    assert_eq!(l.memory.dirty().objects, 1);
}

#[tokio::test]
async fn writes_that_come_together_do_not_take_more_room_than_there_is() {
    let l = LazyBench::with(WriteSettings { dirty_max: ByteSize(100), ..settings() }).await;
    let mut puts = tokio::task::JoinSet::new();
    for n in 0..20 {
        let (memory, who, bucket) = (l.memory.clone(), l.who.clone(), l.bucket.clone());
        puts.spawn(async move { memory.put(&who, &bucket, &key(&n.to_string()), body(&[0; 30])).await });
    }
    let done = puts.join_all().await.into_iter().filter(Result::is_ok).count();
    assert_eq!((done, l.memory.dirty().bytes), (3, 90));
}

#[tokio::test]
async fn tags_of_an_object_that_waits_are_changed_with_it() {
    let l = LazyBench::new().await;
    l.put("a", b"bytes").await;
    let tags: Tags = [("k".to_owned(), "v".to_owned())].into();
    l.memory.put_tags(&l.who, &l.bucket, &key("a"), tags.clone()).await.unwrap();
    let l = l.restarted().await;
    assert_eq!(l.memory.get_tags(&l.who, &l.bucket, &key("a")).await.unwrap(), tags);
    assert_eq!(l.get("a").await.unwrap(), b"bytes");
}
