//! How sandboxes live: kept, frozen, shared with nobody, ended; and who waits for them.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures::future::join_all;
use nigh_invoke::activation_log::ActivationQuery;
use nigh_invoke::hooks::{InvocationHook, Run};
use nigh_invoke::invocation::{Invoke as _, InvokeError, UpcomingInvocation};
use nigh_invoke::invoker::InvokerSettings;
use nigh_schedule::activation::{Activation, Outcome as Recorded};
use nigh_schedule::memory::grant::Grant;
use nigh_schedule::sandbox_pool::PoolUse;
use nigh_terms::{ByteSize, FunctionName, InvocationId};
use parking_lot::Mutex;
use serde_json::json;

use crate::node::{Node, Outcome, PATIENCE, settings};

#[tokio::test(flavor = "multi_thread")]
async fn a_handler_that_runs_on_after_its_answer_is_refused_its_data_and_frozen() {
    let mut settings = settings();
    // Time for some calls after the answer.
    settings.freeze_grace = Duration::from_millis(300);
    let node = Node::start(settings).await;
    node.deploy("f", |_| {});
    let outcome = node.invoke("f", json!({"do": "run on"})).await;
    node.until("the sandbox is frozen", |node| node.invoker.in_use().idle_booked > ByteSize::ZERO).await;
    let calls = node.data_calls();
    // Time for far more calls, if it were not frozen; one may have been under way.
    tokio::time::sleep(Duration::from_secs(2)).await;
    let more = node.data_calls() - calls;
    assert!(more <= 1, "{more} calls of a frozen sandbox");
    let heard = node.invoke("f", json!({"do": "heard"})).await.payload;
    let heard: Vec<_> = heard.as_array().unwrap().iter().filter_map(|line| line.as_str()).collect();
    let own = outcome.id.to_string();
    let after = heard.iter().position(|line| *line == "refused").unwrap();
    assert!(heard[..after].contains(&own.as_str()), "{heard:?}");
    assert!(!heard[after..].contains(&own.as_str()), "{heard:?}");
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_more_sandboxes_run_than_may_and_the_others_wait_their_turn() {
    let mut settings = settings();
    settings.limits.sandboxes_max = 2;
    let node = Node::start(settings).await;
    node.deploy("f", |_| {});
    let nap = || node.invoke("f", json!({"do": "sleep", "s": 0.05}));
    let outcomes = join_all((0..8).map(|_| nap())).await;
    assert!(outcomes.iter().all(|outcome| !outcome.is_error));
    let mut sandboxes = BTreeSet::new();
    for outcome in outcomes {
        sandboxes.insert(node.record(outcome.id).await.sandbox);
    }
    assert_eq!(sandboxes.len(), 2);
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_waits_too_long_or_behind_too_many_is_told_to_come_later() {
    let mut settings = settings();
    settings.limits.invocations_max = 1;
    settings.limits.waiting_max = 1;
    // Longer than a busy machine takes to make a sandbox.
    settings.limits.wait_max = Duration::from_millis(1500);
    let node = Arc::new(Node::start(settings).await);
    node.deploy("f", |_| {});
    node.invoke("f", json!({})).await;
    let long = tokio::spawn({
        let node = Arc::clone(&node);
        async move { node.invoke("f", json!({"do": "sleep", "s": 4})).await }
    });
    node.until("it runs", |node| node.invoker.in_use().running == 1).await;
    let (first, second) = tokio::join!(node.try_invoke("f", json!({})), node.try_invoke("f", json!({})));
    for refused in [first, second] {
        assert!(matches!(refused, Err(InvokeError::TooManyRequests(why)) if why.contains("invocations")));
    }
    assert!(!long.await.unwrap().is_error);
    assert_eq!(node.invoker.in_use().waiting, 0);
    node.invoker.drain(PATIENCE).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_sandbox_that_is_worth_least_makes_room_for_another_function() {
    let mut settings = settings();
    settings.limits.sandboxes_max = 2;
    let node = Node::start(settings).await;
    for name in ["a", "b", "c"] {
        node.deploy(name, |_| {});
        // One that is called more often is worth more.
        for _ in 0..if name == "b" { 3 } else { 1 } {
            assert!(!node.invoke(name, json!({})).await.is_error);
        }
        assert!(node.invoker.in_use().sandboxes <= 2);
    }
    assert!(!node.record(node.invoke("b", json!({})).await.id).await.cold);
    let back = node.record(node.invoke("a", json!({})).await.id).await;
    assert!(back.cold && back.placement.contains("had been ended to make room for c"), "{}", back.placement);
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sandbox_is_not_shared_between_tenants_functions_or_versions() {
    let mut settings = settings();
    settings.limits.memory_max = ByteSize::gib(2);
    let mut node = Node::start(settings).await;
    let mut sandboxes = BTreeSet::new();
    for (tenant, name) in [("one", "f"), ("one", "g"), ("two", "f")] {
        node.tenant = nigh_terms::Namespace::new(tenant).unwrap();
        node.deploy(name, |_| {});
        sandboxes.insert(node.record(node.invoke(name, json!({})).await.id).await.sandbox);
    }
    let version = node.invoke("f", json!({"do": "code"})).await.payload;
    assert_eq!(version, "f-1");
    node.deploy("f", |function| (function.code_sha256, function.revision_id) = ("f-2".to_owned(), "2".to_owned()));
    let updated = node.invoke("f", json!({"do": "code"})).await;
    assert_eq!(updated.payload, "f-2");
    sandboxes.insert(node.record(updated.id).await.sandbox);
    assert_eq!(sandboxes.len(), 4);
    node.until("the old version's sandbox ends", |node| node.invoker.in_use().sandboxes == 3).await;
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_invocation_that_runs_while_its_function_is_updated_finishes_on_the_old_code() {
    let node = Arc::new(Node::start(settings()).await);
    node.deploy("f", |_| {});
    node.invoke("f", json!({})).await;
    let old = tokio::spawn({
        let node = Arc::clone(&node);
        async move { node.invoke("f", json!({"do": "sleep", "s": 1})).await }
    });
    node.until("it runs", |node| node.invoker.in_use().running == 1).await;
    node.deploy("f", |function| (function.code_sha256, function.revision_id) = ("f-2".to_owned(), "2".to_owned()));
    assert_eq!(node.invoke("f", json!({"do": "code"})).await.payload, "f-2");
    let old = old.await.unwrap();
    assert_eq!((old.payload, node.record(old.id).await.code_sha256), (json!("slept"), "f-1".to_owned()));
    node.until("the old version's sandbox ends", |node| node.invoker.in_use().sandboxes == 1).await;
    node.invoker.drain(PATIENCE).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn idle_sandboxes_end_after_the_keep_alive() {
    let mut settings = settings();
    settings.keep_alive.idle_for = Duration::from_millis(200);
    let node = Node::start(settings).await;
    node.deploy("f", |_| {});
    node.invoke("f", json!({})).await;
    node.until("the sandbox ends", |node| node.invoker.in_use().sandboxes == 0).await;
    assert!(node.record(node.invoke("f", json!({})).await.id).await.cold);
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sandbox_that_ends_while_idle_is_replaced_and_nobody_hears_of_it() {
    let mut settings = settings();
    settings.freeze_grace = Duration::from_secs(60);
    let node = Node::start(settings).await;
    node.deploy("f", |_| {});
    assert_eq!(node.invoke("f", json!({"do": "exit later"})).await.payload, "soon");
    node.until("the sandbox is gone", |node| node.invoker.in_use().sandboxes == 0).await;
    let next = node.invoke("f", json!({})).await;
    assert!(!next.is_error && node.record(next.id).await.cold);
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_invocation_goes_on_to_its_record_when_its_caller_hangs_up() {
    let node = Node::start(settings()).await;
    node.deploy("f", |_| {});
    node.invoke("f", json!({})).await;
    let call = node.try_invoke("f", json!({"do": "sleep", "s": 0.5}));
    assert!(tokio::time::timeout(Duration::from_millis(100), call).await.is_err());
    node.until("it ends", |node| node.invoker.in_use().running == 0).await;
    let records = node.activations.list(ActivationQuery::default(), 10).await.unwrap();
    assert_eq!((records.len(), &records[0].outcome), (2, &Recorded::Answered));
    assert!(records[0].duration_us >= 500_000);
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drain_lets_what_runs_finish_and_admits_nothing() {
    let node = Arc::new(Node::start(settings()).await);
    node.deploy("f", |_| {});
    node.invoke("f", json!({})).await;
    let running = tokio::spawn({
        let node = Arc::clone(&node);
        async move { node.invoke("f", json!({"do": "sleep", "s": 1})).await }
    });
    node.until("it runs", |node| node.invoker.in_use().running == 1).await;
    let drain = tokio::spawn({
        let node = Arc::clone(&node);
        async move { node.invoker.drain(PATIENCE).await }
    });
    // Until the drain has begun.
    let refused = async {
        while !matches!(node.try_invoke("f", json!({})).await, Err(InvokeError::ShuttingDown)) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(PATIENCE, refused).await.unwrap();
    assert_eq!(running.await.unwrap().payload, "slept");
    drain.await.unwrap();
    assert_eq!(node.invoker.in_use().sandboxes, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drain_that_has_no_time_ends_what_runs() {
    let node = Arc::new(Node::start(settings()).await);
    node.deploy("f", |_| {});
    node.invoke("f", json!({})).await;
    let running = tokio::spawn({
        let node = Arc::clone(&node);
        async move { node.invoke("f", json!({"do": "sleep", "s": 50})).await }
    });
    node.until("it runs", |node| node.invoker.in_use().running == 1).await;
    node.invoker.drain(Duration::from_millis(50)).await;
    assert_eq!(running.await.unwrap().error_type(), "Runtime.ExitError");
    assert_eq!(node.invoker.in_use().sandboxes, 0);
}

#[derive(Default)]
struct Witness(Mutex<Vec<String>>);

struct Hook(&'static str, Arc<Witness>);

impl InvocationHook for Hook {
    fn name(&self) -> &'static str {
        self.0
    }

    fn before_run(&self, run: &mut Run<'_>) -> Option<String> {
        self.1.0.lock().push(format!("before {}", self.0));
        run.grant = Grant { memory: ByteSize::mib(96), booked: run.grant.booked };
        Some(format!("{} bytes in", run.payload.len()))
    }

    fn after_run(&self, activation: &Activation) {
        self.1.0.lock().push(format!("after {} {:?}", self.0, activation.outcome));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn hooks_stand_around_each_run_and_set_its_memory() {
    let witness = Arc::new(Witness::default());
    let hooks: Vec<Arc<dyn InvocationHook>> =
        vec![Arc::new(Hook("one", Arc::clone(&witness))), Arc::new(Hook("two", Arc::clone(&witness)))];
    let node = Node::with_hooks(settings(), hooks).await;
    node.deploy("f", |function| function.timeout = Duration::from_secs(2));
    let answered = node.invoke("f", json!({})).await;
    let record = node.record(answered.id).await;
    assert_eq!(record.notes, ["one: 2 bytes in", "two: 2 bytes in"]);
    assert_eq!((record.granted, record.booked), (ByteSize::mib(96), ByteSize::mib(128)));
    node.invoke("f", json!({"do": "sleep", "s": 30})).await;
    let seen = witness.0.lock().clone();
    let expected = ["before one", "before two", "after two Answered", "after one Answered"].map(str::to_owned);
    assert_eq!(seen[..4], expected);
    assert_eq!(seen[6..], ["after two TimedOut", "after one TimedOut"].map(str::to_owned));
    node.stop().await;
}

/// Counts what was made ready.
#[derive(Default)]
struct ReadyCounter(AtomicUsize);

impl InvocationHook for ReadyCounter {
    fn name(&self) -> &'static str {
        "readied"
    }

    fn before_run(&self, _: &mut Run<'_>) -> Option<String> {
        None
    }

    fn ahead(&self, _: &mut Run<'_>, _: Option<InvocationId>) -> Option<String> {
        self.0.fetch_add(1, Ordering::SeqCst);
        None
    }

    fn after_run(&self, _: &Activation) {}
}

fn next(function: &str) -> UpcomingInvocation {
    UpcomingInvocation { function: FunctionName::new(function).unwrap(), input: None, after: None }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sandbox_made_ahead_is_there_for_the_first_invocation_and_holds_nobody_up() {
    let readied = Arc::new(ReadyCounter::default());
    let node = Node::with_hooks(settings(), vec![Arc::clone(&readied) as Arc<dyn InvocationHook>]).await;
    node.deploy("f", |_| ());
    // One is enough, however often it is asked for: while it is being made, and when it is idle.
    for times in 1..=2 {
        node.until("it was made ready again", |node| {
            node.invoker.prepare(&node.tenant, next("f"));
            readied.0.load(Ordering::SeqCst) >= times
        })
        .await;
    }
    assert_eq!(node.invoker.in_use().sandboxes, 1);
    // What may still be asked for now has come.
    let record = node.record(node.invoke("f", json!({"do": "echo"})).await.id).await;
    assert!(!record.cold, "{record:?}");
    assert_eq!(node.invoker.in_use().sandboxes, 1);
    node.stop().await;
}

/// Starts as the test's file says: `wait` or `exit`, else the bootstrap.
const HELD_BACK: &str = "#!/bin/sh
cd /var/task
until read word < word && [ $word != wait ]; do sleep 0.01; done
[ $word != exit ] && exec ./held
";

/// A node with a function whose sandboxes are not ready before `tell` says so.
async fn node_that_holds_back(settings: InvokerSettings) -> Arc<Node> {
    let node = Node::start(settings).await;
    let held = include_str!("bootstrap.py");
    node.deploy_files("f", &[("bootstrap", HELD_BACK), ("held", held), ("word", "wait\n")], |_| ());
    Arc::new(node)
}

/// Has a sandbox made ahead, and an invocation come while that is not ready.
async fn invoked_meanwhile(node: &Arc<Node>) -> tokio::task::JoinHandle<Outcome> {
    node.invoker.prepare(&node.tenant, next("f"));
    node.until("it is being made", |node| node.invoker.in_use().sandboxes == 1).await;
    let invoked = tokio::spawn({
        let node = Arc::clone(node);
        async move { node.invoke("f", json!({"do": "echo"})).await }
    });
    node.until("the invocation has come", |node| node.invoker.in_use().waiting == 1).await;
    invoked
}

#[tokio::test(flavor = "multi_thread")]
async fn an_invocation_that_comes_while_its_sandbox_is_made_ahead_takes_that_one() {
    let node = node_that_holds_back(settings()).await;
    let invoked = invoked_meanwhile(&node).await;
    let in_use = node.invoker.in_use();
    assert_eq!((in_use.sandboxes, in_use.idle, in_use.waiting), (1, 0, 1));
    node.tell("f", "word", "go\n");
    let record = node.record(invoked.await.unwrap().id).await;
    assert!(!record.cold && record.placement.contains("was making a sandbox of the function"), "{record:?}");
    assert_eq!(node.invoker.in_use().sandboxes, 1);
    node.invoker.drain(PATIENCE).await;
    assert_eq!(node.invoker.in_use(), PoolUse::default());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_invocation_makes_its_own_sandbox_when_the_one_made_ahead_takes_too_long_or_fails() {
    let node = node_that_holds_back(settings()).await;
    let invoked = invoked_meanwhile(&node).await;
    node.until("it makes its own", |node| node.invoker.in_use().sandboxes == 2).await;
    node.tell("f", "word", "go\n");
    // Both are ready now, and it takes the one that was first.
    assert!(!invoked.await.unwrap().is_error);
    node.invoker.drain(PATIENCE).await;
    assert_eq!(node.invoker.in_use(), PoolUse::default());

    let node = node_that_holds_back(settings()).await;
    let invoked = invoked_meanwhile(&node).await;
    node.tell("f", "word", "exit\n");
    // It finds out by itself, long before the longest wait.
    let failed = invoked.await.unwrap();
    assert_eq!(failed.error_type(), "Runtime.ExitError");
    assert!(node.record(failed.id).await.cold);
    node.invoker.drain(PATIENCE).await;
    assert_eq!(node.invoker.in_use(), PoolUse::default());
}
