//! Headers of real objects, in a real object memory, looked at by the real program.

#![expect(clippy::unwrap_used, reason = "tests: a broken expectation panics")]

#[path = "../../../tests/skipped.rs"]
mod skipped;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures::StreamExt as _;
use nigh_data::{Attributes, ObjectId, ObjectObserver, PutRequest, Tags, WriteConditions};
use nigh_engine::{LocalRegistry, Registry, StateFile};
use nigh_learn::media::{ObjectHead, Window};
use nigh_learn::{FeatureRow, FeatureValue};
use nigh_objects::{MemoryLimits, ObjectMemory, Writes};
use nigh_sizing::object_features::ObjectFeatures;
use nigh_sizing::object_features::frames::ParserMessage;
use nigh_sizing::object_features::parser_process::{ParserError, ParserProgram};
use nigh_sizing::object_features::recorder::FeatureRecorder;
use nigh_sizing::object_sizes::{FeaturesOrSize, ObjectSizes};
use nigh_stores::directory::DirectoryStore;
use nigh_terms::{BucketName, ByteSize, Clock, Epoch, Namespace, ObjectKey, Principal, SystemClock};
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

use self::skipped::skip;

/// How long a test waits for what must come, however busy the machine is.
const PATIENCE: Duration = Duration::from_secs(60);
/// Objects above this are not kept in memory.
const CACHED_OBJECT: ByteSize = ByteSize::kib(64);

/// The program, as a user of its own where this runs as root.
fn program() -> ParserProgram {
    let user = rustix::process::geteuid().is_root().then_some(2_000_032_768);
    ParserProgram { path: env!("CARGO_BIN_EXE_nigh-features").into(), user }
}

/// An object memory with a recorder beside it.
struct Place {
    folder: TempDir,
    memory: ObjectMemory,
    recorder: FeatureRecorder,
    features: FeaturesOrSize,
    stop: CancellationToken,
    running: tokio::task::JoinHandle<()>,
}

fn namespace(name: &str) -> Namespace {
    Namespace::new(name).unwrap()
}

fn bucket() -> BucketName {
    BucketName::new("bucket").unwrap()
}

fn object(name: &str, key: &str) -> ObjectId {
    ObjectId { namespace: namespace(name), bucket: bucket(), key: ObjectKey::new(key).unwrap() }
}

impl Place {
    async fn new(program: ParserProgram) -> Self {
        Self::on(tempfile::tempdir().unwrap(), program).await
    }

    async fn on(folder: TempDir, program: ParserProgram) -> Self {
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
        let state = StateFile::open(&folder.path().join("state.redb")).unwrap();
        let registry: Arc<dyn Registry> = Arc::new(LocalRegistry::new(state));
        let recorder = FeatureRecorder::open(registry, program, ByteSize::mib(1)).await.unwrap();
        let sizes = Arc::new(ObjectSizes::default());
        let observers =
            vec![Arc::new(recorder.clone()) as Arc<dyn ObjectObserver>, Arc::clone(&sizes) as Arc<dyn ObjectObserver>];
        let store = DirectoryStore::open(&folder.path().join("objects"), Arc::clone(&clock)).unwrap();
        let limits = MemoryLimits { cache: ByteSize::mib(8), cached_object: CACHED_OBJECT, object: ByteSize::mib(8) };
        let (writes, spool) = (Writes::through(Epoch(1)), folder.path().join("spool"));
        let memory = ObjectMemory::open(Arc::new(store), writes, clock, observers, spool, limits).await.unwrap();
        for tenant in ["one", "two"] {
            let _there_already = memory.create_bucket(&Principal::outside(namespace(tenant)), &bucket()).await;
        }
        let stop = CancellationToken::new();
        let running = tokio::spawn(recorder.clone().run(memory.clone(), stop.clone()));
        let features = FeaturesOrSize { recorder: Some(recorder.clone()), sizes };
        Self { folder, memory, recorder, features, stop, running }
    }

    /// The same place after a restart.
    async fn restarted(self) -> Self {
        self.stop.cancel();
        self.running.await.unwrap();
        drop((self.memory, self.recorder, self.features));
        Self::on(self.folder, program()).await
    }

    async fn put(&self, tenant: &str, key: &str, bytes: Vec<u8>) {
        let request = PutRequest {
            attributes: Attributes::default(),
            tags: Tags::new(),
            conditions: WriteConditions::default(),
            length: Some(bytes.len() as u64),
            body: futures::stream::iter([Ok(Bytes::from(bytes))]).boxed(),
            md5: None,
            checksum: None,
            request: None,
        };
        let who = Principal::outside(namespace(tenant));
        self.memory.put(&who, &bucket(), &ObjectKey::new(key).unwrap(), request).await.unwrap();
    }

    fn of(&self, tenant: &str, key: &str) -> Option<Arc<FeatureRow>> {
        self.features.of(&namespace(tenant), &bucket(), &ObjectKey::new(key).unwrap())
    }

    fn number(&self, tenant: &str, key: &str, name: &str) -> Option<f64> {
        match self.of(tenant, key)?.get(name)? {
            FeatureValue::Number(number) => Some(*number),
            FeatureValue::Word(_) => None,
        }
    }

    async fn until(&self, what: &str, holds: impl Fn(&Self) -> bool) {
        let begin = Instant::now();
        while !holds(self) {
            assert!(begin.elapsed() < PATIENCE, "waited too long for {what}: {:?}", self.recorder.status());
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

fn png(width: u32, height: u32) -> Vec<u8> {
    let mut bytes = b"\x89PNG\r\n\x1a\n\0\0\0\x0dIHDR".to_vec();
    bytes.extend(width.to_be_bytes());
    bytes.extend(height.to_be_bytes());
    bytes.extend(b"\x08\x02\0\0\0\0\0\0\0\0\0\0\x04IDATdata\0\0\0\0");
    bytes
}

/// A script that says that its walls stand, and then does `what`.
fn liar(folder: &Path, what: &str) -> ParserProgram {
    let path: PathBuf = folder.join("liar");
    let text = folder.join("liar.sh");
    // The length of the frame in octal digits, then the frame.
    std::fs::write(&text, format!("#!/bin/sh\nprintf '\\016\\000\\000\\000{{\"ready\":true}}'\n{what}\n")).unwrap();
    // By another process, of which no process that is forked here has the file open for writing.
    assert!(Command::new("install").args(["-m", "755"]).args([&text, &path]).status().unwrap().success());
    ParserProgram { path, user: None }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_stored_is_looked_at_and_known_until_it_changes_or_goes() {
    let place = Place::new(program()).await;
    place.put("one", "a.png", png(640, 480)).await;
    // At once, its size.
    assert!(place.number("one", "a.png", "input_size").is_some());
    place.until("a look", |place| place.number("one", "a.png", "in_width") == Some(640.0)).await;
    assert_eq!(place.number("one", "a.png", "input_size"), Some(png(0, 0).len() as f64));
    place.until("it is stored", |place| place.recorder.status().unstored == 0).await;
    assert_eq!(place.of("two", "a.png"), None, "another namespace knows nothing of it");
    place.put("two", "a.png", png(10, 10)).await;
    place.put("one", "a.png", png(800, 600)).await;
    assert_ne!(place.number("one", "a.png", "in_width"), Some(640.0), "never of an older version");
    place
        .until("further looks", |place| {
            place.number("one", "a.png", "in_width") == Some(800.0)
                && place.number("two", "a.png", "in_width") == Some(10.0)
        })
        .await;
    place.put("one", "b.csv", b"a,b,c\n1,2,3\n".repeat(2000)).await;
    place.put("one", "noise", (0..50_000_u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect()).await;
    place.until("a table", |place| place.number("one", "b.csv", "in_fields") == Some(3.0)).await;
    place.until("all looks", |place| place.recorder.status().waiting == 0).await;
    assert_eq!(place.recorder.status().failed, 0);
    let who = Principal::outside(namespace("two"));
    let key = ObjectKey::new("a.png").unwrap();
    place.memory.delete(&who, &bucket(), &key, WriteConditions::default(), None).await.unwrap();
    assert_eq!(place.of("two", "a.png"), None);
    // The registry has it.
    let place = place.restarted().await;
    assert_eq!(place.number("one", "a.png", "in_width"), Some(800.0));
    assert_eq!(place.number("one", "b.csv", "in_fields"), Some(3.0));
    assert_eq!(place.of("two", "a.png"), None);
    assert_eq!(place.of("one", "noise"), None, "its size alone is not worth a document");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_in_memory_is_looked_at_only_where_somebody_waits_for_it() {
    let place = Place::new(program()).await;
    let mut large = png(1024, 768);
    large.resize(200_000, 0);
    place.put("one", "large.png", large).await;
    place.put("one", "small.png", png(1, 1)).await;
    place.until("the small one", |place| place.number("one", "small.png", "in_width") == Some(1.0)).await;
    assert_eq!(place.recorder.recorded(&object("one", "large.png")), None);
    assert_eq!(place.number("one", "large.png", "input_size"), Some(200_000.0), "its size is known in any case");
    assert!(place.recorder.await_looks(&[object("one", "large.png")], PATIENCE).await);
    assert_eq!(place.number("one", "large.png", "in_width"), Some(1024.0));
    let absent = [object("one", "absent")];
    assert!(!place.recorder.await_looks(&absent, Duration::from_millis(20)).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_look_makes_no_copy_more_recent_and_is_told_to_nobody() {
    let place = Place::new(program()).await;
    place.put("one", "a.png", png(5, 5)).await;
    place.until("a look", |place| place.number("one", "a.png", "in_width") == Some(5.0)).await;
    let usage = place.memory.usage();
    assert_eq!((usage.hits, usage.misses, usage.past), (0, 0, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_parser_that_hangs_dies_or_lies_costs_what_it_knew_of_its_own_objects() {
    let folder = tempfile::tempdir().unwrap();
    for what in ["exec sleep 1000", "exit 1", "head -c 4 >/dev/null; printf '\\377\\377\\377\\177'", "printf 'xx'"] {
        let place = Place::new(liar(folder.path(), what)).await;
        place.put("one", "a.png", png(5, 5)).await;
        place.until(what, |place| place.recorder.status().failed == 1).await;
        place.until(what, |place| place.recorder.recorded(&object("one", "a.png")).is_some()).await;
        assert_eq!(place.number("one", "a.png", "in_width"), None, "{what}");
        assert!(place.number("one", "a.png", "input_size").is_some(), "{what}");
        place.stop.cancel();
        place.running.await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_process_that_reads_headers_can_open_no_file_and_no_socket_and_start_nothing() {
    if let Err(reason) = nigh_sandbox::sandbox::seccomp_profile::available() {
        let test = "the_process_that_reads_headers_can_open_no_file_and_no_socket_and_start_nothing";
        return skip(test, reason);
    }
    // It tries each behind its walls.
    program().check().await.unwrap();
    // And the kernel says so of one that serves.
    let mut process = program().start().await.unwrap();
    let status = std::fs::read_to_string(format!("/proc/{}/status", process.id().unwrap())).unwrap();
    for line in ["Seccomp:\t2", "NoNewPrivs:\t1", "CapEff:\t0000000000000000", "Threads:\t1"] {
        assert!(status.lines().any(|has| has == line), "{line:?} is not in {status}");
    }
    let table = b"a,b\n1,2\n";
    let windows = [Window { from: 0, bytes: table }];
    let head = ObjectHead { size: table.len() as u64, windows: &windows, name: "t.csv", content_type: "" };
    assert!(matches!(process.look(&head).await, Ok(ParserMessage::Looked { .. })));
}

#[tokio::test]
async fn a_program_that_is_missing_or_no_parser_is_named() {
    let missing = ParserProgram { path: "/absent/nigh-features".into(), user: None };
    let error = missing.check().await.unwrap_err().to_string();
    assert!(error.contains("/absent/nigh-features") && error.contains("make install"), "{error}");
    let other = ParserProgram { path: "/bin/true".into(), user: None };
    assert!(matches!(other.check().await, Err(ParserError::Start { .. })));
    assert!(matches!(other.start().await, Err(ParserError::Start { .. })));
}
