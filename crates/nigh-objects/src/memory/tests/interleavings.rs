//! Writers, readers and somebody who says that others wrote, of one object, under many schedules: no read is older than
//! what was acknowledged before it began, and none goes back.

use shuttle::future::{block_on, spawn};

use super::*;
use crate::sync::explore::explore;
use crate::sync::{Step, leave_out};

const SCHEDULES: usize = 200;
/// Enough to find a seeded fault.
const SCHEDULES_WITH_FAULT: usize = 2000;

/// The newest write that was acknowledged. No lock of the schedule's: looking at it changes no order.
type Acknowledged = Arc<Mutex<Version>>;

async fn write(memory: ObjectMemory, who: Principal, bucket: BucketName, acknowledged: Acknowledged, text: &str) {
    let done = memory.put(&who, &bucket, &key("a"), body(text.as_bytes())).await.unwrap();
    let mut newest = acknowledged.lock();
    *newest = done.version.max(*newest);
}

async fn read_twice(memory: ObjectMemory, who: Principal, bucket: BucketName, acknowledged: Acknowledged) {
    let mut seen = Version::OUTSIDE;
    for _ in 0..2 {
        let floor = seen.max(*acknowledged.lock());
        let got = memory.get(&who, &bucket, &key("a"), GetRequest::default()).await.unwrap();
        assert!(got.version >= floor, "a read of {} is stale: {floor} was acknowledged or seen", got.version);
        seen = got.version;
        bytes_of(got).await.unwrap();
    }
}

/// Two writers and two readers of an object of which there is no copy, and one who has it dropped once more.
fn traffic() {
    block_on(async {
        let (store, events, clock) = (Arc::new(GatedStore::default()), Arc::default(), Arc::default());
        let folder = tempfile::tempdir().unwrap();
        let memory = open(&store, &events, &clock, folder.path()).await;
        let (who, bucket) = (Principal::outside(Namespace::new("tenant").unwrap()), BucketName::new("bucket").unwrap());
        memory.create_bucket(&who, &bucket).await.unwrap();
        let acknowledged: Acknowledged = Arc::new(Mutex::new(Version::OUTSIDE));
        let newest = || Arc::clone(&acknowledged);
        write(memory.clone(), who.clone(), bucket.clone(), newest(), "first").await;
        memory.invalidate(&who, &bucket, &key("a"));
        let mut tasks = Vec::new();
        for text in ["second", "third"] {
            tasks.push(spawn(write(memory.clone(), who.clone(), bucket.clone(), newest(), text)));
            tasks.push(spawn(read_twice(memory.clone(), who.clone(), bucket.clone(), newest())));
        }
        let (others, whose, place) = (memory.clone(), who.clone(), bucket.clone());
        tasks.push(spawn(async move { others.invalidate(&whose, &place, &key("a")) }));
        for task in tasks {
            task.await.unwrap();
        }
        let last = memory.get(&who, &bucket, &key("a"), GetRequest::default()).await.unwrap();
        assert_eq!(last.version, *acknowledged.lock(), "what is read in the end is stale");
    });
}

#[test]
fn under_every_schedule_no_read_is_older_than_what_was_acknowledged() {
    explore(SCHEDULES, traffic).unwrap();
}

/// What exploring finds without `step`.
fn without(step: Step) {
    let found = explore(SCHEDULES_WITH_FAULT, move || {
        leave_out(step);
        traffic();
    });
    assert!(found.as_ref().is_err_and(|panic| panic.contains("is stale")), "{found:?}");
}

#[test]
fn without_turns_or_without_the_floor_of_a_write_stale_reads_are_found() {
    without(Step::Turn);
    without(Step::Floor);
}
