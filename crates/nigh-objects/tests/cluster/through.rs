//! Mode `through`, wherever the home is.

use std::time::Duration;

use nigh_data::ObjectError;
use nigh_objects::{WriteMode, WriteSettings};

use crate::world::{World, bucket, key, request, who};

async fn start(test: &str) -> Option<World> {
    let wait = Duration::from_secs(2);
    World::start_writing(test, 3, WriteSettings { mode: WriteMode::Through, wait, ..WriteSettings::default() }).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_write_through_at_any_node_is_in_the_store_when_it_is_acknowledged_and_outlives_its_home() {
    let test = "a_write_through_at_any_node_is_in_the_store_when_it_is_acknowledged_and_outlives_its_home";
    let Some(mut world) = start(test).await else { return };
    let names: Vec<String> = (0..9).map(|n| format!("k{n}")).collect();
    for (n, name) in (0_u32..).zip(&names) {
        let bytes = vec![n as u8; 1000 * n as usize];
        world.nodes[&(n % 3)].put(name, &bytes).await.unwrap();
        assert_eq!(world.stored(name).await, Some(bytes.clone()), "{name}");
        for node in world.nodes.values() {
            assert_eq!(node.get(name).await.unwrap(), bytes, "{name} at {:?}", node.member);
        }
    }
    world.nodes[&2].delete("k4").await.unwrap();
    assert_eq!(world.stored("k4").await, None);
    let kept: Vec<String> = names.iter().filter(|name| *name != "k4").cloned().collect();
    for node in world.nodes.values() {
        assert_eq!(node.list().await, kept, "at {:?}", node.member);
    }
    world.lose(1).await;
    for node in world.nodes.values() {
        for (n, name) in names.iter().enumerate() {
            let got = node.get(name).await;
            match n {
                4 => assert!(matches!(got, Err(ObjectError::NoSuchKey(_))), "{got:?}"),
                _ => assert_eq!(got.unwrap(), vec![n as u8; 1000 * n], "{name} at {:?}", node.member),
            }
        }
        assert_eq!(node.list().await, kept, "at {:?}", node.member);
    }
    for (n, name) in (0_u32..).zip(&names) {
        world.nodes[&(n % 2 * 2)].put(name, b"new").await.unwrap();
        world.nodes[&(2 - n % 2 * 2)].delete(name).await.unwrap();
        assert_eq!(world.stored(name).await, None, "{name}");
    }
    assert_eq!(world.nodes[&0].list().await, Vec::<String>::new());
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_write_through_at_another_node_is_acknowledged_only_when_the_store_has_taken_it() {
    let test = "a_write_through_at_another_node_is_acknowledged_only_when_the_store_has_taken_it";
    let Some(world) = start(test).await else { return };
    let name = world.names_at(1).next().unwrap();
    let put = |bytes: &'static [u8]| {
        let (memory, written) = (world.nodes[&0].memory.clone(), key(&name));
        tokio::spawn(async move { memory.put(&who(), &bucket(), &written, request(bytes)).await })
    };
    world.nodes[&1].store_puts.set_open(false);
    let waits = put(b"first");
    while world.nodes[&1].store_puts.waiting() == 0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert!(!waits.is_finished() && world.stored(&name).await.is_none());
    world.nodes[&1].store_puts.set_open(true);
    waits.await.unwrap().unwrap();
    assert_eq!(world.stored(&name).await.unwrap(), b"first");

    world.nodes[&1].store_puts.set_open(false);
    let refused = put(b"second").await.unwrap();
    assert!(refused.is_err(), "the store has not taken it within the bound: {refused:?}");
    world.nodes[&1].store_puts.set_open(true);
    put(b"third").await.unwrap().unwrap();
    assert_eq!(world.stored(&name).await.unwrap(), b"third");
    for node in world.nodes.values() {
        assert_eq!(node.get(&name).await.unwrap(), b"third");
    }
    world.end().await;
}
