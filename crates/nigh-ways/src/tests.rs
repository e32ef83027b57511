//! The hook, with a binder that records its calls.

use std::collections::BTreeSet;
use std::path::PathBuf;

use nigh_data::{DataOperation, ObjectEvent, ObjectObserver, ServeOutcome};
use nigh_functions::function::Function;
use nigh_functions::test_support::function;
use nigh_invoke::hooks::{InvocationHook as _, Run};
use nigh_llc::resctrl::emulator::{Dialect, Emulator, Fault, MachineConfig};
use nigh_llc::resctrl::{ProcessRef, Resctrl, ResctrlFs, TaskView, Tid};
use nigh_llc::{
    CacheClass, CacheShape, Casy, CasyRequest, CpiModel, MissCurve, ModelKind, OneRunRule, PredictedNeed,
    SharedPlacement, SizingInput, SizingModel, SizingRule, Tolerance, TrainingRow, TrainingRows, Work,
};
use nigh_schedule::scheduler::vacancy::{Vacancy, WarmFunction};
use nigh_terms::{
    BucketName, ByteSize, InvocationId, ManualClock, Monotonic, ObjectKey, Principal, SandboxId, Token, WayMask,
};
use parking_lot::Mutex;

use super::*;

const PAYLOAD: &[u8] = br#"{"input":{"bucket":"photos","key":"in"},"output":{"bucket":"photos","key":"out"}}"#;

#[derive(Default)]
struct RecordingBinder {
    bound: Mutex<Vec<ClosId>>,
    refuses: Mutex<bool>,
}

impl ClosBinder for RecordingBinder {
    fn lay_out(&self, _: &ClosLayout) -> Result<(), String> {
        Ok(())
    }

    fn bind(&self, _: &Members, clos: ClosId) -> Result<(), String> {
        if *self.refuses.lock() {
            return Err("No space left on device".to_owned());
        }
        self.bound.lock().push(clos);
        Ok(())
    }
}

struct Bench {
    station: CacheWays,
    clock: Arc<ManualClock>,
    told: Arc<RecordingBinder>,
    _state: tempfile::TempDir,
}

fn shape() -> CacheShape {
    CacheShape { ways: Ways(11), classes: 8, min_ways: Ways(1), shareable: WayMask::EMPTY }
}

fn model(inputs: &[&str]) -> FunctionModel {
    let version = FunctionModel::version(&function("f"));
    let mut rows = TrainingRows::new(version.clone());
    for (size, ways, class) in [(100, 1, CacheClass::Light), (1000, 4, CacheClass::Sensitive)] {
        let input = SizingInput { size: ByteSize(size), features: Vec::new() };
        rows.add(&version, TrainingRow { input, ways: Ways(ways), class, curves: None }).unwrap();
    }
    let rule = SizingRule { threshold: Tolerance::FIVE_PERCENT, lines_per_way: 20_480.0 };
    let model = SizingModel::fit(rows, rule, ModelKind::Nearest, nigh_llc::Axis::Size).unwrap();
    FunctionModel { model, inputs: inputs.iter().map(|path| (*path).to_owned()).collect::<BTreeSet<_>>() }
}

fn sizes() -> Arc<ObjectSizes> {
    let sizes = Arc::new(ObjectSizes::default());
    for (key, bytes) in [("in", 900), ("out", 50)] {
        sizes.observe(&ObjectEvent {
            principal: Principal::outside(function("f").namespace),
            bucket: BucketName::new("photos").unwrap(),
            key: Some(ObjectKey::new(key).unwrap()),
            operation: DataOperation::Write,
            served: ServeOutcome::Write,
            bytes,
            object_bytes: Some(bytes),
            began: Monotonic(0),
            ended: Monotonic(1),
            version: None,
            token: Token::empty(),
        });
    }
    sizes
}

async fn bench(inputs: &[&str]) -> Bench {
    let state = tempfile::tempdir().unwrap();
    let file = nigh_engine::StateFile::open(&state.path().join("state.redb")).unwrap();
    let registry: Arc<dyn nigh_engine::Registry> = Arc::new(nigh_engine::LocalRegistry::new(file));
    let models = Arc::new(SizingModels::open(registry).await.unwrap());
    let deployed = function("f");
    models.keep(&deployed.namespace, &deployed.name, model(inputs)).await.unwrap();
    let told = Arc::new(RecordingBinder::default());
    let clock = Arc::new(ManualClock::default());
    let station = CacheWays::new(CacheWaysParts {
        models,
        sizes: sizes(),
        policy: Box::new(Casy),
        layout: Arc::new(ClosLayout::casy(&CasyRequest::of(shape(), Ways(3))).unwrap()),
        insensitive: Ways(3),
        fit_guard: None,
        lines_per_way: 20_480.0,
        binder: Some(Arc::clone(&told) as Arc<dyn ClosBinder>),
        clock: Arc::clone(&clock) as Arc<dyn Clock>,
    });
    Bench { station, clock, told, _state: state }
}

impl Bench {
    fn run(&self, function: &Function, payload: &[u8], sandbox: SandboxId) -> (InvocationId, String) {
        let invocation = InvocationId::now();
        let run = Run::new(invocation, function, payload, sandbox);
        let mut run = Run { tasks: Some(Members::Cgroup(PathBuf::from("/sandbox"))), ..run };
        (invocation, self.station.before_run(&mut run).unwrap())
    }
}

#[tokio::test]
async fn an_invocation_is_predicted_placed_bound_and_released() {
    let bench = bench(&["/input"]).await;
    let (invocation, note) = bench.run(&function("f"), PAYLOAD, SandboxId::random());
    assert!(note.contains("900 B of data need 4 ways (sensitive)"), "{note}");
    // Figure 4: the class of exactly four ways.
    assert_eq!(*bench.told.bound.lock(), [ClosId(5)]);
    let running = bench.station.loads();
    let predicted = PredictedNeed { ways: Ways(4), class: CacheClass::Sensitive };
    assert_eq!(running.running()[0].need.predicted, Some(predicted));
    bench.station.not_run(invocation);
    assert!(bench.station.loads().running().is_empty());
}

#[tokio::test]
async fn a_sandbox_is_in_the_class_of_its_next_run_before_that_comes() {
    let bench = bench(&["/input"]).await;
    let (deployed, sandbox) = (function("f"), SandboxId::random());
    let ahead = |payload: &[u8], after| {
        let run = Run::new(InvocationId::now(), &deployed, payload, sandbox);
        let mut run = Run { tasks: Some(Members::Cgroup(PathBuf::from("/sandbox"))), ..run };
        bench.station.ahead(&mut run, after)
    };
    assert_eq!(ahead(b"{}", None), None, "nothing is known of its data");
    // The stage before it runs in the class that the next one will have, when that has ended.
    let (before, _) = bench.run(&deployed, PAYLOAD, SandboxId::random());
    let words = ahead(PAYLOAD, Some(before)).unwrap();
    assert!(words.contains("900 B of data need 4 ways (sensitive); class 5 "), "{words}");
    assert_eq!(*bench.told.bound.lock(), [ClosId(5), ClosId(5)]);
    assert_eq!(bench.station.loads().running().len(), 1, "it weighs nothing before it runs");
    bench.station.release(before);
    let (run, note) = bench.run(&deployed, PAYLOAD, sandbox);
    assert!(note.contains("class 5 "), "{note}");
    assert_eq!(bench.told.bound.lock().len(), 2, "nothing is left to be done on the path");
    bench.station.release(run);
    // A profile has the cache to itself.
    assert!(bench.station.suspend());
    assert!(ahead(PAYLOAD, None).unwrap().ends_with("not bound, a profile has the cache to itself"));
}

#[tokio::test]
async fn those_who_dispatch_hear_which_ways_are_free_and_what_a_function_needs() {
    let bench = bench(&["/input"]).await;
    let deployed = function("f");
    let room = || {
        let warm = WarmFunction {
            namespace: deployed.namespace.clone(),
            function: deployed.name.clone(),
            revision: deployed.revision_id.clone(),
            sandboxes: 1,
            busy: 0,
            granted: deployed.memory,
            idle_for: std::time::Duration::ZERO,
            ways: 0,
        };
        let mut vacancy = Vacancy { warm: vec![warm], ..Vacancy::default() };
        bench.station.room(&mut vacancy);
        (vacancy.ways_free, vacancy.warm[0].ways)
    };
    assert_eq!(room(), (11, 0));
    let (invocation, _) = bench.run(&deployed, PAYLOAD, SandboxId::random());
    assert_eq!(room(), (7, 4));
    bench.station.not_run(invocation);
    assert_eq!(room(), (11, 4), "what it needed is remembered");
}

#[tokio::test]
async fn a_sandbox_in_its_class_is_not_moved_again() {
    let bench = bench(&["/input"]).await;
    let sandbox = SandboxId::random();
    for _ in 0..3 {
        let (invocation, _) = bench.run(&function("f"), PAYLOAD, sandbox);
        bench.station.not_run(invocation);
    }
    assert_eq!(bench.told.bound.lock().len(), 1);
}

#[tokio::test]
async fn what_has_no_model_runs_in_the_default_class_and_weighs_on_every_way() {
    let bench = bench(&[]).await;
    let (_, note) = bench.run(&function("other"), PAYLOAD, SandboxId::random());
    assert!(note.contains("no profile of this version"), "{note}");
    let changed = Function { code_sha256: "code-2".to_owned(), ..function("f") };
    let (_, note) = bench.run(&changed, PAYLOAD, SandboxId::random());
    assert!(note.contains("no profile of this version"), "{note}");
    let (_, note) = bench.run(&function("f"), b"{}", SandboxId::random());
    assert!(note.contains("size of its data is not known"), "{note}");
    assert!(bench.told.bound.lock().iter().all(|clos| *clos == ClosId::DEFAULT));
    assert!(bench.station.loads().way_load(10).value() > 0.0);
}

#[tokio::test]
async fn without_learned_paths_every_named_object_counts() {
    let bench = bench(&[]).await;
    let (_, note) = bench.run(&function("f"), PAYLOAD, SandboxId::random());
    assert!(note.contains("950 B of data"), "{note}");
}

#[tokio::test]
async fn a_refused_binding_is_told_and_tried_again() {
    let bench = bench(&["/input"]).await;
    let sandbox = SandboxId::random();
    *bench.told.refuses.lock() = true;
    let (invocation, note) = bench.run(&function("f"), PAYLOAD, sandbox);
    assert!(note.contains("not bound: No space left"), "{note}");
    bench.station.not_run(invocation);
    *bench.told.refuses.lock() = false;
    bench.run(&function("f"), PAYLOAD, sandbox);
    assert_eq!(bench.told.bound.lock().len(), 1);
}

#[tokio::test]
async fn a_profile_has_the_cache_to_itself() {
    let bench = bench(&["/input"]).await;
    let (invocation, _) = bench.run(&function("f"), PAYLOAD, SandboxId::random());
    assert!(!bench.station.suspend(), "something runs");
    bench.station.not_run(invocation);
    assert!(bench.station.suspend());
    assert!(!bench.station.suspend(), "one profile at a time");
    let (_, note) = bench.run(&function("f"), PAYLOAD, SandboxId::random());
    assert!(note.contains("a profile has the cache to itself"), "{note}");
    bench.station.resume();
}

#[tokio::test]
async fn the_split_of_the_ways_follows_what_runs() {
    let bench = bench(&["/input"]).await;
    let mut changed = None;
    for _ in 0..8 {
        let (invocation, _) = bench.run(&function("f"), PAYLOAD, SandboxId::random());
        bench.clock.advance(std::time::Duration::from_secs(1));
        bench.station.not_run(invocation);
        changed = changed.or(bench.station.follow_load().unwrap());
    }
    // Only the sensitive ran: the insensitive need no way of their own.
    assert_eq!(changed, Some(Ways(0)));
    let insensitive = |clos: &&nigh_llc::Clos| clos.kind == nigh_llc::ClosKind::Insensitive;
    assert_eq!(bench.station.loads().layout().classes().iter().filter(insensitive).count(), 0);
    assert_eq!(bench.station.follow_load().unwrap(), None);
}

/// Functions of which curves are known: a recogniser that wants every way, and a stream that gains by none. Each reads
/// 900 bytes; the machine is the emulator's.
struct SharingBench {
    station: CacheWays,
    clock: Arc<ManualClock>,
    emulator: Emulator,
    _state: tempfile::TempDir,
}

const RECOGNISER: [f64; 11] = [44391., 34369., 25065., 18001., 13035., 9585., 7128., 5338., 4005., 3010., 2268.];
const STREAM: [f64; 11] = [14717.; 11];

fn curves_model(minstr: f64, accesses: f64, misses: &[f64]) -> FunctionModel {
    let version = FunctionModel::version(&function("any"));
    let model = CpiModel {
        cycles_per_instruction: 0.5,
        hit_cycles: 20.0,
        miss_cycles: 200.0,
        neighbour_miss_cycles: None,
        megahertz: 2400.0,
    };
    let mut rows = TrainingRows::new(version.clone());
    for size in [800, 1000] {
        let input = SizingInput { size: ByteSize(size), features: Vec::new() };
        let misses = MissCurve::new(accesses * 1e3, misses.iter().map(|misses| misses * 1e3).collect()).unwrap();
        let work = Work { instructions: minstr * 1e6, neighbour_share: 0.0 };
        let rule = OneRunRule { model, threshold: Tolerance::FIVE_PERCENT, lines_per_way: 20_480.0 };
        rows.add(&version, TrainingRow::one_run(input, misses, &work, &rule).unwrap()).unwrap();
    }
    let rule = SizingRule { threshold: Tolerance::FIVE_PERCENT, lines_per_way: 20_480.0 };
    let model = SizingModel::fit(rows, rule, ModelKind::Nearest, nigh_llc::Axis::Size).unwrap();
    FunctionModel { model, inputs: BTreeSet::from(["/input".to_owned()]) }
}

async fn shared() -> SharingBench {
    let state = tempfile::tempdir().unwrap();
    let file = nigh_engine::StateFile::open(&state.path().join("state.redb")).unwrap();
    let models = Arc::new(SizingModels::open(Arc::new(nigh_engine::LocalRegistry::new(file))).await.unwrap());
    for (name, model) in [
        ("recogniser", curves_model(3044.0, 51100.0, &RECOGNISER)),
        ("stream", curves_model(114.0, 14717.0, &STREAM)),
        ("by-ways", model(&["/input"])),
    ] {
        let deployed = function(name);
        models.keep(&deployed.namespace, &deployed.name, model).await.unwrap();
    }
    let emulator = Emulator::new(MachineConfig::silver_4210r(Dialect::Linux6_1));
    let resctrl = Resctrl::open(Arc::new(emulator.clone()), Arc::new(emulator.clone())).unwrap();
    let probe = resctrl.probe().unwrap();
    let layout = ClosLayout::casy(&CasyRequest::of(cache_shape(&probe).unwrap(), Ways(3))).unwrap();
    let classes = ResctrlClasses::new(resctrl, &probe);
    classes.lay_out(&layout).unwrap();
    let clock = Arc::new(ManualClock::default());
    let station = CacheWays::new(CacheWaysParts {
        models,
        sizes: sizes(),
        policy: Box::new(SharedPlacement::new(20_480.0)),
        layout: Arc::new(layout),
        insensitive: Ways(3),
        fit_guard: Some(Tolerance::ONE_PERCENT),
        lines_per_way: 20_480.0,
        binder: Some(Arc::new(classes)),
        clock: Arc::clone(&clock) as Arc<dyn Clock>,
    });
    SharingBench { station, clock, emulator, _state: state }
}

impl SharingBench {
    fn start(&self, name: &str, pid: u32) -> InvocationId {
        self.start_noted(name, pid).0
    }

    /// The invocation, and what its record says of it before it runs.
    fn start_noted(&self, name: &str, pid: u32) -> (InvocationId, String) {
        self.emulator.inject(Fault::Spawn { pid, uid: 7 });
        let invocation = InvocationId::now();
        let started = self.emulator.started(Tid(pid)).unwrap();
        let deployed = function(name);
        let run = Run::new(invocation, &deployed, PAYLOAD, SandboxId::random());
        let mut run = Run { tasks: Some(Members::Tree(ProcessRef { pid: Tid(pid), started })), ..run };
        let note = self.station.before_run(&mut run).unwrap();
        assert!(!note.contains("not bound"), "{note}");
        (invocation, note)
    }

    /// The mask of the group that a process is in.
    fn mask_of(&self, pid: u32) -> u32 {
        let groups = self.emulator.cpu_resctrl_groups(pid).unwrap();
        let group = groups.lines().next().unwrap().strip_prefix("res:").unwrap().trim_matches('/');
        let file = if group.is_empty() { "schemata".to_owned() } else { format!("{group}/schemata") };
        let schemata = self.emulator.read(&file).unwrap();
        let mask = schemata.split("L3:0=").nth(1).unwrap();
        u32::from_str_radix(mask.split([';', '\n']).next().unwrap().trim(), 16).unwrap()
    }

    fn booked_mask_of(&self, at: usize) -> u32 {
        let loads = self.station.loads();
        loads.layout().class(loads.running()[at].clos).unwrap().mask.bits()
    }
}

#[tokio::test]
async fn classes_are_fitted_to_what_runs_and_who_runs_is_moved() {
    let shared = shared().await;
    let recogniser = shared.start("recogniser", 100);
    let streams = [shared.start("stream", 101), shared.start("stream", 102)];
    tokio::time::timeout(std::time::Duration::from_secs(60), shared.station.changed()).await.unwrap();
    let done = shared.station.refit().unwrap().unwrap();
    assert_eq!(done.classes, 1);
    for (at, pid) in [100, 101, 102].into_iter().enumerate() {
        assert_eq!(shared.mask_of(pid), shared.booked_mask_of(at), "of process {pid}");
    }
    // The streams have one way, where devices write; the recogniser has the others.
    assert_eq!([shared.mask_of(101), shared.mask_of(102)], [0x400, 0x400]);
    assert!(shared.mask_of(100).count_ones() >= 10);
    let again = shared.station.refit().unwrap().unwrap();
    assert_eq!((again.classes, again.moved), (done.classes, 0), "nothing has changed");

    // Alone the streams lose nothing to one another: the cache is whole again, and they are in it by
    // the end of their group.
    shared.station.not_run(recogniser);
    assert_eq!(shared.station.refit().unwrap(), Some(RefitResult { classes: 0, moved: 0 }));
    assert_eq!([shared.mask_of(101), shared.mask_of(102)], [0x7ff, 0x7ff]);
    streams.into_iter().for_each(|invocation| shared.station.not_run(invocation));
    assert_eq!(shared.station.refit().unwrap(), None, "nothing runs");
}

#[tokio::test]
async fn a_record_names_the_class_that_its_invocation_was_moved_to() {
    let shared = shared().await;
    let (stream, note) = shared.start_noted("stream", 100);
    assert_eq!(shared.station.has_run(stream), None, "nothing has changed");
    let placed = format!("(mask {:x})", shared.mask_of(100));
    assert!(note.contains(&placed), "{note}");

    // The classes are fitted to it and its neighbours, and it is in another then.
    shared.start("recogniser", 101);
    shared.start("stream", 102);
    shared.clock.advance(std::time::Duration::from_millis(12));
    shared.station.refit().unwrap().unwrap();
    let groups = shared.emulator.cpu_resctrl_groups(100).unwrap();
    let group = groups.lines().next().unwrap().strip_prefix("res:nigh-clos-").unwrap();
    let said = shared.station.has_run(stream).unwrap();
    let mask = shared.mask_of(100);
    assert_eq!(said, format!("the classes changed while it ran: class {group} (mask {mask:x}) after 12.0 ms"));
    shared.station.refit().unwrap().unwrap();
    assert_eq!(shared.station.has_run(stream).unwrap(), said, "it stays where it is");
    shared.station.not_run(stream);
    assert_eq!(shared.station.has_run(stream), None);
}

#[tokio::test]
async fn fitted_classes_give_way_to_casys_when_only_a_need_known_by_its_ways_runs() {
    let shared = shared().await;
    let casys = shared.station.loads().layout().clone();
    let others = [shared.start("recogniser", 100), shared.start("stream", 101)];
    shared.station.refit().unwrap().unwrap();
    others.into_iter().for_each(|invocation| shared.station.not_run(invocation));
    shared.station.changed().await;
    shared.start("by-ways", 102);
    tokio::time::timeout(std::time::Duration::from_secs(60), shared.station.changed()).await.unwrap();
    shared.station.refit().unwrap().unwrap();
    assert_eq!(*shared.station.loads().layout(), casys);
    assert_eq!(shared.mask_of(102), shared.booked_mask_of(0));
}

#[tokio::test]
async fn while_a_need_is_known_by_its_ways_alone_the_classes_are_casys() {
    let shared = shared().await;
    let casys = shared.station.loads().layout().clone();
    shared.start("recogniser", 100);
    shared.start("stream", 101);
    shared.station.refit().unwrap().unwrap();
    assert_ne!(*shared.station.loads().layout(), casys);
    let by_ways = shared.start("by-ways", 102);
    assert!(shared.station.refit().unwrap().unwrap().moved > 0);
    assert_eq!(*shared.station.loads().layout(), casys);
    for (at, pid) in [100, 101, 102].into_iter().enumerate() {
        assert_eq!(shared.mask_of(pid), shared.booked_mask_of(at), "of process {pid}");
    }
    assert!((4..11).contains(&shared.mask_of(102).count_ones()));
    assert_eq!(shared.station.refit().unwrap(), None, "CASY's classes stay while it runs");
    shared.station.not_run(by_ways);
    shared.station.refit().unwrap().unwrap();
    assert_ne!(*shared.station.loads().layout(), casys);
}

#[tokio::test]
async fn what_nobody_profiled_stays_in_the_default_class_and_a_profile_holds_the_classes() {
    let shared = shared().await;
    let first = shared.start("unknown", 100);
    assert_eq!(shared.station.refit().unwrap(), None, "there is nothing to fit");
    let others = [shared.start("recogniser", 101), shared.start("stream", 102)];
    shared.station.refit().unwrap().unwrap();
    assert_eq!(shared.mask_of(100), 0x7ff);
    [first].into_iter().chain(others).for_each(|invocation| shared.station.not_run(invocation));
    assert!(shared.station.suspend());
    let loads = shared.station.loads();
    let deployed = function("stream");
    let mut run = Run::new(InvocationId::now(), &deployed, PAYLOAD, SandboxId::random());
    shared.station.before_run(&mut run).unwrap();
    assert_eq!(shared.station.refit().unwrap(), None);
    assert_eq!(shared.station.loads().layout(), loads.layout());
}

#[tokio::test]
async fn models_live_on_after_a_restart() {
    let state = tempfile::tempdir().unwrap();
    let deployed = function("f");
    let open = || async {
        let file = nigh_engine::StateFile::open(&state.path().join("state.redb")).unwrap();
        SizingModels::open(Arc::new(nigh_engine::LocalRegistry::new(file))).await.unwrap()
    };
    let models = open().await;
    models.keep(&deployed.namespace, &deployed.name, model(&["/input"])).await.unwrap();
    models.keep(&deployed.namespace, &deployed.name, model(&["/data"])).await.unwrap();
    drop(models);
    let found = open().await.find(&deployed).unwrap();
    assert_eq!(found.inputs, BTreeSet::from(["/data".to_owned()]));
    assert_eq!(found.model.rows().iter().count(), 2);
}
