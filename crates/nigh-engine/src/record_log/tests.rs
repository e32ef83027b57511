use redb::TableDefinition;

use super::*;

fn id(n: u16) -> [u8; 16] {
    let mut id = [0; 16];
    id[..2].copy_from_slice(&n.to_be_bytes());
    id
}

fn name(text: &str) -> Namespace {
    Namespace::new(text).unwrap()
}

/// A record of `bytes` bytes, as those that are kept: a JSON document that names its namespace.
fn record(namespace: &Namespace, bytes: usize) -> Vec<u8> {
    let mut record = format!("{{\"namespace\":\"{namespace}\",\"log\":\"").into_bytes();
    record.resize(bytes - 2, b'x');
    record.extend(b"\"}");
    record
}

async fn kept(log: &RecordLog, ids: impl IntoIterator<Item = u16>) -> Vec<u16> {
    let mut kept = Vec::new();
    for n in ids {
        if log.get(id(n)).await.unwrap().is_some() {
            kept.push(n);
        }
    }
    kept
}

/// Waits until nothing is left to be removed.
async fn comes_to(log: &RecordLog, bytes: u64) {
    for _ in 0..500 {
        log.flush().await;
        if log.bytes() == ByteSize(bytes) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("the records take {}, not {}", log.bytes(), ByteSize(bytes));
}

#[tokio::test]
async fn the_newest_come_first_and_the_oldest_go_first() {
    let folder = tempfile::tempdir().unwrap();
    let state = StateFile::open(&folder.path().join("state.redb")).unwrap();
    let log = RecordLog::open(state, Retention { records_max: 3, ..Retention::default() }).unwrap();
    assert_eq!(log.get(id(1)).await.unwrap(), None);
    for n in 1..=5 {
        log.append(id(n), &name("one"), vec![n as u8]);
    }
    assert_eq!(log.newest(None, 10, |r| Some(r[0])).await.unwrap(), [5, 4, 3]);
    assert_eq!(log.newest(Some(id(5)), 1, |r| Some(r[0])).await.unwrap(), [4]);
    assert_eq!(log.newest(None, 10, |r| (r[0] == 3).then_some(3u8)).await.unwrap(), [3]);
    assert_eq!(log.newest_of(id(4), id(5), 10, |r| Some(r[0])).await.unwrap(), [4]);
    assert_eq!(log.newest_of(id(5), id(5), 10, |r| Some(r[0])).await.unwrap(), [0u8; 0]);
    assert_eq!(log.get(id(1)).await.unwrap(), None);
    assert_eq!(log.get(id(5)).await.unwrap(), Some(vec![5]));
    assert_eq!(log.dropped(), 0);
}

#[tokio::test]
async fn who_writes_much_pushes_out_its_own_only_and_all_is_bounded_in_bytes() {
    const RECORD: usize = 64 << 10;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("state.redb");
    let state = StateFile::open(&path).unwrap();
    let retention =
        Retention { bytes_max: ByteSize::mib(1), namespace_bytes_max: ByteSize::kib(768), ..Retention::default() };
    let log = RecordLog::open(state.clone(), retention).unwrap();
    let (quiet, chatty, other) = (name("quiet"), name("chatty"), name("other"));
    log.append(id(0), &quiet, record(&quiet, RECORD));
    for n in 1..=200 {
        log.append(id(n), &chatty, record(&chatty, RECORD));
        if n % 10 == 0 {
            log.flush().await;
            assert!(log.bytes() <= ByteSize::kib(768 + 64), "{}", log.bytes());
        }
    }
    assert_eq!(kept(&log, 0..=200).await, [vec![0], (189..=200).collect()].concat());
    // Another namespace fills the log: whichever has more gives way.
    for n in 201..=210 {
        log.append(id(n), &other, record(&other, RECORD));
    }
    assert_eq!(kept(&log, 0..=210).await, [vec![0], (193..=200).collect(), (204..=210).collect()].concat());
    assert_eq!(log.bytes(), ByteSize::mib(1));
    // A record that replaces another counts once.
    for _ in 0..100 {
        log.append(id(0), &quiet, record(&quiet, RECORD));
    }
    assert_eq!((kept(&log, 0..=210).await.len(), log.bytes()), (16, ByteSize::mib(1)));
    assert!(path.metadata().unwrap().len() < 8 << 20, "{}", path.metadata().unwrap().len());
    assert_eq!(log.dropped(), 0);
    // As after a restart.
    drop(log);
    let log = RecordLog::open(state, retention).unwrap();
    comes_to(&log, 1 << 20).await;
}

#[tokio::test]
async fn many_small_records_of_one_namespace_push_out_its_own_only() {
    let folder = tempfile::tempdir().unwrap();
    let state = StateFile::open(&folder.path().join("state.redb")).unwrap();
    let log = RecordLog::open(state, Retention { records_max: 10, ..Retention::default() }).unwrap();
    let (quiet, busy) = (name("quiet"), name("busy"));
    for n in 0..3 {
        log.append(id(n), &quiet, record(&quiet, 100));
    }
    for n in 3..1000 {
        log.append(id(n), &busy, record(&busy, 40));
    }
    assert_eq!(kept(&log, 0..1000).await, [vec![0, 1, 2], (993..1000).collect()].concat());
}

/// Writes records as builds did that did not count them.
fn written_uncounted(state: &StateFile, records: impl IntoIterator<Item = (u16, Vec<u8>)>, gone: &[u16]) {
    let table: TableDefinition<'_, &[u8; 16], &[u8]> = TableDefinition::new(RECORDS);
    let write = state.begin_write().unwrap();
    {
        let mut table = write.open_table(table).unwrap();
        for (n, record) in records {
            table.insert(&id(n), record.as_slice()).unwrap();
        }
        for n in gone {
            table.remove(&id(*n)).unwrap();
        }
    }
    write.commit().unwrap();
}

#[tokio::test]
async fn records_of_a_build_that_did_not_count_them_are_counted_and_bounded_when_the_log_is_opened() {
    let folder = tempfile::tempdir().unwrap();
    let state = StateFile::open(&folder.path().join("state.redb")).unwrap();
    let (quiet, chatty) = (name("quiet"), name("chatty"));
    // More than one transaction removes, and one that nobody can read any more.
    let chattys = (2..6000).map(|n| (n, record(&chatty, 100)));
    written_uncounted(&state, [(0, record(&quiet, 50)), (1, b"older".to_vec())].into_iter().chain(chattys), &[]);
    let retention = Retention { namespace_bytes_max: ByteSize(1000), ..Retention::default() };
    let log = RecordLog::open(state.clone(), retention).unwrap();
    comes_to(&log, 50 + 5 + 1000).await;
    assert_eq!(kept(&log, 0..6000).await, [vec![0, 1], (5990..6000).collect()].concat());
    log.append(id(6000), &chatty, record(&chatty, 100));
    assert_eq!(kept(&log, 5985..=6000).await, (5991..=6000).collect::<Vec<_>>());
    drop(log);
    // That build once more, at its limit: as many are added as removed.
    written_uncounted(&state, [(6001, record(&quiet, 200))], &[0]);
    let log = RecordLog::open(state, retention).unwrap();
    comes_to(&log, 200 + 5 + 1000).await;
    assert_eq!(kept(&log, 0..=6001).await.len(), 12);
}
