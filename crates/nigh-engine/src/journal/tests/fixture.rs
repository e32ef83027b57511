//! The format, byte by byte: stored segments are read, and written again with the same bytes.

use super::super::format::{FORMAT, SegmentHeader};
use super::image::MemoryFolder;
use super::*;

/// A segment written by the first build of format version 1.
const STORED_1: &[u8] = include_bytes!("../../../tests/fixtures/journal-1.segment");
/// A segment written by the first build of format version 2.
const STORED_2: &[u8] = include_bytes!("../../../tests/fixtures/journal-2.segment");

/// One of each kind of record.
async fn write(folder: &Arc<MemoryFolder>) {
    let salted = JournalOpenOptions {
        salt: || 0x5a17_5a17_5a17_5a17,
        // Also on a machine that is slow to go on with the next write.
        end_mark_delay: Duration::from_secs(3600),
        ..opening(16 << 10, 3)
    };
    let (journal, _) = Journal::open_in(Arc::clone(folder) as _, &salted).unwrap();
    append(&journal, put(1, "a key"), Bytes::from_static(b"the bytes of a small object")).await.unwrap();
    append_pieces(&journal, put(2, "large"), Bytes::from(vec![7; 1500]), 1000).await.unwrap();
    let delete = record(3, "a key", Change::Delete { about: Bytes::new() });
    append(&journal, delete, Bytes::new()).await.unwrap();
    let amend = record(4, "large", Change::Amend { about: Bytes::from_static(b"tags") });
    let amend = append(&journal, amend, Bytes::new()).await.unwrap();
    let transaction = record(5, "transaction", Change::Transaction { about: Bytes::from_static(b"decided") });
    append(&journal, transaction, Bytes::from_static(b"what it writes")).await.unwrap();
    journal.stored(SHARD, Version { sequence: nigh_terms::Sequence(2), ..amend.version }).await.unwrap();
    journal.settle(SHARD).await.unwrap();
}

/// Opens a stored segment and checks its records.
async fn check(folder: &Arc<MemoryFolder>, stored: &[u8], expected: &[(u128, u64)]) {
    super::super::disk::Folder::create(&**folder, "segment-000001").unwrap();
    folder.change("segment-000001", |bytes| *bytes = stored.to_vec());
    let (journal, recovered) = open(folder, 3).unwrap();
    assert_eq!((recovered.epoch, &recovered.damage[..], recovered.torn), (Epoch(2), &[][..], None));
    let found: Vec<_> = recovered.records.iter().map(|one| (one.record.request.0, one.body_bytes)).collect();
    assert_eq!(found, expected);
    let body = read(&journal, recovered.records[0].version).await.unwrap();
    assert_eq!(body, "the bytes of a small object");
}

#[test]
fn a_segment_of_format_2_is_written_byte_for_byte_as_it_was_and_read() {
    runtime().block_on(async {
        let folder = MemoryFolder::new();
        write(&folder).await;
        let written = folder.bytes_of("segment-000001");
        if let Some(path) = std::env::var_os("NIGH_WRITE_JOURNAL_FIXTURE") {
            std::fs::write(path, &written).unwrap();
        }
        assert!(written == STORED_2, "the format has changed: it needs a number of its own");
        check(&MemoryFolder::new(), STORED_2, &[(1, 27), (3, 0), (4, 0), (5, 14)]).await;
    });
}

#[test]
fn a_segment_of_format_1_is_read_and_goes_to_this_one_before_it_is_written_into() {
    runtime().block_on(async {
        let folder = MemoryFolder::new();
        check(&folder, STORED_1, &[(1, 27), (3, 0), (4, 0)]).await;
        let opened = folder.bytes_of("segment-000001");
        for at in [0, opened.len() - 512] {
            assert_eq!(opened[at + 8..at + 12], FORMAT.to_le_bytes(), "at {at}");
        }
        // An older build now refuses the segment, and does not take unknown records for damage.
        assert!(!SegmentHeader::is_older(&opened));
        let (_, again) = open(&folder, 3).unwrap();
        assert_eq!((again.damage.len(), again.records.len()), (0, 3));
    });
}

#[test]
fn a_newer_format_is_refused_and_left_alone() {
    let folder = MemoryFolder::new();
    drop(open(&folder, 3).unwrap());
    folder.change("segment-000001", |bytes| {
        for at in [0, bytes.len() - 512] {
            bytes[at + 8..at + 12].copy_from_slice(&(FORMAT + 1).to_le_bytes());
        }
    });
    let before = folder.bytes_of("segment-000001");
    let refused = open(&folder, 3).unwrap_err();
    assert!(matches!(refused, JournalError::Newer { found, .. } if found == FORMAT + 1), "{refused}");
    assert_eq!(folder.bytes_of("segment-000001"), before);
    assert!(SegmentHeader::decode(&before).is_err());
}
