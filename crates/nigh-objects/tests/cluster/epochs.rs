//! A process that is the home of a shard again and again: what is late from one epoch counts for nothing in the next.

use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt;
use nigh_data::{ObjectError, PutDone, PutRequest};
use nigh_engine::Ledger;
use nigh_objects::cluster::HomeEvent;
use nigh_terms::ShardId;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::late::Gate;
use crate::world::{CACHED, Node, World, bucket, key, request, who};

/// Longer than any call here takes that does not hang.
const WITHIN: Duration = Duration::from_secs(10);

type Put = JoinHandle<Result<PutDone, ObjectError>>;

fn begin(node: &Node, name: &str, request: PutRequest) -> Put {
    let (memory, name) = (node.memory.clone(), key(name));
    tokio::spawn(async move { memory.put(&who(), &bucket(), &name, request).await })
}

/// Begins a put that stands at `gate`.
async fn begin_at(gate: &Gate, node: &Node, name: &str, bytes: &[u8]) -> Put {
    gate.set_open(false);
    let put = begin(node, name, request(bytes));
    while gate.waiting() == 0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    put
}

async fn ends(put: Put) -> Result<PutDone, ObjectError> {
    timeout(WITHIN, put).await.unwrap_or_else(|_| panic!("the put hangs")).unwrap()
}

/// A put that follows is told to the home, and seen everywhere.
async fn assert_serves(world: &World, name: &str) {
    let put = timeout(WITHIN, world.nodes[&0].put(name, b"next"));
    put.await.unwrap_or_else(|_| panic!("the next put hangs")).unwrap();
    for node in world.nodes.values() {
        assert_eq!(node.get(name).await.unwrap(), b"next", "at {:?}", node.member);
    }
}

fn is_deposed(events: &[HomeEvent], shard: ShardId) -> bool {
    events.iter().any(|event| matches!(event, HomeEvent::Deposed(of, _) if *of == shard))
}

#[tokio::test(flavor = "multi_thread")]
async fn what_an_earlier_home_here_hears_late_counts_for_no_write_of_the_next() {
    let test = "what_an_earlier_home_here_hears_late_counts_for_no_write_of_the_next";
    let Some(mut world) = World::start(test, 2).await else { return };
    let names: Vec<String> = world.names_at(0).take(2).collect();
    let shard = World::shard_of(&names[0]);
    let answers = world.nodes[&0].answers.clone();
    let put = begin_at(&answers, &world.nodes[&0], &names[0], b"late").await;
    world.give(shard, 1).await;
    // It asks the ledger whether it stands, and knows then.
    assert!(world.nodes[&0].list().await.contains(&names[0]));
    while !is_deposed(&world.heard(0), shard) {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    world.give(shard, 0).await;
    answers.set_open(true);
    assert!(ends(put).await.is_err(), "nobody has told it where the write stands");
    assert_serves(&world, &names[1]).await;
    assert_eq!(world.nodes[&1].get(&names[0]).await.unwrap(), b"late");
    assert!(!is_deposed(&world.heard(0), shard));
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_home_that_begins_over_a_living_one_here_is_told_of_its_own_writes_alone() {
    let test = "a_home_that_begins_over_a_living_one_here_is_told_of_its_own_writes_alone";
    let Some(mut world) = World::start(test, 2).await else { return };
    let names: Vec<String> = world.names_at(0).take(2).collect();
    let answers = world.nodes[&0].answers.clone();
    let put = begin_at(&answers, &world.nodes[&0], &names[0], b"late").await;
    world.give(World::shard_of(&names[0]), 0).await;
    answers.set_open(true);
    assert!(ends(put).await.is_err(), "nobody has told it where the write stands");
    assert_serves(&world, &names[1]).await;
    assert_eq!(world.nodes[&1].get(&names[0]).await.unwrap(), b"late");
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn that_an_earlier_home_here_was_fenced_does_not_end_the_next() {
    let Some(mut world) = World::start("that_an_earlier_home_here_was_fenced_does_not_end_the_next", 2).await else {
        return;
    };
    let names: Vec<String> = world.names_at(0).take(2).collect();
    let shard = World::shard_of(&names[0]);
    // Nobody has told node 0, and the ledger refuses its write.
    world.give(shard, 1).await;
    let answers = world.nodes[&0].answers.clone();
    let put = begin_at(&answers, &world.nodes[&0], &names[0], b"refused").await;
    world.give(shard, 0).await;
    answers.set_open(true);
    assert!(ends(put).await.is_err());
    assert_serves(&world, &names[1]).await;
    assert!(!is_deposed(&world.heard(0), shard));
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_write_that_was_begun_at_an_earlier_home_here_is_not_appended_under_the_next() {
    let test = "a_write_that_was_begun_at_an_earlier_home_here_is_not_appended_under_the_next";
    let Some(mut world) = World::start(test, 2).await else { return };
    let names: Vec<String> = world.names_at(0).take(2).collect();
    world.nodes[&0].put(&names[0], b"first").await.unwrap();
    let appends = world.nodes[&0].appends.clone();
    let put = begin_at(&appends, &world.nodes[&0], &names[0], b"second").await;
    world.give(World::shard_of(&names[0]), 0).await;
    // Node 1 has a copy that only an invalidation drops.
    assert_eq!(world.nodes[&1].get(&names[0]).await.unwrap(), b"first");
    appends.set_open(true);
    assert!(ends(put).await.is_err());
    let here = world.nodes[&0].get(&names[0]).await.unwrap();
    assert_eq!(world.nodes[&1].get(&names[0]).await.unwrap(), here, "one reader has seen what another does not");
    assert_serves(&world, &names[1]).await;
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_large_object_whose_home_ended_while_the_store_took_it_is_seen_by_all() {
    let test = "a_large_object_whose_home_ended_while_the_store_took_it_is_seen_by_all";
    let Some(mut world) = World::start(test, 2).await else { return };
    let name = world.names_at(0).next().unwrap();
    world.nodes[&0].put(&name, b"small").await.unwrap();
    world.nodes[&0].memory.flush_all(WITHIN).await.unwrap();
    let puts = world.nodes[&0].store_puts.clone();
    let large = vec![7; CACHED + 1];
    let put = begin_at(&puts, &world.nodes[&0], &name, &large).await;
    world.give(World::shard_of(&name), 0).await;
    assert_eq!(world.nodes[&1].get(&name).await.unwrap(), b"small");
    puts.set_open(true);
    let error = ends(put).await.unwrap_err();
    assert!(error.is_in_doubt(), "{error}");
    for node in world.nodes.values() {
        assert!(node.get(&name).await.unwrap() == large, "an old copy at {:?}", node.member);
    }
    world.end().await;
}

/// A body whose pieces come when the test sends them.
fn slow(bytes: usize) -> (mpsc::UnboundedSender<Bytes>, PutRequest) {
    let (send, pieces) = mpsc::unbounded_channel::<Bytes>();
    let pieces = futures::stream::unfold(pieces, |mut pieces| async { Some((Ok(pieces.recv().await?), pieces)) });
    (send, PutRequest { body: pieces.boxed(), length: Some(bytes as u64), ..request(b"") })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_that_was_staged_for_an_earlier_home_here_takes_no_piece_of_anothers() {
    let test = "a_body_that_was_staged_for_an_earlier_home_here_takes_no_piece_of_anothers";
    let Some(mut world) = World::start(test, 1).await else { return };
    let names: Vec<String> = world.names_at(0).take(2).collect();
    let (shard, half) = (World::shard_of(&names[0]), nigh_engine::PIECE_MAX_BYTES);
    let piece = |byte: u8| Bytes::from(vec![byte; half]);
    // The journal keeps what the store does not take.
    world.nodes[&0].store_puts.set_open(false);
    let mut puts = Vec::new();
    for (name, byte) in names.iter().zip([1, 2]) {
        // Both bodies have a first piece of one length, under two epochs.
        let before = world.nodes[&0].ledger().usage(shard).unwrap().1;
        let (send, request) = slow(2 * half);
        let put = begin(&world.nodes[&0], name, request);
        send.send(piece(byte)).unwrap();
        puts.push((byte, send, put));
        while world.nodes[&0].ledger().usage(shard).unwrap().1 < before + half as u64 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        if byte == 1 {
            world.give(shard, 0).await;
        }
    }
    for (byte, send, put) in puts {
        send.send(piece(byte)).unwrap();
        drop(send);
        match ends(put).await {
            Ok(done) => {
                let stored = world.nodes[&0].ledger().read(shard, done.version, 0).await.unwrap();
                assert!(stored.iter().all(|stored| *stored == byte), "the journal has another's bytes");
            }
            Err(error) => assert_eq!(byte, 1, "{error}"),
        }
    }
    world.nodes[&0].store_puts.set_open(true);
    world.end().await;
}
