//! Files of servers, and messages, that are not what was written: found, told, never served, never passed over.

use std::path::Path;
use std::time::Duration;

use async_nats::HeaderMap;
use bytes::Bytes;
use nigh_engine::LedgerError;
use nigh_engine::journal::{DamageKind, JournalRecovery};
use nigh_engine::nats::{ClusterError, LedgerSettings, NatsLedger};
use nigh_terms::Version;

use crate::servers::{PATIENCE, Servers};
use crate::under_test::{Homes, append, content, found, put, read};

const SUBJECT: &str = "test.ledger.3.record";
const STREAM: &str = "test-ledger-3";
const WRITES: u128 = 40;
const BYTES: usize = 2000;
/// How often homes tell how far the stream has come.
const TOLD_EVERY: Duration = Duration::from_millis(100);

/// Writes, and what they were acknowledged as.
async fn written(homes: &Homes) -> Vec<(u128, Version)> {
    let (ledger, _) = homes.take().await.unwrap();
    let mut versions = Vec::new();
    for request in 1..=WRITES {
        let appended = append(&ledger, put(request, &format!("key-{request}")), content(request, BYTES), None).await;
        versions.push((request, appended.unwrap().version));
    }
    // Until the furthest place was told.
    tokio::time::sleep(5 * TOLD_EVERY).await;
    versions
}

/// Turns a bit in the middle of a block, where bodies are.
fn flip(block: &Path) {
    let mut bytes = std::fs::read(block).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 0x10;
    std::fs::write(block, bytes).unwrap();
}

fn cut(block: &Path) {
    let bytes = std::fs::metadata(block).unwrap().len();
    std::fs::File::options().write(true).open(block).unwrap().set_len(bytes / 2).unwrap();
}

/// Whatever a home is told after damage, it is the truth: all writes with their bytes, or an error, or damage that names
/// as many writes as are missing.
async fn nothing_is_passed_over(
    fault: &str,
    taken: Result<(NatsLedger, JournalRecovery), ClusterError>,
    written: &[(u128, Version)],
) {
    let (ledger, recovered) = match taken {
        Ok(taken) => taken,
        Err(
            error @ (ClusterError::Damaged { .. }
            | ClusterError::Gone { .. }
            | ClusterError::WentBack { .. }
            | ClusterError::Unreachable { .. }),
        ) => {
            println!("{fault}: refused: {error}");
            return;
        }
        Err(error) => panic!("{fault}: {error}"),
    };
    println!(
        "{fault}: {} of {} writes are there, {} damaged",
        recovered.records.len(),
        written.len(),
        recovered.damage.len()
    );
    let there = found(&recovered);
    assert!(there.iter().all(|one| written.contains(one)));
    let missing = written.len() - there.len();
    assert!(recovered.damage.len() >= missing, "{missing} are missing, and {:?}", recovered.damage);
    for (request, version) in there {
        match read(&ledger, version).await {
            Ok(body) => assert!(body == content(request, BYTES), "{version} is not what was written"),
            Err(LedgerError::Damaged { .. } | LedgerError::Unavailable(_)) => println!("{fault}: {version} is damaged"),
            Err(error) => panic!("{error}"),
        }
    }
}

/// Damages the newest block of these servers while they are down.
async fn after_damage(test: &str, servers_count: usize, damaged: &[&str], harm: fn(&Path)) {
    let Some(mut servers) = Servers::start(test, servers_count) else { return };
    let aside = tempfile::tempdir().unwrap();
    let keep_damaged = Some(aside.path().to_owned());
    let settings = LedgerSettings { keep_damaged, settle_every: TOLD_EVERY, ..LedgerSettings::default() };
    let homes = Homes::new(servers.connect(servers_count).await, settings);
    let versions = written(&homes).await;
    let leader = servers.leader(STREAM).await;
    let which: Vec<usize> = damaged
        .iter()
        .map(|role| match *role {
            "leader" => leader,
            "follower" => (leader + 1) % servers_count,
            "other" => (leader + 2) % servers_count,
            other => panic!("{other}"),
        })
        .collect();
    for &at in &which {
        servers.shut_down(at);
    }
    for &at in &which {
        let blocks = servers.blocks(at, STREAM);
        harm(blocks.last().unwrap());
        servers.run(at);
    }
    let cluster = servers.connect_for(servers_count, PATIENCE / 3).await;
    nothing_is_passed_over(test, homes.take_by(cluster).await, &versions).await;
    // Whoever leads then must not tell another story.
    if servers.count() > 1 {
        servers.lead_by_another(STREAM).await;
        let cluster = servers.connect(servers_count).await;
        nothing_is_passed_over(&format!("{test}, another leader"), homes.take_by(cluster).await, &versions).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_flipped_bit_of_a_server_alone_is_told() {
    after_damage("a_flipped_bit_of_a_server_alone_is_told", 1, &["leader"], flip).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_block_of_a_server_alone_that_was_cut_is_told() {
    after_damage("a_block_of_a_server_alone_that_was_cut_is_told", 1, &["leader"], cut).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn blocks_of_all_servers_that_were_cut_are_told_or_mended() {
    let all = &["leader", "follower", "other"];
    after_damage("blocks_of_all_servers_that_were_cut_are_told_or_mended", 3, all, cut).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_flipped_bit_of_one_server_is_told_or_mended() {
    after_damage("a_flipped_bit_of_one_server_is_told_or_mended", 3, &["leader"], flip).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn flipped_bits_of_two_servers_are_told_or_mended() {
    after_damage("flipped_bits_of_two_servers_are_told_or_mended", 3, &["leader", "follower"], flip).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_block_of_one_server_that_was_cut_is_told_or_mended() {
    after_damage("a_block_of_one_server_that_was_cut_is_told_or_mended", 3, &["leader"], cut).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn blocks_of_two_servers_that_were_cut_are_told_or_mended() {
    after_damage("blocks_of_two_servers_that_were_cut_are_told_or_mended", 3, &["leader", "follower"], cut).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_with_a_flipped_bit_is_refused_named_and_kept_aside() {
    let Some(servers) = Servers::start("a_message_with_a_flipped_bit_is_refused_named_and_kept_aside", 1) else {
        return;
    };
    let cluster = servers.connect(1).await;
    let homes = Homes::new(cluster.clone(), LedgerSettings::default());
    let (ledger, recovered) = homes.take().await.unwrap();
    let version = append(&ledger, put(1, "a"), content(1, BYTES), None).await.unwrap().version;
    let bare = servers.bare().await;
    let stream = bare.get_stream(STREAM).await.unwrap();
    let whole = stream.get_raw_message(recovered.epoch.0 + 1).await.unwrap().payload;
    drop(ledger);
    // The server has served what it was given; what it was given had been damaged on its way.
    let publish = |bytes: Vec<u8>| {
        let bare = bare.clone();
        async move { bare.publish_with_headers(SUBJECT, HeaderMap::new(), Bytes::from(bytes)).await.unwrap().await.unwrap() }
    };
    let mut body = whole.to_vec();
    *body.last_mut().unwrap() ^= 1;
    let mut head = whole.to_vec();
    head[20] ^= 1;
    stream.purge().filter(SUBJECT).await.unwrap();
    let damaged_body = publish(body).await.sequence;
    let damaged_head = publish(head).await.sequence;

    let refused = homes.take().await.unwrap_err();
    let ClusterError::Damaged { damage, .. } = refused else { panic!("{refused}") };
    let kinds: Vec<_> = damage.iter().map(|one| (one.offset, &one.kind)).collect();
    let missing = recovered.epoch.0 + 1;
    assert!(matches!(kinds[..], [(at, DamageKind::Missing), ..] if at == missing), "{kinds:?}");
    let named = kinds.iter().any(|(at, kind)| {
        *at == damaged_body && matches!(kind, DamageKind::Record { record, stored: false } if record.version == version)
    });
    assert!(named && kinds.contains(&(damaged_head, &DamageKind::Unknown)), "{kinds:?}");

    let aside = tempfile::tempdir().unwrap();
    let settings = LedgerSettings { keep_damaged: Some(aside.path().to_owned()), ..LedgerSettings::default() };
    let forgiving = Homes::new(cluster, settings);
    // Its claims begin anew.
    forgiving.claim();
    forgiving.claim();
    let (ledger, recovered) = forgiving.take().await.unwrap();
    assert_eq!((found(&recovered), recovered.damage.len()), (vec![], 3));
    assert_eq!(read(&ledger, version).await, Err(LedgerError::Unknown(version)));
    assert_eq!(std::fs::read_dir(aside.path()).unwrap().count(), 2);
    append(&ledger, put(2, "a"), content(2, BYTES), None).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_that_is_gone_from_the_middle_is_told_and_its_body_never_served() {
    let test = "a_message_that_is_gone_from_the_middle_is_told_and_its_body_never_served";
    let Some(servers) = Servers::start(test, 3) else { return };
    let homes = Homes::new(servers.connect(3).await, LedgerSettings::default());
    let (ledger, recovered) = homes.take().await.unwrap();
    let mut versions = Vec::new();
    for request in 1..4 {
        versions.push(append(&ledger, put(request, "a"), content(request, BYTES), None).await.unwrap().version);
    }
    let large = append(&ledger, put(4, "b"), content(4, 600_000), Some(300_000)).await.unwrap().version;
    let stream = servers.bare().await.get_stream(STREAM).await.unwrap();
    let second = recovered.epoch.0 + 2;
    let chunk = recovered.epoch.0 + 4;
    stream.delete_message(second).await.unwrap();
    stream.delete_message(chunk).await.unwrap();
    let served = read(&ledger, versions[1]).await;
    assert!(matches!(served, Err(LedgerError::Damaged { offset, .. }) if offset == second), "{served:?}");
    assert!(matches!(read(&ledger, large).await, Err(LedgerError::Damaged { offset, .. }) if offset == chunk));
    assert_eq!(read(&ledger, versions[2]).await.unwrap(), content(3, BYTES));
    let refused = homes.take().await.unwrap_err();
    let ClusterError::Damaged { damage, .. } = refused else { panic!("{refused}") };
    let missing: Vec<_> = damage.iter().filter(|one| one.kind == DamageKind::Missing).map(|one| one.offset).collect();
    assert_eq!(missing, [second, chunk]);
    assert!(damage.iter().any(|one| matches!(&one.kind, DamageKind::Record { record, .. } if record.version == large)));
}
