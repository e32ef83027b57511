//! Runs sized by what was learned, in real sandboxes: the grant follows the input.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use nigh_engine::{LocalRegistry, StateFile};
use nigh_functions::function::{Function, FunctionSource, Runtime};
use nigh_invoke::hooks::InvocationHook;
use nigh_learn::Learner;
use nigh_sizing::memory_sizing::{MemorySizing, MemorySizingParts, SizingMode};
use nigh_sizing::object_sizes::ObjectSizes;
use nigh_terms::{ByteSize, FunctionName, Namespace, SystemClock};
use serde_json::json;

use crate::node::{Node, settings};

const BOOKED: ByteSize = ByteSize::mib(256);
/// Runs that are learned from.
const RUNS: u64 = 40;

/// Nothing is asked of it here.
struct Nobody;

#[async_trait]
impl FunctionSource for Nobody {
    async fn find(&self, _: &Namespace, _: &FunctionName) -> Option<Arc<Function>> {
        None
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

/// A station with a registry of its own.
fn sizing(folder: &tempfile::TempDir, mode: SizingMode) -> Arc<MemorySizing> {
    let state = StateFile::open(&folder.path().join("models.redb")).unwrap();
    Arc::new(MemorySizing::new(MemorySizingParts {
        registry: Arc::new(LocalRegistry::new(state)),
        functions: Arc::new(Nobody),
        objects: Arc::new(ObjectSizes::default()),
        // What was exceeded by nobody so far: the tail is not what is tested here.
        learner: Learner::LinTree { margin_share: 1.0 },
        mode,
        clock: Arc::new(SystemClock::new()),
    }))
}

async fn node(sizing: &Arc<MemorySizing>) -> Node {
    let node = Node::with_hooks(settings(), vec![Arc::clone(sizing) as Arc<dyn InvocationHook>]).await;
    node.deploy("f", |function| function.memory = BOOKED);
    node
}

#[tokio::test(flavor = "multi_thread")]
async fn in_real_sandboxes_a_grant_follows_the_input_and_a_miss_is_not_repeated() {
    let (first, second) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    // Learned in one life, where all that is booked is granted.
    let watches = sizing(&first, SizingMode::Watches);
    let learns = node(&watches).await;
    for at in 0..RUNS {
        let mib = 2 + at * 7 % 60;
        let outcome = learns.invoke("f", json!({ "do": "map", "mib": mib })).await;
        assert_eq!(outcome.payload, mib);
        let record = learns.record(outcome.id).await;
        assert_eq!(record.granted, BOOKED);
        // One after the other, so that each is learned before the next.
        watches.flush().await;
    }
    let function = learns.function("f");
    let known = watches.show(&function).await.unwrap();
    assert!(known.mature, "{known:?}");
    let csv = watches.export(&function).await.unwrap();
    learns.stop().await;

    let grants = sizing(&second, SizingMode::Grants);
    let sized = node(&grants).await;
    grants.import(&function, csv).await.unwrap();
    let mut granted = Vec::new();
    for mib in [55, 30, 5, 55] {
        let outcome = sized.invoke("f", json!({ "do": "map", "mib": mib })).await;
        let record = sized.record(outcome.id).await;
        assert_eq!(outcome.payload, mib, "{:?}", record.notes);
        let peak = record.peak_memory.unwrap();
        assert!(record.granted >= peak && record.granted < ByteSize(peak.bytes() + (48 << 20)), "{:?}", record.notes);
        assert!(record.notes.iter().any(|note| note.starts_with("sizing: granted")), "{:?}", record.notes);
        granted.push(record.granted);
    }
    assert!(granted[0] > granted[1] && granted[1] > granted[2] && granted[3] > granted[1], "{granted:?}");

    // More than anything that can be known before tells: the next equal one gets what this one needed.
    let event = json!({ "do": "map", "mib": 5, "note": format!("{} 100", "n".repeat(80)) });
    let missed = sized.record(sized.invoke("f", event.clone()).await.id).await;
    assert!(missed.notes.iter().any(|note| note.contains("granted")), "{:?}", missed.notes);
    let again = sized.invoke("f", event).await;
    let record = sized.record(again.id).await;
    assert_eq!(again.payload, 105);
    // Of one that was ended for it the peak may be lost with its group.
    let held = missed.peak_memory.is_none_or(|peak| record.granted >= peak);
    assert!(held && record.granted >= ByteSize::mib(105), "{:?}", record.notes);
    sized.stop().await;
}
