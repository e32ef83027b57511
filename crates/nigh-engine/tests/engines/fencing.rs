//! A home that was deposed appends nothing, whatever it does, and what it had sent is one record or none.

use std::sync::Arc;

use async_nats::HeaderMap;
use bytes::Bytes;
use nigh_engine::nats::{ClusterError, LedgerSettings};
use nigh_engine::{Ledger, LedgerError};
use nigh_terms::Epoch;

use crate::history::History;
use crate::servers::Servers;
use crate::under_test::{Engine as _, Homes, SHARD, append, content, found, put};

const SUBJECT: &str = "test.ledger.3.record";
const STREAM: &str = "test-ledger-3";

async fn a_deposed_home_is_refused(servers: &Servers, replicas: usize) {
    let homes = Homes::new(servers.connect(replicas).await, LedgerSettings::default());
    let (old, _) = homes.take().await.unwrap();
    append(&old, put(1, "a"), content(1, 10), None).await.unwrap();
    let staged = append(&old, put(2, "b"), content(2, 700_000), Some(300_000)).await.unwrap();
    let (new, recovered) = homes.take_by(servers.connect(replicas).await).await.unwrap();
    assert_eq!(found(&recovered).len(), 2);

    let fenced = |answer: &LedgerError| matches!(answer, LedgerError::Fenced { shard: SHARD, .. });
    assert!(old.check(SHARD).is_ok(), "it does not know yet");
    assert!(fenced(&append(&old, put(3, "a"), content(3, 10), None).await.unwrap_err()));
    assert!(fenced(&old.check(SHARD).unwrap_err()));
    assert!(fenced(&old.stage(SHARD, content(4, 10)).await.unwrap_err()));
    assert!(fenced(&old.settle(SHARD).await.unwrap_err()));
    assert!(fenced(&old.stored(SHARD, staged.version).await.unwrap_err()));
    let appended = append(&new, put(4, "a"), content(4, 10), None).await.unwrap();
    assert!(appended.version > staged.version);

    // One that is deposed and writes nothing finds out when it settles.
    let (newest, _) = homes.take().await.unwrap();
    assert!(fenced(&new.settle(SHARD).await.unwrap_err()));
    drop(newest);
    let (_, recovered) = homes.open().await;
    assert_eq!(found(&recovered).iter().map(|(request, _)| *request).collect::<Vec<_>>(), [1, 2, 4]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deposed_home_is_refused_by_a_server_alone() {
    let Some(servers) = Servers::start("a_deposed_home_is_refused_by_a_server_alone", 1) else { return };
    a_deposed_home_is_refused(&servers, 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deposed_home_is_refused_by_a_cluster() {
    let Some(servers) = Servers::start("a_deposed_home_is_refused_by_a_cluster", 3) else { return };
    a_deposed_home_is_refused(&servers, 3).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn homes_that_take_a_shard_from_each_other_under_load_lose_nothing_and_share_nothing() {
    let test = "homes_that_take_a_shard_from_each_other_under_load_lose_nothing_and_share_nothing";
    let Some(servers) = Servers::start(test, 3) else { return };
    let homes = Homes::new(servers.connect(3).await, LedgerSettings::default());
    let history = Arc::new(History::default());
    let mut epoch = Epoch(0);
    for _ in 0..5 {
        let (ledger, _) = homes.take_by(servers.connect(3).await).await.unwrap();
        assert!(ledger.epoch(SHARD) > epoch);
        epoch = ledger.epoch(SHARD);
        let ledger: Arc<dyn Ledger> = Arc::new(ledger);
        tokio::spawn(Arc::clone(&history).appenders(ledger, 6, 1_000));
        history.goes_on(50).await;
    }
    history.stop();
    let (ledger, recovered) = homes.open().await;
    history.check(&recovered, &*ledger).await;
    assert!(history.acknowledged().len() >= 250, "{} were acknowledged", history.acknowledged().len());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_that_came_to_stand_twice_is_one_record_and_is_trimmed() {
    let Some(servers) = Servers::start("a_message_that_came_to_stand_twice_is_one_record_and_is_trimmed", 1) else {
        return;
    };
    let homes = Homes::new(servers.connect(1).await, LedgerSettings::default());
    let (ledger, recovered) = homes.take().await.unwrap();
    let first = append(&ledger, put(1, "a"), content(1, 10), None).await.unwrap();
    let bare = servers.bare().await;
    let stream = bare.get_stream(STREAM).await.unwrap();
    let message = stream.get_raw_message(recovered.epoch.0 + 1).await.unwrap();
    // As if it had been on its way for longer than servers remember ids.
    bare.publish_with_headers(SUBJECT, HeaderMap::new(), message.payload).await.unwrap().await.unwrap();
    append(&ledger, put(2, "b"), content(2, 10), None).await.unwrap();
    let (again, recovered) = homes.take().await.unwrap();
    assert_eq!(found(&recovered).iter().map(|(request, _)| *request).collect::<Vec<_>>(), [1, 2]);
    again.stored(SHARD, first.version).await.unwrap();
    again.settle(SHARD).await.unwrap();
    let (_, recovered) = homes.open().await;
    assert_eq!(found(&recovered).len(), 1, "the second copy is stored as well");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_that_is_gone_or_goes_back_is_no_empty_journal() {
    let Some(servers) = Servers::start("a_stream_that_is_gone_or_goes_back_is_no_empty_journal", 1) else { return };
    let homes = Homes::new(servers.connect(1).await, LedgerSettings::default());
    let (ledger, _) = homes.take().await.unwrap();
    for request in 1..4 {
        append(&ledger, put(request, "a"), content(request, 10), None).await.unwrap();
    }
    homes.take().await.unwrap();
    let bare = servers.bare().await;
    let config = bare.get_stream(STREAM).await.unwrap().cached_info().config.clone();
    bare.delete_stream(STREAM).await.unwrap();
    let gone = homes.take().await.unwrap_err();
    assert!(matches!(gone, ClusterError::Gone { .. }), "{gone}");
    bare.create_stream(config).await.unwrap();
    // However often it is tried: each attempt makes the stream longer.
    for _ in 0..6 {
        let back = homes.take().await.unwrap_err();
        assert!(matches!(back, ClusterError::WentBack { .. }), "{back}");
    }
    // The operator has seen it.
    bare.publish("$KV.test-reached.k3", Bytes::new()).await.unwrap().await.unwrap();
    let (ledger, recovered) = homes.take().await.unwrap();
    assert_eq!(found(&recovered), []);
    append(&ledger, put(9, "a"), content(9, 10), None).await.unwrap();
}
