//! Writers, readers and somebody who says that others wrote, of one object, under many schedules: no read is older than
//! what was acknowledged before it began, and none goes back.

use shuttle::future::{block_on, spawn};

use super::*;
use crate::sync::explore::explore;

const SCHEDULES: usize = 60;
/// Enough to find a seeded fault.
const SCHEDULES_WITH_FAULT: usize = 500;

/// The newest write that was acknowledged. No lock of the schedule's: looking at it changes no order.
type Acknowledged = Arc<Mutex<Version>>;

async fn writes(memory: ObjectMemory, who: Principal, bucket: BucketName, acknowledged: Acknowledged, writer: u64) {
    for number in 0..2 {
        let text = format!("{writer} {number}");
        let done = memory.put(&who, &bucket, &key("a"), body(text.as_bytes())).await.unwrap();
        let mut newest = acknowledged.lock();
        *newest = done.version.max(*newest);
    }
}

async fn reads(memory: ObjectMemory, who: Principal, bucket: BucketName, acknowledged: Acknowledged) {
    let mut seen = Version::OUTSIDE;
    for _ in 0..2 {
        let floor = seen.max(*acknowledged.lock());
        match memory.get(&who, &bucket, &key("a"), GetRequest::default()).await {
            Ok(got) => {
                assert!(got.version >= floor, "a read of {} is stale: {floor} was acknowledged or seen", got.version);
                seen = got.version;
                bytes_of(got).await.unwrap();
            }
            Err(error) => assert!(floor == Version::OUTSIDE, "{error}, and {floor} was acknowledged"),
        }
    }
}

/// Two writers and two readers of an object, and one who has its copy dropped. They ask one memory; or, which is the
/// fault that a test seeds, the readers ask another in front of the same store, so that nothing orders them.
fn traffic(ordered: bool) {
    block_on(async {
        let (store, events, clock) = (Arc::new(GatedStore::default()), Arc::default(), Arc::default());
        let folders = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
        let written = open(&store, &events, &clock, folders[0].path()).await;
        let read = match ordered {
            true => written.clone(),
            false => open(&store, &events, &clock, folders[1].path()).await,
        };
        let (who, bucket) = (Principal::outside(Namespace::new("tenant").unwrap()), BucketName::new("bucket").unwrap());
        written.create_bucket(&who, &bucket).await.unwrap();
        let acknowledged: Acknowledged = Arc::new(Mutex::new(Version::OUTSIDE));
        let mut tasks = Vec::new();
        for number in 0..2 {
            let newest = || Arc::clone(&acknowledged);
            tasks.push(spawn(writes(written.clone(), who.clone(), bucket.clone(), newest(), number)));
            tasks.push(spawn(reads(read.clone(), who.clone(), bucket.clone(), newest())));
        }
        let (others, whose, place) = (read.clone(), who.clone(), bucket.clone());
        tasks.push(spawn(async move { others.invalidate(&whose, &place, &key("a")) }));
        for task in tasks {
            task.await.unwrap();
        }
        let last = read.get(&who, &bucket, &key("a"), GetRequest::default()).await.unwrap();
        assert_eq!(last.version, *acknowledged.lock(), "the last write is stale");
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
