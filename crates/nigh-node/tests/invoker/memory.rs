//! How a node's memory is shared out between sandboxes and the cache, by the kernel's own groups.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use nigh_invoke::hooks::{InvocationHook, Run};
use nigh_invoke::node_memory::{IdleMemory, MemoryStatus, NodeMemorySettings};
use nigh_schedule::activation::idempotence::IDEMPOTENT_VARIABLE;
use nigh_schedule::activation::{Activation, Outcome as Recorded};
use nigh_schedule::memory::budget::BudgetLimits;
use nigh_schedule::memory::grant::Grant;
use nigh_schedule::memory::slack::SlackBounds;
use nigh_terms::ByteSize;
use serde_json::json;

use crate::node::{Node, settings};
use crate::skipped::skip;

/// 1 GiB that sandboxes may book, 64 MiB of the cache's own.
const BOOKABLE: ByteSize = ByteSize::mib(1024);
const OWN: ByteSize = ByteSize::mib(64);
const SLACK: ByteSize = ByteSize::mib(100);

fn shared() -> NodeMemorySettings {
    let slack = SlackBounds { first: SLACK, min: ByteSize::mib(32), max: ByteSize::mib(256) };
    let limits = BudgetLimits { bookable: BOOKABLE, cache_own: OWN, slack };
    NodeMemorySettings { limits, park: true, idle: IdleMemory::Keep }
}

/// Grants so much to each run.
struct FixedGrant(ByteSize);

impl InvocationHook for FixedGrant {
    fn name(&self) -> &'static str {
        "granting"
    }

    fn before_run(&self, run: &mut Run<'_>) -> Option<String> {
        run.grant = Grant { memory: self.0, ..run.grant };
        None
    }

    fn after_run(&self, _: &Activation) {}
}

/// A node where each run is granted `mib`, or nothing said why where memory is not controlled.
async fn node(test: &str, mib: Option<u64>) -> Option<Node> {
    node_with(test, mib, shared()).await
}

async fn node_with(test: &str, mib: Option<u64>, memory: NodeMemorySettings) -> Option<Node> {
    let hooks = mib.map(|mib| Arc::new(FixedGrant(ByteSize::mib(mib))) as Arc<dyn InvocationHook>);
    let mut settings = settings();
    settings.limits.memory_max = BOOKABLE;
    let node = Node::with_memory(memory, settings, hooks.into_iter().collect()).await;
    node.deploy("f", |function| function.memory = ByteSize::mib(512));
    let first = node.invoke("f", json!({})).await;
    if node.record(first.id).await.peak_memory.is_none() {
        skip(test, "memory is not controlled here");
        return None;
    }
    Some(node)
}

fn status(node: &Node) -> MemoryStatus {
    let status = node.memory.status().unwrap();
    assert!(status.granted + status.cache_takes <= status.booked + status.cache_own, "{status:?}");
    status
}

#[tokio::test(flavor = "multi_thread")]
async fn a_function_that_was_granted_too_little_grows_and_runs_on() {
    let Some(node) = node("a_function_that_was_granted_too_little_grows_and_runs_on", Some(40)).await else { return };
    let small = node.invoke("f", json!({"do": "use", "mib": 10})).await;
    let record = node.record(small.id).await;
    assert_eq!((record.memory.grown, record.granted), (0, ByteSize::mib(40)), "{record:?}");
    let large = node.invoke("f", json!({"do": "use", "mib": 300})).await;
    assert_eq!(large.payload, json!(300 << 20));
    let record = node.record(large.id).await;
    assert!(record.memory.grown > 0 && !record.memory.reached_booked, "{record:?}");
    assert_eq!(record.granted, ByteSize::mib(40));
    assert!(record.peak_memory > Some(ByteSize::mib(300)), "{record:?}");
    let status = status(&node);
    assert!(status.grown > 0 && status.killed == 0, "{status:?}");
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_kernel_touches_for_a_function_is_granted_before_it_fails_or_it_is_run_again() {
    let test = "what_the_kernel_touches_for_a_function_is_granted_before_it_fails_or_it_is_run_again";
    let Some(node) = node(test, Some(40)).await else { return };
    node.deploy("again", |function| {
        function.memory = ByteSize::mib(512);
        function.environment.insert(IDEMPOTENT_VARIABLE.to_owned(), "true".to_owned());
    });
    for _ in 0..5 {
        let read = node.invoke("again", json!({"do": "read at once", "mib": 300})).await;
        let record = node.record(read.id).await;
        assert_eq!((read.payload, read.is_error), (json!(300), false), "{record:?}");
        // Who is run again was granted all.
        assert!(record.memory.grown > 0 || record.notes.iter().any(|note| note.contains("run again")), "{record:?}");
    }
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_failed_at_a_limit_below_what_was_booked_is_run_again_if_it_is_idempotent() {
    let test = "what_failed_at_a_limit_below_what_was_booked_is_run_again_if_it_is_idempotent";
    let Some(node) = node(test, Some(40)).await else { return };
    let large = "x".repeat(96 << 20);
    let files = [("bootstrap", include_str!("bootstrap.py")), ("large", large.as_str())];
    for (name, word) in [("again", Some("true")), ("once", None)] {
        node.deploy_files(name, &files, |function| {
            (function.memory, function.code_sha256) = (ByteSize::mib(512), "large".to_owned());
            let variable = word.map(|word| (IDEMPOTENT_VARIABLE.to_owned(), word.to_owned()));
            function.environment.extend(variable);
        });
    }
    // What waits for the disk cannot be dropped from memory, and this process pays for what is there.
    node.sync_code("large");
    let event = json!({"do": "comes to its limit and fails at first"});
    let again = node.invoke("again", event.clone()).await;
    let record = node.record(again.id).await;
    let unified = std::path::Path::new("/sys/fs/cgroup/cgroup.controllers").exists();
    if unified && again.is_error && !record.notes.iter().any(|note| note.contains("idempotent")) {
        // The kernel of cgroup v2 drops pages of files before it fails a system call. So it is here only if nothing counted
        // the run as having come to its limit, and if a call that needs far more than the grant, in a function that is not
        // run again, does not fail either. Else Nigh had to run it again.
        assert!(!record.memory.came_short, "it came to its limit, failed, and was not run again: {record:?}");
        let control = node.invoke("once", json!({"do": "read at once", "mib": 300})).await;
        assert_eq!((&control.payload, control.is_error), (&json!(300), false), "system calls fail at limits here");
        skip(test, "no system call fails at a limit of cgroup v2");
        return node.stop().await;
    }
    assert_eq!((again.payload, again.is_error), (json!(2), false), "{record:?}");
    assert!(record.notes[0].contains("run again with all that it booked"), "{record:?}");
    assert_eq!((record.granted, status(&node).retried), (ByteSize::mib(512), 1));
    let once = node.invoke("once", event).await;
    assert_eq!(once.error_type(), "ValueError");
    assert_eq!(status(&node).retried, 1);
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_idle_sandbox_keeps_what_it_uses_and_the_cache_has_the_rest() {
    let test = "an_idle_sandbox_keeps_what_it_uses_and_the_cache_has_the_rest";
    let Some(node) = node(test, None).await else { return };
    node.until("the cache has what the idle one does not use", |node| {
        let status = status(node);
        status.granted < ByteSize::mib(64) && status.cache > ByteSize::mib(1024 + 64 - 64 - 100)
    })
    .await;
    node.fill_cache(230, 4 << 20).await;
    assert!(status(&node).cache_takes > ByteSize::mib(900), "{:?}", status(&node));
    // All that it booked is granted again, and the cache gives way for it.
    let used = node.invoke("f", json!({"do": "use", "mib": 400})).await;
    assert_eq!(used.payload, json!(400 << 20));
    assert!(status(&node).yielded > ByteSize::mib(300), "{:?}", status(&node));
    node.until("the cache may take it again", |node| status(node).cache > ByteSize::mib(900)).await;
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn idle_memory_is_reclaimed_where_that_is_asked_for() {
    let test = "idle_memory_is_reclaimed_where_that_is_asked_for";
    let memory = NodeMemorySettings { idle: IdleMemory::Reclaim, ..shared() };
    let Some(node) = node_with(test, None, memory).await else { return };
    node.until("it rests", |node| status(node).granted < ByteSize::mib(64)).await;
    assert_eq!(node.invoke("f", json!({"n": 1})).await.payload, json!({"n": 1}));
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn whatever_functions_take_grants_and_cache_stay_within_the_nodes_memory() {
    let test = "whatever_functions_take_grants_and_cache_stay_within_the_nodes_memory";
    let Some(node) = node(test, Some(30)).await else { return };
    let (node, over) = (Arc::new(node), Arc::new(AtomicBool::new(false)));
    node.deploy("g", |function| function.memory = ByteSize::mib(384));
    let fills = tokio::spawn({
        let (node, over) = (Arc::clone(&node), Arc::clone(&over));
        async move {
            while !over.load(Ordering::Acquire) {
                node.fill_cache(40, 4 << 20).await;
            }
        }
    });
    let watches = tokio::spawn({
        let (node, over) = (Arc::clone(&node), Arc::clone(&over));
        async move {
            while !over.load(Ordering::Acquire) {
                status(&node);
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        }
    });
    for round in 0..6u64 {
        let (one, other) = tokio::join!(
            node.invoke("f", json!({"do": "use", "mib": 40 + 60 * round})),
            node.invoke("g", json!({"do": "use", "mib": 300 - 40 * round})),
        );
        assert!(!one.is_error && !other.is_error, "{one:?} {other:?}");
    }
    over.store(true, Ordering::Release);
    fills.await.unwrap();
    watches.await.unwrap();
    assert_eq!(status(&node).killed, 0);
    Arc::into_inner(node).unwrap().stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_needs_more_than_it_booked_fails_as_on_lambda_and_is_told_a_size() {
    let test = "who_needs_more_than_it_booked_fails_as_on_lambda_and_is_told_a_size";
    let Some(node) = node(test, Some(40)).await else { return };
    node.deploy("small", |_| {});
    let outcome = node.invoke("small", json!({"do": "use", "mib": 300})).await;
    assert_eq!(outcome.error_type(), "Runtime.OutOfMemory");
    let record = node.record(outcome.id).await;
    assert!(record.outcome == Recorded::OutOfMemory && record.memory.reached_booked, "{record:?}");
    let advice = "memory: it needed more than the 128 MiB that it booked; book 256 MiB or more";
    assert!(record.notes.iter().any(|note| note == advice) && record.log.contains(advice), "{record:?}");
    assert_eq!(status(&node).killed, 1);
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn idle_sandboxes_end_when_others_grow_and_what_the_cache_has_is_held() {
    let test = "idle_sandboxes_end_when_others_grow_and_what_the_cache_has_is_held";
    let Some(node) = node(test, Some(30)).await else { return };
    node.deploy("idle", |function| function.memory = ByteSize::mib(512));
    assert!(!node.invoke("idle", json!({"do": "hoard", "mib": 150})).await.is_error);
    node.until("both rest", |node| status(node).granted < ByteSize::mib(256)).await;
    node.fill_cache(230, 4 << 20).await;
    let mut held = Vec::new();
    for number in 0..230 {
        held.push(node.read(number).await);
    }
    // It needs more than is kept free, and nobody gives back what is read: the idle one has to end.
    let grown = node.invoke("f", json!({"do": "use", "mib": 160})).await;
    assert_eq!(grown.payload, json!(160 << 20));
    let status = status(&node);
    assert!(status.idle_ended >= 1, "{status:?}");
    drop(held);
    let record = node.record(node.invoke("idle", json!({})).await.id).await;
    assert!(record.cold, "{record:?}");
    node.stop().await;
}
