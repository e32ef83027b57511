//! A shard's journal that is full: writes are told to come back, and what the store has makes room.

use std::sync::Arc;
use std::time::{Duration, Instant};

use async_nats::HeaderMap;
use bytes::Bytes;
use nigh_engine::nats::LedgerSettings;
use nigh_engine::{Ledger, LedgerError};
use nigh_terms::{ByteSize, Version};

use crate::servers::{PATIENCE, Servers};
use crate::under_test::{Engine, Homes, OneMachine, SHARD, append, content, found, put, read};

const SUBJECT: &str = "test.ledger.3.record";
const STREAM: &str = "test-ledger-3";
const BODY: usize = 60_000;

fn small() -> LedgerSettings {
    LedgerSettings { limit: ByteSize::mib(4), settle_every: Duration::from_millis(100), ..LedgerSettings::default() }
}

/// Appends until there is no room.
async fn fill(ledger: &dyn Ledger, first: u128) -> Vec<Version> {
    let mut versions = Vec::new();
    for request in first.. {
        match append(ledger, put(request, &request.to_string()), content(request, BODY), None).await {
            Ok(appended) => versions.push(appended.version),
            Err(LedgerError::Full) => return versions,
            Err(error) => panic!("{error}"),
        }
        assert!(versions.len() < 2000, "it is never full");
    }
    versions
}

/// Appends until it is taken.
async fn append_in_time(ledger: &dyn Ledger, request: u128) -> Version {
    let begun = Instant::now();
    loop {
        match append(ledger, put(request, &request.to_string()), content(request, BODY), None).await {
            Ok(appended) => return appended.version,
            Err(LedgerError::Full) => assert!(begun.elapsed() < PATIENCE, "no room was made"),
            Err(error) => panic!("{error}"),
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

async fn a_full_ledger_has_room_again_when_the_store_has_what_is_in_it(engine: &dyn Engine) {
    let (ledger, _) = engine.open().await;
    let versions = fill(&*ledger, 0).await;
    let first = content(0, BODY);
    assert_eq!(read(&*ledger, versions[0]).await.unwrap(), first, "what was taken is kept");
    drop(ledger);
    let (ledger, recovered) = engine.open().await;
    assert_eq!(recovered.records.len(), versions.len(), "a full ledger opens");
    for version in &versions {
        ledger.stored(SHARD, *version).await.unwrap();
    }
    ledger.settle(SHARD).await.unwrap();
    // Several times round.
    let mut kept = None;
    for request in 10_000..10_000 + 3 * versions.len() as u128 {
        let version = append_in_time(&*ledger, request).await;
        ledger.stored(SHARD, kept.replace(version).unwrap_or(versions[0])).await.unwrap();
    }
    ledger.settle(SHARD).await.unwrap();
    drop(ledger);
    let (_, recovered) = engine.open().await;
    assert_eq!(found(&recovered).len(), 1);
}

/// One write that the store never takes does not hold back all others.
async fn an_old_write_does_not_fill_a_ledger(engine: &dyn Engine) {
    let (ledger, _) = engine.open().await;
    let old = append(&*ledger, put(1, "old"), content(1, 150_000), Some(100_000)).await.unwrap().version;
    let small = append(&*ledger, put(2, "small"), content(2, 100), None).await.unwrap().version;
    let mut last = None;
    for request in 20_000..20_000 + 300_u128 {
        let version = append_in_time(&*ledger, request).await;
        if let Some(before) = last.replace(version) {
            ledger.stored(SHARD, before).await.unwrap();
        }
    }
    for (version, seed, bytes) in [(old, 1, 150_000), (small, 2, 100)] {
        assert_eq!(read(&*ledger, version).await.unwrap(), content(seed, bytes));
    }
    ledger.settle(SHARD).await.unwrap();
    drop(ledger);
    let (ledger, recovered) = engine.open().await;
    let mut requests: Vec<u128> = found(&recovered).iter().map(|(request, _)| *request).collect();
    requests.sort_unstable();
    assert_eq!(requests, [1, 2, 20_299]);
    assert_eq!(read(&*ledger, old).await.unwrap(), content(1, 150_000));
    for one in recovered.records {
        ledger.stored(SHARD, one.version).await.unwrap();
    }
    ledger.settle(SHARD).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_journal_of_one_machine_makes_room() {
    let engine = OneMachine::new(ByteSize::mib(48));
    an_old_write_does_not_fill_a_ledger(&engine).await;
    a_full_ledger_has_room_again_when_the_store_has_what_is_in_it(&engine).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_ledger_of_a_cluster_makes_room() {
    let Some(servers) = Servers::start("the_ledger_of_a_cluster_makes_room", 3) else { return };
    let engine = Homes::new(servers.connect(3).await, small());
    an_old_write_does_not_fill_a_ledger(&engine).await;
    a_full_ledger_has_room_again_when_the_store_has_what_is_in_it(&engine).await;
    let state = servers.bare().await.get_stream(STREAM).await.unwrap().cached_info().state.clone();
    assert!(state.bytes < 4 << 20, "{} bytes in {} messages are left", state.bytes, state.messages);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_that_others_have_filled_refuses_and_the_home_goes_on() {
    let Some(servers) = Servers::start("a_stream_that_others_have_filled_refuses_and_the_home_goes_on", 1) else {
        return;
    };
    let homes = Homes::new(servers.connect(1).await, small());
    let (ledger, recovered) = homes.take().await.unwrap();
    let bare = servers.bare().await;
    let mut strange = Vec::new();
    loop {
        let junk = Bytes::from(vec![7; 500_000]);
        match bare.publish_with_headers(SUBJECT, HeaderMap::new(), junk).await.unwrap().await {
            Ok(ack) => strange.push(ack.sequence),
            Err(error) => break assert!(error.to_string().contains("publish failed"), "{error}"),
        }
    }
    let large = append(&ledger, put(1, "a"), content(1, 500_000), Some(500_000)).await;
    assert!(matches!(large, Err(LedgerError::Unavailable(_))), "{large:?}");
    let mut last = None;
    for request in 2..100 {
        let key = request.to_string();
        if let Err(refused) = append(&ledger, put(request, &key), content(request, BODY), None).await {
            last = Some(refused);
            break;
        }
    }
    let last = last.unwrap();
    assert!(matches!(&last, LedgerError::NotKept(_)) && last.may_have_taken_a_version(), "{last:?}");
    assert!(ledger.check(SHARD).is_ok(), "the home has the shard still");
    let stream = bare.get_stream(STREAM).await.unwrap();
    for place in strange {
        stream.delete_message(place).await.unwrap();
    }
    let ledger: Arc<dyn Ledger> = Arc::new(ledger);
    append(&*ledger, put(1000, "b"), content(4, BODY), None).await.unwrap();
    assert!(ledger.epoch(SHARD) == recovered.epoch);
}
