//! Flipped bits and cut files: the damage is found, named, and never served.

use std::collections::BTreeMap;

use super::super::UNNAMED_DAMAGE;
use super::super::format::{FIRST_RECORD, HEADER_BYTES, SegmentHeader};
use super::super::found::read as read_files;
use super::super::newest::NEWEST;
use super::super::report::DamageKind;
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

fn names(folder: &MemoryFolder) -> Vec<String> {
    super::super::disk::Folder::names(folder).unwrap()
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
    // The youngest too, which no other segment names.
    for file in &files {
        let damaged = whole.folder.crashed(whole.folder.ops(), Crash::KeepAll);
        super::super::disk::Folder::remove(&*damaged, file).unwrap();
        let recovered = weigh(&damaged);
        assert!(recovered.damage.iter().any(|damage| damage.kind == DamageKind::Missing), "{file}");
    }
}

#[test]
fn what_names_the_youngest_segment_may_be_absent_and_is_damage_when_it_is_damaged() {
    let whole = whole();
    let copy = || whole.folder.crashed(whole.folder.ops(), Crash::KeepAll);

    // As an older build left it: nothing is known to be missing, and this build names it from then on.
    let older = copy();
    super::super::disk::Folder::remove(&*older, NEWEST).unwrap();
    assert_eq!(weigh(&older).damage, []);
    let youngest = read_files(&*older, false).unwrap().files.pop().unwrap();
    super::super::disk::Folder::remove(&*older, &youngest.name).unwrap();
    assert!(matches!(open(&older, 4).unwrap_err(), JournalError::Damaged(_)));

    for (first, end, kind) in
        [(0, 512, DamageKind::HeaderCopy), (512, 1024, DamageKind::HeaderCopy), (0, 1024, DamageKind::Header)]
    {
        let damaged = copy();
        damaged.change(NEWEST, |bytes| (first..end).step_by(512).for_each(|at| bytes[at + 16] ^= 1));
        assert!(matches!(open(&damaged, 4).unwrap_err(), JournalError::Damaged(all) if all[0].kind == kind));
        let recovered = weigh(&damaged);
        assert_eq!(recovered.records.len(), whole.recovered.records.len());
        assert_eq!(names(&damaged).iter().any(|name| name == "damaged-newest"), kind == DamageKind::Header);
        assert_eq!(weigh(&damaged).damage, [], "it was written anew");
    }
    let cut = copy();
    cut.change(NEWEST, |bytes| bytes.truncate(500));
    assert_eq!(weigh(&cut).damage[0].kind, DamageKind::HeaderCopy);
    assert_eq!(weigh(&cut).damage, []);

    let newer = copy();
    newer.change(NEWEST, |bytes| [8, 520].into_iter().for_each(|at| bytes[at] = 2));
    let refused = open(&newer, 4).unwrap_err();
    assert!(refused.to_string().contains("newest has format 2"), "{refused}");
}

#[test]
fn a_journal_without_its_youngest_segment_goes_on_and_uses_no_generation_twice() {
    let whole = whole();
    let damaged = whole.folder.crashed(whole.folder.ops(), Crash::KeepAll);
    let youngest = read_files(&*damaged, false).unwrap().files.pop().unwrap();
    super::super::disk::Folder::remove(&*damaged, &youngest.name).unwrap();
    let generations = |folder: &MemoryFolder| -> Vec<u64> {
        read_files(folder, false).unwrap().files.iter().map(|file| file.header.generation).collect()
    };
    let opening = JournalOpenOptions { on_damage: OnDamage::KeepAside, ..opening(SEGMENT, 8) };
    runtime().block_on(async {
        let (journal, _) = Journal::open_in(Arc::clone(&damaged) as _, &opening).unwrap();
        for request in 100..130_u128 {
            let done = append(&journal, put(request, "more"), content(request, 1500)).await.unwrap();
            journal.stored(SHARD, done.version).await.unwrap();
        }
    });
    assert!(names(&damaged).contains(&UNNAMED_DAMAGE.to_owned()), "it is noted for later starts");
    let used = generations(&damaged);
    assert!(!used.contains(&youngest.header.generation) && used.last() > Some(&youngest.header.generation), "{used:?}");
    runtime().block_on(async {
        let (journal, recovered) = Journal::open_in(Arc::clone(&damaged) as _, &opening).unwrap();
        assert!(recovered.records.iter().all(|one| one.record.request.0 < 28), "the others are stored");
        for one in &recovered.records {
            journal.stored(SHARD, one.version).await.unwrap();
        }
        for request in 200..290_u128 {
            let done = append(&journal, put(request, "more"), content(request, 1500)).await.unwrap();
            journal.stored(SHARD, done.version).await.unwrap();
        }
    });
    // The segments before the gap were used again: nothing that is left misses anything. What was in it is missing still.
    let (journal, recovered) = open(&damaged, 8).unwrap();
    assert_eq!((&recovered.damage[..], recovered.may_lack_writes), (&[][..], true));
    drop(journal);
    super::super::disk::Folder::remove(&*damaged, UNNAMED_DAMAGE).unwrap();
    assert!(!open(&damaged, 8).unwrap().1.may_lack_writes, "an operator has dealt with it");
}

#[test]
fn a_damaged_last_write_is_told_from_a_torn_one_once_nothing_came_for_a_moment() {
    runtime().block_on(async {
        let folder = MemoryFolder::new();
        let opening = JournalOpenOptions { end_mark_delay: Duration::from_millis(10), ..opening(SEGMENT, 4) };
        let (journal, _) = Journal::open_in(Arc::clone(&folder) as _, &opening).unwrap();
        append(&journal, put(1, "first"), content(1, 100)).await.unwrap();
        let version = append(&journal, put(2, "last"), content(2, 1000)).await.unwrap().version;
        let place = journal.shared.live.lock().record(version).unwrap().place;
        let began = Instant::now();
        let image = loop {
            // As after a kill of the machine.
            let image = folder.crashed(folder.ops(), Crash::DropAll);
            let found = read_files(&*image, false).unwrap();
            let last = found.segments[0].scan.records.last().unwrap().found.frame;
            if last.position > place.position {
                break image;
            }
            assert!(began.elapsed() < Duration::from_secs(20), "no end mark");
            std::thread::sleep(Duration::from_millis(5));
        };
        let ops = folder.ops();
        std::thread::sleep(Duration::from_millis(100));
        assert_eq!(folder.ops(), ops, "one mark is enough");
        let damaged = |at: u64| {
            let image = image.crashed(0, Crash::KeepAll);
            image.change("segment-000001", |bytes| bytes[at as usize] ^= 4);
            let inspected = inspect::inspect_in(&*image).unwrap();
            assert_eq!(inspected.torn, None, "it was acknowledged");
            assert!(matches!(open(&image, 4), Err(JournalError::Damaged(_))));
            inspected.damage
        };
        let body = damaged(place.body_at() + 500);
        assert!(matches!(&body[..], [one] if one.to_string().contains("tenant/bucket/last is damaged")), "{body:?}");
        let head = damaged(u64::from(place.position.offset()) + 70);
        assert!(matches!(&head[..], [one] if one.kind == DamageKind::Unknown), "{head:?}");
        let (_, recovered) = open(&image, 4).unwrap();
        assert_eq!((recovered.records.len(), recovered.torn, &recovered.damage[..]), (2, None, &[][..]));
    });
}

#[test]
fn a_journal_that_was_closed_tells_a_damaged_last_write_from_a_torn_one() {
    runtime().block_on(async {
        let folder = MemoryFolder::new();
        let (journal, _) = open(&folder, 4).unwrap();
        let version = append(&journal, put(1, "last"), content(1, 1000)).await.unwrap().version;
        let place = journal.shared.live.lock().record(version).unwrap().place;
        drop(journal);
        folder.change("segment-000001", |bytes| bytes[place.body_at() as usize + 500] ^= 4);
        assert!(matches!(open(&folder, 4), Err(JournalError::Damaged(all)) if all.len() == 1));
    });
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
    assert!(!recovered.may_lack_writes && !names(&damaged).contains(&UNNAMED_DAMAGE.to_owned()), "the object is known");
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
