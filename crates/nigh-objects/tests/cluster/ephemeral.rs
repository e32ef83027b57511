//! Mode `ephemeral`, wherever the home is.

use std::time::Duration;

use nigh_data::{ObjectError, Tags};
use nigh_objects::{WriteMode, WriteSettings};

use crate::world::{World, bucket, key, who};

async fn start(test: &str) -> Option<World> {
    let delay = Duration::from_millis(50);
    World::start_writing(test, 3, WriteSettings { mode: WriteMode::Ephemeral, delay, ..WriteSettings::default() }).await
}

/// Waits until the ledger has answered so many appends of a node: it has the marks of its ephemeral objects then.
async fn until_appended(world: &World, node: u32, appends: u64) {
    let appended = async {
        while world.nodes[&node].answers.passed() < appends {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10), appended).await.unwrap();
}

async fn assert_everywhere(world: &World, name: &str, bytes: &[u8]) {
    for node in world.nodes.values() {
        assert_eq!(node.get(name).await.unwrap(), bytes, "{name} at {:?}", node.member);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_ephemeral_object_is_read_at_every_node_and_reported_lost_when_its_home_is_killed() {
    let test = "an_ephemeral_object_is_read_at_every_node_and_reported_lost_when_its_home_is_killed";
    let Some(mut world) = start(test).await else { return };
    let names: Vec<String> = world.names_at(1).take(4).collect();
    let before = world.nodes[&1].answers.passed();
    for (n, name) in (0_u32..).zip(&names) {
        world.nodes[&(n % 3)].put(name, name.as_bytes()).await.unwrap();
        assert_everywhere(&world, name, name.as_bytes()).await;
        assert_eq!(world.stored(name).await, None);
    }
    world.nodes[&2].put(&names[0], b"again").await.unwrap();
    assert_everywhere(&world, &names[0], b"again").await;
    let tags = Tags::from([("a".to_owned(), "b".to_owned())]);
    world.nodes[&0].memory.put_tags(&who(), &bucket(), &key(&names[2]), tags.clone()).await.unwrap();
    world.nodes[&0].delete(&names[1]).await.unwrap();
    let mut left = [&names[0], &names[2], &names[3]].map(String::clone);
    left.sort_unstable();
    for node in world.nodes.values() {
        assert!(matches!(node.get(&names[1]).await, Err(ObjectError::NoSuchKey(_))));
        assert_eq!(node.memory.get_tags(&who(), &bucket(), &key(&names[2])).await.unwrap(), tags);
        assert_eq!(node.get(&names[2]).await.unwrap(), names[2].as_bytes());
        assert_eq!(node.list().await, left, "at {:?}", node.member);
    }
    // A mark of each, and the deletion.
    until_appended(&world, 1, before + 5).await;
    world.lose(1).await;
    for node in world.nodes.values() {
        for name in &left {
            let got = node.get(name).await;
            assert!(matches!(got, Err(ObjectError::EphemeralLost(_))), "{name} at {:?}: {got:?}", node.member);
        }
        assert!(matches!(node.get(&names[1]).await, Err(ObjectError::NoSuchKey(_))));
        assert_eq!(node.list().await, Vec::<String>::new());
    }
    world.nodes[&0].delete(&left[0]).await.unwrap();
    world.nodes[&2].put(&left[1], b"new").await.unwrap();
    assert_everywhere(&world, &left[1], b"new").await;
    for node in world.nodes.values() {
        assert!(matches!(node.get(&left[0]).await, Err(ObjectError::NoSuchKey(_))));
        assert_eq!(node.list().await, left[1..2]);
    }
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn ephemeral_objects_go_with_their_home_when_it_moves_as_planned_and_not_to_the_store() {
    let test = "ephemeral_objects_go_with_their_home_when_it_moves_as_planned_and_not_to_the_store";
    let Some(mut world) = start(test).await else { return };
    let mut names: Vec<String> = world.names_at(1).take(5).collect();
    names.sort_unstable();
    let shard = World::shard_of(&names[0]);
    let sizes = [0, 1, 5000, 300_000, 1 << 20];
    let bytes = |n: usize| -> Vec<u8> { (0..sizes[n]).map(|at| (at * 7 + n) as u8).collect() };
    for (n, name) in names.iter().enumerate() {
        world.nodes[&(n as u32 % 3)].put(name, b"before").await.unwrap();
        world.nodes[&(n as u32 % 3)].put(name, &bytes(n)).await.unwrap();
    }
    let tags = Tags::from([("a".to_owned(), "b".to_owned())]);
    world.nodes[&0].memory.put_tags(&who(), &bucket(), &key(&names[3]), tags.clone()).await.unwrap();
    for to in [2, 0, 1] {
        world.hand_over(shard, to).await;
        for (n, name) in names.iter().enumerate() {
            assert_everywhere(&world, name, &bytes(n)).await;
            assert_eq!(world.stored(name).await, None);
        }
        for node in world.nodes.values() {
            assert_eq!(node.memory.get_tags(&who(), &bucket(), &key(&names[3])).await.unwrap(), tags);
            assert_eq!(node.reads(&names[2]).await, bytes(2), "inside, at {:?}", node.member);
            assert_eq!(node.list().await, names, "at {:?}", node.member);
        }
    }
    // What was written since is not hidden by the bytes that the journal had, and no write is pushed.
    world.nodes[&2].put(&names[2], b"since").await.unwrap();
    world.nodes[&0].delete(&names[4]).await.unwrap();
    assert_everywhere(&world, &names[2], b"since").await;
    world.hand_over(shard, 2).await;
    assert_everywhere(&world, &names[2], b"since").await;
    assert!(matches!(world.nodes[&0].get(&names[4]).await, Err(ObjectError::NoSuchKey(_))));
    for node in world.nodes.values() {
        node.memory.flush_all(Duration::from_secs(10)).await.unwrap();
    }
    for name in &names {
        assert_eq!(world.stored(name).await, None, "{name}");
    }
    // The journal has their bytes no more: nothing older comes back when the home is killed.
    world.lose(2).await;
    for node in world.nodes.values() {
        for name in &names[..4] {
            let got = node.get(name).await;
            assert!(matches!(got, Err(ObjectError::EphemeralLost(_))), "{name} at {:?}: {got:?}", node.member);
        }
        assert!(matches!(node.get(&names[4]).await, Err(ObjectError::NoSuchKey(_))));
        assert_eq!(node.list().await, Vec::<String>::new());
    }
    world.end().await;
}
