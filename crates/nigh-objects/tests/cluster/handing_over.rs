//! What a shrinking node gives up goes on at others.

use std::time::Duration;

use nigh_data::ObjectId;
use nigh_objects::Shards;
use nigh_stores::Store;
use nigh_terms::ByteSize;

use crate::world::{SHARDS, World, object};

const BYTES: usize = 300_000;
const OBJECTS: usize = 12;

/// Keys whose homes are at `node`, of three.
fn keys_of(node: u16) -> Vec<String> {
    let shards = Shards::new(SHARDS.try_into().unwrap());
    let names = (0..).map(|number| format!("object-{number}"));
    names.filter(|name| shards.of(&object(name)).0 % 3 == node).take(OBJECTS).collect()
}

fn bytes(name: &str) -> Vec<u8> {
    name.bytes().cycle().take(BYTES).collect()
}

/// Waits until what was written is in the store and nobody's journal.
async fn until_pushed(world: &World) {
    let pushed = async {
        while world.nodes.values().any(|node| node.memory.dirty().objects > 0) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), pushed).await.unwrap();
}

fn held(world: &World, node: u32) -> u64 {
    world.nodes[&node].memory.usage().objects
}

/// A node gives up all copies: how many, and of those re-elected, copied and dropped. Whoever has just read one may hold it for
/// a moment longer.
async fn give_up(world: &World, node: u32) -> [u64; 4] {
    let mut all = [0; 4];
    let given_up = async {
        while held(world, node) > 0 {
            let (shrunk, done) = world.nodes[&node].memory.shrink_and_hand_over(ByteSize::mib(64)).await;
            let now = [shrunk.copies, done.reelected, done.copied, done.dropped];
            all.iter_mut().zip(now).for_each(|(all, now)| *all += now);
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10), given_up).await.unwrap();
    all
}

#[tokio::test(flavor = "multi_thread")]
async fn what_another_node_has_moves_by_a_message_and_is_read_from_there() {
    let test = "what_another_node_has_moves_by_a_message_and_is_read_from_there";
    let Some(world) = World::start(test, 3).await else { return };
    let names = keys_of(2);
    let objects: Vec<ObjectId> = names.iter().map(|name| object(name)).collect();
    for name in &names {
        world.nodes[&0].put(name, &bytes(name)).await.unwrap();
    }
    until_pushed(&world).await;
    assert_eq!(world.nodes[&1].memory.bring(&objects).await, vec![BYTES as u64; OBJECTS]);
    // The home's own copies go first: its process is not to be the holder.
    give_up(&world, 2).await;
    assert_eq!(give_up(&world, 0).await, [OBJECTS as u64, OBJECTS as u64, 0, 0]);
    assert_eq!((held(&world, 0), held(&world, 1)), (0, OBJECTS as u64));

    // The store has them no more: what is read now comes from the holder, through the home.
    for one in &objects {
        world.store.delete(one).await.unwrap();
    }
    assert_eq!(world.nodes[&0].memory.bring(&objects).await, vec![BYTES as u64; OBJECTS]);
    assert_eq!(world.nodes[&2].memory.bring(&objects[..3]).await, vec![BYTES as u64; 3], "the home's own reads too");
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_nobody_else_has_is_copied_if_it_is_hot_and_else_dropped() {
    let test = "what_nobody_else_has_is_copied_if_it_is_hot_and_else_dropped";
    let Some(world) = World::start(test, 3).await else { return };
    let names = keys_of(2);
    for name in &names {
        world.nodes[&0].put(name, &bytes(name)).await.unwrap();
    }
    until_pushed(&world).await;
    give_up(&world, 2).await;
    let hot = OBJECTS / 3;
    for name in &names[..hot] {
        for _ in 0..4 {
            assert_eq!(world.nodes[&0].get(name).await.unwrap(), bytes(name));
        }
    }
    let before = [0, 1, 2].map(|node| held(&world, node));
    assert_eq!(before, [OBJECTS as u64, 0, 0]);
    // Nobody waits for the copies: the memory is free when `shrink` returns.
    let shrunk = world.nodes[&0].memory.shrink(ByteSize::mib(64));
    assert_eq!((shrunk.copies, held(&world, 0)), (OBJECTS as u64, 0));
    let copied = async {
        while held(&world, 1) + held(&world, 2) < hot as u64 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), copied).await.unwrap();
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!((held(&world, 0), held(&world, 1) + held(&world, 2)), (0, hot as u64), "the others were not hot");
    // What was written since is never served from a holder of what was before.
    world.nodes[&1].put(&names[0], b"new").await.unwrap();
    for node in world.nodes.values() {
        assert_eq!(node.get(&names[0]).await.unwrap(), b"new");
        assert_eq!(node.get(&names[1]).await.unwrap(), bytes(&names[1]));
    }
    world.end().await;
}
