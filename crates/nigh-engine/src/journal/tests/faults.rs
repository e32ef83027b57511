//! Syncs that fail.

use super::image::{Crash, Faults, MemoryFolder};
use super::*;

#[test]
fn after_a_failed_sync_nothing_is_taken_until_the_journal_is_opened_again() {
    runtime().block_on(async {
        let folder = MemoryFolder::new();
        let (journal, _) = open(&folder, 4).unwrap();
        let kept = append(&journal, put(1, "key"), content(1, 100)).await.unwrap().version;
        folder.set_faults(Faults { sync: true, ..Faults::default() });
        let refused = append(&journal, put(2, "key"), content(2, 100)).await.unwrap_err();
        assert!(refused.to_string().contains("segment-000001"), "{refused}");
        folder.set_faults(Faults::default());
        // The kernel reports a failed sync once, so a later successful sync does not prove that nothing was lost.
        assert_eq!(append(&journal, put(3, "key"), Bytes::new()).await, Err(refused.clone()));
        assert_eq!(journal.stage(SHARD, content(3, 100)).await.unwrap_err(), refused);
        assert_eq!(journal.stored(SHARD, kept).await, Err(refused.clone()));
        assert_eq!(journal.settle(SHARD).await, Err(refused));
        assert_eq!(read(&journal, kept).await.unwrap(), content(1, 100));
        drop(journal);
        let (journal, recovered) = open(&folder, 4).unwrap();
        assert_eq!(recovered.records[0].version, kept);
        append(&journal, put(3, "key"), Bytes::new()).await.unwrap();
    });
}

#[test]
fn a_second_answer_to_a_request_is_the_first_also_after_a_restart_and_for_its_object_only() {
    runtime().block_on(async {
        let folder = MemoryFolder::new();
        let (journal, _) = open(&folder, 4).unwrap();
        let (one, two) = tokio::join!(
            append(&journal, put(1, "key"), content(1, 100)),
            append(&journal, put(1, "key"), content(1, 100)),
        );
        let (one, two) = (one.unwrap(), two.unwrap());
        assert_eq!((one.version, one.repeated, two.repeated), (two.version, false, true));
        let other = append(&journal, put(1, "other"), Bytes::new()).await.unwrap();
        assert!(!other.repeated && other.version > one.version);
        let placed = journal.place(SHARD);
        assert!(placed > other.version);
        journal.stored(SHARD, one.version).await.unwrap();
        drop(journal);
        let (journal, recovered) = open(&folder, 4).unwrap();
        assert_eq!(recovered.records.len(), 1, "what is stored is not pushed again");
        let again = append(&journal, put(1, "key"), content(1, 100)).await.unwrap();
        assert_eq!(again, AppendResult { version: one.version, repeated: true });
        assert!(journal.place(SHARD) > placed);
        assert_eq!(read(&journal, one.version).await, Err(LedgerError::Unknown(one.version)));
    });
}

#[test]
fn what_is_settled_is_not_pushed_again_after_a_crash() {
    runtime().block_on(async {
        let folder = MemoryFolder::new();
        let (journal, _) = open(&folder, 4).unwrap();
        let version = append(&journal, put(1, "key"), Bytes::new()).await.unwrap().version;
        journal.stored(SHARD, version).await.unwrap();
        journal.settle(SHARD).await.unwrap();
        let crashed = folder.crashed(folder.ops(), Crash::DropAll);
        assert_eq!(open(&crashed, 4).unwrap().1.records, []);
    });
}
