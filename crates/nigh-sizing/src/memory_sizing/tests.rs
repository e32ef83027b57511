//! The station with its keeper and a real registry; runs are made up.

use std::collections::BTreeSet;
use std::path::PathBuf;

use async_trait::async_trait;
use nigh_engine::{LocalRegistry, StateFile};
use nigh_functions::function::Runtime;
use nigh_functions::test_support::function;
use nigh_schedule::activation::SandboxStart;
use nigh_schedule::activation::{DataCallRecord, MakingTimes, MemoryUse, Phases};
use nigh_terms::{Admission, BucketName, ManualClock, ObjectKey, SandboxId, Timestamp, Token};

use super::*;

const BOOKED: ByteSize = ByteSize::mib(512);

/// A record of nothing in particular.
pub(super) fn activation() -> Activation {
    let function = function("f");
    Activation {
        id: InvocationId::now(),
        attempt: 1,
        namespace: function.namespace,
        function: function.name,
        code_sha256: function.code_sha256,
        sandbox: None,
        cold: false,
        sandbox_start: Some(SandboxStart::Warm),
        start: Timestamp(1),
        wait_us: 0,
        init_us: 0,
        making: MakingTimes::default(),
        init_data_calls: Vec::new(),
        duration_us: 1000,
        phases: Phases::default(),
        data_calls: Vec::new(),
        data_calls_omitted: 0,
        hits: 0,
        misses: 0,
        booked: BOOKED,
        granted: BOOKED,
        peak_memory: Some(ByteSize::mib(40)),
        predicted_memory: None,
        memory: MemoryUse::default(),
        outcome: Outcome::Answered,
        exceeded: None,
        stack_trace: Vec::new(),
        handlers: Vec::new(),
        packages: Vec::new(),
        notes: Vec::new(),
        placement: String::new(),
        trace_id: None,
        token: Token::empty(),
        log: String::new(),
        log_omitted: 0,
    }
}

/// A cold run of `function`.
pub(super) fn run<'a>(function: &'a Function, payload: &'a [u8]) -> Run<'a> {
    Run::new(InvocationId::now(), function, payload, SandboxId::random())
}

/// The one function that is deployed, if any.
struct SingleFunctionSource(Mutex<Option<Arc<Function>>>);

#[async_trait]
impl FunctionSource for SingleFunctionSource {
    async fn find(&self, _: &Namespace, name: &FunctionName) -> Option<Arc<Function>> {
        self.0.lock().clone().filter(|function| function.name == *name)
    }
    async fn code_folder(&self, _: &Function) -> PathBuf {
        PathBuf::new()
    }
    async fn layers_folder(&self, _: &Function) -> Result<Option<PathBuf>, String> {
        Ok(None)
    }
    fn runtimes(&self) -> BTreeSet<Runtime> {
        BTreeSet::new()
    }
}

/// Objects whose size is their key.
struct Sizes;

impl ObjectFeatures for Sizes {
    fn of(&self, _: &Namespace, _: &BucketName, key: &ObjectKey) -> Option<Arc<FeatureRow>> {
        let mut row = FeatureRow::default();
        row.set_number("input_size", key.as_str().parse().ok()?).ok()?;
        Some(Arc::new(row))
    }
}

struct Bench {
    sizing: MemorySizing,
    clock: Arc<ManualClock>,
    function: Function,
    _state: Arc<tempfile::TempDir>,
}

/// The state, once the keeper of an earlier life has let go of it.
async fn opened(state: &tempfile::TempDir) -> StateFile {
    let opened = async {
        loop {
            match StateFile::open(&state.path().join("state.redb")) {
                Ok(file) => return file,
                Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(60), opened).await.unwrap()
}

/// How a run went.
struct RunOutcome {
    grant: ByteSize,
    admission: Admission,
    note: String,
}

impl Bench {
    async fn new(mode: SizingMode) -> Self {
        Self::on(&Arc::new(tempfile::tempdir().unwrap()), mode, "lintree").await
    }

    /// Another life on the same state.
    async fn on(state: &Arc<tempfile::TempDir>, mode: SizingMode, learner: &str) -> Self {
        let file = opened(state).await;
        let clock = Arc::new(ManualClock::default());
        let function = Function { memory: BOOKED, ..function("f") };
        let sizing = MemorySizing::new(MemorySizingParts {
            registry: Arc::new(LocalRegistry::new(file)),
            functions: Arc::new(SingleFunctionSource(Mutex::new(Some(Arc::new(function.clone()))))),
            objects: Arc::new(Sizes),
            learner: learner.parse().unwrap(),
            mode,
            clock: Arc::clone(&clock) as Arc<dyn Clock>,
        });
        Self { sizing, clock, function, _state: Arc::clone(state) }
    }

    /// One run on an input of `size` bytes, of which the rest of the record is made.
    async fn run(&self, size: u64, ended: impl FnOnce(&mut Activation)) -> RunOutcome {
        let payload = format!(r#"{{"input":{{"bucket":"photos","key":"{size}"}},"sigma":2}}"#);
        let mut run = run(&self.function, payload.as_bytes());
        let note = self.sizing.before_run(&mut run).unwrap();
        let mut record = Activation {
            id: run.invocation,
            granted: run.grant.memory,
            code_sha256: self.function.code_sha256.clone(),
            data_calls: vec![call("miss", size)],
            ..activation()
        };
        ended(&mut record);
        self.sizing.after_run(&record);
        self.clock.advance(Duration::from_secs(2));
        // What the keeper was told before is done then.
        self.sizing.flush().await;
        RunOutcome { grant: run.grant.memory, admission: run.admission, note }
    }

    async fn runs(&self, count: u64) -> RunOutcome {
        let mut last = self.run(size(0), |record| record.peak_memory = Some(need(size(0)))).await;
        for at in 1..count {
            last = self.run(size(at), |record| record.peak_memory = Some(need(size(at)))).await;
        }
        last
    }
}

fn call(served: &str, size: u64) -> DataCallRecord {
    DataCallRecord {
        served: served.to_owned(),
        bucket: "photos".to_owned(),
        key: Some(size.to_string()),
        bytes: size,
        began_us: 0,
        took_us: 5000,
        under_way: None,
    }
}

/// Sizes between one and nine megabytes.
fn size(at: u64) -> u64 {
    1_000_000 + at * 2_654_435 % 8_000_000
}

/// What the made-up function needs for an input.
fn need(size: u64) -> ByteSize {
    ByteSize(20_000_000 + 30 * size)
}

#[tokio::test]
async fn a_grant_follows_the_input_once_the_model_is_mature_and_is_all_booked_before() {
    let bench = Bench::new(SizingMode::Grants).await;
    let first = bench.run(1_000_000, |_| {}).await;
    assert!(first.grant == BOOKED && first.note.contains("not loaded"), "{}", first.note);
    let second = bench.run(1_000_000, |record| record.peak_memory = Some(need(1_000_000))).await;
    assert!(second.grant == BOOKED && second.note.contains("too few"), "{}", second.note);
    let young = bench.runs(10).await;
    assert!(young.grant == BOOKED && young.note.contains("not mature"), "{}", young.note);
    bench.runs(60).await;
    for of in [1_500_000, 4_000_000, 8_000_000] {
        let ran = bench.run(of, |record| record.peak_memory = Some(need(of))).await;
        assert!(ran.grant >= need(of) && ran.grant.0 < need(of).0 * 5 / 4, "{} for {}", ran.grant, need(of));
        assert!(ran.note.starts_with("granted") && ran.note.contains("lintree"), "{}", ran.note);
    }
    let large = bench.run(40_000_000, |record| record.peak_memory = Some(BOOKED)).await;
    assert!(large.grant == BOOKED && large.note.contains("more than the 512 MiB booked; book"), "{}", large.note);
}

#[tokio::test]
async fn after_an_under_prediction_the_next_equal_invocation_gets_at_least_what_was_seen() {
    let bench = Bench::new(SizingMode::Grants).await;
    bench.runs(60).await;
    let of = 3_000_000;
    let seen = ByteSize(need(of).0 * 2);
    let missed = bench
        .run(of, |record| {
            record.peak_memory = Some(seen);
            record.memory.grown = 1;
        })
        .await;
    assert!(missed.grant < seen);
    let payload = format!(r#"{{"input":{{"bucket":"photos","key":"{of}"}},"sigma":2}}"#);
    let mut warm = run(&bench.function, payload.as_bytes());
    bench.sizing.before_run(&mut warm);
    assert!(warm.grant.memory >= seen, "{} after {seen}", warm.grant.memory);
    // One that was ended for want of memory needed more than anybody saw.
    let ended = bench.run(of + 1, |record| record.outcome = Outcome::OutOfMemory).await;
    assert!(ended.grant < BOOKED);
    assert_eq!(bench.run(of + 1, |_| {}).await.grant, BOOKED);
}

#[tokio::test]
async fn who_only_watches_grants_what_is_booked_and_says_what_it_would() {
    let bench = Bench::new(SizingMode::Watches).await;
    let ran = bench.runs(60).await;
    assert!(ran.grant == BOOKED && ran.note.contains("watched only; would be granted"), "{}", ran.note);
}

#[tokio::test]
async fn a_grant_is_never_below_what_a_warm_sandbox_uses_nor_above_what_is_booked() {
    let bench = Bench::new(SizingMode::Grants).await;
    bench.runs(60).await;
    let payload = br#"{"input":{"bucket":"photos","key":"1000000"},"sigma":2}"#;
    for (used, least) in [(ByteSize::mib(200), ByteSize::mib(204)), (ByteSize::gib(1), BOOKED)] {
        let mut warm = run(&bench.function, payload);
        (warm.start, warm.used_before) = (SandboxStart::Warm, Some(used));
        bench.sizing.before_run(&mut warm);
        bench.sizing.not_run(warm.invocation);
        assert_eq!(warm.grant.memory, least);
    }
}

#[tokio::test]
async fn what_is_learned_outlives_the_node_and_another_learner_goes_through_the_rows_again() {
    let state = Arc::new(tempfile::tempdir().unwrap());
    let bench = Bench::on(&state, SizingMode::Grants, "lintree").await;
    bench.runs(60).await;
    let known = bench.sizing.show(&bench.function).await.unwrap();
    assert!(known.mature && known.inputs == ["/input"], "{known:?}");
    drop(bench);
    let bench = Bench::on(&state, SizingMode::Grants, "lintree").await;
    assert_eq!(bench.sizing.show(&bench.function).await.unwrap(), known);
    bench.run(2_000_000, |_| {}).await;
    let ran = bench.run(2_000_000, |_| {}).await;
    assert!(ran.note.starts_with("granted"), "{}", ran.note);
    drop(bench);
    let bench = Bench::on(&state, SizingMode::Grants, "j48-next").await;
    let other = bench.sizing.show(&bench.function).await.unwrap();
    assert!(other.learner == "j48-next" && other.rows >= known.rows, "{other:?}");
}

#[tokio::test]
async fn new_code_is_learned_anew_and_an_older_deployment_does_not_bring_the_old_model_back() {
    let mut bench = Bench::new(SizingMode::Grants).await;
    bench.runs(60).await;
    let old = bench.function.clone();
    bench.function.code_sha256 = "code-2".to_owned();
    bench.function.modified = Timestamp(2);
    let first = bench.run(2_000_000, |_| {}).await;
    assert_eq!(first.grant, BOOKED);
    let second = bench.run(2_000_000, |_| {}).await;
    assert!(second.note.contains("too few"), "{}", second.note);
    let mut late = run(&old, b"{}");
    bench.sizing.before_run(&mut late);
    bench.sizing.flush().await;
    assert_eq!(bench.sizing.show(&bench.function).await.unwrap().version, "code-2");
}

#[tokio::test]
async fn rows_are_exported_imported_and_forgotten() {
    let bench = Bench::new(SizingMode::Grants).await;
    assert!(matches!(bench.sizing.export(&bench.function).await, Err(MemorySizingError::Nothing(_))));
    bench.runs(60).await;
    let csv = bench.sizing.export(&bench.function).await.unwrap();
    assert!(csv.starts_with("peak_bytes,") && csv.lines().count() > 50, "{csv}");
    let (namespace, name) = (bench.function.namespace.clone(), bench.function.name.clone());
    assert!(bench.sizing.forget(&namespace, &name).await.unwrap());
    assert!(!bench.sizing.forget(&namespace, &name).await.unwrap());
    assert!(matches!(bench.sizing.show(&bench.function).await, Err(MemorySizingError::Nothing(_))));
    let taught = bench.sizing.import(&bench.function, csv.clone()).await.unwrap();
    assert!(taught.mature && taught.rows == csv.lines().count() - 1, "{taught:?}");
    let ran = bench.run(2_000_000, |_| {}).await;
    assert!(ran.grant < BOOKED, "{}", ran.note);
    let refused = bench.sizing.import(&bench.function, "peak_bytes\nx\n".to_owned()).await;
    assert!(matches!(refused, Err(MemorySizingError::Csv(_))));
}

#[tokio::test]
async fn a_function_that_gains_nothing_does_not_feed_the_cache_unless_it_says_so_itself() {
    let mut bench = Bench::new(SizingMode::Grants).await;
    let works = |of: u64| {
        move |record: &mut Activation| {
            record.peak_memory = Some(need(of));
            record.phases = Phases { extract_us: 5000, transform_us: 900_000, load_us: 0 };
        }
    };
    let mut fed = 0;
    for at in 0..150 {
        let ran = bench.run(size(at), works(size(at))).await;
        assert!(ran.admission == Admission::Always || ran.note.contains("caching does not pay"), "{}", ran.note);
        fed += u32::from(ran.admission == Admission::Always && at >= 60);
    }
    assert!((0..30).contains(&fed), "{fed} of 90 were tried");
    bench.function.environment.insert(function_caching::CACHE_VARIABLE.to_owned(), "benefit".to_owned());
    for at in 0..10 {
        assert_eq!(bench.run(size(at), works(size(at))).await.admission, Admission::Always);
    }
}

#[tokio::test]
async fn whatever_the_payload_is_a_run_is_sized() {
    let bench = Bench::new(SizingMode::Grants).await;
    bench.runs(30).await;
    let megabyte = format!(r#"{{"text":"{}"}}"#, "x".repeat(1 << 20));
    let many = format!("[{}]", vec!["{\"a\":1e308}"; 3000].join(","));
    for payload in ["", "NaN", "{\"sigma\":NaN}", "[[[[", "\"\\ud800\"", megabyte.as_str(), many.as_str()] {
        let mut run = run(&bench.function, payload.as_bytes());
        assert!(bench.sizing.before_run(&mut run).is_some());
        assert!(run.grant.memory <= BOOKED && run.grant.memory >= RUNTIME_FLOOR);
        bench.sizing.after_run(&Activation { id: run.invocation, ..activation() });
    }
    bench.sizing.flush().await;
}

#[tokio::test]
async fn what_is_stored_of_functions_that_are_gone_is_removed() {
    let state = Arc::new(tempfile::tempdir().unwrap());
    let bench = Bench::on(&state, SizingMode::Grants, "lintree").await;
    bench.runs(10).await;
    drop(bench);
    let file = opened(&state).await;
    let registry: Arc<dyn Registry> = Arc::new(LocalRegistry::new(file));
    let shelf = ModelShelf::new(Arc::clone(&registry));
    assert_eq!(shelf.names().await.unwrap().len(), 1);
    let sizing = MemorySizing::new(MemorySizingParts {
        registry,
        functions: Arc::new(SingleFunctionSource(Mutex::new(None))),
        objects: Arc::new(Sizes),
        learner: Learner::default(),
        mode: SizingMode::Grants,
        clock: Arc::new(ManualClock::default()),
    });
    let gone = async {
        while !shelf.names().await.unwrap().is_empty() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), gone).await.unwrap();
    drop(sizing);
}

#[tokio::test]
async fn a_model_that_made_room_for_others_is_stored_first_and_comes_back() {
    let state = Arc::new(tempfile::tempdir().unwrap());
    let mut bench = Bench::on(&state, SizingMode::Grants, "lintree").await;
    let file = tempfile::tempdir().unwrap();
    let file = StateFile::open(&file.path().join("state.redb")).unwrap();
    let parts = MemorySizingParts {
        registry: Arc::new(LocalRegistry::new(file)),
        functions: Arc::new(SingleFunctionSource(Mutex::new(Some(Arc::new(bench.function.clone()))))),
        objects: Arc::new(Sizes),
        learner: Learner::default(),
        mode: SizingMode::Grants,
        clock: Arc::clone(&bench.clock) as Arc<dyn Clock>,
    };
    bench.sizing = MemorySizing::bounded(parts, LoadedModels::new(1, LOADED_BYTES_MAX));
    bench.runs(60).await;
    let other = Function { memory: BOOKED, ..function("g") };
    let mut of_other = run(&other, b"{}");
    bench.sizing.before_run(&mut of_other);
    bench.sizing.flush().await;
    assert_eq!(bench.sizing.at_hand().0, 1);
    assert!(bench.run(2_000_000, |_| {}).await.note.contains("not loaded"));
    let ran = bench.run(2_000_000, |_| {}).await;
    assert!(ran.note.starts_with("granted"), "{}", ran.note);
}

#[test]
fn a_version_is_its_code_and_its_layers_and_short() {
    let plain = function("f");
    assert_eq!(version(&plain), "code-1");
    let long = Function { code_sha256: "x".repeat(1000), ..function("f") };
    let empty = Function { code_sha256: String::new(), ..function("f") };
    assert!(version(&long).len() <= code_version::VERSION_BYTES_MAX && !version(&empty).is_empty());
    let layer = |sha256: &str| nigh_functions::function::LayerUse {
        arn: String::new(),
        name: FunctionName::new("l").unwrap(),
        sha256: sha256.to_owned(),
        size: ByteSize(1),
        unpacked: ByteSize(1),
    };
    let with = |sha256: &str| version(&Function { layers: vec![layer(sha256)], ..function("f") }).into_owned();
    assert!(with("a") != with("b") && with("a").starts_with("code-1+"));
}

#[tokio::test]
async fn runs_that_never_end_are_bounded() {
    let bench = Bench::new(SizingMode::Grants).await;
    for _ in 0..RUNNING_MAX + 10 {
        bench.sizing.before_run(&mut run(&bench.function, b"{}"));
    }
    assert_eq!(bench.sizing.running.lock().len(), RUNNING_MAX);
}
