//! Flipped bits and cut files: the damage is found, named, and never served.

use std::collections::BTreeMap;

use super::super::format::{FIRST_RECORD, HEADER_BYTES, SegmentHeader};
use super::super::found::read as read_files;
use super::image::{Crash, MemoryFolder};
use super::*;

/// A journal of several segments, with the place of each record.
struct WholeJournal {
    folder: Arc<MemoryFolder>,
    recovered: JournalRecovery,
    bodies: BTreeMap<Version, Bytes>,
    /// The file, beginning and end of each record.
    used: Vec<(String, usize, usize)>,
}

fn whole() -> WholeJournal {
    let folder = MemoryFolder::new();
    let mut bodies = BTreeMap::new();
    runtime().block_on(async {
        let (journal, _) = open(&folder, 4).unwrap();
        for request in 0..28_u128 {
            let body = content(request, 40 * request as usize);
            let record = put(request, &format!("key-{request}"));
            let done = if request % 5 == 4 {
                append_pieces(&journal, record, content(request, 2500), 1000).await.unwrap()
            } else {
                append(&journal, record, body.clone()).await.unwrap()
            };
            bodies.insert(done.version, if request % 5 == 4 { content(request, 2500) } else { body });
            if request % 7 == 3 {
                journal.stored(SHARD, done.version).await.unwrap();
                bodies.remove(&done.version);
            }
        }
    });
    let found = read_files(&*folder, false).unwrap();
    let mut used = Vec::new();
    for segment in &found.segments {
        let end = segment.header.records_end() as usize;
        used.push((segment.file.clone(), 0, HEADER_BYTES));
        used.push((segment.file.clone(), end, end + HEADER_BYTES));
        used.extend(
            segment.scan.records.iter().map(|one| {
                (segment.file.clone(), one.found.frame.position.offset() as usize, one.found.end() as usize)
            }),
        );
    }
    assert!(found.segments.len() > 1, "more than one segment");
    let (_, recovered) = open(&folder.crashed(folder.ops(), Crash::KeepAll), 4).unwrap();
    assert_eq!((recovered.records.len(), &recovered.damage[..]), (bodies.len(), &[][..]));
    WholeJournal { folder, recovered, bodies, used }
}

/// Opens a damaged copy in spite of the damage, and compares the result with what was written.
fn weigh(damaged: &Arc<MemoryFolder>) -> JournalRecovery {
    let mut opening = opening(SEGMENT, 4);
    opening.on_damage = OnDamage::KeepAside;
    let (journal, recovered) = Journal::open_in(Arc::clone(damaged) as _, &opening).unwrap();
    for one in &recovered.records {
        // A stored write may come back if its notice is damaged; nothing else may differ.
        let request = one.record.request.0;
        let expected = if request % 5 == 4 { content(request, 2500) } else { content(request, 40 * request as usize) };
        assert_eq!(one.record, put(request, &format!("key-{request}")));
        assert_eq!(runtime().block_on(read(&journal, one.version)).unwrap(), expected);
    }
    recovered
}

#[test]
fn a_bit_that_flips_anywhere_is_found_and_what_is_whole_is_recovered() {
    let whole = whole();
    let mut flips = 0;
    for (file, begin, end) in &whole.used {
        for at in (*begin..*end).step_by(17).chain([end - 1]) {
            let damaged = whole.folder.crashed(whole.folder.ops(), Crash::KeepAll);
            damaged.change(file, |bytes| bytes[at] ^= 1 << (at % 8));
            let recovered = weigh(&damaged);
            assert!(!recovered.damage.is_empty() || recovered.torn.is_some(), "{file} at {at}");
            // One record is damaged: a damaged piece loses one write, and a damaged notice may bring some back.
            let lost =
                whole.bodies.keys().filter(|version| recovered.records.iter().all(|one| one.version != **version));
            assert!(lost.count() <= 1, "{file} at {at}: {:?}", recovered.damage);
            flips += 1;
        }
    }
    assert!(flips > 1000);
}

#[test]
fn a_file_that_is_cut_anywhere_or_missing_is_found() {
    let whole = whole();
    let files: Vec<String> = read_files(&*whole.folder, false).unwrap().files.into_iter().map(|one| one.name).collect();
    for file in &files {
        for bytes in (0..SEGMENT as usize).step_by(1021) {
            let damaged = whole.folder.crashed(whole.folder.ops(), Crash::KeepAll);
            damaged.change(file, |all| all.truncate(bytes));
            let recovered = weigh(&damaged);
            assert!(recovered.damage.iter().any(|damage| damage.file == *file), "{file} at {bytes}");
        }
    }
    let damaged = whole.folder.crashed(whole.folder.ops(), Crash::KeepAll);
    super::super::disk::Folder::remove(&*damaged, &files[0]).unwrap();
    let recovered = weigh(&damaged);
    assert!(recovered.damage.iter().any(|damage| damage.kind == super::super::DamageKind::Missing));
}

#[test]
fn a_damaged_body_is_called_by_its_object_s_name_and_a_copy_of_its_file_is_kept() {
    let whole = whole();
    let found = read_files(&*whole.folder, false).unwrap();
    let records = found.segments.iter().flat_map(|segment| segment.scan.records.iter().map(move |one| (segment, one)));
    let (segment, one) = records
        .filter(|(_, one)| one.found.body.bytes > 0)
        .find(|(_, one)| matches!(&one.found.content, super::super::format::Content::Commit(commit) if commit.record.key.as_str() == "key-6"))
        .unwrap();
    let damaged = whole.folder.crashed(whole.folder.ops(), Crash::KeepAll);
    let at = one.found.end() as usize - 1;
    damaged.change(&segment.file, |bytes| bytes[at] ^= 0x10);
    let refused = open(&damaged, 4).unwrap_err();
    assert!(matches!(&refused, JournalError::Damaged(all) if all.len() == 1), "{refused}");
    assert!(refused.to_string().contains("tenant/bucket/key-6 is damaged"), "{refused}");
    let recovered = weigh(&damaged);
    assert_eq!(recovered.records.len(), whole.recovered.records.len() - 1);
    let aside = super::super::disk::Folder::names(&*damaged).unwrap();
    let aside: Vec<_> = aside.iter().filter(|name| name.starts_with("damaged-")).collect();
    assert_eq!(aside.len(), 1);
    assert_eq!(damaged.bytes_of(aside[0])[at], whole.folder.bytes_of(&segment.file)[at] ^ 0x10);
    weigh(&damaged);
    assert_eq!(
        super::super::disk::Folder::names(&*damaged)
            .unwrap()
            .iter()
            .filter(|name| name.starts_with("damaged-"))
            .count(),
        1
    );
}

#[test]
fn a_record_that_is_damaged_while_the_journal_is_open_is_an_error_and_no_bytes() {
    runtime().block_on(async {
        let folder = MemoryFolder::new();
        let (journal, _) = open(&folder, 4).unwrap();
        let version = append(&journal, put(1, "key"), content(1, 1000)).await.unwrap().version;
        let place = journal.shared.live.lock().record(version).unwrap().place;
        folder.change("segment-000001", |bytes| bytes[place.body_at() as usize + 500] ^= 4);
        let refused = read(&journal, version).await;
        assert!(matches!(refused, Err(LedgerError::Damaged { version: named, .. }) if named == version), "{refused:?}");
    });
}

#[test]
fn what_a_client_stores_is_never_taken_for_a_record() {
    runtime().block_on(async {
        let folder = MemoryFolder::new();
        let (journal, _) = open(&folder, 4).unwrap();
        let first = append(&journal, put(1, "key"), content(1, 100)).await.unwrap().version;
        // The attacker knows everything but the salt, even the place of the bytes.
        let found = read_files(&*folder, false).unwrap();
        let header = SegmentHeader { salt: 0, ..found.files[0].header };
        let copy: Vec<u8> = folder.bytes_of("segment-000001")[FIRST_RECORD as usize..][..2048].to_vec();
        let forged: Vec<u8> = copy.iter().copied().cycle().take(3000).collect();
        let victim = append(&journal, put(2, "victim"), Bytes::from(forged)).await.unwrap().version;
        let place = journal.shared.live.lock().record(victim).unwrap().place;
        append(&journal, put(3, "key"), Bytes::new()).await.unwrap();
        drop(journal);
        assert_ne!(found.files[0].header.salt, header.salt);
        folder.change("segment-000001", |bytes| bytes[place.position.offset() as usize + 8] ^= 1);
        let mut opening = opening(SEGMENT, 4);
        opening.on_damage = OnDamage::KeepAside;
        let (_, recovered) = Journal::open_in(folder as _, &opening).unwrap();
        let requests: Vec<_> = recovered.records.iter().map(|one| one.record.request.0).collect();
        assert_eq!((requests, recovered.records[0].version), (vec![1, 3], first));
    });
}
