//! Runs of schedules by two nodes that compete for each, over one registry whose answers are lost or refused, while one
//! node after the other is killed. What a run does is done by the test; queue, disk, registry and runner are real.

#![expect(clippy::unwrap_used, reason = "what fails here fails the test, where it stands")]

use std::collections::BTreeMap;
use std::io::{Cursor, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use bytes::Bytes;
use nigh_data::ObjectError;
use nigh_engine::{
    LocalRegistry, Outbox, Registry, RegistryChange, RegistryDocument, RegistryError, Revision, StateFile,
};
use nigh_functions::function::Runtime as FunctionRuntime;
use nigh_functions::function_store::{FunctionLimits, FunctionSettings, FunctionStore, NewFunction};
use nigh_functions::schedule::{ScheduleName, ScheduleSettings, ScheduleTimes};
use nigh_functions::schedule_store::{SCHEDULES_TABLE, ScheduleKey};
use nigh_invoke::event_invoker::{EventInvoker, EventParts, RecordBuckets};
use nigh_invoke::invocation::{InvocationResult, Invoke, InvokeError, InvokeRequest, RunTimes};
use nigh_invoke::schedule_runner::{Alone, ScheduleRunner, ScheduleRunnerParts};
use nigh_schedule::event_queue::QueueLimits;
use nigh_terms::{
    BucketName, Clock, FunctionName, InvocationId, Monotonic, Namespace, NodeId, ObjectKey, Principal, Timestamp, Token,
};
use parking_lot::Mutex;
use tokio::runtime::Runtime;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

const MINUTE: u64 = 60_000;
const BEGIN: Timestamp = Timestamp(1_767_225_600_000);
const PATIENCE: Duration = Duration::from_secs(60);
const SCHEDULES: usize = 12;
/// Minutes at which all schedules are due.
const ROUNDS: usize = 10;

/// A clock that the test moves on.
struct SteppedClock {
    origin: Instant,
    offset_ms: AtomicU64,
}

impl SteppedClock {
    fn millis(&self) -> u64 {
        self.origin.elapsed().as_millis() as u64 + self.offset_ms.load(Ordering::SeqCst)
    }

    /// The minutes that have passed.
    fn minutes(&self) -> u64 {
        self.millis() / MINUTE
    }

    /// From now on so many minutes have passed, if it was fewer.
    fn go_to(&self, minutes: u64) {
        let missing = (minutes * MINUTE).saturating_sub(self.millis());
        self.offset_ms.fetch_add(missing, Ordering::SeqCst);
    }
}

impl Clock for SteppedClock {
    fn monotonic(&self) -> Monotonic {
        Monotonic(self.millis() * 1_000_000)
    }

    fn wall(&self) -> Timestamp {
        Timestamp(BEGIN.0 + self.millis())
    }
}

/// A registry that is late, refuses some writes, and loses the answers to others, while `faulty`.
struct FaultyRegistry {
    below: LocalRegistry,
    faulty: AtomicBool,
    count: AtomicU64,
}

impl FaultyRegistry {
    /// A number that looks like chance.
    fn chance(&self) -> u64 {
        let mut mixed = self.count.fetch_add(1, Ordering::Relaxed).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        mixed ^= mixed >> 29;
        mixed.wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 40
    }
}

#[async_trait]
impl Registry for FaultyRegistry {
    async fn get(&self, table: &str, key: &str) -> Result<Option<RegistryDocument>, RegistryError> {
        self.below.get(table, key).await
    }

    async fn list(&self, table: &str, prefix: &str) -> Result<Vec<(String, RegistryDocument)>, RegistryError> {
        self.below.list(table, prefix).await
    }

    async fn keys(&self, table: &str, prefix: &str) -> Result<Vec<String>, RegistryError> {
        self.below.keys(table, prefix).await
    }

    async fn put(
        &self,
        table: &str,
        key: &str,
        value: Vec<u8>,
        expected: Option<Revision>,
    ) -> Result<Revision, RegistryError> {
        let fault =
            if table == SCHEDULES_TABLE && self.faulty.load(Ordering::Relaxed) { self.chance() % 100 } else { 100 };
        let lost = || RegistryError::Storage("the server does not answer".to_owned());
        tokio::time::sleep(Duration::from_millis(fault % 10)).await;
        if fault < 15 {
            return Err(lost());
        }
        let written = self.below.put(table, key, value, expected).await;
        if fault < 30 { Err(lost()) } else { written }
    }

    async fn delete(&self, table: &str, key: &str, expected: Revision) -> Result<(), RegistryError> {
        self.below.delete(table, key, expected).await
    }

    async fn apply(&self, table: &str, changes: Vec<(String, Option<Vec<u8>>)>) -> Result<(), RegistryError> {
        self.below.apply(table, changes).await
    }

    async fn watch(&self, table: &str) -> Result<mpsc::Receiver<RegistryChange>, RegistryError> {
        self.below.watch(table).await
    }
}

/// Where a run began: the node, and which life of it.
type Begun = (String, usize);

/// What has begun, by whichever node.
#[derive(Default)]
struct Runs(Mutex<BTreeMap<InvocationId, Vec<Begun>>>);

/// Notes what runs here.
struct Notes {
    node: String,
    life: usize,
    runs: Arc<Runs>,
}

#[async_trait]
impl Invoke for Notes {
    async fn invoke(&self, _: &Principal, request: InvokeRequest) -> Result<InvocationResult, InvokeError> {
        let id = request.event.unwrap().id;
        self.runs.0.lock().entry(id).or_default().push((self.node.clone(), self.life));
        Ok(InvocationResult {
            id,
            payload: Bytes::from_static(b"null"),
            function_error: None,
            log: Vec::new(),
            run: RunTimes::default(),
            token: Token::empty(),
            touched: Vec::new(),
        })
    }

    fn seen(&self, _: &Principal) -> Token {
        Token::empty()
    }

    fn set_reserved(&self, _: &Namespace, _: &FunctionName, _: Option<usize>) {}
}

struct NoBuckets;

#[async_trait]
impl RecordBuckets for NoBuckets {
    async fn put(&self, _: &Namespace, bucket: &BucketName, _: &ObjectKey, _: Bytes) -> Result<(), ObjectError> {
        Err(ObjectError::NoSuchBucket(bucket.clone()))
    }
}

/// What nodes share.
struct Shared {
    folder: PathBuf,
    registry: Arc<FaultyRegistry>,
    clock: Arc<SteppedClock>,
    runs: Arc<Runs>,
}

/// A life of a node.
struct Life {
    runtime: Runtime,
    functions: FunctionStore,
    events: EventInvoker,
}

/// Opens what the life before may still have open for a moment.
fn state_file(path: &Path) -> StateFile {
    let begun = Instant::now();
    loop {
        match StateFile::open(path) {
            Ok(state) => return state,
            Err(error) => assert!(begun.elapsed() < PATIENCE, "{error}"),
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

impl Life {
    fn begin(shared: &Shared, node: &str, life: usize) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let (functions, events) = runtime.block_on(async {
            let registry = Arc::clone(&shared.registry) as Arc<dyn Registry>;
            let clock = Arc::clone(&shared.clock) as Arc<dyn Clock>;
            let root = shared.folder.join(format!("functions-{node}"));
            let functions =
                FunctionStore::open(registry, &root, Arc::clone(&clock), FunctionLimits::default()).await.unwrap();
            functions.follow().await.unwrap();
            let invoke = Notes { node: node.to_owned(), life, runs: Arc::clone(&shared.runs) };
            let parts = EventParts {
                functions: functions.clone(),
                invoke: Arc::new(invoke),
                outbox: Outbox::open(state_file(&shared.folder.join(node))).unwrap(),
                records: Arc::new(NoBuckets),
                clock: Arc::clone(&clock),
                region: "us-east-1".to_owned(),
            };
            let events = EventInvoker::open(parts, QueueLimits::default()).await.unwrap();
            let runner = ScheduleRunnerParts {
                functions: functions.clone(),
                events: events.clone(),
                leader: Arc::new(Alone),
                clock,
                node: NodeId(node.to_owned()),
                region: "us-east-1".to_owned(),
            };
            tokio::spawn(ScheduleRunner::new(runner, CancellationToken::new()).run());
            (functions, events)
        });
        Self { runtime, functions, events }
    }

    /// Ends it without a word.
    fn kill(self) {
        let Self { runtime, functions, events } = self;
        drop((functions, events));
        runtime.shutdown_background();
    }
}

fn archive() -> Bytes {
    let mut zip = zip::ZipWriter::new(Cursor::new(Vec::new()));
    zip.start_file("bootstrap", zip::write::SimpleFileOptions::default()).unwrap();
    zip.write_all(b"x").unwrap();
    zip.finish().unwrap().into_inner().into()
}

fn new_function(name: &str) -> NewFunction {
    NewFunction {
        name: FunctionName::new(name).unwrap(),
        runtime: (FunctionRuntime::Provided, "provided".to_owned()),
        handler: "h".to_owned(),
        settings: FunctionSettings::default(),
        tags: BTreeMap::new(),
    }
}

fn key(number: usize) -> ScheduleKey {
    ScheduleKey {
        namespace: Namespace::new("tenant").unwrap(),
        name: ScheduleName::new(&format!("s{number}")).unwrap(),
    }
}

/// Due at every minute from the first one on.
fn settings() -> ScheduleSettings {
    ScheduleSettings {
        times: ScheduleTimes {
            expression: "rate(1 minute)".to_owned(),
            time_zone: "UTC".to_owned(),
            start: Some(Timestamp(BEGIN.0 + MINUTE)),
            end: None,
        },
        function: FunctionName::new("f").unwrap(),
        target_arn: String::new(),
        role: String::new(),
        input: Some("{}".to_owned()),
        run_age_s: None,
        retries: None,
        window_minutes: None,
        enabled: true,
        delete_after: false,
        description: None,
    }
}

/// Waits until `holds`.
fn wait_for(what: &str, mut holds: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < PATIENCE, "waited too long for {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Whether the last run of all schedules is the one of this minute, as the registry says.
fn all_are_at(life: &Life, minute: u64) -> bool {
    let due = Timestamp(BEGIN.0 + minute * MINUTE);
    life.runtime.block_on(async {
        for number in 0..SCHEDULES {
            let found = life.functions.schedules().read(&key(number)).await.unwrap().unwrap();
            if found.schedule.progress.last < Some(due) {
                return false;
            }
        }
        true
    })
}

#[test]
fn no_scheduled_run_is_lost_or_doubled_while_nodes_compete_and_are_killed_and_the_registry_loses_answers() {
    let folder = tempfile::tempdir().unwrap();
    let registry = LocalRegistry::new(StateFile::open(&folder.path().join("registry")).unwrap());
    let registry = FaultyRegistry { below: registry, faulty: AtomicBool::new(false), count: AtomicU64::new(1) };
    let shared = Shared {
        folder: folder.path().to_owned(),
        registry: Arc::new(registry),
        clock: Arc::new(SteppedClock { origin: Instant::now(), offset_ms: AtomicU64::new(0) }),
        runs: Arc::default(),
    };
    let names = ["n0", "n1"];
    let mut lives: Vec<Option<Life>> = names.iter().map(|node| Some(Life::begin(&shared, node, 0))).collect();
    let tenant = key(0).namespace;
    let mut made = Vec::new();
    let first = lives[0].as_ref().unwrap();
    first.runtime.block_on(async {
        first.functions.create(&tenant, new_function("f"), archive()).await.unwrap();
        for number in 0..SCHEDULES {
            made.push(first.functions.schedules().create(&key(number), settings(), None).await.unwrap());
        }
    });
    let second = lives[1].as_ref().unwrap();
    wait_for("the second node to know all", || {
        let known = second.functions.schedules().keys().len();
        known == SCHEDULES && second.functions.get(&tenant, &FunctionName::new("f").unwrap()).is_some()
    });
    let mut last = shared.clock.minutes();
    shared.registry.faulty.store(true, Ordering::Relaxed);
    for round in 0..ROUNDS {
        // One more minute, whatever time the machine took: none is passed over.
        shared.clock.go_to(last + 1);
        std::thread::sleep(Duration::from_millis(shared.registry.chance() % 1_200));
        let node = round % 2;
        lives[node].take().unwrap().kill();
        lives[node] = Some(Life::begin(&shared, names[node], round + 1));
        let reader = lives[node].as_ref().unwrap();
        wait_for("all runs of a minute to begin", || {
            last = shared.clock.minutes();
            all_are_at(reader, last)
        });
    }
    shared.registry.faulty.store(false, Ordering::Relaxed);

    let minutes = 1..=last;
    let due = |minute| Timestamp(BEGIN.0 + minute * MINUTE);
    let expected: Vec<InvocationId> =
        made.iter().flat_map(|stored| minutes.clone().map(move |minute| stored.schedule.run_id(due(minute)))).collect();
    assert!(expected.len() >= SCHEDULES * ROUNDS, "{}", expected.len());
    let missing = || {
        let runs = shared.runs.0.lock();
        expected.iter().filter(|id| !runs.contains_key(*id)).count()
    };
    wait_for("all runs, of which none may be lost", || missing() == 0);
    let runs = shared.runs.0.lock().clone();
    for (id, begun) in &runs {
        assert!(begun.iter().all(|(node, _)| *node == begun[0].0), "two nodes began {id}: {begun:?}");
        // An attempt that a kill cut off is repeated in the next life, as of any event.
        assert!(begun.is_sorted_by(|before, after| before.1 < after.1), "{id} was begun twice in a life: {begun:?}");
    }
    lives.into_iter().flatten().for_each(Life::kill);
}
