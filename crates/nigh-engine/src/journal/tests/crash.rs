//! Crash images at every write boundary: every acknowledged write is there, no write is there in part, and no older
//! write without the newer one.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use nigh_terms::{Epoch, Version};
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};

use super::image::{Crash, MemoryFolder};
use super::*;

const FILES_MAX: u32 = 4;

/// A write that was requested.
struct IssuedWrite {
    key: String,
    record: Record,
    body: Bytes,
    /// The write's version, and the length of the disk's log when it was acknowledged. None if it was not acknowledged.
    acknowledged: Option<(Version, usize)>,
    /// The log's length when the store was first reported to have it or a newer write of its object; none if it was
    /// not.
    stored: Option<usize>,
}

/// Steps that reuse every segment several times, with batches, pieces, drops, notices and one record that stays. They
/// continue after the writes in `issued`.
async fn work(folder: &Arc<MemoryFolder>, mut issued: Vec<IssuedWrite>, seed: u64, steps: u128) -> Vec<IssuedWrite> {
    let mut random = StdRng::seed_from_u64(seed);
    let end_mark_delay = if seed.is_multiple_of(2) { Duration::ZERO } else { END_MARK_DELAY };
    let opening = JournalOpenOptions { end_mark_delay, ..opening(SEGMENT, FILES_MAX) };
    let (journal, _) = Journal::open_in(Arc::clone(folder) as _, &opening).unwrap();
    let journal = Arc::new(journal);
    for step in u128::from(seed) * 1000..u128::from(seed) * 1000 + steps {
        let mut writes = Vec::new();
        for nth in 0..random.random_range(1..5_u128) {
            let request = step * 10 + nth + 1;
            let key =
                if request % 10_000 == 11 { "stuck".to_owned() } else { format!("key-{}", random.random_range(0..5)) };
            if issued.iter().chain(&writes).any(|other: &IssuedWrite| other.key == key && other.acknowledged.is_none())
            {
                continue;
            }
            let about = Bytes::from(vec![b'a'; random.random_range(0..300)]);
            let (change, bytes) = match random.random_range(0..6) {
                0 => (Change::Delete { about }, 0),
                1 => (Change::Amend { about }, 0),
                2 => (Change::Put { about }, random.random_range(3000..7000)),
                _ => (Change::Put { about }, random.random_range(0..1500)),
            };
            let record = record(request, &key, change);
            writes.push(IssuedWrite { key, record, body: content(request, bytes), acknowledged: None, stored: None });
        }
        if random.random_ratio(1, 4) {
            drop(journal.stage(SHARD, content(step, 900)).await);
        }
        let mut running = tokio::task::JoinSet::new();
        for (nth, write) in writes.iter().enumerate() {
            let (journal, record, body) = (Arc::clone(&journal), write.record.clone(), write.body.clone());
            let folder = Arc::clone(folder);
            running.spawn(async move {
                let done = if body.len() > 2000 {
                    append_pieces(&journal, record, body, 1300).await
                } else {
                    append(&journal, record, body).await
                };
                (nth, done, folder.ops())
            });
        }
        while let Some(done) = running.join_next().await {
            let (nth, done, ops) = done.unwrap();
            match done {
                Ok(done) => writes[nth].acknowledged = Some((done.version, ops)),
                Err(error) => assert_eq!(error, LedgerError::Full),
            }
        }
        issued.extend(writes.into_iter().filter(|write| write.acknowledged.is_some()));
        // The store gets some of the writes, in the order of versions, and never the stuck one.
        for nth in 0..issued.len() {
            let IssuedWrite { key, acknowledged, stored, .. } = &issued[nth];
            if key == "stuck" || stored.is_some() || !random.random_ratio(1, 3) {
                continue;
            }
            let (key, (version, _)) = (key.clone(), acknowledged.unwrap());
            let before = folder.ops();
            journal.stored(SHARD, version).await.unwrap();
            for other in issued.iter_mut().filter(|other| other.key == key && other.acknowledged.unwrap().0 <= version)
            {
                other.stored.get_or_insert(before);
            }
        }
    }
    issued
}

/// Recovers `image`, and compares it with the writes issued before the log had `ops` entries.
async fn check(image: &Arc<MemoryFolder>, issued: &[IssuedWrite], ops: usize, life: Epoch) -> Vec<RecoveredRecord> {
    let (journal, recovered) = open(image, FILES_MAX).unwrap();
    assert_eq!(recovered.damage, [], "a crash is no damage");
    assert!(recovered.epoch >= life);
    let by_request: BTreeMap<_, _> = issued.iter().map(|one| (one.record.request, one)).collect();
    let found: BTreeMap<Version, &Record> = recovered.records.iter().map(|one| (one.version, &one.record)).collect();
    assert!(recovered.records.is_sorted_by_key(|one| one.version));
    for one in &recovered.records {
        let expected = by_request[&one.record.request];
        assert_eq!(one.record, expected.record);
        assert_eq!(one.shard, SHARD);
        assert_eq!(read(&journal, one.version).await.unwrap(), expected.body, "no mix, no half");
        assert_eq!(one.body_bytes, expected.body.len() as u64);
        if let Some((version, _)) = expected.acknowledged {
            assert_eq!(one.version, version);
        }
        let newer = issued.iter().filter(|other| other.key == expected.key);
        for (version, _) in
            newer.filter_map(|other| other.acknowledged.filter(|&(version, at)| at <= ops && version > one.version))
        {
            assert!(found.contains_key(&version), "{} came back without {version}, which is newer", one.version);
        }
    }
    for one in issued {
        let Some((version, _)) = one.acknowledged.filter(|&(_, at)| at <= ops) else { continue };
        assert!(version.epoch < recovered.epoch);
        if one.stored.is_none_or(|at| at > ops) {
            assert_eq!(found.get(&version), Some(&&one.record), "{version} was acknowledged");
            let again = append(&journal, one.record.clone(), Bytes::new()).await.unwrap();
            assert_eq!(again, AppendResult { version, repeated: true });
        }
    }
    if let Ok(fresh) = append(&journal, put(1 << 70, "fresh"), Bytes::new()).await {
        assert_eq!(fresh.version.epoch, recovered.epoch);
        assert!(!fresh.repeated);
    }
    recovered.records
}

fn modes(at: usize) -> [Crash; 4] {
    [Crash::KeepAll, Crash::DropAll, Crash::Torn(at as u64), Crash::Torn(!at as u64)]
}

#[test]
fn whatever_a_crash_leaves_at_any_write_what_was_acknowledged_is_recovered_and_nothing_else() {
    runtime().block_on(async {
        for (seed, steps) in [(1, 40), (2, 30)] {
            let folder = MemoryFolder::new();
            let issued = work(&folder, Vec::new(), seed, steps).await;
            assert!(issued.iter().any(|one| one.key == "stuck") && issued.len() as u128 > steps * 3 / 2);
            for ops in 0..=folder.ops() {
                for how in modes(ops) {
                    check(&folder.crashed(ops, how), &issued, ops, Epoch(1)).await;
                }
            }
        }
    });
}

#[test]
fn a_crash_during_recovery_and_again_loses_nothing_either() {
    runtime().block_on(async {
        let folder = MemoryFolder::new();
        let issued = work(&folder, Vec::new(), 3, 16).await;
        for ops in (0..=folder.ops()).step_by(5) {
            let first = folder.crashed(ops, Crash::Torn(ops as u64));
            drop(open(&first, FILES_MAX).unwrap());
            for again in 0..=first.ops() {
                for how in modes(again) {
                    let second = first.crashed(again, how);
                    drop(open(&second, FILES_MAX).unwrap());
                    check(&second.crashed(second.ops(), Crash::DropAll), &issued, ops, Epoch(2)).await;
                }
            }
        }
    });
}

#[test]
fn lives_that_each_end_in_a_crash_add_up_to_what_was_acknowledged_in_any_of_them() {
    runtime().block_on(async {
        for seed in 10..30 {
            let mut random = StdRng::seed_from_u64(seed);
            let mut folder = MemoryFolder::new();
            let mut issued = Vec::new();
            for life in 0..6 {
                issued = work(&folder, issued, seed * 10 + life, 6).await;
                let ops = random.random_range(0..=folder.ops());
                let how = modes(ops)[random.random_range(0..4)];
                let crashed = folder.crashed(ops, how);
                // The check writes, so it gets a copy.
                let recovered = check(&crashed.crashed(0, Crash::KeepAll), &issued, ops, Epoch(life)).await;
                // A write that was neither acknowledged nor recovered must never come back.
                issued.retain_mut(|one| {
                    let found = recovered.iter().find(|found| found.record.request == one.record.request);
                    let was_acknowledged = one.acknowledged.is_some_and(|(_, at)| at <= ops);
                    one.stored = if found.is_some() { None } else { Some(0) };
                    if let Some(found) = found {
                        one.acknowledged = Some((found.version, 0));
                    } else if let Some((version, _)) = one.acknowledged {
                        one.acknowledged = Some((version, 0));
                    }
                    found.is_some() || was_acknowledged
                });
                folder = crashed;
            }
        }
    });
}

#[test]
fn a_record_that_was_moved_forward_never_comes_back_without_the_newer_one() {
    runtime().block_on(async {
        let folder = MemoryFolder::new();
        let (journal, _) = open(&folder, FILES_MAX).unwrap();
        let old = append(&journal, put(1, "object"), Bytes::from_static(b"old")).await.unwrap().version;
        let first = journal.shared.live.lock().record(old).unwrap().place.position.generation();
        let mut request = 1;
        let mut fill = async |wanted: u64, keep: bool| {
            while journal.shared.live.lock().segments.back().unwrap().generation < wanted {
                request += 1;
                let filler = append(&journal, put(request, &format!("filler-{request}")), content(1, 2000)).await;
                match filler {
                    Ok(_) if keep => {}
                    Ok(done) => journal.stored(SHARD, done.version).await.unwrap(),
                    Err(error) => {
                        assert_eq!(error, LedgerError::Full);
                        return true;
                    }
                }
            }
            false
        };
        assert!(!fill(first + 1, false).await);
        let new = append(&journal, put(0, "object"), Bytes::from_static(b"new")).await.unwrap().version;
        // The new write's segment and those after it have many unpushed records, so only the old write can be moved.
        assert!(fill(u64::MAX, true).await);
        let place = |version| journal.shared.live.lock().record(version).unwrap().place.position;
        assert!(place(old) > place(new), "the old one was moved behind the new one");
        // Now all but the last are stored, and the new write's segment is reused.
        let last = journal.shared.live.lock().segments.back().unwrap().generation;
        let all = journal.shared.live.lock().versions();
        for version in all {
            journal.stored(SHARD, version).await.unwrap();
        }
        let before = folder.ops();
        append(&journal, put(1 << 70, "next"), content(1, 2000)).await.unwrap();
        assert!(!fill(last + 3, false).await);
        drop(journal);
        for ops in before..=folder.ops() {
            for how in modes(ops) {
                let (_, recovered) = open(&folder.crashed(ops, how), FILES_MAX).unwrap();
                let mut found = recovered.records.iter().filter(|one| one.record.key.as_str() == "object");
                let oldest = found.next().map(|one| one.version);
                assert!(oldest.is_none_or(|oldest| oldest == new || found.any(|one| one.version == new)));
            }
        }
    });
}
