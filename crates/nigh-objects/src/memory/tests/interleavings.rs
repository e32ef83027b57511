//! Writers and readers of one object, and a task that reports outside writes, under many schedules: no read is older
//! than what was acknowledged before it began, and none goes back. And invocations that write and end: no later one
//! begins without their writes.

use std::collections::BTreeMap;

use nigh_terms::{FunctionName, InvocationId, SandboxId, Token};
use shuttle::future::{block_on, spawn};

use super::*;
use crate::sync::explore::explore;
use nigh_terms::ShardId;

const SCHEDULES: usize = 100;
/// Enough schedules to find a seeded fault.
const SCHEDULES_WITH_FAULT: usize = 2000;

/// The texts of acknowledged writes, by their versions. Its lock is none of the schedule's, so that looking at it
/// changes no order.
type AcknowledgedTexts = Arc<Mutex<BTreeMap<Version, &'static str>>>;

async fn write(
    memory: ObjectMemory,
    who: Principal,
    bucket: BucketName,
    acknowledged: AcknowledgedTexts,
    text: &'static str,
) {
    let done = memory.put(&who, &bucket, &key("a"), body(text.as_bytes())).await.unwrap();
    acknowledged.lock().insert(done.version, text);
}

/// The object's current text.
async fn read(memory: &ObjectMemory, who: &Principal, bucket: &BucketName) -> String {
    let got = memory.get(who, bucket, &key("a"), GetRequest::default()).await.unwrap();
    String::from_utf8(bytes_of(got).await.unwrap().to_vec()).unwrap()
}

async fn read_twice(memory: ObjectMemory, who: Principal, bucket: BucketName, acknowledged: AcknowledgedTexts) {
    for _ in 0..2 {
        let floor = acknowledged.lock().keys().next_back().copied();
        let text = read(&memory, &who, &bucket).await;
        // A text that is not acknowledged yet is newer than all that are.
        let version = acknowledged.lock().iter().find(|(_, known)| **known == text).map(|(version, _)| *version);
        let is_stale = version.is_some() && version < floor;
        assert!(!is_stale, "a read of `{text}` is stale: {floor:?} was acknowledged before");
    }
}

/// Two writers and two readers of an object without a copy, and a task that drops its copy once. They use one memory.
/// In the fault that a test seeds, the readers use another memory in front of the same store, so that nothing orders
/// them.
fn traffic(ordered: bool) {
    block_on(async {
        let (store, events, clock) = (Arc::new(GatedStore::default()), Arc::default(), Arc::default());
        let folders = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
        let memory = open(&store, &events, &clock, folders[0].path()).await;
        let asked = match ordered {
            true => memory.clone(),
            false => open(&store, &events, &clock, folders[1].path()).await,
        };
        let (who, bucket) = (Principal::outside(Namespace::new("tenant").unwrap()), BucketName::new("bucket").unwrap());
        memory.create_bucket(&who, &bucket).await.unwrap();
        let acknowledged: AcknowledgedTexts = Arc::default();
        let newest = || Arc::clone(&acknowledged);
        write(memory.clone(), who.clone(), bucket.clone(), newest(), "first").await;
        memory.invalidate(&who, &bucket, &key("a"));
        let mut tasks = Vec::new();
        for text in ["second", "third"] {
            tasks.push(spawn(write(memory.clone(), who.clone(), bucket.clone(), newest(), text)));
            tasks.push(spawn(read_twice(asked.clone(), who.clone(), bucket.clone(), newest())));
        }
        let (others, whose, place) = (asked.clone(), who.clone(), bucket.clone());
        tasks.push(spawn(async move { others.invalidate(&whose, &place, &key("a")) }));
        for task in tasks {
            task.await.unwrap();
        }
        let last = read(&asked, &who, &bucket).await;
        assert_eq!(acknowledged.lock().values().next_back(), Some(&last.as_str()), "what is read in the end is stale");
    });
}

#[test]
fn under_every_schedule_no_read_is_older_than_what_was_acknowledged() {
    explore(SCHEDULES, || traffic(true)).unwrap();
}

#[test]
fn readers_that_nothing_orders_with_the_writers_are_found_to_read_stale_bytes() {
    let found = explore(SCHEDULES_WITH_FAULT, || traffic(false));
    assert!(found.as_ref().is_err_and(|panic| panic.contains("is stale")), "{found:?}");
}

/// An invocation that ends, or is killed, while it writes.
async fn run(memory: ObjectMemory, who: Principal, bucket: BucketName, handed_over: AcknowledgedTexts) {
    let id = InvocationId::now();
    memory.begin_invocation(&who.namespace, id, &Token::empty()).await.unwrap();
    let inside = Principal::inside(who.namespace, FunctionName::new("f").unwrap(), SandboxId::random(), id);
    let (its, place) = (memory.clone(), bucket.clone());
    let writing = spawn(async move { its.put(&inside, &place, &key("a"), body(b"inside")).await.unwrap().version });
    memory.end_invocation(id, Duration::MAX).await;
    let written = writing.await.unwrap();
    handed_over.lock().insert(written, "inside");
}

async fn begin_twice(memory: ObjectMemory, who: Principal, handed_over: AcknowledgedTexts) {
    for _ in 0..2 {
        let floor = handed_over.lock().keys().next_back().copied();
        let id = InvocationId::now();
        memory.begin_invocation(&who.namespace, id, &Token::empty()).await.unwrap();
        let seen = memory.end_invocation(id, Duration::MAX).await.get(ShardId(0));
        assert!(seen >= floor, "it begins with {seen:?}, and {floor:?} was handed over before");
    }
}

#[test]
fn under_every_schedule_an_invocation_begins_with_all_that_ended_ones_and_writers_outside_wrote() {
    let traffic = || {
        block_on(async {
            let (store, events, clock) = (Arc::new(GatedStore::default()), Arc::default(), Arc::default());
            let folder = tempfile::tempdir().unwrap();
            let memory = open(&store, &events, &clock, folder.path()).await;
            let who = Principal::outside(Namespace::new("tenant").unwrap());
            let bucket = BucketName::new("bucket").unwrap();
            memory.create_bucket(&who, &bucket).await.unwrap();
            let handed_over: AcknowledgedTexts = Arc::default();
            let mut tasks = Vec::new();
            for _ in 0..2 {
                tasks.push(spawn(run(memory.clone(), who.clone(), bucket.clone(), Arc::clone(&handed_over))));
            }
            let outside = write(memory.clone(), who.clone(), bucket.clone(), Arc::clone(&handed_over), "outside");
            tasks.push(spawn(outside));
            tasks.push(spawn(begin_twice(memory.clone(), who.clone(), Arc::clone(&handed_over))));
            for task in tasks {
                task.await.unwrap();
            }
            begin_twice(memory.clone(), who, handed_over).await;
            assert_eq!(memory.0.coherence.invocations.lock().len(), (0, 1));
        });
    };
    explore(SCHEDULES, traffic).unwrap();
}
