//! Transactions over objects whose homes are anywhere, and homes that are lost in the midst of them.

use std::num::NonZeroU16;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::TryStreamExt;
use nigh_data::{Attributes, GetRequest, ObjectError, ObjectId};
use nigh_engine::{Body, Change, Ledger, Record, RequestId};
use nigh_objects::{ObjectMemory, Shards, TransactionName};
use nigh_terms::{BucketName, Namespace, ObjectKey, ShardId};
use serde_json::json;
use tokio::sync::watch;

use crate::world::{SHARDS, World, bucket, key, request, who};

fn begin(memory: &ObjectMemory) -> TransactionName {
    memory.begin_transaction(&who()).unwrap().name
}

async fn put_in(memory: &ObjectMemory, name: TransactionName, object: &str, bytes: &[u8]) -> Result<(), ObjectError> {
    memory.put_in(name, &who(), &bucket(), &key(object), request(bytes)).await.map(drop)
}

async fn get_in(memory: &ObjectMemory, name: TransactionName, object: &str) -> Result<String, ObjectError> {
    let got = memory.get_in(name, &who(), &bucket(), &key(object), GetRequest::default()).await?;
    let bytes: Vec<Bytes> = got.body.try_collect().await?;
    Ok(String::from_utf8(bytes.concat()).unwrap())
}

async fn commit(memory: &ObjectMemory, name: TransactionName) -> Result<usize, ObjectError> {
    memory.commit_transaction(name, &who()).await.map(|committed| committed.written.len())
}

fn shard_of(name: &str) -> ShardId {
    let object = ObjectId { namespace: who().namespace, bucket: bucket(), key: key(name) };
    Shards::new(NonZeroU16::new(SHARDS).unwrap()).of(&object)
}

/// A key of each shard, in the order of the shards.
fn one_of_each() -> Vec<String> {
    let of = |shard| (0..).map(|n| format!("k{n}")).find(|name| shard_of(name) == ShardId(shard)).unwrap();
    (0..SHARDS).map(of).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_transaction_over_all_shards_is_seen_whole_by_every_node() {
    let Some(world) = World::start("a_transaction_over_all_shards_is_seen_whole_by_every_node", 3).await else {
        return;
    };
    let keys = one_of_each();
    for (number, node) in &world.nodes {
        let name = begin(&node.memory);
        for object in &keys {
            put_in(&node.memory, name, object, format!("by {number}").as_bytes()).await.unwrap();
        }
        assert_eq!(commit(&node.memory, name).await.unwrap(), keys.len());
        for reader in world.nodes.values() {
            for object in &keys {
                assert_eq!(reader.get(object).await.unwrap(), format!("by {number}").as_bytes());
            }
        }
    }
    // What is read counts wherever its home is, and the node that keeps a transaction is named.
    let (one, other) = (&world.nodes[&0].memory, &world.nodes[&1].memory);
    for object in &keys {
        let name = begin(one);
        get_in(one, name, object).await.unwrap();
        put_in(one, name, &keys[0], b"never").await.unwrap();
        world.nodes[&1].put(object, b"theirs").await.unwrap();
        let refused = commit(one, name).await.unwrap_err();
        assert!(matches!(&refused, ObjectError::TransactionConflict(keys) if *keys == [format!("bucket/{object}")]));
        assert!(matches!(get_in(other, name, object).await, Err(ObjectError::TransactionElsewhere { node: 0, .. })));
    }
    assert_eq!(world.nodes[&2].get(&keys[0]).await.unwrap(), b"theirs");
    world.end().await;
}

/// Moves amounts between two counters until `rounds` moves were committed; adds those that are known to be to `committed`.
async fn move_about(
    memory: ObjectMemory,
    keys: Vec<String>,
    rounds: usize,
    seed: usize,
    committed: Arc<watch::Sender<usize>>,
) {
    for round in 0..rounds {
        let (from, to) = (&keys[(seed + round) % keys.len()], &keys[(seed * 3 + round * 5 + 1) % keys.len()]);
        if from == to {
            continue;
        }
        for _ in 0..200 {
            let moved = async {
                let name = begin(&memory);
                let (a, b) = (get_in(&memory, name, from).await?, get_in(&memory, name, to).await?);
                let (a, b): (i64, i64) = (a.parse().unwrap(), b.parse().unwrap());
                put_in(&memory, name, from, (a - 1).to_string().as_bytes()).await?;
                put_in(&memory, name, to, (b + 1).to_string().as_bytes()).await?;
                commit(&memory, name).await
            };
            match moved.await {
                Ok(_) => {
                    committed.send_modify(|count| *count += 1);
                    break;
                }
                Err(ObjectError::TransactionUndecided) => break,
                Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
            }
        }
    }
}

async fn sum(world: &World, node: u32, keys: &[String]) -> i64 {
    let mut sum = 0;
    for object in keys {
        let bytes = world.nodes[&node].get(object).await.unwrap();
        sum += String::from_utf8(bytes).unwrap().parse::<i64>().unwrap();
    }
    sum
}

#[tokio::test(flavor = "multi_thread")]
async fn transactions_of_many_nodes_keep_a_sum_while_a_node_and_its_homes_are_lost() {
    let test = "transactions_of_many_nodes_keep_a_sum_while_a_node_and_its_homes_are_lost";
    let Some(mut world) = World::start(test, 3).await else { return };
    let keys = one_of_each();
    for object in &keys {
        world.nodes[&0].put(object, b"100").await.unwrap();
    }
    let committed = Arc::new(watch::Sender::new(0));
    let movers: Vec<_> = [0, 2, 0, 2]
        .into_iter()
        .enumerate()
        .map(|(seed, node)| {
            let memory = world.nodes[&node].memory.clone();
            tokio::spawn(move_about(memory, keys.clone(), 12, seed, Arc::clone(&committed)))
        })
        .collect();
    // A few have moved, and most are still to move.
    let mut moved = committed.subscribe();
    tokio::time::timeout(Duration::from_secs(60), moved.wait_for(|count| *count >= 6)).await.unwrap().unwrap();
    world.lose(1).await;
    for mover in movers {
        mover.await.unwrap();
    }
    let committed = *committed.borrow();
    assert!(committed > 10, "{committed} were committed");
    // What was prepared when the node was lost ends meanwhile.
    for object in &keys {
        let turn = async {
            let name = begin(&world.nodes[&0].memory);
            let now = get_in(&world.nodes[&0].memory, name, object).await?;
            put_in(&world.nodes[&0].memory, name, object, now.as_bytes()).await?;
            commit(&world.nodes[&0].memory, name).await
        };
        let mut written = turn.await;
        for _ in 0..100 {
            if written.is_ok() {
                break;
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
            let name = begin(&world.nodes[&0].memory);
            let now = get_in(&world.nodes[&0].memory, name, object).await.unwrap();
            put_in(&world.nodes[&0].memory, name, object, now.as_bytes()).await.unwrap();
            written = commit(&world.nodes[&0].memory, name).await;
        }
        assert!(written.is_ok(), "{object}: {written:?}");
    }
    for node in [0, 2] {
        assert_eq!(sum(&world, node, &keys).await, 100 * i64::from(SHARDS));
    }
    world.end().await;
}

/// Keeps in a shard's ledger what a home keeps of a transaction, as docs/design/transactions.md writes it down.
async fn keep(world: &World, node: u32, object: &str, bytes: &'static [u8], record: serde_json::Value) {
    let id = "000000000000000000000000000000ab";
    let about = json!({"format": 1, "transaction": id, "record": record});
    let put = json!({
        "attributes": Attributes::default(),
        "tags": {},
        "size": bytes.len(),
        "etag": "0cc175b9c0f1b6a831c399e269772661",
        "checksum": null,
        "modified": 5,
    });
    let write = json!({
        "object": {"namespace": "tenant", "bucket": "bucket", "key": object},
        "becomes": {"Put": put},
    });
    let head = json!({"transaction": 0xab, "who": who(), "token": {}, "writes": [write]}).to_string();
    let mut body = (head.len() as u32).to_le_bytes().to_vec();
    body.extend_from_slice(head.as_bytes());
    body.extend_from_slice(bytes);
    let record = Record {
        request: RequestId(u128::from(shard_of(object).0) + 1),
        namespace: Namespace::new("nigh").unwrap(),
        bucket: BucketName::new("transactions").unwrap(),
        key: ObjectKey::new(id).unwrap(),
        change: Change::Transaction { about: about.to_string().into() },
    };
    let ledger = world.nodes[&node].ledger();
    ledger.append(shard_of(object), record, Body::Inline(body.into())).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_home_that_was_lost_between_prepare_and_decision_aborts_and_one_lost_after_it_commits() {
    let test = "a_home_that_was_lost_between_prepare_and_decision_aborts_and_one_lost_after_it_commits";
    let Some(mut world) = World::start(test, 3).await else { return };
    let keys = one_of_each();
    // The homes of shards 1 and 4 are at node 1; shard 0, which decides, is at node 0.
    for object in &keys {
        world.nodes[&0].put(object, b"before").await.unwrap();
    }
    keep(&world, 1, &keys[1], b"after", json!({"prepared": {"decider": 0}})).await;
    world.lose(1).await;
    // Nobody has decided it: its turn is free again, and nothing of it takes place.
    assert_eq!(world.nodes[&2].get(&keys[1]).await.unwrap(), b"before");
    tokio::time::timeout(Duration::from_secs(20), world.nodes[&2].put(&keys[1], b"since")).await.unwrap().unwrap();
    assert_eq!(world.nodes[&0].get(&keys[1]).await.unwrap(), b"since");

    // Shard 2 at node 2 decides, with shard 5 there; nobody has applied anything yet.
    keep(&world, 2, &keys[2], b"both", json!({"decided": {"participants": [5]}})).await;
    keep(&world, 2, &keys[5], b"both", json!({"prepared": {"decider": 2}})).await;
    world.lose(2).await;
    for object in [&keys[2], &keys[5]] {
        let written = tokio::time::timeout(Duration::from_secs(20), async {
            while world.nodes[&0].get(object).await.unwrap() != b"both" {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        });
        assert!(written.await.is_ok(), "{object} was decided and is not written");
        world.nodes[&0].put(object, b"since").await.unwrap();
    }
    world.end().await;
}
