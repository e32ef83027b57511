//! Writers, notices of stored writes and the writer thread, under many schedules: no caller waits for ever, and every
//! acknowledged write is on the disk at that moment.

use std::sync::atomic::{AtomicU64, Ordering};

use shuttle::future::{block_on, spawn};

use super::image::{Crash, Faults};
use super::*;
use crate::sync::explore::explore;
use crate::sync::lose_wake_ups;

/// Large enough that no segment is prepared: that happens on a thread of the system, which no schedule controls.
const WHOLE: u32 = 64 << 10;
const SCHEDULES: usize = 300;
/// Enough schedules to find a seeded fault.
const SCHEDULES_WITH_FAULT: usize = 2000;

/// The requests that a crash now would leave.
fn after_a_crash(folder: &MemoryFolder) -> Vec<u128> {
    let image = folder.crashed(folder.ops(), Crash::DropAll);
    let found = inspect::inspect_in(&*image).unwrap();
    found.records.iter().filter(|one| !one.stored).map(|one| one.record.record.request.0).collect()
}

async fn write(journal: Arc<Journal>, folder: Arc<MemoryFolder>, request: u128) -> Version {
    let (record, body) = (put(request, &format!("key-{request}")), content(request, 900));
    let appended = match request % 2 {
        0 => append(&journal, record, body).await,
        _ => append_pieces(&journal, record, body, 500).await,
    };
    let version = appended.unwrap().version;
    assert!(after_a_crash(&folder).contains(&request), "{request} was acknowledged and is not on the disk");
    version
}

/// Three writers. One of them reports its write as stored at once, and asks until that is durable.
fn group_commit(faults: Faults) {
    let folder = MemoryFolder::new();
    let (journal, _) = Journal::open_in(Arc::clone(&folder) as _, &opening(WHOLE, 3)).unwrap();
    folder.set_faults(faults);
    let journal = Arc::new(journal);
    let answered = Arc::new(AtomicU64::new(0));
    block_on(async {
        let writers: Vec<_> = (1..=3u128)
            .map(|request| {
                let (journal, folder, answered) = (Arc::clone(&journal), Arc::clone(&folder), Arc::clone(&answered));
                spawn(async move {
                    let version = write(Arc::clone(&journal), Arc::clone(&folder), request).await;
                    if request == 2 {
                        journal.stored(SHARD, version).await.unwrap();
                        journal.settle(SHARD).await.unwrap();
                        assert!(!after_a_crash(&folder).contains(&request), "what is settled does not come back");
                    }
                    answered.fetch_add(1, Ordering::Relaxed);
                })
            })
            .collect();
        for writer in writers {
            writer.await.unwrap();
        }
    });
    assert_eq!(answered.load(Ordering::Relaxed), 3);
    let usage = journal.usage();
    assert_eq!((usage.commits, usage.records), (3, 2));
    drop(Arc::into_inner(journal));
    let mut left = after_a_crash(&folder);
    left.sort_unstable();
    assert_eq!(left, [1, 3]);
}

#[test]
fn under_every_schedule_a_commit_is_answered_and_on_the_disk_then() {
    explore(SCHEDULES, || group_commit(Faults::default())).unwrap();
}

#[test]
fn a_wake_up_left_out_and_a_sync_left_out_are_found() {
    let found = explore(SCHEDULES_WITH_FAULT, || {
        lose_wake_ups();
        group_commit(Faults::default());
    });
    assert!(found.as_ref().is_err_and(|panic| panic.contains("deadlock")), "{found:?}");
    let found = explore(SCHEDULES_WITH_FAULT, || group_commit(Faults { lies: true, ..Faults::default() }));
    assert!(found.as_ref().is_err_and(|panic| panic.contains("not on the disk")), "{found:?}");
}
