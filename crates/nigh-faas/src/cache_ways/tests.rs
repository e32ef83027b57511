//! The station in the path, with a binder that keeps what it was told.

use std::collections::BTreeSet;
use std::path::PathBuf;

use nigh_llc::{
    CacheClass, CacheShape, Casy, CasyRequest, ModelKind, Predicted, SizingModel, SizingRule, Tolerance, TrainingRow,
    TrainingRows,
};
use nigh_objects::{ObjectEvent, ObjectObserver, Served};
use nigh_terms::{BucketName, ManualClock, Monotonic, ObjectKey, Principal, Token, WayMask, Ways};

use super::*;
use crate::function::tests::function;
use crate::grant::Grant;

const PAYLOAD: &[u8] = br#"{"input":{"bucket":"photos","key":"in"},"output":{"bucket":"photos","key":"out"}}"#;

#[derive(Default)]
struct Told {
    bound: Mutex<Vec<ClosId>>,
    refuses: Mutex<bool>,
}

impl ClosBinder for Told {
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
    told: Arc<Told>,
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

async fn bench(inputs: &[&str]) -> Bench {
    let state = tempfile::tempdir().unwrap();
    let file = nigh_engine::StateFile::open(&state.path().join("state.redb")).unwrap();
    let registry: Arc<dyn nigh_engine::Registry> = Arc::new(nigh_engine::LocalRegistry::new(file));
    let models = Arc::new(SizingModels::open(registry).await.unwrap());
    let deployed = function("f");
    models.keep(&deployed.namespace, &deployed.name, model(inputs)).await.unwrap();
    let sizes = Arc::new(ObjectSizes::default());
    for (key, bytes) in [("in", 900), ("out", 50)] {
        sizes.observe(&ObjectEvent {
            principal: Principal::outside(deployed.namespace.clone()),
            bucket: BucketName::new("photos").unwrap(),
            key: Some(ObjectKey::new(key).unwrap()),
            served: Served::Write,
            bytes,
            object_bytes: Some(bytes),
            began: Monotonic(0),
            ended: Monotonic(1),
            version: None,
            token: Token::empty(),
        });
    }
    let told = Arc::new(Told::default());
    let clock = Arc::new(ManualClock::default());
    let station = CacheWays::new(CacheWaysParts {
        models,
        sizes,
        policy: Box::new(Casy),
        layout: Arc::new(ClosLayout::casy(&CasyRequest::of(shape(), Ways(3))).unwrap()),
        insensitive: Ways(3),
        lines_per_way: 20_480.0,
        binder: Some(Arc::clone(&told) as Arc<dyn ClosBinder>),
        clock: Arc::clone(&clock) as Arc<dyn Clock>,
    });
    Bench { station, clock, told, _state: state }
}

impl Bench {
    fn run(&self, function: &Function, payload: &[u8], sandbox: SandboxId) -> (InvocationId, String) {
        let invocation = InvocationId::now();
        let mut run = Run {
            invocation,
            function,
            payload,
            sandbox,
            tasks: Some(Members::Cgroup(PathBuf::from("/sandbox"))),
            grant: Grant::full(function.memory),
        };
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
    let predicted = Predicted { ways: Ways(4), class: CacheClass::Sensitive };
    assert_eq!(running.running()[0].need.predicted, Some(predicted));
    bench.station.not_run(invocation);
    assert!(bench.station.loads().running().is_empty());
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
    assert!(bench.told.bound.lock().is_empty());
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
