//! What every ledger must do.

use std::sync::Arc;

use bytes::Bytes;
use nigh_engine::nats::LedgerSettings;
use nigh_engine::{
    ABOUT_MAX_BYTES, AppendResult, Body, Change, INLINE_MAX_BYTES, LedgerError, PIECE_MAX_BYTES, PieceId, StagedPiece,
    StagedRoom,
};
use nigh_terms::{ByteSize, Epoch, Sequence, Version};

use crate::history::History;
use crate::servers::Servers;
use crate::under_test::{Engine, Homes, OneMachine, SHARD, append, content, found, put, read, record};

/// Every promise, one after the other, each in a new life.
async fn conforms(engine: &dyn Engine) {
    writes_are_ordered_and_read_back(engine).await;
    what_is_stored_goes_with_what_is_older(engine).await;
    limits_are_told(engine).await;
    appenders_at_once_lose_nothing(engine).await;
}

async fn writes_are_ordered_and_read_back(engine: &dyn Engine) {
    let (ledger, recovered) = engine.open().await;
    let epoch = ledger.epoch(SHARD);
    assert_eq!((recovered.records.len(), recovered.epoch), (0, epoch));
    let version = |sequence| Version { epoch, sequence: Sequence(sequence) };
    let small = append(&*ledger, put(1, "small"), content(1, 1000), None).await.unwrap();
    assert_eq!(small, AppendResult { version: version(1), repeated: false });
    let large = content(2, 3 * PIECE_MAX_BYTES + 5);
    let pieces = append(&*ledger, put(2, "large"), large.clone(), Some(PIECE_MAX_BYTES)).await.unwrap();
    assert_eq!(pieces.version, version(2));
    assert_eq!(ledger.place(SHARD), version(3));
    let delete = record(3, "small", Change::Delete { about: Bytes::new() });
    let deleted = append(&*ledger, delete.clone(), Bytes::new(), None).await.unwrap();
    assert_eq!(deleted.version, version(4));
    assert_eq!(read(&*ledger, small.version).await.unwrap(), content(1, 1000));
    assert_eq!(read(&*ledger, pieces.version).await.unwrap(), large);
    assert_eq!(read(&*ledger, version(3)).await, Err(LedgerError::Unknown(version(3))));

    let again = append(&*ledger, put(1, "small"), content(1, 1000), None).await.unwrap();
    assert_eq!(again, AppendResult { version: version(1), repeated: true });
    let other = append(&*ledger, put(1, "other"), Bytes::new(), None).await.unwrap();
    assert!(!other.repeated, "a request is one object's");
    drop(ledger);

    let (ledger, recovered) = engine.open().await;
    assert!(ledger.epoch(SHARD) > epoch);
    let expected = [(1, version(1)), (2, version(2)), (3, version(4)), (1, version(5))];
    assert_eq!(found(&recovered), expected);
    assert_eq!(recovered.records.iter().map(|one| one.body_bytes).collect::<Vec<_>>()[..2], [1000, large.len() as u64]);
    assert_eq!((&recovered.damage[..], &recovered.records[2].record), (&[][..], &delete));
    assert_eq!(read(&*ledger, version(1)).await.unwrap(), content(1, 1000));
    assert_eq!(read(&*ledger, version(2)).await.unwrap(), large);
    let again = append(&*ledger, put(2, "large"), Bytes::new(), None).await.unwrap();
    assert_eq!(again, AppendResult { version: version(2), repeated: true }, "an earlier home did it");
    for (_, version) in expected {
        ledger.stored(SHARD, version).await.unwrap();
    }
    ledger.settle(SHARD).await.unwrap();
}

async fn what_is_stored_goes_with_what_is_older(engine: &dyn Engine) {
    let (ledger, recovered) = engine.open().await;
    assert_eq!(found(&recovered), []);
    let mut versions = Vec::new();
    for (request, key) in (10..).zip(["a", "b", "a", "a", "c"]) {
        versions.push(append(&*ledger, put(request, key), content(request, 10), None).await.unwrap().version);
    }
    ledger.stored(SHARD, versions[2]).await.unwrap();
    assert_eq!(read(&*ledger, versions[0]).await, Err(LedgerError::Unknown(versions[0])));
    assert_eq!(read(&*ledger, versions[3]).await.unwrap(), content(13, 10));
    ledger.settle(SHARD).await.unwrap();
    drop(ledger);
    let (ledger, recovered) = engine.open().await;
    assert_eq!(found(&recovered), [(11, versions[1]), (13, versions[3]), (14, versions[4])]);
    for version in versions {
        ledger.stored(SHARD, version).await.unwrap();
    }
    ledger.settle(SHARD).await.unwrap();
}

async fn limits_are_told(engine: &dyn Engine) {
    let (ledger, _) = engine.open().await;
    let long = |bytes| Bytes::from(vec![0; bytes]);
    let too_long = append(&*ledger, put(20, "a"), long(INLINE_MAX_BYTES + 1), None).await;
    assert!(matches!(too_long, Err(LedgerError::TooLarge { .. })), "{too_long:?}");
    let about = record(21, "a", Change::Amend { about: long(ABOUT_MAX_BYTES + 1) });
    assert!(matches!(append(&*ledger, about, Bytes::new(), None).await, Err(LedgerError::TooLarge { .. })));
    assert!(matches!(ledger.stage(SHARD, long(PIECE_MAX_BYTES + 1)).await, Err(LedgerError::TooLarge { .. })));
    let strange = StagedPiece::new(PieceId(u64::MAX >> 1), 10, 0, Arc::new(NoRoom));
    let strange = ledger.append(SHARD, put(22, "a"), Body::Staged(vec![strange])).await;
    assert!(matches!(strange, Err(LedgerError::UnknownPiece(_))), "{strange:?}");
    // One that nobody names is no write.
    drop(ledger.stage(SHARD, content(23, 100_000)).await.unwrap());
    drop(ledger);
    let (_, recovered) = engine.open().await;
    assert_eq!((found(&recovered), &recovered.damage[..]), (vec![], &[][..]));
}

struct NoRoom;

impl StagedRoom for NoRoom {
    fn release(&self, _piece: PieceId) {}
}

async fn appenders_at_once_lose_nothing(engine: &dyn Engine) {
    let (ledger, _) = engine.open().await;
    let history = Arc::new(History::default());
    history.clone().appenders(Arc::clone(&ledger), 8, 25).await;
    let acknowledged = history.acknowledged();
    assert_eq!(acknowledged.len(), 200);
    drop(ledger);
    let (ledger, recovered) = engine.open().await;
    history.check(&recovered, &*ledger).await;
    for (version, _) in acknowledged {
        ledger.stored(SHARD, version).await.unwrap();
    }
    ledger.settle(SHARD).await.unwrap();
    assert!(ledger.epoch(SHARD) > Epoch(1));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_journal_of_one_machine_keeps_what_ledgers_promise() {
    conforms(&OneMachine::new(ByteSize::mib(64))).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_ledger_of_a_server_alone_keeps_what_ledgers_promise() {
    let Some(servers) = Servers::start("the_ledger_of_a_server_alone_keeps_what_ledgers_promise", 1) else { return };
    conforms(&Homes::new(servers.connect(1).await, LedgerSettings::default())).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_ledger_of_a_cluster_keeps_what_ledgers_promise() {
    let Some(servers) = Servers::start("the_ledger_of_a_cluster_keeps_what_ledgers_promise", 3) else { return };
    conforms(&Homes::new(servers.connect(3).await, LedgerSettings::default())).await;
}
