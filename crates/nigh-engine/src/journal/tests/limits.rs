//! The journal at its limits: full disk, full journal, too large records.

use super::image::{Crash, Faults, MemoryFolder};
use super::*;

#[test]
fn a_full_journal_refuses_loses_nothing_opens_again_and_goes_on_when_the_store_has_taken_some() {
    runtime().block_on(async {
        let folder = MemoryFolder::new();
        let (journal, _) = open(&folder, 4).unwrap();
        let mut versions = Vec::new();
        loop {
            let request = versions.len() as u128;
            match append(&journal, put(request, &format!("key-{request}")), content(request, 1500)).await {
                Ok(done) => versions.push(done.version),
                Err(error) => break assert_eq!(error, LedgerError::Full),
            }
        }
        assert!(versions.len() > 40, "{}", versions.len());
        assert_eq!(journal.stage(SHARD, content(1, 2000)).await.unwrap_err(), LedgerError::Full);
        assert!(journal.usage().full && journal.is_alive());
        drop(journal);
        // A node dies and starts again while the store is unreachable.
        for _ in 0..100 {
            let (_, recovered) = open(&folder.crashed(folder.ops(), Crash::KeepAll), 4).unwrap();
            assert_eq!(recovered.records.len(), versions.len());
            let (journal, recovered) = open(&folder, 4).unwrap();
            assert_eq!(recovered.records.iter().map(|one| one.version).collect::<Vec<_>>(), versions);
            assert_eq!(append(&journal, put(1 << 70, "more"), content(1, 1500)).await, Err(LedgerError::Full));
        }
        let (journal, _) = open(&folder, 4).unwrap();
        for &version in &versions[..versions.len() / 2] {
            journal.stored(SHARD, version).await.unwrap();
        }
        for request in 0..10_u128 {
            let done = append(&journal, put(1 << 70 | request, "more"), content(request, 1500)).await.unwrap();
            journal.stored(SHARD, done.version).await.unwrap();
            assert!(!journal.usage().full);
        }
        for (request, &version) in versions.iter().enumerate().skip(versions.len() / 2) {
            assert_eq!(read(&journal, version).await.unwrap(), content(request as u128, 1500));
        }
    });
}

#[test]
fn one_stuck_write_does_not_fill_the_journal_and_is_read_wherever_it_is_moved() {
    runtime().block_on(async {
        let folder = MemoryFolder::new();
        let (journal, _) = open(&folder, 3).unwrap();
        let small = append(&journal, put(1, "small"), content(1, 700)).await.unwrap().version;
        let large = append_pieces(&journal, put(2, "large"), content(2, 3000), 1024).await.unwrap().version;
        let slow = journal.stage(SHARD, content(3, 1000)).await.unwrap();
        for request in 10..1000_u128 {
            let done = append(&journal, put(request, "other"), content(request, 1500)).await.unwrap();
            journal.stored(SHARD, done.version).await.unwrap();
        }
        assert!(journal.usage().files <= 3);
        let body = Body::Staged(vec![slow]);
        let slow = journal.append(SHARD, put(3, "slow"), body).await.unwrap().version;
        drop(journal);
        let (journal, recovered) = open(&folder, 3).unwrap();
        assert_eq!(recovered.records.iter().map(|one| one.version).collect::<Vec<_>>(), [small, large, slow]);
        assert_eq!(read(&journal, small).await.unwrap(), content(1, 700));
        assert_eq!(read(&journal, large).await.unwrap(), content(2, 3000));
        assert_eq!(read(&journal, slow).await.unwrap(), content(3, 1000));
    });
}

#[test]
fn a_full_disk_is_a_full_journal_and_nothing_is_lost() {
    runtime().block_on(async {
        let folder = MemoryFolder::new();
        let (journal, _) = open(&folder, 8).unwrap();
        folder.set_faults(Faults { full: true, ..Faults::default() });
        let mut versions = Vec::new();
        loop {
            let request = versions.len() as u128;
            match append(&journal, put(request, &format!("key-{request}")), content(request, 1500)).await {
                Ok(done) => versions.push(done.version),
                Err(error) => break assert_eq!(error, LedgerError::Full),
            }
        }
        assert_eq!(journal.usage().files, 1);
        drop(journal);
        let (journal, recovered) = open(&folder, 8).unwrap();
        assert_eq!(recovered.records.len(), versions.len());
        folder.set_faults(Faults::default());
        append(&journal, put(1 << 70, "more"), content(1, 1500)).await.unwrap();
    });
}

#[test]
fn pieces_that_no_record_comes_to_name_take_no_room_for_long() {
    runtime().block_on(async {
        let folder = MemoryFolder::new();
        let (journal, _) = open(&folder, 3).unwrap();
        for request in 0..200 {
            drop(journal.stage(SHARD, content(request, 3000)).await.unwrap());
        }
        let named = journal.stage(SHARD, content(1, 1000)).await.unwrap();
        let bytes = named.bytes();
        let (id, crc) = (named.piece(), named.crc());
        journal.append(SHARD, put(1, "key"), Body::Staged(vec![named])).await.unwrap();
        let again = crate::ledger::StagedPiece::new(id, bytes, crc, Arc::clone(&journal.shared) as _);
        let refused = journal.append(SHARD, put(2, "other"), Body::Staged(vec![again])).await;
        assert_eq!(refused, Err(LedgerError::UnknownPiece(id.0)));
    });
}

#[test]
fn what_is_too_large_for_a_record_is_refused_by_name() {
    runtime().block_on(async {
        let (journal, _) = open(&MemoryFolder::new(), 3).unwrap();
        let inline = append(&journal, put(1, "key"), content(1, 64 * 1024 + 1)).await;
        assert!(matches!(inline, Err(LedgerError::TooLarge { limit: 65536, .. })), "{inline:?}");
        let piece = journal.stage(SHARD, content(1, (1 << 20) + 1)).await;
        assert!(matches!(piece, Err(LedgerError::TooLarge { limit: 1_048_576, .. })), "{piece:?}");
        let small_segment = journal.stage(SHARD, content(1, SEGMENT as usize / 8)).await;
        assert!(matches!(small_segment, Err(LedgerError::TooLarge { .. })), "{small_segment:?}");
        let about = Change::Put { about: content(1, ABOUT_MAX_BYTES + 1) };
        let about = append(&journal, record(1, "key", about), Bytes::new()).await;
        assert!(matches!(about, Err(LedgerError::TooLarge { .. })), "{about:?}");
    });
}

#[test]
fn a_journal_of_the_file_system_is_one_process_s_and_its_settings_must_be_possible() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("journal");
    let settings =
        JournalSettings { segment: ByteSize::mib(16), limit: ByteSize::mib(64), ..JournalSettings::default() };
    assert_eq!(inspect(&path).unwrap(), JournalInspection::default());
    let (journal, _) = Journal::open(&path, &settings).unwrap();
    assert!(matches!(Journal::open(&path, &settings), Err(JournalError::Held(_))));
    assert!(matches!(inspect(&path), Err(JournalError::Held(_))));
    let (body, wanted) = (content(9, 2_500_000), put(9, "large"));
    let version = runtime().block_on(async {
        let done = append_pieces(&journal, wanted.clone(), body.clone(), PIECE_MAX_BYTES).await.unwrap();
        assert_eq!(read(&journal, done.version).await.unwrap(), body);
        done.version
    });
    drop(journal);
    let inspected = inspect(&path).unwrap();
    assert_eq!((inspected.damage, inspected.torn), (Vec::new(), None));
    let expected = RecoveredRecord { shard: SHARD, version, record: wanted, body_bytes: 2_500_000 };
    assert_eq!(inspected.records, [InspectedRecord { record: expected, stored: false }]);
    for (limit, segment) in [(64, 8), (32, 16), (4096, 2048)] {
        let (limit, segment) = (ByteSize::mib(limit), ByteSize::mib(segment));
        let refused = Journal::open(&path, &JournalSettings { limit, segment, ..settings });
        assert!(matches!(refused, Err(JournalError::Settings { .. })), "{refused:?}");
    }
}
